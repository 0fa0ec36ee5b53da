#include "tests/unit/clients/fake_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "proto/narad/v1/admin.pb-c.h"
#include "proto/narad/v1/broker.pb-c.h"
#include "tests/support/nd_test.h"

static struct fake_broker *broker_of(struct nd_rpc_call *call)
{
    return nd_rpc_call_server_user(call);
}

static void count(struct fake_broker *broker, uint32_t *counter, uint32_t by)
{
    nd_mutex_lock(&broker->lock);
    *counter += by;
    nd_cond_broadcast(&broker->changed);
    nd_mutex_unlock(&broker->lock);
}

/* --- ProduceStream --- */

static void produce_open(struct nd_rpc_call *call)
{
    struct fake_broker *broker = broker_of(call);

    count(broker, &broker->streams, 1);
    if (broker->refuse_code != 0) {
        nd_rpc_call_finish(call, broker->refuse_code, "refused by the test");
    }
}

static void produce_confirm(struct nd_rpc_call *call, uint64_t id, uint32_t code)
{
    Narad__V1__ProduceStreamResponse response = NARAD__V1__PRODUCE_STREAM_RESPONSE__INIT;
    Narad__V1__ProduceResult result = NARAD__V1__PRODUCE_RESULT__INIT;
    Narad__V1__ProduceResult *results[] = {&result};
    Narad__V1__Placement placement = NARAD__V1__PLACEMENT__INIT;
    Narad__V1__Placement *placements[] = {&placement};
    char text[] = "too odd";

    result.id = id;
    result.code = code;
    placement.offset = id * 10;
    if (code == 0) {
        result.placements = placements;
        result.n_placements = 1;
    } else {
        result.error = text;
    }
    response.results = results;
    response.n_results = 1;
    nd_rpc_call_send(call, &response.base);
}

static void produce_hold_locked(struct fake_broker *broker, struct nd_rpc_call *call, uint64_t id)
    ND_REQUIRES(broker->lock)
{
    ND_ASSERT(broker->held_count < FAKE_BROKER_HELD_MAX);
    nd_rpc_call_ref(call);
    broker->held[broker->held_count].call = call;
    broker->held[broker->held_count++].id = id;
}

static void produce_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct fake_broker *broker = broker_of(call);
    const Narad__V1__ProduceStreamRequest *request =
        nd_rpc_call_decode(call, &narad__v1__produce_stream_request__descriptor, message);

    count(broker, &broker->messages_of_stream, 1);
    for (size_t i = 0; request != NULL && i < request->n_items; i++) {
        const Narad__V1__ProduceItem *item = request->items[i];
        nd_mutex_lock(&broker->lock);
        bool hold = broker->hold;
        bool breaks = broker->break_after > 0 && --broker->break_after == 0;
        snprintf(broker->last_topic, sizeof broker->last_topic, "%s", item->topic);
        if (hold) {
            produce_hold_locked(broker, call, item->id);
        }
        nd_mutex_unlock(&broker->lock);
        count(broker, &broker->items, 1);
        if (!hold) {
            bool odd = item->records[0]->payload.len == 3;
            produce_confirm(call, item->id, odd ? 3 : 0);
        }
        if (breaks) {
            nd_rpc_call_finish(call, 14, "broken off by the test");
            return;
        }
    }
}

static void break_off(struct fake_broker *broker, struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, broker->break_code != 0 ? broker->break_code : 14,
                       "broken off by the test");
}

static void finish_ok(struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, 0, "");
}

static void finish_cancelled(struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, 1, "cancelled");
}

/* --- Ack --- */

static void ack_reply(struct fake_broker *broker, struct nd_rpc_call *call, size_t settles)
{
    Narad__V1__AckResponse response = NARAD__V1__ACK_RESPONSE__INIT;
    Narad__V1__SettleResult result = NARAD__V1__SETTLE_RESULT__INIT;
    Narad__V1__SettleResult *results[1000];

    result.code = broker->stale ? 9 : 0;
    for (size_t i = 0; i < settles; i++) {
        results[i] = &result;
    }
    response.results = results;
    response.n_results = settles;
    nd_rpc_call_reply(call, &response.base);
}

static void ack_start(struct nd_rpc_call *call, struct nd_slice request)
{
    struct fake_broker *broker = broker_of(call);
    const Narad__V1__AckRequest *ack =
        nd_rpc_call_decode(call, &narad__v1__ack_request__descriptor, request);

    nd_mutex_lock(&broker->lock);
    bool hold = broker->hold_acks;
    if (hold) {
        ND_ASSERT(broker->held_ack == NULL); /* one at a time is under way */
        nd_rpc_call_ref(call);
        broker->held_ack = call;
        broker->held_settles = (uint32_t)ack->n_settles;
    }
    nd_mutex_unlock(&broker->lock);
    count(broker, &broker->acks, 1);
    count(broker, &broker->settles, (uint32_t)ack->n_settles);
    if (!hold) {
        ack_reply(broker, call, ack->n_settles);
    }
}

/* --- Subscribe --- */

static void deliver(struct nd_rpc_call *call, uint32_t messages)
{
    for (uint32_t i = 0; i < messages; i++) {
        Narad__V1__SubscribeResponse response = NARAD__V1__SUBSCRIBE_RESPONSE__INIT;
        Narad__V1__Message message = NARAD__V1__MESSAGE__INIT;
        Narad__V1__Message *list[] = {&message};
        char handle[32];
        snprintf(handle, sizeof handle, "0:%u:77", i);
        message.offset = i;
        message.receipt_handle = handle;
        response.messages = list;
        response.n_messages = 1;
        nd_rpc_call_send(call, &response.base);
    }
}

static void subscribe_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct fake_broker *broker = broker_of(call);
    const Narad__V1__SubscribeRequest *request =
        nd_rpc_call_decode(call, &narad__v1__subscribe_request__descriptor, message);
    Narad__V1__SubscribeResponse response = NARAD__V1__SUBSCRIBE_RESPONSE__INIT;
    Narad__V1__SettleResult result = NARAD__V1__SETTLE_RESULT__INIT;
    Narad__V1__SettleResult *results[1000];

    if (request->start != NULL) {
        count(broker, &broker->streams, 1);
        deliver(call, broker->deliver);
    }
    if (broker->refuse_code != 0 && request->n_settles > 0) {
        nd_rpc_call_finish(call, broker->refuse_code, "refused by the test");
        return;
    }
    nd_mutex_lock(&broker->lock);
    bool breaks = broker->break_after > 0 && request->n_settles > 0;
    broker->break_after = breaks ? 0 : broker->break_after;
    nd_mutex_unlock(&broker->lock);
    result.code = broker->stale ? 9 : 0;
    for (size_t i = 0; i < request->n_settles; i++) {
        results[i] = &result;
    }
    response.results = results;
    response.n_results = request->n_settles;
    count(broker, &broker->settles, (uint32_t)request->n_settles);
    if (breaks) {
        break_off(broker, call);
    } else if (request->n_settles > 0) {
        nd_rpc_call_send(call, &response.base);
    }
}

/* --- Replay, Version --- */

static void replay_start(struct nd_rpc_call *call, struct nd_slice bytes)
{
    const Narad__V1__ReplayRequest *request =
        nd_rpc_call_decode(call, &narad__v1__replay_request__descriptor, bytes);

    for (uint64_t i = 0; i < request->max_messages; i++) {
        Narad__V1__ReplayResponse response = NARAD__V1__REPLAY_RESPONSE__INIT;
        Narad__V1__Message message = NARAD__V1__MESSAGE__INIT;
        Narad__V1__Message *list[] = {&message};
        message.offset = request->offset + i;
        response.messages = list;
        response.n_messages = 1;
        nd_rpc_call_send(call, &response.base);
    }
    if (request->partition == 9) {
        nd_rpc_call_finish(call, 11, "aged out");
    } else {
        finish_ok(call);
    }
}

static void version_start(struct nd_rpc_call *call, struct nd_slice bytes)
{
    Narad__V1__VersionResponse response = NARAD__V1__VERSION_RESPONSE__INIT;
    char version[] = "9.9.9";

    (void)bytes;
    response.version = version;
    nd_rpc_call_reply(call, &response.base);
}

/* Of a node with many partitions. */
static void metrics_start(struct nd_rpc_call *call, struct nd_slice request)
{
    Narad__V1__MetricsResponse response = NARAD__V1__METRICS_RESPONSE__INIT;
    (void)request;
    response.text = nd_xmalloc(FAKE_BROKER_METRICS_BYTES + 1);
    memset(response.text, '#', FAKE_BROKER_METRICS_BYTES);
    response.text[FAKE_BROKER_METRICS_BYTES] = '\0';
    nd_rpc_call_reply(call, &response.base);
    nd_free(response.text);
}

static const struct nd_rpc_method method_produce = {.path = "/narad.v1.Broker/ProduceStream",
                                                    .kind = ND_RPC_BIDI,
                                                    .message_bytes_max = 20 << 20,
                                                    .on_open = produce_open,
                                                    .on_message = produce_message,
                                                    .on_half_close = finish_ok,
                                                    .on_cancel = finish_cancelled};
static const struct nd_rpc_method method_subscribe = {.path = "/narad.v1.Broker/Subscribe",
                                                      .kind = ND_RPC_BIDI,
                                                      .message_bytes_max = 4 << 20,
                                                      .on_message = subscribe_message,
                                                      .on_half_close = finish_ok,
                                                      .on_cancel = finish_cancelled};
static const struct nd_rpc_method method_ack = {.path = "/narad.v1.Broker/Ack",
                                                .kind = ND_RPC_UNARY,
                                                .message_bytes_max = 4 << 20,
                                                .on_start = ack_start};
static const struct nd_rpc_method method_replay = {.path = "/narad.v1.Broker/Replay",
                                                   .kind = ND_RPC_SERVER_STREAM,
                                                   .message_bytes_max = 4 << 20,
                                                   .on_start = replay_start,
                                                   .on_cancel = finish_cancelled};
static const struct nd_rpc_method method_version = {.path = "/narad.v1.Admin/Version",
                                                    .kind = ND_RPC_UNARY,
                                                    .message_bytes_max = 4 << 20,
                                                    .on_start = version_start};
static const struct nd_rpc_method method_metrics = {.path = "/narad.v1.Admin/Metrics",
                                                    .kind = ND_RPC_UNARY,
                                                    .message_bytes_max = 4 << 20,
                                                    .on_start = metrics_start};
static const struct nd_rpc_method *const methods[] = {&method_produce, &method_subscribe,
                                                      &method_ack,     &method_replay,
                                                      &method_version, &method_metrics};

void fake_broker_init(struct fake_broker *broker)
{
    *broker = (struct fake_broker){.dir = "/tmp/narad-client-XXXXXX"};
    nd_mutex_init(&broker->lock);
    nd_cond_init(&broker->changed);
    assert_non_null(mkdtemp(broker->dir));
    snprintf(broker->address, sizeof broker->address, "unix:%s/s", broker->dir);
}

static enum nd_rpc_admission authenticate(struct nd_rpc_call *call, void *user,
                                          enum nd_err *err_out, struct nd_errmsg *msg)
{
    struct fake_broker *broker = user;
    struct nd_slice value = nd_rpc_call_metadata(call, "authorization");

    nd_mutex_lock(&broker->lock);
    snprintf(broker->authorization, sizeof broker->authorization, "%.*s", (int)value.size,
             value.size > 0 ? (const char *)value.data : "");
    *err_out = broker->refuse_all;
    nd_mutex_unlock(&broker->lock);
    count(broker, &broker->asked, 1);
    nd_errmsg_set(msg, "refused by the test");
    return *err_out == ND_OK ? ND_RPC_ADMIT : ND_RPC_REFUSE;
}

void fake_broker_start(struct fake_broker *broker)
{
    struct nd_rpc_server_options options = {.methods = methods,
                                            .methods_count = ND_ARRAY_SIZE(methods),
                                            .user = broker,
                                            .threads = 1,
                                            .message_bytes_max = 20 << 20,
                                            .calls_max = 1000,
                                            .authenticate = authenticate};
    struct nd_errmsg msg = {""};
    int port;

    assert_int_equal(nd_rpc_server_new(&broker->server, &options, &msg), ND_OK);
    if (broker->tls == NULL) {
        assert_int_equal(nd_rpc_server_listen(broker->server, broker->address, &port, &msg), ND_OK);
    } else {
        assert_int_equal(
            nd_rpc_server_listen_tls(broker->server, "127.0.0.1:0", broker->tls, &port, &msg),
            ND_OK);
        snprintf(broker->address, sizeof broker->address, "127.0.0.1:%d", port);
    }
    assert_int_equal(nd_rpc_server_start(broker->server, &msg), ND_OK);
}

static void held_end_locked(struct fake_broker *broker, bool confirm) ND_REQUIRES(broker->lock)
{
    for (uint32_t i = 0; i < broker->held_count; i++) {
        if (confirm) {
            produce_confirm(broker->held[i].call, broker->held[i].id, 0);
        }
        nd_rpc_call_unref(broker->held[i].call);
    }
    broker->held_count = 0;
    if (broker->held_ack != NULL) {
        ack_reply(broker, broker->held_ack, broker->held_settles);
        nd_rpc_call_unref(broker->held_ack);
        broker->held_ack = NULL;
    }
}

void fake_broker_confirm_held(struct fake_broker *broker)
{
    nd_mutex_lock(&broker->lock); /* what comes meanwhile is confirmed behind them */
    broker->hold = broker->hold_acks = false;
    held_end_locked(broker, true);
    nd_mutex_unlock(&broker->lock);
}

void fake_broker_stop(struct fake_broker *broker)
{
    nd_mutex_lock(&broker->lock);
    held_end_locked(broker, false);
    nd_mutex_unlock(&broker->lock);
    nd_rpc_server_stop(broker->server, 0);
    nd_rpc_server_free(broker->server);
    broker->server = NULL;
}

void fake_broker_release(struct fake_broker *broker)
{
    char path[128];

    if (broker->server != NULL) {
        fake_broker_stop(broker);
    }
    snprintf(path, sizeof path, "%s/s", broker->dir);
    unlink(path);
    rmdir(broker->dir);
    nd_cond_release(&broker->changed);
    nd_mutex_release(&broker->lock);
}

uint32_t fake_broker_count(struct fake_broker *broker, const uint32_t *counter)
{
    nd_mutex_lock(&broker->lock);
    uint32_t value = *counter;
    nd_mutex_unlock(&broker->lock);
    return value;
}

void fake_broker_wait(struct fake_broker *broker, const uint32_t *counter, uint32_t value)
{
    struct timespec now;
    bool in_time = true;

    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t deadline = ((uint64_t)now.tv_sec + 120) * 1000000000u;
    nd_mutex_lock(&broker->lock);
    while (*counter < value && in_time) {
        in_time = nd_cond_wait_until(&broker->changed, &broker->lock, deadline);
    }
    nd_mutex_unlock(&broker->lock);
    assert_true(in_time);
}
