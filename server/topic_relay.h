/* Carries changes of topics from the metastore to the broker. The metastore is there first (the
 * broker needs the member number it gives), so what changes before the broker exists is kept and
 * told when it comes. */
#ifndef ND_TOPIC_RELAY_H
#define ND_TOPIC_RELAY_H

#include "storage/base/list.h"
#include "storage/base/thread.h"

#include "cluster/topic.h"

struct nd_broker;

struct nd_topic_relay {
    struct nd_mutex lock;
    struct nd_list waiting;   /* guarded by lock */
    struct nd_broker *broker; /* guarded by lock; NULL: keep */
    bool closed;              /* guarded by lock: drop */
};

void nd_topic_relay_init(struct nd_topic_relay *relay);
void nd_topic_relay_release(struct nd_topic_relay *relay); /* detached */
/* A nd_topic_changed_fn; arg is the relay. @thread raft */
void nd_topic_relay_changed(void *arg, const struct nd_topic *before, const struct nd_topic *after);
/* Tells what waited, in order, and passes everything on from then on. */
void nd_topic_relay_attach(struct nd_topic_relay *relay, struct nd_broker *broker);
/* Before the broker goes: later changes are dropped; the next start tells them again. */
void nd_topic_relay_detach(struct nd_topic_relay *relay);

#endif
