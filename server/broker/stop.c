#include "server/broker/flush.h"
#include "server/broker/restate.h"
#include "server/broker/shard.h"
#include "server/broker/subscribe.h"
#include "server/broker/topic_state.h"
#include "server/broker/waiters.h"

/* The stop sequence of a shard (architecture 13). What does not work out is left to the WAL, which
 * holds everything: stopping never waits for a device that fails. */

static const uint64_t subscribers_wait_ns = 5000000000;

static void for_each_partition(struct nd_shard *shard,
                               void (*visit)(struct nd_partition *partition))
{
    size_t at = 0;
    void *value;
    struct nd_slice key;

    while (nd_map_next(shard->topics, &at, &key, &value)) {
        struct nd_topic_state *topic = value;
        for (uint32_t i = 0; i < topic->partitions_count; i++) {
            struct nd_partition *partition = topic->partitions[i];
            if (partition != NULL && partition->state == ND_PARTITION_OPEN) {
                visit(partition);
            }
        }
    }
}

void nd_shard_stop_begin(struct nd_shard *shard)
{
    size_t at = 0;
    void *value;
    struct nd_slice key;

    if (shard->stage != ND_SHARD_RUNNING) {
        return;
    }
    shard->stage = ND_SHARD_DRAINING;
    shard->stop_give_up_ns = shard->now_ns + subscribers_wait_ns;
    while (nd_map_next(shard->topics, &at, &key, &value)) {
        struct nd_topic_state *topic = value;
        nd_topic_state_unpark(topic); /* each finds that intake is closed */
        nd_waiters_end(topic, ND_OK); /* parked polls: nothing came */
        nd_subscribers_end(topic, ND_ERR_UNAVAILABLE);
    }
}

static void flush_last(struct nd_partition *partition)
{
    if (!partition->flush_failed) {
        partition->flush_retry_ns = 0;
        (void)nd_flush_start(partition);
    }
}

static void restate_last(struct nd_partition *partition)
{
    if (partition->position_from != UINT64_MAX) {
        (void)nd_restate_add(partition);
    }
}

bool nd_shard_stop_step(struct nd_shard *shard)
{
    bool quiet = shard->staged == 0 && shard->jobs == 0 && shard->gathering == NULL;

    if (shard->stage == ND_SHARD_RUNNING || shard->stage == ND_SHARD_STOPPED || !quiet) {
        return false;
    }
    switch (shard->stage) {
    case ND_SHARD_DRAINING:
        if (shard->subscribers > 0 && shard->now_ns < shard->stop_give_up_ns) {
            return false; /* their owners are closing them */
        }
        shard->stage = ND_SHARD_FLUSHING;
        return true;
    case ND_SHARD_FLUSHING:
        for_each_partition(shard, flush_last);
        if (shard->jobs == 0) {
            shard->stage = ND_SHARD_RESTATING;
            for_each_partition(shard, restate_last);
            (void)nd_restate_stage(shard); /* refused: the WAL holds the entries anyway */
        }
        return true;
    case ND_SHARD_RESTATING:
        shard->stage = ND_SHARD_STOPPED;
        /* release: what the shard did is seen by who waits for it */
        atomic_store_explicit(&shard->stopped, true, memory_order_release);
        return true;
    case ND_SHARD_RUNNING:
    case ND_SHARD_STOPPED: break;
    }
    return false;
}
