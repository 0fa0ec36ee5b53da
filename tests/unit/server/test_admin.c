#include "server/rpc/admin.h"
#include "tests/support/nd_test.h"

static const struct nd_topic_defaults defaults = {.partitions = 3,
                                                  .partitions_max = 108,
                                                  .retention_ms = 604800000,
                                                  .visibility_timeout_ms = 30000,
                                                  .max_in_flight = 1024,
                                                  .max_acked_ahead = 512};

static void topic_create_get__fills_in_defaults(void **state)
{
    (void)state;
    struct nd_topic_wish wish = {.name = "orders"};
    struct nd_topic_create out;
    struct nd_errmsg msg = {""};

    assert_int_equal(nd_topic_create_get(&wish, &defaults, &out, &msg), ND_OK);

    assert_string_equal(out.name, "orders");
    assert_int_equal(out.partitions, 3);
    assert_int_equal(out.retention_ms, 604800000);
    assert_int_equal(out.visibility_timeout_ms, 30000);
    assert_int_equal(out.max_in_flight, 1024);
    assert_int_equal(out.max_acked_ahead, 512);
}

static void topic_create_get__keeps_forever_when_asked_for_0(void **state)
{
    (void)state;
    struct nd_topic_wish wish = {.name = "orders", .has_retention = true, .partitions = 108};
    struct nd_topic_create out;
    struct nd_errmsg msg = {""};

    assert_int_equal(nd_topic_create_get(&wish, &defaults, &out, &msg), ND_OK);

    assert_int_equal(out.retention_ms, 0);
    assert_int_equal(out.partitions, 108);
}

static void topic_create_get__refuses_what_is_out_of_range_and_says_the_range(void **state)
{
    (void)state;
    const struct {
        struct nd_topic_wish wish;
        const char *text;
    } cases[] = {
        {{.name = ""}, "name"},
        {{.name = "."}, "\".\""},
        {{.name = "a b"}, "^[A-Za-z0-9._-]{1,255}$"},
        {{.name = "t", .partitions = 2}, "partitions must be >= 3 (0 = use default)"},
        {{.name = "t", .partitions = 109}, "partitions (109) exceeds topic.max_partitions (108)"},
        {{.name = "t", .has_retention = true, .retention_ms = 1800000},
         "retention_ms (1800000) is below the minimum of 3600000 (1 hour)"},
        {{.name = "t", .visibility_timeout_ms = 43200001},
         "visibility_timeout_ms (43200001) exceeds"},
        {{.name = "t", .max_in_flight = 1000001}, "max_in_flight_per_partition (1000001) exceeds"},
        {{.name = "t", .max_acked_ahead = 1000001}, "max_acked_ahead_per_partition (1000001)"},
    };
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_topic_create out;
        struct nd_errmsg msg = {""};
        enum nd_err err = nd_topic_create_get(&cases[i].wish, &defaults, &out, &msg);
        if (err != ND_ERR_INVALID_ARGUMENT || strstr(msg.text, cases[i].text) == NULL) {
            fail_msg("case %zu: %s: \"%s\"", i, nd_err_name(err), msg.text);
        }
    }
}

static void topic_alter_check__resolves_caps_of_0_and_refuses_ranges(void **state)
{
    (void)state;
    struct nd_errmsg msg = {""};
    struct nd_topic_alter caps = {.has_max_in_flight = true, .has_max_acked_ahead = true};
    struct nd_topic_alter retention = {.has_retention = true, .retention_ms = 1};
    struct nd_topic_alter partitions = {.partitions = 200};

    assert_int_equal(nd_topic_alter_check(&caps, &defaults, &msg), ND_OK);
    assert_int_equal(caps.max_in_flight, 1024);
    assert_int_equal(caps.max_acked_ahead, 512);
    assert_int_equal(nd_topic_alter_check(&retention, &defaults, &msg), ND_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(msg.text, "retention_ms (1) is below"));
    assert_int_equal(nd_topic_alter_check(&partitions, &defaults, &msg), ND_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(msg.text, "partitions (200) exceeds"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topic_create_get__fills_in_defaults),
        cmocka_unit_test(topic_create_get__keeps_forever_when_asked_for_0),
        cmocka_unit_test(topic_create_get__refuses_what_is_out_of_range_and_says_the_range),
        cmocka_unit_test(topic_alter_check__resolves_caps_of_0_and_refuses_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
