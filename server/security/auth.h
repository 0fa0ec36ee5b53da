/* Who is calling: Basic credentials against the bcrypt hashes of the metadata (behaviour 12).
 *
 *   cache of good ones ─► user known? ─► hash unchanged? ─► cache of bad ones (60 s) ─► bucket (5,
 * one every 12 s, a user) ─► one bcrypt at a time for the same credentials, 4 at a time in all
 *
 * A password is never kept: caches hold HMAC-SHA-256 tokens under a key of this process. The steps
 * without bcrypt answer at once on the caller's thread; bcrypt runs on the threads of this module.
 */
#ifndef ND_AUTH_H
#define ND_AUTH_H

#include "storage/base/env.h"
#include "storage/base/log.h"
#include "storage/base/metrics.h"

#include "cluster/metastore.h"

struct nd_auth;

struct nd_auth_options {
    struct nd_metastore *metastore;
    const struct nd_env *env; /* clock, randomness */
    struct nd_log *log;       /* audit lines: component=audit */
    struct nd_metrics *metrics;
    uint32_t threads;    /* bcrypts at a time; 0: 4 */
    uint32_t cost;       /* of new hashes; 0: 10 */
    uint32_t queued_max; /* verifications that wait; beyond it OVERLOADED; 0: 1024 */
};

ND_CHECKED enum nd_err nd_auth_new(struct nd_auth **out, const struct nd_auth_options *options,
                                   struct nd_errmsg *msg);
/* Every verification and hash under way is answered (CANCELLED) first. */
void nd_auth_free(struct nd_auth *auth);

/* "Basic dXNlcjpwYXNz" -> user and password, split at the first colon. False: anything else; that
 * counts as no credentials. The scheme in any letter case. `out` (as long as the header) holds
 * both. */
struct nd_credentials {
    struct nd_slice username, password;
};
ND_CHECKED bool nd_basic_decode(struct nd_slice header, char *out, struct nd_credentials *parts);

/* OK with the user (the caller's reference), UNAUTHENTICATED, THROTTLED, UNAVAILABLE (a name that
 * the metadata, not caught up yet, does not know), OVERLOADED, CANCELLED (nd_auth_free). */
typedef void nd_auth_done_fn(void *arg, enum nd_err err, struct nd_user *user);

enum nd_auth_now { ND_AUTH_DECIDED, ND_AUTH_LATER };

/* `header`: the value of Authorization, or data NULL. `peer` for the audit line. DECIDED: *err_out
 * and *user_out are the outcome; LATER: `done` will be called once, on a thread of this module,
 * maybe before the return. @thread any */
ND_CHECKED enum nd_auth_now nd_auth_check(struct nd_auth *auth, struct nd_slice header,
                                          const char *peer, enum nd_err *err_out,
                                          struct nd_user **user_out, nd_auth_done_fn *done,
                                          void *arg);
/* The record of the same user as it is now: *user_io is replaced when it changed. UNAUTHENTICATED
 * when the user is gone or its password is another. Costs one load while no user changes. @thread
 * any */
ND_CHECKED enum nd_err nd_auth_refresh(struct nd_auth *auth, struct nd_user **user_io,
                                       uint64_t *version_io);
/* Is it this user's password? For a change of one's own: OK, PERMISSION_DENIED, THROTTLED. */
void nd_auth_verify(struct nd_auth *auth, const struct nd_user *user, struct nd_slice password,
                    void (*done)(void *arg, enum nd_err err), void *arg);
/* A new hash. INVALID_ARGUMENT (empty: "password required"; above 72 bytes; a NUL). `hash`
 * borrowed. */
void nd_auth_hash(struct nd_auth *auth, struct nd_slice password,
                  void (*done)(void *arg, enum nd_err err, const char *text, const char *hash),
                  void *arg);

/* Root, once the metadata is caught up and knows no user: `password` (NARAD_ADMIN_PASSWORD), or
 * NULL: a random one, logged once, and only when it was this node's that counted. Tries again every
 * 2 s until there is a user. Wiped from memory after it. */
void nd_auth_seed_root(struct nd_auth *auth, const char *password);

/* One audit line. `outcome`: "ok", "denied", "failed". */
void nd_audit(struct nd_auth *auth, const char *event, const char *actor, const char *subject,
              const char *outcome, const char *peer);

#endif
