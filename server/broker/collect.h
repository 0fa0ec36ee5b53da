/* Reserve, read, put together what one waiter is given in one turn. The result
 * lies in shard->deliveries. @thread shard */
#ifndef ND_COLLECT_H
#define ND_COLLECT_H

#include "server/broker/topic_state.h"

struct nd_collect {
    struct nd_subscriber *owner; /* NULL: a poll */
    uint32_t messages_max;
    size_t bytes_max;     /* at least one record is taken */
    uint32_t count;       /* out */
    size_t bytes;         /* out */
    size_t payload_bytes; /* out */
};

/* Take from one partition until a limit, or what it can give now. Unreadable offsets are skipped
 * through the WAL on the way (I-58); one that must be read from the device first starts that read.
 */
void nd_collect_from(struct nd_collect *collect, struct nd_partition *partition);
/* The same from the other ready partitions of the topic, in turn. */
void nd_collect_from_ready(struct nd_collect *collect, struct nd_topic_state *topic,
                           const struct nd_partition *except);
/* Nobody was given them: the leases end, and their deliveries were none. */
void nd_collect_undo(struct nd_topic_state *topic, uint32_t count);
/* Lease deadlines of a partition changed: keep the shard's heap of them right. */
void nd_collect_watch_expiry(struct nd_partition *partition);

#endif
