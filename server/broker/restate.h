/* POSITIONs (W7): when the WAL wants to let old files go, the partitions that hold them are
 * flushed, or restated at the head of the log. @thread shard */
#ifndef ND_RESTATE_H
#define ND_RESTATE_H

#include "server/broker/partition.h"

/* Help every partition that stands below what the WAL wants to be rid of. */
void nd_restate_lift(struct nd_shard *shard);
/* A flush or POSITION of it ended: its pin goes back among the others. */
void nd_restate_unlift(struct nd_partition *partition);
/* State a partition in the unit that is being gathered; false: not while it is flushed or restated.
 */
bool nd_restate_add(struct nd_partition *partition);
/* Stage what was gathered; false: the WAL did not take it, or there was nothing. */
bool nd_restate_stage(struct nd_shard *shard);

#endif
