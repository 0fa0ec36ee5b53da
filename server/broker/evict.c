#include "server/broker/evict.h"

#include "storage/base/alloc.h"

#include "server/broker/chores.h"
#include "server/broker/cold.h"
#include "server/broker/retain.h"
#include "server/broker/topic_state.h"
#include "storage/state.h"

enum { BATCH = 256 };

/* The `state` files of one step's evictions, made durable together. */
struct nd_evict_batch {
    struct nd_flusher_task task;
    struct nd_msg reply;
    struct nd_inbox *reply_to;
    const struct nd_env *env;
    uint8_t store_id[16];
    uint32_t count;
    struct nd_partition *partitions[BATCH];
    uint32_t uses[BATCH]; /* of the partition, when it was taken */
    struct nd_positions positions[BATCH];
    struct nd_state_item items[BATCH];
    struct nd_errmsg msg;
};

/* Nobody waits for it or holds something of it, and nothing of it is under way. */
static bool is_evictable(const struct nd_partition *partition)
{
    const struct nd_topic_state *topic = partition->topic;
    const struct nd_lease_table *leases = &partition->leases;
    bool held = leases->in_flight > 0 || leases->detached > 0 || partition->acks > 0 ||
                partition->skips > 0 || partition->accepts > 0 ||
                partition->next != partition->end || partition->tail.bytes_unflushed > 0;
    bool working = partition->flush != NULL || partition->read != NULL || partition->plog_opening ||
                   partition->restating || partition->records_restating || partition->lifting ||
                   partition->wait_read || partition->unflushable ||
                   !nd_list_empty(&partition->stuck) || !nd_list_empty(&partition->replays);
    bool awaited = !nd_list_empty(&partition->pinned) || !nd_list_empty(&topic->waiters) ||
                   !nd_list_empty(&topic->subscribers) || !nd_list_empty(&topic->overdue) ||
                   !nd_list_empty(&topic->parked);

    return partition->state == ND_PARTITION_OPEN && topic->topic != NULL && !topic->ended &&
           !held && !working && !awaited && !nd_retain_owes(partition);
}

static bool is_idle(const struct nd_partition *partition)
{
    const struct nd_shard *shard = partition->topic->shard;
    uint64_t idle_ns = nd_ms_to_ns(shard->broker->options.idle_eviction_ms);
    uint64_t used_ns = ND_MAX(partition->used_ns, partition->topic->used_ns);

    return partition->for_retention || (idle_ns > 0 && shard->now_ns - used_ns >= idle_ns);
}

/* When the walk has to look at its files again. */
static int64_t goes_ms(const struct nd_partition *partition)
{
    struct nd_plog_aged aged = {.goes_ms = ND_RETENTION_NOTHING};

    if (partition->plog == NULL) {
        return ND_RETENTION_NOTHING; /* a crash may have left files below the log start */
    }
    if (partition->tail.flushed <= partition->log_start) {
        return INT64_MAX;
    }
    nd_plog_aged(partition->plog, ND_RETENTION_NOTHING, partition->last_commit_ms, &aged);
    return aged.goes_ms;
}

static void forget(struct nd_partition *partition)
{
    struct nd_topic_state *topic = partition->topic;
    struct nd_shard *shard = topic->shard;
    uint32_t index = partition->id.partition;

    nd_log(shard->broker->options.log, ND_LOG_DEBUG, "broker", "idle partition closed",
           "topic=%s partition=%u", partition->id.topic, index);
    nd_series_add(shard->broker->meters.evicted, 1);
    nd_cold_closed(topic, goes_ms(partition));
    nd_series_set(partition->meters.lag, (double)(partition->end - partition->leases.frontier));
    nd_partition_meters_release(partition);
    nd_partition_free(partition);
    topic->partitions[index] = NULL;
    topic->touched = false; /* who wants all of them opens it again */
    if (index >= topic->fresh_from) {
        topic->fresh_from = index + 1; /* it has files */
    }
}

/* @thread flusher */
static void batch_run(struct nd_msg *msg, void *owner)
{
    struct nd_evict_batch *batch = ND_CONTAINER_OF(msg, struct nd_evict_batch, task.msg);
    struct nd_flusher *flusher = owner;
    char dir[1024];
    char **dirs = nd_xcalloc(batch->count, sizeof *dirs);

    for (uint32_t i = 0; i < batch->count; i++) {
        nd_flusher_partition_dir(flusher, &batch->positions[i].id, dir, sizeof dir);
        dirs[i] = nd_xstrdup(dir);
        batch->items[i].partition_dir = dirs[i];
        batch->items[i].positions = &batch->positions[i];
    }
    nd_state_store(batch->env, batch->store_id, batch->items, batch->count, &batch->msg);
    for (uint32_t i = 0; i < batch->count; i++) {
        nd_free(dirs[i]);
    }
    nd_free(dirs);
    nd_inbox_push(batch->reply_to, &batch->reply);
}

static void batch_reply(struct nd_msg *msg, void *owner)
{
    struct nd_evict_batch *batch = ND_CONTAINER_OF(msg, struct nd_evict_batch, reply);
    struct nd_shard *shard = owner;

    shard->jobs -= 1;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct nd_partition *partition = batch->partitions[i];
        struct nd_topic_state *topic = partition->topic;
        enum nd_err result = batch->items[i].result;
        partition->evicting = false;
        if (result != ND_OK) {
            nd_series_add(shard->broker->meters.errors_evict, 1);
            nd_log_lasting(shard->broker->options.log, ND_LOG_WARN, "broker",
                           "idle partition not closed",
                           "topic=%s partition=%u err=%s reason=\"%s\"", partition->id.topic,
                           partition->id.partition, nd_err_name(result), batch->msg.text);
        } else if (partition->uses == batch->uses[i] && is_evictable(partition)) {
            forget(partition);
        }
        nd_positions_release(&batch->positions[i]);
        nd_topic_state_unbusy(topic);
    }
    nd_free(batch);
}

/* What a `state` says: nothing of it is staged, so every entry that is synced is in it. What others
 * have staged may still be lost. */
static void snapshot(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;
    struct nd_evict_batch *batch = shard->evicting;
    struct nd_wal_stats stats;

    if (batch == NULL) {
        batch = shard->evicting = nd_xcalloc(1, sizeof *batch);
        batch->env = shard->env;
        batch->reply_to = &shard->inbox;
        batch->task.msg.run = batch_run;
        batch->reply.run = batch_reply;
        memcpy(batch->store_id, nd_flusher_plog_options(shard->broker->options.flusher)->store_id,
               sizeof batch->store_id);
    }
    nd_wal_stats(shard->wal, &stats);
    struct nd_positions *positions = &batch->positions[batch->count];
    nd_positions_init(positions);
    nd_partition_positions(partition, positions);
    positions->applied_sequence = stats.sequence_synced;
    batch->partitions[batch->count] = partition;
    batch->uses[batch->count] = partition->uses;
    batch->count += 1;
    partition->evicting = true;
    partition->topic->busy += 1;
    if (batch->count == BATCH) {
        nd_evict_submit(shard);
    }
}

void nd_evict_submit(struct nd_shard *shard)
{
    struct nd_evict_batch *batch = shard->evicting;

    if (batch != NULL) {
        shard->evicting = NULL;
        shard->jobs += 1;
        nd_flusher_run(shard->broker->options.flusher, &batch->task);
    }
}

bool nd_evict_look(struct nd_partition *partition)
{
    struct nd_topic_state *topic = partition->topic;

    if (!nd_list_empty(&topic->waiters) || !nd_list_empty(&topic->subscribers)) {
        topic->used_ns = topic->shard->now_ns;
    }
    if (partition->evicting || !is_idle(partition) || !is_evictable(partition)) {
        return false;
    }
    if (partition->unsaved || partition->position_from != UINT64_MAX) {
        snapshot(partition);
        return false;
    }
    forget(partition); /* what is durable says all of it already */
    return true;
}
