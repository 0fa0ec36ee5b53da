/* How libraft 0.15.0 lays out its directory: names and bytes of its files, for who looks at them
 * before it does (raft_files.h) or beside it (inspect.h). Pure.
 *
 * FILES, little-endian:
 *
 *   <first>-<last>   16 digits each: a closed segment. open-<n>: one that was being written. Both:
 *                    u64 format 1 (0: nothing written yet) | batches, each: u32 crc of the header |
 *                    u32 crc of the data | header: u64 count, count times: u64 term, u8 type, 3
 *                    bytes 0, u32 size | data: count times the bytes, padded to 8.
 *                    Type 1: a command of ours (command.h), 2: a barrier, 3: a configuration. An
 *                    open one is zeros behind its last batch.
 *   metadata1, 2     u64 format 1 | u64 version, odd in metadata1, even in metadata2 | u64 term |
 *                    u64 voted for. The higher version counts.
 *   snapshot-<term>-<index>-<time>   an LZ4 frame of snapshot.h's bytes, or those bytes
 *   the same .meta   u64 format 1 | u64 crc of the rest as it follows | u64 configuration index |
 *                    u64 configuration size | configuration
 *
 * The crc is CRC-32, polynomial 0x04c11db7, first bit highest, from 0, not inverted. */
#ifndef ND_RAFT_LAYOUT_H
#define ND_RAFT_LAYOUT_H

#include "storage/base/slice.h"

enum {
    ND_RAFT_FORMAT = 1,
    ND_RAFT_FORMAT_SIZE = 8,
    ND_RAFT_BATCH_HEAD_SIZE = 16, /* the crcs and the count */
    ND_RAFT_ENTRY_HEAD_SIZE = 16,
    ND_RAFT_TERM_SIZE = 32,
    ND_RAFT_META_HEAD_SIZE = 32,
};

#define ND_RAFT_META_SUFFIX ".meta"

/* Which of the files a name is. */
enum nd_raft_kind {
    ND_RAFT_NONE,
    ND_RAFT_CLOSED,
    ND_RAFT_OPEN,
    ND_RAFT_TERM, /* metadata1, metadata2 */
    ND_RAFT_SNAPSHOT,
    ND_RAFT_META,
};

struct nd_raft_name {
    enum nd_raft_kind kind;
    uint64_t first,
        last; /* CLOSED: of its entries, as the name says; a snapshot: `last` its index */
    uint64_t term, time; /* of a snapshot, or its META */
    uint64_t number;     /* of an OPEN one */
};

struct nd_raft_name nd_raft_name_get(const char *name);

uint32_t nd_raft_crc(struct nd_slice bytes);
/* What an entry of `size` bytes takes in a batch. */
static inline size_t nd_raft_padded(size_t size)
{
    return (size + 7) / 8 * 8;
}
/* The size of the whole batch that `in` begins with, and how many entries it has; 0: none does. */
size_t nd_raft_batch_size(struct nd_slice in, uint64_t *entries_out);

#endif
