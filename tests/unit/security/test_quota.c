#include <stdio.h>

#include "storage/base/thread.h"

#include "server/security/quota.h"
#include "tests/support/nd_test.h"
#include "tests/unit/security/users.h"

static struct nd_quotas *quotas_of(const struct nd_quota_limits *limits)
{
    return nd_quotas_new(limits, hand_env(), NULL);
}

static struct nd_quota *quota_of(struct nd_quotas *quotas, const char *identity)
{
    return nd_quota_of(quotas, nd_slice_str(identity));
}

static void quota__in_flight_is_capped_by_identity_and_kind(void **state)
{
    const struct nd_quota_limits limits = {.in_flight = {[ND_QUOTA_CONSUME] = 1024}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_quota *alice = quota_of(quotas, "alice"), *bob = quota_of(quotas, "bob");
    struct nd_errmsg msg = {""};
    uint32_t retry_ms = 0;

    (void)state;
    for (int i = 0; i < 1024; i++) {
        assert_int_equal(nd_quota_begin(alice, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg), ND_OK);
    }
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    assert_string_equal(msg.text, "too many in-flight consume requests for this identity "
                                  "(limit 1024 per node)");
    assert_true(retry_ms > 0);
    assert_int_equal(nd_quota_begin(bob, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg), ND_OK);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 9, 9, &retry_ms, &msg), ND_OK);
    nd_quota_end(alice, ND_QUOTA_PRODUCE, 9);
    nd_quota_end(alice, ND_QUOTA_CONSUME, 1);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg), ND_OK);

    for (int i = 0; i < 1024; i++) {
        nd_quota_end(alice, ND_QUOTA_CONSUME, 1);
    }
    nd_quota_end(bob, ND_QUOTA_CONSUME, 1);
    nd_quota_unref(alice);
    nd_quota_unref(bob);
    nd_quotas_free(quotas);
}

static void quota__a_weight_above_the_cap_counts_as_the_cap(void **state)
{
    const struct nd_quota_limits limits = {.in_flight = {[ND_QUOTA_PRODUCE] = 10}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_quota *alice = quota_of(quotas, "alice");
    struct nd_errmsg msg = {""};
    uint32_t retry_ms;

    (void)state;
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1000, 0, &retry_ms, &msg), ND_OK);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    assert_string_equal(msg.text, "too many in-flight produce requests for this identity "
                                  "(limit 10 per node)");
    nd_quota_end(alice, ND_QUOTA_PRODUCE, 1000);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 4, 0, &retry_ms, &msg), ND_OK);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1000, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    nd_quota_end(alice, ND_QUOTA_PRODUCE, 4);
    nd_quota_unref(alice);
    nd_quotas_free(quotas);
}

static void quota__a_rate_is_one_second_ahead_and_says_when_to_come_back(void **state)
{
    const struct nd_quota_limits limits = {.messages_per_s = {[ND_QUOTA_PRODUCE] = 100},
                                           .bytes_per_s = {[ND_QUOTA_PRODUCE] = 1000}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_quota *alice = quota_of(quotas, "alice");
    struct nd_errmsg msg = {""};
    uint32_t retry_ms = 0;

    (void)state;
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 100, 0, &retry_ms, &msg), ND_OK);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    assert_string_equal(msg.text, "produce rate limit of this identity exceeded "
                                  "(limit 100 messages per second per node)");
    assert_int_equal(retry_ms, 10);
    hand_env_advance_ms(9);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    assert_int_equal(retry_ms, 1);
    hand_env_advance_ms(1);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 0, &retry_ms, &msg), ND_OK);

    hand_env_advance_ms(5000); /* one second's worth comes back, not five */
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 1000, &retry_ms, &msg), ND_OK);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 500, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    assert_string_equal(msg.text, "produce rate limit of this identity exceeded "
                                  "(limit 1000 bytes per second per node)");
    assert_int_equal(retry_ms, 500);
    hand_env_advance_ms(500);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 500, &retry_ms, &msg), ND_OK);
    hand_env_advance_ms(1000); /* what is more than a second's worth needs a full bucket */
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, UINT64_MAX, &retry_ms, &msg),
                     ND_OK);
    for (int i = 0; i < 4; i++) {
        nd_quota_end(alice, ND_QUOTA_PRODUCE, 1);
    }
    nd_quota_unref(alice);
    nd_quotas_free(quotas);
}

/* What is refused takes nothing, of no bucket. */
static void quota__a_refused_begin_takes_nothing(void **state)
{
    const struct nd_quota_limits limits = {.in_flight = {[ND_QUOTA_PRODUCE] = 2},
                                           .messages_per_s = {[ND_QUOTA_PRODUCE] = 10},
                                           .bytes_per_s = {[ND_QUOTA_PRODUCE] = 10}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_quota *alice = quota_of(quotas, "alice");
    struct nd_errmsg msg = {""};
    uint32_t retry_ms;

    (void)state;
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 10, &retry_ms, &msg), ND_OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 10, &retry_ms, &msg),
                         ND_ERR_LIMITED); /* for its bytes */
    }
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 0, &retry_ms, &msg), ND_OK);
    nd_quota_end(alice, ND_QUOTA_PRODUCE, 1);
    nd_quota_end(alice, ND_QUOTA_PRODUCE, 1);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 8, 0, &retry_ms, &msg), ND_OK);
    nd_quota_end(alice, ND_QUOTA_PRODUCE, 8);
    nd_quota_unref(alice);
    nd_quotas_free(quotas);
}

static void quota__what_was_not_done_costs_nothing(void **state)
{
    const struct nd_quota_limits limits = {.in_flight = {[ND_QUOTA_PRODUCE] = 5},
                                           .messages_per_s = {[ND_QUOTA_PRODUCE] = 10},
                                           .bytes_per_s = {[ND_QUOTA_PRODUCE] = 7}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_quota *alice = quota_of(quotas, "alice");
    struct nd_errmsg msg = {""};
    uint32_t retry_ms;

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 9, 6, &retry_ms, &msg), ND_OK);
        nd_quota_undo(alice, ND_QUOTA_PRODUCE, 9, 6);
    }
    nd_quota_unref(alice);
    assert_int_equal(nd_quotas_count(quotas), 0); /* its buckets are full */
    nd_quotas_free(quotas);
}

static void quota__a_consume_pays_afterwards_what_it_took(void **state)
{
    const struct nd_quota_limits limits = {.messages_per_s = {[ND_QUOTA_CONSUME] = 10}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_quota *alice = quota_of(quotas, "alice");
    struct nd_errmsg msg = {""};
    uint32_t retry_ms = 0;

    (void)state;
    for (int i = 0; i < 50; i++) { /* polls that find nothing cost nothing */
        assert_int_equal(nd_quota_begin(alice, ND_QUOTA_CONSUME, 100, 0, &retry_ms, &msg), ND_OK);
        nd_quota_end(alice, ND_QUOTA_CONSUME, 100);
    }
    nd_quota_charge(alice, ND_QUOTA_CONSUME, 30, 5); /* two seconds in debt */
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    assert_int_equal(retry_ms, 2100); /* the debt, and one message */
    hand_env_advance_ms(2099);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    hand_env_advance_ms(1);
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg), ND_OK);
    nd_quota_end(alice, ND_QUOTA_CONSUME, 1);

    for (int i = 0; i < 10; i++) { /* a debt of a minute at most */
        nd_quota_charge(alice, ND_QUOTA_CONSUME, UINT32_MAX, UINT64_MAX);
    }
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    assert_int_equal(retry_ms, 60100);
    nd_quota_unref(alice);
    nd_quotas_free(quotas);
}

static void quota__says_when_the_next_consume_may_begin(void **state)
{
    const struct nd_quota_limits limits = {.messages_per_s = {[ND_QUOTA_CONSUME] = 10}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_quota *alice = quota_of(quotas, "alice");

    (void)state;
    assert_int_equal(nd_quota_wait_ms(alice, ND_QUOTA_CONSUME), 0);
    nd_quota_charge(alice, ND_QUOTA_CONSUME, 9, 0);
    assert_int_equal(nd_quota_wait_ms(alice, ND_QUOTA_CONSUME), 0);
    nd_quota_charge(alice, ND_QUOTA_CONSUME, 21, 0);
    assert_int_equal(nd_quota_wait_ms(alice, ND_QUOTA_CONSUME), 2100);
    assert_int_equal(nd_quota_wait_ms(alice, ND_QUOTA_PRODUCE), 0);
    hand_env_advance_ms(2099);
    assert_int_equal(nd_quota_wait_ms(alice, ND_QUOTA_CONSUME), 1);
    hand_env_advance_ms(1);
    assert_int_equal(nd_quota_wait_ms(alice, ND_QUOTA_CONSUME), 0);
    nd_quota_unref(alice);
    nd_quotas_free(quotas);
}

static void quota__coming_back_does_not_fill_the_bucket(void **state)
{
    const struct nd_quota_limits limits = {.messages_per_s = {[ND_QUOTA_PRODUCE] = 10}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_errmsg msg = {""};
    uint32_t retry_ms;

    (void)state;
    struct nd_quota *alice = quota_of(quotas, "alice");
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 10, 0, &retry_ms, &msg), ND_OK);
    nd_quota_end(alice, ND_QUOTA_PRODUCE, 10);
    nd_quota_unref(alice);
    assert_int_equal(nd_quotas_count(quotas), 1);
    alice = quota_of(quotas, "alice");
    assert_int_equal(nd_quota_begin(alice, ND_QUOTA_PRODUCE, 1, 0, &retry_ms, &msg),
                     ND_ERR_LIMITED);
    hand_env_advance_ms(1000);
    nd_quota_unref(alice);
    assert_int_equal(nd_quotas_count(quotas), 0); /* full and not held */
    nd_quotas_free(quotas);
}

static void quota__a_crowd_of_addresses_costs_bounded_memory(void **state)
{
    const struct nd_quota_limits limits = {.messages_per_s = {[ND_QUOTA_PRODUCE] = 1}};
    struct nd_quotas *quotas = quotas_of(&limits);
    struct nd_errmsg msg = {""};
    char identity[32];
    uint32_t retry_ms;

    (void)state;
    for (int i = 0; i < 40000; i++) {
        (void)snprintf(identity, sizeof identity, "10.0.%d.%d", i / 256, i % 256);
        struct nd_quota *quota = quota_of(quotas, identity);
        assert_int_equal(nd_quota_begin(quota, ND_QUOTA_PRODUCE, 1, 0, &retry_ms, &msg), ND_OK);
        nd_quota_end(quota, ND_QUOTA_PRODUCE, 1);
        nd_quota_unref(quota);
    }
    size_t most = nd_quotas_count(quotas);
    assert_true(most > 8192 && most <= 16384);
    hand_env_advance_ms(1000);
    for (int i = 0; i < 40000 && nd_quotas_count(quotas) > 0; i++) { /* later ones sweep them out */
        (void)snprintf(identity, sizeof identity, "later-%d", i);
        nd_quota_unref(quota_of(quotas, identity));
    }
    assert_int_equal(nd_quotas_count(quotas), 0);
    nd_quotas_free(quotas);
}

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 3000, CAP = 3 };

struct crowd {
    struct nd_quotas *quotas;
    _Atomic int in_flight, most, refused, begun;
};

static void crowd_run(void *arg)
{
    struct crowd *crowd = arg;
    struct nd_errmsg msg;
    uint32_t retry_ms;

    for (int i = 0; i < ROUNDS; i++) {
        struct nd_quota *quota = quota_of(crowd->quotas, "shared");
        struct nd_quota *own = quota_of(crowd->quotas, i % 2 == 0 ? "even" : "odd");
        if (nd_quota_begin(quota, ND_QUOTA_CONSUME, 1, 0, &retry_ms, &msg) == ND_OK) {
            int now = atomic_fetch_add(&crowd->in_flight, 1) + 1, most = atomic_load(&crowd->most);
            while (now > most && !atomic_compare_exchange_weak(&crowd->most, &most, now)) {
            }
            atomic_fetch_add(&crowd->begun, 1);
            nd_quota_charge(quota, ND_QUOTA_CONSUME, 1, 1);
            atomic_fetch_sub(&crowd->in_flight, 1);
            nd_quota_end(quota, ND_QUOTA_CONSUME, 1);
        } else {
            atomic_fetch_add(&crowd->refused, 1);
        }
        nd_quota_unref(quota);
        nd_quota_unref(own);
    }
}

static void quota__many_threads_share_one_identity(void **state)
{
    const struct nd_quota_limits limits = {.in_flight = {[ND_QUOTA_CONSUME] = CAP},
                                           .messages_per_s = {[ND_QUOTA_CONSUME] = 1000000000},
                                           .bytes_per_s = {[ND_QUOTA_CONSUME] = 1000000000}};
    struct crowd crowd = {.quotas = quotas_of(&limits)};
    struct nd_thread threads[THREADS] = {{.started = false}};
    struct nd_errmsg msg = {""};
    uint32_t retry_ms;
    int started = 0;

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        started += nd_thread_start(&threads[i], "crowd", crowd_run, &crowd) ? 1 : 0;
    }
    for (int i = 0; i < THREADS; i++) {
        nd_thread_join(&threads[i]);
    }
    assert_int_equal(started, THREADS);
    assert_true(atomic_load(&crowd.most) <= CAP);
    assert_int_equal(atomic_load(&crowd.begun) + atomic_load(&crowd.refused), THREADS * ROUNDS);
    struct nd_quota *quota = quota_of(crowd.quotas, "shared"); /* all was given back */
    hand_env_advance_ms(120000);
    assert_int_equal(nd_quota_begin(quota, ND_QUOTA_CONSUME, CAP, 0, &retry_ms, &msg), ND_OK);
    nd_quota_end(quota, ND_QUOTA_CONSUME, CAP);
    nd_quota_unref(quota);
    nd_quotas_free(crowd.quotas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quota__in_flight_is_capped_by_identity_and_kind),
        cmocka_unit_test(quota__a_weight_above_the_cap_counts_as_the_cap),
        cmocka_unit_test(quota__a_rate_is_one_second_ahead_and_says_when_to_come_back),
        cmocka_unit_test(quota__a_refused_begin_takes_nothing),
        cmocka_unit_test(quota__what_was_not_done_costs_nothing),
        cmocka_unit_test(quota__a_consume_pays_afterwards_what_it_took),
        cmocka_unit_test(quota__says_when_the_next_consume_may_begin),
        cmocka_unit_test(quota__coming_back_does_not_fill_the_bucket),
        cmocka_unit_test(quota__a_crowd_of_addresses_costs_bounded_memory),
        cmocka_unit_test(quota__many_threads_share_one_identity),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
