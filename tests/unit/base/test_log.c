#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "storage/base/log.h"
#include "storage/base/thread.h"

#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

/* A log whose lines come back through a pipe, with a clock turned by hand. */
struct fixture {
    struct nd_log *log;
    struct nd_env env;
    uint64_t mono_ns;
    int64_t wall_ms;
    int pipe[2];
    char text[1 << 18];
};

static uint64_t fixture_mono_ns(void *impl)
{
    const struct fixture *f = impl;

    return f->mono_ns;
}

static int64_t fixture_wall_ms(void *impl)
{
    const struct fixture *f = impl;

    return f->wall_ms;
}

static int setup(void **state)
{
    struct fixture *f = test_calloc(1, sizeof *f);

    if (pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return -1;
    }
    (void)fcntl(f->pipe[1], F_SETPIPE_SZ, 1 << 18);
    f->env = (struct nd_env){.impl = f, .mono_ns = fixture_mono_ns, .wall_ms = fixture_wall_ms};
    f->wall_ms = 1767225600000 + 42; /* 2026-01-01T00:00:00.042Z */
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    nd_log_free(f->log);
    (void)close(f->pipe[0]);
    (void)close(f->pipe[1]);
    test_free(f);
    return 0;
}

static void start(struct fixture *f, enum nd_log_format format)
{
    f->log = nd_log_new(f->pipe[1], ND_LOG_DEBUG, format);
    nd_log_set_env(f->log, &f->env);
}

/* All that was written since the last call. */
static const char *written(struct fixture *f)
{
    ssize_t size = read(f->pipe[0], f->text, sizeof f->text - 1);

    f->text[size < 0 ? 0 : size] = '\0';
    return f->text;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;

    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

static void log_json__is_one_line_of_string_members(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_JSON);
    nd_log(f->log, ND_LOG_WARN, "wal", "sync failed", "file=%s err=%s retry=%d", "a.log",
           "disk full", 3);

    assert_string_equal(written(f),
                        "{\"time\":\"2026-01-01T00:00:00.042Z\",\"level\":\"WARN\","
                        "\"component\":\"wal\",\"msg\":\"sync failed\",\"file\":\"a.log\","
                        "\"err\":\"disk full\",\"retry\":\"3\"}\n");
}

static void log_text__prints_the_pairs_as_they_are(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_TEXT);
    nd_log(f->log, ND_LOG_INFO, "serve", "started", "addr=\"%s\" shards=%d", ":7941", 2);
    nd_log(f->log, ND_LOG_ERROR, "serve", "stopped", NULL);

    assert_string_equal(written(f),
                        "2026-01-01T00:00:00.042Z INFO  serve: started addr=\":7941\" shards=2\n"
                        "2026-01-01T00:00:00.042Z ERROR serve: stopped\n");
}

static void log_text__stays_one_line_whatever_the_values(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_TEXT);
    nd_log(f->log, ND_LOG_INFO, "c", "e", "a=%s", "x\ny\r\x1b[31m");

    assert_string_equal(written(f), "2026-01-01T00:00:00.042Z INFO  c: e a=x\\ny\\x0d\\x1b[31m\n");
}

/* The member `key` of the one line written. */
static void assert_member(struct fixture *f, const char *key, const char *expected)
{
    json_error_t error;
    json_t *line = json_loads(written(f), JSON_REJECT_DUPLICATES, &error);

    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, key)), expected);
    json_decref(line);
}

static void log_json__reads_quoted_values(void **state)
{
    struct fixture *f = *state;
    char quoted[64];

    start(f, ND_LOG_JSON);
    nd_log(f->log, ND_LOG_INFO, "c", "e", "a=\"two words\" b=1");
    assert_member(f, "a", "two words");

    nd_log(f->log, ND_LOG_INFO, "c", "e", "a=%s b=1",
           nd_log_quote(quoted, sizeof quoted, "say \"b=2\" \\ \n\t\x01 end"));
    assert_member(f, "a", "say \"b=2\" \\ \n\t\x01 end");

    nd_log(f->log, ND_LOG_INFO, "c", "e", "a=\"a quote \" inside\"");
    assert_member(f, "a", "a quote \" inside");

    nd_log(f->log, ND_LOG_INFO, "c", "e", "a=\"no end");
    assert_member(f, "a", "no end");
}

static void log_json__keeps_its_own_members_apart(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_JSON);
    nd_log(f->log, ND_LOG_INFO, "c", "e", "msg=mine level=high");
    assert_member(f, "msg_", "mine");
    nd_log(f->log, ND_LOG_INFO, "c", "e", "msg=mine level=high");
    assert_member(f, "msg", "e");
    nd_log(f->log, ND_LOG_INFO, "c", "e", "loose words a=1");
    assert_member(f, "text", "loose words");
}

static void log_json__replaces_what_is_no_utf8(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_JSON);
    nd_log(f->log, ND_LOG_INFO, "c", "e", "a=%s",
           "\xc3\xbc|\xff|\xc0\xaf|\xed\xa0\x80|\xf0\x9f\x98\x80|\xe2\x82");
    assert_member(f, "a",
                  "\xc3\xbc|\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd|"
                  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|\xf0\x9f\x98\x80|\xef\xbf\xbd\xef\xbf\xbd");
}

static void log_json__is_valid_for_random_bytes(void **state)
{
    static const char likely[] = "\"\\ =ab_\n\xc3\xbc\xe2\x82\xac\xff";
    struct fixture *f = *state;
    uint64_t seed = 1;

    start(f, ND_LOG_JSON);
    for (int round = 0; round < 3000; round++) {
        char bytes[60];
        size_t size = (size_t)nd_rand_below(&seed, sizeof bytes);
        for (size_t i = 0; i < size; i++) {
            uint64_t any = nd_rand(&seed);
            bytes[i] = any % 4 == 0 ? (char)(1 + (any >> 8) % 255)
                                    : likely[(any >> 8) % (sizeof likely - 1)];
        }
        bytes[size] = '\0';
        f->mono_ns += 1000000000;
        nd_log(f->log, ND_LOG_INFO, bytes, bytes, "%s", bytes);

        json_error_t error;
        json_t *line = json_loads(written(f), 0, &error);
        assert_non_null(line);
        assert_true(json_is_object(line));
        json_decref(line);
        assert_int_equal(count_lines(f->text), 1);
    }
}

static void log_quote__survives_the_way_through_a_pair(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = 7;

    start(f, ND_LOG_JSON);
    for (int round = 0; round < 1000; round++) {
        static const char likely[] = "\"\\ =ax\n\t\x7f";
        char bytes[30], quoted[200];
        size_t size = (size_t)nd_rand_below(&seed, sizeof bytes);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = likely[nd_rand_below(&seed, sizeof likely - 1)];
        }
        bytes[size] = '\0';
        f->mono_ns += 1000000000;
        nd_log(f->log, ND_LOG_INFO, "c", "e", "a=%s b=%d",
               nd_log_quote(quoted, sizeof quoted, bytes), 1);
        assert_member(f, "a", bytes);
    }
}

static void log_quote__cuts_to_fit(void **state)
{
    char out[8];

    (void)state;
    assert_string_equal(nd_log_quote(out, sizeof out, "abcdefgh"), "\"abcde\"");
    assert_string_equal(nd_log_quote(out, sizeof out, "abcd\"x"), "\"abcd\"");
    assert_string_equal(nd_log_quote(out, 3, "abc"), "\"\"");
}

static void log__writes_long_lines_whole_and_cuts_huge_ones(void **state)
{
    struct fixture *f = *state;
    static char longer[40000];

    memset(longer, 'x', sizeof longer - 1);
    start(f, ND_LOG_JSON);
    nd_log(f->log, ND_LOG_INFO, "c", "e", "a=%.5000s", longer);
    assert_true(strlen(written(f)) > 5000);
    assert_string_equal(f->text + strlen(f->text) - 4, "x\"}\n");

    nd_log(f->log, ND_LOG_INFO, "c", "e", "a=%s", longer);
    json_error_t error;
    json_t *line = json_loads(written(f), 0, &error);
    assert_non_null(line);
    assert_in_range(json_string_length(json_object_get(line, "a")), 16000, 16384);
    json_decref(line);
}

static void log__drops_what_is_below_its_level(void **state)
{
    struct fixture *f = *state;
    enum nd_log_level level;

    start(f, ND_LOG_TEXT);
    assert_true(nd_log_level_parse("warn", &level));
    nd_log_set_level(f->log, level);
    nd_log(f->log, ND_LOG_INFO, "c", "e", "");
    assert_string_equal(written(f), "");
    nd_log(f->log, ND_LOG_WARN, "c", "e", "");
    assert_int_equal(count_lines(written(f)), 1);

    nd_log(NULL, ND_LOG_ERROR, "c", "e", ""); /* no log: nothing */
    assert_string_equal(written(f), "");
}

static void log_parse__knows_its_words_only(void **state)
{
    enum nd_log_format format = ND_LOG_TEXT;
    enum nd_log_level level = ND_LOG_ERROR;

    (void)state;
    assert_true(nd_log_level_parse("debug", &level));
    assert_int_equal(level, ND_LOG_DEBUG);
    assert_true(nd_log_level_parse("error", &level));
    assert_int_equal(level, ND_LOG_ERROR);
    assert_false(nd_log_level_parse("INFO", &level));
    assert_false(nd_log_level_parse("", &level));
    assert_true(nd_log_format_parse("json", &format));
    assert_int_equal(format, ND_LOG_JSON);
    assert_true(nd_log_format_parse("text", &format));
    assert_int_equal(format, ND_LOG_TEXT);
    assert_false(nd_log_format_parse("xml", &format));
}

static void log__limits_repeated_events_and_says_how_many(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_TEXT);
    for (int i = 0; i < 25; i++) {
        nd_log(f->log, ND_LOG_INFO, "c", "often", "n=%d", i);
    }
    assert_int_equal(count_lines(written(f)), 10);
    nd_log(f->log, ND_LOG_INFO, "c", "other", "");
    nd_log(f->log, ND_LOG_INFO, "d", "often", "");
    assert_int_equal(count_lines(written(f)), 2); /* each event has its own limit */

    f->mono_ns += 999999999;
    nd_log(f->log, ND_LOG_INFO, "c", "often", "n=%d", 25);
    assert_string_equal(written(f), "");

    f->mono_ns += 1;
    nd_log(f->log, ND_LOG_INFO, "c", "often", "n=%d", 26);
    assert_string_equal(written(f), "2026-01-01T00:00:00.042Z INFO  c: often n=26 suppressed=16\n");
    nd_log(f->log, ND_LOG_INFO, "c", "often", "n=%d", 27);
    assert_string_equal(written(f), "2026-01-01T00:00:00.042Z INFO  c: often n=27\n");
}

static void log_lasting__tells_a_fault_once_and_reminds_once_a_minute(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_TEXT);
    for (int i = 0; i < 60; i++) { /* met once a second, beside another of the same event */
        nd_log_lasting(f->log, ND_LOG_WARN, "wal", "spare not made", "reason=%s", "full");
        nd_log_lasting(f->log, ND_LOG_WARN, "wal", "spare not made", "reason=%s", "broken");
        f->mono_ns += 1000000000;
    }
    assert_int_equal(count_lines(written(f)), 2);
    nd_log_lasting(f->log, ND_LOG_WARN, "wal", "spare not made", "reason=%s", "full");
    assert_string_equal(
        written(f),
        "2026-01-01T00:00:00.042Z WARN  wal: spare not made reason=full suppressed=59\n");

    f->mono_ns += 10000000000; /* it was over meanwhile */
    nd_log_lasting(f->log, ND_LOG_WARN, "wal", "spare not made", "reason=%s", "full");
    assert_string_equal(written(f),
                        "2026-01-01T00:00:00.042Z WARN  wal: spare not made reason=full\n");
}

static void log__a_flood_of_warnings_hides_no_information(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_TEXT);
    for (int i = 0; i < 100; i++) {
        nd_log(f->log, ND_LOG_WARN, "audit", "user create", "outcome=denied");
    }
    nd_log(f->log, ND_LOG_INFO, "audit", "user create", "outcome=ok");

    assert_non_null(strstr(written(f), "INFO  audit: user create outcome=ok\n"));
}

static void log_each__leaves_nothing_out(void **state)
{
    struct fixture *f = *state;
    char want[64];

    start(f, ND_LOG_TEXT);
    for (int i = 0; i < 100; i++) {
        nd_log_each(f->log, ND_LOG_INFO, "audit", "user create", "subject=u%d outcome=ok", i);
    }
    const char *text = written(f);
    for (int i = 0; i < 100; i++) {
        snprintf(want, sizeof want, "audit: user create subject=u%d outcome=ok\n", i);
        assert_non_null(strstr(text, want));
    }
}

static void log__counts_suppressed_as_a_number_in_json(void **state)
{
    struct fixture *f = *state;

    start(f, ND_LOG_JSON);
    for (int i = 0; i < 13; i++) {
        nd_log(f->log, ND_LOG_INFO, "c", "often", "");
    }
    (void)written(f);
    f->mono_ns += 1000000000;
    nd_log(f->log, ND_LOG_INFO, "c", "often", "");
    json_error_t error;
    json_t *line = json_loads(written(f), JSON_REJECT_DUPLICATES, &error);
    assert_non_null(line);
    assert_int_equal(json_integer_value(json_object_get(line, "suppressed")), 3);
    json_decref(line);
}

static void writer_main(void *arg)
{
    struct fixture *f = arg;
    char event[32];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(event, sizeof event, "event %d", i);
        nd_log(f->log, ND_LOG_INFO, "thread", event, "a=\"%s\" n=%d", "some more words", i);
    }
}

static void log__keeps_lines_whole_between_threads(void **state)
{
    struct fixture *f = *state;
    struct nd_thread threads[3];
    size_t count = 0;

    start(f, ND_LOG_JSON);
    for (size_t i = 0; i < ND_ARRAY_SIZE(threads); i++) {
        assert_true(nd_thread_start(&threads[i], "writer", writer_main, f));
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(threads); i++) {
        nd_thread_join(&threads[i]);
    }
    (void)written(f);
    for (char *line = f->text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_error_t error;
        json_t *object = json_loadb(line, (size_t)(end - line), 0, &error);
        assert_non_null(object);
        json_decref(object);
        count += 1;
    }
    assert_int_equal(count, 300);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(log_json__is_one_line_of_string_members),
        CASE(log_text__prints_the_pairs_as_they_are),
        CASE(log_text__stays_one_line_whatever_the_values),
        CASE(log_json__reads_quoted_values),
        CASE(log_json__keeps_its_own_members_apart),
        CASE(log_json__replaces_what_is_no_utf8),
        CASE(log_json__is_valid_for_random_bytes),
        CASE(log_quote__survives_the_way_through_a_pair),
        CASE(log_quote__cuts_to_fit),
        CASE(log__writes_long_lines_whole_and_cuts_huge_ones),
        CASE(log__drops_what_is_below_its_level),
        CASE(log_parse__knows_its_words_only),
        CASE(log__limits_repeated_events_and_says_how_many),
        CASE(log_lasting__tells_a_fault_once_and_reminds_once_a_minute),
        CASE(log__a_flood_of_warnings_hides_no_information),
        CASE(log_each__leaves_nothing_out),
        CASE(log__counts_suppressed_as_a_number_in_json),
        CASE(log__keeps_lines_whole_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
