/* What auth.c and auth_check.c share. */
#ifndef ND_AUTH_IMPL_H
#define ND_AUTH_IMPL_H

#include "storage/base/map.h"
#include "storage/base/thread.h"

#include "server/security/accounts.h"
#include "server/security/auth.h"
#include "server/security/bcrypt_pool.h"
#include "server/security/root_seed.h"
#include "server/security/token.h"

enum nd_auth_failure {
    ND_AUTH_MISSING,   /* no header */
    ND_AUTH_MALFORMED, /* none that means anything */
    ND_AUTH_UNKNOWN_USER,
    ND_AUTH_WRONG_PASSWORD,
    ND_AUTH_THROTTLED,
    ND_AUTH_OVERLOADED,
    ND_AUTH_USERS_UNAVAILABLE,
    ND_AUTH_FAILURES
};

/* Lock order: auth -> bcrypt pool. The metastore is never asked under the lock, nobody is called
 * back under it. */
struct nd_auth {
    struct nd_auth_options options; /* with the defaults filled in */
    struct nd_token_key *key;
    struct nd_bcrypt_pool *pool;
    struct nd_root_seed *seed;
    struct nd_mutex lock;
    struct nd_accounts *accounts; /* guarded by lock */
    struct nd_map *flights;       /* guarded by lock: by token and hash */
    uint32_t waiting;             /* guarded by lock: calls that a bcrypt will answer */
    bool stopping;                /* guarded by lock */
    struct nd_series *failures[ND_AUTH_FAILURES];
    struct nd_series *cache_hits, *bcrypts, *waiting_gauge;
};

static inline uint64_t nd_auth_now_ns(const struct nd_auth *auth)
{
    return auth->options.env->mono_ns(auth->options.env->impl);
}

/* Room for `count` calls more or less; false: at the limit (OVERLOADED). */
ND_CHECKED bool nd_auth_wait_locked(struct nd_auth *auth) ND_REQUIRES(auth->lock);
void nd_auth_waited_locked(struct nd_auth *auth, uint32_t count) ND_REQUIRES(auth->lock);

#endif
