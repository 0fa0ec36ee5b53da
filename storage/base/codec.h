/* Little-endian numbers in bytes, and a reader that cannot run past its end. */
#ifndef ND_BASE_CODEC_H
#define ND_BASE_CODEC_H

#include "storage/base/slice.h"

static inline uint16_t nd_get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t nd_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t nd_get_u64(const uint8_t *p)
{
    return (uint64_t)nd_get_u32(p) | (uint64_t)nd_get_u32(p + 4) << 32;
}
static inline void nd_put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void nd_put_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}
static inline void nd_put_u64(uint8_t *p, uint64_t v)
{
    nd_put_u32(p, (uint32_t)v);
    nd_put_u32(p + 4, (uint32_t)(v >> 32));
}

/* Reads past the end return zeros and set `failed`; check it once, at the end. */
struct nd_reader {
    const uint8_t *data;
    size_t size;
    size_t at;
    bool failed;
};

static inline struct nd_reader nd_reader_make(struct nd_slice in)
{
    return (struct nd_reader){in.data, in.size, 0, false};
}
static inline size_t nd_reader_left(const struct nd_reader *r)
{
    return r->failed ? 0 : r->size - r->at;
}
struct nd_slice nd_read_slice(struct nd_reader *r, size_t size); /* borrowed from the input */
uint8_t nd_read_u8(struct nd_reader *r);
uint16_t nd_read_u16(struct nd_reader *r);
uint32_t nd_read_u32(struct nd_reader *r);
uint64_t nd_read_u64(struct nd_reader *r);

#endif
