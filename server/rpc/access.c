#include "server/rpc/access.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "proto/rpc/client_address.h"
#include "server/rpc/caller.h"
#include "server/rpc/handlers.h"
#include "server/security/auth.h"

enum { PEER_SIZE = 256 };

static const char gone[] = "the user is gone, or its password was changed";
static const char behind[] = "the metadata of this node has not caught up yet";

/* --- callers --- */

struct nd_caller *nd_access_caller(const struct nd_rpc_call *call)
{
    return nd_rpc_call_identity(call);
}

/* Is what this method does limited at all? */
static bool is_counted(const struct nd_handlers *h, uint32_t right)
{
    return (right == ND_RIGHT_PRODUCE && h->options.count_produce) ||
           (right == ND_RIGHT_CONSUME && h->options.count_consume);
}

static void attach(struct nd_rpc_call *call, struct nd_caller *caller)
{
    nd_rpc_call_set_identity(call, caller, nd_caller_unref);
}

/* --- authentication --- */

static bool over_unix_socket(const char *peer)
{
    return strncmp(peer, "unix", 4) == 0;
}

static bool is_address(const char *text)
{
    struct in6_addr address;
    return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

/* What a gateway says of its client; false: that is no address. */
static bool address_of(struct nd_slice told, char out[INET6_ADDRSTRLEN])
{
    if (told.size == 0 || told.size >= INET6_ADDRSTRLEN) {
        return false;
    }
    snprintf(out, INET6_ADDRSTRLEN, "%.*s", (int)told.size, (const char *)told.data);
    return is_address(out);
}

/* For the audit log: "ipv4:10.0.0.1:4242", "unix:", or "http:10.0.0.1" as the gateway says it. */
static void peer_of(const struct nd_rpc_call *call, char out[PEER_SIZE])
{
    char address[INET6_ADDRSTRLEN];
    nd_rpc_call_peer(call, out, PEER_SIZE);
    if (over_unix_socket(out) &&
        address_of(nd_rpc_call_metadata(call, ND_CLIENT_ADDRESS), address)) {
        snprintf(out, PEER_SIZE, "http:%s", address);
    }
}

/* "ipv4:10.0.0.1:4242" -> "10.0.0.1", "ipv6:[::1]:4242" (or "%5B::1%5D") -> "::1": as a gateway
 * would say it. */
static void host_of(char *peer, char *out, size_t out_size)
{
    static const char *const marks[] = {"[", "]", "%5B", "%5D"};
    char *host = strchr(peer, ':'), *port = strrchr(peer, ':');
    if (port != host) {
        *port = '\0';
    }
    host = host == NULL ? peer : host + 1;
    for (size_t i = 0; i < ND_ARRAY_SIZE(marks); i++) {
        char *mark = strstr(host, marks[i]);
        if (mark != NULL) {
            memmove(mark, mark + strlen(marks[i]), strlen(mark + strlen(marks[i])) + 1);
        }
    }
    snprintf(out, out_size, "%s", host);
}

static struct nd_quota *quota_of(struct nd_handlers *h, const char *kind, const char *name)
{
    char identity[PEER_SIZE + 8];
    snprintf(identity, sizeof identity, "%s:%s", kind, name);
    return nd_quota_of(h->options.quotas, nd_slice_str(identity));
}

/* Security is off: a caller only where something is counted. */
static void admit_anybody(struct nd_handlers *h, struct nd_rpc_call *call)
{
    char peer[PEER_SIZE], host[PEER_SIZE], address[INET6_ADDRSTRLEN];
    if (!is_counted(h, nd_rpc_call_right(call))) {
        return;
    }
    struct nd_caller *caller = nd_caller_new(h);
    nd_rpc_call_peer(call, peer, sizeof peer);
    caller->believed = over_unix_socket(peer);
    if (!caller->believed) {
        host_of(peer, host, sizeof host);
        caller->quota = quota_of(h, "host", host);
    } else if (address_of(nd_rpc_call_metadata(call, ND_CLIENT_ADDRESS), address)) {
        caller->quota = quota_of(h, "host", address);
    }
    attach(call, caller);
}

struct nd_caller *nd_access_item_caller(const struct nd_rpc_call *call, struct nd_slice address)
{
    struct nd_caller *own = nd_access_caller(call);
    char text[INET6_ADDRSTRLEN];
    if (own == NULL || !own->believed || !address_of(address, text)) {
        return nd_caller_ref(own);
    }
    struct nd_caller *caller = nd_caller_new(own->handlers);
    caller->quota = quota_of(own->handlers, "host", text);
    return caller;
}

/* `user`: the reference is taken over. */
static void admit_user(struct nd_caller *caller, struct nd_rpc_call *call, struct nd_user *user)
{
    struct nd_handlers *h = caller->handlers;
    if (is_counted(h, nd_rpc_call_right(call))) {
        caller->quota = quota_of(h, "user", user->name);
    }
    nd_mutex_lock(&caller->lock);
    caller->user = user;
    caller->version = caller->seen;
    nd_mutex_unlock(&caller->lock);
    attach(call, caller);
}

static enum nd_err refusal(enum nd_err err, struct nd_errmsg *msg)
{
    switch ((int)err) {
    case ND_ERR_INTERNAL: nd_errmsg_set(msg, "authentication unavailable"); break;
    case ND_ERR_UNAVAILABLE: nd_errmsg_set(msg, "%s", behind); break;
    case ND_ERR_CANCELLED: nd_errmsg_set(msg, "the node is stopping"); return ND_ERR_UNAVAILABLE;
    default: break;
    }
    return err;
}

/* The caller's call is held meanwhile. @thread bcrypt */
static void checked(void *arg, enum nd_err err, struct nd_user *user)
{
    struct nd_caller *caller = arg;
    struct nd_rpc_call *call = caller->call;
    struct nd_errmsg msg = {""};
    if (err == ND_OK) {
        admit_user(caller, call, user);
    } else {
        err = refusal(err, &msg);
        nd_caller_unref(caller);
    }
    nd_rpc_call_admit(call, err, msg.text);
}

static void peer_get(void *call, char *out, size_t out_size)
{
    char peer[PEER_SIZE];
    peer_of(call, peer);
    snprintf(out, out_size, "%s", peer);
}

enum nd_rpc_admission nd_access_authenticate(struct nd_rpc_call *call, void *handlers,
                                             enum nd_err *err_out, struct nd_errmsg *msg)
{
    struct nd_handlers *h = handlers;
    struct nd_user *user = NULL;
    if (!h->options.security) {
        admit_anybody(h, call);
        return ND_RPC_ADMIT;
    }
    if (nd_rpc_call_right(call) == ND_RIGHT_METRICS && h->options.metrics_open) {
        return ND_RPC_ADMIT; /* nobody in particular: no other right is in this */
    }
    struct nd_auth_caller asks = {nd_rpc_call_metadata(call, "authorization"), peer_get, call};
    struct nd_caller *caller = nd_caller_new(h);
    caller->call = call; /* the stack keeps it for its admission */
    caller->seen = nd_metastore_users_version(h->options.metastore);
    if (nd_auth_check(h->options.auth, &asks, err_out, &user, checked, caller) == ND_AUTH_LATER) {
        return ND_RPC_LATER;
    }
    if (*err_out != ND_OK) {
        nd_caller_unref(caller);
        *err_out = refusal(*err_out, msg);
        return ND_RPC_REFUSE;
    }
    admit_user(caller, call, user);
    return ND_RPC_ADMIT;
}

/* --- rights --- */

static enum nd_err may_manage(struct nd_handlers *h, const struct nd_user *user,
                              struct nd_slice name, struct nd_errmsg *msg)
{
    struct nd_topic *topic;
    if (nd_user_is_admin(user) || nd_metastore_topic(h->options.metastore, name, &topic) != ND_OK) {
        return ND_OK; /* of one that is not there its absence is told */
    }
    enum nd_err err = nd_may_manage(user, topic->owner, msg);
    nd_topic_unref(topic);
    return err;
}

static enum nd_err may_read(struct nd_handlers *h, const struct nd_user *user, struct nd_slice name,
                            struct nd_errmsg *msg)
{
    struct nd_topic *topic;
    if (!h->options.reads_need_grant) {
        return ND_OK;
    }
    if (nd_metastore_topic(h->options.metastore, name, &topic) != ND_OK) {
        return nd_may_read(user, name, "", msg);
    }
    enum nd_err err = nd_may_read(user, name, topic->owner, msg);
    nd_topic_unref(topic);
    return err;
}

static enum nd_err may_set_password(const struct nd_user *user, struct nd_slice name,
                                    struct nd_errmsg *msg)
{
    if (nd_user_is_admin(user) || nd_slice_equal(nd_slice_str(user->name), name)) {
        return ND_OK;
    }
    nd_errmsg_set(msg, "admin required");
    return ND_ERR_PERMISSION_DENIED;
}

static enum nd_err may(struct nd_handlers *h, const struct nd_user *user, enum nd_right right,
                       struct nd_slice name, struct nd_errmsg *msg)
{
    switch (right) {
    case ND_RIGHT_ANY:
    case ND_RIGHT_METRICS: return ND_OK;
    case ND_RIGHT_PRODUCE: return nd_may(user, ND_ACTION_PRODUCE, name, msg);
    case ND_RIGHT_CONSUME: return nd_may(user, ND_ACTION_CONSUME, name, msg);
    case ND_RIGHT_CREATE: return nd_may(user, ND_ACTION_CREATE, name, msg);
    case ND_RIGHT_MANAGE: return may_manage(h, user, name, msg);
    case ND_RIGHT_READ: return may_read(h, user, name, msg);
    case ND_RIGHT_ADMIN: return nd_may_administer(user, msg);
    case ND_RIGHT_PASSWORD: return may_set_password(user, name, msg);
    case ND_RIGHT_UNSET: break;
    }
    ND_UNREACHABLE(); /* nd_handlers_new() has looked */
}

/* The record that holds now. */
static enum nd_err refresh_locked(struct nd_caller *caller, struct nd_errmsg *msg)
    ND_REQUIRES(caller->lock)
{
    enum nd_err err =
        nd_auth_refresh(caller->handlers->options.auth, &caller->user, &caller->version);
    if (err != ND_OK) {
        /* Behind or not, its record has gone. */
        nd_errmsg_set(msg, "%s", err == ND_ERR_UNAUTHENTICATED ? gone : behind);
    }
    return err;
}

enum nd_err nd_access_right(struct nd_rpc_call *call, enum nd_right right, struct nd_slice name,
                            struct nd_errmsg *msg)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_caller *caller = nd_access_caller(call);
    if (!h->options.security || (right == ND_RIGHT_METRICS && h->options.metrics_open)) {
        return ND_OK;
    }
    if (caller == NULL) {
        return ND_ERR_UNAUTHENTICATED;
    }
    nd_mutex_lock(&caller->lock);
    enum nd_err err = refresh_locked(caller, msg);
    if (err == ND_OK) {
        err = may(h, caller->user, right, name, msg);
    }
    nd_mutex_unlock(&caller->lock);
    return err;
}

enum nd_err nd_access_check(struct nd_rpc_call *call, struct nd_slice name, struct nd_errmsg *msg)
{
    return nd_access_right(call, (enum nd_right)nd_rpc_call_right(call), name, msg);
}

/* --- what is open --- */

static void look_again(struct nd_access_watched *watched)
{
    struct nd_caller *caller = nd_access_caller(watched->call);
    struct nd_errmsg msg = {""};
    nd_mutex_lock(&caller->lock);
    enum nd_err err = refresh_locked(caller, &msg);
    nd_mutex_unlock(&caller->lock);
    watched->look(watched, err, msg.text);
}

void nd_access_watch(struct nd_access_watched *watched, struct nd_rpc_call *call,
                     void (*look)(struct nd_access_watched *watched, enum nd_err err,
                                  const char *text))
{
    struct nd_handlers *h = nd_handlers_of(call);
    const struct nd_caller *caller = nd_access_caller(call);
    nd_list_init(&watched->link);
    watched->call = call;
    watched->look = look;
    if (caller == NULL || !h->options.security) {
        return;
    }
    nd_mutex_lock(&h->lock);
    nd_list_append(&h->watched, &watched->link);
    /* Listed before this: a change that it does not see finds the one that is listed. */
    if (nd_metastore_users_version(h->options.metastore) != caller->seen) {
        look_again(watched);
    }
    nd_mutex_unlock(&h->lock);
}

void nd_access_unwatch(struct nd_access_watched *watched)
{
    if (watched->call == NULL) {
        return;
    }
    struct nd_handlers *h = nd_handlers_of(watched->call);
    if (h->options.security) {
        nd_mutex_lock(&h->lock);
        nd_list_remove(&watched->link);
        nd_mutex_unlock(&h->lock);
    }
}

void nd_access_users_changed(void *handlers)
{
    struct nd_handlers *h = handlers;
    nd_mutex_lock(&h->lock);
    ND_LIST_FOREACH (&h->watched, link) {
        look_again(ND_CONTAINER_OF(link, struct nd_access_watched, link));
    }
    nd_mutex_unlock(&h->lock);
}

/* --- how much of it --- */

enum nd_err nd_caller_begin(struct nd_caller *caller, enum nd_quota_kind kind, uint32_t weight,
                            uint64_t bytes, uint32_t *retry_after_ms, struct nd_errmsg *msg)
{
    if (caller == NULL || caller->quota == NULL) {
        return ND_OK;
    }
    return nd_quota_begin(caller->quota, kind, weight, bytes, retry_after_ms, msg);
}

void nd_caller_end(struct nd_caller *caller, enum nd_quota_kind kind, uint32_t weight)
{
    if (caller != NULL && caller->quota != NULL) {
        nd_quota_end(caller->quota, kind, weight);
    }
}

void nd_caller_undo(struct nd_caller *caller, enum nd_quota_kind kind, uint32_t weight,
                    uint64_t bytes)
{
    if (caller != NULL && caller->quota != NULL) {
        nd_quota_undo(caller->quota, kind, weight, bytes);
    }
}

void nd_caller_charge(struct nd_caller *caller, enum nd_quota_kind kind, uint32_t messages,
                      uint64_t bytes)
{
    if (caller != NULL && caller->quota != NULL && messages > 0) {
        nd_quota_charge(caller->quota, kind, messages, bytes);
    }
}

uint32_t nd_caller_wait_ms(struct nd_caller *caller, enum nd_quota_kind kind)
{
    return caller == NULL || caller->quota == NULL ? 0 : nd_quota_wait_ms(caller->quota, kind);
}

/* --- audit --- */

void nd_access_audit(struct nd_rpc_call *call, const char *event, const char *subject,
                     enum nd_err err)
{
    struct nd_handlers *h = nd_handlers_of(call);
    if (h->options.auth == NULL) {
        return;
    }
    struct nd_user *user = nd_caller_user(nd_access_caller(call));
    const char *outcome = err == ND_OK                      ? "ok"
                          : err == ND_ERR_PERMISSION_DENIED ? "denied"
                                                            : "failed";
    char peer[PEER_SIZE];
    peer_of(call, peer);
    nd_audit(h->options.auth, event, user == NULL ? "" : user->name, subject, outcome, peer);
    nd_user_unref(user);
}
