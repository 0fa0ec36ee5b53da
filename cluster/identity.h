/* `<data>/metastore/identity`: which member this data directory is, for its whole life.
 *
 * FORMAT, little-endian, 48 bytes: 0 "NDID" | 4 u32 format (1) | 8 u64 member | 16 cluster id, 16
 * bytes | 32 u32 bootstrapped (0 or 1) | 36 u64 zero | 44 u32 crc32c of the bytes before. */
#ifndef ND_IDENTITY_H
#define ND_IDENTITY_H

#include "storage/base/env.h"

enum { ND_CLUSTER_ID_SIZE = 16 };

struct nd_identity {
    uint64_t member; /* random, never 0; also the Raft id: a wiped node comes back as another */
    uint8_t cluster[ND_CLUSTER_ID_SIZE];
    /* Raft's own files exist since: if they are missing, metadata was lost and the node refuses. */
    bool bootstrapped;
};

/* NOT_FOUND: a new data directory. CORRUPT, UNSUPPORTED: named. Errors of the disk. */
ND_CHECKED enum nd_err nd_identity_load(const struct nd_env *env, const char *path,
                                        struct nd_identity *out, struct nd_errmsg *msg);
ND_CHECKED enum nd_err nd_identity_store(const struct nd_env *env, const char *path,
                                         const struct nd_identity *identity, struct nd_errmsg *msg);
/* New numbers from `env`'s randomness, not bootstrapped. */
struct nd_identity nd_identity_draw(const struct nd_env *env);

#endif
