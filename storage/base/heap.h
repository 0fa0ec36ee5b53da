/* A binary min-heap of intrusive nodes by a 64-bit key (deadlines). A node knows its place, so
 * change and removal are O(log n) and memory is proportional to live nodes (I-68). Not thread safe.
 */
#ifndef ND_BASE_HEAP_H
#define ND_BASE_HEAP_H

#include "storage/base/compiler.h"

struct nd_heap_node {
    uint64_t key;
    uint32_t index; /* UINT32_MAX: in no heap */
};

struct nd_heap {
    struct nd_heap_node **nodes;
    uint32_t count, capacity;
};

void nd_heap_init(struct nd_heap *heap);
void nd_heap_release(struct nd_heap *heap);
static inline void nd_heap_node_init(struct nd_heap_node *node)
{
    node->index = UINT32_MAX;
}
static inline bool nd_heap_contains(const struct nd_heap_node *node)
{
    return node->index != UINT32_MAX;
}
struct nd_heap_node *nd_heap_first(const struct nd_heap *heap); /* NULL when empty */
/* Insert, or move to a new key. */
void nd_heap_put(struct nd_heap *heap, struct nd_heap_node *node, uint64_t key);
void nd_heap_remove(struct nd_heap *heap, struct nd_heap_node *node); /* absent: nothing */

#endif
