#include "gateway/routes.h"
#include "tests/support/nd_test.h"

static struct nd_route_match match_of(const char *method, const char *path)
{
    struct nd_route_match match;

    nd_routes_match(nd_slice_str(method), nd_slice_str(path), &match);
    return match;
}

static void routes_match__finds_each_route_and_its_value(void **state)
{
    static const struct {
        const char *method, *path;
        nd_http_handler *handle;
        const char *value;
    } cases[] = {
        {"POST", "/v1/topics", nd_handle_create_topic, NULL},
        {"GET", "/v1/topics", nd_handle_list_topics, NULL},
        {"HEAD", "/v1/topics", nd_handle_list_topics, NULL},
        {"GET", "/v1/topics/orders", nd_handle_get_topic, "orders"},
        {"PATCH", "/v1/topics/orders", nd_handle_alter_topic, "orders"},
        {"DELETE", "/v1/topics/orders", nd_handle_delete_topic, "orders"},
        {"POST", "/v1/topics/a%2Fb/produce", nd_handle_produce, "a%2Fb"},
        {"POST", "/v1/topics/o/produce/batch", nd_handle_produce_batch, "o"},
        {"GET", "/v1/topics/consume/consume", nd_handle_consume, "consume"},
        {"POST", "/v1/topics/.../ack", nd_handle_ack, "..."},
        {"PUT", "/v1/users/bob/grants", nd_handle_set_grants, "bob"},
        {"PUT", "/v1/users/bob/password", nd_handle_set_password, "bob"},
        {"HEAD", "/healthz", nd_handle_healthz, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_route_match match = match_of(cases[i].method, cases[i].path);
        assert_non_null(match.route);
        assert_ptr_equal(match.route->handle, cases[i].handle);
        assert_int_equal(match.values_count, cases[i].value == NULL ? 0 : 1);
        assert_true(cases[i].value == NULL ||
                    nd_slice_equal(match.values[0], nd_slice_str(cases[i].value)));
        assert_string_equal(match.allow, "");
    }
}

static void routes_match__knows_no_other_path(void **state)
{
    static const char *const paths[] = {
        "",
        "/",
        "v1/topics",
        "*",
        "/v1/nope",
        "/v1/topics/",
        "//v1/topics",
        "/v1//topics",
        "/v1/topics//produce",
        "/v1/topics/t/",
        "/v1/topics/./produce",
        "/v1/topics/../users",
        "/v1/./topics",
        "/v1/topics/t/produce/",
        "/V1/topics",
        "/v1/%74opics",
        "/healthz/",
        "/v1/topics/t/produce/batch/x",
        "/v1/topics/t/children",
        "/v1/cluster/members",
        "/v1/topics/.",
        "/v1/topics/..",
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(paths); i++) {
        struct nd_route_match match = match_of("GET", paths[i]);
        assert_null(match.route);
        assert_string_equal(match.allow, "");
    }
}

static void routes_match__lists_what_a_known_path_allows(void **state)
{
    static const struct {
        const char *method, *path, *allow;
    } cases[] = {
        {"PUT", "/v1/topics", "GET, HEAD, POST"},
        {"POST", "/v1/topics/t", "DELETE, GET, HEAD, PATCH"},
        {"GET", "/v1/topics/t/produce", "POST"},
        {"HEAD", "/v1/topics/t/produce", "POST"},
        {"HEAD", "/v1/topics/t/consume", "GET"}, /* would reserve a message for nobody */
        {"POST", "/healthz", "GET, HEAD"},
        {"OPTIONS", "/v1/users/u/grants", "PUT"},
        {"get", "/v1/users", "GET, HEAD, POST"}, /* methods have one spelling */
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_route_match match = match_of(cases[i].method, cases[i].path);
        assert_null(match.route);
        assert_string_equal(match.allow, cases[i].allow);
    }
}

static void routes_open__is_the_exact_path(void **state)
{
    (void)state;
    assert_true(nd_routes_open(nd_slice_str("/healthz")));
    assert_true(nd_routes_open(nd_slice_str("/readyz")));
    assert_true(nd_routes_open(nd_slice_str("/metrics")));
    assert_false(nd_routes_open(nd_slice_str("/healthz/")));
    assert_false(nd_routes_open(nd_slice_str("/v1/healthz")));
    assert_false(nd_routes_open(nd_slice_str("/health%7a")));
}

static void route_ack__drops_its_body_when_the_query_has_a_handle(void **state)
{
    const struct nd_route *ack = match_of("POST", "/v1/topics/t/ack").route;

    (void)state;
    assert_true(ack->body_dropped(nd_slice_str("receipt_handle=0:1:2")));
    assert_true(ack->body_dropped(nd_slice_str("receipt_handle=%ZZ")));
    assert_false(ack->body_dropped(nd_slice_str("receipt_handle=&extend=true")));
    assert_false(ack->body_dropped(nd_slice_str("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_match__finds_each_route_and_its_value),
        cmocka_unit_test(routes_match__knows_no_other_path),
        cmocka_unit_test(routes_match__lists_what_a_known_path_allows),
        cmocka_unit_test(routes_open__is_the_exact_path),
        cmocka_unit_test(route_ack__drops_its_body_when_the_query_has_a_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
