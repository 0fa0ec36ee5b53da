#include "storage/base/thread.h"

#include "server/rpc/pacer.h"
#include "tests/support/nd_test.h"

enum { MANY = 200 };

struct fixture {
    struct nd_pacer *pacer;
    struct nd_mutex lock;
    struct nd_cond changed;
    unsigned ran; /* guarded by lock */
    unsigned order[MANY];
    bool hold; /* guarded by lock: `run` waits while it is set */
};

struct item {
    struct nd_pace pace;
    struct fixture *fixture;
    unsigned number;
};

static void run(struct nd_pace *pace)
{
    struct item *item = ND_CONTAINER_OF(pace, struct item, pace);
    struct fixture *f = item->fixture;

    nd_mutex_lock(&f->lock);
    f->order[f->ran++] = item->number;
    nd_cond_broadcast(&f->changed);
    while (f->hold) {
        nd_cond_wait(&f->changed, &f->lock);
    }
    nd_mutex_unlock(&f->lock);
}

static void item_init(struct item *item, struct fixture *f, unsigned number)
{
    nd_pace_init(&item->pace, run);
    item->fixture = f;
    item->number = number;
}

static void wait_ran(struct fixture *f, unsigned count)
{
    nd_mutex_lock(&f->lock);
    while (f->ran < count) {
        nd_cond_wait(&f->changed, &f->lock);
    }
    nd_mutex_unlock(&f->lock);
}

static int setup(void **state)
{
    static struct fixture f;

    f = (struct fixture){.ran = 0};
    nd_mutex_init(&f.lock);
    nd_cond_init(&f.changed);
    f.pacer = nd_pacer_new();
    *state = &f;
    return f.pacer == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    nd_pacer_free(f->pacer);
    nd_cond_release(&f->changed);
    nd_mutex_release(&f->lock);
    return 0;
}

static void pacer__runs_all_once_each_and_the_earlier_first(void **state)
{
    struct fixture *f = *state;
    static struct item items[MANY];
    bool seen[MANY] = {false};

    for (unsigned i = 0; i < MANY; i++) {
        item_init(&items[i], f, i);
    }
    f->hold = true; /* the first occupies the thread until all are there */
    nd_pacer_after(f->pacer, &items[0].pace, 0);
    wait_ran(f, 1);
    for (unsigned i = 1; i < MANY; i++) {
        nd_pacer_after(f->pacer, &items[i].pace, MANY - i);
    }
    nd_mutex_lock(&f->lock);
    f->hold = false;
    nd_cond_broadcast(&f->changed);
    nd_mutex_unlock(&f->lock);
    wait_ran(f, MANY);

    for (unsigned i = 0; i < MANY; i++) {
        assert_false(seen[f->order[i]]);
        seen[f->order[i]] = true;
    }
    assert_int_equal(f->order[MANY - 1], 1); /* the one that had to wait longest */
}

static void pacer__what_is_forgotten_does_not_run(void **state)
{
    struct fixture *f = *state;
    struct item never, later;

    item_init(&never, f, 7);
    item_init(&later, f, 8);
    nd_pacer_after(f->pacer, &never.pace, 3600000);
    nd_pacer_after(f->pacer, &later.pace, 3600000);
    nd_pacer_after(f->pacer, &later.pace, 1); /* the new time counts */
    wait_ran(f, 1);
    nd_pacer_forget(f->pacer, &never.pace);
    nd_pacer_forget(f->pacer, &never.pace);
    nd_pacer_forget(f->pacer, &later.pace);

    assert_int_equal(f->ran, 1);
    assert_int_equal(f->order[0], 8);
}

static void *let_go(void *arg)
{
    struct fixture *f = arg;

    nd_mutex_lock(&f->lock);
    f->hold = false;
    nd_cond_broadcast(&f->changed);
    nd_mutex_unlock(&f->lock);
    return NULL;
}

static void pacer_forget__waits_for_the_one_that_runs(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;

    for (unsigned i = 0; i < 50; i++) {
        struct item item; /* gone when forget has returned */
        item_init(&item, f, i);
        f->ran = 0;
        f->hold = true;
        nd_pacer_after(f->pacer, &item.pace, 0);
        wait_ran(f, 1);
        assert_int_equal(pthread_create(&thread, NULL, let_go, f), 0);
        nd_pacer_forget(f->pacer, &item.pace);
        assert_false(f->hold); /* `run` came to its end */
        pthread_join(thread, NULL);
    }
    nd_pacer_forget(NULL, NULL);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(pacer__runs_all_once_each_and_the_earlier_first),
        CASE(pacer__what_is_forgotten_does_not_run),
        CASE(pacer_forget__waits_for_the_one_that_runs),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
