/* What every file of the stack shares: the C core's headers, tags, and the rules that hold for each
 * call into the core. Only proto/rpc includes it.
 *
 *  - A completion tag is a `struct nd_rpc_tag`; the thread that polls the queue runs it.
 *  - Every grpc_op is zeroed before it is filled.
 *  - The core's own locks are invisible to ThreadSanitizer in a library that was built without it,
 * so the hand-over of a tag is marked (ND_RPC_TAG_RELEASE before the core gets it, ACQUIRE when it
 * returns).
 *  - start_batch on one call needs our lock only against another *sending* batch: a receiving batch
 * may run beside it, and at most one of each kind is outstanding. */
#ifndef ND_RPC_CORE_H
#define ND_RPC_CORE_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include "storage/base/compiler.h"

struct nd_rpc_tag {
    void (*run)(struct nd_rpc_tag *tag, bool ok);
};

#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *);
void __tsan_release(void *);
#define ND_RPC_TAG_RELEASE(tag) __tsan_release(tag)
#define ND_RPC_TAG_ACQUIRE(tag) __tsan_acquire(tag)
#else
#define ND_RPC_TAG_RELEASE(tag) ((void)(tag))
#define ND_RPC_TAG_ACQUIRE(tag) ((void)(tag))
#endif

/* A batch that the core refuses is a bug of ours: asserted. */
static inline void nd_rpc_batch(grpc_call *core, const grpc_op *ops, size_t count,
                                struct nd_rpc_tag *tag)
{
    ND_RPC_TAG_RELEASE(tag);
    grpc_call_error error = grpc_call_start_batch(core, ops, count, tag, NULL);
    ND_ASSERT(error == GRPC_CALL_OK);
}

/* Run the tag of an event; false: it is none, the queue is shut down and empty. */
static inline bool nd_rpc_event_run(grpc_event event)
{
    if (event.type != GRPC_OP_COMPLETE) {
        return false;
    }
    struct nd_rpc_tag *tag = event.tag;
    ND_RPC_TAG_ACQUIRE(tag);
    tag->run(tag, event.success != 0);
    return true;
}

/* Wait for one event and run its tag; false when the queue is shut down and empty. */
static inline bool nd_rpc_queue_step(grpc_completion_queue *queue)
{
    return nd_rpc_event_run(
        grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL));
}

/* Trailing metadata beside an error. */
#define ND_RPC_KEY_REASON      "narad-reason"
#define ND_RPC_KEY_RETRY_AFTER "narad-retry-after-ms"
#define ND_RPC_CLOSED_TEXT     "the channel is closed"

struct nd_rpc_server;
/* The queue of the first worker of a started server, which does not stop before it is given back.
 */
grpc_completion_queue *nd_rpc_server_queue_borrow(struct nd_rpc_server *server);
void nd_rpc_server_queue_return(struct nd_rpc_server *server);

/* Channel arguments of a server or a channel. Keys and strings are borrowed. */
enum { ND_RPC_ARGS_MAX = 24 };
struct nd_rpc_args {
    grpc_arg list[ND_RPC_ARGS_MAX];
    size_t count;
};

static inline void nd_rpc_args_int(struct nd_rpc_args *args, const char *key, int value)
{
    ND_ASSERT(args->count < ND_RPC_ARGS_MAX);
    args->list[args->count++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

static inline void nd_rpc_args_text(struct nd_rpc_args *args, const char *key, const char *value)
{
    ND_ASSERT(args->count < ND_RPC_ARGS_MAX);
    args->list[args->count++] = (grpc_arg){.type = GRPC_ARG_STRING,
                                           .key = (char *)(uintptr_t)key,
                                           .value.string = (char *)(uintptr_t)value};
}

/* What both ends set (measured, see README.md): no bandwidth probing, a fixed window, and keepalive
 * pings that go on while nothing else is sent. */
void nd_rpc_args_common(struct nd_rpc_args *args, uint32_t message_bytes_max,
                        uint32_t keepalive_time_ms, uint32_t keepalive_timeout_ms);

enum {
    ND_RPC_LOOKAHEAD_BYTES = 4 << 20,       /* flow control window of a stream */
    ND_RPC_SEND_QUEUE_BYTES_MAX = 64 << 20, /* a sender that never pauses is cut here */
    ND_RPC_DECODE_GROWTH_MAX = 8,           /* decoded structs against encoded bytes */
    ND_RPC_DECODE_BYTES_MIN = 1 << 20,
};

#endif
