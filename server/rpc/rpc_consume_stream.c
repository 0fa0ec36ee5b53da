/* ConsumeStream: many polls on one stream, each with its caller's id, answered in any order. */
#include "storage/base/alloc.h"
#include "storage/base/map.h"

#include "proto/narad/v1/broker.pb-c.h"
#include "server/rpc/poll.h"
#include "server/rpc/stream.h"
#include "server/rpc/wire.h"

enum {
    UNREAD_BYTES_MAX = 8 << 20
}; /* answers that wait for a client that polls and does not read */

struct consume_stream {
    struct nd_stream base;
    struct nd_map *polls; /* id -> struct stream_poll, the open ones; guarded by base.lock */
};

struct stream_poll {
    struct nd_poll poll;
    struct consume_stream *stream;
    struct nd_topic *topic; /* counted */
    uint64_t id;
    bool charged;
    struct nd_caller *caller; /* counted; NULL: not counted */
    uint32_t counted;         /* messages begun with it */
    /* guarded by the stream's lock */
    bool given;     /* the broker has it, and may be told to cancel it */
    bool cancelled; /* not wanted any more */
    bool revoked;   /* cancelled because its right is gone */
};

static void free_poll(struct stream_poll *p)
{
    if (p->charged) {
        nd_budget_give(&p->stream->base.handlers->polls, 1);
    }
    nd_caller_end(p->caller, ND_QUOTA_CONSUME, p->counted);
    nd_caller_unref(p->caller);
    nd_topic_unref(p->topic);
    nd_free(p);
}

static void put_answer_locked(struct consume_stream *s, const struct nd_wire_poll_result *result)
    ND_REQUIRES(s->base.lock)
{
    size_t size = nd_wire_put_poll_result(NULL, result);
    nd_wire_put_poll_result(nd_stream_answer_locked(&s->base, size), result);
}

/* @thread shard */
static void polled(struct nd_poll *poll, enum nd_err err, const struct nd_delivery *deliveries,
                   uint32_t count)
{
    struct stream_poll *p = poll->data;
    struct consume_stream *s = p->stream;
    uint32_t fit = nd_deliveries_fit(deliveries, count);
    struct nd_errmsg msg = {""};
    nd_mutex_lock(&s->base.lock);
    if (s->base.abandoned || p->cancelled) {
        fit = 0; /* nobody waits for them any more */
    } else if (fit > 0 && nd_stream_unsent_locked(&s->base) > UNREAD_BYTES_MAX) {
        fit = 0; /* the client does not read: others may have them */
        err = ND_ERR_OVERLOADED;
    }
    err = err == ND_ERR_CANCELLED ? ND_OK : err; /* cancelled by id: an empty answer */
    if (s->base.abandoned && s->base.end_err == ND_ERR_UNAUTHENTICATED) {
        err = s->base.end_err; /* the user is gone: an empty answer would say that it may ask on */
        nd_errmsg_set(&msg, "%s", s->base.end_text);
    }
    /* The right may have gone while it waited; of an abandoned stream the call may be gone, too. */
    if (!s->base.abandoned && (fit > 0 || p->revoked)) {
        err = nd_access_check(s->base.call, nd_slice_str(p->topic->name), &msg);
        fit = err == ND_OK ? fit : 0;
    }
    nd_caller_charge(p->caller, ND_QUOTA_CONSUME, fit, nd_deliveries_bytes(deliveries, fit));
    put_answer_locked(s, &(struct nd_wire_poll_result){p->id, err, msg.text, 0, deliveries, fit});
    nd_map_remove_u64(s->polls, p->id);
    nd_mutex_unlock(&s->base.lock);
    /* Still one of the stream's operations, so that the stream is there. */
    nd_handlers_nack(s->base.handlers, p->topic, deliveries + fit, count - fit);
    free_poll(p);
    nd_mutex_lock(&s->base.lock);
    bool gone = nd_stream_flush_locked(&s->base, 1);
    nd_stream_unlock(&s->base, gone);
}

static void answer_error(struct consume_stream *s, uint64_t id, enum nd_err err, const char *text,
                         uint32_t retry_after_ms)
{
    nd_mutex_lock(&s->base.lock);
    put_answer_locked(s, &(struct nd_wire_poll_result){id, err, text, retry_after_ms, NULL, 0});
    bool gone = nd_stream_flush_locked(&s->base, 0);
    nd_stream_unlock(&s->base, gone);
}

/* Among the open polls, unless its id is there already or the stream is ending. The right is asked
 * for again under the lock: a change of a user that comes after it finds the poll. */
static enum nd_err enlist(struct consume_stream *s, struct stream_poll *p, struct nd_errmsg *msg)
{
    nd_mutex_lock(&s->base.lock);
    enum nd_err err = nd_access_check(s->base.call, nd_slice_str(p->topic->name), msg);
    if (err != ND_OK) {
        /* told by the caller */
    } else if (nd_map_get_u64(s->polls, p->id) != NULL) {
        err = ND_ERR_ALREADY_EXISTS;
    } else if (!nd_stream_begin_locked(&s->base)) {
        err = ND_ERR_UNAVAILABLE;
    } else {
        nd_map_put_u64(s->polls, p->id, p);
    }
    nd_mutex_unlock(&s->base.lock);
    return err;
}

static void cancel_locked(struct consume_stream *s, struct stream_poll *p)
{
    if (p != NULL && !p->cancelled) {
        p->cancelled = true; /* in the map: its `done` has not run */
        if (p->given) {
            nd_broker_poll_cancel(s->base.handlers->options.broker, &p->poll);
        }
    }
}

/* Without the lock, which its answer takes: the broker may work the poll off at once, on this
 * thread. Whoever cancels it meanwhile leaves the telling to us. */
static void hand_over(struct consume_stream *s, struct stream_poll *p)
{
    struct nd_broker *broker = s->base.handlers->options.broker;
    uint64_t id = p->id;
    nd_broker_poll(broker, &p->poll);
    nd_mutex_lock(&s->base.lock);
    p = nd_map_get_u64(s->polls, id); /* NULL: answered. Polls come on this thread only */
    if (p != NULL) {
        p->given = true;
        if (p->cancelled) {
            nd_broker_poll_cancel(broker, &p->poll);
        }
    }
    nd_mutex_unlock(&s->base.lock);
}

/* False: the stream ends. */
static bool take_poll(struct consume_stream *s, const Narad__V1__Poll *r)
{
    struct nd_handlers *h = s->base.handlers;
    struct nd_errmsg msg = {""};
    struct nd_poll_request wanted = {
        .topic = r->topic,
        .max_messages = r->max_messages,
        .wait_ms = r->wait_ms,
        .has_partition = r->partition_choice_case == NARAD__V1__POLL__PARTITION_CHOICE_PARTITION,
        .partition = r->partition,
    };
    struct stream_poll *p = nd_xcalloc(1, sizeof *p);
    uint32_t retry_after_ms = 0;
    enum nd_err err = nd_access_check(s->base.call, nd_slice_str(r->topic), &msg);
    if (err == ND_OK) {
        err = nd_poll_check(h, &wanted, &p->poll, &msg);
    }
    if (err != ND_OK) {
        nd_free(p);
        answer_error(s, r->id, err, msg.text, 0);
        return true;
    }
    p->stream = s;
    p->id = r->id;
    p->topic = nd_topic_ref(p->poll.topic);
    p->poll.done = polled;
    p->poll.data = p;
    bool inside = false;
    p->caller = nd_access_item_caller(s->base.call, nd_slice_str(r->client_address));
    err = nd_caller_begin(p->caller, ND_QUOTA_CONSUME, nd_poll_weight(&p->poll), 0, &retry_after_ms,
                          &msg);
    p->counted = err == ND_OK ? nd_poll_weight(&p->poll) : 0;
    p->charged = err == ND_OK && nd_budget_take(&h->polls, 1);
    if (err != ND_OK) {
        /* told below */
    } else if (!p->charged) {
        nd_budget_errmsg(&h->polls, h->polls.soft, &msg);
        err = ND_ERR_OVERLOADED;
    } else if (!(inside = nd_handlers_enter(h))) {
        nd_errmsg_set(&msg, "the node is stopping");
        err = ND_ERR_UNAVAILABLE;
    } else {
        err = enlist(s, p, &msg);
    }
    if (err == ND_OK) {
        hand_over(s, p);
    } else {
        nd_topic_unref(p->poll.topic);
        free_poll(p);
    }
    if (inside) {
        nd_handlers_leave(h);
    }
    if (err == ND_ERR_ALREADY_EXISTS) {
        nd_errmsg_set(&msg, "poll id %llu is already open on this stream",
                      (unsigned long long)r->id);
        nd_stream_end(&s->base, true, ND_ERR_INVALID_ARGUMENT, msg.text);
        return false;
    }
    if (err != ND_OK) {
        answer_error(s, r->id, err, msg.text, retry_after_ms);
    }
    return true;
}

/* A user changed: polls that its caller may not make any more are answered. @thread any */
static void look(struct nd_stream *stream)
{
    struct consume_stream *s = ND_CONTAINER_OF(stream, struct consume_stream, base);
    size_t at = 0;
    struct nd_slice key;
    void *value;
    nd_mutex_lock(&stream->lock);
    while (nd_map_next(s->polls, &at, &key, &value)) {
        struct stream_poll *p = value;
        if (!p->cancelled &&
            nd_access_check(stream->call, nd_slice_str(p->topic->name), NULL) != ND_OK) {
            p->revoked = true;
            cancel_locked(s, p);
        }
    }
    nd_mutex_unlock(&stream->lock);
}

static void abandon(struct nd_stream *stream)
{
    struct consume_stream *s = ND_CONTAINER_OF(stream, struct consume_stream, base);
    size_t at = 0;
    struct nd_slice key;
    void *value;
    nd_mutex_lock(&stream->lock);
    while (nd_map_next(s->polls, &at, &key, &value)) {
        cancel_locked(s, value);
    }
    nd_mutex_unlock(&stream->lock);
}

static void on_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct consume_stream *s = ND_CONTAINER_OF(nd_stream_of(call), struct consume_stream, base);
    const Narad__V1__ConsumeStreamRequest *r =
        nd_rpc_call_decode(call, &narad__v1__consume_stream_request__descriptor, message);
    if (r == NULL) {
        nd_stream_end(&s->base, true, ND_ERR_INVALID_ARGUMENT,
                      "the message is not a valid narad.v1.ConsumeStreamRequest");
        return;
    }
    if (!nd_stream_takes(&s->base, "polls", r->n_polls)) { /* cancels are answered by their polls */
        return;
    }
    for (size_t i = 0; i < r->n_polls; i++) {
        if (!take_poll(s, r->polls[i])) {
            return;
        }
    }
    nd_mutex_lock(&s->base.lock);
    for (size_t i = 0; i < r->n_cancel_ids; i++) {
        cancel_locked(s, nd_map_get_u64(s->polls, r->cancel_ids[i]));
    }
    nd_mutex_unlock(&s->base.lock);
    nd_stream_read_next(&s->base);
}

static void release(struct nd_stream *stream)
{
    struct consume_stream *s = ND_CONTAINER_OF(stream, struct consume_stream, base);
    nd_map_free(s->polls);
    nd_free(s);
}

static const struct nd_stream_ops ops = {.abandon = abandon, .look = look, .release = release};

static void on_open(struct nd_rpc_call *call)
{
    struct consume_stream *s = nd_xcalloc(1, sizeof *s);
    s->polls = nd_map_new((uint64_t)(uintptr_t)s); /* ids are the client's own, on its own stream */
    nd_stream_open(&s->base, call, &ops, &nd_handlers_of(call)->settles);
}

const struct nd_rpc_method nd_rpc_consume_stream = {
    .path = "/narad.v1.Broker/ConsumeStream",
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
