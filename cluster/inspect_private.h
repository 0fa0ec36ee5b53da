/* What inspect.c (identity, view, the whole) and inspect_raft.c (Raft's files) share. */
#ifndef ND_INSPECT_PRIVATE_H
#define ND_INSPECT_PRIVATE_H

#include "cluster/inspect.h"
#include "cluster/raft_layout.h"

struct inspect {
    const struct nd_env *env;
    struct nd_report *report;
    bool quiet;  /* findings only, with their file; else everything, of one file */
    bool silent; /* not even findings: only what follows is of use */
    uint64_t damages, bytes;
    uint64_t term_version, term; /* of the newest whole ND_RAFT_TERM; 0: none */
    uint64_t entries_term;       /* the highest of all entries and snapshots */
    struct nd_errmsg *msg;
};

/* `bytes` of a file of that kind. *valid_out: it can be used; of a ND_RAFT_TERM: it holds a term.
 */
void inspect_raft_bytes(struct inspect *in, const char *path, const struct nd_raft_name *name,
                        struct nd_slice bytes, bool *valid_out);
/* Where a dump would show a hash of a password. */
#define INSPECT_HIDDEN "<hidden>"
/* "grants": "produce:orders-*,audit consume:*". */
void inspect_grants(struct nd_report *report, const struct nd_user *user);
void inspect_damage(struct inspect *in, const char *path, uint64_t at, const char *what);

#endif
