#include "server/broker/meters.h"

#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/broker/partition.h"
#include "server/broker/topic_state.h"
#include "server/broker/usage.h"

static const char *const outcome_names[ND_WAIT_COUNT] = {"hit", "timeout", "cancelled", "no_wait"};
static const double wait_buckets[] = {.001, .01, .1, .5, 1, 5, 10, 30, 60};
static const double retention_buckets[] = {.001, .005, .01, .05, .1, .5, 1, 5};

enum { LABELS_SIZE = 2 * 255 + 64 };

void nd_meters_init(struct nd_meters *meters, struct nd_metrics *m)
{
    meters->topics = nd_metrics_gauge(m, "topics_total", "", "Topics known to this node.");
    meters->partitions =
        nd_metrics_gauge(m, "partitions_total", "", "Partitions with state on this node.");
    meters->open_partition_logs =
        nd_metrics_gauge(m, "open_partition_logs", "", "Partition logs with open files.");
    meters->tail_bytes = nd_metrics_gauge(m, "tail_memory_bytes", "",
                                          "Records in memory that are not in a segment yet.");
    meters->errors_read = nd_metrics_counter(
        m, "errors_total", "component=\"broker\",kind=\"read\"", "Errors by component and kind.");
    meters->accepts_held = nd_metrics_gauge(m, "ingress_dispatch_backlog_records", "",
                                            "Accepted records that are not committed yet.");
    meters->accepts_discarded = nd_metrics_counter(
        m, "ingress_discarded_total", "", "Accepted records of topics that are confirmed gone.");
    meters->unflushable =
        nd_metrics_gauge(m, "unflushable_partitions", "",
                         "Partitions whose records cannot be written to their log.");
    meters->restated_bytes = nd_metrics_counter(
        m, "wal_restated_bytes_total", "",
        "Bytes of records written again at the head of the WAL for unflushable partitions.");
    meters->evicted = nd_metrics_counter(m, "idle_logs_evicted_total", "",
                                         "Partitions closed because nobody used them.");
    meters->errors_evict =
        nd_metrics_counter(m, "errors_total", "component=\"storage\",kind=\"idle_evict_close\"",
                           "Errors by component and kind.");
    meters->errors_retain =
        nd_metrics_counter(m, "errors_total", "component=\"storage\",kind=\"retention\"",
                           "Errors by component and kind.");
    meters->cold_opened =
        nd_metrics_counter(m, "cold_retention_swept_total", "",
                           "Closed partitions that were opened because records had aged.");
    meters->data_dir_bytes =
        nd_metrics_gauge(m, "data_dir_size_bytes", "",
                         "Bytes of the files of the data directory, added up every 30 s.");
    meters->acks_stale = nd_metrics_counter(m, "ack_rejected_total", "reason=\"stale\"",
                                            "Acks without a live lease: it ended before.");
    meters->retention_seconds =
        nd_metrics_histogram(m, "storage_retention_run_duration_seconds", "",
                             "Removing the aged segments of a partition.", retention_buckets,
                             ND_ARRAY_SIZE(retention_buckets));
}

struct nd_topic_meters *nd_topic_meters_get(struct nd_shard *shard, const char *name)
{
    struct nd_metrics *m = shard->broker->options.metrics;
    struct nd_topic_meters *meters = nd_map_get(shard->meters, nd_slice_str(name));

    if (meters == NULL) {
        char labels[LABELS_SIZE] = "";
        meters = nd_xcalloc(1, sizeof *meters);
        meters->name = nd_xstrdup(name);
        nd_metrics_label(labels, sizeof labels, "topic", name);
        meters->empty = nd_metrics_counter(m, "consume_empty_total", labels,
                                           "Polls that were answered without a message.");
        meters->extended =
            nd_metrics_counter(m, "ack_extended_total", labels, "Leases that were extended.");
        meters->nacked =
            nd_metrics_counter(m, "nack_total", labels, "Messages given back by their consumer.");
        meters->bytes =
            nd_metrics_gauge(m, "topic_bytes", labels,
                             "Bytes of the topic's files on this node, added up every 30 s.");
        nd_map_put(shard->meters, nd_slice_str(name), meters);
        nd_list_init(&meters->stale);
        nd_usage_changed(shard, meters);
    }
    meters->refs += 1;
    return meters;
}

void nd_topic_meters_put(struct nd_shard *shard, struct nd_topic_meters *meters)
{
    meters->refs -= 1;
    if (meters->refs > 0) {
        nd_usage_changed(shard, meters);
        return;
    }
    nd_usage_forget(shard, meters);
    nd_map_remove(shard->meters, nd_slice_str(meters->name));
    nd_metrics_remove(shard->broker->options.metrics, "topic", meters->name);
    nd_free(meters->name);
    nd_free(meters);
}

void nd_topic_meters_waited(struct nd_shard *shard, struct nd_topic_meters *meters,
                            enum nd_wait_outcome outcome, uint64_t ns)
{
    if (meters->wait[outcome] == NULL) {
        char labels[LABELS_SIZE] = "";
        nd_metrics_label(labels, sizeof labels, "topic", meters->name);
        nd_metrics_label(labels, sizeof labels, "outcome", outcome_names[outcome]);
        meters->wait[outcome] = nd_metrics_histogram(
            shard->broker->options.metrics, "consume_wait_seconds", labels,
            "Time from a poll to its answer.", wait_buckets, ND_ARRAY_SIZE(wait_buckets));
    }
    nd_series_observe(meters->wait[outcome], (double)ns / 1e9);
}

void nd_partition_meters_init(struct nd_partition *partition)
{
    struct nd_partition_meters *meters = &partition->meters;
    struct nd_metrics *m = partition->topic->shard->broker->options.metrics;
    char labels[LABELS_SIZE] = "", number[16];

    snprintf(number, sizeof number, "%u", partition->id.partition);
    nd_metrics_label(labels, sizeof labels, "topic", partition->id.topic);
    nd_metrics_label(labels, sizeof labels, "partition", number);
    meters->produced =
        nd_metrics_counter(m, "messages_produced_total", labels, "Messages committed.");
    meters->produced_bytes = nd_metrics_counter(m, "bytes_produced_total", labels,
                                                "Stored bytes of messages committed.");
    meters->consumed =
        nd_metrics_counter(m, "messages_consumed_total", labels, "Messages delivered.");
    meters->consumed_bytes =
        nd_metrics_counter(m, "bytes_consumed_total", labels, "Payload bytes delivered.");
    meters->corrupt_skipped = nd_metrics_counter(m, "consumer_corrupt_skipped_total", labels,
                                                 "Unreadable messages skipped: each is lost.");
    meters->dropped =
        nd_metrics_gauge(m, "consumer_dropped_messages", labels,
                         "Messages that retention removed before they were consumed.");
    meters->lag = nd_metrics_gauge(m, "consumer_lag_messages", labels,
                                   "High watermark minus the lowest unsettled offset.");
    meters->in_flight =
        nd_metrics_gauge(m, "inflight_size", labels, "Messages delivered and not settled.");
    meters->ahead = nd_metrics_gauge(m, "acked_ahead_size", labels,
                                     "Messages settled above the lowest unsettled one.");
    meters->size_bytes =
        nd_metrics_gauge(m, "partition_size_bytes", labels, "Bytes of the partition's segments.");
    meters->segments = nd_metrics_gauge(m, "segments", labels, "Segments of the partition.");
}

void nd_partition_meters_release(struct nd_partition *partition)
{
    struct nd_partition_meters *meters = &partition->meters;
    struct nd_metrics *m = partition->topic->shard->broker->options.metrics;
    char labels[LABELS_SIZE] = "", number[16];

    if (partition->topic->meters->refs > 1) {
        return;
    }
    snprintf(number, sizeof number, "%u", partition->id.partition);
    nd_metrics_label(labels, sizeof labels, "topic", partition->id.topic);
    nd_metrics_label(labels, sizeof labels, "partition", number);
    struct nd_series *flushed = nd_metrics_counter(m, "storage_flush_bytes_total", labels,
                                                   "Bytes of records handed to partition logs.");
    struct nd_series *plain[] = {meters->produced,       meters->produced_bytes, meters->consumed,
                                 meters->consumed_bytes, meters->in_flight,      meters->ahead,
                                 meters->size_bytes,     meters->segments,       flushed};
    struct nd_series *amiss[] = {meters->lag, meters->dropped, meters->corrupt_skipped,
                                 meters->oldest};
    for (size_t i = 0; i < ND_ARRAY_SIZE(plain); i++) {
        nd_metrics_remove_series(m, plain[i]);
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(amiss) && m != NULL; i++) {
        if (nd_series_value(amiss[i]) == 0) {
            nd_metrics_remove_series(m, amiss[i]);
        }
    }
    *meters = (struct nd_partition_meters){.lag = NULL};
}

/* Since when the lowest unsettled record waits, or longer ago: what memory knows. */
static void oldest_refresh(struct nd_partition *partition)
{
    struct nd_partition_meters *meters = &partition->meters;
    uint64_t frontier = partition->leases.frontier;
    char labels[LABELS_SIZE] = "", number[16];
    int64_t since_ms = 0;

    if (frontier < partition->end) {
        since_ms = nd_tail_time_ms(&partition->tail, frontier);
        if (since_ms == 0 && partition->plog != NULL) {
            since_ms = nd_plog_time_ms(partition->plog, frontier);
        }
        if (since_ms == 0) {
            return;
        }
    }
    if (meters->oldest == NULL) {
        snprintf(number, sizeof number, "%u", partition->id.partition);
        nd_metrics_label(labels, sizeof labels, "topic", partition->id.topic);
        nd_metrics_label(labels, sizeof labels, "partition", number);
        meters->oldest =
            nd_metrics_age(partition->topic->shard->broker->options.metrics,
                           "oldest_unconsumed_message_age_seconds", labels,
                           "Age of the lowest unsettled message; an upper bound. 0: none.");
    }
    nd_series_since(meters->oldest, since_ms);
}

static void partition_refresh(struct nd_partition *partition)
{
    struct nd_partition_meters *meters = &partition->meters;

    if (partition->state != ND_PARTITION_OPEN) {
        return;
    }
    nd_series_set(meters->lag, (double)(partition->end - partition->leases.frontier));
    nd_series_set(meters->in_flight, partition->leases.in_flight);
    nd_series_set(meters->ahead, partition->leases.ahead);
    oldest_refresh(partition);
    if (partition->plog != NULL) {
        struct nd_plog_stats stats;
        nd_plog_stats(partition->plog, &stats);
        nd_series_set(meters->size_bytes, (double)stats.size_bytes);
        nd_series_set(meters->segments, stats.segments);
    }
}

void nd_meters_refresh(struct nd_shard *shard)
{
    struct nd_broker *broker = shard->broker;
    struct nd_list *link;

    while ((link = nd_list_pop(&shard->dirty)) != NULL) {
        struct nd_partition *partition = ND_CONTAINER_OF(link, struct nd_partition, dirty);
        partition_refresh(partition);
        nd_usage_changed(shard, partition->topic->meters);
    }
    /* relaxed: gauges */
    nd_series_set(broker->meters.topics,
                  atomic_load_explicit(&broker->topics, memory_order_relaxed));
    nd_series_set(broker->meters.partitions,
                  atomic_load_explicit(&broker->partitions, memory_order_relaxed));
    nd_series_set(broker->meters.open_partition_logs,
                  atomic_load_explicit(&broker->plogs, memory_order_relaxed));
    nd_series_set(broker->meters.tail_bytes,
                  (double)atomic_load_explicit(&broker->tail_bytes, memory_order_relaxed));
}
