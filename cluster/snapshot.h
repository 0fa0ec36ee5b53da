/* The whole replicated state as bytes: Raft's snapshot and the file `view`. The same state gives
 * the same bytes on every member (I-86).
 *
 * FORMAT, little-endian: 0 "NDMS" | 4 u32 format (1) | 8 u64 size of the body | 16 u32 crc32c of
 * bytes 0..16 and the body | 20 u32 zero | 24 body, a protobuf narad.cluster.v1.Snapshot | zeros up
 * to a multiple of 8. To change it: raise the format, keep the old decoder for one release, add a
 * file of the old one to tests/data. */
#ifndef ND_SNAPSHOT_H
#define ND_SNAPSHOT_H

#include "storage/base/buf.h"

#include "cluster/state.h"

#define ND_SNAPSHOT_SIZE_MAX ((size_t)1 << 30)
/* Of libraft's file with one: an LZ4 frame, whose blocks have heads and may be no smaller. */
#define ND_SNAPSHOT_FILE_SIZE_MAX (ND_SNAPSHOT_SIZE_MAX + ((size_t)1 << 20))

/* Append the snapshot of `state` to `out`. A failed buffer is the caller's to check. */
void nd_snapshot_put(struct nd_buf *out, const struct nd_state *state);

/* Fill `state`, which must be initialised and empty; on an error it is left empty. CORRUPT: not
 * exactly one encoding of a possible state. UNSUPPORTED: a newer format or an unknown field.
 * NO_MEMORY. */
ND_CHECKED enum nd_err nd_snapshot_get(struct nd_slice in, struct nd_state *state,
                                       struct nd_errmsg *msg);

#endif
