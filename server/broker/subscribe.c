#include "server/broker/subscribe.h"

#include "server/broker/collect.h"
#include "server/broker/waiters.h"

enum { TURN_MESSAGES = 16, TURN_BYTES = 64 << 10 };

/* Queued exactly while it can be given something. */
static void requeue(struct nd_subscriber *subscriber)
{
    struct nd_subscriber_state *state = &subscriber->state;
    bool wants = state->topic_state != NULL && !state->paused && !state->closing &&
                 state->outstanding < subscriber->outstanding_max;

    if (wants && !nd_waiters_queued(&state->waiter)) {
        nd_waiters_add(state->topic_state, state->partition, &state->waiter);
    } else if (!wants) {
        nd_waiters_remove(&state->waiter);
    }
}

bool nd_subscriber_serve(struct nd_subscriber *subscriber, struct nd_partition *partition)
{
    struct nd_subscriber_state *state = &subscriber->state;
    struct nd_shard *shard = state->shard;
    uint32_t credit = subscriber->outstanding_max - state->outstanding;
    struct nd_collect collect = {.owner = subscriber,
                                 .messages_max = ND_MIN(credit, (uint32_t)TURN_MESSAGES),
                                 .bytes_max = TURN_BYTES};

    nd_collect_from(&collect, partition);
    if (state->partition == NULL) {
        nd_collect_from_ready(&collect, state->topic_state, partition);
    }
    if (collect.count == 0) {
        return false;
    }
    state->outstanding += collect.count;
    nd_waiters_remove(&state->waiter);
    state->paused = !subscriber->deliver(subscriber, shard->deliveries, collect.count);
    requeue(subscriber);
    return true;
}

void nd_subscriber_lease_ended(struct nd_subscriber *subscriber)
{
    ND_ASSERT(subscriber->state.outstanding > 0);
    subscriber->state.outstanding -= 1;
    requeue(subscriber);
}

/* Every lease of it ends; their records go to whoever waits. */
static void release_leases(struct nd_subscriber *subscriber)
{
    struct nd_list *link;

    while ((link = nd_list_first(&subscriber->state.leases)) != NULL) {
        struct nd_lease *lease = ND_CONTAINER_OF(link, struct nd_lease, owner_link);
        struct nd_partition *partition = lease->settle;
        nd_lease_free_up(&partition->leases, lease, true);
        subscriber->state.outstanding -= 1;
        nd_waiters_wake(partition);
        nd_partition_mark_dirty(partition);
    }
}

static void closed(struct nd_subscriber *subscriber)
{
    struct nd_topic *topic = subscriber->topic;

    subscriber->state.shard->subscribers -= 1;
    nd_list_remove(&subscriber->state.link);
    subscriber->closed(subscriber);
    nd_topic_unref(topic);
}

void nd_subscriber_settling_begin(struct nd_subscriber *subscriber)
{
    subscriber->state.settling += 1;
}

void nd_subscriber_settling_end(struct nd_subscriber *subscriber)
{
    ND_ASSERT(subscriber->state.settling > 0);
    subscriber->state.settling -= 1;
    if (subscriber->state.closing && subscriber->state.settling == 0) {
        release_leases(subscriber); /* one whose ack failed is leased again */
        closed(subscriber);
    }
}

static void subscriber_end(struct nd_subscriber *subscriber, enum nd_err err)
{
    nd_waiters_remove(&subscriber->state.waiter);
    release_leases(subscriber);
    nd_list_remove(&subscriber->state.link);
    subscriber->state.topic_state = NULL;
    if (!subscriber->state.closing) {
        subscriber->ended(subscriber, err);
    }
}

void nd_subscribers_end(struct nd_topic_state *topic, enum nd_err err)
{
    struct nd_list *link;

    while ((link = nd_list_first(&topic->subscribers)) != NULL) {
        subscriber_end(ND_CONTAINER_OF(link, struct nd_subscriber, state.link), err);
    }
}

static enum nd_err subscribe_check(struct nd_shard *shard, struct nd_subscriber *subscriber)
{
    struct nd_topic_state *topic = nd_topic_state_find(shard, subscriber->topic);

    if (nd_shard_stopping(shard)) {
        return ND_ERR_UNAVAILABLE;
    }
    if (topic == NULL) {
        return ND_ERR_TOPIC_NOT_FOUND;
    }
    /* acquire: pairs with nd_broker_set_caught_up */
    if (!atomic_load_explicit(&shard->broker->caught_up, memory_order_acquire)) {
        return ND_ERR_UNAVAILABLE;
    }
    if (subscriber->partition == ND_PARTITION_ANY) {
        nd_topic_state_touch_all(topic);
    } else {
        uint32_t index = (uint32_t)subscriber->partition;
        if (subscriber->partition < 0 || index >= topic->topic->partitions) {
            return ND_ERR_INVALID_ARGUMENT;
        }
        if (!nd_topic_state_owns(topic, index)) {
            return ND_ERR_NOT_OWNER;
        }
        subscriber->state.partition = nd_topic_state_partition(topic, index);
        if (nd_partition_touch(subscriber->state.partition) == ND_PARTITION_DAMAGED) {
            return ND_ERR_UNAVAILABLE;
        }
    }
    subscriber->state.topic_state = topic;
    return ND_OK;
}

static void subscribe_run(struct nd_msg *msg, void *owner)
{
    struct nd_subscriber *subscriber = ND_CONTAINER_OF(msg, struct nd_subscriber, msg);
    struct nd_shard *shard = owner;

    shard->subscribers += 1;
    enum nd_err err = subscribe_check(shard, subscriber);
    if (err != ND_OK) {
        subscriber->ended(subscriber, err);
        return;
    }
    nd_list_append(&subscriber->state.topic_state->subscribers, &subscriber->state.link);
    requeue(subscriber);
}

static void resume_run(struct nd_msg *msg, void *owner)
{
    struct nd_subscriber *subscriber = ND_CONTAINER_OF(msg, struct nd_subscriber, state.resume);

    (void)owner;
    /* release: a resume from now on posts again */
    atomic_store_explicit(&subscriber->state.resume_posted, false, memory_order_release);
    subscriber->state.paused = false;
    requeue(subscriber);
}

static void close_run(struct nd_msg *msg, void *owner)
{
    struct nd_subscriber *subscriber = ND_CONTAINER_OF(msg, struct nd_subscriber, state.close);

    (void)owner;
    subscriber->state.closing = true;
    nd_waiters_remove(&subscriber->state.waiter);
    release_leases(subscriber);
    if (subscriber->state.settling == 0) {
        closed(subscriber);
    }
}

void nd_broker_subscribe(struct nd_broker *broker, struct nd_subscriber *subscriber)
{
    struct nd_shard *shard = nd_broker_shard(broker, subscriber->topic);
    struct nd_subscriber_state *state = &subscriber->state;

    ND_ASSERT(subscriber->outstanding_max > 0);
    subscriber->msg.run = subscribe_run;
    memset(state, 0, sizeof *state);
    state->waiter.is_subscriber = true;
    nd_list_init(&state->waiter.link);
    nd_list_init(&state->link);
    nd_list_init(&state->leases);
    state->resume.run = resume_run;
    state->close.run = close_run;
    state->shard = shard;
    atomic_init(&state->resume_posted, false);
    nd_inbox_push(&shard->inbox, &subscriber->msg);
}

void nd_broker_subscriber_resume(struct nd_broker *broker, struct nd_subscriber *subscriber)
{
    (void)broker;
    /* acq_rel: at most one message is on its way */
    if (!atomic_exchange_explicit(&subscriber->state.resume_posted, true, memory_order_acq_rel)) {
        nd_inbox_push(&subscriber->state.shard->inbox, &subscriber->state.resume);
    }
}

void nd_broker_subscriber_close(struct nd_broker *broker, struct nd_subscriber *subscriber)
{
    (void)broker;
    nd_inbox_push(&subscriber->state.shard->inbox, &subscriber->state.close);
}
