/* Records that are no longer in memory, damaged ones, and replay. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "tests/unit/broker/fixture.h"

enum { RECORDS = 40, PAYLOAD = 1000, A_FRAME = 3 };

/* Records 0..RECORDS-1 in segments only: nothing of them stays in memory. */
static void flush_all(struct fixture *fixture)
{
    struct node *node = &fixture->node;

    node->options.cache_bytes = 1;
    node->options.flush_age_ms = 1000;
    fixture_restart(fixture);
    for (uint32_t i = 0; i < RECORDS; i++) {
        struct node_produce *produce = node_produce_bytes(node, 0, 0, PAYLOAD, 1);
        node_run(node);
        assert_int_equal(produce->err, ND_OK);
        nd_free(produce);
    }
    node_advance(node, 3000);
    assert_true(node_stats(node, 0, 0).segments > 0);
}

/* Damage the payload of the first frame of the log. */
static void damage_first_frame(struct fixture *fixture)
{
    char path[1200];

    fixture_segment_path(fixture, 0, 0, path, sizeof path);
    sim_env_damage(fixture->sim, path, 4096 + 600, 0xff);
}

static void read__from_segments_gives_every_record_once(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t seen = 0;

    flush_all(fixture);
    while (seen < RECORDS) {
        struct node_poll *poll = node_poll_start(node, 0, ND_PARTITION_ANY, 7, 0);
        node_run(node);
        assert_true(poll->done && poll->count > 0); /* also without wait: it waits for the read */
        for (uint32_t i = 0; i < poll->count; i++) {
            assert_int_equal(poll->list[i].offset, seen++);
            assert_int_equal(poll->list[i].payload_size, PAYLOAD);
            assert_int_equal(poll->list[i].attempt, 1);
        }
        nd_free(poll);
    }
}

static void read__skips_corrupt_records_in_the_same_call_and_counts_them_once(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;

    flush_all(fixture);
    damage_first_frame(fixture);
    assert_true(node_take(node, 0, 0, &delivery)); /* I-58 */
    assert_true(delivery.offset > 0);
    uint64_t lost = delivery.offset;
    assert_true(node_metric(node, "consumer_corrupt_skipped_total", 0, 0) == (double)lost);
    assert_int_equal(node_stats(node, 0, 0).frontier, lost); /* settled, through the WAL */

    node_power_cut(node, 8);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, lost);
    assert_true(node_metric(node, "consumer_corrupt_skipped_total", 0, 0) == 0);
}

static void read__error_neither_skips_nor_strands(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery;

    flush_all(fixture);
    sim_env_fail_from(node->sim, SIM_PREAD, 1, SIM_FAULT_IO);
    struct node_poll *poll = node_poll_start(node, 0, 0, 1, 0);
    node_run(node);
    assert_true(poll->done);
    assert_true(poll->err != ND_OK); /* I-59 */
    assert_int_equal(node_stats(node, 0, 0).in_flight, 0);
    nd_free(poll);
    sim_env_fail_clear(node->sim);
    node_advance(node, 1000);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 0);
    assert_int_equal(delivery.attempt, 1);
    assert_true(node_metric(node, "consumer_corrupt_skipped_total", 0, 0) == 0);
}

static void read__error_is_retried_for_who_waits(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    flush_all(fixture);
    struct node_subscriber *subscriber = node_subscribe(node, 0, 0, 5);
    sim_env_fail_from(node->sim, SIM_PREAD, 1, SIM_FAULT_IO);
    node_run(node);
    assert_int_equal(subscriber->count, 0);
    sim_env_fail_clear(node->sim);
    node_advance(node, 1000);
    assert_int_equal(subscriber->count, 5);
    nd_broker_subscriber_close(node->broker, &subscriber->request);
    node_run(node);
    nd_free(subscriber);
}

static void read__restart_finds_what_was_flushed(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    flush_all(fixture);
    fixture_restart(fixture);
    for (uint32_t i = 0; i < RECORDS; i++) {
        struct node_delivery delivery;
        assert_true(node_take(node, 0, 0, &delivery));
        assert_int_equal(delivery.offset, i);
        assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
    }
    fixture_restart(fixture);
    struct node_delivery none;
    assert_false(node_take(node, 0, 0, &none));
}

static void replay__answers_as_the_table_says(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_replay *replay;

    /* Empty partition: at or past the high watermark. */
    replay = node_replay(node, 0, 0, 0, 10);
    assert_int_equal(replay->err, ND_OK);
    assert_int_equal(replay->count, 0);
    nd_free(replay);
    /* No such partition. */
    replay = node_replay(node, 0, 3, 0, 10);
    assert_int_equal(replay->err, ND_ERR_INVALID_ARGUMENT);
    nd_free(replay);

    flush_all(fixture);
    replay = node_replay(node, 0, 0, RECORDS, 10);
    assert_int_equal(replay->err, ND_OK);
    assert_int_equal(replay->count, 0);
    nd_free(replay);
    replay = node_replay(node, 0, 0, 5, 2);
    assert_int_equal(replay->err, ND_OK);
    assert_int_equal(replay->count, 2);
    assert_int_equal(replay->list[0].offset, 5);
    assert_int_equal(replay->request.offset, 7);
    assert_int_equal(replay->request.end, RECORDS);
    assert_int_equal(replay->list[0].nonce, 0);
    nd_free(replay);
    damage_first_frame(fixture);
    fixture_restart(fixture); /* the frame that was read is forgotten */
    replay = node_replay(node, 0, 0, 0, 10);
    assert_int_equal(replay->err, ND_ERR_CORRUPT); /* I-71: unreadable, not aged out (P5) */
    nd_free(replay);
}

/* The log of topic 0 lost its file. */
static void read_p5__a_lost_file_makes_the_partition_unavailable_until_it_is_back(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;
    char path[1200];

    flush_all(fixture);
    uint32_t other = node_topic(node, "other", 1);
    node_stop(node);
    sim_env_restart(node->sim);
    assert_int_equal(node_open(node, &msg), ND_OK);
    fixture_segment_path(fixture, 0, 0, path, sizeof path);
    assert_int_equal(node->env->rename(node->env->impl, path, "kept", &msg), ND_OK);

    struct node_replay *replay = node_replay(node, 0, 0, 0, 10);
    assert_int_equal(replay->err, ND_ERR_UNAVAILABLE); /* not: aged out */
    nd_free(replay);
    struct node_poll *poll = node_poll_start(node, 0, 0, 10, 1000);
    node_advance(node, 1500);
    assert_true(poll->done && poll->count == 0);
    assert_int_equal(poll->err, ND_ERR_UNAVAILABLE);
    nd_free(poll);
    struct nd_partition_stats stats = node_stats(node, 0, 0);
    assert_int_equal(stats.oldest_offset, 0); /* it is not taken for retention */
    assert_int_equal(stats.frontier, 0);      /* nothing is skipped */
    for (uint32_t i = 0; i < 30 && node_produce(node, 0, 0, "late", NULL) == ND_OK; i++) {
        node_advance(node, 1000); /* until a flush finds it */
    }
    assert_int_equal(node_produce(node, 0, 0, "late", NULL), ND_ERR_UNAVAILABLE);
    assert_int_equal(node_produce(node, other, 0, "m", NULL), ND_OK);
    assert_true(node_take(node, other, 0, &delivery));

    node_power_cut(node, 9);
    assert_int_equal(node_open(node, &msg), ND_OK); /* the node starts all the same */
    assert_int_equal(node->env->rename(node->env->impl, "kept", path, &msg), ND_OK);
    node_advance(node, 12000);
    replay = node_replay(node, 0, 0, 0, 100);
    assert_int_equal(replay->err, ND_OK);
    assert_true(replay->count > 0 && replay->list[0].offset == 0);
    nd_free(replay);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.offset, 0);
    assert_int_equal(node_produce(node, 0, 0, "again", NULL), ND_OK);
}

static void replay__changes_no_queue_state(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery;

    flush_all(fixture);
    struct nd_partition_stats before = node_stats(node, 0, 0);
    uint64_t offset = 0;
    while (offset < RECORDS) {
        struct node_replay *replay = node_replay(node, 0, 0, offset, 1000);
        assert_int_equal(replay->err, ND_OK);
        assert_true(replay->count > 0);
        offset = replay->request.offset;
        nd_free(replay);
    }
    struct nd_partition_stats after = node_stats(node, 0, 0);
    assert_memory_equal(&before, &after, sizeof before); /* I-70 */
    assert_true(node_metric(node, "messages_consumed_total", 0, 0) == 0);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(delivery.attempt, 1);
}

static void stats__open_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t topic = node_topic(node, "quiet", 3);

    uint64_t opens = sim_env_calls(node->sim, SIM_OPEN), lists = sim_env_calls(node->sim, SIM_LIST);
    struct nd_partition_stats stats = node_stats(node, topic, 2);
    assert_int_equal(stats.index, 2);
    assert_int_equal(stats.owner, 7);
    assert_int_equal(sim_env_calls(node->sim, SIM_OPEN), opens); /* I-46 */
    assert_int_equal(sim_env_calls(node->sim, SIM_LIST), lists);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(read__from_segments_gives_every_record_once),
        T(read__skips_corrupt_records_in_the_same_call_and_counts_them_once),
        T(read__error_neither_skips_nor_strands),
        T(read__error_is_retried_for_who_waits),
        T(read__restart_finds_what_was_flushed),
        T(replay__answers_as_the_table_says),
        T(read_p5__a_lost_file_makes_the_partition_unavailable_until_it_is_back),
        T(replay__changes_no_queue_state),
        T(stats__open_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
