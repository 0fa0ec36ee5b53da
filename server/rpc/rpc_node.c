/* Admin: what a node says: a topic with its statistics, metrics, version. */
#include "storage/base/alloc.h"

#include "proto/narad/v1/admin.pb-c.h"
#include "proto/rpc/answer_size.h"
#include "server/rpc/handlers.h"
#include "server/rpc/topic_view.h"

enum { METRICS_BYTES_MAX = ND_ANSWER_BYTES_MAX - 16, NODE_NAME_SIZE = 256 };

struct get_call {
    struct nd_stats stats;
    struct nd_handlers *handlers;
    struct nd_rpc_call *call;
    struct nd_topic *topic; /* counted */
};

struct stats_view {
    Narad__V1__PartitionStats message;
    char owner[NODE_NAME_SIZE];
};

static void stats_view_init(struct stats_view *out, struct nd_metastore *metastore,
                            const struct nd_partition_stats *stats)
{
    narad__v1__partition_stats__init(&out->message);
    nd_metastore_member_name(metastore, stats->owner, out->owner, sizeof out->owner);
    out->message.index = stats->index;
    out->message.segments = ND_MAX(stats->segments, 1u); /* even before the first record */
    out->message.oldest_offset = stats->oldest_offset;
    out->message.next_offset = stats->next_offset;
    out->message.high_watermark = stats->high_watermark;
    out->message.size_bytes = stats->size_bytes;
    out->message.oldest_segment_at = stats->oldest_segment_at_s;
    out->message.owner_node = out->owner;
    out->message.status = nd_message_text("ok");
    out->message.frontier = stats->frontier;
    out->message.in_flight = stats->in_flight;
    out->message.acked_ahead = stats->acked_ahead;
}

/* @thread shard */
static void counted(struct nd_stats *stats, enum nd_err err, const struct nd_partition_stats *list,
                    uint32_t count)
{
    struct get_call *g = stats->data;
    if (err != ND_OK) {
        nd_call_fail_topic(g->call, err, g->topic, ND_PARTITION_ANY);
    } else {
        struct nd_topic_view topic;
        struct stats_view *views = nd_xcalloc(count + 1, sizeof *views);
        Narad__V1__PartitionStats **messages = nd_xcalloc(count + 1, sizeof *messages);
        for (uint32_t i = 0; i < count; i++) {
            stats_view_init(&views[i], g->handlers->options.metastore, &list[i]);
            messages[i] = &views[i].message;
        }
        nd_topic_view_init(&topic, g->topic);
        Narad__V1__GetTopicResponse response = NARAD__V1__GET_TOPIC_RESPONSE__INIT;
        response.topic = &topic.message;
        response.n_partition_stats = count;
        response.partition_stats = messages;
        nd_rpc_call_reply(g->call, &response.base);
        nd_free(messages);
        nd_free(views);
    }
    nd_topic_unref(g->topic);
    nd_free(g);
}

static void on_get(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    struct nd_topic *topic;
    const Narad__V1__GetTopicRequest *r =
        nd_call_decode(call, &narad__v1__get_topic_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    bool one = r->partition_choice_case == NARAD__V1__GET_TOPIC_REQUEST__PARTITION_CHOICE_PARTITION;
    enum nd_err err = nd_access_check(call, nd_slice_str(r->name), &msg);
    if (err == ND_OK) {
        err = nd_handlers_topic(h, nd_slice_str(r->name), &topic, &msg);
    }
    if (err == ND_OK && one) {
        err = nd_handlers_partition(topic, r->partition, &msg);
        if (err != ND_OK) {
            nd_topic_unref(topic);
        }
    }
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    if (!nd_handlers_enter(h)) {
        nd_topic_unref(topic);
        nd_call_refuse_stopping(call);
        return;
    }
    struct get_call *g = nd_xcalloc(1, sizeof *g);
    *g = (struct get_call){.handlers = h, .call = call, .topic = topic};
    g->stats.topic = nd_topic_ref(topic);
    g->stats.partition = one ? (int32_t)r->partition : ND_PARTITION_ANY;
    g->stats.done = counted;
    g->stats.data = g;
    nd_broker_stats(h->options.broker, &g->stats);
    nd_handlers_leave(h);
}

static void on_metrics(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_buf text;
    if (nd_call_decode(call, &narad__v1__metrics_request__descriptor, request) == NULL) {
        return;
    }
    nd_buf_init(&text, METRICS_BYTES_MAX);
    nd_metrics_text(h->options.metrics, &text);
    nd_buf_put_u8(&text, '\0');
    if (nd_buf_failed(&text)) {
        nd_rpc_call_fail(call, ND_ERR_TOO_LARGE, "the metrics take more than 64 MiB");
    } else {
        Narad__V1__MetricsResponse response = NARAD__V1__METRICS_RESPONSE__INIT;
        response.text = (char *)text.data;
        nd_rpc_call_reply(call, &response.base);
    }
    nd_buf_release(&text);
}

static void on_version(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    if (nd_call_decode(call, &narad__v1__version_request__descriptor, request) == NULL) {
        return;
    }
    Narad__V1__VersionResponse response = NARAD__V1__VERSION_RESPONSE__INIT;
    response.version = nd_message_text(h->options.version);
    response.node_id = nd_message_text(nd_metastore_node_id(h->options.metastore));
    response.dev = h->options.dev;
    nd_rpc_call_reply(call, &response.base);
}

const struct nd_rpc_method nd_rpc_get_topic = {
    .path = "/narad.v1.Admin/GetTopic",
    .kind = ND_RPC_UNARY,
    .message_bytes_max = 1 << 20,
    .on_start = on_get,
    .right = ND_RIGHT_READ,
};
const struct nd_rpc_method nd_rpc_metrics = {
    .path = "/narad.v1.Admin/Metrics",
    .kind = ND_RPC_UNARY,
    .message_bytes_max = 1 << 20,
    .on_start = on_metrics,
    .right = ND_RIGHT_METRICS,
};
const struct nd_rpc_method nd_rpc_version = {
    .path = "/narad.v1.Admin/Version",
    .kind = ND_RPC_UNARY,
    .message_bytes_max = 1 << 20,
    .on_start = on_version,
    .right = ND_RIGHT_ANY,
};
