/* A frame: a run of records in a segment, compressed or not, with a checksum of its own (F4).
 * Little-endian:
 *
 *    0 u32 magic          "NDFR"; outside the checksum, so that a scan can look for it
 *    4 u32 crc32c         over the segment's epoch, bytes [8, 48) and the payload
 *    8 u8  format         1
 *    9 u8  codec          0 none, 1 zstd
 *   10 u16 reserved       0
 *   12 u32 record_count   >= 1
 *   16 u64 base_offset
 *   24 u32 raw_size       of the records, <= 2 MiB
 *   28 u32 stored_size    of the payload, <= raw_size; == raw_size exactly when the codec is none
 *   32 i64 first_ms       commit time of the first record
 *   40 i64 last_ms        and of the last
 *   48 payload
 *
 * The epoch is 8 random bytes of the segment file: bytes of another file, or of a payload, never
 * pass for a frame. Every size is checked before anything is allocated (I-36). To change the format
 * see storage/README.md. */
#ifndef ND_FRAME_H
#define ND_FRAME_H

#include "storage/compress.h"
#include "storage/record.h"

enum {
    ND_FRAME_HEADER_SIZE = 48,
    ND_FRAME_RAW_MAX = 2 << 20, /* more than the largest record */
    ND_FRAME_SIZE_MAX = ND_FRAME_HEADER_SIZE + ND_FRAME_RAW_MAX,
    ND_FRAME_MAGIC = 0x5246444e,
};

struct nd_frame_header {
    enum nd_codec codec;
    uint32_t crc;
    uint32_t record_count;
    uint64_t base_offset;
    uint32_t raw_size, stored_size;
    int64_t first_ms, last_ms;
};

static inline size_t nd_frame_size(const struct nd_frame_header *header)
{
    return ND_FRAME_HEADER_SIZE + (size_t)header->stored_size;
}
static inline uint64_t nd_frame_end(const struct nd_frame_header *header)
{
    return header->base_offset + header->record_count;
}

/* Write the header in front of the payload that already lies at frame + ND_FRAME_HEADER_SIZE, with
 * its checksum; header->crc is set. */
void nd_frame_finish(uint8_t *frame, uint64_t epoch, struct nd_frame_header *header);
/* Read a header; CORRUPT when `in` is too short or a field is out of range. The checksum is not
 * looked at. */
ND_CHECKED enum nd_err nd_frame_header_get(struct nd_slice in, struct nd_frame_header *out);
/* Does the checksum hold over the whole frame, which begins `frame`? */
bool nd_frame_crc_holds(const uint8_t *frame, uint64_t epoch, const struct nd_frame_header *header);
/* Decode the payload of a frame whose checksum holds into `out`, which has header->raw_size bytes,
 * and check every record. CORRUPT when it is not exactly record_count valid records. */
ND_CHECKED enum nd_err nd_frame_decode(const uint8_t *frame, const struct nd_frame_header *header,
                                       uint8_t *out);

#endif
