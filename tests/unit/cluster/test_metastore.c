/* The metastore on a real Raft of one member, in one process. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cluster/meta.h"

struct fixture {
    char *dir;
    struct meta meta;
};

static int setup(void **state)
{
    struct fixture *fixture = nd_xcalloc(1, sizeof *fixture);
    fixture->dir = temp_dir_new();
    meta_init(&fixture->meta, fixture->dir);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    meta_release(&fixture->meta);
    temp_dir_remove(fixture->dir);
    nd_free(fixture);
    return 0;
}

static void expect_story(struct meta *meta, const char *expected)
{
    char *story = meta_story_take(meta);
    assert_string_equal(story, expected);
    nd_free(story);
}

static void expect_topic(struct meta *meta, const char *name, uint64_t incarnation)
{
    struct nd_topic *topic;
    assert_int_equal(nd_metastore_topic(meta->store, nd_slice_str(name), &topic), ND_OK);
    assert_int_equal(topic->incarnation, incarnation);
    nd_topic_unref(topic);
}

static void metastore_create__is_read_back_and_survives_a_restart(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char name[300];

    meta_open(meta);
    uint64_t member = nd_metastore_member(meta->store);
    assert_int_not_equal(member, 0);
    assert_true(nd_metastore_is_leader(meta->store));
    struct meta_answer made = meta_create(meta, "orders", 3);
    assert_int_equal(made.err, ND_OK);
    assert_int_not_equal(made.incarnation, 0);
    assert_int_equal(made.owner_first, member);
    assert_int_equal(made.owner_last, member);
    expect_topic(meta, "orders", made.incarnation);
    expect_story(meta, "+orders\n");
    meta_close(meta);

    meta_open(meta);

    assert_int_equal(nd_metastore_member(meta->store), member);
    expect_topic(meta, "orders", made.incarnation);
    expect_story(meta, "+orders\n");
    nd_metastore_member_name(meta->store, member, name, sizeof name);
    assert_string_equal(name, "node-a");
    nd_metastore_member_name(meta->store, member + 1, name, sizeof name);
    assert_string_equal(name, "");
    meta_close(meta);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(metastore_create__is_read_back_and_survives_a_restart,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
