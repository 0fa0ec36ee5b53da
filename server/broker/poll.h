/* Unary consume and the polls of a ConsumeStream: each is answered once, with what is there, when
 * its time is over, or when it is cancelled. Answer and cancel race for the claim; who loses does
 * nothing, so a cancelled poll never keeps a lease (I-66). @thread shard */
#ifndef ND_POLL_H
#define ND_POLL_H

#include "server/broker/topic_state.h"

/* Give it what `partition` (and, when it is not pinned, the other ready ones) has. True when it was
 * taken from its queue. */
bool nd_poll_serve(struct nd_poll *poll, struct nd_partition *partition);
/* Answer with the first `count` of shard->deliveries and let go of it. False when the cancel came
 * first: then it is out of its queue and the leases, if any, are still to be given back. */
bool nd_poll_finish(struct nd_poll *poll, enum nd_err err, uint32_t count);
/* Answer those whose time is over. True when there were some. */
bool nd_polls_expire(struct nd_shard *shard);

#endif
