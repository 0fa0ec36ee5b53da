/* A Topic message over a topic record, without copies. */
#ifndef ND_TOPIC_VIEW_H
#define ND_TOPIC_VIEW_H

#include "cluster/topic.h"
#include "proto/narad/v1/types.pb-c.h"

struct nd_topic_view {
    Narad__V1__Topic message;
    char id[17];
};

/* `out->message` borrows from `topic` and from `out`. */
void nd_topic_view_init(struct nd_topic_view *out, const struct nd_topic *topic);
/* protobuf-c's members are not const, and packing only reads them. */
static inline char *nd_message_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

#endif
