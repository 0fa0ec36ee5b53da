/* Idle eviction (F7): a partition that nobody used for a while is forgotten: memory and descriptor
 * go, its positions lie in its `state`, the next use opens it again.
 *
 *    OPEN, idle, evictable ── nothing new since it was opened ─────────────────► forgotten
 *        └─ snapshot ── the flusher makes `state` durable ── untouched since ──► forgotten
 *                                                         └─ touched: stays open
 *
 * Evictable is one without: a lease, a settling offset, a tail, a staged entry, an accepted record
 * in front, a waiter or a stream of its topic, a read, a flush, anything owed to retention (I-47).
 * A produce, consume, replay or dispatch is a use; observation is none (I-46). A partition that
 * only retention opened is closed at once. @thread shard */
#ifndef ND_EVICT_H
#define ND_EVICT_H

#include "server/broker/partition.h"

/* Evict it if it is due. True: the partition is gone. */
bool nd_evict_look(struct nd_partition *partition);
/* Hand the snapshots of this step to the flusher. */
void nd_evict_submit(struct nd_shard *shard);

#endif
