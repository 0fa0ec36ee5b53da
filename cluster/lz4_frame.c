#include "cluster/lz4_frame.h"

#include "storage/base/codec.h"

enum {
    HEAD_MIN = 7,
    FLAG_DICTIONARY = 1,
    FLAG_CHECKSUM = 4,
    FLAG_CONTENT_SIZE = 8,
    FLAG_BLOCK_CHECKSUM = 16,
};

static const uint32_t magic = 0x184d2204, stored = 0x80000000;

bool nd_lz4_frame_begins(struct nd_slice in)
{
    return in.size >= 4 && nd_get_u32(in.data) == magic;
}

bool nd_lz4_frame_is_whole(struct nd_slice in)
{
    if (in.size < HEAD_MIN || !nd_lz4_frame_begins(in)) {
        return false;
    }
    uint8_t flags = in.data[4];
    size_t block_tail = (flags & FLAG_BLOCK_CHECKSUM) != 0 ? 4 : 0;
    size_t at = HEAD_MIN + ((flags & FLAG_CONTENT_SIZE) != 0 ? 8 : 0) +
                ((flags & FLAG_DICTIONARY) != 0 ? 4 : 0);

    while (at <= in.size && in.size - at >= 4) {
        uint32_t head = nd_get_u32(in.data + at);
        at += 4;
        if (head == 0) {
            return in.size - at == ((flags & FLAG_CHECKSUM) != 0 ? 4u : 0u);
        }
        size_t block = (size_t)(head & ~stored) + block_tail;
        if (block > in.size - at) {
            return false;
        }
        at += block;
    }
    return false;
}
