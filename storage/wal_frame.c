#include "storage/wal_frame.h"

#include "storage/base/codec.h"
#include "storage/base/crc32c.h"

/* Where the parts lie; drawn in storage/README.md. To change a format see there too. */
enum {
    FRAME_MAGIC = 0x4d52464e, /* "NFRM" */
    FRAME_FORMAT = 1,
    FRAME_AT_FORMAT = 4,
    FRAME_AT_HEADER_SIZE = 6,
    FRAME_AT_EPOCH = 8,
    FRAME_AT_FIRST = 16,
    FRAME_AT_SYNCED_TO = 24,
    FRAME_AT_BODY_SIZE = 32,
    FRAME_AT_SEQUENCES = 36,
    FRAME_AT_RESERVED = 40,
    FRAME_AT_CRC = 44,

    HEADER_FORMAT = 1,
    HEADER_AT_FORMAT = 8,
    HEADER_AT_STORE = 16,
    HEADER_AT_EPOCH = 32,
    HEADER_AT_WRITER = 40,
    HEADER_AT_FIRST = 48,
    HEADER_AT_PREVIOUS_END = 56,
    HEADER_AT_FILE_BYTES = 64,
    HEADER_AT_CRC = ND_WAL_BLOCK - 4,

    COPY_STEP = 16 << 10, /* half of a first-level cache */
};

static const uint8_t header_magic[8] = {'N', 'A', 'R', 'A', 'D', 'W', 'A', 'L'};

/* Epoch and place go in first: a frame of another file or of another place has another CRC. */
static uint32_t crc_begin(uint64_t epoch, uint64_t at)
{
    uint8_t seed[16];

    nd_put_u64(seed, epoch);
    nd_put_u64(seed + 8, at);
    return nd_crc32c(0, seed, sizeof seed);
}

void nd_wal_frame_begin(struct nd_wal_frame_writer *writer, uint8_t *data,
                        const struct nd_wal_frame *frame)
{
    nd_put_u32(data, FRAME_MAGIC);
    nd_put_u16(data + FRAME_AT_FORMAT, FRAME_FORMAT);
    nd_put_u16(data + FRAME_AT_HEADER_SIZE, ND_WAL_FRAME_HEADER_SIZE);
    nd_put_u64(data + FRAME_AT_EPOCH, frame->epoch);
    nd_put_u64(data + FRAME_AT_FIRST, frame->first_sequence);
    nd_put_u64(data + FRAME_AT_SYNCED_TO, frame->synced_to);
    nd_put_u32(data + FRAME_AT_BODY_SIZE, frame->body_size);
    nd_put_u32(data + FRAME_AT_SEQUENCES, frame->sequences);
    nd_put_u32(data + FRAME_AT_RESERVED, 0);
    writer->data = data;
    writer->size = ND_WAL_FRAME_HEADER_SIZE;
    writer->crc = nd_crc32c(crc_begin(frame->epoch, frame->at), data, FRAME_AT_CRC);
}

void nd_wal_frame_add(struct nd_wal_frame_writer *writer, struct nd_slice piece)
{
    while (piece.size > 0) {
        size_t step = ND_MIN(piece.size, (size_t)COPY_STEP);
        memcpy(writer->data + writer->size, piece.data, step);
        writer->crc = nd_crc32c(writer->crc, piece.data, step);
        writer->size += step;
        piece = nd_slice_make(piece.data + step, piece.size - step);
    }
}

size_t nd_wal_frame_end(struct nd_wal_frame_writer *writer)
{
    size_t size = (size_t)nd_wal_frame_bytes(writer->size - ND_WAL_FRAME_HEADER_SIZE);

    ND_ASSERT(nd_get_u32(writer->data + FRAME_AT_BODY_SIZE) ==
              writer->size - ND_WAL_FRAME_HEADER_SIZE);
    nd_put_u32(writer->data + FRAME_AT_CRC, writer->crc);
    memset(writer->data + writer->size, 0, size - writer->size);
    return size;
}

bool nd_wal_frame_get(const uint8_t *header, uint64_t epoch, uint64_t at, struct nd_wal_frame *out)
{
    if (nd_get_u32(header) != FRAME_MAGIC || nd_get_u16(header + FRAME_AT_FORMAT) != FRAME_FORMAT ||
        nd_get_u16(header + FRAME_AT_HEADER_SIZE) != ND_WAL_FRAME_HEADER_SIZE ||
        nd_get_u64(header + FRAME_AT_EPOCH) != epoch) {
        return false;
    }
    *out = (struct nd_wal_frame){.epoch = epoch,
                                 .at = at,
                                 .first_sequence = nd_get_u64(header + FRAME_AT_FIRST),
                                 .synced_to = nd_get_u64(header + FRAME_AT_SYNCED_TO),
                                 .body_size = nd_get_u32(header + FRAME_AT_BODY_SIZE),
                                 .sequences = nd_get_u32(header + FRAME_AT_SEQUENCES)};
    return (out->body_size == 0) == (out->sequences == 0) &&
           out->first_sequence <= UINT64_MAX - out->sequences && out->synced_to <= at;
}

uint64_t nd_wal_frame_epoch(const uint8_t *header)
{
    return nd_get_u64(header + FRAME_AT_EPOCH);
}

bool nd_wal_frame_check(const uint8_t *data, const struct nd_wal_frame *frame)
{
    uint32_t crc = nd_crc32c(crc_begin(frame->epoch, frame->at), data, FRAME_AT_CRC);

    crc = nd_crc32c(crc, data + ND_WAL_FRAME_HEADER_SIZE, frame->body_size);
    return crc == nd_get_u32(data + FRAME_AT_CRC);
}

void nd_wal_header_put(uint8_t block[ND_WAL_BLOCK], const struct nd_wal_header *header)
{
    memset(block, 0, ND_WAL_BLOCK);
    memcpy(block, header_magic, sizeof header_magic);
    nd_put_u16(block + HEADER_AT_FORMAT, HEADER_FORMAT);
    memcpy(block + HEADER_AT_STORE, header->store_id, sizeof header->store_id);
    nd_put_u64(block + HEADER_AT_EPOCH, header->epoch);
    nd_put_u64(block + HEADER_AT_WRITER, header->writer);
    nd_put_u64(block + HEADER_AT_FIRST, header->first_sequence);
    nd_put_u64(block + HEADER_AT_PREVIOUS_END, header->previous_end);
    nd_put_u64(block + HEADER_AT_FILE_BYTES, header->file_bytes);
    nd_put_u32(block + HEADER_AT_CRC, nd_crc32c(0, block, HEADER_AT_CRC));
}

enum nd_err nd_wal_header_get(const uint8_t block[ND_WAL_BLOCK], struct nd_wal_header *out)
{
    if (memcmp(block, header_magic, sizeof header_magic) != 0 ||
        nd_get_u32(block + HEADER_AT_CRC) != nd_crc32c(0, block, HEADER_AT_CRC)) {
        return ND_ERR_CORRUPT;
    }
    if (nd_get_u16(block + HEADER_AT_FORMAT) != HEADER_FORMAT) {
        return ND_ERR_UNSUPPORTED;
    }
    memcpy(out->store_id, block + HEADER_AT_STORE, sizeof out->store_id);
    out->epoch = nd_get_u64(block + HEADER_AT_EPOCH);
    out->writer = nd_get_u64(block + HEADER_AT_WRITER);
    out->first_sequence = nd_get_u64(block + HEADER_AT_FIRST);
    out->previous_end = nd_get_u64(block + HEADER_AT_PREVIOUS_END);
    out->file_bytes = nd_get_u64(block + HEADER_AT_FILE_BYTES);
    if (out->first_sequence <= out->previous_end || out->file_bytes < 2 * ND_WAL_BLOCK) {
        return ND_ERR_CORRUPT;
    }
    return ND_OK;
}
