#include "server/security/bcrypt_pool.h"

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

struct nd_bcrypt_pool {
    struct nd_mutex lock;
    struct nd_cond work;
    struct nd_list jobs; /* guarded by lock */
    bool stopping;       /* guarded by lock */
    struct nd_series *queued;
    uint32_t threads_count;
    struct nd_thread threads[];
};

/* The next job, in order; NULL: the pool stops. */
static struct nd_bcrypt_job *job_take(struct nd_bcrypt_pool *pool)
{
    struct nd_list *link = NULL;

    nd_mutex_lock(&pool->lock);
    while (!pool->stopping && nd_list_empty(&pool->jobs)) {
        nd_cond_wait(&pool->work, &pool->lock);
    }
    if (!pool->stopping) {
        link = nd_list_pop(&pool->jobs);
        nd_series_sub(pool->queued, 1);
    }
    nd_mutex_unlock(&pool->lock);
    return link == NULL ? NULL : ND_CONTAINER_OF(link, struct nd_bcrypt_job, link);
}

static void thread_run(void *arg)
{
    struct nd_bcrypt_pool *pool = arg;
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();

    for (struct nd_bcrypt_job *job; (job = job_take(pool)) != NULL;) {
        job->run(job, room);
    }
    nd_bcrypt_room_free(room);
}

struct nd_bcrypt_pool *nd_bcrypt_pool_new(uint32_t threads, struct nd_series *queued)
{
    struct nd_bcrypt_pool *pool = nd_xcalloc(1, sizeof *pool + threads * sizeof(struct nd_thread));
    bool good = true;

    nd_mutex_init(&pool->lock);
    nd_cond_init(&pool->work);
    nd_list_init(&pool->jobs);
    pool->queued = queued;
    pool->threads_count = threads;
    for (uint32_t i = 0; good && i < threads; i++) {
        good = nd_thread_start(&pool->threads[i], "bcrypt", thread_run, pool);
    }
    if (!good) {
        nd_bcrypt_pool_stop(pool);
        nd_bcrypt_pool_free(pool);
        return NULL;
    }
    return pool;
}

void nd_bcrypt_pool_push(struct nd_bcrypt_pool *pool, struct nd_bcrypt_job *job)
{
    nd_mutex_lock(&pool->lock);
    ND_ASSERT(!pool->stopping);
    nd_list_append(&pool->jobs, &job->link);
    nd_series_add(pool->queued, 1);
    nd_cond_signal(&pool->work);
    nd_mutex_unlock(&pool->lock);
}

void nd_bcrypt_pool_stop(struct nd_bcrypt_pool *pool)
{
    nd_mutex_lock(&pool->lock);
    pool->stopping = true;
    nd_cond_broadcast(&pool->work);
    nd_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->threads_count; i++) {
        nd_thread_join(&pool->threads[i]);
    }
    /* The threads are gone and nobody pushes: the list is this thread's. */
    for (struct nd_list *link; (link = nd_list_pop(&pool->jobs)) != NULL;) {
        struct nd_bcrypt_job *job = ND_CONTAINER_OF(link, struct nd_bcrypt_job, link);
        nd_series_sub(pool->queued, 1);
        job->run(job, NULL);
    }
}

void nd_bcrypt_pool_free(struct nd_bcrypt_pool *pool)
{
    nd_cond_release(&pool->work);
    nd_mutex_release(&pool->lock);
    nd_free(pool);
}
