/* Snapshots, the view and the identity file: what is written is read back, what is damaged is
 * refused. */
#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/crc32c.h"

#include "cluster/identity.h"
#include "cluster/snapshot.h"
#include "cluster/view.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"
#include "tests/unit/cluster/commands.h"

enum { HEADER_SIZE = 24 };

/* A state with a few of everything. */
static void state_fill(struct nd_state *state, uint32_t entries)
{
    struct command_source source = {.rand = entries};

    nd_state_init(state);
    for (uint64_t index = 1; index <= entries; index++) {
        struct nd_command command = command_next(&source);
        struct nd_outcome outcome;
        nd_state_apply(state, &command, index, &outcome);
        nd_outcome_release(&outcome);
        nd_command_release(&command);
    }
}

static struct nd_buf snapshot_of(const struct nd_state *state)
{
    struct nd_buf buf;
    nd_buf_init(&buf, 16 << 20);
    nd_snapshot_put(&buf, state);
    assert_false(nd_buf_failed(&buf));
    return buf;
}

/* From exactly `size` bytes, so that ASan sees a read beyond them. */
static enum nd_err get_exact(const uint8_t *bytes, size_t size, struct nd_state *out)
{
    uint8_t *copy = nd_xmalloc(size == 0 ? 1 : size);
    struct nd_errmsg msg = {""};
    memcpy(copy, bytes, size);
    nd_state_init(out);
    enum nd_err err = nd_snapshot_get(nd_slice_make(copy, size), out, &msg);
    assert_true((err == ND_OK) == (msg.text[0] == '\0'));
    nd_free(copy);
    return err;
}

static enum nd_err get_and_drop(const uint8_t *bytes, size_t size)
{
    struct nd_state state;
    enum nd_err err = get_exact(bytes, size, &state);
    if (err != ND_OK) { /* left empty */
        assert_int_equal(nd_topic_table_count(state.table), 0);
        assert_int_equal(nd_user_table_count(state.users), 0);
        assert_int_equal(state.members_count + state.dedupe.rows_count, 0);
        assert_int_equal(state.applied_index, 0);
    }
    nd_state_release(&state);
    return err;
}

static void snapshot_get__returns_what_was_put(void **state)
{
    struct nd_state before;
    struct nd_state after;
    (void)state;

    for (uint32_t entries = 0; entries < 600; entries = entries * 2 + 1) {
        state_fill(&before, entries);
        struct nd_buf bytes = snapshot_of(&before);
        assert_int_equal(get_exact(bytes.data, bytes.size, &after), ND_OK);
        struct nd_buf again = snapshot_of(&after);

        assert_int_equal(bytes.size % 8, 0);
        assert_int_equal(again.size, bytes.size);
        assert_memory_equal(again.data, bytes.data, bytes.size);
        assert_int_equal(after.applied_index, entries);
        assert_int_equal(after.members_count, before.members_count);
        assert_int_equal(nd_topic_table_count(after.table), nd_topic_table_count(before.table));
        assert_int_equal(nd_user_table_count(after.users), nd_user_table_count(before.users));
        nd_buf_release(&bytes);
        nd_buf_release(&again);
        nd_state_release(&before);
        nd_state_release(&after);
    }
}

static void snapshot_get__refuses_every_truncation_and_every_changed_bit(void **state)
{
    struct nd_state full;
    (void)state;
    state_fill(&full, 120);
    struct nd_buf bytes = snapshot_of(&full);

    for (size_t size = 0; size < bytes.size; size++) {
        assert_int_equal(get_and_drop(bytes.data, size), ND_ERR_CORRUPT);
    }
    for (size_t at = 0; at < bytes.size; at++) {
        bytes.data[at] ^= (uint8_t)(1u << at % 8);
        enum nd_err err = get_and_drop(bytes.data, bytes.size);
        assert_int_equal(err, at >= 4 && at < 8 ? ND_ERR_UNSUPPORTED : ND_ERR_CORRUPT);
        bytes.data[at] ^= (uint8_t)(1u << at % 8);
    }
    assert_int_equal(get_and_drop(bytes.data, bytes.size), ND_OK);
    nd_buf_release(&bytes);
    nd_state_release(&full);
}

static void checksum_mend(uint8_t *bytes)
{
    uint32_t crc = nd_crc32c(0, bytes, 16);
    size_t size = (size_t)nd_get_u64(bytes + 8);
    nd_put_u32(bytes + 16, nd_crc32c(crc, bytes + HEADER_SIZE, size));
}

/* Someone who can compute the checksum still gets nothing but an error. */
static void snapshot_get__survives_hostile_bodies_with_good_checksums(void **state)
{
    uint64_t rand = 3;
    struct nd_state full;
    uint32_t refused = 0;
    (void)state;
    state_fill(&full, 60);
    struct nd_buf bytes = snapshot_of(&full);
    size_t size = (size_t)nd_get_u64(bytes.data + 8);

    for (size_t at = HEADER_SIZE; at < HEADER_SIZE + size; at++) {
        uint8_t old = bytes.data[at];
        for (int i = 0; i < 4; i++) {
            bytes.data[at] = (uint8_t)nd_rand_below(&rand, 256);
            checksum_mend(bytes.data);
            enum nd_err err = get_and_drop(bytes.data, bytes.size);
            assert_true(err == ND_OK || err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED);
            refused += err == ND_OK ? 0 : 1;
        }
        bytes.data[at] = old;
    }
    assert_true(refused > size);
    nd_buf_release(&bytes);
    nd_state_release(&full);
}

/* As a member wrote it that knew nothing of users. */
static void snapshot_get__reads_one_of_before_there_were_users(void **state)
{
    static const uint8_t bytes[] = {
        0x4e, 0x44, 0x4d, 0x53, 0x01, 0x00, 0x00, 0x00, 0x8f, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x81, 0xd1, 0xe2, 0x62, 0x00, 0x00, 0x00, 0x00, 0x08, 0x06, 0x10, 0x06,
        0x18, 0x05, 0x22, 0x22, 0x09, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x12,
        0x06, 0x6e, 0x6f, 0x64, 0x65, 0x2d, 0x31, 0x1a, 0x0d, 0x31, 0x30, 0x2e, 0x30, 0x2e,
        0x30, 0x2e, 0x39, 0x3a, 0x37, 0x39, 0x34, 0x33, 0x20, 0x01, 0x2a, 0x3d, 0x0a, 0x06,
        0x6f, 0x72, 0x64, 0x65, 0x72, 0x73, 0x11, 0xed, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x18, 0x05, 0x20, 0x80, 0xdd, 0xdb, 0x01, 0x28, 0xb0, 0xea, 0x01, 0x30, 0x0a,
        0x38, 0x14, 0x40, 0x80, 0xe4, 0xad, 0x95, 0x0d, 0x52, 0x03, 0x61, 0x6e, 0x6e, 0x5a,
        0x10, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x32, 0x11, 0x09, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x10, 0x01, 0x18, 0x06, 0x22, 0x02, 0x08, 0x01, 0x32, 0x11, 0x09, 0x4d, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x05, 0x18, 0x05, 0x22, 0x02, 0x08, 0x05, 0x00};
    struct nd_state old;
    (void)state;

    assert_int_equal(get_exact(bytes, sizeof bytes, &old), ND_OK);

    assert_non_null(nd_topic_table_find(old.table, nd_slice_str("orders")));
    assert_int_equal(nd_user_table_count(old.users), 0);
    struct nd_buf again = snapshot_of(&old); /* and without users it is what it was */
    assert_int_equal(again.size, sizeof bytes);
    assert_memory_equal(again.data, bytes, sizeof bytes);
    nd_buf_release(&again);
    nd_state_release(&old);
}

static void user_put(struct nd_state *state, struct nd_user *user)
{
    struct nd_user_table *made = nd_user_table_with(state->users, user);
    nd_user_table_unref(state->users);
    state->users = made;
    nd_user_unref(user);
}

static void snapshot_get__returns_every_field_of_a_user(void **state)
{
    const char *const patterns[] = {"orders-*", "a", "b", NULL};
    struct nd_state before;
    struct nd_state after;
    (void)state;
    nd_state_init(&before);
    struct nd_user *user = user_of("ann", "$2b$10$hash", patterns, 4);
    user->created_at_ms = 1767225600000;
    user->updated_at_ms = -7;
    user_put(&before, user);
    user = user_of("admin", "$2b$10$root", NULL, 0);
    user->root = true;
    user_put(&before, user);
    struct nd_buf bytes = snapshot_of(&before);

    assert_int_equal(get_exact(bytes.data, bytes.size, &after), ND_OK);

    const struct nd_user *root = nd_user_table_find(after.users, nd_slice_str("admin"));
    const struct nd_user *ann = nd_user_table_find(after.users, nd_slice_str("ann"));
    assert_int_equal(nd_user_table_count(after.users), 2);
    assert_true(root->root);
    assert_int_equal(root->grants_count, 0);
    assert_string_equal(ann->hash, "$2b$10$hash");
    assert_false(ann->root);
    assert_int_equal(ann->created_at_ms, 1767225600000);
    assert_int_equal(ann->updated_at_ms, -7);
    assert_int_equal(ann->grants_count, 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ann->grants[i].action, i);
        assert_int_equal(ann->grants[i].patterns_count, 1);
        assert_string_equal(ann->grants[i].patterns[0], patterns[i]);
    }
    assert_int_equal(ann->grants[3].action, ND_ACTION_ADMIN);
    nd_buf_release(&bytes);
    nd_state_release(&before);
    nd_state_release(&after);
}

/* What no state can hold is refused, though frame and checksum are sound. */
static void snapshot_get__refuses_users_that_cannot_be(void **state)
{
    const char *const scoped[] = {"orders"};
    const char *const bad[] = {"a*b"};
    struct {
        struct nd_user *user;
        bool root;
    } rows[] = {
        {user_of("ann", "", NULL, 0), false},
        {user_of("a b", "$2b$", NULL, 0), false},
        {user_of("ann", "$2b$", bad, 1), false},
        {user_of("ann", "$2b$", NULL, 0), true},     /* another root */
        {user_of("admin", "$2b$", scoped, 1), true}, /* a root with grants */
    };
    (void)state;

    for (size_t i = 0; i < ND_ARRAY_SIZE(rows); i++) {
        struct nd_state full;
        nd_state_init(&full);
        rows[i].user->root = rows[i].root;
        user_put(&full, rows[i].user);
        struct nd_buf bytes = snapshot_of(&full);
        assert_int_equal(get_and_drop(bytes.data, bytes.size), ND_ERR_CORRUPT);
        nd_buf_release(&bytes);
        nd_state_release(&full);
    }
}

static void snapshot_get__refuses_users_out_of_order_or_beyond_the_limit(void **state)
{
    const struct nd_user *pair[] = {user_of("bob", "$2b$", NULL, 0),
                                    user_of("ann", "$2b$", NULL, 0)};
    const struct nd_user *const twice[] = {pair[0], pair[0]};
    struct nd_state full;
    (void)state;

    for (int which = 0; which < 2; which++) {
        nd_state_init(&full);
        nd_user_table_unref(full.users);
        full.users = nd_user_table_build(which == 0 ? pair : twice, 2);
        struct nd_buf bytes = snapshot_of(&full);
        assert_int_equal(get_and_drop(bytes.data, bytes.size), ND_ERR_CORRUPT);
        nd_buf_release(&bytes);
        nd_state_release(&full);
    }
    const struct nd_user **many = nd_xcalloc(ND_USERS_MAX + 1, sizeof many[0]);
    for (unsigned i = 0; i <= ND_USERS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "user-%05u", i);
        many[i] = user_of(name, "$2b$", NULL, 0);
    }
    for (unsigned over = 0; over < 2; over++) {
        nd_state_init(&full);
        nd_user_table_unref(full.users);
        full.users = nd_user_table_build(many, ND_USERS_MAX + over);
        struct nd_buf bytes = snapshot_of(&full);
        assert_int_equal(get_and_drop(bytes.data, bytes.size), over == 0 ? ND_OK : ND_ERR_CORRUPT);
        nd_buf_release(&bytes);
        nd_state_release(&full);
    }
    for (unsigned i = 0; i <= ND_USERS_MAX; i++) {
        nd_user_unref(many[i]);
    }
    nd_free(many);
    nd_user_unref(pair[0]);
    nd_user_unref(pair[1]);
}

/* A snapshot of this body, with sound frame and checksum. */
static enum nd_err get_body(const uint8_t *body, size_t size)
{
    uint8_t bytes[HEADER_SIZE + 64] = {'N', 'D', 'M', 'S', 1};
    size_t padded = (size + 7) / 8 * 8;

    assert_true(padded <= 64);
    nd_put_u64(bytes + 8, size);
    memcpy(bytes + HEADER_SIZE, body, size);
    checksum_mend(bytes);
    return get_and_drop(bytes, HEADER_SIZE + padded);
}

static void snapshot_get__tells_what_is_newer_from_what_is_damaged(void **state)
{
    /* users (7) { 1 name, 2 hash, 6 grants { 1 action, 2 patterns } } */
    const uint8_t sound[] = {0x3a, 15, 0x0a, 1, 'a', 0x12, 1, 'h', 0x32, 5, 0x08, 1, 0x12, 1, '*'};
    const uint8_t action[] = {0x3a, 13, 0x0a, 1, 'a', 0x12, 1, 'h', 0x32, 5, 0x08, 5, 0x12, 1, '*'};
    const uint8_t field[] = {0x3a, 8, 0x0a, 1, 'a', 0x12, 1, 'h', 0x38, 1};
    /* commands: 9, proposers (6) { 1 proposer, 2 open_from, 4 outcomes { 1 sequence, 2 outcome } }
     */
    uint8_t outcome[] = {0x10, 9, 0x32, 17, 0x09, 7, 0,    0, 0,    0, 0,
                         0,    0, 0x10, 1,  0x22, 4, 0x08, 1, 0x10, 0};
    uint8_t mended[sizeof sound];
    (void)state;
    memcpy(mended, sound, sizeof sound);
    mended[1] = 13;

    assert_int_equal(get_body(sound, sizeof sound), ND_ERR_CORRUPT); /* a size too large */
    assert_int_equal(get_body(mended, sizeof mended), ND_OK);
    assert_int_equal(get_body(action, sizeof action), ND_ERR_UNSUPPORTED);
    assert_int_equal(get_body(field, sizeof field), ND_ERR_UNSUPPORTED);
    for (uint8_t code = 0; code < 12; code++) {
        outcome[sizeof outcome - 1] = code;
        assert_int_equal(get_body(outcome, sizeof outcome),
                         code == ND_OUTCOME_TOO_OLD       ? ND_ERR_CORRUPT
                         : code <= ND_OUTCOME_ROOT_GRANTS ? ND_OK
                                                          : ND_ERR_UNSUPPORTED);
    }
}

static void identity_load__names_a_damaged_file(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 48; at++) {
        struct sim_env *sim = sim_env_new(at + 1);
        const struct nd_env *env = sim_env_get(sim);
        struct nd_identity made = nd_identity_draw(env);
        struct nd_identity read;
        struct nd_errmsg msg;
        made.bootstrapped = true;
        assert_int_not_equal(made.member, 0);
        assert_int_equal(nd_identity_load(env, "identity", &read, &msg), ND_ERR_NOT_FOUND);
        assert_int_equal(nd_identity_store(env, "identity", &made, &msg), ND_OK);
        assert_int_equal(nd_identity_load(env, "identity", &read, &msg), ND_OK);
        assert_int_equal(read.member, made.member);
        assert_memory_equal(read.cluster, made.cluster, sizeof read.cluster);
        assert_true(read.bootstrapped);

        sim_env_damage(sim, "identity", at, 0x10);

        assert_int_equal(nd_identity_load(env, "identity", &read, &msg),
                         at >= 4 && at < 8 ? ND_ERR_UNSUPPORTED : ND_ERR_CORRUPT);
        assert_non_null(strstr(msg.text, "identity"));
        sim_env_free(sim);
    }
}

static void view_load__names_a_damaged_file(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    struct nd_errmsg msg;
    struct nd_state full;
    struct nd_state read;
    (void)state;
    state_fill(&full, 200);
    nd_state_init(&read);
    struct nd_buf bytes = snapshot_of(&full);
    assert_int_equal(nd_view_load(env, "view", &read, &msg), ND_ERR_NOT_FOUND);
    assert_int_equal(nd_view_store(env, "view", nd_buf_slice(&bytes), &msg), ND_OK);
    assert_int_equal(nd_view_load(env, "view", &read, &msg), ND_OK);
    assert_int_equal(read.applied_index, 200);
    nd_state_release(&read);
    nd_state_init(&read);

    sim_env_damage(sim, "view", bytes.size / 2, 1);

    assert_int_equal(nd_view_load(env, "view", &read, &msg), ND_ERR_CORRUPT);
    assert_non_null(strstr(msg.text, "view"));
    assert_int_equal(nd_topic_table_count(read.table), 0);
    nd_state_release(&read);
    nd_state_release(&full);
    nd_buf_release(&bytes);
    sim_env_free(sim);
}

/* A power cut at every change of the disk leaves the old view or the new one, whole. */
static void view_store__replaces_whole_or_not_at_all(void **state)
{
    struct nd_state old;
    struct nd_state new;
    bool over = false;
    (void)state;
    state_fill(&old, 50);
    state_fill(&new, 150);
    struct nd_buf old_bytes = snapshot_of(&old);
    struct nd_buf new_bytes = snapshot_of(&new);

    for (uint64_t k = 1; !over; k++) {
        for (uint64_t seed = 1; seed <= 8; seed++) {
            struct sim_env *sim = sim_env_new(seed);
            const struct nd_env *env = sim_env_get(sim);
            struct nd_state read;
            assert_int_equal(nd_view_store(env, "view", nd_buf_slice(&old_bytes), NULL), ND_OK);
            sim_env_cut_at(sim, k);

            enum nd_err err = nd_view_store(env, "view", nd_buf_slice(&new_bytes), NULL);

            over = !sim_env_is_cut(sim);
            assert_int_equal(err, over ? ND_OK : ND_ERR_IO);
            if (over) {
                sim_env_power_cut(sim, seed);
            }
            sim_env_restart(sim);
            nd_state_init(&read);
            assert_int_equal(nd_view_load(env, "view", &read, NULL), ND_OK);
            assert_true(read.applied_index == 150 || (!over && read.applied_index == 50));
            nd_state_release(&read);
            sim_env_free(sim);
        }
    }
    nd_buf_release(&old_bytes);
    nd_buf_release(&new_bytes);
    nd_state_release(&old);
    nd_state_release(&new);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshot_get__returns_what_was_put),
        cmocka_unit_test(snapshot_get__refuses_every_truncation_and_every_changed_bit),
        cmocka_unit_test(snapshot_get__survives_hostile_bodies_with_good_checksums),
        cmocka_unit_test(snapshot_get__reads_one_of_before_there_were_users),
        cmocka_unit_test(snapshot_get__returns_every_field_of_a_user),
        cmocka_unit_test(snapshot_get__refuses_users_that_cannot_be),
        cmocka_unit_test(snapshot_get__refuses_users_out_of_order_or_beyond_the_limit),
        cmocka_unit_test(snapshot_get__tells_what_is_newer_from_what_is_damaged),
        cmocka_unit_test(identity_load__names_a_damaged_file),
        cmocka_unit_test(view_load__names_a_damaged_file),
        cmocka_unit_test(view_store__replaces_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
