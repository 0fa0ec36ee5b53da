#include "storage/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

enum { CAPACITY_MIN = 64 };

void nd_buf_init(struct nd_buf *buf, size_t size_max)
{
    *buf = (struct nd_buf){.size_max = size_max};
}

void nd_buf_reset(struct nd_buf *buf)
{
    buf->size = 0;
    buf->failed = false;
}

void nd_buf_release(struct nd_buf *buf)
{
    nd_free(buf->data);
    nd_buf_init(buf, buf->size_max);
}

/* Room for `more` bytes at the end, or failed. */
static bool reserve(struct nd_buf *buf, size_t more)
{
    if (buf->failed) {
        return false;
    }
    if (more > buf->size_max || buf->size > buf->size_max - more) {
        buf->failed = true;
        return false;
    }
    size_t need = buf->size + more;
    if (need <= buf->capacity) {
        return true;
    }
    size_t capacity = buf->capacity > buf->size_max / 2 ? buf->size_max : buf->capacity * 2;
    capacity = ND_MAX(capacity, ND_MIN((size_t)CAPACITY_MIN, buf->size_max));
    capacity = ND_MAX(capacity, need);
    uint8_t *data = realloc(buf->data, capacity);
    if (data == NULL) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void nd_buf_put(struct nd_buf *buf, const void *data, size_t size)
{
    if (reserve(buf, size) && size > 0) {
        memcpy(buf->data + buf->size, data, size);
        buf->size += size;
    }
}

void nd_buf_put_slice(struct nd_buf *buf, struct nd_slice slice)
{
    nd_buf_put(buf, slice.data, slice.size);
}

void nd_buf_put_u8(struct nd_buf *buf, uint8_t value)
{
    nd_buf_put(buf, &value, sizeof value);
}

void nd_buf_put_u16(struct nd_buf *buf, uint16_t value)
{
    uint8_t bytes[sizeof value];

    nd_put_u16(bytes, value);
    nd_buf_put(buf, bytes, sizeof bytes);
}

void nd_buf_put_u32(struct nd_buf *buf, uint32_t value)
{
    uint8_t bytes[sizeof value];

    nd_put_u32(bytes, value);
    nd_buf_put(buf, bytes, sizeof bytes);
}

void nd_buf_put_u64(struct nd_buf *buf, uint64_t value)
{
    uint8_t bytes[sizeof value];

    nd_put_u64(bytes, value);
    nd_buf_put(buf, bytes, sizeof bytes);
}

void nd_buf_put_text(struct nd_buf *buf, const char *text)
{
    nd_buf_put(buf, text, strlen(text));
}

void nd_buf_printf(struct nd_buf *buf, const char *format, ...)
{
    char small[512];
    va_list args;

    va_start(args, format);
    int size = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (size < 0) {
        buf->failed = true;
        return;
    }
    if ((size_t)size < sizeof small) {
        nd_buf_put(buf, small, (size_t)size);
        return;
    }
    char *large = buf->failed || (size_t)size > buf->size_max ? NULL : nd_malloc((size_t)size + 1);
    if (large == NULL) {
        buf->failed = true;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(large, (size_t)size + 1, format, args);
    va_end(args);
    nd_buf_put(buf, large, (size_t)size);
    nd_free(large);
}
