/* Rules of topic requests: bounds, defaults for zeros, texts. Pure. */
#ifndef ND_ADMIN_H
#define ND_ADMIN_H

#include "server/rpc/handlers.h"

enum { ND_RETENTION_MS_MIN = 3600000, ND_VISIBILITY_MS_MAX = 43200000, ND_CAP_MAX = 1000000 };

/* A create request as it came. */
struct nd_topic_wish {
    const char *name;
    uint32_t partitions; /* 0: default */
    bool has_retention;
    uint64_t retention_ms; /* 0: forever */
    uint64_t visibility_timeout_ms;
    uint32_t max_in_flight, max_acked_ahead;
};

/* Resolve defaults. INVALID_ARGUMENT names member, value and what is allowed. */
ND_CHECKED enum nd_err nd_topic_create_get(const struct nd_topic_wish *wish,
                                           const struct nd_topic_defaults *defaults,
                                           struct nd_topic_create *out, struct nd_errmsg *msg);
/* The value rules of one alter group; caps of 0 become the default in `alter`. */
ND_CHECKED enum nd_err nd_topic_alter_check(struct nd_topic_alter *alter,
                                            const struct nd_topic_defaults *defaults,
                                            struct nd_errmsg *msg);

/* A unary method of narad.v1.Admin; more members may follow. */
#define ND_ADMIN_METHOD(variable, name, start, ...)                                                \
    const struct nd_rpc_method variable = {                                                        \
        .path = "/narad.v1.Admin/" name,                                                           \
        .kind = ND_RPC_UNARY,                                                                      \
        .message_bytes_max = 1 << 20,                                                              \
        .on_start = start,                                                                         \
        .right = __VA_ARGS__,                                                                      \
    }

#endif
