#include "storage/base/alloc.h"
#include "storage/base/base64.h"

#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static void base64__is_that_of_the_rfc(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xff\xfb", "//s="},
    };
    char text[16];
    uint8_t bytes[16];
    size_t size;

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        nd_base64_encode(nd_slice_str(cases[i][0]), text);
        assert_string_equal(text, cases[i][1]);
        assert_int_equal(strlen(text) + 1, ND_BASE64_TEXT_SIZE(strlen(cases[i][0])));
        assert_true(nd_base64_decode(nd_slice_str(text), bytes, &size));
        assert_true(nd_slice_equal(nd_slice_make(bytes, size), nd_slice_str(cases[i][0])));
    }
}

static void base64__refuses_what_it_would_not_make(void **state)
{
    static const char *const cases[] = {
        "Z",    "Zg",   "Zg=",  "Zg===", "Zh==", "Zm9=", "Zm9v\n",   "Zm9vZg=",  "Zg==Zg==",
        "Z===", "====", "=Zg=", "Zm-v",  "Zm_v", "Zm v", "Zm8=Zm8=", "Zm9v====", "\xc3\xa4g="};
    uint8_t bytes[16];
    size_t size;

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        assert_false(nd_base64_decode(nd_slice_str(cases[i]), bytes, &size));
    }
}

/* In memory of exactly the size, so that a byte beyond it is seen. */
static void base64__brings_any_bytes_back(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (size_t size = 1; size < 200; size++) {
        uint8_t *bytes = nd_xmalloc(size), *back = nd_xmalloc((size + 2) / 3 * 3);
        char *text = nd_xmalloc(ND_BASE64_TEXT_SIZE(size));
        size_t got;
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)nd_rand(&seed);
        }
        nd_base64_encode(nd_slice_make(bytes, size), text);
        assert_true(nd_base64_decode(nd_slice_str(text), back, &got));
        assert_true(nd_slice_equal(nd_slice_make(back, got), nd_slice_make(bytes, size)));
        nd_free(bytes);
        nd_free(back);
        nd_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64__is_that_of_the_rfc),
        cmocka_unit_test(base64__refuses_what_it_would_not_make),
        cmocka_unit_test(base64__brings_any_bytes_back),
    };

    return cmocka_run_group_tests_name("base/base64", tests, NULL, NULL);
}
