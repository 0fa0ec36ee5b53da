/* storage/wal: the power fails at every change of the disk, and again while the log opens (I-2,
 * P1). */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "wal_world.h"

enum { UNITS = 24, UNIT_BYTES = 30 << 10 };

/* Groups, rolls, checkpoints, trims, a rest. *needed: the first unit that must still be replayed.
 */
static void workload(struct wal_world *world, uint32_t *needed)
{
    uint32_t tag = 0;

    *needed = 0;
    if (world_open(world) != ND_OK) {
        return;
    }
    while (tag < UNITS) {
        uint32_t group = 1 + tag % 3;
        for (uint32_t i = 0; i < group && tag < UNITS; i++, tag++) {
            if (world_stage(world, tag, i == 0 ? UNIT_BYTES : 200) != ND_OK) {
                return;
            }
        }
        world_run(world);
        if (tag % 8 >= 6 && world->state[tag - 2] == WORLD_OK) {
            *needed = tag - 2;
            nd_wal_stager_needs(world->wal, &world->stager, world->sequence[*needed]);
            if (world_stage_checkpoint(world) != ND_OK) {
                return;
            }
            world_run(world);
            nd_wal_trim(world->wal);
        }
    }
    sim_env_advance_ms(world->sim, 1000);
    world_run(world);
}

static void assert_opens(struct wal_world *world, uint64_t k, uint64_t j)
{
    if (world_open(world) != ND_OK) {
        fail_msg("cut at change %llu and at %llu of the recovery: %s", (unsigned long long)k,
                 (unsigned long long)j, world->msg.text);
    }
}

/* One run with a cut at change `k`, and at change `j` of the recovery (0: none). False: `k` or `j`
 * is beyond the end. */
static bool run(uint64_t k, uint64_t j)
{
    struct wal_world *world = nd_xmalloc(sizeof *world);
    struct sim_env *sim = sim_env_new(k * 1000 + j);
    bool replayed[WORLD_TAGS_MAX], cut_again = true;
    uint32_t needed;

    world_init(world, sim);
    sim_env_cut_at(sim, k);
    workload(world, &needed);
    bool cut = sim_env_is_cut(sim);
    world_forget(world);
    sim_env_restart(sim);
    if (j > 0) {
        sim_env_cut_at(sim, j);
        if (world_open(world) == ND_OK) {
            world_assert_kept(world, needed);
        }
        memcpy(replayed, world->replayed, sizeof replayed);
        cut_again = sim_env_is_cut(sim);
        world_forget(world);
        sim_env_restart(sim);
    }
    assert_opens(world, k, j);
    world_assert_kept(world, needed);
    for (uint32_t tag = needed; j > 0 && tag < UNITS; tag++) {
        assert_true(!replayed[tag] || world->replayed[tag]); /* once replayed, always */
    }
    /* Life goes on. */
    uint64_t last = world->replayed_last;
    assert_int_equal(world_put(world, UNITS, UNIT_BYTES), ND_OK);
    assert_true(world->sequence[UNITS] > last);
    world_close(world);
    assert_opens(world, k, j);
    world_assert_kept(world, needed);
    world_release(world);
    sim_env_free(sim);
    nd_free(world);
    return cut && cut_again;
}

/* I-2 */
static void wal_p1__a_power_cut_at_every_change_loses_nothing_confirmed(void **state)
{
    uint64_t k = 1;

    (void)state;
    while (run(k, 0)) {
        k += 1;
    }
    assert_true(k > 60);
}

static void wal_p1__a_second_cut_during_the_recovery_loses_nothing_either(void **state)
{
    (void)state;
    for (uint64_t k = 3;; k += 7) {
        uint64_t j = 1;
        while (run(k, j)) {
            j += 1;
        }
        if (j == 1) { /* no cut at k: the workload was over */
            assert_true(k > 60);
            return;
        }
        assert_true(j > 3);
    }
}

/* Every call fails once. Nothing confirmed is lost, and what opens goes on. */
static void wal_w5__any_call_may_fail_once(void **state)
{
    static const enum sim_fault faults[] = {SIM_FAULT_IO, SIM_FAULT_NO_SPACE};

    (void)state;
    for (size_t f = 0; f < 2; f++) {
        bool fired = true;
        for (uint64_t nth = 1; fired; nth += 1 + f) {
            struct wal_world *world = nd_xmalloc(sizeof *world);
            struct sim_env *sim = sim_env_new(nth);
            uint32_t needed;
            world_init(world, sim);
            sim_env_fail_nth(sim, SIM_ANY, nth, faults[f]);
            workload(world, &needed);
            fired = sim_env_fault_fired(sim);
            world_forget(world);
            sim_env_power_cut(sim, nth);
            sim_env_restart(sim);
            assert_opens(world, nth, 0);
            world_assert_kept(world, needed);
            for (uint32_t tag = 0; tag < UNITS; tag++) {
                /* A failed unit stays void once the log went on. */
                if (world->state[tag] == WORLD_FAILED && world->state[UNITS - 1] == WORLD_OK) {
                    assert_false(world->replayed[tag]);
                }
            }
            world_release(world);
            sim_env_free(sim);
            nd_free(world);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wal_p1__a_power_cut_at_every_change_loses_nothing_confirmed),
        cmocka_unit_test(wal_p1__a_second_cut_during_the_recovery_loses_nothing_either),
        cmocka_unit_test(wal_w5__any_call_may_fail_once),
    };
    return cmocka_run_group_tests_name("wal_crash", tests, NULL, NULL);
}
