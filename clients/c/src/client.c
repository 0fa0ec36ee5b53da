/* Life of a client, and the blocking calls. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "clients/c/src/internal.h"

static const char *const code_names[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

const char *narad_code_name(int code)
{
    return code >= 0 && (size_t)code < ND_ARRAY_SIZE(code_names) ? code_names[code] : "UNKNOWN";
}

int error_set(struct narad_error *error, int code, const char *text)
{
    if (error != NULL) {
        error->code = code;
        size_t size = ND_MIN(strlen(text), sizeof error->text - 1);
        memcpy(error->text, text, size);
        error->text[size] = '\0';
    }
    return code;
}

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void outage_taken(struct outage *outage)
{
    if (outage->taken_ns == 0) {
        outage->taken_ns = now_ns();
    }
}

void outage_over(struct outage *outage)
{
    outage->since_ns = 0;
    outage->tries = 0;
}

bool outage_goes_on(struct outage *outage, uint32_t limit_ms)
{
    uint64_t now = now_ns();

    if (outage->taken_ns != 0 && now - outage->taken_ns >= CONNECTED_MS * 1000000u) {
        outage_over(outage);
    }
    if (outage->since_ns == 0) {
        outage->since_ns = now;
    }
    outage->taken_ns = 0;
    return now - outage->since_ns < (uint64_t)limit_ms * 1000000u;
}

uint32_t outage_pause_ms(struct outage *outage, uint32_t limit_ms)
{
    uint64_t lost_ms = (now_ns() - outage->since_ns) / 1000000u;
    uint64_t left_ms = lost_ms < limit_ms ? limit_ms - lost_ms : 0;

    uint64_t pause_ms = retry_pause_ms(outage->tries);

    outage->tries += 1;
    return (uint32_t)ND_MIN(pause_ms, left_ms);
}

/* The address of a thread-local variable names a thread without asking pthread for equality. */
static _Thread_local char thread_mark;

void on_own_thread(struct narad_client *client)
{
    atomic_store_explicit(&client->thread, (uintptr_t)&thread_mark,
                          memory_order_relaxed); /* only ever compared on the thread that set it */
}

bool is_own_thread(struct narad_client *client)
{
    return atomic_load_explicit(&client->thread, memory_order_relaxed) == (uintptr_t)&thread_mark;
}

int narad_client_new(struct narad_client **out, const struct narad_options *options,
                     struct narad_error *error)
{
    static const struct narad_options defaults;
    const struct narad_options *o = options != NULL ? options : &defaults;
    struct narad_client *client = nd_xcalloc(1, sizeof *client);

    client->server = nd_xstrdup(server_choose(o));
    client->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : 40000;
    client->connect_timeout_ms = o->connect_timeout_ms != 0 ? o->connect_timeout_ms : 10000;
    client->in_flight_max = o->in_flight_max != 0 ? o->in_flight_max : 4096;
    client->bytes_max = o->bytes_max != 0 ? o->bytes_max : 64u << 20;
    client->resend_unconfirmed = o->resend_unconfirmed;
    nd_mutex_init(&client->lock);
    nd_cond_init(&client->changed);
    nd_list_init(&client->settlers);
    nd_list_init(&client->subscriptions);
    producer_init(&client->producer);
    int code = channel_open(client, o, error);
    if (code != NARAD_OK) {
        nd_cond_release(&client->changed);
        nd_mutex_release(&client->lock);
        nd_free(client->server);
        nd_free(client);
        return code;
    }
    *out = client;
    return NARAD_OK;
}

void narad_client_free(struct narad_client *client)
{
    if (client == NULL) {
        return;
    }
    nd_mutex_lock(&client->lock);
    client->closing = true;
    nd_mutex_unlock(&client->lock);
    /* Ends every call, stream and timer, with their callbacks, on the channel's thread. */
    nd_rpc_channel_free(client->channel);
    producer_close(client);
    settlers_close(client);
    subscriptions_close(client);
    nd_cond_release(&client->changed);
    nd_mutex_release(&client->lock);
    nd_free(client->server);
    nd_free(client);
}

const char *narad_client_server(const struct narad_client *client)
{
    return client->server;
}

/* A blocking call, on the caller's stack. */
struct call {
    struct narad_client *client;
    const ProtobufCMessageDescriptor *type;
    void *response;
    struct narad_error *error;
    int code;
    bool finished;
};

/* The reply is borrowed, so it is copied by way of its bytes. */
static void *message_copy(const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = nd_xmalloc(size + 1);

    protobuf_c_message_pack(message, bytes);
    void *copy = protobuf_c_message_unpack(message->descriptor, NULL, size, bytes);
    nd_free(bytes);
    return copy;
}

static void call_done(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct call *call = data;
    struct narad_client *client = call->client;
    void *copy = reply != NULL ? message_copy(reply) : NULL;

    on_own_thread(client);
    nd_mutex_lock(&client->lock);
    call->response = copy;
    call->code = status->code;
    if (status->code == NARAD_OK && copy == NULL) {
        call->code = NARAD_INTERNAL;
        error_set(call->error, NARAD_INTERNAL, "the answer could not be decoded");
    } else if (status->code != NARAD_OK) {
        struct explanation explanation;
        error_set(call->error, status->code, explain(client, status, &explanation));
    }
    call->finished = true;
    nd_cond_broadcast(&client->changed);
    nd_mutex_unlock(&client->lock);
}

/* gRPC says so when no connection could be made, which means that nothing was sent. */
static bool never_sent(int code, const struct narad_error *error)
{
    return code == NARAD_UNAVAILABLE && strstr(error->text, "failed to connect") != NULL;
}

static void call_once(struct narad_client *client, const char *path,
                      const ProtobufCMessage *request, struct call *call)
{
    nd_rpc_call_unary(client->channel, path, request, call->type, client->timeout_ms, false,
                      call_done, call);
    nd_mutex_lock(&client->lock);
    while (!call->finished) {
        nd_cond_wait(&client->changed, &client->lock);
    }
    nd_mutex_unlock(&client->lock);
}

static void wait_until(struct narad_client *client, uint64_t deadline_ns)
{
    nd_mutex_lock(&client->lock);
    while (!client->closing && nd_cond_wait_until(&client->changed, &client->lock, deadline_ns)) {
    }
    nd_mutex_unlock(&client->lock);
}

static int call_unary(struct narad_client *client, const char *path,
                      const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                      void **response, struct narad_error *error)
{
    struct narad_error own;
    struct narad_error *text = error != NULL ? error : &own;
    uint64_t give_up = now_ns() + (uint64_t)client->connect_timeout_ms * 1000000u;
    struct call call;

    if (is_own_thread(client)) {
        return error_set(error, NARAD_FAILED_PRECONDITION, "a blocking call inside a callback");
    }
    for (uint32_t tries = 0;; tries++) {
        call = (struct call){.client = client, .type = type, .error = text};
        error_set(text, NARAD_OK, "");
        call_once(client, path, request, &call);
        uint64_t now = now_ns();
        if (!never_sent(call.code, text) || now >= give_up) {
            break;
        }
        uint64_t again = now + retry_pause_ms(tries) * UINT64_C(1000000);
        wait_until(client, ND_MIN(again, give_up));
    }
    *response = call.response;
    return call.code;
}

/* The descriptor names follow from the type names: CreateTopic -> create_topic. */
#define X(name, Type, path)                                                                        \
    int narad_##name(struct narad_client *client, const Narad__V1__##Type##Request *request,       \
                     Narad__V1__##Type##Response **response, struct narad_error *error)            \
    {                                                                                              \
        void *answer = NULL;                                                                       \
        int code = call_unary(client, path, &request->base,                                        \
                              &narad__v1__##name##_response__descriptor, &answer, error);          \
        *response = answer;                                                                        \
        return code;                                                                               \
    }
NARAD_CALLS(X)
#undef X

void narad_response_free(void *response)
{
    if (response != NULL) {
        protobuf_c_message_free_unpacked(response, NULL);
    }
}

bool narad_flush(struct narad_client *client, uint32_t timeout_ms)
{
    uint64_t deadline =
        timeout_ms == UINT32_MAX ? UINT64_MAX : now_ns() + (uint64_t)timeout_ms * 1000000u;
    bool in_time = !is_own_thread(client);

    nd_mutex_lock(&client->lock);
    while (in_time && (client->producer.count > 0 || client->settles_open > 0)) {
        in_time = nd_cond_wait_until(&client->changed, &client->lock, deadline);
    }
    bool done = client->producer.count == 0 && client->settles_open == 0;
    nd_mutex_unlock(&client->lock);
    return done;
}
