#include "server/broker/retain.h"

#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/broker/chores.h"
#include "server/broker/flush.h"
#include "server/broker/read.h"
#include "server/broker/restate.h"
#include "server/broker/settle.h"
#include "server/broker/waiters.h"
#include "server/broker/worker.h"
#include "storage/retention.h"

/* The log of a partition is opened, by a worker, or what lies below its log start is removed, by
 * the flusher. One of them at a time for a partition. */
struct nd_retain_job {
    struct nd_worker_job open;
    struct nd_flusher_task trim;
    struct nd_msg trimmed_reply;
    struct nd_partition *partition;
    struct nd_inbox *reply_to;
    const struct nd_env *env;
    struct nd_plog *plog; /* counted */
    struct nd_plog_options options;
    char dir[1024];
    uint64_t flushed, wal_start, offset, took_ns;
    enum nd_err result;
    struct nd_errmsg msg;
    struct nd_plog_trimmed trimmed;
};

static struct nd_retain_job *job_begin(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;
    struct nd_retain_job *job = nd_xcalloc(1, sizeof *job);

    job->partition = partition;
    job->reply_to = &shard->inbox;
    job->env = shard->env;
    partition->retain = job;
    partition->topic->busy += 1;
    shard->jobs += 1;
    return job;
}

static void job_end(struct nd_retain_job *job)
{
    struct nd_topic_state *topic = job->partition->topic;

    topic->shard->jobs -= 1;
    job->partition->retain = NULL;
    nd_free(job);
    nd_topic_state_unbusy(topic);
}

/* --- opening a log that only retention wants --- */

/* @thread worker */
static void open_work(struct nd_worker_job *base)
{
    struct nd_retain_job *job = ND_CONTAINER_OF(base, struct nd_retain_job, open);

    job->result =
        nd_plog_open(&job->plog, &job->options, job->dir, job->flushed, job->wal_start, &job->msg);
}

static void open_reply(struct nd_msg *msg, void *owner)
{
    struct nd_retain_job *job = ND_CONTAINER_OF(msg, struct nd_retain_job, open.reply);
    struct nd_partition *partition = job->partition;
    struct nd_shard *shard = owner;

    partition->plog_opening = false;
    if (job->result == ND_OK) {
        nd_partition_set_plog(partition, job->plog);
        nd_chores_look_soon(partition);
    } else {
        partition->retain_due = false; /* the next walk tries again */
        nd_log_lasting(shard->broker->options.log, ND_LOG_WARN, "broker",
                       "log not opened for retention", "topic=%s partition=%u err=%s reason=\"%s\"",
                       partition->id.topic, partition->id.partition, nd_err_name(job->result),
                       job->msg.text);
    }
    bool told = job->result == ND_OK || job->result == ND_ERR_CORRUPT;
    nd_read_resume(partition, told ? job->result : ND_ERR_UNAVAILABLE);
    job_end(job);
}

static void open_start(struct nd_partition *partition)
{
    struct nd_broker *broker = partition->topic->shard->broker;
    struct nd_flusher *flusher = broker->options.flusher;

    if (partition->plog_opening) {
        return; /* the next look finds it open */
    }
    struct nd_retain_job *job = job_begin(partition);
    job->options = *nd_flusher_plog_options(flusher);
    job->options.start_known = true;
    job->options.log_start = partition->log_start;
    job->flushed = partition->tail.flushed;
    job->wal_start = nd_partition_unflushed_start(partition);
    nd_flusher_partition_dir(flusher, &partition->id, job->dir, sizeof job->dir);
    job->open.work = open_work;
    job->open.reply.run = open_reply;
    job->open.reply_to = job->reply_to;
    partition->plog_opening = true;
    nd_workers_submit(broker->workers, &job->open);
}

/* --- removing --- */

/* @thread flusher */
static void trim_run(struct nd_msg *msg, void *owner)
{
    struct nd_retain_job *job = ND_CONTAINER_OF(msg, struct nd_retain_job, trim.msg);
    uint64_t from_ns = job->env->mono_ns(job->env->impl);

    (void)owner;
    nd_plog_trim(job->plog, job->offset, &job->trimmed);
    job->took_ns = job->env->mono_ns(job->env->impl) - from_ns;
    nd_inbox_push(job->reply_to, &job->trimmed_reply);
}

static void trimmed_count(struct nd_shard *shard, const struct nd_retain_job *job)
{
    struct nd_metrics *m = shard->broker->options.metrics;
    const struct nd_partition_id *id = &job->partition->id;
    char labels[2 * ND_TOPIC_NAME_SIZE_MAX + 80] = "", number[16];

    snprintf(number, sizeof number, "%u", id->partition);
    nd_metrics_label(labels, sizeof labels, "topic", id->topic);
    nd_metrics_label(labels, sizeof labels, "partition", number);
    nd_metrics_label(labels, sizeof labels, "reason", "age");
    nd_series_add(nd_metrics_counter(m, "storage_retention_bytes_deleted_total", labels,
                                     "Bytes of segments that retention removed."),
                  job->trimmed.bytes);
    nd_series_add(nd_metrics_counter(m, "storage_retention_messages_deleted_total", labels,
                                     "Messages in segments that retention removed."),
                  job->trimmed.records);
    nd_series_observe(shard->broker->meters.retention_seconds, (double)job->took_ns / 1e9);
    nd_series_add(shard->broker->meters.errors_retain, job->trimmed.failed);
}

static void trim_reply(struct nd_msg *msg, void *owner)
{
    struct nd_retain_job *job = ND_CONTAINER_OF(msg, struct nd_retain_job, trimmed_reply);

    nd_plog_unref(job->plog);
    if (!job->partition->topic->ended) {
        trimmed_count(owner, job);
        nd_partition_mark_dirty(job->partition);
        if (job->partition->for_retention && !job->trimmed.failed) {
            nd_chores_look_soon(job->partition); /* it may be closed again */
        }
    }
    job_end(job);
}

static void trim_start(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;

    if (partition->retain != NULL || partition->plog == NULL || nd_shard_stopping(shard) ||
        partition->topic->ended || !nd_plog_trimmable(partition->plog, partition->durable_start)) {
        return;
    }
    struct nd_retain_job *job = job_begin(partition);
    job->plog = nd_plog_ref(partition->plog);
    job->offset = partition->durable_start;
    job->trim.msg.run = trim_run;
    job->trimmed_reply.run = trim_reply;
    nd_flusher_run(shard->broker->options.flusher, &job->trim);
}

/* --- deciding --- */

/* The offset below which everything is older than the cutoff. */
static uint64_t aged_start(struct nd_partition *partition, int64_t cutoff_ms)
{
    uint64_t start = partition->log_start;
    struct nd_plog_aged aged;

    if (partition->plog != NULL) {
        nd_plog_aged(partition->plog, cutoff_ms, partition->last_commit_ms, &aged);
        start = ND_MAX(start, ND_MIN(aged.start_offset, partition->tail.flushed));
    }
    /* What cannot be flushed has no segment to go with. */
    if (start >= partition->tail.flushed && partition->flush_failed && partition->flush == NULL) {
        start = ND_MAX(start, nd_tail_aged(&partition->tail, cutoff_ms));
    }
    return start;
}

static void log_start_raise(struct nd_partition *partition, uint64_t start)
{
    nd_log(partition->topic->shard->broker->options.log, ND_LOG_INFO, "broker",
           "records aged out of retention", "topic=%s partition=%u from=%llu to=%llu",
           partition->id.topic, partition->id.partition, (unsigned long long)partition->log_start,
           (unsigned long long)start);
    partition->log_start = start;
    partition->unsaved = true;
    partition->uses += 1;
    nd_settle_jump(partition, start);
    nd_waiters_wake(partition);
    nd_partition_mark_dirty(partition);
}

/* What lies in the tail below the durable log start is not flushed any more. */
static void tail_drop(struct nd_partition *partition)
{
    if (partition->durable_start > partition->tail.flushed && partition->flush == NULL) {
        nd_tail_set_flushed(&partition->tail, partition->durable_start);
        if (partition->tail.bytes_unflushed == 0) {
            /* What could not be written is gone; what comes next is tried anew. */
            partition->unflushable = partition->flush_failed = false;
            nd_flush_count_unflushable(partition, false);
        }
        nd_partition_account(partition);
        nd_partition_update_pin(partition);
    }
}

void nd_retain_look(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;
    const struct nd_topic *topic = partition->topic->topic;

    if (topic == NULL || partition->retain != NULL || partition->evicting) {
        return;
    }
    int64_t cutoff_ms = nd_retention_cutoff_ms(nd_commit_clock_now_ms(shard->broker->options.clock),
                                               topic->retention_ms);
    if (partition->retain_due && partition->plog == NULL && cutoff_ms != ND_RETENTION_NOTHING) {
        open_start(partition);
        return;
    }
    partition->retain_due = false;
    if (cutoff_ms != ND_RETENTION_NOTHING) {
        uint64_t start = aged_start(partition, cutoff_ms);
        if (start > partition->log_start) {
            log_start_raise(partition, start);
        }
    }
    if (partition->log_start > partition->durable_start) {
        (void)nd_restate_add(partition); /* not now: the next look tries again */
    }
    tail_drop(partition);
    trim_start(partition);
}

void nd_retain_stated(struct nd_partition *partition)
{
    partition->durable_start = ND_MAX(partition->durable_start, partition->stated_start);
    tail_drop(partition);
    trim_start(partition);
}

bool nd_retain_owes(const struct nd_partition *partition)
{
    return partition->retain != NULL || partition->retain_due ||
           partition->log_start > partition->durable_start ||
           (partition->plog != NULL &&
            nd_plog_trimmable(partition->plog, partition->durable_start));
}
