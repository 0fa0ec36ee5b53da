#include "server/rpc/handlers.h"

#include <stdio.h>
#include <time.h>

#include "storage/base/alloc.h"

#include "proto/narad/v1/admin.nd.h"
#include "proto/narad/v1/bench.nd.h"
#include "proto/narad/v1/broker.nd.h"
#include "proto/narad/v1/types.nd.h"
#include "server/rpc/caller.h"
#include "server/rpc/stream.h"
#include "server/rpc/wire.h"

/* T1. A stream is not read while its budget is full, but what was being read when it filled still
 * comes: the hard limits leave room for that, and only beyond them an item of a stream is refused.
 * All hard limits together stay below what the log stages (96 MiB, node.c). */
enum {
    PRODUCE_BYTES = 24 << 20,
    PRODUCE_BYTES_HARD = 64 << 20,
    SETTLE_BYTES = 8 << 20,
    SETTLE_BYTES_HARD = 12 << 20,
    POLLS = 65536,
    REPLAYS = 1024,
    ADMIN_CALLS = 256,
    ADMIN_CALLS_HARD = 320,
    /* What a stock client receives in one message, less room for framing. */
    ANSWER_BYTES = (4 << 20) - (16 << 10),
};

static const struct nd_rpc_method *const methods[] = {
    &nd_rpc_produce,
    &nd_rpc_produce_stream,
    &nd_rpc_consume,
    &nd_rpc_consume_stream,
    &nd_rpc_subscribe,
    &nd_rpc_ack,
    &nd_rpc_ack_stream,
    &nd_rpc_replay,
    &nd_rpc_create_topic,
    &nd_rpc_get_topic,
    &nd_rpc_list_topics,
    &nd_rpc_alter_topic,
    &nd_rpc_delete_topic,
    &nd_rpc_metrics,
    &nd_rpc_version,
    &nd_rpc_create_user,
    &nd_rpc_get_user,
    &nd_rpc_list_users,
    &nd_rpc_delete_user,
    &nd_rpc_set_grants,
    &nd_rpc_set_password,
    &nd_rpc_check_access,
    /* only with --dev */
    &nd_rpc_bench_produce,
    &nd_rpc_bench_produce_stream,
};
enum { DEV_METHODS = 2 };

static const struct nd_rpc_file *const files[] = {
    &narad_v1_types_file,
    &narad_v1_broker_file,
    &narad_v1_admin_file,
    /* only with --dev */
    &narad_v1_bench_file,
};

const struct nd_rpc_method *const *nd_handlers_methods(bool dev, size_t *count_out)
{
    *count_out = ND_ARRAY_SIZE(methods) - (dev ? 0 : DEV_METHODS);
    return methods;
}

const struct nd_rpc_file *const *nd_handlers_files(bool dev, size_t *count_out)
{
    *count_out = ND_ARRAY_SIZE(files) - (dev ? 0 : 1);
    return files;
}

struct nd_handlers *nd_handlers_new(const struct nd_handlers_options *options)
{
    struct nd_handlers *h = nd_xcalloc(1, sizeof *h);
    h->options = *options;
    nd_budget_init(&h->produce, "bytes of produce requests", PRODUCE_BYTES, PRODUCE_BYTES_HARD);
    nd_budget_init(&h->settles, "bytes of acks", SETTLE_BYTES, SETTLE_BYTES_HARD);
    nd_budget_init(&h->polls, "polls", POLLS, POLLS);
    nd_budget_init(&h->replays, "replays", REPLAYS, REPLAYS);
    nd_budget_init(&h->admin, "changes", ADMIN_CALLS, ADMIN_CALLS_HARD);
    h->callers = nd_caller_pool_new();
    nd_mutex_init(&h->lock);
    nd_list_init(&h->own_changes);
    nd_list_init(&h->streams);
    nd_list_init(&h->watched);
    for (size_t i = 0; i < ND_ARRAY_SIZE(methods); i++) {
        ND_ASSERT(methods[i]->right != ND_RIGHT_UNSET);
    }
    return h;
}

void nd_handlers_free(struct nd_handlers *handlers)
{
    if (handlers == NULL) {
        return;
    }
    ND_ASSERT(nd_list_empty(&handlers->streams) && nd_list_empty(&handlers->watched));
    nd_budget_release(&handlers->produce);
    nd_budget_release(&handlers->settles);
    nd_budget_release(&handlers->polls);
    nd_budget_release(&handlers->replays);
    nd_budget_release(&handlers->admin);
    nd_caller_pool_close(handlers->callers);
    nd_mutex_release(&handlers->lock);
    nd_free(handlers);
}

/* `stopping` and `inside` are a store-load pair on both sides: sequentially consistent. */
bool nd_handlers_enter(struct nd_handlers *handlers)
{
    atomic_fetch_add_explicit(&handlers->inside, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&handlers->stopping, memory_order_seq_cst)) {
        nd_handlers_leave(handlers);
        return false;
    }
    return true;
}

void nd_handlers_leave(struct nd_handlers *handlers)
{
    atomic_fetch_sub_explicit(&handlers->inside, 1, memory_order_seq_cst);
}

/* Once, at the stop: what is waited for takes microseconds (hand-overs) or one Raft write
 * (changes). */
static bool wait_zero(struct nd_handlers *h, uint32_t wait_ms)
{
    for (uint32_t i = 0; i <= wait_ms; i++) {
        if (atomic_load_explicit(&h->inside, memory_order_seq_cst) == 0 &&
            atomic_load_explicit(&h->admin.used, memory_order_seq_cst) == 0) {
            return true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

void nd_handlers_stop(struct nd_handlers *handlers, uint32_t wait_ms)
{
    atomic_store_explicit(&handlers->stopping, true, memory_order_seq_cst);
    if (!wait_zero(handlers, wait_ms)) {
        nd_log(handlers->options.log, ND_LOG_WARN, "rpc", "changes still open at stop",
               "admin_calls=%zu",
               atomic_load_explicit(&handlers->admin.used, memory_order_relaxed));
    }
    nd_streams_end(handlers, ND_ERR_UNAVAILABLE, "the node is stopping");
}

enum nd_err nd_handlers_topic(struct nd_handlers *handlers, struct nd_slice name,
                              struct nd_topic **out, struct nd_errmsg *msg)
{
    enum nd_err err = nd_metastore_topic(handlers->options.metastore, name, out);
    if (err == ND_OK) {
        return ND_OK;
    }
    if (name.size == 0) {
        nd_errmsg_set(msg, "topic: a name is required");
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (nd_topic_name_check(name, msg) != ND_OK) {
        return ND_ERR_INVALID_ARGUMENT;
    }
    nd_errmsg_set(msg, "%s: \"%.*s\"",
                  err == ND_ERR_UNAVAILABLE ? "the metadata of this node has not caught up yet"
                                            : nd_err_text(err),
                  (int)name.size, (const char *)name.data);
    return err;
}

enum nd_err nd_handlers_partition(const struct nd_topic *topic, uint32_t partition,
                                  struct nd_errmsg *msg)
{
    if (partition < topic->partitions) {
        return ND_OK;
    }
    nd_errmsg_set(msg, "partition out of range: %u, the topic has partitions 0 to %u", partition,
                  topic->partitions - 1);
    return ND_ERR_INVALID_ARGUMENT;
}

void nd_call_fail(struct nd_rpc_call *call, enum nd_err err, const struct nd_errmsg *msg)
{
    nd_rpc_call_fail(call, err, msg == NULL ? NULL : msg->text);
}

void nd_topic_errmsg(struct nd_handlers *handlers, enum nd_err err, const struct nd_topic *topic,
                     int32_t partition, struct nd_errmsg *msg)
{
    if (err == ND_ERR_TOPIC_NOT_FOUND) { /* deleted meanwhile */
        nd_errmsg_set(msg, "%s: \"%s\"", nd_err_text(err), topic->name);
    } else if (err != ND_ERR_UNAVAILABLE) {
        return;
    } else if (atomic_load_explicit(&handlers->stopping, memory_order_seq_cst)) {
        nd_errmsg_set(msg, "the node is stopping");
    } else if (partition == ND_PARTITION_ANY) {
        nd_errmsg_set(msg, "%s: \"%s\"", nd_err_text(err), topic->name);
    } else {
        nd_errmsg_set(msg, "%s: partition %d of \"%s\"", nd_err_text(err), partition, topic->name);
    }
}

void nd_call_fail_topic(struct nd_rpc_call *call, enum nd_err err, const struct nd_topic *topic,
                        int32_t partition)
{
    struct nd_errmsg msg = {""};
    nd_topic_errmsg(nd_handlers_of(call), err, topic, partition, &msg);
    nd_call_fail(call, err, &msg);
}

void nd_call_refuse_budget(struct nd_rpc_call *call, const struct nd_budget *budget)
{
    struct nd_errmsg msg;
    nd_budget_errmsg(budget, budget->soft, &msg);
    nd_rpc_call_fail(call, ND_ERR_OVERLOADED, msg.text);
}

void nd_call_refuse_stopping(struct nd_rpc_call *call)
{
    nd_rpc_call_fail(call, ND_ERR_UNAVAILABLE, "the node is stopping");
}

const void *nd_call_decode(struct nd_rpc_call *call, const ProtobufCMessageDescriptor *type,
                           struct nd_slice request)
{
    const void *message = nd_rpc_call_decode(call, type, request);
    if (message == NULL) {
        nd_call_refuse_bytes(call, type->short_name);
    }
    return message;
}

void nd_call_refuse_bytes(struct nd_rpc_call *call, const char *type)
{
    char text[128];
    snprintf(text, sizeof text, "the request is not a valid narad.v1.%s message", type);
    nd_rpc_call_fail(call, ND_ERR_INVALID_ARGUMENT, text);
}

void nd_call_reply_bytes(struct nd_rpc_call *call, uint8_t *bytes, size_t size)
{
    nd_rpc_call_reply_bytes(call, nd_slice_make(bytes, size), nd_free, bytes);
}

struct nack {
    struct nd_settle settle;
    struct nd_handlers *handlers;
    struct nd_settle_item items[];
};

static void nacked(struct nd_settle *settle)
{
    nd_free(settle->data);
}

void nd_handlers_nack(struct nd_handlers *handlers, const struct nd_topic *topic,
                      const struct nd_delivery *deliveries, uint32_t count)
{
    /* A stopping node forgets its leases anyway, and its broker takes nothing any more. */
    if (count == 0 || !nd_handlers_enter(handlers)) {
        return;
    }
    struct nack *nack = nd_xcalloc(1, sizeof *nack + count * sizeof nack->items[0]);
    for (uint32_t i = 0; i < count; i++) {
        nack->items[i] = (struct nd_settle_item){.offset = deliveries[i].offset,
                                                 .nonce = deliveries[i].nonce,
                                                 .partition = deliveries[i].partition,
                                                 .action = ND_SETTLE_NACK};
    }
    nack->settle = (struct nd_settle){.topic = nd_topic_ref(topic),
                                      .items = nack->items,
                                      .count = count,
                                      .done = nacked,
                                      .data = nack};
    nd_broker_settle(handlers->options.broker, &nack->settle);
    nd_handlers_leave(handlers);
}

uint32_t nd_deliveries_fit(const struct nd_delivery *deliveries, uint32_t count)
{
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++) {
        size += nd_wire_put_message(NULL, 4, &deliveries[i]);
        if (size > ANSWER_BYTES && i > 0) {
            return i;
        }
    }
    return count;
}

size_t nd_deliveries_bytes(const struct nd_delivery *deliveries, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += deliveries[i].record.payload.size;
    }
    return bytes;
}
