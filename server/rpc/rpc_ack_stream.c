/* AckStream: acks, extends and nacks of any topics, pipelined; items are answered in the order in
 * which they complete, and answers gather while the last ones are on their way.
 *
 * Neighbouring items of one topic in one message go to the broker together (a *group*): one
 * hand-over, one unit of the log. An item that is refused by itself takes none of its neighbours
 * with it. */
#include <string.h>

#include "storage/base/alloc.h"

#include "server/broker/handle.h"
#include "server/rpc/settle.h"
#include "server/rpc/stream.h"
#include "server/rpc/wire.h"

struct ack_stream {
    struct nd_stream base;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1]; /* of the item before; @thread worker */
    size_t topic_size;
};

struct group_item {
    uint64_t id;
    uint32_t count; /* settles */
};

struct group {
    struct nd_settle settle;
    struct ack_stream *stream;
    size_t charged;
    struct group_item *items; /* in the same memory, behind the settles */
    uint32_t items_count;
    struct nd_settle_item settles[];
};

/* --- answers --- */

/* Encode the results of all items; `at` NULL: size only. */
static size_t put_results(uint8_t *at, const struct group *group)
{
    size_t size = 0;
    uint32_t first = 0;
    for (uint32_t i = 0; i < group->items_count; i++) {
        struct nd_wire_ack_result result = {.id = group->items[i].id,
                                            .settles = group->settles + first,
                                            .count = group->items[i].count};
        size += nd_wire_put_ack_result(at == NULL ? NULL : at + size, &result);
        first += group->items[i].count;
    }
    return size;
}

/* @thread shard */
static void settled(struct nd_settle *settle)
{
    struct group *group = settle->data;
    struct ack_stream *s = group->stream;
    size_t size = put_results(NULL, group);
    nd_mutex_lock(&s->base.lock);
    put_results(nd_stream_answer_locked(&s->base, size), group);
    /* Under the lock: behind the last flush the handlers may be gone. */
    nd_budget_give(&s->base.handlers->settles, group->charged);
    nd_free(group);
    bool gone = nd_stream_flush_locked(&s->base, 1);
    nd_stream_unlock(&s->base, gone);
}

static void refuse_item(struct ack_stream *s, uint64_t id, enum nd_err err, const char *text)
{
    struct nd_wire_ack_result result = {.id = id, .err = err, .text = text};
    size_t size = nd_wire_put_ack_result(NULL, &result);
    nd_mutex_lock(&s->base.lock);
    nd_wire_put_ack_result(nd_stream_answer_locked(&s->base, size), &result);
    bool gone = nd_stream_flush_locked(&s->base, 0);
    nd_stream_unlock(&s->base, gone);
}

/* --- items --- */

/* Items of one topic, `settles` together. */
struct bundle {
    Narad__V1__AckItem *const *items;
    uint32_t items_count;
    size_t settles;
};

static void refuse_items(struct ack_stream *s, const struct bundle *b, enum nd_err err,
                         const char *text)
{
    for (uint32_t i = 0; i < b->items_count; i++) {
        refuse_item(s, b->items[i]->id, err, text);
    }
}

static struct group *group_new(struct ack_stream *s, const struct bundle *b)
{
    size_t size = sizeof(struct group) + b->settles * sizeof(struct nd_settle_item);
    struct group *group = nd_xcalloc(1, size + b->items_count * sizeof(struct group_item));
    uint32_t filled = 0;
    group->stream = s;
    group->charged =
        size + b->items_count * sizeof(struct group_item) + b->settles * ND_HANDLE_SIZE_MAX;
    group->items = (struct group_item *)(void *)((uint8_t *)group + size);
    group->items_count = b->items_count;
    for (uint32_t i = 0; i < b->items_count; i++) {
        const Narad__V1__AckItem *item = b->items[i];
        group->items[i] = (struct group_item){item->id, (uint32_t)item->n_settles};
        for (size_t k = 0; k < item->n_settles; k++) {
            nd_settle_item_get(item->settles[k], &group->settles[filled++]);
        }
    }
    group->settle = (struct nd_settle){
        .items = group->settles, .count = filled, .done = settled, .data = group};
    return group;
}

static void submit(struct ack_stream *s, const struct bundle *b, struct nd_topic *topic)
{
    struct nd_handlers *h = s->base.handlers;
    struct group *group = group_new(s, b);
    if (!nd_budget_take_hard(&h->settles, group->charged)) {
        struct nd_errmsg msg;
        nd_budget_errmsg(&h->settles, h->settles.hard, &msg);
        refuse_items(s, b, ND_ERR_OVERLOADED, msg.text);
    } else if (!nd_handlers_enter(h)) {
        nd_budget_give(&h->settles, group->charged);
        refuse_items(s, b, ND_ERR_UNAVAILABLE, "the node is stopping");
    } else {
        nd_mutex_lock(&s->base.lock);
        bool ok = nd_stream_begin_locked(&s->base);
        nd_mutex_unlock(&s->base.lock);
        if (ok) {
            group->settle.topic = nd_topic_ref(topic);
            nd_broker_settle(h->options.broker, &group->settle);
        } else { /* the stream ends, and its end is the answer */
            nd_budget_give(&h->settles, group->charged);
            nd_free(group);
        }
        nd_handlers_leave(h);
        return;
    }
    nd_free(group);
}

static enum nd_err check_count(size_t count, struct nd_errmsg *msg)
{
    if (count > 0 && count <= ND_SETTLES_MAX) {
        return ND_OK;
    }
    nd_errmsg_set(msg, "settles: %zu given, 1 to %d are allowed", count, ND_SETTLES_MAX);
    return ND_ERR_INVALID_ARGUMENT;
}

/* How many items go together from the first on: the same topic (only the first may name one). */
static struct bundle bundle_of(Narad__V1__AckItem *const *items, size_t count)
{
    struct bundle b = {items, 1, items[0]->n_settles};
    while (items[0]->n_settles > 0 && b.items_count < count) {
        const Narad__V1__AckItem *next = items[b.items_count];
        bool same = next->topic[0] == '\0' || strcmp(next->topic, items[0]->topic) == 0;
        if (!same || next->n_settles == 0 || b.settles + next->n_settles > ND_SETTLES_MAX) {
            break;
        }
        b.settles += next->n_settles;
        b.items_count++;
    }
    return b;
}

static void take_name(struct ack_stream *s, const char *name)
{
    size_t size = strlen(name);
    if (size > 0) {
        /* One that is too long stays too long, and is refused as such. */
        s->topic_size = ND_MIN(size, sizeof s->topic);
        memcpy(s->topic, name, s->topic_size);
    }
}

static void take_items(struct ack_stream *s, Narad__V1__AckItem *const *items, size_t count)
{
    for (size_t at = 0; at < count;) {
        struct nd_errmsg msg = {""};
        struct nd_topic *topic;
        struct bundle b = bundle_of(items + at, count - at);
        take_name(s, items[at]->topic);
        at += b.items_count;
        struct nd_slice name = nd_slice_make(s->topic, s->topic_size);
        enum nd_err err = nd_access_check(s->base.call, name, &msg);
        if (err == ND_OK) {
            err = check_count(b.settles, &msg);
        }
        if (err == ND_OK) {
            err = nd_handlers_topic(s->base.handlers, name, &topic, &msg);
        }
        if (err != ND_OK) {
            refuse_items(s, &b, err, msg.text);
            continue;
        }
        submit(s, &b, topic);
        nd_topic_unref(topic);
    }
}

static void on_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct ack_stream *s = ND_CONTAINER_OF(nd_stream_of(call), struct ack_stream, base);
    const Narad__V1__AckStreamRequest *r =
        nd_rpc_call_decode(call, &narad__v1__ack_stream_request__descriptor, message);
    if (r == NULL) {
        nd_stream_end(&s->base, false, ND_ERR_INVALID_ARGUMENT,
                      "the message is not a valid narad.v1.AckStreamRequest");
        return;
    }
    if (nd_stream_takes(&s->base, "items", r->n_items)) {
        take_items(s, r->items, r->n_items);
        nd_stream_read_next(&s->base);
    }
}

/* --- the stream --- */

static void release(struct nd_stream *stream)
{
    nd_free(ND_CONTAINER_OF(stream, struct ack_stream, base));
}

static const struct nd_stream_ops ops = {.release = release};

static void on_open(struct nd_rpc_call *call)
{
    struct ack_stream *s = nd_xcalloc(1, sizeof *s);
    nd_stream_open(&s->base, call, &ops, &nd_handlers_of(call)->settles);
}

const struct nd_rpc_method nd_rpc_ack_stream = {
    .path = "/narad.v1.Broker/AckStream",
    .kind = ND_RPC_BIDI,
    .message_bytes_max = 4 << 20,
    .on_open = on_open,
    .on_message = on_message,
    .on_half_close = nd_stream_on_half_close,
    .on_drained = nd_stream_on_drained,
    .on_cancel = nd_stream_on_cancel,
    .on_done = nd_stream_on_done,
    .manual_read = true,
    .right = ND_RIGHT_CONSUME,
};
