#include <stdio.h>

#include "storage/base/alloc.h"

#include "proto/grpc/health/v1/health.nd.h"
#include "proto/grpc/health/v1/health.pb-c.h"
#include "proto/grpc/reflection/v1/reflection.nd.h"
#include "proto/grpc/reflection/v1/reflection.pb-c.h"
#include "proto/grpc/reflection/v1alpha/reflection.nd.h"
#include "proto/narad/v1/broker.nd.h"
#include "proto/narad/v1/types.nd.h"
#include "rpc_fixture.h"

typedef Grpc__Health__V1__HealthCheckRequest health_request;
typedef Grpc__Health__V1__HealthCheckResponse health_response;
typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

#define REQUEST(name)  GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define RESPONSE(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

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

/* --- health --- */

struct health {
    struct fixture *fixture;
    struct nd_rpc_stream *stream;
    int status;
    unsigned messages, done;
    int code;
};

static void health_bump(struct health *health, unsigned *counter)
{
    nd_mutex_lock(&health->fixture->lock);
    *counter += 1;
    nd_cond_broadcast(&health->fixture->changed);
    nd_mutex_unlock(&health->fixture->lock);
}

static void health_done(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct health *health = data;
    const health_response *response = reply;

    health->code = status->code;
    health->status = response != NULL ? (int)response->status : -1;
    health_bump(health, &health->done);
}

static void health_check(struct fixture *fixture, const char *service, struct health *health)
{
    health_request request;
    char *name = nd_xstrdup(service);

    *health = (struct health){.fixture = fixture};
    grpc__health__v1__health_check_request__init(&request);
    request.service = name;
    nd_rpc_call_unary(fixture->channel, GRPC_HEALTH_V1_HEALTH_CHECK_PATH, &request.base,
                      &grpc__health__v1__health_check_response__descriptor, 60000, true,
                      health_done, health);
    nd_free(name);
    fixture_wait(fixture, &health->done, 1);
}

static void health_check__tells_the_serving_state(void **state)
{
    struct fixture *fixture = *state;
    struct health health;

    health_check(fixture, "", &health);
    assert_int_equal(health.status, 2);
    nd_rpc_server_set_serving(fixture->server, true);
    health_check(fixture, "", &health);
    assert_int_equal(health.status, 1);
    health_check(fixture, "grpc.health.v1.Health", &health);
    assert_int_equal(health.status, 1);
    health_check(fixture, "grpc.health.v1.Healt", &health);
    assert_int_equal(health.code, 5);
}

static void watch_message(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct health *health = data;
    health_response *response =
        grpc__health__v1__health_check_response__unpack(NULL, bytes.size, bytes.data);

    (void)stream;
    health->status = response != NULL ? (int)response->status : -1;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    health_bump(health, &health->messages);
}

static void watch_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    struct health *health = data;

    (void)stream;
    health->code = status->code;
    health_bump(health, &health->done);
}

static void watch_open(struct fixture *fixture, const char *service, struct health *health)
{
    static const struct nd_rpc_stream_events events = {watch_message, NULL, watch_done};
    health_request request;
    char *name = nd_xstrdup(service);

    *health = (struct health){.fixture = fixture};
    health->stream = nd_rpc_stream_open(fixture->channel, GRPC_HEALTH_V1_HEALTH_WATCH_PATH, 0, true,
                                        false, &events, health);
    grpc__health__v1__health_check_request__init(&request);
    request.service = name;
    nd_rpc_stream_send(health->stream, &request.base);
    nd_rpc_stream_half_close(health->stream);
    nd_free(name);
    fixture_wait(fixture, &health->messages, 1);
}

static void health_watch__follows_every_change(void **state)
{
    struct fixture *fixture = *state;
    struct health known, unknown;

    watch_open(fixture, "", &known);
    watch_open(fixture, "no.such.Service", &unknown);
    assert_int_equal(known.status, 2);
    assert_int_equal(unknown.status, 3);
    nd_rpc_server_set_serving(fixture->server, true);
    fixture_wait(fixture, &known.messages, 2);
    assert_int_equal(known.status, 1);
    nd_rpc_server_set_serving(fixture->server, true); /* no change, no message */
    nd_rpc_server_set_serving(fixture->server, false);
    fixture_wait(fixture, &known.messages, 3);
    assert_int_equal(known.status, 2);
    nd_rpc_stream_cancel(known.stream);
    fixture_wait(fixture, &known.done, 1);
    assert_int_equal(known.code, 1);
    assert_int_equal(unknown.messages, 1);

    fixture_server_stop(fixture, 1000000); /* a watcher does not hold the stop */
    fixture_wait(fixture, &unknown.done, 1);
    assert_int_equal(unknown.code, 14);
}

/* --- reflection --- */

struct reflection {
    struct fixture *fixture;
    struct nd_rpc_stream *stream;
    reflection_response *response; /* the last one */
    unsigned messages, done;
    int code;
};

static void reflection_bump(struct reflection *reflection, unsigned *counter)
{
    nd_mutex_lock(&reflection->fixture->lock);
    *counter += 1;
    nd_cond_broadcast(&reflection->fixture->changed);
    nd_mutex_unlock(&reflection->fixture->lock);
}

static void reflection_message(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct reflection *reflection = data;

    (void)stream;
    grpc__reflection__v1__server_reflection_response__free_unpacked(reflection->response, NULL);
    reflection->response =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, bytes.size, bytes.data);
    reflection_bump(reflection, &reflection->messages);
}

static void reflection_done(void *data, struct nd_rpc_stream *stream,
                            const struct nd_rpc_status *status)
{
    struct reflection *reflection = data;

    (void)stream;
    reflection->code = status->code;
    reflection_bump(reflection, &reflection->done);
}

static void reflection_open(struct reflection *reflection, struct fixture *fixture,
                            const char *path)
{
    static const struct nd_rpc_stream_events events = {reflection_message, NULL, reflection_done};

    *reflection = (struct reflection){.fixture = fixture};
    reflection->stream =
        nd_rpc_stream_open(fixture->channel, path, 60000, true, false, &events, reflection);
}

static const reflection_response *reflection_ask(struct reflection *reflection, int what,
                                                 const char *text)
{
    reflection_request request;
    char *copy = nd_xstrdup(text);
    unsigned messages = reflection->messages;

    grpc__reflection__v1__server_reflection_request__init(&request);
    request.message_request_case = what;
    request.file_by_filename = copy; /* all texts of the oneof share their place */
    nd_rpc_stream_send(reflection->stream, &request.base);
    nd_free(copy);
    fixture_wait(reflection->fixture, &reflection->messages, messages + 1);
    assert_non_null(reflection->response);
    return reflection->response;
}

static void reflection_close(struct reflection *reflection)
{
    nd_rpc_stream_half_close(reflection->stream);
    fixture_wait(reflection->fixture, &reflection->done, 1);
    assert_int_equal(reflection->code, 0);
    grpc__reflection__v1__server_reflection_response__free_unpacked(reflection->response, NULL);
}

static void reflection__lists_services_and_finds_files(void **state)
{
    static const char *const symbols[] = {"grpc.health.v1.Health", "grpc.health.v1.Health.Check",
                                          "grpc.health.v1.HealthCheckResponse.ServingStatus",
                                          "grpc.health.v1.HealthCheckRequest.service"};
    static const char *const missing[] = {"grpc.health.v1", "grpc.health.v1.Health.Nope", "",
                                          "grpc.health.v1.HealthCheckRequest.nope"};
    struct reflection reflection;

    reflection_open(&reflection, *state,
                    GRPC_REFLECTION_V1_SERVER_REFLECTION_SERVER_REFLECTION_INFO_PATH);
    const reflection_response *response = reflection_ask(&reflection, REQUEST(LIST_SERVICES), "");
    assert_int_equal(response->message_response_case, RESPONSE(LIST_SERVICES_RESPONSE));
    assert_int_equal(response->list_services_response->n_service, 3);
    assert_string_equal(response->list_services_response->service[0]->name,
                        "grpc.health.v1.Health");
    for (size_t i = 0; i < ND_ARRAY_SIZE(symbols); i++) {
        response = reflection_ask(&reflection, REQUEST(FILE_CONTAINING_SYMBOL), symbols[i]);
        assert_int_equal(response->message_response_case, RESPONSE(FILE_DESCRIPTOR_RESPONSE));
        ProtobufCBinaryData *file = response->file_descriptor_response->file_descriptor_proto;
        assert_int_equal(file->len, grpc_health_v1_health_file.descriptor_size);
        assert_memory_equal(file->data, grpc_health_v1_health_file.descriptor, file->len);
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(missing); i++) {
        response = reflection_ask(&reflection, REQUEST(FILE_CONTAINING_SYMBOL), missing[i]);
        assert_int_equal(response->message_response_case, RESPONSE(ERROR_RESPONSE));
        assert_int_equal(response->error_response->error_code, 5);
    }
    response =
        reflection_ask(&reflection, REQUEST(FILE_BY_FILENAME), "grpc/health/v1/health.proto");
    assert_int_equal(response->message_response_case, RESPONSE(FILE_DESCRIPTOR_RESPONSE));
    assert_int_equal(response->file_descriptor_response->n_file_descriptor_proto, 1);
    reflection_close(&reflection);
}

static void reflection__v1alpha_answers_too(void **state)
{
    struct reflection reflection;

    reflection_open(&reflection, *state,
                    GRPC_REFLECTION_V1ALPHA_SERVER_REFLECTION_SERVER_REFLECTION_INFO_PATH);
    const reflection_response *response = reflection_ask(&reflection, REQUEST(LIST_SERVICES), "");
    assert_int_equal(response->message_response_case, RESPONSE(LIST_SERVICES_RESPONSE));
    reflection_close(&reflection);
}

/* --- what a call carries --- */

static void metadata__reaches_the_handler(void **state)
{
    struct fixture *fixture = *state;
    struct nd_rpc_metadata metadata = {"x-test", "some value"};
    struct nd_rpc_channel *channel = fixture_channel_new(fixture, &metadata, 1);
    struct outcome outcome;

    outcome_init(&outcome, fixture);
    outcome_start(&outcome, channel, ECHO_PLAIN, "x", 1, 60000);
    outcome_wait(&outcome);
    nd_rpc_channel_free(channel);

    assert_string_equal(fixture->metadata, "some value");
    echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
    assert_string_equal(fixture->metadata, "");
}

static void authenticate__stands_before_every_handler(void **state)
{
    struct fixture *fixture = *state;
    struct nd_rpc_metadata metadata = {"authorization", "secret"};
    struct nd_rpc_channel *channel = fixture_channel_new(fixture, &metadata, 1);
    struct outcome outcome;
    struct watcher watcher;
    struct health health;

    fixture->authenticate = true;
    echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
    assert_int_equal(outcome.code, 16);
    assert_string_equal(outcome.text, "who are you?");
    watcher_open(&watcher, fixture, ECHO_BIDI, 60000, false);
    watcher_wait(&watcher, &watcher.done, 1);
    assert_int_equal(watcher.code, 16);
    assert_int_equal(fixture->started, 0);
    assert_int_equal(fixture->done, 0);

    outcome_init(&outcome, fixture);
    outcome_start(&outcome, channel, ECHO_PLAIN, "x", 1, 60000);
    outcome_wait(&outcome);
    assert_int_equal(outcome.code, 0);
    health_check(fixture, "", &health); /* exempt */
    assert_int_equal(health.code, 0);
    nd_rpc_channel_free(channel);
}

static void metrics__count_calls_by_method_and_code(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome;
    struct nd_buf text;

    echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
    echo_call(fixture, ECHO_PLAIN, "x", 1, &outcome);
    echo_call(fixture, ECHO_PLAIN, "fail", 1, &outcome);
    echo_call(fixture, "/test.Echo/Nope", "x", 1, &outcome);
    fixture_server_stop(fixture, 1000);
    nd_buf_init(&text, 1 << 20);
    nd_metrics_text(fixture->metrics, &text);
    nd_buf_put_u8(&text, 0);

    const char *all = (const char *)text.data;
    assert_non_null(
        strstr(all, "narad_grpc_requests_total{method=\"/test.Echo/Plain\",code=\"0\"} 2\n"));
    assert_non_null(
        strstr(all, "narad_grpc_requests_total{method=\"/test.Echo/Plain\",code=\"5\"} 1\n"));
    assert_non_null(strstr(all, "narad_grpc_requests_total{method=\"unknown\",code=\"12\"} 1\n"));
    assert_non_null(
        strstr(all, "narad_grpc_request_duration_seconds_count{method=\"/test.Echo/Plain\"} 3\n"));
    assert_non_null(strstr(all, "narad_grpc_requests_in_flight 0\n"));
    nd_buf_release(&text);
}

/* --- what a server is made of --- */

static void on_start(struct nd_rpc_call *call, struct nd_slice request)
{
    (void)request;
    nd_rpc_call_fail(call, ND_ERR_UNSUPPORTED, NULL);
}

static void server_new__refuses_what_disagrees_with_the_proto_files(void **state)
{
    const struct nd_rpc_method wrong = {.path = NARAD_V1_BROKER_SUBSCRIBE_PATH,
                                        .kind = ND_RPC_SERVER_STREAM,
                                        .message_bytes_max = 10,
                                        .on_start = on_start};
    const struct nd_rpc_method *methods[] = {&wrong};
    const struct nd_rpc_file *files[] = {&narad_v1_broker_file, &narad_v1_types_file};
    struct nd_rpc_server *server = NULL;
    struct nd_errmsg msg = {.text = ""};
    struct nd_rpc_server_options options = {.methods = methods,
                                            .methods_count = 1,
                                            .message_bytes_max = 100,
                                            .files = files,
                                            .files_count = 2};

    (void)state;
    assert_int_equal(nd_rpc_server_new(&server, &options, &msg), ND_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(msg.text, "another stream kind"));
    options.methods_count = 0;
    options.files_count = 1; /* types.proto is missing */
    assert_int_equal(nd_rpc_server_new(&server, &options, &msg), ND_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(msg.text, "narad/v1/types.proto"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(health_check__tells_the_serving_state),
        CASE(health_watch__follows_every_change),
        CASE(reflection__lists_services_and_finds_files),
        CASE(reflection__v1alpha_answers_too),
        CASE(metadata__reaches_the_handler),
        CASE(authenticate__stands_before_every_handler),
        CASE(metrics__count_calls_by_method_and_code),
        cmocka_unit_test(server_new__refuses_what_disagrees_with_the_proto_files),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
