/* storage/layout: the data directory. */
#include <stdio.h>

#include "storage/layout.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

static void layout__keeps_its_store_id_and_says_when_a_log_must_exist(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    struct nd_layout first, again;
    struct nd_errmsg msg;

    (void)state;
    assert_int_equal(nd_layout_open(&first, env, "data/x", &msg), ND_OK);
    assert_true(first.fresh);
    nd_layout_close(&first);
    assert_int_equal(nd_layout_open(&again, env, "data/x", &msg), ND_OK);
    assert_true(again.fresh); /* nothing was opened in it yet */
    assert_memory_equal(first.store_id, again.store_id, 16);
    assert_int_equal(nd_layout_confirm(&again, &msg), ND_OK);
    nd_layout_close(&again);
    assert_int_equal(nd_layout_open(&again, env, "data/x", &msg), ND_OK);
    assert_false(again.fresh);
    assert_memory_equal(first.store_id, again.store_id, 16);
    nd_layout_close(&again);
    sim_env_free(sim);
}

static void layout__is_held_by_one_process(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    struct nd_layout first, second;
    struct nd_errmsg msg;

    (void)state;
    assert_int_equal(nd_layout_open(&first, sim_env_get(sim), "data", &msg), ND_OK);
    assert_int_equal(nd_layout_open(&second, sim_env_get(sim), "data", &msg), ND_ERR_UNAVAILABLE);
    nd_layout_close(&first);
    assert_int_equal(nd_layout_open(&second, sim_env_get(sim), "data", &msg), ND_OK);
    nd_layout_close(&second);
    sim_env_free(sim);
}

static void layout__a_damaged_or_newer_format_is_refused(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    struct nd_layout layout;
    struct nd_errmsg msg;
    struct nd_file_stat stat;

    (void)state;
    assert_int_equal(nd_layout_open(&layout, env, "data", &msg), ND_OK);
    nd_layout_close(&layout);
    assert_int_equal(env->stat(env->impl, "data/FORMAT", &stat, &msg), ND_OK);
    for (uint64_t at = 0; at < stat.size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            sim_env_damage(sim, "data/FORMAT", at, (uint8_t)(1 << bit));
            enum nd_err err = nd_layout_open(&layout, env, "data", &msg);
            if (err == ND_OK) {
                fail_msg("bit %d of byte %llu", bit, (unsigned long long)at);
            }
            sim_env_damage(sim, "data/FORMAT", at, (uint8_t)(1 << bit));
        }
    }
    assert_int_equal(
        nd_env_replace_file(env, "data/FORMAT", nd_slice_str("narad-data 2\nwhatever\n"), &msg),
        ND_OK);
    assert_int_equal(nd_layout_open(&layout, env, "data", &msg), ND_ERR_UNSUPPORTED);
    assert_int_equal(env->unlink(env->impl, "data/FORMAT", &msg), ND_OK);
    assert_int_equal(env->mkdir(env->impl, "data/topics/orders", &msg), ND_OK);
    assert_int_equal(nd_layout_open(&layout, env, "data", &msg), ND_ERR_CORRUPT);
    sim_env_free(sim);
}

static void layout__survives_a_power_cut_at_every_change(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct sim_env *sim = sim_env_new(k);
        const struct nd_env *env = sim_env_get(sim);
        struct nd_layout layout;
        struct nd_errmsg msg = {{0}};
        sim_env_cut_at(sim, k);
        if (nd_layout_open(&layout, env, "data", &msg) == ND_OK) {
            nd_ignore(nd_layout_confirm(&layout, &msg), "the power may be cut");
            nd_layout_close(&layout);
        }
        bool over = !sim_env_is_cut(sim);
        sim_env_restart(sim);
        if (nd_layout_open(&layout, env, "data", &msg) != ND_OK) {
            fail_msg("cut at change %llu: %s", (unsigned long long)k, msg.text);
        }
        nd_layout_close(&layout);
        sim_env_free(sim);
        if (over) {
            break;
        }
    }
}

static void layout__partition_dir_is_named_by_incarnation(void **state)
{
    struct nd_partition_id id = {.incarnation = 0xab, .partition = 3, .topic = "orders"};
    char dir[512];

    (void)state;
    nd_layout_partition_dir(dir, sizeof dir, "/data", &id);
    assert_string_equal(dir, "/data/topics/orders/00000000000000ab/p00003");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout__keeps_its_store_id_and_says_when_a_log_must_exist),
        cmocka_unit_test(layout__is_held_by_one_process),
        cmocka_unit_test(layout__a_damaged_or_newer_format_is_refused),
        cmocka_unit_test(layout__survives_a_power_cut_at_every_change),
        cmocka_unit_test(layout__partition_dir_is_named_by_incarnation),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
