/* A small pool of threads for what may block on the device: opening, cold reads. */
#ifndef ND_WORKER_H
#define ND_WORKER_H

#include "storage/base/inbox.h"

struct nd_workers;

/* Embedded in what the job needs. `work` runs on a worker; then `reply` is posted to `reply_to`. */
struct nd_worker_job {
    struct nd_msg msg; /* the pool's */
    struct nd_msg reply;
    struct nd_inbox *reply_to;
    void (*work)(struct nd_worker_job *job);
};

/* `threads` 0: jobs run in nd_workers_step(). */
struct nd_workers *nd_workers_new(uint32_t threads);
ND_CHECKED bool nd_workers_start(struct nd_workers *workers);
void nd_workers_stop(struct nd_workers *workers); /* after the jobs that were submitted */
void nd_workers_free(struct nd_workers *workers);
void nd_workers_submit(struct nd_workers *workers, struct nd_worker_job *job); /* @thread any */
bool nd_workers_step(struct nd_workers *workers); /* without threads; false: nothing to do */

#endif
