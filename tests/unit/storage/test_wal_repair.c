/* storage/wal_repair: what is salvaged, what is said, and that a crash during it does no harm (W4).
 */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/layout.h"
#include "storage/state.h"
#include "storage/wal_private.h"
#include "storage/wal_repair.h"
#include "wal_world.h"

enum { UNITS = 30 };

struct report {
    char text[16384];
    size_t size;
};

static void report_line(void *arg, const char *line)
{
    struct report *report = arg;

    report->size += (size_t)snprintf(report->text + report->size,
                                     sizeof report->text - report->size, "%s\n", line);
    assert_true(report->size < sizeof report->text);
}

static enum nd_err repair(struct wal_world *world, struct report *report, bool make_new)
{
    struct nd_wal_repair_options options = {.env = world->env,
                                            .data_dir = "data",
                                            .make_new = make_new,
                                            .report = report_line,
                                            .report_arg = report};

    memset(report, 0, sizeof *report);
    return nd_wal_repair(&options, &world->msg);
}

/* A log of `UNITS` units in several files, its process dead. */
static struct wal_world *world_new(uint64_t seed)
{
    struct wal_world *world = nd_xmalloc(sizeof *world);
    struct nd_layout layout;

    world_init(world, sim_env_new(seed));
    assert_int_equal(nd_layout_open(&layout, world->env, "data", &world->msg), ND_OK);
    memcpy(world->options.store_id, layout.store_id, 16);
    assert_int_equal(nd_layout_confirm(&layout, &world->msg), ND_OK);
    nd_layout_close(&layout);
    assert_int_equal(world_open(world), ND_OK);
    for (uint32_t tag = 0; tag < UNITS; tag++) {
        assert_int_equal(world_put(world, tag, 20 << 10), ND_OK); /* ten a file, six blocks each */
    }
    world_forget(world);
    sim_env_restart(world->sim);
    return world;
}

static void world_free(struct wal_world *world)
{
    struct sim_env *sim = world->sim;

    world_release(world);
    sim_env_free(sim);
    nd_free(world);
}

static uint64_t place_of(uint32_t index)
{
    return ND_WAL_BLOCK + (uint64_t)index * 6 * ND_WAL_BLOCK;
}

/* All units but those of [first, last] are there, and the log goes on. */
static void assert_lost(struct wal_world *world, uint32_t first, uint32_t last)
{
    if (world_open(world) != ND_OK) {
        fail_msg("%s", world->msg.text);
    }
    for (uint32_t tag = 0; tag < UNITS; tag++) {
        if (world->replayed[tag] != (tag < first || tag > last)) {
            fail_msg("unit %u", tag);
        }
    }
    assert_int_equal(world_put(world, 100, 100), ND_OK);
    for (uint32_t tag = 0; tag < UNITS; tag++) {
        assert_true(world->sequence[100] > world->sequence[tag]);
    }
    world_close(world);
    assert_int_equal(world_open(world), ND_OK);
    assert_true(world->replayed[100]);
}

static void damage_repair_assert(uint32_t nth, uint32_t index, uint32_t lost)
{
    struct wal_world *world = world_new(nth * 100 + index);
    struct report report;
    char path[128], line[256];

    world_path(world, nth, path);
    sim_env_damage(world->sim, path, place_of(index) + 500, 8);
    assert_int_equal(world_open(world), ND_ERR_CORRUPT);
    assert_int_equal(repair(world, &report, false), ND_OK);
    snprintf(line, sizeof line, "%s: offset %llu: damaged", path,
             (unsigned long long)place_of(index));
    if (strstr(report.text, line) == NULL) {
        fail_msg("%s", report.text);
    }
    snprintf(line, sizeof line, "sequences %llu..%llu are lost",
             (unsigned long long)world->sequence[lost], (unsigned long long)world->sequence[lost]);
    if (strstr(report.text, line) == NULL) {
        fail_msg("%s", report.text);
    }
    assert_non_null(strstr(report.text, "data/quarantine/"));
    assert_lost(world, lost, lost);
    world_free(world);
}

static void wal_repair__a_damaged_frame_costs_that_frame(void **state)
{
    (void)state;
    damage_repair_assert(2, 0, 20); /* the last file: its first frame, */
    damage_repair_assert(2, 5, 25); /* one in the middle */
    damage_repair_assert(1, 0, 10);
    damage_repair_assert(1, 7, 17);
    damage_repair_assert(1, 9, 19); /* its last: the next file follows less */
    damage_repair_assert(0, 0, 0);
    damage_repair_assert(0, 9, 9);
}

static void wal_repair__a_log_without_damage_is_left_alone(void **state)
{
    struct wal_world *world = world_new(1);
    struct report report;

    (void)state;
    uint64_t digest = sim_env_digest(world->sim);
    assert_int_equal(repair(world, &report, false), ND_OK);
    assert_string_equal(report.text, "");
    assert_int_equal(sim_env_digest(world->sim), digest);
    world_free(world);
}

static void wal_repair__a_damaged_header_costs_no_frame(void **state)
{
    (void)state;
    for (uint32_t nth = 0; nth < 3; nth++) {
        struct wal_world *world = world_new(nth);
        struct report report;
        char path[128];
        world_path(world, nth, path);
        sim_env_damage(world->sim, path, 50, 1);
        assert_int_equal(world_open(world), ND_ERR_CORRUPT);
        assert_int_equal(repair(world, &report, false), ND_OK);
        assert_non_null(strstr(report.text, "offset 0: damaged"));
        assert_lost(world, UNITS, UNITS);
        world_free(world);
    }
}

static void wal_repair__a_cut_file_keeps_what_is_left(void **state)
{
    struct wal_world *world = world_new(4);
    struct report report;
    char path[128];
    int file;

    (void)state;
    world_path(world, 1, path);
    assert_int_equal(world->env->open(world->env->impl, path, ND_OPEN_WRITE, &file, NULL), ND_OK);
    assert_int_equal(world->env->truncate(world->env->impl, file, place_of(4) + 100, NULL), ND_OK);
    world->env->close(world->env->impl, file);
    assert_int_equal(world_open(world), ND_ERR_CORRUPT);
    assert_int_equal(repair(world, &report, false), ND_OK);
    assert_lost(world, 14, 19);
    world_free(world);
}

static void wal_repair__missing_files_are_said_to_be_lost(void **state)
{
    (void)state;
    for (uint32_t nth = 0; nth < 2; nth++) {
        struct wal_world *world = world_new(5 + nth);
        struct report report;
        char path[128];
        world_path(world, nth, path);
        assert_int_equal(world->env->unlink(world->env->impl, path, NULL), ND_OK);
        assert_int_equal(world_open(world), ND_ERR_CORRUPT);
        assert_int_equal(repair(world, &report, false), ND_OK);
        assert_non_null(strstr(report.text, "lost"));
        assert_lost(world, nth * 10, nth * 10 + 9);
        world_free(world);
    }
}

/* What a failed sync made void stays void. */
static void wal_repair__does_not_bring_void_frames_back(void **state)
{
    struct wal_world *world = nd_xmalloc(sizeof *world);
    struct nd_layout layout;
    struct report report;
    char path[128];

    (void)state;
    world_init(world, sim_env_new(9));
    assert_int_equal(nd_layout_open(&layout, world->env, "data", &world->msg), ND_OK);
    memcpy(world->options.store_id, layout.store_id, 16);
    nd_layout_close(&layout);
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world_put(world, 0, 20 << 10), ND_OK);
    assert_int_equal(world_put(world, 1, 20 << 10), ND_OK);
    /* A failing write after good ones: the good ones of the group are void, and valid on the
     * device. */
    for (uint32_t tag = 2; tag < 6; tag++) {
        assert_int_equal(world_stage(world, tag, 40 << 10), ND_OK);
    }
    sim_env_fail_nth(world->sim, SIM_PWRITE, 4, SIM_FAULT_IO);
    world_run(world);
    assert_int_equal(world->state[2], WORLD_FAILED);
    assert_int_equal(world_put(world, 6, 100), ND_OK);
    world_path(world, 0, path);
    world_forget(world);
    sim_env_restart(world->sim);
    sim_env_damage(world->sim, path, place_of(0) + 500, 8);
    assert_int_equal(world_open(world), ND_ERR_CORRUPT);
    assert_int_equal(repair(world, &report, false), ND_OK);
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 2);
    assert_true(world->replayed[1] && world->replayed[6]);
    world_free(world);
}

static void wal_repair__survives_a_power_cut_at_every_change(void **state)
{
    static const struct {
        uint32_t nth, index, lost;
    } cases[] = {{2, 4, 24}, {1, 9, 19}};

    (void)state;
    for (size_t c = 0; c < ND_ARRAY_SIZE(cases); c++) {
        for (uint64_t k = 1;; k++) {
            struct wal_world *world = world_new(k);
            struct report report;
            char path[128];
            world_path(world, cases[c].nth, path);
            sim_env_damage(world->sim, path, place_of(cases[c].index) + 500, 8);
            sim_env_cut_at(world->sim, k);
            nd_ignore(repair(world, &report, false), "the power may be cut");
            bool over = !sim_env_is_cut(world->sim);
            sim_env_restart(world->sim);
            if (repair(world, &report, false) != ND_OK) {
                fail_msg("cut at change %llu: %s", (unsigned long long)k, world->msg.text);
            }
            assert_lost(world, cases[c].lost, cases[c].lost);
            world_free(world);
            if (over) {
                break;
            }
        }
    }
}

static void wal_repair__new_begins_above_every_stored_position(void **state)
{
    struct wal_world *world = world_new(11);
    struct nd_positions positions;
    struct report report;
    char dir[256], names[8][64];

    (void)state;
    assert_int_equal(repair(world, &report, true), ND_ERR_CONFLICT); /* there is one */
    uint32_t count = world_names(world, ".wal", names, 8);
    for (uint32_t i = 0; i < count; i++) {
        char path[128];
        world_path(world, 0, path);
        assert_int_equal(world->env->unlink(world->env->impl, path, NULL), ND_OK);
    }
    nd_positions_init(&positions);
    positions.id = (struct nd_partition_id){.incarnation = 7, .partition = 3, .topic = "orders"};
    positions.applied_sequence = (5ULL << 40) + 17;
    nd_layout_partition_dir(dir, sizeof dir, "data", &positions.id);
    assert_int_equal(nd_env_mkdirs(world->env, dir, &world->msg), ND_OK);
    struct nd_state_item item = {.partition_dir = dir, .positions = &positions};
    nd_state_store(world->env, world->options.store_id, &item, 1, &world->msg);
    assert_int_equal(item.result, ND_OK);

    assert_int_equal(repair(world, &report, false), ND_ERR_NOT_FOUND);
    world->options.must_exist = true;
    assert_int_equal(world_open(world), ND_ERR_CORRUPT);
    assert_int_equal(repair(world, &report, true), ND_OK);
    assert_int_equal(world_open(world), ND_OK);
    assert_true(world_stats(world).sequence_next > positions.applied_sequence);
    assert_int_equal(world->replayed_count, 0);
    world_free(world);
}

static void wal_repair__makes_no_data_directory_by_mistake(void **state)
{
    struct wal_world world;
    struct report report;

    (void)state;
    world_init(&world, sim_env_new(12));
    assert_int_equal(repair(&world, &report, true), ND_ERR_NOT_FOUND);
    sim_env_free(world.sim);
    world_release(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wal_repair__a_damaged_frame_costs_that_frame),
        cmocka_unit_test(wal_repair__a_log_without_damage_is_left_alone),
        cmocka_unit_test(wal_repair__a_damaged_header_costs_no_frame),
        cmocka_unit_test(wal_repair__a_cut_file_keeps_what_is_left),
        cmocka_unit_test(wal_repair__missing_files_are_said_to_be_lost),
        cmocka_unit_test(wal_repair__does_not_bring_void_frames_back),
        cmocka_unit_test(wal_repair__survives_a_power_cut_at_every_change),
        cmocka_unit_test(wal_repair__new_begins_above_every_stored_position),
        cmocka_unit_test(wal_repair__makes_no_data_directory_by_mistake),
    };
    return cmocka_run_group_tests_name("wal_repair", tests, NULL, NULL);
}
