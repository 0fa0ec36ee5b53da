#include "gateway/upstream.h"

#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/env.h"
#include "storage/base/wipe.h"

#include "gateway/upstream_impl.h"

enum {
    SETS_MAX = 256,
    IDLE_MS = 30000,
    DEADLINE_MS = 30000,
    SWEEP_MS_MAX = 1000,
    DECODED_BYTES_MAX = 256 << 20,
};

uint64_t nd_upstream_now_ns(void)
{
    const struct nd_env *env = nd_env_posix();
    return env->mono_ns(env->impl);
}

/* --- operations --- */

enum nd_err nd_upstream_err(int code, const char *reason)
{
    static const enum nd_err by_code[] = {
        [1] = ND_ERR_CANCELLED,       [3] = ND_ERR_INVALID_ARGUMENT, [4] = ND_ERR_DEADLINE,
        [5] = ND_ERR_NOT_FOUND,       [6] = ND_ERR_ALREADY_EXISTS,   [7] = ND_ERR_PERMISSION_DENIED,
        [8] = ND_ERR_OVERLOADED,      [9] = ND_ERR_CONFLICT,         [11] = ND_ERR_GONE,
        [12] = ND_ERR_UNSUPPORTED,    [14] = ND_ERR_UNAVAILABLE,     [15] = ND_ERR_CORRUPT,
        [16] = ND_ERR_UNAUTHENTICATED};
    if (code == 0) {
        return ND_OK;
    }
    if (reason != NULL && reason[0] != '\0') {
        enum nd_err err = nd_err_by_name(reason);
        return err == ND_OK ? ND_ERR_INTERNAL : err; /* an error that says it is none */
    }
    enum nd_err err = code > 0 && (size_t)code < ND_ARRAY_SIZE(by_code) ? by_code[code] : ND_OK;
    return err == ND_OK ? ND_ERR_INTERNAL : err;
}

struct nd_upstream_op *nd_upstream_op_new(struct nd_upstream *upstream, nd_upstream_done_fn *done,
                                          void *arg)
{
    struct nd_upstream_op *op = nd_xcalloc(1, sizeof *op);
    nd_list_init(&op->link);
    /* relaxed: only different from all others */
    op->id = 1 + atomic_fetch_add_explicit(&upstream->ids, 1, memory_order_relaxed);
    op->done = done;
    op->arg = arg;
    op->deadline_ns =
        nd_upstream_now_ns() + (uint64_t)upstream->options.deadline_ms * UINT64_C(1000000);
    return op;
}

void nd_upstream_op_end(struct nd_upstream_op *op, const struct nd_upstream_status *status,
                        const void *reply)
{
    op->done(op->arg, status, reply);
    nd_free(op);
}

struct nd_upstream_op *nd_upstream_take_locked(struct nd_upstream *upstream, uint64_t id)
{
    struct nd_upstream_op *op = nd_map_remove_u64(upstream->ops, id);
    if (op != NULL) {
        nd_list_remove(&op->link);
    }
    return op;
}

/* Something that never got on its way. It ends on the channel's thread as all do. */
struct refusal {
    struct nd_upstream_op *op;
    enum nd_err err;
    const char *text;
};

static void refusal_run(void *data)
{
    struct refusal *refusal = data;
    struct nd_upstream_status status = {nd_err_grpc_status(refusal->err), refusal->err,
                                        refusal->text, 0};
    nd_upstream_op_end(refusal->op, &status, NULL);
    nd_free(refusal);
}

void nd_upstream_refuse(struct nd_upstream *upstream, struct nd_upstream_op *op, enum nd_err err,
                        const char *text)
{
    struct refusal *refusal = nd_xcalloc(1, sizeof *refusal);
    *refusal = (struct refusal){op, err, text};
    nd_rpc_channel_post(upstream->channel, refusal_run, refusal);
}

/* --- decoding --- */

static void *arena_alloc(void *arena, size_t size)
{
    return nd_arena_alloc(arena, size);
}

static void arena_free(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer;
}

const void *nd_upstream_decode(struct nd_upstream *upstream, const ProtobufCMessageDescriptor *type,
                               struct nd_slice bytes)
{
    ProtobufCAllocator allocator = {arena_alloc, arena_free, &upstream->arena};
    nd_arena_reset(&upstream->arena);
    return protobuf_c_message_unpack(type, &allocator, bytes.size, bytes.data);
}

/* --- sets --- */

char *nd_upstream_authorization(struct nd_slice header)
{
    bool good = header.data != NULL && header.size <= ND_AUTHORIZATION_MAX;
    for (size_t i = 0; good && i < header.size; i++) {
        good = header.data[i] >= 0x20 && header.data[i] < 0x7f;
    }
    size_t size = good ? header.size : 0;
    char *value = nd_xmalloc(size + 1); /* in place: asprintf would leave parts */
    if (size > 0) {
        memcpy(value, header.data, size);
    }
    value[size] = '\0';
    return value;
}

size_t nd_upstream_metadata(struct nd_rpc_metadata out[ND_UPSTREAM_METADATA_MAX],
                            const char *authorization, const char *address)
{
    size_t count = 0;
    if (authorization[0] != '\0') {
        out[count++] = (struct nd_rpc_metadata){"authorization", authorization};
    }
    if (address[0] != '\0') {
        out[count++] = (struct nd_rpc_metadata){ND_CLIENT_ADDRESS, address};
    }
    return count;
}

static void sweep(void *data);

static void sweep_later_locked(struct nd_upstream *upstream) ND_REQUIRES(upstream->lock)
{
    if (!upstream->sweeping && !upstream->ended && nd_map_count(upstream->sets) > 0) {
        uint32_t shortest = ND_MIN(upstream->options.idle_ms, upstream->options.deadline_ms);
        upstream->sweeping = true;
        nd_rpc_channel_post_after(upstream->channel,
                                  ND_MAX(1u, ND_MIN((uint32_t)SWEEP_MS_MAX, shortest / 4)), sweep,
                                  upstream);
    }
}

static bool is_idle(const struct nd_upstream_set *set, uint64_t now_ns)
{
    uint64_t idle_ns = (uint64_t)set->upstream->options.idle_ms * UINT64_C(1000000);
    for (int i = 0; i < ND_FLOW_KINDS; i++) {
        if (!nd_list_empty(&set->flows[i].open)) {
            return false;
        }
    }
    return now_ns - set->used_ns >= idle_ns;
}

/* It ends once its streams have. */
static void half_close(struct nd_upstream_set *set)
{
    for (int i = 0; i < ND_FLOW_KINDS; i++) {
        if (set->flows[i].stream != NULL) {
            nd_rpc_stream_half_close(set->flows[i].stream);
        }
    }
}

/* Operations that waited too long end, sets without use close. @thread the channel's */
static void sweep(void *data)
{
    struct nd_upstream *upstream = data;
    struct nd_list expired = ND_LIST_INIT(expired);
    struct nd_slice key;
    void *value;
    size_t at = 0;
    uint64_t now_ns = nd_upstream_now_ns();
    nd_mutex_lock(&upstream->lock);
    upstream->sweeping = false;
    while (!upstream->ended && nd_map_next(upstream->sets, &at, &key, &value)) {
        struct nd_upstream_set *set = value;
        for (int i = 0; i < ND_FLOW_KINDS; i++) {
            nd_flow_expire_locked(&set->flows[i], now_ns, &expired);
        }
        if (is_idle(set, now_ns)) {
            (void)nd_map_remove(upstream->sets, key);
            set->listed = false;
            half_close(set);
        }
    }
    sweep_later_locked(upstream);
    nd_mutex_unlock(&upstream->lock);
    nd_flow_fail(&expired, &(struct nd_upstream_status){4, ND_ERR_UNKNOWN_OUTCOME,
                                                        "the broker did not answer in time", 0});
}

/* NULL: there are as many as there may be. */
static struct nd_upstream_set *set_locked(struct nd_upstream *upstream, const char *authorization)
    ND_REQUIRES(upstream->lock)
{
    struct nd_upstream_set *set = nd_map_get(upstream->sets, nd_slice_str(authorization));
    if (set != NULL || nd_map_count(upstream->sets) >= upstream->options.sets_max) {
        return set;
    }
    set = nd_xcalloc(1, sizeof *set);
    set->upstream = upstream;
    set->authorization = nd_xstrdup(authorization);
    set->listed = true;
    for (int i = 0; i < ND_FLOW_KINDS; i++) {
        nd_flow_init(&set->flows[i], (enum nd_flow_kind)i, set);
    }
    (void)nd_map_put(upstream->sets, nd_slice_str(authorization), set);
    sweep_later_locked(upstream);
    return set;
}

/* --- life --- */

enum nd_err nd_upstream_new(struct nd_upstream **out, const struct nd_upstream_options *options,
                            struct nd_errmsg *msg)
{
    struct nd_upstream *upstream = nd_xcalloc(1, sizeof *upstream);
    const struct nd_env *env = nd_env_posix();
    uint64_t seeds[2];
    upstream->options = *options;
    upstream->believed = strncmp(options->channel.target, "unix:", 5) == 0;
    upstream->options.sets_max = options->sets_max == 0 ? SETS_MAX : options->sets_max;
    upstream->options.idle_ms = options->idle_ms == 0 ? IDLE_MS : options->idle_ms;
    upstream->options.deadline_ms = options->deadline_ms == 0 ? DEADLINE_MS : options->deadline_ms;
    enum nd_err err = nd_rpc_channel_new(&upstream->channel, &options->channel, msg);
    if (err != ND_OK) {
        nd_free(upstream);
        return err;
    }
    env->random(env->impl, seeds, sizeof seeds);
    nd_mutex_init(&upstream->lock);
    nd_arena_init(&upstream->arena, DECODED_BYTES_MAX);
    upstream->sets = nd_map_new(seeds[0]);
    upstream->ops = nd_map_new(seeds[1]);
    *out = upstream;
    return ND_OK;
}

bool nd_upstream_tells_clients(const struct nd_upstream *upstream)
{
    return upstream->believed;
}

void nd_upstream_end(struct nd_upstream *upstream)
{
    struct nd_slice key;
    void *value;
    nd_mutex_lock(&upstream->lock);
    upstream->ended = true;
    for (size_t at = 0; nd_map_next(upstream->sets, &at, &key, &value);) {
        struct nd_upstream_set *set = value;
        for (int i = 0; i < ND_FLOW_KINDS; i++) {
            if (set->flows[i].stream != NULL) {
                nd_rpc_stream_cancel(set->flows[i].stream);
            }
        }
    }
    for (size_t at = 0; nd_map_next(upstream->ops, &at, &key, &value);) {
        struct nd_upstream_op *op = value;
        if (op->flow == NULL) {
            nd_upstream_single_cancel_locked(op);
        }
    }
    nd_mutex_unlock(&upstream->lock);
}

void nd_upstream_free(struct nd_upstream *upstream)
{
    if (upstream == NULL) {
        return;
    }
    nd_upstream_end(upstream);
    nd_rpc_channel_free(upstream->channel);
    ND_ASSERT(nd_map_count(upstream->ops) == 0 && nd_map_count(upstream->sets) == 0);
    nd_map_free(upstream->sets);
    nd_map_free(upstream->ops);
    nd_arena_release(&upstream->arena);
    nd_mutex_release(&upstream->lock);
    nd_free(upstream);
}

/* --- what goes over the shared streams --- */

/* Why nothing more may be taken, or NULL. */
static const char *reason_against_locked(const struct nd_upstream *upstream,
                                         const struct nd_packed *packed)
{
    if (upstream->ended) {
        return "the gateway is stopping";
    }
    bool fits = packed != NULL && packed->size <= ND_UPSTREAM_QUEUED_MAX - upstream->queued;
    return fits ? NULL : "too many bytes wait for the broker";
}

/* Into the flow of the caller's set. False: there are too many sets; the operation is the caller's
 * still. */
static bool submit(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                   enum nd_flow_kind kind, struct nd_upstream_op *op, const ProtobufCMessage *item)
{
    struct nd_packed *packed = nd_pack_item(item);
    char *value = nd_upstream_authorization(caller.authorization);
    nd_mutex_lock(&upstream->lock);
    const char *against = reason_against_locked(upstream, packed);
    struct nd_upstream_set *set = against == NULL ? set_locked(upstream, value) : NULL;
    nd_free_secret(value);
    if (set == NULL) {
        bool ended = upstream->ended;
        nd_mutex_unlock(&upstream->lock);
        nd_free(packed);
        if (against != NULL) {
            nd_upstream_refuse(upstream, op, ended ? ND_ERR_UNAVAILABLE : ND_ERR_OVERLOADED,
                               against);
        }
        return against != NULL;
    }
    (void)nd_map_put_u64(upstream->ops, op->id, op);
    snprintf(set->address, sizeof set->address, "%s", caller.address == NULL ? "" : caller.address);
    nd_flow_push(upstream, &set->flows[kind], op, packed);
    return true;
}

/* The answer of a call as the stream's item would be. */
struct adapter {
    nd_upstream_done_fn *done;
    void *arg;
};

static struct adapter *adapter_new(struct nd_upstream_op *op)
{
    struct adapter *adapter = nd_xcalloc(1, sizeof *adapter);
    *adapter = (struct adapter){op->done, op->arg};
    nd_free(op);
    return adapter;
}

/* All that an item's result has beside its status is one list, which the call's response has too.
 */
#define ADAPTER(name, response_type, result_type, result_init, list)                               \
    static void name(void *arg, const struct nd_upstream_status *status, const void *reply)        \
    {                                                                                              \
        struct adapter *adapter = arg;                                                             \
        const response_type *response = reply;                                                     \
        result_type result = result_init;                                                          \
        if (response != NULL) {                                                                    \
            result.n_##list = response->n_##list;                                                  \
            result.list = response->list;                                                          \
        }                                                                                          \
        adapter->done(adapter->arg, status, response == NULL ? NULL : &result);                    \
        nd_free(adapter);                                                                          \
    }

ADAPTER(produced, Narad__V1__ProduceResponse, Narad__V1__ProduceResult,
        NARAD__V1__PRODUCE_RESULT__INIT, placements)
ADAPTER(polled, Narad__V1__ConsumeResponse, Narad__V1__PollResult, NARAD__V1__POLL_RESULT__INIT,
        messages)
ADAPTER(acked, Narad__V1__AckResponse, Narad__V1__AckItemResult, NARAD__V1__ACK_ITEM_RESULT__INIT,
        results)

/* For an item: whose it is, where that is believed. */
static char *client_address(const struct nd_upstream *upstream, struct nd_upstream_caller caller)
{
    return nd_message_text(upstream->believed && caller.address != NULL ? caller.address : "");
}

void nd_upstream_produce(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                         const Narad__V1__ProduceRequest *request, nd_upstream_done_fn *done,
                         void *arg)
{
    static const struct nd_upstream_method method = {
        .path = "/narad.v1.Broker/Produce", .reply_type = &narad__v1__produce_response__descriptor};
    struct nd_upstream_op *op = nd_upstream_op_new(upstream, done, arg);
    Narad__V1__ProduceItem item = NARAD__V1__PRODUCE_ITEM__INIT;
    item.id = op->id;
    item.topic = request->topic;
    item.records = request->records;
    item.n_records = request->n_records;
    item.client_address = client_address(upstream, caller);
    if (!submit(upstream, caller, ND_FLOW_PRODUCE, op, &item.base)) {
        (void)nd_upstream_single(upstream, caller, &method, &request->base, produced,
                                 adapter_new(op));
    }
}

uint64_t nd_upstream_poll(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                          const Narad__V1__Poll *poll, nd_upstream_done_fn *done, void *arg)
{
    struct nd_upstream_op *op = nd_upstream_op_new(upstream, done, arg);
    Narad__V1__Poll item = *poll;
    uint64_t ticket = item.id = op->id;
    item.client_address = client_address(upstream, caller);
    op->poll = true;
    op->deadline_ns += (uint64_t)poll->wait_ms * UINT64_C(1000000);
    if (submit(upstream, caller, ND_FLOW_POLL, op, &item.base)) {
        return ticket;
    }
    Narad__V1__ConsumeRequest request = NARAD__V1__CONSUME_REQUEST__INIT;
    request.topic = poll->topic;
    request.max_messages = poll->max_messages;
    request.wait_ms = poll->wait_ms;
    if (poll->partition_choice_case == NARAD__V1__POLL__PARTITION_CHOICE_PARTITION) {
        request.partition_choice_case = NARAD__V1__CONSUME_REQUEST__PARTITION_CHOICE_PARTITION;
        request.partition = poll->partition;
    }
    struct nd_upstream_method method = {.path = "/narad.v1.Broker/Consume",
                                        .reply_type = &narad__v1__consume_response__descriptor,
                                        .poll = true,
                                        .wait_ms = poll->wait_ms};
    return nd_upstream_single(upstream, caller, &method, &request.base, polled, adapter_new(op));
}

static void cancel_locked(struct nd_upstream *upstream, struct nd_upstream_op *op)
    ND_RELEASE(upstream->lock)
{
    if (op->flow == NULL) {
        nd_upstream_single_cancel_locked(op);
        nd_mutex_unlock(&upstream->lock);
    } else {
        nd_flow_cancel(upstream, op->flow, op->id);
    }
}

void nd_upstream_poll_cancel(struct nd_upstream *upstream, uint64_t ticket)
{
    nd_mutex_lock(&upstream->lock);
    struct nd_upstream_op *op = nd_map_get_u64(upstream->ops, ticket);
    if (op == NULL) {
        nd_mutex_unlock(&upstream->lock);
    } else {
        cancel_locked(upstream, op);
    }
}

/* Ids are taken from the table first: giving the lock back between two cancels changes it. */
void nd_upstream_cancel_polls(struct nd_upstream *upstream)
{
    size_t at = 0, count = 0;
    void *value;
    struct nd_slice key;
    nd_mutex_lock(&upstream->lock);
    uint64_t *ids = nd_xcalloc(nd_map_count(upstream->ops) + 1, sizeof *ids);
    while (nd_map_next(upstream->ops, &at, &key, &value)) {
        struct nd_upstream_op *op = value;
        if (op->poll) {
            ids[count++] = op->id;
        }
    }
    nd_mutex_unlock(&upstream->lock);
    for (size_t i = 0; i < count; i++) {
        nd_upstream_poll_cancel(upstream, ids[i]);
    }
    nd_free(ids);
}

void nd_upstream_ack(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                     const Narad__V1__AckRequest *request, nd_upstream_done_fn *done, void *arg)
{
    static const struct nd_upstream_method method = {
        .path = "/narad.v1.Broker/Ack", .reply_type = &narad__v1__ack_response__descriptor};
    struct nd_upstream_op *op = nd_upstream_op_new(upstream, done, arg);
    Narad__V1__AckItem item = NARAD__V1__ACK_ITEM__INIT;
    item.id = op->id;
    item.topic = request->topic;
    item.settles = request->settles;
    item.n_settles = request->n_settles;
    if (!submit(upstream, caller, ND_FLOW_ACK, op, &item.base)) {
        (void)nd_upstream_single(upstream, caller, &method, &request->base, acked, adapter_new(op));
    }
}

/* --- calls --- */

void nd_upstream_replay(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                        const Narad__V1__ReplayRequest *request, nd_upstream_done_fn *done,
                        void *arg)
{
    static const struct nd_upstream_method method = {.path = "/narad.v1.Broker/Replay",
                                                     .reply_type =
                                                         &narad__v1__replay_response__descriptor,
                                                     .may_be_none = true};
    (void)nd_upstream_single(upstream, caller, &method, &request->base, done, arg);
}

void nd_upstream_call(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                      const struct nd_upstream_method *method, const ProtobufCMessage *request,
                      nd_upstream_done_fn *done, void *arg)
{
    (void)nd_upstream_single(upstream, caller, method, request, done, arg);
}
