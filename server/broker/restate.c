#include "server/broker/restate.h"

#include "storage/base/alloc.h"

#include "server/broker/flush.h"
#include "server/broker/retain.h"
#include "server/broker/topic_state.h"

enum { UNIT_BYTES = 64 << 10, UNIT_PARTITIONS = 256 };

struct nd_restate_unit {
    struct nd_wal_unit unit;
    uint32_t count;
    struct nd_partition *partitions[UNIT_PARTITIONS];
};

/* Something that may move its pin is under way. */
static bool is_helped(const struct nd_partition *partition)
{
    return partition->flush != NULL || partition->restating || partition->records_restating;
}

void nd_restate_stick(struct nd_partition *partition)
{
    nd_list_remove(&partition->stuck);
    nd_list_append(&partition->topic->shard->stuck, &partition->stuck);
}

static void restated(struct nd_restate_unit *unit, enum nd_err result)
{
    for (uint32_t i = 0; i < unit->count; i++) {
        struct nd_partition *partition = unit->partitions[i];
        partition->restating = false;
        if (result == ND_OK) {
            /* Entries before it are in it; it and those after it are kept. */
            partition->position_from = unit->unit.sequence;
        }
        nd_partition_update_pin(partition);
        if (result == ND_OK) {
            nd_restate_unlift(partition);
            nd_retain_stated(partition);
        } else if (partition->lifting) {
            nd_restate_stick(partition);
        }
        nd_topic_state_unbusy(partition->topic);
    }
    nd_wal_unit_release(&unit->unit);
    nd_free(unit);
}

static void restate_back(struct nd_msg *msg, void *owner)
{
    struct nd_restate_unit *unit = ND_CONTAINER_OF(msg, struct nd_restate_unit, unit.msg);

    nd_shard_unit_back(owner);
    restated(unit, unit->unit.result);
}

bool nd_restate_stage(struct nd_shard *shard)
{
    struct nd_restate_unit *unit = shard->restating;

    if (unit == NULL) {
        return false;
    }
    shard->restating = NULL;
    unit->unit.msg.run = restate_back;
    enum nd_err err = nd_shard_stage_unit(shard, &unit->unit);
    if (err != ND_OK) {
        restated(unit, err);
    }
    return err == ND_OK;
}

bool nd_restate_add(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;
    struct nd_positions positions;

    /* Not during a flush: its CHECKPOINT may be older than the POSITION, which then would say less.
     */
    if (partition->flush != NULL || partition->restating || partition->topic->ended) {
        return false;
    }
    struct nd_restate_unit *unit = shard->restating;
    if (unit == NULL) {
        unit = shard->restating = nd_xcalloc(1, sizeof *unit);
        nd_wal_unit_init(&unit->unit, ND_WAL_RESERVED);
    }
    nd_positions_init(&positions);
    nd_partition_positions(partition, &positions);
    nd_wal_unit_add_position(&unit->unit, &positions);
    nd_positions_release(&positions);
    unit->partitions[unit->count++] = partition;
    partition->restating = true;
    partition->stated_start = partition->log_start;
    partition->topic->busy += 1;
    if (unit->count == UNIT_PARTITIONS || unit->unit.bytes >= UNIT_BYTES) {
        (void)nd_restate_stage(shard); /* a failure comes back to each of them */
    }
    return true;
}

void nd_restate_unlift(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;

    if (!partition->lifting || is_helped(partition)) {
        return;
    }
    nd_list_remove(&partition->stuck);
    nd_heap_remove(&shard->lifting, &partition->pin);
    partition->lifting = false;
    nd_partition_update_pin(partition);
}

/* `records_below`: see nd_wal_restate_below. */
static void lift_one(struct nd_partition *partition, uint64_t below, uint64_t records_below)
{
    nd_heap_remove(&partition->topic->shard->pins, &partition->pin);
    partition->lifting = true;
    nd_partition_update_pin(partition);
    if (is_helped(partition)) {
        return; /* what is under way may be all it needs */
    }
    if (nd_tail_oldest_sequence(&partition->tail) < below && nd_flush_start(partition)) {
        return;
    }
    bool records = nd_restate_records_add(partition, records_below);
    bool position = partition->position_from < below && nd_restate_add(partition);
    if (!records && !position) {
        nd_restate_stick(partition);
    }
}

static uint64_t records_below_of(struct nd_shard *shard)
{
    /* relaxed: see nd_broker */
    size_t bytes = atomic_load_explicit(&shard->broker->unflushable_bytes, memory_order_relaxed);

    return bytes == 0 ? 0 : nd_wal_restate_below(shard->wal, bytes);
}

void nd_restate_lift(struct nd_shard *shard)
{
    struct nd_heap_node *node;
    struct nd_list *link;

    while ((link = nd_list_pop(&shard->stuck)) != NULL) {
        nd_restate_unlift(ND_CONTAINER_OF(link, struct nd_partition, stuck));
    }
    if (shard->down_since_ns != 0) {
        return;
    }
    uint64_t records_below = records_below_of(shard);
    uint64_t below = ND_MAX(nd_wal_lift_below(shard->wal), records_below);
    while ((node = nd_heap_first(&shard->pins)) != NULL && node->key < below &&
           nd_flush_has_room(shard)) {
        lift_one(ND_CONTAINER_OF(node, struct nd_partition, pin), below, records_below);
    }
    (void)nd_restate_stage(shard); /* a failure comes back to each of them */
    nd_restate_records_stage(shard);
}
