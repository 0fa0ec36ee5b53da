#include "server/rpc/stream.h"

#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/rpc/wire.h"

/* Answers are gathered in chunks that become one message each. */
enum { CHUNK_FIRST = 1024, CHUNK_SIZE = 64 << 10 };

struct nd_stream_chunk {
    struct nd_stream_chunk *next;
    size_t size, capacity;
    uint8_t bytes[];
};

static void resume_read(struct nd_budget_waiter *waiter)
{
    struct nd_stream *stream = ND_CONTAINER_OF(waiter, struct nd_stream, waiter);
    nd_rpc_call_read_next(stream->call);
}

static void look(struct nd_access_watched *watched, enum nd_err err, const char *text)
{
    struct nd_stream *stream = ND_CONTAINER_OF(watched, struct nd_stream, watched);
    if (err != ND_OK) {
        nd_stream_end(stream, true, err, text);
    } else if (stream->ops->look != NULL) {
        stream->ops->look(stream);
    }
}

void nd_stream_open(struct nd_stream *stream, struct nd_rpc_call *call,
                    const struct nd_stream_ops *ops, struct nd_budget *budget)
{
    stream->handlers = nd_handlers_of(call);
    nd_rpc_call_set_user(call, stream);
    nd_rpc_call_ref(call);
    stream->call = call;
    stream->caller = nd_caller_ref(nd_access_caller(call));
    stream->ops = ops;
    stream->budget = budget;
    stream->waiter.resume = resume_read;
    nd_list_init(&stream->waiter.link);
    nd_list_init(&stream->link);
    nd_mutex_init(&stream->lock);
    nd_mutex_lock(&stream->handlers->lock);
    nd_list_append(&stream->handlers->streams, &stream->link);
    nd_mutex_unlock(&stream->handlers->lock);
    /* Listed before this look: either nd_streams_end() finds it, or it ends here. */
    if (atomic_load_explicit(&stream->handlers->stopping, memory_order_seq_cst)) {
        nd_stream_end(stream, true, ND_ERR_UNAVAILABLE, "the node is stopping");
    }
    nd_access_watch(&stream->watched, call, look);
}

static void free_chunks(struct nd_stream *stream)
{
    while (stream->first != NULL) {
        struct nd_stream_chunk *chunk = stream->first;
        stream->first = chunk->next;
        nd_free(chunk);
    }
    stream->last = NULL;
    stream->pending = 0;
}

void nd_stream_release(struct nd_stream *stream)
{
    ND_ASSERT(stream->closed && stream->operations == 0);
    free_chunks(stream);
    nd_mutex_release(&stream->lock);
    struct nd_caller *caller = stream->caller;
    nd_rpc_call_unref(stream->call);
    stream->ops->release(stream);
    nd_caller_unref(caller);
}

void nd_stream_close(struct nd_stream *stream)
{
    nd_stream_end(stream, true, ND_ERR_CANCELLED, NULL);
    nd_access_unwatch(&stream->watched);
    nd_budget_forget(stream->budget, &stream->waiter);
    nd_mutex_lock(&stream->handlers->lock);
    nd_list_remove(&stream->link);
    nd_mutex_unlock(&stream->handlers->lock);
    nd_mutex_lock(&stream->lock);
    stream->closed = true;
    bool gone = stream->operations == 0;
    nd_stream_unlock(stream, gone);
}

bool nd_stream_begin_locked(struct nd_stream *stream)
{
    if (stream->ending) {
        return false;
    }
    stream->operations++;
    return true;
}

uint8_t *nd_stream_answer_locked(struct nd_stream *stream, size_t size)
{
    struct nd_stream_chunk *chunk = stream->last;
    if (chunk == NULL || chunk->capacity - chunk->size < size) {
        size_t capacity = ND_MAX(size, chunk == NULL ? (size_t)CHUNK_FIRST : (size_t)CHUNK_SIZE);
        chunk = nd_xmalloc(sizeof *chunk +
                           capacity); /* size: at most an answer, bounded by its maker */
        *chunk = (struct nd_stream_chunk){.capacity = capacity};
        if (stream->last == NULL) {
            stream->first = chunk;
        } else {
            stream->last->next = chunk;
        }
        stream->last = chunk;
    }
    uint8_t *at = chunk->bytes + chunk->size;
    chunk->size += size;
    stream->pending += size;
    return at;
}

static void send_locked(struct nd_stream *stream)
{
    while (stream->first != NULL) {
        struct nd_stream_chunk *chunk = stream->first;
        stream->first = chunk->next;
        stream->queued = nd_rpc_call_send_bytes(
            stream->call, nd_slice_make(chunk->bytes, chunk->size), nd_free, chunk);
        stream->sending = stream->queued > 0; /* 0: the call is broken, nothing drains */
    }
    stream->last = NULL;
    stream->pending = 0;
}

bool nd_stream_flush_locked(struct nd_stream *stream, uint32_t completed)
{
    ND_ASSERT(stream->operations >= completed);
    stream->operations -= completed;
    bool over = stream->ending && stream->operations == 0;
    if (over || !stream->sending) {
        send_locked(stream);
    }
    if (over && !stream->finished) {
        /* Under the lock: on_done may come at once, and it waits for the lock before it frees. */
        stream->finished = true;
        if (stream->end_err == ND_OK) {
            nd_rpc_call_finish(stream->call, 0, NULL);
        } else {
            nd_rpc_call_fail_retry(stream->call, stream->end_err, stream->end_text,
                                   stream->end_retry_ms);
        }
    }
    return over && stream->closed && completed > 0;
}

bool nd_stream_takes(struct nd_stream *stream, const char *what, size_t count)
{
    struct nd_errmsg msg;
    if (count <= ND_WIRE_ITEMS_MAX) {
        return true;
    }
    nd_errmsg_set(&msg, "%s: %zu given, at most %d are allowed in one message", what, count,
                  ND_WIRE_ITEMS_MAX);
    nd_stream_end(stream, true, ND_ERR_INVALID_ARGUMENT, msg.text);
    return false;
}

void nd_stream_read_next(struct nd_stream *stream)
{
    nd_mutex_lock(&stream->lock);
    bool stop = stream->ending;
    if (!stop && nd_stream_unsent_locked(stream) > ND_STREAM_QUEUED_MAX && stream->sending) {
        stream->read_owed = stop = true;
    }
    nd_mutex_unlock(&stream->lock);
    if (!stop && nd_budget_wait(stream->budget, &stream->waiter)) {
        nd_rpc_call_read_next(stream->call);
    }
}

bool nd_stream_drained(struct nd_stream *stream)
{
    nd_mutex_lock(&stream->lock);
    stream->sending = false;
    stream->queued = 0;
    send_locked(stream);
    bool read = stream->read_owed;
    stream->read_owed = false;
    bool more = nd_stream_unsent_locked(stream) <= ND_STREAM_QUEUED_MAX;
    nd_mutex_unlock(&stream->lock);
    if (read) {
        nd_stream_read_next(stream);
    }
    return more;
}

void nd_stream_end(struct nd_stream *stream, bool abandon, enum nd_err err, const char *text)
{
    nd_mutex_lock(&stream->lock);
    if (!stream->ending) {
        stream->ending = true;
        stream->end_err = err;
        snprintf(stream->end_text, sizeof stream->end_text, "%s", text == NULL ? "" : text);
    }
    abandon = abandon && !stream->abandoned && stream->ops->abandon != NULL;
    stream->abandoned = stream->abandoned || abandon;
    stream->operations += abandon; /* it stays while `abandon` runs */
    bool gone = nd_stream_flush_locked(stream, 0);
    nd_stream_unlock(stream, gone);
    if (abandon) {
        stream->ops->abandon(stream);
        nd_mutex_lock(&stream->lock);
        gone = nd_stream_flush_locked(stream, 1);
        nd_stream_unlock(stream, gone);
    }
}

void nd_stream_on_half_close(struct nd_rpc_call *call)
{
    nd_stream_end(nd_stream_of(call), false, ND_OK, NULL);
}

void nd_stream_on_drained(struct nd_rpc_call *call)
{
    (void)nd_stream_drained(nd_stream_of(call));
}

void nd_stream_on_cancel(struct nd_rpc_call *call)
{
    nd_stream_end(nd_stream_of(call), true, ND_ERR_CANCELLED, NULL);
}

void nd_stream_on_done(struct nd_rpc_call *call)
{
    nd_stream_close(nd_stream_of(call));
}

void nd_streams_end(struct nd_handlers *handlers, enum nd_err err, const char *text)
{
    /* The list's lock keeps each one alive: closing takes it first. */
    nd_mutex_lock(&handlers->lock);
    ND_LIST_FOREACH (&handlers->streams, link) {
        nd_stream_end(ND_CONTAINER_OF(link, struct nd_stream, link), true, err, text);
    }
    nd_mutex_unlock(&handlers->lock);
}
