/* The end of an incarnation (F7): told as deleted, or never told and confirmed gone. It refuses,
 * lets what is staged come back, drops its memory, and has its directory removed. @thread shard */
#ifndef ND_DELETE_H
#define ND_DELETE_H

#include "server/broker/topic_state.h"

void nd_topic_end(struct nd_topic_state *state);
/* Nothing refers to an ended one any more. */
void nd_topic_finish(struct nd_topic_state *state);
/* Ask about every state without a record whether its incarnation is gone (P5). When to
 * come back; UINT64_MAX: there is none. */
uint64_t nd_topics_ask(struct nd_shard *shard);

#endif
