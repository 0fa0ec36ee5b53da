/* The entries of the write-ahead log as bytes: units are built here, frames are taken apart here.
 * The drawings are in storage/README.md. Private to the log and its tools. */
#ifndef ND_WAL_ENTRY_H
#define ND_WAL_ENTRY_H

#include "storage/wal.h"

enum {
    ND_WAL_ENTRY_HEAD_SIZE = 16,
    ND_WAL_ENTRY_VERSION = 1,
};

/* Write the sequences that a unit got at staging into its heads: its own origins, the applied
 * sequence of a POSITION, the `replay_from` of a CHECKPOINT. unit->sequence is set.
 * @locks the staging lock */
struct nd_wal_stamp {
    uint64_t member, writer;
    uint64_t needed_from; /* lowest sequence that any stager needs; UINT64_MAX: none */
};
void nd_wal_unit_stamp(struct nd_wal_unit *unit, const struct nd_wal_stamp *stamp);

/* Memory for the arrays of decoded entries, reused from entry to entry. */
struct nd_wal_decoder {
    struct nd_offset_range *ranges;
    uint32_t ranges_capacity;
    struct nd_wal_flushed *flushed;
    uint32_t flushed_capacity;
    struct nd_positions positions;
};
void nd_wal_decoder_init(struct nd_wal_decoder *decoder);
void nd_wal_decoder_release(struct nd_wal_decoder *decoder);

/* Decode the entry that begins `in` and whose first sequence is `sequence`. *size_out: where the
 * next one begins. CORRUPT: it is not one; NO_MEMORY. `out` borrows from `in` and the decoder. */
ND_CHECKED enum nd_err nd_wal_entry_get(struct nd_wal_decoder *decoder, struct nd_slice in,
                                        uint64_t sequence, struct nd_wal_entry *out,
                                        size_t *size_out);
/* If `in` begins with a CHECKPOINT, its replay_from; 0 otherwise. *size_out and *sequences_out as
 * above; 0 when `in` begins with no entry. For the walk that finds where replay starts. */
uint64_t nd_wal_entry_peek(struct nd_slice in, size_t *size_out, uint32_t *sequences_out);
/* Which partition the entry that begins `in` is of: COMMIT, RESTATED, ACK, CURSOR, POSITION. False:
 * it is of none, or is no entry. */
bool nd_wal_entry_partition(struct nd_slice in, struct nd_partition_id *out);

#endif
