#include <stdio.h>

#include "storage/base/alloc.h"

#include "tests/unit/broker/fixture.h"

static void produce_many(struct node *node, uint32_t topic, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char payload[16];
        snprintf(payload, sizeof payload, "m%u", i);
        assert_int_equal(node_produce(node, topic, 0, payload, NULL), ND_OK);
    }
}

static void lease__of_an_offset_is_held_by_one(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery first, second;

    produce_many(node, 0, 1);
    assert_true(node_take(node, 0, 0, &first));
    assert_false(node_take(node, 0, 0, &second)); /* I-50 */
    assert_int_equal(first.attempt, 1);
}

static void lease__expires_on_time_and_never_early(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery;

    produce_many(node, 0, 1);
    assert_true(node_take(node, 0, 0, &delivery));
    uint64_t nonce = delivery.nonce;
    node_advance(node, NODE_LEASE_MS - 1);
    assert_false(node_take(node, 0, 0, &delivery)); /* I-53 */
    struct node_poll *poll = node_poll_start(node, 0, 0, 1, 1000);
    node_run(node);
    assert_false(poll->done);
    node_advance(node, 1); /* the waiting one gets it, without asking again (I-57) */

    assert_true(poll->done);
    assert_int_equal(poll->count, 1);
    assert_int_equal(poll->list[0].attempt, 2);
    assert_true(poll->list[0].nonce != nonce);
    nd_free(poll);
}

static void settle__with_a_dead_nonce_is_stale_and_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery old, delivery;

    produce_many(node, 0, 1);
    assert_true(node_take(node, 0, 0, &old));
    node_advance(node, NODE_LEASE_MS);
    assert_int_equal(node_settle(node, 0, &old, ND_SETTLE_ACK), ND_ERR_STALE); /* I-51 */
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(node_settle(node, 0, &old, ND_SETTLE_EXTEND), ND_ERR_STALE);
    assert_int_equal(node_settle(node, 0, &old, ND_SETTLE_NACK), ND_ERR_STALE);

    /* A handle from before a restart. */
    fixture_restart(fixture);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_ERR_STALE);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_ERR_STALE);
}

static void ack__is_answered_after_its_sync_and_survives_a_power_cut(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery[2], again;

    produce_many(node, 0, 2);
    assert_true(node_take(node, 0, 0, &delivery[0]));
    assert_true(node_take(node, 0, 0, &delivery[1]));
    node->wal_stalled = true;
    struct node_settle *settle = node_settle_start(node, 0, &delivery[1], 1, ND_SETTLE_ACK);
    node_run(node);
    assert_false(settle->done);
    node->wal_stalled = false;
    node_run(node);
    assert_true(settle->done);
    assert_int_equal(settle->items[0].result, ND_OK);
    nd_free(settle);

    node_power_cut(node, 3);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_true(node_take(node, 0, 0, &again)); /* P2, I-69: above the frontier, too */
    assert_int_equal(again.offset, delivery[0].offset);
    assert_false(node_take(node, 0, 0, &again));
}

static void ack__gathers_all_of_one_drain_in_one_unit(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery[8];
    struct node_settle *settles[8];
    struct nd_wal_stats before, after;

    produce_many(node, 0, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(node_take(node, 0, 0, &delivery[i]));
    }
    nd_wal_stats(node->wal, &before);
    for (uint32_t i = 0; i < 8; i++) {
        settles[i] = node_settle_start(node, 0, &delivery[i], 1, ND_SETTLE_ACK);
    }
    node_run(node);
    nd_wal_stats(node->wal, &after);

    assert_int_equal(after.sequence_next - before.sequence_next, 1);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(settles[i]->items[0].result, ND_OK);
        nd_free(settles[i]);
    }
}

static void ack__of_an_offset_that_is_settling_shares_its_outcome(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery;

    produce_many(node, 0, 1);
    assert_true(node_take(node, 0, 0, &delivery));
    node->wal_stalled = true;
    struct node_settle *first = node_settle_start(node, 0, &delivery, 1, ND_SETTLE_ACK);
    node_run(node);
    struct node_settle *second = node_settle_start(node, 0, &delivery, 1, ND_SETTLE_ACK);
    struct node_settle *extend = node_settle_start(node, 0, &delivery, 1, ND_SETTLE_EXTEND);
    struct node_settle *nack = node_settle_start(node, 0, &delivery, 1, ND_SETTLE_NACK);
    node_run(node);
    assert_false(second->done);
    assert_int_equal(extend->items[0].result, ND_ERR_STALE);
    assert_int_equal(nack->items[0].result, ND_ERR_STALE);
    /* It neither expires nor is given to another while it settles. */
    sim_env_advance_ms(node->sim, 2 * NODE_LEASE_MS);
    struct node_delivery again;
    assert_false(node_take(node, 0, 0, &again));
    node->wal_stalled = false;
    node_run(node);

    assert_int_equal(first->items[0].result, ND_OK);
    assert_int_equal(second->items[0].result, ND_OK);
    nd_free(first);
    nd_free(second);
    nd_free(extend);
    nd_free(nack);
}

static void ack__that_cannot_be_synced_keeps_its_lease_while_the_wal_is_down(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery, other;

    produce_many(node, 0, 1);
    assert_true(node_take(node, 0, 0, &delivery));
    node_advance(node, NODE_LEASE_MS - 5000);
    sim_env_fail_from(node->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_ERR_UNAVAILABLE);
    node_advance(node, 20000); /* its time would be over */
    assert_false(node_take(node, 0, 0, &other));
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_ERR_UNAVAILABLE);
    sim_env_fail_clear(node->sim);
    node_advance(node, 3000);
    assert_false(node_take(node, 0, 0, &other)); /* W6: the deadline moved */
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
    node_advance(node, 2 * NODE_LEASE_MS);
    assert_false(node_take(node, 0, 0, &other));
}

static void frontier__passes_settled_offsets_only(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery[4];

    produce_many(node, 0, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(node_take(node, 0, 0, &delivery[i]));
    }
    uint32_t order[4] = {2, 0, 3, 1};
    uint64_t frontier[4] = {0, 1, 1, 4}; /* I-52 */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(node_settle(node, 0, &delivery[order[i]], ND_SETTLE_ACK), ND_OK);
        assert_int_equal(node_stats(node, 0, 0).frontier, frontier[i]);
    }
}

static void nack__gives_the_record_to_the_next_at_once(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery;

    produce_many(node, 0, 1);
    assert_true(node_take(node, 0, 0, &delivery));
    struct node_poll *poll = node_poll_start(node, 0, 0, 1, 10000);
    node_run(node);
    assert_false(poll->done);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_NACK), ND_OK);

    assert_true(poll->done);
    assert_int_equal(poll->list[0].offset, delivery.offset);
    assert_int_equal(poll->list[0].attempt, 2);
    nd_free(poll);
}

static void extend__supersedes_the_old_deadline(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery, other;

    produce_many(node, 0, 1);
    assert_true(node_take(node, 0, 0, &delivery));
    node_advance(node, NODE_LEASE_MS - 1000);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_EXTEND), ND_OK);
    node_advance(node, NODE_LEASE_MS - 1000);
    assert_false(node_take(node, 0, 0, &other)); /* I-67 */
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
}

static void caps__hold_deliveries_back_and_an_ack_frees_a_slot(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery[2], other;

    node_topic_caps(node, 0, 2, 1000);
    produce_many(node, 0, 3);
    assert_true(node_take(node, 0, 0, &delivery[0]));
    assert_true(node_take(node, 0, 0, &delivery[1]));
    assert_false(node_take(node, 0, 0, &other)); /* I-54 */
    struct node_poll *poll = node_poll_start(node, 0, 0, 1, 10000);
    node_run(node);
    assert_false(poll->done);
    assert_int_equal(node_settle(node, 0, &delivery[1], ND_SETTLE_ACK), ND_OK);
    assert_true(poll->done);
    assert_int_equal(poll->count, 1);
    nd_free(poll);
}

static void caps__of_acked_ahead_serve_only_the_hole_and_refuse_no_ack(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery[5], other;

    node_topic_caps(node, 0, 1000, 2);
    produce_many(node, 0, 6);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(node_take(node, 0, 0, &delivery[i]));
    }
    for (uint32_t i = 1; i < 5; i++) { /* beyond the cap: never refused (I-56) */
        assert_int_equal(node_settle(node, 0, &delivery[i], ND_SETTLE_ACK), ND_OK);
    }
    assert_false(node_take(node, 0, 0, &other)); /* offset 5 is held back */
    assert_int_equal(node_settle(node, 0, &delivery[0], ND_SETTLE_NACK), ND_OK);
    assert_true(node_take(node, 0, 0, &other)); /* I-55: the hole, and only that */
    assert_int_equal(other.offset, 0);
    struct node_delivery none;
    assert_false(node_take(node, 0, 0, &none));
    assert_int_equal(node_settle(node, 0, &other, ND_SETTLE_ACK), ND_OK);
    assert_true(node_take(node, 0, 0, &other)); /* one ack there resumes normal service */
    assert_int_equal(other.offset, 5);
}

static void settle__of_other_topics_and_partitions_is_stale(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery;

    produce_many(node, 0, 1);
    assert_true(node_take(node, 0, 0, &delivery));
    struct node_delivery wrong = delivery;
    wrong.partition = 9;
    assert_int_equal(node_settle(node, 0, &wrong, ND_SETTLE_ACK), ND_ERR_STALE);
    wrong = delivery;
    wrong.offset = UINT64_MAX;
    assert_int_equal(node_settle(node, 0, &wrong, ND_SETTLE_ACK), ND_ERR_STALE);
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(lease__of_an_offset_is_held_by_one),
        T(lease__expires_on_time_and_never_early),
        T(settle__with_a_dead_nonce_is_stale_and_changes_nothing),
        T(ack__is_answered_after_its_sync_and_survives_a_power_cut),
        T(ack__gathers_all_of_one_drain_in_one_unit),
        T(ack__of_an_offset_that_is_settling_shares_its_outcome),
        T(ack__that_cannot_be_synced_keeps_its_lease_while_the_wal_is_down),
        T(frontier__passes_settled_offsets_only),
        T(nack__gives_the_record_to_the_next_at_once),
        T(extend__supersedes_the_old_deadline),
        T(caps__hold_deliveries_back_and_an_ack_frees_a_slot),
        T(caps__of_acked_ahead_serve_only_the_hole_and_refuse_no_ack),
        T(settle__of_other_topics_and_partitions_is_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
