#include <sched.h>
#include <time.h>

#include "storage/base/alloc.h"
#include "storage/base/inbox.h"

#include "tests/support/nd_test.h"

enum { SENDERS = 3, MESSAGES = 2000 };

struct numbered {
    struct nd_msg msg;
    int sender, number;
};

struct owner {
    int next[SENDERS];
    int total;
    bool stopped;
};

static void numbered_run(struct nd_msg *msg, void *data)
{
    struct numbered *numbered = ND_CONTAINER_OF(msg, struct numbered, msg);
    struct owner *owner = data;

    ND_ASSERT(owner->next[numbered->sender] == numbered->number); /* in the order of each sender */
    owner->next[numbered->sender] += 1;
    owner->total += 1;
    nd_free(numbered);
}

static struct nd_msg *numbered_new(int sender, int number)
{
    struct numbered *numbered = nd_xmalloc(sizeof *numbered);

    *numbered = (struct numbered){.msg.run = numbered_run, .sender = sender, .number = number};
    return &numbered->msg;
}

static void inbox_run__runs_in_order_and_counts(void **state)
{
    struct nd_list batch = ND_LIST_INIT(batch);
    struct owner owner = {.total = 0};
    struct nd_inbox inbox;

    (void)state;
    nd_inbox_init(&inbox);
    assert_int_equal(nd_inbox_run(&inbox, &owner), 0);
    nd_inbox_push(&inbox, numbered_new(0, 0));
    for (int i = 1; i < 5; i++) {
        nd_list_append(&batch, &numbered_new(0, i)->link);
    }
    nd_inbox_push_all(&inbox, &batch);

    assert_true(nd_list_empty(&batch));
    assert_false(nd_inbox_empty(&inbox));
    assert_int_equal(nd_inbox_run(&inbox, &owner), 5);
    assert_int_equal(owner.total, 5);
    assert_true(nd_inbox_empty(&inbox));
    nd_inbox_release(&inbox);
}

struct repeated {
    struct nd_msg msg;
    struct nd_inbox *inbox;
    int left;
};

static void repeated_run(struct nd_msg *msg, void *owner)
{
    struct repeated *repeated = ND_CONTAINER_OF(msg, struct repeated, msg);

    (void)owner;
    if (--repeated->left > 0) {
        nd_inbox_push(repeated->inbox, msg);
    }
}

static void inbox_run__leaves_what_its_messages_push_for_the_next_run(void **state)
{
    struct nd_inbox inbox;
    struct repeated repeated = {.msg.run = repeated_run, .inbox = &inbox, .left = 3};

    (void)state;
    nd_inbox_init(&inbox);
    nd_inbox_push(&inbox, &repeated.msg);

    assert_int_equal(nd_inbox_run(&inbox, NULL), 1);
    assert_int_equal(nd_inbox_run(&inbox, NULL), 1);
    assert_int_equal(nd_inbox_run(&inbox, NULL), 1);
    assert_int_equal(nd_inbox_run(&inbox, NULL), 0);
    nd_inbox_release(&inbox);
}

struct sender {
    struct nd_thread thread;
    struct nd_inbox *inbox;
    int id;
};

static void sender_main(void *arg)
{
    struct sender *sender = arg;

    for (int i = 0; i < MESSAGES; i++) {
        if (i % 10 == 9) {
            struct nd_list batch = ND_LIST_INIT(batch);
            nd_list_append(&batch, &numbered_new(sender->id, i)->link);
            nd_inbox_push_all(sender->inbox, &batch);
        } else {
            nd_inbox_push(sender->inbox, numbered_new(sender->id, i));
        }
    }
}

/* The owner sleeps whenever there is nothing; a lost wake-up would let it sleep for ever. */
static void inbox__loses_nothing_between_threads(void **state)
{
    struct sender senders[SENDERS];
    struct owner owner = {.total = 0};
    struct nd_inbox inbox;

    (void)state;
    nd_inbox_init(&inbox);
    for (int i = 0; i < SENDERS; i++) {
        senders[i].inbox = &inbox;
        senders[i].id = i;
        assert_true(nd_thread_start(&senders[i].thread, "sender", sender_main, &senders[i]));
    }
    while (owner.total < SENDERS * MESSAGES) {
        nd_inbox_wait(&inbox, UINT64_MAX);
        (void)nd_inbox_run(&inbox, &owner);
    }
    for (int i = 0; i < SENDERS; i++) {
        nd_thread_join(&senders[i].thread);
    }
    assert_int_equal(owner.total, SENDERS * MESSAGES);
    nd_inbox_release(&inbox);
}

/* Two inboxes that answer each other one message at a time: every message meets a sleeper. */
struct ball {
    struct nd_msg msg;
    struct nd_inbox *sides[2];
    int flights;
};

static void ball_run(struct nd_msg *msg, void *owner)
{
    struct ball *ball = ND_CONTAINER_OF(msg, struct ball, msg);

    (void)owner;
    ball->flights += 1;
    nd_inbox_push(ball->sides[ball->flights % 2], msg);
}

static void partner_main(void *arg)
{
    struct nd_inbox *inbox = arg;

    for (int i = 0; i < MESSAGES; i++) {
        do {
            nd_inbox_wait(inbox, UINT64_MAX);
        } while (nd_inbox_run(inbox, NULL) == 0);
    }
}

static void inbox__wakes_a_sleeper_for_one_message(void **state)
{
    struct nd_inbox mine, theirs;
    struct nd_thread thread;
    struct ball ball = {.msg.run = ball_run, .sides = {&theirs, &mine}};

    (void)state;
    nd_inbox_init(&mine);
    nd_inbox_init(&theirs);
    assert_true(nd_thread_start(&thread, "partner", partner_main, &theirs));
    nd_inbox_push(&theirs, &ball.msg);
    for (int i = 0; i < MESSAGES - 1; i++) {
        do {
            nd_inbox_wait(&mine, UINT64_MAX);
        } while (nd_inbox_run(&mine, NULL) == 0);
    }
    nd_thread_join(&thread);

    assert_int_equal(ball.flights, 2 * MESSAGES - 1);
    nd_list_init(&mine.messages); /* the ball rests here */
    nd_inbox_release(&mine);
    nd_inbox_release(&theirs);
}

static void waker_main(void *arg)
{
    nd_inbox_wake(arg);
}

static void inbox_wake__ends_a_wait_that_comes_before_or_after(void **state)
{
    struct nd_thread thread;
    struct nd_inbox inbox;

    (void)state;
    nd_inbox_init(&inbox);
    nd_inbox_wake(&inbox);
    nd_inbox_wait(&inbox, UINT64_MAX); /* at once */

    assert_true(nd_thread_start(&thread, "waker", waker_main, &inbox));
    nd_inbox_wait(&inbox, UINT64_MAX);
    nd_thread_join(&thread);
    assert_int_equal(nd_inbox_run(&inbox, NULL), 0);
    nd_inbox_release(&inbox);
}

static void inbox_wait__ends_at_its_deadline(void **state)
{
    struct nd_inbox inbox;

    (void)state;
    nd_inbox_init(&inbox);
    nd_inbox_wait(&inbox, 0); /* long past */
    assert_true(nd_inbox_empty(&inbox));
    nd_inbox_release(&inbox);
}

static void count_notify(void *data)
{
    int *count = data;

    *count += 1;
}

static void inbox_notify__is_called_when_it_turns_non_empty_only(void **state)
{
    struct owner owner = {.total = 0};
    struct nd_inbox inbox;
    int notified = 0;

    (void)state;
    nd_inbox_init(&inbox);
    inbox.notify = count_notify;
    inbox.notify_data = &notified;

    nd_inbox_push(&inbox, numbered_new(0, 0));
    nd_inbox_push(&inbox, numbered_new(0, 1));
    nd_inbox_wake(&inbox);
    assert_int_equal(notified, 1);
    assert_int_equal(nd_inbox_run(&inbox, &owner), 2);

    nd_inbox_wake(&inbox);
    nd_inbox_wake(&inbox);
    nd_inbox_push(&inbox, numbered_new(0, 2));
    assert_int_equal(notified, 2);
    assert_int_equal(nd_inbox_run(&inbox, &owner), 1);

    nd_inbox_push(&inbox, numbered_new(0, 3));
    assert_int_equal(notified, 3);
    assert_int_equal(nd_inbox_run(&inbox, &owner), 1);
    nd_inbox_release(&inbox);
}

/* A request's own inbox on the stack: its owner leaves the moment it has the answer. */
static void inbox_release__waits_for_a_push_that_is_returning(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct owner owner = {.total = 0};
        struct nd_inbox *inbox = nd_xmalloc(sizeof *inbox);
        struct nd_thread thread;
        nd_inbox_init(inbox);
        assert_true(nd_thread_start(&thread, "waker", waker_main, inbox));
        nd_inbox_wait(inbox, UINT64_MAX);
        (void)nd_inbox_run(inbox, &owner);
        nd_inbox_release(inbox);
        nd_free(inbox);
        nd_thread_join(&thread);
    }
}

/* An owner that lends its place: a thread whose loop is the step. */
struct lender {
    struct nd_inbox inbox;
    struct nd_thread thread;
    struct owner owner;
    pthread_t stepped_by; /* the thread of the last step */
    uint64_t next_ns;     /* what the step answers */
    uint64_t wait_ns;     /* until when the owner waits, from now on; UINT64_MAX: for ever */
    int stop_at;          /* messages */
    int loops;            /* of the owner's thread */
};

static bool lender_step(void *data, uint64_t *next_ns)
{
    struct lender *lender = data;

    lender->stepped_by = pthread_self();
    *next_ns = lender->next_ns;
    return nd_inbox_run(&lender->inbox, &lender->owner) > 0 ||
           lender->owner.total == lender->stop_at;
}

static uint64_t mono_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void lender_main(void *arg)
{
    struct lender *lender = arg;
    uint64_t next_ns;

    while (lender->owner.total < lender->stop_at) {
        bool more = lender_step(lender, &next_ns);
        if (!more) {
            nd_inbox_wait(&lender->inbox,
                          lender->wait_ns == UINT64_MAX ? UINT64_MAX : mono_ns() + lender->wait_ns);
        }
        lender->loops += 1;
    }
}

static void lender_start(struct lender *lender, int stop_at, uint64_t wait_ns)
{
    *lender = (struct lender){.next_ns = UINT64_MAX, .wait_ns = wait_ns, .stop_at = stop_at};
    nd_inbox_init(&lender->inbox);
    lender->inbox.step = lender_step;
    lender->inbox.step_data = lender;
    assert_true(nd_thread_start(&lender->thread, "lender", lender_main, lender));
}

static bool is_asleep(struct nd_inbox *inbox)
{
    nd_mutex_lock(&inbox->lock);
    bool asleep = inbox->sleeping;
    nd_mutex_unlock(&inbox->lock);
    return asleep;
}

static void asleep_wait(struct nd_inbox *inbox)
{
    while (!is_asleep(inbox)) {
        (void)sched_yield();
    }
}

static void push_help_one(struct nd_inbox *inbox, struct nd_msg *msg)
{
    struct nd_list one = ND_LIST_INIT(one);

    nd_list_append(&one, &msg->link);
    nd_inbox_push_help(inbox, &one);
}

static void inbox_push_help__works_in_a_sleepers_place(void **state)
{
    struct lender lender;

    (void)state;
    lender_start(&lender, 3, UINT64_MAX);
    for (int i = 0; i < 2; i++) {
        asleep_wait(&lender.inbox);
        push_help_one(&lender.inbox, numbered_new(0, i));
        assert_int_equal(lender.owner.total, i + 1);
        assert_true(pthread_equal(lender.stepped_by, pthread_self()));
        assert_true(is_asleep(&lender.inbox)); /* it was not woken */
        assert_int_equal(lender.loops, 0);
    }
    push_help_one(&lender.inbox, numbered_new(0, 2)); /* the last: its thread has to see that */
    nd_thread_join(&lender.thread);
    assert_int_equal(lender.owner.total, 3);
    nd_inbox_release(&lender.inbox);
}

static void inbox_push_help__wakes_the_owner_for_an_earlier_deadline(void **state)
{
    struct lender lender;

    (void)state;
    lender_start(&lender, 2, UINT64_MAX);
    asleep_wait(&lender.inbox);
    lender.next_ns = 1; /* ours to write: a sleeper is behind the lock */
    push_help_one(&lender.inbox, numbered_new(0, 0));
    nd_mutex_lock(&lender.inbox.lock);
    while (lender.loops == 0) { /* it came out of its wait */
        nd_mutex_unlock(&lender.inbox.lock);
        asleep_wait(&lender.inbox);
        nd_mutex_lock(&lender.inbox.lock);
    }
    nd_mutex_unlock(&lender.inbox.lock);
    nd_inbox_push(&lender.inbox, numbered_new(0, 1));
    nd_thread_join(&lender.thread);
    nd_inbox_release(&lender.inbox);
}

static void helper_main(void *arg)
{
    struct sender *sender = arg;

    for (int i = 0; i < MESSAGES; i++) {
        push_help_one(sender->inbox, numbered_new(sender->id, i));
    }
}

/* One at a time in the owner's place, whoever it is, also when its deadline passes meanwhile:
 * `total` and `next` have no lock of their own. */
static void inbox_push_help__hands_the_place_over_whole(void **state)
{
    static const uint64_t waits_ns[] = {UINT64_MAX, 20000};
    struct sender senders[SENDERS];
    struct lender lender;

    (void)state;
    for (size_t round = 0; round < ND_ARRAY_SIZE(waits_ns); round++) {
        lender_start(&lender, SENDERS * MESSAGES, waits_ns[round]);
        for (int i = 0; i < SENDERS; i++) {
            senders[i] = (struct sender){.inbox = &lender.inbox, .id = i};
            assert_true(nd_thread_start(&senders[i].thread, "sender",
                                        i == 0 ? sender_main : helper_main, &senders[i]));
        }
        for (int i = 0; i < SENDERS; i++) {
            nd_thread_join(&senders[i].thread);
        }
        nd_thread_join(&lender.thread);
        assert_int_equal(lender.owner.total, SENDERS * MESSAGES);
        nd_inbox_release(&lender.inbox);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inbox_run__runs_in_order_and_counts),
        cmocka_unit_test(inbox_run__leaves_what_its_messages_push_for_the_next_run),
        cmocka_unit_test(inbox__loses_nothing_between_threads),
        cmocka_unit_test(inbox__wakes_a_sleeper_for_one_message),
        cmocka_unit_test(inbox_wake__ends_a_wait_that_comes_before_or_after),
        cmocka_unit_test(inbox_wait__ends_at_its_deadline),
        cmocka_unit_test(inbox_notify__is_called_when_it_turns_non_empty_only),
        cmocka_unit_test(inbox_release__waits_for_a_push_that_is_returning),
        cmocka_unit_test(inbox_push_help__works_in_a_sleepers_place),
        cmocka_unit_test(inbox_push_help__wakes_the_owner_for_an_earlier_deadline),
        cmocka_unit_test(inbox_push_help__hands_the_place_over_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
