/* What is in Raft's directory, looked at before libraft opens it: libraft 0.15.0 renames and cuts
 * open segments while it still may refuse, and numbers their entries by the files before them, so a
 * segment that is missing or damaged in the middle shifts all that follow. And of a snapshot that
 * was cut it never stops asking for more (lz4_frame.h).
 *
 * FILES. `<first>-<last>` (16 digits each): a closed segment, whole. `open-<n>`: one that was being
 * written, in the order of n; what is behind its last whole batch is zeros, or torn by a crash if
 * no later one has entries. `snapshot-<term>-<index>-<time>` with `.meta`. `metadata1`,
 * `metadata2`: term and vote. A SEGMENT, little-endian: u64 format (1; 0: nothing written yet),
 * then batches: u32 crc of the header | u32 crc of the data | header: u64 n, n times u64 term, u8
 * type, 3 bytes 0, u32 size | data: n times the bytes, padded to 8. The crc: polynomial 0x04C11DB7,
 * highest bit first, from 0, not inverted. */
#ifndef ND_RAFT_FILES_H
#define ND_RAFT_FILES_H

#include "storage/base/env.h"

/* Check the directory, then name the open segments that a full disk has kept from it although a
 * later one was closed. Nothing is changed unless all is well. CORRUPT: a file is damaged or
 * missing (named), the log is gone, or ends before `reached_index`. UNSUPPORTED, NO_SPACE, IO. */
ND_CHECKED enum nd_err nd_raft_files_settle(const struct nd_env *env, const char *dir,
                                            uint64_t reached_index, struct nd_errmsg *msg);

#endif
