/* A borrowed run of bytes. The owner is named where the slice is handed over. */
#ifndef ND_BASE_SLICE_H
#define ND_BASE_SLICE_H

#include <string.h>

#include "storage/base/compiler.h"

struct nd_slice {
    const uint8_t *data;
    size_t size;
};

static inline struct nd_slice nd_slice_make(const void *data, size_t size)
{
    return (struct nd_slice){data, size};
}

static inline struct nd_slice nd_slice_str(const char *text)
{
    return (struct nd_slice){(const uint8_t *)text, strlen(text)};
}

static inline bool nd_slice_equal(struct nd_slice a, struct nd_slice b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

#endif
