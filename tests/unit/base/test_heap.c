#include "storage/base/heap.h"

#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

enum { NODES = 300 };

static void check(const struct nd_heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++) {
        assert_int_equal(heap->nodes[i]->index, i);
        if (i > 0) {
            assert_true(heap->nodes[(i - 1) / 2]->key <= heap->nodes[i]->key);
        }
    }
}

/* Random puts, moves and removals against a plain scan. */
static void heap__agrees_with_a_scan(void **state)
{
    struct nd_heap_node nodes[NODES];
    struct nd_heap heap;

    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        uint64_t random = seed;
        nd_heap_init(&heap);
        for (int i = 0; i < NODES; i++) {
            nd_heap_node_init(&nodes[i]);
        }
        for (int step = 0; step < 3000; step++) {
            struct nd_heap_node *node = &nodes[nd_rand_below(&random, NODES)];
            if (nd_rand_below(&random, 3) == 0) {
                nd_heap_remove(&heap, node);
                assert_false(nd_heap_contains(node));
            } else {
                nd_heap_put(&heap, node, nd_rand_below(&random, 500));
                assert_true(nd_heap_contains(node));
            }
            uint64_t least = UINT64_MAX;
            uint32_t count = 0;
            for (int i = 0; i < NODES; i++) {
                if (nd_heap_contains(&nodes[i])) {
                    count += 1;
                    least = ND_MIN(least, nodes[i].key);
                }
            }
            assert_int_equal(heap.count, count);
            assert_true(count == 0 ? nd_heap_first(&heap) == NULL
                                   : nd_heap_first(&heap)->key == least);
            if (step % 100 == 0) {
                check(&heap);
            }
        }
        nd_heap_release(&heap);
    }
}

static void heap__gives_keys_in_order(void **state)
{
    struct nd_heap_node nodes[NODES];
    struct nd_heap heap;
    uint64_t random = 9, last = 0;

    (void)state;
    nd_heap_init(&heap);
    for (int i = 0; i < NODES; i++) {
        nd_heap_node_init(&nodes[i]);
        nd_heap_put(&heap, &nodes[i], nd_rand(&random));
    }
    for (struct nd_heap_node *node; (node = nd_heap_first(&heap)) != NULL;) {
        assert_true(node->key >= last);
        last = node->key;
        nd_heap_remove(&heap, node);
    }
    assert_int_equal(heap.count, 0);
    assert_true(heap.capacity <= 64); /* its memory went with its nodes */
    nd_heap_release(&heap);
}

static void heap_remove__of_an_absent_node_does_nothing(void **state)
{
    struct nd_heap_node in, out;
    struct nd_heap heap;

    (void)state;
    nd_heap_init(&heap);
    nd_heap_node_init(&in);
    nd_heap_node_init(&out);
    nd_heap_put(&heap, &in, 1);
    nd_heap_remove(&heap, &out);

    assert_ptr_equal(nd_heap_first(&heap), &in);
    nd_heap_release(&heap);
    assert_false(nd_heap_contains(&in));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap__agrees_with_a_scan),
        cmocka_unit_test(heap__gives_keys_in_order),
        cmocka_unit_test(heap_remove__of_an_absent_node_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
