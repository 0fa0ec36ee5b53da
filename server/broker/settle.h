/* Acks, extends, nacks, skips (architecture 6). All acks of one step become one WAL
 * unit; an offset is SETTLING from the ack until the unit's outcome, then SETTLED, or leased again.
 * @thread shard */
#ifndef ND_SETTLE_H
#define ND_SETTLE_H

#include "server/broker/topic_state.h"

/* The leased record is unreadable: settle it, nobody gets it (I-58). */
void nd_settle_skip(struct nd_partition *partition, struct nd_lease *lease);
/* Retention passed the frontier: move it to `offset` in one step (I-60). */
void nd_settle_jump(struct nd_partition *partition, uint64_t offset);
/* Stage what was gathered. @thread the step's */
void nd_settle_stage(struct nd_shard *shard);
/* Free what expired; not while acks cannot be synced (W6). */
void nd_settle_expire(struct nd_partition *partition);
void nd_settle_release(struct nd_shard *shard); /* the shard's spare memory */

#endif
