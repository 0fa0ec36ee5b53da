/* What a deleted topic may leave behind: a crash between the delete and the renaming of its
 * directory, or one that could not be renamed, when the log knows nothing of the incarnation any
 * more. Soon after the ownership latch, and then once an hour, a worker lists the directories of a
 * shard's topics, a few at a time; of an incarnation that nobody knows the shard makes a state
 * without a record, and so it is asked about, and removed only when it is confirmed gone (P5,
 * delete.h). A directory of a name with nothing in it just goes. @thread shard */
#ifndef ND_SWEEP_H
#define ND_SWEEP_H

#include "server/broker/shard.h"

/* Begin when it is due. */
void nd_sweep_step(struct nd_shard *shard);
uint64_t nd_sweep_due_ns(const struct nd_shard *shard);

#endif
