#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/env.h"

#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

static bool is_dir(struct sim_env *sim, const char *path)
{
    const struct nd_env *env = sim_env_get(sim);
    struct nd_file_stat stat;

    return env->stat(env->impl, path, &stat, NULL) == ND_OK && stat.kind == ND_FILE_DIR;
}

static void mkdirs__makes_every_missing_parent(void **state)
{
    static const char *const paths[] = {"/a/b/c", "a//b/./d/", "/a/b/c", "/", "x"};
    struct sim_env *sim = sim_env_new(1);

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(paths); i++) {
        assert_int_equal(nd_env_mkdirs(sim_env_get(sim), paths[i], NULL), ND_OK);
        assert_true(is_dir(sim, paths[i]));
    }
    sim_env_free(sim);
}

static void mkdirs__says_that_a_file_is_in_the_way(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    struct nd_errmsg msg;
    int file;

    (void)state;
    assert_int_equal(env->open(sim, "/f", ND_OPEN_WRITE | ND_OPEN_CREATE, &file, NULL), ND_OK);
    assert_int_equal(nd_env_mkdirs(env, "/f", &msg), ND_ERR_ALREADY_EXISTS);
    assert_string_equal(msg.text, "mkdir /f: a file of this name is in the way");
    assert_int_equal(nd_env_mkdirs(env, "/f/g", &msg), ND_ERR_ALREADY_EXISTS);
    sim_env_free(sim);
}

/* Killed after k changes, run again, power cut: what it said OK to is there. */
static void mkdirs__survives_a_cut_also_after_a_kill_on_the_way(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        for (uint64_t k = 1; k <= 7; k++) {
            struct sim_env *sim = sim_env_new(seed);
            const struct nd_env *env = sim_env_get(sim);
            /* A process that dies at its k-th change: everything after it fails. */
            sim_env_fail_from(sim, k % 2 == 1 ? SIM_MKDIR : SIM_SYNC_DIR, (k + 1) / 2,
                              SIM_FAULT_IO);
            nd_ignore(nd_env_mkdirs(env, "/a/b/c", NULL), "it dies on the way");
            sim_env_restart(sim);

            assert_int_equal(nd_env_mkdirs(env, "/a/b/c", NULL), ND_OK);
            sim_env_power_cut(sim, seed);
            sim_env_restart(sim);
            assert_true(is_dir(sim, "/a/b/c"));
            sim_env_free(sim);
        }
    }
}

static void read_file__gives_the_whole_file_within_its_limit(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    uint8_t *data;
    size_t size;
    struct nd_errmsg msg;

    (void)state;
    assert_int_equal(nd_env_read_file(env, "/f", 100, &data, &size, &msg), ND_ERR_NOT_FOUND);
    assert_int_equal(nd_env_replace_file(env, "/f", nd_slice_str("0123456789"), NULL), ND_OK);
    assert_int_equal(nd_env_read_file(env, "/f", 9, &data, &size, &msg), ND_ERR_TOO_LARGE);
    assert_non_null(strstr(msg.text, "/f: 10 bytes"));
    assert_int_equal(nd_env_read_file(env, "/f", 10, &data, &size, &msg), ND_OK);
    assert_int_equal(size, 10);
    assert_string_equal((char *)data, "0123456789"); /* terminated, for texts */
    nd_free(data);

    assert_int_equal(nd_env_replace_file(env, "/f", nd_slice_make(NULL, 0), NULL), ND_OK);
    assert_int_equal(nd_env_read_file(env, "/f", 0, &data, &size, &msg), ND_OK);
    assert_int_equal(size, 0);
    nd_free(data);
    sim_env_free(sim);
}

static void read_file__closes_and_frees_on_every_error(void **state)
{
    static const enum sim_call calls[] = {SIM_OPEN, SIM_FILE_SIZE, SIM_PREAD};
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    uint8_t *data;
    size_t size;

    (void)state;
    assert_int_equal(nd_env_replace_file(env, "/f", nd_slice_str("x"), NULL), ND_OK);
    for (size_t i = 0; i < 3 * 5000; i++) { /* the simulator asserts at 4096 open files */
        sim_env_fail_nth(sim, calls[i % 3], 1, SIM_FAULT_IO);
        assert_int_equal(nd_env_read_file(env, "/f", 10, &data, &size, NULL), ND_ERR_IO);
    }
    sim_env_free(sim);
}

/* Which of the two contents /d/f has; anything else fails the test. */
static bool is_new_content(struct sim_env *sim)
{
    uint8_t *data;
    size_t size;

    assert_int_equal(nd_env_read_file(sim_env_get(sim), "/d/f", 5000, &data, &size, NULL), ND_OK);
    assert_true(size == 3000 || size == 1000);
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(data[i], size == 3000 ? 'n' : 'o');
    }
    nd_free(data);
    return size == 3000;
}

static void replace_file__is_whole_in_every_cut(void **state)
{
    static char old[1000], new[3000];
    bool kept_old = false, done = false;

    (void)state;
    memset(old, 'o', sizeof old);
    memset(new, 'n', sizeof new);
    for (uint64_t seed = 0; seed < 60; seed++) {
        for (uint64_t k = 1;; k++) {
            struct sim_env *sim = sim_env_new(seed);
            const struct nd_env *env = sim_env_get(sim);
            assert_int_equal(nd_env_mkdirs(env, "/d", NULL), ND_OK);
            struct nd_slice content = nd_slice_make(old, sizeof old);
            assert_int_equal(nd_env_replace_file(env, "/d/f", content, NULL), ND_OK);

            sim_env_cut_at(sim, k);
            enum nd_err err =
                nd_env_replace_file(env, "/d/f", nd_slice_make(new, sizeof new), NULL);
            bool over = !sim_env_is_cut(sim);
            sim_env_power_cut(sim, seed);
            sim_env_restart(sim);

            bool is_new = is_new_content(sim);
            assert_true(is_new || err != ND_OK);
            kept_old = kept_old || !is_new;
            done = done || is_new;
            /* The next try works, whatever is left of this one. */
            content = nd_slice_make(new, sizeof new);
            assert_int_equal(nd_env_replace_file(env, "/d/f", content, NULL), ND_OK);
            assert_true(is_new_content(sim));
            sim_env_free(sim);
            if (over) {
                break;
            }
        }
    }
    assert_true(kept_old && done);
}

static void replace_file__fails_at_every_call_without_harm(void **state)
{
    bool fired = true;

    (void)state;
    for (uint64_t nth = 1; fired; nth++) {
        static char old[1000], new[3000];
        struct sim_env *sim = sim_env_new(nth);
        const struct nd_env *env = sim_env_get(sim);
        struct nd_errmsg msg;
        memset(old, 'o', sizeof old);
        memset(new, 'n', sizeof new);
        assert_int_equal(nd_env_mkdirs(env, "/d", NULL), ND_OK);
        struct nd_slice content = nd_slice_make(old, sizeof old);
        assert_int_equal(nd_env_replace_file(env, "/d/f", content, NULL), ND_OK);

        sim_env_fail_nth(sim, SIM_ANY, nth, SIM_FAULT_NO_SPACE);
        enum nd_err err = nd_env_replace_file(env, "/d/f", nd_slice_make(new, sizeof new), &msg);
        fired = sim_env_fault_fired(sim);
        sim_env_fail_clear(sim);
        assert_int_equal(err, fired ? ND_ERR_NO_SPACE : ND_OK);
        assert_true(!fired || strncmp(msg.text, "replace /d/f: ", 14) == 0);
        assert_true(is_new_content(sim) || err != ND_OK);
        sim_env_free(sim);
    }
}

static void replace_file__leaves_no_temporary(void **state)
{
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    struct nd_file_stat stat;

    (void)state;
    assert_int_equal(nd_env_replace_file(env, "/f", nd_slice_str("x"), NULL), ND_OK);
    assert_int_equal(env->stat(sim, "/f.tmp", &stat, NULL), ND_ERR_NOT_FOUND);
    sim_env_fail_nth(sim, SIM_SYNC, 1, SIM_FAULT_IO);
    assert_int_equal(nd_env_replace_file(env, "/f", nd_slice_str("y"), NULL), ND_ERR_IO);
    assert_int_equal(env->stat(sim, "/f.tmp", &stat, NULL), ND_ERR_NOT_FOUND);
    sim_env_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mkdirs__makes_every_missing_parent),
        cmocka_unit_test(mkdirs__says_that_a_file_is_in_the_way),
        cmocka_unit_test(mkdirs__survives_a_cut_also_after_a_kill_on_the_way),
        cmocka_unit_test(read_file__gives_the_whole_file_within_its_limit),
        cmocka_unit_test(read_file__closes_and_frees_on_every_error),
        cmocka_unit_test(replace_file__is_whole_in_every_cut),
        cmocka_unit_test(replace_file__fails_at_every_call_without_harm),
        cmocka_unit_test(replace_file__leaves_no_temporary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
