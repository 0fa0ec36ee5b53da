/* The write-ahead log of a node: every durable event of every partition goes through it, with one
 * sync stream (rules W1-W9, P1, P2, P6; format and procedures in storage/README.md).
 *
 * A *stager* (a shard, the dispatcher, the flusher) builds a *unit* (one or more entries that stand
 * or fall together and lie in one frame), stages it, and gets the unit back in its inbox once its
 * outcome is known: OK after the sync that covers it, otherwise an error after which nothing of it
 * will ever be replayed (W5) although the caller must treat the outcome towards clients as unknown.
 *
 * Threads: staging and nd_wal_stager_* from the stager's thread; nd_wal_step and the WAL thread are
 * one; nd_wal_trim from the flusher. The only lock is the staging lock, never held during I/O. Lock
 * order: wal staging lock -> inbox -> log. */
#ifndef ND_WAL_H
#define ND_WAL_H

#include "storage/base/env.h"
#include "storage/base/inbox.h"
#include "storage/base/log.h"
#include "storage/base/metrics.h"

#include "storage/positions.h"
#include "storage/record.h"

enum nd_wal_entry_type {
    ND_WAL_COMMIT = 1, /* records enter a partition this node owns */
    ND_WAL_ACCEPT =
        2,          /* a record whose partition this node does not own, or does not know it owns */
    ND_WAL_ACK = 3, /* settled offset ranges of one partition */
    ND_WAL_DISPATCHED = 4, /* ACCEPTs that need no more work */
    ND_WAL_CURSOR = 5,     /* a fan-out cursor advanced */
    ND_WAL_POSITION = 6,   /* one partition restated */
    ND_WAL_CHECKPOINT = 7, /* a flush round was verified */
    ND_WAL_RESTATED = 8,   /* records of a COMMIT again: no segment takes them (F3) */
};

/* What a stager wants written; slices are borrowed until the unit's outcome. */
struct nd_wal_commit {
    const struct nd_partition_id *id; /* copied */
    uint64_t base_offset;
    int64_t time_ms;
    uint32_t count;
    struct nd_slice records;
    /* Origin of the run's first record, one sequence a record. member 0: this node, this entry's
     * own sequence (W9). */
    uint64_t origin_member, origin_writer, origin_sequence;
};

struct nd_wal_accept {
    const struct nd_partition_id *id;
    int64_t time_ms; /* accept time */
    uint32_t count;  /* records, one sequence each */
    struct nd_slice records;
    uint64_t writer, sequence; /* 0: this entry's own; else those of the original */
};

struct nd_wal_ack {
    const struct nd_partition_id *id;
    const struct nd_offset_range *ranges; /* copied */
    uint32_t ranges_count;
};

struct nd_wal_dispatched {
    uint64_t writer;
    const struct nd_offset_range *ranges; /* of sequences; copied */
    uint32_t ranges_count;
};

struct nd_wal_flushed {
    struct nd_partition_id id;
    uint64_t offset;
};

struct nd_wal_checkpoint {
    const struct nd_wal_flushed *flushed; /* copied */
    uint32_t flushed_count;
    int64_t commit_clock_ms;
    /* replay_from is filled in at staging, under the lock, from what all stagers need */
};

enum nd_wal_class {
    ND_WAL_PRODUCE, /* refused with NO_SPACE when only the reserve is left (W6) */
    ND_WAL_RESERVED /* acks, cursors, positions, checkpoints: may use the reserve */
};

/* The caller's memory from init to release; the WAL's between stage and the return to the inbox. */
struct nd_wal_unit {
    struct nd_msg msg; /* msg.run set by the stager before staging; runs on its thread */
    enum nd_wal_class class;
    enum nd_err result;     /* out, at the outcome */
    uint64_t sequence;      /* out, at staging: its first sequence */
    uint64_t sequence_last; /* out, at staging */
    uint64_t generation;    /* the WAL's */
    uint32_t sequences;
    uint64_t checkpoint; /* private: replay_from of the CHECKPOINT in it; 0: there is none */
    struct nd_wal_stager *stager; /* private: whose inbox it returns to */
    size_t bytes;                 /* encoded size of all entries */
    struct nd_buf heads;          /* encoded entry heads; the records stay where they are */
    struct nd_wal_part {
        uint32_t head_at, head_size; /* in `heads` */
        struct nd_slice body;
        uint32_t own_sequence_at; /* where in `heads` the WAL writes own sequences; UINT32_MAX:
                                     nowhere */
    } * parts, parts_inline[4];
    uint32_t parts_count, parts_capacity;
};

void nd_wal_unit_init(struct nd_wal_unit *unit, enum nd_wal_class class);
void nd_wal_unit_reset(struct nd_wal_unit *unit); /* empty, keeps memory */
void nd_wal_unit_release(struct nd_wal_unit *unit);
void nd_wal_unit_add_commit(struct nd_wal_unit *unit, const struct nd_wal_commit *commit);
/* Records of an older entry again, at their offsets; data only. `commit` states their origin. */
void nd_wal_unit_add_restated(struct nd_wal_unit *unit, const struct nd_wal_commit *commit);
void nd_wal_unit_add_accept(struct nd_wal_unit *unit, const struct nd_wal_accept *accept);
void nd_wal_unit_add_ack(struct nd_wal_unit *unit, const struct nd_wal_ack *ack);
void nd_wal_unit_add_dispatched(struct nd_wal_unit *unit,
                                const struct nd_wal_dispatched *dispatched);
/* applied_sequence of `positions` is replaced by this entry's own sequence minus 1 at staging. */
void nd_wal_unit_add_position(struct nd_wal_unit *unit, const struct nd_positions *positions);
void nd_wal_unit_add_checkpoint(struct nd_wal_unit *unit,
                                const struct nd_wal_checkpoint *checkpoint);
void nd_wal_unit_add_cursor(struct nd_wal_unit *unit, const struct nd_partition_id *parent,
                            const struct nd_cursor *cursor);

/* An entry as replay and the tools see it. Everything borrowed until the callback returns. */
struct nd_wal_entry {
    enum nd_wal_entry_type type;
    uint64_t sequence, sequence_last;
    struct nd_partition_id id; /* COMMIT RESTATED ACCEPT ACK CURSOR */
    uint64_t base_offset;      /* COMMIT RESTATED */
    int64_t time_ms;           /* COMMIT RESTATED ACCEPT; CHECKPOINT: commit clock */
    uint32_t count;            /* COMMIT RESTATED ACCEPT: records */
    struct nd_slice records;   /* COMMIT RESTATED ACCEPT, checked */
    uint64_t origin_member, origin_writer, origin_sequence; /* of them; ACCEPT: filled in */
    const struct nd_offset_range *ranges;                   /* ACK DISPATCHED */
    uint32_t ranges_count;
    uint64_t writer;                      /* DISPATCHED */
    struct nd_cursor cursor;              /* CURSOR */
    const struct nd_positions *positions; /* POSITION */
    const struct nd_wal_flushed *flushed; /* CHECKPOINT */
    uint32_t flushed_count;
    uint64_t replay_from; /* CHECKPOINT */
};

struct nd_wal_options {
    const struct nd_env *env;
    const char *dir;             /* "<data>/wal"; made if missing */
    uint8_t store_id[16];        /* of FORMAT; a file of another store is refused by name */
    uint64_t member;             /* this node's number in origins */
    uint64_t file_bytes;         /* 64 MiB; at least 256 KiB, a multiple of 4096 */
    uint32_t frame_bytes_max;    /* 20 MiB, lowered to what a file can hold */
    size_t staged_bytes_max;     /* 72 MiB */
    uint64_t keep_bytes;         /* 128 MiB: what trim leaves */
    uint64_t disk_reserve_bytes; /* 64 MiB */
    uint32_t spares;             /* 2 */
    uint32_t spares_extra; /* kept beyond them while the log is busy and there is plenty of room */
    /* Or NULL. Gets the partition of every entry that is replayed, and of others; then NULL. */
    void (*preview)(void *arg, const struct nd_partition_id *id);
    bool must_exist; /* FORMAT says that this store has been opened before: no file is a loss */
    struct nd_log *log;
    struct nd_metrics *metrics;
};

struct nd_wal;

/* Open (W3, W4): find the files, refuse what is damaged (CORRUPT, msg names file and offset;
 * nothing was changed), replay every entry from the newest replay_from in order through `replay`
 * (not OK stops the open with that error), then start a new file. The newest synced CHECKPOINT
 * decides replay_from; it is found before the first callback.
 * @thread the opener's */
ND_CHECKED enum nd_err nd_wal_open(struct nd_wal **out, const struct nd_wal_options *options,
                                   enum nd_err (*replay)(void *arg,
                                                         const struct nd_wal_entry *entry,
                                                         struct nd_errmsg *msg),
                                   void *arg, struct nd_errmsg *msg);
/* Writes the last group and an empty frame with synced_to; every unit must have been returned. */
void nd_wal_close(struct nd_wal *wal);

/* --- stagers --- */
struct nd_wal_stager {
    struct nd_list link;    /* the WAL's */
    struct nd_inbox *inbox; /* where units and `failed` come back */
    struct nd_msg failed;   /* `run` set by the stager: the WAL failed; every unit staged before it
                               has come back already. Take back, then nd_wal_stager_adopt(). */
    bool failed_posted;     /* guarded by the staging lock */
    uint64_t generation;    /* adopted */
    uint64_t needed_from;   /* guarded by the staging lock */
    struct nd_list returned, returned_link; /* the WAL thread's */
};

/* Registers; before any staging. `stager->inbox` and `failed.run` are set by the caller. What
 * recovery found must be told with nd_wal_stager_needs before the first CHECKPOINT is staged by
 * anybody. */
void nd_wal_stager_add(struct nd_wal *wal, struct nd_wal_stager *stager);
/* Nothing of it is under way. What it needed stays needed until the log is closed. */
void nd_wal_stager_remove(struct nd_wal *wal, struct nd_wal_stager *stager);
/* OK: the unit comes back through the inbox. Otherwise it was not taken: NO_SPACE (W6), UNAVAILABLE
 * (the WAL is failed, or the stager has not adopted the generation), TOO_LARGE (more than a frame
 * holds), OVERLOADED (staging full: a budget above is wrong). Sequences are assigned here, in
 * staging order. */
ND_CHECKED enum nd_err nd_wal_stage(struct nd_wal *wal, struct nd_wal_stager *stager,
                                    struct nd_wal_unit *unit);
/* What this stager still needs replayed starts at `sequence` (UINT64_MAX: nothing). Staging lowers
 * it by itself to the unit's sequence when nothing was needed, unless the unit holds a CHECKPOINT.
 */
void nd_wal_stager_needs(struct nd_wal *wal, struct nd_wal_stager *stager, uint64_t sequence);
void nd_wal_stager_adopt(struct nd_wal *wal, struct nd_wal_stager *stager);
/* The biggest unit that a frame holds. @thread any */
size_t nd_wal_unit_bytes_max(const struct nd_wal *wal);

/* --- driving --- */
/* Take what is staged, write it, sync, return the units (W1). False when there was nothing to do.
 */
bool nd_wal_step(struct nd_wal *wal);
/* The thread that does so. */
ND_CHECKED bool nd_wal_thread_start(struct nd_wal *wal);
void nd_wal_thread_stop(struct nd_wal *wal); /* after the last staged group */

/* --- trimming --- */
/* Positions and tails below this sequence stand in the way of keeping the log small: flush or
 * restate them. 0: nothing does. With a full disk, or after 60 s without entries, it is the start
 * of the active file. @thread any */
uint64_t nd_wal_lift_below(struct nd_wal *wal);
/* Records that no segment takes, `bytes` in all, are to be restated at the head (F3) where they lie
 * below this sequence: keep_bytes and twice `bytes` behind, so that restating is never a reason to
 * restate. With a full disk, or after 60 s without entries, keep_bytes count as 0. 0: nowhere, or
 * the log is failed, or there is no room (W6). @thread any */
uint64_t nd_wal_restate_below(struct nd_wal *wal, uint64_t bytes);
/* Would a CHECKPOINT staged now free a file? @thread any */
bool nd_wal_trimmable(struct nd_wal *wal);
/* After a CHECKPOINT was synced: remove or recycle files wholly below its replay_from, oldest
 * first, and keep the spares complete. @thread flusher */
void nd_wal_trim(struct nd_wal *wal);
/* Measure the free space again, make missing spares (W6), remove those that a log at rest or a
 * disk without plenty does not keep. @thread flusher, once a second and when it met ENOSPC */
void nd_wal_check_space(struct nd_wal *wal);
/* How many partitions have a tail: each may need a block and an inode more. 0 at first. @thread any
 */
void nd_wal_set_tails(struct nd_wal *wal, uint32_t tails);

struct nd_wal_stats {
    uint64_t sequence_next, sequence_synced, replay_from;
    uint64_t writer;         /* this open's */
    uint64_t bytes_retained; /* files that count, without spares */
    uint64_t groups, syncs, bytes_written;
    uint32_t files, spares;
    bool failed;    /* between a failure and the fresh file */
    bool disk_full; /* produce is refused */
};
void nd_wal_stats(struct nd_wal *wal, struct nd_wal_stats *out);

#endif
