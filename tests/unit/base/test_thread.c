#include <signal.h>
#include <string.h>

#include "storage/base/env.h"
#include "storage/base/thread.h"

#include "tests/support/nd_test.h"

struct seen {
    char name[16];
    sigset_t blocked;
};

static void look_around(void *arg)
{
    struct seen *seen = arg;

    (void)pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
}

static void thread_start__names_it_and_blocks_its_signals(void **state)
{
    struct nd_thread thread;
    struct seen seen;
    sigset_t mine;

    (void)state;
    assert_true(nd_thread_start(&thread, "a-name-that-is-too-long", look_around, &seen));
    nd_thread_join(&thread);

    assert_string_equal(seen.name, "a-name-that-is-");
    assert_int_equal(sigismember(&seen.blocked, SIGTERM), 1);
    assert_int_equal(sigismember(&seen.blocked, SIGINT), 1);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGTERM), 0);
}

static void thread_join__of_one_never_started_does_nothing(void **state)
{
    struct nd_thread thread = {0};

    (void)state;
    nd_thread_join(&thread);
    assert_true(nd_thread_start(&thread, "x", look_around, &(struct seen){0}));
    nd_thread_join(&thread);
    nd_thread_join(&thread);
    assert_false(thread.started);
}

static ND_NO_THREAD_CHECK void cond_wait_until__ends_at_a_deadline_that_passed(void **state)
{
    const struct nd_env *env = nd_env_posix();
    struct nd_mutex mutex;
    struct nd_cond cond;

    (void)state;
    nd_mutex_init(&mutex);
    nd_cond_init(&cond);
    nd_mutex_lock(&mutex);
    uint64_t deadline = env->mono_ns(env->impl) + 1000;
    while (nd_cond_wait_until(&cond, &mutex, deadline)) { /* spurious wake-ups are allowed */
    }
    assert_true(env->mono_ns(env->impl) >= deadline); /* never early */
    assert_false(nd_cond_wait_until(&cond, &mutex, 0));
    nd_mutex_unlock(&mutex);
    nd_cond_release(&cond);
    nd_mutex_release(&mutex);
}

struct turn {
    struct nd_mutex mutex;
    struct nd_cond cond;
    int count; /* even: the test's turn */
};

static ND_NO_THREAD_CHECK void take_turns(struct turn *turn, int mine, bool timed)
{
    for (int i = 0; i < 100; i++) {
        nd_mutex_lock(&turn->mutex);
        while (turn->count % 2 != mine) {
            if (timed) {
                assert_true(nd_cond_wait_until(&turn->cond, &turn->mutex, UINT64_MAX));
            } else {
                nd_cond_wait(&turn->cond, &turn->mutex);
            }
        }
        turn->count += 1;
        if (timed) {
            nd_cond_broadcast(&turn->cond);
        } else {
            nd_cond_signal(&turn->cond);
        }
        nd_mutex_unlock(&turn->mutex);
    }
}

static void other_turns(void *arg)
{
    take_turns(arg, 1, false);
}

static void cond__passes_turns_between_threads(void **state)
{
    struct turn turn = {.count = 0};
    struct nd_thread thread;

    (void)state;
    nd_mutex_init(&turn.mutex);
    nd_cond_init(&turn.cond);
    assert_true(nd_thread_start(&thread, "other", other_turns, &turn));
    take_turns(&turn, 0, true);
    nd_thread_join(&thread);

    assert_int_equal(turn.count, 200);
    nd_cond_release(&turn.cond);
    nd_mutex_release(&turn.mutex);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_start__names_it_and_blocks_its_signals),
        cmocka_unit_test(thread_join__of_one_never_started_does_nothing),
        cmocka_unit_test(cond_wait_until__ends_at_a_deadline_that_passed),
        cmocka_unit_test(cond__passes_turns_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
