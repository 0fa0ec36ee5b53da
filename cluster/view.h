/* `<data>/metastore/view`: the applied state as of at most a second ago, in the form of a snapshot
 * (snapshot.h). A starting node reads topics from it until its replica has caught up (C2); Raft is
 * the truth. The file is replaced durably, whole. */
#ifndef ND_VIEW_H
#define ND_VIEW_H

#include "storage/base/env.h"

#include "cluster/state.h"

/* Fill `state`, which must be initialised and empty. NOT_FOUND: there is no view yet. CORRUPT and
 * UNSUPPORTED name the file. Other errors of the disk. */
ND_CHECKED enum nd_err nd_view_load(const struct nd_env *env, const char *path,
                                    struct nd_state *state, struct nd_errmsg *msg);
/* Put `snapshot` (bytes of nd_snapshot_put) in the place of the view. @thread any */
ND_CHECKED enum nd_err nd_view_store(const struct nd_env *env, const char *path,
                                     struct nd_slice snapshot, struct nd_errmsg *msg);

#endif
