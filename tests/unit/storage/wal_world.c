#include "wal_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"

#include "storage/wal_private.h"
#include "storage/wal_scan.h"

struct world_unit {
    struct nd_wal_unit unit;
    struct wal_world *world;
    uint32_t tag;
    uint8_t *records;
};

static const struct nd_partition_id world_partition = {
    .incarnation = 7, .partition = 3, .topic = "orders"};

static uint8_t payload_byte(uint32_t tag, size_t i)
{
    return (uint8_t)(tag * 31 + i * 7 + 1);
}

static void stager_failed(struct nd_msg *msg, void *owner)
{
    struct wal_world *world = owner;

    (void)msg;
    world->failures += 1;
    for (uint32_t tag = 0; tag < WORLD_TAGS_MAX; tag++) {
        assert_int_not_equal(world->state[tag], WORLD_STAGED); /* all came back before it */
    }
    if (world->adopts) {
        nd_wal_stager_adopt(world->wal, &world->stager);
    }
}

void world_init(struct wal_world *world, struct sim_env *sim)
{
    memset(world, 0, sizeof *world);
    world->sim = sim;
    world->env = sim_env_get(sim);
    world->adopts = true;
    world->options = (struct nd_wal_options){.env = world->env,
                                             .dir = "data/wal",
                                             .store_id = {1, 2, 3, 4, 5},
                                             .member = 9,
                                             .file_bytes = WORLD_FILE_BYTES,
                                             .frame_bytes_max = 64 << 10,
                                             .staged_bytes_max = 8 << 20,
                                             .keep_bytes = 2 * WORLD_FILE_BYTES,
                                             .disk_reserve_bytes = 1 << 20,
                                             .spares = 2};
    nd_inbox_init(&world->inbox);
}

void world_release(struct wal_world *world)
{
    if (world->wal != NULL) {
        world_close(world);
    }
    nd_inbox_release(&world->inbox);
}

static enum nd_err replay_one(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    struct wal_world *world = arg;
    struct nd_record_view view;
    size_t size;

    (void)msg;
    assert_true(entry->sequence > world->replayed_last); /* strictly ascending */
    world->replayed_last = entry->sequence_last;
    if (entry->type != ND_WAL_COMMIT) {
        world->checkpoints += entry->type == ND_WAL_CHECKPOINT;
        return ND_OK;
    }
    uint32_t tag = (uint32_t)entry->base_offset;
    assert_true(tag < WORLD_TAGS_MAX && !world->replayed[tag]);
    assert_string_equal(entry->id.topic, world_partition.topic);
    assert_int_equal(entry->origin_member, world->options.member);
    assert_int_equal(entry->origin_sequence, entry->sequence);
    assert_int_equal(nd_record_get(entry->records, &view, &size), ND_OK);
    for (size_t i = 0; i < view.payload.size; i++) {
        assert_int_equal(view.payload.data[i], payload_byte(tag, i));
    }
    world->replayed[tag] = true;
    world->sequence[tag] = entry->sequence;
    world->replayed_count += 1;
    return ND_OK;
}

static void replay_begin(struct wal_world *world)
{
    memset(world->replayed, 0, sizeof world->replayed);
    world->replayed_count = 0;
    world->replayed_last = 0;
    world->checkpoints = 0;
    world->msg.text[0] = '\0';
}

enum nd_err world_scan(struct wal_world *world)
{
    struct nd_wal_names names;
    struct nd_wal_scan scan = {.count = 0};

    replay_begin(world);
    enum nd_err err = nd_wal_names_read(&names, world->env, world->options.dir, &world->msg);
    if (err != ND_OK) {
        return err;
    }
    err = nd_wal_scan_read(&scan, world->env, world->options.dir, &names, world->options.store_id,
                           true, &world->msg);
    if (err == ND_OK) {
        err = nd_wal_scan_replay(&scan, world->env, world->options.dir, replay_one, world,
                                 &world->msg);
        nd_wal_scan_release(&scan);
    }
    nd_wal_names_release(&names);
    return err;
}

enum nd_err world_open(struct wal_world *world)
{
    replay_begin(world);
    enum nd_err err = nd_wal_open(&world->wal, &world->options, replay_one, world, &world->msg);
    if (err != ND_OK) {
        world->wal = NULL;
        return err;
    }
    world->stager.inbox = &world->inbox;
    world->stager.failed.run = stager_failed;
    nd_wal_stager_add(world->wal, &world->stager);
    return ND_OK;
}

static void unit_returned(struct nd_msg *msg, void *owner)
{
    struct world_unit *wu =
        ND_CONTAINER_OF(ND_CONTAINER_OF(msg, struct nd_wal_unit, msg), struct world_unit, unit);
    struct wal_world *world = wu->world;

    (void)owner;
    if (wu->tag < WORLD_TAGS_MAX) {
        world->state[wu->tag] = wu->unit.result == ND_OK ? WORLD_OK : WORLD_FAILED;
        world->result[wu->tag] = wu->unit.result;
        world->order[world->returned++] = wu->tag;
    }
    nd_wal_unit_release(&wu->unit);
    nd_free(wu->records);
    nd_free(wu);
}

void world_forget(struct wal_world *world)
{
    if (world->wal != NULL) {
        struct nd_list units = ND_LIST_INIT(units);
        nd_list_move(&units, &world->wal->staged);
        for (struct nd_list *link; (link = nd_list_pop(&units)) != NULL;) {
            struct nd_msg *msg = ND_CONTAINER_OF(link, struct nd_msg, link);
            ND_CONTAINER_OF(msg, struct nd_wal_unit, msg)->result = ND_ERR_UNKNOWN_OUTCOME;
            unit_returned(msg, world);
        }
        world->adopts = false;
        nd_inbox_run(&world->inbox, world);
        world->adopts = true;
        if (world->wal->active.open) {
            world->env->close(world->env->impl, world->wal->active.file);
        }
        nd_wal_free(world->wal);
        world->wal = NULL;
    }
}

void world_close(struct wal_world *world)
{
    world_run(world);
    nd_wal_stager_remove(world->wal, &world->stager);
    nd_wal_close(world->wal);
    world->wal = NULL;
}

static struct world_unit *unit_new(struct wal_world *world, uint32_t tag, enum nd_wal_class class)
{
    struct world_unit *wu = nd_xcalloc(1, sizeof *wu);

    nd_wal_unit_init(&wu->unit, class);
    wu->unit.msg.run = unit_returned;
    wu->world = world;
    wu->tag = tag;
    return wu;
}

static enum nd_err unit_stage(struct wal_world *world, struct world_unit *wu)
{
    enum nd_err err = nd_wal_stage(world->wal, &world->stager, &wu->unit);

    if (err != ND_OK) {
        nd_wal_unit_release(&wu->unit);
        nd_free(wu->records);
        nd_free(wu);
    }
    return err;
}

enum nd_err world_stage_class(struct wal_world *world, uint32_t tag, size_t size,
                              enum nd_wal_class class)
{
    struct world_unit *wu = unit_new(world, tag, class);
    uint8_t *payload = nd_xmalloc(size);

    for (size_t i = 0; i < size; i++) {
        payload[i] = payload_byte(tag, i);
    }
    wu->records = nd_xmalloc(nd_record_size(0, 0, size));
    size_t records_size =
        nd_record_put(wu->records, (struct nd_slice){0}, NULL, 0, nd_slice_make(payload, size));
    nd_free(payload);
    nd_wal_unit_add_commit(
        &wu->unit, &(struct nd_wal_commit){.id = &world_partition,
                                           .base_offset = tag,
                                           .time_ms = 1000 + tag,
                                           .count = 1,
                                           .records = nd_slice_make(wu->records, records_size)});
    enum nd_err err = unit_stage(world, wu);
    if (err == ND_OK) {
        world->state[tag] = WORLD_STAGED;
        world->sequence[tag] = wu->unit.sequence;
    }
    return err;
}

enum nd_err world_stage(struct wal_world *world, uint32_t tag, size_t size)
{
    return world_stage_class(world, tag, size, ND_WAL_PRODUCE);
}

enum nd_err world_stage_checkpoint(struct wal_world *world)
{
    struct world_unit *wu = unit_new(world, UINT32_MAX, ND_WAL_RESERVED);

    nd_wal_unit_add_checkpoint(&wu->unit, &(struct nd_wal_checkpoint){.commit_clock_ms = 77});
    return unit_stage(world, wu);
}

void world_run(struct wal_world *world)
{
    bool busy = true;

    while (busy) {
        busy = nd_wal_step(world->wal);
        busy = nd_inbox_run(&world->inbox, world) > 0 || busy;
    }
}

enum nd_err world_put(struct wal_world *world, uint32_t tag, size_t size)
{
    enum nd_err err = world_stage(world, tag, size);

    if (err == ND_OK) {
        world_run(world);
        err = world->result[tag];
    }
    return err;
}

void world_assert_kept(struct wal_world *world, uint32_t first)
{
    for (uint32_t tag = first; tag < WORLD_TAGS_MAX; tag++) {
        if (world->state[tag] == WORLD_OK && !world->replayed[tag]) {
            fail_msg("unit %u was confirmed and is lost", tag);
        }
        if (world->state[tag] == WORLD_UNUSED && world->replayed[tag]) {
            fail_msg("unit %u was never staged", tag);
        }
    }
}

struct name_list {
    char (*names)[64];
    uint32_t count, max;
    const char *suffix;
};

static bool name_add(void *arg, const char *name, enum nd_file_kind kind)
{
    struct name_list *list = arg;
    size_t size = strlen(name), suffix = strlen(list->suffix);

    (void)kind;
    if (size > suffix && strcmp(name + size - suffix, list->suffix) == 0 &&
        list->count < list->max) {
        snprintf(list->names[list->count++], 64, "%s", name);
    }
    return true;
}

static int name_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

uint32_t world_names(struct wal_world *world, const char *suffix, char names[][64], uint32_t max)
{
    struct name_list list = {.names = names, .max = max, .suffix = suffix};

    assert_int_equal(world->env->list(world->env->impl, world->options.dir, name_add, &list, NULL),
                     ND_OK);
    qsort(names, list.count, 64, name_compare);
    return list.count;
}

struct nd_wal_stats world_stats(struct wal_world *world)
{
    struct nd_wal_stats stats;

    nd_wal_stats(world->wal, &stats);
    return stats;
}

void world_path(struct wal_world *world, uint32_t nth, char out[128])
{
    char names[64][64];
    uint32_t count = world_names(world, ".wal", names, 64);

    assert_true(nth < count);
    snprintf(out, 128, "%s/%s", world->options.dir, names[nth]);
}
