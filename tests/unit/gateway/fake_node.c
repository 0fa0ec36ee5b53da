#include "fake_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "proto/narad/v1/broker.pb-c.h"
#include "tests/support/nd_test.h"

/* One item, or one unary call, that waits for its answer. */
struct fake_held {
    struct nd_list link;
    struct nd_rpc_call *call; /* counted */
    enum fake_kind kind;
    bool unary;
    uint64_t id;
};

static struct fake_node *node_of(struct nd_rpc_call *call)
{
    return nd_rpc_call_server_user(call);
}

static void count(struct fake_node *node, uint32_t *counter, size_t by)
{
    nd_mutex_lock(&node->lock);
    *counter += (uint32_t)by;
    nd_cond_broadcast(&node->changed);
    nd_mutex_unlock(&node->lock);
}

/* --- answers --- */

static Narad__V1__Message a_message(char *handle)
{
    Narad__V1__Message message = NARAD__V1__MESSAGE__INIT;
    message.receipt_handle = handle;
    message.payload.data = (uint8_t *)handle;
    message.payload.len = strlen(handle);
    return message;
}

static void answer_item(struct nd_rpc_call *call, enum fake_kind kind, uint64_t id, bool full)
{
    char handle[] = "0:0:7";
    Narad__V1__Message message = a_message(handle), *messages[] = {&message};
    Narad__V1__ProduceResult produced = NARAD__V1__PRODUCE_RESULT__INIT, *produce[] = {&produced};
    Narad__V1__PollResult polled = NARAD__V1__POLL_RESULT__INIT, *poll[] = {&polled};
    Narad__V1__AckItemResult acked = NARAD__V1__ACK_ITEM_RESULT__INIT, *ack[] = {&acked};
    Narad__V1__SettleResult settled = NARAD__V1__SETTLE_RESULT__INIT, *settle[] = {&settled};
    Narad__V1__ProduceStreamResponse p = NARAD__V1__PRODUCE_STREAM_RESPONSE__INIT;
    Narad__V1__ConsumeStreamResponse c = NARAD__V1__CONSUME_STREAM_RESPONSE__INIT;
    Narad__V1__AckStreamResponse a = NARAD__V1__ACK_STREAM_RESPONSE__INIT;
    produced.id = polled.id = acked.id = id;
    struct fake_node *node = node_of(call);
    nd_mutex_lock(&node->lock);
    enum nd_err err = node->refuse_items;
    nd_mutex_unlock(&node->lock);
    if (err != ND_OK) {
        full = false;
        produced.code = polled.code = (uint32_t)nd_err_grpc_status(err);
        produced.reason = polled.reason = (char *)(uintptr_t)nd_err_name(err);
        produced.retry_after_ms = polled.retry_after_ms = 2500;
    }
    polled.messages = messages;
    polled.n_messages = full;
    acked.results = settle;
    p.results = produce;
    c.results = poll;
    a.results = ack;
    p.n_results = c.n_results = a.n_results = acked.n_results = 1;
    nd_rpc_call_send(call, kind == FAKE_PRODUCE ? &p.base : kind == FAKE_POLL ? &c.base : &a.base);
}

static void answer_unary(struct nd_rpc_call *call, enum fake_kind kind)
{
    char handle[] = "0:0:7";
    Narad__V1__Message message = a_message(handle), *messages[] = {&message};
    Narad__V1__SettleResult settled = NARAD__V1__SETTLE_RESULT__INIT, *settle[] = {&settled};
    Narad__V1__ProduceResponse p = NARAD__V1__PRODUCE_RESPONSE__INIT;
    Narad__V1__ConsumeResponse c = NARAD__V1__CONSUME_RESPONSE__INIT;
    Narad__V1__AckResponse a = NARAD__V1__ACK_RESPONSE__INIT;
    c.messages = messages;
    a.results = settle;
    c.n_messages = a.n_results = 1;
    nd_rpc_call_reply(call, kind == FAKE_PRODUCE ? &p.base : kind == FAKE_POLL ? &c.base : &a.base);
}

static void hold(struct nd_rpc_call *call, enum fake_kind kind, bool unary, uint64_t id)
{
    struct fake_node *node = node_of(call);
    struct fake_held *held = nd_xcalloc(1, sizeof *held);
    *held = (struct fake_held){.call = call, .kind = kind, .unary = unary, .id = id};
    nd_rpc_call_ref(call);
    nd_mutex_lock(&node->lock);
    nd_list_append(&node->held, &held->link);
    nd_mutex_unlock(&node->lock);
}

static bool holds(struct fake_node *node)
{
    nd_mutex_lock(&node->lock);
    bool is_so = node->hold;
    nd_mutex_unlock(&node->lock);
    return is_so;
}

static void held_free(struct fake_held *held)
{
    nd_rpc_call_unref(held->call);
    nd_free(held);
}

static void take_held(struct fake_node *node, struct nd_list *mine)
{
    nd_list_init(mine);
    nd_mutex_lock(&node->lock);
    node->hold = false;
    nd_list_move(mine, &node->held);
    nd_mutex_unlock(&node->lock);
}

void fake_node_answer_held(struct fake_node *node)
{
    struct nd_list mine;
    take_held(node, &mine);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL;) {
        struct fake_held *held = ND_CONTAINER_OF(link, struct fake_held, link);
        if (held->unary) {
            answer_unary(held->call, held->kind);
        } else {
            answer_item(held->call, held->kind, held->id, true);
        }
        held_free(held);
    }
}

void fake_node_break_held(struct fake_node *node, enum nd_err err)
{
    struct nd_list mine;
    take_held(node, &mine);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL;) {
        struct fake_held *held = ND_CONTAINER_OF(link, struct fake_held, link);
        nd_rpc_call_fail(held->call, err, "broken off by the test");
        held_free(held);
    }
}

/* The held item of that id goes out without a message. */
static void answer_cancelled(struct fake_node *node, uint64_t id)
{
    struct fake_held *found = NULL;
    nd_mutex_lock(&node->lock);
    node->cancels++;
    ND_LIST_FOREACH (&node->held, link) {
        struct fake_held *held = ND_CONTAINER_OF(link, struct fake_held, link);
        if (held->id == id && held->kind == FAKE_POLL && !held->unary && !node->deaf) {
            found = held;
            nd_list_remove(link);
            break;
        }
    }
    nd_cond_broadcast(&node->changed);
    nd_mutex_unlock(&node->lock);
    if (found != NULL) {
        answer_item(found->call, FAKE_POLL, id, false);
        held_free(found);
    }
}

/* --- streams --- */

static void note_call(struct nd_rpc_call *call, enum fake_kind kind, uint32_t *counter)
{
    struct fake_node *node = node_of(call);
    struct nd_slice value = nd_rpc_call_metadata(call, "authorization");
    nd_mutex_lock(&node->lock);
    snprintf(node->authorization[kind], sizeof node->authorization[kind], "%.*s",
             value.data == NULL ? 1 : (int)value.size,
             value.data == NULL ? "-" : (const char *)value.data);
    enum nd_err refuse = node->refuse;
    *counter += 1;
    nd_cond_broadcast(&node->changed);
    nd_mutex_unlock(&node->lock);
    if (refuse != ND_OK) {
        nd_rpc_call_fail_retry(call, refuse, "", 1500);
    }
}

static void take_item(struct nd_rpc_call *call, enum fake_kind kind, uint64_t id)
{
    struct fake_node *node = node_of(call);
    bool is_held = holds(node);
    if (is_held) {
        hold(call, kind, false, id);
    }
    count(node, &node->items[kind], 1);
    if (!is_held) {
        answer_item(call, kind, id, true);
    }
}

static void note_address(struct fake_node *node, enum fake_kind kind, const char *address)
{
    nd_mutex_lock(&node->lock);
    snprintf(node->address_of[kind], sizeof node->address_of[kind], "%s", address);
    nd_mutex_unlock(&node->lock);
}

static void produce_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct fake_node *node = node_of(call);
    const Narad__V1__ProduceStreamRequest *request =
        nd_rpc_call_decode(call, &narad__v1__produce_stream_request__descriptor, message);
    ND_ASSERT(request != NULL);
    count(node, &node->messages[FAKE_PRODUCE], 1);
    for (size_t i = 0; i < request->n_items; i++) {
        note_address(node, FAKE_PRODUCE, request->items[i]->client_address);
        take_item(call, FAKE_PRODUCE, request->items[i]->id);
    }
}

static void poll_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct fake_node *node = node_of(call);
    const Narad__V1__ConsumeStreamRequest *request =
        nd_rpc_call_decode(call, &narad__v1__consume_stream_request__descriptor, message);
    ND_ASSERT(request != NULL);
    count(node, &node->messages[FAKE_POLL], 1);
    for (size_t i = 0; i < request->n_polls; i++) {
        note_address(node, FAKE_POLL, request->polls[i]->client_address);
        take_item(call, FAKE_POLL, request->polls[i]->id);
    }
    for (size_t i = 0; i < request->n_cancel_ids; i++) {
        answer_cancelled(node, request->cancel_ids[i]);
    }
}

static void ack_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct fake_node *node = node_of(call);
    const Narad__V1__AckStreamRequest *request =
        nd_rpc_call_decode(call, &narad__v1__ack_stream_request__descriptor, message);
    ND_ASSERT(request != NULL);
    count(node, &node->messages[FAKE_ACK], 1);
    for (size_t i = 0; i < request->n_items; i++) {
        for (size_t s = 0; s < request->items[i]->n_settles; s++) {
            if (request->items[i]->settles[s]->action ==
                NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_NACK) {
                count(node, &node->nacks, 1);
            }
        }
        take_item(call, FAKE_ACK, request->items[i]->id);
    }
}

static void finish_ok(struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, 0, "");
}

static void stream_cancelled(struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, 1, "");
}

static void unary_cancelled(struct nd_rpc_call *call)
{
    struct fake_node *node = node_of(call);
    count(node, &node->calls_cancelled, 1);
    nd_rpc_call_finish(call, 1, "");
}

static void unary(struct nd_rpc_call *call, enum fake_kind kind)
{
    struct fake_node *node = node_of(call);
    bool is_held = holds(node);
    if (is_held) {
        hold(call, kind, true, 0);
    }
    note_call(call, kind, &node->calls[kind]);
    if (!is_held) {
        answer_unary(call, kind);
    }
}

static void replay_start(struct nd_rpc_call *call, struct nd_slice request)
{
    const Narad__V1__ReplayRequest *replay =
        nd_rpc_call_decode(call, &narad__v1__replay_request__descriptor, request);
    char none[] = "";
    Narad__V1__Message message = a_message(none), *messages[] = {&message};
    Narad__V1__ReplayResponse response = NARAD__V1__REPLAY_RESPONSE__INIT;
    response.messages = messages;
    response.n_messages = 1;
    if (replay->offset == 0) {
        nd_rpc_call_send(call, &response.base);
    }
    if (replay->offset == 2) {
        nd_rpc_call_fail(call, ND_ERR_GONE, "offset 2 aged out");
    } else {
        nd_rpc_call_finish(call, 0, "");
    }
}

#define STREAM(kind_name, kind)                                                                    \
    static void kind_name##_open(struct nd_rpc_call *call)                                         \
    {                                                                                              \
        note_call(call, kind, &node_of(call)->streams[kind]);                                      \
    }                                                                                              \
    static void kind_name##_done(struct nd_rpc_call *call)                                         \
    {                                                                                              \
        struct fake_node *node = node_of(call);                                                    \
        count(node, &node->streams_done[kind], 1);                                                 \
    }                                                                                              \
    static void kind_name##_start(struct nd_rpc_call *call, struct nd_slice request)               \
    {                                                                                              \
        (void)request;                                                                             \
        unary(call, kind);                                                                         \
    }

STREAM(produce, FAKE_PRODUCE)
STREAM(poll, FAKE_POLL)
STREAM(ack, FAKE_ACK)

#define BIDI(noun, name)                                                                           \
    {                                                                                              \
        .path = "/narad.v1.Broker/" name, .kind = ND_RPC_BIDI, .message_bytes_max = 20 << 20,      \
        .on_open = noun##_open, .on_message = noun##_message, .on_half_close = finish_ok,          \
        .on_cancel = stream_cancelled, .on_done = noun##_done                                      \
    }
#define UNARY(noun, name)                                                                          \
    {                                                                                              \
        .path = "/narad.v1.Broker/" name, .kind = ND_RPC_UNARY, .message_bytes_max = 20 << 20,     \
        .on_start = noun##_start, .on_cancel = unary_cancelled                                     \
    }

static const struct nd_rpc_method methods[] = {
    BIDI(produce, "ProduceStream"),
    BIDI(poll, "ConsumeStream"),
    BIDI(ack, "AckStream"),
    UNARY(produce, "Produce"),
    UNARY(poll, "Consume"),
    UNARY(ack, "Ack"),
    {.path = "/narad.v1.Broker/Replay",
     .kind = ND_RPC_SERVER_STREAM,
     .message_bytes_max = 1 << 20,
     .on_start = replay_start},
};

/* --- life --- */

void fake_node_init(struct fake_node *node)
{
    memset(node, 0, sizeof *node);
    nd_mutex_init(&node->lock);
    nd_cond_init(&node->changed);
    nd_list_init(&node->held);
    snprintf(node->dir, sizeof node->dir, "/tmp/narad-fake-XXXXXX");
    assert_non_null(mkdtemp(node->dir));
    snprintf(node->address, sizeof node->address, "unix:%s/s", node->dir);
    fake_node_start(node);
}

void fake_node_start(struct fake_node *node)
{
    const struct nd_rpc_method *list[ND_ARRAY_SIZE(methods)];
    struct nd_errmsg msg = {""};
    int port;
    for (size_t i = 0; i < ND_ARRAY_SIZE(methods); i++) {
        list[i] = &methods[i];
    }
    struct nd_rpc_server_options options = {.methods = list,
                                            .methods_count = ND_ARRAY_SIZE(methods),
                                            .user = node,
                                            .threads = 1,
                                            .message_bytes_max = 20 << 20,
                                            .calls_max = 10000,
                                            .keepalive_time_ms = 20000,
                                            .keepalive_timeout_ms = 10000};
    assert_int_equal(nd_rpc_server_new(&node->server, &options, &msg), ND_OK);
    assert_int_equal(nd_rpc_server_listen(node->server, node->address, &port, &msg), ND_OK);
    assert_int_equal(nd_rpc_server_start(node->server, &msg), ND_OK);
}

void fake_node_stop(struct fake_node *node)
{
    nd_rpc_server_stop(node->server, 0);
    struct nd_list mine;
    take_held(node, &mine);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL;) {
        held_free(ND_CONTAINER_OF(link, struct fake_held, link));
    }
    nd_rpc_server_free(node->server);
    node->server = NULL;
    unlink(node->address + strlen("unix:"));
}

void fake_node_release(struct fake_node *node)
{
    if (node->server != NULL) {
        fake_node_stop(node);
    }
    rmdir(node->dir);
    nd_cond_release(&node->changed);
    nd_mutex_release(&node->lock);
}

uint32_t fake_node_count(struct fake_node *node, const uint32_t *counter)
{
    nd_mutex_lock(&node->lock);
    uint32_t value = *counter;
    nd_mutex_unlock(&node->lock);
    return value;
}

void fake_node_wait(struct fake_node *node, const uint32_t *counter, uint32_t value)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t end = ((uint64_t)now.tv_sec + 120) * UINT64_C(1000000000);
    bool in_time = true;
    nd_mutex_lock(&node->lock);
    while (*counter < value && in_time) {
        in_time = nd_cond_wait_until(&node->changed, &node->lock, end);
    }
    uint32_t seen = *counter;
    nd_mutex_unlock(&node->lock);
    if (seen < value) {
        fail_msg("waited for %u, got %u", value, seen);
    }
}
