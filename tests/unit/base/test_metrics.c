#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "storage/base/metrics.h"
#include "storage/base/thread.h"

#include "tests/support/nd_test.h"

/* The text up to the process's own metrics, which differ from run to run. nd_buf_release. */
static const char *text_of(struct nd_metrics *m, struct nd_buf *buf)
{
    nd_buf_init(buf, 1 << 20);
    nd_metrics_text(m, buf);
    nd_buf_put_u8(buf, '\0');
    assert_false(nd_buf_failed(buf));
    char *process = strstr((char *)buf->data, "# HELP process_");
    assert_non_null(process);
    *process = '\0';
    return (const char *)buf->data;
}

static void metrics_text__is_sorted_with_help_and_type_once(void **state)
{
    static const double buckets[] = {0.005, 0.1, 1};
    struct nd_metrics *m = nd_metrics_new();
    struct nd_buf buf;

    (void)state;
    struct nd_series *lag = nd_metrics_gauge(m, "lag_seconds", "", "Lag \\ or\nso.");
    struct nd_series *b = nd_metrics_counter(m, "records_total", "topic=\"b\"", "Records.");
    struct nd_series *a = nd_metrics_counter(m, "records_total", "topic=\"a\"", "ignored");
    struct nd_series *sync =
        nd_metrics_histogram(m, "sync_seconds", "disk=\"d\"", "Sync.", buckets, 3);
    struct nd_series *bare = nd_metrics_histogram(m, "bare", "", "Bare.", buckets, 1);
    nd_series_set(lag, 0.1);
    nd_series_add(a, 1);
    nd_series_add(b, UINT64_C(9007199254740993)); /* 2^53 + 1: not a double */
    nd_series_observe(sync, 0.005);               /* a bound belongs to its bucket */
    nd_series_observe(sync, 0.05);
    nd_series_observe(sync, 5);
    nd_series_observe(bare, 2);

    assert_string_equal(text_of(m, &buf), "# HELP narad_bare Bare.\n"
                                          "# TYPE narad_bare histogram\n"
                                          "narad_bare_bucket{le=\"0.005\"} 0\n"
                                          "narad_bare_bucket{le=\"+Inf\"} 1\n"
                                          "narad_bare_sum 2\n"
                                          "narad_bare_count 1\n"
                                          "# HELP narad_lag_seconds Lag \\\\ or\\nso.\n"
                                          "# TYPE narad_lag_seconds gauge\n"
                                          "narad_lag_seconds 0.1\n"
                                          "# HELP narad_records_total Records.\n"
                                          "# TYPE narad_records_total counter\n"
                                          "narad_records_total{topic=\"a\"} 1\n"
                                          "narad_records_total{topic=\"b\"} 9007199254740993\n"
                                          "# HELP narad_sync_seconds Sync.\n"
                                          "# TYPE narad_sync_seconds histogram\n"
                                          "narad_sync_seconds_bucket{disk=\"d\",le=\"0.005\"} 1\n"
                                          "narad_sync_seconds_bucket{disk=\"d\",le=\"0.1\"} 2\n"
                                          "narad_sync_seconds_bucket{disk=\"d\",le=\"1\"} 2\n"
                                          "narad_sync_seconds_bucket{disk=\"d\",le=\"+Inf\"} 3\n"
                                          "narad_sync_seconds_sum{disk=\"d\"} 5.055\n"
                                          "narad_sync_seconds_count{disk=\"d\"} 3\n");
    nd_buf_release(&buf);
    nd_metrics_free(m);
}

static void metrics_text__spells_special_numbers(void **state)
{
    struct nd_metrics *m = nd_metrics_new();
    struct nd_buf buf;

    (void)state;
    nd_series_set(nd_metrics_gauge(m, "a", "", "h"), (double)INFINITY);
    nd_series_set(nd_metrics_gauge(m, "b", "", "h"), (double)-INFINITY);
    nd_series_set(nd_metrics_gauge(m, "c", "", "h"), (double)NAN);
    nd_series_set(nd_metrics_gauge(m, "d", "", "h"), 1e-9);
    nd_series_set(nd_metrics_gauge(m, "e", "", "h"), 0.1 + 0.2);
    nd_series_set(nd_metrics_gauge(m, "f", "", "h"), 123456789);
    const char *text = text_of(m, &buf);

    assert_non_null(strstr(text, "\nnarad_a +Inf\n"));
    assert_non_null(strstr(text, "\nnarad_b -Inf\n"));
    assert_non_null(strstr(text, "\nnarad_c NaN\n"));
    assert_non_null(strstr(text, "\nnarad_d 1e-09\n"));
    assert_non_null(strstr(text, "\nnarad_e 0.30000000000000004\n"));
    assert_non_null(strstr(text, "\nnarad_f 123456789\n"));
    nd_buf_release(&buf);
    nd_metrics_free(m);
}

static void metrics__finds_the_series_again(void **state)
{
    struct nd_metrics *m = nd_metrics_new();

    (void)state;
    struct nd_series *series = nd_metrics_counter(m, "x_total", "a=\"1\"", "h");
    assert_ptr_equal(nd_metrics_counter(m, "x_total", "a=\"1\"", "h"), series);
    assert_ptr_not_equal(nd_metrics_counter(m, "x_total", "a=\"2\"", "h"), series);
    assert_ptr_not_equal(nd_metrics_counter(m, "x_total", "", "h"), series);
    nd_metrics_free(m);
}

static void series__counts_up_and_gauges_down(void **state)
{
    struct nd_metrics *m = nd_metrics_new();

    (void)state;
    struct nd_series *gauge = nd_metrics_gauge(m, "g", "", "h");
    nd_series_add(gauge, 5);
    nd_series_sub(gauge, 7);
    assert_true(nd_series_value(gauge) == -2);
    struct nd_series *counter = nd_metrics_counter(m, "c", "", "h");
    nd_series_add(counter, 5);
    assert_true(nd_series_value(counter) == 5);
    static const double buckets[] = {1};
    struct nd_series *histogram = nd_metrics_histogram(m, "h", "", "h", buckets, 1);
    nd_series_observe(histogram, 0.5);
    nd_series_observe(histogram, (double)NAN);
    assert_true(nd_series_value(histogram) == 2);
    nd_metrics_free(m);
}

static void metrics__null_registry_counts_nowhere(void **state)
{
    static const double buckets[] = {1};

    (void)state;
    struct nd_series *counter = nd_metrics_counter(NULL, "c", "", "h");
    struct nd_series *gauge = nd_metrics_gauge(NULL, "g", "", "h");
    struct nd_series *histogram = nd_metrics_histogram(NULL, "h", "", "h", buckets, 1);
    nd_series_add(counter, 1);
    nd_series_set(gauge, 1);
    nd_series_sub(gauge, 1);
    nd_series_observe(histogram, 1);
    nd_metrics_add_collector(NULL, NULL, NULL);
    nd_metrics_remove(NULL, "a", "b");
    assert_true(nd_series_value(counter) == 0);
    nd_metrics_free(NULL);
}

static void metrics_remove__takes_what_begins_with_the_label(void **state)
{
    struct nd_metrics *m = nd_metrics_new();
    struct nd_buf buf;
    char tricky[100] = "";

    (void)state;
    nd_metrics_label(tricky, sizeof tricky, "text", "x,topic=\"a\"");
    (void)nd_metrics_counter(m, "a_total", "topic=\"a\"", "h");
    (void)nd_metrics_counter(m, "a_total", "topic=\"a\",partition=\"0\"", "h");
    (void)nd_metrics_counter(m, "b_total", "topic=\"a\"", "h");
    (void)nd_metrics_counter(m, "c_total", "topic=\"ab\"", "h");
    (void)nd_metrics_counter(m, "c_total", "subtopic=\"a\"", "h");
    (void)nd_metrics_counter(m, "c_total", tricky, "h");
    (void)nd_metrics_counter(m, "c_total", "topic=\"a,b\"", "h");
    nd_metrics_remove(m, "topic", "a");

    assert_string_equal(text_of(m, &buf), "# HELP narad_c_total h\n"
                                          "# TYPE narad_c_total counter\n"
                                          "narad_c_total{subtopic=\"a\"} 0\n"
                                          "narad_c_total{text=\"x,topic=\\\"a\\\"\"} 0\n"
                                          "narad_c_total{topic=\"a,b\"} 0\n"
                                          "narad_c_total{topic=\"ab\"} 0\n");
    nd_buf_release(&buf);

    nd_series_add(nd_metrics_counter(m, "a_total", "topic=\"a\"", "h"), 4); /* made anew */
    assert_non_null(strstr(text_of(m, &buf), "narad_a_total{topic=\"a\"} 4\n"));
    nd_buf_release(&buf);
    nd_metrics_free(m);
}

static void metrics_label__escapes_and_joins(void **state)
{
    char labels[64] = "";

    (void)state;
    nd_metrics_label(labels, sizeof labels, "a", "say \"x\" \\ \n");
    nd_metrics_label(labels, sizeof labels, "b", "");
    assert_string_equal(labels, "a=\"say \\\"x\\\" \\\\ \\n\",b=\"\"");

    char exact[sizeof "a=\"\\\"\""] = ""; /* fits to the byte */
    nd_metrics_label(exact, sizeof exact, "a", "\"");
    assert_string_equal(exact, "a=\"\\\"\"");
}

struct collected {
    struct nd_metrics *m;
    int calls;
};

static void collect(void *arg)
{
    struct collected *collected = arg;

    collected->calls += 1;
    /* No lock is held, so a collector may make series. */
    nd_series_set(nd_metrics_gauge(collected->m, "fresh", "", "h"), collected->calls);
}

static void metrics_text__asks_collectors_first(void **state)
{
    struct collected collected = {.m = nd_metrics_new()};
    struct nd_buf buf;

    (void)state;
    nd_metrics_add_collector(collected.m, collect, &collected);
    assert_non_null(strstr(text_of(collected.m, &buf), "narad_fresh 1\n"));
    nd_buf_release(&buf);
    assert_non_null(strstr(text_of(collected.m, &buf), "narad_fresh 2\n"));
    nd_buf_release(&buf);
    nd_metrics_free(collected.m);
}

static double process_value(const char *text, const char *name)
{
    const char *line = strstr(text, name);

    assert_non_null(line);
    return strtod(line + strlen(name), NULL);
}

static void metrics_text__tells_about_the_process(void **state)
{
    struct nd_metrics *m = nd_metrics_new();
    struct nd_buf buf;

    (void)state;
    nd_buf_init(&buf, 1 << 20);
    nd_metrics_text(m, &buf);
    nd_buf_put_u8(&buf, '\0');
    const char *text = (const char *)buf.data;

    assert_true(process_value(text, "\nprocess_cpu_seconds_total ") >= 0);
    assert_true(process_value(text, "\nprocess_resident_memory_bytes ") > 100000);
    assert_true(process_value(text, "\nprocess_open_fds ") >= 1);
    assert_true(process_value(text, "\nprocess_start_time_seconds ") > 1.5e9);
    nd_buf_release(&buf);
    nd_metrics_free(m);
}

static void metrics_remove_series__takes_one_and_leaves_its_neighbours(void **state)
{
    struct nd_metrics *m = nd_metrics_new();
    struct nd_buf buf;

    (void)state;
    nd_series_add(nd_metrics_counter(m, "c", "topic=\"a\",partition=\"0\"", "h"), 1);
    nd_series_add(nd_metrics_counter(m, "c", "topic=\"a\",partition=\"1\"", "h"), 2);
    nd_series_add(nd_metrics_counter(m, "c", "topic=\"b\",partition=\"0\"", "h"), 3);
    nd_metrics_remove_series(m, nd_metrics_counter(m, "c", "topic=\"a\",partition=\"0\"", "h"));
    nd_metrics_remove_series(m, NULL);
    nd_metrics_remove_series(NULL, NULL);
    const char *text = text_of(m, &buf);
    assert_null(strstr(text, "topic=\"a\",partition=\"0\""));
    assert_non_null(strstr(text, "narad_c{topic=\"a\",partition=\"1\"} 2\n"));
    assert_non_null(strstr(text, "narad_c{topic=\"b\",partition=\"0\"} 3\n"));
    nd_buf_release(&buf);
    /* It starts anew, and goes with its group. */
    assert_true(nd_series_value(nd_metrics_counter(m, "c", "topic=\"a\",partition=\"0\"", "h")) ==
                0);
    nd_metrics_remove(m, "topic", "a");
    text = text_of(m, &buf);
    assert_null(strstr(text, "topic=\"a\""));
    assert_non_null(strstr(text, "topic=\"b\""));
    nd_buf_release(&buf);
    nd_metrics_free(m);
}

/* The series of a partition share their labels: one of them goes, the others count on. */
static void metrics_remove_series__leaves_those_with_the_same_labels(void **state)
{
    static const char *const labels = "topic=\"a\",partition=\"0\"";
    static const char *const names[] = {"c0", "c1", "c2"};
    struct nd_metrics *m = nd_metrics_new();
    struct nd_buf buf;

    (void)state;
    for (size_t gone = 0; gone < ND_ARRAY_SIZE(names); gone++) {
        for (size_t i = 0; i < ND_ARRAY_SIZE(names); i++) {
            nd_series_add(nd_metrics_counter(m, names[i], labels, "h"), 1);
        }
        nd_metrics_remove_series(m, nd_metrics_counter(m, names[gone], labels, "h"));
        for (size_t i = 0; i < ND_ARRAY_SIZE(names); i++) {
            uint64_t expected = i <= gone ? gone - i : gone + 1;
            assert_true(nd_series_value(nd_metrics_counter(m, names[i], labels, "h")) ==
                        (double)expected);
        }
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(names); i++) {
        nd_metrics_remove_series(m, nd_metrics_counter(m, names[i], labels, "h"));
    }
    assert_string_equal(text_of(m, &buf), "");
    nd_buf_release(&buf);
    assert_true(nd_series_value(nd_metrics_counter(m, "c0", labels, "h")) == 0);
    nd_metrics_remove(m, "topic", "a");
    assert_string_equal(text_of(m, &buf), "");
    nd_buf_release(&buf);
    nd_metrics_free(m);
}

static void bump_main(void *arg)
{
    struct nd_metrics *m = arg;
    static const double buckets[] = {1, 2};

    for (int i = 0; i < 2000; i++) {
        nd_series_add(nd_metrics_counter(m, "c", "", "h"), 1);
        nd_series_add(nd_metrics_gauge(m, "g", "", "h"), 1);
        nd_series_observe(nd_metrics_histogram(m, "h", "", "h", buckets, 2), i % 4);
    }
}

static void series__loses_nothing_between_threads(void **state)
{
    struct nd_metrics *m = nd_metrics_new();
    static const double buckets[] = {1, 2};
    struct nd_thread threads[3];
    struct nd_buf buf;

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(threads); i++) {
        assert_true(nd_thread_start(&threads[i], "bump", bump_main, m));
    }
    for (int i = 0; i < 5; i++) {
        (void)text_of(m, &buf);
        nd_buf_release(&buf);
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(threads); i++) {
        nd_thread_join(&threads[i]);
    }
    assert_true(nd_series_value(nd_metrics_counter(m, "c", "", "h")) == 6000);
    assert_true(nd_series_value(nd_metrics_gauge(m, "g", "", "h")) == 6000);
    assert_true(nd_series_value(nd_metrics_histogram(m, "h", "", "h", buckets, 2)) == 6000);
    assert_non_null(strstr(text_of(m, &buf), "narad_h_sum 9000\n"));
    nd_buf_release(&buf);
    nd_metrics_free(m);
}

static void metrics_age__is_told_in_seconds_and_zero_for_nothing(void **state)
{
    struct nd_metrics *m = nd_metrics_new();
    struct timespec wall;
    struct nd_buf buf;

    (void)state;
    struct nd_series *age = nd_metrics_age(m, "oldest_seconds", "topic=\"a\"", "Oldest.");
    struct nd_series *none = nd_metrics_age(m, "oldest_seconds", "topic=\"b\"", "Oldest.");
    struct nd_series *future = nd_metrics_age(m, "oldest_seconds", "topic=\"c\"", "Oldest.");
    (void)clock_gettime(CLOCK_REALTIME, &wall);
    nd_series_since(age, ((int64_t)wall.tv_sec - 100) * 1000);
    nd_series_since(none, 5);
    nd_series_since(none, 0);
    nd_series_since(future, ((int64_t)wall.tv_sec + 10000) * 1000);
    const char *text = text_of(m, &buf);
    assert_non_null(strstr(text, "# TYPE narad_oldest_seconds gauge\n"));
    assert_non_null(strstr(text, "narad_oldest_seconds{topic=\"b\"} 0.000\n"));
    assert_non_null(strstr(text, "narad_oldest_seconds{topic=\"c\"} 0.000\n"));
    const char *at = strstr(text, "narad_oldest_seconds{topic=\"a\"} ");
    assert_non_null(at);
    assert_true(strtod(strchr(at, '}') + 1, NULL) >= 100);
    assert_true(strtod(strchr(at, '}') + 1, NULL) < 10000);
    nd_buf_release(&buf);
    nd_metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_text__is_sorted_with_help_and_type_once),
        cmocka_unit_test(metrics_text__spells_special_numbers),
        cmocka_unit_test(metrics__finds_the_series_again),
        cmocka_unit_test(series__counts_up_and_gauges_down),
        cmocka_unit_test(metrics__null_registry_counts_nowhere),
        cmocka_unit_test(metrics_remove__takes_what_begins_with_the_label),
        cmocka_unit_test(metrics_label__escapes_and_joins),
        cmocka_unit_test(metrics_text__asks_collectors_first),
        cmocka_unit_test(metrics_text__tells_about_the_process),
        cmocka_unit_test(metrics_remove_series__takes_one_and_leaves_its_neighbours),
        cmocka_unit_test(metrics_remove_series__leaves_those_with_the_same_labels),
        cmocka_unit_test(series__loses_nothing_between_threads),
        cmocka_unit_test(metrics_age__is_told_in_seconds_and_zero_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
