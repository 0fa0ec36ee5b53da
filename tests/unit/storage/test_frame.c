/* storage/frame and storage/index: codecs, limits, hostile bytes. */
#include "storage/base/codec.h"

#include "storage/frame.h"
#include "storage/index.h"
#include "tests/unit/storage/plog_fixture.h"

enum { EPOCH = 77 };

/* A frame of `count` records; returns its bytes (nd_free). */
static uint8_t *frame_make(enum nd_codec codec, uint32_t count, struct nd_frame_header *header)
{
    struct nd_tail_run run = fixture_run(100, count, 60);
    uint8_t *frame = nd_xmalloc(ND_FRAME_HEADER_SIZE + run.records.size);
    size_t stored = 0;

    if (codec == ND_CODEC_ZSTD) {
        struct nd_compressor *compressor = nd_compressor_new();
        stored = nd_compress(compressor, ND_LEVEL_FASTEST, run.records,
                             frame + ND_FRAME_HEADER_SIZE, run.records.size);
        nd_compressor_free(compressor);
        assert_true(stored > 0);
    } else {
        stored = run.records.size;
        memcpy(frame + ND_FRAME_HEADER_SIZE, run.records.data, stored);
    }
    *header = (struct nd_frame_header){
        .codec = codec,
        .record_count = count,
        .base_offset = 100,
        .raw_size = (uint32_t)run.records.size,
        .stored_size = (uint32_t)stored,
        .first_ms = 1100,
        .last_ms = 1100 + count - 1,
    };
    nd_frame_finish(frame, EPOCH, header);
    nd_block_unref(run.block);
    return frame;
}

/* Is it a frame, and do its records decode? */
static bool frame_accepted(const uint8_t *bytes, size_t size)
{
    struct nd_frame_header header;

    if (nd_frame_header_get(nd_slice_make(bytes, size), &header) != ND_OK ||
        nd_frame_size(&header) > size || !nd_frame_crc_holds(bytes, EPOCH, &header)) {
        return false;
    }
    uint8_t *raw = nd_xmalloc(header.raw_size);
    enum nd_err err = nd_frame_decode(bytes, &header, raw);
    nd_free(raw);
    return err == ND_OK;
}

static void frame__round_trips_with_each_codec(void **state)
{
    (void)state;

    for (int codec = ND_CODEC_NONE; codec <= ND_CODEC_ZSTD; codec++) {
        struct nd_frame_header header, got;
        struct nd_tail_run run = fixture_run(100, 50, 60);
        uint8_t *frame = frame_make((enum nd_codec)codec, 50, &header);
        uint8_t *raw = nd_xmalloc(header.raw_size);

        assert_int_equal(nd_frame_header_get(nd_slice_make(frame, nd_frame_size(&header)), &got),
                         ND_OK);
        assert_int_equal(got.crc, header.crc);
        assert_int_equal(got.codec, header.codec);
        assert_int_equal(got.base_offset, 100);
        assert_int_equal(got.record_count, 50);
        assert_int_equal(got.first_ms, 1100);
        assert_int_equal(got.last_ms, 1149);
        assert_true(nd_frame_crc_holds(frame, EPOCH, &got));
        assert_false(nd_frame_crc_holds(frame, EPOCH + 1, &got)); /* another file's */
        assert_int_equal(nd_frame_decode(frame, &got, raw), ND_OK);
        assert_memory_equal(raw, run.records.data, run.records.size);
        nd_block_unref(run.block);
        nd_free(raw);
        nd_free(frame);
    }
}

static void frame__refuses_every_flipped_bit_and_truncation(void **state)
{
    struct nd_frame_header header;
    uint8_t *frame = frame_make(ND_CODEC_ZSTD, 5, &header);
    size_t size = nd_frame_size(&header);
    (void)state;

    assert_true(frame_accepted(frame, size));
    for (size_t at = 0; at < size; at++) {
        for (uint32_t bit = 0; bit < 8; bit++) {
            frame[at] ^= (uint8_t)(1u << bit);
            assert_false(frame_accepted(frame, size));
            frame[at] ^= (uint8_t)(1u << bit);
        }
        uint8_t *cut = nd_xmalloc(at + 1);
        memcpy(cut, frame, at);
        assert_false(frame_accepted(cut, at));
        nd_free(cut);
    }
    nd_free(frame);
}

/* I-36: no header, however made, asks for more than the limit, and a lie about sizes with a good
 * checksum does not decode. */
static void frame_bounds_fuzz(void **state)
{
    struct nd_frame_header header;
    uint8_t *frame = frame_make(ND_CODEC_ZSTD, 20, &header);
    uint32_t accepted = 0;
    (void)state;

    srandom(36);
    for (uint32_t round = 0; round < 300000; round++) {
        uint8_t bytes[ND_FRAME_HEADER_SIZE];
        struct nd_frame_header got;
        memcpy(bytes, frame, sizeof bytes);
        for (uint32_t change = 1 + (uint32_t)random() % 3; change > 0; change--) {
            bytes[8 + random() % 40] = (uint8_t)random();
        }
        if (nd_frame_header_get(nd_slice_make(bytes, sizeof bytes), &got) == ND_OK) {
            accepted += 1;
            assert_true(got.raw_size <= ND_FRAME_RAW_MAX && got.stored_size <= got.raw_size);
            assert_true(got.record_count > 0 && got.record_count <= got.raw_size / 25);
        }
    }
    assert_true(accepted > 0);

    struct nd_frame_header lies[3] = {header, header, header};
    lies[0].raw_size += 1;
    lies[1].raw_size -= 1;
    lies[2].record_count += 1;
    for (size_t i = 0; i < ND_ARRAY_SIZE(lies); i++) {
        nd_frame_finish(frame, EPOCH, &lies[i]);
        assert_false(frame_accepted(frame, nd_frame_size(&lies[i])));
    }
    nd_free(frame);
}

static void compress__says_when_it_does_not_pay(void **state)
{
    struct nd_compressor *compressor = nd_compressor_new();
    uint8_t noise[64], out[256];
    (void)state;

    fixture_payload(1, noise, sizeof noise);
    assert_int_equal(
        nd_compress(compressor, ND_LEVEL_BEST, nd_slice_make(noise + 32, 32), out, sizeof out), 0);
    memset(noise, 'a', sizeof noise);
    size_t size = nd_compress(compressor, ND_LEVEL_BEST, nd_slice_make(noise, 64), out, sizeof out);
    assert_true(size > 0 && size < 64);
    assert_int_equal(nd_decompress(nd_slice_make(out, size), noise, 63), ND_ERR_CORRUPT);
    assert_int_equal(nd_decompress(nd_slice_make(out, size), noise, 64), ND_OK);
    nd_compressor_free(compressor);
}

static void index__keeps_its_stride_and_finds_the_anchor_below(void **state)
{
    struct nd_index index;
    (void)state;
    nd_index_init(&index);

    for (uint64_t i = 0; i < 100; i++) {
        nd_index_add(&index, i * 10, 4096 + i * 1000, 5000);
    }

    assert_int_equal(index.count, 20);
    assert_int_equal(nd_index_find(&index, 0), 4096);
    assert_int_equal(nd_index_find(&index, 49), 4096);
    assert_int_equal(nd_index_find(&index, 50), 4096 + 5000);
    assert_int_equal(nd_index_find(&index, 100000), 4096 + 95000);
    nd_index_release(&index);
}

static void index_get__refuses_everything_but_the_index_of_the_segment(void **state)
{
    struct nd_segment_summary summary = {.store_id = "0123456789abcde",
                                         .base_offset = 10,
                                         .epoch = 5,
                                         .end_offset = 500,
                                         .records = 480,
                                         .size = 90000,
                                         .first_ms = 3,
                                         .last_ms = 9};
    struct nd_segment_summary ids = {.store_id = "0123456789abcde", .base_offset = 10, .epoch = 5};
    struct nd_index index, got;
    struct nd_buf buf;
    (void)state;
    nd_index_init(&index);
    nd_index_init(&got);
    nd_index_add(&index, 10, 4096, 1);
    nd_index_add(&index, 300, 50000, 1);
    nd_buf_init(&buf, 1 << 20);
    nd_index_put(&buf, &index, &summary);

    struct nd_segment_summary out = ids;
    assert_int_equal(nd_index_get(nd_buf_slice(&buf), &got, &out), ND_OK);
    assert_memory_equal(&out, &summary, sizeof out);
    assert_int_equal(nd_index_find(&got, 299), 4096);
    nd_index_release(&got);
    for (size_t at = 0; at < buf.size; at++) {
        buf.data[at] ^= 0x10;
        out = ids;
        assert_int_equal(nd_index_get(nd_buf_slice(&buf), &got, &out), ND_ERR_CORRUPT);
        buf.data[at] ^= 0x10;
        assert_int_equal(nd_index_get(nd_slice_make(buf.data, at), &got, &out), ND_ERR_CORRUPT);
    }
    out.epoch = 6;
    assert_int_equal(nd_index_get(nd_buf_slice(&buf), &got, &out), ND_ERR_CORRUPT);
    nd_buf_release(&buf);
    nd_index_release(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame__round_trips_with_each_codec),
        cmocka_unit_test(frame__refuses_every_flipped_bit_and_truncation),
        cmocka_unit_test(frame_bounds_fuzz),
        cmocka_unit_test(compress__says_when_it_does_not_pay),
        cmocka_unit_test(index__keeps_its_stride_and_finds_the_anchor_below),
        cmocka_unit_test(index_get__refuses_everything_but_the_index_of_the_segment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
