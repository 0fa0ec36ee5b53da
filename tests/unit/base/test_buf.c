#include <string.h>

#include "storage/base/buf.h"

#include "tests/support/nd_test.h"

static void buf_put__writes_numbers_little_endian(void **state)
{
    static const uint8_t expected[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
                                       0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08};
    struct nd_buf buf;

    (void)state;
    nd_buf_init(&buf, 100);
    nd_buf_put_u8(&buf, 0x01);
    nd_buf_put_u16(&buf, 0x0203);
    nd_buf_put_u32(&buf, 0x04050607);
    nd_buf_put_u64(&buf, 0x08090a0b0c0d0e0f);

    assert_false(nd_buf_failed(&buf));
    assert_int_equal(buf.size, sizeof expected);
    assert_memory_equal(buf.data, expected, sizeof expected);
    nd_buf_release(&buf);
}

static void buf_put__reaches_its_limit_and_no_further(void **state)
{
    struct nd_buf buf;

    (void)state;
    nd_buf_init(&buf, 1000);
    for (int i = 0; i < 1000; i++) {
        nd_buf_put_u8(&buf, (uint8_t)i);
    }
    assert_false(nd_buf_failed(&buf));
    assert_true(buf.capacity <= 1000);

    nd_buf_put_u8(&buf, 1);

    assert_true(nd_buf_failed(&buf));
    assert_int_equal(buf.size, 1000);
    nd_buf_release(&buf);
}

static void buf_put__does_nothing_once_failed(void **state)
{
    struct nd_buf buf;

    (void)state;
    nd_buf_init(&buf, 4);
    nd_buf_put_text(&buf, "12345");
    assert_true(nd_buf_failed(&buf));

    nd_buf_put_text(&buf, "1"); /* would fit, but the text would have a hole */
    nd_buf_printf(&buf, "%d", 1);
    assert_int_equal(buf.size, 0);

    nd_buf_reset(&buf);
    nd_buf_put_text(&buf, "1234");
    assert_false(nd_buf_failed(&buf));
    assert_int_equal(buf.size, 4);
    nd_buf_release(&buf);
}

static void buf_put__refuses_sizes_that_would_overflow(void **state)
{
    struct nd_buf buf;

    (void)state;
    nd_buf_init(&buf, SIZE_MAX);
    nd_buf_put_u8(&buf, 1);
    nd_buf_put(&buf, "x", SIZE_MAX);

    assert_true(nd_buf_failed(&buf));
    nd_buf_release(&buf);
}

static void buf_printf__takes_texts_of_any_length_within_the_limit(void **state)
{
    char text[2000];
    struct nd_buf buf;

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    nd_buf_init(&buf, 3000);
    nd_buf_printf(&buf, "%d-%s", 7, text);

    assert_false(nd_buf_failed(&buf));
    assert_int_equal(buf.size, 2 + sizeof text - 1);
    assert_memory_equal(buf.data, "7-x", 3);

    nd_buf_printf(&buf, "%s", text);
    assert_true(nd_buf_failed(&buf));
    nd_buf_release(&buf);
}

static void buf_put__takes_empty_input(void **state)
{
    struct nd_buf buf;

    (void)state;
    nd_buf_init(&buf, 0);
    nd_buf_put(&buf, NULL, 0);
    nd_buf_put_slice(&buf, nd_slice_make(NULL, 0));
    nd_buf_put_text(&buf, "");

    assert_false(nd_buf_failed(&buf));
    assert_int_equal(nd_buf_slice(&buf).size, 0);
    nd_buf_release(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_put__writes_numbers_little_endian),
        cmocka_unit_test(buf_put__reaches_its_limit_and_no_further),
        cmocka_unit_test(buf_put__does_nothing_once_failed),
        cmocka_unit_test(buf_put__refuses_sizes_that_would_overflow),
        cmocka_unit_test(buf_printf__takes_texts_of_any_length_within_the_limit),
        cmocka_unit_test(buf_put__takes_empty_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
