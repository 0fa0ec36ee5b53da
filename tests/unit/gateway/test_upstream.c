#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "storage/base/alloc.h"

#include "fake_node.h"
#include "gateway/upstream.h"
#include "tests/support/nd_test.h"

/* What the operations of a test came to. */
struct outcome {
    struct fake_node *node; /* whose lock and condition it uses */
    uint32_t done;
    uint32_t messages; /* that polls and replays brought */
    int code;          /* of the last one */
    enum nd_err err;
    uint32_t retry_after_ms;
    char text[200];
};

struct test {
    struct fake_node node;
    struct nd_upstream *upstream;
    struct outcome outcome;
};

static void note(struct outcome *outcome, const struct nd_upstream_status *status,
                 uint32_t messages)
{
    nd_mutex_lock(&outcome->node->lock);
    outcome->code = status->code;
    outcome->err = status->err;
    outcome->retry_after_ms = status->retry_after_ms;
    snprintf(outcome->text, sizeof outcome->text, "%s", status->text == NULL ? "" : status->text);
    outcome->messages += messages;
    outcome->done++;
    nd_cond_broadcast(&outcome->node->changed);
    nd_mutex_unlock(&outcome->node->lock);
}

static void done(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    assert_true(status->err != ND_OK || reply != NULL);
    note(arg, status, 0);
}

static void polled(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    const Narad__V1__PollResult *result = reply;
    note(arg, status, result == NULL ? 0 : (uint32_t)result->n_messages);
}

static void replayed(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    const Narad__V1__ReplayResponse *response = reply;
    note(arg, status, response == NULL ? 0 : (uint32_t)response->n_messages);
}

static void start(struct test *test, uint32_t sets_max, uint32_t idle_ms, uint32_t deadline_ms)
{
    struct nd_errmsg msg = {""};
    struct nd_upstream_options options = {.channel = {.target = test->node.address},
                                          .sets_max = sets_max,
                                          .idle_ms = idle_ms,
                                          .deadline_ms = deadline_ms};
    test->outcome = (struct outcome){.node = &test->node};
    assert_int_equal(nd_upstream_new(&test->upstream, &options, &msg), ND_OK);
}

static int setup(void **state)
{
    struct test *test = calloc(1, sizeof *test);
    fake_node_init(&test->node);
    start(test, 2, 0, 0);
    *state = test;
    return 0;
}

static int teardown(void **state)
{
    struct test *test = *state;
    nd_upstream_free(test->upstream);
    fake_node_release(&test->node);
    free(test);
    return 0;
}

static void restart(struct test *test, uint32_t sets_max, uint32_t idle_ms, uint32_t deadline_ms)
{
    nd_upstream_free(test->upstream);
    start(test, sets_max, idle_ms, deadline_ms);
}

static void hold(struct test *test, bool deaf)
{
    nd_mutex_lock(&test->node.lock);
    test->node.hold = true;
    test->node.deaf = deaf;
    nd_mutex_unlock(&test->node.lock);
}

static struct nd_upstream_caller by(const char *authorization)
{
    bool none = authorization == NULL;
    return (struct nd_upstream_caller){none ? nd_slice_make(NULL, 0) : nd_slice_str(authorization),
                                       "192.0.2.7"};
}

static void produce(struct test *test, const char *authorization)
{
    Narad__V1__Record record = NARAD__V1__RECORD__INIT, *records[] = {&record};
    uint8_t payload[] = "x";
    record.payload.data = payload;
    record.payload.len = 1;
    char topic[] = "t";
    Narad__V1__ProduceRequest request = NARAD__V1__PRODUCE_REQUEST__INIT;
    request.topic = topic;
    request.records = records;
    request.n_records = 1;
    nd_upstream_produce(test->upstream, by(authorization), &request, done, &test->outcome);
}

static uint64_t poll_for(struct test *test, const char *authorization, uint32_t wait_ms)
{
    Narad__V1__Poll poll = NARAD__V1__POLL__INIT;
    char topic[] = "t";
    poll.topic = topic;
    poll.wait_ms = wait_ms;
    return nd_upstream_poll(test->upstream, by(authorization), &poll, polled, &test->outcome);
}

static uint64_t poll_as(struct test *test, const char *authorization)
{
    return poll_for(test, authorization, 10000);
}

static void ack(struct test *test, const char *authorization)
{
    Narad__V1__Settle settle = NARAD__V1__SETTLE__INIT, *settles[] = {&settle};
    char handle[] = "0:0:1";
    settle.receipt_handle = handle;
    char topic[] = "t";
    Narad__V1__AckRequest request = NARAD__V1__ACK_REQUEST__INIT;
    request.topic = topic;
    request.settles = settles;
    request.n_settles = 1;
    nd_upstream_ack(test->upstream, by(authorization), &request, done, &test->outcome);
}

static void wait_done(struct test *test, uint32_t count)
{
    fake_node_wait(&test->node, &test->outcome.done, count);
}

/* --- batching --- */

/* On the channel's thread nothing drains meanwhile: all but the first message gather. */
static void burst(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct test *test = arg;
    assert_int_equal(status->err, ND_OK);
    (void)reply;
    for (int i = 0; i < 500; i++) {
        produce(test, "a");
    }
}

static void produce__what_gathers_behind_a_message_goes_out_as_one(void **state)
{
    struct test *test = *state;
    Narad__V1__ReplayRequest request = NARAD__V1__REPLAY_REQUEST__INIT;
    char topic[] = "t";
    request.topic = topic;

    nd_upstream_replay(test->upstream, by(NULL), &request, burst, test);
    wait_done(test, 500);

    assert_int_equal(test->outcome.err, ND_OK);
    assert_int_equal(test->node.items[FAKE_PRODUCE], 500);
    assert_int_equal(test->node.messages[FAKE_PRODUCE], 2);
    assert_int_equal(test->node.streams[FAKE_PRODUCE], 1);
}

static void operations__of_one_caller_share_a_stream_a_kind(void **state)
{
    struct test *test = *state;

    for (int i = 0; i < 10; i++) {
        produce(test, "Basic one");
        (void)poll_as(test, "Basic one");
        ack(test, "Basic one");
    }
    wait_done(test, 30);

    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        assert_int_equal(test->node.streams[kind], 1);
        assert_int_equal(test->node.items[kind], 10);
        assert_string_equal(test->node.authorization[kind], "Basic one");
    }
    assert_int_equal(test->outcome.messages, 10);
}

static void operations__of_different_callers_never_share(void **state)
{
    struct test *test = *state;

    produce(test, "Basic one");
    produce(test, NULL);
    wait_done(test, 2);

    assert_int_equal(test->node.streams[FAKE_PRODUCE], 2);
}

static void authorization__that_cannot_travel_is_none(void **state)
{
    struct test *test = *state;
    char *longer = nd_xasprintf("%05000d", 1);

    produce(test, "Basic \xc3\xa4");
    wait_done(test, 1);
    assert_string_equal(test->node.authorization[FAKE_PRODUCE], "-");
    produce(test, longer);
    wait_done(test, 2);

    assert_int_equal(test->node.streams[FAKE_PRODUCE], 1);
    nd_free(longer);
}

/* --- beyond the sets --- */

static void sets__beyond_the_bound_are_calls(void **state)
{
    struct test *test = *state;

    hold(test, false);
    (void)poll_as(test, "one");
    (void)poll_as(test, "two");
    fake_node_wait(&test->node, &test->node.items[FAKE_POLL], 2);
    (void)poll_as(test, "three");
    produce(test, "three");
    ack(test, "three");
    fake_node_wait(&test->node, &test->node.calls[FAKE_POLL], 1);
    fake_node_wait(&test->node, &test->node.calls[FAKE_PRODUCE], 1);
    fake_node_wait(&test->node, &test->node.calls[FAKE_ACK], 1);
    assert_string_equal(test->node.authorization[FAKE_ACK], "three");
    fake_node_answer_held(&test->node);
    wait_done(test, 5);

    assert_int_equal(test->outcome.err, ND_OK);
    assert_int_equal(test->outcome.messages, 3);
    assert_int_equal(test->node.streams[FAKE_POLL], 2);
}

static void poll_cancel__reaches_the_node_for_calls_too(void **state)
{
    struct test *test = *state;

    hold(test, false);
    (void)poll_as(test, "one");
    (void)poll_as(test, "two");
    uint64_t ticket = poll_as(test, "three");
    fake_node_wait(&test->node, &test->node.calls[FAKE_POLL], 1);
    nd_upstream_poll_cancel(test->upstream, ticket);
    fake_node_wait(&test->node, &test->node.calls_cancelled, 1);
    wait_done(test, 1);

    assert_int_not_equal(test->outcome.err, ND_OK);
    nd_upstream_poll_cancel(test->upstream, ticket); /* over: nothing */
}

/* --- cancels --- */

static void poll_cancel__is_answered_empty(void **state)
{
    struct test *test = *state;

    hold(test, false);
    (void)poll_as(test, "one");
    uint64_t ticket = poll_as(test, "one");
    nd_upstream_poll_cancel(test->upstream, ticket);
    wait_done(test, 1);

    assert_int_equal(test->outcome.err, ND_OK);
    assert_int_equal(test->outcome.messages, 0);
    assert_int_equal(test->node.cancels, 1);
    fake_node_answer_held(&test->node);
    wait_done(test, 2);
    assert_int_equal(test->outcome.messages, 1);
}

static void poll_cancel__that_crosses_a_delivery_still_brings_it(void **state)
{
    struct test *test = *state;

    hold(test, true);
    uint64_t ticket = poll_as(test, "one");
    nd_upstream_poll_cancel(test->upstream, ticket);
    fake_node_wait(&test->node, &test->node.cancels, 1);
    fake_node_answer_held(&test->node);
    wait_done(test, 1);

    assert_int_equal(test->outcome.messages, 1);
}

static void cancel_polls__ends_all_polls_and_nothing_else(void **state)
{
    struct test *test = *state;

    hold(test, false);
    for (int i = 0; i < 20; i++) {
        (void)poll_as(test, "one");
    }
    produce(test, "one");
    fake_node_wait(&test->node, &test->node.items[FAKE_POLL], 20);
    fake_node_wait(&test->node, &test->node.items[FAKE_PRODUCE], 1);
    nd_upstream_cancel_polls(test->upstream);
    wait_done(test, 20);

    assert_int_equal(test->node.cancels, 20);
    fake_node_answer_held(&test->node);
    wait_done(test, 21);
    assert_int_equal(test->outcome.err, ND_OK);
}

/* --- ends --- */

static void stream_end__fails_what_is_open_with_its_status(void **state)
{
    struct test *test = *state;

    nd_mutex_lock(&test->node.lock);
    test->node.hold = true;
    test->node.refuse = ND_ERR_THROTTLED;
    nd_mutex_unlock(&test->node.lock);
    produce(test, "one");
    wait_done(test, 1);

    assert_int_equal(test->outcome.code, 8);
    assert_int_equal(test->outcome.err, ND_ERR_THROTTLED);
    assert_int_equal(test->outcome.retry_after_ms, 1500);
}

static void item__that_is_refused_says_when_to_try_again(void **state)
{
    struct test *test = *state;

    nd_mutex_lock(&test->node.lock);
    test->node.refuse_items = ND_ERR_LIMITED;
    nd_mutex_unlock(&test->node.lock);
    produce(test, "one");
    wait_done(test, 1);
    assert_int_equal(test->outcome.err, ND_ERR_LIMITED);
    assert_int_equal(test->outcome.retry_after_ms, 2500);
    (void)poll_as(test, "one");
    wait_done(test, 2);
    assert_int_equal(test->outcome.err, ND_ERR_LIMITED);
    assert_int_equal(test->outcome.retry_after_ms, 2500);
}

/* The node of the tests listens at a Unix socket. */
static void item__says_of_whom_it_is(void **state)
{
    struct test *test = *state;

    produce(test, "one");
    (void)poll_as(test, "one");
    wait_done(test, 2);

    assert_string_equal(test->node.address_of[FAKE_PRODUCE], "192.0.2.7");
    assert_string_equal(test->node.address_of[FAKE_POLL], "192.0.2.7");
}

static void stream_end__opens_a_new_one_for_the_next(void **state)
{
    struct test *test = *state;

    hold(test, false);
    produce(test, "one");
    fake_node_wait(&test->node, &test->node.items[FAKE_PRODUCE], 1);
    fake_node_break_held(&test->node, ND_ERR_UNAUTHENTICATED);
    wait_done(test, 1);
    assert_int_equal(test->outcome.err, ND_ERR_UNAUTHENTICATED);
    produce(test, "one");
    wait_done(test, 2);

    assert_int_equal(test->outcome.err, ND_OK);
    assert_int_equal(test->node.streams[FAKE_PRODUCE], 2);
}

static void node_lost__leaves_what_was_sent_unknown(void **state)
{
    struct test *test = *state;

    hold(test, false);
    produce(test, "one");
    fake_node_wait(&test->node, &test->node.items[FAKE_PRODUCE], 1);
    fake_node_stop(&test->node);
    wait_done(test, 1);

    assert_int_equal(test->outcome.err, ND_ERR_UNKNOWN_OUTCOME);
}

static void node_lost__heals_when_it_is_back(void **state)
{
    struct test *test = *state;
    uint32_t tries = 1;

    fake_node_stop(&test->node);
    produce(test, "one");
    wait_done(test, 1);
    assert_int_not_equal(test->outcome.err, ND_OK);
    fake_node_start(&test->node);
    do { /* until the channel has connected again */
        produce(test, "one");
        wait_done(test, ++tries);
    } while (test->outcome.err != ND_OK && tries < 1000000);

    assert_int_equal(test->outcome.err, ND_OK);
}

static void free__ends_every_operation(void **state)
{
    struct test *test = *state;

    hold(test, false);
    produce(test, "one");
    (void)poll_as(test, "two");
    (void)poll_as(test, "three"); /* a call */
    ack(test, "one");
    nd_upstream_free(test->upstream);
    test->upstream = NULL;

    assert_int_equal(test->outcome.done, 4);
    assert_true(test->outcome.err == ND_ERR_UNAVAILABLE ||
                test->outcome.err == ND_ERR_UNKNOWN_OUTCOME);
}

/* --- time --- */

static void deadline__ends_what_is_not_answered(void **state)
{
    struct test *test = *state;

    restart(test, 2, 0, 50);
    hold(test, false);
    produce(test, "one");
    ack(test, "one");
    (void)poll_for(test, "one", 1000000); /* longer, and before the other */
    (void)poll_for(test, "one", 0);
    wait_done(test, 3);

    assert_int_equal(test->outcome.done, 3);
    assert_int_equal(test->outcome.err, ND_ERR_UNKNOWN_OUTCOME);
    assert_string_equal(test->outcome.text, "the broker did not answer in time");
    fake_node_answer_held(&test->node); /* for nobody */
}

static void idle__closes_the_set_and_leaves_those_in_use(void **state)
{
    struct test *test = *state;

    restart(test, 2, 20, 0);
    hold(test, false);
    (void)poll_as(test, "busy");
    fake_node_wait(&test->node, &test->node.items[FAKE_POLL], 1);
    nd_mutex_lock(&test->node.lock);
    test->node.hold = false;
    nd_mutex_unlock(&test->node.lock);
    produce(test, "idle");
    wait_done(test, 1);
    fake_node_wait(&test->node, &test->node.streams_done[FAKE_PRODUCE], 1);
    assert_int_equal(test->node.streams_done[FAKE_POLL], 0);
    produce(test, "idle");
    wait_done(test, 2);

    assert_int_equal(test->outcome.err, ND_OK);
    assert_int_equal(test->node.streams[FAKE_PRODUCE], 2);
    assert_int_equal(test->node.streams_done[FAKE_POLL], 0);
}

/* --- secrets --- */

static const char secret[] = "Basic c29tZWJvZHk6bXVjaCB0b28gc2VjcmV0";
static _Atomic uint32_t secrets_freed; /* copies that were given up as they were */

void __real_nd_free(void *pointer);
void __wrap_nd_free(void *pointer);

void __wrap_nd_free(void *pointer)
{
    if (pointer != NULL && malloc_usable_size(pointer) >= sizeof secret - 1 &&
        memcmp(pointer, secret, sizeof secret - 1) == 0) {
        atomic_fetch_add(&secrets_freed, 1);
    }
    __real_nd_free(pointer);
}

/* By stream, by a call when there are too many sets, of a set that goes. */
static void authorization__is_not_left_in_memory(void **state)
{
    struct test *test = *state;

    restart(test, 1, 20, 0);
    atomic_store(&secrets_freed, 0);
    produce(test, secret);
    wait_done(test, 1);
    fake_node_wait(&test->node, &test->node.streams_done[FAKE_PRODUCE], 1);

    restart(test, 1, 0, 0);
    produce(test, "Basic another");
    wait_done(test, 1);
    produce(test, secret);
    wait_done(test, 2);
    restart(test, 1, 0, 0);
    assert_int_equal(atomic_load(&secrets_freed), 0);
}

/* --- replay --- */

static void replay__brings_one_message_nothing_or_an_error(void **state)
{
    struct test *test = *state;
    Narad__V1__ReplayRequest request = NARAD__V1__REPLAY_REQUEST__INIT;
    char topic[] = "t";
    request.topic = topic;

    nd_upstream_replay(test->upstream, by("one"), &request, replayed, &test->outcome);
    wait_done(test, 1);
    assert_int_equal(test->outcome.messages, 1);
    request.offset = 1;
    nd_upstream_replay(test->upstream, by("one"), &request, replayed, &test->outcome);
    wait_done(test, 2);
    assert_int_equal(test->outcome.err, ND_OK);
    assert_int_equal(test->outcome.messages, 1);
    request.offset = 2;
    nd_upstream_replay(test->upstream, by("one"), &request, replayed, &test->outcome);
    wait_done(test, 3);

    assert_int_equal(test->outcome.err, ND_ERR_GONE);
    assert_string_equal(test->outcome.text, "offset 2 aged out");
}

static void err__is_named_by_the_reason_or_else_by_the_code(void **state)
{
    (void)state;

    assert_int_equal(nd_upstream_err(0, "STALE"), ND_OK);
    assert_int_equal(nd_upstream_err(9, "STALE"), ND_ERR_STALE);
    assert_int_equal(nd_upstream_err(9, ""), ND_ERR_CONFLICT);
    assert_int_equal(nd_upstream_err(14, NULL), ND_ERR_UNAVAILABLE);
    assert_int_equal(nd_upstream_err(9, "OK"), ND_ERR_INTERNAL);
    assert_int_equal(nd_upstream_err(9, "NEWER"), ND_ERR_INTERNAL);
    assert_int_equal(nd_upstream_err(2, ""), ND_ERR_INTERNAL);
    assert_int_equal(nd_upstream_err(-1, ""), ND_ERR_INTERNAL);
    assert_int_equal(nd_upstream_err(1000, ""), ND_ERR_INTERNAL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(produce__what_gathers_behind_a_message_goes_out_as_one),
        CASE(operations__of_one_caller_share_a_stream_a_kind),
        CASE(operations__of_different_callers_never_share),
        CASE(authorization__that_cannot_travel_is_none),
        CASE(sets__beyond_the_bound_are_calls),
        CASE(poll_cancel__reaches_the_node_for_calls_too),
        CASE(poll_cancel__is_answered_empty),
        CASE(poll_cancel__that_crosses_a_delivery_still_brings_it),
        CASE(cancel_polls__ends_all_polls_and_nothing_else),
        CASE(stream_end__fails_what_is_open_with_its_status),
        CASE(item__that_is_refused_says_when_to_try_again),
        CASE(item__says_of_whom_it_is),
        CASE(stream_end__opens_a_new_one_for_the_next),
        CASE(node_lost__leaves_what_was_sent_unknown),
        CASE(node_lost__heals_when_it_is_back),
        CASE(free__ends_every_operation),
        CASE(deadline__ends_what_is_not_answered),
        CASE(idle__closes_the_set_and_leaves_those_in_use),
        CASE(authorization__is_not_left_in_memory),
        CASE(replay__brings_one_message_nothing_or_an_error),
        cmocka_unit_test(err__is_named_by_the_reason_or_else_by_the_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
