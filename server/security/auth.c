/* Life of the module, new hashes, records that changed, audit lines. The check itself is in
 * auth_check.c. */
#include "server/security/auth.h"

#include <string.h>

#include "storage/base/alloc.h"

#include "server/security/auth_impl.h"

enum { THREADS = 4, COST = 10, QUEUED_MAX = 1024, SEED_RETRY_MS = 2000 };

/* --- life --- */

static void meters_make(struct nd_auth *auth)
{
    static const char *const reasons[ND_AUTH_FAILURES] = {
        [ND_AUTH_MISSING] = "reason=\"missing\"",
        [ND_AUTH_MALFORMED] = "reason=\"malformed\"",
        [ND_AUTH_UNKNOWN_USER] = "reason=\"unknown_user\"",
        [ND_AUTH_WRONG_PASSWORD] = "reason=\"wrong_password\"",
        [ND_AUTH_THROTTLED] = "reason=\"throttled\"",
        [ND_AUTH_OVERLOADED] = "reason=\"overloaded\"",
        [ND_AUTH_USERS_UNAVAILABLE] = "reason=\"users_unavailable\"",
    };
    struct nd_metrics *m = auth->options.metrics;

    for (int i = 0; i < ND_AUTH_FAILURES; i++) {
        auth->failures[i] = nd_metrics_counter(m, "auth_failures_total", reasons[i],
                                               "Requests whose credentials were refused.");
    }
    auth->cache_hits = nd_metrics_counter(m, "auth_cache_hits_total", "",
                                          "Requests let in by what was verified before.");
    auth->bcrypts =
        nd_metrics_counter(m, "auth_bcrypt_total", "", "Passwords checked or hashed with bcrypt.");
    auth->waiting_gauge =
        nd_metrics_gauge(m, "auth_waiting", "", "Calls that a bcrypt, running or queued, answers.");
}

enum nd_err nd_auth_new(struct nd_auth **out, const struct nd_auth_options *options,
                        struct nd_errmsg *msg)
{
    struct nd_auth *auth = nd_xcalloc(1, sizeof *auth);
    const struct nd_env *env = options->env;

    auth->options = *options;
    auth->options.threads = options->threads > 0 ? options->threads : THREADS;
    auth->options.cost = options->cost > 0 ? options->cost : COST;
    auth->options.queued_max = options->queued_max > 0 ? options->queued_max : QUEUED_MAX;
    auth->options.seed_retry_ms =
        options->seed_retry_ms > 0 ? options->seed_retry_ms : SEED_RETRY_MS;
    nd_mutex_init(&auth->lock);
    meters_make(auth);
    auth->accounts = nd_accounts_new(nd_env_random_u64(env), ND_ACCOUNTS_MAX);
    auth->flights = nd_map_new(nd_env_random_u64(env));
    auth->key = nd_token_key_new(env);
    auth->pool = nd_bcrypt_pool_new(auth->options.threads,
                                    nd_metrics_gauge(options->metrics, "auth_verify_queued", "",
                                                     "Bcrypts that wait for a thread."));
    if (auth->key == NULL || auth->pool == NULL) {
        nd_errmsg_set(msg, "security: %s",
                      auth->key == NULL ? "no HMAC-SHA-256" : "a thread did not start");
        nd_auth_free(auth);
        return ND_ERR_INTERNAL;
    }
    *out = auth;
    return ND_OK;
}

void nd_auth_stop(struct nd_auth *auth)
{
    if (auth->seed != NULL) {
        nd_root_seed_stop(auth->seed);
    }
    nd_mutex_lock(&auth->lock);
    bool first = !auth->stopping;
    auth->stopping = true;
    nd_mutex_unlock(&auth->lock);
    if (first && auth->pool != NULL) {
        nd_bcrypt_pool_stop(auth->pool);
    }
}

void nd_auth_free(struct nd_auth *auth)
{
    if (auth == NULL) {
        return;
    }
    nd_auth_stop(auth);
    if (auth->seed != NULL) {
        nd_root_seed_free(auth->seed);
    }
    if (auth->pool != NULL) {
        nd_bcrypt_pool_free(auth->pool);
    }
    ND_ASSERT(auth->waiting == 0 && nd_map_count(auth->flights) == 0);
    nd_map_free(auth->flights);
    nd_accounts_free(auth->accounts);
    nd_token_key_free(auth->key);
    nd_mutex_release(&auth->lock);
    nd_free(auth);
}

bool nd_auth_wait_locked(struct nd_auth *auth)
{
    if (auth->waiting == auth->options.queued_max) {
        return false;
    }
    auth->waiting++;
    nd_series_add(auth->waiting_gauge, 1);
    return true;
}

void nd_auth_waited_locked(struct nd_auth *auth, uint32_t count)
{
    ND_ASSERT(auth->waiting >= count);
    auth->waiting -= count;
    nd_series_sub(auth->waiting_gauge, count);
}

void nd_auth_seed_root(struct nd_auth *auth, const char *password)
{
    ND_ASSERT(auth->seed == NULL);
    auth->seed = nd_root_seed_start(auth, &auth->options, password);
    if (auth->seed == NULL) {
        nd_log(auth->options.log, ND_LOG_ERROR, "audit", "root account not created",
               "err=\"a thread did not start\"");
    }
}

/* --- records that changed --- */

enum nd_err nd_auth_refresh(struct nd_auth *auth, struct nd_user **user_io, uint64_t *version_io)
{
    struct nd_metastore *metastore = auth->options.metastore;
    struct nd_user *now = NULL;

    if (*user_io == NULL) {
        return ND_OK;
    }
    uint64_t version = nd_metastore_users_version(metastore);
    if (version == *version_io) {
        return ND_OK;
    }
    enum nd_err err = nd_metastore_user(metastore, nd_slice_str((*user_io)->name), &now);
    if (err != ND_OK) {
        return err == ND_ERR_NOT_FOUND ? ND_ERR_UNAUTHENTICATED : err;
    }
    if (strcmp(now->hash, (*user_io)->hash) != 0) {
        nd_user_unref(now);
        return ND_ERR_UNAUTHENTICATED;
    }
    nd_user_unref(*user_io);
    *user_io = now;
    *version_io = version;
    return ND_OK;
}

/* --- new hashes --- */

struct hashing {
    struct nd_bcrypt_job job;
    struct nd_auth *auth;
    struct nd_password password;
    void (*done)(void *arg, enum nd_err err, const char *text, const char *hash);
    void *arg;
};

static void hashing_run(struct nd_bcrypt_job *job, struct nd_bcrypt_room *room)
{
    struct hashing *hashing = ND_CONTAINER_OF(job, struct hashing, job);
    struct nd_auth *auth = hashing->auth;
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1];
    enum nd_err err = ND_ERR_CANCELLED;

    if (room != NULL) {
        nd_series_add(auth->bcrypts, 1);
        err =
            nd_password_hash(room, &hashing->password, auth->options.cost, auth->options.env, hash)
                ? ND_OK
                : ND_ERR_INTERNAL;
    }
    nd_password_wipe(&hashing->password);
    nd_mutex_lock(&auth->lock);
    nd_auth_waited_locked(auth, 1);
    nd_mutex_unlock(&auth->lock);
    hashing->done(hashing->arg, err, err == ND_OK ? NULL : nd_err_text(err),
                  err == ND_OK ? hash : NULL);
    nd_free(hashing);
}

void nd_auth_hash(struct nd_auth *auth, struct nd_slice password,
                  void (*done)(void *arg, enum nd_err err, const char *text, const char *hash),
                  void *arg)
{
    struct nd_errmsg msg = {""};
    enum nd_err err = nd_password_check(password, &msg);

    if (err != ND_OK) {
        done(arg, err, msg.text, NULL);
        return;
    }
    struct hashing *hashing = nd_xcalloc(1, sizeof *hashing);
    hashing->job.run = hashing_run;
    nd_list_init(&hashing->job.link);
    hashing->auth = auth;
    hashing->done = done;
    hashing->arg = arg;
    ND_ASSERT(nd_password_copy(&hashing->password, password)); /* it was checked */
    nd_mutex_lock(&auth->lock);
    err = auth->stopping               ? ND_ERR_CANCELLED
          : !nd_auth_wait_locked(auth) ? ND_ERR_OVERLOADED
                                       : ND_OK;
    if (err == ND_OK) {
        nd_bcrypt_pool_push(auth->pool, &hashing->job); /* waits for our lock before it ends */
    }
    nd_mutex_unlock(&auth->lock);
    if (err != ND_OK) {
        nd_password_wipe(&hashing->password);
        nd_free(hashing);
        done(arg, err, nd_err_text(err), NULL);
    }
}

/* --- audit lines --- */

#define AUDIT_PAIRS "actor=%s subject=%s outcome=%s peer=%s"

void nd_audit(struct nd_auth *auth, const char *event, const char *actor, const char *subject,
              const char *outcome, const char *peer)
{
    const char *texts[] = {actor, subject, outcome, peer};
    char quoted[ND_ARRAY_SIZE(texts)][600]; /* the longest topic name, escaped twice over */

    for (size_t i = 0; i < ND_ARRAY_SIZE(texts); i++) {
        nd_log_quote(quoted[i], sizeof quoted[i], texts[i] == NULL ? "" : texts[i]);
    }
    if (outcome != NULL && strcmp(outcome, "ok") == 0) { /* paced by the changes themselves */
        nd_log_each(auth->options.log, ND_LOG_INFO, "audit", event, AUDIT_PAIRS, quoted[0],
                    quoted[1], quoted[2], quoted[3]);
    } else { /* whoever guesses does not fill the disk */
        nd_log(auth->options.log, ND_LOG_WARN, "audit", event, AUDIT_PAIRS, quoted[0], quoted[1],
               quoted[2], quoted[3]);
    }
}
