/* The commit clock (F8): milliseconds that never go back in a process and follow the wall clock
 * gently. Starts at max(wall clock, newest commit time in the WAL), then runs with CLOCK_BOOTTIME,
 * pulled towards the wall clock by at most 1 % of elapsed time. @thread any (its own small lock) */
#ifndef ND_CLOCK_H
#define ND_CLOCK_H

#include "storage/base/env.h"
#include "storage/base/log.h"
#include "storage/base/metrics.h"

struct nd_commit_clock;

/* `newest_ms`: the newest commit time or commit clock that recovery saw, 0 for none. */
struct nd_commit_clock *nd_commit_clock_new(const struct nd_env *env, int64_t newest_ms,
                                            struct nd_log *log, struct nd_metrics *metrics);
void nd_commit_clock_free(struct nd_commit_clock *clock);
int64_t nd_commit_clock_now_ms(struct nd_commit_clock *clock);
/* UNAVAILABLE with a text when the wall clock is before the build date: refuse to start. */
ND_CHECKED enum nd_err nd_wall_clock_check(const struct nd_env *env, struct nd_errmsg *msg);

#endif
