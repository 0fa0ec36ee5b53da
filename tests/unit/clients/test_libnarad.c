/* libnarad against a broker that breaks off, refuses and comes back. */
#include <narad/client.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/nd_test.h"
#include "tests/unit/clients/fake_broker.h"

static struct fake_broker broker;

static int set_up(void **state)
{
    (void)state;
    fake_broker_init(&broker);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_broker_release(&broker);
    return 0;
}

static struct narad_client *client_new(struct narad_options options)
{
    struct narad_client *client = NULL;

    options.server = broker.address;
    options.connect_timeout_ms = options.connect_timeout_ms ? options.connect_timeout_ms : 10000;
    assert_int_equal(narad_client_new(&client, &options, NULL), NARAD_OK);
    return client;
}

/* Outcomes by code; written on the client's thread. */
struct outcomes {
    _Atomic uint32_t ok, unavailable, cancelled, stale, invalid, other;
    _Atomic uint64_t last_offset;
    _Atomic bool in_order;
};

static void outcome_count(struct outcomes *outcomes, int code)
{
    switch (code) {
    case NARAD_OK: outcomes->ok += 1; break;
    case NARAD_UNAVAILABLE: outcomes->unavailable += 1; break;
    case NARAD_CANCELLED: outcomes->cancelled += 1; break;
    case NARAD_FAILED_PRECONDITION: outcomes->stale += 1; break;
    case NARAD_INVALID_ARGUMENT: outcomes->invalid += 1; break;
    default: outcomes->other += 1; break;
    }
}

static uint32_t outcome_total(const struct outcomes *o)
{
    return o->ok + o->unavailable + o->cancelled + o->stale + o->invalid + o->other;
}

static void on_produced(void *data, int code, const char *text,
                        Narad__V1__Placement *const *placements, size_t placements_count)
{
    struct outcomes *outcomes = data;

    (void)text;
    outcome_count(outcomes, code);
    if (placements_count == 1) {
        if (placements[0]->offset <= outcomes->last_offset) {
            outcomes->in_order = false;
        }
        outcomes->last_offset = placements[0]->offset;
    }
}

static int produce(struct narad_client *client, const char *payload, struct outcomes *outcomes)
{
    Narad__V1__Record record = NARAD__V1__RECORD__INIT;
    Narad__V1__Record *records[] = {&record};

    record.payload.data = (uint8_t *)(uintptr_t)payload;
    record.payload.len = strlen(payload);
    return narad_produce_async(client, "topic", records, 1, on_produced, outcomes);
}

static void produce__confirms_each_in_order_and_gathers(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    fake_broker_start(&broker);
    struct narad_client *client = client_new((struct narad_options){0});

    for (int i = 0; i < 5000; i++) {
        assert_int_equal(produce(client, "payload", &outcomes), NARAD_OK);
    }
    assert_true(narad_flush(client, 20000));

    assert_int_equal(outcomes.ok, 5000);
    assert_true(outcomes.in_order);
    assert_int_equal(broker.streams, 1);
    assert_true(broker.messages_of_stream < 5000); /* natural batching happened */
    assert_string_equal(broker.last_topic, "topic");
    narad_client_free(client);
}

static void produce__one_refused_item_leaves_the_others(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    fake_broker_start(&broker);
    struct narad_client *client = client_new((struct narad_options){0});

    produce(client, "good", &outcomes);
    produce(client, "odd", &outcomes);
    produce(client, "good", &outcomes);
    assert_true(narad_flush(client, 20000));

    assert_int_equal(outcomes.ok, 2);
    assert_int_equal(outcomes.invalid, 1);
    assert_int_equal(broker.streams, 1);
    narad_client_free(client);
}

static void produce__a_broken_stream_reports_what_it_does_not_know(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    fake_broker_start(&broker);
    broker.hold = true;
    struct narad_client *client = client_new((struct narad_options){0});

    for (int i = 0; i < 10; i++) {
        produce(client, "payload", &outcomes);
    }
    fake_broker_wait(&broker, &broker.items, 10);
    fake_broker_stop(&broker);
    broker.hold = false;
    fake_broker_start(&broker);
    assert_true(narad_flush(client, 20000));
    assert_int_equal(outcomes.unavailable, 10);
    produce(client, "payload", &outcomes);
    assert_true(narad_flush(client, 20000));

    assert_int_equal(outcomes.ok, 1);
    assert_int_equal(outcome_total(&outcomes), 11);
    narad_client_free(client);
}

static void produce__resends_when_asked_to(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    fake_broker_start(&broker);
    broker.break_after = 40;
    struct narad_client *client = client_new((struct narad_options){.resend_unconfirmed = true});

    for (int i = 0; i < 100; i++) {
        produce(client, "payload", &outcomes);
    }
    assert_true(narad_flush(client, 20000));

    assert_int_equal(outcomes.ok, 100);
    assert_int_equal(outcome_total(&outcomes), 100);
    assert_true(outcomes.in_order);
    assert_int_equal(broker.streams, 2);
    narad_client_free(client);
}

static void produce__waits_for_a_server_and_then_gives_up(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    struct narad_client *client = client_new((struct narad_options){.connect_timeout_ms = 300});

    produce(client, "payload", &outcomes);
    assert_true(narad_flush(client, 20000));
    assert_int_equal(outcomes.unavailable, 1);
    narad_client_free(client);

    client = client_new((struct narad_options){0});
    produce(client, "payload", &outcomes);
    fake_broker_start(&broker);
    assert_true(narad_flush(client, 20000));
    assert_int_equal(outcomes.ok, 1);
    narad_client_free(client);
}

static void produce__a_refused_stream_ends_what_waits(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    fake_broker_start(&broker);
    broker.refuse_code = NARAD_UNAUTHENTICATED;
    struct narad_client *client = client_new((struct narad_options){0});

    produce(client, "payload", &outcomes);
    assert_true(narad_flush(client, 20000));
    assert_int_equal(outcomes.other, 1);
    narad_client_free(client);
}

static void free__reports_what_is_open_as_cancelled(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    fake_broker_start(&broker);
    broker.hold = true;
    struct narad_client *client = client_new((struct narad_options){0});

    for (int i = 0; i < 10; i++) {
        produce(client, "payload", &outcomes);
    }
    fake_broker_wait(&broker, &broker.items, 10);
    assert_false(narad_flush(client, 1));
    narad_client_free(client);

    assert_int_equal(outcomes.cancelled, 10);
    assert_int_equal(outcome_total(&outcomes), 10);
}

static void *produce_one_more(void *client)
{
    static struct outcomes outcomes;

    produce(client, "payload", &outcomes);
    return NULL;
}

static void produce__blocks_at_its_limit(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    pthread_t thread;
    fake_broker_start(&broker);
    broker.hold = true;
    struct narad_client *client = client_new((struct narad_options){.in_flight_max = 3});

    for (int i = 0; i < 3; i++) {
        produce(client, "payload", &outcomes);
    }
    assert_int_equal(pthread_create(&thread, NULL, produce_one_more, client), 0);
    fake_broker_wait(&broker, &broker.items, 3);
    assert_int_equal(broker.items, 3);
    broker.hold = false;
    fake_broker_stop(&broker); /* three get their outcome, the fourth goes out */
    fake_broker_start(&broker);
    pthread_join(thread, NULL);
    assert_true(narad_flush(client, 20000));
    assert_int_equal(outcome_total(&outcomes), 3);
    assert_int_equal(broker.items, 4);
    narad_client_free(client);
}

static void on_settled(void *data, int code, const char *text)
{
    (void)text;
    outcome_count(data, code);
}

static void settle__gathers_into_few_calls(void **state)
{
    (void)state;
    struct outcomes outcomes = {.in_order = true};
    fake_broker_start(&broker);
    struct narad_client *client = client_new((struct narad_options){0});

    for (int i = 0; i < 3000; i++) {
        assert_int_equal(narad_settle_async(client, "topic", "0:1:2", 0, on_settled, &outcomes),
                         NARAD_OK);
    }
    assert_true(narad_flush(client, 20000));

    assert_int_equal(outcomes.ok, 3000);
    assert_int_equal(broker.settles, 3000);
    assert_true(broker.acks < 1500);
    narad_client_free(client);
}

/* --- subscriptions --- */

struct session {
    struct outcomes settles;
    struct nd_mutex lock;
    struct nd_cond changed;
    uint32_t received, ended;
    int end_code;
};

static void session_signal(struct session *session, uint32_t *counter)
{
    nd_mutex_lock(&session->lock);
    *counter += 1;
    nd_cond_broadcast(&session->changed);
    nd_mutex_unlock(&session->lock);
}

static void session_wait(struct session *session, const uint32_t *counter, uint32_t value)
{
    nd_mutex_lock(&session->lock);
    while (*counter < value) {
        nd_cond_wait(&session->changed, &session->lock);
    }
    nd_mutex_unlock(&session->lock);
}

static void on_message(void *data, struct narad_subscription *subscription,
                       const Narad__V1__Message *message)
{
    struct session *session = data;

    narad_subscription_settle(subscription, message->receipt_handle, 0, on_settled,
                              &session->settles);
    session_signal(session, &session->received);
}

static void on_ended(void *data, int code, const char *text)
{
    struct session *session = data;

    (void)text;
    session->end_code = code;
    session_signal(session, &session->ended);
}

static void session_init(struct session *session)
{
    *session = (struct session){0};
    nd_mutex_init(&session->lock);
    nd_cond_init(&session->changed);
}

static struct narad_subscription *subscribe(struct narad_client *client, struct session *session)
{
    struct narad_subscription *subscription = NULL;
    struct narad_subscription_options options = {.topic = "topic",
                                                 .partition = -1,
                                                 .message = on_message,
                                                 .ended = on_ended,
                                                 .data = session};

    assert_int_equal(narad_subscribe(client, &options, &subscription, NULL), NARAD_OK);
    return subscription;
}

static void subscribe__settles_get_results_and_close_ends_it(void **state)
{
    (void)state;
    struct session session;
    session_init(&session);
    fake_broker_start(&broker);
    broker.deliver = 100;
    struct narad_client *client = client_new((struct narad_options){0});

    struct narad_subscription *subscription = subscribe(client, &session);
    session_wait(&session, &session.received, 100);
    narad_subscription_close(subscription);
    session_wait(&session, &session.ended, 1);

    assert_int_equal(session.end_code, NARAD_OK);
    assert_int_equal(session.settles.ok, 100);
    assert_int_equal(broker.settles, 100);
    narad_client_free(client);
}

static void subscribe__starts_again_after_a_lost_connection(void **state)
{
    (void)state;
    struct session session;
    session_init(&session);
    fake_broker_start(&broker);
    broker.deliver = 10;
    struct narad_client *client = client_new((struct narad_options){0});

    struct narad_subscription *subscription = subscribe(client, &session);
    session_wait(&session, &session.received, 10);
    fake_broker_stop(&broker);
    fake_broker_start(&broker);
    session_wait(&session, &session.received, 20);
    narad_subscription_close(subscription);
    session_wait(&session, &session.ended, 1);

    assert_int_equal(broker.streams, 2);
    assert_int_equal(outcome_total(&session.settles), 20);
    narad_client_free(client);
}

static void subscribe__settles_under_way_are_unknown_when_it_breaks(void **state)
{
    (void)state;
    struct session session;
    session_init(&session);
    fake_broker_start(&broker);
    broker.deliver = 1;
    broker.break_after = 1;
    struct narad_client *client = client_new((struct narad_options){0});

    struct narad_subscription *subscription = subscribe(client, &session);
    session_wait(&session, &session.received, 2);
    narad_subscription_close(subscription);
    session_wait(&session, &session.ended, 1);

    assert_int_equal(session.settles.unavailable, 1);
    assert_int_equal(session.settles.ok, 1);
    narad_client_free(client);
}

static void subscribe__ends_with_the_client(void **state)
{
    (void)state;
    struct session session;
    session_init(&session);
    fake_broker_start(&broker);
    broker.deliver = 5;
    struct narad_client *client = client_new((struct narad_options){0});

    subscribe(client, &session);
    session_wait(&session, &session.received, 5);
    narad_client_free(client);

    assert_int_equal(session.ended, 1);
    assert_int_equal(session.end_code, NARAD_CANCELLED);
    assert_int_equal(outcome_total(&session.settles), 5);
}

/* --- blocking calls --- */

static int version(struct narad_client *client, struct narad_error *error)
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

static void call__answers_or_says_that_nobody_is_there(void **state)
{
    (void)state;
    struct narad_error error;
    struct narad_client *client = client_new((struct narad_options){.connect_timeout_ms = 200});

    assert_int_equal(version(client, &error), NARAD_UNAVAILABLE);
    assert_true(strlen(error.text) > 0);
    fake_broker_start(&broker);
    narad_client_free(client);
    client = client_new((struct narad_options){0});
    assert_int_equal(version(client, &error), NARAD_OK);
    fake_broker_stop(&broker);
    fake_broker_start(&broker);
    assert_int_equal(version(client, &error), NARAD_OK);
    narad_client_free(client);
}

static void call__an_unknown_method_is_unimplemented(void **state)
{
    (void)state;
    Narad__V1__MetricsRequest request = NARAD__V1__METRICS_REQUEST__INIT;
    Narad__V1__MetricsResponse *response = NULL;
    struct narad_error error;
    fake_broker_start(&broker);
    struct narad_client *client = client_new((struct narad_options){0});

    assert_int_equal(narad_metrics(client, &request, &response, &error), NARAD_UNIMPLEMENTED);
    assert_null(response);
    narad_client_free(client);
}

struct nested {
    struct narad_client *client;
    _Atomic int code;
};

static void on_produced_call(void *data, int code, const char *text,
                             Narad__V1__Placement *const *placements, size_t placements_count)
{
    struct nested *nested = data;

    (void)code;
    (void)text;
    (void)placements;
    (void)placements_count;
    nested->code = version(nested->client, NULL);
}

static void call__inside_a_callback_is_refused(void **state)
{
    (void)state;
    fake_broker_start(&broker);
    struct narad_client *client = client_new((struct narad_options){0});
    struct nested nested = {.client = client};
    Narad__V1__Record record = NARAD__V1__RECORD__INIT;
    Narad__V1__Record *records[] = {&record};

    assert_int_equal(narad_produce_async(client, "topic", records, 1, on_produced_call, &nested),
                     NARAD_OK);
    assert_true(narad_flush(client, 20000));
    assert_int_equal(nested.code, NARAD_FAILED_PRECONDITION);
    narad_client_free(client);
}

static bool on_record(void *data, const Narad__V1__Message *message)
{
    uint64_t *expected = data;

    assert_int_equal(message->offset, *expected);
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
    struct narad_client *client = client_new((struct narad_options){0});

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
    narad_client_free(client);
}

static void new__refuses_what_is_no_address(void **state)
{
    (void)state;
    struct narad_client *client = NULL;
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
        CASE(subscribe__settles_get_results_and_close_ends_it),
        CASE(subscribe__starts_again_after_a_lost_connection),
        CASE(subscribe__settles_under_way_are_unknown_when_it_breaks),
        CASE(subscribe__ends_with_the_client),
        CASE(call__answers_or_says_that_nobody_is_there),
        CASE(call__an_unknown_method_is_unimplemented),
        CASE(call__inside_a_callback_is_refused),
        CASE(replay__walks_stops_and_fails),
        CASE(new__refuses_what_is_no_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
