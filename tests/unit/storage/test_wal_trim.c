/* storage/wal_trim: what may go and what stands in the way (W7). */
#include "storage/base/alloc.h"

#include "storage/wal_private.h"
#include "wal_world.h"

static int setup(void **state)
{
    struct wal_world *world = nd_xmalloc(sizeof *world);

    world_init(world, sim_env_new(3));
    assert_int_equal(world_open(world), ND_OK);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct wal_world *world = *state;
    struct sim_env *sim = world->sim;

    world_release(world);
    sim_env_free(sim);
    nd_free(world);
    return 0;
}

static void put_many(struct wal_world *world, uint32_t first, uint32_t count)
{
    for (uint32_t tag = first; tag < first + count; tag++) {
        assert_int_equal(world_put(world, tag, 20 << 10), ND_OK);
    }
}

static void checkpoint(struct wal_world *world)
{
    assert_int_equal(world_stage_checkpoint(world), ND_OK);
    world_run(world);
}

/* I-10 */
static void wal_w7__only_a_synced_checkpoint_frees_files(void **state)
{
    struct wal_world *world = *state;

    put_many(world, 0, 40);
    uint32_t files = world_stats(world).files;
    assert_true(files >= 4);
    nd_wal_trim(world->wal);
    assert_int_equal(world_stats(world).files, files); /* no checkpoint */

    nd_wal_stager_needs(world->wal, &world->stager, world->sequence[39]);
    assert_int_equal(world_stage_checkpoint(world), ND_OK);
    nd_wal_trim(world->wal);
    assert_int_equal(world_stats(world).files, files); /* staged, not synced */

    sim_env_fail_nth(world->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    world_run(world);
    nd_wal_trim(world->wal);
    assert_int_equal(world_stats(world).files, files + 1); /* failed */

    checkpoint(world);
    nd_wal_trim(world->wal);
    assert_true(world_stats(world).files <= 3);
    assert_int_equal(world_stats(world).spares, 2);
    assert_int_equal(world_stats(world).replay_from, world->sequence[39]);
}

static void ignore(struct nd_msg *msg, void *owner)
{
    (void)msg;
    (void)owner;
}

/* replay_from is the lowest that any stager needs, taken when the checkpoint is staged. */
static void wal_w7__the_lowest_need_of_all_stagers_holds(void **state)
{
    struct wal_world *world = *state;
    struct nd_wal_stager other = {.inbox = &world->inbox, .failed.run = ignore};

    nd_wal_stager_add(world->wal, &other);
    put_many(world, 0, 40);
    nd_wal_stager_needs(world->wal, &world->stager, world->sequence[30]);
    nd_wal_stager_needs(world->wal, &other, world->sequence[12]);
    checkpoint(world);
    assert_int_equal(world_stats(world).replay_from, world->sequence[12]);
    assert_false(nd_wal_trimmable(world->wal) && world_stats(world).files < 3);
    nd_wal_trim(world->wal);
    world_close(world);
    assert_int_equal(world_open(world), ND_OK);
    for (uint32_t tag = 0; tag < 40; tag++) {
        assert_int_equal(world->replayed[tag], tag >= 12);
    }
}

/* A checkpoint never frees itself: its commit clock must be found. */
static void wal_w7__a_checkpoint_is_replayed_when_nothing_else_is_needed(void **state)
{
    struct wal_world *world = *state;

    put_many(world, 0, 30);
    nd_wal_stager_needs(world->wal, &world->stager, UINT64_MAX);
    checkpoint(world);
    nd_wal_trim(world->wal);
    world_close(world);
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 0);
    assert_int_equal(world->checkpoints, 1);
}

/* Staging something lowers an idle stager's need by itself; a checkpoint does not. */
static void wal_w7__staging_pins_its_own_sequence(void **state)
{
    struct wal_world *world = *state;

    checkpoint(world);
    assert_true(world->stager.needed_from == UINT64_MAX);
    put_many(world, 0, 2);
    assert_int_equal(world->stager.needed_from, world->sequence[0]);
}

static void wal_w7__trimmable_tells_whether_a_checkpoint_would_free_a_file(void **state)
{
    struct wal_world *world = *state;

    put_many(world, 0, 3);
    nd_wal_stager_needs(world->wal, &world->stager, UINT64_MAX);
    assert_false(nd_wal_trimmable(world->wal)); /* the active file stays */
    put_many(world, 3, 30);
    nd_wal_stager_needs(world->wal, &world->stager, world->sequence[2]);
    assert_false(nd_wal_trimmable(world->wal));
    nd_wal_stager_needs(world->wal, &world->stager, world->sequence[32]);
    assert_true(nd_wal_trimmable(world->wal));
    checkpoint(world);
    nd_wal_trim(world->wal);
    assert_false(nd_wal_trimmable(world->wal));
}

/* What is below it makes the log longer than keep_bytes: two files here. */
static void wal_w7__lift_below_keeps_the_log_at_its_size(void **state)
{
    struct wal_world *world = *state;

    put_many(world, 0, 10); /* a file holds ten */
    assert_int_equal(world_stats(world).files, 1);
    assert_int_equal(nd_wal_lift_below(world->wal), 0);
    put_many(world, 10, 30);
    assert_int_equal(world_stats(world).files, 4);
    uint64_t below = nd_wal_lift_below(world->wal);
    assert_int_equal(below, world->sequence[10]); /* the start of the second */
    nd_wal_stager_needs(world->wal, &world->stager, below);
    checkpoint(world);
    nd_wal_trim(world->wal);
    assert_int_equal(world_stats(world).files, 3);
    assert_int_equal(nd_wal_lift_below(world->wal), 0);
}

/* I-11, adapted: an idle log comes down to the active file and the spares. */
static void wal_w7__an_idle_log_is_one_file_and_the_spares(void **state)
{
    struct wal_world *world = *state;

    put_many(world, 0, 20);
    assert_int_equal(world_stats(world).files, 2);
    assert_int_equal(nd_wal_lift_below(world->wal), 0);
    sim_env_advance_ms(world->sim, 60 * 1000);
    uint64_t below = nd_wal_lift_below(world->wal);
    assert_true(below > world->sequence[0] && below <= world->sequence[19]);
    nd_wal_stager_needs(world->wal, &world->stager, below);
    checkpoint(world);
    nd_wal_trim(world->wal);
    assert_int_equal(world_stats(world).files, 1);
    assert_int_equal(world_stats(world).spares, 2);
}

/* W6: a full disk waits for no minute of rest: everything that is not the active file may go. */
static void wal_w6__a_full_disk_is_relieved_without_a_rest(void **state)
{
    struct wal_world *world = *state;

    put_many(world, 0, 20);
    assert_int_equal(nd_wal_lift_below(world->wal), 0);
    sim_env_set_space(world->sim, sim_env_space_used(world->sim) + (1 << 20));
    nd_wal_check_space(world->wal);
    assert_true(world_stats(world).disk_full);

    uint64_t below = nd_wal_lift_below(world->wal);
    assert_true(below > world->sequence[0] && below <= world->sequence[19]);
    nd_wal_stager_needs(world->wal, &world->stager, below);
    checkpoint(world);
    nd_wal_trim(world->wal);
    assert_int_equal(world_stats(world).files, 1);
}

/* A busy log writes no file twice: what trim frees is used again. At rest, or when the disk has no
 * plenty, only the two that W6 asks for stay. */
static void wal_w3__a_busy_log_uses_its_files_again(void **state)
{
    struct wal_world *world = *state;
    uint64_t filled = 0; /* files made with zeros */

    world_close(world);
    world->options.spares_extra = 4;
    assert_int_equal(world_open(world), ND_OK);
    for (int round = 0; round < 8; round++) {
        put_many(world, (uint32_t)round * 20, 20); /* two files each */
        nd_wal_check_space(world->wal);            /* two spares again, before any is freed */
        nd_wal_stager_needs(world->wal, &world->stager, world->sequence[round * 20 + 19]);
        checkpoint(world);
        nd_wal_trim(world->wal);
        if (round == 3) {
            filled = sim_env_calls(world->sim, SIM_ZERO_FILL);
        }
    }
    assert_true(filled > 0);
    assert_int_equal(sim_env_calls(world->sim, SIM_ZERO_FILL), filled);
    assert_true(world_stats(world).spares > 2);

    for (int i = 0; i < 4; i++) {
        nd_wal_check_space(world->wal);
    }
    assert_true(world_stats(world).spares > 2); /* not at rest yet */
    sim_env_advance_ms(world->sim, 60 * 1000);
    for (int i = 0; i < 4; i++) {
        nd_wal_check_space(world->wal);
    }
    assert_int_equal(world_stats(world).spares, 2);
}

/* Oldest first, the directory synced before the next: whatever fails, no hole is left. */
static void wal_w7__a_failed_trim_leaves_no_hole_and_is_repeated(void **state)
{
    static const enum sim_call calls[] = {SIM_RENAME, SIM_UNLINK, SIM_SYNC_DIR};
    (void)state;

    for (size_t c = 0; c < ND_ARRAY_SIZE(calls); c++) {
        for (uint64_t nth = 1; nth <= 3; nth++) {
            struct wal_world *world = nd_xmalloc(sizeof *world);
            world_init(world, sim_env_new(nth));
            assert_int_equal(world_open(world), ND_OK);
            put_many(world, 0, 60);
            nd_wal_stager_needs(world->wal, &world->stager, world->sequence[59]);
            checkpoint(world);
            sim_env_fail_nth(world->sim, calls[c], nth, SIM_FAULT_IO);
            nd_wal_trim(world->wal);
            if (nth % 2 == 0) {
                world_forget(world);
                sim_env_power_cut(world->sim, nth);
                sim_env_restart(world->sim);
                assert_int_equal(world_open(world), ND_OK);
                assert_true(world->replayed[59]);
            }
            sim_env_fail_clear(world->sim);
            nd_wal_trim(world->wal);
            assert_true(world_stats(world).files <= 3);
            assert_int_equal(world_stats(world).spares, 2);
            struct sim_env *sim = world->sim;
            world_release(world);
            sim_env_free(sim);
            nd_free(world);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(wal_w7__only_a_synced_checkpoint_frees_files),
        CASE(wal_w7__the_lowest_need_of_all_stagers_holds),
        CASE(wal_w7__a_checkpoint_is_replayed_when_nothing_else_is_needed),
        CASE(wal_w7__staging_pins_its_own_sequence),
        CASE(wal_w7__trimmable_tells_whether_a_checkpoint_would_free_a_file),
        CASE(wal_w7__lift_below_keeps_the_log_at_its_size),
        CASE(wal_w7__an_idle_log_is_one_file_and_the_spares),
        CASE(wal_w6__a_full_disk_is_relieved_without_a_rest),
        CASE(wal_w3__a_busy_log_uses_its_files_again),
        cmocka_unit_test(wal_w7__a_failed_trim_leaves_no_hole_and_is_repeated),
    };
    return cmocka_run_group_tests_name("wal_trim", tests, NULL, NULL);
}
