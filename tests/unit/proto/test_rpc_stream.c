#include <stdio.h>

#include "rpc_fixture.h"

static int setup(void **state)
{
    static struct fixture fixture;

    fixture_init(&fixture, "127.0.0.1:0");
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_release(*state);
    return 0;
}

static void bidi__5000_messages_come_back_in_order(void **state)
{
    enum { COUNT = 5000 };
    struct fixture *fixture = *state;
    struct watcher watcher;

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_true(watcher_send(&watcher, name, 100) >= 100);
    }
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 0);
    assert_int_equal(watcher.messages, COUNT);
    assert_true(watcher.in_order);
    assert_true(watcher.drained >= 1);
    assert_int_equal(fixture->half_closed, 1);
    assert_int_equal(fixture->cancelled, 0);
    fixture_wait(fixture, &fixture->done, 1);
}

static void bidi__half_close_alone_ends_it(void **state)
{
    struct watcher watcher;

    watcher_open(&watcher, *state, ECHO_BIDI, 0, false);
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 0);
    assert_int_equal(watcher.messages, 0);
}

static void bidi__cancel_reaches_the_server(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    fixture_wait(fixture, &fixture->started, 1);
    nd_rpc_stream_cancel(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);
    fixture_wait(fixture, &fixture->cancelled, 1);
    fixture_wait(fixture, &fixture->done, 1);

    assert_int_equal(watcher.code, 1);
}

static void bidi__deadline_ends_it_on_both_sides(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;

    watcher_open(&watcher, fixture, ECHO_BIDI, 150, false);
    watcher_wait(&watcher, &watcher.done, 1);
    fixture_wait(fixture, &fixture->cancelled, 1);

    assert_int_equal(watcher.code, 4);
    fixture_wait(fixture, &fixture->done, 1);
}

static void bidi__garbage_ends_it_with_invalid_argument(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;
    static const uint8_t garbage[] = {0x12, 0x7f, 0x01};

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    watcher_send(&watcher, "0", 1);
    nd_rpc_stream_send_bytes(watcher.stream, nd_slice_make(garbage, sizeof garbage));
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 3);
    assert_int_equal(watcher.messages, 1);
    fixture_wait(fixture, &fixture->done, 1);
}

static void bidi__a_message_above_the_limit_ends_it(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    watcher_send(&watcher, "0", FIXTURE_MESSAGE_MAX);
    watcher_wait(&watcher, &watcher.done, 1);
    assert_int_equal(watcher.code, 8);

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    watcher_send(&watcher, "0", FIXTURE_SERVER_MESSAGE_MAX);
    watcher_wait(&watcher, &watcher.done, 1);
    assert_int_equal(watcher.code, 8);
    fixture_wait(fixture, &fixture->done, 2);
    assert_int_equal(fixture->messages, 0);
}

static void bidi__sends_after_the_end_are_ignored(void **state)
{
    struct watcher watcher;

    watcher_open(&watcher, *state, ECHO_BIDI, 0, false);
    nd_rpc_stream_ref(watcher.stream);
    nd_rpc_stream_half_close(watcher.stream);

    assert_int_equal(watcher_send(&watcher, "late", 10), 0);
    watcher_wait(&watcher, &watcher.done, 1);
    assert_int_equal(watcher_send(&watcher, "later", 10), 0);
    nd_rpc_stream_unref(watcher.stream);
    assert_int_equal(watcher.messages, 0);
}

static void manual_read__takes_one_message_for_each_permission(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;
    struct outcome outcome;

    watcher_open(&watcher, fixture, ECHO_MANUAL, 0, false);
    watcher_send(&watcher, "0", 1);
    watcher_send(&watcher, "1", 1);
    fixture_wait(fixture, &fixture->messages, 1);
    for (int i = 0; i < 20; i++) { /* the worker had every chance to read on */
        echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
    }
    assert_int_equal(fixture->messages, 1);

    nd_rpc_call_read_next(fixture->manual);
    watcher_wait(&watcher, &watcher.messages, 2);
    nd_rpc_call_read_next(fixture->manual);
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);
    assert_int_equal(watcher.code, 0);
}

static void client_stream__is_answered_once_at_the_end(void **state)
{
    struct watcher watcher;

    watcher_open(&watcher, *state, ECHO_SUM, 0, false);
    for (int i = 0; i < 300; i++) {
        watcher_send(&watcher, "x", 10);
    }
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 0);
    assert_int_equal(watcher.messages, 1);
    assert_string_equal(watcher.last, "300");
}

static void many_open(struct fixture *fixture, struct watcher *watcher, unsigned count, size_t size,
                      bool manual_read)
{
    fixture->many = count;
    watcher_open(watcher, fixture, ECHO_MANY, 0, manual_read);
    watcher_send(watcher, "go", size);
    nd_rpc_stream_half_close(watcher->stream);
}

static void server_stream__delivers_all_in_order(void **state)
{
    struct watcher watcher;

    many_open(*state, &watcher, 3000, 100, false);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 0);
    assert_int_equal(watcher.messages, 3000);
    assert_true(watcher.in_order);
}

static void server_stream__slow_reader_holds_the_sender(void **state)
{
    enum { COUNT = 10000, SIZE = 4096, BYTES_HELD_MAX = 12 << 20 };
    struct fixture *fixture = *state;
    struct watcher watcher;
    struct outcome outcome;

    many_open(fixture, &watcher, COUNT, SIZE, true);
    watcher_wait(&watcher, &watcher.messages, 1);
    for (int i = 0; i < 50; i++) { /* the server had every chance to send on */
        echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
    }
    nd_mutex_lock(&fixture->lock);
    uint64_t sent = fixture->many_sent;
    nd_mutex_unlock(&fixture->lock);
    assert_true(sent * SIZE < BYTES_HELD_MAX);

    nd_rpc_stream_ref(watcher.stream); /* it may end as soon as the last message was read */
    for (unsigned i = 1; i < COUNT; i++) {
        nd_rpc_stream_read_next(watcher.stream);
        watcher_wait(&watcher, &watcher.messages, i + 1);
    }
    nd_rpc_stream_read_next(watcher.stream);
    nd_rpc_stream_unref(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);
    assert_int_equal(watcher.code, 0);
    assert_true(watcher.in_order);
    assert_true(fixture->queued_max < (1 << 20) + 2 * SIZE);
    assert_true(fixture->drained > 0);
}

static void server_stream__cancel_while_the_queue_is_full_ends_it(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;

    many_open(fixture, &watcher, 100000, 4096, true);
    watcher_wait(&watcher, &watcher.messages, 1);
    nd_rpc_stream_cancel(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);
    fixture_wait(fixture, &fixture->cancelled, 1);
    fixture_wait(fixture, &fixture->done, 1);

    assert_int_equal(watcher.code, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(bidi__5000_messages_come_back_in_order),
        CASE(bidi__half_close_alone_ends_it),
        CASE(bidi__cancel_reaches_the_server),
        CASE(bidi__deadline_ends_it_on_both_sides),
        CASE(bidi__garbage_ends_it_with_invalid_argument),
        CASE(bidi__a_message_above_the_limit_ends_it),
        CASE(bidi__sends_after_the_end_are_ignored),
        CASE(manual_read__takes_one_message_for_each_permission),
        CASE(client_stream__is_answered_once_at_the_end),
        CASE(server_stream__delivers_all_in_order),
        CASE(server_stream__slow_reader_holds_the_sender),
        CASE(server_stream__cancel_while_the_queue_is_full_ends_it),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
