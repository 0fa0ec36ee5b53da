/* storage/plog: rounds, reading, rolling, reopening, damage. */
#include "storage/plog.h"
#include "storage/remove.h"
#include "storage/segment.h"
#include "tests/unit/storage/plog_case.h"

enum { SIZE = 100 }; /* of a payload */

static struct nd_plog_stats stats_of(const struct fixture *f)
{
    struct nd_plog_stats stats;

    nd_plog_stats(f->plog, &stats);
    return stats;
}

static enum nd_err reopen(struct fixture *f, uint64_t flushed, uint64_t wal_start)
{
    nd_plog_unref(f->plog);
    f->plog = NULL;
    return nd_plog_open(&f->plog, &f->options, FIXTURE_DIR, flushed, wal_start, NULL);
}

/* Rounds of `count` records up to `end`. */
static void fill(struct fixture *f, uint64_t first, uint64_t end, uint32_t count)
{
    for (; first < end; first += count) {
        assert_int_equal(fixture_flush(f->env, f->plog, first, count, SIZE), ND_OK);
    }
}

static const char *log_path(uint64_t base)
{
    static char path[200];

    snprintf(path, sizeof path, FIXTURE_DIR "/%020" PRIu64 ".log", base);
    return path;
}

static uint64_t file_size(const struct fixture *f, const char *path)
{
    struct nd_file_stat stat;

    return f->env->stat(f->env->impl, path, &stat, NULL) == ND_OK ? stat.size : UINT64_MAX;
}

/* --- writing and reading --- */

static void plog__is_empty_at_first(void **state)
{
    struct fixture *f = *state;
    struct nd_frame_data frame;
    uint64_t next = 0;

    struct nd_plog_stats stats = stats_of(f);
    assert_int_equal(stats.segments, 0);
    assert_int_equal(stats.start_offset, 0);
    assert_int_equal(stats.end_offset, 0);
    assert_int_equal(nd_plog_read(f->plog, 0, &frame, &next, NULL), ND_ERR_NOT_FOUND);
    assert_true(next == UINT64_MAX);
    assert_int_equal(nd_plog_pending_file(f->plog), -1);
}

static void plog__reads_every_record_back_across_segments(void **state)
{
    struct fixture *f = *state;
    uint64_t next;

    fill(f, 0, 3000, 37);

    struct nd_plog_stats stats = stats_of(f);
    assert_int_equal(stats.end_offset, 3034);
    assert_true(stats.segments > 3);
    assert_int_equal(stats.gap_records, 0);
    assert_int_equal(stats.oldest_ms, 1000);
    assert_int_equal(fixture_count(f->plog, 0, 3034, SIZE), 3034);
    assert_int_equal(fixture_read(f->plog, 3034, SIZE, &next), ND_ERR_NOT_FOUND);
}

/* I-28: between write and verify nothing is served. */
static void plog__serves_nothing_before_it_is_verified(void **state)
{
    struct fixture *f = *state;
    struct nd_tail_run run = fixture_run(0, 10, SIZE);
    uint64_t end, next;

    assert_int_equal(nd_plog_write(f->plog, &run, 1, NULL), ND_OK);
    nd_block_unref(run.block);
    assert_int_equal(fixture_read(f->plog, 0, SIZE, &next), ND_ERR_NOT_FOUND);
    assert_int_equal(stats_of(f).end_offset, 0);
    nd_plog_synced(f->plog, f->env->sync(f->env->impl, nd_plog_pending_file(f->plog), NULL), false);
    assert_int_equal(fixture_read(f->plog, 0, SIZE, &next), ND_ERR_NOT_FOUND);
    assert_int_equal(nd_plog_verify(f->plog, &end, NULL), ND_OK);
    assert_int_equal(end, 10);
    assert_int_equal(fixture_count(f->plog, 0, 10, SIZE), 10);
}

static void plog_write__passes_over_what_it_has(void **state)
{
    struct fixture *f = *state;
    struct nd_tail_run runs[2] = {fixture_run(0, 20, SIZE), fixture_run(20, 10, SIZE)};
    fill(f, 0, 15, 15);

    assert_int_equal(fixture_flush_runs(f->env, f->plog, runs, 2), ND_OK);
    uint64_t size = stats_of(f).size_bytes;
    assert_int_equal(fixture_flush_runs(f->env, f->plog, runs, 2), ND_OK);

    assert_int_equal(stats_of(f).size_bytes, size);
    assert_int_equal(stats_of(f).end_offset, 30);
    assert_int_equal(stats_of(f).gap_records, 0);
    assert_int_equal(fixture_count(f->plog, 0, 30, SIZE), 30);
    nd_block_unref(runs[0].block);
    nd_block_unref(runs[1].block);
}

static void plog__records_a_gap_in_front_of_a_run(void **state)
{
    struct fixture *f = *state;
    uint64_t next = 0;
    fill(f, 0, 10, 10);
    fill(f, 25, 35, 10);

    assert_int_equal(fixture_read(f->plog, 12, SIZE, &next), ND_ERR_NOT_FOUND);
    assert_int_equal(next, 25);
    assert_int_equal(stats_of(f).gap_records, 15);
    assert_int_equal(reopen(f, 35, UINT64_MAX), ND_OK);
    assert_int_equal(stats_of(f).gap_records, 15);
    assert_int_equal(fixture_count(f->plog, 0, 35, SIZE), 20);
}

/* I-36: a round larger than a frame is split, and the largest record fits one. */
static void big_batch_splits_frames(void **state)
{
    struct fixture *f = *state;
    uint64_t next;

    assert_int_equal(fixture_flush(f->env, f->plog, 0, 1000, SIZE), ND_OK);
    assert_int_equal(fixture_flush(f->env, f->plog, 1000, 1, ND_PAYLOAD_SIZE_MAX), ND_OK);
    assert_int_equal(fixture_flush(f->env, f->plog, 1001, 3, ND_PAYLOAD_SIZE_MAX), ND_OK);

    assert_int_equal(fixture_count(f->plog, 0, 1000, SIZE), 1000);
    for (uint64_t offset = 1000; offset < 1004; offset++) {
        assert_int_equal(fixture_read(f->plog, offset, ND_PAYLOAD_SIZE_MAX, &next), ND_OK);
    }
    assert_int_equal(reopen(f, 1004, UINT64_MAX), ND_OK);
    assert_int_equal(fixture_count(f->plog, 0, 1000, SIZE), 1000);
}

/* I-41 */
static void mixed_codec_log(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < 8; i++) {
        f->options.codec = i % 2 == 0 ? ND_CODEC_NONE : ND_CODEC_ZSTD;
        f->options.level = (enum nd_level)(i % 4);
        assert_int_equal(reopen(f, i * 50, UINT64_MAX), ND_OK);
        fill(f, i * 50, i * 50 + 50, 50);
    }

    assert_int_equal(fixture_count(f->plog, 0, 400, SIZE), 400);
}

static void plog__works_without_o_direct(void **state)
{
    struct fixture *f = *state;

    sim_env_set_direct(f->sim, false);
    fill(f, 0, 200, 20);

    assert_true(sim_env_calls(f->sim, SIM_DROP_CACHE) > 0);
    assert_int_equal(fixture_count(f->plog, 0, 200, SIZE), 200);
}

/* --- reopening --- */

static void plog_open__scans_only_the_active_segment(void **state)
{
    struct fixture *f = *state;
    fill(f, 0, 5000, 100);
    struct nd_plog_stats before = stats_of(f);
    assert_true(before.segments > 4);
    uint64_t reads = sim_env_calls(f->sim, SIM_PREAD);

    assert_int_equal(reopen(f, 5000, UINT64_MAX), ND_OK);

    struct nd_plog_stats after = stats_of(f);
    assert_true(sim_env_calls(f->sim, SIM_PREAD) - reads <= 4 * after.segments);
    assert_int_equal(after.segments, before.segments);
    assert_int_equal(after.start_offset, 0);
    assert_int_equal(after.end_offset, 5000);
    assert_int_equal(after.size_bytes, before.size_bytes);
    assert_int_equal(after.oldest_ms, before.oldest_ms);
    assert_int_equal(fixture_count(f->plog, 0, 5000, SIZE), 5000);
    fill(f, 5000, 5200, 100);
    assert_int_equal(stats_of(f).segments >= before.segments, 1);
    assert_int_equal(fixture_count(f->plog, 0, 5200, SIZE), 5200);
}

static void plog_open__rebuilds_an_index_that_is_missing_or_wrong(void **state)
{
    struct fixture *f = *state;
    char index[200], other[200];
    struct nd_file_stat stat;
    fill(f, 0, 3000, 100);
    snprintf(index, sizeof index, FIXTURE_DIR "/%020d.index", 0);

    assert_int_equal(f->env->unlink(f->env->impl, index, NULL), ND_OK);
    assert_int_equal(reopen(f, 3000, UINT64_MAX), ND_OK);
    assert_int_equal(f->env->stat(f->env->impl, index, &stat, NULL), ND_OK);
    assert_int_equal(fixture_count(f->plog, 0, 3000, SIZE), 3000);

    for (uint64_t at = 0; at < stat.size; at += 7) {
        sim_env_damage(f->sim, index, at, 0x40);
        assert_int_equal(reopen(f, 3000, UINT64_MAX), ND_OK);
        assert_int_equal(stats_of(f).gap_records, 0);
    }
    assert_int_equal(fixture_count(f->plog, 0, 3000, SIZE), 3000);

    /* The index of another segment under this name. */
    uint64_t second = 0;
    struct nd_frame_data frame;
    for (uint64_t base = 1; base < 3000 && second == 0; base++) {
        second = file_size(f, log_path(base)) != UINT64_MAX ? base : 0;
    }
    snprintf(other, sizeof other, FIXTURE_DIR "/%020" PRIu64 ".index", second);
    assert_int_equal(f->env->rename(f->env->impl, other, index, NULL), ND_OK);
    assert_int_equal(reopen(f, 3000, UINT64_MAX), ND_OK);
    assert_int_equal(nd_plog_read(f->plog, 10, &frame, &second, NULL), ND_OK);
    nd_block_unref(frame.block);
    assert_int_equal(fixture_count(f->plog, 0, 3000, SIZE), 3000);
}

static void plog_open__refuses_the_files_of_another_store(void **state)
{
    struct fixture *f = *state;
    struct nd_errmsg msg = {{0}};
    fill(f, 0, 10, 10);
    nd_plog_unref(f->plog);

    f->options.store_id[3] ^= 1;
    assert_int_equal(nd_plog_open(&f->plog, &f->options, FIXTURE_DIR, 10, UINT64_MAX, &msg),
                     ND_ERR_CORRUPT);
    assert_non_null(strstr(msg.text, "another store"));
    assert_non_null(strstr(msg.text, ".log"));
    f->options.store_id[3] ^= 1;
    assert_int_equal(nd_plog_open(&f->plog, &f->options, FIXTURE_DIR, 10, UINT64_MAX, NULL), ND_OK);
}

static void plog_open__starts_at_the_flushed_offset_when_nothing_is_stored(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(reopen(f, 120, 120), ND_OK);
    assert_int_equal(stats_of(f).start_offset, 120);
    assert_int_equal(stats_of(f).end_offset, 120);
    fill(f, 120, 130, 10);
    assert_int_equal(stats_of(f).start_offset, 120);
    assert_int_equal(fixture_count(f->plog, 0, 130, SIZE), 10);
}

/* --- damage --- */

/* I-33, I-35: flip a bit in every byte of the log. What is left is served unchanged, the rest is a
 * gap or CORRUPT, offsets never move back, and the file is not cut. */
static void open_bitflip_every_byte_keeps_later_frames(void **state)
{
    struct fixture *f = *state;
    f->options.frame_bytes = 600; /* a few records each */
    f->options.codec = ND_CODEC_NONE;
    assert_int_equal(reopen(f, 0, UINT64_MAX), ND_OK);
    fill(f, 0, 20, 10);
    uint64_t size = file_size(f, log_path(0));

    for (uint64_t at = 0; at < size; at++) {
        sim_env_damage(f->sim, log_path(0), at, (uint8_t)(1u << at % 8));
        assert_int_equal(reopen(f, 20, UINT64_MAX), ND_OK);
        assert_int_equal(stats_of(f).end_offset, 20);
        uint64_t good = fixture_count(f->plog, 0, 20, SIZE);
        assert_true(good >= 15);
        assert_int_equal(stats_of(f).gap_records, 20 - good);
        assert_int_equal(file_size(f, log_path(0)), size);
        sim_env_damage(f->sim, log_path(0), at, (uint8_t)(1u << at % 8));
    }
}

/* The same with the log open: the damage is met by the reader, who is told where to go on. */
static void read_bitflip_every_byte_never_serves_wrong_bytes(void **state)
{
    struct fixture *f = *state;
    f->options.frame_bytes = 600;
    assert_int_equal(reopen(f, 0, UINT64_MAX), ND_OK);
    fill(f, 0, 20, 10);
    uint64_t size = file_size(f, log_path(0));

    for (uint64_t at = ND_SEGMENT_HEADER_SIZE; at < size; at++) {
        uint64_t good = 0;
        sim_env_damage(f->sim, log_path(0), at, 0x04);
        for (uint64_t offset = 0; offset < 20; offset++) {
            uint64_t next = 0;
            enum nd_err err = fixture_read(f->plog, offset, SIZE, &next);
            good += err == ND_OK;
            assert_true(err == ND_OK || err == ND_ERR_CORRUPT || err == ND_ERR_NOT_FOUND);
            if (err != ND_OK && next != UINT64_MAX) {
                uint64_t ignored;
                assert_true(next > offset);
                assert_int_equal(fixture_read(f->plog, next, SIZE, &ignored), ND_OK);
            }
        }
        assert_true(good >= 15);
        sim_env_damage(f->sim, log_path(0), at, 0x04);
    }
    assert_int_equal(fixture_count(f->plog, 0, 20, SIZE), 20);
}

/* I-34, adapted: what was torn beyond the flushed offset is cut when the WAL holds it, and its
 * offset is used again in the same file. */
static void open_torn_tail_reuse_offset(void **state)
{
    struct fixture *f = *state;
    fill(f, 0, 10, 10);
    uint64_t good = stats_of(f).size_bytes;
    fill(f, 10, 20, 10);
    sim_env_damage(f->sim, log_path(0), 8192 + 100, 1);

    assert_int_equal(reopen(f, 10, 10), ND_OK);

    assert_int_equal(stats_of(f).end_offset, 10);
    assert_int_equal(stats_of(f).segments, 1);
    assert_int_equal(file_size(f, log_path(0)), good);
    fill(f, 10, 40, 10);
    assert_int_equal(stats_of(f).segments, 1);
    assert_int_equal(fixture_count(f->plog, 0, 40, SIZE), 40);
    assert_int_equal(reopen(f, 40, UINT64_MAX), ND_OK);
    assert_int_equal(fixture_count(f->plog, 0, 40, SIZE), 40);
}

static void plog_open__keeps_valid_frames_beyond_the_flushed_offset(void **state)
{
    struct fixture *f = *state;
    fill(f, 0, 30, 10);

    assert_int_equal(reopen(f, 10, 10), ND_OK);

    assert_int_equal(stats_of(f).end_offset, 30);
    assert_int_equal(fixture_count(f->plog, 0, 30, SIZE), 30);
}

static void plog_open__seals_a_torn_tail_that_the_wal_does_not_hold(void **state)
{
    struct fixture *f = *state;
    fill(f, 0, 20, 10);
    uint64_t size = file_size(f, log_path(0));
    sim_env_damage(f->sim, log_path(0), 8192 + 100, 1);

    assert_int_equal(reopen(f, 10, UINT64_MAX), ND_OK);

    assert_int_equal(stats_of(f).end_offset, 10);
    fill(f, 10, 30, 10);
    assert_int_equal(file_size(f, log_path(0)), size);
    assert_int_equal(stats_of(f).segments, 2);
    for (uint32_t again = 0; again < 2; again++) {
        assert_int_equal(fixture_count(f->plog, 0, 30, SIZE), 30);
        assert_int_equal(reopen(f, 30, UINT64_MAX), ND_OK);
    }
}

static void plog_open__never_cuts_below_the_flushed_offset(void **state)
{
    struct fixture *f = *state;
    fill(f, 0, 30, 10);
    uint64_t size = file_size(f, log_path(0));
    sim_env_damage(f->sim, log_path(0), 3 * 4096 + 100, 1); /* the last round */

    assert_int_equal(reopen(f, 30, 30), ND_OK);

    assert_int_equal(file_size(f, log_path(0)), size);
    assert_int_equal(stats_of(f).end_offset, 30);
    assert_int_equal(stats_of(f).gap_records, 10);
    fill(f, 30, 40, 10);
    assert_int_equal(fixture_count(f->plog, 0, 40, SIZE), 30);
    assert_int_equal(file_size(f, log_path(0)), size);
}

static void plog_open__serves_what_a_damaged_header_leaves(void **state)
{
    struct fixture *f = *state;
    fill(f, 0, 1500, 100);
    uint64_t segments = stats_of(f).segments;
    assert_true(segments > 1);
    sim_env_damage(f->sim, log_path(0), 20, 1);
    sim_env_damage(f->sim, log_path(0), 2048 + 20, 1);

    assert_int_equal(reopen(f, 1500, UINT64_MAX), ND_OK);

    uint64_t good = fixture_count(f->plog, 0, 1500, SIZE), next = 0;
    assert_true(good > 0 && good < 1500);
    assert_int_equal(stats_of(f).gap_records, 1500 - good);
    assert_int_equal(stats_of(f).start_offset, 0);
    assert_int_equal(fixture_read(f->plog, 0, SIZE, &next), ND_ERR_NOT_FOUND);
    assert_int_equal(next, 1500 - good);
}

/* --- failure --- */

/* I-28, I-31, I-35: one call of a round fails, whichever; the round says so, nothing wrong is
 * served, and a repeat brings exactly one copy of each record. */
static void flush__fails_every_call_once_and_repeats_without_copies(void **state)
{
    static const enum sim_call calls[] = {SIM_OPEN, SIM_PREAD, SIM_PWRITE, SIM_SYNC, SIM_SYNC_DIR};
    static const enum sim_fault faults[] = {SIM_FAULT_IO, SIM_FAULT_NO_SPACE,
                                            SIM_FAULT_SHORT_WRITE};
    (void)state;

    for (size_t c = 0; c < ND_ARRAY_SIZE(calls) * ND_ARRAY_SIZE(faults); c++) {
        bool fired = true;
        for (uint64_t nth = 1; fired; nth++) {
            void *inner;
            setup(&inner);
            struct fixture *f = inner;
            f->options.segment_bytes = 24 << 10; /* a roll in the middle */
            assert_int_equal(reopen(f, 0, UINT64_MAX), ND_OK);
            fill(f, 0, 40, 40);
            sim_env_fail_nth(f->sim, calls[c / 3], nth, faults[c % 3]);
            enum nd_err err = fixture_flush(f->env, f->plog, 40, 300, SIZE);
            fired = sim_env_fault_fired(f->sim);
            sim_env_fail_clear(f->sim);
            assert_true(err == ND_OK || fired);
            uint64_t end = stats_of(f).end_offset;
            assert_true(end >= 40 && (err != ND_OK || end == 340));
            assert_int_equal(fixture_count(f->plog, 0, 340, SIZE), end);

            assert_int_equal(fixture_flush(f->env, f->plog, 40, 300, SIZE), ND_OK);
            assert_int_equal(fixture_count(f->plog, 0, 340, SIZE), 340);
            assert_int_equal(stats_of(f).gap_records, 0);
            assert_int_equal(reopen(f, 340, UINT64_MAX), ND_OK);
            assert_int_equal(fixture_count(f->plog, 0, 340, SIZE), 340);
            assert_int_equal(stats_of(f).gap_records, 0);
            teardown(&inner);
        }
    }
}

/* I-35: a sync that fails, and a page cache that shows the bytes all the same. */
static void lying_fsync_never_serves_torn(void **state)
{
    (void)state;

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sim_env *sim = sim_env_new(seed);
        const struct nd_env *env = sim_env_get(sim);
        struct nd_plog_options options = fixture_options(env);
        struct nd_tail_run run = fixture_run(0, 100, SIZE);
        struct nd_plog *plog;
        uint64_t end = 0, next;
        sim_env_set_direct(sim, seed % 2 == 0);
        assert_int_equal(nd_plog_open(&plog, &options, FIXTURE_DIR, 0, UINT64_MAX, NULL), ND_OK);
        assert_int_equal(nd_plog_write(plog, &run, 1, NULL), ND_OK);
        sim_env_fail_nth(sim, SIM_SYNC, 1, SIM_FAULT_IO);
        enum nd_err err = env->sync(env->impl, nd_plog_pending_file(plog), NULL);
        assert_int_equal(err, ND_ERR_IO);
        /* The kernel forgot: the next one says OK, and the log believes it. */
        nd_plog_synced(plog, env->sync(env->impl, nd_plog_pending_file(plog), NULL), false);

        err = nd_plog_verify(plog, &end, NULL);

        struct nd_plog_stats stats;
        nd_plog_stats(plog, &stats);
        assert_int_equal(fixture_count(plog, 0, 100, SIZE), stats.end_offset);
        assert_int_equal(err == ND_OK, stats.end_offset == 100);
        assert_int_equal(fixture_flush_runs(env, plog, &run, 1), ND_OK);
        assert_int_equal(fixture_count(plog, 0, 100, SIZE), 100);
        sim_env_power_cut(sim, seed);
        nd_plog_unref(plog);
        sim_env_restart(sim);
        assert_int_equal(nd_plog_open(&plog, &options, FIXTURE_DIR, 100, UINT64_MAX, NULL), ND_OK);
        assert_int_equal(fixture_count(plog, 0, 100, SIZE), 100);
        assert_int_equal(fixture_read(plog, 100, SIZE, &next), ND_ERR_NOT_FOUND);
        nd_plog_unref(plog);
        nd_block_unref(run.block);
        sim_env_free(sim);
    }
}

static void plog__postpones_on_a_full_disk_and_goes_on_when_there_is_room(void **state)
{
    struct fixture *f = *state;
    fill(f, 0, 20, 20);
    sim_env_set_space(f->sim, sim_env_space_used(f->sim));

    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(fixture_flush(f->env, f->plog, 20, 500, SIZE), ND_ERR_NO_SPACE);
    }
    assert_false(stats_of(f).unflushable);
    assert_int_equal(fixture_count(f->plog, 0, 520, SIZE), 20);
    sim_env_set_space(f->sim, 1 << 30);
    assert_int_equal(fixture_flush(f->env, f->plog, 20, 500, SIZE), ND_OK);

    assert_int_equal(fixture_count(f->plog, 0, 520, SIZE), 520);
    assert_int_equal(stats_of(f).gap_records, 0);
}

static void plog__is_unflushable_after_three_failures_and_heals(void **state)
{
    struct fixture *f = *state;
    struct nd_metrics *metrics = nd_metrics_new();
    f->options.metrics = metrics;
    assert_int_equal(reopen(f, 0, UINT64_MAX), ND_OK);
    struct nd_series *gauge =
        nd_metrics_gauge(metrics, "unflushable_partitions", "",
                         "Partitions whose records cannot be written to their log.");
    fill(f, 0, 10, 10);

    sim_env_fail_from(f->sim, SIM_PWRITE, 1, SIM_FAULT_IO);
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(stats_of(f).unflushable);
        assert_int_equal(fixture_flush(f->env, f->plog, 10, 10, SIZE), ND_ERR_IO);
    }
    assert_true(stats_of(f).unflushable);
    assert_true(nd_series_value(gauge) == 1);
    uint64_t writes = sim_env_calls(f->sim, SIM_PWRITE);
    assert_int_equal(fixture_flush(f->env, f->plog, 10, 10, SIZE), ND_ERR_CORRUPT);
    assert_int_equal(sim_env_calls(f->sim, SIM_PWRITE), writes); /* not due */
    sim_env_advance_ms(f->sim, 10000);
    assert_int_equal(fixture_flush(f->env, f->plog, 10, 10, SIZE), ND_ERR_IO);
    assert_true(sim_env_calls(f->sim, SIM_PWRITE) > writes);
    assert_int_equal(fixture_count(f->plog, 0, 20, SIZE), 10); /* reads go on */
    sim_env_fail_clear(f->sim);
    sim_env_advance_ms(f->sim, 10000);
    assert_int_equal(fixture_flush(f->env, f->plog, 10, 10, SIZE), ND_OK);

    assert_false(stats_of(f).unflushable);
    assert_true(nd_series_value(gauge) == 0);
    assert_int_equal(fixture_count(f->plog, 0, 20, SIZE), 20);
    nd_plog_unref(f->plog);
    f->plog = NULL;
    nd_metrics_free(metrics);
}

/* --- trimming --- */

static void plog_trim__drops_whole_sealed_segments_gently(void **state)
{
    struct fixture *f = *state;
    f->options.remover = nd_remover_new(f->env, 8 << 10, 10, NULL);
    assert_int_equal(reopen(f, 0, UINT64_MAX), ND_OK);
    fill(f, 0, 3000, 100);
    uint64_t next = 0, used = sim_env_space_used(f->sim);
    uint32_t segments = stats_of(f).segments, steps = 0;
    struct nd_plog_trimmed trimmed;

    nd_plog_trim(f->plog, 1500, &trimmed);
    uint64_t start = stats_of(f).start_offset;
    assert_int_equal(trimmed.records, start);
    assert_int_equal(trimmed.segments, segments - stats_of(f).segments);
    assert_true(start > 1000 && start <= 1500);
    assert_int_equal(stats_of(f).start_offset, start);
    assert_true(stats_of(f).segments < segments);
    assert_int_equal(fixture_read(f->plog, start - 1, SIZE, &next), ND_ERR_NOT_FOUND);
    assert_int_equal(next, start);
    assert_int_equal(fixture_count(f->plog, 0, 3000, SIZE), 3000 - start);
    assert_int_equal(sim_env_space_used(f->sim), used); /* nothing was given back yet */
    while (nd_remover_due_ns(f->options.remover) != UINT64_MAX) {
        uint64_t before = sim_env_space_used(f->sim);
        steps += nd_remover_step(f->options.remover);
        assert_true(before - sim_env_space_used(f->sim) <= 8 << 10);
        assert_false(nd_remover_step(f->options.remover)); /* not due */
        sim_env_advance_ms(f->sim, 10);
    }
    assert_true(steps > 8);
    assert_true(sim_env_space_used(f->sim) < used);

    nd_plog_trim(f->plog, 3000, &trimmed); /* the one that is appended to as well */
    assert_int_equal(stats_of(f).segments, 0);
    assert_int_equal(stats_of(f).start_offset, 3000);
    assert_int_equal(fixture_flush(f->env, f->plog, 3000, 10, SIZE), ND_OK); /* and goes on */
    assert_int_equal(fixture_count(f->plog, 2900, 3010, SIZE), 10);
    assert_int_equal(reopen(f, 3010, UINT64_MAX), ND_OK);
    assert_int_equal(stats_of(f).start_offset, 3000);
    nd_plog_unref(f->plog);
    f->plog = NULL;
    nd_remover_free(f->options.remover);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(plog__is_empty_at_first),
        CASE(plog__reads_every_record_back_across_segments),
        CASE(plog__serves_nothing_before_it_is_verified),
        CASE(plog_write__passes_over_what_it_has),
        CASE(plog__records_a_gap_in_front_of_a_run),
        CASE(big_batch_splits_frames),
        CASE(mixed_codec_log),
        CASE(plog__works_without_o_direct),
        CASE(plog_open__scans_only_the_active_segment),
        CASE(plog_open__rebuilds_an_index_that_is_missing_or_wrong),
        CASE(plog_open__refuses_the_files_of_another_store),
        CASE(plog_open__starts_at_the_flushed_offset_when_nothing_is_stored),
        CASE(open_bitflip_every_byte_keeps_later_frames),
        CASE(read_bitflip_every_byte_never_serves_wrong_bytes),
        CASE(open_torn_tail_reuse_offset),
        CASE(plog_open__keeps_valid_frames_beyond_the_flushed_offset),
        CASE(plog_open__seals_a_torn_tail_that_the_wal_does_not_hold),
        CASE(plog_open__never_cuts_below_the_flushed_offset),
        CASE(plog_open__serves_what_a_damaged_header_leaves),
        CASE(flush__fails_every_call_once_and_repeats_without_copies),
        CASE(lying_fsync_never_serves_torn),
        CASE(plog__postpones_on_a_full_disk_and_goes_on_when_there_is_room),
        CASE(plog__is_unflushable_after_three_failures_and_heals),
        CASE(plog_trim__drops_whole_sealed_segments_gently),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
