#include "server/rpc/topic_view.h"

#include <inttypes.h>
#include <stdio.h>

static const char *role_name(enum nd_topic_role role)
{
    switch (role) {
    case ND_ROLE_STANDALONE: return "standalone";
    case ND_ROLE_PARENT: return "parent";
    case ND_ROLE_CHILD: return "child";
    }
    ND_UNREACHABLE();
}

void nd_topic_view_init(struct nd_topic_view *out, const struct nd_topic *topic)
{
    narad__v1__topic__init(&out->message);
    snprintf(out->id, sizeof out->id, "%016" PRIx64, topic->incarnation);
    out->message.name = nd_message_text(topic->name);
    out->message.id = out->id;
    out->message.partitions = topic->partitions;
    out->message.retention_ms = topic->retention_ms;
    out->message.visibility_timeout_ms = topic->visibility_timeout_ms;
    out->message.max_in_flight_per_partition = topic->max_in_flight;
    out->message.max_acked_ahead_per_partition = topic->max_acked_ahead;
    out->message.created_at = topic->created_at_s;
    out->message.owner = nd_message_text(topic->owner);
    out->message.role = nd_message_text(role_name(topic->role));
}
