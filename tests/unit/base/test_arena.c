#include "storage/base/arena.h"

#include "tests/support/nd_test.h"

static void arena_alloc__is_aligned_and_disjoint(void **state)
{
    struct nd_arena arena;
    uint8_t *blocks[200];

    (void)state;
    nd_arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < ND_ARRAY_SIZE(blocks); i++) {
        blocks[i] = nd_arena_alloc(&arena, i);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        memset(blocks[i], (int)i, i);
    }

    for (size_t i = 0; i < ND_ARRAY_SIZE(blocks); i++) {
        for (size_t at = 0; at < i; at++) {
            assert_int_equal(blocks[i][at], (uint8_t)i);
        }
    }
    nd_arena_release(&arena);
}

static void arena_alloc__stops_at_its_limit(void **state)
{
    struct nd_arena arena;

    (void)state;
    nd_arena_init(&arena, 100 * 16);
    for (int i = 0; i < 100; i++) {
        assert_non_null(nd_arena_alloc(&arena, 16));
    }

    assert_null(nd_arena_alloc(&arena, 1));
    assert_null(nd_arena_alloc(&arena, SIZE_MAX));
    assert_null(nd_arena_alloc(&arena, SIZE_MAX - 20));
    assert_int_equal(arena.used, 100 * 16);
    nd_arena_release(&arena);
}

static void arena_alloc__gives_large_blocks_a_chunk_of_their_own(void **state)
{
    struct nd_arena arena;

    (void)state;
    nd_arena_init(&arena, 4 << 20);
    uint8_t *small = nd_arena_alloc(&arena, 10);
    uint8_t *large = nd_arena_alloc(&arena, 1 << 20);
    assert_non_null(small);
    assert_non_null(large);
    memset(large, 1, 1 << 20); /* ASan knows if it is not all ours */
    memset(small, 2, 10);

    assert_int_equal(large[0], 1);
    assert_int_equal(large[(1 << 20) - 1], 1);
    nd_arena_release(&arena);
}

static void arena_reset__gives_the_limit_back_and_keeps_one_chunk(void **state)
{
    struct nd_arena arena;

    (void)state;
    nd_arena_init(&arena, 1 << 20);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 64; i++) {
            assert_non_null(nd_arena_alloc(&arena, (1 << 20) / 64));
        }
        assert_null(nd_arena_alloc(&arena, 1));
        nd_arena_reset(&arena);
        assert_int_equal(arena.used, 0);
        assert_true(arena.left > 0 && arena.left <= 65536);
    }
    nd_arena_release(&arena);
    assert_null(arena.chunks);
}

static void arena_strndup__copies_and_terminates(void **state)
{
    struct nd_arena arena;

    (void)state;
    nd_arena_init(&arena, 100);
    char *copy = nd_arena_strndup(&arena, "hello world", 5);
    char *empty = nd_arena_strndup(&arena, NULL, 0);

    assert_string_equal(copy, "hello");
    assert_string_equal(empty, "");
    assert_null(nd_arena_strndup(&arena, "x", SIZE_MAX));
    nd_arena_release(&arena);
}

/* In every chunk, the large ones too, and what is given out again is as it was left. */
static void arena_wipe__leaves_nothing_behind(void **state)
{
    struct nd_arena arena;
    uint8_t *blocks[40];
    size_t left = 0;

    (void)state;
    nd_arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < ND_ARRAY_SIZE(blocks); i++) {
        blocks[i] = nd_arena_alloc(&arena, 500 * i + 1);
        assert_non_null(blocks[i]);
        memset(blocks[i], 'x', 500 * i + 1);
    }

    nd_arena_wipe(&arena);

    for (size_t i = 0; i < ND_ARRAY_SIZE(blocks); i++) {
        for (size_t at = 0; at < 500 * i + 1; at++) {
            left += blocks[i][at] != 0;
        }
    }
    assert_int_equal(left, 0);
    nd_arena_reset(&arena);
    nd_arena_wipe(&arena);
    nd_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_alloc__is_aligned_and_disjoint),
        cmocka_unit_test(arena_alloc__stops_at_its_limit),
        cmocka_unit_test(arena_alloc__gives_large_blocks_a_chunk_of_their_own),
        cmocka_unit_test(arena_reset__gives_the_limit_back_and_keeps_one_chunk),
        cmocka_unit_test(arena_strndup__copies_and_terminates),
        cmocka_unit_test(arena_wipe__leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
