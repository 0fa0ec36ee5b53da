/* Authorization headers: what is taken has one spelling, and two parts without surprises. */
#include "server/security/basic.h"
#include "tests/fuzz/fuzz.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* `text` in base64 is what `encoded` holds. */
static void check_spelling(struct nd_slice encoded, const uint8_t *text, size_t size)
{
    FUZZ_CHECK(encoded.size == (size + 2) / 3 * 4);
    for (size_t i = 0; i < encoded.size; i++) {
        size_t at = i / 4 * 3;
        uint32_t bits = (uint32_t)text[at] << 16;
        bits |= at + 1 < size ? (uint32_t)text[at + 1] << 8 : 0;
        bits |= at + 2 < size ? text[at + 2] : 0;
        uint8_t digit = (uint8_t)digits[bits >> (18 - 6 * (i % 4)) & 63];
        FUZZ_CHECK(encoded.data[i] == (at + i % 4 > size ? '=' : digit));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *header = fuzz_copy(data, size);
    char *out = nd_xmalloc(size == 0 ? 1 : size);
    struct nd_credentials parts;

    if (nd_basic_decode(nd_slice_make(header, size), out, &parts)) {
        const uint8_t *text = parts.username.data;
        size_t text_size = parts.username.size + 1 + parts.password.size, at = 5;
        FUZZ_CHECK(text == (const uint8_t *)out && text_size < size);
        FUZZ_CHECK(parts.password.data == text + parts.username.size + 1);
        FUZZ_CHECK(memchr(text, ':', text_size) == text + parts.username.size);
        FUZZ_CHECK(memchr(text, '\0', text_size) == NULL);
        while (header[at] == ' ') {
            at++;
        }
        FUZZ_CHECK(at > 5);
        check_spelling(nd_slice_make(header + at, size - at), text, text_size);
    }
    nd_free(out);
    nd_free(header);
    return 0;
}
