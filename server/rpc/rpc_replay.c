/* Replay: records of a partition from an offset on, one read of the broker at a time; the next is
 * asked for when the client has taken enough of the last. */
#include "storage/base/alloc.h"

#include "proto/narad/v1/broker.pb-c.h"
#include "server/rpc/handlers.h"
#include "server/rpc/pacer.h"
#include "server/rpc/wire.h"

enum { READ_MESSAGES = 1000, UNSENT_MAX = 256 << 10 };

struct replay_call {
    struct nd_replay replay;
    struct nd_handlers *handlers;
    struct nd_rpc_call *call;
    struct nd_topic *topic; /* counted */
    uint64_t left;          /* messages still wanted; UINT64_MAX: all */
    struct nd_access_watched watched;
    struct nd_pace pace;
    struct nd_mutex lock;
    /* guarded by lock */
    bool reading; /* the broker has the request */
    bool waiting; /* for one or both of these */
    bool full;    /* until on_drained, enough is queued */
    bool early;   /* until `pace` runs, its rate is used up */
    bool cancelled;
    enum nd_err cancel_err;
    struct nd_errmsg cancel_text;
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
    nd_caller_charge(nd_access_caller(r->call), ND_QUOTA_CONSUME, count,
                     nd_deliveries_bytes(deliveries, count));
    uint32_t wait_ms = nd_caller_wait_ms(nd_access_caller(r->call), ND_QUOTA_CONSUME);
    r->full = queued > UNSENT_MAX;
    r->early = wait_ms > 0;
    r->waiting = !end && !cancelled && (r->full || r->early);
    if (r->waiting && r->early) {
        nd_pacer_after(r->handlers->options.pacer, &r->pace, wait_ms);
    }
    r->reading = !end && !cancelled && !r->waiting;
    bool more = r->reading;
    nd_mutex_unlock(&r->lock);
    /* `r` lives until on_done, which needs a finish, and nobody else finishes while a read is under
     * way or on_drained is awaited. */
    if (more) {
        read_more(r);
    } else if (cancelled) {
        nd_rpc_call_fail(r->call, r->cancel_err, r->cancel_text.text);
    } else if (end) {
        nd_rpc_call_finish(r->call, 0, NULL);
    }
}

/* One reason to wait is over. */
static void go_on(struct replay_call *r, bool drained)
{
    nd_mutex_lock(&r->lock);
    *(drained ? &r->full : &r->early) = false;
    bool read = r->waiting && !r->full && !r->early && !r->cancelled;
    r->reading = r->reading || read;
    r->waiting = r->waiting && !read;
    nd_mutex_unlock(&r->lock);
    if (read) {
        read_more(r);
    }
}

/* @thread pacer */
static void paced(struct nd_pace *pace)
{
    go_on(ND_CONTAINER_OF(pace, struct replay_call, pace), false);
}

static void cancel(struct replay_call *r, enum nd_err err, const char *text)
{
    nd_mutex_lock(&r->lock);
    if (!r->cancelled) {
        r->cancelled = true;
        r->cancel_err = err;
        nd_errmsg_set(&r->cancel_text, "%s", text);
    }
    bool finish = r->waiting; /* otherwise the read under way sees it */
    r->waiting = false;
    nd_mutex_unlock(&r->lock);
    if (finish) {
        nd_rpc_call_fail(r->call, err, text);
    }
}

/* A user changed. @thread any */
static void look(struct nd_access_watched *watched, enum nd_err err, const char *text)
{
    struct replay_call *r = ND_CONTAINER_OF(watched, struct replay_call, watched);
    struct nd_errmsg msg = {""};
    if (err == ND_OK) {
        err = nd_access_check(r->call, nd_slice_str(r->topic->name), &msg);
        text = msg.text;
    }
    if (err != ND_OK) {
        cancel(r, err, text);
    }
}

/* May it begin? The topic is the caller's; a replay and a poll are counted. */
static enum nd_err admit(struct nd_rpc_call *call, const Narad__V1__ReplayRequest *q,
                         struct nd_topic **topic_out, uint32_t *retry_after_ms,
                         struct nd_errmsg *msg)
{
    struct nd_handlers *h = nd_handlers_of(call);
    enum nd_err err = nd_access_check(call, nd_slice_str(q->topic), msg);
    if (err == ND_OK) {
        err = nd_handlers_topic(h, nd_slice_str(q->topic), topic_out, msg);
    }
    if (err != ND_OK) {
        return err;
    }
    err = nd_handlers_partition(*topic_out, q->partition, msg);
    if (err == ND_OK) {
        err = nd_caller_begin(nd_access_caller(call), ND_QUOTA_CONSUME, 1, 0, retry_after_ms, msg);
    }
    if (err == ND_OK && !nd_budget_take(&h->replays, 1)) {
        nd_caller_end(nd_access_caller(call), ND_QUOTA_CONSUME, 1);
        nd_budget_errmsg(&h->replays, h->replays.soft, msg);
        err = ND_ERR_OVERLOADED;
    }
    if (err != ND_OK) {
        nd_topic_unref(*topic_out);
    }
    return err;
}

static void on_start(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    struct nd_topic *topic;
    const Narad__V1__ReplayRequest *q =
        nd_call_decode(call, &narad__v1__replay_request__descriptor, request);
    if (q == NULL) {
        return;
    }
    uint32_t retry_after_ms = 0;
    enum nd_err err = admit(call, q, &topic, &retry_after_ms, &msg);
    if (err != ND_OK) {
        nd_rpc_call_fail_retry(call, err, msg.text, retry_after_ms);
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
    nd_pace_init(&r->pace, paced);
    nd_mutex_init(&r->lock);
    nd_rpc_call_set_user(call, r);
    read_more(r);
    nd_access_watch(&r->watched, call, look);
}

static void on_drained(struct nd_rpc_call *call)
{
    struct replay_call *r = nd_rpc_call_user(call);
    if (r != NULL) {
        go_on(r, true);
    }
}

static void on_cancel(struct nd_rpc_call *call)
{
    struct replay_call *r = nd_rpc_call_user(call);
    if (r != NULL) {
        cancel(r, ND_ERR_CANCELLED, "");
    }
}

static void on_done(struct nd_rpc_call *call)
{
    struct replay_call *r = nd_rpc_call_user(call);
    if (r != NULL) {
        nd_access_unwatch(&r->watched);
        nd_pacer_forget(r->handlers->options.pacer, &r->pace);
        nd_caller_end(nd_access_caller(call), ND_QUOTA_CONSUME, 1);
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
    .right = ND_RIGHT_CONSUME,
};
