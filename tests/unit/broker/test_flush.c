/* Many small tails that are due together (flush.h). */
#include "storage/base/alloc.h"

#include "server/broker/flush.h"
#include "server/broker/shard.h"
#include "tests/unit/broker/fixture.h"

enum { PARTITIONS = 2 * ND_FLUSHES_MAX + 100, FLUSH_MS = 1000 };

static const struct nd_shard *shard_of(const struct node *node)
{
    return &node->broker->shards[0];
}

/* A record in every partition of a new topic. */
static void fill_many(struct node *node)
{
    uint32_t many = node_topic(node, "many", PARTITIONS);

    for (int64_t i = 0; i < PARTITIONS; i += 1) {
        const char *payload = "m";
        struct node_produce *produce = node_produce_start(node, many, i, &payload, 1);
        node_run(node);
        assert_int_equal(produce->err, ND_OK);
        nd_free(produce);
    }
    assert_int_equal(atomic_load(&node->broker->tails), PARTITIONS);
}

static void go_on_until_all_are_flushed(struct node *node)
{
    node->flusher_stalled = false;
    node_run(node);
    assert_int_equal(atomic_load(&node->broker->tails), 0);
    assert_int_equal(shard_of(node)->flushes, 0);
    assert_false(shard_of(node)->flushes_held);
}

static void flush_check__starts_so_many_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    uint64_t next_ns;

    node->options.flush_age_ms = FLUSH_MS;
    fixture_restart(fixture);
    fill_many(node);
    node->flusher_stalled = true;
    node_advance(node, FLUSH_MS + 100);
    assert_int_equal(shard_of(node)->flushes, ND_FLUSHES_MAX);
    /* The shard does not spin for those that are due and have to wait. */
    assert_false(nd_broker_step(node->broker, 0, &next_ns));
    assert_true(next_ns > node->env->mono_ns(node->env->impl));

    go_on_until_all_are_flushed(node); /* without more time: each that is back lets others go */
}

static void flush_check__a_large_tail_waits_for_no_small_ones(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;

    node->options.flush_age_ms = FLUSH_MS;
    fixture_restart(fixture);
    fill_many(node);
    node->flusher_stalled = true;
    node_advance(node, FLUSH_MS + 100);
    struct node_produce *large = node_produce_bytes(node, 0, 0, node->options.flush_bytes, 1);
    node_run(node);
    assert_int_equal(large->err, ND_OK);
    assert_int_equal(shard_of(node)->flushes, ND_FLUSHES_MAX + 1);
    nd_free(large);

    go_on_until_all_are_flushed(node);
}

/* The WAL wants its files back, of which the first hold a record of each. */
static void restate_lift__starts_so_many_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct node *node = &fixture->node;
    struct nd_wal_stats stats;

    node->options.wal_keep_bytes = 0;
    node->options.flush_bytes = 1 << 30;
    fixture_restart(fixture);
    fill_many(node);
    node->flusher_stalled = true;
    for (int i = 0; i < 40; i++) {
        struct node_produce *noise = node_produce_bytes(node, 0, 0, 16000, 1);
        node_run(node);
        assert_int_equal(noise->err, ND_OK);
        nd_free(noise);
    }
    node_advance(node, 500);
    assert_int_equal(shard_of(node)->flushes, ND_FLUSHES_MAX);
    node->flusher_stalled = false;
    node_advance(node, 5000);
    nd_wal_stats(node->wal, &stats);
    assert_true(stats.bytes_retained <= 2 * NODE_WAL_FILE);
    assert_int_equal(shard_of(node)->flushes, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(flush_check__starts_so_many_at_once),
        T(flush_check__a_large_tail_waits_for_no_small_ones),
        T(restate_lift__starts_so_many_at_once),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
