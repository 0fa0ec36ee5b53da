/* A frame of a segment. The input is the frame; magic, stored size and checksum are put right, so
 * that what lies behind them is reached. */
#include "storage/base/crc32c.h"

#include "storage/frame.h"
#include "tests/fuzz/fuzz.h"

enum { EPOCH = 77, AT_CRC = 4, AT_FORMAT = 8, AT_STORED_SIZE = 28 };

static void frame_mend(uint8_t *data, size_t size)
{
    uint8_t seed[8];

    nd_put_u64(seed, EPOCH);
    nd_put_u32(data, ND_FRAME_MAGIC);
    nd_put_u32(data + AT_STORED_SIZE, (uint32_t)(size - ND_FRAME_HEADER_SIZE));
    nd_put_u32(data + AT_CRC,
               nd_crc32c(nd_crc32c(0, seed, sizeof seed), data + AT_FORMAT, size - AT_FORMAT));
}

/* A frame whose payload decodes is, header and all, what would be written for it. */
static void decode(const uint8_t *frame, size_t size, const struct nd_frame_header *header)
{
    uint8_t *records = nd_xmalloc(header->raw_size);
    enum nd_err err = nd_frame_decode(frame, header, records);

    if (err == ND_OK) {
        struct nd_frame_header again = *header;
        uint8_t *copy = fuzz_copy(frame, size);
        memset(copy, 0, ND_FRAME_HEADER_SIZE);
        nd_frame_finish(copy, EPOCH, &again);
        FUZZ_CHECK(memcmp(copy, frame, size) == 0 && again.crc == header->crc);
        FUZZ_CHECK(nd_run_check(nd_slice_make(records, header->raw_size), header->record_count) ==
                   ND_OK);
        FUZZ_CHECK(nd_run_seek(nd_slice_make(records, header->raw_size), header->record_count) ==
                   header->raw_size);
        nd_free(copy);
    }
    nd_free(records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_frame_header header;

    if (size < ND_FRAME_HEADER_SIZE) {
        return 0;
    }
    uint8_t *copy = fuzz_copy(data, size);
    frame_mend(copy, size);
    if (nd_frame_header_get(nd_slice_make(copy, size), &header) == ND_OK) {
        FUZZ_CHECK(nd_frame_size(&header) == size);
        FUZZ_CHECK(nd_frame_crc_holds(copy, EPOCH, &header));
        FUZZ_CHECK(!nd_frame_crc_holds(copy, EPOCH + 1, &header));
        decode(copy, size, &header);
    }
    nd_free(copy);
    return 0;
}
