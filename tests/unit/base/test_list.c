#include "storage/base/list.h"

#include "tests/support/nd_test.h"

struct item {
    struct nd_list link;
    int number;
};

enum { ITEMS = 5 };

static void items_init(struct item items[ITEMS], struct nd_list *list)
{
    nd_list_init(list);
    for (int i = 0; i < ITEMS; i++) {
        items[i].number = i;
        nd_list_append(list, &items[i].link);
    }
}

/* The numbers in order, as digits of a number with a leading 1: 101234. */
static int digits(const struct nd_list *list)
{
    int number = 1;

    ND_LIST_FOREACH (list, link) {
        number = number * 10 + ND_CONTAINER_OF(link, struct item, link)->number;
    }
    return number;
}

static void list__keeps_the_order_of_append_and_prepend(void **state)
{
    struct item items[ITEMS], front = {.number = 9};
    struct nd_list list;

    (void)state;
    items_init(items, &list);
    assert_int_equal(digits(&list), 101234);
    nd_list_prepend(&list, &front.link);
    assert_int_equal(digits(&list), 1901234);
    assert_ptr_equal(nd_list_pop(&list), &front.link);
    assert_int_equal(digits(&list), 101234);
}

static void list_remove__leaves_a_link_that_may_be_removed_again(void **state)
{
    struct item items[ITEMS];
    struct nd_list list;

    (void)state;
    items_init(items, &list);
    nd_list_remove(&items[2].link);
    nd_list_remove(&items[2].link);
    assert_int_equal(digits(&list), 10134);
    nd_list_append(&list, &items[2].link);
    assert_int_equal(digits(&list), 101342);
}

static void list_foreach__allows_removal_of_the_current(void **state)
{
    struct item items[ITEMS];
    struct nd_list list;

    (void)state;
    items_init(items, &list);
    ND_LIST_FOREACH (&list, link) {
        if (ND_CONTAINER_OF(link, struct item, link)->number % 2 == 0) {
            nd_list_remove(link);
        }
    }
    assert_int_equal(digits(&list), 113);
}

static void list_move__joins_and_empties(void **state)
{
    struct item items[ITEMS], more[ITEMS];
    struct nd_list list, other;

    (void)state;
    items_init(items, &list);
    items_init(more, &other);
    nd_list_remove(&more[0].link);
    nd_list_move(&list, &other);
    assert_int_equal(digits(&list), 1012341234);
    assert_true(nd_list_empty(&other));
    nd_list_move(&list, &other); /* of nothing */
    assert_int_equal(digits(&list), 1012341234);
    nd_list_move(&other, &list); /* to an empty one */
    assert_int_equal(digits(&other), 1012341234);
    assert_true(nd_list_empty(&list));
    assert_null(nd_list_first(&list));
    assert_null(nd_list_pop(&list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list__keeps_the_order_of_append_and_prepend),
        cmocka_unit_test(list_remove__leaves_a_link_that_may_be_removed_again),
        cmocka_unit_test(list_foreach__allows_removal_of_the_current),
        cmocka_unit_test(list_move__joins_and_empties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
