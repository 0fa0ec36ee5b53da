/* ProduceStream with a broker that holds its answers back: what waits in the line of answers is
 * paid for, once. nd_broker_produce and nd_metastore_topic are wrapped (CMakeLists.txt). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/client.h"
#include "rpc_pair.h"
#include "server/rpc/handlers.h"
#include "tests/support/nd_test.h"

enum { HELD_MAX = 4 };

static struct nd_handlers *handlers;
static struct rpc_pair pair;
static struct nd_topic *topic;

static struct nd_mutex lock;
static struct nd_cond changed;
/* guarded by lock */
static struct nd_produce *held[HELD_MAX];
static uint32_t held_count;
static size_t used_at[HELD_MAX]; /* of the budget, when the broker got the produce */
static uint32_t results, done;
static uint64_t results_ids[16];
static char last_error[128];
static uint32_t last_retry_ms;
static struct nd_quotas *quotas;

/* --- in the place of broker and metastore --- */

void __wrap_nd_broker_produce(struct nd_broker *broker, struct nd_produce *produce);
enum nd_err __wrap_nd_metastore_topic(struct nd_metastore *metastore, struct nd_slice name,
                                      struct nd_topic **out);

void __wrap_nd_broker_produce(struct nd_broker *broker, struct nd_produce *produce)
{
    (void)broker;
    nd_mutex_lock(&lock);
    ND_ASSERT(held_count < HELD_MAX);
    used_at[held_count] = atomic_load(&handlers->produce.used);
    held[held_count++] = produce;
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
}

enum nd_err __wrap_nd_metastore_topic(struct nd_metastore *metastore, struct nd_slice name,
                                      struct nd_topic **out)
{
    (void)metastore;
    (void)name;
    *out = nd_topic_ref(topic);
    return ND_OK;
}

static void answer(uint32_t at, enum nd_err err)
{
    struct nd_produce *produce = held[at];
    struct nd_admission batch = produce->batch;

    held[at] = NULL;
    produce->done(produce, err);
    nd_admission_release(&batch);
}

/* --- the client --- */

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice message)
{
    Narad__V1__ProduceStreamResponse *response =
        narad__v1__produce_stream_response__unpack(NULL, message.size, message.data);

    (void)data;
    (void)stream;
    nd_mutex_lock(&lock);
    for (size_t i = 0; i < response->n_results; i++) {
        results_ids[results++ % ND_ARRAY_SIZE(results_ids)] = response->results[i]->id;
        snprintf(last_error, sizeof last_error, "%s", response->results[i]->error);
        last_retry_ms = response->results[i]->retry_after_ms;
    }
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
    narad__v1__produce_stream_response__free_unpacked(response, NULL);
}

static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    (void)data;
    (void)stream;
    (void)status;
    nd_mutex_lock(&lock);
    done++;
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
}

static void wait_for(const uint32_t *counter, uint32_t value)
{
    nd_mutex_lock(&lock);
    while (*counter < value) {
        nd_cond_wait(&changed, &lock);
    }
    nd_mutex_unlock(&lock);
}

/* One message with two items of `count` records each, of who has these addresses. */
static void pair_send_of(struct nd_rpc_stream *stream, size_t count, const char *first_address,
                         const char *second_address)
{
    Narad__V1__ProduceStreamRequest request = NARAD__V1__PRODUCE_STREAM_REQUEST__INIT;
    Narad__V1__ProduceItem first = NARAD__V1__PRODUCE_ITEM__INIT, second;
    Narad__V1__ProduceItem *items[] = {&first, &second};
    Narad__V1__Record one = NARAD__V1__RECORD__INIT;
    Narad__V1__Record *records[16];
    char name[] = "orders";

    assert_in_range(count, 1, ND_ARRAY_SIZE(records));
    for (size_t i = 0; i < count; i++) {
        records[i] = &one;
    }
    one.payload = (ProtobufCBinaryData){1, (uint8_t *)name};
    first.id = 1;
    first.topic = name;
    first.n_records = count;
    first.records = records;
    first.client_address = (char *)(uintptr_t)first_address;
    second = first;
    second.id = 2;
    second.client_address = (char *)(uintptr_t)second_address;
    request.n_items = 2;
    request.items = items;
    nd_rpc_stream_send(stream, &request.base);
}

static void pair_send(struct nd_rpc_stream *stream, size_t count)
{
    pair_send_of(stream, count, "", "");
}

/* One message with one item; without a record it is refused by itself. */
static void item_send(struct nd_rpc_stream *stream, uint64_t id, bool record)
{
    Narad__V1__ProduceStreamRequest request = NARAD__V1__PRODUCE_STREAM_REQUEST__INIT;
    Narad__V1__ProduceItem item = NARAD__V1__PRODUCE_ITEM__INIT;
    Narad__V1__ProduceItem *items[] = {&item};
    Narad__V1__Record one = NARAD__V1__RECORD__INIT;
    Narad__V1__Record *records[] = {&one};
    char name[] = "orders";

    one.payload = (ProtobufCBinaryData){1, (uint8_t *)name};
    item.id = id;
    item.topic = name;
    item.n_records = record ? 1 : 0;
    item.records = records;
    request.n_items = 1;
    request.items = items;
    nd_rpc_stream_send(stream, &request.base);
}

static int start(const struct nd_handlers_options *handlers_options, bool tcp)
{
    static const struct nd_rpc_method *const methods[] = {&nd_rpc_produce_stream};

    nd_mutex_init(&lock);
    nd_cond_init(&changed);
    held_count = results = done = 0;
    topic = nd_topic_new(3);
    snprintf(topic->name, sizeof topic->name, "orders");
    handlers = nd_handlers_new(handlers_options);
    rpc_pair_start(&pair, methods, ND_ARRAY_SIZE(methods), handlers, tcp);
    return 0;
}

static int set_up(void **state)
{
    static const struct nd_handlers_options none;

    (void)state;
    return start(&none, false);
}

static uint64_t time_stands_still(void *impl)
{
    (void)impl;
    return UINT64_C(1000000000000);
}

/* Ten messages a second for each address. */
static int limited(bool tcp)
{
    static struct nd_env env;
    const struct nd_quota_limits limits = {.messages_per_s = {[ND_QUOTA_PRODUCE] = 10}};

    env = *nd_env_posix();
    env.mono_ns = time_stands_still;
    quotas = nd_quotas_new(&limits, &env, NULL);
    return start(&(struct nd_handlers_options){.quotas = quotas, .count_produce = true}, tcp);
}

static int set_up_limited(void **state)
{
    (void)state;
    return limited(true);
}

static int set_up_limited_unix(void **state)
{
    (void)state;
    return limited(false);
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < held_count; i++) { /* what a failed case left */
        if (held[i] != NULL) {
            answer(i, ND_ERR_NO_SPACE);
        }
    }
    rpc_pair_stop(&pair);
    rpc_pair_free(&pair);
    nd_handlers_free(handlers);
    nd_quotas_free(quotas);
    quotas = NULL;
    nd_topic_unref(topic);
    nd_cond_release(&changed);
    nd_mutex_release(&lock);
    return 0;
}

/* --- cases --- */

static void produce_stream__pays_for_answers_that_wait_for_their_turn(void **state)
{
    static const struct nd_rpc_stream_events events = {.on_message = on_message,
                                                       .on_done = on_done};

    (void)state;
    nd_mutex_lock(&lock); /* see nd_rpc_stream_open */
    struct nd_rpc_stream *stream = nd_rpc_stream_open(
        pair.channel, "/narad.v1.Broker/ProduceStream", 0, true, false, &events, NULL);
    item_send(stream, 1, true);
    item_send(stream, 2, false);
    item_send(stream, 3, true);
    item_send(stream, 4, true);
    nd_mutex_unlock(&lock);
    wait_for(&held_count, 3);
    size_t one = used_at[0];
    size_t refused = used_at[1] - 2 * one;
    assert_in_range(refused, 200, 2000); /* what item 2 keeps in memory */
    assert_int_equal(used_at[2], used_at[1] + one);

    answer(1, ND_ERR_NO_SPACE); /* its records are given back, its place in the line is not */
    assert_in_range(atomic_load(&handlers->produce.used), used_at[1] + 1, used_at[2] - 1);
    assert_int_equal(results, 0);
    answer(0, ND_ERR_NO_SPACE);
    answer(2, ND_ERR_UNAVAILABLE);
    wait_for(&results, 4);

    assert_int_equal(atomic_load(&handlers->produce.used), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(results_ids[i], i + 1);
    }
    assert_non_null(strstr(last_error, "unavailable: partition "));
    assert_non_null(strstr(last_error, "of \"orders\""));
    nd_rpc_stream_half_close(stream);
    wait_for(&done, 1);
}

/* Together they are too many; the first alone is not, and is asked for once more. */
static void produce_stream__an_item_within_the_rate_is_taken_whoever_comes_after(void **state)
{
    static const struct nd_rpc_stream_events events = {.on_message = on_message,
                                                       .on_done = on_done};

    (void)state;
    nd_mutex_lock(&lock); /* see nd_rpc_stream_open */
    struct nd_rpc_stream *stream = nd_rpc_stream_open(
        pair.channel, "/narad.v1.Broker/ProduceStream", 0, true, false, &events, NULL);
    pair_send(stream, 6);
    nd_rpc_stream_half_close(stream);
    nd_mutex_unlock(&lock);
    nd_mutex_lock(&lock);
    while (held_count == 0 && results == 0) {
        nd_cond_wait(&changed, &lock);
    }
    nd_mutex_unlock(&lock);
    assert_int_equal(held_count, 1);
    answer(0, ND_ERR_NO_SPACE);
    wait_for(&done, 1);
    assert_int_equal(held_count, 1);
    assert_int_equal(results, 2);
    assert_non_null(strstr(last_error, "rate limit"));
    assert_in_range(last_retry_ms, 1, 1000);
}

/* A stream whose items are of two clients of a gateway, six messages each; ends it. */
static void two_clients(const char *first_address, const char *second_address)
{
    static const struct nd_rpc_stream_events events = {.on_message = on_message,
                                                       .on_done = on_done};

    nd_mutex_lock(&lock); /* see nd_rpc_stream_open */
    struct nd_rpc_stream *stream = nd_rpc_stream_open(
        pair.channel, "/narad.v1.Broker/ProduceStream", 0, true, false, &events, NULL);
    pair_send_of(stream, 6, first_address, second_address);
    nd_rpc_stream_half_close(stream);
    nd_mutex_unlock(&lock);
    wait_for(&held_count, 1);
    answer(0, ND_ERR_NO_SPACE);
    wait_for(&done, 1);
    assert_int_equal(held_count, 1);
    assert_int_equal(results, 2);
}

static void produce_stream__counts_who_a_gateway_says_each_item_is_of(void **state)
{
    (void)state;
    two_clients("192.0.2.1", "2001:db8::7");
    assert_non_null(strstr(last_error, "disk full")); /* the broker's answer: it was not refused */
    assert_int_equal(last_retry_ms, 0);
}

static void produce_stream__counts_the_items_of_one_client_together(void **state)
{
    (void)state;
    two_clients("192.0.2.1", "192.0.2.1");
    assert_non_null(strstr(last_error, "rate limit"));
    assert_in_range(last_retry_ms, 1, 1000);
}

static void produce_stream__over_tcp_nobody_speaks_for_others(void **state)
{
    (void)state;
    two_clients("192.0.2.1", "192.0.2.2");
    assert_non_null(strstr(last_error, "rate limit"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(produce_stream__pays_for_answers_that_wait_for_their_turn,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            produce_stream__an_item_within_the_rate_is_taken_whoever_comes_after, set_up_limited,
            tear_down),
        cmocka_unit_test_setup_teardown(produce_stream__counts_who_a_gateway_says_each_item_is_of,
                                        set_up_limited_unix, tear_down),
        cmocka_unit_test_setup_teardown(produce_stream__counts_the_items_of_one_client_together,
                                        set_up_limited_unix, tear_down),
        cmocka_unit_test_setup_teardown(produce_stream__over_tcp_nobody_speaks_for_others,
                                        set_up_limited, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
