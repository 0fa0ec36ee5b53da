/* A run of stored records. What decodes is encoded again: the same bytes. */
#include "storage/record.h"
#include "tests/fuzz/fuzz.h"

static void round_trip(struct nd_slice bytes, const struct nd_record_view *view)
{
    struct nd_record_header headers[ND_HEADER_COUNT_MAX];
    uint32_t count = 0;
    size_t at = 0;

    while (nd_record_header_next(view->headers, &at, &headers[count])) {
        count += 1;
        FUZZ_CHECK(count <= ND_HEADER_COUNT_MAX);
        if (count == ND_HEADER_COUNT_MAX) {
            break;
        }
    }
    FUZZ_CHECK(count == view->header_count && at == view->headers.size);
    FUZZ_CHECK(nd_record_headers_size(headers, count) == view->headers.size);
    uint8_t *again = nd_xmalloc(bytes.size);
    FUZZ_CHECK(nd_record_put(again, view->key, headers, count, view->payload) == bytes.size);
    nd_run_set_time(again, bytes.size, view->time_ms);
    FUZZ_CHECK(memcmp(again, bytes.data, bytes.size) == 0);
    nd_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_record_view view;
    size_t record_size, at = 0;
    uint32_t count = 0;

    while (nd_record_get(nd_slice_make(data + at, size - at), &view, &record_size) == ND_OK) {
        FUZZ_CHECK(record_size > ND_RECORD_HEADER_SIZE && record_size <= size - at);
        round_trip(nd_slice_make(data + at, record_size), &view);
        at += record_size;
        count += 1;
    }
    FUZZ_CHECK(nd_run_check(nd_slice_make(data, at), count) == ND_OK);
    FUZZ_CHECK((nd_run_check(nd_slice_make(data, size), count) == ND_OK) == (at == size));
    for (uint32_t i = 0; i <= count; i += ND_MAX(count / 8, 1u)) {
        FUZZ_CHECK(nd_run_seek(nd_slice_make(data, at), i) <= at);
    }
    return 0;
}
