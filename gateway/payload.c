#include "gateway/payload.h"

#include "storage/base/base64.h"

/* The length of the UTF-8 sequence that begins here; 0: it is none. `left` >= 1. */
static size_t sequence_size(const uint8_t *at, size_t left)
{
    uint8_t lead = at[0], low = 0x80, high = 0xbf;
    size_t size;

    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        size = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        size = 3;
        low = lead == 0xe0 ? 0xa0 : 0x80;  /* not what two bytes hold */
        high = lead == 0xed ? 0x9f : 0xbf; /* no surrogates */
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        size = 4;
        low = lead == 0xf0 ? 0x90 : 0x80;
        high = lead == 0xf4 ? 0x8f : 0xbf; /* up to U+10FFFF */
    } else {
        return 0;
    }
    if (left < size || at[1] < low || at[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return size;
}

bool nd_utf8_valid(struct nd_slice bytes)
{
    size_t at = 0;

    while (at < bytes.size) {
        uint64_t word;
        if (bytes.size - at >= 8) {
            memcpy(&word, bytes.data + at, 8);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += 8;
                continue;
            }
        }
        size_t size = sequence_size(bytes.data + at, bytes.size - at);
        if (size == 0) {
            return false;
        }
        at += size;
    }
    return true;
}

enum nd_payload_kind nd_payload_classify(struct nd_slice bytes)
{
    struct nd_slice value;
    size_t at = 0;

    if (!nd_utf8_valid(bytes)) {
        return ND_PAYLOAD_BYTES;
    }
    if (nd_json_scan(bytes, &at, &value) && nd_json_skip_blanks(bytes, at) == bytes.size) {
        return ND_PAYLOAD_JSON;
    }
    return ND_PAYLOAD_TEXT;
}

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void nd_utf8_put_mended(struct nd_buf *out, struct nd_slice bytes)
{
    size_t run = 0; /* where the bytes that are not yet copied begin */

    for (size_t at = 0; at < bytes.size;) {
        size_t size = sequence_size(bytes.data + at, bytes.size - at);
        if (size > 0) {
            at += size;
            continue;
        }
        nd_buf_put(out, bytes.data + run, at - run);
        nd_buf_put_text(out, replacement);
        at++;
        run = at;
    }
    if (run < bytes.size) {
        nd_buf_put(out, bytes.data + run, bytes.size - run);
    }
}

static void escape_put(struct nd_buf *out, uint8_t byte)
{
    static const char digits[] = "0123456789abcdef";
    char text[7] = "\\u00";

    switch (byte) {
    case '"': nd_buf_put_text(out, "\\\""); return;
    case '\\': nd_buf_put_text(out, "\\\\"); return;
    case '\n': nd_buf_put_text(out, "\\n"); return;
    case '\r': nd_buf_put_text(out, "\\r"); return;
    case '\t': nd_buf_put_text(out, "\\t"); return;
    default:
        text[4] = digits[byte >> 4];
        text[5] = digits[byte & 15];
        nd_buf_put(out, text, 6);
        return;
    }
}

void nd_json_put_string(struct nd_buf *out, struct nd_slice utf8)
{
    size_t run = 0;

    nd_buf_put_u8(out, '"');
    for (size_t at = 0; at < utf8.size; at++) {
        uint8_t byte = utf8.data[at];
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            continue;
        }
        if (at > run) {
            nd_buf_put(out, utf8.data + run, at - run);
        }
        escape_put(out, byte);
        run = at + 1;
    }
    if (utf8.size > run) {
        nd_buf_put(out, utf8.data + run, utf8.size - run);
    }
    nd_buf_put_u8(out, '"');
}

/* --- base64 --- */

void nd_base64_put(struct nd_buf *out, struct nd_slice bytes)
{
    char four[ND_BASE64_TEXT_SIZE(3)];

    for (size_t at = 0; at < bytes.size; at += 3) {
        nd_base64_encode(nd_slice_make(bytes.data + at, ND_MIN(bytes.size - at, 3u)), four);
        nd_buf_put(out, four, 4);
    }
}

bool nd_base64_get(struct nd_slice text, uint8_t *out, size_t *size_out)
{
    size_t count = 0, written = 0, padding = 0;
    uint32_t bits = 0;

    for (size_t at = 0; at < text.size; at++) {
        uint8_t byte = text.data[at];
        if (byte == '\r' || byte == '\n') {
            continue; /* lines, as many encoders write them */
        }
        int value = nd_base64_value(byte);
        if (byte == '=' && count % 4 >= 2) {
            padding++;
            value = 0;
        } else if (value < 0 || padding > 0) {
            return false;
        }
        bits = bits << 6 | (uint32_t)value;
        if (++count % 4 == 0) {
            for (size_t i = 0; i < 3 - padding; i++) {
                out[written++] = (uint8_t)(bits >> (16 - 8 * i));
            }
            if (padding > 0) {
                count = 4;
                for (at++; at < text.size; at++) {
                    if (text.data[at] != '\r' && text.data[at] != '\n') {
                        return false;
                    }
                }
            }
        }
    }
    *size_out = written;
    return count % 4 == 0;
}
