#include "server/broker/handle.h"

#include <inttypes.h>
#include <stdio.h>

size_t nd_handle_put(char *out, const struct nd_handle *handle)
{
    int size = snprintf(out, ND_HANDLE_SIZE_MAX, "%" PRIu32 ":%" PRIu64 ":%" PRIu64,
                        handle->partition, handle->offset, handle->nonce);

    ND_ASSERT(size > 0 && size < ND_HANDLE_SIZE_MAX);
    return (size_t)size;
}

/* A run of digits worth at most `max`, up to `stop` or the end; moves *at behind it. */
static bool number_get(struct nd_slice text, size_t *at, char stop, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    size_t start = *at;

    for (; *at < text.size && text.data[*at] != (uint8_t)stop; *at += 1) {
        uint8_t digit = (uint8_t)(text.data[*at] - '0');
        if (digit > 9 || value > (max - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return *at > start;
}

static bool colon_get(struct nd_slice text, size_t *at)
{
    if (*at >= text.size || text.data[*at] != ':') {
        return false;
    }
    *at += 1;
    return true;
}

enum nd_err nd_handle_get(struct nd_slice text, struct nd_handle *out)
{
    uint64_t partition, offset, nonce;
    size_t at = 0;

    if (!number_get(text, &at, ':', INT32_MAX, &partition) || !colon_get(text, &at) ||
        !number_get(text, &at, ':', INT64_MAX, &offset) || !colon_get(text, &at) ||
        !number_get(text, &at, ':', INT64_MAX, &nonce) || at != text.size || nonce == 0) {
        return ND_ERR_INVALID_ARGUMENT;
    }
    *out = (struct nd_handle){.offset = offset, .nonce = nonce, .partition = (uint32_t)partition};
    return ND_OK;
}
