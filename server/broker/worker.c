#include "server/broker/worker.h"

#include <stdatomic.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

struct worker {
    struct nd_inbox inbox;
    struct nd_thread thread;
    _Atomic bool stop;
};

struct nd_workers {
    struct worker *all;
    uint32_t threads; /* 0: one inbox, stepped */
    uint32_t count;
    _Atomic uint32_t next;
};

struct nd_workers *nd_workers_new(uint32_t threads)
{
    struct nd_workers *workers = nd_xcalloc(1, sizeof *workers);

    workers->threads = threads;
    workers->count = ND_MAX(threads, 1u);
    workers->all = nd_xcalloc(workers->count, sizeof *workers->all);
    for (uint32_t i = 0; i < workers->count; i++) {
        nd_inbox_init(&workers->all[i].inbox);
    }
    return workers;
}

static void worker_loop(void *arg)
{
    struct worker *worker = arg;

    while (!atomic_load_explicit(&worker->stop, memory_order_acquire)) {
        nd_inbox_wait(&worker->inbox, UINT64_MAX);
        nd_inbox_run(&worker->inbox, worker);
    }
    while (nd_inbox_run(&worker->inbox, worker) > 0) {
    }
}

bool nd_workers_start(struct nd_workers *workers)
{
    for (uint32_t i = 0; i < workers->threads; i++) {
        if (!nd_thread_start(&workers->all[i].thread, "nd-worker", worker_loop, &workers->all[i])) {
            return false;
        }
    }
    return true;
}

void nd_workers_stop(struct nd_workers *workers)
{
    for (uint32_t i = 0; i < workers->threads; i++) {
        /* release: what was submitted before is seen by the loop's last run */
        atomic_store_explicit(&workers->all[i].stop, true, memory_order_release);
        nd_inbox_wake(&workers->all[i].inbox);
        nd_thread_join(&workers->all[i].thread);
    }
}

void nd_workers_free(struct nd_workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        nd_inbox_run(&workers->all[i].inbox, &workers->all[i]);
        nd_inbox_release(&workers->all[i].inbox);
    }
    nd_free(workers->all);
    nd_free(workers);
}

static void job_run(struct nd_msg *msg, void *owner)
{
    struct nd_worker_job *job = ND_CONTAINER_OF(msg, struct nd_worker_job, msg);

    (void)owner;
    job->work(job);
    nd_inbox_push(job->reply_to, &job->reply);
}

void nd_workers_submit(struct nd_workers *workers, struct nd_worker_job *job)
{
    /* relaxed: only spreads the jobs */
    uint32_t turn = atomic_fetch_add_explicit(&workers->next, 1, memory_order_relaxed);

    job->msg.run = job_run;
    nd_inbox_push(&workers->all[turn % workers->count].inbox, &job->msg);
}

bool nd_workers_step(struct nd_workers *workers)
{
    return workers->threads == 0 && nd_inbox_run(&workers->all[0].inbox, &workers->all[0]) > 0;
}
