/* storage/dump: what is shown of whole and damaged files; no bytes bring it down. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/dump.h"
#include "tests/support/nd_rand.h"
#include "wal_world.h"

enum { OUT_SIZE = 1 << 20, TRIES = 300, BYTES_MAX = 20000 };

struct shown {
    char *text; /* all lines */
    size_t size;
};

static void keep_line(void *arg, const char *line, size_t size)
{
    struct shown *shown = arg;

    assert_true(size > 0 && line[size - 1] == '\n');
    if (shown->size + size < OUT_SIZE) {
        memcpy(shown->text + shown->size, line, size);
        shown->size += size;
        shown->text[shown->size] = '\0';
    }
}

static enum nd_err show(struct sim_env *sim, const char *path, bool json, struct shown *shown,
                        uint64_t *damages)
{
    struct nd_report report;
    struct nd_errmsg msg = {{0}};
    struct nd_dump_options options = {
        .env = sim_env_get(sim), .path = path, .report = &report, .records = true};
    uint64_t changes = sim_env_changes(sim);

    shown->size = 0;
    shown->text[0] = '\0';
    nd_report_init(&report, json, keep_line, shown);
    enum nd_err err = nd_dump_file(&options, damages, &msg);
    nd_report_release(&report);
    assert_true(sim_env_changes(sim) == changes);
    return err;
}

static uint32_t count_of(const struct shown *shown, const char *part)
{
    uint32_t count = 0;

    for (const char *at = shown->text; (at = strstr(at, part)) != NULL; at++) {
        count += 1;
    }
    return count;
}

static void dump__goes_on_behind_a_damaged_frame(void **state)
{
    struct wal_world *world = nd_xmalloc(sizeof *world);
    struct sim_env *sim = sim_env_new(3);
    struct shown shown = {.text = nd_xmalloc(OUT_SIZE)};
    char path[128];
    uint64_t damages;
    (void)state;

    world_init(world, sim);
    assert_int_equal(world_open(world), ND_OK);
    for (uint32_t tag = 0; tag < 4; tag++) {
        assert_int_equal(world_put(world, tag, 100), ND_OK);
    }
    world_forget(world);
    sim_env_restart(sim);
    world_path(world, 0, path);
    assert_int_equal(show(sim, path, false, &shown, &damages), ND_OK);
    assert_true(damages == 0);
    assert_int_equal(count_of(&shown, "commit at="), 4);
    assert_int_equal(count_of(&shown, "record offset="), 4);
    sim_env_damage(sim, path, 2 * 4096 + 60, 1); /* in the second frame */
    assert_int_equal(show(sim, path, false, &shown, &damages), ND_OK);
    assert_true(damages == 1);
    assert_int_equal(count_of(&shown, "damage at=8192 end=12288"), 1);
    assert_int_equal(count_of(&shown, "commit at="), 3);
    sim_env_damage(sim, path, 20, 1); /* and in the header: every frame says its epoch */
    assert_int_equal(show(sim, path, true, &shown, &damages), ND_OK);
    assert_true(damages == 2);
    assert_int_equal(count_of(&shown, "{\"kind\":\"damage\",\"at\":0,\"end\":4096"), 1);
    assert_int_equal(count_of(&shown, "\"kind\":\"commit\""), 3);
    world_release(world);
    sim_env_free(sim);
    nd_free(shown.text);
    nd_free(world);
}

static void file_put(struct sim_env *sim, const char *path, const uint8_t *bytes, size_t size)
{
    const struct nd_env *env = sim_env_get(sim);

    assert_int_equal(nd_env_replace_file(env, path, nd_slice_make(bytes, size), NULL), ND_OK);
}

/* Random bytes behind every magic, under every name. */
static void dump__survives_any_bytes(void **state)
{
    static const char *const names[] = {"1.wal",  "1.spare", "1.log",  "1.index",
                                        "state",  "FORMAT",  "x",      "1.wal.0123",
                                        "1.gone", "1.bad",   "syncfs", "state.tmp"};
    static const char *const magics[] = {"",     "NARADWAL\1", "NDSG",
                                         "NDIX", "NDST",       "narad-data 1\n"};
    struct sim_env *sim = sim_env_new(4);
    struct shown shown = {.text = nd_xmalloc(OUT_SIZE)};
    uint8_t *bytes = nd_xmalloc(BYTES_MAX);
    uint64_t random = 9, damages;
    (void)state;

    for (uint32_t i = 0; i < TRIES; i++) {
        const char *name = names[nd_rand_below(&random, ND_ARRAY_SIZE(names))];
        const char *magic = magics[nd_rand_below(&random, ND_ARRAY_SIZE(magics))];
        size_t size = (size_t)nd_rand_below(&random, i % 2 == 0 ? 200 : BYTES_MAX);
        uint64_t sparse = nd_rand_below(&random, 3);
        for (size_t k = 0; k < size; k++) {
            bytes[k] = sparse > 0 && nd_rand_below(&random, 8) > 0 ? 0 : (uint8_t)nd_rand(&random);
        }
        memcpy(bytes, magic, ND_MIN(size, strlen(magic)));
        file_put(sim, name, bytes, size);
        enum nd_err err = show(sim, name, i % 3 == 0, &shown, &damages);
        assert_true(err == ND_OK || err == ND_ERR_UNSUPPORTED);
        for (size_t k = 0; k < shown.size; k++) {
            assert_true(shown.text[k] == '\n' || (shown.text[k] >= ' ' && shown.text[k] <= '~'));
        }
    }
    nd_free(bytes);
    nd_free(shown.text);
    sim_env_free(sim);
}

static void dump__says_what_is_none_of_ours(void **state)
{
    struct sim_env *sim = sim_env_new(4);
    struct shown shown = {.text = nd_xmalloc(OUT_SIZE)};
    uint64_t damages;
    (void)state;

    file_put(sim, "notes", (const uint8_t *)"hello", 5);
    assert_int_equal(show(sim, "notes", false, &shown, &damages), ND_ERR_UNSUPPORTED);
    assert_int_equal(show(sim, "missing", false, &shown, &damages), ND_ERR_NOT_FOUND);
    assert_int_equal(shown.size, 0);
    nd_free(shown.text);
    sim_env_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dump__goes_on_behind_a_damaged_frame),
        cmocka_unit_test(dump__survives_any_bytes),
        cmocka_unit_test(dump__says_what_is_none_of_ours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
