/* One call on the server, and what it hangs on. Private to proto/rpc.
 *
 *   armed ──request event──► open ──finish──► status started ──last tag──► done ──► spare or freed
 *                  │          ▲ │                  ▲ ▲
 *                  └─► held ──┘ └─ close event with cancelled: broken (what is queued is dropped)
 *                       └─ refused, or a close event ─┘
 *
 * Held: authenticate said LATER; the admission comes through the worker's outbox, so that the
 * handler begins where it always does.
 * `pending` counts the tags that the core holds, plus one for the handler until it finishes; that
 * one is handed to the tag of the status batch. Tags only come back on the worker, so the count
 * reaches 0, and on_done runs, on the worker. `refs` keeps the memory: one of the stack until after
 * on_done, the others from nd_rpc_call_ref. */
#ifndef ND_RPC_CALL_H
#define ND_RPC_CALL_H

#include <stdatomic.h>

#include "storage/base/thread.h"

#include "proto/rpc/convert.h"
#include "proto/rpc/sends.h"
#include "proto/rpc/server.h"

enum {
    ND_RPC_STATUS_COUNT = 17, /* gRPC codes 0 to 16 */
    ND_RPC_SPARE_CALLS_MAX = 256,
    ND_RPC_ARMED_UNARY = 16,
    ND_RPC_ARMED_STREAM = 4,
    ND_RPC_ARMED_UNKNOWN = 2,
};

/* A thread with a completion queue, and the calls that others want it to send for. */
struct nd_rpc_worker {
    struct nd_rpc_server *server;
    grpc_completion_queue *queue;
    struct nd_thread thread;
    struct nd_rpc_call *spare; /* calls to be used again; the worker's own */
    uint32_t spare_count;
    _Atomic uint32_t awaited; /* calls that a handler works on; see nd_rpc_call.awaited */
    grpc_call *bell;          /* a call to nowhere, to wake the queue (worker.c) */
    struct nd_rpc_tag woken;
    struct nd_mutex lock;
    /* guarded by lock */
    struct nd_rpc_call *outbox, *outbox_last; /* calls with something to send (worker.c) */
    bool awake;                               /* looks into the outbox before it waits */
    bool wake_posted;
};

/* A registered method; `desc` of NULL is the catch-all of unknown ones. */
struct nd_rpc_service_method {
    const struct nd_rpc_method *desc;
    void *registered;
    bool exempt; /* from authenticate */
    struct nd_series *duration;
    _Atomic(struct nd_series *) requests[ND_RPC_STATUS_COUNT]; /* by code, made when first needed */
};

struct nd_rpc_call {
    struct nd_rpc_tag request, close, read, write, status;
    struct nd_rpc_worker *worker;
    struct nd_rpc_service_method *method;
    void *user;
    grpc_call *core;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details;  /* unknown methods only */
    grpc_byte_buffer *incoming; /* the core's while a request or a read is outstanding */
    int cancelled;              /* the core's while close is outstanding */
    uint64_t started_ns;
    struct nd_arena arena;
    struct nd_rpc_bytes request_bytes;
    bool request_kept;
    bool counted;    /* in the server's calls_open */
    bool read_ended; /* the first sign of the client's end was seen; the worker's own */
    bool dispatched; /* the handler knows it: on_done is owed; the worker's own */
    bool awaited;    /* unary and not one to park: soon to be answered; the worker's own */
    _Atomic uint32_t pending;
    _Atomic uint32_t refs;
    _Atomic bool over; /* finished or broken: no more messages to the handler */
    struct nd_mutex lock;
    /* guarded by lock */
    struct nd_rpc_sends sends;
    bool metadata_sent, writing, finish_wanted, status_started, broken, close_started, reading;
    bool drained_wanted; /* something was sent since the last on_drained */
    bool deferred;       /* in the worker's outbox, or on the way out of it */
    bool admitted;       /* was held, and the worker is to start it */
    int status_code;
    grpc_slice status_text;
    grpc_metadata trailing[2]; /* "narad-reason", "narad-retry-after-ms" */
    size_t trailing_count;
    void *identity;
    void (*identity_release)(void *identity);
    struct nd_rpc_call *spare_next;
    struct nd_rpc_call *outbox_next; /* guarded by the worker's lock */
};

/* call.c */
struct nd_rpc_call *nd_rpc_call_new(struct nd_rpc_worker *worker,
                                    struct nd_rpc_service_method *method);
void nd_rpc_call_discard(struct nd_rpc_call *call); /* armed, never became a call */
void nd_rpc_call_finish_locked(struct nd_rpc_call *call, int status, const char *text)
    ND_REQUIRES(call->lock);
/* Start the receiving half: the close watch, a read. */
void nd_rpc_call_watch_close_locked(struct nd_rpc_call *call) ND_REQUIRES(call->lock);
void nd_rpc_call_send_metadata(struct nd_rpc_call *call);
void nd_rpc_call_read_start(struct nd_rpc_call *call);
/* Finish: a message, called `what`, is larger than its method allows. */
void nd_rpc_call_refuse_size(struct nd_rpc_call *call, const char *what, size_t size);
/* A tag came back. May end the call and free it. @thread worker */
void nd_rpc_call_tag_done(struct nd_rpc_call *call);
/* Send what waits, start what was held: the call was in the outbox. May end the call and free it.
 * @thread worker */
void nd_rpc_call_send_deferred(struct nd_rpc_call *call);

/* worker.c */
void nd_rpc_worker_init(struct nd_rpc_worker *worker, struct nd_rpc_server *server);
void nd_rpc_worker_release(struct nd_rpc_worker *worker);
void nd_rpc_worker_run(void *worker); /* the thread: until its queue is shut down */
void nd_rpc_worker_await(struct nd_rpc_call *call, bool begin);
/* Leave the call's sending to its worker: true when that is better, see there. `add`:
 * the call is not there yet.*/
bool nd_rpc_worker_defer(struct nd_rpc_call *call, bool add) ND_REQUIRES(call->lock);
/* Leave it to the worker whatever it does, and wake it. `add` as there. @thread any, the worker
 * included */
void nd_rpc_worker_hand(struct nd_rpc_call *call, bool add) ND_REQUIRES(call->lock);

/* accept.c */
void nd_rpc_call_arm(struct nd_rpc_worker *worker, struct nd_rpc_service_method *method);
/* It was held and is admitted. @thread worker */
void nd_rpc_call_start_held(struct nd_rpc_call *call);
/* Answer UNIMPLEMENTED to what nobody registered. */
void nd_rpc_call_arm_unknown(struct nd_rpc_worker *worker);

#endif
