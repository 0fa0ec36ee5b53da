#include "storage/base/alloc.h"

#include "server/broker/shard.h"
#include "tests/unit/broker/fixture.h"

enum { WAIT_MS = 10000 };

static void waiters__one_record_wakes_one(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_poll *polls[5];
    uint32_t done = 0;

    for (uint32_t i = 0; i < 5; i++) {
        polls[i] = node_poll_start(node, 0, ND_PARTITION_ANY, 1, WAIT_MS);
    }
    node_run(node);
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    for (uint32_t i = 0; i < 5; i++) {
        done += polls[i]->done;
    }

    assert_int_equal(done, 1);
    assert_true(polls[0]->done); /* the oldest */
    node_advance(node, WAIT_MS);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(polls[i]->done);
        assert_int_equal(polls[i]->err, ND_OK);
        assert_int_equal(polls[i]->count, i == 0 ? 1 : 0);
        nd_free(polls[i]);
    }
}

static void waiters__pinned_ones_never_block_unpinned_ones(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    uint32_t topic = node_topic(node, "two", 2);

    struct node_poll *pinned = node_poll_start(node, topic, 0, 1, WAIT_MS);
    struct node_poll *any = node_poll_start(node, topic, ND_PARTITION_ANY, 1, WAIT_MS);
    node_run(node);
    assert_int_equal(node_produce(node, topic, 1, "for any", NULL), ND_OK);
    assert_true(any->done); /* I-63 */
    assert_false(pinned->done);
    assert_int_equal(node_produce(node, topic, 0, "for pinned", NULL), ND_OK);
    assert_true(pinned->done);
    assert_string_equal(pinned->list[0].payload, "for pinned");
    nd_free(pinned);
    nd_free(any);
}

static void waiters__the_older_of_both_queues_is_first(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    struct node_poll *any = node_poll_start(node, 0, ND_PARTITION_ANY, 1, WAIT_MS);
    struct node_poll *pinned = node_poll_start(node, 0, 0, 1, WAIT_MS);
    node_run(node);
    assert_int_equal(node_produce(node, 0, 0, "1", NULL), ND_OK);
    assert_true(any->done);
    assert_false(pinned->done);
    assert_int_equal(node_produce(node, 0, 0, "2", NULL), ND_OK);
    assert_true(pinned->done);
    nd_free(pinned);
    nd_free(any);
}

static void waiters__consumers_spread_over_partitions(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    uint32_t topic = node_topic(node, "four", 4);
    bool seen[4] = {false};

    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(node_produce(node, topic, i % 4, "m", NULL), ND_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct node_delivery delivery;
        assert_true(node_take(node, topic, ND_PARTITION_ANY, &delivery));
        assert_false(seen[delivery.partition]);
        seen[delivery.partition] = true;
    }
}

static void poll__takes_from_several_partitions_up_to_its_limit(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    uint32_t topic = node_topic(node, "four", 4);

    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(node_produce(node, topic, i % 4, "m", NULL), ND_OK);
    }
    struct node_poll *poll = node_poll_start(node, topic, ND_PARTITION_ANY, 10, 0);
    node_run(node);
    assert_int_equal(poll->count, 10);
    nd_free(poll);
}

static void poll__without_wait_is_answered_at_once(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    struct node_poll *poll = node_poll_start(node, 0, ND_PARTITION_ANY, 1, 0);
    node_run(node);
    assert_true(poll->done);
    assert_int_equal(poll->err, ND_OK);
    assert_int_equal(poll->count, 0);
    nd_free(poll);
}

static void poll__cancelled_leaves_no_lease_behind(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery;

    /* The cancel wins the race: the record is there in the same step. */
    struct node_poll *poll = node_poll_start(node, 0, ND_PARTITION_ANY, 1, WAIT_MS);
    node_run(node);
    const char *payload = "m";
    struct node_produce *produce = node_produce_start(node, 0, 0, &payload, 1);
    nd_broker_poll_cancel(node->broker, &poll->request);
    node_run(node);
    assert_true(poll->done);
    assert_int_equal(poll->err, ND_ERR_CANCELLED);
    assert_int_equal(node_stats(node, 0, 0).in_flight, 0); /* I-66 */
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.attempt, 1);
    nd_free(poll);
    nd_free(produce);
}

static void poll__cancel_claimed_between_probe_and_answer_gives_the_leases_back(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    struct node_poll *poll = node_poll_start(node, 0, ND_PARTITION_ANY, 1, WAIT_MS);
    /* As when another thread cancels after the probe: the claim is taken, its message comes later.
     */
    atomic_store(&poll->request.state.claimed, true);
    node_run(node);
    assert_false(poll->done);
    assert_int_equal(node_stats(node, 0, 0).in_flight, 0); /* I-66 */
    nd_inbox_push(&poll->request.state.shard->inbox, &poll->request.state.cancel);
    node_run(node);
    assert_int_equal(poll->err, ND_ERR_CANCELLED);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.attempt, 1);
    nd_free(poll);
}

static void poll__of_what_is_not_there_is_refused(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    struct node_poll *poll = node_poll_start(node, 0, 5, 1, WAIT_MS);
    node_run(node);
    assert_int_equal(poll->err, ND_ERR_INVALID_ARGUMENT);
    nd_free(poll);
    node->topics[0]->owners[0] = 99;
    poll = node_poll_start(node, 0, 0, 1, WAIT_MS);
    node_run(node);
    assert_int_equal(poll->err, ND_ERR_NOT_OWNER);
    nd_free(poll);
    node->topics[0]->owners[0] = 7;
}

/* --- subscribers --- */

static void subscriber_end(struct node *node, struct node_subscriber *subscriber)
{
    nd_broker_subscriber_close(node->broker, &subscriber->request);
    node_run(node);
    assert_true(subscriber->closed);
    nd_free(subscriber);
}

static void subscriber__keeps_delivered_minus_settled_at_its_maximum(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    struct node_subscriber *subscriber = node_subscribe(node, 0, ND_PARTITION_ANY, 3);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    }
    assert_int_equal(subscriber->count, 3);
    assert_int_equal(node_settle(node, 0, &subscriber->list[1], ND_SETTLE_ACK), ND_OK);
    assert_int_equal(subscriber->count, 4);
    assert_int_equal(node_settle(node, 0, &subscriber->list[0], ND_SETTLE_NACK), ND_OK);
    assert_int_equal(subscriber->count, 5);
    assert_int_equal(subscriber->list[4].offset, 0);
    node_advance(node, NODE_LEASE_MS); /* expired ones free their credit */
    assert_int_equal(subscriber->count, 8);
    subscriber_end(node, subscriber);
}

static void subscriber__gets_at_most_16_a_turn_and_shares(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    struct node_produce *produce = node_produce_bytes(node, 0, 0, 10, 64);
    node_run(node);
    struct node_subscriber *first = node_subscribe(node, 0, ND_PARTITION_ANY, 1000);
    struct node_subscriber *second = node_subscribe(node, 0, 0, 1000);
    node_run(node);
    assert_int_equal(first->turn_max, 16);
    assert_int_equal(second->turn_max, 16);
    assert_int_equal(first->count, 32); /* turn by turn, pinned or not */
    assert_int_equal(second->count, 32);
    subscriber_end(node, first);
    subscriber_end(node, second);
    nd_free(produce);
}

static void subscriber__gets_at_most_64_kib_a_turn(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    struct node_produce *produce = node_produce_bytes(node, 0, 0, 20000, 8);
    node_run(node);
    struct node_subscriber *subscriber = node_subscribe(node, 0, ND_PARTITION_ANY, 1000);
    node_run(node);
    assert_int_equal(subscriber->count, 8);
    assert_int_equal(subscriber->turn_max, 3);
    subscriber_end(node, subscriber);
    nd_free(produce);
}

static void subscriber__pauses_and_resumes(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    struct node_subscriber *subscriber = node_subscribe(node, 0, ND_PARTITION_ANY, 1000);
    subscriber->take = false;
    assert_int_equal(node_produce(node, 0, 0, "1", NULL), ND_OK);
    assert_int_equal(subscriber->count, 1); /* the one that said enough */
    assert_int_equal(node_produce(node, 0, 0, "2", NULL), ND_OK);
    assert_int_equal(subscriber->count, 1);
    subscriber->take = true;
    nd_broker_subscriber_resume(node->broker, &subscriber->request);
    nd_broker_subscriber_resume(node->broker, &subscriber->request);
    node_run(node);
    assert_int_equal(subscriber->count, 2);
    subscriber_end(node, subscriber);
}

static void subscriber__closed_releases_its_leases_at_once(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;

    struct node_subscriber *subscriber = node_subscribe(node, 0, ND_PARTITION_ANY, 10);
    assert_int_equal(node_produce(node, 0, 0, "1", NULL), ND_OK);
    assert_int_equal(node_produce(node, 0, 0, "2", NULL), ND_OK);
    struct node_poll *poll = node_poll_start(node, 0, ND_PARTITION_ANY, 10, WAIT_MS);
    node_run(node);
    assert_false(poll->done);
    subscriber_end(node, subscriber);
    assert_true(poll->done);
    assert_int_equal(poll->count, 2);
    assert_int_equal(poll->list[0].attempt, 2);
    nd_free(poll);
}

static void subscriber__closed_waits_for_its_settling_acks(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery again;

    struct node_subscriber *subscriber = node_subscribe(node, 0, ND_PARTITION_ANY, 10);
    assert_int_equal(node_produce(node, 0, 0, "1", NULL), ND_OK);
    node->wal_stalled = true;
    struct node_settle *settle = node_settle_start(node, 0, &subscriber->list[0], 1, ND_SETTLE_ACK);
    node_run(node);
    nd_broker_subscriber_close(node->broker, &subscriber->request);
    node_run(node);
    assert_false(subscriber->closed);
    node->wal_stalled = false;
    node_run(node);
    assert_true(subscriber->closed);
    assert_int_equal(settle->items[0].result, ND_OK);
    assert_false(node_take(node, 0, 0, &again));
    nd_free(settle);
    nd_free(subscriber);
}

static void subscriber__whose_acks_failed_still_owns_them_until_closed(void **state)
{
    struct node *node = &((struct fixture *)*state)->node;
    struct node_delivery again;

    struct node_subscriber *subscriber = node_subscribe(node, 0, ND_PARTITION_ANY, 1);
    assert_int_equal(node_produce(node, 0, 0, "1", NULL), ND_OK);
    assert_int_equal(node_produce(node, 0, 0, "2", NULL), ND_OK);
    sim_env_fail_nth(node->sim, SIM_SYNC, 1, SIM_FAULT_IO);
    assert_int_equal(node_settle(node, 0, &subscriber->list[0], ND_SETTLE_ACK), ND_ERR_UNAVAILABLE);
    assert_int_equal(subscriber->count, 1); /* its credit is still taken */
    subscriber_end(node, subscriber);
    assert_true(node_take(node, 0, 0, &again));
    assert_int_equal(again.offset, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(waiters__one_record_wakes_one),
        T(waiters__pinned_ones_never_block_unpinned_ones),
        T(waiters__the_older_of_both_queues_is_first),
        T(waiters__consumers_spread_over_partitions),
        T(poll__takes_from_several_partitions_up_to_its_limit),
        T(poll__without_wait_is_answered_at_once),
        T(poll__cancelled_leaves_no_lease_behind),
        T(poll__cancel_claimed_between_probe_and_answer_gives_the_leases_back),
        T(poll__of_what_is_not_there_is_refused),
        T(subscriber__keeps_delivered_minus_settled_at_its_maximum),
        T(subscriber__gets_at_most_16_a_turn_and_shares),
        T(subscriber__gets_at_most_64_kib_a_turn),
        T(subscriber__pauses_and_resumes),
        T(subscriber__closed_releases_its_leases_at_once),
        T(subscriber__closed_waits_for_its_settling_acks),
        T(subscriber__whose_acks_failed_still_owns_them_until_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
