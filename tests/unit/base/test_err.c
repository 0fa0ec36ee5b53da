#include <string.h>

#include "storage/base/err.h"

#include "tests/support/nd_test.h"

static void err__each_has_name_text_and_statuses(void **state)
{
    (void)state;
    for (int i = 0; i < ND_ERR_COUNT; i++) {
        enum nd_err err = (enum nd_err)i;
        assert_true(strlen(nd_err_text(err)) > 0);
        assert_true(strlen(nd_err_name(err)) > 0);
        assert_in_range(nd_err_grpc_status(err), 0, 16);
        assert_in_range(nd_err_http_status(err), 200, 599);
        assert_int_equal(nd_err_grpc_status(err) == 0, err == ND_OK);
        assert_int_equal(nd_err_by_name(nd_err_name(err)), err);
    }
    assert_string_equal(nd_err_name(ND_ERR_TOPIC_NOT_FOUND), "TOPIC_NOT_FOUND");
    assert_int_equal(nd_err_grpc_status(ND_ERR_TOPIC_NOT_FOUND), 5);
    assert_int_equal(nd_err_http_status(ND_ERR_NO_SPACE), 503);
    assert_int_equal(nd_err_by_name("NO_SUCH_NAME"), ND_ERR_INTERNAL);
}

static void errmsg_wrap__reads_like_a_sentence(void **state)
{
    struct nd_errmsg msg;

    (void)state;
    nd_errmsg_set(&msg, "short file");
    nd_errmsg_wrap(&msg, "read index");
    nd_errmsg_wrap(&msg, "open segment %d.log", 42);

    assert_string_equal(msg.text, "open segment 42.log: read index: short file");
}

static void errmsg__may_be_null(void **state)
{
    (void)state;
    nd_errmsg_set(NULL, "x %d", 1);
    nd_errmsg_wrap(NULL, "y %d", 2);
}

static void errmsg__cuts_the_end_between_characters(void **state)
{
    char umlauts[2 * sizeof(struct nd_errmsg)];
    struct nd_errmsg msg;

    (void)state;
    for (size_t i = 0; i + 2 < sizeof umlauts; i += 2) {
        memcpy(umlauts + i, "\xc3\xbc\0", 3);
    }
    for (int shift = 0; shift < 2; shift++) {
        nd_errmsg_set(&msg, "%.*s%s", shift, "x", umlauts);
        size_t size = strlen(msg.text);
        assert_true(size >= sizeof msg.text - 2);
        assert_int_equal((size - (size_t)shift) % 2, 0); /* no half of one at the end */

        nd_errmsg_wrap(&msg, "%s", "context");
        size = strlen(msg.text);
        assert_memory_equal(msg.text, "context: ", 9);
        assert_true(size >= sizeof msg.text - 2 && size < sizeof msg.text);
        assert_int_equal((size - 9 - (size_t)shift) % 2, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err__each_has_name_text_and_statuses),
        cmocka_unit_test(errmsg_wrap__reads_like_a_sentence),
        cmocka_unit_test(errmsg__may_be_null),
        cmocka_unit_test(errmsg__cuts_the_end_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
