#include "server/broker/flush.h"

#include "storage/base/alloc.h"

#include "server/broker/read.h"
#include "server/broker/restate.h"
#include "server/broker/topic_state.h"

enum {
    RUNS_MAX = 16384,
    BYTES_MAX = 8 << 20,
    RETRY_NS = 1000000000,
    FAILURES_MAX = 3, /* F3 */
};
static const uint64_t unflushable_retry_ns = 10000000000; /* F3 */

struct nd_flush_work {
    struct nd_flush_job job;
    struct nd_partition *partition;
    size_t bytes;
    bool opening; /* the flusher opens the log first */
};

uint64_t nd_flush_due_ns(const struct nd_partition *partition)
{
    uint64_t age_ns = (uint64_t)partition->topic->shard->broker->options.flush_age_ms * 1000000;

    return ND_MAX(nd_tail_oldest_ns(&partition->tail) + age_ns, partition->flush_retry_ns);
}

void nd_flush_count_unflushable(struct nd_partition *partition, bool unflushable)
{
    struct nd_series *gauge = partition->topic->shard->broker->meters.unflushable;
    bool counted = unflushable && partition->plog == NULL;

    if (counted != partition->unflushable_counted) {
        partition->unflushable_counted = counted;
        (counted ? nd_series_add : nd_series_sub)(gauge, 1);
    }
}

bool nd_flush_has_room(struct nd_shard *shard)
{
    shard->flushes_held |= shard->flushes >= ND_FLUSHES_MAX;
    return !shard->flushes_held;
}

static void one_back(struct nd_shard *shard)
{
    shard->jobs -= 1;
    shard->flushes -= 1;
    if (shard->flushes_held && shard->flushes <= ND_FLUSHES_MAX / 2) {
        shard->flushes_held = false;
        shard->housekeeping_ns = shard->now_ns; /* in this step */
    }
}

/* The log says CORRUPT when it is unflushable, and when it cannot even be opened as it is. */
static void flush_failed(struct nd_partition *partition, enum nd_err result)
{
    struct nd_shard *shard = partition->topic->shard;

    partition->flush_failures += result == ND_ERR_IO;
    bool unflushable = result == ND_ERR_CORRUPT || partition->flush_failures >= FAILURES_MAX;
    partition->flush_failed = true;
    partition->flush_retry_ns = shard->now_ns + (unflushable ? unflushable_retry_ns : RETRY_NS);
    if (unflushable && !partition->unflushable) {
        nd_log(shard->broker->options.log, ND_LOG_ERROR, "broker", "partition cannot be flushed",
               "topic=%s partition=%u", partition->id.topic, partition->id.partition);
    }
    partition->unflushable |= unflushable;
}

static void flush_reply(struct nd_msg *msg, void *owner)
{
    struct nd_flush_work *work = ND_CONTAINER_OF(msg, struct nd_flush_work, job.reply);
    struct nd_partition *partition = work->partition;
    struct nd_topic_state *topic = partition->topic;
    struct nd_shard *shard = owner;
    bool opening = work->opening;

    one_back(shard);
    partition->flush = NULL;
    for (uint32_t i = 0; i < work->job.runs_count; i++) {
        nd_block_unref(work->job.runs[i].block);
    }
    /* relaxed: see nd_broker */
    atomic_fetch_sub_explicit(&shard->broker->flushing_bytes, work->bytes, memory_order_relaxed);
    if (opening) {
        partition->plog_opening = false;
        if (work->job.opened != NULL) {
            nd_partition_set_plog(partition, work->job.opened);
        }
    }
    if (work->job.result == ND_OK) {
        partition->unflushable = partition->flush_failed = false;
        partition->flush_failures = 0;
        nd_tail_set_flushed(&partition->tail, ND_MAX(partition->tail.flushed, work->job.flushed));
    } else {
        flush_failed(partition, work->job.result);
    }
    nd_flush_count_unflushable(partition, partition->unflushable);
    nd_free(work->job.runs);
    nd_free(work);
    nd_partition_account(partition);
    nd_partition_update_pin(partition);
    nd_restate_unlift(partition);
    nd_partition_mark_dirty(partition);
    if (opening) {
        nd_read_resume(partition, ND_OK);
    }
    nd_flush_check_size(partition);
    nd_topic_state_unbusy(topic);
}

bool nd_flush_start(struct nd_partition *partition)
{
    struct nd_topic_state *topic = partition->topic;
    struct nd_shard *shard = topic->shard;

    if (partition->flush != NULL || topic->ended || partition->tail.bytes_unflushed == 0 ||
        shard->now_ns < partition->flush_retry_ns ||
        (partition->plog == NULL && partition->plog_opening)) {
        return false;
    }
    struct nd_flush_work *work = nd_xcalloc(1, sizeof *work);
    uint32_t runs_max = ND_MIN(partition->tail.count, (uint32_t)RUNS_MAX);
    work->partition = partition;
    work->job.id = partition->id;
    work->job.reply.run = flush_reply;
    work->job.reply_to = &shard->inbox;
    work->job.plog = partition->plog;
    work->job.open_log_start = partition->log_start;
    work->job.open_flushed = partition->tail.flushed;
    work->job.retention_ms = topic->topic != NULL ? topic->topic->retention_ms : 0;
    work->job.open_wal_start = nd_partition_unflushed_start(partition);
    work->job.runs = nd_xmalloc(runs_max * sizeof *work->job.runs);
    work->job.runs_count = nd_tail_take_refs(&partition->tail, work->job.runs, runs_max, BYTES_MAX);
    for (uint32_t i = 0; i < work->job.runs_count; i++) {
        work->bytes += work->job.runs[i].records.size;
    }
    work->opening = partition->plog == NULL;
    partition->plog_opening |= work->opening;
    partition->flush = work;
    topic->busy += 1;
    shard->jobs += 1;
    shard->flushes += 1;
    nd_partition_account(partition); /* out of the heaps while it is under way */
    /* relaxed: see nd_broker */
    atomic_fetch_add_explicit(&shard->broker->flushing_bytes, work->bytes, memory_order_relaxed);
    nd_flusher_submit(shard->broker->options.flusher, &work->job);
    return true;
}

void nd_flush_check_size(struct nd_partition *partition)
{
    if (partition->tail.bytes_unflushed >= partition->topic->shard->broker->options.flush_bytes) {
        (void)nd_flush_start(partition);
    }
}

/* Memory that nobody is about to free. */
static bool memory_short(const struct nd_broker *broker)
{
    /* relaxed: see nd_broker */
    size_t held = atomic_load_explicit(&broker->tail_bytes, memory_order_relaxed);
    size_t flushing = atomic_load_explicit(&broker->flushing_bytes, memory_order_relaxed);

    return held > flushing && held - flushing > broker->options.tail_memory_bytes / 2;
}

void nd_flush_check(struct nd_shard *shard)
{
    struct nd_heap_node *node;

    while ((node = nd_heap_first(&shard->by_age)) != NULL && node->key <= shard->now_ns &&
           nd_flush_has_room(shard)) {
        if (!nd_flush_start(ND_CONTAINER_OF(node, struct nd_partition, by_age))) {
            /* Its log is being opened for a read; look again soon. */
            nd_heap_put(&shard->by_age, node, shard->now_ns + RETRY_NS);
        }
    }
    while (memory_short(shard->broker) && (node = nd_heap_first(&shard->by_size)) != NULL) {
        struct nd_partition *partition = ND_CONTAINER_OF(node, struct nd_partition, by_size);
        if (!nd_flush_start(partition)) {
            /* Not now: out of the way until its tail changes, or its age makes it due. */
            nd_heap_remove(&shard->by_size, node);
            nd_heap_put(&shard->by_age, &partition->by_age, shard->now_ns + RETRY_NS);
        }
    }
}
