#include "server/broker/partition.h"

#include "storage/base/alloc.h"

#include "server/broker/chores.h"
#include "server/broker/cold.h"
#include "server/broker/flush.h"
#include "server/broker/frames.h"
#include "server/broker/topic_state.h"
#include "server/broker/waiters.h"
#include "server/broker/worker.h"
#include "storage/state.h"

enum { DAMAGED_RETRY_NS = 1000000000, CAP_UNKNOWN = 1 << 20 };

struct nd_partition *nd_partition_new(struct nd_topic_state *topic, uint32_t index)
{
    struct nd_partition *partition = nd_xcalloc(1, sizeof *partition);

    partition->topic = topic;
    partition->id.incarnation = topic->incarnation;
    partition->id.partition = index;
    memcpy(partition->id.topic, topic->meters->name, strlen(topic->meters->name) + 1);
    partition->position_from = UINT64_MAX;
    nd_positions_init(&partition->carried);
    nd_heap_node_init(&partition->pin);
    nd_heap_node_init(&partition->by_size);
    nd_heap_node_init(&partition->by_age);
    nd_heap_node_init(&partition->retry);
    nd_heap_node_init(&partition->expiry);
    nd_list_init(&partition->watched);
    nd_list_init(&partition->stuck);
    nd_list_init(&partition->cached_link);
    nd_list_init(&partition->frames);
    nd_list_init(&partition->replays);
    nd_list_init(&partition->pinned);
    nd_list_init(&partition->ready);
    nd_list_init(&partition->woken);
    nd_list_init(&partition->dirty);
    nd_partition_meters_init(partition);
    /* relaxed: a gauge */
    atomic_fetch_add_explicit(&topic->shard->broker->partitions, 1, memory_order_relaxed);
    return partition;
}

void nd_partition_free(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;

    ND_ASSERT(partition->flush == NULL && partition->read == NULL && !partition->restating);
    ND_ASSERT(!partition->records_restating && partition->retain == NULL && !partition->evicting);
    ND_ASSERT(nd_list_empty(&partition->replays) && nd_list_empty(&partition->pinned));
    nd_frames_drop(partition);
    nd_cold_release(partition);
    nd_flush_count_unflushable(partition, false);
    if (partition->state == ND_PARTITION_OPEN) {
        nd_tail_release(&partition->tail);
        partition->tail.bytes_unflushed = partition->tail.bytes_cached = 0;
        nd_partition_account(partition);
        nd_lease_table_release(&partition->leases);
    }
    nd_heap_remove(partition->lifting ? &shard->lifting : &shard->pins, &partition->pin);
    nd_heap_remove(&shard->by_size, &partition->by_size);
    nd_heap_remove(&shard->by_age, &partition->by_age);
    nd_heap_remove(&shard->retries, &partition->retry);
    nd_heap_remove(&shard->expiries, &partition->expiry);
    nd_list_remove(&partition->watched);
    nd_list_remove(&partition->stuck);
    nd_list_remove(&partition->cached_link);
    nd_list_remove(&partition->ready);
    nd_list_remove(&partition->woken);
    nd_list_remove(&partition->dirty);
    if (partition->plog != NULL) {
        nd_plog_unref(partition->plog);
        atomic_fetch_sub_explicit(&shard->broker->plogs, 1, memory_order_relaxed); /* a gauge */
    }
    nd_positions_release(&partition->carried);
    atomic_fetch_sub_explicit(&shard->broker->partitions, 1, memory_order_relaxed); /* a gauge */
    nd_free(partition);
}

void nd_partition_open_with(struct nd_partition *partition, struct nd_positions *positions)
{
    const struct nd_topic *topic = partition->topic->topic;
    struct nd_positions empty;

    if (positions == NULL) {
        nd_positions_init(&empty);
        positions = &empty;
    }
    partition->next = partition->end = positions->next_offset;
    partition->log_start = partition->durable_start = positions->log_start;
    partition->last_commit_ms = positions->last_commit_ms;
    nd_tail_init(&partition->tail, positions->flushed_offset);
    nd_lease_table_init(&partition->leases, positions->frontier,
                        topic != NULL ? topic->max_in_flight : CAP_UNKNOWN,
                        topic != NULL ? topic->max_acked_ahead : CAP_UNKNOWN);
    nd_lease_table_load(&partition->leases, positions);
    ND_ASSERT(partition->leases.frontier <= partition->end);
    nd_positions_copy(&partition->carried, positions);
    nd_free(partition->carried.ahead);
    nd_free(partition->carried.attempts);
    partition->carried.ahead = NULL;
    partition->carried.attempts = NULL;
    partition->carried.ahead_count = partition->carried.attempts_count = 0;
    partition->carried.id = partition->id;
    partition->state = ND_PARTITION_OPEN;
    nd_chores_watch(partition);
    if (partition->retain_due) {
        nd_chores_look_soon(partition);
    }
    nd_waiters_wake(partition);
    nd_partition_mark_dirty(partition);
}

void nd_partition_recover(struct nd_partition *partition, struct nd_recovered_partition *recovered)
{
    nd_partition_open_with(partition, &recovered->positions);
    for (uint32_t i = 0; i < recovered->runs_count; i++) {
        nd_tail_append(&partition->tail, &recovered->runs[i]);
    }
    recovered->runs_count = 0; /* their references are the tail's now */
    partition->position_from = recovered->needed_from;
    partition->used_ns = partition->topic->shard->now_ns;
    nd_partition_account(partition);
    nd_partition_update_pin(partition);
}

/* Reads the `state` of a partition that this process has not touched yet. */
struct open_job {
    struct nd_worker_job job;
    struct nd_partition *partition;
    const struct nd_env *env;
    uint8_t store_id[16];
    char dir[1024];
    struct nd_positions positions;
    enum nd_err result; /* OK, NOT_FOUND: nothing there, it is new; else why not */
    struct nd_errmsg msg;
};

static bool find_segment(void *arg, const char *name, enum nd_file_kind kind)
{
    size_t size = strlen(name);
    bool *found = arg;

    (void)kind;
    *found = size > 4 && strcmp(name + size - 4, ".log") == 0;
    return !*found;
}

/* @thread worker */
static void open_work(struct nd_worker_job *base)
{
    struct open_job *job = ND_CONTAINER_OF(base, struct open_job, job);
    bool found = false;

    job->result = nd_state_load(job->env, job->dir, job->store_id, &job->positions, &job->msg);
    if (job->result != ND_ERR_NOT_FOUND) {
        return;
    }
    enum nd_err err = job->env->list(job->env->impl, job->dir, find_segment, &found, &job->msg);
    if (err != ND_OK && err != ND_ERR_NOT_FOUND) {
        job->result = err;
    } else if (found) {
        /* Opened at its start it would hand out offsets that it already used (W8). */
        nd_errmsg_set(&job->msg, "%s has segments but no positions", job->dir);
        job->result = ND_ERR_CORRUPT;
    }
}

static void open_reply(struct nd_msg *msg, void *owner)
{
    struct open_job *job = ND_CONTAINER_OF(msg, struct open_job, job.reply);
    struct nd_partition *partition = job->partition;
    struct nd_topic_state *topic = partition->topic;
    struct nd_shard *shard = owner;

    shard->jobs -= 1;
    if (job->result == ND_OK || job->result == ND_ERR_NOT_FOUND) {
        nd_partition_open_with(partition, job->result == ND_OK ? &job->positions : NULL);
    } else {
        partition->state = ND_PARTITION_DAMAGED;
        partition->retain_due = false;
        nd_cold_release(partition);
        partition->retry_ns = shard->now_ns + DAMAGED_RETRY_NS;
        nd_log_lasting(shard->broker->options.log, ND_LOG_ERROR, "broker", "partition not opened",
                       "topic=%s partition=%u err=%s reason=\"%s\"", partition->id.topic,
                       partition->id.partition, nd_err_name(job->result), job->msg.text);
        nd_waiters_damaged(partition);
    }
    nd_positions_release(&job->positions);
    nd_free(job);
    shard->accepts_due = true; /* some may be for it */
    nd_topic_state_unpark(topic);
    nd_topic_state_pending_end(topic);
    nd_topic_state_unbusy(topic);
}

static void open_start(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;
    struct open_job *job = nd_xcalloc(1, sizeof *job);

    job->partition = partition;
    job->env = shard->env;
    memcpy(job->store_id, nd_flusher_plog_options(shard->broker->options.flusher)->store_id,
           sizeof job->store_id);
    nd_flusher_partition_dir(shard->broker->options.flusher, &partition->id, job->dir,
                             sizeof job->dir);
    nd_positions_init(&job->positions);
    job->job.work = open_work;
    job->job.reply.run = open_reply;
    job->job.reply_to = &shard->inbox;
    partition->state = ND_PARTITION_OPENING;
    partition->topic->busy += 1;
    shard->jobs += 1;
    nd_topic_state_pending_begin(partition->topic);
    nd_workers_submit(shard->broker->workers, &job->job);
}

enum nd_partition_state nd_partition_touch(struct nd_partition *partition)
{
    partition->uses += 1;
    partition->used_ns = partition->topic->shard->now_ns;
    nd_cold_release(partition);
    return nd_partition_open_closed(partition);
}

enum nd_partition_state nd_partition_open_closed(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;

    switch (partition->state) {
    case ND_PARTITION_OPEN:
    case ND_PARTITION_OPENING: break;
    case ND_PARTITION_DAMAGED:
        if (shard->now_ns >= partition->retry_ns && !partition->topic->ended) {
            open_start(partition);
        }
        break;
    case ND_PARTITION_CLOSED:
        ND_ASSERT(!partition->topic->ended);
        if (partition->id.partition >= partition->topic->fresh_from) {
            nd_partition_open_with(partition, NULL);
        } else {
            open_start(partition);
        }
        break;
    }
    return partition->state;
}

void nd_partition_update_pin(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;
    struct nd_heap *heap = partition->lifting ? &shard->lifting : &shard->pins;
    uint64_t needed = ND_MIN(partition->position_from, nd_tail_oldest_sequence(&partition->tail));

    if (needed == UINT64_MAX || partition->topic->ended) {
        nd_heap_remove(heap, &partition->pin);
    } else {
        nd_heap_put(heap, &partition->pin, needed);
    }
}

void nd_partition_staged(struct nd_partition *partition, uint64_t sequence)
{
    partition->topic->shard->active = true;
    partition->uses += 1;
    if (partition->position_from == UINT64_MAX) {
        partition->position_from = sequence;
        nd_partition_update_pin(partition);
    }
}

void nd_partition_account(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;
    const struct nd_tail *tail = &partition->tail;

    /* relaxed: a bound that may be passed by what the other shards add at the same moment */
    atomic_fetch_add_explicit(&shard->broker->tail_bytes,
                              tail->bytes_unflushed - partition->accounted, memory_order_relaxed);
    if ((tail->bytes_unflushed > 0) != (partition->accounted > 0)) {
        /* relaxed: a count that the WAL is told once in a while */
        atomic_fetch_add_explicit(&shard->broker->tails,
                                  tail->bytes_unflushed > 0 ? 1u : UINT32_MAX,
                                  memory_order_relaxed);
    }
    partition->accounted = tail->bytes_unflushed;
    size_t unflushable = partition->unflushable ? tail->bytes_unflushed : 0;
    /* relaxed: a bound for what is restated */
    atomic_fetch_add_explicit(&shard->broker->unflushable_bytes,
                              unflushable - partition->accounted_unflushable, memory_order_relaxed);
    partition->accounted_unflushable = unflushable;
    shard->cached_bytes += tail->bytes_cached - partition->cached;
    partition->cached = tail->bytes_cached;
    if (partition->cached > 0 && nd_list_empty(&partition->cached_link)) {
        nd_list_append(&shard->cached, &partition->cached_link);
    }
    if (tail->bytes_unflushed > 0 && partition->flush == NULL && !partition->topic->ended) {
        nd_heap_put(&shard->by_size, &partition->by_size, UINT64_MAX - tail->bytes_unflushed);
        nd_heap_put(&shard->by_age, &partition->by_age, nd_flush_due_ns(partition));
    } else {
        nd_heap_remove(&shard->by_size, &partition->by_size);
        nd_heap_remove(&shard->by_age, &partition->by_age);
    }
}

uint64_t nd_partition_unflushed_start(const struct nd_partition *partition)
{
    struct nd_tail_run run;

    if (nd_tail_take_refs(&partition->tail, &run, 1, 0) == 0) {
        return UINT64_MAX;
    }
    nd_block_unref(run.block);
    return run.base_offset;
}

void nd_partition_positions(struct nd_partition *partition, struct nd_positions *out)
{
    nd_positions_copy(out, &partition->carried);
    out->id = partition->id;
    out->next_offset = partition->next;
    out->flushed_offset = partition->tail.flushed;
    out->log_start = partition->log_start;
    out->last_commit_ms = partition->last_commit_ms;
    nd_lease_table_store(&partition->leases, out, true);
}

void nd_partition_mark_dirty(struct nd_partition *partition)
{
    if (nd_list_empty(&partition->dirty)) {
        nd_list_append(&partition->topic->shard->dirty, &partition->dirty);
    }
}
