/* Overwriting what was secret, so that no compiler leaves it out: passwords, their encodings, keys.
 * The one way this is done. @thread any */
#ifndef ND_BASE_WIPE_H
#define ND_BASE_WIPE_H

#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/slice.h"

static inline void nd_wipe(void *memory, size_t size)
{
    if (size > 0) {
        explicit_bzero(memory, size);
    }
}

/* Memory of our own that others only read. */
static inline void nd_wipe_slice(struct nd_slice bytes)
{
    nd_wipe((void *)(uintptr_t)bytes.data, bytes.size);
}

/* NULL passes, also below. */
static inline void nd_wipe_text(char *text)
{
    if (text != NULL) {
        nd_wipe(text, strlen(text));
    }
}

/* Wipe and nd_free(). */
static inline void nd_free_secret(char *text)
{
    nd_wipe_text(text);
    nd_free(text);
}

#endif
