/* Accepting before the ownership latch, deleting, re-creating, stopping, recovering. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "tests/unit/broker/fixture.h"

static void expect_payloads(struct node *node, uint32_t topic, const char *const *payloads,
                            uint32_t count)
{
    struct node_delivery delivery;

    for (uint32_t i = 0; i < count; i++) {
        assert_true(node_take(node, topic, 0, &delivery));
        assert_string_equal(delivery.payload, payloads[i]);
        assert_int_equal(delivery.offset, i);
    }
    assert_false(node_take(node, topic, 0, &delivery));
}

static void reopen_without_latch(struct fixture *fixture)
{
    fixture->node.options.hold_latch = true;
    fixture_restart(fixture);
}

static void accept__before_the_latch_needs_nobody_and_consume_waits(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    const char *payloads[2] = {"a", "b"};

    reopen_without_latch(fixture);
    for (uint32_t i = 0; i < 2; i++) {
        struct node_produce *produce = node_produce_start(node, 0, 0, &payloads[i], 1);
        node_run(node);
        assert_int_equal(produce->err, ND_OK); /* C2, P4 */
        assert_false(produce->has_offsets);
        nd_free(produce);
    }
    struct node_poll *poll = node_poll_start(node, 0, 0, 1, 1000);
    node_run(node);
    assert_int_equal(poll->err, ND_ERR_UNAVAILABLE);
    nd_free(poll);

    nd_broker_set_caught_up(node->broker);
    node_run(node);
    expect_payloads(node, 0, payloads, 2); /* in the order accepted, once */
}

static void accept__recovered_ones_are_dispatched_once_and_before_new_ones(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    const char *payloads[3] = {"a", "b", "c"};

    reopen_without_latch(fixture);
    struct node_produce *produce = node_produce_start(node, 0, 0, payloads, 2);
    node_run(node);
    assert_int_equal(produce->err, ND_OK);
    nd_free(produce);
    node_power_cut(node, 4);
    assert_int_equal(node_open(node, &msg), ND_OK);
    nd_broker_set_caught_up(node->broker);
    assert_int_equal(node_produce(node, 0, 0, "c", NULL), ND_OK);
    node_power_cut(node, 5); /* the COMMIT and the DISPATCHED are one frame: no second copy */
    assert_int_equal(node_open(node, &msg), ND_OK);
    nd_broker_set_caught_up(node->broker);
    node_run(node);
    expect_payloads(node, 0, payloads, 3);
}

static void accept__of_a_topic_that_is_gone_is_kept_until_that_is_confirmed(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};

    reopen_without_latch(fixture);
    assert_int_equal(node_produce(node, 0, 0, "a", NULL), ND_OK);
    node_stop(node);
    struct nd_topic *topic = node->topics[0];
    node->topics[0] = NULL; /* deleted while this node was away */
    node->options.hold_latch = false;
    sim_env_restart(fixture->sim);
    node->gone_err = ND_ERR_UNAVAILABLE; /* nobody can say */
    assert_int_equal(node_open(node, &msg), ND_OK);
    node_advance(node, 60000);
    assert_true(node->gone_asked > 1);
    struct nd_series *backlog =
        nd_metrics_gauge(node->metrics, "ingress_dispatch_backlog_records", "", "");
    assert_true(nd_series_value(backlog) == 1); /* I-24 */
    node->gone_err = ND_OK;
    node->gone = true;
    node_advance(node, 60000);
    assert_true(nd_series_value(backlog) == 0);
    nd_topic_unref(topic);
}

static void accept__of_a_topic_that_ends_meanwhile_is_not_dispatched(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    reopen_without_latch(fixture);
    node->wal_stalled = true;
    const char *payload = "a";
    struct node_produce *produce = node_produce_start(node, 0, 0, &payload, 1);
    node_run(node);
    node_topic_delete(node, 0); /* its ACCEPT is under way */
    nd_broker_set_caught_up(node->broker);
    node_run(node);
    node->wal_stalled = false;
    node_run(node);
    assert_true(produce->done && produce->err == ND_OK);
    nd_free(produce);
    struct nd_series *backlog =
        nd_metrics_gauge(node->metrics, "ingress_dispatch_backlog_records", "", "");
    assert_true(nd_series_value(backlog) == 1);
    node->gone_err = ND_OK;
    node->gone = true;
    node_advance(node, 60000);
    assert_true(nd_series_value(backlog) == 0);
}

static void delete__ends_the_incarnation_and_a_new_one_starts_empty(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct nd_file_stat stat;
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "old", NULL), ND_OK);
    node_advance(node, 70000); /* flushed by age */
    struct nd_topic *old = nd_topic_ref(node->topics[0]);
    char dir[128];
    snprintf(dir, sizeof dir, "data/topics/t/%016llx", (unsigned long long)old->incarnation);
    assert_int_equal(node->env->stat(node->env->impl, dir, &stat, &msg), ND_OK);
    struct node_poll *poll = node_poll_start(node, 0, 0, 1, 50000);
    struct node_poll *waiting = node_poll_start(node, 0, 0, 1, 50000);
    struct node_subscriber *subscriber = node_subscribe(node, 0, 0, 5);
    node_run(node);
    assert_true(poll->done && !waiting->done);
    node_topic_delete(node, 0);
    node_run(node);
    assert_int_equal(waiting->err, ND_ERR_TOPIC_NOT_FOUND);
    assert_true(subscriber->ended);
    assert_int_equal(subscriber->ended_err, ND_ERR_TOPIC_NOT_FOUND);
    assert_int_equal(node->env->stat(node->env->impl, dir, &stat, &msg), ND_ERR_NOT_FOUND);

    uint32_t topic = node_topic(node, "t", 1);
    assert_false(node_take(node, topic, 0, &delivery));
    uint64_t offset;
    assert_int_equal(node_produce(node, topic, 0, "new", &offset), ND_OK);
    assert_int_equal(offset, 0);
    /* What still carries the old record is refused and creates nothing. */
    node->topics[0] = old;
    assert_int_equal(node_produce(node, 0, 0, "late", NULL), ND_ERR_TOPIC_NOT_FOUND);
    assert_int_equal(node_settle(node, 0, &poll->list[0], ND_SETTLE_ACK), ND_ERR_TOPIC_NOT_FOUND);
    nd_broker_subscriber_close(node->broker, &subscriber->request);
    node_run(node);
    assert_true(subscriber->closed);
    nd_free(poll);
    nd_free(waiting);
    nd_free(subscriber);
}

/* I-37: what was staged gets its outcome, what comes after the stop began is refused. */
static void stop__drains_what_is_staged_and_refuses_what_comes_later(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    const char *payloads[2] = {"staged", "late"};

    node->wal_stalled = true;
    struct node_produce *staged = node_produce_start(node, 0, 0, &payloads[0], 1);
    node_run(node);
    nd_broker_stop_begin(node->broker);
    struct node_produce *late = node_produce_start(node, 0, 0, &payloads[1], 1);
    node_run(node);
    assert_false(staged->done);
    assert_false(nd_broker_stopped(node->broker));
    assert_true(late->done);
    assert_int_equal(late->err, ND_ERR_UNAVAILABLE);
    node->wal_stalled = false;
    node_run(node);
    assert_true(staged->done);
    assert_int_equal(staged->err, ND_OK);
    assert_true(nd_broker_stopped(node->broker));
    nd_free(staged);
    nd_free(late);
    fixture_restart(fixture);
    expect_payloads(node, 0, payloads, 1);
}

static void delete__waits_for_what_is_staged(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    const char *payload = "m";

    node->wal_stalled = true;
    struct node_produce *produce = node_produce_start(node, 0, 0, &payload, 1);
    node_run(node);
    node_topic_delete(node, 0);
    node_run(node);
    assert_false(produce->done);
    node->wal_stalled = false;
    node_run(node);
    assert_true(produce->done);
    assert_int_equal(produce->err, ND_OK); /* I-37 */
    nd_free(produce);
}

static void recovery__removes_an_unknown_incarnation_only_when_confirmed(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct nd_file_stat stat;
    char dir[128];

    assert_int_equal(node_produce(node, 0, 0, "old", NULL), ND_OK);
    snprintf(dir, sizeof dir, "data/topics/t/%016llx",
             (unsigned long long)node->topics[0]->incarnation);
    node_stop(node); /* flushed */
    struct nd_topic *topic = node->topics[0];
    node->topics[0] = NULL;
    sim_env_restart(fixture->sim);
    node->gone_err = ND_OK;
    node->gone = false;
    assert_int_equal(node_open(node, &msg), ND_OK);
    node_advance(node, 60000);
    assert_true(node->gone_asked > 0);
    assert_int_equal(node->env->stat(node->env->impl, dir, &stat, &msg), ND_OK);
    node->gone = true;
    node_advance(node, 60000);
    assert_int_equal(node->env->stat(node->env->impl, dir, &stat, &msg), ND_ERR_NOT_FOUND);
    nd_topic_unref(topic);
}

static bool exists(struct node *node, const char *path)
{
    struct nd_file_stat stat;
    struct nd_errmsg msg = {{0}};

    return node->env->stat(node->env->impl, path, &stat, &msg) == ND_OK;
}

/* Of an incarnation of which the log knows nothing: its delete was cut off. */
static void sweep__removes_what_a_delete_left_behind_once_that_is_confirmed(void **state)
{
    static const char *const left[] = {"data/topics/t/0000000000000abc/p00000",
                                       "data/topics/other/0000000000000def/p00000"};
    static const char *const foreign[] = {"data/topics/t/0000000000000ABC",
                                          "data/topics/t/00000000000000abc",
                                          "data/topics/no topic/0000000000000123"};
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    char own[128];

    snprintf(own, sizeof own, "data/topics/t/%016llx/p00000",
             (unsigned long long)node->topics[0]->incarnation);
    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_stop(node);
    for (size_t i = 0; i < ND_ARRAY_SIZE(left); i++) {
        assert_int_equal(nd_env_mkdirs(node->env, left[i], &msg), ND_OK);
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(foreign); i++) {
        assert_int_equal(nd_env_mkdirs(node->env, foreign[i], &msg), ND_OK);
    }
    sim_env_restart(fixture->sim);
    node->gone_err = ND_ERR_UNAVAILABLE;
    node->gone = false;
    assert_int_equal(node_open(node, &msg), ND_OK);
    node_advance(node, 60000);
    assert_true(node->gone_asked > 2);
    assert_true(exists(node, left[0]) && exists(node, left[1]) && exists(node, own)); /* P5 */
    node->gone_err = ND_OK;
    node_advance(node, 60000);
    assert_true(exists(node, left[0]) && exists(node, left[1]));
    node->gone = true;
    node_advance(node, 60000);
    assert_false(exists(node, left[0]));
    assert_false(exists(node, left[1]));
    assert_true(exists(node, own));
    for (size_t i = 0; i < ND_ARRAY_SIZE(foreign); i++) {
        assert_true(exists(node, foreign[i]));
    }
    fixture_restart(fixture);
    node_advance(node, 60000);
    assert_true(exists(node, own));
}

/* The directory of a name goes with the last incarnation in it. */
static void delete__leaves_no_directory_of_the_name(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    char own[128];

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_advance(node, 70000); /* flushed by age */
    snprintf(own, sizeof own, "data/topics/t/%016llx",
             (unsigned long long)node->topics[0]->incarnation);
    assert_int_equal(nd_env_mkdirs(node->env, "data/topics/t/0000000000000abc", &msg), ND_OK);
    node_topic_delete(node, 0);
    node_run(node);
    assert_false(exists(node, own));
    assert_true(exists(node, "data/topics/t/0000000000000abc")); /* somebody else's */

    uint32_t topic = node_topic(node, "t", 1);
    assert_int_equal(node->env->rmdir(node->env->impl, "data/topics/t/0000000000000abc", &msg),
                     ND_OK);
    assert_int_equal(node_produce(node, topic, 0, "n", NULL), ND_OK);
    node_advance(node, 70000);
    node_topic_delete(node, topic);
    node_run(node);
    assert_false(exists(node, "data/topics/t"));
    topic = node_topic(node, "t", 1);
    assert_int_equal(node_produce(node, topic, 0, "again", NULL), ND_OK);
    node_advance(node, 70000);
    assert_true(exists(node, "data/topics/t"));
}

/* A crash, or a failure, between the two. */
static void sweep__removes_empty_directories_of_topics(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_stop(node);
    assert_int_equal(nd_env_mkdirs(node->env, "data/topics/empty", &msg), ND_OK);
    assert_int_equal(nd_env_mkdirs(node->env, "data/topics/foreign/by-hand", &msg), ND_OK);
    sim_env_restart(fixture->sim);
    assert_int_equal(node_open(node, &msg), ND_OK);
    node_advance(node, 60000);
    assert_false(exists(node, "data/topics/empty"));
    assert_true(exists(node, "data/topics/foreign/by-hand"));
    assert_true(exists(node, "data/topics/t"));
}

/* A topic that is told of after its directory was found keeps it. */
static void sweep__gives_what_it_found_to_a_topic_that_is_told_later(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "m", NULL), ND_OK);
    node_stop(node); /* its `state` covers it */
    struct nd_topic *topic = node->topics[0];
    node->topics[0] = NULL;
    sim_env_restart(fixture->sim);
    node->gone_err = ND_ERR_UNAVAILABLE;
    assert_int_equal(node_open(node, &msg), ND_OK);
    node_advance(node, 60000);
    assert_true(node->gone_asked > 0);
    node->topics[0] = topic;
    nd_broker_topic_changed(node->broker, NULL, topic);
    node_run(node);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_string_equal(delivery.payload, "m");
}

static void stop__keeps_everything(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct node_delivery delivery[5], again;

    for (uint32_t i = 0; i < 5; i++) {
        char payload[8];
        snprintf(payload, sizeof payload, "m%u", i);
        assert_int_equal(node_produce(node, 0, 0, payload, NULL), ND_OK);
        assert_true(node_take(node, 0, 0, &delivery[i]));
    }
    assert_int_equal(node_settle(node, 0, &delivery[0], ND_SETTLE_ACK), ND_OK);
    assert_int_equal(node_settle(node, 0, &delivery[3], ND_SETTLE_ACK), ND_OK);
    struct node_poll *poll = node_poll_start(node, 0, 0, 1, 50000);
    node_run(node);
    fixture_restart(fixture);
    assert_true(poll->done);
    nd_free(poll);

    uint64_t expected[3] = {1, 2, 4};
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(node_take(node, 0, 0, &again));
        assert_int_equal(again.offset, expected[i]);
    }
    assert_false(node_take(node, 0, 0, &again));
    uint64_t offset;
    assert_int_equal(node_produce(node, 0, 0, "m5", &offset), ND_OK);
    assert_int_equal(offset, 5);
}

static void restart__of_a_crashed_process_keeps_everything(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_errmsg msg = {{0}};
    struct node_delivery delivery;

    assert_int_equal(node_produce(node, 0, 0, "a", NULL), ND_OK);
    assert_int_equal(node_produce(node, 0, 0, "b", NULL), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
    node_crash(node);
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_true(node_take(node, 0, 0, &delivery));
    assert_string_equal(delivery.payload, "b");
    assert_false(node_take(node, 0, 0, &delivery));
}

static void wal__stays_small_under_steady_traffic(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint32_t quiet = node_topic(node, "quiet", 1);
    struct nd_wal_stats stats;
    struct node_delivery delivery;

    /* A partition with an old record, never acked, must not hold the log back (W7). */
    assert_int_equal(node_produce(node, quiet, 0, "old", NULL), ND_OK);
    for (uint32_t i = 0; i < 300; i++) {
        struct node_produce *produce = node_produce_bytes(node, 0, 0, 8000, 1);
        node_run(node);
        assert_int_equal(produce->err, ND_OK);
        nd_free(produce);
        assert_true(node_take(node, 0, 0, &delivery));
        assert_int_equal(node_settle(node, 0, &delivery, ND_SETTLE_ACK), ND_OK);
        node_advance(node, 100);
    }
    nd_wal_stats(node->wal, &stats);
    assert_true(stats.bytes_retained <= node->options.wal_keep_bytes + 2 * NODE_WAL_FILE);
    node_power_cut(node, 6);
    struct nd_errmsg msg = {{0}};
    assert_int_equal(node_open(node, &msg), ND_OK);
    assert_true(node_take(node, quiet, 0, &delivery));
    assert_string_equal(delivery.payload, "old");
    assert_false(node_take(node, 0, 0, &delivery));
    uint64_t offset;
    assert_int_equal(node_produce(node, 0, 0, "next", &offset), ND_OK);
    assert_int_equal(offset, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(accept__before_the_latch_needs_nobody_and_consume_waits),
        T(accept__recovered_ones_are_dispatched_once_and_before_new_ones),
        T(accept__of_a_topic_that_is_gone_is_kept_until_that_is_confirmed),
        T(accept__of_a_topic_that_ends_meanwhile_is_not_dispatched),
        T(delete__ends_the_incarnation_and_a_new_one_starts_empty),
        T(stop__drains_what_is_staged_and_refuses_what_comes_later),
        T(delete__waits_for_what_is_staged),
        T(recovery__removes_an_unknown_incarnation_only_when_confirmed),
        T(sweep__removes_what_a_delete_left_behind_once_that_is_confirmed),
        T(delete__leaves_no_directory_of_the_name),
        T(sweep__removes_empty_directories_of_topics),
        T(sweep__gives_what_it_found_to_a_topic_that_is_told_later),
        T(stop__keeps_everything),
        T(restart__of_a_crashed_process_keeps_everything),
        T(wal__stays_small_under_steady_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
