/* Subscribe: deliveries out, settles in, on one stream. Settle results come in the order of the
 * settles; deliveries pause while the client does not read. */
#include "storage/base/alloc.h"

#include "server/broker/handle.h"
#include "server/rpc/pacer.h"
#include "server/rpc/settle.h"
#include "server/rpc/stream.h"
#include "server/rpc/wire.h"

enum { OUTSTANDING_DEFAULT = 256, OUTSTANDING_MAX = 65536 };

struct subscription {
    struct nd_stream base;
    struct nd_subscriber subscriber;
    struct nd_topic *topic; /* counted; set by the first message. @thread worker */
    struct nd_list batches; /* settles in the order sent; guarded by base.lock */
    bool counted;           /* begun with the caller's quota. @thread worker, then release */
    bool started;           /* the broker has the subscriber; guarded by base.lock */
    bool paused;            /* deliver said stop; guarded by base.lock */
    bool early;             /* until `pace` runs, its rate is used up; guarded by base.lock */
    struct nd_pace pace;
};

struct settle_batch {
    struct nd_list link;
    struct nd_settle settle;
    struct subscription *subscription;
    size_t charged;
    bool done;
    struct nd_settle_item items[];
};

/* --- deliveries. @thread shard --- */

static bool deliver(struct nd_subscriber *subscriber, const struct nd_delivery *deliveries,
                    uint32_t count)
{
    struct subscription *s = subscriber->data;
    nd_mutex_lock(&s->base.lock);
    /* Being closed, or about to be because its right has gone: the leases end with it. */
    if (s->base.ending ||
        nd_access_check(s->base.call, nd_slice_str(s->topic->name), NULL) != ND_OK) {
        nd_mutex_unlock(&s->base.lock);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *at =
            nd_stream_answer_locked(&s->base, nd_wire_put_message(NULL, 1, &deliveries[i]));
        nd_wire_put_message(at, 1, &deliveries[i]);
    }
    nd_caller_charge(s->base.caller, ND_QUOTA_CONSUME, count,
                     nd_deliveries_bytes(deliveries, count));
    bool gone = nd_stream_flush_locked(&s->base, 0);
    ND_ASSERT(!gone); /* the subscriber itself is an operation */
    /* Paused only when something is on its way, so that on_drained comes and resumes. */
    s->paused = s->base.sending && nd_stream_unsent_locked(&s->base) > ND_STREAM_QUEUED_MAX;
    uint32_t wait_ms = nd_caller_wait_ms(s->base.caller, ND_QUOTA_CONSUME);
    if (wait_ms > 0) {
        s->paused = s->early = true;
        nd_pacer_after(s->base.handlers->options.pacer, &s->pace, wait_ms);
    }
    bool go_on = !s->paused;
    nd_mutex_unlock(&s->base.lock);
    return go_on;
}

static void ended(struct nd_subscriber *subscriber, enum nd_err err)
{
    struct subscription *s = subscriber->data;
    nd_stream_end(&s->base, true, err, nd_err_text(err));
}

static void closed(struct nd_subscriber *subscriber)
{
    struct subscription *s = subscriber->data;
    nd_mutex_lock(&s->base.lock);
    bool gone = nd_stream_flush_locked(&s->base, 1);
    nd_stream_unlock(&s->base, gone);
}

/* --- settles --- */

static uint32_t drain_locked(struct subscription *s) ND_REQUIRES(s->base.lock)
{
    uint32_t completed = 0;
    struct nd_list *link;
    while ((link = nd_list_first(&s->batches)) != NULL) {
        struct settle_batch *batch = ND_CONTAINER_OF(link, struct settle_batch, link);
        if (!batch->done) {
            break;
        }
        for (uint32_t i = 0; i < batch->settle.count; i++) {
            enum nd_err err = batch->items[i].result;
            uint8_t *at =
                nd_stream_answer_locked(&s->base, nd_wire_put_settle_result(NULL, 2, err));
            nd_wire_put_settle_result(at, 2, err);
        }
        /* Paid for until its turn; under the lock: behind the last flush the handlers may be gone.
         */
        nd_budget_give(&s->base.handlers->settles, batch->charged);
        nd_list_remove(link);
        nd_free(batch);
        completed++;
    }
    return completed;
}

/* @thread shard */
static void settled(struct nd_settle *settle)
{
    struct settle_batch *batch = settle->data;
    struct subscription *s = batch->subscription;
    nd_mutex_lock(&s->base.lock);
    batch->done = true;
    bool gone = nd_stream_flush_locked(&s->base, drain_locked(s));
    nd_stream_unlock(&s->base, gone);
}

static enum nd_err submit(struct subscription *s, struct settle_batch *batch, struct nd_errmsg *msg)
{
    struct nd_handlers *h = s->base.handlers;
    if (!nd_budget_take_hard(&h->settles, batch->charged)) {
        nd_budget_errmsg(&h->settles, h->settles.hard, msg);
        return ND_ERR_OVERLOADED;
    }
    if (!nd_handlers_enter(h)) {
        nd_budget_give(&h->settles, batch->charged);
        return ND_ERR_UNAVAILABLE;
    }
    nd_mutex_lock(&s->base.lock);
    bool ok = nd_stream_begin_locked(&s->base);
    if (ok) {
        nd_list_append(&s->batches, &batch->link);
    }
    nd_mutex_unlock(&s->base.lock);
    if (ok) {
        nd_broker_settle(h->options.broker, &batch->settle);
    } else {
        nd_budget_give(&h->settles, batch->charged);
    }
    nd_handlers_leave(h);
    return ok ? ND_OK : ND_ERR_UNAVAILABLE;
}

static void take_settles(struct subscription *s, const Narad__V1__SubscribeRequest *r)
{
    for (size_t from = 0; from < r->n_settles; from += ND_SETTLES_MAX) {
        size_t count = ND_MIN(r->n_settles - from, (size_t)ND_SETTLES_MAX);
        struct settle_batch *batch = nd_xcalloc(1, sizeof *batch + count * sizeof batch->items[0]);
        nd_list_init(&batch->link);
        batch->subscription = s;
        batch->charged = sizeof *batch + count * (sizeof batch->items[0] + ND_HANDLE_SIZE_MAX);
        for (size_t i = 0; i < count; i++) {
            nd_settle_item_get(r->settles[from + i], &batch->items[i]);
        }
        batch->settle = (struct nd_settle){.topic = nd_topic_ref(s->topic),
                                           .items = batch->items,
                                           .count = (uint32_t)count,
                                           .done = settled,
                                           .data = batch};
        struct nd_errmsg msg = {""};
        enum nd_err err = submit(s, batch, &msg);
        if (err != ND_OK) {
            nd_topic_unref(batch->settle.topic);
            nd_free(batch);
            nd_stream_end(&s->base, true, err, msg.text);
            return;
        }
    }
}

/* --- the start --- */

static enum nd_err check_start(struct subscription *s, const Narad__V1__SubscribeStart *r,
                               struct nd_errmsg *msg)
{
    bool pinned =
        r->partition_choice_case == NARAD__V1__SUBSCRIBE_START__PARTITION_CHOICE_PARTITION;
    if (r->max_outstanding > OUTSTANDING_MAX) {
        nd_errmsg_set(msg, "max_outstanding is %u: at most %d are allowed (0 means %d)",
                      r->max_outstanding, OUTSTANDING_MAX, OUTSTANDING_DEFAULT);
        return ND_ERR_INVALID_ARGUMENT;
    }
    enum nd_err err = nd_access_check(s->base.call, nd_slice_str(r->topic), msg);
    if (err == ND_OK) {
        err = nd_handlers_topic(s->base.handlers, nd_slice_str(r->topic), &s->topic, msg);
    }
    if (err == ND_OK && pinned) {
        err = nd_handlers_partition(s->topic, r->partition, msg);
    }
    if (err == ND_OK) {
        err = nd_caller_begin(s->base.caller, ND_QUOTA_CONSUME, 1, 0, &s->base.end_retry_ms, msg);
        s->counted = err == ND_OK;
    }
    if (err != ND_OK) {
        return err;
    }
    s->subscriber = (struct nd_subscriber){
        .topic = nd_topic_ref(s->topic),
        .partition = pinned ? (int32_t)r->partition : ND_PARTITION_ANY,
        .outstanding_max = r->max_outstanding == 0 ? OUTSTANDING_DEFAULT : r->max_outstanding,
        .deliver = deliver,
        .ended = ended,
        .closed = closed,
        .data = s,
    };
    return ND_OK;
}

/* A user changed. @thread any */
static void look(struct nd_stream *stream)
{
    struct subscription *s = ND_CONTAINER_OF(stream, struct subscription, base);
    struct nd_errmsg msg = {""};
    nd_mutex_lock(&stream->lock);
    bool started = s->started; /* the topic stays what it is from then on */
    nd_mutex_unlock(&stream->lock);
    if (started) {
        enum nd_err err = nd_access_check(stream->call, nd_slice_str(s->topic->name), &msg);
        if (err != ND_OK) {
            nd_stream_end(stream, true, err, msg.text);
        }
    }
}

/* False: the stream ends. */
static bool start(struct subscription *s, const Narad__V1__SubscribeStart *r)
{
    struct nd_handlers *h = s->base.handlers;
    struct nd_errmsg msg = {""};
    enum nd_err err = check_start(s, r, &msg);
    if (err != ND_OK) {
        nd_stream_end(&s->base, true, err, msg.text);
        return false;
    }
    bool inside = nd_handlers_enter(h);
    nd_mutex_lock(&s->base.lock);
    s->started = inside && nd_stream_begin_locked(&s->base);
    if (s->started) {
        /* Under the lock, so that an end that finds `started` closes after this. */
        nd_broker_subscribe(h->options.broker, &s->subscriber);
    }
    nd_mutex_unlock(&s->base.lock);
    if (inside) {
        nd_handlers_leave(h);
    }
    if (!s->started) {
        nd_topic_unref(s->subscriber.topic);
        nd_stream_end(&s->base, true, ND_ERR_UNAVAILABLE, "the node is stopping");
        return false;
    }
    look(&s->base); /* a change that came while it was not started yet */
    return true;
}

static void on_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct subscription *s = ND_CONTAINER_OF(nd_stream_of(call), struct subscription, base);
    const Narad__V1__SubscribeRequest *r =
        nd_rpc_call_decode(call, &narad__v1__subscribe_request__descriptor, message);
    if (r == NULL) {
        nd_stream_end(&s->base, true, ND_ERR_INVALID_ARGUMENT,
                      "the message is not a valid narad.v1.SubscribeRequest");
        return;
    }
    if (!nd_stream_takes(&s->base, "settles", r->n_settles)) {
        return;
    }
    if ((r->start != NULL) == (s->topic != NULL)) {
        nd_stream_end(&s->base, true, ND_ERR_INVALID_ARGUMENT,
                      r->start == NULL ? "start: required in the first message of the stream"
                                       : "start: allowed in the first message only");
        return;
    }
    if (r->start != NULL && !start(s, r->start)) {
        return;
    }
    take_settles(s, r);
    nd_stream_read_next(&s->base);
}

/* --- pauses --- */

/* Deliveries go on, unless another reason holds them. */
static void resume_locked(struct subscription *s) ND_REQUIRES(s->base.lock)
{
    if (s->paused && !s->early && !s->base.ending) {
        s->paused = false;
        /* Under the lock: a close comes after it. */
        nd_broker_subscriber_resume(s->base.handlers->options.broker, &s->subscriber);
    }
}

/* @thread pacer */
static void paced(struct nd_pace *pace)
{
    struct subscription *s = ND_CONTAINER_OF(pace, struct subscription, pace);
    nd_mutex_lock(&s->base.lock);
    s->early = false;
    if (!s->base.sending || nd_stream_unsent_locked(&s->base) <= ND_STREAM_QUEUED_MAX) {
        resume_locked(s); /* else on_drained does */
    }
    nd_mutex_unlock(&s->base.lock);
}

/* --- the stream --- */

static void abandon(struct nd_stream *stream)
{
    struct subscription *s = ND_CONTAINER_OF(stream, struct subscription, base);
    nd_mutex_lock(&stream->lock);
    bool close = s->started;
    nd_mutex_unlock(&stream->lock);
    if (close) {
        nd_broker_subscriber_close(stream->handlers->options.broker, &s->subscriber);
    }
}

static void release(struct nd_stream *stream)
{
    struct subscription *s = ND_CONTAINER_OF(stream, struct subscription, base);
    nd_caller_end(stream->caller, ND_QUOTA_CONSUME, s->counted ? 1 : 0);
    nd_topic_unref(s->topic);
    nd_free(s);
}

static const struct nd_stream_ops ops = {.abandon = abandon, .look = look, .release = release};

static void on_open(struct nd_rpc_call *call)
{
    struct subscription *s = nd_xcalloc(1, sizeof *s);
    nd_list_init(&s->batches);
    nd_pace_init(&s->pace, paced);
    nd_stream_open(&s->base, call, &ops, &nd_handlers_of(call)->settles);
}

/* No settles any more: what was sent is confirmed, the leases end. */
static void on_half_close(struct nd_rpc_call *call)
{
    struct subscription *s = ND_CONTAINER_OF(nd_stream_of(call), struct subscription, base);
    if (s->topic == NULL) {
        nd_stream_end(&s->base, true, ND_ERR_INVALID_ARGUMENT,
                      "start: required in the first message of the stream");
        return;
    }
    nd_stream_end(&s->base, true, ND_OK, NULL);
}

static void on_drained(struct nd_rpc_call *call)
{
    struct subscription *s = ND_CONTAINER_OF(nd_stream_of(call), struct subscription, base);
    if (!nd_stream_drained(&s->base)) {
        return;
    }
    nd_mutex_lock(&s->base.lock);
    resume_locked(s);
    nd_mutex_unlock(&s->base.lock);
}

static void on_done(struct nd_rpc_call *call)
{
    struct subscription *s = ND_CONTAINER_OF(nd_stream_of(call), struct subscription, base);
    nd_stream_end(&s->base, true, ND_ERR_CANCELLED, NULL); /* from here on nothing is paced */
    nd_pacer_forget(nd_handlers_of(call)->options.pacer, &s->pace);
    nd_stream_close(&s->base);
}

const struct nd_rpc_method nd_rpc_subscribe = {
    .path = "/narad.v1.Broker/Subscribe",
    .kind = ND_RPC_BIDI,
    .message_bytes_max = 4 << 20,
    .on_open = on_open,
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_drained = on_drained,
    .on_cancel = nd_stream_on_cancel,
    .on_done = on_done,
    .manual_read = true,
    .right = ND_RIGHT_CONSUME,
};
