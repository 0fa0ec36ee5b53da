/* What the files under <data>/metastore hold, for `narad dump` and `narad verify`: identity, view,
 * and Raft's segments, terms and snapshots, whose commands are ours. Changes nothing; any bytes may
 * be given. The files of Raft's library are drawn in raft_layout.h.
 * @thread the tool's */
#ifndef ND_INSPECT_H
#define ND_INSPECT_H

#include "storage/base/env.h"
#include "storage/base/report.h"

#include "cluster/state.h"

/* Lines for one file. UNSUPPORTED: it is none of these; nothing was reported. Errors as env.
 * *damages_out: lines "damage". */
ND_CHECKED enum nd_err nd_inspect_file(const struct nd_env *env, const char *path,
                                       struct nd_report *report, uint64_t *damages_out,
                                       struct nd_errmsg *msg);

/* Before Raft's library opens its directory: does a file hold a term that is not below that of the
 * log's entries? The library takes a damaged one for term 0 and never leads again. CORRUPT names
 * the files. Errors of the disk. */
ND_CHECKED enum nd_err nd_inspect_term_check(const struct nd_env *env, const char *raft_dir,
                                             struct nd_errmsg *msg);

struct nd_inspect_result {
    uint64_t damages, bytes;
};

/* Check <data_dir>/metastore: a line "damage" a finding. `topics_out`, initialised and empty, gets
 * what the view holds, if it is whole. Errors of the disk end it. */
ND_CHECKED enum nd_err nd_inspect_metadata(const struct nd_env *env, const char *data_dir,
                                           struct nd_report *report, struct nd_state *topics_out,
                                           struct nd_inspect_result *out, struct nd_errmsg *msg);

#endif
