/* Replay: reads by offset that take no lease and change no queue state (I-70).
 * @thread shard */
#ifndef ND_REPLAY_H
#define ND_REPLAY_H

#include "server/broker/topic_state.h"

/* A read of the partition came back: replays that wait for one look again, or fail with `err`. */
void nd_replays_resume(struct nd_partition *partition, enum nd_err err);

#endif
