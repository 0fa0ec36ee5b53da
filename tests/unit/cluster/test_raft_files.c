/* Raft's directory as crashes, full disks and damage leave it. Segments are made by the real
 * libraft, through a metastore that is closed. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "cluster/raft_files.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cluster/files.h"
#include "tests/unit/cluster/meta.h"

enum { SEGMENT_BYTES = 16384, TOPICS = 600 };

struct fixture {
    char *dir, *raft_dir;
    struct meta meta;
    /* The closed segments, in order. */
    char *names[64];
    size_t count;
};

static bool collect(void *arg, const char *name, enum nd_file_kind kind)
{
    struct fixture *fixture = arg;
    (void)kind;
    if (name[0] == '0') {
        size_t at = fixture->count++;
        ND_ASSERT(at < ND_ARRAY_SIZE(fixture->names));
        for (; at > 0 && strcmp(fixture->names[at - 1], name) > 0; at--) {
            fixture->names[at] = fixture->names[at - 1];
        }
        fixture->names[at] = nd_xstrdup(name);
    }
    return true;
}

/* A log of several closed segments. */
static int setup(void **state)
{
    struct fixture *fixture = nd_xcalloc(1, sizeof *fixture);
    const struct nd_env *env = nd_env_posix();
    struct meta_gate gate;
    char name[32];

    fixture->dir = temp_dir_new();
    meta_init(&fixture->meta, fixture->dir);
    fixture->meta.options.segment_bytes = SEGMENT_BYTES;
    fixture->raft_dir = nd_xasprintf("%s/raft", fixture->meta.dir);
    meta_open(&fixture->meta);
    meta_gate_init(&gate);
    for (int i = 0; i < TOPICS; i++) {
        snprintf(name, sizeof name, "topic-%d", i);
        meta_gate_create(&fixture->meta, &gate, name, 8);
    }
    meta_gate_wait(&gate, 0);
    meta_gate_release(&gate);
    meta_close(&fixture->meta);
    assert_int_equal(env->list(env->impl, fixture->raft_dir, collect, fixture, NULL), ND_OK);
    assert_true(fixture->count >= 5);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < fixture->count; i++) {
        nd_free(fixture->names[i]);
    }
    meta_release(&fixture->meta);
    nd_free(fixture->raft_dir);
    temp_dir_remove(fixture->dir);
    nd_free(fixture);
    return 0;
}

static char *path_of(const struct fixture *fixture, const char *name)
{
    return nd_xasprintf("%s/%s", fixture->raft_dir, name);
}

/* Make the closed segment `i` an open one again, with zeros up to the size of a segment. */
static void unname(const struct fixture *fixture, size_t i, const char *open_name)
{
    const struct nd_env *env = nd_env_posix();
    char *from = path_of(fixture, fixture->names[i]);
    char *to = path_of(fixture, open_name);
    int file;
    assert_int_equal(env->rename(env->impl, from, to, NULL), ND_OK);
    assert_int_equal(env->open(env->impl, to, ND_OPEN_WRITE, &file, NULL), ND_OK);
    assert_int_equal(env->truncate(env->impl, file, SEGMENT_BYTES, NULL), ND_OK);
    env->close(env->impl, file);
    nd_free(from);
    nd_free(to);
}

static void write_at(const struct fixture *fixture, const char *name, uint64_t at, const char *text)
{
    const struct nd_env *env = nd_env_posix();
    char *path = path_of(fixture, name);
    int file;
    assert_int_equal(env->open(env->impl, path, ND_OPEN_WRITE, &file, NULL), ND_OK);
    assert_int_equal(env->pwrite(env->impl, file, text, strlen(text), at, NULL), ND_OK);
    env->close(env->impl, file);
    nd_free(path);
}

static enum nd_err settle(const struct fixture *fixture, uint64_t reached, struct nd_errmsg *msg)
{
    return nd_raft_files_settle(nd_env_posix(), fixture->raft_dir, reached, msg);
}

/* Names and sizes of all files. */
static bool print_one(void *arg, const char *name, enum nd_file_kind kind)
{
    (void)kind;
    uint64_t *sum = arg;
    for (const char *at = name; *at != '\0'; at++) {
        *sum = *sum * 31 + (uint64_t)*at;
    }
    return true;
}

static uint64_t fingerprint(const struct fixture *fixture)
{
    const struct nd_env *env = nd_env_posix();
    uint64_t sum = files_allocated(fixture->raft_dir);
    assert_int_equal(env->list(env->impl, fixture->raft_dir, print_one, &sum, NULL), ND_OK);
    return sum;
}

/* `named` is in the text, the text is the metastore's too, and no file has changed. */
static void expect_refusal(struct fixture *fixture, enum nd_err expected, const char *named)
{
    struct nd_errmsg msg = {""};
    uint64_t before = fingerprint(fixture);

    assert_int_equal(settle(fixture, 1, &msg), expected);
    if (strstr(msg.text, named) == NULL) {
        fail_msg("%s is not in: %s", named, msg.text);
    }
    assert_int_equal(nd_metastore_open(&fixture->meta.store, &fixture->meta.options, &msg),
                     expected);
    assert_non_null(strstr(msg.text, named));
    assert_int_equal(fingerprint(fixture), before);
}

static void expect_all_topics(struct fixture *fixture)
{
    meta_open(&fixture->meta);
    assert_int_equal(nd_metastore_topic_count(fixture->meta.store), TOPICS);
    meta_close(&fixture->meta);
}

static void raft_files__of_a_sound_log_are_left_alone(void **state)
{
    struct fixture *fixture = *state;
    uint64_t before = fingerprint(fixture);

    assert_int_equal(settle(fixture, TOPICS, NULL), ND_OK);

    assert_int_equal(fingerprint(fixture), before);
    expect_all_topics(fixture);
}

/* A full disk kept libraft from naming two segments, and a later one got its name: alone, libraft
 * refuses such a log. */
static void raft_files__left_open_in_the_middle_are_named(void **state)
{
    struct fixture *fixture = *state;
    struct nd_errmsg msg = {""};
    unname(fixture, 2, "open-7");
    unname(fixture, 3, "open-12");

    assert_int_equal(settle(fixture, TOPICS, &msg), ND_OK);

    assert_int_equal(files_count(fixture->raft_dir, "open-"), 0);
    for (size_t i = 0; i < fixture->count; i++) {
        assert_int_equal(files_count(fixture->raft_dir, fixture->names[i]), 1);
    }
    expect_all_topics(fixture);
}

static void raft_files__left_open_at_the_end_are_libraft_s(void **state)
{
    struct fixture *fixture = *state;
    unname(fixture, fixture->count - 2, "open-7");
    unname(fixture, fixture->count - 1, "open-12");

    assert_int_equal(settle(fixture, TOPICS, NULL), ND_OK);

    assert_int_equal(files_count(fixture->raft_dir, "open-"), 2);
    expect_all_topics(fixture);
}

/* libraft would number what follows by what is left. */
static void raft_files__without_a_segment_refuse(void **state)
{
    struct fixture *fixture = *state;
    unname(fixture, fixture->count - 1, "open-12");
    unname(fixture, 1, "hidden");
    expect_refusal(fixture, ND_ERR_CORRUPT, fixture->names[2]);
    char *hidden = path_of(fixture, "hidden");
    char *open = path_of(fixture, "open-3");
    const struct nd_env *env = nd_env_posix();

    assert_int_equal(env->rename(env->impl, hidden, open, NULL), ND_OK);
    files_flip(open, 300);

    expect_refusal(fixture, ND_ERR_CORRUPT, fixture->names[2]);
    files_flip(open, 300);
    expect_all_topics(fixture);
    nd_free(hidden);
    nd_free(open);
}

/* It would cut off what is behind the damage, and number what follows by what is left. */
static void raft_files__open_and_damaged_with_one_behind_refuse(void **state)
{
    struct fixture *fixture = *state;
    unname(fixture, fixture->count - 2, "open-7");
    unname(fixture, fixture->count - 1, "open-12");
    char *open = path_of(fixture, "open-7");
    files_flip(open, 300);

    expect_refusal(fixture, ND_ERR_CORRUPT, "open-7: damaged at byte");

    files_flip(open, 300);
    expect_all_topics(fixture);
    nd_free(open);
}

static void raft_files__torn_at_their_end_are_taken(void **state)
{
    struct fixture *fixture = *state;
    unname(fixture, fixture->count - 1, "open-12");
    write_at(fixture, "open-12", SEGMENT_BYTES - 64, "torn");

    assert_int_equal(settle(fixture, TOPICS, NULL), ND_OK);

    expect_all_topics(fixture);
}

static void raft_files__of_another_format_refuse(void **state)
{
    struct fixture *fixture = *state;
    unname(fixture, fixture->count - 1, "open-12");
    write_at(fixture, "open-12", 0, "\x09");

    expect_refusal(fixture, ND_ERR_UNSUPPORTED, "open-12: segment of an unknown format (9)");
}

static void raft_files__that_end_too_early_refuse(void **state)
{
    struct fixture *fixture = *state;
    struct nd_errmsg msg = {""};

    assert_int_equal(settle(fixture, 1000000, &msg), ND_ERR_CORRUPT);

    assert_non_null(strstr(msg.text, "but entry 1000000 has been applied"));
}

static void raft_files__flipped_anywhere_in_a_closed_segment_refuse(void **state)
{
    struct fixture *fixture = *state;
    struct nd_errmsg msg;
    char *path = path_of(fixture, fixture->names[1]);

    for (uint64_t at = 0; at < 4000; at += at < 200 ? 1 : 97) {
        files_flip(path, at);
        msg.text[0] = '\0';
        enum nd_err err = settle(fixture, TOPICS, &msg);
        if (err != ND_ERR_CORRUPT && err != ND_ERR_UNSUPPORTED) {
            fail_msg("byte %u: %s", (unsigned)at, nd_err_name(err));
        }
        assert_non_null(strstr(msg.text, fixture->names[1]));
        files_flip(path, at);
    }
    assert_int_equal(settle(fixture, TOPICS, NULL), ND_OK);
    nd_free(path);
}

/* With many users of many grants; its bytes do not compress. */
static void raft_files__have_a_large_snapshot(void **state)
{
    struct fixture *fixture = *state;
    const struct nd_env *env = nd_env_posix();
    static const uint8_t head[] = {0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0xc0, 0, 0, 0, 0x90};
    static const uint64_t block = 1 << 28; /* stored, as its head says */
    struct nd_errmsg msg = {""};
    char *path = path_of(fixture, "snapshot-1-1-7");
    int file;
    files_write(path, nd_slice_make(head, sizeof head));
    assert_int_equal(env->open(env->impl, path, ND_OPEN_WRITE, &file, NULL), ND_OK);
    assert_int_equal(env->truncate(env->impl, file, sizeof head + block + 4, NULL), ND_OK);
    env->close(env->impl, file);
    nd_free(path);
    path = path_of(fixture, "snapshot-1-1-7.meta");
    files_write(path, nd_slice_make(NULL, 0));
    nd_free(path);

    if (settle(fixture, TOPICS, &msg) != ND_OK) {
        fail_msg("%s", msg.text);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(raft_files__of_a_sound_log_are_left_alone),
        CASE(raft_files__left_open_in_the_middle_are_named),
        CASE(raft_files__left_open_at_the_end_are_libraft_s),
        CASE(raft_files__without_a_segment_refuse),
        CASE(raft_files__open_and_damaged_with_one_behind_refuse),
        CASE(raft_files__torn_at_their_end_are_taken),
        CASE(raft_files__of_another_format_refuse),
        CASE(raft_files__that_end_too_early_refuse),
        CASE(raft_files__flipped_anywhere_in_a_closed_segment_refuse),
        CASE(raft_files__have_a_large_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
