/* Who may call at all: calls that are held until it is known, identities, and what an error says
 * beside its text. */
#include <grpc/grpc.h>
#include <stdio.h>

#include "rpc_fixture.h"

/* The moment in which a held call's end has let its identity go and still has the call: in the
 * place of grpc_call_unref (CMakeLists.txt). NULL: nothing happens in it. */
static _Atomic(struct fixture *) admits_at_the_end;
static unsigned admitted; /* guarded by the fixture's lock */

void __real_grpc_call_unref(grpc_call *call);
void __wrap_grpc_call_unref(grpc_call *call);

void __wrap_grpc_call_unref(grpc_call *call)
{
    struct fixture *fixture = atomic_load(&admits_at_the_end);

    __real_grpc_call_unref(call);
    if (fixture != NULL && pthread_equal(pthread_self(), fixture->asked)) { /* the server's */
        atomic_store(&admits_at_the_end, NULL);
        fixture_admit(fixture, 0, ND_OK, NULL);
        nd_mutex_lock(&fixture->lock);
        admitted = 1;
        nd_cond_broadcast(&fixture->changed);
        nd_mutex_unlock(&fixture->lock);
    }
}

static int setup(void **state)
{
    static struct fixture fixture;

    fixture_init_tcp(&fixture);
    fixture.later = true;
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    fixture_release(fixture);
    return 0;
}

static void start_held(struct fixture *fixture, struct outcome *outcome, const char *path,
                       const char *name, uint32_t deadline_ms)
{
    outcome_init(outcome, fixture);
    outcome_start(outcome, fixture->channel, path, name, 10, deadline_ms);
    fixture_wait(fixture, &fixture->held_count, 1);
}

static void admission__later_starts_the_handler_on_the_worker(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    start_held(fixture, &outcome, ECHO_PLAIN, "hello", 0);
    assert_int_equal(fixture_count(fixture, &fixture->started), 0);
    fixture_admit(fixture, 0, ND_OK, NULL);
    outcome_wait(&outcome);

    assert_int_equal(outcome.code, 0);
    assert_string_equal(outcome.name, "hello");
    assert_int_equal(outcome.value_size, 10); /* the request was kept */
    assert_non_null(fixture->identity);
    assert_false(fixture->elsewhere_started);
}

static void admission__identity_outlives_the_call_and_no_more(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    start_held(fixture, &outcome, ECHO_WATCH, "x", 0);
    fixture_admit(fixture, 0, ND_OK, NULL);
    outcome_wait(&outcome);
    fixture_wait(fixture, &fixture->identities, 1);

    assert_int_equal(fixture->done_before_those, 1);
}

static void admission__later_may_refuse(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    start_held(fixture, &outcome, ECHO_PLAIN, "x", 0);
    fixture_admit(fixture, 0, ND_ERR_THROTTLED, NULL);
    outcome_wait(&outcome);

    assert_int_equal(outcome.code, 8);
    assert_string_equal(outcome.text, "too many failed authentication attempts");
    assert_string_equal(outcome.reason, "THROTTLED");
    fixture_wait(fixture, &fixture->identities, 1);
    fixture_server_stop(fixture, 1000000); /* the call is over, nothing waits for it */
    assert_int_equal(fixture->started, 0);
    assert_int_equal(fixture->done, 0);
}

static void admission__may_come_before_authenticate_returns(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    fixture->at_once = true;
    for (int i = 0; i < 20; i++) {
        echo_call(fixture, i % 2 ? ECHO_PLAIN : ECHO_WATCH, "now", 1, &outcome);
        assert_int_equal(outcome.code, 0);
        assert_string_equal(outcome.name, "now");
    }
}

static void admission__a_deadline_ends_a_held_call(void **state)
{
    struct fixture *fixture = *state;
    static const char *const paths[] = {ECHO_PLAIN, ECHO_WATCH};
    struct outcome outcome;
    unsigned held = 0;

    for (size_t i = 0; i < ND_ARRAY_SIZE(paths); i++) {
        unsigned before = held;
        while (held == before) { /* on a slow machine it may end before the server sees it */
            outcome_init(&outcome, fixture);
            outcome_start(&outcome, fixture->channel, paths[i], "x", 0, 100);
            outcome_wait(&outcome);
            assert_int_equal(outcome.code, 4);
            held = fixture_count(fixture, &fixture->held_count);
        }
    }
    /* The stop waits for every call, held ones included: they are over, or it never ends. */
    fixture_server_stop(fixture, 1000000);
    for (unsigned i = 0; i < held; i++) { /* too late, and the server is gone */
        fixture_admit(fixture, i, i % 2 ? ND_OK : ND_ERR_UNAUTHENTICATED, NULL);
    }
    assert_int_equal(fixture->identities, held);
    assert_int_equal(fixture->started, 0);
    assert_int_equal(fixture->done, 0);
    assert_int_equal(fixture->cancelled, 0);
}

static void admission__that_meets_the_end_leaves_nobody_in_the_next_call(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;
    struct watcher watcher;

    admitted = 0;
    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    fixture_wait(fixture, &fixture->held_count, 1);
    atomic_store(&admits_at_the_end, fixture);
    nd_rpc_stream_cancel(watcher.stream);
    fixture_wait(fixture, &admitted, 1);
    watcher_wait(&watcher, &watcher.done, 1);

    fixture->later = false;
    for (int i = 0; i < 100; i++) { /* one of them has the memory */
        echo_call(fixture, ECHO_PLAIN, "x", 0, &outcome);
        assert_int_equal(outcome.code, 0);
        assert_null(fixture->identity);
    }
    assert_int_equal(fixture_count(fixture, &fixture->identities), 1);
}

static void admission__a_stop_ends_held_calls(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;
    struct watcher watcher;

    start_held(fixture, &outcome, ECHO_PLAIN, "x", 0);
    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    fixture_wait(fixture, &fixture->held_count, 2);
    fixture_server_stop(fixture, 20);
    outcome_wait(&outcome);
    watcher_wait(&watcher, &watcher.done, 1);
    fixture_admit(fixture, 0, ND_OK, NULL);
    fixture_admit(fixture, 1, ND_OK, NULL);

    assert_true(outcome.code != 0);
    assert_true(watcher.code != 0);
    assert_int_equal(fixture->started, 0);
    assert_int_equal(fixture->done, 0);
}

static void admission__of_a_stream_lets_all_it_was_sent_through(void **state)
{
    enum { COUNT = 100 };
    struct fixture *fixture = *state;
    struct watcher watcher;
    char name[16];

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "%u", i);
        watcher_send(&watcher, name, 1000);
    }
    nd_rpc_stream_half_close(watcher.stream);
    fixture_wait(fixture, &fixture->held_count, 1);
    assert_int_equal(fixture_count(fixture, &fixture->messages), 0);
    fixture_admit(fixture, 0, ND_OK, NULL);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 0);
    assert_int_equal(watcher.messages, COUNT);
    assert_true(watcher.in_order);
    assert_int_equal(fixture->half_closed, 1);
}

static void admission__of_a_cancelled_stream_does_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;

    watcher_open(&watcher, fixture, ECHO_MANUAL, 0, false);
    fixture_wait(fixture, &fixture->held_count, 1);
    nd_rpc_stream_cancel(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);
    fixture_server_stop(fixture, 1000000);
    fixture_admit(fixture, 0, ND_OK, NULL);

    assert_int_equal(fixture->started, 0);
    assert_int_equal(fixture->identities, 1);
}

struct crowd {
    struct fixture *fixture;
    unsigned from, step, count;
};

static void *admit_crowd(void *arg)
{
    struct crowd *crowd = arg;

    for (unsigned i = crowd->from; i < crowd->count; i += crowd->step) {
        fixture_wait(crowd->fixture, &crowd->fixture->held_count, i + 1);
        fixture_admit(crowd->fixture, i, i % 5 == 0 ? ND_ERR_UNAUTHENTICATED : ND_OK, NULL);
    }
    return NULL;
}

/* Admissions from other threads while deadlines pass and answers come from third ones. */
static void admission__many_at_a_time_end_once_each(void **state)
{
    enum { CALLS = 600, THREADS = 3 };
    static struct outcome outcomes[CALLS];
    struct fixture *fixture = *state;
    struct crowd crowds[THREADS];
    pthread_t threads[THREADS];
    unsigned served = 0;

    for (unsigned i = 0; i < CALLS; i++) {
        outcome_init(&outcomes[i], fixture);
        outcome_start(&outcomes[i], fixture->channel, i % 2 ? ECHO_PLAIN : ECHO_WATCH, "later", 1,
                      0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        crowds[i] = (struct crowd){fixture, i, THREADS, CALLS};
        pthread_create(&threads[i], NULL, admit_crowd, &crowds[i]);
    }
    for (unsigned i = 0; i < CALLS; i++) {
        outcome_wait(&outcomes[i]);
        served += outcomes[i].code == 0;
        assert_true(outcomes[i].code == 0 || outcomes[i].code == 16);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    fixture_wait(fixture, &fixture->identities, CALLS);
    assert_int_equal(served, CALLS - CALLS / 5);
    assert_int_equal(fixture_count(fixture, &fixture->done), served);
}

static void error__names_its_reason_and_when_to_come_back(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    fixture->later = false;
    echo_call(fixture, ECHO_PLAIN, "fail", 0, &outcome);
    assert_string_equal(outcome.reason, "TOPIC_NOT_FOUND");
    assert_int_equal(outcome.retry_after_ms, 0);

    echo_call(fixture, ECHO_PLAIN, "limited", 0, &outcome);
    assert_int_equal(outcome.code, 8);
    assert_string_equal(outcome.text, "slower");
    assert_string_equal(outcome.reason, "LIMITED");
    assert_int_equal(outcome.retry_after_ms, 1500);

    echo_call(fixture, ECHO_PLAIN, "fine", 0, &outcome);
    assert_string_equal(outcome.reason, "");

    echo_call(fixture, "/test.Echo/Nothing", "x", 0, &outcome);
    assert_string_equal(outcome.reason, "UNSUPPORTED");
    echo_call(fixture, ECHO_PLAIN, "x", FIXTURE_MESSAGE_MAX + 1, &outcome);
    assert_string_equal(outcome.reason, "TOO_LARGE");
}

static void call_metadata__comes_with_its_call_alone(void **state)
{
    struct fixture *fixture = *state;
    struct nd_rpc_metadata secret = {"authorization", "secret"}, test = {"x-test", "mine"};
    struct nd_rpc_call_options options = {
        .wait_for_ready = true, .metadata = &test, .metadata_count = 1};
    struct outcome outcome;
    struct watcher watcher;

    fixture->later = false;
    fixture->authenticate = true;
    nd_rpc_channel_free(fixture->channel);
    fixture->channel = fixture_channel_new(fixture, &secret, 1); /* and the channel's comes too */
    outcome_init(&outcome, fixture);
    outcome_start_with(&outcome, fixture->channel, ECHO_PLAIN, "x", &options);
    outcome_wait(&outcome);
    assert_int_equal(outcome.code, 0);
    assert_string_equal(fixture->metadata, "mine");

    echo_call(fixture, ECHO_PLAIN, "x", 0, &outcome);
    assert_int_equal(outcome.code, 0);
    assert_string_equal(fixture->metadata, "");

    watcher_open_with(&watcher, fixture, ECHO_BIDI, &options);
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);
    assert_int_equal(watcher.code, 0);
    assert_string_equal(fixture->metadata, "mine");
}

static void call_metadata__that_is_not_legal_ends_the_call(void **state)
{
    struct fixture *fixture = *state;
    static const struct nd_rpc_metadata bad[] = {
        {"authorization", "two\nlines"}, {"authorization", "caf\xc3\xa9"}, {"No Good", "x"}};
    struct outcome outcome;
    struct watcher watcher;

    for (size_t i = 0; i < ND_ARRAY_SIZE(bad); i++) {
        struct nd_rpc_call_options options = {.metadata = &bad[i], .metadata_count = 1};
        outcome_init(&outcome, fixture);
        outcome_start_with(&outcome, fixture->channel, ECHO_PLAIN, "x", &options);
        outcome_wait(&outcome);
        assert_int_equal(outcome.code, 3);
        assert_non_null(strstr(outcome.text, bad[i].key));
        watcher_open_with(&watcher, fixture, ECHO_BIDI, &options);
        watcher_wait(&watcher, &watcher.done, 1);
        assert_int_equal(watcher.code, 3);
    }
    assert_int_equal(fixture_count(fixture, &fixture->held_count), 0);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(admission__later_starts_the_handler_on_the_worker),
        CASE(admission__identity_outlives_the_call_and_no_more),
        CASE(admission__later_may_refuse),
        CASE(admission__may_come_before_authenticate_returns),
        CASE(admission__a_deadline_ends_a_held_call),
        CASE(admission__that_meets_the_end_leaves_nobody_in_the_next_call),
        CASE(admission__a_stop_ends_held_calls),
        CASE(admission__of_a_stream_lets_all_it_was_sent_through),
        CASE(admission__of_a_cancelled_stream_does_nothing),
        CASE(admission__many_at_a_time_end_once_each),
        CASE(error__names_its_reason_and_when_to_come_back),
        CASE(call_metadata__comes_with_its_call_alone),
        CASE(call_metadata__that_is_not_legal_ends_the_call),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
