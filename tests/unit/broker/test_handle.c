#include "server/broker/handle.h"
#include "tests/support/nd_test.h"

static enum nd_err get(const char *text, struct nd_handle *out)
{
    return nd_handle_get(nd_slice_str(text), out);
}

static void put_and_get__round_trip_at_the_limits(void **state)
{
    (void)state;
    const struct nd_handle handles[] = {
        {.partition = 0, .offset = 0, .nonce = 1},
        {.partition = INT32_MAX, .offset = INT64_MAX, .nonce = INT64_MAX},
        {.partition = 7, .offset = 123456789, .nonce = 42},
    };

    for (size_t i = 0; i < ND_ARRAY_SIZE(handles); i++) {
        char text[ND_HANDLE_SIZE_MAX];
        struct nd_handle back = {0};
        size_t size = nd_handle_put(text, &handles[i]);
        assert_int_equal(size, strlen(text));
        assert_int_equal(get(text, &back), ND_OK);
        assert_int_equal(back.partition, handles[i].partition);
        assert_int_equal(back.offset, handles[i].offset);
        assert_int_equal(back.nonce, handles[i].nonce);
    }
}

static void get__tolerates_leading_zeros(void **state)
{
    (void)state;
    struct nd_handle handle;

    assert_int_equal(get("007:0003:01", &handle), ND_OK);
    assert_int_equal(handle.partition, 7);
    assert_int_equal(handle.offset, 3);
    assert_int_equal(handle.nonce, 1);
}

static void get__refuses_what_is_not_a_handle(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        ":",
        "::",
        "1:2",
        "1:2:",
        ":2:3",
        "1::3",
        "1:2:3:",
        "1:2:3:4",
        "1:2:0",
        "1:2:000",
        "-1:2:3",
        "+1:2:3",
        " 1:2:3",
        "1:2:3 ",
        "1:2:3\n",
        "0x1:2:3",
        "a:b:c",
        "1.0:2:3",
        "2147483648:2:3",
        "1:9223372036854775808:3",
        "1:2:9223372036854775808",
        "1:2:18446744073709551617",
        "1:99999999999999999999999:3",
        "\xd9\xa1:2:3",
    };

    for (size_t i = 0; i < ND_ARRAY_SIZE(bad); i++) {
        struct nd_handle handle;
        assert_int_equal(get(bad[i], &handle), ND_ERR_INVALID_ARGUMENT);
    }
    struct nd_handle handle;
    assert_int_equal(nd_handle_get(nd_slice_make("1:2:\0003", 5), &handle),
                     ND_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_and_get__round_trip_at_the_limits),
        cmocka_unit_test(get__tolerates_leading_zeros),
        cmocka_unit_test(get__refuses_what_is_not_a_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
