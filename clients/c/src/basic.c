#include "clients/c/src/basic.h"

#include <stdint.h>
#include <string.h>

#include "storage/base/alloc.h"

static void base64(char *out, const uint8_t *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t v = (uint32_t)bytes[i] << 16;
        v |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        v |= left > 2 ? bytes[i + 2] : 0;
        *out++ = digits[v >> 18];
        *out++ = digits[v >> 12 & 63];
        *out++ = left > 1 ? digits[v >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[v & 63] : '=';
    }
    *out = '\0';
}

void basic_free(char *header)
{
    if (header != NULL) {
        explicit_bzero(header, strlen(header));
        nd_free(header);
    }
}

char *basic_new(const char *username, const char *password)
{
    char *pair = nd_xasprintf("%s:%s", username, password);
    size_t size = strlen(pair);
    char *header = nd_xmalloc(sizeof "Basic " + (size + 2) / 3 * 4);

    memcpy(header, "Basic ", 6);
    base64(header + 6, (const uint8_t *)pair, size);
    basic_free(pair);
    return header;
}
