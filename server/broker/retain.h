/* Retention of an open partition (storage/retention.h). In this order, so that no cut makes records
 * absent that the positions still count on:
 *
 *    the segments that age lets go are known
 *    -> the log start is raised over them: nothing below it is read or delivered any more; the
 *       frontier jumps there in one step, what was leased is lost and counted as dropped (I-60)
 *    -> a POSITION with that log start is staged, and synced
 *    -> the flusher removes the segments below it
 *
 * Each look does the next step that is due, so a failure on the way is made up for by the next one.
 * Records that cannot be flushed go from the tail by the same steps. @thread shard */
#ifndef ND_RETAIN_H
#define ND_RETAIN_H

#include "server/broker/partition.h"

void nd_retain_look(struct nd_partition *partition);
/* A POSITION with partition->stated_start is durable. */
void nd_retain_stated(struct nd_partition *partition);
/* Is something of it still to be removed (I-47), or under way? */
bool nd_retain_owes(const struct nd_partition *partition);

#endif
