#include "storage/base/block.h"

#include "storage/base/alloc.h"

struct nd_block *nd_block_new(size_t size)
{
    if (size > SIZE_MAX - sizeof(struct nd_block)) {
        return NULL;
    }
    struct nd_block *block = nd_malloc(sizeof *block + size);
    if (block == NULL) {
        return NULL;
    }
    atomic_init(&block->refs, 1);
    block->size = size;
    return block;
}

struct nd_block *nd_block_ref(struct nd_block *block)
{
    if (block != NULL) {
        /* Relaxed: the caller holds a reference already, so the count cannot reach zero here. */
        uint32_t before = atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
        ND_ASSERT(before > 0 && before < UINT32_MAX);
    }
    return block;
}

void nd_block_unref(struct nd_block *block)
{
    if (block == NULL) {
        return;
    }
    /* Release our reads and writes to whoever frees; acquire those of the others when it is us. */
    uint32_t before = atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel);
    ND_ASSERT(before > 0);
    if (before == 1) {
        nd_free(block);
    }
}
