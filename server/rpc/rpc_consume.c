/* Consume: one poll, one answer. Its end has two sides, the broker's answer (shard thread) and the
 * client's cancel (worker), which may cross: leases that nobody will see are given back. */
#include <string.h>

#include "storage/base/alloc.h"

#include "proto/narad/v1/broker.pb-c.h"
#include "server/rpc/poll.h"
#include "server/rpc/wire.h"

struct consume_call {
    struct nd_poll poll;
    struct nd_handlers *handlers;
    struct nd_rpc_call *call;
    struct nd_topic *topic; /* counted: for leases given back */
    struct nd_access_watched watched;
    uint32_t counted; /* messages begun with the caller's quota */
    struct nd_mutex lock;
    /* guarded by lock */
    bool done, cancelled;
    struct nd_errmsg cancel_text;
    enum nd_err cancel_err;
    struct nd_delivery *sent; /* what the answer leased, without records; owned */
    uint32_t sent_count;
};

static void reply(struct nd_rpc_call *call, const struct nd_delivery *deliveries, uint32_t count)
{
    size_t size = 0, at = 0;
    for (uint32_t i = 0; i < count; i++) {
        size += nd_wire_put_message(NULL, 1, &deliveries[i]);
    }
    uint8_t *bytes = nd_xmalloc(size + 1); /* at most 4 MiB, see nd_deliveries_fit */
    for (uint32_t i = 0; i < count; i++) {
        at += nd_wire_put_message(bytes + at, 1, &deliveries[i]);
    }
    nd_call_reply_bytes(call, bytes, size);
}

static struct nd_delivery *copy_leases(const struct nd_delivery *deliveries, uint32_t count)
{
    struct nd_delivery *copy = nd_xcalloc(count, sizeof *copy);
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = (struct nd_delivery){.offset = deliveries[i].offset,
                                       .nonce = deliveries[i].nonce,
                                       .partition = deliveries[i].partition};
    }
    return copy;
}

/* The first reason counts. True: it is this one, and the broker still has the poll. */
static bool cancel_locked(struct consume_call *c, enum nd_err err, const char *text)
    ND_REQUIRES(c->lock)
{
    if (c->cancelled) {
        return false;
    }
    c->cancelled = true;
    c->cancel_err = err;
    nd_errmsg_set(&c->cancel_text, "%s", text);
    return !c->done;
}

static void cancel_set(struct consume_call *c, enum nd_err err, const char *text)
{
    nd_mutex_lock(&c->lock);
    (void)cancel_locked(c, err, text);
    nd_mutex_unlock(&c->lock);
}

/* @thread shard */
static void polled(struct nd_poll *poll, enum nd_err err, const struct nd_delivery *deliveries,
                   uint32_t count)
{
    struct consume_call *c = poll->data;
    uint32_t fit = nd_deliveries_fit(deliveries, count);
    if (fit > 0) { /* the right may have gone while it waited */
        struct nd_errmsg msg = {""};
        enum nd_err denied = nd_access_check(c->call, nd_slice_str(c->topic->name), &msg);
        if (denied != ND_OK) {
            cancel_set(c, denied, msg.text);
        }
    }
    nd_handlers_nack(c->handlers, c->topic, deliveries + fit, count - fit);
    nd_budget_give(&c->handlers->polls, 1);
    nd_caller_end(nd_access_caller(c->call), ND_QUOTA_CONSUME, c->counted);
    nd_mutex_lock(&c->lock);
    c->done = true;
    bool cancelled = c->cancelled;
    if (!cancelled && fit > 0) {
        /* Kept until the call is over: a cancel may still cross the answer. */
        c->sent = copy_leases(deliveries, fit);
        c->sent_count = fit;
    }
    nd_mutex_unlock(&c->lock);
    struct nd_rpc_call *call = c->call; /* `c` lives until on_done, which follows the finish */
    if (cancelled) {
        nd_handlers_nack(c->handlers, c->topic, deliveries, fit);
        nd_rpc_call_fail(call, c->cancel_err, c->cancel_text.text);
    } else if (err == ND_OK) {
        nd_caller_charge(nd_access_caller(call), ND_QUOTA_CONSUME, fit,
                         nd_deliveries_bytes(deliveries, fit));
        reply(call, deliveries, fit);
    } else {
        nd_call_fail_topic(call, err, c->topic, poll->partition);
    }
}

enum nd_err nd_poll_check(struct nd_handlers *handlers, const struct nd_poll_request *request,
                          struct nd_poll *out, struct nd_errmsg *msg)
{
    struct nd_topic *topic;
    if (request->max_messages > ND_POLL_MESSAGES_MAX) {
        nd_errmsg_set(msg, "max_messages is %u: at most %d are allowed (0 means 1)",
                      request->max_messages, ND_POLL_MESSAGES_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (request->wait_ms > ND_POLL_WAIT_MS_MAX) {
        nd_errmsg_set(msg, "wait_ms is %u: at most %d (30 s) are allowed", request->wait_ms,
                      ND_POLL_WAIT_MS_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    enum nd_err err = nd_handlers_topic(handlers, nd_slice_str(request->topic), &topic, msg);
    if (err == ND_OK && request->has_partition) {
        err = nd_handlers_partition(topic, request->partition, msg);
        if (err != ND_OK) {
            nd_topic_unref(topic);
        }
    }
    if (err != ND_OK) {
        return err;
    }
    memset(out, 0, sizeof *out);
    out->topic = topic;
    out->partition = request->has_partition ? (int32_t)request->partition : ND_PARTITION_ANY;
    out->messages_max = request->max_messages == 0 ? 1 : request->max_messages;
    out->wait_ms = request->wait_ms;
    return ND_OK;
}

static void cancel(struct consume_call *c, enum nd_err err, const char *text)
{
    nd_mutex_lock(&c->lock);
    if (cancel_locked(c, err, text)) {
        nd_broker_poll_cancel(c->handlers->options.broker, &c->poll);
    }
    nd_mutex_unlock(&c->lock);
}

/* A user changed while it waits. @thread any */
static void look(struct nd_access_watched *watched, enum nd_err err, const char *text)
{
    struct consume_call *c = ND_CONTAINER_OF(watched, struct consume_call, watched);
    struct nd_errmsg msg = {""};
    if (err == ND_OK) {
        err = nd_access_check(c->call, nd_slice_str(c->topic->name), &msg);
        text = msg.text;
    }
    if (err != ND_OK) {
        cancel(c, err, text);
    }
}

uint32_t nd_poll_weight(const struct nd_poll *poll)
{
    return ND_MIN(poll->messages_max, (uint32_t)ND_POLL_WEIGHT_MAX);
}

static void start(struct nd_rpc_call *call, struct consume_call *c)
{
    struct nd_handlers *h = c->handlers;
    struct nd_errmsg msg = {""};
    uint32_t retry_after_ms = 0;
    uint32_t weight = nd_poll_weight(&c->poll);
    enum nd_err err =
        nd_caller_begin(nd_access_caller(call), ND_QUOTA_CONSUME, weight, 0, &retry_after_ms, &msg);
    c->counted = err == ND_OK ? weight : 0;
    if (err != ND_OK) {
        nd_rpc_call_fail_retry(call, err, msg.text, retry_after_ms);
    } else if (!nd_budget_take(&h->polls, 1)) {
        nd_call_refuse_budget(call, &h->polls);
    } else if (!nd_handlers_enter(h)) {
        nd_budget_give(&h->polls, 1);
        nd_call_refuse_stopping(call);
    } else {
        bool waits = c->poll.wait_ms > 0;
        nd_broker_poll(h->options.broker, &c->poll);
        nd_handlers_leave(h);
        if (waits) {
            nd_access_watch(&c->watched, call, look);
        }
        return;
    }
    nd_caller_end(nd_access_caller(call), ND_QUOTA_CONSUME, c->counted);
    c->done = true; /* the broker never sees it; nobody else looks before on_start returned */
    nd_topic_unref(c->poll.topic);
}

static void on_start(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    const Narad__V1__ConsumeRequest *r =
        nd_call_decode(call, &narad__v1__consume_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    struct nd_poll_request wanted = {
        .topic = r->topic,
        .max_messages = r->max_messages,
        .wait_ms = r->wait_ms,
        .has_partition =
            r->partition_choice_case == NARAD__V1__CONSUME_REQUEST__PARTITION_CHOICE_PARTITION,
        .partition = r->partition,
    };
    struct consume_call *c = nd_xcalloc(1, sizeof *c);
    c->handlers = nd_handlers_of(call);
    enum nd_err err = nd_access_check(call, nd_slice_str(r->topic), &msg);
    if (err == ND_OK) {
        err = nd_poll_check(c->handlers, &wanted, &c->poll, &msg);
    }
    if (err != ND_OK) {
        nd_free(c);
        nd_call_fail(call, err, &msg);
        return;
    }
    c->call = call;
    c->topic = nd_topic_ref(c->poll.topic);
    c->poll.done = polled;
    c->poll.data = c;
    nd_mutex_init(&c->lock);
    nd_rpc_call_set_user(call, c);
    start(call, c);
}

static void on_cancel(struct nd_rpc_call *call)
{
    struct consume_call *c = nd_rpc_call_user(call);
    if (c != NULL) {
        cancel(c, ND_ERR_CANCELLED, "");
    }
}

static void on_done(struct nd_rpc_call *call)
{
    struct consume_call *c = nd_rpc_call_user(call);
    if (c != NULL) {
        nd_access_unwatch(&c->watched);
        if (c->sent_count > 0 && nd_rpc_call_was_cancelled(call)) {
            /* The client went while the answer was on its way. */
            nd_handlers_nack(c->handlers, c->topic, c->sent, c->sent_count);
        }
        nd_mutex_release(&c->lock);
        nd_topic_unref(c->topic);
        nd_free(c->sent);
        nd_free(c);
    }
}

const struct nd_rpc_method nd_rpc_consume = {
    .path = "/narad.v1.Broker/Consume",
    .kind = ND_RPC_UNARY,
    .message_bytes_max = 4 << 20,
    .on_start = on_start,
    .on_cancel = on_cancel,
    .on_done = on_done,
    .right = ND_RIGHT_CONSUME,
};
