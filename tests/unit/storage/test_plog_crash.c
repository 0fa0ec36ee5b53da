/* storage/plog: the power goes at every change of the disk, and again while the log opens; readers,
 * a writer and retention in threads. */
#include <stdatomic.h>

#include "storage/base/thread.h"

#include "storage/plog.h"
#include "storage/remove.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/storage/plog_fixture.h"

enum { SIZE = 200, ROUND = 30, END = 300 };

static struct nd_plog_options crash_options(const struct nd_env *env, struct nd_remover *remover)
{
    struct nd_plog_options options = fixture_options(env);

    options.segment_bytes = 24 << 10;
    options.remover = remover;
    return options;
}

/* Open, flush what is missing up to END in rounds, trim on the way. *flushed is raised as a
 * CHECKPOINT would be: only to what was verified. Returns on the first error. */
static enum nd_err workload(const struct nd_env *env, uint64_t *flushed, uint64_t *trimmed)
{
    struct nd_remover *remover = nd_remover_new(env, 8 << 10, 0, NULL);
    struct nd_plog_options options = crash_options(env, remover);
    struct nd_plog *plog;
    struct nd_plog_stats stats;
    enum nd_err err = nd_plog_open(&plog, &options, FIXTURE_DIR, *flushed, *flushed, NULL);

    if (err != ND_OK) {
        nd_remover_free(remover);
        return err;
    }
    nd_plog_stats(plog, &stats);
    assert_true(stats.end_offset >= *flushed);
    assert_true(stats.gap_records == 0);
    assert_true(stats.start_offset <= *trimmed || stats.start_offset == stats.end_offset);
    assert_int_equal(fixture_count(plog, 0, stats.end_offset, SIZE),
                     stats.end_offset - stats.start_offset);
    /* The WAL's replay brings everything from the flushed offset on once more. */
    for (uint64_t base = *flushed; base < END && err == ND_OK; base += ROUND) {
        err = fixture_flush(env, plog, base, ROUND, SIZE);
        nd_plog_stats(plog, &stats);
        assert_int_equal(stats.gap_records, 0);
        if (err == ND_OK) {
            *flushed = stats.end_offset;
        }
        if (err == ND_OK && base == 6 * ROUND) {
            *trimmed = 3 * ROUND; /* may become durable or not */
            struct nd_plog_trimmed removed;
            nd_plog_trim(plog, *trimmed, &removed);
        }
        (void)nd_remover_step(remover);
    }
    nd_plog_unref(plog);
    nd_remover_free(remover);
    return err;
}

static void check_all(const struct nd_env *env, uint64_t flushed)
{
    struct nd_plog_options options = crash_options(env, NULL);
    struct nd_plog_stats stats;
    struct nd_plog *plog;

    assert_int_equal(nd_plog_open(&plog, &options, FIXTURE_DIR, flushed, flushed, NULL), ND_OK);
    nd_plog_stats(plog, &stats);
    assert_int_equal(stats.end_offset, END);
    assert_int_equal(stats.gap_records, 0);
    assert_true(stats.start_offset <= 3 * ROUND);
    assert_int_equal(fixture_count(plog, 0, END, SIZE), END - stats.start_offset);
    nd_plog_unref(plog);
}

/* Cut the power at change `first`, and in the next life at its change `second` (0: not). */
static bool cut_twice(uint64_t seed, uint64_t first, uint64_t second, bool *second_fired)
{
    struct sim_env *sim = sim_env_new(seed);
    const struct nd_env *env = sim_env_get(sim);
    uint64_t flushed = 0, trimmed = 0;

    sim_env_set_direct(sim, seed % 2 == 0);
    sim_env_cut_at(sim, first);
    enum nd_err err = workload(env, &flushed, &trimmed);
    bool fired = sim_env_is_cut(sim);
    assert_true(fired || err == ND_OK);
    sim_env_restart(sim);
    if (second > 0) {
        sim_env_cut_at(sim, second);
        nd_ignore(workload(env, &flushed, &trimmed), "cut again");
        *second_fired = sim_env_is_cut(sim);
        sim_env_restart(sim);
    }
    assert_int_equal(workload(env, &flushed, &trimmed), ND_OK);
    assert_int_equal(flushed, END);
    check_all(env, flushed);
    sim_env_free(sim);
    return fired;
}

/* I-29, I-30, I-31, I-33 */
static void plog__survives_a_power_cut_at_every_change(void **state)
{
    (void)state;

    for (uint64_t seed = 1; seed <= 4; seed++) {
        bool ignored, fired = true;
        for (uint64_t first = 1; fired; first++) {
            fired = cut_twice(seed, first, 0, &ignored);
        }
    }
}

static void plog__survives_a_second_cut_while_it_recovers(void **state)
{
    (void)state;

    for (uint64_t first = 12; first < 60; first += 11) {
        bool fired = true;
        for (uint64_t second = 1; fired; second++) {
            (void)cut_twice(first, first, second, &fired);
        }
    }
}

/* --- threads --- */

struct shared {
    struct nd_plog *plog;
    _Atomic uint64_t start, end;
    _Atomic bool over;
    _Atomic uint64_t good, wrong;
};

/* Is what is served at `offset` the record of this offset? No asserts: not the test's thread. */
static bool served_right(const struct nd_frame_data *frame, uint64_t offset)
{
    uint8_t payload[SIZE];
    struct nd_record_view view;
    size_t size;
    size_t at = nd_run_seek(frame->records, (uint32_t)(offset - frame->base_offset));

    fixture_payload(offset, payload, sizeof payload);
    return nd_record_get(nd_slice_make(frame->records.data + at, frame->records.size - at), &view,
                         &size) == ND_OK &&
           nd_slice_equal(view.payload, nd_slice_make(payload, sizeof payload));
}

static void reader_run(void *arg)
{
    struct shared *shared = arg;
    uint64_t seed = (uint64_t)(uintptr_t)&seed;

    while (!atomic_load(&shared->over)) {
        struct nd_frame_data frame;
        uint64_t start = atomic_load(&shared->start), end = atomic_load(&shared->end), next;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t offset = start + (seed >> 33) % (end - start + 20);
        enum nd_err err = nd_plog_read(shared->plog, offset, &frame, &next, NULL);
        bool in_range = offset >= atomic_load(&shared->start) && offset < end;
        bool wrong = err != ND_OK && (err != ND_ERR_NOT_FOUND || in_range);
        if (err == ND_OK) {
            wrong = !served_right(&frame, offset);
            atomic_fetch_add(&shared->good, 1);
            nd_block_unref(frame.block);
        }
        atomic_fetch_add(&shared->wrong, wrong);
    }
}

/* I-42: readers at the tail and everywhere else, while segments are written, trimmed and shortened.
 */
static void read_vs_retention_vs_discard(void **state)
{
    char *dir = temp_dir_new();
    struct nd_thread threads[2] = {{0}, {0}};
    struct shared shared = {.plog = NULL};
    (void)state;
    const struct nd_env *env = nd_env_posix();
    struct nd_remover *remover = nd_remover_new(env, 4 << 10, 0, NULL);
    struct nd_plog_options options = crash_options(env, remover);
    char path[1200];
    snprintf(path, sizeof path, "%s/p00001", dir);
    assert_int_equal(nd_plog_open(&shared.plog, &options, path, 0, UINT64_MAX, NULL), ND_OK);
    assert_int_equal(fixture_flush(env, shared.plog, 0, 20, SIZE), ND_OK);
    atomic_store(&shared.end, 20);
    for (size_t i = 0; i < ND_ARRAY_SIZE(threads); i++) {
        assert_true(nd_thread_start(&threads[i], "reader", reader_run, &shared));
    }

    for (uint64_t base = 20; base < 2000; base += 20) {
        assert_int_equal(fixture_flush(env, shared.plog, base, 20, SIZE), ND_OK);
        atomic_store(&shared.end, base + 20);
        if (base % 200 == 0 && base > 400) {
            atomic_store(&shared.start, base - 400);
            struct nd_plog_trimmed removed;
            nd_plog_trim(shared.plog, base - 400, &removed);
        }
        (void)nd_remover_step(remover);
        (void)nd_remover_step(remover);
    }

    atomic_store(&shared.over, true);
    nd_thread_join(&threads[0]);
    nd_thread_join(&threads[1]);
    assert_int_equal(atomic_load(&shared.wrong), 0);
    assert_true(atomic_load(&shared.good) > 0);
    nd_plog_unref(shared.plog);
    nd_remover_free(remover);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plog__survives_a_power_cut_at_every_change),
        cmocka_unit_test(plog__survives_a_second_cut_while_it_recovers),
        cmocka_unit_test(read_vs_retention_vs_discard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
