/* Decoded frames that cold reads brought into memory, and the flushed runs of tails: both are
 * copies of what is on the device, held while `cache_bytes` allows (F1). @thread shard */
#ifndef ND_FRAMES_H
#define ND_FRAMES_H

#include "server/broker/topic_state.h"

/* A record of a frame that is in memory; false: it is not. */
bool nd_frames_read(struct nd_partition *partition, uint64_t offset, struct nd_record_view *view,
                    struct nd_block **block);
void nd_frames_add(struct nd_partition *partition,
                   const struct nd_frame_data *frame); /* takes it */
void nd_frames_drop(struct nd_partition *partition);   /* all of it */
/* Let go of the oldest until the shard's share of the budget holds. At the end of a step only: what
 * was read in it is borrowed until then. */
void nd_frames_trim(struct nd_shard *shard);

#endif
