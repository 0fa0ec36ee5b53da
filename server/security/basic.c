#include "server/security/basic.h"

#include <strings.h>

static const char scheme[] = "basic";
enum { SCHEME_SIZE = sizeof scheme - 1 };

/* 0 to 63, or -1. */
static int digit_value(uint8_t byte)
{
    if (byte >= 'A' && byte <= 'Z') {
        return byte - 'A';
    }
    if (byte >= 'a' && byte <= 'z') {
        return byte - 'a' + 26;
    }
    if (byte >= '0' && byte <= '9') {
        return byte - '0' + 52;
    }
    return byte == '+' ? 62 : byte == '/' ? 63 : -1;
}

/* Four digits into one to three bytes; 0: not base64. One spelling a text: the bits that padding
 * cuts off are zero. */
static size_t quad_decode(const uint8_t *digits, bool last, char *out)
{
    size_t padding = !last || digits[3] != '=' ? 0 : digits[2] != '=' ? 1 : 2;
    uint32_t bits = 0;

    for (size_t i = 0; i < 4; i++) {
        int value = i < 4 - padding ? digit_value(digits[i]) : 0;
        if (value < 0) {
            return 0;
        }
        bits = bits << 6 | (uint32_t)value;
    }
    if ((bits & ((1u << 8 * padding) - 1)) != 0) {
        return 0;
    }
    for (size_t i = 0; i < 3 - padding; i++) {
        out[i] = (char)(bits >> (16 - 8 * i));
    }
    return 3 - padding;
}

bool nd_basic_decode(struct nd_slice header, char *out, struct nd_credentials *parts)
{
    if (header.size <= SCHEME_SIZE ||
        strncasecmp((const char *)header.data, scheme, SCHEME_SIZE) != 0 ||
        header.data[SCHEME_SIZE] != ' ') {
        return false;
    }
    size_t at = SCHEME_SIZE, size = 0;
    while (at < header.size && header.data[at] == ' ') {
        at++;
    }
    if ((header.size - at) % 4 != 0) {
        return false;
    }
    for (; at < header.size; at += 4) {
        size_t got = quad_decode(header.data + at, at + 4 == header.size, out + size);
        if (got == 0) {
            return false;
        }
        size += got;
    }
    const char *colon = memchr(out, ':', size);
    if (size == 0 || colon == NULL || memchr(out, '\0', size) != NULL) {
        return false;
    }
    size_t name_size = (size_t)(colon - out);
    parts->username = nd_slice_make(out, name_size);
    parts->password = nd_slice_make(colon + 1, size - name_size - 1);
    return true;
}
