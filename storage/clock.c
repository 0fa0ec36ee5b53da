#include "storage/clock.h"

#include <inttypes.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

enum { NS_PER_MS = 1000000, MS_PER_S = 1000, PULL_DIVISOR = 100, DIFFERENCE_LOGGED_MS = 5000 };

/* Set by the build; without it, a date that this source is surely younger than. */
#ifndef ND_BUILD_TIME_S
#define ND_BUILD_TIME_S 1767225600 /* 2026-01-01 */
#endif

/* Beyond it a wall clock is taken for nonsense and the sums below could overflow: the year 2200. */
static const int64_t wall_ms_max = INT64_C(7258118400000);

struct nd_commit_clock {
    const struct nd_env *env;
    struct nd_log *log;
    struct nd_series *difference;
    struct nd_mutex lock;
    /* guarded by lock */
    int64_t now_ns;        /* since 1970 */
    uint64_t boot_ns;      /* when now_ns was right */
    uint64_t pull_rest_ns; /* elapsed time whose hundredth is less than 1 ns */
    bool far;              /* the difference was above the limit and was logged */
};

static int64_t wall_ns(const struct nd_env *env)
{
    int64_t wall_ms = env->wall_ms(env->impl);

    wall_ms = wall_ms < 0 ? 0 : ND_MIN(wall_ms, wall_ms_max);
    return wall_ms * NS_PER_MS;
}

struct nd_commit_clock *nd_commit_clock_new(const struct nd_env *env, int64_t newest_ms,
                                            struct nd_log *log, struct nd_metrics *metrics)
{
    struct nd_commit_clock *clock = nd_xcalloc(1, sizeof *clock);
    /* A newest time above the bound is kept as far as sums allow: commit times must not go back. */
    int64_t newest_ns = ND_MIN(newest_ms, INT64_MAX / NS_PER_MS / 2) * NS_PER_MS;

    clock->env = env;
    clock->log = log;
    clock->difference =
        nd_metrics_gauge(metrics, "commit_clock_difference_seconds", "",
                         "Commit clock minus wall clock; it is pulled in by 1 % of elapsed time.");
    clock->boot_ns = env->boot_ns(env->impl);
    clock->now_ns = ND_MAX(wall_ns(env), newest_ns);
    nd_mutex_init(&clock->lock);
    return clock;
}

void nd_commit_clock_free(struct nd_commit_clock *clock)
{
    if (clock != NULL) {
        nd_mutex_release(&clock->lock);
        nd_free(clock);
    }
}

static void difference_tell_locked(struct nd_commit_clock *clock, int64_t difference_ns)
    ND_REQUIRES(clock->lock)
{
    int64_t difference_ms = difference_ns / NS_PER_MS;
    bool far = difference_ms > DIFFERENCE_LOGGED_MS || difference_ms < -DIFFERENCE_LOGGED_MS;

    nd_series_set(clock->difference, (double)difference_ms / MS_PER_S);
    if (far && !clock->far) {
        nd_log(clock->log, ND_LOG_WARN, "storage", "commit clock and wall clock differ",
               "difference_ms=%" PRId64, difference_ms);
    }
    clock->far = far;
}

int64_t nd_commit_clock_now_ms(struct nd_commit_clock *clock)
{
    const struct nd_env *env = clock->env;

    nd_mutex_lock(&clock->lock);
    uint64_t boot_ns = env->boot_ns(env->impl);
    int64_t wall = wall_ns(env);
    uint64_t elapsed = boot_ns > clock->boot_ns ? boot_ns - clock->boot_ns : 0;
    int64_t pull_max = (int64_t)((elapsed + clock->pull_rest_ns) / PULL_DIVISOR);

    clock->pull_rest_ns = (elapsed + clock->pull_rest_ns) % PULL_DIVISOR;
    clock->boot_ns = ND_MAX(boot_ns, clock->boot_ns);
    clock->now_ns += (int64_t)elapsed;
    int64_t pull = wall - clock->now_ns;
    pull = ND_MAX(ND_MIN(pull, pull_max), -ND_MIN(pull_max, (int64_t)elapsed));
    clock->now_ns += pull;
    difference_tell_locked(clock, clock->now_ns - wall);
    int64_t now_ms = clock->now_ns / NS_PER_MS;
    nd_mutex_unlock(&clock->lock);
    return now_ms;
}

enum nd_err nd_wall_clock_check(const struct nd_env *env, struct nd_errmsg *msg)
{
    int64_t wall_ms = env->wall_ms(env->impl);

    if (wall_ms < (int64_t)ND_BUILD_TIME_S * MS_PER_S) {
        nd_errmsg_set(msg,
                      "the wall clock (%" PRId64
                      " s since 1970) is before the day this program was "
                      "built: set the clock",
                      wall_ms / MS_PER_S);
        return ND_ERR_UNAVAILABLE;
    }
    return ND_OK;
}
