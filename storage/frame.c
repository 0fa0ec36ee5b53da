#include "storage/frame.h"

#include <assert.h>

#include "storage/base/codec.h"
#include "storage/base/crc32c.h"

/* Where the header's fields lie; see the drawing in frame.h. */
enum {
    AT_MAGIC = 0,
    AT_CRC = 4,
    AT_FORMAT = 8,
    AT_CODEC = 9,
    AT_RESERVED = 10,
    AT_RECORD_COUNT = 12,
    AT_BASE_OFFSET = 16,
    AT_RAW_SIZE = 24,
    AT_STORED_SIZE = 28,
    AT_FIRST_MS = 32,
    AT_LAST_MS = 40,
    FORMAT = 1,
    RECORD_SIZE_MIN = ND_RECORD_HEADER_SIZE + 1,
};

static_assert((size_t)ND_FRAME_RAW_MAX >= ND_RECORD_SIZE_MAX, "every record fits a frame");

static uint32_t frame_crc(const uint8_t *frame, uint64_t epoch, size_t stored_size)
{
    uint8_t seed[8];

    nd_put_u64(seed, epoch);
    return nd_crc32c(nd_crc32c(0, seed, sizeof seed), frame + AT_FORMAT,
                     ND_FRAME_HEADER_SIZE - AT_FORMAT + stored_size);
}

static bool header_is_sane(const struct nd_frame_header *h)
{
    bool codec_fits = h->codec == ND_CODEC_NONE
                          ? h->stored_size == h->raw_size
                          : h->codec == ND_CODEC_ZSTD && h->stored_size < h->raw_size;

    return codec_fits && h->stored_size > 0 && h->raw_size <= ND_FRAME_RAW_MAX &&
           h->record_count > 0 && h->record_count <= h->raw_size / RECORD_SIZE_MIN &&
           h->base_offset <= UINT64_MAX - h->record_count && h->first_ms >= 0 && h->last_ms >= 0;
}

void nd_frame_finish(uint8_t *frame, uint64_t epoch, struct nd_frame_header *header)
{
    ND_ASSERT(header_is_sane(header));
    nd_put_u32(frame + AT_MAGIC, ND_FRAME_MAGIC);
    frame[AT_FORMAT] = FORMAT;
    frame[AT_CODEC] = (uint8_t)header->codec;
    nd_put_u16(frame + AT_RESERVED, 0);
    nd_put_u32(frame + AT_RECORD_COUNT, header->record_count);
    nd_put_u64(frame + AT_BASE_OFFSET, header->base_offset);
    nd_put_u32(frame + AT_RAW_SIZE, header->raw_size);
    nd_put_u32(frame + AT_STORED_SIZE, header->stored_size);
    nd_put_u64(frame + AT_FIRST_MS, (uint64_t)header->first_ms);
    nd_put_u64(frame + AT_LAST_MS, (uint64_t)header->last_ms);
    header->crc = frame_crc(frame, epoch, header->stored_size);
    nd_put_u32(frame + AT_CRC, header->crc);
}

enum nd_err nd_frame_header_get(struct nd_slice in, struct nd_frame_header *out)
{
    const uint8_t *p = in.data;

    if (in.size < ND_FRAME_HEADER_SIZE || nd_get_u32(p + AT_MAGIC) != ND_FRAME_MAGIC ||
        p[AT_FORMAT] != FORMAT || p[AT_CODEC] > ND_CODEC_ZSTD || nd_get_u16(p + AT_RESERVED) != 0) {
        return ND_ERR_CORRUPT;
    }
    struct nd_frame_header header = {
        .codec = (enum nd_codec)p[AT_CODEC],
        .crc = nd_get_u32(p + AT_CRC),
        .record_count = nd_get_u32(p + AT_RECORD_COUNT),
        .base_offset = nd_get_u64(p + AT_BASE_OFFSET),
        .raw_size = nd_get_u32(p + AT_RAW_SIZE),
        .stored_size = nd_get_u32(p + AT_STORED_SIZE),
        .first_ms = (int64_t)nd_get_u64(p + AT_FIRST_MS),
        .last_ms = (int64_t)nd_get_u64(p + AT_LAST_MS),
    };
    if (!header_is_sane(&header)) {
        return ND_ERR_CORRUPT;
    }
    *out = header;
    return ND_OK;
}

bool nd_frame_crc_holds(const uint8_t *frame, uint64_t epoch, const struct nd_frame_header *header)
{
    return frame_crc(frame, epoch, header->stored_size) == header->crc;
}

enum nd_err nd_frame_decode(const uint8_t *frame, const struct nd_frame_header *header,
                            uint8_t *out)
{
    struct nd_slice payload = {frame + ND_FRAME_HEADER_SIZE, header->stored_size};

    if (header->codec == ND_CODEC_NONE) {
        memcpy(out, payload.data, payload.size);
    } else {
        enum nd_err err = nd_decompress(payload, out, header->raw_size);
        if (err != ND_OK) {
            return err;
        }
    }
    return nd_run_check(nd_slice_make(out, header->raw_size), header->record_count);
}
