/* cluster/inspect: Raft's files and ours, whole and damaged; no bytes bring it down. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

#include "cluster/command.h"
#include "cluster/identity.h"
#include "cluster/inspect.h"
#include "cluster/snapshot.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"
#include "tests/unit/cluster/commands.h"

enum { TEXT_SIZE = 1 << 16, TRIES = 400, BYTES_MAX = 300 };

static void keep_line(void *arg, const char *line, size_t size)
{
    char *text = arg;
    size_t used = strlen(text);

    assert_true(size > 0 && line[size - 1] == '\n');
    if (used + size < TEXT_SIZE) {
        memcpy(text + used, line, size);
        text[used + size] = '\0';
    }
}

static enum nd_err show(struct sim_env *sim, const char *path, char text[TEXT_SIZE],
                        uint64_t *damages)
{
    struct nd_report report;
    struct nd_errmsg msg = {{0}};

    text[0] = '\0';
    nd_report_init(&report, false, keep_line, text);
    enum nd_err err = nd_inspect_file(sim_env_get(sim), path, &report, damages, &msg);
    nd_report_release(&report);
    return err;
}

static uint32_t raft_crc(const uint8_t *data, size_t size)
{
    uint32_t crc = 0;

    for (size_t i = 0; i < size; i++) {
        crc ^= (uint32_t)data[i] << 24;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 31 != 0 ? (crc << 1) ^ 0x04c11db7 : crc << 1;
        }
    }
    return crc;
}

/* A batch of one command, as Raft's library writes it. */
static void batch_put(struct nd_buf *out, const struct nd_command *command)
{
    struct nd_buf entry;

    nd_buf_init(&entry, 4096);
    nd_command_put(&entry, command);
    size_t batch = out->size;
    nd_buf_put_u64(out, 0);
    nd_buf_put_u64(out, 1);
    nd_buf_put_u64(out, 3); /* term */
    nd_buf_put_u32(out, 1); /* a command */
    nd_buf_put_u32(out, (uint32_t)entry.size);
    nd_buf_put_slice(out, nd_buf_slice(&entry));
    assert_false(nd_buf_failed(out));
    nd_put_u32(out->data + batch, raft_crc(out->data + batch + 8, 24));
    nd_put_u32(out->data + batch + 4, raft_crc(entry.data, entry.size));
    nd_buf_release(&entry);
}

/* A closed segment of one command. */
static void segment_put(struct nd_buf *out)
{
    const struct nd_command command = {.proposer = 7,
                                       .sequence = 1,
                                       .open_from = 1,
                                       .kind = ND_COMMAND_TOPIC_DELETE,
                                       .topic_delete = "orders"};
    nd_buf_put_u64(out, 1);
    batch_put(out, &command);
}

static void file_put(struct sim_env *sim, const char *path, struct nd_slice bytes)
{
    assert_int_equal(nd_env_replace_file(sim_env_get(sim), path, bytes, NULL), ND_OK);
}

static void inspect__shows_commands_and_finds_every_flipped_byte(void **state)
{
    static const char path[] = "0000000000000005-0000000000000005";
    struct sim_env *sim = sim_env_new(1);
    char *text = nd_xmalloc(TEXT_SIZE);
    struct nd_buf segment;
    uint64_t damages;
    (void)state;

    nd_buf_init(&segment, 4096);
    segment_put(&segment);
    file_put(sim, path, nd_buf_slice(&segment));
    assert_int_equal(show(sim, path, text, &damages), ND_OK);
    assert_true(damages == 0);
    assert_non_null(strstr(text, "index=5 term=3 type=command"));
    assert_non_null(strstr(text, "command=topic-delete"));
    assert_non_null(strstr(text, "topic=orders"));
    for (size_t i = 0; i < segment.size; i++) {
        segment.data[i] ^= 0x10;
        file_put(sim, path, nd_buf_slice(&segment));
        segment.data[i] ^= 0x10;
        assert_int_equal(show(sim, path, text, &damages), ND_OK);
        assert_true(damages > 0);
    }
    nd_buf_release(&segment);
    nd_free(text);
    sim_env_free(sim);
}

static void expect_all(const char *text, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strstr(text, parts[i]) == NULL) {
            fail_msg("no %s in %s", parts[i], text);
        }
    }
}

/* I-109: of a password not even its hash. */
static void inspect__shows_users_and_never_a_hash(void **state)
{
    static const char path[] = "0000000000000001-0000000000000006";
    static const char *const of_commands[] = {
        "command=user-seed-root",    "user=admin hash=<hidden> at_ms=",
        "command=user-create",       "user=ann hash=<hidden> grants=produce:orders-* at_ms=",
        "command=user-set-grants",   "user=ann grants=produce:* at_ms=",
        "command=user-set-password", "command=user-delete"};
    static const char *const of_view[] = {
        "users=2", "user name=admin root=true hash=<hidden> grants=\"\" created_at_ms=",
        "user name=ann root=false hash=<hidden> grants=produce:* created_at_ms="};
    struct nd_command commands[] = {
        command_user_seed_root(1, "$2b$10$secret1"),
        command_user_create(2, "ann", "orders-*"),
        command_user_set_grants(3, "ann", "*"),
        command_user_set_password(4, "ann", "$2b$10$secret2"),
        command_user_create(5, "bob", NULL),
        command_user_delete(6, "bob"),
    };
    struct sim_env *sim = sim_env_new(1);
    char *text = nd_xmalloc(TEXT_SIZE);
    struct nd_buf segment, view;
    struct nd_state users;
    uint64_t damages;
    (void)state;
    nd_buf_init(&segment, 65536);
    nd_buf_init(&view, 65536);
    nd_state_init(&users);
    nd_buf_put_u64(&segment, 1);
    for (size_t i = 0; i < ND_ARRAY_SIZE(commands); i++) {
        struct nd_outcome outcome;
        batch_put(&segment, &commands[i]);
        nd_state_apply(&users, &commands[i], i + 1, &outcome);
        assert_int_equal(outcome.err, ND_OK);
        nd_outcome_release(&outcome);
        nd_command_release(&commands[i]);
    }
    nd_snapshot_put(&view, &users);
    file_put(sim, path, nd_buf_slice(&segment));
    file_put(sim, "view", nd_buf_slice(&view));

    assert_int_equal(show(sim, path, text, &damages), ND_OK);
    assert_int_equal(damages, 0);
    expect_all(text, of_commands, ND_ARRAY_SIZE(of_commands));
    assert_null(strstr(text, "$2b$"));
    assert_null(strstr(text, "secret"));
    assert_int_equal(show(sim, "view", text, &damages), ND_OK);
    assert_int_equal(damages, 0);
    expect_all(text, of_view, ND_ARRAY_SIZE(of_view));
    assert_null(strstr(text, "$2b$"));
    assert_null(strstr(text, "secret"));
    nd_state_release(&users);
    nd_buf_release(&view);
    nd_buf_release(&segment);
    nd_free(text);
    sim_env_free(sim);
}

static void inspect__survives_any_bytes(void **state)
{
    static const char *const names[] = {"0000000000000005-0000000000000007",
                                        "open-1",
                                        "metadata1",
                                        "metadata2",
                                        "snapshot-1-8-99",
                                        "snapshot-1-8-99.meta",
                                        "identity",
                                        "view",
                                        "other"};
    struct sim_env *sim = sim_env_new(1);
    char *text = nd_xmalloc(TEXT_SIZE);
    uint64_t random = 5, damages;
    uint8_t bytes[BYTES_MAX];
    (void)state;

    for (uint32_t i = 0; i < TRIES; i++) {
        const char *name = names[nd_rand_below(&random, ND_ARRAY_SIZE(names))];
        size_t size = (size_t)nd_rand_below(&random, BYTES_MAX);
        bool sparse = nd_rand_below(&random, 2) == 0;
        for (size_t k = 0; k < size; k++) {
            bytes[k] = sparse && nd_rand_below(&random, 6) > 0 ? 0 : (uint8_t)nd_rand(&random);
        }
        if (size >= 8 && i % 2 == 0) {
            nd_put_u64(bytes, 1);
        }
        file_put(sim, name, nd_slice_make(bytes, size));
        enum nd_err err = show(sim, name, text, &damages);
        assert_true(err == ND_OK || err == ND_ERR_UNSUPPORTED);
    }
    nd_free(text);
    sim_env_free(sim);
}

static void inspect__of_a_lost_term_is_damage(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    char *text = nd_xmalloc(TEXT_SIZE);
    struct nd_identity identity = nd_identity_draw(env);
    struct nd_inspect_result result;
    struct nd_report report;
    struct nd_state topics;
    struct nd_errmsg msg = {{0}};
    (void)state;

    text[0] = '\0';
    identity.bootstrapped = true;
    assert_int_equal(nd_env_mkdirs(env, "data/metastore", &msg), ND_OK);
    assert_int_equal(nd_identity_store(env, "data/metastore/identity", &identity, &msg), ND_OK);
    nd_state_init(&topics);
    nd_report_init(&report, false, keep_line, text);
    assert_int_equal(nd_inspect_metadata(env, "data", &report, &topics, &result, &msg), ND_OK);
    assert_true(result.damages == 1);
    assert_non_null(strstr(text, "no file with a term"));
    nd_report_release(&report);
    nd_state_release(&topics);
    nd_free(text);
    sim_env_free(sim);
}

static void term_put(struct sim_env *sim, uint64_t term)
{
    uint8_t bytes[32] = {0};

    nd_put_u64(bytes, 1);
    nd_put_u64(bytes + 8, 1);
    nd_put_u64(bytes + 16, term);
    file_put(sim, "raft/metadata1", nd_slice_make(bytes, sizeof bytes));
}

static void inspect__of_a_term_below_that_of_the_log_is_damage(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    struct nd_buf segment;
    struct nd_errmsg msg = {{0}};
    (void)state;

    nd_buf_init(&segment, 4096);
    segment_put(&segment); /* an entry of term 3 */
    assert_int_equal(nd_env_mkdirs(env, "raft", &msg), ND_OK);
    file_put(sim, "raft/0000000000000001-0000000000000001", nd_buf_slice(&segment));
    assert_int_equal(nd_inspect_term_check(env, "raft", &msg), ND_ERR_CORRUPT);
    term_put(sim, 3);
    assert_int_equal(nd_inspect_term_check(env, "raft", &msg), ND_OK);
    term_put(sim, 2);
    assert_int_equal(nd_inspect_term_check(env, "raft", &msg), ND_ERR_CORRUPT);
    nd_buf_release(&segment);
    sim_env_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect__shows_commands_and_finds_every_flipped_byte),
        cmocka_unit_test(inspect__shows_users_and_never_a_hash),
        cmocka_unit_test(inspect__survives_any_bytes),
        cmocka_unit_test(inspect__of_a_lost_term_is_damage),
        cmocka_unit_test(inspect__of_a_term_below_that_of_the_log_is_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
