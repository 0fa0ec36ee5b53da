/* Receipt handles: "partition:offset:nonce", decimal. */
#ifndef ND_HANDLE_H
#define ND_HANDLE_H

#include "storage/base/err.h"
#include "storage/base/slice.h"

enum { ND_HANDLE_SIZE_MAX = 10 + 1 + 19 + 1 + 19 + 1 }; /* with the terminator */

struct nd_handle {
    uint64_t offset, nonce; /* both fit a signed 64-bit integer; nonce > 0 */
    uint32_t partition;
};

/* Returns the length. */
size_t nd_handle_put(char *out, const struct nd_handle *handle);
/* INVALID_ARGUMENT: not three runs of ASCII digits with two colons, or out of range. */
ND_CHECKED enum nd_err nd_handle_get(struct nd_slice text, struct nd_handle *out);

#endif
