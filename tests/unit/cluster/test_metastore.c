/* The metastore on a real Raft of one member, in one process. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "cluster/identity.h"
#include "cluster/view.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cluster/files.h"
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

static struct nd_topic_alter alter_of(const char *name)
{
    struct nd_topic_alter alter = {.partitions = 0};
    snprintf(alter.name, sizeof alter.name, "%s", name);
    return alter;
}

static void metastore_change__is_told_in_order(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    meta_open(meta);
    struct meta_answer first = meta_create(meta, "orders", 3);
    struct nd_topic_alter alter = alter_of("orders");
    alter.partitions = 5;
    alter.has_max_in_flight = true;
    alter.max_in_flight = 7;

    struct meta_answer altered = meta_alter(meta, &alter);
    assert_int_equal(altered.err, ND_OK);
    assert_int_equal(altered.partitions, 5);
    assert_int_equal(altered.incarnation, first.incarnation);
    assert_int_equal(altered.owner_last, nd_metastore_member(meta->store));
    assert_true(altered.version > first.version);
    assert_int_equal(meta_delete(meta, "orders").err, ND_OK);
    struct meta_answer second = meta_create(meta, "orders", 3);

    assert_int_equal(second.err, ND_OK);
    assert_int_not_equal(second.incarnation, first.incarnation);
    assert_true(second.version > altered.version);
    expect_story(meta, "+orders\n~orders\n-orders\n+orders\n");
    meta_close(meta);
}

static void metastore_change__refusals_say_why(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct nd_topic_alter alter = alter_of("orders");
    struct meta_answer answer;
    meta->options.topic_partitions_max = 8;
    meta_open(meta);
    assert_int_equal(meta_create(meta, "orders", 8).err, ND_OK);

    answer = meta_create(meta, "orders", 3);
    assert_int_equal(answer.err, ND_ERR_TOPIC_EXISTS);
    assert_string_equal(answer.text, "topic already exists");
    answer = meta_create(meta, "../etc", 3);
    assert_int_equal(answer.err, ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(answer.text,
                        "invalid argument: topic name must match ^[A-Za-z0-9._-]{1,255}$");
    answer = meta_create(meta, "big", 9);
    assert_int_equal(answer.err, ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(answer.text,
                        "invalid argument: partitions (9) exceeds topic.max_partitions (8)");
    alter.partitions = 8;
    answer = meta_alter(meta, &alter);
    assert_int_equal(answer.err, ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(answer.text,
                        "invalid argument: new partition count (8) must be greater than current "
                        "(8); decrease is not supported");
    alter = alter_of("missing");
    assert_int_equal(meta_alter(meta, &alter).err, ND_ERR_TOPIC_NOT_FOUND);
    answer = meta_delete(meta, "missing");
    assert_int_equal(answer.err, ND_ERR_TOPIC_NOT_FOUND);
    assert_string_equal(answer.text, "topic not found");

    expect_story(meta, "+orders\n");
    assert_int_equal(nd_metastore_topic_count(meta->store), 1);
    meta_close(meta);
}

struct early {
    struct meta *meta;
    bool readable;
    uint32_t told;
};

static void look_early(void *arg, const struct nd_topic *before, const struct nd_topic *after)
{
    struct early *early = arg;
    struct nd_topic *topic = NULL;
    (void)before;
    enum nd_err err = nd_metastore_topic(early->meta->store, nd_slice_str(after->name), &topic);
    early->readable = early->readable || err == ND_OK;
    early->told++;
    nd_topic_unref(topic);
}

/* T3 */
static void metastore_change__is_told_before_it_can_be_read(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct early early = {meta, false, 0};
    meta->options.topic_changed = look_early;
    meta->options.topic_changed_arg = &early;
    meta_open(meta);

    struct meta_answer made = meta_create(meta, "orders", 3);

    expect_topic(meta, "orders", made.incarnation); /* and readable once it is answered */
    assert_int_equal(early.told, 1);
    assert_false(early.readable);
    meta_close(meta);
}

static void metastore_topics__pages_in_byte_order(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    const char *names[] = {"b", "Z", "a-b", "a", "a.b"};
    const char *sorted = "Z,a,a-b,a.b,b,";
    char seen[64] = "";
    char after[ND_TOPIC_NAME_SIZE_MAX + 1] = "";
    bool more = true;
    meta_open(meta);
    for (size_t i = 0; i < ND_ARRAY_SIZE(names); i++) {
        assert_int_equal(meta_create(meta, names[i], 3).err, ND_OK);
    }

    for (int pages = 1; more; pages++) {
        struct nd_topic *topics[2];
        size_t count = nd_metastore_topics(meta->store, nd_slice_str(after), 2, topics, &more);
        assert_int_equal(count, pages < 3 ? 2 : 1);
        assert_int_equal(more, pages < 3);
        for (size_t i = 0; i < count; i++) {
            size_t used = strlen(seen);
            int size = snprintf(seen + used, sizeof seen - used, "%.32s,", topics[i]->name);
            assert_true((size_t)size < sizeof seen - used);
            snprintf(after, sizeof after, "%s", topics[i]->name);
            nd_topic_unref(topics[i]);
        }
    }
    assert_string_equal(seen, sorted);
    meta_close(meta);
}

static void metastore_confirm_gone__knows_incarnations(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    bool gone;
    meta_open(meta);
    struct meta_answer first = meta_create(meta, "orders", 3);

    assert_int_equal(meta_confirm_gone(meta, "orders", first.incarnation, &gone), ND_OK);
    assert_false(gone);
    assert_int_equal(meta_confirm_gone(meta, "other", 1, &gone), ND_OK);
    assert_true(gone);
    meta_delete(meta, "orders");
    struct meta_answer second = meta_create(meta, "orders", 3);
    assert_int_equal(meta_confirm_gone(meta, "orders", first.incarnation, &gone), ND_OK);
    assert_true(gone);
    assert_int_equal(meta_confirm_gone(meta, "orders", second.incarnation, &gone), ND_OK);
    assert_false(gone);
    meta_close(meta);
}

/* C2. The raft thread is held at its first log line, in front of the catch-up, by a full pipe. */
static void metastore_read__is_served_from_the_view_until_caught_up(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct nd_topic *topic;
    struct nd_errmsg msg;
    char bytes[4096] = {0};
    bool gone;
    int ends[2];
    meta_open(meta);
    uint64_t incarnation = meta_create(meta, "orders", 3).incarnation;
    meta_close(meta);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    assert_int_equal(write(ends[1], bytes, sizeof bytes), sizeof bytes);
    meta->options.log = nd_log_new(ends[1], ND_LOG_INFO, ND_LOG_TEXT);
    expect_story(meta, "+orders\n");

    assert_int_equal(nd_metastore_open(&meta->store, &meta->options, &msg), ND_OK);
    expect_story(meta, "+orders\n"); /* before the open returned */
    assert_false(nd_metastore_caught_up(meta->store));
    expect_topic(meta, "orders", incarnation);
    assert_int_equal(nd_metastore_topic(meta->store, nd_slice_str("other"), &topic),
                     ND_ERR_UNAVAILABLE);

    assert_int_equal(read(ends[0], bytes, sizeof bytes), sizeof bytes);
    meta_wait_caught_up(meta);
    assert_true(nd_metastore_caught_up(meta->store));
    assert_int_equal(nd_metastore_topic(meta->store, nd_slice_str("other"), &topic),
                     ND_ERR_TOPIC_NOT_FOUND);
    assert_int_equal(meta_confirm_gone(meta, "other", 1, &gone), ND_OK);
    expect_story(meta, ""); /* nothing differed from the view */
    meta_close(meta);
    nd_log_free(meta->options.log);
    close(ends[0]);
    close(ends[1]);
}

/* The real disk, whose renames of a view are told. */
static struct {
    struct nd_env env;
    struct nd_inbox seen;
} watched;

static enum nd_err watched_rename(void *impl, const char *from, const char *to,
                                  struct nd_errmsg *msg)
{
    enum nd_err err = nd_env_posix()->rename(impl, from, to, msg);
    if (strstr(to, "/view") != NULL) {
        nd_inbox_wake(&watched.seen);
    }
    return err;
}

/* C2: a process that dies leaves a view of what it had applied. */
static void metastore_view__follows_a_change_by_itself(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char *path = nd_xasprintf("%s/view", meta->dir);
    bool known = false;
    watched.env = *nd_env_posix();
    watched.env.rename = watched_rename;
    nd_inbox_init(&watched.seen);
    meta->options.env = &watched.env;
    meta_open(meta);
    meta_create(meta, "orders", 3);

    while (!known) { /* the first may be of the registration alone */
        struct nd_state view;
        nd_inbox_wait(&watched.seen, UINT64_MAX);
        nd_state_init(&view);
        assert_int_equal(nd_view_load(&watched.env, path, &view, NULL), ND_OK);
        known = nd_topic_table_find(view.table, nd_slice_str("orders")) != NULL;
        nd_state_release(&view);
    }
    meta_close(meta);
    nd_inbox_release(&watched.seen);
    nd_free(path);
}

static void metastore_snapshot__is_taken_and_restored(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char name[32];
    meta->options.snapshot_threshold = 16;
    meta->options.trailing = 8;

    for (uint32_t start = 0; start < 4; start++) {
        meta_open(meta);
        assert_int_equal(nd_metastore_topic_count(meta->store), start * 50);
        for (uint32_t i = 0; i < 50; i++) {
            snprintf(name, sizeof name, "topic-%u-%u", start, i);
            assert_int_equal(meta_create(meta, name, 3).err, ND_OK);
        }
        meta_close(meta);
    }

    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    assert_true(files_count(raft_dir, "snapshot-") > 0);
    nd_free(raft_dir);
    /* The view is a copy only: without it all comes from snapshot and log. */
    files_remove(meta->dir, "view");
    nd_free(meta_story_take(meta));
    meta_open(meta);
    assert_int_equal(nd_metastore_topic_count(meta->store), 200);
    char *story = meta_story_take(meta);
    assert_non_null(strstr(story, "+topic-0-0\n"));
    assert_non_null(strstr(story, "+topic-3-49\n"));
    nd_free(story);
    meta_close(meta);
}

static void metastore_close__answers_everything_in_flight(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char name[32];
    uint64_t acknowledged = 0;

    for (uint32_t round = 0; round < 8; round++) {
        struct meta_gate gate;
        meta_gate_init(&gate);
        meta_open(meta);
        for (uint32_t i = 0; i < 400; i++) {
            snprintf(name, sizeof name, "topic-%u-%u", round, i);
            meta_gate_create(meta, &gate, name, 400);
        }

        meta_close(meta);

        assert_int_equal(gate.in_flight, 0);
        assert_int_equal(gate.ok + gate.refused, 400);
        acknowledged += gate.ok;
        meta_gate_release(&gate);
    }
    meta_open(meta);
    assert_true(nd_metastore_topic_count(meta->store) >= acknowledged);
    meta_close(meta);
}

static void metastore_change__refuses_beyond_its_window(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct meta_gate gate;
    char name[32];
    meta_open(meta);
    meta_gate_init(&gate);

    for (uint32_t i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "topic-%u", i);
        meta_gate_create(meta, &gate, name, 20001);
    }
    meta_gate_wait(&gate, 0);

    assert_int_equal(gate.ok + gate.refused, 20000);
    assert_int_equal(nd_metastore_topic_count(meta->store), gate.ok);
    assert_true(gate.refused > 0);
    assert_true(gate.ok >= 512);
    meta_close(meta);
    meta_gate_release(&gate);
}

/* --- what must refuse to start --- */

/* libraft leaks its list of segments when it refuses one; the process ends then. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void expect_refusal(struct meta *meta, enum nd_err expected, const char *named)
{
    struct nd_errmsg msg = {""};
    if (__lsan_disable != NULL) {
        __lsan_disable();
    }
    enum nd_err err = nd_metastore_open(&meta->store, &meta->options, &msg);
    if (__lsan_enable != NULL) {
        __lsan_enable();
    }

    if (err != expected || strstr(msg.text, named) == NULL) {
        fail_msg("%s: %s", nd_err_name(err), msg.text);
    }
}

static void metastore_open__names_a_damaged_segment(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    meta_open(meta);
    meta_create(meta, "one", 3);
    meta_create(meta, "two", 3);
    meta_close(meta);
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    /* A closed segment is named first-last. The first holds the configuration alone. */
    char *segment = files_find(raft_dir, "-", "0000000000000001-");
    assert_non_null(segment);
    char *path = nd_xasprintf("%s/%s", raft_dir, segment);

    files_flip(path, 150);

    expect_refusal(meta, ND_ERR_CORRUPT, segment);
    files_flip(path, 150);
    meta_open(meta);
    assert_int_equal(nd_metastore_topic_count(meta->store), 2);
    meta_close(meta);
    nd_free(path);
    nd_free(segment);
    nd_free(raft_dir);
}

/* With most of them libraft, left alone, would never come back. */
static void metastore_open__refuses_a_snapshot_cut_at_any_byte(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char name[32];
    meta->options.snapshot_threshold = 16;
    meta->options.trailing = 8;
    meta_open(meta);
    for (uint32_t i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "topic-%u", i);
        assert_int_equal(meta_create(meta, name, 3).err, ND_OK);
    }
    meta_close(meta);
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    char *snapshot = files_newest_snapshot(raft_dir);
    assert_non_null(snapshot);
    char *path = nd_xasprintf("%s/%s", raft_dir, snapshot);
    struct nd_slice whole = files_read(path);

    for (size_t size = 4; size < whole.size; size++) {
        files_write(path, nd_slice_make(whole.data, size));
        expect_refusal(meta, ND_ERR_CORRUPT, snapshot);
    }
    files_write(path, whole);
    meta_open(meta);
    assert_int_equal(nd_metastore_topic_count(meta->store), 30);
    meta_close(meta);
    nd_free((void *)(uintptr_t)whole.data);
    nd_free(path);
    nd_free(snapshot);
    nd_free(raft_dir);
}

static void metastore_open__notices_a_log_that_lost_its_end(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    char *older = nd_xasprintf("%s/older", meta->dir);
    meta_open(meta);
    meta_create(meta, "one", 3);
    meta_close(meta);
    files_copy_dir(raft_dir, older);
    meta_open(meta);
    for (int i = 0; i < 5; i++) {
        meta_create(meta, "two", 3);
        meta_delete(meta, "two");
    }
    meta_close(meta);

    files_remove_dir(raft_dir);
    files_copy_dir(older, raft_dir);

    expect_refusal(meta, ND_ERR_CORRUPT, "ends at entry");
    nd_free(raft_dir);
    nd_free(older);
}

static void metastore_open__refuses_when_its_files_are_gone(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    char *view = nd_xasprintf("%s/view", meta->dir);
    char *identity = nd_xasprintf("%s/identity", meta->dir);
    meta_open(meta);
    meta_create(meta, "one", 3);
    meta_close(meta);

    files_flip(view, 40);
    expect_refusal(meta, ND_ERR_CORRUPT, view);
    files_flip(view, 40);
    files_flip(identity, 40);
    expect_refusal(meta, ND_ERR_CORRUPT, identity);
    files_remove(meta->dir, "identity");
    expect_refusal(meta, ND_ERR_CORRUPT, identity);
    files_remove_dir(raft_dir);
    expect_refusal(meta, ND_ERR_CORRUPT, identity);

    nd_free(raft_dir);
    nd_free(view);
    nd_free(identity);
}

/* All of it is lost: with an empty metastore every topic would be confirmed gone (P5). */
static void metastore_open__begins_anew_only_where_no_store_was(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char *identity = nd_xasprintf("%s/identity", meta->dir);

    meta->options.must_exist = true;
    expect_refusal(meta, ND_ERR_CORRUPT, identity);
    expect_refusal(meta, ND_ERR_CORRUPT, identity); /* the refusal left nothing behind */
    meta->options.must_exist = false;
    meta_open(meta);
    meta_create(meta, "one", 3);
    meta_close(meta);
    meta->options.must_exist = true;
    meta_open(meta);
    assert_int_equal(nd_metastore_topic_count(meta->store), 1);
    meta_close(meta);
    nd_free(identity);
}

static void metastore_open__refuses_without_its_log(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    meta_open(meta);
    meta_close(meta);
    files_remove_dir(raft_dir);

    expect_refusal(meta, ND_ERR_CORRUPT, "the raft log is gone");
    files_remove(meta->dir, "view");
    expect_refusal(meta, ND_ERR_CORRUPT, "the raft log is gone");

    nd_free(raft_dir);
}

static void metastore_open__refuses_without_its_term(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    meta_open(meta);
    meta_create(meta, "one", 3);
    meta_close(meta);
    for (char *name; (name = files_find(raft_dir, "metadata", NULL)) != NULL; nd_free(name)) {
        files_remove(raft_dir, name);
    }
    uint32_t files = files_count(raft_dir, "");

    expect_refusal(meta, ND_ERR_CORRUPT, raft_dir);
    assert_int_equal(files_count(raft_dir, ""), files);

    nd_free(raft_dir);
}

static void metastore_open__refuses_with_a_damaged_term(void **state)
{
    enum { FORMAT_BYTE = 2 };
    struct meta *meta = &((struct fixture *)*state)->meta;
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    meta_open(meta);
    meta_create(meta, "one", 3);
    meta_close(meta);
    char *name = files_find(raft_dir, "metadata", NULL);
    char *path = nd_xasprintf("%s/%s", raft_dir, name);
    assert_int_equal(files_count(raft_dir, "metadata"), 1);

    files_flip(path, FORMAT_BYTE);
    expect_refusal(meta, ND_ERR_CORRUPT, "metadata1");
    files_flip(path, FORMAT_BYTE);
    meta_open(meta);
    meta_close(meta);

    nd_free(path);
    nd_free(name);
    nd_free(raft_dir);
}

static void metastore_open__finishes_a_first_start_that_was_cut_short(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    const struct nd_env *env = nd_env_posix();
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    char *identity_path = nd_xasprintf("%s/identity", meta->dir);
    char *segment_path = nd_xasprintf("%s/open-1", raft_dir);
    struct nd_identity identity = nd_identity_draw(env);
    assert_int_equal(nd_env_mkdirs(env, raft_dir, NULL), ND_OK);
    assert_int_equal(nd_identity_store(env, identity_path, &identity, NULL), ND_OK);
    assert_int_equal(nd_env_replace_file(env, segment_path, nd_slice_str("half"), NULL), ND_OK);

    meta_open(meta);

    assert_int_equal(nd_metastore_member(meta->store), identity.member);
    assert_int_equal(meta_create(meta, "one", 3).err, ND_OK);
    meta_close(meta);
    nd_free(raft_dir);
    nd_free(identity_path);
    nd_free(segment_path);
}

static void metastore_open__refuses_bad_options(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct nd_metastore_options good = meta->options;

    meta->options.node_id = "";
    expect_refusal(meta, ND_ERR_INVALID_ARGUMENT, "node id");
    meta->options = good;
    meta->options.topic_partitions_max = ND_TOPIC_PARTITIONS_LIMIT + 1;
    expect_refusal(meta, ND_ERR_INVALID_ARGUMENT, "partitions");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(metastore_create__is_read_back_and_survives_a_restart),
        CASE(metastore_change__is_told_in_order),
        CASE(metastore_change__refusals_say_why),
        CASE(metastore_change__is_told_before_it_can_be_read),
        CASE(metastore_topics__pages_in_byte_order),
        CASE(metastore_confirm_gone__knows_incarnations),
        CASE(metastore_read__is_served_from_the_view_until_caught_up),
        CASE(metastore_view__follows_a_change_by_itself),
        CASE(metastore_snapshot__is_taken_and_restored),
        CASE(metastore_open__refuses_a_snapshot_cut_at_any_byte),
        CASE(metastore_close__answers_everything_in_flight),
        CASE(metastore_change__refuses_beyond_its_window),
        CASE(metastore_open__names_a_damaged_segment),
        CASE(metastore_open__notices_a_log_that_lost_its_end),
        CASE(metastore_open__refuses_when_its_files_are_gone),
        CASE(metastore_open__begins_anew_only_where_no_store_was),
        CASE(metastore_open__refuses_without_its_log),
        CASE(metastore_open__refuses_without_its_term),
        CASE(metastore_open__refuses_with_a_damaged_term),
        CASE(metastore_open__finishes_a_first_start_that_was_cut_short),
        CASE(metastore_open__refuses_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
