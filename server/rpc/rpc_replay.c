/* Replay: records of a partition from an offset on, one read of the broker at a time; the next is
 * asked for when the client has taken enough of the last. */
#include "storage/base/alloc.h"

#include "proto/narad/v1/broker.pb-c.h"
#include "server/rpc/handlers.h"
#include "server/rpc/wire.h"

enum { READ_MESSAGES = 1000, UNSENT_MAX = 256 << 10 };

struct replay_call {
    struct nd_replay replay;
    struct nd_handlers *handlers;
    struct nd_rpc_call *call;
    struct nd_topic *topic; /* counted */
    uint64_t left;          /* messages still wanted; UINT64_MAX: all */
    struct nd_mutex lock;
    /* guarded by lock */
    bool reading; /* the broker has the request */
    bool waiting; /* for on_drained */
    bool cancelled;
};

static void replayed(struct nd_replay *replay, enum nd_err err,
                     const struct nd_delivery *deliveries, uint32_t count);

/* Ask for the next read, or end. `reading` was set by the caller. The call is over after a refusal.
 */
static void read_more(struct replay_call *r)
{
    struct nd_handlers *h = r->handlers;
    if (!nd_handlers_enter(h)) {
        nd_call_refuse_stopping(r->call);
        return;
    }
    r->replay.topic = nd_topic_ref(r->topic);
    r->replay.messages_max = (uint32_t)ND_MIN(r->left, (uint64_t)READ_MESSAGES);
    r->replay.done = replayed;
    r->replay.data = r;
    nd_broker_replay(h->options.broker, &r->replay);
    nd_handlers_leave(h);
}

static size_t send(struct replay_call *r, const struct nd_delivery *deliveries, uint32_t count)
{
    size_t queued = 0;
    for (uint32_t from = 0; from < count;) {
        uint32_t fit = nd_deliveries_fit(deliveries + from, count - from);
        size_t size = 0, at = 0;
        for (uint32_t i = from; i < from + fit; i++) {
            size += nd_wire_put_message(NULL, 1, &deliveries[i]);
        }
        uint8_t *bytes = nd_xmalloc(size + 1); /* at most 4 MiB, see nd_deliveries_fit */
        for (uint32_t i = from; i < from + fit; i++) {
            at += nd_wire_put_message(bytes + at, 1, &deliveries[i]);
        }
        queued = nd_rpc_call_send_bytes(r->call, nd_slice_make(bytes, size), nd_free, bytes);
        from += fit;
    }
    return queued;
}

static void fail(struct replay_call *r, enum nd_err err)
{
    struct nd_errmsg msg = {""};
    if (err == ND_ERR_GONE && r->replay.offset < r->replay.oldest) {
        nd_errmsg_set(&msg, "offset %llu aged out of retention (oldest retained: %llu)",
                      (unsigned long long)r->replay.offset, (unsigned long long)r->replay.oldest);
    } else if (err == ND_ERR_CORRUPT) {
        nd_errmsg_set(&msg, "offset %llu of partition %u is damaged or lost",
                      (unsigned long long)r->replay.offset, r->replay.partition);
    } else {
        nd_topic_errmsg(r->handlers, err, r->topic, (int32_t)r->replay.partition, &msg);
    }
    nd_call_fail(r->call, err, &msg);
}

/* @thread shard or worker of the broker */
static void replayed(struct nd_replay *replay, enum nd_err err,
                     const struct nd_delivery *deliveries, uint32_t count)
{
    struct replay_call *r = replay->data;
    if (err != ND_OK) {
        fail(r, err);
        return;
    }
    r->left -= r->left == UINT64_MAX ? 0 : ND_MIN(r->left, (uint64_t)count);
    bool end = count == 0 || r->left == 0 || replay->offset >= replay->end;
    nd_mutex_lock(&r->lock);
    size_t queued = send(r, deliveries, count);
    bool cancelled = r->cancelled;
    r->waiting = !end && !cancelled && queued > UNSENT_MAX;
    r->reading = !end && !cancelled && !r->waiting;
    bool go_on = r->reading;
    nd_mutex_unlock(&r->lock);
    /* `r` lives until on_done, which needs a finish, and nobody else finishes while a read is under
     * way or on_drained is awaited. */
    if (go_on) {
        read_more(r);
    } else if (end || cancelled) {
        nd_rpc_call_finish(r->call, cancelled ? nd_err_grpc_status(ND_ERR_CANCELLED) : 0, NULL);
    }
}

static void on_start(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    struct nd_topic *topic;
    const Narad__V1__ReplayRequest *q =
        nd_rpc_call_decode(call, &narad__v1__replay_request__descriptor, request);
    if (q == NULL) {
        nd_call_refuse_bytes(call, "ReplayRequest");
        return;
    }
    enum nd_err err = nd_handlers_topic(h, nd_slice_str(q->topic), &topic, &msg);
    if (err == ND_OK) {
        err = nd_handlers_partition(topic, q->partition, &msg);
        if (err == ND_OK && !nd_budget_take(&h->replays, 1)) {
            err = ND_ERR_OVERLOADED;
        }
        if (err != ND_OK) {
            nd_topic_unref(topic);
        }
    }
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    struct replay_call *r = nd_xcalloc(1, sizeof *r);
    *r = (struct replay_call){.handlers = h,
                              .call = call,
                              .topic = topic,
                              .left = q->max_messages == 0 ? UINT64_MAX : q->max_messages,
                              .reading = true};
    r->replay.partition = q->partition;
    r->replay.offset = q->offset;
    nd_mutex_init(&r->lock);
    nd_rpc_call_set_user(call, r);
    read_more(r);
}

static void on_drained(struct nd_rpc_call *call)
{
    struct replay_call *r = nd_rpc_call_user(call);
    if (r == NULL) {
        return;
    }
    nd_mutex_lock(&r->lock);
    bool go_on = r->waiting && !r->cancelled;
    r->reading = r->reading || go_on;
    r->waiting = r->waiting && !go_on;
    nd_mutex_unlock(&r->lock);
    if (go_on) {
        read_more(r);
    }
}

static void on_cancel(struct nd_rpc_call *call)
{
    struct replay_call *r = nd_rpc_call_user(call);
    if (r == NULL) {
        return;
    }
    nd_mutex_lock(&r->lock);
    r->cancelled = true;
    bool finish = r->waiting; /* otherwise the read under way sees it */
    r->waiting = false;
    nd_mutex_unlock(&r->lock);
    if (finish) {
        nd_rpc_call_finish(call, nd_err_grpc_status(ND_ERR_CANCELLED), NULL);
    }
}

static void on_done(struct nd_rpc_call *call)
{
    struct replay_call *r = nd_rpc_call_user(call);
    if (r != NULL) {
        nd_budget_give(&r->handlers->replays, 1);
        nd_topic_unref(r->topic);
        nd_mutex_release(&r->lock);
        nd_free(r);
    }
}

const struct nd_rpc_method nd_rpc_replay = {
    .path = "/narad.v1.Broker/Replay",
    .kind = ND_RPC_SERVER_STREAM,
    .message_bytes_max = 4 << 20,
    .on_start = on_start,
    .on_drained = on_drained,
    .on_cancel = on_cancel,
    .on_done = on_done,
};
