#include "rpc_fixture.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"

enum { PATIENCE_S = 120, QUEUED_PAUSE = 1 << 20 };

typedef Narad__V1__Header header;

static bool shared;

void fixture_arguments(int argc, char **argv)
{
    shared = argc > 1 && strcmp(argv[1], "shared") == 0;
}

static struct fixture *fixture_of(struct nd_rpc_call *call)
{
    return nd_rpc_call_server_user(call);
}

static void bump(struct fixture *fixture, unsigned *counter)
{
    nd_mutex_lock(&fixture->lock);
    *counter += 1;
    nd_cond_broadcast(&fixture->changed);
    nd_mutex_unlock(&fixture->lock);
}

static uint64_t patience_end(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec + PATIENCE_S) * 1000000000u + (uint64_t)now.tv_nsec;
}

void fixture_wait(struct fixture *fixture, const unsigned *counter, unsigned at_least)
{
    uint64_t end = patience_end();
    bool in_time = true;

    nd_mutex_lock(&fixture->lock);
    while (*counter < at_least && in_time) {
        in_time = nd_cond_wait_until(&fixture->changed, &fixture->lock, end);
    }
    unsigned seen = *counter;
    nd_mutex_unlock(&fixture->lock);
    if (seen < at_least) {
        fail_msg("waited for %u, got %u", at_least, seen);
    }
}

unsigned fixture_count(struct fixture *fixture, const unsigned *counter)
{
    nd_mutex_lock(&fixture->lock);
    unsigned seen = *counter;
    nd_mutex_unlock(&fixture->lock);
    return seen;
}

/* --- the service --- */

static const header *decode(struct nd_rpc_call *call, struct nd_slice bytes)
{
    const header *message = nd_rpc_call_decode(call, &narad__v1__header__descriptor, bytes);

    if (message == NULL) {
        nd_rpc_call_fail(call, ND_ERR_INVALID_ARGUMENT, "not a Header");
    }
    return message;
}

static void note_call(struct nd_rpc_call *call)
{
    struct fixture *fixture = fixture_of(call);
    struct nd_slice value = nd_rpc_call_metadata(call, "x-test");

    nd_mutex_lock(&fixture->lock);
    fixture->identity = nd_rpc_call_identity(call);
    fixture->elsewhere_started =
        fixture->elsewhere_started || !pthread_equal(pthread_self(), fixture->asked);
    nd_rpc_call_peer(call, fixture->peer, sizeof fixture->peer);
    fixture->deadline_left_ms = nd_rpc_call_deadline_left_ms(call);
    snprintf(fixture->metadata, sizeof fixture->metadata, "%.*s", (int)value.size,
             value.data != NULL ? (const char *)value.data : "");
    nd_mutex_unlock(&fixture->lock);
    bump(fixture, &fixture->started);
}

static void *reply_later(void *arg)
{
    struct nd_rpc_call *call = arg;
    header reply;

    narad__v1__header__init(&reply);
    char name[] = "later";
    reply.name = name;
    nd_rpc_call_reply(call, &reply.base);
    nd_rpc_call_unref(call);
    return NULL;
}

static void unary_start(struct nd_rpc_call *call, struct nd_slice request)
{
    struct fixture *fixture = fixture_of(call);
    const header *message = decode(call, request);

    if (message != NULL && strcmp(message->name, "park") == 0) {
        nd_mutex_lock(&fixture->lock);
        fixture->parked = call;
        nd_mutex_unlock(&fixture->lock);
    }
    note_call(call);
    if (message == NULL || strcmp(message->name, "park") == 0) {
        return;
    }
    if (strcmp(message->name, "fail") == 0) {
        nd_rpc_call_fail(call, ND_ERR_TOPIC_NOT_FOUND, "no such topic: fail");
    } else if (strcmp(message->name, "limited") == 0) {
        nd_rpc_call_fail_retry(call, ND_ERR_LIMITED, "slower", 1500);
    } else if (strcmp(message->name, "later") == 0) {
        pthread_t thread;
        nd_rpc_call_ref(call);
        pthread_create(&thread, NULL, reply_later, call);
        pthread_detach(thread);
    } else {
        nd_rpc_call_reply(call, &message->base);
    }
}

static void on_cancel(struct nd_rpc_call *call)
{
    struct fixture *fixture = fixture_of(call);

    nd_rpc_call_finish(call, 1, "cancelled");
    bump(fixture, &fixture->cancelled);
}

static void on_done(struct nd_rpc_call *call)
{
    struct fixture *fixture = fixture_of(call);

    nd_mutex_lock(&fixture->lock);
    if (fixture->parked == call) {
        fixture->parked = NULL;
    }
    fixture->lost += nd_rpc_call_was_cancelled(call);
    nd_mutex_unlock(&fixture->lock);
    nd_free(nd_rpc_call_user(call));
    bump(fixture, &fixture->done);
}

/* The user data of ECHO_MANY: the size of a message. */
static void many_go_on(struct nd_rpc_call *call)
{
    struct fixture *fixture = fixture_of(call);
    const size_t *size = nd_rpc_call_user(call);
    size_t queued = 0;
    char name[16];
    header message;

    narad__v1__header__init(&message);
    message.name = name;
    message.value.len = *size;
    message.value.data = nd_xcalloc(1, *size + 1);
    nd_mutex_lock(&fixture->lock);
    while (fixture->many_sent < fixture->many && (fixture->flood || queued < QUEUED_PAUSE)) {
        snprintf(name, sizeof name, "%u", fixture->many_sent);
        queued = nd_rpc_call_send(call, &message.base);
        if (queued == 0) {
            break;
        }
        fixture->many_sent += 1;
        fixture->queued_max = ND_MAX(fixture->queued_max, queued);
    }
    bool all = fixture->many_sent == fixture->many;
    nd_mutex_unlock(&fixture->lock);
    nd_free(message.value.data);
    if (all) {
        nd_rpc_call_finish(call, 0, NULL);
    }
}

/* By another thread, while this one, the worker, is awake. */
static void run_elsewhere(void *(*run)(void *call), struct nd_rpc_call *call)
{
    pthread_t thread;

    pthread_create(&thread, NULL, run, call);
    pthread_join(thread, NULL);
}

static void *many_begin(void *call)
{
    many_go_on(call);
    return NULL;
}

static void many_start(struct nd_rpc_call *call, struct nd_slice request)
{
    const header *message = decode(call, request);

    note_call(call);
    if (message != NULL) {
        size_t *size = nd_xmalloc(sizeof *size);
        *size = message->value.len;
        nd_rpc_call_set_user(call, size);
        if (fixture_of(call)->elsewhere) {
            run_elsewhere(many_begin, call);
        } else {
            many_go_on(call);
        }
    }
}

static void many_drained(struct nd_rpc_call *call)
{
    struct fixture *fixture = fixture_of(call);

    bump(fixture, &fixture->drained);
    many_go_on(call);
}

static void bidi_message(struct nd_rpc_call *call, struct nd_slice bytes)
{
    struct fixture *fixture = fixture_of(call);
    const header *message = decode(call, bytes);

    if (message != NULL) {
        nd_rpc_call_send(call, &message->base);
        bump(fixture, &fixture->messages);
    }
}

static void bidi_end(struct nd_rpc_call *call)
{
    struct fixture *fixture = fixture_of(call);

    bump(fixture, &fixture->half_closed);
    nd_rpc_call_finish(call, 0, NULL);
}

static void *bidi_greet(void *call)
{
    char name[16];
    header message;

    narad__v1__header__init(&message);
    message.name = name;
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%d", i);
        nd_rpc_call_send(call, &message.base);
    }
    return NULL;
}

static void bidi_open(struct nd_rpc_call *call)
{
    struct fixture *fixture = fixture_of(call);

    nd_mutex_lock(&fixture->lock);
    fixture->last_bidi = call;
    nd_mutex_unlock(&fixture->lock);
    note_call(call);
    if (fixture->elsewhere) {
        run_elsewhere(bidi_greet, call);
    }
}

static void manual_open(struct nd_rpc_call *call)
{
    struct fixture *fixture = fixture_of(call);

    nd_mutex_lock(&fixture->lock);
    fixture->manual = call;
    nd_mutex_unlock(&fixture->lock);
    note_call(call);
}

static void sum_message(struct nd_rpc_call *call, struct nd_slice bytes)
{
    unsigned *count = nd_rpc_call_user(call);

    if (decode(call, bytes) != NULL) {
        if (count == NULL) {
            count = nd_xcalloc(1, sizeof *count);
            nd_rpc_call_set_user(call, count);
        }
        *count += 1;
    }
}

static void sum_end(struct nd_rpc_call *call)
{
    const unsigned *count = nd_rpc_call_user(call);
    char name[16];
    header reply;

    narad__v1__header__init(&reply);
    snprintf(name, sizeof name, "%u", count != NULL ? *count : 0);
    reply.name = name;
    nd_rpc_call_reply(call, &reply.base);
}

static const struct nd_rpc_method plain = {.path = ECHO_PLAIN,
                                           .kind = ND_RPC_UNARY,
                                           .message_bytes_max = FIXTURE_MESSAGE_MAX,
                                           .armed = 64,
                                           .on_start = unary_start,
                                           .on_done = on_done};
static const struct nd_rpc_method watch = {.path = ECHO_WATCH,
                                           .kind = ND_RPC_UNARY,
                                           .message_bytes_max = FIXTURE_MESSAGE_MAX,
                                           .on_start = unary_start,
                                           .on_cancel = on_cancel,
                                           .on_done = on_done};
static const struct nd_rpc_method many = {.path = ECHO_MANY,
                                          .kind = ND_RPC_SERVER_STREAM,
                                          .message_bytes_max = FIXTURE_MESSAGE_MAX,
                                          .on_start = many_start,
                                          .on_drained = many_drained,
                                          .on_cancel = on_cancel,
                                          .on_done = on_done};
static const struct nd_rpc_method sum = {.path = ECHO_SUM,
                                         .kind = ND_RPC_CLIENT_STREAM,
                                         .message_bytes_max = FIXTURE_MESSAGE_MAX,
                                         .on_open = note_call,
                                         .on_message = sum_message,
                                         .on_half_close = sum_end,
                                         .on_cancel = on_cancel,
                                         .on_done = on_done};
static const struct nd_rpc_method bidi = {.path = ECHO_BIDI,
                                          .kind = ND_RPC_BIDI,
                                          .message_bytes_max = FIXTURE_MESSAGE_MAX,
                                          .on_open = bidi_open,
                                          .on_message = bidi_message,
                                          .on_half_close = bidi_end,
                                          .on_cancel = on_cancel,
                                          .on_done = on_done};
static const struct nd_rpc_method manual = {.path = ECHO_MANUAL,
                                            .kind = ND_RPC_BIDI,
                                            .message_bytes_max = FIXTURE_MESSAGE_MAX,
                                            .on_open = manual_open,
                                            .on_message = bidi_message,
                                            .on_half_close = bidi_end,
                                            .on_cancel = on_cancel,
                                            .on_done = on_done,
                                            .manual_read = true};

struct identity {
    struct fixture *fixture;
};

static void identity_release(void *data)
{
    struct identity *identity = data;
    struct fixture *fixture = identity->fixture;

    nd_mutex_lock(&fixture->lock);
    fixture->done_before_those = fixture->done;
    nd_mutex_unlock(&fixture->lock);
    nd_free(identity);
    bump(fixture, &fixture->identities);
}

void fixture_admit(struct fixture *fixture, unsigned index, enum nd_err err, const char *text)
{
    struct identity *identity = nd_xcalloc(1, sizeof *identity);

    identity->fixture = fixture;
    nd_mutex_lock(&fixture->lock);
    struct nd_rpc_call *call = fixture->held[index];
    nd_mutex_unlock(&fixture->lock);
    nd_rpc_call_set_identity(call, identity, identity_release);
    nd_rpc_call_admit(call, err, text);
}

static enum nd_rpc_admission hold(struct nd_rpc_call *call, struct fixture *fixture)
{
    nd_mutex_lock(&fixture->lock);
    assert_true(fixture->held_count < FIXTURE_HELD_MAX);
    unsigned index = fixture->held_count;
    fixture->held[index] = call;
    nd_mutex_unlock(&fixture->lock);
    bump(fixture, &fixture->held_count);
    if (fixture->at_once) {
        fixture_admit(fixture, index, ND_OK, NULL);
    }
    return ND_RPC_LATER;
}

static enum nd_rpc_admission authenticate(struct nd_rpc_call *call, void *user,
                                          enum nd_err *err_out, struct nd_errmsg *msg)
{
    struct fixture *fixture = user;
    struct nd_slice value = nd_rpc_call_metadata(call, "authorization");

    nd_mutex_lock(&fixture->lock);
    fixture->asked = pthread_self();
    nd_mutex_unlock(&fixture->lock);
    if (fixture->later) {
        return hold(call, fixture);
    }
    if (!fixture->authenticate || nd_slice_equal(value, nd_slice_str("secret"))) {
        return ND_RPC_ADMIT;
    }
    nd_errmsg_set(msg, "who are you?");
    *err_out = ND_ERR_UNAUTHENTICATED;
    return ND_RPC_REFUSE;
}

/* --- server and channel --- */

void fixture_server_start(struct fixture *fixture)
{
    static const struct nd_rpc_method *const methods[] = {&plain, &watch, &many,
                                                          &sum,   &bidi,  &manual};
    struct nd_errmsg msg = {.text = ""};
    struct nd_rpc_server_options options = {
        .methods = methods,
        .methods_count = ND_ARRAY_SIZE(methods),
        .user = fixture,
        .threads = ND_MAX(fixture->threads, 1u),
        .message_bytes_max = FIXTURE_SERVER_MESSAGE_MAX,
        .calls_max = fixture->calls_max,
        .keepalive_time_ms = fixture->keepalive_ms > 0 ? fixture->keepalive_ms : 20000,
        .keepalive_timeout_ms = fixture->keepalive_ms > 0 ? fixture->keepalive_ms : 10000,
        .memory_bytes_max = 256u << 20,
        .metrics = fixture->metrics,
        .authenticate = authenticate,
    };
    int port = 0;
    bool again = strchr(fixture->target, ':') != NULL;

    if (nd_rpc_server_new(&fixture->server, &options, &msg) != ND_OK ||
        nd_rpc_server_listen(fixture->server, again ? fixture->target : fixture->address, &port,
                             &msg) != ND_OK ||
        nd_rpc_server_start(fixture->server, &msg) != ND_OK) {
        fail_msg("%s", msg.text);
    }
    if (strncmp(fixture->address, "unix:", 5) == 0) {
        assert_int_equal(port, 0);
        snprintf(fixture->target, sizeof fixture->target, "%.60s", fixture->address);
    } else {
        assert_true(port > 1);
        int host_size = (int)(strrchr(fixture->address, ':') - fixture->address);
        snprintf(fixture->target, sizeof fixture->target, "%.*s:%d", host_size, fixture->address,
                 port);
    }
    if (fixture->channel == NULL) {
        fixture->channel = fixture_channel_new(fixture, NULL, 0);
    }
}

void fixture_server_stop(struct fixture *fixture, uint32_t grace_ms)
{
    if (shared) {
        nd_rpc_channel_free(fixture->channel);
        fixture->channel = NULL;
    }
    nd_rpc_server_stop(fixture->server, grace_ms);
    nd_rpc_server_free(fixture->server);
    fixture->server = NULL;
}

struct nd_rpc_channel *fixture_channel_new(struct fixture *fixture,
                                           const struct nd_rpc_metadata *metadata, size_t count)
{
    struct nd_rpc_channel *channel = NULL;
    struct nd_errmsg msg = {.text = ""};
    struct nd_rpc_channel_options options = {.target = fixture->target,
                                             .metadata = metadata,
                                             .metadata_count = count,
                                             .server = shared ? fixture->server : NULL};

    if (nd_rpc_channel_new(&channel, &options, &msg) != ND_OK) {
        fail_msg("%s", msg.text);
    }
    return channel;
}

void fixture_init_tcp(struct fixture *fixture)
{
    uint32_t id = (uint32_t)getpid();
    char address[64];

    snprintf(address, sizeof address, "127.%u.%u.%u:0", 64 + (id >> 16) % 128, (id >> 8) % 256,
             1 + id % 254);
    fixture_init(fixture, address);
}

void fixture_init(struct fixture *fixture, const char *address)
{
    memset(fixture, 0, sizeof *fixture);
    nd_mutex_init(&fixture->lock);
    nd_cond_init(&fixture->changed);
    fixture->metrics = nd_metrics_new();
    snprintf(fixture->address, sizeof fixture->address, "%s", address);
    fixture_server_start(fixture);
}

void fixture_release(struct fixture *fixture)
{
    nd_rpc_channel_free(fixture->channel);
    fixture->channel = NULL;
    if (fixture->server != NULL) {
        fixture_server_stop(fixture, 5000);
    }
    nd_metrics_free(fixture->metrics);
    nd_cond_release(&fixture->changed);
    nd_mutex_release(&fixture->lock);
}

/* --- client side --- */

void outcome_init(struct outcome *outcome, struct fixture *fixture)
{
    memset(outcome, 0, sizeof *outcome);
    outcome->fixture = fixture;
    outcome->code = -1;
}

static void outcome_done(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct outcome *outcome = data;
    const header *message = reply;
    struct fixture *fixture = outcome->fixture;

    nd_mutex_lock(&fixture->lock);
    outcome->code = status->code;
    snprintf(outcome->text, sizeof outcome->text, "%s", status->text);
    snprintf(outcome->reason, sizeof outcome->reason, "%s", status->reason);
    outcome->retry_after_ms = status->retry_after_ms;
    if (message != NULL) {
        snprintf(outcome->name, sizeof outcome->name, "%s", message->name);
        outcome->value_size = message->value.len;
    }
    outcome->done = true;
    nd_cond_broadcast(&fixture->changed);
    nd_mutex_unlock(&fixture->lock);
}

static void message_fill(header *message, const char *name, size_t value_size)
{
    narad__v1__header__init(message);
    message->name = (char *)(uintptr_t)name; /* packing only reads it */
    message->value.len = value_size;
    message->value.data = nd_xcalloc(1, value_size + 1);
}

void outcome_start(struct outcome *outcome, struct nd_rpc_channel *channel, const char *path,
                   const char *name, size_t value_size, uint32_t deadline_ms)
{
    header request;

    message_fill(&request, name, value_size);
    nd_rpc_call_unary(channel, path, &request.base, &narad__v1__header__descriptor, deadline_ms,
                      true, outcome_done, outcome);
    nd_free(request.value.data);
}

void outcome_start_with(struct outcome *outcome, struct nd_rpc_channel *channel, const char *path,
                        const char *name, const struct nd_rpc_call_options *options)
{
    header request;

    message_fill(&request, name, 0);
    nd_rpc_call_unary_with(channel, path, &request.base, &narad__v1__header__descriptor, options,
                           outcome_done, outcome);
    nd_free(request.value.data);
}

void outcome_wait(struct outcome *outcome)
{
    struct fixture *fixture = outcome->fixture;
    uint64_t end = patience_end();
    bool in_time = true;

    nd_mutex_lock(&fixture->lock);
    while (!outcome->done && in_time) {
        in_time = nd_cond_wait_until(&fixture->changed, &fixture->lock, end);
    }
    bool done = outcome->done;
    nd_mutex_unlock(&fixture->lock);
    assert_true(done);
}

void echo_call(struct fixture *fixture, const char *path, const char *name, size_t value_size,
               struct outcome *outcome)
{
    outcome_init(outcome, fixture);
    outcome_start(outcome, fixture->channel, path, name, value_size, PATIENCE_S * 1000);
    outcome_wait(outcome);
}

static void watcher_message(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct watcher *watcher = data;
    char expected[16];
    header *message = narad__v1__header__unpack(NULL, bytes.size, bytes.data);

    (void)stream;
    nd_mutex_lock(&watcher->fixture->lock);
    snprintf(expected, sizeof expected, "%u", watcher->messages);
    snprintf(watcher->last, sizeof watcher->last, "%s", message != NULL ? message->name : "?");
    watcher->in_order = watcher->in_order && strcmp(expected, watcher->last) == 0;
    nd_mutex_unlock(&watcher->fixture->lock);
    narad__v1__header__free_unpacked(message, NULL);
    bump(watcher->fixture, &watcher->messages);
}

static void watcher_drained(void *data, struct nd_rpc_stream *stream)
{
    struct watcher *watcher = data;

    (void)stream;
    bump(watcher->fixture, &watcher->drained);
}

static void watcher_done(void *data, struct nd_rpc_stream *stream,
                         const struct nd_rpc_status *status)
{
    struct watcher *watcher = data;

    (void)stream;
    watcher->code = status->code;
    snprintf(watcher->text, sizeof watcher->text, "%s", status->text);
    snprintf(watcher->reason, sizeof watcher->reason, "%s", status->reason);
    bump(watcher->fixture, &watcher->done);
}

void watcher_open_with(struct watcher *watcher, struct fixture *fixture, const char *path,
                       const struct nd_rpc_call_options *options)
{
    static const struct nd_rpc_stream_events events = {watcher_message, watcher_drained,
                                                       watcher_done};

    memset(watcher, 0, sizeof *watcher);
    watcher->fixture = fixture;
    watcher->code = -1;
    watcher->in_order = true;
    watcher->stream = nd_rpc_stream_open_with(fixture->channel, path, options, &events, watcher);
}

void watcher_open(struct watcher *watcher, struct fixture *fixture, const char *path,
                  uint32_t deadline_ms, bool manual_read)
{
    struct nd_rpc_call_options options = {
        .deadline_ms = deadline_ms, .wait_for_ready = true, .manual_read = manual_read};

    watcher_open_with(watcher, fixture, path, &options);
}

size_t watcher_send(struct watcher *watcher, const char *name, size_t value_size)
{
    header message;

    message_fill(&message, name, value_size);
    size_t queued = nd_rpc_stream_send(watcher->stream, &message.base);
    nd_free(message.value.data);
    return queued;
}

void watcher_wait(struct watcher *watcher, const unsigned *counter, unsigned at_least)
{
    fixture_wait(watcher->fixture, counter, at_least);
}
