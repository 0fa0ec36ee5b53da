/* storage/positions: the encoding, and settling against a model that is an array of flags. */
#include "storage/base/alloc.h"

#include "storage/positions.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static void positions_fill(struct nd_positions *p)
{
    static const struct nd_offset_range ahead[] = {{12, 12}, {14, 20}};
    static const struct nd_attempt attempts[] = {{10, 2}, {13, 7}};
    static const struct nd_token tokens[] = {{1, 2, 3}, {4, 5, 6}};
    static const struct nd_cursor cursors[] = {{7, 8, 9, 10}};
    struct nd_positions source = {
        .id = {.incarnation = 0x1122334455667788, .partition = 3, .topic = "orders"},
        .applied_sequence = 99,
        .frontier = 10,
        .next_offset = 30,
        .flushed_offset = 25,
        .log_start = 5,
        .last_commit_ms = 1700000000123,
        .ahead_count = 2,
        .attempts_count = 2,
        .tokens_count = 2,
        .cursors_count = 1,
    };
    struct nd_positions copy = source;

    copy.ahead = nd_xmalloc(sizeof ahead);
    memcpy(copy.ahead, ahead, sizeof ahead);
    copy.attempts = nd_xmalloc(sizeof attempts);
    memcpy(copy.attempts, attempts, sizeof attempts);
    copy.tokens = nd_xmalloc(sizeof tokens);
    memcpy(copy.tokens, tokens, sizeof tokens);
    copy.cursors = nd_xmalloc(sizeof cursors);
    memcpy(copy.cursors, cursors, sizeof cursors);
    *p = copy;
}

static void assert_same(const struct nd_positions *a, const struct nd_positions *b)
{
    struct nd_buf x, y;

    nd_buf_init(&x, 1 << 20);
    nd_buf_init(&y, 1 << 20);
    nd_positions_put(&x, a);
    nd_positions_put(&y, b);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    nd_buf_release(&x);
    nd_buf_release(&y);
}

static void positions__come_back_as_they_were(void **state)
{
    struct nd_positions from, to;
    struct nd_buf bytes;

    (void)state;
    nd_buf_init(&bytes, 1 << 20);
    nd_positions_init(&to);
    positions_fill(&from);
    nd_positions_put(&bytes, &from);

    assert_int_equal(nd_positions_get(nd_buf_slice(&bytes), &to), ND_OK);
    assert_same(&from, &to);
    assert_string_equal(to.id.topic, "orders");
    assert_int_equal(to.applied_sequence, 99);
    assert_int_equal(to.attempts[1].count, 7);
    nd_positions_copy(&to, &from);
    assert_same(&from, &to);
    nd_positions_release(&from);
    nd_positions_release(&to);
    nd_buf_release(&bytes);
}

static void positions__any_other_size_is_corrupt(void **state)
{
    struct nd_positions from, to;
    struct nd_buf bytes;

    (void)state;
    nd_buf_init(&bytes, 1 << 20);
    nd_positions_init(&to);
    positions_fill(&from);
    nd_positions_put(&bytes, &from);
    for (size_t size = 0; size < bytes.size; size++) {
        /* In a block of just that size, so that a read past it is seen. */
        uint8_t *cut = nd_xmalloc(size + 1);
        memcpy(cut, bytes.data, size);
        assert_int_equal(nd_positions_get(nd_slice_make(cut, size), &to), ND_ERR_CORRUPT);
        nd_free(cut);
    }
    nd_buf_put_u8(&bytes, 0);
    assert_int_equal(nd_positions_get(nd_buf_slice(&bytes), &to), ND_ERR_CORRUPT);
    nd_positions_release(&from);
    nd_buf_release(&bytes);
}

static void positions__random_bytes_are_refused_or_encode_again(void **state)
{
    uint64_t seed = 4;
    struct nd_positions from;
    struct nd_buf bytes;

    (void)state;
    nd_buf_init(&bytes, 1 << 20);
    positions_fill(&from);
    for (int round = 0; round < 20000; round++) {
        struct nd_positions to;
        nd_positions_init(&to);
        nd_buf_reset(&bytes);
        nd_positions_put(&bytes, &from);
        for (uint64_t flips = 1 + nd_rand_below(&seed, 3); flips > 0; flips--) {
            bytes.data[nd_rand_below(&seed, bytes.size)] ^= (uint8_t)nd_rand(&seed);
        }
        if (nd_positions_get(nd_buf_slice(&bytes), &to) == ND_OK) {
            assert_same(&to, &to); /* asserts that it is sane */
        }
        nd_positions_release(&to);
    }
    nd_positions_release(&from);
    nd_buf_release(&bytes);
}

static void positions__settle_as_a_set_of_offsets_does(void **state)
{
    enum { SPACE = 64 };
    uint64_t seed = 5;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct nd_positions p;
        bool settled[SPACE] = {false};
        nd_positions_init(&p);
        for (int i = 0; i < 40; i++) {
            uint64_t first = nd_rand_below(&seed, SPACE);
            uint64_t last = first + nd_rand_below(&seed, 4);
            last = ND_MIN(last, (uint64_t)SPACE - 1);
            nd_positions_settle(&p, first, last);
            for (uint64_t offset = first; offset <= last; offset++) {
                settled[offset] = true;
            }
            uint64_t frontier = 0;
            while (frontier < SPACE && settled[frontier]) {
                frontier += 1;
            }
            assert_int_equal(p.frontier, frontier);
            uint32_t range = 0;
            for (uint64_t offset = frontier; offset < SPACE; offset++) {
                while (range < p.ahead_count && p.ahead[range].last < offset) {
                    range += 1;
                }
                bool is_ahead = range < p.ahead_count && p.ahead[range].first <= offset;
                assert_int_equal(is_ahead, settled[offset]);
            }
            for (uint32_t k = 1; k < p.ahead_count; k++) {
                assert_true(p.ahead[k].first > p.ahead[k - 1].last + 1);
            }
        }
        nd_positions_release(&p);
    }
}

static void positions__forget_attempts_below_the_frontier(void **state)
{
    struct nd_positions p;

    (void)state;
    positions_fill(&p);
    nd_positions_settle(&p, 10, 11);
    assert_int_equal(p.frontier, 13); /* 12 was settled ahead of it */
    assert_int_equal(p.attempts_count, 1);
    assert_int_equal(p.attempts[0].offset, 13);
    nd_positions_release(&p);
}

static void topic_name__must_be_a_plain_directory_name(void **state)
{
    (void)state;
    assert_true(nd_topic_name_is_sane(nd_slice_str("orders.v1_x")));
    assert_true(nd_topic_name_is_sane(nd_slice_str(".hidden")));
    assert_true(nd_topic_name_is_sane(nd_slice_str("...")));
    assert_false(nd_topic_name_is_sane(nd_slice_str("")));
    assert_false(nd_topic_name_is_sane(nd_slice_str(".")));
    assert_false(nd_topic_name_is_sane(nd_slice_str("..")));
    assert_false(nd_topic_name_is_sane(nd_slice_str("a/b")));
    assert_false(nd_topic_name_is_sane(nd_slice_make("a\0b", 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions__come_back_as_they_were),
        cmocka_unit_test(positions__any_other_size_is_corrupt),
        cmocka_unit_test(positions__random_bytes_are_refused_or_encode_again),
        cmocka_unit_test(positions__settle_as_a_set_of_offsets_does),
        cmocka_unit_test(positions__forget_attempts_below_the_frontier),
        cmocka_unit_test(topic_name__must_be_a_plain_directory_name),
    };
    return cmocka_run_group_tests_name("positions", tests, NULL, NULL);
}
