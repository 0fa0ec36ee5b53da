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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
