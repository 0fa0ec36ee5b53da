/* W6: Raft on a disk that is full. The room for segments is counted here: libraft takes it through
 * posix_fallocate(), which this program defines in the place of libc's; the ballast gives it back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "cluster/ballast.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cluster/files.h"
#include "tests/unit/cluster/meta.h"

enum {
    SEGMENT_BYTES = 16384, /* some 150 changes */
    BALLAST_SEGMENTS = 20, /* too many to fit again into what its drop gives */
    BALLAST_BYTES = BALLAST_SEGMENTS * SEGMENT_BYTES,
    PLENTY = 1000,
};

static struct {
    struct nd_env env;
    struct nd_inbox seen; /* woken when a directory is synced */
    atomic_int left;      /* segments that still fit */
    atomic_bool refuses_snapshots;
} disk;

int posix_fallocate(int file, off_t at, off_t size);

int posix_fallocate(int file, off_t at, off_t size)
{
    if (size == SEGMENT_BYTES) {
        int left = atomic_load(&disk.left);
        do {
            if (left <= 0) {
                return ENOSPC;
            }
        } while (!atomic_compare_exchange_weak(&disk.left, &left, left - 1));
    }
    return fallocate(file, 0, at, size) == 0 ? 0 : errno;
}

int rename(const char *from, const char *to);

/* The last step of libraft's with the files of a snapshot. */
int rename(const char *from, const char *to)
{
    if (atomic_load(&disk.refuses_snapshots) && strstr(to, "/snapshot-") != NULL) {
        errno = ENOSPC;
        return -1;
    }
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static bool is_ballast(const char *path)
{
    const char *name = strrchr(path, '/');
    return name != NULL && strcmp(name + 1, ND_BALLAST_NAME) == 0;
}

static enum nd_err disk_open(void *impl, const char *path, int flags, int *file_out,
                             struct nd_errmsg *msg)
{
    if (is_ballast(path) && (flags & ND_OPEN_CREATE) != 0) {
        atomic_fetch_sub(&disk.left, BALLAST_SEGMENTS);
    }
    return nd_env_posix()->open(impl, path, flags, file_out, msg);
}

static enum nd_err disk_unlink(void *impl, const char *path, struct nd_errmsg *msg)
{
    enum nd_err err = nd_env_posix()->unlink(impl, path, msg);
    if (err == ND_OK && is_ballast(path)) {
        atomic_fetch_add(&disk.left, BALLAST_SEGMENTS);
    }
    return err;
}

static enum nd_err disk_sync_dir(void *impl, const char *path, struct nd_errmsg *msg)
{
    enum nd_err err = nd_env_posix()->sync_dir(impl, path, msg);
    nd_inbox_wake(&disk.seen);
    return err;
}

/* What is beside the segments (the term, blocks of the directory) is not counted. */
static enum nd_err disk_space(void *impl, const char *path, struct nd_disk_space *out,
                              struct nd_errmsg *msg)
{
    enum nd_err err = nd_env_posix()->space(impl, path, out, msg);
    int left = atomic_load(&disk.left);
    out->bytes_free = left <= 0 ? 0 : (uint64_t)left * SEGMENT_BYTES + (256 << 10);
    return err;
}

struct fixture {
    char *dir, *raft_dir;
    struct meta meta;
    struct meta_gate gate;
    uint32_t made; /* names are numbered through */
};

static int setup(void **state)
{
    struct fixture *fixture = nd_xcalloc(1, sizeof *fixture);

    disk.env = *nd_env_posix();
    disk.env.open = disk_open;
    disk.env.unlink = disk_unlink;
    disk.env.sync_dir = disk_sync_dir;
    disk.env.space = disk_space;
    nd_inbox_init(&disk.seen);
    atomic_store(&disk.left, PLENTY);
    atomic_store(&disk.refuses_snapshots, false);
    fixture->dir = temp_dir_new();
    meta_init(&fixture->meta, fixture->dir);
    fixture->meta.options.env = &disk.env;
    fixture->meta.options.segment_bytes = SEGMENT_BYTES;
    fixture->meta.options.ballast_bytes = BALLAST_BYTES;
    fixture->meta.options.room_retry_ms = 20;
    fixture->raft_dir = nd_xasprintf("%s/raft", fixture->meta.dir);
    meta_gate_init(&fixture->gate);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    meta_gate_release(&fixture->gate);
    meta_release(&fixture->meta);
    nd_inbox_release(&disk.seen);
    temp_dir_remove(fixture->dir);
    nd_free(fixture->raft_dir);
    nd_free(fixture);
    return 0;
}

static bool has_ballast(const struct fixture *fixture)
{
    struct nd_ballast ballast;
    nd_ballast_init(&ballast, &disk.env, fixture->raft_dir, BALLAST_BYTES);
    bool whole = nd_ballast_is_whole(&ballast);
    nd_ballast_release(&ballast);
    return whole;
}

/* The worker syncs the directory as its last step; the raft thread hears of it behind that. */
static void wait_ballast(const struct fixture *fixture)
{
    while (!has_ballast(fixture)) {
        nd_inbox_wait(&disk.seen, UINT64_MAX);
        nd_inbox_run(&disk.seen, NULL);
    }
}

/* Topics and users in turn. */
static void create_many(struct fixture *fixture, uint32_t count, uint32_t window)
{
    char name[32];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = fixture->made++;
        snprintf(name, sizeof name, "%s-%u", number % 2 == 0 ? "t" : "u", number);
        if (number % 2 == 0) {
            meta_gate_create(&fixture->meta, &fixture->gate, name, window);
        } else {
            meta_gate_create_user(&fixture->meta, &fixture->gate, name, window);
        }
    }
    meta_gate_wait(&fixture->gate, 0);
}

static struct meta_answer create_one(struct fixture *fixture)
{
    char name[32];
    snprintf(name, sizeof name, "t-%u", fixture->made++);
    return meta_create(&fixture->meta, name, 3);
}

/* Changes until some are refused. */
static void create_until_full(struct fixture *fixture)
{
    uint64_t refused = fixture->gate.refused;
    while (fixture->gate.refused == refused) {
        create_many(fixture, 64, 64);
    }
    struct meta_answer answer = create_one(fixture);
    assert_int_equal(answer.err, ND_ERR_NO_SPACE);
    assert_string_equal(answer.text, "disk full");
}

/* Topics and users together. */
static void expect_made(struct fixture *fixture, uint64_t count)
{
    uint64_t topics = nd_metastore_topic_count(fixture->meta.store);
    assert_int_equal(topics + meta_users_count(&fixture->meta), count);
    char *story = meta_story_take(&fixture->meta);
    uint64_t lines = 0;
    for (const char *at = story; *at != '\0'; at++) {
        lines += *at == '\n' ? 1 : 0;
    }
    assert_int_equal(lines, topics); /* each was told once, also over the reopening */
    assert_null(strchr(story, '~'));
    nd_free(story);
}

static void metastore_w6__the_ballast_carries_changes_over_a_full_disk(void **state)
{
    struct fixture *fixture = *state;
    meta_open(&fixture->meta);
    wait_ballast(fixture);
    atomic_store(&disk.left, 0);

    create_many(fixture, 1000, 64);

    assert_int_equal(fixture->gate.ok, 1000); /* those under way were proposed again */
    assert_int_equal(fixture->gate.refused, 0);
    assert_false(has_ballast(fixture));
    assert_true(nd_metastore_is_leader(fixture->meta.store));
    expect_made(fixture, 1000);
    meta_close(&fixture->meta);
    meta_open(&fixture->meta);
    expect_made(fixture, 1000);
    meta_close(&fixture->meta);
}

static void metastore_w6__without_room_refuses_changes_until_there_is_some(void **state)
{
    struct fixture *fixture = *state;
    struct nd_topic *topic;
    bool gone;
    fixture->meta.options.ballast_bytes = 0;
    meta_open(&fixture->meta);
    atomic_store(&disk.left, 2);
    create_until_full(fixture);
    uint64_t made = fixture->gate.ok;
    assert_true(made > 100);

    for (int i = 0; i < 50; i++) {
        assert_int_equal(create_one(fixture).err, ND_ERR_NO_SPACE);
    }
    assert_int_equal(nd_metastore_topic(fixture->meta.store, nd_slice_str("t-0"), &topic), ND_OK);
    nd_topic_unref(topic);
    assert_int_equal(meta_confirm_gone(&fixture->meta, "t-0", 1, &gone), ND_ERR_NO_SPACE);
    assert_false(nd_metastore_is_leader(fixture->meta.store));

    atomic_store(&disk.left, PLENTY);
    while (create_one(fixture).err != ND_OK) {
    }
    create_many(fixture, 300, 8);
    assert_int_equal(fixture->gate.ok, made + 300);
    /* What was refused is nowhere. */
    expect_made(fixture, made + 1 + 300);
    meta_close(&fixture->meta);
    meta_open(&fixture->meta);
    expect_made(fixture, made + 1 + 300);
    meta_close(&fixture->meta);
}

/* --- more changes at once than segments hold --- */

enum { WIDE = 60, WIDE_PATTERNS = 5 }; /* 14 such changes fill a segment */

struct burst {
    struct fixture *fixture;
    uint32_t left; /* guarded by the gate's lock; answers to come */
};

static void burst_answered(void *arg, enum nd_err err, const char *text, const struct nd_user *user)
{
    struct burst *burst = arg;
    struct meta_gate *gate = &burst->fixture->gate;
    (void)text;
    (void)user;

    nd_mutex_lock(&gate->lock);
    burst->left--;
    gate->ok += err == ND_OK ? 1 : 0;
    gate->refused += err == ND_ERR_NO_SPACE ? 1 : 0;
    nd_cond_signal(&gate->changed);
    nd_mutex_unlock(&gate->lock);
}

/* On the raft thread, so that all of them are proposed in one go behind it. */
static void burst_start(void *arg, enum nd_err err, const char *text, const struct nd_topic *topic)
{
    struct burst *burst = arg;
    char pattern[201];
    char *patterns[WIDE_PATTERNS];
    const struct nd_grant grant = {ND_ACTION_PRODUCE, WIDE_PATTERNS, patterns};
    (void)text;
    (void)topic;

    ND_ASSERT(err == ND_OK);
    memset(pattern, 'a', sizeof pattern - 1);
    pattern[sizeof pattern - 1] = '\0';
    for (uint32_t i = 0; i < WIDE_PATTERNS; i++) {
        patterns[i] = pattern;
    }
    for (uint32_t i = 0; i < WIDE; i++) {
        char name[32];
        snprintf(name, sizeof name, "wide-%u", i);
        struct nd_user *user = nd_user_new(name, &grant, 1);
        snprintf(user->hash, sizeof user->hash, "$2b$10$hash");
        nd_metastore_create_user(burst->fixture->meta.store, user, burst_answered, burst);
        nd_user_unref(user);
    }
}

/* libraft's close forgets a segment that it has not begun to write behind one that is full: it
 * never calls back, and nobody would be answered any more. */
static void metastore_w6__many_segments_of_changes_at_once_all_get_an_answer(void **state)
{
    struct fixture *fixture = *state;
    struct nd_topic_create create = meta_topic("first", 3);
    struct burst burst = {.fixture = fixture, .left = WIDE};
    fixture->meta.options.ballast_bytes = 0;
    atomic_store(&disk.left, 3);
    meta_open(&fixture->meta);

    nd_metastore_create_topic(fixture->meta.store, &create, burst_start, &burst);
    nd_mutex_lock(&fixture->gate.lock);
    while (burst.left > 0) {
        nd_cond_wait(&fixture->gate.changed, &fixture->gate.lock);
    }
    nd_mutex_unlock(&fixture->gate.lock);

    assert_int_equal(fixture->gate.ok + fixture->gate.refused, WIDE);
    assert_true(fixture->gate.refused > 0);
    assert_int_equal(meta_users_count(&fixture->meta), fixture->gate.ok);
    atomic_store(&disk.left, PLENTY);
    while (create_one(fixture).err != ND_OK) {
    }
    meta_close(&fixture->meta);
    meta_open(&fixture->meta);
    assert_int_equal(meta_users_count(&fixture->meta), fixture->gate.ok);
    meta_close(&fixture->meta);
}

static void metastore_w6__makes_the_ballast_again_when_there_is_room(void **state)
{
    struct fixture *fixture = *state;
    meta_open(&fixture->meta);

    for (int round = 0; round < 2; round++) {
        wait_ballast(fixture);
        atomic_store(&disk.left, 0);
        create_until_full(fixture);
        assert_false(has_ballast(fixture));
        atomic_store(&disk.left, PLENTY);
    }
    wait_ballast(fixture);
    while (create_one(fixture).err != ND_OK) {
    }

    meta_close(&fixture->meta);
    assert_true(has_ballast(fixture)); /* over the restart, too */
}

static void metastore_w6__a_full_disk_does_not_keep_it_from_closing(void **state)
{
    struct fixture *fixture = *state;
    fixture->meta.options.ballast_bytes = 0;

    for (int round = 0; round < 8; round++) {
        atomic_store(&disk.left, PLENTY);
        meta_open(&fixture->meta);
        nd_free(meta_story_take(&fixture->meta));
        fixture->gate.ok = fixture->gate.refused = 0;
        uint64_t before = nd_metastore_topic_count(fixture->meta.store);
        atomic_store(&disk.left, round % 2);
        for (int i = 0; i < 100 * (round + 1); i++) {
            char name[32];
            snprintf(name, sizeof name, "r-%d-%d", round, i);
            meta_gate_create(&fixture->meta, &fixture->gate, name, 400);
        }

        meta_close(&fixture->meta);

        assert_int_equal(fixture->gate.in_flight, 0);
        atomic_store(&disk.left, PLENTY);
        meta_open(&fixture->meta);
        uint64_t after = nd_metastore_topic_count(fixture->meta.store);
        assert_true(after >= before + fixture->gate.ok);
        meta_close(&fixture->meta);
    }
}

/* Nothing kept behind a snapshot is how libraft marks one that a peer sent: its failure would end
 * this process. */
static void metastore_w6__a_snapshot_that_fails_ends_nothing_and_is_counted(void **state)
{
    struct fixture *fixture = *state;
    struct nd_metrics *metrics = nd_metrics_new();
    fixture->meta.options.snapshot_threshold = 16;
    fixture->meta.options.trailing = 0;
    fixture->meta.options.ballast_bytes = 0;
    fixture->meta.options.metrics = metrics;
    atomic_store(&disk.refuses_snapshots, true);
    meta_open(&fixture->meta);

    const struct nd_series *failures =
        nd_metrics_counter(metrics, "metastore_snapshot_failures_total", "", "");
    while (nd_series_value(failures) < 1) {
        assert_int_equal(create_one(fixture).err, ND_OK);
    }

    atomic_store(&disk.left, 0); /* Raft is closed and opened again, which takes nothing back */
    create_until_full(fixture);
    atomic_store(&disk.refuses_snapshots, false);
    atomic_store(&disk.left, PLENTY);
    while (create_one(fixture).err != ND_OK) {
    }
    assert_true(nd_series_value(failures) >= 1);
    meta_close(&fixture->meta);
    nd_metrics_free(metrics);
}

static void metastore_open__without_room_says_what_it_needs(void **state)
{
    struct fixture *fixture = *state;
    struct nd_errmsg msg = {""};
    meta_open(&fixture->meta);
    wait_ballast(fixture);
    create_many(fixture, 10, 8);
    meta_close(&fixture->meta);
    assert_true(has_ballast(fixture));
    nd_free(meta_story_take(&fixture->meta));

    atomic_store(&disk.left, 0);
    meta_open(&fixture->meta); /* the ballast makes room to start */
    assert_false(has_ballast(fixture));
    expect_made(fixture, 10);
    meta_close(&fixture->meta);
    atomic_store(&disk.left, 0);
    uint32_t files = files_count(fixture->raft_dir, "");

    assert_int_equal(nd_metastore_open(&fixture->meta.store, &fixture->meta.options, &msg),
                     ND_ERR_NO_SPACE);

    assert_non_null(strstr(msg.text, fixture->raft_dir));
    assert_non_null(strstr(msg.text, "needs 278528 free bytes to start and finds 0"));
    assert_int_equal(files_count(fixture->raft_dir, ""), files);
    atomic_store(&disk.left, PLENTY);
    nd_free(meta_story_take(&fixture->meta));
    meta_open(&fixture->meta);
    expect_made(fixture, 10);
    meta_close(&fixture->meta);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(metastore_w6__the_ballast_carries_changes_over_a_full_disk),
        CASE(metastore_w6__without_room_refuses_changes_until_there_is_some),
        CASE(metastore_w6__many_segments_of_changes_at_once_all_get_an_answer),
        CASE(metastore_w6__makes_the_ballast_again_when_there_is_room),
        CASE(metastore_w6__a_full_disk_does_not_keep_it_from_closing),
        CASE(metastore_w6__a_snapshot_that_fails_ends_nothing_and_is_counted),
        CASE(metastore_open__without_room_says_what_it_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
