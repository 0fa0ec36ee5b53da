/* Partitions whose log is not open: what their files say, without opening them. A worker looks at
 * the partitions of one topic at a time, so that one descriptor is enough and 10,000 topics make no
 * storm. @thread shard */
#ifndef ND_COLD_H
#define ND_COLD_H

#include "server/broker/topic_state.h"
#include "server/broker/worker.h"
#include "storage/retention.h"

/* --- looking --- */
struct nd_peek_item {
    uint32_t index;
    bool with_state; /* load its positions too */
    struct nd_positions positions;
    enum nd_err state_err; /* NOT_FOUND: there is no `state` */
    struct nd_log_peek log;
    enum nd_err err;
};
struct nd_peek {
    struct nd_worker_job job; /* private */
    struct nd_topic_state *topic;
    bool sizes;
    void (*done)(struct nd_peek *peek); /* on the shard; the peek is freed afterwards */
    void *data;
    uint32_t count, capacity;
    struct nd_peek_item *items;
};
/* A look at up to `capacity` partitions of a topic that lives on while it is under way. */
struct nd_peek *nd_peek_new(struct nd_topic_state *topic, uint32_t capacity);
void nd_peek_add(struct nd_peek *peek, uint32_t index, bool with_state);
void nd_peek_start(struct nd_peek *peek);
void nd_peek_free(struct nd_peek *peek); /* only of one that was not started */

/* Is the log of a partition on this node that nobody has open (or none that is known to be empty)?
 */
bool nd_partition_is_cold(const struct nd_topic_state *topic, uint32_t index);

/* --- the walk --- */
/* Look at the next topic that is due; true: more are due now. */
bool nd_cold_step(struct nd_shard *shard);
uint64_t nd_cold_due_ns(const struct nd_shard *shard);
/* In its turn; soon, but not all at once: a node that is started again and again must come to what
 * it finds; at once, since its retention changed. */
void nd_cold_watch(struct nd_topic_state *topic);
void nd_cold_watch_first(struct nd_topic_state *topic);
void nd_cold_watch_now(struct nd_topic_state *topic);
/* Somebody uses a partition that retention opened, or it goes. */
void nd_cold_release(struct nd_partition *partition);
/* A log was closed whose oldest segment goes at `goes_ms` (see nd_log_peek). */
void nd_cold_closed(struct nd_topic_state *topic, int64_t goes_ms);

#endif
