/* Idle eviction: what is closed, what is not, and that nothing is lost by it. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "storage/state.h"
#include "tests/unit/broker/fixture.h"

enum { LOOK_MS = 1000, IDLE_MS = 3000, FLUSH_MS = 500, SETTLED_MS = FLUSH_MS + IDLE_MS + 2000 };

static int setup(void **state)
{
    int result = fixture_setup(state);

    if (result == 0) {
        struct fixture *fixture = *state;
        struct node_options *options = &fixture->node.options;
        options->look_ms = LOOK_MS;
        options->cold_walk_ms = 2000;
        options->idle_eviction_ms = IDLE_MS;
        options->flush_age_ms = FLUSH_MS;
        fixture_restart(fixture);
    }
    return result;
}

static double gauge(struct node *node, const char *name)
{
    return nd_series_value(nd_metrics_gauge(node->metrics, name, "", ""));
}

static double evicted(struct node *node)
{
    return nd_series_value(nd_metrics_counter(node->metrics, "idle_logs_evicted_total", "", ""));
}

static void evict__forgets_an_idle_partition_and_the_next_use_finds_all(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery[5], again;
    uint64_t offset;

    for (uint32_t i = 0; i < 5; i++) {
        char payload[8];
        snprintf(payload, sizeof payload, "m%u", i);
        assert_int_equal(node_produce(node, 0, 0, payload, NULL), ND_OK);
        assert_true(node_take(node, 0, 0, &delivery[i]));
    }
    assert_int_equal(node_settle(node, 0, &delivery[0], ND_SETTLE_ACK), ND_OK);
    assert_int_equal(node_settle(node, 0, &delivery[3], ND_SETTLE_ACK), ND_OK);
    for (uint32_t i = 1; i < 5; i += 1 + (i == 2)) {
        assert_int_equal(node_settle(node, 0, &delivery[i], ND_SETTLE_NACK), ND_OK);
    }
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 1);
    assert_true(gauge(node, "partitions_total") == 0);
    assert_true(gauge(node, "open_partition_logs") == 0);

    const uint64_t expected[3] = {1, 2, 4};
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(node_take(node, 0, 0, &again));
        assert_int_equal(again.offset, expected[i]);
        assert_int_equal(again.attempt, 2); /* delivery counts are kept as well */
        assert_int_equal(again.time_ms, delivery[expected[i]].time_ms);
    }
    assert_false(node_take(node, 0, 0, &again));
    assert_int_equal(node_produce(node, 0, 0, "m5", &offset), ND_OK);
    assert_int_equal(offset, 5);
    assert_int_equal(node_settle(node, 0, &delivery[1], ND_SETTLE_ACK), ND_ERR_STALE);
}

static void evict__of_what_is_unchanged_writes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    assert_int_equal(node_produce(node, 0, 0, "a", NULL), ND_OK);
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 1);
    struct node_replay *replay = node_replay(node, 0, 0, 0, 10); /* opens it */
    assert_int_equal(replay->count, 1);
    nd_free(replay);
    node_advance(node, FLUSH_MS); /* what the WAL's second of rest brings is over */
    uint64_t changes = sim_env_changes(fixture->sim);
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 2);
    assert_in_range(sim_env_changes(fixture->sim), changes, changes + 2); /* an empty frame */
}

static void evict__survives_a_power_cut_and_a_crash(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;
    uint64_t offset;

    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(node_produce(node, 0, 0, "m", &offset), ND_OK);
        assert_int_equal(offset, i);
        assert_true(node_take(node, 0, 0, &delivery));
        assert_int_equal(delivery.offset, i);
        assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
        node_advance(node, SETTLED_MS);
        assert_true(evicted(node) == 1);
        if (i % 2 == 0) {
            node_power_cut(node, i);
        } else {
            node_crash(node);
        }
        assert_int_equal(node_open(node, &msg), ND_OK);
        assert_true(gauge(node, "partitions_total") == 0); /* its `state` covers it */
        assert_false(node_take(node, 0, 0, &delivery));
    }
}

static void evict__lets_the_log_go(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_wal_stats before, after;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, SETTLED_MS);
    nd_wal_stats(node->wal, &before);
    assert_true(evicted(node) == 1);
    uint32_t busy = node_topic(node, "busy", 1);
    for (uint32_t i = 0; i < 200; i++) {
        struct node_produce *produce = node_produce_bytes(node, busy, 0, 8000, 1);
        node_run(node);
        nd_free(produce);
        node_advance(node, 100);
    }
    nd_wal_stats(node->wal, &after);
    assert_true(after.replay_from > before.sequence_next); /* nothing of it holds the log back */
    struct node_delivery delivery;
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 0);
}

/* Who uses it while its `state` is written keeps it. */
static void evict__is_given_up_when_it_is_used_meanwhile(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery;
    uint64_t next_ns;

    assert_int_equal(node_produce(node, 0, 0, "m0", NULL), ND_OK);
    node_advance(node, FLUSH_MS + 500);
    for (uint32_t i = 0; i < 4; i++) {
        const char *payload = "next";
        struct node_produce *produce = NULL;
        struct node_poll *poll = NULL;
        sim_env_advance_ms(node->sim, IDLE_MS + LOOK_MS);
        (void)nd_broker_step(node->broker, 0, &next_ns); /* the snapshot is on its way */
        if (i % 2 == 0) {
            produce = node_produce_start(node, 0, 0, &payload, 1);
        } else {
            poll = node_poll_start(node, 0, ND_PARTITION_ANY, 1, 0);
        }
        (void)nd_broker_step(node->broker, 0, &next_ns);
        node_run(node);
        assert_true(evicted(node) == 0);
        if (poll != NULL) {
            assert_int_equal(poll->count, 1);
            assert_int_equal(poll->list[0].offset, i / 2);
            assert_int_equal(node_settle(node, 0, &poll->list[0], ND_SETTLE_ACK), ND_OK);
        }
        nd_free(produce);
        nd_free(poll);
        node_advance(node, FLUSH_MS + 500);
    }
    node_power_cut(node, 5);
    struct nd_errmsg msg;
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 2);
    assert_false(node_take(node, 0, 0, &delivery));
}

/* Everything but the flusher. */
static void run_without_flusher(struct node *node)
{
    uint64_t next_ns;

    while (nd_broker_step(node->broker, 0, &next_ns) || nd_wal_step(node->wal)) {
    }
}

/* A delivery and its ack begin and end between the snapshot and its way to the disk: it no longer
 * looks used, but the snapshot does not know of them. */
static void evict__is_given_up_for_an_ack_that_came_and_went(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "m0", NULL), ND_OK);
    assert_int_equal(node_produce(node, 0, 0, "m1", NULL), ND_OK);
    node_advance(node, FLUSH_MS + 500);
    sim_env_advance_ms(node->sim, IDLE_MS + LOOK_MS);
    run_without_flusher(node); /* the snapshot is on its way */
    struct node_poll *poll = node_poll_start(node, 0, ND_PARTITION_ANY, 1, 0);
    run_without_flusher(node);
    assert_true(poll->done && poll->count == 1);
    struct node_settle *settle = node_settle_start(node, 0, poll->list, 1, ND_SETTLE_ACK);
    run_without_flusher(node);
    assert_true(settle->done);
    assert_int_equal(settle->items[0].result, ND_OK);
    nd_free(settle);
    nd_free(poll);
    node_run(node); /* its `state` is there */
    assert_true(evicted(node) == 0);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 1);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_NACK), ND_OK);
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 1);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 1);
}

/* What others have staged at that moment may still be lost; the `state` must not claim it. */
static void evict__state_claims_no_more_than_what_is_synced(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    const char *payload = "lost";
    uint32_t other = node_topic(node, "other", 1);
    struct nd_partition_id id = {.topic = "t", .incarnation = node->topics[0]->incarnation};
    struct nd_positions positions;
    struct nd_errmsg msg = {{0}};
    struct nd_wal_stats stats;
    uint8_t store_id[16];
    char dir[600];

    memcpy(store_id, nd_flusher_plog_options(node->flusher)->store_id, sizeof store_id);
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, FLUSH_MS + IDLE_MS - LOOK_MS);
    assert_true(evicted(node) == 0);
    node->wal_stalled = true;
    struct node_produce *produce = node_produce_start(node, other, 0, &payload, 1);
    node_advance(node, 2 * LOOK_MS);
    assert_true(evicted(node) == 1);
    assert_false(produce->done);
    nd_wal_stats(node->wal, &stats);
    nd_flusher_partition_dir(node->flusher, &id, dir, sizeof dir);
    nd_positions_init(&positions);
    assert_int_equal(nd_state_load(node->env, dir, store_id, &positions, &msg), ND_OK);
    assert_in_range(positions.applied_sequence, 1, stats.sequence_synced);
    assert_int_equal(positions.next_offset, 1);
    nd_positions_release(&positions);
    node_power_cut(node, 2);
    assert_true(produce->done);
    nd_free(produce);
    assert_int_equal(node_open(node, &msg), ND_OK);
    uint64_t offset;
    assert_int_equal(node_produce(node, 0, 0, "n", &offset), ND_OK);
    assert_int_equal(offset, 1);
}

static void evict__spares_what_somebody_holds_or_waits_for(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t other = node_topic(node, "other", 2);
    struct node_delivery delivery;

    /* A lease. */
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 0);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 1);
    /* A poll that waits for anything of the topic, and one for a partition of it. */
    struct node_poll *any = node_poll_start(node, other, ND_PARTITION_ANY, 1, 50000);
    struct node_poll *pinned = node_poll_start(node, 0, 0, 1, 50000);
    node_advance(node, 3 * SETTLED_MS);
    assert_true(evicted(node) == 1);
    assert_int_equal(node_produce(node, other, 1, "w", NULL), ND_OK);
    assert_int_equal(node_produce(node, 0, 0, "w", NULL), ND_OK);
    assert_true(any->done && any->count == 1 && pinned->done && pinned->count == 1);
    assert_int_equal(node_settle(node, other, &any->list[0], ND_SETTLE_ACK), ND_OK);
    assert_int_equal(node_settle(node, 0, &pinned->list[0], ND_SETTLE_ACK), ND_OK);
    nd_free(any);
    nd_free(pinned);
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 4);
    /* A stream. */
    struct node_subscriber *subscriber = node_subscribe(node, other, ND_PARTITION_ANY, 5);
    node_advance(node, 3 * SETTLED_MS);
    assert_true(evicted(node) == 4);
    assert_int_equal(node_produce(node, other, 0, "s", NULL), ND_OK);
    assert_int_equal(subscriber->count, 1);
    nd_broker_subscriber_close(node->broker, &subscriber->request);
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 6);
    nd_free(subscriber);
    /* A tail that cannot be flushed, an ack whose sync has not returned. */
    assert_int_equal(node_produce(node, 0, 0, "t", NULL), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    node_advance(node, FLUSH_MS + 500);
    node->wal_stalled = true;
    struct node_settle *settle = node_settle_start(node, 0, &delivery, 1, ND_SETTLE_ACK);
    node_advance(node, 2 * SETTLED_MS);
    assert_true(evicted(node) == 6 && !settle->done);
    node->wal_stalled = false;
    node_run(node);
    assert_int_equal(settle->items[0].result, ND_OK);
    nd_free(settle);
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 7);
}

static bool has_metric(struct node *node, const char *line)
{
    struct nd_buf buf;

    nd_buf_init(&buf, 1 << 20);
    nd_metrics_text(node->metrics, &buf);
    nd_buf_put_u8(&buf, 0);
    bool found = strstr((const char *)buf.data, line) != NULL;
    nd_buf_release(&buf);
    return found;
}

/* Nothing of an idle partition costs memory, but a lag stays to be seen. */
static void evict__takes_the_series_along_unless_they_tell_of_a_lag(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t done = node_topic(node, "done", 1);
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    assert_int_equal(node_produce(node, done, 0, "m", NULL), ND_OK);
    assert_true(node_take(node, done, 0, &delivery));
    assert_int_equal(node_settle(node, done, &delivery, ND_SETTLE_ACK), ND_OK);
    assert_true(has_metric(node, "topic=\"done\",partition=\"0\""));
    node_advance(node, SETTLED_MS);
    assert_true(evicted(node) == 2);
    assert_false(has_metric(node, "topic=\"done\",partition=\"0\""));
    assert_true(has_metric(node, "narad_consumer_lag_messages{topic=\"t\",partition=\"0\"} 1\n"));
    assert_false(has_metric(node, "narad_messages_produced_total{topic=\"t\""));
    assert_true(node_take(node, 0, 0, &delivery));
    assert_true(has_metric(node, "narad_messages_consumed_total{topic=\"t\",partition=\"0\"} 1\n"));
}

static void evict__never_happens_when_it_is_off(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    node->options.idle_eviction_ms = 0;
    fixture_restart(fixture);
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, 10 * SETTLED_MS);
    assert_true(evicted(node) == 0);
    assert_true(gauge(node, "open_partition_logs") == 1);
}

static void expect_stats(struct node *node, const struct nd_partition_stats *expected)
{
    struct nd_partition_stats stats = node_stats(node, 0, 0);

    assert_int_equal(stats.oldest_offset, expected->oldest_offset);
    assert_int_equal(stats.next_offset, expected->next_offset);
    assert_int_equal(stats.high_watermark, expected->high_watermark);
    assert_int_equal(stats.frontier, expected->frontier);
    assert_int_equal(stats.acked_ahead, expected->acked_ahead);
    assert_int_equal(stats.segments, expected->segments);
    assert_int_equal(stats.oldest_segment_at_s, expected->oldest_segment_at_s);
    assert_true(stats.size_bytes >= expected->size_bytes); /* whole blocks */
}

static void peek_does_not_stamp(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery[3];

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
        assert_true(node_take(node, 0, 0, &delivery[i]));
    }
    assert_int_equal(node_settle(node, 0, &delivery[0], ND_SETTLE_ACK), ND_OK);
    assert_int_equal(node_settle(node, 0, &delivery[2], ND_SETTLE_ACK), ND_OK);
    assert_int_equal(node_settle(node, 0, &delivery[1], ND_SETTLE_NACK), ND_OK);
    node_advance(node, FLUSH_MS + 100);
    struct nd_partition_stats stats = node_stats(node, 0, 0);
    assert_int_equal(stats.high_watermark, 3);
    assert_int_equal(stats.frontier, 1);
    assert_int_equal(stats.acked_ahead, 1);
    assert_int_equal(stats.segments, 1);
    for (uint32_t i = 0; i < 10; i++) { /* looking keeps nothing open */
        node_advance(node, SETTLED_MS / 10);
        expect_stats(node, &stats);
    }
    assert_true(evicted(node) == 1);
    expect_stats(node, &stats);
    assert_true(gauge(node, "partitions_total") == 0); /* and opened nothing */
    fixture_restart(fixture);
    expect_stats(node, &stats); /* never touched since the start */
    assert_true(gauge(node, "partitions_total") == 0);
    assert_true(gauge(node, "open_partition_logs") == 0);
}

static void stats__of_a_recovered_partition_count_its_segments(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, FLUSH_MS + 100);
    struct nd_partition_stats stats = node_stats(node, 0, 0);
    node_crash(node);
    struct nd_errmsg msg;
    assert_int_equal(node_open(node, &msg), ND_OK);
    expect_stats(node, &stats);
    assert_true(gauge(node, "open_partition_logs") == 0);
}

static void evict_defers_to_retention(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    node->options.idle_eviction_ms = 8000;
    fixture_restart(fixture);
    node_topic_retention(node, 0, 7000);
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, 6500);
    sim_env_fail_from(fixture->sim, SIM_RENAME, 1, SIM_FAULT_IO); /* nothing can be removed */
    node_advance(node, 20000);
    sim_env_fail_clear(fixture->sim);
    assert_true(evicted(node) == 0); /* I-47 */
    assert_int_equal(node_stats(node, 0, 0).segments, 1);
    node_advance(node, 2 * LOOK_MS);
    assert_int_equal(node_stats(node, 0, 0).segments, 0);
    assert_true(evicted(node) == 1);
}

static void evict__that_fails_is_counted_and_tried_again(void **state)
{
    static const enum sim_call calls[] = {SIM_OPEN, SIM_PWRITE, SIM_SYNC, SIM_RENAME, SIM_SYNC_DIR};
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery;

    for (size_t i = 0; i < ND_ARRAY_SIZE(calls); i++) {
        assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
        assert_true(node_take(node, 0, 0, &delivery));
        assert_int_equal(delivery.offset, i);
        assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
        node_advance(node, IDLE_MS - LOOK_MS);
        sim_env_fail_nth(fixture->sim, calls[i], 1, SIM_FAULT_IO);
        node_advance(node, 2 * LOOK_MS + 500);
        sim_env_fail_clear(fixture->sim);
        assert_true(sim_env_fault_fired(fixture->sim) || calls[i] == SIM_OPEN);
        node_advance(node, SETTLED_MS);
        assert_true(evicted(node) == (double)(i + 1));
        assert_false(node_take(node, 0, 0, &delivery));
        node_advance(node, 100);
    }
}

static bool dir_exists(struct node *node, const char *path)
{
    struct nd_file_stat stat;

    return node->env->stat(node->env->impl, path, &stat, NULL) == ND_OK;
}

static void late_open_does_not_resurrect(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_topic *old = nd_topic_ref(node->topics[0]);
    uint64_t next_ns;
    char dir[128];

    snprintf(dir, sizeof dir, "data/topics/t/%016llx", (unsigned long long)old->incarnation);
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, FLUSH_MS + 500);
    assert_true(dir_exists(node, dir));
    /* Deleted while its `state` is on its way to the disk. */
    sim_env_advance_ms(node->sim, IDLE_MS + LOOK_MS);
    (void)nd_broker_step(node->broker, 0, &next_ns);
    node_topic_delete(node, 0);
    (void)nd_broker_step(node->broker, 0, &next_ns);
    node_advance(node, 5000);
    assert_false(dir_exists(node, dir));
    /* A request that was checked against the old record comes late. */
    node->topics[0] = old;
    assert_int_equal(node_produce(node, 0, 0, "late", NULL), ND_ERR_TOPIC_NOT_FOUND);
    struct node_replay *replay = node_replay(node, 0, 0, 0, 1);
    assert_int_equal(replay->err, ND_ERR_TOPIC_NOT_FOUND);
    nd_free(replay);
    node_advance(node, 5000);
    assert_false(dir_exists(node, dir));
}

/* Steps in any order, eviction at every look: offsets stay dense, everything is delivered once. */
static void evict_vs_commit_stress(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint64_t produced = 0, taken = 0, random = 7, next_ns;

    node->options.look_ms = 1;
    node->options.idle_eviction_ms = 1;
    node->options.flush_age_ms = 1;
    fixture_restart(fixture);
    for (uint32_t i = 0; i < 3000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        switch (random >> 60) {
        case 0:
        case 1:
        case 2: {
            uint64_t offset;
            assert_int_equal(node_produce(node, 0, 0, "m", &offset), ND_OK);
            assert_int_equal(offset, produced);
            produced += 1;
            break;
        }
        case 3:
        case 4:
        case 5: {
            struct node_delivery delivery;
            bool any = node_take(node, 0, 0, &delivery);
            assert_true(any == (taken < produced));
            if (any) {
                assert_int_equal(delivery.offset, taken);
                assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
                taken += 1;
            }
            break;
        }
        case 6:
        case 7: (void)nd_flusher_step(node->flusher); break;
        case 8:
        case 9: (void)nd_wal_step(node->wal); break;
        case 10:
            if (random >> 40 & 1) {
                fixture_restart(fixture);
            }
            break;
        default: sim_env_advance_ms(node->sim, 2); (void)nd_broker_step(node->broker, 0, &next_ns);
        }
    }
    assert_true(produced > 400 && taken > 300);
    node_advance(node, 100);
    assert_true(evicted(node) >= 1);
    assert_int_equal(node_stats(node, 0, 0).high_watermark, produced);
    assert_int_equal(node_stats(node, 0, 0).frontier, taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)
        T(evict__forgets_an_idle_partition_and_the_next_use_finds_all),
        T(evict__of_what_is_unchanged_writes_nothing),
        T(evict__survives_a_power_cut_and_a_crash),
        T(evict__lets_the_log_go),
        T(evict__is_given_up_when_it_is_used_meanwhile),
        T(evict__is_given_up_for_an_ack_that_came_and_went),
        T(evict__state_claims_no_more_than_what_is_synced),
        T(evict__spares_what_somebody_holds_or_waits_for),
        T(evict__takes_the_series_along_unless_they_tell_of_a_lag),
        T(evict__never_happens_when_it_is_off),
        T(peek_does_not_stamp),
        T(stats__of_a_recovered_partition_count_its_segments),
        T(evict_defers_to_retention),
        T(evict__that_fails_is_counted_and_tried_again),
        T(late_open_does_not_resurrect),
        T(evict_vs_commit_stress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
