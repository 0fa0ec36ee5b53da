/* The ballast on a simulated disk. */
#include "storage/base/alloc.h"

#include "cluster/ballast.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

enum { MIB = 1 << 20, BYTES = 2 * MIB };

struct fixture {
    struct sim_env *sim;
    const struct nd_env *env;
    struct nd_ballast ballast;
};

static int setup(void **state)
{
    struct fixture *fixture = nd_xcalloc(1, sizeof *fixture);
    fixture->sim = sim_env_new(1);
    fixture->env = sim_env_get(fixture->sim);
    assert_int_equal(nd_env_mkdirs(fixture->env, "raft", NULL), ND_OK);
    nd_ballast_init(&fixture->ballast, fixture->env, "raft", BYTES);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    nd_ballast_release(&fixture->ballast);
    sim_env_free(fixture->sim);
    nd_free(fixture);
    return 0;
}

static uint64_t free_bytes(struct fixture *fixture)
{
    struct nd_disk_space space;
    assert_int_equal(fixture->env->space(fixture->env->impl, "raft", &space, NULL), ND_OK);
    return space.bytes_free;
}

/* W6 */
static void ballast_make__takes_room_that_drop_gives_back(void **state)
{
    struct fixture *fixture = *state;
    struct nd_ballast *ballast = &fixture->ballast;
    uint64_t before = free_bytes(fixture);
    assert_false(nd_ballast_is_whole(ballast));

    assert_int_equal(nd_ballast_make(ballast, NULL), ND_OK);

    assert_true(nd_ballast_is_whole(ballast));
    assert_true(free_bytes(fixture) <= before - BYTES);
    sim_env_restart(fixture->sim);
    assert_true(nd_ballast_is_whole(ballast)); /* a power cut takes nothing of it */
    assert_true(nd_ballast_drop(ballast));
    assert_int_equal(free_bytes(fixture), before);
    assert_false(nd_ballast_drop(ballast));
    assert_false(nd_ballast_is_whole(ballast));
}

static void ballast_fits__leaves_as_much_as_it_takes(void **state)
{
    struct fixture *fixture = *state;
    uint64_t used = sim_env_space_used(fixture->sim);

    sim_env_set_space(fixture->sim, used + 2 * BYTES);
    assert_true(nd_ballast_fits(&fixture->ballast));
    sim_env_set_space(fixture->sim, used + 2 * BYTES - 8192);
    assert_false(nd_ballast_fits(&fixture->ballast));
}

static void ballast_make__leaves_nothing_behind_when_any_call_fails(void **state)
{
    struct fixture *fixture = *state;
    struct nd_ballast *ballast = &fixture->ballast;
    const enum sim_call calls[] = {SIM_OPEN, SIM_PWRITE, SIM_SYNC, SIM_SYNC_DIR};
    uint64_t before = free_bytes(fixture);

    for (size_t i = 0; i < ND_ARRAY_SIZE(calls); i++) {
        sim_env_fail_nth(fixture->sim, calls[i], 1, SIM_FAULT_NO_SPACE);
        assert_int_equal(nd_ballast_make(ballast, NULL), ND_ERR_NO_SPACE);
        assert_true(sim_env_fault_fired(fixture->sim));
        assert_int_equal(free_bytes(fixture), before);
    }
    sim_env_set_space(fixture->sim, sim_env_space_used(fixture->sim) + MIB);
    assert_int_equal(nd_ballast_make(ballast, NULL), ND_ERR_NO_SPACE);
    assert_int_equal(free_bytes(fixture), MIB);
}

static void ballast_make__ends_when_it_is_cancelled(void **state)
{
    struct fixture *fixture = *state;
    struct nd_ballast *ballast = &fixture->ballast;
    uint64_t writes = sim_env_calls(fixture->sim, SIM_PWRITE);
    atomic_store(&ballast->cancel, true);

    assert_int_equal(nd_ballast_make(ballast, NULL), ND_ERR_CANCELLED);

    assert_int_equal(sim_env_calls(fixture->sim, SIM_PWRITE), writes + 1);
    assert_false(nd_ballast_drop(ballast));
}

/* What a crash in the middle of the making leaves is no ballast, and is made whole. */
static void ballast_make__replaces_a_part_of_one(void **state)
{
    struct fixture *fixture = *state;
    struct nd_ballast *ballast = &fixture->ballast;
    const struct nd_env *env = fixture->env;
    int file;
    assert_int_equal(
        env->open(env->impl, "raft/" ND_BALLAST_NAME, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, NULL),
        ND_OK);
    assert_int_equal(env->pwrite(env->impl, file, "x", 1, BYTES - 1, NULL), ND_OK); /* sparse */
    env->close(env->impl, file);
    struct nd_file_stat stat;
    assert_int_equal(env->stat(env->impl, "raft/" ND_BALLAST_NAME, &stat, NULL), ND_OK);

    if (stat.allocated < BYTES) {
        assert_false(nd_ballast_is_whole(ballast));
    }
    assert_int_equal(nd_ballast_make(ballast, NULL), ND_OK);
    assert_true(nd_ballast_is_whole(ballast));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ballast_make__takes_room_that_drop_gives_back),
        CASE(ballast_fits__leaves_as_much_as_it_takes),
        CASE(ballast_make__leaves_nothing_behind_when_any_call_fails),
        CASE(ballast_make__ends_when_it_is_cancelled),
        CASE(ballast_make__replaces_a_part_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
