/* storage/wal_open, wal_scan: what an open accepts, ignores and refuses (W3, W4). */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/wal_private.h"
#include "wal_world.h"

static int setup(void **state)
{
    struct wal_world *world = nd_xmalloc(sizeof *world);

    world_init(world, sim_env_new(2));
    assert_int_equal(world_open(world), ND_OK);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct wal_world *world = *state;
    struct sim_env *sim = world->sim;

    world_release(world);
    sim_env_free(sim);
    nd_free(world);
    return 0;
}

/* kill -9: nothing more is written. */
static void kill_process(struct wal_world *world)
{
    world_forget(world);
    sim_env_restart(world->sim);
}

static void put_many(struct wal_world *world, uint32_t first, uint32_t count, size_t size)
{
    for (uint32_t tag = first; tag < first + count; tag++) {
        assert_int_equal(world_put(world, tag, size), ND_OK);
    }
}

static void assert_refused(struct wal_world *world, const char *path, uint64_t offset)
{
    char text[64];

    assert_int_equal(world_open(world), ND_ERR_CORRUPT);
    assert_non_null(strstr(world->msg.text, path));
    snprintf(text, sizeof text, "offset %llu", (unsigned long long)offset);
    if (strstr(world->msg.text, text) == NULL) {
        fail_msg("%s does not say %s", world->msg.text, text);
    }
}

static void wal_w3__a_file_of_another_store_is_refused_by_name(void **state)
{
    struct wal_world *world = *state;
    char path[128];

    put_many(world, 0, 3, 100);
    world_path(world, 0, path);
    kill_process(world);
    world->options.store_id[7] ^= 1;
    assert_int_equal(world_open(world), ND_ERR_CORRUPT);
    assert_non_null(strstr(world->msg.text, path));
    assert_non_null(strstr(world->msg.text, "another store"));
    world->options.store_id[7] ^= 1;
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 3);
}

static void wal_w3__a_store_that_had_a_log_refuses_to_start_without(void **state)
{
    struct wal_world *world = *state;

    world_close(world);
    world->options.dir = "data/other";
    world->options.must_exist = true;
    assert_int_equal(world_open(world), ND_ERR_CORRUPT);
    world->options.must_exist = false;
    assert_int_equal(world_open(world), ND_OK);
}

static void wal_w3__every_open_begins_at_a_multiple_of_2_to_the_40(void **state)
{
    struct wal_world *world = *state;
    uint64_t last = 0;
    char names[8][64];

    for (uint32_t i = 0; i < 4; i++) {
        uint64_t next = world_stats(world).sequence_next;
        assert_int_equal(next % (1ULL << 40), 0);
        assert_true(next > last);
        last = next;
        if (i == 2) {
            put_many(world, 0, 1, 100);
        }
        world_close(world);
        assert_int_equal(world_open(world), ND_OK);
        /* Files without frames are used again: only the one with the unit stays. */
        assert_int_equal(world_names(world, ".wal", names, 8), i >= 2 ? 2 : 1);
        assert_int_equal(world_names(world, ".spare", names, 8), 2);
    }
}

/* A recycled file holds frames of its former life, valid but for their epoch and their place. */
static void wal_w3__frames_of_a_recycled_file_are_never_replayed(void **state)
{
    struct wal_world *world = *state;

    /* Twice round: every file that is written was in use before. */
    for (uint32_t tag = 0; tag < 100; tag++) {
        assert_int_equal(world_put(world, tag, 20 << 10), ND_OK);
        if (tag % 10 == 9) {
            nd_wal_stager_needs(world->wal, &world->stager, world->sequence[tag]);
            assert_int_equal(world_stage_checkpoint(world), ND_OK);
            world_run(world);
            nd_wal_trim(world->wal);
        }
    }
    assert_true(world_stats(world).files <= 3);
    for (uint32_t tag = 100; tag < 112; tag++) {
        uint64_t from = world->sequence[tag - 1];
        assert_int_equal(world_put(world, tag, 20 << 10), ND_OK);
        kill_process(world);
        assert_int_equal(world_open(world), ND_OK);
        assert_true(world->replayed[tag] && from < world->sequence[tag]);
        assert_false(world->replayed[80]);
        world_assert_kept(world, 99);
    }
}

static void wal_w4__torn_tail_is_cut_and_damage_refused(void **state)
{
    struct wal_world *world = *state;
    char path[128];

    put_many(world, 0, 3, 100); /* blocks 1, 2, 3 */
    world_path(world, 0, path);
    kill_process(world);
    sim_env_damage(world->sim, path, 3 * ND_WAL_BLOCK + 100, 4);
    assert_int_equal(world_scan(world), ND_OK);
    assert_int_equal(world->replayed_count, 2);
    sim_env_damage(world->sim, path, 3 * ND_WAL_BLOCK + 100, 4);
    sim_env_damage(world->sim, path, 2 * ND_WAL_BLOCK + 100, 4);
    assert_refused(world, path, 2 * ND_WAL_BLOCK);
    sim_env_damage(world->sim, path, 2 * ND_WAL_BLOCK + 100, 4);
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 3);
}

/* A group of several frames of which the first is torn: the later ones do not say that it was
 * synced. */
static void wal_w4__a_torn_group_is_torn_whatever_of_it_arrived(void **state)
{
    struct wal_world *world = *state;
    char path[128];

    put_many(world, 0, 2, 100);
    uint64_t at = world->wal->active.at;
    for (uint32_t tag = 2; tag < 6; tag++) {
        assert_int_equal(world_stage(world, tag, 40 << 10), ND_OK); /* a frame each */
    }
    world_run(world);
    world_path(world, 0, path);
    kill_process(world);
    sim_env_damage(world->sim, path, at + 200, 1);
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 2);
}

/* I-8 */
static void wal_w4__a_bad_length_in_the_middle_refuses(void **state)
{
    struct wal_world *world = *state;
    char path[128];

    put_many(world, 0, 4, 100);
    world_path(world, 0, path);
    kill_process(world);
    for (uint64_t byte = 0; byte < 4; byte++) {
        uint64_t at = 2 * ND_WAL_BLOCK + 32 + byte; /* body size */
        sim_env_damage(world->sim, path, at, 0xff);
        assert_refused(world, path, 2 * ND_WAL_BLOCK);
        sim_env_damage(world->sim, path, at, 0xff);
    }
}

/* I-8: every bit of the frames and of the header, one at a time. */
static void wal_w4__every_bit_flip_is_refused_or_harmless(void **state)
{
    struct wal_world *world = *state;
    uint32_t refused = 0, torn = 0, harmless = 0;
    char path[128];

    put_many(world, 0, 3, 60);
    world_path(world, 0, path);
    kill_process(world);
    for (uint64_t at = 0; at < 4 * ND_WAL_BLOCK; at++) {
        uint64_t in_block = at % ND_WAL_BLOCK;
        bool is_padding = in_block >= 300 && in_block < ND_WAL_BLOCK - 4;
        for (int bit = 0; bit < (is_padding ? 1 : 8); bit++) {
            if (is_padding && in_block % 64 != 0) {
                continue;
            }
            sim_env_damage(world->sim, path, at, (uint8_t)(1 << bit));
            enum nd_err err = world_scan(world); /* asserts that what it replays is right */
            sim_env_damage(world->sim, path, at, (uint8_t)(1 << bit));
            if (err != ND_OK) {
                refused += 1;
                assert_non_null(strstr(world->msg.text, path));
                assert_true(at < 3 * ND_WAL_BLOCK);
            } else if (world->replayed_count < 3) {
                torn += 1;
                assert_int_equal(world->replayed_count, 2);
                assert_true(at >= 3 * ND_WAL_BLOCK);
            } else {
                harmless += 1;
                assert_true(at > ND_WAL_BLOCK && in_block > 150); /* behind a frame */
            }
        }
    }
    assert_true(refused > 5000 && torn > 1000 && harmless > 100);
}

/* I-7, adapted: a file is never shortened by us, so one that is short was cut. */
static void wal_w4__a_log_cut_at_any_byte_is_refused(void **state)
{
    struct wal_world *world = *state;
    const struct nd_env *env = world->env;
    char path[128];
    int file;

    put_many(world, 0, 2, 60);
    world_path(world, 0, path);
    kill_process(world);
    assert_int_equal(env->open(env->impl, path, ND_OPEN_WRITE, &file, NULL), ND_OK);
    for (uint64_t size = WORLD_FILE_BYTES - 1;; size -= size > 3 * ND_WAL_BLOCK ? 997 : 1) {
        assert_int_equal(env->truncate(env->impl, file, size, NULL), ND_OK);
        assert_int_equal(world_scan(world), ND_ERR_CORRUPT);
        assert_non_null(strstr(world->msg.text, path));
        if (size == 0) {
            break;
        }
    }
    env->close(env->impl, file);
}

static void wal_w4__an_older_file_must_reach_what_the_next_one_follows(void **state)
{
    struct wal_world *world = *state;
    char path[128];

    put_many(world, 0, 30, 20 << 10);
    world_path(world, 0, path);
    kill_process(world);
    sim_env_damage(world->sim, path, ND_WAL_BLOCK + 5000, 1);
    assert_refused(world, path, ND_WAL_BLOCK);
    sim_env_damage(world->sim, path, ND_WAL_BLOCK + 5000, 1);
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 30);
}

static void wal_w4__a_missing_file_is_noticed_wherever_it_was(void **state)
{
    struct wal_world *world = *state;
    const struct nd_env *env = world->env;
    char path[128];

    put_many(world, 0, 40, 20 << 10);
    kill_process(world);
    for (uint32_t nth = 0; nth < 3; nth++) { /* the newest cannot be missed, nobody follows it */
        world_path(world, nth, path);
        assert_int_equal(env->rename(env->impl, path, "data/aside", NULL), ND_OK);
        assert_int_equal(world_scan(world), ND_ERR_CORRUPT);
        assert_int_equal(env->rename(env->impl, "data/aside", path, NULL), ND_OK);
    }
    assert_int_equal(world_scan(world), ND_OK);
}

static void wal_w4__files_below_replay_from_are_ignored_whatever_they_hold(void **state)
{
    struct wal_world *world = *state;
    char path[128];

    put_many(world, 0, 40, 20 << 10);
    nd_wal_stager_needs(world->wal, &world->stager, world->sequence[39]);
    assert_int_equal(world_stage_checkpoint(world), ND_OK);
    world_run(world);
    world_path(world, 0, path);
    kill_process(world);
    sim_env_damage(world->sim, path, 3, 1);                 /* its header */
    sim_env_damage(world->sim, path, ND_WAL_BLOCK + 60, 1); /* and a frame */
    assert_int_equal(world_open(world), ND_OK);
    assert_int_equal(world->replayed_count, 1);
    assert_true(world->replayed[39]);
    nd_wal_trim(world->wal); /* and they go as others do */
    assert_true(world_stats(world).files <= 3);
}

/* W6: a spare is as long as this start makes files; of one that was not looked at nothing is known.
 */
static void wal_w6__an_ignored_file_of_another_size_is_no_spare(void **state)
{
    struct wal_world *world = *state;

    put_many(world, 0, 40, 20 << 10);
    nd_wal_stager_needs(world->wal, &world->stager, world->sequence[39]);
    assert_int_equal(world_stage_checkpoint(world), ND_OK);
    world_run(world);
    kill_process(world);
    world->options.file_bytes = 2 * WORLD_FILE_BYTES;
    world->options.spares_extra = 8;
    assert_int_equal(world_open(world), ND_OK);
    nd_wal_trim(world->wal);
    assert_true(world_stats(world).files <= 3);
    put_many(world, 40, 120, 20 << 10); /* through all spares */
    kill_process(world);
    assert_int_equal(world_open(world), ND_OK);
    world_assert_kept(world, 40);
}

/* I-4 */
static void wal_w3__a_fully_trimmed_log_keeps_its_sequences(void **state)
{
    struct wal_world *world = *state;

    put_many(world, 0, 40, 20 << 10);
    uint64_t last = world->sequence[39];
    nd_wal_stager_needs(world->wal, &world->stager, UINT64_MAX);
    assert_int_equal(world_stage_checkpoint(world), ND_OK);
    world_run(world);
    nd_wal_trim(world->wal);
    assert_int_equal(world_stats(world).files, 1);
    for (uint32_t i = 0; i < 3; i++) {
        world_close(world);
        assert_int_equal(world_open(world), ND_OK);
        assert_int_equal(world->replayed_count, 0);
        assert_true(world_stats(world).sequence_next > last);
    }
    assert_int_equal(world_put(world, 50, 100), ND_OK);
    assert_true(world->sequence[50] > last);
}

/* What an open replayed is on the device: a failed sync's bytes in the cache fool nobody. */
static void wal_w3__what_only_the_cache_holds_is_not_replayed(void **state)
{
    uint32_t only_in_cache = 0, on_device = 0;

    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct wal_world *w = nd_xmalloc(sizeof *w);
        world_init(w, sim_env_new(seed));
        sim_env_set_direct(w->sim, seed % 2 == 0);
        assert_int_equal(world_open(w), ND_OK);
        put_many(w, 0, 3, 100);
        sim_env_fail_nth(w->sim, SIM_SYNC, 1, SIM_FAULT_IO);
        assert_int_equal(world_stage(w, 3, 100), ND_OK);
        assert_true(nd_wal_step(w->wal)); /* fails; no fresh file makes it void yet */
        kill_process(w);
        assert_int_equal(world_open(w), ND_OK);
        bool replayed = w->replayed[3];
        only_in_cache += !replayed;
        on_device += replayed;
        kill_process(w);
        sim_env_power_cut(w->sim, seed);
        sim_env_restart(w->sim);
        assert_int_equal(world_open(w), ND_OK);
        assert_int_equal(w->replayed[3], replayed);
        world_assert_kept(w, 0);
        struct sim_env *sim = w->sim;
        world_release(w);
        sim_env_free(sim);
        nd_free(w);
    }
    assert_true(only_in_cache > 0 && on_device > 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(wal_w3__a_file_of_another_store_is_refused_by_name),
        CASE(wal_w3__a_store_that_had_a_log_refuses_to_start_without),
        CASE(wal_w3__every_open_begins_at_a_multiple_of_2_to_the_40),
        CASE(wal_w3__frames_of_a_recycled_file_are_never_replayed),
        CASE(wal_w4__torn_tail_is_cut_and_damage_refused),
        CASE(wal_w4__a_torn_group_is_torn_whatever_of_it_arrived),
        CASE(wal_w4__a_bad_length_in_the_middle_refuses),
        CASE(wal_w4__every_bit_flip_is_refused_or_harmless),
        CASE(wal_w4__a_log_cut_at_any_byte_is_refused),
        CASE(wal_w4__an_older_file_must_reach_what_the_next_one_follows),
        CASE(wal_w4__a_missing_file_is_noticed_wherever_it_was),
        CASE(wal_w4__files_below_replay_from_are_ignored_whatever_they_hold),
        CASE(wal_w6__an_ignored_file_of_another_size_is_no_spare),
        CASE(wal_w3__a_fully_trimmed_log_keeps_its_sequences),
        cmocka_unit_test(wal_w3__what_only_the_cache_holds_is_not_replayed),
    };
    return cmocka_run_group_tests_name("wal_open", tests, NULL, NULL);
}
