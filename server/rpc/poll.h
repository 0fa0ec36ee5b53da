/* A poll as Consume and ConsumeStream get it. */
#ifndef ND_POLL_H
#define ND_POLL_H

#include "server/rpc/handlers.h"

enum {
    ND_POLL_WAIT_MS_MAX = 30000,
    ND_POLL_WEIGHT_MAX = 100, /* of one poll among its caller's; the largest batch over HTTP */
};

struct nd_poll_request {
    const char *topic;
    uint32_t max_messages, wait_ms, partition;
    bool has_partition;
};

/* Check it and fill in `out` (but done and data) with one reference to the topic. */
ND_CHECKED enum nd_err nd_poll_check(struct nd_handlers *handlers,
                                     const struct nd_poll_request *request, struct nd_poll *out,
                                     struct nd_errmsg *msg);

/* As how many messages under way it counts for its caller. */
uint32_t nd_poll_weight(const struct nd_poll *poll);

#endif
