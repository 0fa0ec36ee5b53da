/* A file of a partition log that is lost (P5): the open says so by name; it does not take it for
 * retention, nor damage for a lost file. */
#include <stdio.h>

#include "storage/segment.h"
#include "tests/unit/storage/plog_fixture.h"

enum { SIZE = 100, RECORDS = 2500 };

struct fixture {
    struct sim_env *sim;
    const struct nd_env *env;
    struct nd_plog_options options;
    struct nd_plog *plog;
    struct nd_errmsg msg;
    uint64_t bases[64]; /* of the segments */
    uint32_t count;
};

static bool segment_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct fixture *f = arg;
    const char *suffix;
    uint64_t base;

    (void)kind;
    if (nd_segment_name_parse(name, &base, &suffix) && strcmp(suffix, ND_SEGMENT_LOG) == 0) {
        assert_true(f->count < ND_ARRAY_SIZE(f->bases));
        f->bases[f->count++] = base;
    }
    return true;
}

static int base_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static enum nd_err open_from(struct fixture *f, uint64_t log_start, uint64_t flushed)
{
    nd_plog_unref(f->plog);
    f->plog = NULL;
    f->options.start_known = true;
    f->options.log_start = log_start;
    f->msg.text[0] = '\0';
    return nd_plog_open(&f->plog, &f->options, FIXTURE_DIR, flushed, UINT64_MAX, &f->msg);
}

static int setup(void **state)
{
    struct fixture *f = nd_xcalloc(1, sizeof *f);

    f->sim = sim_env_new(1);
    f->env = sim_env_get(f->sim);
    f->options = fixture_options(f->env);
    assert_int_equal(open_from(f, 0, 0), ND_OK);
    for (uint64_t base = 0; base < RECORDS; base += 100) {
        assert_int_equal(fixture_flush(f->env, f->plog, base, 100, SIZE), ND_OK);
    }
    nd_plog_unref(f->plog);
    f->plog = NULL;
    assert_int_equal(f->env->list(f->env->impl, FIXTURE_DIR, segment_seen, f, &f->msg), ND_OK);
    qsort(f->bases, f->count, sizeof f->bases[0], base_compare);
    assert_true(f->count >= 4);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    nd_plog_unref(f->plog);
    sim_env_free(f->sim);
    nd_free(f);
    return 0;
}

static void lose(struct fixture *f, uint64_t base)
{
    char *path = nd_segment_path(FIXTURE_DIR, base, ND_SEGMENT_LOG);

    assert_int_equal(f->env->unlink(f->env->impl, path, &f->msg), ND_OK);
    nd_free(path);
}

static void assert_lost(struct fixture *f, uint64_t first, uint64_t next)
{
    char offsets[80];

    snprintf(offsets, sizeof offsets, "offsets %llu to %llu", (unsigned long long)first,
             (unsigned long long)next - 1);
    assert_non_null(strstr(f->msg.text, FIXTURE_DIR));
    assert_non_null(strstr(f->msg.text, offsets));
}

static void plog_p5__any_lost_segment_is_named(void **state)
{
    for (uint32_t i = 0;; i++) {
        struct fixture *f = *state;
        uint32_t count = f->count;
        uint64_t next = i + 1 < count ? f->bases[i + 1] : RECORDS;

        assert_int_equal(open_from(f, 0, RECORDS), ND_OK); /* nothing is missing yet */
        lose(f, f->bases[i]);
        assert_int_equal(open_from(f, 0, RECORDS), ND_ERR_CORRUPT);
        assert_lost(f, f->bases[i], next);
        if (i + 1 == count) {
            return;
        }
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

static void plog_p5__a_log_without_any_file_is_named(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < f->count; i++) {
        lose(f, f->bases[i]);
    }
    assert_int_equal(open_from(f, 0, RECORDS), ND_ERR_CORRUPT);
    assert_lost(f, 0, RECORDS);
    assert_int_equal(open_from(f, RECORDS, RECORDS), ND_OK); /* all of it was let go */
}

static void plog_p5__a_file_that_comes_back_heals_it(void **state)
{
    struct fixture *f = *state;
    char *path = nd_segment_path(FIXTURE_DIR, f->bases[1], ND_SEGMENT_LOG);

    assert_int_equal(f->env->rename(f->env->impl, path, "elsewhere", &f->msg), ND_OK);
    assert_int_equal(open_from(f, 0, RECORDS), ND_ERR_CORRUPT);
    assert_int_equal(f->env->rename(f->env->impl, "elsewhere", path, &f->msg), ND_OK);
    assert_int_equal(open_from(f, 0, RECORDS), ND_OK);
    assert_int_equal(fixture_count(f->plog, 0, RECORDS, SIZE), RECORDS);
    nd_free(path);
}

static void plog_p5__what_retention_took_is_not_lost(void **state)
{
    struct fixture *f = *state;

    lose(f, f->bases[0]);
    assert_int_equal(open_from(f, f->bases[1], RECORDS), ND_OK);
    assert_int_equal(open_from(f, f->bases[1] + 5, RECORDS), ND_OK);
    /* A file that a power cut brought back is no trouble either. */
    assert_int_equal(open_from(f, f->bases[2], RECORDS), ND_OK);
    lose(f, f->bases[2]); /* the one before it came back alone: nothing syncs their order */
    assert_int_equal(open_from(f, f->bases[3], RECORDS), ND_OK);
    assert_int_equal(fixture_count(f->plog, f->bases[3], RECORDS, SIZE), RECORDS - f->bases[3]);
    assert_int_equal(open_from(f, f->bases[3] - 1, RECORDS), ND_ERR_CORRUPT);
}

static void plog_p5__damage_is_a_gap_and_no_lost_file(void **state)
{
    struct fixture *f = *state;
    char *last = nd_segment_path(FIXTURE_DIR, f->bases[f->count - 1], ND_SEGMENT_LOG);
    char *first = nd_segment_path(FIXTURE_DIR, f->bases[0], ND_SEGMENT_LOG);
    char *index = nd_segment_path(FIXTURE_DIR, f->bases[0], ND_SEGMENT_INDEX);
    uint64_t size;
    int file;

    /* The last frame of the first file, whose index is gone, and of the last one. */
    assert_int_equal(f->env->unlink(f->env->impl, index, &f->msg), ND_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const char *path = i == 0 ? first : last;
        assert_int_equal(f->env->open(f->env->impl, path, ND_OPEN_READ, &file, &f->msg), ND_OK);
        assert_int_equal(f->env->file_size(f->env->impl, file, &size, &f->msg), ND_OK);
        f->env->close(f->env->impl, file);
        sim_env_damage(f->sim, path, size - 4096 + 60, 0xff);
    }
    assert_int_equal(open_from(f, 0, RECORDS), ND_OK);
    uint64_t good = fixture_count(f->plog, 0, RECORDS, SIZE);
    assert_true(good > 0 && good < RECORDS);
    /* New records follow in a file of their own; the damage stays what it is. */
    assert_int_equal(fixture_flush(f->env, f->plog, RECORDS, 100, SIZE), ND_OK);
    assert_int_equal(open_from(f, 0, RECORDS + 100), ND_OK);
    assert_int_equal(fixture_count(f->plog, 0, RECORDS + 100, SIZE), good + 100);
    assert_int_equal(open_from(f, 0, RECORDS + 100), ND_OK); /* now with an index */
    nd_free(index);
    nd_free(first);
    nd_free(last);
}

/* Offsets that nobody ever wrote, where a file ends: the next one is named by where they begin. */
static void plog_p5__a_gap_between_two_files_is_no_lost_file(void **state)
{
    struct fixture *f = *state;

    f->options.segment_bytes = 4096; /* every round ends a file */
    assert_int_equal(open_from(f, 0, RECORDS), ND_OK);
    assert_int_equal(fixture_flush(f->env, f->plog, RECORDS, 100, SIZE), ND_OK);
    assert_int_equal(fixture_flush(f->env, f->plog, RECORDS + 500, 100, SIZE), ND_OK);
    assert_int_equal(fixture_flush(f->env, f->plog, RECORDS + 600, 100, SIZE), ND_OK);
    assert_int_equal(open_from(f, 0, RECORDS + 700), ND_OK);
    assert_int_equal(fixture_count(f->plog, 0, RECORDS + 700, SIZE), RECORDS + 300);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(plog_p5__any_lost_segment_is_named),
        CASE(plog_p5__a_log_without_any_file_is_named),
        CASE(plog_p5__a_file_that_comes_back_heals_it),
        CASE(plog_p5__what_retention_took_is_not_lost),
        CASE(plog_p5__damage_is_a_gap_and_no_lost_file),
        CASE(plog_p5__a_gap_between_two_files_is_no_lost_file),
    };
    return cmocka_run_group_tests_name("plog_lost", tests, NULL, NULL);
}
