/* Allocation. nd_xmalloc and its kin are for small fixed bookkeeping and abort when memory is out:
 * the WAL makes that safe. Sizes that come from a client or a file are checked against a limit
 * first and allocated with nd_malloc, which may return NULL. All are freed with nd_free. @thread
 * any */
#ifndef ND_BASE_ALLOC_H
#define ND_BASE_ALLOC_H

#include "storage/base/compiler.h"

void *nd_malloc(size_t size) ND_CHECKED;
void *nd_calloc(size_t count, size_t size) ND_CHECKED;
void *nd_xmalloc(size_t size) ND_CHECKED;
void *nd_xcalloc(size_t count, size_t size) ND_CHECKED;
void *nd_xrealloc(void *pointer, size_t size) ND_CHECKED;
char *nd_xstrdup(const char *text) ND_CHECKED;
char *nd_xasprintf(const char *format, ...) ND_CHECKED ND_PRINTF(1, 2);
void *nd_xaligned(size_t alignment, size_t size) ND_CHECKED; /* freed with nd_free */
void nd_free(void *pointer);

#endif
