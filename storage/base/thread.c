#include "storage/base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"

enum { NS_PER_S = 1000000000 };

/* The pthread calls below fail only when they are misused. */
static void must(int error)
{
    ND_ASSERT(error == 0);
}

void nd_mutex_init(struct nd_mutex *mutex)
{
    must(pthread_mutex_init(&mutex->impl, NULL));
}

void nd_mutex_release(struct nd_mutex *mutex)
{
    must(pthread_mutex_destroy(&mutex->impl));
}

ND_NO_THREAD_CHECK void nd_mutex_lock(struct nd_mutex *mutex)
{
    must(pthread_mutex_lock(&mutex->impl));
}

ND_NO_THREAD_CHECK void nd_mutex_unlock(struct nd_mutex *mutex)
{
    must(pthread_mutex_unlock(&mutex->impl));
}

void nd_cond_init(struct nd_cond *cond)
{
    pthread_condattr_t attributes;

    must(pthread_condattr_init(&attributes));
    must(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    must(pthread_cond_init(&cond->impl, &attributes));
    must(pthread_condattr_destroy(&attributes));
}

void nd_cond_release(struct nd_cond *cond)
{
    must(pthread_cond_destroy(&cond->impl));
}

void nd_cond_wait(struct nd_cond *cond, struct nd_mutex *mutex)
{
    must(pthread_cond_wait(&cond->impl, &mutex->impl));
}

bool nd_cond_wait_until(struct nd_cond *cond, struct nd_mutex *mutex, uint64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / NS_PER_S),
        .tv_nsec = (long)(deadline_ns % NS_PER_S),
    };

    if (deadline_ns == UINT64_MAX) {
        nd_cond_wait(cond, mutex);
        return true;
    }
    int error = pthread_cond_timedwait(&cond->impl, &mutex->impl, &deadline);
    ND_ASSERT(error == 0 || error == ETIMEDOUT);
    return error == 0;
}

void nd_cond_signal(struct nd_cond *cond)
{
    must(pthread_cond_signal(&cond->impl));
}

void nd_cond_broadcast(struct nd_cond *cond)
{
    must(pthread_cond_broadcast(&cond->impl));
}

void nd_bell_init(struct nd_bell *bell)
{
    atomic_init(&bell->rings, 0);
}

/* relaxed: the lock orders it; the kernel compares the word with what the sleeper saw. */
void nd_bell_ring(struct nd_bell *bell)
{
    atomic_fetch_add_explicit(&bell->rings, 1, memory_order_relaxed);
}

uint32_t nd_bell_count(const struct nd_bell *bell)
{
    return atomic_load_explicit(&bell->rings, memory_order_relaxed);
}

void nd_bell_wake(const struct nd_bell *bell)
{
    /* Whatever it answers: nobody sleeps there, or the memory is gone with its owner. */
    (void)syscall(SYS_futex, &bell->rings, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

bool nd_bell_wait_until(struct nd_bell *bell, uint32_t seen, uint64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / NS_PER_S),
        .tv_nsec = (long)(deadline_ns % NS_PER_S),
    };
    const struct timespec *limit = deadline_ns == UINT64_MAX ? NULL : &deadline;

    if (syscall(SYS_futex, &bell->rings, FUTEX_WAIT_BITSET_PRIVATE, seen, limit, NULL,
                FUTEX_BITSET_MATCH_ANY) == 0) {
        return true;
    }
    ND_ASSERT(errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
    return errno != ETIMEDOUT;
}

/* What a new thread needs to know; it frees it. */
struct start {
    void (*run)(void *arg);
    void *arg;
    char name[16];
};

static void *thread_main(void *data)
{
    struct start start = *(struct start *)data;

    nd_free(data);
    (void)pthread_setname_np(pthread_self(), start.name); /* only for people to read */
    start.run(start.arg);
    return NULL;
}

bool nd_thread_start(struct nd_thread *thread, const char *name, void (*run)(void *arg), void *arg)
{
    struct start *start = nd_xmalloc(sizeof *start);
    sigset_t all, before;

    start->run = run;
    start->arg = arg;
    (void)snprintf(start->name, sizeof start->name, "%s", name);

    /* A thread inherits the mask of its maker: no moment in which it could take a signal. */
    (void)sigfillset(&all);
    must(pthread_sigmask(SIG_SETMASK, &all, &before));
    thread->started = pthread_create(&thread->impl, NULL, thread_main, start) == 0;
    must(pthread_sigmask(SIG_SETMASK, &before, NULL));
    if (!thread->started) {
        nd_free(start);
    }
    return thread->started;
}

void nd_thread_join(struct nd_thread *thread)
{
    if (thread->started) {
        must(pthread_join(thread->impl, NULL));
        thread->started = false;
    }
}
