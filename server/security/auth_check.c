/* From a header to a user, in the order of auth.h. A flight is one bcrypt with all that wait for
 * its outcome. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

#include "server/security/auth_impl.h"

enum {
    HEADER_MAX = 512, /* the longest name and password there may be take 191 */
    PEER_MAX = 64,
};

struct flight {
    struct nd_bcrypt_job job;
    struct nd_auth *auth;
    const struct nd_user *user; /* counted: with the hash that is checked against */
    struct nd_token token;
    struct nd_password password;
    struct nd_list waiters; /* guarded by auth->lock */
    uint32_t waiters_count; /* guarded by auth->lock */
};

struct waiter {
    struct nd_list link;
    nd_auth_done_fn *done;
    void *arg;
    char peer[PEER_MAX];
};

/* One call of nd_auth_check() or nd_auth_verify() on its way. */
struct ask {
    struct nd_credentials credentials;
    struct nd_token token;
    const struct nd_auth_caller *caller; /* NULL: not known */
    char peer[PEER_MAX];                 /* of the caller, once peer_get() was there */
    nd_auth_done_fn *done;
    void *arg;
    struct nd_user *user; /* out */
};

/* --- failures --- */

static const char *const reasons[ND_AUTH_FAILURES] = {
    [ND_AUTH_WRONG_PASSWORD] = "wrong password",
    [ND_AUTH_UNKNOWN_USER] = "unknown user",
    [ND_AUTH_THROTTLED] = "throttled",
};

/* Counts it; what says that somebody tries names goes to the audit log as well. */
static void failure_note(struct nd_auth *auth, enum nd_auth_failure failure, struct nd_slice name,
                         const char *peer)
{
    char user[ND_USER_NAME_SIZE_MAX + 1] = "", quoted[2][2 * ND_USER_NAME_SIZE_MAX];

    nd_series_add(auth->failures[failure], 1);
    if (reasons[failure] == NULL) {
        return;
    }
    /* A name that is none may be a password in the wrong place. */
    if (nd_user_name_check(name, NULL) == ND_OK) {
        memcpy(user, name.data, name.size);
    }
    nd_log(auth->options.log, ND_LOG_WARN, "audit", "authentication failed",
           "actor=%s outcome=denied reason=\"%s\" peer=%s",
           nd_log_quote(quoted[0], sizeof quoted[0], user), reasons[failure],
           nd_log_quote(quoted[1], sizeof quoted[1], peer));
}

/* Under no lock: it is the caller's function. */
static void peer_get(struct ask *ask)
{
    if (ask->caller != NULL && ask->caller->peer != NULL) {
        ask->caller->peer(ask->caller->peer_arg, ask->peer, sizeof ask->peer);
    }
}

static void ask_failed(struct nd_auth *auth, enum nd_auth_failure failure, struct ask *ask)
{
    if (reasons[failure] != NULL) {
        peer_get(ask);
    }
    failure_note(auth, failure, ask->credentials.username, ask->peer);
}

static enum nd_auth_failure failure_of(enum nd_err err)
{
    switch ((int)err) {
    case ND_ERR_UNAUTHENTICATED: return ND_AUTH_WRONG_PASSWORD;
    case ND_ERR_THROTTLED: return ND_AUTH_THROTTLED;
    case ND_ERR_OVERLOADED: return ND_AUTH_OVERLOADED;
    default: return ND_AUTH_USERS_UNAVAILABLE;
    }
}

/* --- flights --- */

enum { KEY_MAX = sizeof(struct nd_token) + ND_USER_HASH_SIZE_MAX };

/* The same credentials against the same hash. */
static struct nd_slice flight_key(uint8_t out[KEY_MAX], const struct nd_token *token,
                                  const char *hash)
{
    struct nd_slice behind = nd_slice_str(hash);

    memcpy(out, token->bytes, sizeof token->bytes);
    memcpy(out + sizeof token->bytes, behind.data, behind.size);
    return nd_slice_make(out, sizeof token->bytes + behind.size);
}

/* The outcome for the record as it is now: a password that was changed meanwhile is another. */
static enum nd_err flight_check(struct flight *flight, struct nd_bcrypt_room *room,
                                struct nd_user **user_out, uint64_t *version_out)
{
    struct nd_auth *auth = flight->auth;

    if (room == NULL) {
        return ND_ERR_CANCELLED;
    }
    nd_series_add(auth->bcrypts, 1);
    if (!nd_password_matches(room, &flight->password, flight->user->hash)) {
        return ND_ERR_UNAUTHENTICATED;
    }
    *version_out = nd_metastore_users_version(auth->options.metastore);
    enum nd_err err =
        nd_metastore_user(auth->options.metastore, nd_slice_str(flight->user->name), user_out);
    if (err == ND_OK && strcmp((*user_out)->hash, flight->user->hash) != 0) {
        nd_user_unref(*user_out);
        *user_out = NULL;
        err = ND_ERR_NOT_FOUND;
    }
    return err == ND_ERR_NOT_FOUND ? ND_ERR_UNAUTHENTICATED : err;
}

/* What the caches learn from it. */
static void flight_learn_locked(struct nd_auth *auth, const struct flight *flight, enum nd_err err,
                                const struct nd_user *user, uint64_t version)
    ND_REQUIRES(auth->lock)
{
    uint64_t now_ns = nd_auth_now_ns(auth);
    struct nd_account *account =
        err == ND_OK ? nd_accounts_learn(auth->accounts, user, version, now_ns)
                     : nd_accounts_find(auth->accounts, nd_slice_str(flight->user->name));

    if (account == NULL) {
        return;
    }
    bool same_hash = strcmp(nd_account_user(account)->hash, flight->user->hash) == 0;
    if (err == ND_ERR_UNAUTHENTICATED) {
        if (same_hash) {
            nd_account_keep_bad(account, &flight->token, now_ns);
        }
        return;
    }
    nd_account_refund(account); /* A2 */
    if (err == ND_OK && same_hash) {
        nd_account_keep_good(account, &flight->token);
    }
}

static void flight_free(struct flight *flight)
{
    nd_user_unref(flight->user);
    nd_password_wipe(&flight->password);
    nd_free(flight);
}

static void flight_run(struct nd_bcrypt_job *job, struct nd_bcrypt_room *room)
{
    struct flight *flight = ND_CONTAINER_OF(job, struct flight, job);
    struct nd_auth *auth = flight->auth;
    struct nd_list waiters = ND_LIST_INIT(waiters);
    struct nd_user *user = NULL;
    uint8_t key[KEY_MAX];
    uint64_t version = 0;
    enum nd_err err = flight_check(flight, room, &user, &version);

    nd_password_wipe(&flight->password);
    nd_mutex_lock(&auth->lock);
    flight_learn_locked(auth, flight, err, user, version);
    ND_ASSERT(nd_map_remove(auth->flights, flight_key(key, &flight->token, flight->user->hash)) ==
              flight);
    nd_list_move(&waiters, &flight->waiters);
    nd_auth_waited_locked(auth, flight->waiters_count);
    nd_mutex_unlock(&auth->lock);

    for (struct nd_list *link; (link = nd_list_pop(&waiters)) != NULL;) {
        struct waiter *waiter = ND_CONTAINER_OF(link, struct waiter, link);
        if (err != ND_OK && err != ND_ERR_CANCELLED) {
            failure_note(auth, failure_of(err), nd_slice_str(flight->user->name), waiter->peer);
        }
        waiter->done(waiter->arg, err, err == ND_OK ? nd_user_ref(user) : NULL);
        nd_free(waiter);
    }
    nd_user_unref(user);
    flight_free(flight);
}

/* Under the lock of its auth. */
static void flight_join(struct flight *flight, const struct ask *ask)
{
    struct waiter *waiter = nd_xcalloc(1, sizeof *waiter);

    waiter->done = ask->done;
    waiter->arg = ask->arg;
    (void)snprintf(waiter->peer, sizeof waiter->peer, "%s", ask->peer);
    nd_list_append(&flight->waiters, &waiter->link);
    flight->waiters_count++;
}

static struct flight *flight_new(struct nd_auth *auth, const struct nd_user *user,
                                 const struct nd_token *token, const struct nd_password *password)
{
    struct flight *flight = nd_xcalloc(1, sizeof *flight);

    flight->job.run = flight_run;
    nd_list_init(&flight->job.link);
    nd_list_init(&flight->waiters);
    flight->auth = auth;
    flight->user = nd_user_ref(user);
    flight->token = *token;
    flight->password = *password;
    return flight;
}

/* OK: the flight will answer. */
static enum nd_err flight_board_locked(struct nd_auth *auth, struct nd_account *account,
                                       const struct ask *ask, const struct nd_password *password)
    ND_REQUIRES(auth->lock)
{
    const struct nd_user *user = nd_account_user(account);
    uint8_t key_room[KEY_MAX];
    struct nd_slice key = flight_key(key_room, &ask->token, user->hash);
    struct flight *flight = nd_map_get(auth->flights, key);

    if (auth->stopping) {
        return ND_ERR_CANCELLED;
    }
    if (flight == NULL && !nd_account_spend(account, nd_auth_now_ns(auth))) {
        return ND_ERR_THROTTLED;
    }
    if (!nd_auth_wait_locked(auth)) {
        if (flight == NULL) {
            nd_account_refund(account);
        }
        return ND_ERR_OVERLOADED;
    }
    if (flight == NULL) {
        flight = flight_new(auth, user, &ask->token, password);
        nd_map_put(auth->flights, key, flight);
        nd_bcrypt_pool_push(auth->pool, &flight->job); /* waits for our lock before it ends */
    }
    flight_join(flight, ask);
    return ND_OK;
}

/* --- the steps --- */

/* Without asking the metadata: the same credentials were right, and no user changed since. */
static bool was_right(struct nd_auth *auth, struct ask *ask)
{
    uint64_t version = nd_metastore_users_version(auth->options.metastore);

    nd_mutex_lock(&auth->lock);
    struct nd_account *account = nd_accounts_find(auth->accounts, ask->credentials.username);
    if (account != NULL && nd_account_version(account) == version &&
        nd_account_is_good(account, &ask->token)) {
        ask->user = nd_user_ref(nd_account_user(account));
    }
    nd_mutex_unlock(&auth->lock);
    return ask->user != NULL;
}

static enum nd_err user_read(struct nd_auth *auth, const struct ask *ask, struct nd_user **out,
                             uint64_t *version_out)
{
    struct nd_slice name = ask->credentials.username;

    /* The version first: the record is at least as new. */
    *version_out = nd_metastore_users_version(auth->options.metastore);
    enum nd_err err = name.size > ND_USER_NAME_SIZE_MAX
                          ? ND_ERR_NOT_FOUND
                          : nd_metastore_user(auth->options.metastore, name, out);
    if (err == ND_ERR_NOT_FOUND) {
        nd_mutex_lock(&auth->lock);
        nd_accounts_forget(auth->accounts, name, *version_out);
        nd_mutex_unlock(&auth->lock);
    }
    return err;
}

/* Somebody new is remembered for the price of a bcrypt only: else a crowd of names would push out
 * those who are in while none is to be had. */
static enum nd_err account_get_locked(struct nd_auth *auth, const struct nd_user *user,
                                      uint64_t version, struct nd_account **out)
    ND_REQUIRES(auth->lock)
{
    if (auth->waiting == auth->options.queued_max &&
        nd_accounts_find(auth->accounts, nd_slice_str(user->name)) == NULL) {
        return ND_ERR_OVERLOADED;
    }
    *out = nd_accounts_learn(auth->accounts, user, version, nd_auth_now_ns(auth));
    return ND_OK;
}

/* OK: `ask->user` is set, or (NULL) a flight will answer. */
static enum nd_err compare(struct nd_auth *auth, struct ask *ask, const struct nd_user *user,
                           uint64_t version)
{
    struct nd_account *account = NULL;
    struct nd_password password;

    if (!nd_password_copy(&password, ask->credentials.password)) {
        return ND_ERR_UNAUTHENTICATED; /* bcrypt would look at its beginning only */
    }
    peer_get(ask);
    nd_mutex_lock(&auth->lock);
    uint64_t now_ns = nd_auth_now_ns(auth);
    enum nd_err err = account_get_locked(auth, user, version, &account);
    if (err != ND_OK) {
        /* told by the caller */
    } else if (nd_account_is_good(account, &ask->token)) {
        ask->user = nd_user_ref(nd_account_user(account));
    } else if (nd_account_is_bad(account, &ask->token, now_ns)) {
        err = ND_ERR_UNAUTHENTICATED;
    } else {
        err = flight_board_locked(auth, account, ask, &password);
    }
    nd_mutex_unlock(&auth->lock);
    nd_password_wipe(&password);
    return err;
}

static enum nd_auth_now ask_run(struct nd_auth *auth, struct ask *ask, enum nd_err *err_out)
{
    struct nd_user *user = NULL;
    uint64_t version;

    *err_out = ND_OK;
    nd_token_make(auth->key, &ask->credentials, &ask->token);
    if (was_right(auth, ask)) {
        nd_series_add(auth->cache_hits, 1);
        return ND_AUTH_DECIDED;
    }
    enum nd_err err = user_read(auth, ask, &user, &version);
    if (err == ND_ERR_NOT_FOUND) { /* A1 */
        ask_failed(auth, ND_AUTH_UNKNOWN_USER, ask);
        *err_out = ND_ERR_UNAUTHENTICATED;
        return ND_AUTH_DECIDED;
    }
    if (err == ND_OK) {
        err = compare(auth, ask, user, version);
        nd_user_unref(user);
    } else if (err != ND_ERR_UNAVAILABLE) {
        err = ND_ERR_INTERNAL;
    }
    if (err != ND_OK) {
        if (err != ND_ERR_CANCELLED) {
            ask_failed(auth, failure_of(err), ask);
        }
        *err_out = err;
        return ND_AUTH_DECIDED;
    }
    return ask->user != NULL ? ND_AUTH_DECIDED : ND_AUTH_LATER;
}

/* --- for others --- */

enum nd_auth_now nd_auth_check(struct nd_auth *auth, const struct nd_auth_caller *caller,
                               enum nd_err *err_out, struct nd_user **user_out,
                               nd_auth_done_fn *done, void *arg)
{
    struct nd_slice header = caller->header;
    struct ask ask = {.caller = caller, .done = done, .arg = arg};
    char text[HEADER_MAX];

    *err_out = ND_ERR_UNAUTHENTICATED;
    *user_out = NULL;
    if (header.data == NULL) {
        ask_failed(auth, ND_AUTH_MISSING, &ask);
        return ND_AUTH_DECIDED;
    }
    if (header.size > sizeof text || !nd_basic_decode(header, text, &ask.credentials)) {
        ask_failed(auth, ND_AUTH_MALFORMED, &ask);
        nd_wipe(text, sizeof text);
        return ND_AUTH_DECIDED;
    }
    enum nd_auth_now now = ask_run(auth, &ask, err_out);
    if (now == ND_AUTH_DECIDED) {
        *user_out = ask.user;
    }
    nd_wipe(text, sizeof text);
    return now;
}

struct verify {
    void (*done)(void *arg, enum nd_err err);
    void *arg;
};

static void verify_done(void *arg, enum nd_err err, struct nd_user *user)
{
    struct verify verify = *(struct verify *)arg;

    nd_free(arg);
    nd_user_unref(user);
    verify.done(verify.arg, err == ND_ERR_UNAUTHENTICATED ? ND_ERR_PERMISSION_DENIED : err);
}

void nd_auth_verify(struct nd_auth *auth, const struct nd_user *user, struct nd_slice password,
                    void (*done)(void *arg, enum nd_err err), void *arg)
{
    struct verify *verify = nd_xcalloc(1, sizeof *verify);
    struct ask ask = {
        .credentials = {nd_slice_str(user->name), password}, .done = verify_done, .arg = verify};
    enum nd_err err = ND_ERR_UNAUTHENTICATED;

    *verify = (struct verify){done, arg};
    if (password.size > 0 && memchr(password.data, '\0', password.size) != NULL) {
        verify_done(verify, err, NULL); /* a token would not tell it from another text */
    } else if (ask_run(auth, &ask, &err) == ND_AUTH_DECIDED) {
        verify_done(verify, err, ask.user);
    }
}
