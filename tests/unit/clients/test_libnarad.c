/* libnarad against a broker that breaks off, refuses and comes back. */
#include <narad/client.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "clients/c/src/internal.h"
#include "tests/support/nd_test.h"
#include "tests/unit/clients/fake_broker.h"

enum { PATIENCE_MS = 120000 };

/* Outcomes by code; written on the client's thread. */
struct outcomes {
    _Atomic uint32_t ok, unavailable, cancelled, stale, invalid, other;
    _Atomic uint64_t last_offset;
    _Atomic bool in_order;
};

struct session {
    struct outcomes settles;
    struct nd_mutex lock;
    struct nd_cond changed;
    uint32_t received, ended;
    int end_code;
};

/* Here and not on the stack of a case, so that tear_down can end what a failed case leaves. */
static struct fake_broker broker;
static struct narad_client *client;
static struct outcomes outcomes;
static struct session session;
static struct nd_thread blocked;

static int set_up(void **state)
{
    (void)state;
    fake_broker_init(&broker);
    outcomes = (struct outcomes){.in_order = true};
    session = (struct session){0};
    nd_mutex_init(&session.lock);
    nd_cond_init(&session.changed);
    return 0;
}

static void client_free(void)
{
    narad_client_free(client);
    client = NULL;
}

static int tear_down(void **state)
{
    (void)state;
    fake_broker_confirm_held(&broker); /* or a producer of a failed case stays blocked */
    nd_thread_join(&blocked);
    client_free();
    fake_broker_release(&broker);
    nd_cond_release(&session.changed);
    nd_mutex_release(&session.lock);
    return 0;
}

static void client_new(struct narad_options options)
{
    options.server = broker.address;
    options.connect_timeout_ms =
        options.connect_timeout_ms ? options.connect_timeout_ms : PATIENCE_MS;
    assert_int_equal(narad_client_new(&client, &options, NULL), NARAD_OK);
}

static void outcome_count(struct outcomes *counts, int code)
{
    switch (code) {
    case NARAD_OK: counts->ok += 1; break;
    case NARAD_UNAVAILABLE: counts->unavailable += 1; break;
    case NARAD_CANCELLED: counts->cancelled += 1; break;
    case NARAD_FAILED_PRECONDITION: counts->stale += 1; break;
    case NARAD_INVALID_ARGUMENT: counts->invalid += 1; break;
    default: counts->other += 1; break;
    }
}

static uint32_t outcome_total(const struct outcomes *o)
{
    return o->ok + o->unavailable + o->cancelled + o->stale + o->invalid + o->other;
}

static void on_produced(void *data, int code, const char *text,
                        Narad__V1__Placement *const *placements, size_t placements_count)
{
    struct outcomes *counts = data;

    (void)text;
    outcome_count(counts, code);
    if (placements_count == 1) {
        if (placements[0]->offset <= counts->last_offset) {
            counts->in_order = false;
        }
        counts->last_offset = placements[0]->offset;
    }
}

static int produce(const char *payload)
{
    Narad__V1__Record record = NARAD__V1__RECORD__INIT;
    Narad__V1__Record *records[] = {&record};

    record.payload.data = (uint8_t *)(uintptr_t)payload;
    record.payload.len = strlen(payload);
    return narad_produce_async(client, "topic", records, 1, on_produced, &outcomes);
}

static void produce__confirms_each_in_order_and_gathers(void **state)
{
    (void)state;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    for (int i = 0; i < 5000; i++) {
        assert_int_equal(produce("payload"), NARAD_OK);
    }
    assert_true(narad_flush(client, PATIENCE_MS));

    assert_int_equal(outcomes.ok, 5000);
    assert_true(outcomes.in_order);
    assert_int_equal(fake_broker_count(&broker, &broker.streams), 1);
    assert_true(fake_broker_count(&broker, &broker.messages_of_stream) <
                5000); /* natural batching happened */
    assert_string_equal(broker.last_topic, "topic");
    client_free();
}

static void produce__one_refused_item_leaves_the_others(void **state)
{
    (void)state;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    produce("good");
    produce("odd");
    produce("good");
    assert_true(narad_flush(client, PATIENCE_MS));

    assert_int_equal(outcomes.ok, 2);
    assert_int_equal(outcomes.invalid, 1);
    assert_int_equal(fake_broker_count(&broker, &broker.streams), 1);
    client_free();
}

static void produce__a_broken_stream_reports_what_it_does_not_know(void **state)
{
    (void)state;
    broker.hold = true;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    for (int i = 0; i < 10; i++) {
        produce("payload");
    }
    fake_broker_wait(&broker, &broker.items, 10);
    fake_broker_stop(&broker);
    broker.hold = false;
    fake_broker_start(&broker);
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(outcomes.unavailable, 10);
    produce("payload");
    assert_true(narad_flush(client, PATIENCE_MS));

    assert_int_equal(outcomes.ok, 1);
    assert_int_equal(outcome_total(&outcomes), 11);
    client_free();
}

static void produce__resends_when_asked_to(void **state)
{
    (void)state;
    broker.break_after = 40;
    fake_broker_start(&broker);
    client_new((struct narad_options){.resend_unconfirmed = true});

    for (int i = 0; i < 100; i++) {
        produce("payload");
    }
    assert_true(narad_flush(client, PATIENCE_MS));

    assert_int_equal(outcomes.ok, 100);
    assert_int_equal(outcome_total(&outcomes), 100);
    assert_true(outcomes.in_order);
    assert_int_equal(fake_broker_count(&broker, &broker.streams), 2);
    client_free();
}

static void produce__waits_for_a_server_and_then_gives_up(void **state)
{
    (void)state;
    client_new((struct narad_options){.connect_timeout_ms = 300});

    produce("payload");
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(outcomes.unavailable, 1);
    client_free();

    client_new((struct narad_options){0});
    produce("payload");
    fake_broker_start(&broker);
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(outcomes.ok, 1);
    client_free();
}

static void produce__a_refused_stream_ends_what_waits(void **state)
{
    (void)state;
    broker.refuse_code = NARAD_UNAUTHENTICATED;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    produce("payload");
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(outcomes.other, 1);
    client_free();
}

static void free__reports_what_is_open_as_cancelled(void **state)
{
    (void)state;
    broker.hold = true;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    for (int i = 0; i < 10; i++) {
        produce("payload");
    }
    fake_broker_wait(&broker, &broker.items, 10);
    assert_false(narad_flush(client, 1));
    client_free();

    assert_int_equal(outcomes.cancelled, 10);
    assert_int_equal(outcome_total(&outcomes), 10);
}

/* *confirmed: how many had their outcome when it was taken. */
static void produce_one_more(void *confirmed)
{
    produce("payload");
    *(uint32_t *)confirmed = outcomes.ok;
}

static void produce__blocks_at_its_limit(void **state)
{
    (void)state;
    static uint32_t confirmed_before = 0;
    broker.hold = true;
    fake_broker_start(&broker);
    client_new((struct narad_options){.in_flight_max = 3});

    for (int i = 0; i < 3; i++) {
        produce("payload");
    }
    fake_broker_wait(&broker, &broker.items, 3);
    assert_true(nd_thread_start(&blocked, "one-more", produce_one_more, &confirmed_before));
    assert_false(narad_flush(client, 1)); /* the three are held */
    assert_int_equal(fake_broker_count(&broker, &broker.items), 3);
    fake_broker_confirm_held(&broker); /* three get their outcome, the fourth goes out */
    nd_thread_join(&blocked);
    assert_true(confirmed_before >= 1);
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(outcomes.ok, 4);
    assert_int_equal(fake_broker_count(&broker, &broker.items), 4);
    assert_int_equal(fake_broker_count(&broker, &broker.streams), 1);
    client_free();
}

static void on_settled(void *data, int code, const char *text)
{
    (void)text;
    outcome_count(data, code);
}

static void settle__gathers_into_few_calls(void **state)
{
    (void)state;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    for (int i = 0; i < 3000; i++) {
        assert_int_equal(narad_settle_async(client, "topic", "0:1:2", 0, on_settled, &outcomes),
                         NARAD_OK);
    }
    assert_true(narad_flush(client, PATIENCE_MS));

    assert_int_equal(outcomes.ok, 3000);
    assert_int_equal(fake_broker_count(&broker, &broker.settles), 3000);
    assert_true(fake_broker_count(&broker, &broker.acks) < 1500);
    client_free();
}

/* A program that works through topics that come and go. */
static void settle__keeps_nothing_of_topics_that_are_done(void **state)
{
    (void)state;
    char topic[32];
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    for (int i = 0; i < 20; i++) {
        snprintf(topic, sizeof topic, "topic-%d", i);
        assert_int_equal(narad_settle_async(client, topic, "0:1:2", 0, on_settled, &outcomes),
                         NARAD_OK);
    }
    assert_true(narad_flush(client, PATIENCE_MS));

    assert_int_equal(outcomes.ok, 20);
    nd_mutex_lock(&client->lock);
    bool empty = nd_list_empty(&client->settlers);
    nd_mutex_unlock(&client->lock);
    assert_true(empty);
    client_free();
}

static void settle_one_more(void *arg)
{
    (void)arg;
    narad_settle_async(client, "topic", "0:1:9", 0, on_settled, &outcomes);
}

static void settle__blocks_at_its_limit(void **state)
{
    (void)state;
    broker.hold_acks = true;
    fake_broker_start(&broker);
    client_new((struct narad_options){.in_flight_max = 3});

    for (int i = 0; i < 3; i++) {
        assert_int_equal(narad_settle_async(client, "topic", "0:1:2", 0, on_settled, &outcomes),
                         NARAD_OK);
    }
    fake_broker_wait(&broker, &broker.acks, 1);
    assert_true(nd_thread_start(&blocked, "one-more", settle_one_more, NULL));
    assert_false(narad_flush(client, 1)); /* they are held */
    assert_int_equal(outcome_total(&outcomes), 0);
    fake_broker_confirm_held(&broker);
    nd_thread_join(&blocked);
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(outcomes.ok, 4);
    assert_int_equal(fake_broker_count(&broker, &broker.settles), 4);
    client_free();
}

struct chain {
    _Atomic int first, second;
};

/* Two more from the client's own thread, where the limit cannot be waited for: the one under way
 * counts until this callback returns. */
static void on_settled_go_on(void *data, int code, const char *text)
{
    struct chain *chain = data;

    (void)text;
    assert_int_equal(code, NARAD_OK);
    chain->first = narad_settle_async(client, "topic", "0:1:3", 0, on_settled, &outcomes);
    chain->second = narad_settle_async(client, "topic", "0:1:4", 0, on_settled, &outcomes);
}

static void settle__at_its_limit_is_refused_inside_a_callback(void **state)
{
    static struct chain chain;

    (void)state;
    fake_broker_start(&broker);
    client_new((struct narad_options){.in_flight_max = 2});

    assert_int_equal(narad_settle_async(client, "topic", "0:1:2", 0, on_settled_go_on, &chain),
                     NARAD_OK);
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(chain.first, NARAD_OK);
    assert_int_equal(chain.second, NARAD_RESOURCE_EXHAUSTED);
    assert_int_equal(outcomes.ok, 1);
    client_free();
}

/* --- subscriptions --- */

static void session_signal(uint32_t *counter)
{
    nd_mutex_lock(&session.lock);
    *counter += 1;
    nd_cond_broadcast(&session.changed);
    nd_mutex_unlock(&session.lock);
}

static void session_wait(const uint32_t *counter, uint32_t value)
{
    nd_mutex_lock(&session.lock);
    while (*counter < value) {
        nd_cond_wait(&session.changed, &session.lock);
    }
    nd_mutex_unlock(&session.lock);
}

static void on_message(void *data, struct narad_subscription *subscription,
                       const Narad__V1__Message *message)
{
    (void)data;
    narad_subscription_settle(subscription, message->receipt_handle, 0, on_settled,
                              &session.settles);
    session_signal(&session.received);
}

static void on_ended(void *data, int code, const char *text)
{
    (void)data;
    (void)text;
    session.end_code = code;
    session_signal(&session.ended);
}

static struct narad_subscription *subscribe(void)
{
    struct narad_subscription *subscription = NULL;
    struct narad_subscription_options options = {
        .topic = "topic", .partition = -1, .message = on_message, .ended = on_ended};

    assert_int_equal(narad_subscribe(client, &options, &subscription, NULL), NARAD_OK);
    return subscription;
}

static void subscribe__settles_get_results_and_close_ends_it(void **state)
{
    (void)state;
    broker.deliver = 100;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    struct narad_subscription *subscription = subscribe();
    session_wait(&session.received, 100);
    narad_subscription_close(subscription);
    session_wait(&session.ended, 1);

    assert_int_equal(session.end_code, NARAD_OK);
    assert_int_equal(session.settles.ok, 100);
    assert_int_equal(fake_broker_count(&broker, &broker.settles), 100);
    client_free();
}

static void subscribe__starts_again_after_a_lost_connection(void **state)
{
    (void)state;
    broker.deliver = 10;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    struct narad_subscription *subscription = subscribe();
    session_wait(&session.received, 10);
    fake_broker_stop(&broker);
    fake_broker_start(&broker);
    session_wait(&session.received, 20);
    narad_subscription_close(subscription);
    session_wait(&session.ended, 1);

    assert_int_equal(fake_broker_count(&broker, &broker.streams), 2);
    assert_int_equal(outcome_total(&session.settles), 20);
    client_free();
}

static void subscribe__settles_under_way_are_unknown_when_it_breaks(void **state)
{
    (void)state;
    broker.deliver = 1;
    broker.break_after = 1;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    struct narad_subscription *subscription = subscribe();
    session_wait(&session.received, 2);
    narad_subscription_close(subscription);
    session_wait(&session.ended, 1);

    assert_int_equal(session.settles.unavailable, 1);
    assert_int_equal(session.settles.ok, 1);
    client_free();
}

static void subscribe__ends_with_the_client(void **state)
{
    (void)state;
    broker.deliver = 5;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    subscribe();
    session_wait(&session.received, 5);
    client_free();

    assert_int_equal(session.ended, 1);
    assert_int_equal(session.end_code, NARAD_CANCELLED);
    assert_int_equal(outcome_total(&session.settles), 5);
}

/* Its settle has failed, so it tries again, once. */
static void on_settle_failed(void *data, int code, const char *text)
{
    (void)text;
    outcome_count(&session.settles, code);
    if (code == NARAD_UNAVAILABLE) {
        narad_subscription_settle(data, "0:0:77", 0, on_settled, &session.settles);
    }
}

static void on_message_settle_twice(void *data, struct narad_subscription *subscription,
                                    const Narad__V1__Message *message)
{
    (void)data;
    narad_subscription_settle(subscription, message->receipt_handle, 0, on_settle_failed,
                              subscription);
    session_signal(&session.received);
}

static void subscribe__a_settle_while_it_ends_has_an_outcome(void **state)
{
    struct narad_subscription *subscription = NULL;
    struct narad_subscription_options options = {
        .topic = "topic", .partition = -1, .message = on_message_settle_twice, .ended = on_ended};

    (void)state;
    broker.deliver = 1;
    broker.break_after = 1;
    broker.break_code = NARAD_NOT_FOUND;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    assert_int_equal(narad_subscribe(client, &options, &subscription, NULL), NARAD_OK);
    session_wait(&session.ended, 1);
    client_free();

    assert_int_equal(session.end_code, NARAD_NOT_FOUND);
    assert_int_equal(session.settles.unavailable, 1);
    assert_int_equal(session.settles.other, 1);
    assert_int_equal(session.ended, 1);
    assert_int_equal(fake_broker_count(&broker, &broker.streams), 1);
}

static void settle_again(void *data, int code, const char *text)
{
    (void)text;
    outcome_count(&session.settles, code);
    if (code == NARAD_UNAVAILABLE) {
        narad_subscription_settle(data, "0:0:77", 0, settle_again, data);
    }
}

/* Each stream takes the start, so it was a connection, and breaks with the settle behind it. */
static void subscribe__gives_up_on_a_server_that_only_refuses(void **state)
{
    (void)state;
    broker.refuse_code = NARAD_UNAVAILABLE;
    fake_broker_start(&broker);
    client_new((struct narad_options){.connect_timeout_ms = 300});

    struct narad_subscription *subscription = subscribe();
    narad_subscription_settle(subscription, "0:0:77", 0, settle_again, subscription);
    session_wait(&session.ended, 1);

    assert_int_equal(session.end_code, NARAD_UNAVAILABLE);
    assert_int_equal(session.settles.cancelled, 1);
    client_free();
}

/* --- blocking calls --- */

static int version(struct narad_error *error)
{
    Narad__V1__VersionRequest request = NARAD__V1__VERSION_REQUEST__INIT;
    Narad__V1__VersionResponse *response = NULL;
    int code = narad_version(client, &request, &response, error);

    if (code == NARAD_OK) {
        assert_string_equal(response->version, "9.9.9");
    }
    narad_response_free(response);
    return code;
}

static void call__takes_the_largest_answer_of_a_node(void **state)
{
    (void)state;
    Narad__V1__MetricsRequest request = NARAD__V1__METRICS_REQUEST__INIT;
    Narad__V1__MetricsResponse *response = NULL;
    struct narad_error error;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    int code = narad_metrics(client, &request, &response, &error);
    if (code != NARAD_OK) {
        fail_msg("%s", error.text);
    }

    assert_int_equal(strlen(response->text), FAKE_BROKER_METRICS_BYTES);
    narad_response_free(response);
    client_free();
}

static void call__answers_or_says_that_nobody_is_there(void **state)
{
    (void)state;
    struct narad_error error;
    client_new((struct narad_options){.connect_timeout_ms = 200});

    assert_int_equal(version(&error), NARAD_UNAVAILABLE);
    assert_true(strlen(error.text) > 0);
    fake_broker_start(&broker);
    client_free();
    client_new((struct narad_options){0});
    assert_int_equal(version(&error), NARAD_OK);
    fake_broker_stop(&broker);
    fake_broker_start(&broker);
    int code;
    while ((code = version(&error)) == NARAD_UNAVAILABLE) {
        /* it went out before the end of the old connection was seen */
    }
    assert_int_equal(code, NARAD_OK);
    client_free();
}

static void call__an_unknown_method_is_unimplemented(void **state)
{
    (void)state;
    Narad__V1__ListTopicsRequest request = NARAD__V1__LIST_TOPICS_REQUEST__INIT;
    Narad__V1__ListTopicsResponse *response = NULL;
    struct narad_error error;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    assert_int_equal(narad_list_topics(client, &request, &response, &error), NARAD_UNIMPLEMENTED);
    assert_null(response);
    client_free();
}

static void on_produced_call(void *data, int code, const char *text,
                             Narad__V1__Placement *const *placements, size_t placements_count)
{
    _Atomic int *nested_code = data;

    (void)code;
    (void)text;
    (void)placements;
    (void)placements_count;
    *nested_code = version(NULL);
}

static void call__inside_a_callback_is_refused(void **state)
{
    (void)state;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});
    _Atomic int nested_code = -1;
    Narad__V1__Record record = NARAD__V1__RECORD__INIT;
    Narad__V1__Record *records[] = {&record};

    assert_int_equal(
        narad_produce_async(client, "topic", records, 1, on_produced_call, &nested_code), NARAD_OK);
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(nested_code, NARAD_FAILED_PRECONDITION);
    client_free();
}

static bool on_record(void *data, const Narad__V1__Message *message)
{
    uint64_t *expected = data;

    if (message->offset != *expected) {
        return false; /* the case sees it in *expected */
    }
    *expected += 1;
    return *expected < 5000;
}

static void replay__walks_stops_and_fails(void **state)
{
    (void)state;
    Narad__V1__ReplayRequest request = NARAD__V1__REPLAY_REQUEST__INIT;
    struct narad_error error;
    uint64_t at = 100;
    fake_broker_start(&broker);
    client_new((struct narad_options){0});

    request.offset = 100;
    request.max_messages = 1000;
    assert_int_equal(narad_replay(client, &request, on_record, &at, &error), NARAD_OK);
    assert_int_equal(at, 1100);
    request.offset = at = 4990;
    assert_int_equal(narad_replay(client, &request, on_record, &at, &error), NARAD_OK);
    assert_int_equal(at, 5000);
    request.partition = 9;
    request.offset = at = 0;
    request.max_messages = 0;
    assert_int_equal(narad_replay(client, &request, on_record, &at, &error), NARAD_OUT_OF_RANGE);
    assert_string_equal(error.text, "aged out");
    client_free();
}

static void new__refuses_what_is_no_address(void **state)
{
    (void)state;
    struct narad_error error = {0};
    struct narad_options options = {.authorization = "line\nbreak"};

    assert_int_equal(narad_client_new(&client, &options, &error), NARAD_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "authorization"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(produce__confirms_each_in_order_and_gathers),
        CASE(produce__one_refused_item_leaves_the_others),
        CASE(produce__a_broken_stream_reports_what_it_does_not_know),
        CASE(produce__resends_when_asked_to),
        CASE(produce__waits_for_a_server_and_then_gives_up),
        CASE(produce__a_refused_stream_ends_what_waits),
        CASE(free__reports_what_is_open_as_cancelled),
        CASE(produce__blocks_at_its_limit),
        CASE(settle__gathers_into_few_calls),
        CASE(settle__keeps_nothing_of_topics_that_are_done),
        CASE(settle__blocks_at_its_limit),
        CASE(settle__at_its_limit_is_refused_inside_a_callback),
        CASE(subscribe__settles_get_results_and_close_ends_it),
        CASE(subscribe__starts_again_after_a_lost_connection),
        CASE(subscribe__settles_under_way_are_unknown_when_it_breaks),
        CASE(subscribe__ends_with_the_client),
        CASE(subscribe__a_settle_while_it_ends_has_an_outcome),
        CASE(subscribe__gives_up_on_a_server_that_only_refuses),
        CASE(call__takes_the_largest_answer_of_a_node),
        CASE(call__answers_or_says_that_nobody_is_there),
        CASE(call__an_unknown_method_is_unimplemented),
        CASE(call__inside_a_callback_is_refused),
        CASE(replay__walks_stops_and_fails),
        CASE(new__refuses_what_is_no_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
