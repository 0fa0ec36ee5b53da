/* From an armed request to a running handler. */
#include <stdio.h>
#include <string.h>

#include "proto/rpc/server_impl.h"

static void on_request(struct nd_rpc_tag *tag, bool ok);
static void on_unknown(struct nd_rpc_tag *tag, bool ok);

static bool has_request(enum nd_rpc_kind kind)
{
    return kind == ND_RPC_UNARY || kind == ND_RPC_SERVER_STREAM;
}

static bool is_stopping(struct nd_rpc_server *server)
{
    return atomic_load_explicit(&server->stopping, memory_order_relaxed);
}

void nd_rpc_call_arm(struct nd_rpc_worker *worker, struct nd_rpc_service_method *method)
{
    if (is_stopping(worker->server)) {
        return;
    }
    struct nd_rpc_call *call = nd_rpc_call_new(worker, method);
    grpc_byte_buffer **payload = has_request(method->desc->kind) ? &call->incoming : NULL;

    call->request.run = on_request;
    ND_RPC_TAG_RELEASE(&call->request);
    grpc_call_error error = grpc_server_request_registered_call(
        worker->server->core, method->registered, &call->core, &call->deadline, &call->metadata,
        payload, worker->queue, worker->queue, &call->request);
    ND_ASSERT(error == GRPC_CALL_OK);
}

/* Ask who calls. LATER: the call is held, with a reference for nd_rpc_call_admit. */
static enum nd_rpc_admission authenticate(struct nd_rpc_call *call)
{
    struct nd_rpc_server *server = call->worker->server;
    struct nd_errmsg msg = {.text = ""};
    enum nd_err err = ND_OK;

    nd_rpc_call_ref(call); /* before: the admission may come at once */
    enum nd_rpc_admission admission =
        server->options.authenticate(call, server->options.user, &err, &msg);
    switch (admission) {
    case ND_RPC_LATER: return admission;
    case ND_RPC_REFUSE: nd_rpc_call_fail(call, err, msg.text); break;
    case ND_RPC_ADMIT: break;
    }
    nd_rpc_call_unref(call);
    return admission;
}

/* May the call go to its handler? REFUSE: it was answered. */
static enum nd_rpc_admission admit(struct nd_rpc_call *call, bool room)
{
    const struct nd_rpc_server *server = call->worker->server;

    if (!room) {
        char text[64];
        snprintf(text, sizeof text, "too many calls are open: at most %u at a time",
                 server->options.calls_max);
        nd_rpc_call_fail(call, ND_ERR_OVERLOADED, text);
        return ND_RPC_REFUSE;
    }
    if (is_stopping(call->worker->server)) {
        nd_rpc_call_fail(call, ND_ERR_UNAVAILABLE, "the server is stopping");
        return ND_RPC_REFUSE;
    }
    if (server->options.authenticate == NULL || call->method->exempt) {
        return ND_RPC_ADMIT;
    }
    return authenticate(call);
}

/* A unary call is watched for its end only when it is held, or the handler wants to know and did
 * not answer at once. */
static void watch_close(struct nd_rpc_call *call)
{
    nd_mutex_lock(&call->lock);
    if (!call->close_started) {
        nd_rpc_call_watch_close_locked(call);
    }
    nd_mutex_unlock(&call->lock);
}

static void start_with_request(struct nd_rpc_call *call)
{
    const struct nd_rpc_method *desc = call->method->desc;
    grpc_byte_buffer *buffer = call->incoming;
    bool stream = desc->kind == ND_RPC_SERVER_STREAM;

    call->incoming = NULL;
    if (buffer == NULL) { /* also when it was too large: then the core has answered */
        nd_rpc_call_fail(call, ND_ERR_INVALID_ARGUMENT, "a request message is needed");
        return;
    }
    call->request_bytes.secret = desc->secret;
    struct nd_slice request = nd_rpc_bytes_open(&call->request_bytes, buffer);
    if (request.size > desc->message_bytes_max) {
        nd_rpc_call_refuse_size(call, "request", request.size);
        nd_rpc_bytes_close(&call->request_bytes);
        return;
    }
    call->dispatched = true;
    if (stream) {
        watch_close(call);
    }
    nd_rpc_worker_await(call, !stream && desc->on_cancel == NULL);
    desc->on_start(call, request);
    if (!call->request_kept) {
        nd_rpc_bytes_close(&call->request_bytes);
    }
    if (stream) {
        nd_rpc_call_send_metadata(call);
    } else if (desc->on_cancel != NULL) {
        watch_close(call);
    }
}

static void start_stream(struct nd_rpc_call *call)
{
    const struct nd_rpc_method *desc = call->method->desc;

    call->dispatched = true;
    watch_close(call);
    if (desc->on_open != NULL) {
        desc->on_open(call);
    }
    nd_rpc_call_send_metadata(call);
    if (desc->manual_read) {
        nd_rpc_call_read_next(call);
    } else {
        nd_rpc_call_read_start(call);
    }
}

static void start(struct nd_rpc_call *call)
{
    if (has_request(call->method->desc->kind)) {
        start_with_request(call);
    } else {
        start_stream(call);
    }
}

void nd_rpc_call_start_held(struct nd_rpc_call *call)
{
    if (is_stopping(call->worker->server)) {
        nd_rpc_call_fail(call, ND_ERR_UNAVAILABLE, "the server is stopping");
    } else {
        start(call);
    }
}

static void on_request(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_call *call = ND_CONTAINER_OF(tag, struct nd_rpc_call, request);

    if (!ok) { /* the server stops: this was only armed */
        nd_rpc_call_discard(call);
        return;
    }
    /* Counted before it is armed anew: the stop waits for the count, so the core is still there. */
    bool room = nd_rpc_server_call_begin(call->worker->server);
    call->counted = true;
    nd_rpc_call_arm(call->worker, call->method);
    call->started_ns = nd_rpc_now_ns();
    /* The call may end on another thread's finish and come back as an event, but events are ours:
     * it lives until this function returns. */
    switch (admit(call, room)) {
    case ND_RPC_ADMIT: start(call); break;
    case ND_RPC_LATER: watch_close(call); break;
    case ND_RPC_REFUSE: break; /* the request goes with the call */
    }
}

void nd_rpc_call_arm_unknown(struct nd_rpc_worker *worker)
{
    if (is_stopping(worker->server)) {
        return;
    }
    struct nd_rpc_call *call = nd_rpc_call_new(worker, &worker->server->unknown);

    call->request.run = on_unknown;
    grpc_call_details_init(&call->details);
    ND_RPC_TAG_RELEASE(&call->request);
    grpc_call_error error =
        grpc_server_request_call(worker->server->core, &call->core, &call->details, &call->metadata,
                                 worker->queue, worker->queue, &call->request);
    ND_ASSERT(error == GRPC_CALL_OK);
}

static void on_unknown(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_call *call = ND_CONTAINER_OF(tag, struct nd_rpc_call, request);
    char text[160];

    if (!ok) {
        grpc_call_details_destroy(&call->details);
        nd_rpc_call_discard(call);
        return;
    }
    nd_rpc_server_call_begin(call->worker->server); /* too many or not: the answer is the same */
    call->counted = true;
    nd_rpc_call_arm_unknown(call->worker);
    call->started_ns = nd_rpc_now_ns();
    snprintf(text, sizeof text, "unknown method %.*s",
             (int)ND_MIN(GRPC_SLICE_LENGTH(call->details.method), 100u),
             (const char *)GRPC_SLICE_START_PTR(call->details.method));
    grpc_call_details_destroy(&call->details);
    nd_rpc_call_fail(call, ND_ERR_UNSUPPORTED, text);
}
