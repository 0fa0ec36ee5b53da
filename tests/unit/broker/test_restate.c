/* POSITIONs (W7): what they say about entries that are staged before them. */
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
    for (uint32_t i = 0; i < 40; i++) { /* the clock stands, so nothing is lifted */
        struct node_produce *produce = node_produce_bytes(node, noise, 0, 15000, 1);
        node_run(node);
        assert_int_equal(produce->err, ND_OK);
        nd_free(produce);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(position__holds_acks_and_records_staged_before_it),
        T(position__of_a_partition_that_is_flushed_waits),
        T(position__that_failed_leaves_the_pin_where_it_was),
        T(position__that_failed_again_at_the_stop_is_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
