#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "rpc_fixture.h"
#include "tests/support/nd_rand.h"

enum { PARKED = 1000 };

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

static struct outcome *park(struct fixture *fixture, unsigned count)
{
    struct outcome *outcomes = test_calloc(count, sizeof *outcomes);

    for (unsigned i = 0; i < count; i++) {
        outcome_init(&outcomes[i], fixture);
        outcome_start(&outcomes[i], fixture->channel, ECHO_WATCH, "park", 0, 0);
    }
    fixture_wait(fixture, &fixture->started, count);
    return outcomes;
}

static void stop__ends_parked_calls_after_the_grace(void **state)
{
    struct fixture *fixture = *state;
    struct outcome *outcomes = park(fixture, 50);
    struct watcher watcher;

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    fixture_wait(fixture, &fixture->started, 51);
    fixture_server_stop(fixture, 50);

    assert_int_equal(fixture->cancelled, 51);
    assert_int_equal(fixture->done, 51);
    watcher_wait(&watcher, &watcher.done, 1);
    assert_true(watcher.code != 0);
    for (unsigned i = 0; i < 50; i++) {
        outcome_wait(&outcomes[i]);
        assert_true(outcomes[i].code != 0);
    }
    test_free(outcomes);
}

static void *finish_parked(void *arg)
{
    nd_rpc_call_fail(arg, ND_ERR_UNAVAILABLE, "stopping");
    return NULL;
}

static void stop__waits_for_calls_that_end_in_time(void **state)
{
    struct fixture *fixture = *state;
    struct outcome *outcome = park(fixture, 1);
    pthread_t thread;

    pthread_create(&thread, NULL, finish_parked, fixture->parked);
    fixture_server_stop(fixture, 1000000);
    pthread_join(thread, NULL);
    outcome_wait(outcome);

    assert_int_equal(fixture->cancelled, 0);
    assert_int_equal(outcome->code, 14);
    assert_string_equal(outcome->text, "stopping");
    test_free(outcome);
}

static void stop__of_an_idle_server_needs_no_grace(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
    fixture_server_stop(fixture, 1000000); /* the test's time limit is far below it */
    assert_null(fixture->server);
}

static void server__never_started_can_be_freed(void **state)
{
    struct nd_rpc_server *server = NULL;
    struct nd_rpc_server_options options = {.message_bytes_max = 1000};
    int port = 0;

    (void)state;
    assert_int_equal(nd_rpc_server_new(&server, &options, NULL), ND_OK);
    assert_int_equal(nd_rpc_server_listen(server, "127.0.0.1:0", &port, NULL), ND_OK);
    assert_true(port > 0);
    nd_rpc_server_free(server);
}

static void listen__says_why_it_cannot(void **state)
{
    struct fixture *fixture = *state;
    static const char *const cases[][2] = {
        {NULL, "Address already in use"}, /* the fixture's own port */
        {"no-port", "port is missing"},
        {"unix:/no/such/directory/s", "No such file or directory"},
        {"unix:/no/such/12345678901234567890123456789012345678901234567890123456789012345678901234"
         "567890123456789012345678901234567890",
         "too long"},
    };

    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_rpc_server *server = NULL;
        struct nd_rpc_server_options options = {.message_bytes_max = 1000};
        struct nd_errmsg msg = {.text = ""};
        const char *address = cases[i][0] != NULL ? cases[i][0] : fixture->target;
        assert_int_equal(nd_rpc_server_new(&server, &options, NULL), ND_OK);
        assert_int_not_equal(nd_rpc_server_listen(server, address, NULL, &msg), ND_OK);
        assert_non_null(strstr(msg.text, address));
        if (strstr(msg.text, cases[i][1]) == NULL) {
            fail_msg("%s", msg.text);
        }
        nd_rpc_server_free(server);
    }
}

static void channel__reconnects_after_the_server_came_back(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;

    for (int i = 0; i < 4; i++) {
        do { /* a call may go out before the end of the old connection was seen */
            echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
        } while (i > 0 && outcome.code == 14);
        assert_int_equal(outcome.code, 0);
        fixture_server_stop(fixture, 1000);
        fixture_server_start(fixture);
    }
}

static void on_unavailable(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct outcome *outcome = data;

    assert_null(reply);
    nd_mutex_lock(&outcome->fixture->lock);
    outcome->code = status->code;
    outcome->done = true;
    nd_cond_broadcast(&outcome->fixture->changed);
    nd_mutex_unlock(&outcome->fixture->lock);
}

static void channel__without_waiting_fails_at_once_when_nobody_listens(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;
    Narad__V1__Header request;

    fixture_server_stop(fixture, 0);
    narad__v1__header__init(&request);
    outcome_init(&outcome, fixture);
    nd_rpc_call_unary(fixture->channel, ECHO_PLAIN, &request.base, &narad__v1__header__descriptor,
                      0, false, on_unavailable, &outcome);
    outcome_wait(&outcome);

    assert_int_equal(outcome.code, 14);
}

static void channel__a_vanished_client_cancels_its_calls(void **state)
{
    struct fixture *fixture = *state;
    struct outcome *outcomes = park(fixture, 20);
    struct watcher watcher;

    watcher_open(&watcher, fixture, ECHO_BIDI, 0, false);
    fixture_wait(fixture, &fixture->started, 21);
    nd_rpc_channel_free(fixture->channel);
    fixture->channel = NULL;

    for (unsigned i = 0; i < 20; i++) { /* every on_done ran before free returned */
        assert_int_equal(outcomes[i].code, 1);
    }
    assert_int_equal(watcher.code, 1);
    fixture_wait(fixture, &fixture->cancelled, 21);
    fixture_wait(fixture, &fixture->done, 21);
    test_free(outcomes);
}

static void server__parks_1000_calls_and_answers_others(void **state)
{
    struct fixture *fixture = *state;
    struct outcome *outcomes = park(fixture, PARKED);
    struct outcome outcome;

    echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
    assert_int_equal(outcome.code, 0);
    nd_rpc_channel_free(fixture->channel);
    fixture->channel = NULL;
    fixture_wait(fixture, &fixture->done, PARKED + 1);
    for (unsigned i = 0; i < PARKED; i++) {
        assert_int_equal(outcomes[i].code, 1);
    }
    test_free(outcomes);
}

/* How many more threads the machine has; negative: enough. */
static int threads_left = -1;

bool __real_nd_thread_start(struct nd_thread *thread, const char *name, void (*run)(void *),
                            void *arg);
bool __wrap_nd_thread_start(struct nd_thread *thread, const char *name, void (*run)(void *),
                            void *arg);
bool __wrap_nd_thread_start(struct nd_thread *thread, const char *name, void (*run)(void *),
                            void *arg)
{
    if (threads_left == 0) {
        return false;
    }
    threads_left -= threads_left > 0;
    return __real_nd_thread_start(thread, name, run, arg);
}

static void server__without_a_thread_says_so_and_can_be_freed(void **state)
{
    enum { WORKERS = 3 };
    (void)state;

    for (int started = 0; started < WORKERS; started++) {
        struct nd_rpc_server_options options = {.threads = WORKERS, .message_bytes_max = 1 << 20};
        struct nd_rpc_server *server = NULL;
        struct nd_errmsg msg = {.text = ""};
        char expected[64];
        int port = 0;

        assert_int_equal(nd_rpc_server_new(&server, &options, &msg), ND_OK);
        assert_int_equal(nd_rpc_server_listen(server, "127.0.0.1:0", &port, &msg), ND_OK);
        threads_left = started;
        assert_int_equal(nd_rpc_server_start(server, &msg), ND_ERR_NO_MEMORY);
        threads_left = -1;
        snprintf(expected, sizeof expected, "cannot start the thread net-%d", started);
        assert_string_equal(msg.text, expected);
        nd_rpc_server_stop(server, 1000); /* it never ran: nothing to do */
        nd_rpc_server_free(server);
    }
}

static void server__beyond_calls_max_refuses(void **state)
{
    struct fixture fixture;
    struct outcome outcome;

    (void)state;
    fixture_init_tcp(&fixture);
    fixture_server_stop(&fixture, 0);
    fixture.calls_max = 10;
    fixture_server_start(&fixture);
    struct outcome *outcomes = park(&fixture, 10);
    echo_call(&fixture, ECHO_PLAIN, "x", 1, &outcome);
    assert_int_equal(outcome.code, 8);
    assert_string_equal(outcome.text, "too many calls are open: at most 10 at a time");

    nd_rpc_channel_free(fixture.channel);
    fixture_wait(&fixture, &fixture.done, 10);
    fixture.channel = fixture_channel_new(&fixture, NULL, 0);
    echo_call(&fixture, ECHO_PLAIN, "x", 1, &outcome);
    assert_int_equal(outcome.code, 0);
    test_free(outcomes);
    fixture_release(&fixture);
}

/* Cancel and finish cross on purpose, in every order the machine finds. */
static void call__finish_and_cancel_may_cross(void **state)
{
    struct fixture *fixture = *state;

    for (int i = 0; i < 200; i++) {
        struct outcome outcome;
        pthread_t thread;
        unsigned done = fixture->done, started = fixture->started;
        struct nd_rpc_channel *channel = fixture_channel_new(fixture, NULL, 0);
        outcome_init(&outcome, fixture);
        outcome_start(&outcome, channel, ECHO_WATCH, "park", 0, 0);
        fixture_wait(fixture, &fixture->started, started + 1);
        nd_mutex_lock(&fixture->lock);
        struct nd_rpc_call *call = fixture->parked;
        nd_rpc_call_ref(call);
        nd_mutex_unlock(&fixture->lock);
        pthread_create(&thread, NULL, finish_parked, call);
        nd_rpc_channel_free(channel);
        pthread_join(thread, NULL);
        fixture_wait(fixture, &fixture->done, done + 1);
        assert_true(outcome.code == 14 || outcome.code == 1);
        assert_int_equal(nd_rpc_call_send_bytes(call, nd_slice_str("late"), NULL, NULL), 0);
        nd_rpc_call_unref(call);
    }
}

static int raw_connect(struct fixture *fixture)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((uint16_t)strtoul(strrchr(fixture->target, ':') + 1, NULL, 10));
    char host[64];
    snprintf(host, sizeof host, "%s", fixture->target);
    *strrchr(host, ':') = '\0';
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* A client that opened a connection and then hangs: its pings stay unanswered. */
static void keepalive__drops_a_connection_that_went_silent(void **state)
{
    static const uint8_t settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    struct fixture *fixture = *state;
    struct timeval patience = {.tv_sec = 120};
    uint8_t bytes[512];
    ssize_t got;

    fixture_server_stop(fixture, 0);
    fixture->keepalive_ms = 200;
    fixture_server_start(fixture);
    int fd = raw_connect(fixture);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_true(send(fd, preface, sizeof preface - 1, MSG_NOSIGNAL) > 0);
    assert_true(send(fd, settings, sizeof settings, MSG_NOSIGNAL) > 0);
    do {
        got = recv(fd, bytes, sizeof bytes, 0);
    } while (got > 0);

    assert_true(got == 0 || errno == ECONNRESET);
    close(fd);
}

static void server__survives_bytes_that_are_no_http2(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;
    uint64_t seed = 7;
    uint8_t bytes[4096];

    for (int i = 0; i < 20; i++) {
        int fd = raw_connect(fixture);
        size_t size = 0;
        if (i % 2 == 1) { /* a right preface, then nonsense frames */
            memcpy(bytes, preface, sizeof preface - 1);
            size = sizeof preface - 1;
        }
        for (; size < sizeof bytes; size++) {
            bytes[size] = (uint8_t)nd_rand(&seed);
        }
        assert_true(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0);
        close(fd);
    }
    echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);

    assert_int_equal(outcome.code, 0);
}

static void post_bump(void *data)
{
    struct fixture *fixture = data;

    nd_mutex_lock(&fixture->lock);
    fixture->messages += 1;
    nd_cond_broadcast(&fixture->changed);
    nd_mutex_unlock(&fixture->lock);
}

static void channel__runs_what_is_posted(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned i = 0; i < 1000; i++) {
        nd_rpc_channel_post(fixture->channel, post_bump, fixture);
    }
    fixture_wait(fixture, &fixture->messages, 1000);
    for (unsigned i = 0; i < 100; i++) { /* free runs those that are still there */
        nd_rpc_channel_post(fixture->channel, post_bump, fixture);
    }
    nd_rpc_channel_free(fixture->channel);
    fixture->channel = NULL;
    assert_int_equal(fixture->messages, 1100);
}

struct seen {
    struct fixture *fixture;
    pthread_t thread;
    unsigned posts, calls;
    bool elsewhere; /* a callback on another thread than the first */
};

static void see(struct seen *seen, unsigned *counter)
{
    nd_mutex_lock(&seen->fixture->lock);
    if (seen->posts + seen->calls == 0) {
        seen->thread = pthread_self();
    }
    seen->elsewhere = seen->elsewhere || !pthread_equal(seen->thread, pthread_self());
    *counter += 1;
    nd_cond_broadcast(&seen->fixture->changed);
    nd_mutex_unlock(&seen->fixture->lock);
}

static void see_post(void *data)
{
    struct seen *seen = data;
    see(seen, &seen->posts);
}

static void see_answer(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct seen *seen = data;
    (void)status;
    (void)reply;
    see(seen, &seen->calls);
}

static void channel__of_a_server_runs_on_its_first_worker(void **state)
{
    enum { PARKED_CALLS = 20, POSTS = 50, DELAY_NEVER_MS = 100000000 };
    struct fixture *fixture = *state;
    struct nd_errmsg msg = {.text = ""};
    struct nd_rpc_channel_options options = {.target = fixture->target, .server = fixture->server};
    struct nd_rpc_channel *channel = NULL;
    struct seen seen = {.fixture = fixture};
    char name[] = "park";
    Narad__V1__Header request = NARAD__V1__HEADER__INIT;

    assert_int_equal(nd_rpc_channel_new(&channel, &options, &msg), ND_OK);
    for (unsigned i = 0; i < POSTS; i++) {
        nd_rpc_channel_post(channel, see_post, &seen);
    }
    nd_rpc_channel_post_after(channel, DELAY_NEVER_MS, see_post, &seen);
    request.name = name;
    for (unsigned i = 0; i < PARKED_CALLS; i++) {
        nd_rpc_call_unary(channel, ECHO_WATCH, &request.base, &narad__v1__header__descriptor, 0,
                          true, see_answer, &seen);
    }
    fixture_wait(fixture, &fixture->started, PARKED_CALLS);
    fixture_wait(fixture, &seen.posts, POSTS);
    nd_rpc_channel_free(channel); /* ends all of them, the worker goes on */

    assert_int_equal(seen.posts, POSTS + 1);
    assert_int_equal(seen.calls, PARKED_CALLS);
    assert_false(seen.elsewhere);
    assert_true(pthread_equal(seen.thread, fixture->asked));
    struct outcome outcome;
    echo_call(fixture, ECHO_PLAIN, "still", 1, &outcome);
    assert_int_equal(outcome.code, 0);
}

static void channel__runs_later_not_before_its_time(void **state)
{
    enum { DELAY_MS = 120, NEVER_MS = 100000000 };
    struct fixture *fixture = *state;
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    nd_rpc_channel_post_after(fixture->channel, DELAY_MS, post_bump, fixture);
    fixture_wait(fixture, &fixture->messages, 1);
    clock_gettime(CLOCK_MONOTONIC, &to);
    int64_t passed_ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
    assert_true(passed_ms >= DELAY_MS - 1);

    nd_rpc_channel_post_after(fixture->channel, NEVER_MS, post_bump, fixture);
    nd_rpc_channel_free(fixture->channel); /* does not wait for it: runs it now */
    fixture->channel = NULL;
    assert_int_equal(fixture->messages, 2);
}

static void call__knows_in_on_done_whether_the_client_went(void **state)
{
    struct fixture *fixture = *state;
    struct outcome *parked = park(fixture, 1);
    struct outcome outcome;

    echo_call(fixture, ECHO_WATCH, "x", 1, &outcome);
    fixture_wait(fixture, &fixture->done, 1);
    assert_int_equal(fixture_count(fixture, &fixture->lost), 0);

    nd_rpc_channel_free(fixture->channel);
    fixture->channel = NULL;
    fixture_wait(fixture, &fixture->done, 2);
    assert_int_equal(fixture_count(fixture, &fixture->lost), 1);
    test_free(parked);
}

static void channel__a_bad_target_or_metadata_is_refused(void **state)
{
    struct nd_rpc_channel *channel = NULL;
    struct nd_errmsg msg = {.text = ""};
    struct nd_rpc_metadata metadata = {"Bad Key", "x"};
    struct nd_rpc_channel_options options = {
        .target = "127.0.0.1:1", .metadata = &metadata, .metadata_count = 1};

    (void)state;
    assert_int_equal(nd_rpc_channel_new(&channel, &options, &msg), ND_ERR_INVALID_ARGUMENT);
    options = (struct nd_rpc_channel_options){.target = "unix:"};
    enum nd_err err = nd_rpc_channel_new(&channel, &options, &msg);
    if (err == ND_OK) { /* some targets show only when they are used */
        nd_rpc_channel_free(channel);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(stop__ends_parked_calls_after_the_grace),
        CASE(stop__waits_for_calls_that_end_in_time),
        CASE(stop__of_an_idle_server_needs_no_grace),
        cmocka_unit_test(server__never_started_can_be_freed),
        CASE(listen__says_why_it_cannot),
        CASE(channel__reconnects_after_the_server_came_back),
        CASE(channel__without_waiting_fails_at_once_when_nobody_listens),
        CASE(channel__a_vanished_client_cancels_its_calls),
        CASE(server__parks_1000_calls_and_answers_others),
        cmocka_unit_test(server__without_a_thread_says_so_and_can_be_freed),
        cmocka_unit_test(server__beyond_calls_max_refuses),
        CASE(call__finish_and_cancel_may_cross),
        CASE(keepalive__drops_a_connection_that_went_silent),
        CASE(server__survives_bytes_that_are_no_http2),
        CASE(channel__runs_what_is_posted),
        CASE(channel__of_a_server_runs_on_its_first_worker),
        CASE(channel__runs_later_not_before_its_time),
        CASE(call__knows_in_on_done_whether_the_client_went),
        cmocka_unit_test(channel__a_bad_target_or_metadata_is_refused),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
