/* The threads that run bcrypt, and the jobs that wait for one. How many may wait is the pusher's to
 * bound. */
#ifndef ND_BCRYPT_POOL_H
#define ND_BCRYPT_POOL_H

#include "storage/base/list.h"
#include "storage/base/metrics.h"

#include "server/security/password.h"

struct nd_bcrypt_pool;

/* Embedded in the pusher's request, which is the pool's until `run`; that may free it. */
struct nd_bcrypt_job {
    struct nd_list link;
    /* Once, on a thread of the pool; `room` NULL: cancelled, on the thread that stops it. */
    void (*run)(struct nd_bcrypt_job *job, struct nd_bcrypt_room *room);
};

/* NULL: a thread did not start. `queued` (may be NULL) is the gauge of waiting jobs. */
struct nd_bcrypt_pool *nd_bcrypt_pool_new(uint32_t threads, struct nd_series *queued);
/* @thread any; not after nd_bcrypt_pool_stop() */
void nd_bcrypt_pool_push(struct nd_bcrypt_pool *pool, struct nd_bcrypt_job *job);
/* What runs is finished, what waits is cancelled. */
void nd_bcrypt_pool_stop(struct nd_bcrypt_pool *pool);
void nd_bcrypt_pool_free(struct nd_bcrypt_pool *pool); /* stopped */

#endif
