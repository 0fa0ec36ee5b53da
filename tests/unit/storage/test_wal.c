/* storage/wal: staging, groups, frames (W1, W2, P1, P6). */
#include "storage/base/alloc.h"

#include "storage/wal_private.h"
#include "wal_world.h"

static int setup(void **state)
{
    struct wal_world *world = nd_xmalloc(sizeof *world);

    world_init(world, sim_env_new(1));
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

/* I-1, P1 */
static void wal_p1__a_unit_returns_only_after_its_sync(void **state)
{
    struct wal_world *world = *state;
    uint64_t syncs = sim_env_calls(world->sim, SIM_SYNC);

    assert_int_equal(world_stage(world, 1, 100), ND_OK);
    assert_true(nd_inbox_empty(&world->inbox));
    assert_int_equal(world->state[1], WORLD_STAGED);
    assert_true(nd_wal_step(world->wal));
    assert_int_equal(sim_env_calls(world->sim, SIM_SYNC), syncs + 1);
    nd_inbox_run(&world->inbox, world);
    assert_int_equal(world->state[1], WORLD_OK);

    /* Confirmed means on the device, whatever the cache loses. */
    sim_env_power_cut(world->sim, 3);
    world_forget(world);
    sim_env_restart(world->sim);
    assert_int_equal(world_open(world), ND_OK);
    assert_true(world->replayed[1]);
}

/* I-12, W1 */
static void wal_w1__all_units_staged_during_a_sync_share_the_next_one(void **state)
{
    struct wal_world *world = *state;
    uint64_t syncs = sim_env_calls(world->sim, SIM_SYNC);
    uint64_t writes = sim_env_calls(world->sim, SIM_PWRITE);

    for (uint32_t tag = 0; tag < 100; tag++) {
        assert_int_equal(world_stage(world, tag, 100), ND_OK);
    }
    assert_true(nd_wal_step(world->wal));

    assert_int_equal(sim_env_calls(world->sim, SIM_SYNC), syncs + 1);
    assert_int_equal(sim_env_calls(world->sim, SIM_PWRITE), writes + 1);
    assert_int_equal(nd_inbox_run(&world->inbox, world), 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(world->order[i], i);
        assert_int_equal(world->state[i], WORLD_OK);
    }
}

/* P6 */
static void wal_p6__a_lone_unit_is_one_write_of_one_block_and_one_sync(void **state)
{
    struct wal_world *world = *state;
    uint64_t at = world->wal->active.at;
    uint64_t changes = sim_env_changes(world->sim);

    assert_int_equal(world_put(world, 1, 256), ND_OK);

    assert_int_equal(world->wal->active.at, at + ND_WAL_BLOCK);
    assert_int_equal(sim_env_changes(world->sim), changes + 2);
    assert_false(nd_wal_step(world->wal));
}

static void wal_w2__a_big_group_is_several_frames_and_one_sync(void **state)
{
    struct wal_world *world = *state;
    uint64_t syncs = sim_env_calls(world->sim, SIM_SYNC);
    uint64_t writes = sim_env_calls(world->sim, SIM_PWRITE);

    for (uint32_t tag = 0; tag < 5; tag++) {
        assert_int_equal(world_stage(world, tag, 30 << 10), ND_OK);
    }
    world_run(world);

    assert_int_equal(sim_env_calls(world->sim, SIM_SYNC), syncs + 1);
    assert_int_equal(sim_env_calls(world->sim, SIM_PWRITE), writes + 3);
    assert_int_equal(world->state[4], WORLD_OK);
}

/* Blocks that hold confirmed bytes are never written again. */
static void wal_w2__a_frame_never_shares_a_block_with_an_older_one(void **state)
{
    struct wal_world *world = *state;

    for (uint32_t tag = 0; tag < 20; tag++) {
        uint64_t at = world->wal->active.at;
        assert_int_equal(at % ND_WAL_BLOCK, 0);
        assert_int_equal(world_put(world, tag, 1 + tag * 397), ND_OK);
        assert_true(world->wal->active.at > at);
        assert_int_equal(world->wal->active.synced_to, world->wal->active.at);
    }
}

static void wal_w2__an_empty_frame_says_how_far_syncs_reached_after_a_second(void **state)
{
    struct wal_world *world = *state;

    assert_int_equal(world_put(world, 1, 100), ND_OK);
    uint64_t at = world->wal->active.at;
    sim_env_advance_ms(world->sim, 999);
    assert_false(nd_wal_step(world->wal));
    sim_env_advance_ms(world->sim, 1);
    assert_true(nd_wal_step(world->wal));
    assert_int_equal(world->wal->active.at, at + ND_WAL_BLOCK);
    sim_env_advance_ms(world->sim, 5000);
    assert_false(nd_wal_step(world->wal)); /* once is enough */

    /* With it, damage of the last frame with entries is damage, not a torn end. */
    char names[4][64], path[128];
    assert_int_equal(world_names(world, ".wal", names, 4), 1);
    world_close(world);
    snprintf(path, sizeof path, "data/wal/%s", names[0]);
    sim_env_damage(world->sim, path, at - ND_WAL_BLOCK + 60, 1);
    assert_int_equal(world_open(world), ND_ERR_CORRUPT);
    assert_non_null(strstr(world->msg.text, names[0]));
    assert_non_null(strstr(world->msg.text, "offset 4096"));
}

static void wal_stage__refuses_what_no_frame_holds(void **state)
{
    struct wal_world *world = *state;
    uint64_t next = world_stats(world).sequence_next;

    assert_int_equal(world_stage(world, 1, 64 << 10), ND_ERR_TOO_LARGE);
    assert_int_equal(world_stats(world).sequence_next, next);
    assert_int_equal(world_put(world, 2, 63 << 10), ND_OK);
}

static void wal_stage__refuses_beyond_its_bound(void **state)
{
    struct wal_world *world = *state;
    uint32_t tag = 0;
    enum nd_err err = ND_OK;

    while (err == ND_OK) {
        err = world_stage(world, tag++, 60 << 10);
    }
    assert_int_equal(err, ND_ERR_OVERLOADED);
    assert_in_range(tag, (8 << 20) / (60 << 10), (8 << 20) / (60 << 10) + 1);
    world_run(world);
    assert_int_equal(world_put(world, tag, 100), ND_OK); /* the room came back */
}

/* I-13, W2, W3 */
static void wal_w3__a_full_file_is_followed_by_a_new_one_and_no_frame_spans_two(void **state)
{
    struct wal_world *world = *state;
    char names[16][64];

    for (uint32_t tag = 0; tag < 40; tag++) {
        assert_int_equal(world_put(world, tag, 20 << 10), ND_OK);
    }
    assert_true(world_names(world, ".wal", names, 16) >= 4);
    assert_int_equal(world_stats(world).files, world_names(world, ".wal", names, 16));
    world_close(world);
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 40);
    world_assert_kept(world, 0);
}

/* The roll in the middle of a group: the old file is synced before the next header names its end.
 */
static void wal_w3__a_group_across_a_roll_is_confirmed_whole_and_in_order(void **state)
{
    struct wal_world *world = *state;

    for (uint32_t tag = 0; tag < 60; tag++) {
        assert_int_equal(world_stage(world, tag, 20 << 10), ND_OK);
    }
    world_run(world);
    for (uint32_t i = 0; i < 60; i++) {
        assert_int_equal(world->order[i], i);
        assert_int_equal(world->state[i], WORLD_OK);
    }
    sim_env_power_cut(world->sim, 5);
    world_forget(world);
    sim_env_restart(world->sim);
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 60);
}

/* I-3 as adapted: sequences ascend strictly across rolls and opens; the opens leave the only gaps.
 */
static void wal_w3__sequences_ascend_across_rolls_and_opens(void **state)
{
    struct wal_world *world = *state;
    uint64_t last = 0;

    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 20; i++) {
            uint32_t tag = round * 20 + i;
            assert_int_equal(world_put(world, tag, 20 << 10), ND_OK);
            assert_true(world->sequence[tag] > last);
            assert_true(i == 0 || world->sequence[tag] == last + 1);
            last = world->sequence[tag];
        }
        world_close(world);
        assert_int_equal(world_open(world), ND_OK);
        assert_int_equal(world_stats(world).sequence_next % (1ULL << 40), 0);
    }
}

/* I-6: there is no way to take a staged unit back; its true outcome always comes. */
static void wal_p1__a_staged_unit_always_gets_its_outcome(void **state)
{
    struct wal_world *world = *state;

    assert_int_equal(world_stage(world, 1, 100), ND_OK);
    world_close(world); /* writes the last group */
    assert_int_equal(world->state[1], WORLD_OK);
    assert_int_equal(world_open(world), ND_OK);
    assert_true(world->replayed[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wal_p1__a_unit_returns_only_after_its_sync, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(wal_w1__all_units_staged_during_a_sync_share_the_next_one,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(wal_p6__a_lone_unit_is_one_write_of_one_block_and_one_sync,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(wal_w2__a_big_group_is_several_frames_and_one_sync, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(wal_w2__a_frame_never_shares_a_block_with_an_older_one,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            wal_w2__an_empty_frame_says_how_far_syncs_reached_after_a_second, setup, teardown),
        cmocka_unit_test_setup_teardown(wal_stage__refuses_what_no_frame_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(wal_stage__refuses_beyond_its_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(
            wal_w3__a_full_file_is_followed_by_a_new_one_and_no_frame_spans_two, setup, teardown),
        cmocka_unit_test_setup_teardown(
            wal_w3__a_group_across_a_roll_is_confirmed_whole_and_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(wal_w3__sequences_ascend_across_rolls_and_opens, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(wal_p1__a_staged_unit_always_gets_its_outcome, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("wal", tests, NULL, NULL);
}
