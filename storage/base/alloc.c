#include "storage/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_MIN = 32 << 20 }; /* from here on in pages of 2 MiB */

static void *checked(void *pointer)
{
    ND_ASSERT(pointer != NULL && "out of memory");
    return pointer;
}

/* malloc(0) may return NULL, which would read as "out of memory"; sizes that no object can have
 * come from arithmetic on bad input, and debugging allocators abort on them. */
void *nd_malloc(size_t size)
{
    return size > PTRDIFF_MAX ? NULL : malloc(ND_MAX(size, 1));
}

void *nd_calloc(size_t count, size_t size)
{
    if (size > 0 && count > PTRDIFF_MAX / size) {
        return NULL;
    }
    return calloc(ND_MAX(count, 1), ND_MAX(size, 1));
}

void *nd_xmalloc(size_t size)
{
    return checked(nd_malloc(size));
}

void *nd_xcalloc(size_t count, size_t size)
{
    return checked(nd_calloc(count, size));
}

void *nd_xrealloc(void *pointer, size_t size)
{
    return checked(realloc(pointer, ND_MAX(size, 1)));
}

char *nd_xstrdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = nd_xmalloc(size);

    memcpy(copy, text, size);
    return copy;
}

char *nd_xasprintf(const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    ND_ASSERT(size >= 0 && "out of memory");
    return text;
}

void *nd_xaligned(size_t alignment, size_t size)
{
    void *pointer = NULL;
    int failed = posix_memalign(&pointer, alignment, ND_MAX(size, 1));

    ND_ASSERT(failed == 0 && "out of memory, or not an alignment");
    if (size >= HUGE_MIN) {
        (void)madvise(pointer, size, MADV_HUGEPAGE); /* refused: small pages, and more faults */
    }
    return pointer;
}

void nd_free(void *pointer)
{
    free(pointer);
}
