/* ProduceStream: items arrive pipelined, are confirmed in the order they were sent, and
 * confirmations gather while the last ones are on their way.
 *
 * Neighbouring items of one topic become one batch of the broker (a *group*): one block, one entry
 * a partition. All or nothing of the group implies all or nothing of each item. An item that is
 * refused by itself takes none of its neighbours with it. A group is paid for from the produce
 * budget until its answer's turn has come, so that many small ones behind a slow one stop the
 * reading. */
#include <string.h>

#include "storage/base/alloc.h"

#include "server/rpc/handlers.h"
#include "server/rpc/stream.h"
#include "server/rpc/wire.h"

enum {
    GROUP_BYTES_MAX = 1 << 20,
    ITEM_ANSWER_BYTES = 128, /* about, of an item in the line of answers */
    RECORD_ANSWER_BYTES = 32,
};

struct produce_stream {
    struct nd_stream base;
    struct nd_list groups;                  /* in the order sent; guarded by base.lock */
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1]; /* of the item before; @thread worker */
    size_t topic_size;
};

struct group_item {
    uint64_t id;
    uint32_t count;           /* records */
    struct nd_caller *caller; /* counted: its records were begun with it; NULL: they were not */
};

struct group {
    struct nd_list link;
    struct nd_produce produce;
    struct produce_stream *stream;
    size_t charged;  /* for the records, until the broker is done with them */
    size_t held;     /* for its place in the line */
    uint8_t *answer; /* encoded, once it is known and not this one's turn; owned */
    size_t answer_size;
    bool answered;
    uint32_t retry_after_ms; /* said with an error; 0: not */
    uint32_t items_count;
    struct group_item items[];
};

static struct group *group_new(struct produce_stream *s, uint32_t items)
{
    struct group *group = nd_xcalloc(1, sizeof *group + items * sizeof group->items[0]);
    nd_list_init(&group->link);
    group->stream = s;
    group->produce.data = group;
    return group;
}

static size_t place_bytes(uint32_t items, uint32_t records)
{
    return sizeof(struct group) + items * (sizeof(struct group_item) + ITEM_ANSWER_BYTES) +
           (size_t)records * RECORD_ANSWER_BYTES;
}

/* Encode the results of all items; `at` NULL: size only. */
static size_t put_results(uint8_t *at, const struct group *group, enum nd_err err, const char *text)
{
    const struct nd_admission *batch = &group->produce.batch;
    size_t size = 0;
    uint32_t first = 0;
    for (uint32_t i = 0; i < group->items_count; i++) {
        const struct group_item *item = &group->items[i];
        struct nd_wire_result result = {item->id, err, text, group->retry_after_ms, NULL, 0};
        if (err == ND_OK && batch->has_offsets) {
            result.placements = batch->placements + first;
            result.count = item->count;
        }
        size += nd_wire_put_produce_result(at == NULL ? NULL : at + size, &result);
        first += item->count;
    }
    return size;
}

/* Answers of the groups whose turn it is; what they paid is added to *paid. */
static uint32_t drain_locked(struct produce_stream *s, size_t *paid) ND_REQUIRES(s->base.lock)
{
    uint32_t completed = 0;
    struct nd_list *link;
    while ((link = nd_list_first(&s->groups)) != NULL) {
        struct group *group = ND_CONTAINER_OF(link, struct group, link);
        if (!group->answered) {
            break;
        }
        memcpy(nd_stream_answer_locked(&s->base, group->answer_size), group->answer,
               group->answer_size);
        *paid += group->held;
        nd_list_remove(link);
        nd_free(group->answer);
        nd_free(group);
        completed++;
    }
    return completed;
}

static void end_items(struct group *group)
{
    for (uint32_t i = 0; i < group->items_count; i++) {
        struct group_item *item = &group->items[i];
        nd_caller_end(item->caller, ND_QUOTA_PRODUCE, item->count);
        nd_caller_unref(item->caller);
        item->caller = NULL;
    }
}

/* `group` has its outcome; its batch's placements are still there. @thread any */
static void complete(struct group *group, enum nd_err err, const char *text)
{
    struct produce_stream *s = group->stream;
    size_t size = put_results(NULL, group, err, text);
    size_t paid = group->charged;
    uint32_t completed = 0;
    end_items(group);
    nd_mutex_lock(&s->base.lock);
    if (nd_list_first(&s->groups) == &group->link) {
        put_results(nd_stream_answer_locked(&s->base, size), group, err, text);
        paid += group->held;
        nd_list_remove(&group->link);
        nd_free(group);
        completed = 1 + drain_locked(s, &paid);
    } else {
        group->answer = nd_xmalloc(size);
        group->answer_size = size;
        put_results(group->answer, group, err, text);
        group->answered = true;
    }
    /* Under the lock: behind the last flush the handlers may be gone. */
    nd_budget_give(&s->base.handlers->produce, paid);
    bool gone = nd_stream_flush_locked(&s->base, completed);
    nd_stream_unlock(&s->base, gone);
}

/* @thread shard */
static void produced(struct nd_produce *produce, enum nd_err err)
{
    struct group *group = produce->data;
    struct nd_errmsg msg = {""};
    nd_topic_errmsg(group->stream->base.handlers, err, produce->batch.topic,
                    nd_admission_partition(&produce->batch), &msg);
    complete(group, err, msg.text);
}

/* Into the line of answers. False: the stream is ending and takes nothing. */
static bool enqueue(struct group *group)
{
    struct produce_stream *s = group->stream;
    nd_mutex_lock(&s->base.lock);
    bool ok = nd_stream_begin_locked(&s->base);
    if (ok) {
        nd_list_append(&s->groups, &group->link);
    }
    nd_mutex_unlock(&s->base.lock);
    return ok;
}

static void refuse_item(struct produce_stream *s, const struct nd_wire_batch *item, enum nd_err err,
                        const char *text, uint32_t retry_after_ms)
{
    struct group *group = group_new(s, 1);
    group->items[group->items_count++] = (struct group_item){.id = item->id};
    group->retry_after_ms = retry_after_ms;
    group->held = place_bytes(1, 0);
    nd_budget_charge(&s->base.handlers->produce, group->held);
    if (enqueue(group)) {
        complete(group, err, text);
    } else {
        nd_budget_give(&s->base.handlers->produce, group->held);
        nd_free(group);
    }
}

/* Items [0, count) of one topic, in one array of records. */
struct bundle {
    const struct nd_wire_batch *items;
    uint32_t items_count;
    struct nd_produce_record *records;
    uint32_t records_count;
    size_t bytes;
    uint32_t retry_after_ms; /* out, with LIMITED */
};

/* Those that were begun are not done. */
static void undo_items(struct group *group, const struct bundle *b)
{
    for (uint32_t i = 0; i < group->items_count; i++) {
        struct group_item *item = &group->items[i];
        nd_caller_undo(item->caller, ND_QUOTA_PRODUCE, item->count,
                       nd_payload_bytes(b->items[i].records, item->count));
        nd_caller_unref(item->caller);
        item->caller = NULL;
    }
}

/* All of them or none, each with whom it is of. */
static enum nd_err begin_items(struct group *group, struct bundle *b, struct nd_errmsg *msg)
{
    const struct nd_stream *stream = &group->stream->base;
    for (uint32_t i = 0; stream->handlers->options.count_produce && i < b->items_count; i++) {
        const struct nd_wire_batch *item = &b->items[i];
        struct nd_caller *caller = nd_access_item_caller(stream->call, item->client_address);
        enum nd_err err =
            nd_caller_begin(caller, ND_QUOTA_PRODUCE, item->count,
                            nd_payload_bytes(item->records, item->count), &b->retry_after_ms, msg);
        if (err != ND_OK) {
            nd_caller_unref(caller);
            undo_items(group, b);
            return err;
        }
        group->items[i].caller = caller;
    }
    return ND_OK;
}

/* To the broker, in its place in the line. The budget and the quota are taken. */
static enum nd_err hand_over(struct produce_stream *s, const struct nd_topic *topic,
                             const struct bundle *b, struct group *group, struct nd_errmsg *msg)
{
    struct nd_handlers *h = s->base.handlers;
    struct nd_admission batch;
    enum nd_err err =
        nd_admission_encode(&batch, topic, b->records, b->records_count, &h->spread, msg);
    if (err != ND_OK) {
        return err;
    }
    if (!nd_handlers_enter(h)) {
        nd_admission_release(&batch);
        nd_errmsg_set(msg, "the node is stopping");
        return ND_ERR_UNAVAILABLE;
    }
    group->produce.batch = batch;
    group->produce.done = produced;
    bool taken = enqueue(group);
    if (taken) {
        nd_broker_produce(h->options.broker, &group->produce);
    } else {
        nd_admission_release(&batch);
    }
    nd_handlers_leave(h);
    return taken ? ND_OK : ND_ERR_CANCELLED;
}

/* CANCELLED: the stream ends, and its end is the answer. */
static enum nd_err submit(struct produce_stream *s, const struct nd_topic *topic, struct bundle *b,
                          struct nd_errmsg *msg)
{
    struct nd_handlers *h = s->base.handlers;
    size_t held = place_bytes(b->items_count, b->records_count);
    size_t charge = b->bytes + held;
    if (!nd_budget_take_hard(&h->produce, charge)) {
        nd_budget_errmsg(&h->produce, h->produce.hard, msg);
        return ND_ERR_OVERLOADED;
    }
    struct group *group = group_new(s, b->items_count);
    for (uint32_t i = 0; i < b->items_count; i++) {
        group->items[group->items_count++] =
            (struct group_item){.id = b->items[i].id, .count = b->items[i].count};
    }
    group->charged = b->bytes;
    group->held = held;
    enum nd_err err = begin_items(group, b, msg);
    if (err == ND_OK) {
        err = hand_over(s, topic, b, group, msg);
        if (err != ND_OK) {
            undo_items(group, b);
        }
    }
    if (err != ND_OK) {
        nd_budget_give(&h->produce, charge);
        nd_free(group);
    }
    return err;
}

/* All together, and one by one when together they are refused, so that each has its own answer. */
static void submit_bundle(struct produce_stream *s, const struct nd_topic *topic, struct bundle *b)
{
    struct nd_errmsg msg = {""};
    enum nd_err err = submit(s, topic, b, &msg);
    if (err == ND_OK || err == ND_ERR_CANCELLED) {
        return;
    }
    if (b->items_count == 1) {
        refuse_item(s, &b->items[0], err, msg.text, b->retry_after_ms);
        return;
    }
    for (uint32_t i = 0; i < b->items_count; i++) {
        const struct nd_wire_batch *item = &b->items[i];
        struct bundle one = {item, 1, item->records, item->count, item->bytes, 0};
        msg.text[0] = '\0';
        err = submit(s, topic, &one, &msg);
        if (err != ND_OK && err != ND_ERR_CANCELLED) {
            refuse_item(s, item, err, msg.text, one.retry_after_ms);
        }
    }
}

/* How many items from `items` on go together: same topic (only the first may name one), within a
 * batch. */
static uint32_t bundle_end(const struct nd_wire_batch *items, uint32_t count, uint32_t *records)
{
    size_t bytes = items[0].bytes;
    uint32_t n = 1;
    *records = items[0].count;
    while (items[0].count > 0 && n < count && items[n].err == ND_OK &&
           (items[n].topic.size == 0 || nd_slice_equal(items[n].topic, items[0].topic)) &&
           items[n].count > 0 && *records + items[n].count <= ND_BATCH_COUNT_MAX &&
           bytes + items[n].bytes <= GROUP_BYTES_MAX) {
        bytes += items[n].bytes;
        *records += items[n++].count;
    }
    return n;
}

static void take_name(struct produce_stream *s, struct nd_slice name)
{
    if (name.size > 0) {
        /* One that is too long stays too long, and is refused as such. */
        s->topic_size = ND_MIN(name.size, sizeof s->topic);
        memcpy(s->topic, name.data, s->topic_size);
    }
}

static void refuse_items(struct produce_stream *s, const struct bundle *b, enum nd_err err,
                         const char *text)
{
    for (uint32_t i = 0; i < b->items_count; i++) {
        refuse_item(s, &b->items[i], err, text, 0);
    }
}

/* The records of all items in one array. False: no room in the arena. */
static bool gather_records(struct produce_stream *s, struct bundle *b)
{
    uint32_t filled = 0;
    b->records = b->items[0].records;
    if (b->items_count > 1) {
        b->records =
            nd_arena_alloc(nd_rpc_call_arena(s->base.call), b->records_count * sizeof *b->records);
    }
    if (b->records == NULL && b->records_count > 0) {
        return false;
    }
    for (uint32_t i = 0; i < b->items_count; i++) {
        const struct nd_wire_batch *item = &b->items[i];
        if (b->items_count > 1 && item->count > 0) {
            memcpy(b->records + filled, item->records, item->count * sizeof *b->records);
        }
        filled += item->count;
        b->bytes += item->bytes;
    }
    return true;
}

static void take_items(struct produce_stream *s, const struct nd_wire_batch *items, uint32_t count)
{
    for (uint32_t at = 0; at < count;) {
        struct nd_errmsg msg = {""};
        struct nd_topic *topic;
        take_name(s, items[at].topic);
        if (items[at].err != ND_OK) {
            refuse_item(s, &items[at], items[at].err, items[at].text, 0);
            at++;
            continue;
        }
        struct bundle b = {.items = items + at};
        b.items_count = bundle_end(items + at, count - at, &b.records_count);
        at += b.items_count;
        struct nd_slice name = nd_slice_make(s->topic, s->topic_size);
        enum nd_err err = nd_access_check(s->base.call, name, &msg);
        if (err == ND_OK) {
            err = nd_handlers_topic(s->base.handlers, name, &topic, &msg);
        }
        if (err != ND_OK) {
            refuse_items(s, &b, err, msg.text);
            continue;
        }
        if (gather_records(s, &b)) {
            submit_bundle(s, topic, &b);
        } else {
            refuse_items(s, &b, ND_ERR_NO_MEMORY, NULL);
        }
        nd_topic_unref(topic);
    }
}

static void on_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct produce_stream *s = ND_CONTAINER_OF(nd_stream_of(call), struct produce_stream, base);
    struct nd_wire_batch *items;
    uint32_t count;
    enum nd_err err = nd_wire_get_items(message, nd_rpc_call_arena(call), &items, &count);
    switch (err) {
    case ND_OK: take_items(s, items, count); break;
    case ND_ERR_TOO_LARGE: (void)nd_stream_takes(&s->base, "items", count); return;
    case ND_ERR_NO_MEMORY:
        nd_stream_end(&s->base, false, ND_ERR_NO_MEMORY, "the message is too many small pieces");
        return;
    default:
        nd_stream_end(&s->base, false, ND_ERR_INVALID_ARGUMENT,
                      "the message is not a valid narad.v1.ProduceStreamRequest");
        return;
    }
    nd_stream_read_next(&s->base);
}

static void release(struct nd_stream *stream)
{
    nd_free(ND_CONTAINER_OF(stream, struct produce_stream, base));
}

static const struct nd_stream_ops ops = {.release = release};

static void on_open(struct nd_rpc_call *call)
{
    struct produce_stream *s = nd_xcalloc(1, sizeof *s);
    nd_list_init(&s->groups);
    nd_stream_open(&s->base, call, &ops, &nd_handlers_of(call)->produce);
}

const struct nd_rpc_method nd_rpc_produce_stream = {
    .path = "/narad.v1.Broker/ProduceStream",
    .kind = ND_RPC_BIDI,
    .message_bytes_max = 20 << 20,
    .on_open = on_open,
    .on_message = on_message,
    .on_half_close = nd_stream_on_half_close,
    .on_drained = nd_stream_on_drained,
    .on_cancel = nd_stream_on_cancel,
    .on_done = nd_stream_on_done,
    .manual_read = true,
    .right = ND_RIGHT_PRODUCE,
};
