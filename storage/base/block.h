/* A counted block of bytes: written by its one holder, immutable once it is shared. The records of
 * a produce live in one block from decoding until the last reader (tail, WAL, reply) lets go. */
#ifndef ND_BASE_BLOCK_H
#define ND_BASE_BLOCK_H

#include <stdatomic.h>

#include "storage/base/compiler.h"

struct nd_block {
    _Atomic uint32_t refs;
    size_t size;
    uint8_t bytes[];
};

/* One reference, the caller's. NULL when memory is out. @thread any */
struct nd_block *nd_block_new(size_t size) ND_CHECKED;
struct nd_block *nd_block_ref(struct nd_block *block); /* returns `block`; NULL passes */
void nd_block_unref(struct nd_block *block);           /* NULL passes */

#endif
