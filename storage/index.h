/* The sparse index of a segment: where in the file the frame lies that holds an offset, or one
 * before it. It only shortens the search; what is served is checked in the log itself. For a sealed
 * segment it is stored beside the log with a summary of it, little-endian:
 *
 *    0 u32 magic "NDIX" | 4 u32 crc32c of the rest | 8 u32 format 1 | 12 u32 anchor count
 *   16 store id | 32 u64 base offset | 40 u64 epoch of the segment
 *   48 u64 end offset | 56 u64 records | 64 u64 size | 72 i64 first_ms | 80 i64 last_ms
 *   88 anchors, each u64 offset, u64 position; both ascend
 *
 * A file that is missing, damaged or of another segment is made again from the log. */
#ifndef ND_INDEX_H
#define ND_INDEX_H

#include "storage/base/buf.h"
#include "storage/base/err.h"

struct nd_anchor {
    uint64_t offset, at;
};

struct nd_index {
    struct nd_anchor *anchors;
    uint32_t count, capacity;
};

/* Which segment, and what is in it. */
struct nd_segment_summary {
    uint8_t store_id[16];
    uint64_t base_offset;
    uint64_t epoch;            /* random, of the file */
    uint64_t end_offset;       /* one past the last stored offset; base_offset when there is none */
    uint64_t records;          /* stored; fewer than the offsets when there are gaps */
    uint64_t size;             /* position behind the last frame that counts */
    int64_t first_ms, last_ms; /* commit times; 0: no record */
};

void nd_index_init(struct nd_index *index);
void nd_index_release(struct nd_index *index);
/* A frame that begins with `offset` lies at `at`: kept if it is `stride` bytes or more behind the
 * last anchor. */
void nd_index_add(struct nd_index *index, uint64_t offset, uint64_t at, uint32_t stride);
/* Where to begin the search for `offset`: the last anchor at or below it, 0 when there is none. */
uint64_t nd_index_find(const struct nd_index *index, uint64_t offset);

/* The ids that an index says it is of, unchecked, for tools; false: too short, or no index. */
bool nd_index_ids(struct nd_slice in, struct nd_segment_summary *out);

void nd_index_put(struct nd_buf *out, const struct nd_index *index,
                  const struct nd_segment_summary *summary);
/* CORRUPT unless `in` is exactly the index of the segment that `summary_out` names by store id,
 * base offset and epoch, which are the caller's; the rest is filled in. `index_out` is inited and
 * empty. */
ND_CHECKED enum nd_err nd_index_get(struct nd_slice in, struct nd_index *index_out,
                                    struct nd_segment_summary *summary_out);

#endif
