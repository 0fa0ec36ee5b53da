#include "storage/clock.h"
#include "tests/sim/workload_private.h"

void workload_make_aging(struct workload *workload)
{
    struct node_options *options = &workload->node.options;

    workload->aging = true;
    options->look_ms = AGE_LOOK_MS;
    options->cold_walk_ms = AGE_WALK_MS;
    options->idle_eviction_ms = 700;
    options->flush_age_ms = 400;
    for (uint32_t topic = 0; topic < 2; topic++) {
        node_topic_retention(&workload->node, topic, AGE_MS);
    }
}

bool workload_aged(const struct workload *workload)
{
    return workload->evicted > 20 && workload->aged > 20 && workload->swept > 0;
}

void workload_aging_count(struct workload *workload)
{
    static const char *const labels[] = {"topic=\"orders\",partition=\"0\",reason=\"age\"",
                                         "topic=\"orders\",partition=\"1\",reason=\"age\"",
                                         "topic=\"mail\",partition=\"0\",reason=\"age\""};
    struct nd_metrics *m = workload->node.metrics;

    if (m == NULL || !workload->aging) {
        return;
    }
    workload->evicted += nd_series_value(nd_metrics_counter(m, "idle_logs_evicted_total", "", ""));
    workload->swept += nd_series_value(nd_metrics_counter(m, "cold_retention_swept_total", "", ""));
    for (size_t i = 0; i < ND_ARRAY_SIZE(labels); i++) {
        workload->aged += nd_series_value(
            nd_metrics_counter(m, "storage_retention_messages_deleted_total", labels[i], ""));
    }
}

/* Time goes by, or "mail" is kept for ever from now on, or no longer; now and then the flusher is
 * slow, so that much happens between a snapshot and its `state`. */
void workload_aging(struct workload *workload)
{
    workload->node.flusher_stalled = draw(workload, 4) == 0;
    if (draw(workload, 6) == 0) {
        node_topic_retention(&workload->node, 1, draw(workload, 2) == 0 ? 0 : AGE_MS);
        return;
    }
    node_advance(&workload->node, 100 + draw(workload, 2500));
    workload_answers_take(workload);
}

bool workload_may_be_aged(const struct workload *workload, const struct ledger_message *message)
{
    return workload->aging && message->topic < 2 &&
           nd_commit_clock_now_ms(workload->node.clock) - message->sent_ms > AGE_MS;
}

void workload_check_aged(struct workload *workload)
{
    struct node *node = &workload->node;
    uint64_t ends[2][PARTITIONS], offset;

    for (uint32_t topic = 0; topic < 2; topic++) {
        node_topic_retention(node, topic, AGE_MS);
        for (uint32_t i = 0; i < workload_partitions_of(workload, topic); i++) {
            ends[topic][i] = node_stats(node, topic, i).high_watermark;
        }
    }
    node_advance(node, 2 * AGE_MS + 2 * AGE_WALK_MS + 4 * AGE_LOOK_MS);
    for (uint32_t topic = 0; topic < 2 && !over(workload); topic++) {
        for (uint32_t i = 0; i < workload_partitions_of(workload, topic) && !over(workload); i++) {
            struct nd_partition_stats stats = node_stats(node, topic, i);
            if (stats.segments > 0 || stats.oldest_offset != ends[topic][i]) {
                ledger_problem(&workload->ledger,
                               "topic %u partition %u keeps %u segments from %llu on", topic, i,
                               stats.segments, (unsigned long long)stats.oldest_offset);
            } else if (node_produce(node, topic, i, "next", &offset) != ND_OK ||
                       offset != ends[topic][i]) {
                ledger_problem(&workload->ledger, "topic %u partition %u: offset %llu, not %llu",
                               topic, i, (unsigned long long)offset,
                               (unsigned long long)ends[topic][i]);
            }
        }
    }
}
