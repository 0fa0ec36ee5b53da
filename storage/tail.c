#include "storage/tail.h"

#include "storage/base/alloc.h"

enum { RUN_OVERHEAD = 64, CAPACITY_MIN = 8 };

static struct nd_tail_run *run_at(const struct nd_tail *tail, uint32_t index)
{
    ND_ASSERT(index < tail->count);
    return &tail->runs[(tail->head + index) & (tail->capacity - 1)];
}

static uint64_t run_end(const struct nd_tail_run *run)
{
    return run->base_offset + run->count;
}

static size_t run_bytes(const struct nd_tail_run *run)
{
    return run->records.size + RUN_OVERHEAD;
}

/* Index of the first run that ends above `offset`; tail->count when none does. */
static uint32_t run_find(const struct nd_tail *tail, uint64_t offset)
{
    uint32_t low = 0, high = tail->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (run_end(run_at(tail, middle)) > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static uint32_t cached_count(const struct nd_tail *tail)
{
    return run_find(tail, tail->flushed);
}

void nd_tail_init(struct nd_tail *tail, uint64_t flushed)
{
    *tail = (struct nd_tail){.flushed = flushed, .cursor_run = UINT32_MAX};
}

void nd_tail_release(struct nd_tail *tail)
{
    for (uint32_t i = 0; i < tail->count; i++) {
        nd_block_unref(run_at(tail, i)->block);
    }
    nd_free(tail->runs);
    nd_tail_init(tail, tail->flushed);
}

uint64_t nd_tail_start(const struct nd_tail *tail)
{
    return tail->count > 0 ? run_at(tail, 0)->base_offset : nd_tail_end(tail);
}

uint64_t nd_tail_end(const struct nd_tail *tail)
{
    /* An empty tail was flushed to its end: only cached runs are ever dropped. */
    return tail->count > 0 ? run_end(run_at(tail, tail->count - 1)) : tail->flushed;
}

static void runs_grow(struct nd_tail *tail)
{
    uint32_t capacity = tail->capacity == 0 ? CAPACITY_MIN : tail->capacity * 2;
    struct nd_tail_run *runs = nd_xcalloc(capacity, sizeof *runs);

    for (uint32_t i = 0; i < tail->count; i++) {
        runs[i] = *run_at(tail, i);
    }
    nd_free(tail->runs);
    tail->runs = runs;
    tail->capacity = capacity;
    tail->head = 0;
}

/* --- sequences --- */

static void lowest_find(struct nd_tail *tail)
{
    uint32_t first = cached_count(tail);

    tail->lowest_sequence = UINT64_MAX;
    tail->unordered = tail->unordered && first < tail->count;
    for (uint32_t i = first; i < tail->count && tail->unordered; i++) {
        tail->lowest_sequence = ND_MIN(tail->lowest_sequence, run_at(tail, i)->sequence);
    }
}

static void sequence_note(struct nd_tail *tail, uint64_t sequence)
{
    if (!tail->unordered && tail->bytes_unflushed > 0 &&
        run_at(tail, tail->count - 1)->sequence > sequence) {
        tail->unordered = true; /* recovered behind what was restated before */
        lowest_find(tail);
    }
    if (tail->unordered) {
        tail->lowest_sequence = ND_MIN(tail->lowest_sequence, sequence);
    }
}

void nd_tail_append(struct nd_tail *tail, const struct nd_tail_run *run)
{
    ND_ASSERT(run->count > 0 && run->records.size > 0);
    ND_ASSERT(tail->count == 0 || run->base_offset >= nd_tail_end(tail));
    ND_ASSERT(run_end(run) > tail->flushed);
    sequence_note(tail, run->sequence);
    if (tail->count == tail->capacity) {
        runs_grow(tail);
    }
    tail->count += 1;
    *run_at(tail, tail->count - 1) = *run;
    tail->bytes_unflushed += run_bytes(run);
}

enum nd_err nd_tail_read(struct nd_tail *tail, uint64_t offset, struct nd_record_view *out,
                         struct nd_block **block_out)
{
    uint32_t index = tail->cursor_run;
    uint32_t skip = 0;
    size_t at = tail->cursor_at;

    if (index >= tail->count || offset != tail->cursor_offset) {
        index = run_find(tail, offset);
        if (index == tail->count || run_at(tail, index)->base_offset > offset) {
            return ND_ERR_NOT_FOUND;
        }
        skip = (uint32_t)(offset - run_at(tail, index)->base_offset);
        at = 0;
    }
    const struct nd_tail_run *run = run_at(tail, index);
    at += nd_run_seek(nd_slice_make(run->records.data + at, run->records.size - at), skip);
    size_t size;
    enum nd_err err =
        nd_record_get(nd_slice_make(run->records.data + at, run->records.size - at), out, &size);
    if (err != ND_OK) {
        return err;
    }
    *block_out = run->block;
    bool more = offset + 1 < run_end(run);
    tail->cursor_run = more ? index : UINT32_MAX;
    tail->cursor_offset = offset + 1;
    tail->cursor_at = at + size;
    return ND_OK;
}

uint64_t nd_tail_oldest_sequence(const struct nd_tail *tail)
{
    uint32_t first = cached_count(tail);

    if (first == tail->count) {
        return UINT64_MAX;
    }
    return tail->unordered ? tail->lowest_sequence : run_at(tail, first)->sequence;
}

uint64_t nd_tail_oldest_ns(const struct nd_tail *tail)
{
    uint32_t first = cached_count(tail);

    return first < tail->count ? run_at(tail, first)->staged_ns : UINT64_MAX;
}

uint32_t nd_tail_take_refs(const struct nd_tail *tail, struct nd_tail_run *out, uint32_t out_max,
                           size_t bytes_max)
{
    uint32_t first = cached_count(tail), taken = 0;
    size_t bytes = 0;

    while (taken < out_max && first + taken < tail->count) {
        const struct nd_tail_run *run = run_at(tail, first + taken);
        if (taken > 0 && (bytes >= bytes_max || run->records.size > bytes_max - bytes)) {
            break;
        }
        bytes += run->records.size;
        out[taken] = *run;
        nd_block_ref(run->block);
        taken += 1;
    }
    return taken;
}

uint32_t nd_tail_take_below(const struct nd_tail *tail, uint64_t sequence, struct nd_tail_run *out,
                            uint32_t out_max, size_t bytes_max)
{
    uint32_t taken = 0;
    size_t bytes = 0;

    for (uint32_t i = cached_count(tail); i < tail->count && taken < out_max; i++) {
        const struct nd_tail_run *run = run_at(tail, i);
        if (run->sequence >= sequence) {
            continue;
        }
        if (run_bytes(run) > bytes_max - bytes) {
            break;
        }
        bytes += run_bytes(run);
        out[taken] = *run;
        nd_block_ref(run->block);
        taken += 1;
    }
    return taken;
}

void nd_tail_restated(struct nd_tail *tail, const uint64_t *bases, uint32_t count,
                      uint64_t sequence)
{
    uint32_t cached = cached_count(tail);

    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = run_find(tail, bases[i]);
        if (index >= cached && index < tail->count &&
            run_at(tail, index)->base_offset == bases[i]) {
            ND_ASSERT(run_at(tail, index)->sequence < sequence);
            run_at(tail, index)->sequence = sequence;
        }
    }
    tail->unordered = true;
    lowest_find(tail);
}

void nd_tail_set_flushed(struct nd_tail *tail, uint64_t offset)
{
    uint32_t from = cached_count(tail);

    ND_ASSERT(offset >= tail->flushed);
    tail->flushed = offset;
    for (uint32_t i = from, end = cached_count(tail); i < end; i++) {
        size_t bytes = run_bytes(run_at(tail, i));
        tail->bytes_unflushed -= bytes;
        tail->bytes_cached += bytes;
    }
    if (tail->unordered) {
        lowest_find(tail);
    }
}

int64_t nd_tail_time_ms(const struct nd_tail *tail, uint64_t offset)
{
    uint32_t index = run_find(tail, offset);
    struct nd_record_view view;
    size_t size;

    if (index == tail->count || run_at(tail, index)->base_offset > offset ||
        nd_record_get(run_at(tail, index)->records, &view, &size) != ND_OK) {
        return 0;
    }
    return view.time_ms; /* a run has one */
}

uint64_t nd_tail_aged(const struct nd_tail *tail, int64_t cutoff_ms)
{
    uint64_t offset = tail->flushed;

    /* Commit times never decrease along a partition, and a run has one. */
    for (uint32_t i = cached_count(tail); i < tail->count; i++) {
        const struct nd_tail_run *run = run_at(tail, i);
        struct nd_record_view view;
        size_t size;
        if (nd_record_get(run->records, &view, &size) != ND_OK || view.time_ms >= cutoff_ms) {
            break;
        }
        offset = run_end(run);
    }
    return offset;
}

size_t nd_tail_drop_cached(struct nd_tail *tail)
{
    if (tail->count == 0 || run_end(run_at(tail, 0)) > tail->flushed) {
        return 0;
    }
    struct nd_tail_run *run = run_at(tail, 0);
    size_t bytes = run_bytes(run);

    nd_block_unref(run->block);
    *run = (struct nd_tail_run){0};
    tail->head = (tail->head + 1) & (tail->capacity - 1);
    tail->count -= 1;
    tail->bytes_cached -= bytes;
    /* The cursor counts runs from the head. */
    tail->cursor_run =
        tail->cursor_run == 0 || tail->cursor_run == UINT32_MAX ? UINT32_MAX : tail->cursor_run - 1;
    return bytes;
}
