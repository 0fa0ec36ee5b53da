/* A stored record, the same bytes in the WAL, in a tail, and inside a segment frame; little-endian:
 *
 *    0 u32 size          of the whole record, this header included
 *    4 u8  version       1
 *    5 u8  header_count  0..64
 *    6 u16 key_size      0..8192; 0: no key
 *    8 u32 headers_size  bytes of the header area
 *   12 u32 reserved      0
 *   16 i64 time_ms       commit time, Unix milliseconds; never decreases along a partition
 *   24 key | headers, each u8 name_size, u16 value_size, name, value | payload, the rest, 1 byte..1
 * MiB
 *
 * A run is records one after the other, nothing between. To change the format see
 * storage/README.md. */
#ifndef ND_RECORD_H
#define ND_RECORD_H

#include "storage/base/err.h"
#include "storage/base/slice.h"

enum {
    ND_RECORD_HEADER_SIZE = 24,
    ND_RECORD_VERSION = 1,
    ND_KEY_SIZE_MAX = 8192,
    ND_HEADER_COUNT_MAX = 64,
    ND_HEADER_NAME_SIZE_MAX = 64,
    ND_HEADERS_SIZE_MAX = 16384, /* names and values, without the 3 bytes a header */
    ND_PAYLOAD_SIZE_MAX = 1 << 20,
    ND_RECORD_SIZE_MAX = 24 + 8192 + 16384 + 3 * 64 + (1 << 20),
    ND_BATCH_COUNT_MAX = 1000,
    ND_BATCH_SIZE_MAX = 16 << 20, /* stored bytes of one produce */
};

struct nd_record_header {
    struct nd_slice name, value;
};

/* A record in parts, borrowed from wherever it was found. */
struct nd_record_view {
    struct nd_slice key, payload;
    struct nd_slice headers; /* the encoded header area */
    uint32_t header_count;
    int64_t time_ms;
};

/* Bytes that a record takes; `headers_size` is the encoded size of the header area. */
static inline size_t nd_record_size(size_t key_size, size_t headers_size, size_t payload_size)
{
    return ND_RECORD_HEADER_SIZE + key_size + headers_size + payload_size;
}

/* Encode into `out`, which has nd_record_size() bytes; the sizes are within the limits (asserted).
 * Returns the bytes written. time_ms is 0 until nd_record_set_time(). */
size_t nd_record_put(uint8_t *out, struct nd_slice key, const struct nd_record_header *headers,
                     uint32_t header_count, struct nd_slice payload);
size_t nd_record_headers_size(const struct nd_record_header *headers, uint32_t header_count);

/* Decode the record that begins `in`; CORRUPT when it is not one. *size_out is where the next
 * begins. */
ND_CHECKED enum nd_err nd_record_get(struct nd_slice in, struct nd_record_view *out,
                                     size_t *size_out);
/* The next header of an encoded area; *at starts at 0; false at the end. The area is valid (it was
 * decoded by nd_record_get). */
bool nd_record_header_next(struct nd_slice headers, size_t *at, struct nd_record_header *out);

/* Set the commit time of every record of a run, which the caller alone holds. */
void nd_run_set_time(uint8_t *run, size_t size, int64_t time_ms);
/* Check that `run` is exactly `count` valid records. */
ND_CHECKED enum nd_err nd_run_check(struct nd_slice run, uint32_t count);
/* The byte at which record number `index` of a checked run begins. */
size_t nd_run_seek(struct nd_slice run, uint32_t index);

#endif
