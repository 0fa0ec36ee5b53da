#include "storage/base/alloc.h"

#include "server/broker/topic_state.h"

/* What is known without opening anything (I-46). */
static void partition_stats(const struct nd_topic_state *topic, uint32_t index,
                            struct nd_partition_stats *out)
{
    const struct nd_partition *partition =
        index < topic->partitions_count ? topic->partitions[index] : NULL;

    *out = (struct nd_partition_stats){.index = index, .owner = topic->topic->owners[index]};
    if (partition == NULL || partition->state != ND_PARTITION_OPEN) {
        return;
    }
    out->in_flight = partition->leases.in_flight;
    out->acked_ahead = partition->leases.ahead;
    out->oldest_offset = partition->log_start;
    out->next_offset = partition->next;
    out->high_watermark = partition->end;
    out->frontier = partition->leases.frontier;
    if (partition->plog != NULL) {
        struct nd_plog_stats stats;
        nd_plog_stats(partition->plog, &stats);
        out->segments = stats.segments;
        out->size_bytes = stats.size_bytes;
        out->oldest_segment_at_s = stats.oldest_ms / 1000;
    }
    out->size_bytes += partition->tail.bytes_unflushed;
}

static void stats_finish(struct nd_stats *stats, enum nd_err err,
                         const struct nd_partition_stats *list, uint32_t count)
{
    struct nd_topic *topic = stats->topic;

    stats->done(stats, err, list, count);
    nd_topic_unref(topic);
}

static void stats_run(struct nd_msg *msg, void *owner)
{
    struct nd_stats *stats = ND_CONTAINER_OF(msg, struct nd_stats, msg);
    struct nd_topic_state *topic = nd_topic_state_find(owner, stats->topic);

    if (topic == NULL) {
        stats_finish(stats, ND_ERR_TOPIC_NOT_FOUND, NULL, 0);
        return;
    }
    uint32_t first = stats->partition == ND_PARTITION_ANY ? 0 : (uint32_t)stats->partition;
    uint32_t count = stats->partition == ND_PARTITION_ANY ? topic->topic->partitions : 1;
    if (stats->partition < ND_PARTITION_ANY || first + count > topic->topic->partitions) {
        stats_finish(stats, ND_ERR_INVALID_ARGUMENT, NULL, 0);
        return;
    }
    struct nd_partition_stats *list = nd_xcalloc(count, sizeof *list);
    for (uint32_t i = 0; i < count; i++) {
        partition_stats(topic, first + i, &list[i]);
    }
    stats_finish(stats, ND_OK, list, count);
    nd_free(list);
}

void nd_broker_stats(struct nd_broker *broker, struct nd_stats *stats)
{
    stats->msg.run = stats_run;
    stats->shard = nd_broker_shard(broker, stats->topic);
    nd_inbox_push(&stats->shard->inbox, &stats->msg);
}
