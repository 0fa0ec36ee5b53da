#include "server/broker/read.h"

#include "storage/base/alloc.h"

#include "server/broker/frames.h"
#include "server/broker/replay.h"
#include "server/broker/waiters.h"
#include "server/broker/worker.h"

enum { RETRY_NS = 100000000, LOST_RETRY_NS = 1000000000 };

/* One frame from the device, and the partition log with it when that is not open yet. */
struct nd_cold_read {
    struct nd_worker_job job;
    struct nd_partition *partition;
    struct nd_plog *plog; /* counted while the read is under way */
    struct nd_plog_options options;
    char dir[1024];
    uint64_t open_flushed, open_wal_start;
    bool open;
    uint64_t offset;
    struct nd_frame_data frame;
    uint64_t next;
    uint64_t start_offset;
    enum nd_err result;
    bool opened; /* the log is open: `result` is the read's */
    struct nd_errmsg msg;
};

static bool bad_covers(const struct nd_bad_range *bad, uint64_t offset)
{
    return bad->err != ND_OK && offset >= bad->offset && offset < bad->next;
}

enum nd_read_result nd_read_memory(struct nd_partition *partition, uint64_t offset,
                                   struct nd_read *out)
{
    if (offset < partition->log_start) {
        return ND_READ_BELOW_START;
    }
    if (nd_tail_read(&partition->tail, offset, &out->view, &out->block) == ND_OK ||
        nd_frames_read(partition, offset, &out->view, &out->block)) {
        return ND_READ_OK;
    }
    /* At or above `flushed` the tail holds all there is: the rest is a gap. */
    if (bad_covers(&partition->bad, offset) || offset >= partition->tail.flushed) {
        return ND_READ_SKIP;
    }
    return ND_READ_COLD;
}

/* @thread worker */
static void read_work(struct nd_worker_job *base)
{
    struct nd_cold_read *read = ND_CONTAINER_OF(base, struct nd_cold_read, job);
    struct nd_plog_stats stats;

    if (read->open) {
        read->result = nd_plog_open(&read->plog, &read->options, read->dir, read->open_flushed,
                                    read->open_wal_start, &read->msg);
        if (read->result != ND_OK) {
            return;
        }
    }
    read->opened = true;
    read->next = UINT64_MAX;
    read->result = nd_plog_read(read->plog, read->offset, &read->frame, &read->next, &read->msg);
    nd_plog_stats(read->plog, &stats);
    read->start_offset = stats.start_offset;
}

void nd_partition_set_plog(struct nd_partition *partition, struct nd_plog *plog)
{
    ND_ASSERT(partition->plog == NULL);
    partition->plog = plog;
    partition->plog_opening = false;
    /* relaxed: a gauge */
    atomic_fetch_add_explicit(&partition->topic->shard->broker->plogs, 1, memory_order_relaxed);
}

/* What a failed read of `offset` says about it and its neighbours. */
static void remember_bad(struct nd_partition *partition, const struct nd_cold_read *read)
{
    uint64_t next = read->offset + 1;

    if (read->result == ND_ERR_NOT_FOUND) {
        if (read->offset < read->start_offset) {
            partition->log_start = ND_MAX(partition->log_start, read->start_offset);
            return;
        }
        /* A gap up to the next stored offset, or up to what the tail holds. */
        next = ND_MAX(next, ND_MIN(read->next, partition->tail.flushed));
    }
    partition->bad = (struct nd_bad_range){read->offset, next, read->result};
    nd_log_lasting(partition->topic->shard->broker->options.log, ND_LOG_WARN, "broker",
                   "records cannot be read", "topic=%s partition=%u first=%llu next=%llu err=%s",
                   partition->id.topic, partition->id.partition, (unsigned long long)read->offset,
                   (unsigned long long)next, nd_err_name(read->result));
}

static enum nd_err read_take(struct nd_shard *shard, struct nd_cold_read *read)
{
    struct nd_partition *partition = read->partition;

    if (read->open && read->opened) {
        nd_partition_set_plog(partition, read->plog);
    } else if (read->plog != NULL) {
        nd_plog_unref(read->plog);
    }
    if (read->open) {
        partition->plog_opening = false;
    }
    if (read->opened && read->result == ND_OK) {
        nd_frames_add(partition, &read->frame);
        return ND_OK;
    }
    if (read->opened && (read->result == ND_ERR_CORRUPT || read->result == ND_ERR_NOT_FOUND)) {
        remember_bad(partition, read);
        return ND_OK;
    }
    /* It may be there the next time: nothing is skipped, nothing stays leased (I-59). A log that
     * cannot be opened as it is (a file is lost, P5) waits for a human. */
    bool unusable = !read->opened && read->result == ND_ERR_CORRUPT;
    nd_series_add(shard->broker->meters.errors_read, 1);
    nd_log_lasting(shard->broker->options.log, unusable ? ND_LOG_ERROR : ND_LOG_WARN, "broker",
                   unusable ? "partition is unavailable" : "read failed",
                   "topic=%s partition=%u offset=%llu reason=\"%s\"", partition->id.topic,
                   partition->id.partition, (unsigned long long)read->offset, read->msg.text);
    partition->retry_ns = shard->now_ns + (unusable ? LOST_RETRY_NS : RETRY_NS);
    nd_heap_put(&shard->retries, &partition->retry, partition->retry_ns);
    return read->opened || unusable ? read->result : ND_ERR_UNAVAILABLE;
}

static void read_reply(struct nd_msg *msg, void *owner)
{
    struct nd_cold_read *read = ND_CONTAINER_OF(msg, struct nd_cold_read, job.reply);
    struct nd_partition *partition = read->partition;
    struct nd_shard *shard = owner;

    shard->jobs -= 1;
    partition->read = NULL;
    enum nd_err err = read_take(shard, read);
    nd_free(read);
    nd_read_resume(partition, err);
    nd_topic_state_unbusy(partition->topic);
}

void nd_read_resume(struct nd_partition *partition, enum nd_err err)
{
    bool unusable = err == ND_ERR_CORRUPT;

    nd_replays_resume(partition, unusable ? ND_ERR_UNAVAILABLE : err);
    if (partition->wait_read) {
        partition->wait_read = false;
        if (unusable) {
            nd_waiters_damaged(partition);
        } else if (err != ND_OK) {
            nd_waiters_read_failed(partition, err);
        }
        nd_waiters_wake(partition);
        nd_topic_state_pending_end(partition->topic);
    }
}

void nd_read_wait(struct nd_partition *partition)
{
    if (!partition->wait_read) {
        partition->wait_read = true;
        nd_topic_state_pending_begin(partition->topic);
    }
}

void nd_read_start(struct nd_partition *partition, uint64_t offset)
{
    struct nd_topic_state *topic = partition->topic;
    struct nd_shard *shard = topic->shard;
    struct nd_flusher *flusher = shard->broker->options.flusher;

    if (partition->read != NULL || (partition->plog == NULL && partition->plog_opening)) {
        return; /* nd_read_resume() follows */
    }
    struct nd_cold_read *read = nd_xcalloc(1, sizeof *read);
    read->partition = partition;
    read->offset = offset;
    if (partition->plog != NULL) {
        read->plog = nd_plog_ref(partition->plog);
    } else {
        read->open = true;
        read->options = *nd_flusher_plog_options(flusher);
        read->options.start_known = true;
        read->options.log_start = partition->log_start;
        read->open_flushed = partition->tail.flushed;
        read->open_wal_start = nd_partition_unflushed_start(partition);
        nd_flusher_partition_dir(flusher, &partition->id, read->dir, sizeof read->dir);
        partition->plog_opening = true;
    }
    read->job.work = read_work;
    read->job.reply.run = read_reply;
    read->job.reply_to = &shard->inbox;
    partition->read = read;
    topic->busy += 1;
    shard->jobs += 1;
    nd_workers_submit(shard->broker->workers, &read->job);
}
