/* What the fuzz targets share. Each target is a program: libFuzzer calls LLVMFuzzerTestOneInput()
 * with bytes of its own making; a claim that does not hold, or anything a sanitizer sees, ends the
 * program and leaves the input in a file. */
#ifndef ND_TESTS_FUZZ_H
#define ND_TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"
#include "storage/base/buf.h"
#include "storage/base/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A claim about what was decoded. */
#define FUZZ_CHECK(claim)                                                                          \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim);             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A copy of exactly `size` bytes, so that ASan sees a read beyond them; nd_free. */
static inline uint8_t *fuzz_copy(const void *data, size_t size)
{
    uint8_t *copy = nd_xmalloc(size == 0 ? 1 : size);

    if (size > 0) {
        memcpy(copy, data, size);
    }
    return copy;
}

/* A C string of the input; nd_free. */
static inline char *fuzz_text(const void *data, size_t size)
{
    char *text = nd_xmalloc(size + 1);

    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    return text;
}

/* At most `size` bytes of the input: what is left when there are fewer. */
static inline struct nd_slice fuzz_take(struct nd_reader *in, size_t size)
{
    return nd_read_slice(in, ND_MIN(size, nd_reader_left(in)));
}

#endif
