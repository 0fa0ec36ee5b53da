/* A write-ahead log for the tests of the flusher: linked in place of the real one, it keeps what
 * was staged until the test says how it went. Only what the flusher calls is here. */
#ifndef ND_TESTS_FAKE_WAL_H
#define ND_TESTS_FAKE_WAL_H

#include "storage/wal.h"

struct nd_wal {
    struct nd_wal_stager *stager;
    struct nd_wal_unit *staged; /* at most one: the flusher has one CHECKPOINT under way */
    uint64_t sequence_next;
    uint64_t generation;
    enum nd_err refuse; /* what staging answers; OK: it takes */
    bool trimmable;
    uint32_t trims, space_checks, checkpoints, adoptions;
    /* of the last CHECKPOINT staged */
    struct nd_wal_flushed flushed[64];
    uint32_t flushed_count;
    int64_t commit_clock_ms;
    enum nd_wal_class class;
};

/* Give the staged unit back with this outcome; a bad one is followed by `failed`. False: there is
 * none. */
bool fake_wal_finish(struct nd_wal *wal, enum nd_err result);

#endif
