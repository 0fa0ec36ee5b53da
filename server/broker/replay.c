#include "server/broker/replay.h"

#include "server/broker/read.h"

enum { REPLAY_BYTES_MAX = 1 << 20 };

static void replay_finish(struct nd_replay *replay, enum nd_err err, uint32_t count)
{
    struct nd_topic *topic = replay->topic;

    replay->done(replay, err, replay->shard->deliveries, count);
    nd_topic_unref(topic);
}

/* Read on from replay->offset; false: it waits for the device. */
static void replay_serve(struct nd_replay *replay, struct nd_partition *partition)
{
    struct nd_delivery *deliveries = replay->shard->deliveries;
    uint32_t count = 0;
    size_t bytes = 0;

    replay->oldest = partition->log_start;
    replay->end = replay->end == 0 ? partition->end : ND_MIN(replay->end, partition->end);
    while (replay->offset + count < replay->end && count < replay->messages_max) {
        struct nd_read read;
        uint64_t offset = replay->offset + count;
        enum nd_read_result result = nd_read_memory(partition, offset, &read);
        if (result == ND_READ_COLD && count == 0) {
            nd_list_append(&partition->replays, &replay->msg.link);
            nd_read_start(partition, offset);
            return;
        }
        if (result != ND_READ_OK && count == 0) {
            /* Let go by retention, or damaged: that is no retention (P5). */
            replay_finish(replay, result == ND_READ_BELOW_START ? ND_ERR_GONE : ND_ERR_CORRUPT, 0);
            return;
        }
        size_t size = result != ND_READ_OK
                          ? 0
                          : read.view.key.size + read.view.headers.size + read.view.payload.size;
        if (result != ND_READ_OK || (count > 0 && bytes + size > REPLAY_BYTES_MAX)) {
            break;
        }
        deliveries[count++] = (struct nd_delivery){.block = read.block,
                                                   .record = read.view,
                                                   .offset = offset,
                                                   .partition = replay->partition};
        bytes += size;
    }
    replay->offset += count;
    replay_finish(replay, ND_OK, count);
}

void nd_replays_resume(struct nd_partition *partition, enum nd_err err)
{
    struct nd_list mine = ND_LIST_INIT(mine);

    nd_list_move(&mine, &partition->replays);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL;) {
        struct nd_replay *replay = ND_CONTAINER_OF(link, struct nd_replay, msg.link);
        if (err != ND_OK) {
            replay_finish(replay, err, 0);
        } else {
            replay_serve(replay, partition);
        }
    }
}

static void replay_run(struct nd_msg *msg, void *owner)
{
    struct nd_replay *replay = ND_CONTAINER_OF(msg, struct nd_replay, msg);
    struct nd_shard *shard = owner;
    struct nd_topic_state *topic = nd_topic_state_find(shard, replay->topic);
    enum nd_err err = ND_OK;

    if (nd_shard_stopping(shard)) {
        err = ND_ERR_UNAVAILABLE;
    } else if (topic == NULL) {
        err = ND_ERR_TOPIC_NOT_FOUND;
        /* acquire: pairs with nd_broker_set_caught_up */
    } else if (!atomic_load_explicit(&shard->broker->caught_up, memory_order_acquire)) {
        err = ND_ERR_UNAVAILABLE;
    } else if (replay->partition >= topic->topic->partitions || replay->messages_max == 0 ||
               replay->messages_max > ND_POLL_MESSAGES_MAX) {
        err = ND_ERR_INVALID_ARGUMENT;
    } else if (!nd_topic_state_owns(topic, replay->partition)) {
        err = ND_ERR_NOT_OWNER;
    }
    if (err != ND_OK) {
        replay_finish(replay, err, 0);
        return;
    }
    struct nd_partition *partition = nd_topic_state_partition(topic, replay->partition);
    switch (nd_partition_touch(partition)) {
    case ND_PARTITION_OPEN: replay_serve(replay, partition); return;
    case ND_PARTITION_DAMAGED: replay_finish(replay, ND_ERR_UNAVAILABLE, 0); return;
    case ND_PARTITION_CLOSED:
    case ND_PARTITION_OPENING: nd_topic_state_park(topic, msg); return;
    }
}

void nd_broker_replay(struct nd_broker *broker, struct nd_replay *replay)
{
    replay->msg.run = replay_run;
    replay->oldest = 0;
    replay->shard = nd_broker_shard(broker, replay->topic);
    nd_inbox_push(&replay->shard->inbox, &replay->msg);
}
