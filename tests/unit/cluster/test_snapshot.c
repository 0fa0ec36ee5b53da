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
        cmocka_unit_test(identity_load__names_a_damaged_file),
        cmocka_unit_test(view_load__names_a_damaged_file),
        cmocka_unit_test(view_store__replaces_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
