#include "server/topic_relay.h"

#include "storage/base/alloc.h"

#include "server/broker/broker.h"

struct change {
    struct nd_list link;
    struct nd_topic *before, *after; /* counted, or NULL */
};

void nd_topic_relay_init(struct nd_topic_relay *relay)
{
    nd_mutex_init(&relay->lock);
    nd_list_init(&relay->waiting);
    relay->broker = NULL;
    relay->closed = false;
}

static struct change *pop_locked(struct nd_topic_relay *relay)
{
    struct nd_list *link = nd_list_pop(&relay->waiting);
    return link == NULL ? NULL : ND_CONTAINER_OF(link, struct change, link);
}

static void free_change(struct change *change)
{
    nd_topic_unref(change->before);
    nd_topic_unref(change->after);
    nd_free(change);
}

void nd_topic_relay_release(struct nd_topic_relay *relay)
{
    struct change *change;
    while ((change = pop_locked(relay)) != NULL) {
        free_change(change);
    }
    nd_mutex_release(&relay->lock);
}

void nd_topic_relay_changed(void *arg, const struct nd_topic *before, const struct nd_topic *after)
{
    struct nd_topic_relay *relay = arg;
    nd_mutex_lock(&relay->lock);
    if (relay->broker != NULL) {
        nd_broker_topic_changed(relay->broker, before, after);
    } else if (!relay->closed) {
        struct change *change = nd_xcalloc(1, sizeof *change);
        change->before = before == NULL ? NULL : nd_topic_ref(before);
        change->after = after == NULL ? NULL : nd_topic_ref(after);
        nd_list_append(&relay->waiting, &change->link);
    }
    nd_mutex_unlock(&relay->lock);
}

void nd_topic_relay_attach(struct nd_topic_relay *relay, struct nd_broker *broker)
{
    struct change *change;
    nd_mutex_lock(&relay->lock);
    relay->broker = broker;
    while ((change = pop_locked(relay)) != NULL) {
        nd_broker_topic_changed(broker, change->before, change->after);
        free_change(change);
    }
    nd_mutex_unlock(&relay->lock);
}

void nd_topic_relay_detach(struct nd_topic_relay *relay)
{
    nd_mutex_lock(&relay->lock);
    relay->broker = NULL;
    relay->closed = true;
    nd_mutex_unlock(&relay->lock);
}
