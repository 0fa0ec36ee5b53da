/* Streams of the client. `pending` counts the tags the core holds; when the status has come and the
 * last one is back, the stream ends. After the status no new tag is started. */
#include <stdatomic.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "proto/rpc/channel.h"
#include "proto/rpc/sends.h"

struct nd_rpc_stream {
    struct nd_rpc_tag status, read, write;
    struct nd_rpc_channel *channel;
    struct nd_rpc_open open;
    struct nd_rpc_head head;
    struct nd_rpc_outcome outcome;
    char *refusal; /* it could not be opened, and why; owned */
    enum nd_err refusal_err;
    struct nd_rpc_stream_events events;
    void *data;
    bool manual_read;
    grpc_byte_buffer *incoming;
    _Atomic uint32_t pending;
    _Atomic uint32_t refs; /* of the memory; one is the channel's until after on_done */
    struct nd_mutex lock;
    /* guarded by lock */
    struct nd_rpc_sends sends;
    bool writing, close_wanted, close_sent, ended, reading, read_closed;
    bool drained_wanted; /* something was sent since the last on_drained */
};

static void pending_add(struct nd_rpc_stream *stream)
{
    atomic_fetch_add_explicit(&stream->pending, 1, memory_order_relaxed);
}

void nd_rpc_stream_ref(struct nd_rpc_stream *stream)
{
    atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
}

/* acq_rel: the last one sees all that others did with the stream. */
void nd_rpc_stream_unref(struct nd_rpc_stream *stream)
{
    if (atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) == 1) {
        nd_rpc_sends_drop(&stream->sends);
        nd_mutex_release(&stream->lock);
        nd_free(stream);
    }
}

/* @thread the channel's */
static void stream_end(struct nd_rpc_stream *stream)
{
    struct nd_rpc_channel *channel = stream->channel;
    struct nd_rpc_status status = {nd_err_grpc_status(stream->refusal_err), stream->refusal, "", 0};

    if (stream->refusal_err == ND_OK) {
        status = nd_rpc_outcome_status(&stream->outcome);
    }
    stream->events.on_done(stream->data, stream, &status);
    if (stream->refusal_err == ND_OK) {
        nd_rpc_channel_close(channel, &stream->open);
    }
    nd_free(stream->refusal);
    nd_rpc_metadata_release(&stream->head.own);
    nd_rpc_outcome_release(&stream->outcome);
    nd_rpc_stream_unref(stream);
}

static void tag_done(struct nd_rpc_stream *stream)
{
    if (atomic_fetch_sub_explicit(&stream->pending, 1, memory_order_acq_rel) == 1) {
        stream_end(stream);
    }
}

/* --- sending --- */

static void pump_locked(struct nd_rpc_stream *stream) ND_REQUIRES(stream->lock)
{
    grpc_op ops[2];
    size_t count = 0;

    if (stream->writing || stream->ended || stream->close_sent) {
        return;
    }
    memset(ops, 0, sizeof ops);
    if (nd_rpc_sends_waiting(&stream->sends)) {
        nd_rpc_sends_begin(&stream->sends, &ops[count++], true); /* a close comes with the last */
    }
    if (stream->close_wanted && !nd_rpc_sends_waiting(&stream->sends)) {
        ops[count++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
        stream->close_sent = true;
    }
    if (count > 0) {
        stream->writing = true;
        pending_add(stream);
        nd_rpc_batch(stream->open.core, ops, count, &stream->write);
    }
}

static void on_write(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_stream *stream = ND_CONTAINER_OF(tag, struct nd_rpc_stream, write);

    (void)ok; /* when it failed, the status follows */
    nd_mutex_lock(&stream->lock);
    nd_rpc_sends_done(&stream->sends);
    stream->writing = false;
    if (ok) {
        pump_locked(stream);
    }
    bool drained = ok && stream->drained_wanted && !stream->writing && !stream->ended;
    if (drained) {
        stream->drained_wanted = false;
    }
    nd_mutex_unlock(&stream->lock);
    if (drained && stream->events.on_drained != NULL) {
        stream->events.on_drained(stream->data, stream);
    }
    tag_done(stream);
}

static size_t send_buffer(struct nd_rpc_stream *stream, grpc_byte_buffer *buffer)
{
    size_t queued = 0;

    nd_mutex_lock(&stream->lock);
    if (stream->ended || stream->close_wanted) {
        grpc_byte_buffer_destroy(buffer);
    } else {
        queued = nd_rpc_sends_push(&stream->sends, buffer);
        stream->drained_wanted = true;
        pump_locked(stream);
    }
    nd_mutex_unlock(&stream->lock);
    return queued;
}

size_t nd_rpc_stream_send(struct nd_rpc_stream *stream, const ProtobufCMessage *message)
{
    return send_buffer(stream, nd_rpc_buffer_pack(message));
}

size_t nd_rpc_stream_send_bytes(struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    return send_buffer(stream, nd_rpc_buffer_copy(bytes));
}

void nd_rpc_stream_half_close(struct nd_rpc_stream *stream)
{
    nd_mutex_lock(&stream->lock);
    if (!stream->close_wanted) {
        stream->close_wanted = true;
        pump_locked(stream);
    }
    nd_mutex_unlock(&stream->lock);
}

void nd_rpc_stream_cancel(struct nd_rpc_stream *stream)
{
    nd_mutex_lock(&stream->lock);
    if (!stream->ended) {
        grpc_call_cancel(stream->open.core, NULL);
    }
    nd_mutex_unlock(&stream->lock);
}

/* --- receiving --- */

static void read_locked(struct nd_rpc_stream *stream, bool first) ND_REQUIRES(stream->lock)
{
    grpc_op ops[2];
    size_t count = 0;

    if (stream->ended || stream->reading || stream->read_closed) {
        return;
    }
    memset(ops, 0, sizeof ops);
    if (first) {
        ops[count].op = GRPC_OP_RECV_INITIAL_METADATA;
        ops[count++].data.recv_initial_metadata.recv_initial_metadata = &stream->outcome.initial;
    }
    ops[count].op = GRPC_OP_RECV_MESSAGE;
    ops[count++].data.recv_message.recv_message = &stream->incoming;
    stream->reading = true;
    pending_add(stream);
    nd_rpc_batch(stream->open.core, ops, count, &stream->read);
}

void nd_rpc_stream_read_next(struct nd_rpc_stream *stream)
{
    nd_mutex_lock(&stream->lock);
    read_locked(stream, false);
    nd_mutex_unlock(&stream->lock);
}

static void on_read(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_stream *stream = ND_CONTAINER_OF(tag, struct nd_rpc_stream, read);
    grpc_byte_buffer *buffer = stream->incoming;
    struct nd_rpc_bytes bytes = {.open = false};

    (void)ok;
    stream->incoming = NULL;
    nd_mutex_lock(&stream->lock);
    stream->reading = false;
    stream->read_closed = buffer == NULL;
    nd_mutex_unlock(&stream->lock);
    if (buffer != NULL) {
        struct nd_slice message = nd_rpc_bytes_open(&bytes, buffer);
        if (stream->events.on_message != NULL) {
            stream->events.on_message(stream->data, stream, message);
        }
        nd_rpc_bytes_close(&bytes);
        if (!stream->manual_read) {
            nd_rpc_stream_read_next(stream);
        }
    }
    tag_done(stream);
}

static void on_status(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_stream *stream = ND_CONTAINER_OF(tag, struct nd_rpc_stream, status);

    (void)ok;
    nd_mutex_lock(&stream->lock);
    stream->ended = true;
    nd_rpc_sends_drop(&stream->sends);
    nd_mutex_unlock(&stream->lock);
    tag_done(stream);
}

/* --- opening --- */

static void stream_start_locked(struct nd_rpc_stream *stream) ND_REQUIRES(stream->lock)
{
    grpc_op op;

    memset(&op, 0, sizeof op);
    nd_rpc_outcome_op(&stream->outcome, &op);
    pending_add(stream);
    nd_rpc_batch(stream->open.core, &op, 1, &stream->status);
    memset(&op, 0, sizeof op);
    nd_rpc_head_op(&stream->head, &op);
    stream->writing = true;
    pending_add(stream);
    nd_rpc_batch(stream->open.core, &op, 1, &stream->write);
    read_locked(stream, true);
}

static void stream_refused(void *data)
{
    stream_end(data);
}

static struct nd_rpc_stream *stream_new(struct nd_rpc_channel *channel,
                                        const struct nd_rpc_stream_events *events, void *data)
{
    struct nd_rpc_stream *stream = nd_xcalloc(1, sizeof *stream);

    stream->status.run = on_status;
    stream->read.run = on_read;
    stream->write.run = on_write;
    stream->channel = channel;
    stream->events = *events;
    stream->data = data;
    atomic_store_explicit(&stream->refs, 1, memory_order_relaxed);
    nd_mutex_init(&stream->lock);
    nd_rpc_outcome_init(&stream->outcome);
    return stream;
}

struct nd_rpc_stream *nd_rpc_stream_open_with(struct nd_rpc_channel *channel, const char *path,
                                              const struct nd_rpc_call_options *options,
                                              const struct nd_rpc_stream_events *events, void *data)
{
    struct nd_rpc_stream *stream = stream_new(channel, events, data);
    struct nd_errmsg msg = {.text = ""};

    stream->manual_read = options->manual_read;
    enum nd_err err = nd_rpc_head_init(&stream->head, channel, options, &msg);
    nd_mutex_lock(&stream->lock);
    if (err == ND_OK && !nd_rpc_channel_open(channel, &stream->open, path, options->deadline_ms)) {
        err = ND_ERR_CANCELLED;
        nd_errmsg_set(&msg, "%s", ND_RPC_CLOSED_TEXT);
    }
    if (err == ND_OK) {
        stream_start_locked(stream);
    } else {
        stream->ended = true;
        stream->refusal_err = err;
        stream->refusal = nd_xstrdup(msg.text);
    }
    nd_mutex_unlock(&stream->lock);
    if (err != ND_OK) { /* not before: its end releases the lock */
        nd_rpc_channel_post(channel, stream_refused, stream);
    }
    return stream;
}

struct nd_rpc_stream *nd_rpc_stream_open(struct nd_rpc_channel *channel, const char *path,
                                         uint32_t deadline_ms, bool wait_for_ready,
                                         bool manual_read,
                                         const struct nd_rpc_stream_events *events, void *data)
{
    struct nd_rpc_call_options options = {
        .deadline_ms = deadline_ms, .wait_for_ready = wait_for_ready, .manual_read = manual_read};

    return nd_rpc_stream_open_with(channel, path, &options, events, data);
}
