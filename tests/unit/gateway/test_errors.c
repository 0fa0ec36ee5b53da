#include "gateway/errors.h"
#include "gateway/in_flight.h"
#include "tests/support/nd_test.h"

static const struct nd_operation produce = {"produce", false, 503}, ack = {"ack", false, 502},
                                 users = {"create user", true, 503};

static void assert_told(enum nd_err err, const char *text, const struct nd_operation *operation,
                        int want, const char *want_text)
{
    struct nd_upstream_status status = {nd_err_grpc_status(err), err, text, 0};
    struct nd_errmsg told = {""};

    assert_int_equal(nd_error_of(&status, operation, &told), want);
    assert_string_equal(told.text, want_text);
}

static void error_of__says_what_the_api_documents(void **state)
{
    (void)state;

    assert_told(ND_ERR_TOPIC_NOT_FOUND, "topic not found: \"t\"", &produce, 404, "topic not found");
    assert_told(ND_ERR_TOPIC_EXISTS, "topic already exists: \"t\"", &produce, 409,
                "topic already exists");
    assert_told(ND_ERR_TOPIC_EXISTS, "\"T\" differs only in letter case from \"t\"", &produce, 409,
                "\"T\" differs only in letter case from \"t\"");
    assert_told(ND_ERR_STALE, "", &ack, 410,
                "receipt handle no longer matches an active reservation");
    assert_told(ND_ERR_GONE, "offset 3 aged out of retention (oldest retained: 7)", &produce, 410,
                "receipt handle no longer matches an active reservation: offset 3 aged out of "
                "retention (oldest retained: 7)");
    assert_told(ND_ERR_UNAUTHENTICATED, "no", &produce, 401, "authentication required");
    assert_told(ND_ERR_PERMISSION_DENIED, "produce not allowed on this topic", &produce, 403,
                "produce not allowed on this topic");
    assert_told(ND_ERR_TOO_LARGE, "the payload has 2000000 bytes", &produce, 413,
                "request body too large");
    assert_told(ND_ERR_INTERNAL, "some detail", &produce, 500, "produce failed");
    assert_told(ND_ERR_IO, "some detail", &ack, 500, "ack failed");
}

static void error_of__puts_invalid_argument_in_front_once(void **state)
{
    (void)state;

    assert_told(ND_ERR_INVALID_ARGUMENT, "x must be y", &produce, 400,
                "invalid argument: x must be y");
    assert_told(ND_ERR_INVALID_ARGUMENT, "invalid argument: x must be y", &produce, 400,
                "invalid argument: x must be y");
    assert_told(ND_ERR_INVALID_ARGUMENT, "invalid argument: x must be y", &users, 400,
                "x must be y");
    assert_told(ND_ERR_INVALID_ARGUMENT,
                "partition out of range: 7, the topic has partitions 0 to 2", &produce, 400,
                "invalid argument: partition out of range");
}

static void error_of__answers_as_the_table_says_and_nothing_unknown(void **state)
{
    (void)state;

    for (int err = 1; err < ND_ERR_COUNT; err++) {
        struct nd_upstream_status status = {13, (enum nd_err)err, NULL, 0};
        struct nd_errmsg told = {""};
        int http = nd_error_of(&status, &ack, &told);
        assert_in_range(http, 400, 503);
        assert_int_not_equal(http, 499);
        assert_int_equal(nd_error_of(&status, &produce, &told), nd_err_http_status(status.err));
        assert_string_not_equal(told.text, "");
    }
}

static void error_of__without_an_answer_says_that_the_outcome_is_unknown(void **state)
{
    (void)state;

    assert_told(ND_ERR_UNKNOWN_OUTCOME, "Socket closed", &produce, 503,
                "no answer from the broker, the outcome is unknown: Socket closed");
    assert_told(ND_ERR_UNKNOWN_OUTCOME, "Socket closed", &ack, 502,
                "no answer from the broker, the outcome is unknown: Socket closed");
}

static void in_flight__counts_each_address_on_its_own(void **state)
{
    struct nd_errmsg msg = {""};
    struct nd_in_flight *counts = nd_in_flight_new(3);
    (void)state;

    assert_int_equal(nd_in_flight_begin(counts, "10.0.0.1", 2, &msg), ND_OK);
    assert_int_equal(nd_in_flight_begin(counts, "10.0.0.1", 2, &msg), ND_ERR_LIMITED);
    assert_string_equal(msg.text,
                        "too many in-flight consume requests for this identity (limit 3 per node)");
    assert_int_equal(nd_in_flight_begin(counts, "10.0.0.2", 3, &msg), ND_OK);
    assert_int_equal(nd_in_flight_begin(counts, "10.0.0.1", 1, &msg), ND_OK);
    nd_in_flight_end(counts, "10.0.0.1", 2);
    assert_int_equal(nd_in_flight_begin(counts, "10.0.0.1", 2, &msg), ND_OK);
    nd_in_flight_end(counts, "10.0.0.1", 2);
    nd_in_flight_end(counts, "10.0.0.1", 1);
    nd_in_flight_end(counts, "10.0.0.2", 3);
    nd_in_flight_free(counts);
}

static void in_flight__without_a_limit_counts_nothing(void **state)
{
    struct nd_in_flight *counts = nd_in_flight_new(0);
    (void)state;

    for (int i = 0; i < 10000; i++) {
        assert_int_equal(nd_in_flight_begin(counts, "10.0.0.1", 100, NULL), ND_OK);
    }
    nd_in_flight_free(counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_of__says_what_the_api_documents),
        cmocka_unit_test(error_of__puts_invalid_argument_in_front_once),
        cmocka_unit_test(error_of__answers_as_the_table_says_and_nothing_unknown),
        cmocka_unit_test(error_of__without_an_answer_says_that_the_outcome_is_unknown),
        cmocka_unit_test(in_flight__counts_each_address_on_its_own),
        cmocka_unit_test(in_flight__without_a_limit_counts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
