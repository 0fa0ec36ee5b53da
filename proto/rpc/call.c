#include "proto/rpc/call.h"

#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "proto/rpc/server_impl.h"

static void on_close(struct nd_rpc_tag *tag, bool ok);
static void on_read(struct nd_rpc_tag *tag, bool ok);
static void on_write(struct nd_rpc_tag *tag, bool ok);
static void on_status(struct nd_rpc_tag *tag, bool ok);

/* --- memory --- */

struct nd_rpc_call *nd_rpc_call_new(struct nd_rpc_worker *worker,
                                    struct nd_rpc_service_method *method)
{
    struct nd_rpc_call *call = worker->spare;

    if (call != NULL) {
        worker->spare = call->spare_next;
        worker->spare_count -= 1;
    } else {
        call = nd_xcalloc(1, sizeof *call);
        nd_mutex_init(&call->lock);
        call->close.run = on_close;
        call->read.run = on_read;
        call->write.run = on_write;
        call->status.run = on_status;
        call->status_text = grpc_empty_slice();
    }
    uint32_t bytes_max = method->desc != NULL ? method->desc->message_bytes_max : 0;
    call->arena.used_max = nd_rpc_decode_bytes_max(bytes_max);
    call->worker = worker;
    call->method = method;
    grpc_metadata_array_init(&call->metadata);
    atomic_store_explicit(&call->pending, 1, memory_order_relaxed);
    atomic_store_explicit(&call->refs, 1, memory_order_relaxed);
    return call;
}

static void identity_drop(struct nd_rpc_call *call)
{
    nd_mutex_lock(&call->lock);
    void *identity = call->identity;
    void (*release)(void *) = call->identity_release;
    call->identity = NULL;
    call->identity_release = NULL;
    nd_mutex_unlock(&call->lock);
    if (release != NULL) {
        release(identity);
    }
}

static void call_delete(struct nd_rpc_call *call)
{
    identity_drop(call); /* one that came after the end of a held call */
    nd_arena_release(&call->arena);
    nd_mutex_release(&call->lock);
    nd_free(call);
}

void nd_rpc_call_discard(struct nd_rpc_call *call)
{
    grpc_metadata_array_destroy(&call->metadata);
    call_delete(call);
}

/* Back to the state of a new one, keeping the lock, the tags and a little arena memory. */
static void call_reset(struct nd_rpc_call *call)
{
    call->user = NULL;
    call->started_ns = 0;
    call->cancelled = 0;
    call->read_ended = call->request_kept = call->counted = call->dispatched = false;
    call->metadata_sent = call->writing = call->finish_wanted = call->status_started = false;
    call->broken = call->close_started = call->reading = call->drained_wanted = false;
    call->deferred = call->admitted = false;
    call->status_code = 0;
    call->trailing_count = 0;
    atomic_store_explicit(&call->over, false, memory_order_relaxed);
}

void nd_rpc_call_ref(struct nd_rpc_call *call)
{
    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
}

/* acq_rel: the last one sees all that others did with the call. */
void nd_rpc_call_unref(struct nd_rpc_call *call)
{
    if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) == 1) {
        call_delete(call);
    }
}

/* The stack's own reference: the worker may use the memory for its next call. */
static void call_unref_worker(struct nd_rpc_call *call)
{
    struct nd_rpc_worker *worker = call->worker;

    if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    identity_drop(call); /* as in call_delete: the memory must not bring it to the next call */
    if (worker->spare_count == ND_RPC_SPARE_CALLS_MAX) {
        call_delete(call);
        return;
    }
    call_reset(call);
    call->spare_next = worker->spare;
    worker->spare = call;
    worker->spare_count += 1;
}

/* Everything came back: the handler's goodbye, then the call is gone. */
static void call_end(struct nd_rpc_call *call)
{
    struct nd_rpc_server *server = call->worker->server;
    const struct nd_rpc_method *desc = call->method->desc;
    bool counted = call->counted;

    nd_rpc_worker_await(call, false);
    nd_rpc_server_count(server, call->method, call->status_code,
                        nd_rpc_now_ns() - call->started_ns);
    if (desc != NULL && desc->on_done != NULL && call->dispatched) {
        desc->on_done(call);
    }
    identity_drop(call);
    nd_mutex_lock(&call->lock);
    grpc_call *core = call->core;
    call->core = NULL;
    nd_rpc_sends_drop(&call->sends);
    nd_mutex_unlock(&call->lock);
    nd_rpc_bytes_close(&call->request_bytes);
    if (desc != NULL && desc->secret) {
        nd_rpc_buffer_wipe(call->incoming);
        nd_arena_wipe(&call->arena);
    } else {
        grpc_byte_buffer_destroy(call->incoming); /* of one that no handler saw */
    }
    call->incoming = NULL;
    nd_arena_reset(&call->arena);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_metadata_array_init(&call->metadata);
    grpc_slice_unref(call->status_text);
    call->status_text = grpc_empty_slice();
    for (size_t i = 0; i < call->trailing_count; i++) {
        grpc_slice_unref(call->trailing[i].value);
    }
    grpc_call_unref(core);
    call_unref_worker(call);
    if (counted) {
        nd_rpc_server_call_end(server);
    }
}

void nd_rpc_call_tag_done(struct nd_rpc_call *call)
{
    if (atomic_fetch_sub_explicit(&call->pending, 1, memory_order_acq_rel) == 1) {
        call_end(call);
    }
}

static void pending_add(struct nd_rpc_call *call)
{
    atomic_fetch_add_explicit(&call->pending, 1, memory_order_relaxed);
}

/* --- sending --- */

static void status_op(struct nd_rpc_call *call, grpc_op *op)
{
    op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    op->data.send_status_from_server.status = (grpc_status_code)call->status_code;
    if (GRPC_SLICE_LENGTH(call->status_text) > 0) {
        op->data.send_status_from_server.status_details = &call->status_text;
    }
    op->data.send_status_from_server.trailing_metadata = call->trailing;
    op->data.send_status_from_server.trailing_metadata_count = call->trailing_count;
}

static void close_op(struct nd_rpc_call *call, grpc_op *op)
{
    op->op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op->data.recv_close_on_server.cancelled = &call->cancelled;
}

/* Hand the transport what can go now: one batch at a time, as much in it as the core allows.
 * `metadata`: even when that is only the initial metadata. */
static void pump_locked(struct nd_rpc_call *call, bool metadata) ND_REQUIRES(call->lock)
{
    grpc_op ops[4];
    size_t count = 0;

    if (call->writing || call->status_started) {
        return;
    }
    memset(ops, 0, sizeof ops);
    bool message = nd_rpc_sends_waiting(&call->sends);
    if (!call->metadata_sent && (metadata || message || call->finish_wanted)) {
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
        call->metadata_sent = true;
    }
    if (message) {
        nd_rpc_sends_begin(&call->sends, &ops[count], count == 0);
        count += 1;
    }
    if (call->finish_wanted && !nd_rpc_sends_waiting(&call->sends)) {
        status_op(call, &ops[count++]);
        call->status_started = true;
        if (!call->close_started) { /* unary fast path: two events a call */
            close_op(call, &ops[count++]);
            call->close_started = true;
        }
        nd_rpc_batch(call->core, ops, count, &call->status); /* takes the handler's pending */
    } else if (count > 0) {
        call->writing = true;
        pending_add(call);
        nd_rpc_batch(call->core, ops, count, &call->write);
    }
}

/* Here and now, or by the worker when it is awake. */
static void pump_or_defer_locked(struct nd_rpc_call *call) ND_REQUIRES(call->lock)
{
    if (!nd_rpc_worker_defer(call, !call->deferred)) {
        pump_locked(call, false);
    } else if (!call->deferred) {
        call->deferred = true;
        pending_add(call);
    }
}

void nd_rpc_call_send_deferred(struct nd_rpc_call *call)
{
    nd_mutex_lock(&call->lock);
    bool was_held = call->admitted;
    bool start = was_held && !call->finish_wanted;
    call->admitted = call->deferred = false;
    pump_locked(call, false);
    nd_mutex_unlock(&call->lock);
    if (start) {
        nd_rpc_call_start_held(call);
    }
    if (was_held) {
        nd_rpc_call_unref(call);
    }
    nd_rpc_call_tag_done(call);
}

static void break_locked(struct nd_rpc_call *call) ND_REQUIRES(call->lock)
{
    call->broken = true;
    atomic_store_explicit(&call->over, true, memory_order_relaxed);
    nd_rpc_sends_drop(&call->sends);
}

static size_t send_buffer(struct nd_rpc_call *call, grpc_byte_buffer *buffer)
{
    size_t queued = 0;

    nd_mutex_lock(&call->lock);
    if (call->finish_wanted || call->broken) {
        nd_mutex_unlock(&call->lock);
        grpc_byte_buffer_destroy(buffer);
        return 0;
    }
    queued = nd_rpc_sends_push(&call->sends, buffer);
    if (queued > ND_RPC_SEND_QUEUE_BYTES_MAX) {
        break_locked(call);
        queued = 0;
        grpc_call_cancel_with_status(call->core, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                     "the client reads too slowly", NULL);
    } else {
        call->drained_wanted = true;
        pump_or_defer_locked(call);
    }
    nd_mutex_unlock(&call->lock);
    return queued;
}

size_t nd_rpc_call_send(struct nd_rpc_call *call, const ProtobufCMessage *message)
{
    return send_buffer(call, nd_rpc_buffer_pack(message));
}

size_t nd_rpc_call_send_bytes(struct nd_rpc_call *call, struct nd_slice bytes,
                              void (*release)(void *release_data), void *release_data)
{
    return send_buffer(call, release == NULL ? nd_rpc_buffer_copy(bytes)
                                             : nd_rpc_buffer_borrow(bytes, release, release_data));
}

void nd_rpc_call_finish_locked(struct nd_rpc_call *call, int status, const char *text)
{
    if (call->finish_wanted) {
        return;
    }
    call->finish_wanted = true;
    atomic_store_explicit(&call->over, true, memory_order_relaxed);
    call->status_code = status >= 0 && status < ND_RPC_STATUS_COUNT ? status : GRPC_STATUS_UNKNOWN;
    if (text != NULL && *text != '\0') {
        call->status_text = grpc_slice_from_copied_string(text);
    }
    pump_or_defer_locked(call);
}

void nd_rpc_call_finish(struct nd_rpc_call *call, int grpc_status, const char *text)
{
    nd_mutex_lock(&call->lock);
    nd_rpc_call_finish_locked(call, grpc_status, text);
    nd_mutex_unlock(&call->lock);
}

static void trailing_add_locked(struct nd_rpc_call *call, const char *key, grpc_slice value)
    ND_REQUIRES(call->lock)
{
    grpc_metadata *entry = &call->trailing[call->trailing_count++];

    memset(entry, 0, sizeof *entry);
    entry->key = grpc_slice_from_static_string(key);
    entry->value = value;
}

/* `status` is mostly that of `err`. */
static void fail(struct nd_rpc_call *call, int status, enum nd_err err, const char *text,
                 uint32_t retry_after_ms)
{
    bool own = text != NULL && *text != '\0';
    char number[16];

    nd_mutex_lock(&call->lock);
    if (!call->finish_wanted && err != ND_OK) {
        trailing_add_locked(call, ND_RPC_KEY_REASON,
                            grpc_slice_from_static_string(nd_err_name(err)));
        if (retry_after_ms > 0) {
            snprintf(number, sizeof number, "%u", retry_after_ms);
            trailing_add_locked(call, ND_RPC_KEY_RETRY_AFTER,
                                grpc_slice_from_copied_string(number));
        }
    }
    nd_rpc_call_finish_locked(call, status, own ? text : nd_err_text(err));
    nd_mutex_unlock(&call->lock);
}

void nd_rpc_call_fail(struct nd_rpc_call *call, enum nd_err err, const char *text)
{
    fail(call, nd_err_grpc_status(err), err, text, 0);
}

void nd_rpc_call_fail_retry(struct nd_rpc_call *call, enum nd_err err, const char *text,
                            uint32_t retry_after_ms)
{
    fail(call, nd_err_grpc_status(err), err, text, retry_after_ms);
}

void nd_rpc_call_refuse_size(struct nd_rpc_call *call, const char *what, size_t size)
{
    char text[96];

    snprintf(text, sizeof text, "%s of %zu bytes, at most %u are allowed", what, size,
             call->method->desc->message_bytes_max);
    fail(call, GRPC_STATUS_RESOURCE_EXHAUSTED, ND_ERR_TOO_LARGE, text, 0);
}

static void reply_buffer(struct nd_rpc_call *call, grpc_byte_buffer *buffer)
{
    nd_mutex_lock(&call->lock);
    if (call->finish_wanted || call->broken) {
        grpc_byte_buffer_destroy(buffer);
    } else {
        nd_rpc_sends_push(&call->sends, buffer);
    }
    nd_rpc_call_finish_locked(call, GRPC_STATUS_OK, NULL);
    nd_mutex_unlock(&call->lock);
}

void nd_rpc_call_reply(struct nd_rpc_call *call, const ProtobufCMessage *message)
{
    reply_buffer(call, nd_rpc_buffer_pack(message));
}

void nd_rpc_call_reply_bytes(struct nd_rpc_call *call, struct nd_slice bytes,
                             void (*release)(void *release_data), void *release_data)
{
    reply_buffer(call, release == NULL ? nd_rpc_buffer_copy(bytes)
                                       : nd_rpc_buffer_borrow(bytes, release, release_data));
}

bool nd_rpc_call_was_cancelled(const struct nd_rpc_call *call)
{
    return call->cancelled != 0;
}

void nd_rpc_call_send_metadata(struct nd_rpc_call *call)
{
    nd_mutex_lock(&call->lock);
    if (!call->metadata_sent) {
        pump_locked(call, true);
    }
    nd_mutex_unlock(&call->lock);
}

static void on_write(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_call *call = ND_CONTAINER_OF(tag, struct nd_rpc_call, write);
    const struct nd_rpc_method *desc = call->method->desc;

    nd_mutex_lock(&call->lock);
    nd_rpc_sends_done(&call->sends);
    call->writing = false;
    if (!ok && !call->broken) {
        break_locked(call);
    }
    pump_locked(call, false);
    bool drained = call->drained_wanted && !call->writing && !call->finish_wanted && !call->broken;
    if (drained) {
        call->drained_wanted = false;
    }
    nd_mutex_unlock(&call->lock);
    if (drained && desc->on_drained != NULL) {
        desc->on_drained(call);
    }
    nd_rpc_call_tag_done(call);
}

static void on_status(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_call *call = ND_CONTAINER_OF(tag, struct nd_rpc_call, status);

    (void)ok; /* the client may be gone: nobody is left to tell */
    nd_mutex_lock(&call->lock);
    nd_rpc_sends_done(&call->sends);
    nd_mutex_unlock(&call->lock);
    nd_rpc_call_tag_done(call);
}

/* --- receiving --- */

void nd_rpc_call_watch_close_locked(struct nd_rpc_call *call)
{
    grpc_op op;

    memset(&op, 0, sizeof op);
    close_op(call, &op);
    call->close_started = true;
    pending_add(call);
    nd_rpc_batch(call->core, &op, 1, &call->close);
}

static void on_close(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_call *call = ND_CONTAINER_OF(tag, struct nd_rpc_call, close);
    const struct nd_rpc_method *desc = call->method->desc;
    bool tell = false;

    (void)ok;
    nd_mutex_lock(&call->lock);
    if (call->cancelled && !call->status_started) {
        break_locked(call);
        tell = !call->finish_wanted;
        pump_locked(call, false); /* a finish that waited for the queue */
    }
    nd_mutex_unlock(&call->lock);
    if (tell && !call->dispatched) { /* it was held */
        nd_rpc_call_fail(call, ND_ERR_CANCELLED, NULL);
    } else if (tell && desc->on_cancel != NULL) {
        desc->on_cancel(call);
    }
    nd_rpc_call_tag_done(call);
}

/* @thread worker, or under the lock by nd_rpc_call_read_next */
void nd_rpc_call_read_start(struct nd_rpc_call *call)
{
    grpc_op op;

    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &call->incoming;
    pending_add(call);
    nd_rpc_batch(call->core, &op, 1, &call->read);
}

void nd_rpc_call_read_next(struct nd_rpc_call *call)
{
    nd_mutex_lock(&call->lock);
    if (!call->status_started && !call->reading) {
        call->reading = true;
        nd_rpc_call_read_start(call);
    }
    nd_mutex_unlock(&call->lock);
}

static bool is_over(struct nd_rpc_call *call)
{
    return atomic_load_explicit(&call->over, memory_order_relaxed);
}

static void message_deliver(struct nd_rpc_call *call, grpc_byte_buffer *buffer)
{
    const struct nd_rpc_method *desc = call->method->desc;
    struct nd_rpc_bytes bytes = {.open = false};
    struct nd_slice message = nd_rpc_bytes_open(&bytes, buffer);

    if (message.size > desc->message_bytes_max) {
        nd_rpc_call_refuse_size(call, "message", message.size);
    } else if (!is_over(call)) {
        desc->on_message(call, message);
    }
    nd_rpc_bytes_close(&bytes);
    nd_arena_reset(&call->arena);
}

/* The core reports a half close and a broken call alike, the latter just ahead of its close event.
 * A second read comes back behind that event, and by then it is known which one it was. */
static void read_ended(struct nd_rpc_call *call)
{
    const struct nd_rpc_method *desc = call->method->desc;

    if (is_over(call)) {
        return;
    }
    if (!call->read_ended) {
        call->read_ended = true;
        nd_rpc_call_read_start(call);
    } else if (desc->on_half_close != NULL) {
        desc->on_half_close(call);
    }
}

static void on_read(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_call *call = ND_CONTAINER_OF(tag, struct nd_rpc_call, read);
    const struct nd_rpc_method *desc = call->method->desc;
    grpc_byte_buffer *buffer = call->incoming;

    call->incoming = NULL;
    if (buffer == NULL || !ok) {
        grpc_byte_buffer_destroy(buffer);
        read_ended(call);
        nd_rpc_call_tag_done(call);
        return;
    }
    if (desc->manual_read) {
        nd_mutex_lock(&call->lock);
        call->reading = false;
        nd_mutex_unlock(&call->lock);
    }
    message_deliver(call, buffer);
    if (!desc->manual_read && !is_over(call)) {
        nd_rpc_call_read_start(call);
    }
    nd_rpc_call_tag_done(call);
}

/* --- admission --- */

void nd_rpc_call_admit(struct nd_rpc_call *call, enum nd_err err, const char *text)
{
    if (err != ND_OK) {
        nd_rpc_call_fail(call, err, text);
        nd_rpc_call_unref(call);
        return;
    }
    nd_mutex_lock(&call->lock);
    bool over = call->finish_wanted; /* while it was held; until then it is one of the pending */
    if (!over) {
        call->admitted = true;
        nd_rpc_worker_hand(call, !call->deferred);
        if (!call->deferred) {
            call->deferred = true;
            pending_add(call);
        }
    }
    nd_mutex_unlock(&call->lock);
    if (over) {
        nd_rpc_call_unref(call);
    }
}

void nd_rpc_call_set_identity(struct nd_rpc_call *call, void *identity,
                              void (*release)(void *identity))
{
    nd_mutex_lock(&call->lock); /* against the end of a call that is held */
    ND_ASSERT(call->identity == NULL);
    call->identity = identity;
    call->identity_release = release;
    nd_mutex_unlock(&call->lock);
}

void *nd_rpc_call_identity(const struct nd_rpc_call *call)
{
    return call->identity; /* does not change once the call is admitted */
}

/* --- what a handler asks --- */

struct nd_rpc_server *nd_rpc_call_server(const struct nd_rpc_call *call)
{
    return call->worker->server;
}

void *nd_rpc_call_server_user(const struct nd_rpc_call *call)
{
    return call->worker->server->options.user;
}

void nd_rpc_call_set_user(struct nd_rpc_call *call, void *user)
{
    call->user = user;
}

void *nd_rpc_call_user(const struct nd_rpc_call *call)
{
    return call->user;
}

uint32_t nd_rpc_call_right(const struct nd_rpc_call *call)
{
    return call->method->desc->right;
}

struct nd_arena *nd_rpc_call_arena(struct nd_rpc_call *call)
{
    return &call->arena;
}

const void *nd_rpc_call_decode(struct nd_rpc_call *call, const ProtobufCMessageDescriptor *type,
                               struct nd_slice bytes)
{
    const void *message = nd_rpc_unpack(&call->arena, type, bytes);

    return message != NULL && nd_rpc_texts_are_whole(type, bytes) ? message : NULL;
}

void nd_rpc_call_keep_request(struct nd_rpc_call *call)
{
    call->request_kept = true;
}

struct nd_slice nd_rpc_call_metadata(const struct nd_rpc_call *call, const char *key)
{
    for (size_t i = 0; i < call->metadata.count; i++) {
        const grpc_metadata *entry = &call->metadata.metadata[i];
        if (grpc_slice_str_cmp(entry->key, key) == 0) {
            return nd_slice_make(GRPC_SLICE_START_PTR(entry->value),
                                 GRPC_SLICE_LENGTH(entry->value));
        }
    }
    return nd_slice_make(NULL, 0);
}

void nd_rpc_call_peer(const struct nd_rpc_call *call, char *out, size_t out_size)
{
    char *peer = call->core != NULL ? grpc_call_get_peer(call->core) : NULL;

    snprintf(out, out_size, "%s", peer != NULL ? peer : "");
    gpr_free(peer);
}

uint64_t nd_rpc_call_deadline_left_ms(const struct nd_rpc_call *call)
{
    gpr_timespec deadline = gpr_convert_clock_type(call->deadline, GPR_CLOCK_MONOTONIC);

    if (gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0) {
        return UINT64_MAX;
    }
    gpr_timespec left = gpr_time_sub(deadline, gpr_now(GPR_CLOCK_MONOTONIC));
    int32_t milliseconds = gpr_time_to_millis(left);
    return milliseconds > 0 ? (uint64_t)milliseconds : 0;
}
