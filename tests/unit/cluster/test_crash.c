/* What survives when the process does not: kill -9 under load, and the fail-stop rules. The program
 * runs itself again as the child that is to die. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "cluster/command.h"
#include "cluster/identity.h"
#include "cluster/raft_node.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cluster/meta.h"

enum { ROUNDS = 12, NAME_SIZE = 24, EXIT_CODE_FATAL = 70 };

/* --- the child --- */

struct create {
    struct nd_topic_create request;
    struct meta_gate *gate;
};

/* Acknowledged: the name goes into the pipe, which outlives this process. */
static void decided(struct create *create, enum nd_err err, const char *name)
{
    char line[NAME_SIZE] = {0};

    if (err == ND_OK) {
        memcpy(line, name, strnlen(name, sizeof line - 1)); /* ours are shorter */
        if (write(STDOUT_FILENO, line, sizeof line) != sizeof line) {
            _exit(3);
        }
    }
    nd_mutex_lock(&create->gate->lock);
    create->gate->in_flight--;
    nd_cond_signal(&create->gate->changed);
    nd_mutex_unlock(&create->gate->lock);
    nd_free(create);
}

static void acknowledged(void *arg, enum nd_err err, const char *text, const struct nd_topic *topic)
{
    (void)text;
    decided(arg, err, err == ND_OK ? topic->name : "");
}

static void user_acknowledged(void *arg, enum nd_err err, const char *text,
                              const struct nd_user *user)
{
    (void)text;
    decided(arg, err, err == ND_OK ? user->name : "");
}

static void create_user(struct nd_metastore *store, struct create *create, const char *name)
{
    struct nd_user *user = nd_user_new(name, NULL, 0);

    snprintf(user->hash, sizeof user->hash, "$2b$10$%s", name);
    nd_metastore_create_user(store, user, user_acknowledged, create);
    nd_user_unref(user);
}

/* Creates topics "t-..." and, every third, users "u-..." until it is killed. */
static ND_NORETURN void child_create(const char *dir, const char *round)
{
    struct meta meta;
    struct meta_gate gate;

    meta_init(&meta, dir);
    meta.options.snapshot_threshold = 256;
    meta.options.trailing = 64;
    meta_gate_init(&gate);
    meta_open(&meta);
    for (uint32_t i = 0;; i++) {
        char name[NAME_SIZE];
        struct create *create = nd_xcalloc(1, sizeof *create);
        snprintf(name, sizeof name, "%s-%s-%u", i % 3 == 2 ? "u" : "t", round, i);
        create->request = meta_topic(name, 3);
        create->gate = &gate;
        meta_gate_wait(&gate, 15);
        nd_mutex_lock(&gate.lock);
        gate.in_flight++;
        nd_mutex_unlock(&gate.lock);
        if (name[0] == 'u') {
            create_user(meta.store, create, name);
        } else {
            nd_metastore_create_topic(meta.store, &create->request, acknowledged, create);
        }
    }
}

static int child_open(const char *dir)
{
    struct meta meta;

    meta_init(&meta, dir);
    meta_open(&meta);
    return 0;
}

static pid_t child_start(const char *dir, const char *mode, const char *round, int *out)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test_cluster_crash", mode, dir, round, (char *)NULL);
        _exit(2);
    }
    close(ends[1]);
    *out = ends[0];
    return pid;
}

/* --- kill -9 --- */

/* Names as the child acknowledged them. */
struct ledger {
    char (*names)[NAME_SIZE];
    size_t count;
};

/* Read `count` names, or all that is left (0); a partial last one was not acknowledged. */
static void ledger_read(struct ledger *ledger, int in, size_t count)
{
    size_t goal = count == 0 ? SIZE_MAX : ledger->count + count;
    FILE *file = fdopen(dup(in), "r");

    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    while (ledger->count < goal) {
        ledger->names = nd_xrealloc(ledger->names, (ledger->count + 1) * NAME_SIZE);
        if (fread(ledger->names[ledger->count], NAME_SIZE, 1, file) != 1) {
            break;
        }
        ledger->count++;
    }
    fclose(file);
}

static enum nd_err look_up(struct nd_metastore *store, const char *name)
{
    struct nd_topic *topic = NULL;
    struct nd_user *user = NULL;
    enum nd_err err = name[0] == 'u' ? nd_metastore_user(store, nd_slice_str(name), &user)
                                     : nd_metastore_topic(store, nd_slice_str(name), &topic);
    if (err == ND_OK && user != NULL) {
        assert_string_equal(user->hash + 7, name);
    }
    nd_user_unref(user);
    nd_topic_unref(topic);
    return err;
}

static void metastore__loses_nothing_acknowledged_to_kill_9(void **state)
{
    char *dir = temp_dir_new();
    struct ledger ledger = {0};
    struct meta meta;
    uint64_t seed = 9;
    (void)state;
    meta_init(&meta, dir);

    for (uint32_t round = 0; round < ROUNDS; round++) {
        char text[16];
        int in;
        int status;
        snprintf(text, sizeof text, "%u", round);
        pid_t pid = child_start(dir, "create", text, &in);
        /* From the first answers to several snapshots later. */
        ledger_read(&ledger, in, 1 + nd_rand_below(&seed, 700));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        ledger_read(&ledger, in, 0);
        close(in);

        meta_open(&meta);
        for (size_t i = 0; i < ledger.count; i++) {
            if (look_up(meta.store, ledger.names[i]) != ND_OK) {
                fail_msg("round %u: %s was acknowledged and is gone", round, ledger.names[i]);
            }
        }
        /* At most what was in flight is there beyond it. */
        uint64_t users = meta_users_count(&meta);
        uint64_t known = nd_metastore_topic_count(meta.store) + users;
        assert_true(users > 0 || ledger.count < 3);
        assert_true(known >= ledger.count && known <= ledger.count + 16 * (round + 1));
        meta_close(&meta);
    }
    assert_true(ledger.count > ROUNDS * 10);
    nd_free(ledger.names);
    meta_release(&meta);
    temp_dir_remove(dir);
}

/* --- fail-stop --- */

static enum nd_err ignore_apply(void *arg, struct nd_slice entry, uint64_t index,
                                struct nd_errmsg *msg)
{
    (void)arg;
    (void)entry;
    (void)index;
    (void)msg;
    return ND_OK;
}

static void ignore_snapshot(void *arg, struct nd_buf *out)
{
    (void)arg;
    nd_buf_put_u64(out, 0);
}

static enum nd_err ignore_restore(void *arg, struct nd_slice snapshot, struct nd_errmsg *msg)
{
    (void)arg;
    (void)snapshot;
    (void)msg;
    return ND_OK;
}

struct writer {
    struct nd_raft_node *node;
    struct nd_slice entry;
    struct nd_mutex lock;
    struct nd_cond changed;
    bool done;
};

static void written(void *arg, enum nd_err err)
{
    struct writer *writer = arg;
    ND_ASSERT(err == ND_OK);
    nd_mutex_lock(&writer->lock);
    writer->done = true;
    nd_cond_signal(&writer->changed);
    nd_mutex_unlock(&writer->lock);
}

static void elected(void *arg)
{
    struct writer *writer = arg;
    enum nd_err err = nd_raft_node_propose(writer->node, writer->entry, written, writer);
    ND_ASSERT(err == ND_OK);
}

static void ignore(void *arg)
{
    (void)arg;
}

static void no_fatal(void *arg, const char *text)
{
    (void)arg;
    (void)text;
    ND_UNREACHABLE();
}

/* Commit raw bytes to the log of a metastore that is not open. */
static void log_write(const char *dir, struct nd_slice entry)
{
    struct writer writer = {.entry = entry};
    struct nd_errmsg msg;
    struct nd_identity identity;
    char *raft_dir = nd_xasprintf("%s/metastore/raft", dir);
    char *path = nd_xasprintf("%s/metastore/identity", dir);
    assert_int_equal(nd_identity_load(nd_env_posix(), path, &identity, &msg), ND_OK);
    const struct nd_raft_node_options options = {
        .dir = raft_dir,
        .member = identity.member,
        .address = "a",
        .snapshot_threshold = 8192,
        .snapshot_trailing = 1024,
        .segment_bytes = 1 << 20,
        .env = nd_env_posix(),
        .machine = {.arg = &writer,
                    .apply = ignore_apply,
                    .snapshot = ignore_snapshot,
                    .restore = ignore_restore,
                    .elected = elected,
                    .deposed = ignore,
                    .tick = ignore,
                    .fatal = no_fatal},
    };

    nd_mutex_init(&writer.lock);
    nd_cond_init(&writer.changed);
    assert_int_equal(nd_raft_node_open(&writer.node, &options, &msg), ND_OK);
    assert_int_equal(nd_raft_node_start(writer.node, &msg), ND_OK);
    nd_mutex_lock(&writer.lock);
    while (!writer.done) {
        nd_cond_wait(&writer.changed, &writer.lock);
    }
    nd_mutex_unlock(&writer.lock);
    nd_raft_node_stop(writer.node);
    nd_raft_node_free(writer.node);
    nd_cond_release(&writer.changed);
    nd_mutex_release(&writer.lock);
    nd_free(raft_dir);
    nd_free(path);
}

static void expect_fail_stop(const uint8_t *entry, size_t size)
{
    char *dir = temp_dir_new();
    struct meta meta;
    int in;
    int status;
    meta_init(&meta, dir);
    meta_open(&meta);
    assert_int_equal(meta_create(&meta, "orders", 3).err, ND_OK);
    meta_close(&meta);
    log_write(dir, nd_slice_make(entry, size));

    pid_t pid = child_start(dir, "open", "0", &in);

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_CODE_FATAL);
    close(in);
    meta_release(&meta);
    temp_dir_remove(dir);
}

static void metastore__stops_at_a_command_it_does_not_know(void **state)
{
    const uint8_t entry[16] = {1, 0, 0, 0, 3, 0, 0, 0, 0xca, 0x3e, 0x00}; /* number 1001 */
    (void)state;
    expect_fail_stop(entry, sizeof entry);
}

static void metastore__stops_at_an_entry_it_cannot_read(void **state)
{
    const uint8_t entry[16] = {1, 0, 0, 0, 200, 0, 0, 0};
    (void)state;
    expect_fail_stop(entry, sizeof entry);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metastore__loses_nothing_acknowledged_to_kill_9),
        cmocka_unit_test(metastore__stops_at_a_command_it_does_not_know),
        cmocka_unit_test(metastore__stops_at_an_entry_it_cannot_read),
    };
    if (argc == 4 && strcmp(argv[1], "create") == 0) {
        child_create(argv[2], argv[3]);
    }
    if (argc == 4 && strcmp(argv[1], "open") == 0) {
        return child_open(argv[2]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
