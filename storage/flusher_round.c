#include <inttypes.h>
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/flusher_private.h"

enum { JOBS_MAX = 4096, PATH_SIZE = 1024 };
static const uint64_t tick_pause_ns = 1000000000;

static struct nd_flush_job *job_of(struct nd_list *link)
{
    return ND_CONTAINER_OF(link, struct nd_flush_job, msg.link);
}

static void job_reply(struct nd_flush_job *job)
{
    nd_list_remove(&job->msg.link);
    nd_inbox_push(job->reply_to, &job->reply);
}

static double seconds_since(const struct nd_flusher *flusher, uint64_t from_ns)
{
    return (double)(flusher->env->mono_ns(flusher->env->impl) - from_ns) / 1e9;
}

static void failure_tell(const struct nd_flusher *flusher, const struct nd_flush_job *job,
                         const struct nd_errmsg *msg)
{
    enum nd_log_level level = job->result == ND_ERR_NO_SPACE ? ND_LOG_WARN : ND_LOG_ERROR;

    nd_log_lasting(flusher->options.log, level, "storage", "flush failed",
                   "topic=%s partition=%" PRIu32 " err=%s reason=\"%s\"", job->id.topic,
                   job->id.partition, nd_err_name(job->result), msg->text);
    nd_series_add(nd_metrics_counter(flusher->options.metrics, "errors_total",
                                     "component=\"storage\",kind=\"flush\"",
                                     "Errors, by component and kind."),
                  1);
}

/* What a job may hear: out of descriptors or memory heals by itself, as a full disk does. */
static enum nd_err open_result(enum nd_err err)
{
    switch ((int)err) {
    case ND_OK:
    case ND_ERR_NO_SPACE:
    case ND_ERR_CORRUPT: return err;
    case ND_ERR_LIMITED:
    case ND_ERR_NO_MEMORY: return ND_ERR_NO_SPACE;
    default: return ND_ERR_IO;
    }
}

/* --- the four passes of a round --- */

static void job_open(struct nd_flusher *flusher, struct nd_flush_job *job, bool synced,
                     struct nd_errmsg *msg)
{
    struct nd_plog_options options = flusher->options.plog;
    char dir[PATH_SIZE];

    options.synced = synced;
    options.start_known = true;
    options.log_start = job->open_log_start;
    nd_flusher_partition_dir(flusher, &job->id, dir, sizeof dir);
    job->result = open_result(
        nd_plog_open(&job->opened, &options, dir, job->open_flushed, job->open_wal_start, msg));
    if (job->result == ND_OK) {
        job->plog = job->opened;
    }
}

static size_t job_bytes(const struct nd_flush_job *job)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < job->runs_count; i++) {
        bytes += job->runs[i].records.size;
    }
    return bytes;
}

static void bytes_count(const struct nd_flusher *flusher, const struct nd_flush_job *job)
{
    char labels[ND_TOPIC_NAME_SIZE_MAX * 2 + 64] = "", number[16];

    if (flusher->options.metrics == NULL) {
        return;
    }
    snprintf(number, sizeof number, "%" PRIu32, job->id.partition);
    nd_metrics_label(labels, sizeof labels, "topic", job->id.topic);
    nd_metrics_label(labels, sizeof labels, "partition", number);
    nd_series_add(nd_metrics_counter(flusher->options.metrics, "storage_flush_bytes_total", labels,
                                     "Bytes of records handed to partition logs."),
                  job_bytes(job));
}

/* Make one level of the directories of the jobs that open a log: `up` of them lie below it. */
static enum nd_err level_make(struct nd_flusher *flusher, uint32_t up, bool *made_out)
{
    ND_LIST_FOREACH (&flusher->jobs, link) {
        struct nd_flush_job *job = job_of(link);
        char dir[PATH_SIZE];
        if (job->plog != NULL) {
            continue;
        }
        nd_flusher_partition_dir(flusher, &job->id, dir, sizeof dir);
        for (uint32_t i = 0; i < up; i++) {
            *strrchr(dir, '/') = '\0';
        }
        enum nd_err err = flusher->env->mkdir(flusher->env->impl, dir, NULL);
        if (err != ND_OK && err != ND_ERR_ALREADY_EXISTS) {
            return err;
        }
        *made_out |= err == ND_OK;
    }
    return ND_OK;
}

/* Opening a log syncs every new name on the way, and what a crash may have left. Where many are
 * opened, a sync of the file system for each level does the same: a directory is durable before the
 * next is made in it. True: so it is, and the logs need no syncs of their own to be opened. */
static bool round_dirs(struct nd_flusher *flusher)
{
    enum { LEVELS = 4 }; /* topics, topic, incarnation, partition */
    const struct nd_env *env = flusher->env;
    uint32_t opens = 0;

    ND_LIST_FOREACH (&flusher->jobs, link) {
        opens += job_of(link)->plog == NULL;
    }
    if (opens <= flusher->options.sync_one_by_one_max) {
        return false;
    }
    for (uint32_t up = LEVELS; up-- > 0;) {
        bool made = false;
        if (level_make(flusher, up, &made) != ND_OK ||
            ((made || up == 0) && env->sync_fs(env->impl, flusher->fs_file, NULL) != ND_OK)) {
            return false; /* each by itself then, with its own error */
        }
    }
    return true;
}

/* Open where needed and write all. Jobs that failed are replied to, the others are in `round`; a
 * second job of a log waits for the next round. */
static void round_write(struct nd_flusher *flusher)
{
    struct nd_list later = ND_LIST_INIT(later);
    bool synced = round_dirs(flusher);
    uint32_t taken = 0;

    for (struct nd_list *link; taken < JOBS_MAX && (link = nd_list_pop(&flusher->jobs)) != NULL;) {
        struct nd_flush_job *job = job_of(link);
        struct nd_errmsg msg = {{0}};
        if (job->plog != NULL && nd_plog_pending_file(job->plog) != -1) {
            nd_list_append(&later, link);
            continue;
        }
        taken += 1;
        nd_list_append(&flusher->round, link);
        if (job->plog == NULL) {
            job_open(flusher, job, synced, &msg);
        }
        if (job->plog != NULL) {
            nd_plog_set_retention(job->plog, job->retention_ms);
            job->result = nd_plog_write(job->plog, job->runs, job->runs_count, &msg);
        }
        if (job->result != ND_OK) {
            failure_tell(flusher, job, &msg);
        } else {
            bytes_count(flusher, job);
        }
    }
    nd_list_move(&later, &flusher->jobs);
    nd_list_move(&flusher->jobs, &later);
}

static bool job_pending(const struct nd_flush_job *job)
{
    return job->result == ND_OK && nd_plog_pending_file(job->plog) != -1;
}

static void round_sync(struct nd_flusher *flusher)
{
    const struct nd_env *env = flusher->env;
    uint64_t from_ns = env->mono_ns(env->impl);
    struct nd_errmsg msg = {{0}};
    uint32_t files = 0;
    bool all_synced = false;

    ND_LIST_FOREACH (&flusher->round, count_link) {
        files += job_pending(job_of(count_link));
    }
    if (files > flusher->options.sync_one_by_one_max) {
        /* An error here may be that of any file of the file system, also of the WAL's: then each
         * file of the round is asked for its own. */
        all_synced = env->sync_fs(env->impl, flusher->fs_file, &msg) == ND_OK;
    }
    ND_LIST_FOREACH (&flusher->round, link) {
        struct nd_flush_job *job = job_of(link);
        if (job_pending(job)) {
            int file = nd_plog_pending_file(job->plog);
            enum nd_err err = all_synced ? ND_OK : env->sync(env->impl, file, &msg);
            nd_plog_synced(job->plog, err, all_synced);
        }
    }
    if (files > 0) {
        nd_series_observe(flusher->sync_seconds, seconds_since(flusher, from_ns));
    }
}

/* Read back. What a job has got is stated in job->flushed, also when it failed on the way. */
static void round_verify(struct nd_flusher *flusher)
{
    ND_LIST_FOREACH (&flusher->round, link) {
        struct nd_flush_job *job = job_of(link);
        struct nd_errmsg msg = {{0}};
        struct nd_plog_stats stats;
        if (job->result == ND_OK) {
            uint64_t end;
            job->result = nd_plog_verify(job->plog, &end, &msg);
            if (job->result != ND_OK) {
                failure_tell(flusher, job, &msg);
            }
        }
        if (job->plog != NULL) {
            nd_plog_stats(job->plog, &stats);
            job->flushed = stats.end_offset;
        }
    }
}

/* What the CHECKPOINT states; jobs that got nothing done are replied to. */
static uint32_t round_flushed(struct nd_flusher *flusher)
{
    uint32_t count = 0, jobs = 0;

    ND_LIST_FOREACH (&flusher->round, count_link) {
        (void)count_link;
        jobs += 1;
    }
    if (jobs > flusher->flushed_capacity) {
        flusher->flushed_capacity = jobs;
        flusher->flushed = nd_xrealloc(flusher->flushed, jobs * sizeof *flusher->flushed);
    }
    ND_LIST_FOREACH (&flusher->round, link) {
        struct nd_flush_job *job = job_of(link);
        uint64_t first = job->runs_count > 0 ? job->runs[0].base_offset : UINT64_MAX;
        if (job->plog != NULL && (job->result == ND_OK || job->flushed > first)) {
            flusher->flushed[count++] =
                (struct nd_wal_flushed){.id = job->id, .offset = job->flushed};
        } else {
            job_reply(job);
        }
    }
    return count;
}

/* --- checkpoints --- */

/* The CHECKPOINT did not become durable: segments hold the records all the same. */
static void round_unknown(struct nd_flusher *flusher)
{
    ND_LIST_FOREACH (&flusher->round, link) {
        struct nd_flush_job *job = job_of(link);
        job->result = job->result == ND_OK ? ND_ERR_UNKNOWN_OUTCOME : job->result;
        job_reply(job);
    }
}

static enum nd_err checkpoint_stage(struct nd_flusher *flusher, uint32_t count)
{
    struct nd_wal_checkpoint checkpoint = {
        .flushed = flusher->flushed,
        .flushed_count = count,
        .commit_clock_ms = flusher->options.commit_clock_ms(flusher->options.commit_clock_arg),
    };

    nd_wal_unit_reset(&flusher->unit);
    flusher->unit.msg.run = flusher_unit_back;
    nd_wal_unit_add_checkpoint(&flusher->unit, &checkpoint);
    enum nd_err err = nd_wal_stage(flusher->options.wal, &flusher->stager, &flusher->unit);
    flusher->staged = err == ND_OK;
    return err;
}

void flusher_unit_back(struct nd_msg *msg, void *owner)
{
    struct nd_flusher *flusher = owner;

    ND_ASSERT(msg == &flusher->unit.msg && flusher->staged);
    flusher->staged = false;
    /* Nothing of ours has to be replayed: an older CHECKPOINT is only a lower one. */
    nd_wal_stager_needs(flusher->options.wal, &flusher->stager, UINT64_MAX);
    if (flusher->unit.result != ND_OK) {
        nd_log_lasting(flusher->options.log, ND_LOG_WARN, "storage", "checkpoint failed", "err=%s",
                       nd_err_name(flusher->unit.result));
        round_unknown(flusher);
        return;
    }
    ND_LIST_FOREACH (&flusher->round, link) {
        job_reply(job_of(link));
    }
    nd_wal_trim(flusher->options.wal);
}

bool flusher_round(struct nd_flusher *flusher)
{
    uint64_t from_ns = flusher->env->mono_ns(flusher->env->impl);

    if (flusher->staged || nd_list_empty(&flusher->jobs)) {
        return false;
    }
    round_write(flusher);
    round_sync(flusher);
    round_verify(flusher);
    uint32_t count = round_flushed(flusher);
    nd_series_observe(flusher->round_seconds, seconds_since(flusher, from_ns));
    /* In a second a fast disk takes more than the reserve holds: it is looked at as it fills. */
    nd_wal_check_space(flusher->options.wal);
    if (count > 0 && checkpoint_stage(flusher, count) != ND_OK) {
        round_unknown(flusher);
    }
    return true;
}

bool flusher_tick(struct nd_flusher *flusher)
{
    uint64_t now_ns = flusher->env->mono_ns(flusher->env->impl);

    if (now_ns < flusher->tick_ns) {
        return false;
    }
    flusher->tick_ns = now_ns + tick_pause_ns;
    nd_wal_check_space(flusher->options.wal);
    if (!flusher->staged && nd_wal_trimmable(flusher->options.wal)) {
        nd_ignore(checkpoint_stage(flusher, 0), "the next second tries again");
    }
    return true;
}
