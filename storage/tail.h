/* The tail of a partition (F1): records in memory, by offset, as counted immutable runs. It holds
 * what is not yet in a segment, and, in front of that, runs that were flushed and stay readable
 * until their room is needed.
 *
 *      start            flushed             end
 *        |  cached runs    |   unflushed runs  |
 *
 * Runs are contiguous except for counted gaps between them. Owned by the shard; the flusher gets
 * counted references (nd_tail_take_refs). @thread the partition's shard */
#ifndef ND_TAIL_H
#define ND_TAIL_H

#include "storage/base/block.h"

#include "storage/record.h"

struct nd_tail_run {
    struct nd_block *block;  /* counted: this run holds one reference */
    struct nd_slice records; /* inside the block */
    uint64_t base_offset;
    uint64_t sequence;  /* of its COMMIT in the WAL, or of where it was restated since (F3) */
    uint64_t staged_ns; /* monotonic clock when it became visible */
    uint32_t count;
    uint64_t origin_member, origin_writer, origin_sequence; /* of its first record (W9) */
};

struct nd_tail {
    struct nd_tail_run *runs; /* ring */
    uint32_t capacity, head, count;
    uint64_t flushed;       /* runs that end at or below it are cached copies */
    size_t bytes_unflushed; /* of records, plus 64 a run for bookkeeping */
    size_t bytes_cached;
    /* Sequences ascend with the offsets until a run is restated; then the lowest one is kept here,
     * until nothing is unflushed. */
    bool unordered;
    uint64_t lowest_sequence;
    /* Where the last read ended, so that the next offset is found without a walk. */
    uint64_t cursor_offset;
    uint32_t cursor_run;
    size_t cursor_at;
};

void nd_tail_init(struct nd_tail *tail, uint64_t flushed);
void nd_tail_release(struct nd_tail *tail);
uint64_t
nd_tail_start(const struct nd_tail *tail); /* lowest offset readable here; == end when empty */
uint64_t nd_tail_end(const struct nd_tail *tail); /* one past the last */

/* Append; run->base_offset >= end, and the run ends above `flushed`. Takes over the run's
 * reference. */
void nd_tail_append(struct nd_tail *tail, const struct nd_tail_run *run);
/* Read one record; NOT_FOUND outside the runs. The view borrows from *block_out, which is not
 * counted: valid until the tail changes, or longer with nd_block_ref. */
ND_CHECKED enum nd_err nd_tail_read(struct nd_tail *tail, uint64_t offset,
                                    struct nd_record_view *out, struct nd_block **block_out);
/* The lowest sequence of an unflushed run; UINT64_MAX when there is none. */
uint64_t nd_tail_oldest_sequence(const struct nd_tail *tail);
uint64_t nd_tail_oldest_ns(const struct nd_tail *tail); /* UINT64_MAX when there is none */
/* Copy counted references to the oldest unflushed runs into `out` (room for `out_max`), at most
 * `bytes_max` bytes but at least one run. Returns how many. */
uint32_t nd_tail_take_refs(const struct nd_tail *tail, struct nd_tail_run *out, uint32_t out_max,
                           size_t bytes_max);
/* The same of those unflushed runs whose sequence lies below `sequence`; none when the first one is
 * bigger than `bytes_max`. */
uint32_t nd_tail_take_below(const struct nd_tail *tail, uint64_t sequence, struct nd_tail_run *out,
                            uint32_t out_max, size_t bytes_max);
/* The runs that begin at `bases`, as far as they are still unflushed, lie at `sequence` now. */
void nd_tail_restated(struct nd_tail *tail, const uint64_t *bases, uint32_t count,
                      uint64_t sequence);
/* Records below `offset` are in a verified segment now: runs that lie below it become cached. One
 * that it cuts stays whole and unflushed; a partition log takes only what it lacks of it. */
void nd_tail_set_flushed(struct nd_tail *tail, uint64_t offset);
/* Commit time of the record at `offset`; 0: it is not here. */
int64_t nd_tail_time_ms(const struct nd_tail *tail, uint64_t offset);
/* The offset below which every unflushed record is older than `cutoff_ms`; `flushed` when none is.
 */
uint64_t nd_tail_aged(const struct nd_tail *tail, int64_t cutoff_ms);
/* Drop the oldest cached run; returns its bytes, 0 when none is cached. */
size_t nd_tail_drop_cached(struct nd_tail *tail);

#endif
