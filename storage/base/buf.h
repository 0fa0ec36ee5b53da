/* An owned, growing buffer with a limit. A put that would pass the limit, or finds no memory, marks
 * the buffer failed and does nothing from then on: writers check nd_buf_failed() once, at the end.
 */
#ifndef ND_BASE_BUF_H
#define ND_BASE_BUF_H

#include "storage/base/slice.h"

struct nd_buf {
    uint8_t *data;
    size_t size;
    size_t capacity;
    size_t size_max;
    bool failed;
};

void nd_buf_init(struct nd_buf *buf, size_t size_max);
void nd_buf_reset(struct nd_buf *buf); /* empty, keeps the memory */
void nd_buf_release(struct nd_buf *buf);
static inline bool nd_buf_failed(const struct nd_buf *buf)
{
    return buf->failed;
}
static inline struct nd_slice nd_buf_slice(const struct nd_buf *buf)
{
    return nd_slice_make(buf->data, buf->size);
}

void nd_buf_put(struct nd_buf *buf, const void *data, size_t size);
void nd_buf_put_slice(struct nd_buf *buf, struct nd_slice slice);
void nd_buf_put_u8(struct nd_buf *buf, uint8_t value);
void nd_buf_put_u16(struct nd_buf *buf, uint16_t value); /* little-endian, as all stored numbers */
void nd_buf_put_u32(struct nd_buf *buf, uint32_t value);
void nd_buf_put_u64(struct nd_buf *buf, uint64_t value);
void nd_buf_put_text(struct nd_buf *buf, const char *text); /* without the terminator */
void nd_buf_printf(struct nd_buf *buf, const char *format, ...) ND_PRINTF(2, 3);

#endif
