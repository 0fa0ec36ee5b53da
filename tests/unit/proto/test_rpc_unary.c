#include <stdio.h>

#include "rpc_fixture.h"
#include "tests/support/temp_dir.h"

static int setup_tcp(void **state)
{
    static struct fixture fixture;

    fixture_init_tcp(&fixture);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_release(*state);
    return 0;
}

static void unary__echoes(void **state)
{
    struct outcome outcome;

    echo_call(*state, ECHO_PLAIN, "hello", 256, &outcome);

    assert_int_equal(outcome.code, 0);
    assert_string_equal(outcome.name, "hello");
    assert_int_equal(outcome.value_size, 256);
}

static void unary__echoes_over_a_unix_socket(void **state)
{
    struct fixture fixture;
    struct outcome outcome;
    char *dir = temp_dir_new(), address[64];

    (void)state;
    snprintf(address, sizeof address, "unix:%s/s", dir);
    fixture_init(&fixture, address);
    echo_call(&fixture, ECHO_PLAIN, "hello", 1, &outcome);
    assert_int_equal(outcome.code, 0);
    assert_string_equal(outcome.name, "hello");
    fixture_release(&fixture);
    temp_dir_remove(dir);
}

static void unary__may_be_answered_from_another_thread(void **state)
{
    struct outcome outcome;

    for (int i = 0; i < 200; i++) {
        echo_call(*state, i % 2 ? ECHO_WATCH : ECHO_PLAIN, "later", 0, &outcome);
        assert_int_equal(outcome.code, 0);
        assert_string_equal(outcome.name, "later");
    }
}

/* More than are answered one by one: the worker is woken and sends for the other threads. */
static void unary__many_may_be_answered_from_other_threads(void **state)
{
    enum { CALLS = 32 };
    struct fixture *fixture = *state;
    struct outcome outcomes[CALLS];

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < CALLS; i++) {
            outcome_init(&outcomes[i], fixture);
            outcome_start(&outcomes[i], fixture->channel, i % 4 ? ECHO_PLAIN : ECHO_WATCH, "later",
                          (size_t)i, 0);
        }
        for (int i = 0; i < CALLS; i++) {
            outcome_wait(&outcomes[i]);
            assert_int_equal(outcomes[i].code, 0);
            assert_string_equal(outcomes[i].name, "later");
        }
    }
    fixture_wait(fixture, &fixture->done, 20 * CALLS); /* each call ended, once */
    assert_int_equal(fixture_count(fixture, &fixture->done), 20 * CALLS);
}

static void unary__carries_status_and_text(void **state)
{
    struct outcome outcome;

    echo_call(*state, ECHO_PLAIN, "fail", 0, &outcome);

    assert_int_equal(outcome.code, 5);
    assert_string_equal(outcome.text, "no such topic: fail");
}

static void unary__deadline_ends_it_and_the_server_sees_it(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;
    unsigned started = 0;

    while (started == 0) { /* on a slow machine it may end before the server sees it */
        outcome_init(&outcome, fixture);
        outcome_start(&outcome, fixture->channel, ECHO_WATCH, "park", 0, 100);
        outcome_wait(&outcome);
        assert_int_equal(outcome.code, 4);
        started = fixture_count(fixture, &fixture->started);
    }
    fixture_wait(fixture, &fixture->cancelled, 1);
    fixture_wait(fixture, &fixture->done, 1);
    assert_true(fixture->deadline_left_ms <= 100);
}

static void unary__without_deadline_has_no_deadline(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    outcome_init(&outcome, fixture);
    outcome_start(&outcome, fixture->channel, ECHO_PLAIN, "x", 0, 0);
    outcome_wait(&outcome);

    assert_true(fixture->deadline_left_ms == UINT64_MAX);
    assert_int_equal(strncmp(fixture->peer, "ipv4:127.0.0.1:", 15), 0);
}

static void unary__above_the_method_limit_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    echo_call(fixture, ECHO_PLAIN, "x", FIXTURE_MESSAGE_MAX, &outcome);

    assert_int_equal(outcome.code, 8);
    assert_non_null(strstr(outcome.text, "at most 1048576"));
    assert_int_equal(fixture->started, 0);
}

static void unary__above_the_server_limit_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    echo_call(fixture, ECHO_PLAIN, "x", FIXTURE_SERVER_MESSAGE_MAX + 100, &outcome);
    assert_int_equal(outcome.code, 8);
    assert_int_equal(fixture->started, 0);

    echo_call(fixture, ECHO_PLAIN, "x", 1000, &outcome);
    assert_int_equal(outcome.code, 0); /* the connection lives on */
}

static void unary__just_below_the_limit_passes(void **state)
{
    struct outcome outcome;

    echo_call(*state, ECHO_PLAIN, "x", FIXTURE_MESSAGE_MAX - 16, &outcome);

    assert_int_equal(outcome.code, 0);
    assert_int_equal(outcome.value_size, FIXTURE_MESSAGE_MAX - 16);
}

static void unary__unknown_method_is_unimplemented(void **state)
{
    struct outcome outcome;

    for (int i = 0; i < 5; i++) {
        echo_call(*state, "/test.Echo/Nope", "x", 0, &outcome);
        assert_int_equal(outcome.code, 12);
        assert_string_equal(outcome.text, "unknown method /test.Echo/Nope");
    }
}

static void unary__garbage_is_an_invalid_argument(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;
    static const uint8_t garbage[] = {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x00};

    watcher_open(&watcher, fixture, ECHO_PLAIN, 60000, false);
    nd_rpc_stream_send_bytes(watcher.stream, nd_slice_make(garbage, sizeof garbage));
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 3);
    assert_string_equal(watcher.text, "not a Header");
}

static void unary__without_a_message_is_an_invalid_argument(void **state)
{
    struct watcher watcher;

    watcher_open(&watcher, *state, ECHO_PLAIN, 60000, false);
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 3);
}

static void unary__many_at_once_are_all_answered(void **state)
{
    enum { COUNT = 2000 };
    struct fixture *fixture = *state;
    struct outcome *outcomes = test_calloc(COUNT, sizeof *outcomes);

    for (int i = 0; i < COUNT; i++) {
        outcome_init(&outcomes[i], fixture);
        outcome_start(&outcomes[i], fixture->channel, ECHO_PLAIN, "x", 10, 0);
    }
    for (int i = 0; i < COUNT; i++) {
        outcome_wait(&outcomes[i]);
        assert_int_equal(outcomes[i].code, 0);
    }
    fixture_wait(fixture, &fixture->done, COUNT);
    test_free(outcomes);
}

int main(int argc, char **argv)
{
    fixture_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(unary__echoes, setup_tcp, teardown),
        cmocka_unit_test(unary__echoes_over_a_unix_socket),
        cmocka_unit_test_setup_teardown(unary__may_be_answered_from_another_thread, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(unary__many_may_be_answered_from_other_threads, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(unary__carries_status_and_text, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(unary__deadline_ends_it_and_the_server_sees_it, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(unary__without_deadline_has_no_deadline, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(unary__above_the_method_limit_is_refused, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(unary__above_the_server_limit_is_refused, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(unary__just_below_the_limit_passes, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(unary__unknown_method_is_unimplemented, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(unary__garbage_is_an_invalid_argument, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(unary__without_a_message_is_an_invalid_argument, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(unary__many_at_once_are_all_answered, setup_tcp, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
