/* Who is calling: Basic credentials against the bcrypt hashes of the metadata (behaviour 12).
 *
 *   right before? ─► user known? ─► hash unchanged? ─► wrong before (60 s)? ─► the same being
 *   checked now? ─► bucket (5 tries, one back every 12 s, a user) ─► bcrypt, 4 at a time in all
 *
 * INVARIANTS
 *  A1  An unknown user costs no bcrypt and no memory.
 *  A2  A try is spent by who starts a bcrypt, not by who waits for the same one; success and
 *      cancellation give it back.
 *  A3  What was right or wrong counts for the hash it was checked against only.
 *  A4  A password is in memory only until its bcrypt is over; caches hold HMAC-SHA-256 tokens under
 *      a key of this process (server/security/token.h).
 *  A5  Bounds: 4096 users remembered with 17 tokens each, `queued_max` calls that wait.
 *
 * The steps without bcrypt answer at once on the caller's thread; bcrypt runs on the threads of
 * this module. */
#ifndef ND_AUTH_H
#define ND_AUTH_H

#include "storage/base/env.h"
#include "storage/base/log.h"
#include "storage/base/metrics.h"

#include "cluster/metastore.h"
#include "server/security/basic.h"
#include "server/security/password.h"

struct nd_auth;

struct nd_auth_options {
    struct nd_metastore *metastore;
    const struct nd_env *env; /* clock, randomness */
    struct nd_log *log;       /* audit lines: component=audit */
    struct nd_metrics *metrics;
    uint32_t threads;       /* bcrypts at a time; 0: 4 */
    uint32_t cost;          /* of new hashes, 4 to 31; 0: 10 */
    uint32_t queued_max;    /* calls that wait for a bcrypt; beyond it OVERLOADED; 0: 1024 */
    uint32_t seed_retry_ms; /* 0: 2000 */
};

/* INTERNAL: a thread did not start, or OpenSSL has no HMAC-SHA-256. */
ND_CHECKED enum nd_err nd_auth_new(struct nd_auth **out, const struct nd_auth_options *options,
                                   struct nd_errmsg *msg);
/* Before nd_metastore_close(). Every verification and hash under way is answered (CANCELLED) before
 * it returns, what comes later is CANCELLED; the seeding ends. Twice is once. */
void nd_auth_stop(struct nd_auth *auth);
/* Stops if that was not done. After nd_metastore_close() when there was nd_auth_seed_root(): the
 * metastore may answer into it until then. NULL passes. */
void nd_auth_free(struct nd_auth *auth);

/* OK with the user (the caller's reference), UNAUTHENTICATED, THROTTLED, UNAVAILABLE (a name that
 * the metadata, not caught up yet, does not know), OVERLOADED, CANCELLED (nd_auth_stop), INTERNAL
 * (the users cannot be read). `user` is NULL but for OK. */
typedef void nd_auth_done_fn(void *arg, enum nd_err err, struct nd_user *user);

enum nd_auth_now { ND_AUTH_DECIDED, ND_AUTH_LATER };

/* Who asks; all borrowed until the call returns. */
struct nd_auth_caller {
    struct nd_slice header; /* the value of Authorization; data NULL: there is none */
    /* Puts a text for the audit line into `out`; NULL: not known. Asked only where there is a line
     * to come, or may be. */
    void (*peer)(void *peer_arg, char *out, size_t out_size);
    void *peer_arg;
};

/* DECIDED: *err_out and *user_out are the outcome; LATER: `done` will be called once, on a thread
 * of this module or the one that stops it, maybe before the return, without any lock held. @thread
 * any */
ND_CHECKED enum nd_auth_now nd_auth_check(struct nd_auth *auth, const struct nd_auth_caller *caller,
                                          enum nd_err *err_out, struct nd_user **user_out,
                                          nd_auth_done_fn *done, void *arg);
/* The record of the same user as it is now: *user_io is replaced when it changed. UNAUTHENTICATED
 * when the user is gone or its password is another, UNAVAILABLE as above; then both are left as
 * they are. *version_io belongs to the user: 0 at first. Costs one load while no user changes. A
 * NULL user (security is off) is OK. @thread any */
ND_CHECKED enum nd_err nd_auth_refresh(struct nd_auth *auth, struct nd_user **user_io,
                                       uint64_t *version_io);
/* Is it this user's password? For a change of one's own: OK, PERMISSION_DENIED, and what
 * nd_auth_check() says besides. It shares caches and bucket with it. `done` is called once, maybe
 * before the return, on the caller's thread or as above. */
void nd_auth_verify(struct nd_auth *auth, const struct nd_user *user, struct nd_slice password,
                    void (*done)(void *arg, enum nd_err err), void *arg);
/* A new hash. INVALID_ARGUMENT with the text of nd_password_check(); OVERLOADED, CANCELLED,
 * INTERNAL (crypt(3) refused). `text` and `hash` are borrowed until `done` returns; `done` as with
 * nd_auth_verify(). */
void nd_auth_hash(struct nd_auth *auth, struct nd_slice password,
                  void (*done)(void *arg, enum nd_err err, const char *text, const char *hash),
                  void *arg);

/* Root, once the metadata is caught up and knows no user: `password` (NARAD_ADMIN_PASSWORD, checked
 * with nd_password_check() at the start; copied, wiped when over; the environment is the caller's),
 * or NULL: a random one, logged once, and only when it was this node's that counted. Tries again
 * every 2 s until there is a user. At most once. */
void nd_auth_seed_root(struct nd_auth *auth, const char *password);

/* One audit line. `outcome`: "ok", "denied", "failed". Any text may come from outside; NULL is "".
 * Never secrets. @thread any */
void nd_audit(struct nd_auth *auth, const char *event, const char *actor, const char *subject,
              const char *outcome, const char *peer);

#endif
