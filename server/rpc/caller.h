/* What access.c and caller.c share: who calls, and where the memory for that comes from. There is
 * one caller for each call with credentials, so they are kept for the next ones: admitting a call
 * whose credentials are known allocates nothing. */
#ifndef ND_CALLER_H
#define ND_CALLER_H

#include "storage/base/thread.h"

#include "server/rpc/access.h"

struct nd_caller_pool;

/* Lock order: handlers->lock -> caller -> pool. */
struct nd_caller {
    _Atomic uint32_t refs;
    struct nd_caller_pool *pool;
    struct nd_caller *next; /* the pool's, while nobody has it */
    struct nd_handlers *handlers;
    struct nd_rpc_call *call; /* while its password is checked: it is held for that */
    struct nd_quota *quota;   /* counted; NULL: nothing is counted */
    bool believed; /* of whom its items are, it may say: a gateway, and security is off */
    uint64_t seen; /* version of the users before this one was looked up */
    struct nd_mutex lock;
    struct nd_user *user; /* guarded by lock; counted; NULL: security is off */
    uint64_t version;     /* guarded by lock; `user` is as new, see nd_auth_refresh() */
};

enum { ND_CALLERS_SPARE_MAX = 1024 };

struct nd_caller_pool *nd_caller_pool_new(void);
/* Gone with the last caller: those that a broker still names come back later. */
void nd_caller_pool_close(struct nd_caller_pool *pool);

/* The caller's one reference; of nobody yet: zeros but for `handlers`. @thread any */
struct nd_caller *nd_caller_new(struct nd_handlers *handlers);

#endif
