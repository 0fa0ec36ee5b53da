/* `<data>/metastore/raft/ballast` (W6): room that is taken while there is plenty of it, and given
 * back to Raft when the disk is full. Written, not sparse. libraft passes over files of this name.
 *
 * Dropping is for the raft thread; making takes long and is for a worker. They must not run at
 * once. */
#ifndef ND_BALLAST_H
#define ND_BALLAST_H

#include <stdatomic.h>

#include "storage/base/env.h"

#define ND_BALLAST_NAME "ballast"

struct nd_ballast {
    const struct nd_env *env;
    char *dir, *path;
    uint64_t bytes;     /* 0: there is none, ever */
    atomic_bool cancel; /* ends a nd_ballast_make() that is under way */
};

void nd_ballast_init(struct nd_ballast *ballast, const struct nd_env *env, const char *dir,
                     uint64_t bytes);
void nd_ballast_release(struct nd_ballast *ballast); /* the file stays */

/* Does all of it exist, with blocks of its own? */
bool nd_ballast_is_whole(const struct nd_ballast *ballast);
/* Is there as much room beside it as it takes? Only then it may be made. */
bool nd_ballast_fits(const struct nd_ballast *ballast);
/* Make it whole and durable. On an error nothing of it is left: NO_SPACE, CANCELLED, IO. */
ND_CHECKED enum nd_err nd_ballast_make(struct nd_ballast *ballast, struct nd_errmsg *msg);
/* Give the room back. False: there was none to give. */
bool nd_ballast_drop(struct nd_ballast *ballast);

#endif
