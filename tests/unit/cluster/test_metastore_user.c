/* Users in the metastore, on a real Raft of one member, in one process. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "cluster/view.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cluster/files.h"
#include "tests/unit/cluster/meta.h"

static const char hash_first[] = "$2b$10$first";
static const char hash_second[] = "$2b$10$second";

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

/* The caller's reference; NULL: `expected` was the error. */
static struct nd_user *user_get(struct meta *meta, const char *name, enum nd_err expected)
{
    struct nd_user *user = NULL;
    assert_int_equal(nd_metastore_user(meta->store, nd_slice_str(name), &user), expected);
    assert_int_equal(user != NULL, expected == ND_OK);
    return user;
}

static void expect_user(struct meta *meta, const char *name, const char *hash, const char *pattern)
{
    struct nd_user *user = user_get(meta, name, ND_OK);
    assert_string_equal(user->name, name);
    assert_string_equal(user->hash, hash);
    assert_int_equal(user->grants_count, pattern == NULL ? 0 : 1);
    if (pattern != NULL) {
        assert_string_equal(user->grants[0].patterns[0], pattern);
    }
    nd_user_unref(user);
}

static void metastore_user__is_read_back_and_survives_a_restart(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    int64_t before_ms = (int64_t)nd_env_posix()->wall_ms(nd_env_posix()->impl);

    meta_open(meta);
    assert_int_equal(meta_seed_root(meta, hash_first).err, ND_OK);
    assert_int_equal(meta_create_user(meta, "ann", hash_first, "orders-*").err, ND_OK);
    assert_int_equal(meta_create_user(meta, "bob", hash_first, NULL).err, ND_OK);
    assert_int_equal(meta_set_password(meta, "ann", hash_second).err, ND_OK);
    assert_int_equal(meta_set_grants(meta, "ann", "*").err, ND_OK);
    assert_int_equal(meta_delete_user(meta, "bob").err, ND_OK);
    for (int restarted = 0; restarted < 3; restarted++) {
        struct nd_user **users;
        assert_int_equal(nd_metastore_users(meta->store, &users), 2);
        assert_string_equal(users[0]->name, "admin");
        assert_true(users[0]->root);
        assert_true(users[0]->created_at_ms >= before_ms);
        assert_true(users[1]->updated_at_ms >= users[1]->created_at_ms);
        assert_false(users[1]->root);
        nd_user_unref(users[0]);
        nd_user_unref(users[1]);
        nd_free(users);
        expect_user(meta, "ann", hash_second, "*");
        user_get(meta, "bob", ND_ERR_NOT_FOUND);
        meta_close(meta);
        if (restarted == 1) { /* then all comes from the log */
            files_remove(meta->dir, "view");
        }
        meta_open(meta);
    }
    meta_close(meta);
}

static void metastore_user__refusals_say_why(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char long_text[200];
    memset(long_text, 'a', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    meta_open(meta);
    assert_int_equal(meta_seed_root(meta, hash_first).err, ND_OK);
    assert_int_equal(meta_create_user(meta, "ann", hash_first, NULL).err, ND_OK);
    const struct {
        struct meta_answer answer;
        enum nd_err err;
        const char *text;
    } rows[] = {
        {meta_seed_root(meta, hash_second), ND_ERR_ALREADY_EXISTS, "already exists"},
        {meta_create_user(meta, "ann", hash_second, NULL), ND_ERR_ALREADY_EXISTS, "already exists"},
        {meta_create_user(meta, "a b", hash_second, NULL), ND_ERR_INVALID_ARGUMENT,
         "username must match ^[A-Za-z0-9._-]{1,64}$"},
        {meta_create_user(meta, "bob", "", NULL), ND_ERR_INVALID_ARGUMENT,
         "a password hash has 1 to 127 visible characters"},
        {meta_create_user(meta, "bob", hash_first, "a*b"), ND_ERR_INVALID_ARGUMENT,
         "grant \"produce\" pattern \"a*b\" must be a topic name with an optional trailing '*'"},
        {meta_set_grants(meta, "ann", ""), ND_ERR_INVALID_ARGUMENT,
         "grant \"produce\" has an empty pattern"},
        {meta_set_grants(meta, "admin", "*"), ND_ERR_PERMISSION_DENIED,
         "the root admin's grants are immutable"},
        {meta_set_grants(meta, "ghost", "*"), ND_ERR_NOT_FOUND, "not found"},
        {meta_set_grants(meta, long_text, NULL), ND_ERR_NOT_FOUND, "not found"},
        {meta_set_password(meta, "ghost", hash_first), ND_ERR_NOT_FOUND, "not found"},
        {meta_set_password(meta, "ann", long_text), ND_ERR_INVALID_ARGUMENT,
         "a password hash has 1 to 127 visible characters"},
        {meta_delete_user(meta, "admin"), ND_ERR_PERMISSION_DENIED,
         "the root admin cannot be deleted"},
        {meta_delete_user(meta, "ghost"), ND_ERR_NOT_FOUND, "not found"},
        {meta_delete_user(meta, long_text), ND_ERR_NOT_FOUND, "not found"},
    };

    for (size_t i = 0; i < ND_ARRAY_SIZE(rows); i++) {
        assert_int_equal(rows[i].answer.err, rows[i].err);
        assert_string_equal(rows[i].answer.text, rows[i].text);
        assert_string_equal(rows[i].answer.user, "");
    }
    expect_user(meta, "admin", hash_first, NULL);
    expect_user(meta, "ann", hash_first, NULL);
    meta_close(meta);
}

/* The record that the answer shows is what readers get from then on. */
static void metastore_user__answers_show_the_new_record(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    meta_open(meta);

    assert_string_equal(meta_seed_root(meta, hash_first).user, "admin");
    assert_string_equal(meta_create_user(meta, "ann", hash_first, "a").user, "ann");
    assert_string_equal(meta_set_grants(meta, "ann", "b").user, "ann");
    assert_string_equal(meta_set_password(meta, "ann", hash_second).user, "ann");
    expect_user(meta, "ann", hash_second, "b");
    assert_string_equal(meta_delete_user(meta, "ann").user, "");
    user_get(meta, "ann", ND_ERR_NOT_FOUND);
    meta_close(meta);
}

static void metastore_users_version__rises_behind_every_change_and_no_refusal(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    meta_open(meta);
    uint64_t version = nd_metastore_users_version(meta->store);
    assert_true(version >= 1);

    assert_int_equal(meta_create_user(meta, "ann", hash_first, NULL).err, ND_OK);
    assert_true(nd_metastore_users_version(meta->store) > version);
    version = nd_metastore_users_version(meta->store);
    assert_int_equal(meta_set_grants(meta, "ann", "*").err, ND_OK);
    assert_true(nd_metastore_users_version(meta->store) > version);
    version = nd_metastore_users_version(meta->store);
    assert_int_equal(meta_set_password(meta, "ann", hash_second).err, ND_OK);
    assert_true(nd_metastore_users_version(meta->store) > version);
    version = nd_metastore_users_version(meta->store);
    assert_int_equal(meta_create_user(meta, "ann", hash_first, NULL).err, ND_ERR_ALREADY_EXISTS);
    assert_int_equal(meta_create(meta, "orders", 3).err, ND_OK);
    assert_int_equal(nd_metastore_users_version(meta->store), version);
    assert_int_equal(meta_delete_user(meta, "ann").err, ND_OK);
    assert_true(nd_metastore_users_version(meta->store) > version);
    meta_close(meta);
}

/* A reader beside the changes: whoever saw a version reads a record at least as new. */
struct reader {
    struct meta *meta;
    atomic_bool stop;
    bool behind;
    uint64_t looks;
};

static void reader_run(void *arg)
{
    struct reader *reader = arg;
    uint64_t first = nd_metastore_users_version(reader->meta->store);

    while (!atomic_load(&reader->stop)) {
        struct nd_user *user;
        uint64_t changes = nd_metastore_users_version(reader->meta->store) - first;
        enum nd_err err = nd_metastore_user(reader->meta->store, nd_slice_str("ann"), &user);
        ND_ASSERT(err == ND_OK);
        uint64_t number = strtoull(user->hash + 1, NULL, 10);
        reader->behind = reader->behind || number < changes;
        reader->looks++;
        nd_user_unref(user);
    }
}

static void metastore_users_version__is_raised_after_the_record_can_be_read(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct reader reader = {.meta = meta};
    struct nd_thread thread = {0};
    char hash[32];
    meta_open(meta);
    assert_int_equal(meta_create_user(meta, "ann", "$0", NULL).err, ND_OK);
    assert_true(nd_thread_start(&thread, "reader", reader_run, &reader));

    for (unsigned i = 1; i <= 200; i++) { /* the n-th change writes n */
        snprintf(hash, sizeof hash, "$%u", i);
        assert_int_equal(meta_set_password(meta, "ann", hash).err, ND_OK);
    }
    atomic_store(&reader.stop, true);
    nd_thread_join(&thread);

    assert_false(reader.behind);
    expect_user(meta, "ann", "$200", NULL);
    meta_close(meta);
}

/* What it read each time it was told. @thread raft */
struct watcher {
    struct meta *meta;
    uint64_t version;
    char told[64];
};

static void watcher_run(void *arg)
{
    struct watcher *watcher = arg;
    struct nd_user *user = NULL;
    size_t used = strlen(watcher->told);
    uint64_t version = nd_metastore_users_version(watcher->meta->store);
    enum nd_err err = nd_metastore_user(watcher->meta->store, nd_slice_str("ann"), &user);

    ND_ASSERT(version > watcher->version);
    watcher->version = version;
    snprintf(watcher->told + used, sizeof watcher->told - used, "%s,",
             err == ND_OK ? user->hash : "gone");
    nd_user_unref(user);
}

static void metastore_watch_users__is_told_after_the_change_can_be_read(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct watcher watcher = {.meta = meta};
    meta_open(meta);
    nd_metastore_watch_users(meta->store, watcher_run, &watcher);

    assert_int_equal(meta_create_user(meta, "ann", "$1", NULL).err, ND_OK);
    assert_int_equal(meta_create_user(meta, "ann", "$2", NULL).err, ND_ERR_ALREADY_EXISTS);
    assert_int_equal(meta_set_password(meta, "ann", "$3").err, ND_OK);
    assert_int_equal(meta_create(meta, "orders", 3).err, ND_OK);
    assert_int_equal(meta_delete_user(meta, "ann").err, ND_OK);
    nd_metastore_watch_users(meta->store, NULL, NULL);
    assert_string_equal(watcher.told, "$1,$3,gone,"); /* told before its proposer hears of it */
    assert_int_equal(meta_create_user(meta, "ann", "$4", NULL).err, ND_OK);

    assert_string_equal(watcher.told, "$1,$3,gone,");
    meta_close(meta);
}

/* I-102: of many who seed, beside one who creates a user, at most one makes the root. */
static void metastore_seed__of_many_at_once_only_one_wins(void **state)
{
    enum { SEEDS = 100 };
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct meta_gate gate;
    meta_open(meta);
    meta_gate_init(&gate);

    for (unsigned i = 0; i < SEEDS; i++) {
        char hash[32];
        snprintf(hash, sizeof hash, "$%u", i);
        meta_gate_seed(meta, &gate, hash);
    }
    meta_gate_wait(&gate, 0);

    assert_int_equal(gate.ok, 1);
    assert_int_equal(gate.refused, SEEDS - 1);
    struct nd_user *root = user_get(meta, "admin", ND_OK);
    assert_true(root->root);
    assert_string_equal(root->hash, "$0"); /* the first of the log */
    nd_user_unref(root);
    meta_gate_release(&gate);
    meta_close(meta);
}

/* C2. The raft thread is held at its first log line, in front of the catch-up, by a full pipe. */
static void metastore_user__is_served_from_the_view_until_caught_up(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    struct nd_errmsg msg;
    char bytes[4096] = {0};
    int ends[2];
    meta_open(meta);
    assert_int_equal(meta_create_user(meta, "ann", hash_first, "orders-*").err, ND_OK);
    meta_close(meta);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    assert_int_equal(write(ends[1], bytes, sizeof bytes), sizeof bytes);
    meta->options.log = nd_log_new(ends[1], ND_LOG_INFO, ND_LOG_TEXT);

    assert_int_equal(nd_metastore_open(&meta->store, &meta->options, &msg), ND_OK);
    assert_false(nd_metastore_caught_up(meta->store));
    assert_int_equal(nd_metastore_users_version(meta->store), 1);
    expect_user(meta, "ann", hash_first, "orders-*"); /* with her grants */
    user_get(meta, "other", ND_ERR_UNAVAILABLE);

    assert_int_equal(read(ends[0], bytes, sizeof bytes), sizeof bytes);
    meta_wait_caught_up(meta);
    expect_user(meta, "ann", hash_first, "orders-*");
    user_get(meta, "other", ND_ERR_NOT_FOUND);
    meta_close(meta);
    nd_log_free(meta->options.log);
    close(ends[0]);
    close(ends[1]);
}

static void metastore_user__is_restored_from_a_snapshot(void **state)
{
    struct meta *meta = &((struct fixture *)*state)->meta;
    char *raft_dir = nd_xasprintf("%s/raft", meta->dir);
    char name[32];
    meta->options.snapshot_threshold = 16;
    meta->options.trailing = 8;
    meta_open(meta);
    assert_int_equal(meta_seed_root(meta, hash_first).err, ND_OK);
    for (uint32_t i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "user-%02u", i);
        assert_int_equal(meta_create_user(meta, name, hash_first, name).err, ND_OK);
    }
    meta_close(meta);
    assert_true(files_count(raft_dir, "snapshot-") > 0);
    files_remove(meta->dir, "view"); /* a copy only */

    meta_open(meta);

    struct nd_user **users;
    size_t count = nd_metastore_users(meta->store, &users);
    assert_int_equal(count, 61);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(users[i]->root, i == 0);
        nd_user_unref(users[i]);
    }
    nd_free(users);
    expect_user(meta, "user-00", hash_first, "user-00");
    expect_user(meta, "user-59", hash_first, "user-59");
    meta_close(meta);
    nd_free(raft_dir);
}

/* A user of every size that passes the check goes through the log. */
static void metastore_user__of_the_largest_size_is_stored(void **state)
{
    enum { EACH = 128, LONGEST = 253 };
    struct meta *meta = &((struct fixture *)*state)->meta;
    char text[LONGEST + 2];
    char *patterns[EACH];
    const struct nd_grant grants[] = {{ND_ACTION_CONSUME, EACH, patterns}};
    memset(text, 'a', LONGEST);
    text[LONGEST] = '\0';
    for (size_t i = 0; i < EACH; i++) {
        patterns[i] = text;
    }
    meta_open(meta);
    assert_int_equal(meta_create_user(meta, "ann", hash_first, NULL).err, ND_OK);

    assert_int_equal(meta_set_grants_of(meta, "ann", grants, 1).err, ND_OK);
    memcpy(text + LONGEST, "*", 2);
    assert_int_equal(meta_set_grants_of(meta, "ann", grants, 1).err, ND_ERR_INVALID_ARGUMENT);
    meta_close(meta);
    meta_open(meta);

    struct nd_user *user = user_get(meta, "ann", ND_OK);
    assert_int_equal(user->grants[0].patterns_count, EACH);
    assert_int_equal(strlen(user->grants[0].patterns[EACH - 1]), LONGEST);
    nd_user_unref(user);
    meta_close(meta);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(metastore_user__is_read_back_and_survives_a_restart),
        CASE(metastore_user__refusals_say_why),
        CASE(metastore_user__answers_show_the_new_record),
        CASE(metastore_users_version__rises_behind_every_change_and_no_refusal),
        CASE(metastore_users_version__is_raised_after_the_record_can_be_read),
        CASE(metastore_watch_users__is_told_after_the_change_can_be_read),
        CASE(metastore_seed__of_many_at_once_only_one_wins),
        CASE(metastore_user__is_served_from_the_view_until_caught_up),
        CASE(metastore_user__is_restored_from_a_snapshot),
        CASE(metastore_user__of_the_largest_size_is_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
