/* The log of one partition on the device: segments of frames of records (F3, F4, F6). Written by
 * the flusher behind the WAL, read by workers when memory no longer has a record.
 *
 *   <data>/topics/<topic>/<incarnation, 16 hex>/p00003/
 *       00000000000000000000.log     segments, named by their base offset, 64 MiB each
 *       00000000000000000000.index   sparse index of a sealed one; rebuilt when missing
 *       state                        written at eviction and move only
 *
 * A plog is counted: shard, flusher and readers each hold a reference; unlink waits for nobody.
 * Threads: nd_plog_write...verify from the flusher only; reads and the getters from any thread; the
 * list of segments is guarded by a lock held only to look at it. */
#ifndef ND_PLOG_H
#define ND_PLOG_H

#include "storage/base/env.h"
#include "storage/base/log.h"
#include "storage/base/metrics.h"

#include "storage/compress.h"
#include "storage/tail.h"

struct nd_plog;
struct nd_remover;
struct nd_plog_scratch;

struct nd_plog_options {
    const struct nd_env *env;
    uint8_t store_id[16];
    uint64_t segment_bytes;      /* 64 MiB; a frame that would pass it starts a new one */
    uint32_t frame_bytes;        /* 256 KiB of records a frame, and at least one record */
    uint32_t index_stride_bytes; /* 32 KiB between anchors */
    enum nd_codec codec;
    enum nd_level level;
    struct nd_log *log;
    struct nd_metrics *metrics;
    /* Both shared, the flusher's; NULL: files are unlinked at once, buffers live for one call. */
    struct nd_remover *remover;
    struct nd_plog_scratch *scratch;
    /* At the open only. The directory is there, and it, those above it and the files in it are on
     * the device as they are in the cache: the open makes and syncs nothing. */
    bool synced;
    /* Logs of the process that keep the file they append to open between rounds; 0: all. */
    uint32_t files_max;
    /* At the open only. With start_known every offset of [log_start, flushed_offset) must lie in
     * some file: one that is lost makes the open CORRUPT. */
    bool start_known;
    uint64_t log_start;
};

/* The buffers and the compressor of the thread that writes. */
struct nd_plog_scratch *nd_plog_scratch_new(void);
void nd_plog_scratch_free(struct nd_plog_scratch *scratch);

/* Open the directory, making it (durably) when missing. `flushed_offset`: everything below it was
 * verified. `wal_start`: lowest offset that the WAL's replay holds in memory (UINT64_MAX: none):
 * bytes beyond flushed_offset are kept if valid and contiguous; they are cut only when the WAL
 * holds those offsets. A damaged frame below flushed_offset is a counted gap, never cut, never
 * skipped silently; a file that is missing is not taken for retention (see start_known). Errors:
 * IO, NO_SPACE, CORRUPT (message names file and offset). `options` are copied.
 * @thread worker or flusher (does I/O) */
ND_CHECKED enum nd_err nd_plog_open(struct nd_plog **out, const struct nd_plog_options *options,
                                    const char *dir, uint64_t flushed_offset, uint64_t wal_start,
                                    struct nd_errmsg *msg);
struct nd_plog *nd_plog_ref(struct nd_plog *plog);
void nd_plog_unref(struct nd_plog *plog); /* the last one closes the files */

struct nd_plog_stats {
    uint32_t segments;
    uint64_t start_offset, end_offset; /* [start, end) is stored and verified */
    uint64_t size_bytes;
    int64_t oldest_ms;    /* commit time of the first record; 0: none */
    uint64_t gap_records; /* offsets lost to damage */
    bool unflushable;     /* F3: three failures that are not disk full */
};
void nd_plog_stats(const struct nd_plog *plog, struct nd_plog_stats *out);
/* A commit time that the record at `offset` does not lie before: that of the first record of its
 * segment, or of an older one. 0: not known. */
int64_t nd_plog_time_ms(const struct nd_plog *plog, uint64_t offset);

/* --- writing, one round (F2, F3): write, sync, verify, commit. @thread flusher --- */
/* Append the runs (ascending; records below end_offset are passed over, so a repeat makes no
 * copies; a gap in front of a run is recorded) as frames. Nothing of it is readable yet, except
 * what a roll on the way synced and verified: end_offset says so. NO_SPACE: nothing pending counts;
 * try again later. IO: the segment is sealed at its last verified frame, the next write goes to a
 * new one. CORRUPT: unflushable, and the next try is not due. */
ND_CHECKED enum nd_err nd_plog_write(struct nd_plog *plog, const struct nd_tail_run *runs,
                                     uint32_t count, struct nd_errmsg *msg);
/* The descriptor that wrote, for the round's sync; -1: nothing is pending. */
int nd_plog_pending_file(const struct nd_plog *plog);
/* Tell the plog how its sync went; `names_too`: by a sync of the whole file system, so that the
 * directory needs none of its own. */
void nd_plog_synced(struct nd_plog *plog, enum nd_err result, bool names_too);
/* Read every pending frame back from the device and check it; then it counts and is readable. On
 * failure as IO above. *end_out is the new end offset. */
ND_CHECKED enum nd_err nd_plog_verify(struct nd_plog *plog, uint64_t *end_out,
                                      struct nd_errmsg *msg);

/* --- reading --- */
/* A decoded frame. `block` is counted: the caller's reference. */
struct nd_frame_data {
    struct nd_block *block;
    struct nd_slice records; /* checked */
    uint64_t base_offset;
    uint32_t count;
};
/* The frame that holds `offset`. NOT_FOUND: below the start, at or above the end, or in a gap.
 * CORRUPT: the frame is damaged. In both cases *next_out is the lowest stored offset above,
 * UINT64_MAX when there is none. IO: the device; try again. @thread worker */
ND_CHECKED enum nd_err nd_plog_read(struct nd_plog *plog, uint64_t offset,
                                    struct nd_frame_data *out, uint64_t *next_out,
                                    struct nd_errmsg *msg);

/* --- retention --- */
/* From the next write on a segment ends before it would span more than `retention_ms` of commit
 * times; 0: no such bound. @thread flusher */
void nd_plog_set_retention(struct nd_plog *plog, uint64_t retention_ms);
/* What age allows. */
struct nd_plog_aged {
    uint64_t start_offset; /* every segment below it is older than the cutoff */
    int64_t goes_ms;       /* no more goes while the cutoff is at or below it; INT64_MAX: nothing is
                              left */
};
/* `newest_ms`: no record of the log is younger. Where damage hides the youngest record of a
 * segment, a later one speaks for it. */
void nd_plog_aged(const struct nd_plog *plog, int64_t cutoff_ms, int64_t newest_ms,
                  struct nd_plog_aged *out);
/* Would nd_plog_trim(offset) remove anything? */
bool nd_plog_trimmable(const struct nd_plog *plog, uint64_t offset);
/* Drop whole segments that end at or below `offset`, oldest first, also the one that is appended
 * to. Files are removed gently (F7); a reader that is at one goes on. What was dropped comes back
 * with a power cut, so the durable log start must be at `offset` already. @thread flusher, between
 * rounds */
struct nd_plog_trimmed {
    uint64_t segments, records, bytes;
    bool failed; /* a file could not be removed: it and what follows is still there */
};
void nd_plog_trim(struct nd_plog *plog, uint64_t offset, struct nd_plog_trimmed *out);

#endif
