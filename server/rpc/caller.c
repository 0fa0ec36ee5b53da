#include "server/rpc/caller.h"

#include "storage/base/alloc.h"

#include "cluster/user.h"
#include "server/rpc/handlers.h"

struct nd_caller_pool {
    struct nd_mutex lock;
    struct nd_caller *spare; /* guarded by lock */
    uint32_t spare_count;    /* guarded by lock */
    size_t out;              /* guarded by lock: callers that somebody has */
    bool closed;             /* guarded by lock */
};

struct nd_caller_pool *nd_caller_pool_new(void)
{
    struct nd_caller_pool *pool = nd_xcalloc(1, sizeof *pool);
    nd_mutex_init(&pool->lock);
    return pool;
}

static void caller_delete(struct nd_caller *caller)
{
    nd_mutex_release(&caller->lock);
    nd_free(caller);
}

static void pool_delete(struct nd_caller_pool *pool)
{
    nd_mutex_release(&pool->lock);
    nd_free(pool);
}

void nd_caller_pool_close(struct nd_caller_pool *pool)
{
    nd_mutex_lock(&pool->lock);
    while (pool->spare != NULL) {
        struct nd_caller *caller = pool->spare;
        pool->spare = caller->next;
        caller_delete(caller);
    }
    pool->closed = true;
    bool last = pool->out == 0;
    nd_mutex_unlock(&pool->lock);
    if (last) {
        pool_delete(pool);
    }
}

struct nd_caller *nd_caller_new(struct nd_handlers *handlers)
{
    struct nd_caller_pool *pool = handlers->callers;
    nd_mutex_lock(&pool->lock);
    struct nd_caller *caller = pool->spare;
    if (caller != NULL) {
        pool->spare = caller->next;
        pool->spare_count--;
    }
    pool->out++;
    nd_mutex_unlock(&pool->lock);
    if (caller == NULL) {
        caller = nd_xcalloc(1, sizeof *caller);
        nd_mutex_init(&caller->lock);
        caller->pool = pool;
    }
    caller->handlers = handlers;
    atomic_store_explicit(&caller->refs, 1, memory_order_relaxed);
    return caller;
}

/* Nothing of one call comes to the next. */
static void caller_reset(struct nd_caller *caller)
{
    nd_quota_unref(caller->quota);
    nd_mutex_lock(&caller->lock); /* nobody else has it; for the checker */
    nd_user_unref(caller->user);
    caller->user = NULL;
    caller->version = 0;
    nd_mutex_unlock(&caller->lock);
    caller->quota = NULL;
    caller->handlers = NULL;
    caller->call = NULL;
    caller->believed = false;
    caller->seen = 0;
}

struct nd_caller *nd_caller_ref(struct nd_caller *caller)
{
    if (caller != NULL) {
        atomic_fetch_add_explicit(&caller->refs, 1, memory_order_relaxed);
    }
    return caller;
}

void nd_caller_unref(void *data)
{
    struct nd_caller *caller = data;
    /* acq_rel: the last one sees what the others did with it */
    if (caller == NULL || atomic_fetch_sub_explicit(&caller->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    struct nd_caller_pool *pool = caller->pool;
    caller_reset(caller);
    nd_mutex_lock(&pool->lock);
    bool kept = !pool->closed && pool->spare_count < ND_CALLERS_SPARE_MAX;
    if (kept) {
        caller->next = pool->spare;
        pool->spare = caller;
        pool->spare_count++;
    }
    pool->out--;
    bool last = pool->closed && pool->out == 0;
    nd_mutex_unlock(&pool->lock);
    if (!kept) {
        caller_delete(caller);
    }
    if (last) {
        pool_delete(pool);
    }
}

struct nd_user *nd_caller_user(struct nd_caller *caller)
{
    if (caller == NULL) {
        return NULL;
    }
    nd_mutex_lock(&caller->lock);
    struct nd_user *user = caller->user == NULL ? NULL : nd_user_ref(caller->user);
    nd_mutex_unlock(&caller->lock);
    return user;
}
