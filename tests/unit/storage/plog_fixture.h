/* What the tests of the partition logs share: a simulated disk, runs whose payloads tell their
 * offset, and one flush of a log without the flusher. */
#ifndef ND_TESTS_PLOG_FIXTURE_H
#define ND_TESTS_PLOG_FIXTURE_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

#include "storage/plog.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

static const uint8_t fixture_store_id[16] = "store-id-of-test";

#define FIXTURE_DIR "data/topics/orders/0000000000000007/p00003"

static inline struct nd_plog_options fixture_options(const struct nd_env *env)
{
    struct nd_plog_options options = {
        .env = env,
        .segment_bytes = 64 << 10,
        .frame_bytes = 4 << 10,
        .index_stride_bytes = 8 << 10,
        .codec = ND_CODEC_ZSTD,
        .level = ND_LEVEL_FASTEST,
    };
    memcpy(options.store_id, fixture_store_id, sizeof options.store_id);
    return options;
}

/* The payload of an offset: `size` bytes (at least 24) that begin with the offset in decimal and go
 * on with noise that depends on it, half of it hard to compress. */
static inline void fixture_payload(uint64_t offset, uint8_t *out, size_t size)
{
    uint64_t noise = offset * 0x9e3779b97f4a7c15u + 1;

    memset(out, 'x', size);
    snprintf((char *)out, size, "%020" PRIu64, offset);
    for (size_t i = size / 2; i < size; i++) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        out[i] = (uint8_t)noise;
    }
}

static inline struct nd_tail_run fixture_run(uint64_t base, uint32_t count, size_t payload_size)
{
    struct nd_block *block = nd_block_new(count * nd_record_size(0, 0, payload_size));
    uint8_t *payload = nd_xmalloc(payload_size);
    size_t size = 0;

    for (uint32_t i = 0; i < count; i++) {
        fixture_payload(base + i, payload, payload_size);
        size_t put = nd_record_put(block->bytes + size, nd_slice_str(""), NULL, 0,
                                   nd_slice_make(payload, payload_size));
        nd_run_set_time(block->bytes + size, put, 1000 + (int64_t)(base + i));
        size += put;
    }
    nd_free(payload);
    return (struct nd_tail_run){
        .block = block, .records = {block->bytes, size}, .base_offset = base, .count = count};
}

/* One whole round of one log: write, sync, verify. */
static inline enum nd_err fixture_flush_runs(const struct nd_env *env, struct nd_plog *plog,
                                             const struct nd_tail_run *runs, uint32_t count)
{
    uint64_t end;
    enum nd_err err = nd_plog_write(plog, runs, count, NULL);

    if (err != ND_OK) {
        return err;
    }
    int file = nd_plog_pending_file(plog);
    if (file != -1) {
        nd_plog_synced(plog, env->sync(env->impl, file, NULL), false);
    }
    return nd_plog_verify(plog, &end, NULL);
}

static inline enum nd_err fixture_flush(const struct nd_env *env, struct nd_plog *plog,
                                        uint64_t base, uint32_t count, size_t payload_size)
{
    struct nd_tail_run run = fixture_run(base, count, payload_size);
    enum nd_err err = fixture_flush_runs(env, plog, &run, 1);

    nd_block_unref(run.block);
    return err;
}

/* Read one offset. OK only when the record is exactly the one that was written there; anything else
 * that is served as good fails the test on the spot (I-35). */
static inline enum nd_err fixture_read(struct nd_plog *plog, uint64_t offset, size_t payload_size,
                                       uint64_t *next_out)
{
    struct nd_frame_data frame;
    struct nd_record_view view;
    uint8_t *payload = nd_xmalloc(payload_size);
    size_t size;
    enum nd_err err = nd_plog_read(plog, offset, &frame, next_out, NULL);

    if (err == ND_OK) {
        assert_true(frame.base_offset <= offset && offset < frame.base_offset + frame.count);
        size_t at = nd_run_seek(frame.records, (uint32_t)(offset - frame.base_offset));
        assert_int_equal(
            nd_record_get(nd_slice_make(frame.records.data + at, frame.records.size - at), &view,
                          &size),
            ND_OK);
        fixture_payload(offset, payload, payload_size);
        assert_true(nd_slice_equal(view.payload, nd_slice_make(payload, payload_size)));
        assert_int_equal(view.time_ms, 1000 + (int64_t)offset);
        nd_block_unref(frame.block);
    }
    nd_free(payload);
    return err;
}

/* How many of [first, end) read well; none is ever wrong. */
static inline uint64_t fixture_count(struct nd_plog *plog, uint64_t first, uint64_t end,
                                     size_t payload_size)
{
    uint64_t good = 0, next;

    for (uint64_t offset = first; offset < end; offset++) {
        good += fixture_read(plog, offset, payload_size, &next) == ND_OK;
    }
    return good;
}

#endif
