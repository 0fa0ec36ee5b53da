#include "storage/base/base64.h"

void nd_base64_encode(struct nd_slice bytes, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t at = 0; at < bytes.size; at += 3) {
        size_t left = bytes.size - at;
        uint32_t bits = (uint32_t)bytes.data[at] << 16;
        bits |= left > 1 ? (uint32_t)bytes.data[at + 1] << 8 : 0;
        bits |= left > 2 ? bytes.data[at + 2] : 0;
        *out++ = digits[bits >> 18];
        *out++ = digits[bits >> 12 & 63];
        *out++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[bits & 63] : '=';
    }
    *out = '\0';
}

int nd_base64_value(uint8_t digit)
{
    if (digit >= 'A' && digit <= 'Z') {
        return digit - 'A';
    }
    if (digit >= 'a' && digit <= 'z') {
        return digit - 'a' + 26;
    }
    if (digit >= '0' && digit <= '9') {
        return digit - '0' + 52;
    }
    return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

/* Four digits into one to three bytes; 0: not base64. */
static size_t quad_decode(const uint8_t *digits, bool last, uint8_t *out)
{
    size_t padding = !last || digits[3] != '=' ? 0 : digits[2] != '=' ? 1 : 2;
    uint32_t bits = 0;

    for (size_t i = 0; i < 4; i++) {
        int value = i < 4 - padding ? nd_base64_value(digits[i]) : 0;
        if (value < 0) {
            return 0;
        }
        bits = bits << 6 | (uint32_t)value;
    }
    if ((bits & ((1u << 8 * padding) - 1)) != 0) {
        return 0;
    }
    for (size_t i = 0; i < 3 - padding; i++) {
        out[i] = (uint8_t)(bits >> (16 - 8 * i));
    }
    return 3 - padding;
}

bool nd_base64_decode(struct nd_slice text, uint8_t *out, size_t *size_out)
{
    size_t size = 0;

    if (text.size % 4 != 0) {
        return false;
    }
    for (size_t at = 0; at < text.size; at += 4) {
        size_t got = quad_decode(text.data + at, at + 4 == text.size, out + size);
        if (got == 0) {
            return false;
        }
        size += got;
    }
    *size_out = size;
    return true;
}
