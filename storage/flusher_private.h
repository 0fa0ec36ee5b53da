/* What flusher.c (life, thread, tasks) and flusher_round.c (rounds, checkpoints) share. */
#ifndef ND_FLUSHER_PRIVATE_H
#define ND_FLUSHER_PRIVATE_H

#include <stdatomic.h>

#include "storage/flusher.h"

/* A round, from the jobs it took to the outcome of its CHECKPOINT:
 *
 *   IDLE ── jobs ──► written, synced, verified ── stage ──► STAGED ── unit back ──► replies, IDLE
 *                                                 └ refused: UNKNOWN_OUTCOME, IDLE */
struct nd_flusher {
    struct nd_flusher_options options;
    char *data_dir;
    const struct nd_env *env;
    struct nd_remover *remover;
    struct nd_plog_scratch *scratch;
    struct nd_inbox inbox;
    struct nd_wal_stager stager;
    struct nd_wal_unit unit; /* the one CHECKPOINT under way */
    bool staged;
    struct nd_list jobs;            /* links of nd_flush_job.msg: waiting for a round */
    struct nd_list round;           /* the same: verified, waiting for the CHECKPOINT */
    struct nd_wal_flushed *flushed; /* of the CHECKPOINT being made */
    uint32_t flushed_capacity;
    int fs_file;      /* held for sync_fs since the start (F2) */
    uint64_t tick_ns; /* next look at the space and the log's size */
    struct nd_series *round_seconds, *sync_seconds;
    struct nd_thread thread;
    _Atomic bool stopping;
};

/* Take the waiting jobs through a whole round; false: none waits or a CHECKPOINT is under way. */
bool flusher_round(struct nd_flusher *flusher);
/* Once a second: free space, and a CHECKPOINT of nothing when that would free a file. */
bool flusher_tick(struct nd_flusher *flusher);
/* flusher->unit came back. */
void flusher_unit_back(struct nd_msg *msg, void *owner);

#endif
