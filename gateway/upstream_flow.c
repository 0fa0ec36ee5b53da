/* One stream of a set: its queue, what is in flight, which answer is whose. */
#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

#include "gateway/upstream_impl.h"

static const char *const paths[ND_FLOW_KINDS] = {
    [ND_FLOW_PRODUCE] = "/narad.v1.Broker/ProduceStream",
    [ND_FLOW_POLL] = "/narad.v1.Broker/ConsumeStream",
    [ND_FLOW_ACK] = "/narad.v1.Broker/AckStream",
};

enum { VARINT_MAX = 10 };

void nd_flow_init(struct nd_flow *flow, enum nd_flow_kind kind, struct nd_upstream_set *set)
{
    flow->kind = kind;
    flow->set = set;
    nd_list_init(&flow->queue);
    nd_list_init(&flow->open);
}

/* --- packing: elements of field 1, so that items one after the other are a message --- */

static size_t varint_put(uint8_t *at, uint64_t value)
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) {
        at[size++] = (uint8_t)(value | 0x80);
    }
    at[size++] = (uint8_t)value;
    return size;
}

struct nd_packed *nd_pack_item(const ProtobufCMessage *message)
{
    size_t body = protobuf_c_message_get_packed_size(message);
    struct nd_packed *packed = nd_malloc(sizeof *packed + 1 + VARINT_MAX + body);
    if (packed == NULL) {
        return NULL;
    }
    nd_list_init(&packed->link);
    packed->op = NULL;
    packed->bytes[0] = 1 << 3 | 2;
    size_t head = 1 + varint_put(packed->bytes + 1, body);
    packed->size = head + protobuf_c_message_pack(message, packed->bytes + head);
    return packed;
}

/* --- sending --- */

/* What goes out as one message. */
struct outgoing {
    struct nd_list items; /* of struct nd_packed */
    size_t bytes;
    uint64_t *cancels;
    size_t cancels_count;
};

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice message);
static void on_drained(void *data, struct nd_rpc_stream *stream);
static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status);

static const struct nd_rpc_stream_events events = {on_message, on_drained, on_done};

static void open_locked(struct nd_upstream *upstream, struct nd_flow *flow)
    ND_REQUIRES(upstream->lock)
{
    struct nd_rpc_metadata metadata[ND_UPSTREAM_METADATA_MAX];
    struct nd_rpc_call_options options = {.metadata = metadata};
    options.metadata_count =
        nd_upstream_metadata(metadata, flow->set->authorization, flow->set->address);
    flow->stream =
        nd_rpc_stream_open_with(upstream->channel, paths[flow->kind], &options, &events, flow);
}

static void take_locked(struct nd_upstream *upstream, struct nd_flow *flow, struct outgoing *out)
    ND_REQUIRES(upstream->lock)
{
    size_t count = 0;
    while (!nd_list_empty(&flow->queue) && count < ND_FLOW_MESSAGE_ITEMS) {
        struct nd_packed *packed =
            ND_CONTAINER_OF(nd_list_first(&flow->queue), struct nd_packed, link);
        if (count > 0 && out->bytes + packed->size > ND_FLOW_MESSAGE_BYTES) {
            break;
        }
        nd_list_remove(&packed->link);
        nd_list_append(&out->items, &packed->link);
        packed->op->packed = NULL;
        packed->op = NULL;
        out->bytes += packed->size;
        count++;
    }
    upstream->queued -= out->bytes;
    if (nd_list_empty(&flow->queue)) { /* else a cancel could be earlier than its poll */
        out->cancels = flow->cancels;
        out->cancels_count = flow->cancels_count;
        flow->cancels = NULL;
        flow->cancels_count = flow->cancels_capacity = 0;
    }
}

/* The ids as a packed field 2; returns the bytes. */
static size_t put_cancels(uint8_t *at, const uint64_t *ids, size_t count)
{
    uint8_t *list = nd_xmalloc(count * VARINT_MAX);
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += varint_put(list + size, ids[i]);
    }
    at[0] = 2 << 3 | 2;
    size_t head = 1 + varint_put(at + 1, size);
    memcpy(at + head, list, size);
    nd_free(list);
    return head + size;
}

/* Gives up what `out` holds. A lone item is not copied once more. */
static void send_message(struct nd_rpc_stream *stream, struct outgoing *out)
{
    struct nd_list *first = nd_list_first(&out->items);
    if (first != NULL && first->next == &out->items && out->cancels_count == 0) {
        struct nd_packed *packed =
            ND_CONTAINER_OF(nd_list_pop(&out->items), struct nd_packed, link);
        (void)nd_rpc_stream_send_bytes(stream, nd_slice_make(packed->bytes, packed->size));
        nd_free(packed);
        nd_free(out->cancels);
        return;
    }
    size_t room = out->bytes + 1 + VARINT_MAX + out->cancels_count * VARINT_MAX, size = 0;
    uint8_t *bytes = nd_xmalloc(room); /* bounded by ND_FLOW_MESSAGE_BYTES, and 20 bytes a poll */
    for (struct nd_list *link; (link = nd_list_pop(&out->items)) != NULL;) {
        struct nd_packed *packed = ND_CONTAINER_OF(link, struct nd_packed, link);
        memcpy(bytes + size, packed->bytes, packed->size);
        size += packed->size;
        nd_free(packed);
    }
    if (out->cancels_count > 0) {
        size += put_cancels(bytes + size, out->cancels, out->cancels_count);
    }
    (void)nd_rpc_stream_send_bytes(stream, nd_slice_make(bytes, size));
    nd_free(bytes);
    nd_free(out->cancels);
}

/* The next message, if there is something to send and none in flight. Gives the lock back. */
static void pump(struct nd_upstream *upstream, struct nd_flow *flow) ND_RELEASE(upstream->lock)
{
    if (flow->writing || (nd_list_empty(&flow->queue) && flow->cancels_count == 0)) {
        nd_mutex_unlock(&upstream->lock);
        return;
    }
    if (flow->stream == NULL) {
        open_locked(upstream, flow);
    }
    struct outgoing out = {.bytes = 0};
    struct nd_rpc_stream *stream = flow->stream;
    nd_list_init(&out.items);
    take_locked(upstream, flow, &out);
    flow->writing = true;
    nd_rpc_stream_ref(stream); /* it may end as soon as the lock is given back */
    nd_mutex_unlock(&upstream->lock);
    send_message(stream, &out);
    nd_rpc_stream_unref(stream);
}

void nd_flow_push(struct nd_upstream *upstream, struct nd_flow *flow, struct nd_upstream_op *op,
                  struct nd_packed *packed)
{
    op->flow = flow;
    op->packed = packed;
    packed->op = op;
    nd_list_append(&flow->open, &op->link);
    nd_list_append(&flow->queue, &packed->link);
    upstream->queued += packed->size;
    flow->set->used_ns = nd_upstream_now_ns();
    pump(upstream, flow);
}

void nd_flow_cancel(struct nd_upstream *upstream, struct nd_flow *flow, uint64_t id)
{
    if (flow->cancels_count == flow->cancels_capacity) {
        flow->cancels_capacity = ND_MAX((size_t)16, 2 * flow->cancels_capacity);
        flow->cancels = nd_xrealloc(flow->cancels, flow->cancels_capacity * sizeof *flow->cancels);
    }
    flow->cancels[flow->cancels_count++] = id;
    pump(upstream, flow);
}

/* --- events. @thread the channel's --- */

static void on_drained(void *data, struct nd_rpc_stream *stream)
{
    struct nd_flow *flow = data;
    struct nd_upstream *upstream = flow->set->upstream;
    nd_mutex_lock(&upstream->lock);
    flow->writing = flow->writing && flow->stream != stream;
    pump(upstream, flow);
}

static void answer(struct nd_upstream *upstream, uint64_t id,
                   const struct nd_upstream_status *status, const void *reply)
{
    nd_mutex_lock(&upstream->lock);
    struct nd_upstream_op *op = nd_upstream_take_locked(upstream, id);
    if (op != NULL && op->flow != NULL) {
        op->flow->set->used_ns = nd_upstream_now_ns();
    }
    nd_mutex_unlock(&upstream->lock);
    if (op != NULL) {
        nd_upstream_op_end(op, status, reply);
    }
}

#define EACH_RESULT(upstream, message, retry_ms)                                                   \
    for (size_t i = 0; i < (message)->n_results; i++) {                                            \
        struct nd_upstream_status status = {                                                       \
            (int)(message)->results[i]->code,                                                      \
            nd_upstream_err((int)(message)->results[i]->code, (message)->results[i]->reason),      \
            (message)->results[i]->error, retry_ms};                                               \
        answer(upstream, (message)->results[i]->id, &status, (message)->results[i]);               \
    }

/* False: the bytes are not what the stream carries. */
static bool take_results(struct nd_upstream *upstream, enum nd_flow_kind kind,
                         struct nd_slice bytes)
{
    switch (kind) {
    case ND_FLOW_PRODUCE: {
        const Narad__V1__ProduceStreamResponse *m =
            nd_upstream_decode(upstream, &narad__v1__produce_stream_response__descriptor, bytes);
        if (m == NULL) {
            return false;
        }
        EACH_RESULT(upstream, m, m->results[i]->retry_after_ms)
        return true;
    }
    case ND_FLOW_POLL: {
        const Narad__V1__ConsumeStreamResponse *m =
            nd_upstream_decode(upstream, &narad__v1__consume_stream_response__descriptor, bytes);
        if (m == NULL) {
            return false;
        }
        EACH_RESULT(upstream, m, m->results[i]->retry_after_ms)
        return true;
    }
    case ND_FLOW_ACK: {
        const Narad__V1__AckStreamResponse *m =
            nd_upstream_decode(upstream, &narad__v1__ack_stream_response__descriptor, bytes);
        if (m == NULL) {
            return false;
        }
        EACH_RESULT(upstream, m, 0) /* acks are not limited */
        return true;
    }
    case ND_FLOW_KINDS: break;
    }
    ND_UNREACHABLE();
}

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice message)
{
    struct nd_flow *flow = data;
    struct nd_upstream *upstream = flow->set->upstream;
    if (!take_results(upstream, flow->kind, message)) {
        nd_log(upstream->options.log, ND_LOG_ERROR, "gateway",
               "answer of the broker not understood", "stream=%s bytes=%zu", paths[flow->kind],
               message.size);
        nd_rpc_stream_cancel(stream);
    }
}

void nd_flow_fail(struct nd_list *ops, const struct nd_upstream_status *status)
{
    for (struct nd_list *link; (link = nd_list_pop(ops)) != NULL;) {
        struct nd_upstream_op *op = ND_CONTAINER_OF(link, struct nd_upstream_op, link);
        nd_upstream_op_end(op, status, NULL);
    }
}

static void drop_packed(struct nd_upstream *upstream, struct nd_upstream_op *op)
{
    if (op->packed != NULL) {
        nd_list_remove(&op->packed->link);
        upstream->queued -= op->packed->size;
        nd_free(op->packed);
        op->packed = NULL;
    }
}

/* All that is open on the flow, by whether the broker may have seen it. */
static void take_all_locked(struct nd_upstream *upstream, struct nd_flow *flow,
                            struct nd_list *sent, struct nd_list *unsent)
    ND_REQUIRES(upstream->lock)
{
    for (struct nd_list *link; (link = nd_list_first(&flow->open)) != NULL;) {
        struct nd_upstream_op *op = ND_CONTAINER_OF(link, struct nd_upstream_op, link);
        struct nd_list *to = op->packed == NULL ? sent : unsent;
        drop_packed(upstream, op);
        ND_ASSERT(nd_upstream_take_locked(upstream, op->id) == op);
        nd_list_append(to, link);
    }
    nd_free(flow->cancels);
    flow->cancels = NULL;
    flow->cancels_count = flow->cancels_capacity = 0;
}

static bool has_stream(const struct nd_upstream_set *set)
{
    for (int i = 0; i < ND_FLOW_KINDS; i++) {
        if (set->flows[i].stream != NULL) {
            return true;
        }
    }
    return false;
}

static void drop_set_locked(struct nd_upstream *upstream, struct nd_upstream_set *set)
    ND_REQUIRES(upstream->lock)
{
    if (set->listed) {
        (void)nd_map_remove(upstream->sets, nd_slice_str(set->authorization));
    }
    nd_free_secret(set->authorization);
    nd_free(set);
}

static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    struct nd_flow *flow = data;
    struct nd_upstream_set *set = flow->set;
    struct nd_upstream *upstream = set->upstream;
    struct nd_list sent = ND_LIST_INIT(sent), unsent = ND_LIST_INIT(unsent);
    bool named = status->reason[0] != '\0';
    (void)stream;
    nd_mutex_lock(&upstream->lock);
    bool ended = upstream->ended;
    flow->stream = NULL;
    flow->writing = false;
    take_all_locked(upstream, flow, &sent, &unsent);
    if (!has_stream(set)) {
        drop_set_locked(upstream, set);
    }
    nd_mutex_unlock(&upstream->lock);
    struct nd_upstream_status end = {status->code, nd_upstream_err(status->code, status->reason),
                                     status->text, status->retry_after_ms};
    if (status->code == 0 || ended || (!named && end.err == ND_ERR_CANCELLED)) {
        end = (struct nd_upstream_status){
            14, ND_ERR_UNAVAILABLE,
            ended ? "the gateway is stopping" : "the broker ended the stream", 0};
    }
    nd_flow_fail(&unsent, &end);
    if (!named && end.err == ND_ERR_UNAVAILABLE) {
        end.err = ND_ERR_UNKNOWN_OUTCOME;
    }
    nd_flow_fail(&sent, &end);
}

void nd_flow_expire_locked(struct nd_flow *flow, uint64_t now_ns, struct nd_list *expired)
{
    struct nd_upstream *upstream = flow->set->upstream;
    ND_LIST_FOREACH (&flow->open, link) {
        struct nd_upstream_op *op = ND_CONTAINER_OF(link, struct nd_upstream_op, link);
        if (op->deadline_ns > now_ns) {
            if (flow->kind == ND_FLOW_POLL) {
                continue; /* a later one may wait for less */
            }
            return;
        }
        drop_packed(upstream, op);
        (void)nd_map_remove_u64(upstream->ops, op->id);
        nd_list_remove(link);
        nd_list_append(expired, link);
    }
}
