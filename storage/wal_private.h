/* What the parts of the write-ahead log share: staging and step (wal.c), files of the running log
 * (wal_roll.c), opening (wal_open.c), trimming and room (wal_trim.c). */
#ifndef ND_WAL_PRIVATE_H
#define ND_WAL_PRIVATE_H

#include "storage/wal.h"
#include "storage/wal_file.h"

/* A file of the log; the last of nd_wal.files is the active one. */
struct nd_wal_file {
    struct nd_list link;
    uint64_t first_sequence;
    uint64_t bytes; /* on the device */
    uint64_t used;  /* up to the end of its frames */
};

struct nd_wal_spare {
    struct nd_list link;
    uint64_t number;
};

/* The file that is written. @thread wal */
struct nd_wal_active {
    int file;
    bool open;
    bool rested; /* nothing was written since the last empty frame */
    uint64_t epoch;
    uint64_t at;            /* end of what was written */
    uint64_t synced_to;     /* end of what was synced */
    uint64_t next_sequence; /* that the next frame must begin with */
};

struct nd_wal {
    struct nd_wal_options options; /* dir is our own copy; limits are final */
    const struct nd_env *env;
    uint64_t writer;
    size_t unit_bytes_max;

    struct nd_mutex lock; /* the staging lock */
    struct nd_bell bell;  /* wakes the thread */
    /* guarded by lock */
    struct nd_list staged; /* units, in order */
    size_t staged_bytes;   /* of units staged and not yet returned */
    struct nd_list stagers;
    uint64_t left_needed_from; /* of stagers that are gone: their entries are needed all the same */
    struct nd_list files;      /* ascending */
    struct nd_list spares;
    uint32_t files_count, spares_count;
    uint64_t spare_next; /* number of the next one made */
    uint64_t sequence_next, sequence_synced;
    uint64_t generation;
    uint64_t replay_from;             /* of the newest synced CHECKPOINT */
    uint64_t entries_ns;              /* when entries were last written */
    uint64_t bytes_free, inodes_free; /* as last measured */
    uint32_t tails;                   /* partitions with a tail */
    uint64_t groups, syncs, bytes_written;
    bool failed, disk_full;
    bool tight;              /* the disk has no room for more spares than needed */
    bool sleeping, stopping; /* of the thread */

    /* @thread wal */
    struct nd_wal_active active;
    uint8_t *frame;    /* one frame is built here; aligned, options.frame_bytes_max */
    uint64_t retry_ns; /* when failed: not before */
    uint64_t group_ns; /* when the last group was synced */
    struct nd_thread thread;

    /* @thread flusher */
    bool dir_in_doubt; /* a removal whose directory sync failed */

    struct nd_series *metric_groups, *metric_syncs, *metric_bytes, *metric_entries;
    struct nd_series *metric_failures, *metric_failed, *metric_disk_full, *metric_sync_seconds;
    struct nd_series *metric_bytes_free;
};

/* Start a new active file that begins at `first` (W3). The old one was synced, or has failed and is
 * closed. @thread wal, opener */
ND_CHECKED enum nd_err nd_wal_start_file(struct nd_wal *wal, uint64_t first, struct nd_errmsg *msg);
/* Is another file worth keeping as a spare? @locks wal->lock */
bool nd_wal_spare_wanted_locked(const struct nd_wal *wal) ND_REQUIRES(wal->lock);
/* Make spares until there are enough. @thread flusher, opener */
ND_CHECKED enum nd_err nd_wal_fill_spares(struct nd_wal *wal, struct nd_errmsg *msg);
/* Remove one spare that is not needed; false: there is none, or it could not be removed.
 * @thread flusher */
bool nd_wal_drop_spare(struct nd_wal *wal);
void nd_wal_spare_add(struct nd_wal *wal, uint64_t number);
void nd_wal_file_add(struct nd_wal *wal, uint64_t first_sequence, uint64_t bytes, uint64_t used);
/* Lowest sequence that any stager needs; UINT64_MAX: none. @locks wal->lock */
uint64_t nd_wal_needed_from_locked(const struct nd_wal *wal) ND_REQUIRES(wal->lock);
/* Decide whether produce is refused, from what was measured and what is unflushed (W6).
 * @locks wal->lock */
void nd_wal_judge_space_locked(struct nd_wal *wal) ND_REQUIRES(wal->lock);
/* Ask the file system what is free, and judge (W6). @thread any */
void nd_wal_measure_room(struct nd_wal *wal);
/* An empty frame that says how far syncs reached, unless the last frame is one. @thread wal */
ND_CHECKED enum nd_err nd_wal_write_rest(struct nd_wal *wal, struct nd_errmsg *msg);

/* For the opener. */
struct nd_wal *nd_wal_new(const struct nd_wal_options *options);
void nd_wal_free(struct nd_wal *wal);

#endif
