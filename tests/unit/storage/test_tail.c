/* storage/tail: against a model that is an array of records. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"

#include "storage/tail.h"
#include "tests/support/nd_test.h"

/* A run of `count` records from `base`; each payload is its offset in decimal. */
static struct nd_tail_run run_make(uint64_t base, uint32_t count)
{
    struct nd_block *block = nd_block_new((size_t)count * 64);
    size_t size = 0;

    for (uint32_t i = 0; i < count; i++) {
        char text[32];
        snprintf(text, sizeof text, "%" PRIu64, base + i);
        size += nd_record_put(block->bytes + size, nd_slice_str(""), NULL, 0, nd_slice_str(text));
    }
    return (struct nd_tail_run){
        .block = block,
        .records = {block->bytes, size},
        .base_offset = base,
        .sequence = base * 10,
        .staged_ns = base * 100,
        .count = count,
    };
}

static bool reads(struct nd_tail *tail, uint64_t offset)
{
    struct nd_record_view view;
    struct nd_block *block;
    char text[32];

    if (nd_tail_read(tail, offset, &view, &block) != ND_OK) {
        return false;
    }
    snprintf(text, sizeof text, "%" PRIu64, offset);
    assert_true(nd_slice_equal(view.payload, nd_slice_str(text)));
    assert_true(view.payload.data > block->bytes);
    return true;
}

static void append(struct nd_tail *tail, uint64_t base, uint32_t count)
{
    struct nd_tail_run run = run_make(base, count);
    nd_tail_append(tail, &run);
}

static void tail__is_empty_at_its_flushed_offset(void **state)
{
    struct nd_tail tail;
    (void)state;

    nd_tail_init(&tail, 42);

    assert_int_equal(nd_tail_start(&tail), 42);
    assert_int_equal(nd_tail_end(&tail), 42);
    assert_false(reads(&tail, 41) || reads(&tail, 42));
    assert_true(nd_tail_oldest_sequence(&tail) == UINT64_MAX);
    assert_true(nd_tail_oldest_ns(&tail) == UINT64_MAX);
    assert_int_equal(nd_tail_drop_cached(&tail), 0);
    nd_tail_release(&tail);
}

static void tail_take_refs__gives_at_least_one_run_and_keeps_to_the_bounds(void **state)
{
    struct nd_tail tail;
    struct nd_tail_run refs[4];
    (void)state;
    nd_tail_init(&tail, 0);
    for (uint32_t i = 0; i < 5; i++) {
        append(&tail, i * 10, 10);
    }
    struct nd_tail_run sample = run_make(0, 10);
    size_t bytes = sample.records.size;
    nd_block_unref(sample.block);

    assert_int_equal(nd_tail_take_refs(&tail, refs, 4, 1), 1);
    nd_block_unref(refs[0].block);
    assert_int_equal(nd_tail_take_refs(&tail, refs, 4, 3 * bytes + 20), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(refs[i].base_offset, i * 10);
    }
    nd_tail_release(&tail); /* the references outlive the tail */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(nd_run_check(refs[i].records, 10), ND_OK);
        nd_block_unref(refs[i].block);
    }
}

static void tail_set_flushed__leaves_a_cut_run_whole(void **state)
{
    struct nd_tail tail;
    (void)state;
    nd_tail_init(&tail, 0);
    append(&tail, 0, 10);
    append(&tail, 10, 10);

    nd_tail_set_flushed(&tail, 15);

    assert_int_equal(nd_tail_oldest_sequence(&tail), 100);
    assert_true(nd_tail_drop_cached(&tail) > 0);
    assert_int_equal(nd_tail_drop_cached(&tail), 0);
    assert_int_equal(nd_tail_start(&tail), 10);
    assert_true(reads(&tail, 12));
    nd_tail_release(&tail);
}

/* The model: which offsets are there, and where flushed and start are. */
struct model {
    struct nd_tail tail;
    bool present[40000];
    uint64_t bases[40000];
    uint32_t bases_count, bases_dropped;
    uint64_t start, end, flushed;
};

static void model_check(struct model *m)
{
    uint64_t span = m->end - m->start;
    uint64_t sequential = span > 0 ? m->start + (uint64_t)random() % span : m->start;

    assert_int_equal(nd_tail_start(&m->tail), m->start);
    assert_int_equal(nd_tail_end(&m->tail), m->end);
    for (uint32_t i = 0; i < 12; i++) {
        uint64_t offset = m->start + (uint64_t)random() % (span + 3);
        assert_int_equal(reads(&m->tail, offset), m->present[offset]);
        assert_int_equal(reads(&m->tail, sequential), m->present[sequential]);
        sequential += 1;
    }
    assert_false(m->start > 0 && reads(&m->tail, m->start - 1));
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = m->bases_dropped; i < m->bases_count; i++) {
        if (m->bases[i] >= m->flushed) {
            oldest = m->bases[i] * 10;
            break;
        }
    }
    assert_true(nd_tail_oldest_sequence(&m->tail) == oldest);
    assert_int_equal(m->tail.bytes_unflushed == 0, oldest == UINT64_MAX);
}

static void model_append(struct model *m)
{
    uint64_t base = m->end + (random() % 8 == 0 ? (uint64_t)random() % 5 : 0);
    uint32_t count = 1 + (uint32_t)random() % 20;

    append(&m->tail, base, count);
    if (m->bases_dropped == m->bases_count) {
        m->start = base;
    }
    m->bases[m->bases_count++] = base;
    for (uint32_t i = 0; i < count; i++) {
        m->present[base + i] = true;
    }
    m->end = base + count;
}

static void model_flush(struct model *m)
{
    struct nd_tail_run refs[8];
    uint32_t count = nd_tail_take_refs(&m->tail, refs, 1 + (uint32_t)random() % 8, 4000);

    for (uint32_t i = 0; i < count; i++) {
        assert_true(refs[i].base_offset >= m->flushed);
        m->flushed = refs[i].base_offset + refs[i].count;
        nd_block_unref(refs[i].block);
    }
    nd_tail_set_flushed(&m->tail, m->flushed);
}

static void model_drop(struct model *m)
{
    bool cached = m->bases_dropped < m->bases_count && m->bases[m->bases_dropped] < m->flushed;

    assert_int_equal(nd_tail_drop_cached(&m->tail) > 0, cached);
    if (cached) {
        m->bases_dropped += 1;
        m->start = m->bases_dropped < m->bases_count ? m->bases[m->bases_dropped] : m->end;
    }
}

static void tail__behaves_as_the_model(void **state)
{
    (void)state;

    for (unsigned seed = 1; seed <= 8; seed++) {
        struct model *m = nd_xcalloc(1, sizeof *m);
        srandom(seed);
        nd_tail_init(&m->tail, 0);
        for (uint32_t step = 0; step < 3000; step++) {
            switch (random() % 8) {
            case 0:
            case 1:
            case 2:
            case 3: model_append(m); break;
            case 4: model_flush(m); break;
            default: model_drop(m); break;
            }
            model_check(m);
        }
        nd_tail_release(&m->tail);
        nd_free(m);
    }
}

static void tail__knows_its_lowest_sequence_when_runs_are_restated(void **state)
{
    struct nd_tail tail;
    struct nd_tail_run taken[8];
    const uint64_t first_two[] = {1, 3}, third[] = {5, 99};
    (void)state;

    nd_tail_init(&tail, 1);
    append(&tail, 1, 2); /* sequences 10, 30, 50 */
    append(&tail, 3, 2);
    append(&tail, 5, 2);
    assert_int_equal(nd_tail_take_below(&tail, 50, taken, 8, SIZE_MAX), 2);
    assert_int_equal(taken[1].base_offset, 3);
    nd_block_unref(taken[0].block);
    nd_block_unref(taken[1].block);
    nd_tail_restated(&tail, first_two, 2, 60);
    assert_int_equal(nd_tail_oldest_sequence(&tail), 50);
    assert_int_equal(nd_tail_take_below(&tail, 60, taken, 8, SIZE_MAX), 1);
    assert_int_equal(taken[0].base_offset, 5);
    nd_block_unref(taken[0].block);
    assert_int_equal(nd_tail_take_below(&tail, 60, taken, 8, 10), 0); /* too big */
    nd_tail_restated(&tail, third, 2, 70); /* one of them is not there any more */
    assert_int_equal(nd_tail_oldest_sequence(&tail), 60);
    append(&tail, 7, 1);
    nd_tail_set_flushed(&tail, 5);
    assert_int_equal(nd_tail_oldest_sequence(&tail), 70);
    nd_tail_set_flushed(&tail, 8);
    assert_int_equal(nd_tail_oldest_sequence(&tail), UINT64_MAX);
    append(&tail, 8, 1);
    assert_int_equal(nd_tail_oldest_sequence(&tail), 80);
    nd_tail_release(&tail);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tail__is_empty_at_its_flushed_offset),
        cmocka_unit_test(tail_take_refs__gives_at_least_one_run_and_keeps_to_the_bounds),
        cmocka_unit_test(tail_set_flushed__leaves_a_cut_run_whole),
        cmocka_unit_test(tail__knows_its_lowest_sequence_when_runs_are_restated),
        cmocka_unit_test(tail__behaves_as_the_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
