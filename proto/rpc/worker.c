/* The thread of a server's completion queue.
 *
 * An answer from another thread meets the worker in the transport when that is awake: the core then
 * hands the write to a third thread. So such an answer is left in the worker's outbox, which it
 * empties between two events. A worker that sleeps is woken for it when many calls are open, since
 * more answers will follow; else it is left asleep and the answer is sent by who has it, which
 * saves a lone caller the crossing.
 *
 *            queue and outbox empty
 *    awake ─────────────────────────► asleep
 *      ▲                                 │
 *      └──────── event, or woken ────────┘
 *
 * Lock order: call → worker. The core has no public way to wake a queue but this: a batch of no
 * operations on any call of the queue is done at once. */
#include "proto/rpc/server_impl.h"

enum { AWAITED_FEW = 2 }; /* so many callers are answered directly */

static _Thread_local const struct nd_rpc_worker *running;

/* The answers are in the outbox, which is emptied next. */
static void on_woken(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_worker *worker = ND_CONTAINER_OF(tag, struct nd_rpc_worker, woken);

    (void)ok;
    nd_mutex_lock(&worker->lock);
    worker->wake_posted = false;
    nd_mutex_unlock(&worker->lock);
}

void nd_rpc_worker_init(struct nd_rpc_worker *worker, struct nd_rpc_server *server)
{
    *worker = (struct nd_rpc_worker){.server = server};
    nd_mutex_init(&worker->lock);
    worker->queue = grpc_completion_queue_create_for_next(NULL);
    worker->woken.run = on_woken;
    grpc_channel *nowhere = grpc_lame_client_channel_create(NULL, GRPC_STATUS_UNAVAILABLE, "");
    worker->bell = grpc_channel_create_call(nowhere, NULL, GRPC_PROPAGATE_DEFAULTS, worker->queue,
                                            grpc_slice_from_static_string("/wake"), NULL,
                                            gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_channel_destroy(nowhere);
}

void nd_rpc_worker_release(struct nd_rpc_worker *worker)
{
    ND_ASSERT(worker->outbox == NULL);
    grpc_call_unref(worker->bell);
    grpc_completion_queue_destroy(worker->queue);
    nd_mutex_release(&worker->lock);
}

static void outbox_add_locked(struct nd_rpc_worker *worker, struct nd_rpc_call *call)
    ND_REQUIRES(worker->lock)
{
    call->outbox_next = NULL;
    if (worker->outbox == NULL) {
        worker->outbox = call;
    } else {
        worker->outbox_last->outbox_next = call;
    }
    worker->outbox_last = call;
}

void nd_rpc_worker_hand(struct nd_rpc_call *call, bool add)
{
    struct nd_rpc_worker *worker = call->worker;

    nd_mutex_lock(&worker->lock);
    bool wake = !worker->awake && !worker->wake_posted;
    if (add) {
        outbox_add_locked(worker, call);
    }
    worker->wake_posted = worker->wake_posted || wake;
    nd_mutex_unlock(&worker->lock);
    if (wake) {
        nd_rpc_batch(worker->bell, NULL, 0, &worker->woken);
    }
}

bool nd_rpc_worker_defer(struct nd_rpc_call *call, bool add)
{
    struct nd_rpc_worker *worker = call->worker;

    if (running == worker) {
        return false;
    }
    /* relaxed: a hint */
    bool many = atomic_load_explicit(&worker->awaited, memory_order_relaxed) > AWAITED_FEW;
    nd_mutex_lock(&worker->lock);
    bool defer = worker->awake || (many && call->awaited);
    bool wake = defer && !worker->awake && !worker->wake_posted;
    if (defer && add) {
        outbox_add_locked(worker, call);
    }
    worker->wake_posted = worker->wake_posted || wake;
    nd_mutex_unlock(&worker->lock);
    if (wake) {
        nd_rpc_batch(worker->bell, NULL, 0, &worker->woken);
    }
    return defer;
}

/* A call that is soon to be answered begins, or ended. @thread worker */
void nd_rpc_worker_await(struct nd_rpc_call *call, bool begin)
{
    struct nd_rpc_worker *worker = call->worker;

    if (call->awaited != begin) {
        call->awaited = begin;
        /* relaxed: a hint, and only the worker changes it */
        uint32_t now = atomic_load_explicit(&worker->awaited, memory_order_relaxed);
        atomic_store_explicit(&worker->awaited, begin ? now + 1 : now - 1, memory_order_relaxed);
    }
}

/* Send for all that asked. True: nobody did, and with `rest` others send themselves from now on. */
static bool outbox_run(struct nd_rpc_worker *worker, bool rest)
{
    nd_mutex_lock(&worker->lock);
    struct nd_rpc_call *call = worker->outbox;
    bool none = call == NULL;
    worker->outbox = NULL;
    worker->awake = !none || !rest;
    nd_mutex_unlock(&worker->lock);
    while (call != NULL) {
        struct nd_rpc_call *next = call->outbox_next;
        nd_rpc_call_send_deferred(call);
        call = next;
    }
    return none;
}

void nd_rpc_worker_run(void *arg)
{
    struct nd_rpc_worker *worker = arg;
    grpc_event event;
    bool rest = false;

    running = worker;
    do {
        bool wait = outbox_run(worker, rest) && rest;
        gpr_timespec until =
            wait ? gpr_inf_future(GPR_CLOCK_MONOTONIC) : gpr_inf_past(GPR_CLOCK_MONOTONIC);
        event = grpc_completion_queue_next(worker->queue, until, NULL);
        if (wait) {
            (void)outbox_run(worker, false); /* awake before the event is seen to */
        }
        rest = event.type == GRPC_QUEUE_TIMEOUT;
    } while (rest || nd_rpc_event_run(event));
    while (!outbox_run(worker, true)) {
    }
    for (struct nd_rpc_call *call = worker->spare, *next; call != NULL; call = next) {
        next = call->spare_next;
        nd_rpc_call_discard(call);
    }
    worker->spare = NULL;
}
