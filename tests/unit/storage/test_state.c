/* storage/state: two copies, many at once, hostile files, power cuts. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "storage/state.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

static const uint8_t store_id[16] = "store-id-of-test";

enum { PARTITIONS = 12 };

struct fixture {
    struct sim_env *sim;
    const struct nd_env *env;
    struct nd_positions positions[PARTITIONS];
    char dirs[PARTITIONS][100];
};

static void positions_fill(struct nd_positions *p, uint32_t partition, uint32_t ahead)
{
    nd_positions_init(p);
    snprintf(p->id.topic, sizeof p->id.topic, "orders");
    p->id.incarnation = 7;
    p->id.partition = partition;
    p->applied_sequence = 1000 + partition;
    p->next_offset = 100000;
    p->flushed_offset = 100000;
    p->last_commit_ms = 123456;
    for (uint32_t i = 0; i < ahead; i++) {
        nd_positions_settle(p, 10 + i * 10, 12 + i * 10);
    }
}

static int setup_seed(void **state, uint64_t seed)
{
    struct fixture *f = nd_xcalloc(1, sizeof *f);

    f->sim = sim_env_new(seed);
    f->env = sim_env_get(f->sim);
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        positions_fill(&f->positions[i], i, i == 1 ? 1000 : 3); /* 1: more than a block */
        snprintf(f->dirs[i], sizeof f->dirs[i], "data/topics/orders/%016x/p%05u", 7u, i);
    }
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_seed(state, 1);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < PARTITIONS; i++) {
        nd_positions_release(&f->positions[i]);
    }
    sim_env_free(f->sim);
    nd_free(f);
    return 0;
}

static void store(struct fixture *f, size_t count, struct nd_state_item *items)
{
    for (size_t i = 0; i < count; i++) {
        items[i] = (struct nd_state_item){f->dirs[i], &f->positions[i], ND_ERR_INTERNAL};
    }
    nd_state_store(f->env, store_id, items, count, NULL);
}

/* Loads; *sequence_out is what tells versions apart. */
static enum nd_err load(struct fixture *f, uint32_t i, uint64_t *sequence_out,
                        struct nd_errmsg *msg)
{
    struct nd_positions got;

    nd_positions_init(&got);
    enum nd_err err = nd_state_load(f->env, f->dirs[i], store_id, &got, msg);
    if (err == ND_OK) {
        assert_string_equal(got.id.topic, "orders");
        assert_int_equal(got.id.partition, i);
        assert_int_equal(got.ahead_count, f->positions[i].ahead_count);
        *sequence_out = got.applied_sequence;
    }
    nd_positions_release(&got);
    return err;
}

static void path_of(const struct fixture *f, uint32_t i, char *out, size_t size)
{
    snprintf(out, size, "%s/state", f->dirs[i]);
}

static void state__comes_back_as_it_was_stored(void **state)
{
    struct fixture *f = *state;
    struct nd_state_item items[PARTITIONS];
    uint64_t sequence = 0;

    assert_int_equal(load(f, 0, &sequence, NULL), ND_ERR_NOT_FOUND);
    store(f, PARTITIONS, items);

    for (uint32_t i = 0; i < PARTITIONS; i++) {
        assert_int_equal(items[i].result, ND_OK);
        assert_int_equal(load(f, i, &sequence, NULL), ND_OK);
        assert_int_equal(sequence, 1000 + i);
    }
    f->positions[2].applied_sequence = 5000;
    store(f, 3, items);
    assert_int_equal(load(f, 2, &sequence, NULL), ND_OK);
    assert_int_equal(sequence, 5000);
}

static void state_store__syncs_many_at_once(void **state)
{
    struct fixture *f = *state;
    struct nd_state_item items[PARTITIONS];

    store(f, 2, items);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC_FS), 0);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC), 2);
    store(f, PARTITIONS, items);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC_FS), 1);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC), 2);
}

static void state_load__needs_only_one_whole_copy(void **state)
{
    struct fixture *f = *state;
    struct nd_state_item items[2];
    struct nd_file_stat stat;
    char path[120];
    uint64_t sequence;
    store(f, 2, items);

    for (uint32_t i = 0; i < 2; i++) {
        path_of(f, i, path, sizeof path);
        assert_int_equal(f->env->stat(f->env->impl, path, &stat, NULL), ND_OK);
        for (uint64_t at = 0; at < stat.size; at += i == 0 ? 1 : 61) {
            sim_env_damage(f->sim, path, at, 0x20);
            assert_int_equal(load(f, i, &sequence, NULL), ND_OK);
            assert_int_equal(sequence, 1000 + i);
            sim_env_damage(f->sim, path, at, 0x20);
        }
        sim_env_damage(f->sim, path, 40, 1);
        sim_env_damage(f->sim, path, stat.size / 2 + 40, 1);
        assert_int_equal(load(f, i, &sequence, NULL), ND_ERR_CORRUPT);
    }
}

static void state_load__says_corrupt_or_the_truth_at_every_length(void **state)
{
    struct fixture *f = *state;
    struct nd_state_item items[1];
    struct nd_file_stat stat;
    char path[120];
    uint64_t sequence;
    uint32_t corrupt = 0;
    int file;
    store(f, 1, items);
    path_of(f, 0, path, sizeof path);
    assert_int_equal(f->env->stat(f->env->impl, path, &stat, NULL), ND_OK);
    assert_int_equal(f->env->open(f->env->impl, path, ND_OPEN_WRITE, &file, NULL), ND_OK);

    for (uint64_t size = stat.size; size-- > 0;) {
        assert_int_equal(f->env->truncate(f->env->impl, file, size, NULL), ND_OK);
        enum nd_err err = load(f, 0, &sequence, NULL);
        corrupt += err == ND_ERR_CORRUPT;
        assert_true(err == ND_ERR_CORRUPT || (err == ND_OK && sequence == 1000));
    }
    f->env->close(f->env->impl, file);
    assert_true(corrupt > 32 && corrupt < stat.size / 2);
}

static void state_load__refuses_what_belongs_elsewhere(void **state)
{
    struct fixture *f = *state;
    struct nd_state_item items[2];
    struct nd_positions got;
    struct nd_errmsg msg = {{0}};
    char from[120], to[120];
    uint64_t sequence;
    uint8_t other_id[16] = "another-store-id";
    store(f, 2, items);

    nd_positions_init(&got);
    assert_int_equal(nd_state_load(f->env, f->dirs[0], other_id, &got, &msg), ND_ERR_CORRUPT);
    nd_positions_release(&got);
    assert_non_null(strstr(msg.text, "another store"));
    path_of(f, 1, from, sizeof from);
    path_of(f, 0, to, sizeof to);
    assert_int_equal(f->env->rename(f->env->impl, from, to, NULL), ND_OK);
    assert_int_equal(load(f, 0, &sequence, &msg), ND_ERR_CORRUPT);
    assert_non_null(strstr(msg.text, "another partition"));
}

/* Each item is the old or the new one, whole, wherever the power goes; one that said OK is the new
 * one. */
static void state_store__is_old_or_new_after_a_cut_at_every_change(void **state)
{
    (void)state;

    for (uint32_t count = 2; count <= PARTITIONS; count += PARTITIONS - 2) {
        bool cut = true;
        for (uint64_t k = 1; cut; k++) {
            struct nd_state_item items[PARTITIONS];
            void *inner;
            setup_seed(&inner, k);
            struct fixture *f = inner;
            store(f, count, items);
            sim_env_cut_at(f->sim, k);
            for (uint32_t i = 0; i < count; i++) {
                f->positions[i].applied_sequence += 7000;
            }
            store(f, count, items);
            cut = sim_env_is_cut(f->sim);
            sim_env_restart(f->sim);
            for (uint32_t i = 0; i < count; i++) {
                uint64_t sequence = 0;
                assert_int_equal(load(f, i, &sequence, NULL), ND_OK);
                assert_true(sequence == 8000 + i ||
                            (sequence == 1000 + i && items[i].result != ND_OK));
            }
            store(f, count, items);
            assert_int_equal(items[0].result, ND_OK);
            teardown(&inner);
        }
    }
}

static void state_store__says_so_when_a_call_fails(void **state)
{
    static const enum sim_call calls[] = {SIM_OPEN,   SIM_PWRITE,   SIM_SYNC,    SIM_SYNC_FS,
                                          SIM_RENAME, SIM_SYNC_DIR, SIM_TRUNCATE};
    (void)state;

    for (size_t c = 0; c < ND_ARRAY_SIZE(calls); c++) {
        bool fired = true;
        for (uint64_t nth = 1; fired; nth++) {
            struct nd_state_item items[PARTITIONS];
            void *inner;
            setup_seed(&inner, nth);
            struct fixture *f = inner;
            uint64_t sequence;
            sim_env_fail_nth(f->sim, calls[c], nth, SIM_FAULT_IO);
            store(f, PARTITIONS, items);
            fired = sim_env_fault_fired(f->sim);
            sim_env_power_cut(f->sim, nth);
            sim_env_restart(f->sim);
            for (uint32_t i = 0; i < PARTITIONS; i++) {
                if (items[i].result == ND_OK) {
                    assert_int_equal(load(f, i, &sequence, NULL), ND_OK);
                }
            }
            teardown(&inner);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(state__comes_back_as_it_was_stored),
        CASE(state_store__syncs_many_at_once),
        CASE(state_load__needs_only_one_whole_copy),
        CASE(state_load__says_corrupt_or_the_truth_at_every_length),
        CASE(state_load__refuses_what_belongs_elsewhere),
        CASE(state_store__is_old_or_new_after_a_cut_at_every_change),
        CASE(state_store__says_so_when_a_call_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
