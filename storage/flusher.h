/* The flusher: takes tails of partitions, writes them into segments, syncs, reads back, and tells
 * WAL and shards (F2-F4, W7). One thread, or nd_flusher_step in the simulator. It never touches a
 * shard's memory: jobs carry counted references. */
#ifndef ND_FLUSHER_H
#define ND_FLUSHER_H

#include "storage/plog.h"
#include "storage/state.h"
#include "storage/wal.h"

struct nd_flusher;

/* One tail to flush. The sender's memory until `reply` comes back to its inbox. */
struct nd_flush_job {
    struct nd_msg msg; /* the flusher's while submitted */
    struct nd_msg
        reply; /* run set by the sender; posted when the round's CHECKPOINT is synced, or failed */
    struct nd_inbox *reply_to;
    struct nd_partition_id id;
    struct nd_plog *plog; /* counted; the sender's reference. NULL: open `dir` first */
    uint64_t open_log_start, open_flushed, open_wal_start; /* for that open, see nd_plog_open */
    uint64_t retention_ms;    /* of the topic: how much time a segment may span; 0: any */
    struct nd_tail_run *runs; /* counted references, released by the sender after the reply */
    uint32_t runs_count;
    enum nd_err result;     /* out: OK, NO_SPACE (postponed: try again), IO, UNKNOWN_OUTCOME (the
                               segment is verified, the CHECKPOINT failed), CORRUPT (unflushable) */
    struct nd_plog *opened; /* out: when plog was NULL; the sender's reference from then on */
    uint64_t flushed;       /* out: everything below is in verified segments */
};

/* Any other work for the flusher's thread (opening a partition log, removing a directory gently,
 * storing a state, a retention walk): `run(task, flusher)` on its thread, between rounds. */
struct nd_flusher_task {
    struct nd_msg msg;
};

struct nd_flusher_options {
    struct nd_plog_options plog;
    const char *data_dir;
    struct nd_wal *wal;
    int64_t (*commit_clock_ms)(void *arg); /* for CHECKPOINTs */
    void *commit_clock_arg;
    uint32_t sync_one_by_one_max; /* 8: more files in a round are synced with one syncfs */
    struct nd_log *log;
    struct nd_metrics *metrics;
};

ND_CHECKED enum nd_err nd_flusher_new(struct nd_flusher **out,
                                      const struct nd_flusher_options *options,
                                      struct nd_errmsg *msg);
void nd_flusher_free(struct nd_flusher *flusher); /* stopped, no job under way */
/* @thread any */
void nd_flusher_submit(struct nd_flusher *flusher, struct nd_flush_job *job);
void nd_flusher_run(struct nd_flusher *flusher, struct nd_flusher_task *task);
/* The directory of a partition under the data directory. */
void nd_flusher_partition_dir(const struct nd_flusher *flusher, const struct nd_partition_id *id,
                              char *out, size_t out_size);
const struct nd_plog_options *nd_flusher_plog_options(const struct nd_flusher *flusher);

/* One step: a whole round for the jobs that are there up to staging its CHECKPOINT, or what comes
 * after it was synced; also, at most once a second of env time: space check, CHECKPOINT when
 * nd_wal_trimmable. False: nothing to do. */
bool nd_flusher_step(struct nd_flusher *flusher);
ND_CHECKED bool nd_flusher_thread_start(struct nd_flusher *flusher);
void nd_flusher_thread_stop(struct nd_flusher *flusher); /* after the jobs that were submitted */

/* Rename a directory aside under <data>/removed/ durably, then remove it in gentle steps from later
 * flusher steps (F7). `done` may be NULL. */
struct nd_remove_job {
    struct nd_msg msg;
    struct nd_msg reply;       /* posted after the durable rename */
    struct nd_inbox *reply_to; /* NULL: the flusher frees the job */
    char path[1024];
    enum nd_err result;
};
void nd_flusher_remove(struct nd_flusher *flusher, struct nd_remove_job *job);
/* Remove a directory if nothing is in it, and leave it otherwise: after what was moved aside
 * before, and on the thread that makes directories. The path is copied. Nothing is synced: an empty
 * one that a power cut brings back means nothing. @thread any */
void nd_flusher_remove_empty(struct nd_flusher *flusher, const char *path);

#endif
