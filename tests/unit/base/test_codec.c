#include "storage/base/codec.h"

#include "tests/support/nd_test.h"

static void reader__reads_what_the_puts_wrote(void **state)
{
    uint8_t bytes[15];

    (void)state;
    bytes[0] = 0xfe;
    nd_put_u16(bytes + 1, 0xfedc);
    nd_put_u32(bytes + 3, 0xfedcba98);
    nd_put_u64(bytes + 7, 0xfedcba9876543210);
    struct nd_reader r = nd_reader_make(nd_slice_make(bytes, sizeof bytes));

    assert_int_equal(nd_read_u8(&r), 0xfe);
    assert_int_equal(nd_read_u16(&r), 0xfedc);
    assert_int_equal(nd_read_u32(&r), 0xfedcba98);
    assert_true(nd_read_u64(&r) == 0xfedcba9876543210);
    assert_int_equal(nd_reader_left(&r), 0);
    assert_false(r.failed);
}

/* Every shortage at every width; the input is exactly as long as said, so ASan sees one byte too
 * many. */
static void reader__never_reads_past_the_end(void **state)
{
    (void)state;
    for (size_t size = 0; size < 8; size++) {
        uint8_t *bytes = test_malloc(size + 1);
        memset(bytes, 0xff, size + 1);
        struct nd_slice in = nd_slice_make(bytes + 1, size);
        struct nd_reader r = nd_reader_make(in);

        assert_true(nd_read_u64(&r) == 0);
        assert_true(r.failed);
        r = nd_reader_make(in);
        assert_int_equal(nd_read_u32(&r), size >= 4 ? 0xffffffff : 0);
        assert_int_equal(r.failed, size < 4);
        r = nd_reader_make(in);
        assert_int_equal(nd_read_u16(&r), size >= 2 ? 0xffff : 0);
        assert_int_equal(r.failed, size < 2);
        r = nd_reader_make(in);
        assert_int_equal(nd_read_u8(&r), size >= 1 ? 0xff : 0);
        assert_int_equal(r.failed, size < 1);
        test_free(bytes);
    }
}

static void reader__stays_failed_and_gives_zeros(void **state)
{
    static const uint8_t bytes[] = {1, 2, 3};

    (void)state;
    struct nd_reader r = nd_reader_make(nd_slice_make(bytes, sizeof bytes));
    assert_int_equal(nd_read_u32(&r), 0);

    assert_int_equal(nd_read_u8(&r), 0);
    assert_int_equal(nd_reader_left(&r), 0);
    assert_int_equal(nd_read_slice(&r, 0).size, 0);
    assert_true(r.failed);
}

static void read_slice__borrows_and_minds_huge_sizes(void **state)
{
    static const uint8_t bytes[] = {1, 2, 3};

    (void)state;
    struct nd_reader r = nd_reader_make(nd_slice_make(bytes, sizeof bytes));
    struct nd_slice two = nd_read_slice(&r, 2);
    assert_ptr_equal(two.data, bytes);
    assert_int_equal(two.size, 2);

    struct nd_slice huge = nd_read_slice(&r, SIZE_MAX);
    assert_null(huge.data);
    assert_true(r.failed);
}

static void read_slice__of_nothing_succeeds(void **state)
{
    (void)state;
    struct nd_reader r = nd_reader_make(nd_slice_make(NULL, 0));

    assert_int_equal(nd_read_slice(&r, 0).size, 0);
    assert_false(r.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reader__reads_what_the_puts_wrote),
        cmocka_unit_test(reader__never_reads_past_the_end),
        cmocka_unit_test(reader__stays_failed_and_gives_zeros),
        cmocka_unit_test(read_slice__borrows_and_minds_huge_sizes),
        cmocka_unit_test(read_slice__of_nothing_succeeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
