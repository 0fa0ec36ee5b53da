/* Ack: up to 1000 settles, each with its own result. */
#include "storage/base/alloc.h"

#include "server/broker/handle.h"
#include "server/rpc/settle.h"
#include "server/rpc/wire.h"

struct ack_call {
    struct nd_settle settle;
    struct nd_handlers *handlers;
    struct nd_rpc_call *call;
    size_t charged;
    struct nd_settle_item items[];
};

void nd_settle_item_get(const Narad__V1__Settle *settle, struct nd_settle_item *out)
{
    struct nd_handle handle;
    *out = (struct nd_settle_item){.result = ND_ERR_INVALID_ARGUMENT};
    switch ((int)settle->action) {
    case NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_ACK: out->action = ND_SETTLE_ACK; break;
    case NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_EXTEND: out->action = ND_SETTLE_EXTEND; break;
    case NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_NACK: out->action = ND_SETTLE_NACK; break;
    default: out->result = ND_ERR_UNSUPPORTED; return;
    }
    if (nd_handle_get(nd_slice_str(settle->receipt_handle), &handle) == ND_OK) {
        out->offset = handle.offset;
        out->nonce = handle.nonce;
        out->partition = handle.partition;
        out->result = ND_OK;
    }
}

/* @thread shard */
static void settled(struct nd_settle *settle)
{
    struct ack_call *a = settle->data;
    size_t size = 0, at = 0;
    for (uint32_t i = 0; i < settle->count; i++) {
        size += nd_wire_put_settle_result(NULL, 1, a->items[i].result);
    }
    uint8_t *bytes = nd_xmalloc(size + 1);
    for (uint32_t i = 0; i < settle->count; i++) {
        at += nd_wire_put_settle_result(bytes + at, 1, a->items[i].result);
    }
    nd_budget_give(&a->handlers->settles, a->charged);
    nd_call_reply_bytes(a->call, bytes, size);
    nd_free(a);
}

static enum nd_err check(const Narad__V1__AckRequest *r, struct nd_errmsg *msg)
{
    if (r->n_settles == 0 || r->n_settles > ND_SETTLES_MAX) {
        nd_errmsg_set(msg, "settles: %zu given, 1 to %d are allowed", r->n_settles, ND_SETTLES_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

static void start(struct nd_rpc_call *call, const Narad__V1__AckRequest *r, struct nd_topic *topic)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct ack_call *a = nd_xcalloc(1, sizeof *a + r->n_settles * sizeof a->items[0]);
    a->handlers = h;
    a->call = call;
    a->charged = sizeof *a + r->n_settles * (sizeof a->items[0] + ND_HANDLE_SIZE_MAX);
    for (size_t i = 0; i < r->n_settles; i++) {
        nd_settle_item_get(r->settles[i], &a->items[i]);
    }
    a->settle = (struct nd_settle){.topic = topic,
                                   .items = a->items,
                                   .count = (uint32_t)r->n_settles,
                                   .done = settled,
                                   .data = a};
    if (!nd_budget_take(&h->settles, a->charged)) {
        nd_call_refuse_budget(call, &h->settles);
    } else if (!nd_handlers_enter(h)) {
        nd_budget_give(&h->settles, a->charged);
        nd_call_refuse_stopping(call);
    } else {
        nd_broker_settle(h->options.broker, &a->settle);
        nd_handlers_leave(h);
        return;
    }
    nd_topic_unref(topic);
    nd_free(a);
}

static void on_start(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    struct nd_topic *topic;
    const Narad__V1__AckRequest *r =
        nd_call_decode(call, &narad__v1__ack_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    enum nd_err err = nd_access_check(call, nd_slice_str(r->topic), &msg);
    if (err == ND_OK) {
        err = check(r, &msg);
    }
    if (err == ND_OK) {
        err = nd_handlers_topic(nd_handlers_of(call), nd_slice_str(r->topic), &topic, &msg);
    }
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    start(call, r, topic);
}

const struct nd_rpc_method nd_rpc_ack = {
    .path = "/narad.v1.Broker/Ack",
    .kind = ND_RPC_UNARY,
    .message_bytes_max = 4 << 20,
    .on_start = on_start,
    .right = ND_RIGHT_CONSUME,
};
