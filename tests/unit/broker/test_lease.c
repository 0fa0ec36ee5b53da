#include <stdlib.h>

#include "storage/base/alloc.h"

#include "server/broker/lease.h"
#include "tests/support/nd_test.h"

enum { CAP = 8, AHEAD = 4, MODEL_OFFSETS = 400 };

struct fixture {
    struct nd_lease_table table;
    uint64_t nonce;
};

static int set_up(void **state)
{
    struct fixture *f = nd_xcalloc(1, sizeof *f);

    nd_lease_table_init(&f->table, 0, CAP, AHEAD);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    nd_lease_table_release(&f->table);
    nd_free(f);
    return 0;
}

static struct nd_lease *take(struct fixture *f, uint64_t end, uint64_t expiry_ns)
{
    struct nd_lease *lease = NULL;

    if (nd_lease_reserve(&f->table, end, ++f->nonce, expiry_ns, NULL, &lease) != ND_RESERVE_OK) {
        return NULL;
    }
    nd_lease_table_validate(&f->table);
    return lease;
}

static void settle(struct fixture *f, struct nd_lease *lease)
{
    nd_lease_settle_begin(&f->table, lease);
    nd_lease_settle_done(&f->table, lease);
    nd_lease_table_validate(&f->table);
}

static void reserve__gives_the_lowest_free_offset(void **state)
{
    struct fixture *f = *state;

    struct nd_lease *a = take(f, 10, 100);
    struct nd_lease *b = take(f, 10, 100);
    struct nd_lease *c = take(f, 10, 100);
    assert_int_equal(a->offset, 0);
    assert_int_equal(b->offset, 1);
    assert_int_equal(c->offset, 2);
    nd_lease_free_up(&f->table, b, true);

    struct nd_lease *again = take(f, 10, 100);
    assert_int_equal(again->offset, 1);
    assert_int_equal(again->attempt, 2);
    assert_int_equal(take(f, 10, 100)->offset, 3);
}

static void i50__an_offset_has_one_live_lease(void **state)
{
    struct fixture *f = *state;
    bool seen[CAP] = {false};

    for (int i = 0; i < CAP; i++) {
        struct nd_lease *lease = take(f, 100, 100);
        assert_false(seen[lease->offset]);
        seen[lease->offset] = true;
    }

    struct nd_lease *none = NULL;
    assert_int_equal(nd_lease_reserve(&f->table, 100, 99, 100, NULL, &none), ND_RESERVE_CAP);
}

static void i51__only_the_live_nonce_is_found(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *lease = take(f, 10, 100);
    uint64_t nonce = lease->nonce;

    assert_ptr_equal(nd_lease_find(&f->table, 0, nonce), lease);
    assert_null(nd_lease_find(&f->table, 0, nonce + 1));
    assert_null(nd_lease_find(&f->table, 1, nonce));
    assert_null(nd_lease_find(&f->table, UINT64_MAX, nonce));
    nd_lease_free_up(&f->table, lease, true);
    assert_null(nd_lease_find(&f->table, 0, nonce));
    settle(f, take(f, 10, 100));
    assert_null(nd_lease_find(&f->table, 0, f->nonce));
}

static void i52__the_frontier_passes_only_settled_offsets(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *a = take(f, 10, 100);
    struct nd_lease *b = take(f, 10, 100);
    struct nd_lease *c = take(f, 10, 100);

    settle(f, c);
    assert_int_equal(f->table.frontier, 0);
    nd_lease_settle_begin(&f->table, a);
    assert_int_equal(f->table.frontier, 0);
    nd_lease_settle_done(&f->table, a);
    assert_int_equal(f->table.frontier, 1);
    settle(f, b);
    assert_int_equal(f->table.frontier, 3);
    assert_int_equal(f->table.ahead, 0);
}

static void i53__expiry_is_never_early(void **state)
{
    struct fixture *f = *state;

    take(f, 10, 100);
    assert_int_equal(nd_lease_expire(&f->table, 99, NULL, NULL), 0);
    assert_int_equal(nd_lease_next_expiry(&f->table), 100);
    assert_int_equal(nd_lease_expire(&f->table, 100, NULL, NULL), 1);
    assert_int_equal(nd_lease_next_expiry(&f->table), UINT64_MAX);
    assert_int_equal(take(f, 10, 200)->offset, 0);
}

static void i55__with_ahead_full_only_the_hole_is_served(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *hole = take(f, 100, 100);

    for (int i = 0; i < AHEAD; i++) {
        settle(f, take(f, 100, 100));
    }
    assert_null(take(f, 100, 100));
    nd_lease_free_up(&f->table, hole, true);
    hole = take(f, 100, 100);
    assert_int_equal(hole->offset, 0);
    assert_null(take(f, 100, 100));
    settle(f, hole);
    assert_int_equal(f->table.frontier, AHEAD + 1);
    assert_int_equal(take(f, 100, 100)->offset, AHEAD + 1);
}

static void i56__an_ack_is_accepted_when_ahead_is_full(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *leases[CAP];

    for (int i = 0; i < CAP; i++) {
        leases[i] = take(f, 100, 100);
    }
    for (int i = 1; i < CAP; i++) {
        settle(f, leases[i]);
    }
    assert_int_equal(f->table.ahead, CAP - 1);
    settle(f, leases[0]);
    assert_int_equal(f->table.frontier, CAP);
}

static void i67__extend_supersedes_the_old_deadline(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *lease = take(f, 10, 100);

    nd_lease_extend(&f->table, lease, 500);
    assert_int_equal(nd_lease_expire(&f->table, 499, NULL, NULL), 0);
    assert_non_null(nd_lease_find(&f->table, 0, lease->nonce));
    assert_int_equal(nd_lease_expire(&f->table, 500, NULL, NULL), 1);
}

static void i68__expiry_memory_follows_live_leases(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *lease = take(f, 10, 100);

    for (uint64_t i = 0; i < 10000; i++) {
        nd_lease_extend(&f->table, lease, 100 + i);
    }
    assert_int_equal(f->table.expiries.count, 1);
    settle(f, lease);
    assert_int_equal(f->table.expiries.count, 0);
}

static void settling__neither_expires_nor_is_lost(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *lease = take(f, 10, 100);

    nd_lease_settle_begin(&f->table, lease);
    assert_int_equal(nd_lease_expire(&f->table, 1000, NULL, NULL), 0);
    assert_int_equal(f->table.in_flight, 1);
    assert_ptr_equal(nd_lease_find(&f->table, 0, lease->nonce), lease);
    assert_int_equal(take(f, 10, 2000)->offset, 1);
}

static void settle_failed__goes_back_to_its_lease_or_to_free(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *in_time = take(f, 10, 100);
    struct nd_lease *late = take(f, 10, 50);

    nd_lease_settle_begin(&f->table, in_time);
    nd_lease_settle_begin(&f->table, late);
    assert_true(nd_lease_settle_failed(&f->table, in_time, 60));
    assert_false(nd_lease_settle_failed(&f->table, late, 60));
    nd_lease_table_validate(&f->table);
    assert_int_equal(in_time->state, ND_LEASE_LEASED);
    assert_int_equal(take(f, 10, 100)->offset, 1);
}

static void postpone__moves_every_deadline(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *settling = take(f, 10, 100);

    take(f, 10, 110);
    nd_lease_settle_begin(&f->table, settling);
    nd_lease_postpone(&f->table, 1000);
    assert_int_equal(nd_lease_expire(&f->table, 1109, NULL, NULL), 0);
    assert_true(nd_lease_settle_failed(&f->table, settling, 1099));
    assert_int_equal(nd_lease_expire(&f->table, 1110, NULL, NULL), 2);
}

static void count_dropped(void *arg, struct nd_lease *lease)
{
    (void)lease;
    *(int *)arg += 1;
}

static void i60__a_jump_takes_the_frontier_over_all(void **state)
{
    struct fixture *f = *state;
    int told = 0;
    struct nd_lease *settling = take(f, 100, 100);

    take(f, 100, 100);
    settle(f, take(f, 100, 100));
    nd_lease_settle_begin(&f->table, settling);
    uint64_t lost = nd_lease_jump(&f->table, 50, count_dropped, &told);

    nd_lease_table_validate(&f->table);
    assert_int_equal(told, 1);
    assert_int_equal(lost, 1 + 47);
    assert_int_equal(f->table.frontier, 50);
    assert_int_equal(f->table.in_flight, 1);
    nd_lease_settle_done(&f->table, settling);
    assert_int_equal(f->table.in_flight, 0);
    assert_int_equal(take(f, 100, 100)->offset, 50);
}

static void not_delivered__takes_the_attempt_back(void **state)
{
    struct fixture *f = *state;

    nd_lease_free_up(&f->table, take(f, 10, 100), false);
    assert_int_equal(take(f, 10, 100)->attempt, 1);
}

static void store_and_load__keep_frontier_ahead_and_attempts(void **state)
{
    struct fixture *f = *state;
    struct nd_lease *a = take(f, 100, 100);
    struct nd_lease *b = take(f, 100, 100);
    struct nd_lease *c = take(f, 100, 100);
    struct nd_positions positions;
    struct nd_lease_table loaded;

    settle(f, take(f, 100, 100));
    nd_lease_free_up(&f->table, b, true);
    b = take(f, 100, 100);
    assert_int_equal(b->attempt, 2);
    nd_lease_settle_begin(&f->table, a);
    nd_lease_settle_begin(&f->table, c);
    nd_positions_init(&positions);
    nd_lease_table_store(&f->table, &positions, true);
    nd_lease_table_init(&loaded, 0, CAP, AHEAD);
    nd_lease_table_load(&loaded, &positions);
    nd_lease_table_validate(&loaded);

    assert_int_equal(loaded.frontier, 1);
    assert_int_equal(loaded.ahead, 2);
    struct nd_lease *again = NULL;
    assert_int_equal(nd_lease_reserve(&loaded, 100, 7, 1, NULL, &again), ND_RESERVE_OK);
    assert_int_equal(again->offset, 1);
    assert_int_equal(again->attempt, 3);
    nd_lease_table_store(&f->table, &positions, false);
    assert_int_equal(positions.frontier, 0);
    nd_lease_table_release(&loaded);
    nd_positions_release(&positions);
}

/* Random steps against a plain array (I-50, I-52, I-54). */
struct model {
    enum nd_lease_state state[MODEL_OFFSETS];
    struct nd_lease *lease[MODEL_OFFSETS];
    uint64_t expiry[MODEL_OFFSETS];
};

static void model_expired(void *arg, struct nd_lease *lease)
{
    struct model *model = arg;

    assert_int_equal(model->state[lease->offset], ND_LEASE_LEASED);
    model->state[lease->offset] = ND_LEASE_FREE;
    model->lease[lease->offset] = NULL;
}

static uint64_t model_frontier(const struct model *model)
{
    uint64_t frontier = 0;

    while (frontier < MODEL_OFFSETS && model->state[frontier] == ND_LEASE_SETTLED) {
        frontier += 1;
    }
    return frontier;
}

static void model_act(struct fixture *f, struct model *model, uint32_t *seed, uint64_t now)
{
    uint32_t offset = (uint32_t)model_frontier(model) + (uint32_t)rand_r(seed) % (CAP * 2);

    if (offset >= MODEL_OFFSETS || model->lease[offset] == NULL) {
        return;
    }
    struct nd_lease *lease = model->lease[offset];
    if (lease->state == ND_LEASE_SETTLING) {
        bool works = rand_r(seed) % 3 != 0;
        if (works) {
            nd_lease_settle_done(&f->table, lease);
            model->state[offset] = ND_LEASE_SETTLED;
        } else if (!nd_lease_settle_failed(&f->table, lease, now)) {
            model->state[offset] = ND_LEASE_FREE;
        } else {
            model->state[offset] = ND_LEASE_LEASED;
            return;
        }
        model->lease[offset] = NULL;
    } else if (rand_r(seed) % 2 == 0) {
        nd_lease_settle_begin(&f->table, lease);
        model->state[offset] = ND_LEASE_SETTLING;
    } else if (rand_r(seed) % 2 == 0) {
        nd_lease_free_up(&f->table, lease, true);
        model->state[offset] = ND_LEASE_FREE;
        model->lease[offset] = NULL;
    } else {
        nd_lease_extend(&f->table, lease, now + 50);
    }
}

static void model_take(struct fixture *f, struct model *model, uint64_t now)
{
    struct nd_lease *lease = NULL;
    enum nd_reserve result =
        nd_lease_reserve(&f->table, MODEL_OFFSETS, ++f->nonce, now + 20, NULL, &lease);

    if (result == ND_RESERVE_OK) {
        assert_int_equal(model->state[lease->offset], ND_LEASE_FREE);
        for (uint64_t below = model_frontier(model); below < lease->offset; below++) {
            assert_int_not_equal(model->state[below], ND_LEASE_FREE);
        }
        model->state[lease->offset] = ND_LEASE_LEASED;
        model->lease[lease->offset] = lease;
    }
}

static void property__random_steps_agree_with_a_model(void **state)
{
    struct fixture *f = *state;

    for (uint32_t run = 1; run <= 20; run++) {
        struct model model = {0};
        uint32_t seed = run;
        uint64_t last_frontier = 0;
        nd_lease_table_release(&f->table);
        nd_lease_table_init(&f->table, 0, CAP, AHEAD);
        for (uint64_t now = 1; now < 4000; now++) {
            if (rand_r(&seed) % 2 == 0) {
                model_take(f, &model, now);
            } else {
                model_act(f, &model, &seed, now);
            }
            nd_lease_expire(&f->table, now, model_expired, &model);
            nd_lease_table_validate(&f->table);
            assert_int_equal(f->table.frontier, model_frontier(&model));
            assert_true(f->table.frontier >= last_frontier);
            assert_true(f->table.in_flight <= CAP);
            assert_true(f->table.ahead <= AHEAD + CAP);
            last_frontier = f->table.frontier;
        }
        assert_true(last_frontier > 50);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(reserve__gives_the_lowest_free_offset),
        CASE(i50__an_offset_has_one_live_lease),
        CASE(i51__only_the_live_nonce_is_found),
        CASE(i52__the_frontier_passes_only_settled_offsets),
        CASE(i53__expiry_is_never_early),
        CASE(i55__with_ahead_full_only_the_hole_is_served),
        CASE(i56__an_ack_is_accepted_when_ahead_is_full),
        CASE(i67__extend_supersedes_the_old_deadline),
        CASE(i68__expiry_memory_follows_live_leases),
        CASE(settling__neither_expires_nor_is_lost),
        CASE(settle_failed__goes_back_to_its_lease_or_to_free),
        CASE(postpone__moves_every_deadline),
        CASE(i60__a_jump_takes_the_frontier_over_all),
        CASE(not_delivered__takes_the_attempt_back),
        CASE(store_and_load__keep_frontier_ahead_and_attempts),
        CASE(property__random_steps_agree_with_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
