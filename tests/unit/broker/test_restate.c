/* POSITIONs (W7): what they say about entries that are staged before them. Records that no segment
 * takes (F3): restated, so that the log stays small. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/broker/flush.h"
#include "server/broker/restate.h"
#include "server/broker/topic_state.h"
#include "tests/unit/broker/fixture.h"

static struct nd_partition *partition_of(struct node *node, uint32_t topic)
{
    struct nd_topic_state *state =
        nd_map_get_u64(node->broker->shards[0].topics, node->topics[topic]->incarnation);

    return state->partitions[0];
}

/* Traffic on another topic while the clock stands, so nothing is lifted. */
static void noise_at_once(struct node *node, uint32_t topic, uint32_t messages)
{
    for (uint32_t i = 0; i < messages; i++) {
        struct node_produce *produce = node_produce_bytes(node, topic, 0, 15000, 1);
        node_run(node);
        assert_int_equal(produce->err, ND_OK);
        nd_free(produce);
    }
}

/* Partition 0 of topic 0 is flushed and stands in a file that must go; nothing was done about it
 * yet. */
static uint32_t stand_in_an_old_file(struct fixture *fixture)
{
    struct node *node = &fixture->node;

    node->options.wal_keep_bytes = 0;
    node->options.flush_age_ms = 1000;
    fixture_restart(fixture);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    }
    node_advance(node, 2000);
    uint32_t noise = node_topic(node, "noise", 1);
    noise_at_once(node, noise, 40);
    assert_true(nd_wal_lift_below(node->wal) > partition_of(node, 0)->position_from);
    return noise;
}

static void position__holds_acks_and_records_staged_before_it(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;
    const char *payload = "staged";

    stand_in_an_old_file(fixture);
    uint64_t before = partition_of(node, 0)->position_from;
    assert_true(node_take(node, 0, 0, &delivery));
    struct node_settle *settle = node_settle_start(node, 0, &delivery, 1, ND_SETTLE_ACK);
    struct node_produce *produce = node_produce_start(node, 0, 0, &payload, 1);
    sim_env_advance_ms(node->sim, 200); /* the step that stages both also restates */
    node_run(node);
    assert_true(settle->done && settle->items[0].result == ND_OK);
    assert_int_equal(produce->err, ND_OK);
    assert_true(partition_of(node, 0)->position_from > before);
    nd_free(settle);
    nd_free(produce);

    node_power_cut(node, 11);
    assert_int_equal(node_open(node, &msg), ND_OK);
    uint64_t offset;
    assert_int_equal(node_produce(node, 0, 0, "next", &offset), ND_OK);
    assert_int_equal(offset, 4);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 1); /* offset 0 was acked before the POSITION */
    assert_true(node_take(node, 0, 0, &delivery));
    assert_true(node_take(node, 0, 0, &delivery));
    assert_string_equal(delivery.payload, "staged");
}

static void position__of_a_partition_that_is_flushed_waits(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    struct nd_partition *partition = partition_of(node, 0);
    node->wal_stalled = true;
    assert_true(nd_flush_start(partition));
    node_run(node); /* its CHECKPOINT is staged: a POSITION behind it would not know of it */
    assert_non_null(partition->flush);
    assert_false(nd_restate_add(partition));
    node->wal_stalled = false;
    node_run(node);
    assert_null(partition->flush);
    assert_true(nd_restate_add(partition));
    assert_true(nd_restate_stage(partition->topic->shard));
    node_run(node);
}

static void position__that_failed_leaves_the_pin_where_it_was(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;

    stand_in_an_old_file(fixture);
    uint64_t before = partition_of(node, 0)->position_from;
    sim_env_fail_nth(node->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    sim_env_advance_ms(node->sim, 200);
    node_run(node);
    assert_int_equal(partition_of(node, 0)->position_from, before);
    node_advance(node, 5000); /* the WAL heals, and it is tried again */
    assert_true(partition_of(node, 0)->position_from > before);
    node_power_cut(node, 12);
    assert_int_equal(node_open(node, &msg), ND_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(node_take(node, 0, 0, &delivery));
        assert_int_equal(delivery.offset, i);
    }
}

static void position__that_failed_again_at_the_stop_is_let_go(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};

    stand_in_an_old_file(fixture);
    sim_env_fail_from(node->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    sim_env_advance_ms(node->sim, 200);
    node_run(node);
    struct nd_partition *partition = partition_of(node, 0);
    assert_true(partition->lifting && !nd_list_empty(&partition->stuck));
    assert_true(nd_restate_add(partition)); /* as the stop sequence does */
    assert_false(nd_restate_stage(partition->topic->shard));
    struct nd_list *stuck = &partition->topic->shard->stuck;
    uint32_t times = 0;
    ND_LIST_FOREACH (stuck, link) {
        times += link == &partition->stuck;
        assert_true(times <= 1);
    }
    assert_int_equal(times, 1);
    sim_env_fail_clear(node->sim);
    node_power_cut(node, 13);
    assert_int_equal(node_open(node, &msg), ND_OK);
}

/* --- F3 --- */

static uint64_t wal_bytes(struct node *node)
{
    struct nd_wal_stats stats;

    nd_wal_stats(node->wal, &stats);
    return stats.bytes_retained;
}

static double restated_bytes(struct node *node)
{
    return nd_series_value(nd_metrics_counter(node->metrics, "wal_restated_bytes_total", "", ""));
}

static double unflushable_gauge(struct node *node)
{
    return nd_series_value(nd_metrics_gauge(node->metrics, "unflushable_partitions", "", ""));
}

/* Topic 0 has 10 messages "m0"… of which m0 is acked, and its directory takes no write. */
static void make_unflushable(struct fixture *fixture)
{
    struct node *node = &fixture->node;
    struct node_delivery delivery;
    char payload[8];

    node->options.flush_age_ms = 1000;
    fixture_restart(fixture);
    sim_env_fail_writes_under(node->sim, "data/topics/t/");
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(payload, sizeof payload, "m%u", i);
        assert_int_equal(node_produce(node, 0, 0, payload, NULL), ND_OK);
    }
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
    node_advance(node, 6000);
    assert_true(partition_of(node, 0)->unflushable);
    assert_int_equal(node_produce(node, 0, 0, "refused", NULL), ND_ERR_UNAVAILABLE);
    assert_true(unflushable_gauge(node) == 1);
}

/* Traffic on another topic; returns the most that the log held. */
static uint64_t noise_make(struct node *node, uint32_t topic, uint32_t messages)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < messages; i++) {
        struct node_produce *produce = node_produce_bytes(node, topic, 0, 15000, 1);
        node_run(node);
        assert_int_equal(produce->err, ND_OK);
        nd_free(produce);
        node_advance(node, 150);
        most = ND_MAX(most, wal_bytes(node));
    }
    return most;
}

/* All 10 are there, at their offsets, and m0 stays acked. */
static void assert_ten(struct node *node)
{
    struct node_replay *replay = node_replay(node, 0, 0, 0, 100);
    struct node_delivery delivery;
    char payload[8];

    assert_int_equal(replay->err, ND_OK);
    assert_true(replay->count >= 10);
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(payload, sizeof payload, "m%u", i);
        assert_int_equal(replay->list[i].offset, i);
        assert_string_equal(replay->list[i].payload, payload);
    }
    nd_free(replay);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 1);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_NACK), ND_OK);
}

static void restate_f3__the_log_stays_small_while_a_partition_is_unflushable(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    uint64_t offset;

    make_unflushable(fixture);
    uint32_t noise = node_topic(node, "noise", 1);
    /* 4.5 MB through a log that keeps 512 KiB: that, the file that is written, the one that goes.
     */
    assert_true(noise_make(node, noise, 300) <= (512 << 10) + 3 * (uint64_t)NODE_WAL_FILE);
    assert_true(restated_bytes(node) > 0);
    assert_ten(node);

    for (uint64_t seed = 1; seed <= 3; seed++) { /* unflushable all the time */
        node_power_cut(node, seed);
        assert_int_equal(node_open(node, &msg), ND_OK);
        assert_ten(node);
        noise_make(node, noise, 100);
    }

    sim_env_fail_writes_under(node->sim, NULL);
    node_advance(node, 12000);
    assert_false(partition_of(node, 0)->unflushable);
    assert_true(unflushable_gauge(node) == 0);
    assert_int_equal(node_stats(node, 0, 0).segments, 1);
    assert_int_equal(node_produce(node, 0, 0, "healed", &offset), ND_OK);
    assert_int_equal(offset, 10);
    node_power_cut(node, 9);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_ten(node);
}

static void restate_f3__restating_alone_is_no_reason_to_restate(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    make_unflushable(fixture);
    noise_make(node, node_topic(node, "noise", 1), 300);
    double before = restated_bytes(node);
    assert_true(before > 0);
    /* An hour with a few acks: the 60 s rule looks for files to let go all the time. */
    for (uint32_t i = 0; i < 36; i++) {
        struct node_delivery delivery;
        assert_true(node_take(node, 0, 0, &delivery));
        assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_NACK), ND_OK);
        node_advance(node, 100000);
    }
    size_t unflushable = node->broker->unflushable_bytes;
    assert_true(restated_bytes(node) <= before + 2 * (double)unflushable);
    assert_true(wal_bytes(node) <= 4 * (uint64_t)NODE_WAL_FILE);
}

static void restate_f3__a_topic_deleted_meanwhile_frees_the_log(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};

    make_unflushable(fixture);
    uint32_t noise = node_topic(node, "noise", 1);
    noise_at_once(node, noise, 80);
    node->wal_stalled = true; /* the records are staged, not synced */
    sim_env_advance_ms(node->sim, 1100);
    node_run(node);
    assert_true(node->broker->shards[0].records_staged);
    node_topic_delete(node, 0);
    node_run(node);
    node->wal_stalled = false;
    node_run(node);
    assert_int_equal(node->broker->unflushable_bytes, 0);
    noise_make(node, noise, 60);
    node_power_cut(node, 3);
    assert_int_equal(node_open(node, &msg), ND_OK);
    node->gone = true;
    noise_make(node, noise, 100);
    assert_true(wal_bytes(node) <= (512 << 10) + 3 * (uint64_t)NODE_WAL_FILE);
}

static void restate_f3__a_unit_that_failed_leaves_the_records_where_they_were(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};

    make_unflushable(fixture);
    uint32_t noise = node_topic(node, "noise", 1);
    noise_at_once(node, noise, 80);
    uint64_t before = nd_tail_oldest_sequence(&partition_of(node, 0)->tail);
    sim_env_fail_nth(node->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    sim_env_advance_ms(node->sim, 1100);
    node_run(node);
    assert_true(sim_env_fault_fired(node->sim));
    assert_int_equal(nd_tail_oldest_sequence(&partition_of(node, 0)->tail), before);
    node_advance(node, 3000); /* the WAL heals, and it is tried again */
    assert_true(nd_tail_oldest_sequence(&partition_of(node, 0)->tail) > before);
    node_power_cut(node, 4);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_ten(node);
}

static void restate_f3__a_full_disk_restates_only_above_the_reserve(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    make_unflushable(fixture);
    uint32_t noise = node_topic(node, "noise", 1);
    noise_at_once(node, noise, 80);
    node->options.wal_keep_bytes = 512 << 10;
    /* Less than the reserve of 1 MiB and a file are left. */
    sim_env_set_space(node->sim, sim_env_space_used(node->sim) + (1 << 20));
    sim_env_advance_ms(node->sim, 1100);
    nd_wal_check_space(node->wal);
    double before = restated_bytes(node);
    node_advance(node, 5000);
    assert_true(restated_bytes(node) == before);
    /* Still too little for produce, but enough to free files. */
    sim_env_set_space(node->sim, sim_env_space_used(node->sim) + (1 << 20) + NODE_WAL_FILE);
    node_advance(node, 5000);
    assert_true(restated_bytes(node) > before);
    assert_ten(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(position__holds_acks_and_records_staged_before_it),
        T(position__of_a_partition_that_is_flushed_waits),
        T(position__that_failed_leaves_the_pin_where_it_was),
        T(position__that_failed_again_at_the_stop_is_let_go),
        T(restate_f3__the_log_stays_small_while_a_partition_is_unflushable),
        T(restate_f3__restating_alone_is_no_reason_to_restate),
        T(restate_f3__a_topic_deleted_meanwhile_frees_the_log),
        T(restate_f3__a_unit_that_failed_leaves_the_records_where_they_were),
        T(restate_f3__a_full_disk_restates_only_above_the_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
