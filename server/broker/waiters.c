#include "server/broker/waiters.h"

#include "server/broker/poll.h"
#include "server/broker/subscribe.h"

static struct nd_poll *waiter_poll(struct nd_waiter *waiter)
{
    ND_ASSERT(!waiter->is_subscriber);
    return ND_CONTAINER_OF(waiter, struct nd_poll, state.waiter);
}

static struct nd_waiter *first_waiter(const struct nd_list *queue)
{
    struct nd_list *link = nd_list_first(queue);

    return link == NULL ? NULL : ND_CONTAINER_OF(link, struct nd_waiter, link);
}

void nd_waiters_wake(struct nd_partition *partition)
{
    if (nd_list_empty(&partition->woken) && !partition->topic->ended) {
        nd_list_append(&partition->topic->shard->woken, &partition->woken);
    }
}

void nd_waiters_arrived(struct nd_topic_state *topic)
{
    if (nd_list_empty(&topic->arrival) && !topic->ended) {
        nd_list_append(&topic->shard->arrivals, &topic->arrival);
    }
}

void nd_waiters_add(struct nd_topic_state *topic, struct nd_partition *partition,
                    struct nd_waiter *waiter)
{
    waiter->ticket = ++topic->shard->tickets;
    if (partition != NULL) {
        nd_list_append(&partition->pinned, &waiter->link);
        nd_waiters_wake(partition);
    } else {
        nd_list_append(&topic->waiters, &waiter->link);
        nd_waiters_arrived(topic);
    }
}

void nd_waiters_remove(struct nd_waiter *waiter)
{
    nd_list_remove(&waiter->link);
}

bool nd_waiters_queued(const struct nd_waiter *waiter)
{
    return !nd_list_empty(&waiter->link);
}

bool nd_partition_available(struct nd_partition *partition)
{
    const struct nd_topic_state *topic = partition->topic;

    return partition->state == ND_PARTITION_OPEN && topic->topic != NULL && !topic->ended &&
           !partition->wait_read && partition->retry_ns <= topic->shard->now_ns &&
           nd_lease_available(&partition->leases, partition->end);
}

/* Who is next at this partition. */
static struct nd_waiter *pick(const struct nd_partition *partition)
{
    struct nd_waiter *pinned = first_waiter(&partition->pinned);
    struct nd_waiter *any = first_waiter(&partition->topic->waiters);

    if (pinned == NULL || any == NULL) {
        return pinned != NULL ? pinned : any;
    }
    return pinned->ticket < any->ticket ? pinned : any;
}

static bool serve_waiter(struct nd_waiter *waiter, struct nd_partition *partition)
{
    if (waiter->is_subscriber) {
        return nd_subscriber_serve(ND_CONTAINER_OF(waiter, struct nd_subscriber, state.waiter),
                                   partition);
    }
    return nd_poll_serve(waiter_poll(waiter), partition);
}

/* Give to waiters until the partition has nothing, or nobody is left; true when something was
 * given. */
static bool serve_partition(struct nd_partition *partition)
{
    struct nd_topic_state *topic = partition->topic;
    struct nd_waiter *waiter;
    bool given = false;

    while (nd_partition_available(partition) && (waiter = pick(partition)) != NULL &&
           serve_waiter(waiter, partition)) {
        given = true;
    }
    /* To the end: the next waiter starts at another partition. */
    nd_list_remove(&partition->ready);
    if (nd_partition_available(partition)) {
        nd_list_append(&topic->ready, &partition->ready);
    }
    return given;
}

static void finish_overdue(struct nd_topic_state *topic)
{
    struct nd_list *link;

    while (topic->pending == 0 && (link = nd_list_first(&topic->overdue)) != NULL) {
        nd_poll_finish(ND_CONTAINER_OF(link, struct nd_poll, state.overdue), ND_OK, 0);
    }
}

static bool serve_topic(struct nd_topic_state *topic)
{
    struct nd_list *link;
    bool given = false;

    while (!nd_list_empty(&topic->waiters) && (link = nd_list_first(&topic->ready)) != NULL) {
        struct nd_partition *partition = ND_CONTAINER_OF(link, struct nd_partition, ready);
        bool was_available = nd_partition_available(partition);
        bool progress = serve_partition(partition);
        given |= progress;
        if (was_available && !progress && nd_partition_available(partition)) {
            break; /* it could not be given, though it is there: nothing changes by asking again */
        }
    }
    finish_overdue(topic);
    return given;
}

bool nd_waiters_serve(struct nd_shard *shard)
{
    struct nd_list *link;
    bool given = false;

    while (!nd_list_empty(&shard->woken) || !nd_list_empty(&shard->arrivals)) {
        while ((link = nd_list_pop(&shard->woken)) != NULL) {
            given |= serve_partition(ND_CONTAINER_OF(link, struct nd_partition, woken));
        }
        if ((link = nd_list_pop(&shard->arrivals)) != NULL) {
            given |= serve_topic(ND_CONTAINER_OF(link, struct nd_topic_state, arrival));
        }
    }
    return given;
}

void nd_waiters_read_failed(struct nd_partition *partition, enum nd_err err)
{
    struct nd_waiter *waiter = pick(partition);

    if (waiter != NULL && !waiter->is_subscriber) {
        nd_poll_finish(waiter_poll(waiter), err, 0);
    }
}

static void queue_end(struct nd_list *queue, enum nd_err err)
{
    struct nd_waiter *waiter;

    while ((waiter = first_waiter(queue)) != NULL) {
        if (waiter->is_subscriber) {
            nd_waiters_remove(waiter);
        } else {
            nd_poll_finish(waiter_poll(waiter), err, 0);
        }
    }
}

void nd_waiters_damaged(struct nd_partition *partition)
{
    ND_LIST_FOREACH (&partition->pinned, link) {
        struct nd_waiter *waiter = ND_CONTAINER_OF(link, struct nd_waiter, link);
        if (!waiter->is_subscriber) {
            nd_poll_finish(waiter_poll(waiter), ND_ERR_UNAVAILABLE, 0);
        }
    }
}

void nd_waiters_end(struct nd_topic_state *topic, enum nd_err err)
{
    queue_end(&topic->waiters, err);
    for (uint32_t i = 0; i < topic->partitions_count; i++) {
        if (topic->partitions[i] != NULL) {
            queue_end(&topic->partitions[i]->pinned, err);
        }
    }
}
