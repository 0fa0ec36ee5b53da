/* storage/wal: failed writes and syncs, and a full disk (W5, W6). */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/wal_private.h"
#include "wal_world.h"

static struct wal_world *world_new(uint64_t seed)
{
    struct wal_world *world = nd_xmalloc(sizeof *world);

    world_init(world, sim_env_new(seed));
    assert_int_equal(world_open(world), ND_OK);
    return world;
}

static void world_free(struct wal_world *world)
{
    struct sim_env *sim = world->sim;

    world_release(world);
    sim_env_free(sim);
    nd_free(world);
}

/* One failing call in the middle of traffic; then the log goes on in the same process. */
static void fail_and_go_on(enum sim_call call, uint64_t nth, enum sim_fault fault, uint64_t seed)
{
    struct wal_world *world = world_new(seed);
    uint32_t failed = 0;

    for (uint32_t tag = 0; tag < 4; tag++) {
        assert_int_equal(world_put(world, tag, 100), ND_OK);
    }
    sim_env_fail_nth(world->sim, call, nth, fault);
    for (uint32_t tag = 4; tag < 10; tag++) {
        assert_int_equal(world_stage(world, tag, 40 << 10), ND_OK); /* a frame each, and a roll */
    }
    world_run(world);
    assert_true(sim_env_fault_fired(world->sim));
    assert_int_equal(world->failures, 1);
    assert_int_equal(world->returned, 10);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(world->order[i], i); /* all came back, in order */
        failed += world->state[i] == WORLD_FAILED;
        /* What failed is the end of what was staged: nothing overtakes. */
        assert_int_equal(world->state[i] == WORLD_FAILED, failed > 0);
    }
    assert_in_range(failed, 1, 6);
    assert_int_equal(world->result[9], ND_ERR_UNKNOWN_OUTCOME);
    assert_false(world_stats(world).failed);

    for (uint32_t tag = 10; tag < 13; tag++) {
        assert_int_equal(world_put(world, tag, 100), ND_OK);
        assert_true(world->sequence[tag] > world->sequence[9]); /* never reused */
    }
    world_forget(world);
    sim_env_power_cut(world->sim, seed + 1);
    sim_env_restart(world->sim);
    if (world_open(world) != ND_OK) {
        fail_msg("%s", world->msg.text);
    }
    world_assert_kept(world, 0);
    for (uint32_t tag = 4; tag < 10; tag++) {
        /* Void: the fresh file says where the failed one ends. */
        assert_int_equal(world->replayed[tag], world->state[tag] == WORLD_OK);
    }
    world_free(world);
}

static void wal_w5__a_failed_sync_fails_its_group_and_a_fresh_file_goes_on(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        fail_and_go_on(SIM_SYNC, 1, SIM_FAULT_IO, seed);
    }
}

static void wal_w5__a_failed_write_fails_its_group_and_a_fresh_file_goes_on(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 6; nth++) {
        fail_and_go_on(SIM_PWRITE, nth, SIM_FAULT_IO, 30 + nth);
        fail_and_go_on(SIM_PWRITE, nth, SIM_FAULT_SHORT_WRITE, 40 + nth);
        fail_and_go_on(SIM_PWRITE, nth, SIM_FAULT_NO_SPACE, 50 + nth);
    }
}

/* Also when what fails is the next file: its header, its name, or the directory. */
static void wal_w5__a_failed_roll_fails_what_waits_for_it(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        fail_and_go_on(SIM_SYNC, 2, SIM_FAULT_IO, seed);
        fail_and_go_on(SIM_RENAME, 1, SIM_FAULT_IO, seed);
        fail_and_go_on(SIM_SYNC_DIR, 1, SIM_FAULT_IO, seed);
        fail_and_go_on(SIM_OPEN, 1, SIM_FAULT_IO, seed);
    }
}

static void wal_w5__a_failed_file_is_never_written_again(void **state)
{
    struct wal_world *world = world_new(5);

    (void)state;
    assert_int_equal(world_put(world, 0, 100), ND_OK);
    sim_env_fail_nth(world->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    world->adopts = false;
    assert_int_equal(world_put(world, 1, 100), ND_ERR_UNKNOWN_OUTCOME);
    uint64_t changes = sim_env_changes(world->sim);

    for (uint32_t i = 0; i < 5; i++) { /* until the stager adopts: nothing at all */
        assert_int_equal(world_stage(world, 2, 100), ND_ERR_UNAVAILABLE);
        sim_env_advance_ms(world->sim, 5000);
        assert_false(nd_wal_step(world->wal));
    }
    assert_int_equal(sim_env_changes(world->sim), changes);
    assert_true(world_stats(world).failed);

    world->adopts = true;
    nd_wal_stager_adopt(world->wal, &world->stager);
    world_run(world);
    assert_int_equal(world_put(world, 2, 100), ND_OK);
    assert_int_equal(world_stats(world).files, 2);
    world_free(world);
}

static void ignore_unit(struct nd_msg *msg, void *owner)
{
    (void)msg;
    (void)owner;
}

/* A stager that has not adopted is refused although the others have, and holds them up. */
static void wal_w5__the_log_goes_on_when_every_stager_has_adopted(void **state)
{
    struct wal_world *world = world_new(6);
    struct nd_wal_stager slow = {0};
    struct nd_inbox inbox;

    (void)state;
    nd_inbox_init(&inbox);
    slow.inbox = &inbox;
    slow.failed.run = ignore_unit;
    nd_wal_stager_add(world->wal, &slow);
    sim_env_fail_nth(world->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    assert_int_equal(world_put(world, 1, 100), ND_ERR_UNKNOWN_OUTCOME);
    assert_int_equal(world_stage(world, 2, 100), ND_ERR_UNAVAILABLE);
    assert_int_equal(nd_inbox_run(&inbox, NULL), 1); /* told once */
    nd_wal_stager_adopt(world->wal, &slow);
    world_run(world);
    assert_int_equal(world_put(world, 2, 100), ND_OK);
    nd_wal_stager_remove(world->wal, &slow);
    nd_inbox_release(&inbox);
    world_free(world);
}

static void wal_w5__a_fresh_file_is_tried_every_second(void **state)
{
    struct wal_world *world = world_new(7);

    (void)state;
    sim_env_fail_from(world->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    assert_int_equal(world_put(world, 1, 100), ND_ERR_UNKNOWN_OUTCOME);
    for (uint32_t i = 0; i < 10; i++) {
        uint64_t opens = sim_env_calls(world->sim, SIM_SYNC);
        sim_env_advance_ms(world->sim, 999);
        assert_false(nd_wal_step(world->wal));
        sim_env_advance_ms(world->sim, 1);
        assert_true(nd_wal_step(world->wal));
        assert_true(sim_env_calls(world->sim, SIM_SYNC) > opens);
        assert_int_equal(world_stage(world, 2, 100), ND_ERR_UNAVAILABLE);
    }
    sim_env_fail_clear(world->sim);
    sim_env_advance_ms(world->sim, 1000);
    world_run(world);
    assert_int_equal(world->failures, 1);
    assert_int_equal(world_put(world, 2, 100), ND_OK);
    world_free(world);
}

/* A failed sync followed by any crash, at any change of what follows, never refuses the start. */
static void wal_w5__no_crash_after_a_failed_sync_refuses_the_start(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct wal_world *world = world_new(k);
        assert_int_equal(world_put(world, 0, 100), ND_OK);
        sim_env_fail_nth(world->sim, SIM_SYNC, 1, SIM_FAULT_IO);
        assert_int_equal(world_stage(world, 1, 9000), ND_OK);
        assert_true(nd_wal_step(world->wal));
        sim_env_cut_at(world->sim, k);
        world_run(world);
        if (world_stage(world, 2, 100) == ND_OK) {
            world_run(world);
        }
        bool over = !sim_env_is_cut(world->sim);
        world_forget(world);
        sim_env_restart(world->sim);
        if (world_open(world) != ND_OK) {
            fail_msg("cut at change %llu: %s", (unsigned long long)k, world->msg.text);
        }
        world_assert_kept(world, 0);
        if (world->state[2] == WORLD_OK) {
            assert_false(world->replayed[1]);
        }
        world_free(world);
        if (over) {
            break;
        }
    }
}

static void wal_w6__a_full_disk_refuses_produce_and_lets_the_reserve_pass(void **state)
{
    struct wal_world *world = world_new(8);
    uint64_t need = world->options.disk_reserve_bytes + 2 * WORLD_FILE_BYTES;

    (void)state;
    sim_env_set_space(world->sim, sim_env_space_used(world->sim) + need - 8192);
    nd_wal_check_space(world->wal);
    assert_true(world_stats(world).disk_full);
    assert_int_equal(world_stage(world, 1, 100), ND_ERR_NO_SPACE);
    assert_int_equal(world_stage_class(world, 1, 100, ND_WAL_RESERVED), ND_OK);
    assert_int_equal(world_stage_checkpoint(world), ND_OK);
    world_run(world);
    assert_int_equal(world->state[1], WORLD_OK);

    sim_env_set_space(world->sim, 1 << 30);
    assert_int_equal(world_stage(world, 2, 100), ND_ERR_NO_SPACE); /* not measured again yet */
    nd_wal_check_space(world->wal);
    assert_int_equal(world_put(world, 2, 100), ND_OK);
    world_free(world);
}

/* Room for the unflushed log must stay, as it goes into segments; and so for partitions with tails.
 */
static void wal_w6__unflushed_bytes_and_tails_count(void **state)
{
    struct wal_world *world = world_new(9);
    uint64_t need = world->options.disk_reserve_bytes + 2 * WORLD_FILE_BYTES;
    uint32_t tag = 0;

    (void)state;
    sim_env_set_space(world->sim, sim_env_space_used(world->sim) + need + (100 << 10));
    nd_wal_check_space(world->wal);
    while (world_put(world, tag, 20 << 10) == ND_OK) {
        tag += 1;
        assert_in_range(tag, 1, 6);
    }
    assert_true(tag >= 3);
    nd_wal_stager_needs(world->wal, &world->stager, UINT64_MAX); /* flushed */
    assert_int_equal(world_put(world, 20, 100), ND_OK);
    nd_wal_set_tails(world->wal, 100);
    assert_int_equal(world_stage(world, 21, 100), ND_ERR_NO_SPACE);
    nd_wal_stager_needs(world->wal, &world->stager, UINT64_MAX);
    nd_wal_set_tails(world->wal, 1);
    assert_int_equal(world_put(world, 21, 100), ND_OK);
    world_free(world);
}

/* With the spares the log goes on for two files on a disk without a byte. */
static void wal_w6__the_spares_carry_acks_when_nothing_is_left(void **state)
{
    struct wal_world *world = world_new(10);
    uint32_t tag = 0;

    (void)state;
    sim_env_set_space(world->sim, sim_env_space_used(world->sim));
    nd_wal_check_space(world->wal);
    while (world_stats(world).spares > 0) {
        assert_int_equal(world_stage_class(world, tag, 40 << 10, ND_WAL_RESERVED), ND_OK);
        world_run(world);
        assert_int_equal(world->result[tag], ND_OK);
        tag += 1;
    }
    assert_true(tag > 8);
    /* Then the log fails, and freeing space heals it without a restart. */
    enum nd_err err = ND_OK;
    while (err == ND_OK) {
        assert_int_equal(world_stage_class(world, tag, 40 << 10, ND_WAL_RESERVED), ND_OK);
        world_run(world);
        err = world->result[tag++];
    }
    assert_int_equal(err, ND_ERR_UNKNOWN_OUTCOME);
    sim_env_set_space(world->sim, 1 << 30);
    sim_env_advance_ms(world->sim, 1000);
    world_run(world);
    nd_wal_check_space(world->wal);
    assert_int_equal(world_stats(world).spares, 2);
    assert_int_equal(world_put(world, tag, 100), ND_OK);
    world_free(world);
}

/* It would fill the disk for as long as it tries: what others append then fails. */
static void wal_w6__a_spare_that_will_not_fit_is_not_begun(void **state)
{
    struct wal_world *world = world_new(11);
    uint32_t tag = 0;

    (void)state;
    uint64_t room = sim_env_space_used(world->sim) + WORLD_FILE_BYTES - 4096;
    sim_env_set_space(world->sim, room);
    nd_wal_check_space(world->wal);
    while (world_stats(world).spares > 1) {
        assert_int_equal(world_stage_class(world, tag, 40 << 10, ND_WAL_RESERVED), ND_OK);
        world_run(world);
        tag += 1;
    }
    uint64_t fills = sim_env_calls(world->sim, SIM_ZERO_FILL);
    nd_wal_check_space(world->wal);
    assert_int_equal(sim_env_calls(world->sim, SIM_ZERO_FILL), fills);

    sim_env_set_space(world->sim, room + 4096);
    nd_wal_check_space(world->wal);
    assert_int_equal(world_stats(world).spares, 2);
    world_free(world);
}

/* Others fill the disk between two looks at it: every new file is a look. */
static void wal_w6__room_is_measured_with_every_file(void **state)
{
    struct wal_world *world = world_new(12);
    uint64_t need = world->options.disk_reserve_bytes + 4 * WORLD_FILE_BYTES;
    enum nd_err err = ND_OK;

    (void)state;
    nd_wal_check_space(world->wal);
    sim_env_set_space(world->sim, sim_env_space_used(world->sim) + need);
    for (uint32_t tag = 0; err == ND_OK; tag++) {
        err = world_put(world, tag, 60 << 10);
        assert_in_range(tag, 0, 100);
    }
    assert_int_equal(err, ND_ERR_NO_SPACE);
    assert_false(world_stats(world).failed);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wal_w5__a_failed_sync_fails_its_group_and_a_fresh_file_goes_on),
        cmocka_unit_test(wal_w5__a_failed_write_fails_its_group_and_a_fresh_file_goes_on),
        cmocka_unit_test(wal_w5__a_failed_roll_fails_what_waits_for_it),
        cmocka_unit_test(wal_w5__a_failed_file_is_never_written_again),
        cmocka_unit_test(wal_w5__the_log_goes_on_when_every_stager_has_adopted),
        cmocka_unit_test(wal_w5__a_fresh_file_is_tried_every_second),
        cmocka_unit_test(wal_w5__no_crash_after_a_failed_sync_refuses_the_start),
        cmocka_unit_test(wal_w6__a_full_disk_refuses_produce_and_lets_the_reserve_pass),
        cmocka_unit_test(wal_w6__unflushed_bytes_and_tails_count),
        cmocka_unit_test(wal_w6__the_spares_carry_acks_when_nothing_is_left),
        cmocka_unit_test(wal_w6__a_spare_that_will_not_fit_is_not_begun),
        cmocka_unit_test(wal_w6__room_is_measured_with_every_file),
    };
    return cmocka_run_group_tests_name("wal_failure", tests, NULL, NULL);
}
