/* What inspect.c (identity, view, the whole) and inspect_raft.c (Raft's files) share. */
#ifndef ND_INSPECT_PRIVATE_H
#define ND_INSPECT_PRIVATE_H

#include "cluster/inspect.h"

struct inspect {
    const struct nd_env *env;
    struct nd_report *report;
    bool quiet;  /* findings only, with their file; else everything, of one file */
    bool silent; /* not even findings: only what follows is of use */
    uint64_t damages, bytes;
    uint64_t term_version, term; /* of the newest whole RAFT_TERM; 0: none */
    uint64_t entries_term;       /* the highest of all entries and snapshots */
    struct nd_errmsg *msg;
};

/* Which of Raft's files a name is. */
enum raft_kind {
    RAFT_NONE,
    RAFT_CLOSED,   /* a segment, "0000000000000002-0000000000000008": first and last index */
    RAFT_OPEN,     /* "open-3": a segment that was being written */
    RAFT_TERM,     /* "metadata1", "metadata2" */
    RAFT_SNAPSHOT, /* "snapshot-<term>-<index>-<timestamp>" */
    RAFT_META,     /* the same with ".meta" */
};

struct raft_name {
    enum raft_kind kind;
    uint64_t first, last; /* of RAFT_CLOSED; `last` of a snapshot: its index */
    uint64_t term;        /* of a snapshot */
};

struct raft_name inspect_raft_name(const char *name);
/* `bytes` of a file of that kind. *valid_out: it can be used; of a RAFT_TERM: it holds a term. */
void inspect_raft_bytes(struct inspect *in, const char *path, const struct raft_name *name,
                        struct nd_slice bytes, bool *valid_out);
/* Where a dump would show a hash of a password. */
#define INSPECT_HIDDEN "<hidden>"
/* "grants": "produce:orders-*,audit consume:*". */
void inspect_grants(struct nd_report *report, const struct nd_user *user);
void inspect_damage(struct inspect *in, const char *path, uint64_t at, const char *what);

#endif
