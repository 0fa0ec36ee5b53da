/* Receipt handles: what parses is written again and parses to the same. */
#include "server/broker/handle.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_handle handle, again;
    char text[ND_HANDLE_SIZE_MAX];

    if (nd_handle_get(nd_slice_make(data, size), &handle) == ND_OK) {
        FUZZ_CHECK(handle.nonce > 0 && handle.nonce <= INT64_MAX && handle.offset <= INT64_MAX);
        size_t length = nd_handle_put(text, &handle);
        FUZZ_CHECK(length == strlen(text) && length <= size); /* zeros in front are no part of it */
        FUZZ_CHECK(nd_handle_get(nd_slice_make(text, length), &again) == ND_OK);
        FUZZ_CHECK(again.partition == handle.partition && again.offset == handle.offset &&
                   again.nonce == handle.nonce);
    }
    return 0;
}
