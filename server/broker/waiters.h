/* Who gets the next record. Unpinned waiters queue on their topic, pinned ones on their partition;
 * of the two queues that a partition can serve, the older waiter is first, so a pinned one never
 * blocks an unpinned one (I-63). A record that became available wakes the partition; the partition
 * serves one waiter a time until it has nothing or nobody is left: one record, one waiter.
 *
 * Always true between steps: no waiter is queued whose partitions have something it could be given.
 */
#ifndef ND_WAITERS_H
#define ND_WAITERS_H

#include "server/broker/topic_state.h"

/* The partition may have something to deliver now: it serves in this step. */
void nd_waiters_wake(struct nd_partition *partition);
/* The topic has a new waiter, or one to look at again. */
void nd_waiters_arrived(struct nd_topic_state *topic);
/* Queue at the end; `partition` NULL: on the topic. */
void nd_waiters_add(struct nd_topic_state *topic, struct nd_partition *partition,
                    struct nd_waiter *waiter);
void nd_waiters_remove(struct nd_waiter *waiter);
bool nd_waiters_queued(const struct nd_waiter *waiter);
/* Serve all that were woken or arrived; true when something was given. @thread the step's */
bool nd_waiters_serve(struct nd_shard *shard);
/* Could `partition` deliver something now? */
bool nd_partition_available(struct nd_partition *partition);

/* A read failed for now (I-59): the first who waits for it is told, if it is a poll. */
void nd_waiters_read_failed(struct nd_partition *partition, enum nd_err err);
/* It cannot be opened: polls that want only it are told UNAVAILABLE. */
void nd_waiters_damaged(struct nd_partition *partition);
/* End every waiter: polls with `err` (ND_OK: empty). Subscribers are only taken out of their
 * queues. */
void nd_waiters_end(struct nd_topic_state *topic, enum nd_err err);

#endif
