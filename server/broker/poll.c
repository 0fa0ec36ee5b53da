#include "server/broker/poll.h"

#include "server/broker/collect.h"
#include "server/broker/waiters.h"

static enum nd_wait_outcome wait_outcome(const struct nd_poll *poll, enum nd_err err,
                                         uint32_t count)
{
    if (err == ND_ERR_CANCELLED) {
        return ND_WAIT_CANCELLED;
    }
    if (count > 0) {
        return ND_WAIT_HIT;
    }
    return poll->wait_ms == 0 ? ND_WAIT_NONE : ND_WAIT_TIMEOUT;
}

static void poll_unlink(struct nd_poll *poll)
{
    nd_waiters_remove(&poll->state.waiter);
    nd_list_remove(&poll->state.overdue);
    nd_heap_remove(&poll->state.shard->polls, &poll->state.deadline);
}

/* It is claimed and unlinked: tell its caller. */
static void poll_answer(struct nd_poll *poll, enum nd_err err, uint32_t count)
{
    struct nd_shard *shard = poll->state.shard;
    struct nd_topic_state *state = poll->state.topic_state;
    struct nd_topic *topic = poll->topic;

    if (state != NULL && (err == ND_OK || err == ND_ERR_CANCELLED)) {
        nd_topic_meters_waited(shard, state->meters, wait_outcome(poll, err, count),
                               shard->now_ns - poll->state.arrived_ns);
        if (err == ND_OK && count == 0) {
            nd_series_add(state->meters->empty, 1);
        }
    }
    poll->done(poll, err, shard->deliveries, count);
    nd_topic_unref(topic);
}

bool nd_poll_finish(struct nd_poll *poll, enum nd_err err, uint32_t count)
{
    poll_unlink(poll);
    /* acq_rel: whoever comes first, the other sees it */
    if (atomic_exchange_explicit(&poll->state.claimed, true, memory_order_acq_rel)) {
        return false;
    }
    poll_answer(poll, err, count);
    return true;
}

bool nd_poll_serve(struct nd_poll *poll, struct nd_partition *partition)
{
    struct nd_topic_state *topic = poll->state.topic_state;
    struct nd_collect collect = {.messages_max = poll->messages_max,
                                 .bytes_max = ND_POLL_BYTES_MAX};

    nd_collect_from(&collect, partition);
    if (poll->state.partition == NULL) {
        nd_collect_from_ready(&collect, topic, partition);
    }
    if (collect.count == 0) {
        return false;
    }
    if (!nd_poll_finish(poll, ND_OK, collect.count)) {
        nd_collect_undo(topic, collect.count);
    }
    return true;
}

bool nd_polls_expire(struct nd_shard *shard)
{
    struct nd_heap_node *node;
    bool any = false;

    while ((node = nd_heap_first(&shard->polls)) != NULL && node->key <= shard->now_ns) {
        struct nd_poll *poll = ND_CONTAINER_OF(node, struct nd_poll, state.deadline);
        any = true;
        if (poll->state.topic_state->pending > 0) {
            /* What it may get is being read: it gets that, or is answered right after. */
            nd_heap_remove(&shard->polls, node);
            nd_list_append(&poll->state.topic_state->overdue, &poll->state.overdue);
        } else {
            nd_poll_finish(poll, ND_OK, 0);
        }
    }
    return any;
}

static enum nd_err poll_check(struct nd_shard *shard, struct nd_poll *poll)
{
    if (nd_shard_stopping(shard)) {
        return ND_ERR_UNAVAILABLE;
    }
    struct nd_topic_state *topic = nd_topic_state_find(shard, poll->topic);
    if (topic == NULL) {
        return ND_ERR_TOPIC_NOT_FOUND;
    }
    /* acquire: pairs with nd_broker_set_caught_up */
    if (!atomic_load_explicit(&shard->broker->caught_up, memory_order_acquire)) {
        return ND_ERR_UNAVAILABLE;
    }
    poll->state.topic_state = topic;
    if (poll->partition == ND_PARTITION_ANY) {
        nd_topic_state_touch_all(topic);
        return ND_OK;
    }
    uint32_t index = (uint32_t)poll->partition;
    if (poll->partition < 0 || index >= topic->topic->partitions) {
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (!nd_topic_state_owns(topic, index)) {
        return ND_ERR_NOT_OWNER;
    }
    poll->state.partition = nd_topic_state_partition(topic, index);
    return nd_partition_touch(poll->state.partition) == ND_PARTITION_DAMAGED ? ND_ERR_UNAVAILABLE
                                                                             : ND_OK;
}

static void poll_run(struct nd_msg *msg, void *owner)
{
    struct nd_poll *poll = ND_CONTAINER_OF(msg, struct nd_poll, msg);
    struct nd_shard *shard = owner;

    ND_ASSERT(poll->messages_max >= 1 && poll->messages_max <= ND_POLL_MESSAGES_MAX);
    poll->state.arrived_ns = shard->now_ns;
    enum nd_err err = poll_check(shard, poll);
    if (err != ND_OK) {
        nd_poll_finish(poll, err, 0);
        return;
    }
    nd_heap_put(&shard->polls, &poll->state.deadline,
                shard->now_ns + (uint64_t)poll->wait_ms * 1000000);
    nd_waiters_add(poll->state.topic_state, poll->state.partition, &poll->state.waiter);
}

static void cancel_run(struct nd_msg *msg, void *owner)
{
    struct nd_poll *poll = ND_CONTAINER_OF(msg, struct nd_poll, state.cancel);

    (void)owner;
    poll_unlink(poll);
    poll_answer(poll, ND_ERR_CANCELLED, 0);
}

void nd_broker_poll(struct nd_broker *broker, struct nd_poll *poll)
{
    struct nd_shard *shard = nd_broker_shard(broker, poll->topic);

    poll->msg.run = poll_run;
    poll->state.waiter = (struct nd_waiter){0};
    nd_list_init(&poll->state.waiter.link);
    nd_list_init(&poll->state.overdue);
    nd_heap_node_init(&poll->state.deadline);
    poll->state.cancel.run = cancel_run;
    poll->state.shard = shard;
    poll->state.topic_state = NULL;
    poll->state.partition = NULL;
    atomic_init(&poll->state.claimed, false);
    nd_shard_push(shard, &poll->msg);
}

void nd_broker_poll_cancel(struct nd_broker *broker, struct nd_poll *poll)
{
    (void)broker;
    /* acq_rel: see nd_poll_finish */
    if (!atomic_exchange_explicit(&poll->state.claimed, true, memory_order_acq_rel)) {
        nd_inbox_push(&poll->state.shard->inbox, &poll->state.cancel);
    }
}
