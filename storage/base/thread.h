/* Mutex, condition, thread. Locks exist only in storage/base and where storage/README.md says so.
 */
#ifndef ND_BASE_THREAD_H
#define ND_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "storage/base/compiler.h"

struct ND_CAPABILITY("mutex") nd_mutex {
    pthread_mutex_t impl;
};
struct nd_cond {
    pthread_cond_t impl; /* CLOCK_MONOTONIC */
};

void nd_mutex_init(struct nd_mutex *mutex);
void nd_mutex_release(struct nd_mutex *mutex);
void nd_mutex_lock(struct nd_mutex *mutex) ND_ACQUIRE(mutex);
void nd_mutex_unlock(struct nd_mutex *mutex) ND_RELEASE(mutex);
void nd_cond_init(struct nd_cond *cond);
void nd_cond_release(struct nd_cond *cond);
void nd_cond_wait(struct nd_cond *cond, struct nd_mutex *mutex) ND_REQUIRES(mutex);
/* `deadline_ns` on CLOCK_MONOTONIC; false when it passed. */
bool nd_cond_wait_until(struct nd_cond *cond, struct nd_mutex *mutex, uint64_t deadline_ns)
    ND_REQUIRES(mutex);
void nd_cond_signal(struct nd_cond *cond);
void nd_cond_broadcast(struct nd_cond *cond);

/* Wakes one thread that sleeps beside a lock, after the lock was given back: a condition signalled
 * under it lets the sleeper run straight into the lock. `rings` is guarded by that lock; the
 * sleeper counts it under the lock before it waits, so no ring is lost. */
struct nd_bell {
    _Atomic uint32_t rings;
};

void nd_bell_init(struct nd_bell *bell);
/* Under the lock: a later wait for the count of before returns at once. */
void nd_bell_ring(struct nd_bell *bell);
uint32_t nd_bell_count(const struct nd_bell *bell);
/* Without the lock, after nd_bell_ring(): ends the wait. The bell may be gone by then; only its
 * address is used, and a stranger there wakes without a reason. */
void nd_bell_wake(const struct nd_bell *bell);
/* Sleep until the count is not `seen` any more; may also end without a reason. False: `deadline_ns`
 * (CLOCK_MONOTONIC; UINT64_MAX: none) passed. */
bool nd_bell_wait_until(struct nd_bell *bell, uint32_t seen, uint64_t deadline_ns);

struct nd_thread {
    pthread_t impl;
    bool started;
};

/* `name` is shown by ps and gdb, at most 15 bytes. All signals are blocked in the new thread.
 * nd_thread_join on one that was never started does nothing. */
ND_CHECKED bool nd_thread_start(struct nd_thread *thread, const char *name, void (*run)(void *arg),
                                void *arg);
void nd_thread_join(struct nd_thread *thread);

#endif
