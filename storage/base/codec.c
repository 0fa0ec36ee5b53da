#include "storage/base/codec.h"

struct nd_slice nd_read_slice(struct nd_reader *r, size_t size)
{
    if (size > nd_reader_left(r)) { /* a failed reader has nothing left */
        r->failed = true;
    }
    if (r->failed) {
        return nd_slice_make(NULL, 0);
    }
    const uint8_t *data = size == 0 ? r->data : r->data + r->at;
    r->at += size;
    return nd_slice_make(data, size);
}

uint8_t nd_read_u8(struct nd_reader *r)
{
    struct nd_slice in = nd_read_slice(r, sizeof(uint8_t));

    return in.data == NULL ? 0 : in.data[0];
}

uint16_t nd_read_u16(struct nd_reader *r)
{
    struct nd_slice in = nd_read_slice(r, sizeof(uint16_t));

    return in.data == NULL ? 0 : nd_get_u16(in.data);
}

uint32_t nd_read_u32(struct nd_reader *r)
{
    struct nd_slice in = nd_read_slice(r, sizeof(uint32_t));

    return in.data == NULL ? 0 : nd_get_u32(in.data);
}

uint64_t nd_read_u64(struct nd_reader *r)
{
    struct nd_slice in = nd_read_slice(r, sizeof(uint64_t));

    return in.data == NULL ? 0 : nd_get_u64(in.data);
}
