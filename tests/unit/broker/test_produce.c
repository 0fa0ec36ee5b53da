#include "storage/base/alloc.h"

#include "tests/unit/broker/fixture.h"

static void produce__is_answered_only_after_its_sync(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    const char *payload = "m";
    uint64_t syncs = sim_env_calls(node->sim, SIM_SYNC);

    node->wal_stalled = true;
    struct node_produce *produce = node_produce_start(node, 0, 0, &payload, 1);
    node_run(node);
    assert_false(produce->done);
    struct node_delivery delivery;
    assert_false(node_take(node, 0, 0, &delivery));
    node->wal_stalled = false;
    node_run(node);

    assert_true(produce->done);
    assert_int_equal(produce->err, ND_OK);
    assert_true(sim_env_calls(node->sim, SIM_SYNC) > syncs); /* P1 */
    nd_free(produce);
}

/* T1: whatever waits for the log, an ack waits for little of it. */
static void produce__beyond_what_is_staged_waits_and_acks_pass(void **state)
{
    enum { COUNT = 8 };
    struct node *node = &((struct fixture *)*state)->node;
    struct node_produce *produces[COUNT];
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    node->wal_stalled = true;
    for (uint32_t i = 0; i < COUNT; i++) {
        produces[i] = node_produce_bytes(node, 0, 0, 6000, 1);
    }
    struct node_settle *settle = node_settle_start(node, 0, &delivery, 1, ND_SETTLE_ACK);
    node_run(node);
    node->wal_stalled = false;
    for (uint32_t steps = 0; !settle->done; steps++) {
        assert_true(steps < 1000);
        (void)node_step(node);
    }

    assert_true(produces[0]->done);
    assert_false(produces[COUNT - 1]->done);
    node_run(node);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(produces[i]->done);
        assert_int_equal(produces[i]->err, ND_OK);
        assert_int_equal(produces[i]->offsets[0], i + 1); /* in the order they came */
        nd_free(produces[i]);
    }
    nd_free(settle);
}

static void produce__that_waits_is_answered_when_the_log_fails_or_stops(void **state)
{
    enum { COUNT = 8 };
    struct node *node = &((struct fixture *)*state)->node;
    struct node_produce *produces[COUNT];

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK); /* it is open: nothing parks */
    sim_env_fail_nth(node->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    for (uint32_t i = 0; i < COUNT; i++) {
        produces[i] = node_produce_bytes(node, 0, 0, 6000, 1);
    }
    node_run(node);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(produces[i]->done);
        assert_int_equal(produces[i]->err, i < 3 ? ND_ERR_UNKNOWN_OUTCOME : ND_ERR_UNAVAILABLE);
        nd_free(produces[i]);
    }
    node_advance(node, 3000);

    for (uint32_t i = 0; i < COUNT; i++) {
        produces[i] = node_produce_bytes(node, 0, 0, 6000, 1);
    }
    node_stop(node);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(produces[i]->done);
        nd_free(produces[i]);
    }
    assert_int_equal(node_open(node, &(struct nd_errmsg){{0}}), ND_OK);
}

static void produce__survives_a_power_cut_once_answered(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;
    uint64_t offset;

    assert_int_equal(node_produce(node, 0, 0, "kept", &offset), ND_OK);
    node_power_cut(node, 99);
    assert_int_equal(node_open(node, &msg), ND_OK);

    assert_true(node_take(node, 0, 0, &delivery)); /* P1, P3 */
    assert_string_equal(delivery.payload, "kept");
    assert_int_equal(delivery.offset, offset);
    assert_false(node_take(node, 0, 0, &delivery)); /* stored once */
}

static void produce__numbers_each_partition_from_0_in_the_order_sent(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    uint32_t topic = node_topic(node, "many", 4);
    const char *payloads[6] = {"a", "b", "c", "d", "e", "f"};
    uint64_t next[4] = {0};

    struct node_produce *produce = node_produce_start(node, topic, -1, payloads, 6);
    node_run(node);

    assert_int_equal(produce->err, ND_OK);
    assert_true(produce->has_offsets);
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t partition = nd_fnv1a32(nd_slice_str(payloads[i])) % 4;
        assert_int_equal(produce->offsets[i], next[partition]++); /* I-16: batch order */
    }
    nd_free(produce);
}

static void produce__of_a_batch_is_all_or_nothing(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    uint32_t topic = node_topic(node, "many", 3);
    const char *payloads[5] = {"a", "b", "c", "d", "e"};
    struct node_delivery delivery;

    /* The sync of the group fails: nothing of any partition may be seen (I-16), now or later. */
    sim_env_fail_nth(node->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    struct node_produce *produce = node_produce_start(node, topic, -1, payloads, 5);
    node_run(node);
    assert_true(produce->done);
    assert_int_equal(produce->err, ND_ERR_UNKNOWN_OUTCOME);
    nd_free(produce);
    node_advance(node, 3000);
    assert_false(node_take(node, topic, ND_PARTITION_ANY, &delivery));

    produce = node_produce_start(node, topic, -1, payloads, 5);
    node_run(node);
    assert_int_equal(produce->err, ND_OK);
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t before = 0;
        for (uint32_t j = 0; j < i; j++) {
            before += nd_fnv1a32(nd_slice_str(payloads[j])) % 3 ==
                      nd_fnv1a32(nd_slice_str(payloads[i])) % 3;
        }
        assert_int_equal(produce->offsets[i], before); /* the failed offsets were taken back */
    }
    nd_free(produce);
}

static void produce__after_a_failed_sync_refuses_then_heals_without_a_restart(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;
    uint64_t offset = 77;

    assert_int_equal(node_produce(node, 0, 0, "one", &offset), ND_OK);
    assert_int_equal(offset, 0);
    sim_env_fail_from(node->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    assert_int_equal(node_produce(node, 0, 0, "lost", NULL), ND_ERR_UNKNOWN_OUTCOME); /* W5 */
    assert_int_equal(node_produce(node, 0, 0, "lost", NULL), ND_ERR_UNAVAILABLE);
    assert_true(node_take(node, 0, 0, &delivery)); /* deliveries of synced records go on */
    sim_env_fail_clear(node->sim);
    node_advance(node, 3000);
    assert_int_equal(node_produce(node, 0, 0, "two", &offset), ND_OK);
    assert_int_equal(offset, 1);

    node_power_cut(node, 5);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_string_equal(delivery.payload, "one");
    assert_true(node_take(node, 0, 0, &delivery));
    assert_string_equal(delivery.payload, "two");
    assert_false(node_take(node, 0, 0, &delivery));
}

static void produce__commit_times_never_decrease(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    int64_t last_ms = 0;

    /* I-39, with a wall clock that is turned back, also over a restart. */
    assert_int_equal(node_produce(node, 0, 0, "1", NULL), ND_OK);
    sim_env_set_wall_ms(node->sim, node->env->wall_ms(node->env->impl) - 3600000);
    assert_int_equal(node_produce(node, 0, 0, "2", NULL), ND_OK);
    node_stop(node);
    sim_env_restart(node->sim);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_int_equal(node_produce(node, 0, 0, "3", NULL), ND_OK);

    for (uint32_t i = 0; i < 3; i++) {
        struct node_delivery delivery;
        assert_true(node_take(node, 0, 0, &delivery));
        assert_true(delivery.time_ms >= last_ms);
        last_ms = delivery.time_ms;
    }
}

static void produce__is_refused_at_the_tail_budget_and_taken_again_after_a_flush(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t refused = 0;

    node->options.tail_memory_bytes = 64 << 10;
    node->options.staged_bytes_max = 0; /* nothing is held */
    node->options.flush_bytes = 1 << 30;
    fixture_restart(fixture);
    /* The flusher's writes fail for want of space, so nothing leaves memory. */
    struct node_produce *first = node_produce_bytes(node, 0, 0, 20000, 3);
    node->wal_stalled = true;
    node_run(node);
    struct node_produce *second = node_produce_bytes(node, 0, 0, 20000, 1);
    node_run(node);
    assert_true(second->done);
    refused += second->err == ND_ERR_OVERLOADED; /* F1: never an OOM kill */
    node->wal_stalled = false;
    node_advance(node, 1000); /* above half the budget: flushed */

    assert_int_equal(refused, 1);
    assert_int_equal(first->err, ND_OK);
    assert_int_equal(node_produce(node, 0, 0, "fits", NULL), ND_OK);
    nd_free(first);
    nd_free(second);
}

static void produce__of_a_full_disk_is_refused_while_acks_go_on(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    sim_env_set_space(node->sim, sim_env_space_used(node->sim) + (1 << 20)); /* the reserve */
    node_advance(node, 2000);
    assert_int_equal(node_produce(node, 0, 0, "n", NULL), ND_ERR_NO_SPACE); /* W6 */
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
    sim_env_set_space(node->sim, UINT64_C(1) << 30);
    node_advance(node, 2000);
    assert_int_equal(node_produce(node, 0, 0, "n", NULL), ND_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(produce__is_answered_only_after_its_sync),
        T(produce__beyond_what_is_staged_waits_and_acks_pass),
        T(produce__that_waits_is_answered_when_the_log_fails_or_stops),
        T(produce__survives_a_power_cut_once_answered),
        T(produce__numbers_each_partition_from_0_in_the_order_sent),
        T(produce__of_a_batch_is_all_or_nothing),
        T(produce__after_a_failed_sync_refuses_then_heals_without_a_restart),
        T(produce__commit_times_never_decrease),
        T(produce__is_refused_at_the_tail_budget_and_taken_again_after_a_flush),
        T(produce__of_a_full_disk_is_refused_while_acks_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
