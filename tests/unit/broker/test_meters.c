/* Gauges that somebody has to work out: bytes of files, the age of what waits; acks that come too
 * late. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "tests/unit/broker/fixture.h"

enum { MEASURE_MS = 35000, FLUSHED_MS = 70000 };

static double gauge(struct node *node, const char *name, const char *labels)
{
    return nd_series_value(nd_metrics_gauge(node->metrics, name, labels, ""));
}

static bool text_has(struct node *node, const char *what)
{
    struct nd_buf text;

    nd_buf_init(&text, 1 << 20);
    nd_metrics_text(node->metrics, &text);
    nd_buf_put_u8(&text, '\0');
    bool found = strstr((const char *)text.data, what) != NULL;
    nd_buf_release(&text);
    return found;
}

struct walk {
    struct node *node;
    const char *dir;
    uint64_t bytes;
};

static bool add_entry(void *arg, const char *name, enum nd_file_kind kind)
{
    struct walk *walk = arg;
    const struct nd_env *env = walk->node->env;
    char *path = nd_xasprintf("%s/%s", walk->dir, name);
    struct walk below = {walk->node, path, 0};
    struct nd_errmsg msg = {{0}};
    struct nd_file_stat stat;

    if (kind == ND_FILE_DIR) {
        assert_int_equal(env->list(env->impl, path, add_entry, &below, &msg), ND_OK);
        walk->bytes += below.bytes;
    } else if (strstr(name, ".tmp") == NULL) {
        assert_int_equal(env->stat(env->impl, path, &stat, &msg), ND_OK);
        walk->bytes += stat.size;
    }
    nd_free(path);
    return true;
}

static double bytes_below(struct node *node, const char *dir)
{
    struct walk walk = {node, dir, 0};
    struct nd_errmsg msg = {{0}};

    assert_int_equal(node->env->list(node->env->impl, dir, add_entry, &walk, &msg), ND_OK);
    return (double)walk.bytes;
}

static void file_make(struct node *node, const char *path, size_t size)
{
    const struct nd_env *env = node->env;
    uint8_t *bytes = nd_xcalloc(1, size);
    struct nd_errmsg msg = {{0}};
    int file;

    assert_int_equal(env->open(env->impl, path, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, &msg),
                     ND_OK);
    assert_int_equal(env->pwrite(env->impl, file, bytes, size, 0, &msg), ND_OK);
    env->close(env->impl, file);
    nd_free(bytes);
}

static void produce_much(struct node *node)
{
    struct node_produce *produce = node_produce_bytes(node, 0, 0, 3000, 20);

    node_run(node);
    assert_true(produce->done && produce->err == ND_OK);
    nd_free(produce);
}

static void usage__is_what_the_files_take_without_temporary_ones(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t other = node_topic(node, "other", 2);

    produce_much(node);
    assert_int_equal(node_produce(node, other, 1, "m", NULL), ND_OK);
    node_advance(node, FLUSHED_MS + MEASURE_MS);
    file_make(node, "data/topics/t/a.tmp", 5000);
    file_make(node, "data/b.tmp", 7000);
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, FLUSHED_MS + MEASURE_MS);
    double bytes = gauge(node, "topic_bytes", "topic=\"t\"");
    assert_true(bytes > 20 * 3000 && bytes == bytes_below(node, "data/topics/t"));
    assert_true(gauge(node, "topic_bytes", "topic=\"other\"") ==
                bytes_below(node, "data/topics/other"));
    assert_true(gauge(node, "data_dir_size_bytes", "") == bytes_below(node, "data"));
}

static void usage__looks_only_at_topics_in_which_something_changed(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, FLUSHED_MS + MEASURE_MS);
    double before = gauge(node, "topic_bytes", "topic=\"t\"");
    assert_true(before > 0);
    file_make(node, "data/topics/t/by-hand", 5000);
    node_advance(node, 3 * MEASURE_MS);
    assert_true(gauge(node, "topic_bytes", "topic=\"t\"") == before);
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, MEASURE_MS);
    assert_true(gauge(node, "topic_bytes", "topic=\"t\"") >= before + 5000);
}

static void usage__goes_with_the_topic(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    produce_much(node);
    node_advance(node, FLUSHED_MS + MEASURE_MS);
    assert_true(text_has(node, "narad_topic_bytes{topic=\"t\"}"));
    double before = gauge(node, "data_dir_size_bytes", "");
    node_topic_delete(node, 0);
    node_advance(node, 3 * MEASURE_MS);
    assert_false(text_has(node, "topic=\"t\""));
    assert_true(gauge(node, "data_dir_size_bytes", "") < before);
    assert_true(gauge(node, "data_dir_size_bytes", "") == bytes_below(node, "data"));
}

/* What the text would count from. */
static double since_ms(struct node *node)
{
    return nd_series_value(nd_metrics_age(node->metrics, "oldest_unconsumed_message_age_seconds",
                                          "topic=\"t\",partition=\"0\"", ""));
}

static void oldest__is_the_time_of_the_lowest_unsettled_message(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery[3];

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
        assert_true(node_take(node, 0, 0, &delivery[i]));
        node_advance(node, 1500);
    }
    assert_true(since_ms(node) == (double)delivery[0].time_ms);
    assert_int_equal(node_settle(node, 0, &delivery[1], ND_SETTLE_ACK), ND_OK);
    node_advance(node, 1500);
    assert_true(since_ms(node) == (double)delivery[0].time_ms);
    assert_int_equal(node_settle(node, 0, &delivery[0], ND_SETTLE_ACK), ND_OK);
    node_advance(node, 1500);
    assert_true(since_ms(node) == (double)delivery[2].time_ms);
    assert_int_equal(node_settle(node, 0, &delivery[2], ND_SETTLE_ACK), ND_OK);
    node_advance(node, 1500);
    assert_true(since_ms(node) == 0);
    assert_true(text_has(node, "narad_oldest_unconsumed_message_age_seconds{topic=\"t\","
                               "partition=\"0\"} 0.000\n"));
}

static void oldest__of_what_lies_in_a_segment_is_an_upper_bound_of_the_age(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery[2];

    node->options.cache_bytes = 1; /* nothing stays in memory */
    fixture_restart(fixture);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
        node_advance(node, 1000);
    }
    node_advance(node, FLUSHED_MS);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(node_take(node, 0, 0, &delivery[i]));
    }
    assert_int_equal(node_settle(node, 0, &delivery[0], ND_SETTLE_ACK), ND_OK);
    node_advance(node, 1500);
    assert_true(delivery[0].time_ms < delivery[1].time_ms);
    assert_true(since_ms(node) == (double)delivery[0].time_ms); /* of the segment */
}

static void ack__that_comes_too_late_is_counted(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    node_advance(node, NODE_LEASE_MS + 1000);
    struct nd_series *stale =
        nd_metrics_counter(node->metrics, "ack_rejected_total", "reason=\"stale\"", "");
    assert_true(nd_series_value(stale) == 0);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_NACK), ND_ERR_STALE);
    assert_true(nd_series_value(stale) == 0);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_ERR_STALE);
    assert_true(nd_series_value(stale) == 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(usage__is_what_the_files_take_without_temporary_ones),
        T(usage__looks_only_at_topics_in_which_something_changed),
        T(usage__goes_with_the_topic),
        T(oldest__is_the_time_of_the_lowest_unsettled_message),
        T(oldest__of_what_lies_in_a_segment_is_an_upper_bound_of_the_age),
        T(ack__that_comes_too_late_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
