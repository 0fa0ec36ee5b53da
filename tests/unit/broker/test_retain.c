/* Retention: nothing too early, everything in time, in every state of a partition; what it means
 * for who consumes and replays. Times of seconds: the floor of an hour is the metadata's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/crc32c.h"

#include "storage/clock.h"
#include "storage/verify.h"
#include "tests/unit/broker/fixture.h"

enum { RETENTION_MS = 20000, LOOK_MS = 1000, WALK_MS = 2000, IDLE_MS = 3000, FLUSH_MS = 500 };

static int setup(void **state)
{
    int result = fixture_setup(state);

    if (result == 0) {
        struct fixture *fixture = *state;
        struct node_options *options = &fixture->node.options;
        options->look_ms = LOOK_MS;
        options->cold_walk_ms = WALK_MS;
        options->idle_eviction_ms = IDLE_MS;
        options->flush_age_ms = FLUSH_MS;
        fixture_restart(fixture);
        node_topic_retention(&fixture->node, 0, RETENTION_MS);
    }
    return result;
}

static double value(struct node *node, const char *name)
{
    bool is_counter = strstr(name, "_total") != NULL && strcmp(name, "partitions_total") != 0;

    return nd_series_value(is_counter ? nd_metrics_counter(node->metrics, name, "", "")
                                      : nd_metrics_gauge(node->metrics, name, "", ""));
}

static bool count_log(void *arg, const char *name, enum nd_file_kind kind)
{
    size_t size = strlen(name);

    (void)kind;
    *(uint32_t *)arg += size > 4 && strcmp(name + size - 4, ".log") == 0;
    return true;
}

/* Segment files of a partition, whoever has them open. */
static uint32_t log_files(struct node *node, uint32_t topic, uint32_t partition)
{
    struct nd_partition_id id = {.incarnation = node->topics[topic]->incarnation,
                                 .partition = partition};
    uint32_t count = 0;
    char dir[600];

    snprintf(id.topic, sizeof id.topic, "%s", node->topics[topic]->name);
    nd_flusher_partition_dir(node->flusher, &id, dir, sizeof dir);
    enum nd_err err = node->env->list(node->env->impl, dir, count_log, &count, NULL);
    assert_true(err == ND_OK || err == ND_ERR_NOT_FOUND);
    return count;
}

static int64_t now_ms(struct node *node)
{
    return nd_commit_clock_now_ms(node->clock);
}

static enum nd_err replay_at(struct node *node, uint32_t topic, uint64_t offset,
                             uint64_t *oldest_out)
{
    struct node_replay *replay = node_replay(node, topic, 0, offset, 1);
    enum nd_err err = replay->err;

    if (oldest_out != NULL) {
        *oldest_out = replay->request.oldest;
    }
    assert_true(err != ND_OK || replay->count == 1);
    nd_free(replay);
    return err;
}

static void retention_floor(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    int64_t times[120];

    for (uint32_t i = 0; i < 120; i++) {
        struct node_produce *produce = node_produce_bytes(node, 0, 0, 3000, 1);
        node_run(node);
        assert_int_equal(produce->err, ND_OK);
        assert_int_equal(produce->offsets[0], i);
        nd_free(produce);
        times[i] = now_ms(node);
        node_advance(node, 700);
        for (uint32_t k = i % 10; k <= i; k += 10) {
            int64_t age_ms = now_ms(node) - times[k];
            enum nd_err err = replay_at(node, 0, k, NULL);
            if (age_ms <= RETENTION_MS) {
                assert_int_equal(err, ND_OK); /* I-43 */
            } else if (age_ms > 2 * RETENTION_MS + 2 * LOOK_MS) {
                assert_int_equal(err, ND_ERR_GONE); /* I-44 */
            }
        }
    }
    assert_true(node_stats(node, 0, 0).oldest_offset > 40);
}

static void retention_bound_all_states(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t idle = node_topic(node, "idle", 1), closed = node_topic(node, "closed", 2),
             slow = node_topic(node, "slow", 1), kept = node_topic(node, "kept", 1);

    node_topic_retention(node, idle, RETENTION_MS);
    node_topic_retention(node, closed, RETENTION_MS);
    node_topic_retention(node, slow, RETENTION_MS);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(node_produce(node, idle, 0, "i", NULL), ND_OK);
        assert_int_equal(node_produce(node, closed, 1, "c", NULL), ND_OK);
        assert_int_equal(node_produce(node, kept, 0, "k", NULL), ND_OK);
    }
    node_advance(node, FLUSH_MS + IDLE_MS + 2 * LOOK_MS);
    assert_true(value(node, "open_partition_logs") == 0); /* evicted */
    fixture_restart(fixture);                             /* and never touched since */
    int64_t from_ms = now_ms(node);
    uint64_t slow_count = 0;
    while (now_ms(node) - from_ms < 2 * RETENTION_MS + LOOK_MS + 2 * WALK_MS) {
        assert_int_equal(node_produce(node, slow, 0, "s", NULL), ND_OK);
        slow_count += 1;
        node_advance(node, 2500);
        if (now_ms(node) - from_ms < RETENTION_MS - IDLE_MS - 8000) {
            assert_int_equal(log_files(node, closed, 1), 1);
        }
    }
    assert_int_equal(log_files(node, idle, 0), 0);
    assert_int_equal(log_files(node, closed, 1), 0);
    assert_int_equal(log_files(node, kept, 0), 1);
    assert_true(log_files(node, slow, 0) <= 3);
    assert_true(replay_at(node, slow, 0, NULL) == ND_ERR_GONE);
    assert_int_equal(replay_at(node, slow, slow_count - 1, NULL), ND_OK);
    node_advance(node, IDLE_MS + 2 * LOOK_MS);
    assert_true(value(node, "open_partition_logs") == 0); /* those that retention opened as well */
    assert_true(value(node, "cold_retention_swept_total") >= 2);
    /* Offsets go on where they were. */
    uint64_t offset;
    assert_int_equal(node_produce(node, closed, 1, "c", &offset), ND_OK);
    assert_int_equal(offset, 3);
    assert_int_equal(node_produce(node, idle, 0, "i", &offset), ND_OK);
    assert_int_equal(offset, 3);
}

static void frontier_jumps_over_reaped(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery held[3], delivery;

    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(node_produce(node, 0, 0, "old", NULL), ND_OK);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(node_take(node, 0, 0, &held[i]));
    }
    assert_int_equal(node_settle(node, 0, &held[1], ND_SETTLE_ACK), ND_OK);
    node_advance(node, RETENTION_MS - 2000);
    assert_int_equal(node_settle(node, 0, &held[0], ND_SETTLE_EXTEND), ND_OK);
    node_advance(node, 4000 + LOOK_MS);
    assert_int_equal(node_stats(node, 0, 0).frontier, 5);
    assert_int_equal(node_stats(node, 0, 0).in_flight, 0);
    assert_true(node_metric(node, "consumer_dropped_messages", 0, 0) == 4);
    assert_true(node_metric(node, "consumer_corrupt_skipped_total", 0, 0) == 0);
    assert_int_equal(node_settle(node, 0, &held[0], ND_SETTLE_ACK), ND_ERR_STALE);
    assert_int_equal(node_settle(node, 0, &held[0], ND_SETTLE_EXTEND), ND_ERR_STALE);
    assert_false(node_take(node, 0, 0, &delivery));
    assert_int_equal(node_produce(node, 0, 0, "new", NULL), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 5);
    uint64_t oldest;
    assert_int_equal(replay_at(node, 0, 4, &oldest), ND_ERR_GONE);
    assert_int_equal(oldest, 5);
    /* No cut brings it back. */
    node_power_cut(node, 3);
    struct nd_errmsg msg;
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 5);
    assert_int_equal(replay_at(node, 0, 4, &oldest), ND_ERR_GONE);
}

static void retention__takes_a_subscribers_lease_and_gives_the_credit_back(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_subscriber *subscriber = node_subscribe(node, 0, ND_PARTITION_ANY, 2);

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(node_produce(node, 0, 0, "old", NULL), ND_OK);
    }
    node_run(node);
    assert_int_equal(subscriber->count, 2);
    node_advance(node, RETENTION_MS + 2 * LOOK_MS);
    assert_int_equal(node_produce(node, 0, 0, "new", NULL), ND_OK);
    node_run(node);
    assert_int_equal(subscriber->count, 3);
    assert_string_equal(subscriber->list[2].payload, "new");
    nd_broker_subscriber_close(node->broker, &subscriber->request);
    node_run(node);
    nd_free(subscriber);
}

/* No segment can be written: what is in the WAL and in memory ages all the same. */
static void retention__reaches_what_cannot_be_flushed(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;
    int file;

    assert_int_equal(node_produce(node, 0, 0, "old", NULL), ND_OK);
    /* A file where the directory of the topic would have to be. */
    assert_int_equal(nd_env_mkdirs(node->env, "data/topics", &msg), ND_OK);
    assert_int_equal(node->env->open(node->env->impl, "data/topics/t",
                                     ND_OPEN_WRITE | ND_OPEN_CREATE, &file, &msg),
                     ND_OK);
    node->env->close(node->env->impl, file);
    node_advance(node, RETENTION_MS / 2);
    assert_true(node_stats(node, 0, 0).size_bytes > 0);
    node_advance(node, RETENTION_MS / 2 + 5000);
    assert_int_equal(node_stats(node, 0, 0).oldest_offset, 1);
    assert_int_equal(node_stats(node, 0, 0).size_bytes, 0); /* of the tail */
    assert_false(node_take(node, 0, 0, &delivery));
    node_power_cut(node, 8);
    assert_int_equal(node->env->unlink(node->env->impl, "data/topics/t", &msg), ND_OK);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_false(node_take(node, 0, 0, &delivery));
    uint64_t offset;
    assert_int_equal(node_produce(node, 0, 0, "new", &offset), ND_OK);
    assert_int_equal(offset, 1);
    node_advance(node, 5000); /* flushed, evicted */
    assert_true(node_take(node, 0, 0, &delivery));
    assert_string_equal(delivery.payload, "new");
}

/* A cut between the POSITION and the removal: the records are gone for all, their file is not. */
static void retention__removes_what_a_crash_left(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg;

    node->options.idle_eviction_ms = 0;
    fixture_restart(fixture);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(node_produce(node, 0, 0, "old", NULL), ND_OK);
        node_advance(node, FLUSH_MS + 2 * LOOK_MS);
        node->flusher_stalled = true;
        node_advance(node, RETENTION_MS);
        assert_int_equal(node_stats(node, 0, 0).oldest_offset, i + 1);
        assert_int_equal(log_files(node, 0, 0), 1);
        node_power_cut(node, 6);
        node->options.idle_eviction_ms = i == 0 ? 500 : 0; /* closed before the walk, or open */
        assert_int_equal(node_open(node, &msg), ND_OK);
        assert_int_equal(log_files(node, 0, 0), 1);
        node_advance(node, 3 * WALK_MS);
        assert_int_equal(log_files(node, 0, 0), 0);
    }
}

static void line_note(void *arg, const char *line, size_t size)
{
    if (strncmp(line, "damage", 6) == 0) {
        snprintf(arg, 256, "%.*s", (int)size, line);
    }
}

/* The FORMAT file that speaks for the ids of node.c. */
static void format_make(struct node *node)
{
    struct nd_errmsg msg;
    char text[256];
    int size = snprintf(text, sizeof text, "narad-data 1\nstore ");

    for (uint32_t i = 0; i < 16; i++) {
        uint8_t byte = nd_flusher_plog_options(node->flusher)->store_id[i];
        size += snprintf(text + size, sizeof text - (size_t)size, "%02x", byte);
    }
    size += snprintf(text + size, sizeof text - (size_t)size, "\nstate ready\n");
    uint32_t crc = nd_crc32c(0, text, (size_t)size);
    (void)snprintf(text + size, sizeof text - (size_t)size, "crc32c %08x\n", crc);
    assert_int_equal(nd_env_replace_file(node->env, "data/FORMAT", nd_slice_str(text), &msg),
                     ND_OK);
}

/* Between the POSITION and the segment that will begin there, the log start lies above what is
 * flushed. */
static void retention__of_what_cannot_be_flushed_is_no_damage(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_verify_result result;
    struct nd_errmsg msg = {{0}};
    struct nd_report report;
    char damage[256] = "";

    node->options.idle_eviction_ms = 0;
    fixture_restart(fixture);
    format_make(node);
    assert_int_equal(node_produce(node, 0, 0, "flushed", NULL), ND_OK);
    node_advance(node, FLUSH_MS + 500);
    sim_env_fail_writes_under(node->sim, "data/topics/t/");
    assert_int_equal(node_produce(node, 0, 0, "not", NULL), ND_OK);
    node_advance(node, RETENTION_MS + 5000);
    assert_int_equal(node_stats(node, 0, 0).oldest_offset, 2);
    node_power_cut(node, 4);
    sim_env_fail_writes_under(node->sim, NULL);
    nd_report_init(&report, false, line_note, damage);
    enum nd_err err = nd_verify(
        &(struct nd_verify_options){.env = node->env, .data_dir = "data", .report = &report},
        &result, &msg);
    nd_report_release(&report);
    assert_int_equal(err, ND_OK);
    assert_int_equal(result.partitions, 1);
    assert_string_equal(damage, "");
    assert_int_equal(node_open(node, &msg), ND_OK);
}

static void alter_reaches_all_owners(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t cold = node_topic(node, "cold", 1);
    struct node_delivery delivery;

    node->options.look_ms = 3600 * 1000; /* only a change makes them look */
    node->options.cold_walk_ms = 3600 * 1000;
    node_topic_retention(node, 0, 0);
    assert_int_equal(node_produce(node, cold, 0, "a", NULL), ND_OK);
    fixture_restart(fixture);
    node_advance(node, 4000);
    assert_int_equal(node_produce(node, 0, 0, "a", NULL), ND_OK); /* open */
    node_advance(node, 4000);
    assert_int_equal(log_files(node, 0, 0), 1);
    node_topic_retention(node, 0, 5000);
    node_topic_retention(node, cold, 5000);
    node_advance(node, 500);
    assert_int_equal(log_files(node, 0, 0), 1); /* too young */
    assert_int_equal(log_files(node, cold, 0), 0);
    node_topic_retention(node, 0, 4000);
    node_advance(node, 100);
    assert_int_equal(log_files(node, 0, 0), 0);
    /* Caps: the same. */
    assert_int_equal(node_produce(node, 0, 0, "b", NULL), ND_OK);
    assert_int_equal(node_produce(node, 0, 0, "c", NULL), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    node_topic_caps(node, 0, 1, 1);
    assert_false(node_take(node, 0, 0, &delivery));
    node_topic_caps(node, 0, 2, 1);
    assert_true(node_take(node, 0, 0, &delivery));
}

static void retention__waits_for_the_ownership_latch(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    assert_int_equal(node_produce(node, 0, 0, "a", NULL), ND_OK);
    node_advance(node, 2000);
    node->options.hold_latch = true;
    fixture_restart(fixture);
    node_advance(node, 4 * RETENTION_MS); /* what it knows of the topic may be old */
    assert_int_equal(log_files(node, 0, 0), 1);
    nd_broker_set_caught_up(node->broker);
    node_advance(node, 2 * WALK_MS);
    assert_int_equal(log_files(node, 0, 0), 0);
}

/* A node that never lives as long as the walk takes to come round. */
static void retention__of_a_closed_partition_needs_no_long_life(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t closed = node_topic(node, "closed", 1);

    node_topic_retention(node, closed, RETENTION_MS);
    assert_int_equal(node_produce(node, closed, 0, "c", NULL), ND_OK);
    node->options.look_ms = 60000;
    node->options.cold_walk_ms = 300000;
    for (uint32_t life = 0; life < 4; life++) {
        fixture_restart(fixture);
        node_advance(node, 10000);
        assert_true(life > 1 || log_files(node, closed, 0) == 1); /* too young */
    }
    assert_int_equal(log_files(node, closed, 0), 0);
}

/* P5, W7: until the log start that lets a segment go is synced, the file is there. */
static void retention__removes_nothing_before_the_position_is_synced(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg;

    node->options.idle_eviction_ms = 0;
    fixture_restart(fixture);
    assert_int_equal(node_produce(node, 0, 0, "old", NULL), ND_OK);
    node_advance(node, FLUSH_MS + 2 * LOOK_MS);
    node->wal_stalled = true;
    node_advance(node, RETENTION_MS);
    assert_int_equal(node_stats(node, 0, 0).oldest_offset, 1); /* it is let go ... */
    assert_int_equal(log_files(node, 0, 0), 1);                /* ... and kept */
    node_power_cut(node, 5);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_int_equal(log_files(node, 0, 0), 1);
    node_advance(node, 2 * WALK_MS);
    assert_int_equal(log_files(node, 0, 0), 0);
}

/* Many closed partitions with aged segments: a bounded number is open at a time. */
static void retention__of_many_closed_partitions_is_no_storm(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t many[3];
    double most = 0;

    for (uint32_t t = 0; t < 3; t++) {
        char name[8];
        snprintf(name, sizeof name, "m%u", t);
        many[t] = node_topic(node, name, 100);
        for (uint32_t i = 0; i < 100; i++) {
            assert_int_equal(node_produce(node, many[t], i, "x", NULL), ND_OK);
        }
    }
    node_advance(node, FLUSH_MS + IDLE_MS + 2 * LOOK_MS);
    node->options.idle_eviction_ms = 0; /* what retention opened is closed all the same */
    fixture_restart(fixture);
    assert_true(value(node, "partitions_total") < 10);
    for (uint32_t t = 0; t < 3; t++) {
        node_topic_retention(node, many[t], 500);
    }
    node_run(node);
    for (uint32_t steps = 0; steps < 100; steps++) {
        for (uint32_t k = 0; k < 5 && node_step(node); k++) {
            double open = value(node, "partitions_total");
            most = open > most ? open : most;
        }
        sim_env_advance_ms(node->sim, 50);
        (void)node_step(node);
        double open = value(node, "partitions_total");
        most = open > most ? open : most;
    }
    node_advance(node, 3 * WALK_MS);
    for (uint32_t t = 0; t < 3; t++) {
        for (uint32_t i = 0; i < 100; i++) {
            assert_int_equal(log_files(node, many[t], i), 0);
        }
    }
    assert_true(most < 80);
    assert_true(value(node, "partitions_total") < 10);
    assert_true(value(node, "cold_retention_swept_total") >= 300);
}

static void retention__survives_failures_on_its_way(void **state)
{
    static const enum sim_call calls[] = {SIM_RENAME, SIM_UNLINK, SIM_SYNC,  SIM_PWRITE,
                                          SIM_OPEN,   SIM_LIST,   SIM_PREAD, SIM_SYNC_DIR};
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint64_t offset = 0;

    for (size_t i = 0; i < ND_ARRAY_SIZE(calls); i++) {
        assert_int_equal(node_produce(node, 0, 0, "x", &offset), ND_OK);
        node_advance(node, RETENTION_MS - 500);
        sim_env_fail_nth(fixture->sim, calls[i], 1, SIM_FAULT_IO);
        node_advance(node, 500 + 2 * WALK_MS);
        sim_env_fail_clear(fixture->sim);
        node_advance(node, 30000); /* also an unflushable one is tried again by now */
        assert_int_equal(node_stats(node, 0, 0).oldest_offset, offset + 1);
        fixture_restart(fixture);
        node_advance(node, 2 * WALK_MS + RETENTION_MS);
        assert_int_equal(log_files(node, 0, 0), 0);
        assert_int_equal(node_stats(node, 0, 0).next_offset, offset + 1);
    }
}

static void retention__counts_what_it_removes(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    const char *labels = "topic=\"t\",partition=\"0\",reason=\"age\"";

    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(node_produce(node, 0, 0, "x", NULL), ND_OK);
    }
    node_advance(node, RETENTION_MS + 2 * WALK_MS);
    assert_true(nd_series_value(nd_metrics_counter(
                    node->metrics, "storage_retention_messages_deleted_total", labels, "")) == 7);
    assert_true(nd_series_value(nd_metrics_counter(
                    node->metrics, "storage_retention_bytes_deleted_total", labels, "")) > 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)
        T(retention_floor),
        T(retention_bound_all_states),
        T(frontier_jumps_over_reaped),
        T(retention__takes_a_subscribers_lease_and_gives_the_credit_back),
        T(retention__reaches_what_cannot_be_flushed),
        T(retention__removes_what_a_crash_left),
        T(retention__of_what_cannot_be_flushed_is_no_damage),
        T(alter_reaches_all_owners),
        T(retention__waits_for_the_ownership_latch),
        T(retention__of_a_closed_partition_needs_no_long_life),
        T(retention__removes_nothing_before_the_position_is_synced),
        T(retention__of_many_closed_partitions_is_no_storm),
        T(retention__survives_failures_on_its_way),
        T(retention__counts_what_it_removes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
