#include <string.h>

#include "storage/base/crc32c.h"

#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static void crc32c__meets_the_published_values(void **state)
{
    uint8_t zeros[32] = {0}, ones[32], up[32], down[32];

    (void)state;
    memset(ones, 0xff, sizeof ones);
    for (uint8_t i = 0; i < 32; i++) {
        up[i] = i;
        down[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(nd_crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(nd_crc32c_portable(0, "123456789", 9), 0xE3069283);
    /* RFC 3720, B.4 */
    assert_int_equal(nd_crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(nd_crc32c(0, ones, 32), 0x62a8ab43);
    assert_int_equal(nd_crc32c(0, up, 32), 0x46dd794e);
    assert_int_equal(nd_crc32c(0, down, 32), 0x113fdb5c);
    assert_int_equal(nd_crc32c(0, NULL, 0), 0);
}

/* Lengths around those where the work is split (336 * 3, 1360 * 3), at every alignment. */
static void crc32c__is_the_same_with_and_without_the_instruction(void **state)
{
    enum { SIZE = 40000 };
    uint64_t seed = 1;
    uint8_t *bytes = test_malloc(SIZE);

    (void)state;
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (uint8_t)nd_rand(&seed);
    }
    for (size_t size = 0; size < 5200; size += size < 40 || size % 1008 > 990 ? 1 : 7) {
        size_t at = nd_rand(&seed) % 64;
        uint32_t start = (uint32_t)nd_rand(&seed);
        assert_int_equal(nd_crc32c(start, bytes + at, size),
                         nd_crc32c_portable(start, bytes + at, size));
    }
    for (int i = 0; i < 200; i++) {
        size_t at = nd_rand(&seed) % 1000, size = nd_rand(&seed) % (SIZE - 1000);
        assert_int_equal(nd_crc32c(0, bytes + at, size), nd_crc32c_portable(0, bytes + at, size));
    }
    test_free(bytes);
}

static void crc32c__chains_over_any_split(void **state)
{
    enum { SIZE = 9000 };
    uint64_t seed = 2;
    uint8_t *bytes = test_malloc(SIZE);

    (void)state;
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (uint8_t)nd_rand(&seed);
    }
    uint32_t whole = nd_crc32c(0, bytes, SIZE);
    for (size_t split = 0; split <= SIZE; split += 97) {
        uint32_t first = nd_crc32c(0, bytes, split);
        assert_int_equal(nd_crc32c(first, bytes + split, SIZE - split), whole);
    }
    test_free(bytes);
}

static void crc32c__sees_every_changed_bit(void **state)
{
    uint8_t bytes[1100] = {0};

    (void)state;
    uint32_t before = nd_crc32c(0, bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(nd_crc32c(0, bytes, sizeof bytes), before);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c__meets_the_published_values),
        cmocka_unit_test(crc32c__is_the_same_with_and_without_the_instruction),
        cmocka_unit_test(crc32c__chains_over_any_split),
        cmocka_unit_test(crc32c__sees_every_changed_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
