/* Durations: what parses is written again and parses to the same. */
#include "storage/base/duration.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    char again[64];
    uint64_t ms, ms_again;

    if (nd_duration_parse(text, &ms)) {
        FUZZ_CHECK(ms <= UINT64_MAX / 1000000);
        size_t length = nd_duration_put(again, sizeof again, ms);
        FUZZ_CHECK(length < sizeof again && length == strlen(again));
        FUZZ_CHECK(nd_duration_parse(again, &ms_again) && ms_again == ms);
        FUZZ_CHECK(strchr(text, '-') == NULL && strchr(text, ' ') == NULL);
    }
    nd_free(text);
    return 0;
}
