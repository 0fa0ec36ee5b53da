/* The stored index of a segment. The checksum is put right, and the caller asks for the very
 * segment that the input names. */
#include "storage/base/crc32c.h"

#include "storage/index.h"
#include "tests/fuzz/fuzz.h"

enum { HEADER_SIZE = 88, AT_CRC = 4, CRC_FROM = 8, AT_STORE = 16, AT_BASE = 32, AT_EPOCH = 40 };

/* Every offset is found at or before its frame. */
static void search(const struct nd_index *index, const struct nd_segment_summary *summary)
{
    for (uint32_t i = 0; i < index->count; i++) {
        uint64_t offset = index->anchors[i].offset;
        FUZZ_CHECK(nd_index_find(index, offset) == index->anchors[i].at);
        FUZZ_CHECK(nd_index_find(index, offset - 1) == (i == 0 ? 0 : index->anchors[i - 1].at) ||
                   offset == 0);
        FUZZ_CHECK(index->anchors[i].at < summary->size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_index index;
    struct nd_segment_summary summary = {0};

    if (size < HEADER_SIZE) {
        return 0;
    }
    uint8_t *copy = fuzz_copy(data, size);
    nd_put_u32(copy + AT_CRC, nd_crc32c(0, copy + CRC_FROM, size - CRC_FROM));
    memcpy(summary.store_id, copy + AT_STORE, sizeof summary.store_id);
    summary.base_offset = nd_get_u64(copy + AT_BASE);
    summary.epoch = nd_get_u64(copy + AT_EPOCH);
    nd_index_init(&index);
    if (nd_index_get(nd_slice_make(copy, size), &index, &summary) == ND_OK) {
        struct nd_buf again;
        nd_buf_init(&again, SIZE_MAX);
        nd_index_put(&again, &index, &summary);
        FUZZ_CHECK(nd_slice_equal(nd_buf_slice(&again), nd_slice_make(copy, size)));
        search(&index, &summary);
        nd_buf_release(&again);
    }
    nd_index_release(&index);
    nd_free(copy);
    return 0;
}
