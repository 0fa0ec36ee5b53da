/* The gRPC methods of a node: one file per group, one table of them all. Handlers check what a
 * client sent, hand it to the broker or the metastore, and answer from whatever thread completes
 * it; nothing here waits. */
#ifndef ND_HANDLERS_H
#define ND_HANDLERS_H

#include "cluster/metastore.h"
#include "proto/rpc/server.h"
#include "server/broker/broker.h"
#include "server/rpc/access.h"
#include "server/rpc/budgets.h"

/* What a new topic gets where its request says 0, and the bounds (settings topic.*). */
struct nd_topic_defaults {
    uint32_t partitions, partitions_max;
    uint64_t retention_ms, visibility_timeout_ms;
    uint32_t max_in_flight, max_acked_ahead;
};

struct nd_auth;
struct nd_pacer;

struct nd_handlers_options {
    struct nd_broker *broker;
    struct nd_metastore *metastore;
    struct nd_metrics *metrics;
    struct nd_log *log;
    struct nd_topic_defaults topic;
    const char *version; /* borrowed */
    bool dev;            /* serve narad.v1.Bench */
    struct nd_auth *auth;
    struct nd_quotas *quotas;
    bool security;                     /* credentials are needed, rights are asked for */
    bool metrics_open;                 /* but not for the metrics */
    bool reads_need_grant;             /* topics are seen by who has a right on them (compat 3) */
    bool names_differ;                 /* in more than letter case (compat 3) */
    bool count_produce, count_consume; /* `quotas` limit it at all */
    struct nd_pacer *pacer;            /* there is a rate of consuming; or NULL */
};

struct nd_handlers {
    struct nd_handlers_options options;
    struct nd_budget produce; /* bytes */
    struct nd_budget settles; /* bytes */
    struct nd_budget polls;   /* polls that may park, by number */
    struct nd_budget replays; /* by number */
    struct nd_budget admin;   /* by number; the hard limit is that of admins who change users */
    struct nd_caller_pool *callers;
    _Atomic uint32_t spread; /* for records without a key */
    _Atomic bool stopping;
    _Atomic uint32_t inside; /* handlers between their look at `stopping` and their hand-over */
    struct nd_mutex lock;
    struct nd_list own_changes; /* of passwords, see rpc_users.c; guarded by lock */
    struct nd_list streams;     /* of struct nd_stream, open ones; guarded by lock */
    struct nd_list watched;     /* of struct nd_access_watched; guarded by lock */
};

struct nd_handlers *nd_handlers_new(const struct nd_handlers_options *options);
/* Every call is done. */
void nd_handlers_free(struct nd_handlers *handlers);
/* Stop the intake: from the return on nothing new reaches broker or metastore. Open streams end
 * with UNAVAILABLE once what they sent is answered; changes of topics under way are waited for,
 * `wait_ms` at most. @thread main */
void nd_handlers_stop(struct nd_handlers *handlers, uint32_t wait_ms);

/* The table; static. Each method names its right. */
const struct nd_rpc_method *const *nd_handlers_methods(bool dev, size_t *count_out);
const struct nd_rpc_file *const *nd_handlers_files(bool dev, size_t *count_out);

/* --- for the handler files --- */

/* Bracket every hand-over to broker or metastore. False: the node is stopping; nothing to leave. */
ND_CHECKED bool nd_handlers_enter(struct nd_handlers *handlers);
void nd_handlers_leave(struct nd_handlers *handlers);

static inline struct nd_handlers *nd_handlers_of(const struct nd_rpc_call *call)
{
    return nd_rpc_call_server_user(call);
}

/* The topic a request names, one reference. INVALID_ARGUMENT (no or an impossible name),
 * TOPIC_NOT_FOUND, UNAVAILABLE; `msg` names it. */
ND_CHECKED enum nd_err nd_handlers_topic(struct nd_handlers *handlers, struct nd_slice name,
                                         struct nd_topic **out, struct nd_errmsg *msg);
/* Is `partition` one of the topic's? INVALID_ARGUMENT with a text. */
ND_CHECKED enum nd_err nd_handlers_partition(const struct nd_topic *topic, uint32_t partition,
                                             struct nd_errmsg *msg);
/* Finish with `err` and its text, or `msg`'s when it has one. */
void nd_call_fail(struct nd_rpc_call *call, enum nd_err err, const struct nd_errmsg *msg);
/* The text for an error of the broker about a topic, or one partition of it: what is not there any
 * more, or not available. Other errors leave `msg` alone. @thread any */
void nd_topic_errmsg(struct nd_handlers *handlers, enum nd_err err, const struct nd_topic *topic,
                     int32_t partition, struct nd_errmsg *msg);
/* Finish with it. */
void nd_call_fail_topic(struct nd_rpc_call *call, enum nd_err err, const struct nd_topic *topic,
                        int32_t partition);
/* Finish with OVERLOADED: the budget of unary calls is used up. */
void nd_call_refuse_budget(struct nd_rpc_call *call, const struct nd_budget *budget);
void nd_call_refuse_stopping(struct nd_rpc_call *call);
/* A unary request in the call's arena; NULL: it is no message of that type, and was refused as
 * below. */
const void *nd_call_decode(struct nd_rpc_call *call, const ProtobufCMessageDescriptor *type,
                           struct nd_slice request);
/* Finish with INVALID_ARGUMENT: "the request is not a valid narad.v1.X message". */
void nd_call_refuse_bytes(struct nd_rpc_call *call, const char *type);
/* Send `bytes`, which nd_free releases, as the reply of a unary call, and finish it. */
void nd_call_reply_bytes(struct nd_rpc_call *call, uint8_t *bytes, size_t size);

/* Give leases back that nobody received. The items are copied. @thread any */
void nd_handlers_nack(struct nd_handlers *handlers, const struct nd_topic *topic,
                      const struct nd_delivery *deliveries, uint32_t count);
/* How many of the deliveries fit into an answer that any client accepts (4 MiB); at least one. */
uint32_t nd_deliveries_fit(const struct nd_delivery *deliveries, uint32_t count);

size_t nd_deliveries_bytes(const struct nd_delivery *deliveries, uint32_t count); /* of payloads */

extern const struct nd_rpc_method nd_rpc_produce, nd_rpc_produce_stream;
extern const struct nd_rpc_method nd_rpc_consume, nd_rpc_consume_stream;
extern const struct nd_rpc_method nd_rpc_subscribe, nd_rpc_ack, nd_rpc_ack_stream, nd_rpc_replay;
extern const struct nd_rpc_method nd_rpc_create_topic, nd_rpc_get_topic, nd_rpc_list_topics;
extern const struct nd_rpc_method nd_rpc_alter_topic, nd_rpc_delete_topic, nd_rpc_metrics;
extern const struct nd_rpc_method nd_rpc_version;
extern const struct nd_rpc_method nd_rpc_create_user, nd_rpc_get_user, nd_rpc_list_users;
extern const struct nd_rpc_method nd_rpc_delete_user, nd_rpc_set_grants, nd_rpc_set_password;
extern const struct nd_rpc_method nd_rpc_check_access;
extern const struct nd_rpc_method nd_rpc_bench_produce, nd_rpc_bench_produce_stream;

#endif
