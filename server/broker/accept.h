/* Records accepted for a partition that this node does not own, or does not know that it owns (C2):
 * kept in the WAL as ACCEPT entries and here in memory, in the order of their sequences, until they
 * are dispatched. The local dispatcher turns one whose owner is this node into COMMIT + DISPATCHED
 * in one frame. One of an incarnation that is confirmed gone is discarded (I-24); nothing else
 * drops one.
 * @thread shard */
#ifndef ND_ACCEPT_H
#define ND_ACCEPT_H

#include "server/broker/topic_state.h"

/* Stage the batch as ACCEPT entries; answered OK without offsets once they are synced. */
enum nd_err nd_accept_produce(struct nd_produce *produce, struct nd_topic_state *topic);
/* What recovery found; takes its block. */
void nd_accept_recover(struct nd_shard *shard, struct nd_recovered_accept *recovered);
/* Dispatch what can be, in order, as far as the WAL takes it. */
void nd_accept_dispatch(struct nd_shard *shard);
/* Drop those of a topic whose incarnation is confirmed gone: DISPATCHED entries. */
void nd_accept_discard(struct nd_topic_state *topic);
/* The topic's state goes; what is held for it stays, until its incarnation is confirmed gone. */
void nd_accept_unbind(struct nd_topic_state *topic);
/* Lowest sequence that an undispatched one needs; UINT64_MAX: none. */
uint64_t nd_accept_needs(const struct nd_shard *shard);
void nd_accept_release(struct nd_shard *shard); /* memory only: they stay in the WAL */

#endif
