/* Recovery (W8): what the WAL and the `state` files say about every partition that has entries
 * worth replaying. Built while the WAL opens, then handed over to the broker. Needs no metadata. */
#ifndef ND_RECOVERY_H
#define ND_RECOVERY_H

#include "storage/plog.h"
#include "storage/state.h"
#include "storage/tail.h"
#include "storage/wal.h"

struct nd_recovered_partition {
    struct nd_list link;           /* in nd_recovery.partitions */
    struct nd_positions positions; /* as of the end of the WAL; owned */
    struct nd_tail_run
        *runs; /* ascending offsets, unflushed records; each holds a block reference; owned */
    uint32_t runs_count, runs_capacity;
    size_t runs_bytes;      /* of the records of the runs, plus 64 a run */
    uint64_t needed_from;   /* lowest sequence the WAL must keep for it until it is restated */
    uint64_t gap_records;   /* offsets that nothing holds */
    uint64_t acks_dropped;  /* settled offsets at or above the next offset */
    uint64_t position_from; /* private: first entry that its durable positions do not cover */
    uint64_t checkpointed;  /* private: flushed offset that a CHECKPOINT or positions state */
    uint64_t relieved_from; /* private: where flushed records lay of which no entry says so */
    uint64_t relieved_to;   /* private: up to which offset */
    bool relief_failed;     /* private to relieve.c */
    bool state_read;        /* private: its `state` was looked for */
    bool replayed;          /* private: an entry of it was; else it was only seen before */
    bool grounded;          /* private: positions or its very first entry were found */
    bool started;           /* private: a COMMIT was seen */
};

/* An ACCEPT neither dispatched nor discarded. */
struct nd_recovered_accept {
    struct nd_list link; /* in nd_recovery.accepts, ascending sequence */
    struct nd_partition_id id;
    struct nd_block *block; /* counted; owned */
    struct nd_slice records;
    uint64_t writer, sequence; /* origin of the first record, one sequence each */
    uint64_t entry_sequence;   /* its place in the WAL */
    int64_t time_ms;
    uint32_t count;
};

struct nd_recovery;

struct nd_recovery_options {
    const struct nd_env *env;
    const char *data_dir;
    uint8_t store_id[16];
    size_t tail_bytes_max; /* beyond it `relieve` is called; 0: no limit */
    /* Flush the runs of the fullest partitions and mark them flushed: relieve.h. NULL: memory
     * grows. */
    enum nd_err (*relieve)(void *arg, struct nd_recovery *recovery, struct nd_errmsg *msg);
    void *relieve_arg;
    bool positions_only; /* keep no records: for a look at where the partitions stand */
    struct nd_log *log;
};

struct nd_recovery {
    struct nd_recovery_options options;
    struct nd_map *by_id; /* (incarnation, partition) -> nd_recovered_partition */
    struct nd_list partitions;
    struct nd_list accepts;
    struct nd_map *dispatched; /* private */
    size_t relieve_above;      /* private */
    size_t tail_bytes, tail_bytes_peak;
    int64_t commit_clock_ms; /* newest seen */
    uint64_t entries;
    uint32_t refused; /* partitions with segments but no positions: logged by name and not
                         handed over, so that whoever touches one finds the same */
};

void nd_recovery_init(struct nd_recovery *recovery, const struct nd_recovery_options *options);
/* The replay callback of nd_wal_open; arg is the recovery. */
ND_CHECKED enum nd_err nd_recovery_replay(void *recovery, const struct nd_wal_entry *entry,
                                          struct nd_errmsg *msg);
/* The preview of nd_wal_open for the same recovery: reads the `state` files of all partitions that
 * the log mentions, with threads of its own. Without it the replay reads each when it is met, as it
 * does again with one that could not be read. */
void nd_recovery_preview(void *recovery, const struct nd_partition_id *id);
/* After the open returned: settle what is left (next offsets, gaps, pins). */
ND_CHECKED enum nd_err nd_recovery_finish(struct nd_recovery *recovery, struct nd_errmsg *msg);
/* For `relieve`: everything below `offset` is in verified segments; its runs go. No CHECKPOINT says
 * so, so the log keeps them until the partition is restated. */
void nd_recovery_set_flushed(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                             uint64_t offset);
/* Take one partition out (the caller owns it from then on), NULL when none is left. */
struct nd_recovered_partition *nd_recovery_pop(struct nd_recovery *recovery);
void nd_recovered_partition_free(struct nd_recovered_partition *partition);
void nd_recovered_accept_free(struct nd_recovered_accept *accept);
void nd_recovery_release(struct nd_recovery *recovery);

#endif
