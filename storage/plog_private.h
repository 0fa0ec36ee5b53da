/* What the files of the partition log share: plog.c (life, statistics, trim), plog_open.c,
 * plog_read.c, plog_write.c. */
#ifndef ND_PLOG_PRIVATE_H
#define ND_PLOG_PRIVATE_H

#include "storage/base/thread.h"

#include "storage/plog.h"
#include "storage/segment.h"

struct nd_plog_scratch {
    struct nd_compressor *compressor;
    uint8_t *raw; /* ND_FRAME_RAW_MAX: the records of the frame being built */
    uint8_t *out; /* OUT_CAPACITY: frames on their way to the file */
};

/* The flusher's side of a log. Between rounds `pending_count` is 0 and `at` lies on a block
 * boundary behind everything that counts. */
struct plog_writer {
    struct nd_segment *segment; /* a reference; NULL: the next write makes one */
    int file;                   /* of it; -1 */
    bool listed;                /* the segment has a verified frame and is in the list */
    bool name_synced;           /* the directory entry of the file is on the device */
    uint64_t at;                /* where the next bytes go */
    struct nd_segment_frame *pending;
    uint32_t pending_count, pending_capacity;
    enum nd_err sync_result;
    bool synced;
    uint32_t failures;     /* in a row, disk full not counted */
    uint64_t retry_ns;     /* when unflushable: not before */
    uint64_t retention_ms; /* a segment spans no more; 0: no bound */
};

struct nd_plog {
    _Atomic uint32_t refs;
    struct nd_plog_options options;
    char *dir;
    struct nd_series *unflushable_gauge;
    struct plog_writer writer;
    struct nd_mutex lock;         /* held only to look at the list */
    struct nd_segment **segments; /* guarded by lock, as all that follows; ascending base offsets */
    uint32_t segments_count, segments_capacity;
    uint64_t end_offset;
    bool unflushable;
};

/* @thread any */
void plog_push_locked(struct nd_plog *plog, struct nd_segment *segment) ND_REQUIRES(plog->lock);
/* Index of the last segment whose base offset is at or below `offset`; UINT32_MAX: none. */
uint32_t plog_find_locked(const struct nd_plog *plog, uint64_t offset);
/* Rename a file of the log aside and have it removed; a failure is logged, the next open tries
 * again. */
bool plog_discard_file(const struct nd_plog *plog, uint64_t base_offset, const char *suffix);

/* --- plog_write.c. @thread flusher, or the opener before the log is shared --- */
/* Make an existing, listed segment the one that is appended to, or seal it for good. */
void plog_writer_adopt(struct nd_plog *plog, struct nd_segment *segment, int file);
void plog_index_store(const struct nd_plog *plog, const struct nd_segment *segment);
void plog_writer_release(struct nd_plog *plog);
/* Close the file that is appended to, and forget it; nothing of it is pending. */
void plog_writer_drop(struct nd_plog *plog);

#endif
