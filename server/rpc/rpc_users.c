/* Admin: users. The order of the checks and their texts are the interface's (rest-api.md 8).
 * Passwords are hashed and compared on the threads of server/security, changes are answered from
 * the raft thread. With security off everybody acts as root. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

#include "proto/narad/v1/admin.pb-c.h"
#include "server/rpc/admin.h"
#include "server/rpc/handlers.h"
#include "server/rpc/user_view.h"
#include "server/security/auth.h"

/* A change under way. It holds one of the admin budget, which a stop waits for. Whoever is no admin
 * changes its own password only, and is kept from keeping others from changing anything: the budget
 * has places for admins alone, and of one user's own changes there is one at a time, since each
 * costs a bcrypt. */
struct change {
    struct nd_list
        own;      /* in handlers->own_changes, guarded by handlers->lock; alone: of an admin */
    bool counted; /* in the budget */
    struct nd_handlers *handlers;
    struct nd_rpc_call *call;
    const char *event;     /* of the audit log */
    struct nd_user *user;  /* create: the new one; counted */
    struct nd_user *actor; /* counted; NULL: security is off */
    char username[ND_USER_NAME_SIZE_MAX + 1];
    char *new_password; /* in the decoded request; wiped before the answer: then that goes */
};

static bool is_self(const struct nd_user *actor, const char *username)
{
    return actor != NULL && strcmp(actor->name, username) == 0;
}

/* The present password is asked for. */
static bool is_own(const struct change *change)
{
    return is_self(change->actor, change->username) && !nd_user_is_admin(change->actor);
}

static bool is_root(const struct nd_user *actor)
{
    return actor == NULL || actor->root;
}

static enum nd_err deny(struct nd_errmsg *msg, const char *text)
{
    nd_errmsg_set(msg, "%s", text);
    return ND_ERR_PERMISSION_DENIED;
}

/* The text of a name that is not there is the interface's. */
static enum nd_err user_find(struct nd_handlers *h, const char *username, struct nd_user **out,
                             struct nd_errmsg *msg)
{
    enum nd_err err = nd_metastore_user(h->options.metastore, nd_slice_str(username), out);
    if (err == ND_ERR_UNAVAILABLE) {
        nd_errmsg_set(msg, "the metadata of this node has not caught up yet");
    }
    return err;
}

/* --- changes --- */

static void change_free(struct change *change)
{
    nd_user_unref(change->user);
    nd_user_unref(change->actor);
    nd_free(change);
}

/* It is over, and about to be answered: before we go on behind that, the same user's next one may
 * come, and the handlers may be gone. */
static void change_end(struct change *change, enum nd_err err)
{
    struct nd_handlers *h = change->handlers;
    nd_wipe_text(change->new_password);
    nd_access_audit(change->call, change->event, change->username, err);
    nd_mutex_lock(&h->lock);
    nd_list_remove(&change->own);
    nd_mutex_unlock(&h->lock);
    if (change->counted) {
        nd_budget_give(&h->admin, 1);
    }
}

/* Refused or failed: told to the caller and to the audit log. */
static void change_fail(struct change *change, enum nd_err err, const char *text)
{
    if (err == ND_ERR_CANCELLED) { /* the stop of the node, not of the call */
        err = ND_ERR_UNAVAILABLE;
        text = "the node is stopping";
    }
    change_end(change, err);
    nd_rpc_call_fail(change->call, err, text);
    change_free(change);
}

static void change_reply(struct change *change, const ProtobufCMessage *response)
{
    change_end(change, ND_OK);
    nd_rpc_call_reply(change->call, response);
    change_free(change);
}

/* May the caller, as it is now? Asked first, and again by what has waited for a hash: whoever lost
 * a right or has another password since then changes nothing any more. @thread any */
static enum nd_err change_may(struct change *change, struct nd_slice username,
                              struct nd_errmsg *msg)
{
    enum nd_err err = nd_access_check(change->call, username, msg);
    nd_user_unref(change->actor);
    change->actor = nd_caller_user(nd_access_caller(change->call));
    if (err == ND_OK && change->user != NULL) {
        err = nd_may_confer(change->actor, change->user->grants, change->user->grants_count, msg);
    }
    return err;
}

/* False: the same user does the same already. */
static bool own_change_begin(struct change *change)
{
    struct nd_handlers *h = change->handlers;
    bool first = true;
    nd_mutex_lock(&h->lock);
    ND_LIST_FOREACH (&h->own_changes, link) {
        const struct change *other = ND_CONTAINER_OF(link, struct change, own);
        first = first && strcmp(other->username, change->username) != 0;
    }
    if (first) {
        nd_list_append(&h->own_changes, &change->own);
    }
    nd_mutex_unlock(&h->lock);
    return first;
}

/* Room for it. */
static enum nd_err change_begin(struct change *change, struct nd_errmsg *msg)
{
    struct nd_budget *budget = &change->handlers->admin;
    bool admin = nd_user_is_admin(change->actor);
    change->counted = admin ? nd_budget_take_hard(budget, 1) : nd_budget_take(budget, 1);
    if (!change->counted) {
        nd_budget_errmsg(budget, admin ? budget->hard : budget->soft, msg);
        return ND_ERR_OVERLOADED;
    }
    if (!admin && !own_change_begin(change)) {
        nd_errmsg_set(msg, "a change of this password is under way");
        return ND_ERR_OVERLOADED;
    }
    return ND_OK;
}

/* The rights were asked for with the method's own. NULL: it was answered. */
static struct change *change_new(struct nd_rpc_call *call, const char *event, const char *username)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    struct change *change = nd_xcalloc(1, sizeof *change);
    nd_list_init(&change->own);
    change->handlers = h;
    change->call = call;
    change->event = event;
    snprintf(change->username, sizeof change->username, "%s", username);
    enum nd_err err = change_may(change, nd_slice_str(username), &msg);
    if (err == ND_OK) {
        err = change_begin(change, &msg);
    }
    if (err != ND_OK) {
        change_fail(change, err, msg.text);
        return NULL;
    }
    return change;
}

/* False: the node is stopping, and that was told. */
static bool change_enter(struct change *change)
{
    if (nd_handlers_enter(change->handlers)) {
        return true;
    }
    change_fail(change, ND_ERR_CANCELLED, NULL);
    return false;
}

/* --- create --- */

/* @thread raft */
static void created(void *arg, enum nd_err err, const char *text, const struct nd_user *user)
{
    struct change *change = arg;
    Narad__V1__CreateUserResponse response = NARAD__V1__CREATE_USER_RESPONSE__INIT;
    struct nd_user_view view;
    if (err != ND_OK) {
        change_fail(change, err, text);
        return;
    }
    nd_user_view_init(&view, user);
    response.user = &view.message;
    change_reply(change, &response.base);
    nd_user_view_release(&view);
}

/* @thread bcrypt */
static void create_hashed(void *arg, enum nd_err err, const char *text, const char *hash)
{
    struct change *change = arg;
    struct nd_errmsg msg = {""};
    if (err == ND_OK) {
        err = change_may(change, nd_slice_str(change->username), &msg);
        text = msg.text;
    }
    if (err != ND_OK) {
        change_fail(change, err, text);
        return;
    }
    snprintf(change->user->hash, sizeof change->user->hash, "%s", hash);
    nd_metastore_create_user(change->handlers->options.metastore, change->user, created, change);
}

static enum nd_err create_check(const Narad__V1__CreateUserRequest *r, struct change *change,
                                struct nd_errmsg *msg)
{
    struct nd_grant *grants = NULL;
    struct nd_user *there = NULL;
    enum nd_err err = nd_user_name_check(nd_slice_str(r->username), msg);
    if (err == ND_OK) {
        err = nd_password_check(nd_slice_str(r->password), msg);
    }
    if (err == ND_OK) {
        err = nd_user_grants_get(r->grants, r->n_grants, &grants, msg);
    }
    if (err == ND_OK) {
        err = nd_may_confer(change->actor, grants, (uint32_t)r->n_grants, msg);
    }
    if (err == ND_OK && user_find(change->handlers, r->username, &there, NULL) == ND_OK) {
        nd_user_unref(there);
        err = ND_ERR_ALREADY_EXISTS; /* before the time of a bcrypt is spent */
    }
    if (err == ND_OK) {
        change->user = nd_user_new(r->username, grants, (uint32_t)r->n_grants);
    }
    nd_free(grants);
    return err;
}

static void on_create(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    const Narad__V1__CreateUserRequest *r =
        nd_call_decode(call, &narad__v1__create_user_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    struct change *change = change_new(call, "user create", r->username);
    if (change == NULL) {
        return;
    }
    struct nd_handlers *h = change->handlers;
    enum nd_err err = create_check(r, change, &msg);
    if (err != ND_OK) {
        change_fail(change, err, msg.text);
    } else if (change_enter(change)) {
        nd_auth_hash(h->options.auth, nd_slice_str(r->password), create_hashed, change);
        nd_handlers_leave(h);
    }
    nd_wipe_text(r->password);
}

/* --- grants --- */

/* @thread raft */
static void grants_set(void *arg, enum nd_err err, const char *text, const struct nd_user *user)
{
    struct change *change = arg;
    Narad__V1__SetGrantsResponse response = NARAD__V1__SET_GRANTS_RESPONSE__INIT;
    struct nd_user_view view;
    if (err != ND_OK) {
        change_fail(change, err, text);
        return;
    }
    nd_user_view_init(&view, user);
    response.user = &view.message;
    change_reply(change, &response.base);
    nd_user_view_release(&view);
}

static enum nd_err grants_check(const Narad__V1__SetGrantsRequest *r, const struct change *change,
                                struct nd_grant **grants_out, struct nd_errmsg *msg)
{
    struct nd_user *target;
    enum nd_err err = nd_user_grants_get(r->grants, r->n_grants, grants_out, msg);
    if (err != ND_OK) {
        return err;
    }
    if (is_self(change->actor, r->username)) {
        return deny(msg, "cannot modify your own grants");
    }
    err = nd_may_confer(change->actor, *grants_out, (uint32_t)r->n_grants, msg);
    if (err == ND_OK) {
        err = user_find(change->handlers, r->username, &target, msg);
    }
    if (err != ND_OK) {
        return err;
    }
    bool root = target->root;
    nd_user_unref(target);
    return root ? deny(msg, "the root admin's grants are immutable") : ND_OK;
}

static void on_set_grants(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    struct nd_grant *grants = NULL;
    const Narad__V1__SetGrantsRequest *r =
        nd_call_decode(call, &narad__v1__set_grants_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    struct change *change = change_new(call, "user grants", r->username);
    if (change == NULL) {
        return;
    }
    struct nd_handlers *h = change->handlers;
    enum nd_err err = grants_check(r, change, &grants, &msg);
    if (err != ND_OK) {
        change_fail(change, err, msg.text);
    } else if (change_enter(change)) {
        nd_metastore_set_grants(h->options.metastore, r->username, grants, (uint32_t)r->n_grants,
                                grants_set, change);
        nd_handlers_leave(h);
    }
    nd_free(grants);
}

/* --- delete --- */

/* @thread raft */
static void deleted(void *arg, enum nd_err err, const char *text, const struct nd_user *user)
{
    struct change *change = arg;
    Narad__V1__DeleteUserResponse response = NARAD__V1__DELETE_USER_RESPONSE__INIT;
    (void)user;
    if (err != ND_OK) {
        change_fail(change, err, text);
    } else {
        change_reply(change, &response.base);
    }
}

static enum nd_err delete_check(const char *username, const struct change *change,
                                struct nd_errmsg *msg)
{
    struct nd_user *target;
    enum nd_err err = user_find(change->handlers, username, &target, msg);
    if (err != ND_OK) {
        return err;
    }
    bool root = target->root;
    nd_user_unref(target);
    if (root) {
        return deny(msg, "the root admin cannot be deleted");
    }
    return is_self(change->actor, username) ? deny(msg, "cannot delete your own account") : ND_OK;
}

static void on_delete(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    const Narad__V1__DeleteUserRequest *r =
        nd_call_decode(call, &narad__v1__delete_user_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    struct change *change = change_new(call, "user delete", r->username);
    if (change == NULL) {
        return;
    }
    struct nd_handlers *h = change->handlers;
    enum nd_err err = delete_check(r->username, change, &msg);
    if (err != ND_OK) {
        change_fail(change, err, msg.text);
    } else if (change_enter(change)) {
        nd_metastore_delete_user(h->options.metastore, r->username, deleted, change);
        nd_handlers_leave(h);
    }
}

/* --- password --- */

/* @thread raft */
static void password_set(void *arg, enum nd_err err, const char *text, const struct nd_user *user)
{
    struct change *change = arg;
    Narad__V1__SetPasswordResponse response = NARAD__V1__SET_PASSWORD_RESPONSE__INIT;
    (void)user;
    if (err == ND_ERR_CONFLICT) {
        err = ND_ERR_UNAUTHENTICATED;
        text = "the user is gone, or its password was changed";
    }
    if (err != ND_OK) {
        change_fail(change, err, text);
    } else {
        change_reply(change, &response.base);
    }
}

/* @thread bcrypt */
static void password_hashed(void *arg, enum nd_err err, const char *text, const char *hash)
{
    struct change *change = arg;
    struct nd_errmsg msg = {""};
    if (err == ND_OK) {
        err = change_may(change, nd_slice_str(change->username), &msg);
        text = msg.text;
    }
    if (err != ND_OK) {
        change_fail(change, err, text);
        return;
    }
    /* One's own is changed in the place of what it was when it was looked at: an admin who sets
     * another one meanwhile has the last word, also when both are proposed at a time. */
    bool own = is_own(change);
    struct nd_password_change request = {change->username, hash, own ? change->actor->hash : NULL};
    nd_metastore_set_password(change->handlers->options.metastore, &request, password_set, change);
}

static void password_hash(struct change *change)
{
    nd_auth_hash(change->handlers->options.auth, nd_slice_str(change->new_password),
                 password_hashed, change);
}

/* The present password was looked at. @thread any */
static void password_verified(void *arg, enum nd_err err)
{
    struct change *change = arg;
    if (err == ND_OK) {
        password_hash(change);
    } else {
        change_fail(change, err,
                    err == ND_ERR_PERMISSION_DENIED ? "current password is incorrect" : NULL);
    }
}

static enum nd_err password_check(const Narad__V1__SetPasswordRequest *r,
                                  const struct change *change, struct nd_user **target_out,
                                  struct nd_errmsg *msg)
{
    if (r->new_password[0] == '\0') {
        nd_errmsg_set(msg, "new_password required");
        return ND_ERR_INVALID_ARGUMENT;
    }
    enum nd_err err = nd_password_check(nd_slice_str(r->new_password), msg);
    if (err == ND_OK) {
        err = user_find(change->handlers, r->username, target_out, msg);
    }
    if (err == ND_OK && (*target_out)->root && !is_root(change->actor)) {
        err = deny(msg, "only the root admin may change the root password");
    }
    return err;
}

static void on_set_password(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    struct nd_user *target = NULL;
    const Narad__V1__SetPasswordRequest *r =
        nd_call_decode(call, &narad__v1__set_password_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    struct change *change = change_new(call, "user password", r->username);
    if (change == NULL) {
        return;
    }
    struct nd_handlers *h = change->handlers;
    change->new_password = r->new_password; /* of the call's arena: as long as it */
    enum nd_err err = password_check(r, change, &target, &msg);
    if (err != ND_OK) {
        change_fail(change, err, msg.text);
    } else if (change_enter(change)) {
        if (is_own(change)) {
            nd_auth_verify(h->options.auth, target, nd_slice_str(r->current_password),
                           password_verified, change);
        } else {
            password_hash(change);
        }
        nd_handlers_leave(h);
    }
    nd_wipe_text(r->current_password);
    nd_user_unref(target);
}

/* --- reads --- */

static void on_get(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    struct nd_user *user;
    const Narad__V1__GetUserRequest *r =
        nd_call_decode(call, &narad__v1__get_user_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    enum nd_err err = nd_access_check(call, nd_slice_str(r->username), &msg);
    if (err == ND_OK) {
        err = user_find(h, r->username, &user, &msg);
    }
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    Narad__V1__GetUserResponse response = NARAD__V1__GET_USER_RESPONSE__INIT;
    struct nd_user_view view;
    nd_user_view_init(&view, user);
    response.user = &view.message;
    nd_rpc_call_reply(call, &response.base);
    nd_user_view_release(&view);
    nd_user_unref(user);
}

static void list_reply(struct nd_rpc_call *call, struct nd_user *const *users, size_t count)
{
    Narad__V1__ListUsersResponse response = NARAD__V1__LIST_USERS_RESPONSE__INIT;
    struct nd_user_view *views = nd_xcalloc(count + 1, sizeof *views);
    response.users = nd_xcalloc(count + 1, sizeof *response.users);
    response.n_users = count;
    for (size_t i = 0; i < count; i++) {
        nd_user_view_init(&views[i], users[i]);
        response.users[i] = &views[i].message;
    }
    nd_rpc_call_reply(call, &response.base);
    for (size_t i = 0; i < count; i++) {
        nd_user_view_release(&views[i]);
    }
    nd_free(response.users);
    nd_free(views);
}

static void on_list(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    struct nd_user **users;
    if (nd_call_decode(call, &narad__v1__list_users_request__descriptor, request) == NULL) {
        return;
    }
    enum nd_err err = nd_access_check(call, nd_slice_str(""), &msg);
    if (err == ND_OK && !nd_metastore_caught_up(h->options.metastore)) {
        err = ND_ERR_UNAVAILABLE;
        nd_errmsg_set(&msg, "the metadata of this node has not caught up yet");
    }
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    size_t count = nd_metastore_users(h->options.metastore, &users);
    list_reply(call, users, count);
    for (size_t i = 0; i < count; i++) {
        nd_user_unref(users[i]);
    }
    nd_free(users);
}

/* --- may I? --- */

static enum nd_err right_of(Narad__V1__Action action, enum nd_right *out, struct nd_errmsg *msg)
{
    static const enum nd_right rights[] = {
        [NARAD__V1__ACTION__ACTION_UNSPECIFIED] = ND_RIGHT_ANY,
        [NARAD__V1__ACTION__ACTION_PRODUCE] = ND_RIGHT_PRODUCE,
        [NARAD__V1__ACTION__ACTION_CONSUME] = ND_RIGHT_CONSUME,
        [NARAD__V1__ACTION__ACTION_CREATE] = ND_RIGHT_CREATE,
        [NARAD__V1__ACTION__ACTION_MANAGE] = ND_RIGHT_MANAGE,
        [NARAD__V1__ACTION__ACTION_READ] = ND_RIGHT_READ,
        [NARAD__V1__ACTION__ACTION_ADMIN] = ND_RIGHT_ADMIN,
        [NARAD__V1__ACTION__ACTION_SET_PASSWORD] = ND_RIGHT_PASSWORD,
        [NARAD__V1__ACTION__ACTION_METRICS] = ND_RIGHT_METRICS,
    };
    if ((int)action < 0 || (size_t)action >= ND_ARRAY_SIZE(rights)) {
        nd_errmsg_set(msg, "action is %d: 0 to %zu are allowed", (int)action,
                      ND_ARRAY_SIZE(rights) - 1);
        return ND_ERR_INVALID_ARGUMENT;
    }
    *out = rights[action];
    return ND_OK;
}

static void on_check_access(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    enum nd_right right;
    const Narad__V1__CheckAccessRequest *r =
        nd_call_decode(call, &narad__v1__check_access_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    enum nd_err err = right_of(r->action, &right, &msg);
    if (err == ND_OK) {
        err = nd_access_right(call, right, nd_slice_str(r->name), &msg);
    }
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    struct nd_user *user = nd_caller_user(nd_access_caller(call));
    Narad__V1__CheckAccessResponse response = NARAD__V1__CHECK_ACCESS_RESPONSE__INIT;
    if (user != NULL) {
        response.username = user->name;
    }
    response.root = is_root(user);
    response.admin = nd_user_is_admin(user);
    response.security_enabled = nd_handlers_of(call)->options.security;
    nd_rpc_call_reply(call, &response.base);
    nd_user_unref(user);
}

ND_ADMIN_METHOD(nd_rpc_create_user, "CreateUser", on_create, ND_RIGHT_ADMIN, .secret = true);
ND_ADMIN_METHOD(nd_rpc_get_user, "GetUser", on_get, ND_RIGHT_ADMIN);
ND_ADMIN_METHOD(nd_rpc_list_users, "ListUsers", on_list, ND_RIGHT_ADMIN);
ND_ADMIN_METHOD(nd_rpc_delete_user, "DeleteUser", on_delete, ND_RIGHT_ADMIN);
ND_ADMIN_METHOD(nd_rpc_set_grants, "SetGrants", on_set_grants, ND_RIGHT_ADMIN);
ND_ADMIN_METHOD(nd_rpc_set_password, "SetPassword", on_set_password, ND_RIGHT_PASSWORD,
                .secret = true);
ND_ADMIN_METHOD(nd_rpc_check_access, "CheckAccess", on_check_access, ND_RIGHT_ANY);
