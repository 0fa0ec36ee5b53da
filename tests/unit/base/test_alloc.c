#include <string.h>

#include "storage/base/alloc.h"

#include "tests/support/nd_test.h"

static void malloc__gives_memory_also_for_nothing(void **state)
{
    (void)state;
    void *some = nd_malloc(10), *none = nd_malloc(0);
    assert_non_null(some);
    assert_non_null(none); /* NULL means out of memory and nothing else */
    nd_free(some);
    nd_free(none);
    nd_free(NULL);
}

static void malloc__refuses_sizes_that_no_object_has(void **state)
{
    (void)state;
    assert_null(nd_malloc(SIZE_MAX));
    assert_null(nd_malloc((size_t)PTRDIFF_MAX + 1));
    assert_null(nd_calloc(SIZE_MAX / 2, 3)); /* the product overflows */
}

static void calloc__gives_zeros(void **state)
{
    (void)state;
    uint8_t *bytes = nd_xcalloc(100, 10);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(bytes[i], 0);
    }
    bytes = nd_xrealloc(bytes, 2000);
    assert_int_equal(bytes[999], 0);
    nd_free(bytes);
}

static void aligned__is_aligned_and_freed_as_all(void **state)
{
    (void)state;
    for (size_t alignment = 16; alignment <= 8192; alignment *= 2) {
        void *pointer = nd_xaligned(alignment, 100);
        assert_int_equal((uintptr_t)pointer % alignment, 0);
        nd_free(pointer);
    }
}

static void texts__are_copied_and_formatted(void **state)
{
    (void)state;
    const char text[] = "orders";
    char *copy = nd_xstrdup(text), *made = nd_xasprintf("%s-%05d", text, 42);
    assert_ptr_not_equal(copy, text);
    assert_string_equal(copy, "orders");
    assert_string_equal(made, "orders-00042");
    nd_free(copy);
    nd_free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malloc__gives_memory_also_for_nothing),
        cmocka_unit_test(malloc__refuses_sizes_that_no_object_has),
        cmocka_unit_test(calloc__gives_zeros),
        cmocka_unit_test(aligned__is_aligned_and_freed_as_all),
        cmocka_unit_test(texts__are_copied_and_formatted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
