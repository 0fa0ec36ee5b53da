/* What age allows: the pure decisions, on a log, and looking at a log nobody has open. */
#include "storage/remove.h"
#include "storage/retention.h"
#include "storage/segment.h"
#include "tests/unit/storage/plog_case.h"

enum { SIZE = 200 };

static uint32_t segments(const struct fixture *f)
{
    struct nd_plog_stats stats;

    nd_plog_stats(f->plog, &stats);
    return stats.segments;
}

static void retention_cutoff__of_forever_and_of_a_young_clock_lets_nothing_go(void **state)
{
    (void)state;
    assert_int_equal(nd_retention_cutoff_ms(5000, 0), ND_RETENTION_NOTHING);
    assert_int_equal(nd_retention_cutoff_ms(5000, 5001), ND_RETENTION_NOTHING);
    assert_int_equal(nd_retention_cutoff_ms(-1, 1), ND_RETENTION_NOTHING);
    assert_int_equal(nd_retention_cutoff_ms(5000, UINT64_MAX), ND_RETENTION_NOTHING);
    assert_int_equal(nd_retention_cutoff_ms(5000, 1000), 4000);
}

static void retention_must_roll__only_beyond_one_retention(void **state)
{
    (void)state;
    assert_false(nd_retention_must_roll(1000, 2000, 1000));
    assert_true(nd_retention_must_roll(1000, 2001, 1000));
    assert_false(nd_retention_must_roll(1000, INT64_MAX, 0));
    assert_false(nd_retention_must_roll(2000, 1000, 1)); /* time never goes back; if it does: no */
}

/* Record n has time 1000 + n (plog_fixture.h). */
static void plog_aged__lets_nothing_younger_than_the_cutoff_go(void **state)
{
    struct fixture *f = *state;
    struct nd_plog_aged aged;

    for (uint64_t base = 0; base < 3000; base += 100) {
        assert_int_equal(fixture_flush(f->env, f->plog, base, 100, SIZE), ND_OK);
    }
    assert_true(segments(f) > 3);
    nd_plog_aged(f->plog, ND_RETENTION_NOTHING, 3999, &aged);
    assert_int_equal(aged.start_offset, 0);
    for (int64_t cutoff = 1000; cutoff < 3990; cutoff += 7) {
        nd_plog_aged(f->plog, cutoff, 3999, &aged);
        assert_true(1000 + (int64_t)aged.start_offset <= cutoff); /* all below are older */
        assert_true(aged.goes_ms >= cutoff);
        int64_t goes = aged.goes_ms;
        uint64_t start = aged.start_offset;
        nd_plog_aged(f->plog, goes, 3999, &aged);
        assert_int_equal(aged.start_offset, start); /* not yet */
        nd_plog_aged(f->plog, goes + 1, 3999, &aged);
        assert_true(aged.start_offset > start); /* and now */
    }
    nd_plog_aged(f->plog, 3999, 3999, &aged);
    assert_true(aged.start_offset < 3000); /* the youngest is as old as the cutoff, not older */
    nd_plog_aged(f->plog, 4000, 3999, &aged);
    assert_int_equal(aged.start_offset, 3000);
    assert_int_equal(aged.goes_ms, INT64_MAX);
}

static void plog_write__ends_a_segment_before_it_spans_more_than_one_retention(void **state)
{
    struct fixture *f = *state;
    struct nd_plog_aged aged;

    nd_plog_set_retention(f->plog, 50);
    for (uint64_t base = 0; base < 400; base += 5) { /* slow: far from filling a segment */
        assert_int_equal(fixture_flush(f->env, f->plog, base, 5, 24), ND_OK);
    }
    assert_in_range(segments(f), 400 / 51, 400 / 46 + 1);
    /* A record is gone at the latest when it is two retentions old. */
    for (int64_t now = 1000 + 101; now < 1400; now++) {
        nd_plog_aged(f->plog, nd_retention_cutoff_ms(now, 50), 1399, &aged);
        assert_true(1000 + (int64_t)aged.start_offset >= now - 100);
        assert_true(1000 + (int64_t)aged.start_offset <= now - 50);
    }
    /* Also one round, even one frame, that spans much more. */
    assert_int_equal(fixture_flush(f->env, f->plog, 400, 300, 24), ND_OK);
    nd_plog_aged(f->plog, nd_retention_cutoff_ms(1000 + 700 + 51, 50), 1699, &aged);
    assert_int_equal(aged.start_offset, 700);
    for (uint64_t offset = 400; offset < 700; offset += 60) {
        nd_plog_aged(f->plog, 1000 + (int64_t)offset, 1699, &aged);
        assert_true(aged.start_offset + 51 >= offset);
    }
    assert_int_equal(fixture_count(f->plog, 0, 700, 24), 700);
}

static void segment_path_of(uint64_t base, const char *suffix, char *out, size_t size)
{
    char *path = nd_segment_path(FIXTURE_DIR, base, suffix);
    snprintf(out, size, "%s", path);
    nd_free(path);
}

static void plog_aged__takes_the_successors_word_for_a_damaged_segment(void **state)
{
    struct fixture *f = *state;
    struct nd_plog_aged aged;
    char path[300];
    uint8_t zeros[4096] = {0};
    int file;

    for (uint64_t base = 0; base < 1000; base += 100) {
        assert_int_equal(fixture_flush(f->env, f->plog, base, 100, SIZE), ND_OK);
    }
    nd_plog_aged(f->plog, 1001, 1999, &aged);
    nd_plog_aged(f->plog, aged.goes_ms + 1, 1999, &aged);
    uint64_t second = aged.start_offset; /* where the second segment begins */
    nd_plog_unref(f->plog);
    f->plog = NULL;
    segment_path_of(0, ND_SEGMENT_LOG, path, sizeof path);
    assert_int_equal(f->env->open(f->env->impl, path, ND_OPEN_WRITE, &file, NULL), ND_OK);
    assert_int_equal(f->env->pwrite(f->env->impl, file, zeros, sizeof zeros, 0, NULL), ND_OK);
    f->env->close(f->env->impl, file);
    assert_int_equal(nd_plog_open(&f->plog, &f->options, FIXTURE_DIR, 1000, UINT64_MAX, NULL),
                     ND_OK);
    nd_plog_aged(f->plog, 1000 + (int64_t)second, 1999, &aged);
    assert_int_equal(aged.start_offset, 0); /* what it held may be that young */
    nd_plog_aged(f->plog, 1001 + (int64_t)second, 1999, &aged);
    assert_int_equal(aged.start_offset, second);
}

static void plog_trim__drops_the_segment_that_is_appended_to(void **state)
{
    struct fixture *f = *state;
    struct nd_plog_trimmed trimmed;

    assert_int_equal(fixture_flush(f->env, f->plog, 0, 50, SIZE), ND_OK);
    assert_false(nd_plog_trimmable(f->plog, 49));
    nd_plog_trim(f->plog, 49, &trimmed);
    assert_int_equal(trimmed.segments, 0);
    assert_true(nd_plog_trimmable(f->plog, 50));
    nd_plog_trim(f->plog, 50, &trimmed);
    assert_int_equal(trimmed.records, 50);
    assert_int_equal(segments(f), 0);
    assert_false(nd_plog_trimmable(f->plog, UINT64_MAX - 1));
    assert_int_equal(fixture_flush(f->env, f->plog, 50, 50, SIZE), ND_OK); /* at the next offset */
    assert_int_equal(fixture_count(f->plog, 50, 100, SIZE), 50);
}

static void log_peek__tells_what_opening_would(void **state)
{
    struct fixture *f = *state;
    struct nd_log_peek peek;
    struct nd_plog_stats stats;
    char path[300];

    assert_int_equal(nd_log_peek(&peek, f->env, "data/topics/none", fixture_store_id, true, NULL),
                     ND_OK);
    assert_int_equal(peek.segments, 0);
    assert_int_equal(peek.goes_ms, INT64_MAX);
    assert_int_equal(fixture_flush(f->env, f->plog, 0, 50, SIZE), ND_OK);
    assert_int_equal(nd_log_peek(&peek, f->env, FIXTURE_DIR, fixture_store_id, true, NULL), ND_OK);
    assert_int_equal(peek.segments, 1);
    assert_int_equal(peek.oldest_ms, 1000);
    assert_int_equal(peek.goes_ms, 1000); /* it has no index: from here on it must be opened */
    for (uint64_t base = 50; base < 1000; base += 50) {
        assert_int_equal(fixture_flush(f->env, f->plog, base, 50, SIZE), ND_OK);
    }
    nd_plog_stats(f->plog, &stats);
    assert_int_equal(nd_log_peek(&peek, f->env, FIXTURE_DIR, fixture_store_id, true, NULL), ND_OK);
    assert_int_equal(peek.segments, stats.segments);
    assert_true(peek.size_bytes >= stats.size_bytes);
    struct nd_plog_aged aged;
    nd_plog_aged(f->plog, ND_RETENTION_NOTHING, 1999, &aged);
    assert_int_equal(peek.goes_ms, aged.goes_ms); /* of a sealed one: exactly */
    segment_path_of(0, ND_SEGMENT_INDEX, path, sizeof path);
    assert_int_equal(f->env->unlink(f->env->impl, path, NULL), ND_OK);
    assert_int_equal(nd_log_peek(&peek, f->env, FIXTURE_DIR, fixture_store_id, false, NULL), ND_OK);
    assert_int_equal(peek.goes_ms, 1000);
    assert_int_equal(peek.size_bytes, 0);
}

static void log_peek__of_damage_or_a_failing_disk_claims_nothing(void **state)
{
    struct fixture *f = *state;
    struct nd_log_peek peek;
    uint8_t zeros[4096 + 64] = {0};
    char path[300];
    int file;

    assert_int_equal(fixture_flush(f->env, f->plog, 0, 50, SIZE), ND_OK);
    sim_env_fail_nth(f->sim, SIM_LIST, 1, SIM_FAULT_IO);
    assert_int_equal(nd_log_peek(&peek, f->env, FIXTURE_DIR, fixture_store_id, true, NULL),
                     ND_ERR_IO);
    sim_env_fail_nth(f->sim, SIM_OPEN, 1, SIM_FAULT_IO);
    assert_int_equal(nd_log_peek(&peek, f->env, FIXTURE_DIR, fixture_store_id, true, NULL),
                     ND_ERR_IO);
    sim_env_fail_clear(f->sim);
    segment_path_of(0, ND_SEGMENT_LOG, path, sizeof path);
    assert_int_equal(f->env->open(f->env->impl, path, ND_OPEN_WRITE, &file, NULL), ND_OK);
    assert_int_equal(f->env->pwrite(f->env->impl, file, zeros, sizeof zeros, 0, NULL), ND_OK);
    f->env->close(f->env->impl, file);
    assert_int_equal(nd_log_peek(&peek, f->env, FIXTURE_DIR, fixture_store_id, true, NULL), ND_OK);
    assert_int_equal(peek.segments, 1);
    assert_int_equal(peek.goes_ms, ND_RETENTION_NOTHING);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(retention_cutoff__of_forever_and_of_a_young_clock_lets_nothing_go),
        CASE(retention_must_roll__only_beyond_one_retention),
        CASE(plog_aged__lets_nothing_younger_than_the_cutoff_go),
        CASE(plog_write__ends_a_segment_before_it_spans_more_than_one_retention),
        CASE(plog_aged__takes_the_successors_word_for_a_damaged_segment),
        CASE(plog_trim__drops_the_segment_that_is_appended_to),
        CASE(log_peek__tells_what_opening_would),
        CASE(log_peek__of_damage_or_a_failing_disk_claims_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
