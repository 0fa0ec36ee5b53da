/* Subscriptions: a subscriber is one waiter that comes back. It is queued while it has credit
 * (delivered minus settled below its maximum), its transport takes more, and it is not closing. A
 * turn gives at most 16 deliveries or 64 KiB; then it goes to the end of its queue. @thread shard
 */
#ifndef ND_SUBSCRIBE_H
#define ND_SUBSCRIBE_H

#include "server/broker/topic_state.h"

bool nd_subscriber_serve(struct nd_subscriber *subscriber, struct nd_partition *partition);
/* One of its deliveries is settled, given back, expired or dropped. */
void nd_subscriber_lease_ended(struct nd_subscriber *subscriber);
/* An ack of one of its deliveries is under way, or came back: it stays until the last did. */
void nd_subscriber_settling_begin(struct nd_subscriber *subscriber);
void nd_subscriber_settling_end(struct nd_subscriber *subscriber);
/* The broker ends all of a topic: TOPIC_NOT_FOUND, UNAVAILABLE. */
void nd_subscribers_end(struct nd_topic_state *topic, enum nd_err err);

#endif
