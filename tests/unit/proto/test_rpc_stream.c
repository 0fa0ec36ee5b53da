#include <stdio.h>

#include "rpc_fixture.h"

static int setup(void **state)
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
    unsigned started = 0;

    while (started == 0) { /* on a slow machine it may end before the server sees it */
        watcher_open(&watcher, fixture, ECHO_BIDI, 200, false);
        watcher_wait(&watcher, &watcher.done, 1);
        assert_int_equal(watcher.code, 4);
        started = fixture_count(fixture, &fixture->started);
    }
    fixture_wait(fixture, &fixture->cancelled, 1);
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

/* Messages that meet the initial metadata in one batch; no other call and no ping makes the
 * transport write. */
static void start_elsewhere(struct fixture *fixture)
{
    fixture_server_stop(fixture, 0);
    fixture->elsewhere = true;
    fixture->keepalive_ms = 3600000;
    fixture_server_start(fixture);
}

static void server_stream__two_messages_before_the_metadata_are_written(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;

    start_elsewhere(fixture);
    many_open(fixture, &watcher, 2, 100, false);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 0);
    assert_int_equal(watcher.messages, 2);
    assert_true(watcher.in_order);
}

static void bidi__two_messages_before_the_metadata_are_written(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;

    start_elsewhere(fixture);
    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    watcher_wait(&watcher, &watcher.messages, 2);
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 0);
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

static void server_stream__a_sender_that_never_pauses_is_cut(void **state)
{
    enum { SIZE = 1000000, COUNT = 1000 };
    struct fixture *fixture = *state;
    struct watcher watcher;

    fixture->flood = true;
    many_open(fixture, &watcher, COUNT, SIZE, true);
    fixture_wait(fixture, &fixture->cancelled, 1);
    fixture_wait(fixture, &fixture->done, 1);
    nd_rpc_channel_free(fixture->channel); /* what the client never read goes with it */
    fixture->channel = NULL;

    assert_int_equal(watcher.done, 1);
    assert_true(watcher.code != 0);
    assert_true(fixture->queued_max <= 64u << 20);
    assert_true(fixture->many_sent < COUNT);
}

enum { SENDERS = 4, SENDS = 500 };

struct sender {
    struct nd_rpc_call *call; /* one of both */
    struct nd_rpc_stream *stream;
};

static void *send_many(void *arg)
{
    struct sender *sender = arg;
    Narad__V1__Header message;
    char name[] = "x";

    narad__v1__header__init(&message);
    message.name = name;
    for (int i = 0; i < SENDS; i++) {
        if (sender->call != NULL) {
            nd_rpc_call_send(sender->call, &message.base);
        } else {
            nd_rpc_stream_send(sender->stream, &message.base);
        }
    }
    return NULL;
}

static void send_from_threads(struct sender *sender)
{
    pthread_t threads[SENDERS];

    for (int i = 0; i < SENDERS; i++) {
        pthread_create(&threads[i], NULL, send_many, sender);
    }
    for (int i = 0; i < SENDERS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Client threads send, the server echoes, server threads send on the same call: nothing is lost. */
static void bidi__many_threads_may_send_on_one_call(void **state)
{
    struct fixture *fixture = *state;
    struct watcher watcher;

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    fixture_wait(fixture, &fixture->started, 1);
    struct sender client = {.stream = watcher.stream}, server = {.call = fixture->last_bidi};
    send_from_threads(&client);
    send_from_threads(&server);
    watcher_wait(&watcher, &watcher.messages, 2 * SENDERS * SENDS);
    nd_rpc_stream_half_close(watcher.stream);
    watcher_wait(&watcher, &watcher.done, 1);

    assert_int_equal(watcher.code, 0);
    assert_int_equal(watcher.messages, 2 * SENDERS * SENDS);
}

static void server__two_workers_share_the_calls(void **state)
{
    enum { STREAMS = 8, COUNT = 200 };
    struct fixture *fixture = *state;
    struct watcher watchers[STREAMS];

    fixture_server_stop(fixture, 0);
    fixture->threads = 2;
    fixture_server_start(fixture);
    for (int s = 0; s < STREAMS; s++) {
        watcher_open(&watchers[s], fixture, ECHO_BIDI, 0, false);
    }
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        for (int s = 0; s < STREAMS; s++) {
            watcher_send(&watchers[s], name, 50);
        }
    }
    for (int s = 0; s < STREAMS; s++) {
        nd_rpc_stream_half_close(watchers[s].stream);
        watcher_wait(&watchers[s], &watchers[s].done, 1);
        assert_int_equal(watchers[s].messages, COUNT);
        assert_true(watchers[s].in_order);
        assert_int_equal(watchers[s].code, 0);
    }
}

int main(int argc, char **argv)
{
    fixture_arguments(argc, argv);
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
        CASE(server_stream__two_messages_before_the_metadata_are_written),
        CASE(bidi__two_messages_before_the_metadata_are_written),
        CASE(server_stream__slow_reader_holds_the_sender),
        CASE(server_stream__cancel_while_the_queue_is_full_ends_it),
        CASE(server_stream__a_sender_that_never_pauses_is_cut),
        CASE(bidi__many_threads_may_send_on_one_call),
        CASE(server__two_workers_share_the_calls),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
