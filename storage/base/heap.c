#include "storage/base/heap.h"

#include "storage/base/alloc.h"

enum { CAPACITY_MIN = 16 };

void nd_heap_init(struct nd_heap *heap)
{
    *heap = (struct nd_heap){0};
}

void nd_heap_release(struct nd_heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++) {
        nd_heap_node_init(heap->nodes[i]);
    }
    nd_free(heap->nodes);
    nd_heap_init(heap);
}

struct nd_heap_node *nd_heap_first(const struct nd_heap *heap)
{
    return heap->count == 0 ? NULL : heap->nodes[0];
}

static void place(struct nd_heap *heap, struct nd_heap_node *node, uint32_t index)
{
    heap->nodes[index] = node;
    node->index = index;
}

/* The node's place is taken as empty; it moves to where its key belongs. */
static void sift(struct nd_heap *heap, struct nd_heap_node *node, uint32_t index)
{
    while (index > 0 && heap->nodes[(index - 1) / 2]->key > node->key) {
        place(heap, heap->nodes[(index - 1) / 2], index);
        index = (index - 1) / 2;
    }
    for (;;) {
        uint64_t child = 2 * (uint64_t)index + 1;
        if (child + 1 < heap->count && heap->nodes[child + 1]->key < heap->nodes[child]->key) {
            child += 1;
        }
        if (child >= heap->count || heap->nodes[child]->key >= node->key) {
            break;
        }
        place(heap, heap->nodes[child], index);
        index = (uint32_t)child;
    }
    place(heap, node, index);
}

void nd_heap_put(struct nd_heap *heap, struct nd_heap_node *node, uint64_t key)
{
    node->key = key;
    if (nd_heap_contains(node)) {
        ND_ASSERT(node->index < heap->count && heap->nodes[node->index] == node);
        sift(heap, node, node->index);
        return;
    }
    if (heap->count == heap->capacity) {
        ND_ASSERT(heap->capacity < UINT32_MAX / 2);
        heap->capacity = ND_MAX((uint32_t)CAPACITY_MIN, heap->capacity * 2);
        heap->nodes = nd_xrealloc(heap->nodes, heap->capacity * sizeof(struct nd_heap_node *));
    }
    heap->count += 1;
    sift(heap, node, heap->count - 1);
}

/* Memory follows the live nodes down, too: a burst of leases does not pin its peak. */
static void shrink(struct nd_heap *heap)
{
    if (heap->capacity > CAPACITY_MIN && heap->count < heap->capacity / 4) {
        heap->capacity /= 2;
        heap->nodes = nd_xrealloc(heap->nodes, heap->capacity * sizeof(struct nd_heap_node *));
    }
}

void nd_heap_remove(struct nd_heap *heap, struct nd_heap_node *node)
{
    if (!nd_heap_contains(node)) {
        return;
    }
    ND_ASSERT(node->index < heap->count && heap->nodes[node->index] == node);
    struct nd_heap_node *last = heap->nodes[heap->count - 1];
    uint32_t hole = node->index;

    heap->count -= 1;
    nd_heap_node_init(node);
    if (last != node) {
        sift(heap, last, hole);
    }
    shrink(heap);
}
