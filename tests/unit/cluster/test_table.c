#include <stdio.h>

#include "storage/base/alloc.h"

#include "cluster/table.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

enum { NAMES = 700 };

static struct nd_topic *topic_named(uint32_t number, uint64_t version)
{
    struct nd_topic *topic = nd_topic_new(1);
    snprintf(topic->name, sizeof topic->name, "topic-%05u", number);
    topic->version = version;
    return topic;
}

/* versions[n]: of topic n; 0: not there. */
static void expect_equal(const struct nd_topic_table *table, const uint64_t *versions)
{
    struct nd_topic_walk walk = nd_topic_table_walk(table, nd_slice_make(NULL, 0));
    size_t count = 0;

    for (uint32_t n = 0; n < NAMES; n++) {
        char name[32];
        snprintf(name, sizeof name, "topic-%05u", n);
        const struct nd_topic *found = nd_topic_table_find(table, nd_slice_str(name));
        if (versions[n] == 0) {
            assert_null(found);
            continue;
        }
        count++;
        assert_non_null(found);
        assert_int_equal(found->version, versions[n]);
        assert_ptr_equal(nd_topic_walk_next(&walk), found);
    }
    assert_null(nd_topic_walk_next(&walk));
    assert_int_equal(nd_topic_table_count(table), count);
}

static struct nd_topic_table *table_put(struct nd_topic_table *table, uint32_t number,
                                        uint64_t version)
{
    struct nd_topic *topic = topic_named(number, version);
    struct nd_topic_table *made = nd_topic_table_with(table, topic);
    nd_topic_unref(topic);
    nd_topic_table_unref(table);
    return made;
}

static struct nd_topic_table *table_remove(struct nd_topic_table *table, uint32_t number)
{
    char name[32];
    snprintf(name, sizeof name, "topic-%05u", number);
    struct nd_topic_table *made = nd_topic_table_without(table, nd_slice_str(name));
    nd_topic_table_unref(table);
    return made;
}

static void table__holds_what_a_plain_array_holds(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        uint64_t rand = seed;
        uint64_t versions[NAMES] = {0};
        struct nd_topic_table *table = nd_topic_table_new();

        for (uint32_t step = 1; step <= 6000; step++) {
            /* Waves of growth and shrinking, so that chunks split, join and vanish. */
            bool grow = nd_rand_below(&rand, 10) < (step / 1500 % 2 == 0 ? 8u : 2u);
            uint32_t n = (uint32_t)nd_rand_below(&rand, NAMES);
            if (grow) {
                versions[n] = step;
                table = table_put(table, n, step);
            } else if (versions[n] != 0) {
                versions[n] = 0;
                table = table_remove(table, n);
            }
            if (step % 300 == 0) {
                expect_equal(table, versions);
            }
        }
        for (uint32_t n = 0; n < NAMES; n++) {
            if (versions[n] != 0) {
                versions[n] = 0;
                table = table_remove(table, n);
            }
        }
        expect_equal(table, versions);
        nd_topic_table_unref(table);
    }
}

static void table_with__leaves_the_old_table_as_it_was(void **state)
{
    uint64_t versions[NAMES] = {0};
    uint64_t old_versions[NAMES];
    struct nd_topic_table *table = nd_topic_table_new();
    (void)state;
    for (uint32_t n = 0; n < NAMES; n += 2) {
        versions[n] = n + 1;
        table = table_put(table, n, n + 1);
    }
    memcpy(old_versions, versions, sizeof versions);
    struct nd_topic_table *old = nd_topic_table_ref(table);

    for (uint32_t n = 0; n < NAMES; n++) {
        versions[n] = n + 5000;
        table = table_put(table, n, n + 5000);
    }
    versions[9] = 0;
    table = table_remove(table, 9);

    expect_equal(old, old_versions);
    expect_equal(table, versions);
    nd_topic_table_unref(table);
    expect_equal(old, old_versions);
    nd_topic_table_unref(old);
}

static void table_build__equals_one_made_step_by_step(void **state)
{
    (void)state;
    for (uint32_t count = 0; count <= 300; count += 1 + count / 7) {
        const struct nd_topic *topics[300 + 64] = {NULL};
        uint64_t versions[NAMES] = {0};
        for (uint32_t n = 0; n < count; n++) {
            topics[n] = topic_named(n, n + 1);
            versions[n] = n + 1;
        }

        struct nd_topic_table *table = nd_topic_table_build(topics, count);

        for (uint32_t n = 0; n < count; n++) {
            nd_topic_unref(topics[n]);
        }
        expect_equal(table, versions);
        nd_topic_table_unref(table);
    }
}

static void table_walk__starts_above_its_mark(void **state)
{
    struct nd_topic_table *table = nd_topic_table_new();
    (void)state;
    for (uint32_t n = 1; n < 400; n += 2) {
        table = table_put(table, n, 1);
    }

    for (uint32_t mark = 0; mark < 401; mark++) {
        char after[32];
        char expected[32];
        snprintf(after, sizeof after, "topic-%05u", mark);
        uint32_t next = mark + 1 + mark % 2; /* the next odd number above it */
        snprintf(expected, sizeof expected, "topic-%05u", next);
        struct nd_topic_walk walk = nd_topic_table_walk(table, nd_slice_str(after));
        const struct nd_topic *topic = nd_topic_walk_next(&walk);
        if (next >= 400) {
            assert_null(topic);
        } else {
            assert_non_null(topic);
            assert_string_equal(topic->name, expected);
        }
    }
    nd_topic_table_unref(table);
}

static void topic_name_compare__is_byte_order(void **state)
{
    (void)state;
    assert_true(nd_topic_name_compare(nd_slice_str("Z"), nd_slice_str("a")) < 0);
    assert_true(nd_topic_name_compare(nd_slice_str("a"), nd_slice_str("a-b")) < 0);
    assert_true(nd_topic_name_compare(nd_slice_str("a.b"), nd_slice_str("a-b")) > 0);
    assert_int_equal(nd_topic_name_compare(nd_slice_str("a"), nd_slice_str("a")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table__holds_what_a_plain_array_holds),
        cmocka_unit_test(table_with__leaves_the_old_table_as_it_was),
        cmocka_unit_test(table_build__equals_one_made_step_by_step),
        cmocka_unit_test(table_walk__starts_above_its_mark),
        cmocka_unit_test(topic_name_compare__is_byte_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
