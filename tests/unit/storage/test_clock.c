/* storage/clock (F8): the commit clock under every kind of wall clock. */
#include "storage/base/alloc.h"

#include "storage/clock.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

struct fixture {
    struct sim_env *sim;
    const struct nd_env *env;
    int64_t wall_ms; /* at the start */
};

static int setup(void **state)
{
    struct fixture *f = nd_xcalloc(1, sizeof *f);

    f->sim = sim_env_new(1);
    f->env = sim_env_get(f->sim);
    f->wall_ms = f->env->wall_ms(f->env->impl);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    sim_env_free(f->sim);
    nd_free(f);
    return 0;
}

static void commit_clock__follows_a_steady_wall_clock(void **state)
{
    struct fixture *f = *state;
    struct nd_commit_clock *clock = nd_commit_clock_new(f->env, 0, NULL, NULL);

    assert_int_equal(nd_commit_clock_now_ms(clock), f->wall_ms);
    sim_env_advance_ms(f->sim, 12345);
    assert_int_equal(nd_commit_clock_now_ms(clock), f->wall_ms + 12345);
    sim_env_suspend_ms(f->sim, 60000); /* the machine slept */
    assert_int_equal(nd_commit_clock_now_ms(clock), f->wall_ms + 72345);
    nd_commit_clock_free(clock);
}

static void commit_clock__starts_at_the_newest_time_of_the_log(void **state)
{
    struct fixture *f = *state;
    struct nd_commit_clock *clock = nd_commit_clock_new(f->env, f->wall_ms + 5000, NULL, NULL);

    assert_int_equal(nd_commit_clock_now_ms(clock), f->wall_ms + 5000);
    sim_env_advance_ms(f->sim, 100000);
    assert_int_equal(nd_commit_clock_now_ms(clock), f->wall_ms + 100000 + 4000);
    nd_commit_clock_free(clock);
}

static void commit_clock__is_pulled_by_at_most_a_hundredth(void **state)
{
    struct fixture *f = *state;
    struct nd_metrics *metrics = nd_metrics_new();
    struct nd_commit_clock *clock = nd_commit_clock_new(f->env, 0, NULL, metrics);
    struct nd_series *gauge =
        nd_metrics_gauge(metrics, "commit_clock_difference_seconds", "",
                         "Commit clock minus wall clock; it is pulled in by 1 % of elapsed time.");

    sim_env_set_wall_ms(f->sim, f->wall_ms - 100000);
    sim_env_advance_ms(f->sim, 1000);
    assert_int_equal(nd_commit_clock_now_ms(clock), f->wall_ms + 990);
    assert_true(nd_series_value(gauge) > 99.98 && nd_series_value(gauge) < 100);
    sim_env_set_wall_ms(f->sim, f->wall_ms + 500000);
    sim_env_advance_ms(f->sim, 1000);
    assert_int_equal(nd_commit_clock_now_ms(clock), f->wall_ms + 990 + 1010);
    assert_true(nd_series_value(gauge) < -490);
    nd_commit_clock_free(clock);
    nd_metrics_free(metrics);
}

static void commit_clock__is_pulled_as_far_by_many_small_steps(void **state)
{
    struct fixture *f = *state;
    struct nd_commit_clock *clock = nd_commit_clock_new(f->env, f->wall_ms + 1000, NULL, NULL);

    for (uint32_t i = 0; i < 100000; i++) {
        sim_env_advance_ns(f->sim, 70); /* 7 ms, of which a hundredth is 70 us */
        (void)nd_commit_clock_now_ms(clock);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        sim_env_advance_ns(f->sim, 993000);
        (void)nd_commit_clock_now_ms(clock);
    }
    /* 1 s has passed: 10 ms were taken off. */
    assert_int_equal(nd_commit_clock_now_ms(clock), f->wall_ms + 1000 + 1000 - 10);
    nd_commit_clock_free(clock);
}

/* I-39 */
static void commit_time_monotonic_with_clock_step(void **state)
{
    struct fixture *f = *state;
    struct nd_commit_clock *clock = nd_commit_clock_new(f->env, 0, NULL, NULL);
    uint64_t seed = 39;
    int64_t last = 0;
    static const int64_t wild[] = {0, 1, INT64_MAX / 2, INT64_C(4102444800000)};

    for (uint32_t i = 0; i < 20000; i++) {
        int64_t step = (int64_t)nd_rand_below(&seed, 2000000) - 1000000;
        bool is_wild = nd_rand_below(&seed, 50) == 0;
        sim_env_set_wall_ms(f->sim, is_wild ? wild[nd_rand_below(&seed, ND_ARRAY_SIZE(wild))]
                                            : f->wall_ms + step);
        int64_t now = nd_commit_clock_now_ms(clock);
        assert_true(now >= last);
        last = now;
        sim_env_set_wall_ms(f->sim, f->wall_ms);
        sim_env_advance_ns(f->sim, nd_rand_below(&seed, 30000000));
    }
    nd_commit_clock_free(clock);
}

static void commit_clock__takes_no_harm_from_absurd_newest_times(void **state)
{
    struct fixture *f = *state;
    struct nd_commit_clock *clock = nd_commit_clock_new(f->env, INT64_MAX, NULL, NULL);
    int64_t first = nd_commit_clock_now_ms(clock);

    sim_env_advance_ms(f->sim, 1000);
    assert_true(first > f->wall_ms);
    assert_true(nd_commit_clock_now_ms(clock) >= first);
    nd_commit_clock_free(clock);
}

static void wall_clock_check__refuses_a_day_before_the_build(void **state)
{
    struct fixture *f = *state;
    struct nd_errmsg msg = {{0}};

    sim_env_set_wall_ms(f->sim, INT64_C(1500000000000)); /* 2017 */
    assert_int_equal(nd_wall_clock_check(f->env, &msg), ND_ERR_UNAVAILABLE);
    assert_non_null(strstr(msg.text, "wall clock"));
    sim_env_set_wall_ms(f->sim, INT64_C(4102444800000)); /* 2100 */
    assert_int_equal(nd_wall_clock_check(f->env, &msg), ND_OK);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(commit_clock__follows_a_steady_wall_clock),
        CASE(commit_clock__starts_at_the_newest_time_of_the_log),
        CASE(commit_clock__is_pulled_by_at_most_a_hundredth),
        CASE(commit_clock__is_pulled_as_far_by_many_small_steps),
        CASE(commit_time_monotonic_with_clock_step),
        CASE(commit_clock__takes_no_harm_from_absurd_newest_times),
        CASE(wall_clock_check__refuses_a_day_before_the_build),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
