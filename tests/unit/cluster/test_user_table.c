#include <stdio.h>
#include <string.h>

#include "cluster/user_table.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

enum { NAMES = 40 };

static struct nd_user *user_named(const char *name, int64_t at_ms)
{
    struct nd_user *user = nd_user_new(name, NULL, 0);
    user->updated_at_ms = at_ms;
    return user;
}

/* `table` is given up for the new one. */
static struct nd_user_table *put(struct nd_user_table *table, const char *name, int64_t at_ms)
{
    struct nd_user *user = user_named(name, at_ms);
    struct nd_user_table *made = nd_user_table_with(table, user);

    nd_user_unref(user);
    nd_user_table_unref(table);
    return made;
}

static void user_table__finds_by_the_whole_name_only(void **state)
{
    struct nd_user_table *table = nd_user_table_build(NULL, 0);
    (void)state;
    assert_null(nd_user_table_find(table, nd_slice_str("ann")));
    assert_null(nd_user_table_find(table, nd_slice_make(NULL, 0)));
    table = put(table, "ann", 1);
    table = put(table, "anna", 2);
    table = put(table, "Zoe", 3);

    assert_int_equal(nd_user_table_count(table), 3);
    assert_string_equal(nd_user_table_at(table, 0)->name, "Zoe"); /* byte order */
    assert_int_equal(nd_user_table_find(table, nd_slice_str("ann"))->updated_at_ms, 1);
    assert_int_equal(nd_user_table_find(table, nd_slice_str("anna"))->updated_at_ms, 2);
    assert_null(nd_user_table_find(table, nd_slice_str("an")));
    assert_null(nd_user_table_find(table, nd_slice_str("zoe")));
    assert_null(nd_user_table_find(table, nd_slice_make("ann\0", 4)));
    assert_null(nd_user_table_find(table, nd_slice_make(NULL, 0)));
    nd_user_table_unref(table);
}

static void user_table_with__leaves_the_old_table_as_it_was(void **state)
{
    struct nd_user_table *old = put(nd_user_table_build(NULL, 0), "ann", 1);
    struct nd_user_table *kept = nd_user_table_ref(old);
    (void)state;

    struct nd_user_table *changed = put(old, "ann", 2);
    struct nd_user_table *gone = nd_user_table_without(changed, nd_slice_str("ann"));

    assert_int_equal(nd_user_table_find(kept, nd_slice_str("ann"))->updated_at_ms, 1);
    assert_int_equal(nd_user_table_find(changed, nd_slice_str("ann"))->updated_at_ms, 2);
    assert_int_equal(nd_user_table_count(changed), 1);
    assert_int_equal(nd_user_table_count(gone), 0);
    const struct nd_user *held = nd_user_ref(nd_user_table_at(kept, 0));
    nd_user_table_unref(gone);
    nd_user_table_unref(changed);
    nd_user_table_unref(kept);
    nd_user_table_unref(NULL);
    assert_string_equal(held->name, "ann"); /* a record outlives its tables */
    nd_user_unref(held);
}

static void user_table__agrees_with_a_plain_list(void **state)
{
    int64_t expected[NAMES] = {0}; /* by number; 0: not there */
    struct nd_user_table *table = nd_user_table_build(NULL, 0);
    uint64_t rand = 4;
    (void)state;

    for (int64_t round = 1; round <= 4000; round++) {
        uint64_t which = nd_rand_below(&rand, NAMES);
        char name[16];
        snprintf(name, sizeof name, "user-%02u", (unsigned)which);
        if (nd_rand_below(&rand, 2) == 0) {
            table = put(table, name, round);
            expected[which] = round;
        } else if (expected[which] != 0) {
            struct nd_user_table *made = nd_user_table_without(table, nd_slice_str(name));
            nd_user_table_unref(table);
            table = made;
            expected[which] = 0;
        }
        size_t at = 0;
        for (unsigned i = 0; i < NAMES; i++) {
            snprintf(name, sizeof name, "user-%02u", i);
            const struct nd_user *user = nd_user_table_find(table, nd_slice_str(name));
            assert_int_equal(user == NULL ? 0 : user->updated_at_ms, expected[i]);
            if (user != NULL) {
                assert_ptr_equal(nd_user_table_at(table, at++), user); /* ascending */
            }
        }
        assert_int_equal(nd_user_table_count(table), at);
    }
    nd_user_table_unref(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_table__finds_by_the_whole_name_only),
        cmocka_unit_test(user_table_with__leaves_the_old_table_as_it_was),
        cmocka_unit_test(user_table__agrees_with_a_plain_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
