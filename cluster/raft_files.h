/* What is in Raft's directory, looked at before libraft opens it: libraft 0.15.0 renames and cuts
 * open segments while it still may refuse, and numbers their entries by the files before them, so a
 * segment that is missing or damaged in the middle shifts all that follow. And of a snapshot that
 * was cut it never stops asking for more (lz4_frame.h).
 *
 * The files are drawn in raft_layout.h. A closed segment is whole. Open ones were written in the
 * order of their numbers; what is behind the last whole batch of one is zeros, or torn by a crash
 * if no later one has entries. */
#ifndef ND_RAFT_FILES_H
#define ND_RAFT_FILES_H

#include "storage/base/env.h"

/* Check the directory, then name the open segments that a full disk has kept from it although a
 * later one was closed. Nothing is changed unless all is well. CORRUPT: a file is damaged or
 * missing (named), the log is gone, or ends before `reached_index`. UNSUPPORTED, NO_SPACE, IO. */
ND_CHECKED enum nd_err nd_raft_files_settle(const struct nd_env *env, const char *dir,
                                            uint64_t reached_index, struct nd_errmsg *msg);

#endif
