/* Admission of a produce: limits, partition choice, and the one copy of the records into their
 * stored form. Pure: no I/O, no locks. @thread any (net) */
#ifndef ND_ADMISSION_H
#define ND_ADMISSION_H

#include "storage/base/block.h"

#include "cluster/topic.h"
#include "storage/record.h"

/* A record as the client sent it; borrowed. */
struct nd_produce_record {
    struct nd_slice key, payload;
    const struct nd_record_header *headers;
    uint32_t header_count;
    int64_t partition; /* -1: by key, else the pin */
};

/* The records of one partition, contiguous in the block, in the order they were sent. */
struct nd_admission_run {
    uint32_t partition;
    uint32_t count;
    struct nd_slice records;
    uint64_t base_offset; /* filled in by the shard */
};

struct nd_placement {
    uint32_t partition;
    uint32_t index;  /* within the partition's run */
    uint64_t offset; /* filled in on success */
};

struct nd_admission {
    struct nd_topic *topic;        /* counted */
    struct nd_block *block;        /* counted; runs point into it */
    struct nd_admission_run *runs; /* in the block's front part */
    uint32_t runs_count;
    struct nd_placement *placements; /* one a record, in the order sent; in the block */
    uint32_t count;
    bool has_offsets;
};

/* FNV-1a, 32 bits: "k" = 3993778410, "customer-42" = 4268273086. */
uint32_t nd_fnv1a32(struct nd_slice bytes);

/* Check every record against the limits and encode all. `spread` is the node's counter for records
 * without a key: a batch's keyless records go to one partition, the next batch's to the next.
 * INVALID_ARGUMENT with a text that names the record ("record 3: ...", no prefix for a single one),
 * what was wrong and what is allowed; TOO_LARGE (payload or batch); NO_MEMORY. On success the
 * caller owns one reference to topic (taken here) and block. */
ND_CHECKED enum nd_err nd_admission_encode(struct nd_admission *out, const struct nd_topic *topic,
                                           const struct nd_produce_record *records, uint32_t count,
                                           _Atomic uint32_t *spread, struct nd_errmsg *msg);
/* The one partition it goes to; -1: several. */
static inline int32_t nd_admission_partition(const struct nd_admission *admission)
{
    return admission->runs_count == 1 ? (int32_t)admission->runs[0].partition : -1;
}
void nd_admission_release(struct nd_admission *admission); /* drops both references */

#endif
