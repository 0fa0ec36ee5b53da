#include "server/rpc/pacer.h"

#include "storage/base/alloc.h"
#include "storage/base/env.h"
#include "storage/base/thread.h"

struct nd_pacer {
    struct nd_thread thread;
    struct nd_mutex lock;
    struct nd_cond changed;
    struct nd_heap waiting;        /* by the time when they may; guarded by lock */
    const struct nd_pace *running; /* guarded by lock; or NULL */
    bool stopping;                 /* guarded by lock */
};

static uint64_t now_ns(void)
{
    const struct nd_env *env = nd_env_posix();
    return env->mono_ns(env->impl);
}

/* The next whose time has come; NULL at the end. */
static struct nd_pace *next_locked(struct nd_pacer *pacer) ND_REQUIRES(pacer->lock)
{
    while (!pacer->stopping) {
        struct nd_heap_node *first = nd_heap_first(&pacer->waiting);
        if (first == NULL) {
            nd_cond_wait(&pacer->changed, &pacer->lock);
        } else if (now_ns() < first->key) {
            (void)nd_cond_wait_until(&pacer->changed, &pacer->lock, first->key);
        } else {
            nd_heap_remove(&pacer->waiting, first);
            return ND_CONTAINER_OF(first, struct nd_pace, node);
        }
    }
    return NULL;
}

static void pacer_run(void *arg)
{
    struct nd_pacer *pacer = arg;
    struct nd_pace *pace;
    nd_mutex_lock(&pacer->lock);
    while ((pace = next_locked(pacer)) != NULL) {
        pacer->running = pace;
        nd_mutex_unlock(&pacer->lock);
        pace->run(pace);
        nd_mutex_lock(&pacer->lock);
        pacer->running = NULL;
        nd_cond_broadcast(&pacer->changed);
    }
    nd_mutex_unlock(&pacer->lock);
}

static void pacer_delete(struct nd_pacer *pacer)
{
    nd_heap_release(&pacer->waiting);
    nd_cond_release(&pacer->changed);
    nd_mutex_release(&pacer->lock);
    nd_free(pacer);
}

struct nd_pacer *nd_pacer_new(void)
{
    struct nd_pacer *pacer = nd_xcalloc(1, sizeof *pacer);
    nd_mutex_init(&pacer->lock);
    nd_cond_init(&pacer->changed);
    nd_heap_init(&pacer->waiting);
    if (!nd_thread_start(&pacer->thread, "pacer", pacer_run, pacer)) {
        pacer_delete(pacer);
        return NULL;
    }
    return pacer;
}

void nd_pacer_free(struct nd_pacer *pacer)
{
    if (pacer == NULL) {
        return;
    }
    nd_mutex_lock(&pacer->lock);
    ND_ASSERT(nd_heap_first(&pacer->waiting) == NULL);
    pacer->stopping = true;
    nd_cond_broadcast(&pacer->changed);
    nd_mutex_unlock(&pacer->lock);
    nd_thread_join(&pacer->thread);
    pacer_delete(pacer);
}

void nd_pacer_after(struct nd_pacer *pacer, struct nd_pace *pace, uint32_t delay_ms)
{
    nd_mutex_lock(&pacer->lock);
    nd_heap_put(&pacer->waiting, &pace->node, now_ns() + (uint64_t)delay_ms * 1000000u);
    nd_cond_broadcast(&pacer->changed);
    nd_mutex_unlock(&pacer->lock);
}

void nd_pacer_forget(struct nd_pacer *pacer, struct nd_pace *pace)
{
    if (pacer == NULL) {
        return;
    }
    nd_mutex_lock(&pacer->lock);
    nd_heap_remove(&pacer->waiting, &pace->node);
    while (pacer->running == pace) {
        nd_cond_wait(&pacer->changed, &pacer->lock);
    }
    nd_mutex_unlock(&pacer->lock);
}
