/* The slow round of a shard: partitions that are open are looked at once a minute, one after the
 * other, for what age lets go (retain.h) and whether they may be closed (evict.h); closed ones soon
 * after the start and then once in five minutes, a topic at a time (cold.h); what deleted topics
 * may have left behind after the start and then once an hour (sweep.h); how many bytes files take
 * once in 30 s (usage.h). A step does a bounded part of it, however many topics there are. Nothing
 * of it happens before the ownership latch: until then a topic's retention may be an old one.
 * @thread shard */
#ifndef ND_CHORES_H
#define ND_CHORES_H

#include "server/broker/partition.h"

/* A setting in nanoseconds; one that is too long for them never ends, and can be added to a time.
 */
static inline uint64_t nd_ms_to_ns(uint64_t ms)
{
    return ms < UINT64_MAX / 4000000 ? ms * 1000000 : UINT64_MAX / 4;
}

/* The next part of the round. True: more is due now. */
bool nd_chores_step(struct nd_shard *shard);
uint64_t nd_chores_due_ns(const struct nd_shard *shard);
/* The partition is open: it is looked at in its turn from now on. */
void nd_chores_watch(struct nd_partition *partition);
/* Look at it in this step. */
void nd_chores_look_soon(struct nd_partition *partition);

#endif
