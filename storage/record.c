#include "storage/record.h"

#include "storage/base/codec.h"

/* Where the parts of the record header lie; see the drawing in record.h. */
enum {
    AT_SIZE = 0,
    AT_VERSION = 4,
    AT_HEADER_COUNT = 5,
    AT_KEY_SIZE = 6,
    AT_HEADERS_SIZE = 8,
    AT_RESERVED = 12,
    AT_TIME = 16,
    HEADER_PREFIX_SIZE = 3, /* u8 name size, u16 value size */
};

size_t nd_record_headers_size(const struct nd_record_header *headers, uint32_t header_count)
{
    size_t size = 0;

    for (uint32_t i = 0; i < header_count; i++) {
        size += HEADER_PREFIX_SIZE + headers[i].name.size + headers[i].value.size;
    }
    return size;
}

static uint8_t *slice_put(uint8_t *out, struct nd_slice slice)
{
    if (slice.size > 0) {
        memcpy(out, slice.data, slice.size);
    }
    return out + slice.size;
}

static uint8_t *header_put(uint8_t *out, const struct nd_record_header *header)
{
    ND_ASSERT(header->name.size >= 1 && header->name.size <= ND_HEADER_NAME_SIZE_MAX);
    ND_ASSERT(header->value.size <= ND_HEADERS_SIZE_MAX);
    out[0] = (uint8_t)header->name.size;
    nd_put_u16(out + 1, (uint16_t)header->value.size);
    out = slice_put(out + HEADER_PREFIX_SIZE, header->name);
    return slice_put(out, header->value);
}

size_t nd_record_put(uint8_t *out, struct nd_slice key, const struct nd_record_header *headers,
                     uint32_t header_count, struct nd_slice payload)
{
    size_t headers_size = nd_record_headers_size(headers, header_count);
    size_t size = nd_record_size(key.size, headers_size, payload.size);
    uint8_t *at = out + ND_RECORD_HEADER_SIZE;

    ND_ASSERT(key.size <= ND_KEY_SIZE_MAX);
    ND_ASSERT(header_count <= ND_HEADER_COUNT_MAX);
    ND_ASSERT(headers_size - HEADER_PREFIX_SIZE * (size_t)header_count <= ND_HEADERS_SIZE_MAX);
    ND_ASSERT(payload.size >= 1 && payload.size <= ND_PAYLOAD_SIZE_MAX);
    nd_put_u32(out + AT_SIZE, (uint32_t)size);
    out[AT_VERSION] = ND_RECORD_VERSION;
    out[AT_HEADER_COUNT] = (uint8_t)header_count;
    nd_put_u16(out + AT_KEY_SIZE, (uint16_t)key.size);
    nd_put_u32(out + AT_HEADERS_SIZE, (uint32_t)headers_size);
    nd_put_u32(out + AT_RESERVED, 0);
    nd_put_u64(out + AT_TIME, 0);
    at = slice_put(at, key);
    for (uint32_t i = 0; i < header_count; i++) {
        at = header_put(at, &headers[i]);
    }
    at = slice_put(at, payload);
    ND_ASSERT((size_t)(at - out) == size);
    return size;
}

/* Are these exactly `count` headers, each within its limits? */
static bool headers_valid(struct nd_slice area, uint32_t count)
{
    size_t at = 0, text_size = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (area.size - at < HEADER_PREFIX_SIZE) {
            return false;
        }
        size_t name_size = area.data[at];
        size_t value_size = nd_get_u16(area.data + at + 1);
        at += HEADER_PREFIX_SIZE;
        if (name_size < 1 || name_size > ND_HEADER_NAME_SIZE_MAX ||
            name_size + value_size > area.size - at) {
            return false;
        }
        at += name_size + value_size;
        text_size += name_size + value_size;
    }
    return at == area.size && text_size <= ND_HEADERS_SIZE_MAX;
}

enum nd_err nd_record_get(struct nd_slice in, struct nd_record_view *out, size_t *size_out)
{
    if (in.size < ND_RECORD_HEADER_SIZE) {
        return ND_ERR_CORRUPT;
    }
    const uint8_t *p = in.data;
    size_t size = nd_get_u32(p + AT_SIZE);
    size_t key_size = nd_get_u16(p + AT_KEY_SIZE);
    size_t headers_size = nd_get_u32(p + AT_HEADERS_SIZE);
    uint32_t header_count = p[AT_HEADER_COUNT];
    uint64_t time_ms = nd_get_u64(p + AT_TIME);

    if (size > in.size || size > ND_RECORD_SIZE_MAX || p[AT_VERSION] != ND_RECORD_VERSION ||
        header_count > ND_HEADER_COUNT_MAX || key_size > ND_KEY_SIZE_MAX ||
        headers_size > ND_HEADERS_SIZE_MAX + HEADER_PREFIX_SIZE * ND_HEADER_COUNT_MAX ||
        nd_get_u32(p + AT_RESERVED) != 0 || time_ms > INT64_MAX) {
        return ND_ERR_CORRUPT;
    }
    size_t payload_at = ND_RECORD_HEADER_SIZE + key_size + headers_size;
    if (payload_at >= size || size - payload_at > ND_PAYLOAD_SIZE_MAX) {
        return ND_ERR_CORRUPT;
    }
    struct nd_slice headers = {p + ND_RECORD_HEADER_SIZE + key_size, headers_size};
    if (!headers_valid(headers, header_count)) {
        return ND_ERR_CORRUPT;
    }
    *out = (struct nd_record_view){
        .key = {p + ND_RECORD_HEADER_SIZE, key_size},
        .payload = {p + payload_at, size - payload_at},
        .headers = headers,
        .header_count = header_count,
        .time_ms = (int64_t)time_ms,
    };
    *size_out = size;
    return ND_OK;
}

bool nd_record_header_next(struct nd_slice headers, size_t *at, struct nd_record_header *out)
{
    if (*at >= headers.size) {
        return false;
    }
    const uint8_t *p = headers.data + *at;
    size_t name_size = p[0];
    size_t value_size = nd_get_u16(p + 1);

    ND_ASSERT(headers.size - *at >= HEADER_PREFIX_SIZE + name_size + value_size);
    out->name = nd_slice_make(p + HEADER_PREFIX_SIZE, name_size);
    out->value = nd_slice_make(p + HEADER_PREFIX_SIZE + name_size, value_size);
    *at += HEADER_PREFIX_SIZE + name_size + value_size;
    return true;
}

void nd_run_set_time(uint8_t *run, size_t size, int64_t time_ms)
{
    ND_ASSERT(time_ms >= 0);
    for (size_t at = 0; at < size; at += nd_get_u32(run + at + AT_SIZE)) {
        ND_ASSERT(size - at > ND_RECORD_HEADER_SIZE);
        nd_put_u64(run + at + AT_TIME, (uint64_t)time_ms);
    }
}

enum nd_err nd_run_check(struct nd_slice run, uint32_t count)
{
    size_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct nd_record_view view;
        size_t size;
        struct nd_slice rest = {run.data + at, run.size - at};
        if (nd_record_get(rest, &view, &size) != ND_OK) {
            return ND_ERR_CORRUPT;
        }
        at += size;
    }
    return at == run.size ? ND_OK : ND_ERR_CORRUPT;
}

size_t nd_run_seek(struct nd_slice run, uint32_t index)
{
    size_t at = 0;

    for (uint32_t i = 0; i < index; i++) {
        ND_ASSERT(run.size - at >= ND_RECORD_HEADER_SIZE);
        at += nd_get_u32(run.data + at + AT_SIZE);
        ND_ASSERT(at <= run.size);
    }
    return at;
}
