/* Who calls, and what they may do: the one place where the methods of a node ask it (architecture
 * 11). Each method says in its description which right it needs; its handler asks for it by name of
 * the topic or user that the request is about, before it looks whether that exists. Rights are
 * those of the record that holds now: streams are asked about again item by item, and whatever is
 * open is looked at again when a user changes.
 *
 * With security off everybody passes, and a caller is the address it comes from: that of the
 * connection, or over the Unix socket what a gateway says of the call or of an item. Nobody but the
 * owner of the node connects there; whoever else does so without a word is not counted. */
#ifndef ND_ACCESS_H
#define ND_ACCESS_H

#include "storage/base/list.h"

#include "proto/rpc/server.h"
#include "server/security/grants.h"
#include "server/security/quota.h"

struct nd_handlers;
struct nd_caller; /* of one call; counted */

/* What a method is for; nd_rpc_method.right. The texts of refusals are those of rest-api.md 1.8. */
enum nd_right {
    ND_RIGHT_UNSET, /* no method */
    ND_RIGHT_ANY,   /* whoever has credentials */
    ND_RIGHT_PRODUCE,
    ND_RIGHT_CONSUME,
    ND_RIGHT_CREATE,
    ND_RIGHT_MANAGE,   /* owner or admin; a topic that is not there passes */
    ND_RIGHT_READ,     /* compat 1.2: whoever has credentials */
    ND_RIGHT_ADMIN,    /* of users and cluster */
    ND_RIGHT_PASSWORD, /* the user itself or an admin */
    ND_RIGHT_METRICS,  /* whoever has credentials, or anybody at all when they are open */
};

/* nd_rpc_server_options.authenticate; its user is the struct nd_handlers. */
enum nd_rpc_admission nd_access_authenticate(struct nd_rpc_call *call, void *handlers,
                                             enum nd_err *err_out, struct nd_errmsg *msg);

/* Who made the call; borrowed from it, NULL: security is off and nothing is counted. */
struct nd_caller *nd_access_caller(const struct nd_rpc_call *call);
/* Who an item of the call's stream is of: whoever has `address`, where the call is a gateway's that
 * is believed; else who made the call. Counted; NULL as above. Only for what is counted, not for
 * rights. @thread any */
struct nd_caller *nd_access_item_caller(const struct nd_rpc_call *call, struct nd_slice address);
struct nd_caller *nd_caller_ref(struct nd_caller *caller); /* NULL passes, also below */
void nd_caller_unref(void *caller);
/* The record as it is now, counted; NULL: security is off. */
struct nd_user *nd_caller_user(struct nd_caller *caller);

/* May the call do what its method is for, about the topic or user `name`? PERMISSION_DENIED, or
 * UNAUTHENTICATED: the user is gone meanwhile or its password is another. Costs little while no
 * user changes: ask again whenever the answer has waited. The call is not over. @thread any */
ND_CHECKED enum nd_err nd_access_check(struct nd_rpc_call *call, struct nd_slice name,
                                       struct nd_errmsg *msg);
/* The same for another right than the method's. */
ND_CHECKED enum nd_err nd_access_right(struct nd_rpc_call *call, enum nd_right right,
                                       struct nd_slice name, struct nd_errmsg *msg);

/* --- what is open is looked at again --- */

struct nd_access_watched {
    struct nd_list link; /* guarded by handlers->lock; alone: nobody looks */
    struct nd_rpc_call *call;
    /* A user changed. `err` OK: the caller is still who it was, ask for its rights; otherwise end
     * the call with it. Under handlers->lock, which nd_access_unwatch() takes; any thread. */
    void (*look)(struct nd_access_watched *watched, enum nd_err err, const char *text);
};
/* Looks at once when a user changed since the call came. */
void nd_access_watch(struct nd_access_watched *watched, struct nd_rpc_call *call,
                     void (*look)(struct nd_access_watched *watched, enum nd_err err,
                                  const char *text));
void nd_access_unwatch(
    struct nd_access_watched *watched); /* also of one that never was watched: zeroed */
/* For nd_metastore_watch_users(). */
void nd_access_users_changed(void *handlers);

/* --- how much of it --- */

/* As nd_quota_begin() and its kin; OK for whom nothing is counted. @thread any */
ND_CHECKED enum nd_err nd_caller_begin(struct nd_caller *caller, enum nd_quota_kind kind,
                                       uint32_t weight, uint64_t bytes, uint32_t *retry_after_ms,
                                       struct nd_errmsg *msg);
void nd_caller_end(struct nd_caller *caller, enum nd_quota_kind kind, uint32_t weight);
void nd_caller_undo(struct nd_caller *caller, enum nd_quota_kind kind, uint32_t weight,
                    uint64_t bytes);
void nd_caller_charge(struct nd_caller *caller, enum nd_quota_kind kind, uint32_t messages,
                      uint64_t bytes);
uint32_t nd_caller_wait_ms(struct nd_caller *caller, enum nd_quota_kind kind);

/* A line of the audit log about what the call did, or was refused. The call is not over yet. */
void nd_access_audit(struct nd_rpc_call *call, const char *event, const char *subject,
                     enum nd_err err);

#endif
