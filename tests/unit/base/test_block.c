#include <string.h>

#include "storage/base/block.h"
#include "storage/base/thread.h"

#include "tests/support/nd_test.h"

static void block__lives_until_the_last_reference(void **state)
{
    (void)state;
    struct nd_block *block = nd_block_new(100);
    assert_non_null(block);
    memset(block->bytes, 7, block->size);

    assert_ptr_equal(nd_block_ref(block), block);
    nd_block_unref(block);
    assert_int_equal(block->bytes[99], 7); /* ASan reports it if it were gone */
    nd_block_unref(block);
}

static void block__passes_null_and_refuses_impossible_sizes(void **state)
{
    (void)state;
    assert_null(nd_block_ref(NULL));
    nd_block_unref(NULL);
    assert_null(nd_block_new(SIZE_MAX));
    assert_null(nd_block_new(SIZE_MAX - sizeof(struct nd_block)));
}

static void reader_main(void *arg)
{
    struct nd_block *block = arg;

    for (int i = 0; i < 1000; i++) {
        nd_block_unref(nd_block_ref(block));
    }
    ND_ASSERT(block->bytes[0] == 42);
    nd_block_unref(block);
}

static void block__is_shared_by_threads_and_freed_once(void **state)
{
    struct nd_thread threads[3];

    (void)state;
    struct nd_block *block = nd_block_new(1);
    assert_non_null(block);
    block->bytes[0] = 42;
    for (size_t i = 0; i < ND_ARRAY_SIZE(threads); i++) {
        assert_true(nd_thread_start(&threads[i], "reader", reader_main, nd_block_ref(block)));
    }
    nd_block_unref(block); /* whoever is last frees; LSan reports a leak, ASan a second time */
    for (size_t i = 0; i < ND_ARRAY_SIZE(threads); i++) {
        nd_thread_join(&threads[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block__lives_until_the_last_reference),
        cmocka_unit_test(block__passes_null_and_refuses_impossible_sizes),
        cmocka_unit_test(block__is_shared_by_threads_and_freed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
