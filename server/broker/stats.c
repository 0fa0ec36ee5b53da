#include "storage/base/alloc.h"

#include "server/broker/cold.h"
#include "server/broker/topic_state.h"

/* Observation opens nothing (I-46): what a partition in memory does not know is read from its files
 * by a worker, which leaves it closed. */
struct stats_job {
    struct nd_stats *stats;
    uint32_t first, count;
    struct nd_partition_stats *list;
};

static void live_stats(const struct nd_partition *partition, struct nd_partition_stats *out)
{
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

static void partition_stats(const struct nd_topic_state *topic, uint32_t index,
                            struct nd_partition_stats *out)
{
    const struct nd_partition *partition =
        index < topic->partitions_count ? topic->partitions[index] : NULL;

    *out = (struct nd_partition_stats){.index = index, .owner = topic->topic->owners[index]};
    if (partition != NULL && partition->state == ND_PARTITION_OPEN) {
        live_stats(partition, out);
    }
}

/* What the files add to what memory said. */
static void stats_add(const struct nd_topic_state *topic, const struct nd_peek_item *item,
                      struct nd_partition_stats *out)
{
    const struct nd_positions *positions = &item->positions;
    const struct nd_partition *partition = topic->partitions[item->index];

    if (item->err != ND_OK || (partition != NULL && partition->plog != NULL)) {
        return; /* it was opened meanwhile: memory knows better */
    }
    out->segments = item->log.segments;
    out->size_bytes += item->log.size_bytes;
    out->oldest_segment_at_s = item->log.oldest_ms / 1000;
    if (item->state_err != ND_OK || (partition != NULL && partition->state == ND_PARTITION_OPEN)) {
        return;
    }
    out->oldest_offset = positions->log_start;
    out->next_offset = out->high_watermark = positions->next_offset;
    out->frontier = positions->frontier;
    for (uint32_t i = 0; i < positions->ahead_count; i++) {
        out->acked_ahead += (uint32_t)(positions->ahead[i].last - positions->ahead[i].first + 1);
    }
}

static void stats_finish(struct nd_stats *stats, enum nd_err err,
                         const struct nd_partition_stats *list, uint32_t count)
{
    struct nd_topic *topic = stats->topic;

    stats->done(stats, err, list, count);
    nd_topic_unref(topic);
}

static void peek_done(struct nd_peek *peek)
{
    struct stats_job *job = peek->data;
    struct nd_topic_state *topic = peek->topic;

    if (topic->ended) {
        stats_finish(job->stats, ND_ERR_TOPIC_NOT_FOUND, NULL, 0);
    } else {
        for (uint32_t i = 0; i < job->count; i++) {
            partition_stats(topic, job->first + i, &job->list[i]);
        }
        for (uint32_t i = 0; i < peek->count; i++) {
            stats_add(topic, &peek->items[i], &job->list[peek->items[i].index - job->first]);
        }
        stats_finish(job->stats, ND_OK, job->list, job->count);
    }
    nd_free(job->list);
    nd_free(job);
}

/* Is it here, and are there files of it that nobody has open? */
static bool wants_peek(const struct nd_topic_state *topic, uint32_t index)
{
    return nd_topic_state_owns(topic, index) && nd_partition_is_cold(topic, index);
}

static void stats_collect(struct nd_stats *stats, struct nd_topic_state *topic, uint32_t first,
                          uint32_t count)
{
    struct stats_job *job = nd_xcalloc(1, sizeof *job);
    struct nd_peek *peek = nd_peek_new(topic, count);

    *job = (struct stats_job){.stats = stats, .first = first, .count = count};
    job->list = nd_xcalloc(count, sizeof *job->list);
    peek->data = job;
    peek->sizes = true;
    peek->done = peek_done;
    nd_topic_state_grow(topic, first + count);
    /* The last node to stop needs no worker for a few numbers. */
    for (uint32_t i = 0; i < count && !nd_shard_stopping(topic->shard); i++) {
        if (wants_peek(topic, first + i)) {
            nd_peek_add(peek, first + i, true);
        }
    }
    if (peek->count > 0) {
        nd_peek_start(peek);
        return;
    }
    peek_done(peek);
    nd_peek_free(peek);
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
    stats_collect(stats, topic, first, count);
}

void nd_broker_stats(struct nd_broker *broker, struct nd_stats *stats)
{
    stats->msg.run = stats_run;
    stats->shard = nd_broker_shard(broker, stats->topic);
    nd_inbox_push(&stats->shard->inbox, &stats->msg);
}
