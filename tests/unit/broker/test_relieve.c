/* Flushing while replaying (W8): a start stays within the memory for tails, whatever the log holds,
 * and changes nothing of what is there. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "tests/unit/broker/fixture.h"

enum {
    TOPICS = 3,
    ROUNDS = 40,
    BUDGET = 48 << 10,
    ENTRY = 3 * 1100, /* the biggest that is met at once */
};

static void payload_of(char *out, size_t size, uint32_t topic, uint32_t round, uint32_t record)
{
    int used = snprintf(out, size, "%u/%u/%u ", topic, round, record);

    memset(out + used, 'a' + (int)(round % 26), size - (size_t)used - 1);
    out[size - 1] = '\0';
}

/* About 400 KB in memory of three partitions, nothing flushed. The first message of each is acked.
 */
static void fill(struct fixture *fixture)
{
    struct node *node = &fixture->node;
    static char payloads[3][1000];
    const char *list[3] = {payloads[0], payloads[1], payloads[2]};

    node->options.flush_bytes = 4 << 20;
    fixture_restart(fixture);
    node_topic(node, "b", 1);
    node_topic(node, "c", 1);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t topic = 0; topic < TOPICS; topic++) {
            for (uint32_t i = 0; i < 3; i++) {
                payload_of(payloads[i], sizeof payloads[i], topic, round, i);
            }
            struct node_produce *produce = node_produce_start(node, topic, 0, list, 3);
            node_run(node);
            assert_int_equal(produce->err, ND_OK);
            nd_free(produce);
        }
    }
    for (uint32_t topic = 0; topic < TOPICS; topic++) {
        struct node_delivery delivery;
        assert_true(node_take(node, topic, 0, &delivery));
        assert_int_equal(node_settle(node, topic, &delivery, ND_SETTLE_ACK), ND_OK);
    }
}

static void assert_all(struct node *node)
{
    char expected[1000];

    for (uint32_t topic = 0; topic < TOPICS; topic++) {
        struct node_delivery delivery;
        uint32_t found = 0;
        while (found < 3 * ROUNDS) {
            struct node_replay *replay = node_replay(node, topic, 0, found, 1000);
            assert_int_equal(replay->err, ND_OK);
            assert_true(replay->count > 0);
            for (uint32_t i = 0; i < replay->count; i++, found++) {
                payload_of(expected, sizeof expected, topic, found / 3, found % 3);
                assert_int_equal(replay->list[i].offset, found);
                assert_memory_equal(replay->list[i].payload, expected, NODE_PAYLOAD_MAX);
                assert_int_equal(replay->list[i].payload_size, sizeof expected - 1);
            }
            nd_free(replay);
        }
        assert_true(node_take(node, topic, 0, &delivery));
        assert_int_equal(delivery.offset, 1); /* 0 was acked */
        assert_int_equal(node_settle(node, topic, &delivery, ND_SETTLE_NACK), ND_OK);
        assert_int_equal(node_stats(node, topic, 0).high_watermark, 3 * ROUNDS);
    }
}

static void relieve_w8__a_start_stays_within_the_memory_for_tails(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};

    fill(fixture);
    node_crash(node);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_true(node->recovery_bytes_peak > 5 * BUDGET); /* what it takes without a bound */
    assert_all(node);

    node_crash(node);
    node->options.recovery_tail_bytes = BUDGET;
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_in_range(node->recovery_bytes_peak, 1, BUDGET + ENTRY);
    assert_all(node);

    node_crash(node); /* the log still holds all of it: the segments have it once all the same */
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_in_range(node->recovery_bytes_peak, 1, BUDGET + ENTRY);
    assert_all(node);
    node_advance(node, 70000);
    assert_all(node);
    node_power_cut(node, 5);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_all(node);
}

static void relieve_w8__a_log_that_takes_no_write_stops_no_start(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};

    fill(fixture);
    node_crash(node);
    node->options.recovery_tail_bytes = BUDGET;
    sim_env_fail_writes_under(node->sim, "data/topics/b/");
    assert_int_equal(node_open(node, &msg), ND_OK);
    /* A third of it stays in memory, beside the budget. */
    assert_in_range(node->recovery_bytes_peak, 1, 3 * ROUNDS * 1100 + BUDGET + ENTRY);
    assert_all(node);
    sim_env_fail_writes_under(node->sim, NULL);
    node_advance(node, 70000);
    assert_all(node);
}

/* The power goes at every change that the recovery makes. */
static void relieve_w8__survives_a_power_cut_at_every_change(void **state)
{
    struct fixture *fixture = *state;
    struct nd_errmsg msg = {{0}};
    uint32_t points = 0;

    for (uint64_t k = 1;; k++) {
        struct node *node = &fixture->node;
        fill(fixture);
        node_crash(node);
        node->options.recovery_tail_bytes = BUDGET;
        sim_env_cut_at(node->sim, k);
        enum nd_err err = node_open(node, &msg);
        if (!sim_env_is_cut(node->sim)) {
            assert_int_equal(err, ND_OK);
            break;
        }
        points += 1;
        node_power_cut(node, k);
        assert_int_equal(node_open(node, &msg), ND_OK);
        assert_all(node);
        assert_int_equal(fixture_teardown(state), 0);
        assert_int_equal(fixture_setup(state), 0);
        fixture = *state;
    }
    assert_true(points > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(relieve_w8__a_start_stays_within_the_memory_for_tails),
        T(relieve_w8__a_log_that_takes_no_write_stops_no_start),
        T(relieve_w8__survives_a_power_cut_at_every_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
