/* What the bidi streams have in common: answers that gather while the last ones are on their
 * way (natural batching), reading that stops while too much is in flight, and an end that comes
 * after the last answer.
 *
 * Life: opened -> operations begin and complete on any thread -> something ends it (half close, an
 * error, the client's cancel, the node's stop) -> the last operation completes -> finish -> closed
 * in on_done. Lock order: handlers' list -> stream -> a budget's lock -> call (proto/rpc). */
#ifndef ND_STREAM_H
#define ND_STREAM_H

#include "server/rpc/handlers.h"

struct nd_stream;

struct nd_stream_ops {
    /* The stream ends before its time (cancel, error, stop): take back what waits. Without the
     * lock. May run on any thread, once. NULL: nothing. */
    void (*abandon)(struct nd_stream *stream);
    /* A user changed, and the caller is still who it was: what of the stream it may not have any
     * more ends. Under handlers->lock, on any thread. NULL: nothing. */
    void (*look)(struct nd_stream *stream);
    /* Free what is around the stream and the memory that it lies in; the stream itself is released.
     */
    void (*release)(struct nd_stream *stream);
};

struct nd_stream_chunk;

struct nd_stream {
    struct nd_list link; /* guarded by handlers->lock */
    struct nd_handlers *handlers;
    struct nd_rpc_call *call; /* counted */
    struct nd_caller *caller; /* counted, or NULL */
    struct nd_access_watched watched;
    const struct nd_stream_ops *ops;
    struct nd_budget *budget;
    struct nd_budget_waiter waiter;
    struct nd_mutex lock;
    /* guarded by lock */
    struct nd_stream_chunk *first, *last; /* answers not handed to the call yet */
    size_t pending;                       /* their bytes */
    size_t queued;                        /* bytes with the call, as of the last send */
    uint32_t operations;                  /* begun and not completed */
    bool sending;                         /* on_drained will come */
    bool read_owed;                       /* reading stopped because of unsent answers */
    bool ending, abandoned, finished, closed;
    enum nd_err end_err;
    uint32_t end_retry_ms; /* said with an end, 0: not; set before it. @thread worker */
    char end_text[256];
};

enum { ND_STREAM_QUEUED_MAX = 256 << 10 }; /* unsent answers beyond it stop reads and deliveries */

/* on_open: registers it, and it is the call's user from now on; the first message is read by the
 * stack. */
void nd_stream_open(struct nd_stream *stream, struct nd_rpc_call *call,
                    const struct nd_stream_ops *ops, struct nd_budget *budget);
/* on_done. The stream is released now or with its last operation. */
void nd_stream_close(struct nd_stream *stream);

/* An operation whose completion is owed. False: the stream is ending, begin nothing. */
ND_CHECKED bool nd_stream_begin_locked(struct nd_stream *stream) ND_REQUIRES(stream->lock);
/* Room for an answer of `size` bytes, to be filled in before the lock is given back. */
uint8_t *nd_stream_answer_locked(struct nd_stream *stream, size_t size) ND_REQUIRES(stream->lock);
/* `completed` operations are over; sends what gathered, and finishes an ending stream after its
 * last one. True: its call is gone already; call nd_stream_release() after unlocking, and nothing
 * else. */
ND_CHECKED bool nd_stream_flush_locked(struct nd_stream *stream, uint32_t completed)
    ND_REQUIRES(stream->lock);
void nd_stream_release(struct nd_stream *stream);
/* Unlock, and release if `gone`. */
static inline void nd_stream_unlock(struct nd_stream *stream, bool gone) ND_RELEASE(stream->lock)
{
    nd_mutex_unlock(&stream->lock);
    if (gone) {
        nd_stream_release(stream);
    }
}
/* Unsent bytes. */
static inline size_t nd_stream_unsent_locked(const struct nd_stream *stream)
    ND_REQUIRES(stream->lock)
{
    return stream->pending + stream->queued;
}

/* One message has `count` of `what`. False: they are more than ND_WIRE_ITEMS_MAX, and the stream
 * ends with INVALID_ARGUMENT, which says so. @thread worker */
bool nd_stream_takes(struct nd_stream *stream, const char *what, size_t count);
/* The message was dealt with: read the next, now or when there is room again. @thread worker */
void nd_stream_read_next(struct nd_stream *stream);
/* on_drained. Returns true when deliveries may go on. @thread worker */
bool nd_stream_drained(struct nd_stream *stream);
/* End it with `err` (its text when `text` is NULL or "") once the open operations have completed;
 * the first end counts. With `abandon` they are hurried. The stream may be gone afterwards except
 * on the worker. @thread any
 */
void nd_stream_end(struct nd_stream *stream, bool abandon, enum nd_err err, const char *text);
/* The stream of a call. */
static inline struct nd_stream *nd_stream_of(const struct nd_rpc_call *call)
{
    return nd_rpc_call_user(call);
}
/* What a method does with these events when it has nothing of its own to do: after a half close
 * what was begun is still answered, a cancel abandons it. */
void nd_stream_on_half_close(struct nd_rpc_call *call);
void nd_stream_on_drained(struct nd_rpc_call *call);
void nd_stream_on_cancel(struct nd_rpc_call *call);
void nd_stream_on_done(struct nd_rpc_call *call);
/* All of a node's. */
void nd_streams_end(struct nd_handlers *handlers, enum nd_err err, const char *text);

#endif
