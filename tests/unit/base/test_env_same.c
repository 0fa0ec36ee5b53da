/* The simulated disk and the real one answer alike: random calls go to both, and errors, contents,
 * sizes and listings must be the same. What this proves for the simulator it proves for the
 * contract. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/env.h"

#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"
#include "tests/support/temp_dir.h"

enum { STEPS = 600, DATA_MAX = 9000, PATH_SIZE = 300 };

/* One of the two worlds; `root` stands in front of every path. */
struct world {
    const struct nd_env *env;
    const char *root;
};

/* A call with all its parameters chosen. */
struct act {
    uint64_t what;
    char path[40], other[40];
    int flags;
    uint64_t at, size;
    uint8_t byte;
};

/* What a call answered. */
struct answer {
    enum nd_err err;
    uint64_t number;
    size_t read;
    uint8_t data[DATA_MAX];
};

static void full(const struct world *world, const char *path, char out[PATH_SIZE])
{
    (void)snprintf(out, PATH_SIZE, "%s/%s", world->root, path);
}

static void random_path(uint64_t *random, char out[40])
{
    static const char *const paths[] = {"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "x/a"};

    (void)snprintf(out, 40, "%s", paths[nd_rand_below(random, ND_ARRAY_SIZE(paths))]);
}

static struct act random_act(uint64_t *random)
{
    static const int flags[] = {ND_OPEN_READ,
                                ND_OPEN_WRITE,
                                ND_OPEN_WRITE | ND_OPEN_CREATE,
                                ND_OPEN_WRITE | ND_OPEN_CREATE,
                                ND_OPEN_WRITE | ND_OPEN_CREATE,
                                ND_OPEN_WRITE | ND_OPEN_CREATE | ND_OPEN_EXCL};
    struct act act = {.what = nd_rand_below(random, 10)};

    random_path(random, act.path);
    random_path(random, act.other);
    act.flags = flags[nd_rand_below(random, ND_ARRAY_SIZE(flags))];
    act.at = nd_rand_below(random, 6000);
    act.size = nd_rand_below(random, 3000);
    act.byte = (uint8_t)nd_rand(random);
    if (nd_rand_below(random, 4) == 0) { /* keep the two directories in being */
        act.what = 7;
        (void)snprintf(act.path, sizeof act.path, "%s", act.byte % 2 == 0 ? "d" : "d/e");
    }
    return act;
}

/* On an open file: write, fill, resize, sync; then its size and content. */
static void act_on_file(const struct nd_env *env, int file, const struct act *act,
                        struct answer *answer)
{
    uint8_t bytes[3000];

    memset(bytes, act->byte, sizeof bytes);
    switch (act->what) {
    case 0:
    case 1:
        answer->err = env->pwrite(env->impl, file, bytes, (size_t)act->size, act->at, NULL);
        break;
    case 2: answer->err = env->zero_fill(env->impl, file, act->at, act->size, NULL); break;
    case 3: answer->err = env->truncate(env->impl, file, act->at, NULL); break;
    case 4:
        answer->err = env->sync(env->impl, file, NULL);
        assert_int_equal(env->drop_cache(env->impl, file, 0, act->size, NULL), ND_OK);
        break;
    default: break;
    }
    assert_int_equal(env->file_size(env->impl, file, &answer->number, NULL), ND_OK);
    assert_int_equal(env->pread(env->impl, file, answer->data, DATA_MAX, 0, &answer->read, NULL),
                     ND_OK);
}

/* A sum over the names, since there is no order. */
static bool add_name(void *arg, const char *name, enum nd_file_kind kind)
{
    uint64_t *sum = arg;
    uint64_t value = (uint64_t)kind + 1;

    for (; *name != '\0'; name++) {
        value = value * 31 + (uint8_t)*name;
    }
    *sum += value;
    return true;
}

static void act_on_names(const struct world *world, const struct act *act, struct answer *answer)
{
    const struct nd_env *env = world->env;
    char path[PATH_SIZE], other[PATH_SIZE];
    struct nd_file_stat stat = {.size = 0};

    full(world, act->path, path);
    full(world, act->other, other);
    switch (act->what) {
    case 5: answer->err = env->rename(env->impl, path, other, NULL); break;
    case 6: answer->err = env->unlink(env->impl, path, NULL); break;
    case 7: answer->err = env->mkdir(env->impl, path, NULL); break;
    case 8: answer->err = env->rmdir(env->impl, path, NULL); break;
    case 9: answer->err = env->list(env->impl, path, add_name, &answer->number, NULL); break;
    default: break;
    }
    if (env->stat(env->impl, path, &stat, NULL) == ND_OK && stat.kind == ND_FILE_REGULAR) {
        answer->number += stat.size;
    }
    answer->read = (size_t)stat.kind;
}

static void perform(const struct world *world, const struct act *act, struct answer *answer)
{
    const struct nd_env *env = world->env;
    struct nd_file_stat stat;
    char path[PATH_SIZE];
    int file;

    memset(answer, 0, sizeof *answer);
    if (act->what >= 5) {
        act_on_names(world, act, answer);
        return;
    }
    full(world, act->path, path);
    if (act->flags == ND_OPEN_READ && env->stat(env->impl, path, &stat, NULL) == ND_OK &&
        stat.kind == ND_FILE_DIR) {
        return; /* the real one opens a directory and refuses to read it; nobody asks */
    }
    answer->err = env->open(env->impl, path, act->flags, &file, NULL);
    if (answer->err == ND_OK) {
        act_on_file(env, file, act, answer);
        env->close(env->impl, file);
    }
}

static void sim__answers_like_the_real_disk(void **state)
{
    static struct answer real, simulated;
    uint64_t succeeded = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t random = seed;
        char *root = temp_dir_new();
        struct sim_env *sim = sim_env_new(seed);
        struct world worlds[2] = {{nd_env_posix(), root}, {sim_env_get(sim), ""}};
        for (int step = 0; step < STEPS; step++) {
            struct act act = random_act(&random);
            perform(&worlds[0], &act, &real);
            perform(&worlds[1], &act, &simulated);
            if (memcmp(&real, &simulated, sizeof real) != 0) {
                print_error("seed %d step %d: what %d %s %s flags %d: %s, %s\n", (int)seed, step,
                            (int)act.what, act.path, act.other, act.flags, nd_err_name(real.err),
                            nd_err_name(simulated.err));
            }
            assert_int_equal(real.err, simulated.err);
            assert_int_equal(real.number, simulated.number);
            assert_int_equal(real.read, simulated.read);
            assert_memory_equal(real.data, simulated.data, sizeof real.data);
            succeeded += real.err == ND_OK;
        }
        sim_env_free(sim);
        temp_dir_remove(root);
    }
    assert_true(succeeded > 12 * STEPS / 5); /* it was not all errors */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sim__answers_like_the_real_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
