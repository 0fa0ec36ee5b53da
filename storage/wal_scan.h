/* Looking at the files of a log that is not open: what counts, where replay starts, what is damaged
 * (W3, W4). Used by the opener and by the repair. Private to the log and its tools. */
#ifndef ND_WAL_SCAN_H
#define ND_WAL_SCAN_H

#include "storage/wal.h"
#include "storage/wal_file.h"

/* One file as it was found. */
struct nd_wal_found {
    struct nd_wal_header header;
    uint64_t first_sequence; /* of its name */
    uint64_t size;           /* of the file; smaller than header.file_bytes: it was cut */
    uint64_t end;            /* of the frames that count */
    uint64_t last_sequence;  /* that counts; first_sequence - 1: none does */
    uint64_t limit;          /* nothing beyond it counts: lowest previous_end of the later files */
    bool must_reach;         /* its frames must reach `limit`, if that lies in it */
    uint64_t damaged_at;     /* 0: nothing that counts is missing */
    uint8_t *image;          /* what was read, so that the replay need not read again; or NULL */
    uint64_t image_size;
    bool ignored;        /* wholly below replay_from: was not looked at */
    bool header_damaged; /* nothing else is known (only without `strict`) */
    bool orphan;         /* files before it that replay needs are missing (only without `strict`) */
    bool spare;          /* name and header disagree: not part of the log */
};

struct nd_wal_scan {
    /* In, or NULL: gets the partition of every entry that counts in the files that are looked at.
     */
    void (*preview)(void *arg, const struct nd_partition_id *id);
    void *preview_arg;
    uint64_t images_bytes;      /* held by `files` */
    uint64_t checkpoint;        /* private: replay_from of the last CHECKPOINT of a file; 0: none */
    struct nd_wal_found *files; /* ascending */
    size_t count;
    uint64_t replay_from;   /* of the newest CHECKPOINT; 0: there is none */
    uint64_t last_sequence; /* the highest that counts */
};

/* Look at all of them, newest first. `scan` is zeros but for its preview. With `strict` the first
 * damage ends it with CORRUPT and a message that names file and offset; without, damage is only
 * noted (the repair). Nothing is changed. */
ND_CHECKED enum nd_err nd_wal_scan_read(struct nd_wal_scan *scan, const struct nd_env *env,
                                        const char *dir, const struct nd_wal_names *names,
                                        const uint8_t store_id[16], bool strict,
                                        struct nd_errmsg *msg);
void nd_wal_scan_release(struct nd_wal_scan *scan);
/* Call back for every entry that counts, from replay_from on, in order; gives the images back. */
ND_CHECKED enum nd_err nd_wal_scan_replay(
    struct nd_wal_scan *scan, const struct nd_env *env, const char *dir,
    enum nd_err (*replay)(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg),
    void *arg, struct nd_errmsg *msg);

#endif
