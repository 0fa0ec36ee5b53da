/* Everything at once: right and wrong passwords, records that change, new hashes, a stop. What
 * ThreadSanitizer is for; the claims hold whatever order comes about. */

#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/security/auth.h"
#include "tests/support/nd_test.h"
#include "tests/unit/security/auth_world.h"

enum { CALLERS = 4, ROUNDS = 300 };

struct crowd {
    struct world world;
    _Atomic uint32_t asked, answered, ok, refused, throttled, cancelled, other;
};

static void count(struct crowd *crowd, enum nd_err err, struct nd_user *user)
{
    switch ((int)err) {
    case ND_OK: atomic_fetch_add(&crowd->ok, 1); break;
    case ND_ERR_UNAUTHENTICATED: atomic_fetch_add(&crowd->refused, 1); break;
    case ND_ERR_THROTTLED: atomic_fetch_add(&crowd->throttled, 1); break;
    case ND_ERR_CANCELLED: atomic_fetch_add(&crowd->cancelled, 1); break;
    default: atomic_fetch_add(&crowd->other, 1);
    }
    if ((err == ND_OK) != (user != NULL)) {
        atomic_fetch_add(&crowd->other, 1);
    }
    nd_user_unref(user);
    atomic_fetch_add(&crowd->answered, 1);
}

static void counted(void *arg, enum nd_err err, struct nd_user *user)
{
    count(arg, err, user);
}

static void ask(struct crowd *crowd, const char *header)
{
    const struct nd_auth_caller caller = {nd_slice_str(header), NULL, NULL};
    struct nd_user *user = NULL;
    enum nd_err err = ND_OK;

    atomic_fetch_add(&crowd->asked, 1);
    if (nd_auth_check(crowd->world.auth, &caller, &err, &user, counted, crowd) == ND_AUTH_DECIDED) {
        count(crowd, err, user);
    }
}

static void caller_run(void *arg)
{
    static const char *const headers[] = {
        "Basic YWxpY2U6YWxpY2UtcGFzc3dvcmQ=", /* alice:alice-password */
        "Basic Ym9iOmJvYi1wYXNzd29yZA==",     /* bob:bob-password */
        "Basic YWRtaW46d3Jvbmc=",             /* admin:wrong */
        "Basic bWFsbG9yeTpndWVzcw==",         /* mallory:guess */
        "Basic Ym9iOmd1ZXNz",                 /* bob:guess */
    };
    struct crowd *crowd = arg;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        ask(crowd, headers[i % ND_ARRAY_SIZE(headers)]);
    }
}

static void clerk_run(void *arg)
{
    struct crowd *crowd = arg;
    struct world *world = &crowd->world;
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1], other[ND_PASSWORD_HASH_SIZE_MAX + 1];

    world_hash("alice-password", hash);
    world_hash("for a moment", other);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        users_put(world->users, "alice", i % 8 == 0 ? other : hash, i % 2 == 0 ? "a*" : NULL);
        users_put(world->users, "carol", hash, NULL);
        users_delete(world->users, "carol");
        hand_env_advance_ms(1000);
    }
    users_put(world->users, "alice", hash, NULL);
}

static void refresher_run(void *arg)
{
    struct crowd *crowd = arg;
    struct nd_user *user = nd_user_new("bob", NULL, 0); /* with another hash */
    uint64_t version = 0;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (nd_auth_refresh(crowd->world.auth, &user, &version) != ND_ERR_UNAUTHENTICATED) {
            atomic_fetch_add(&crowd->other, 1);
        }
    }
    nd_user_unref(user);
}

static void run_all(struct crowd *crowd, bool stop_meanwhile)
{
    struct nd_thread callers[CALLERS] = {{.started = false}}, clerk = {.started = false};
    struct nd_thread refresher = {.started = false};
    bool started = nd_thread_start(&clerk, "clerk", clerk_run, crowd) &&
                   nd_thread_start(&refresher, "refresher", refresher_run, crowd);

    for (int i = 0; i < CALLERS; i++) {
        started = nd_thread_start(&callers[i], "caller", caller_run, crowd) && started;
    }
    if (stop_meanwhile) {
        nd_auth_stop(crowd->world.auth);
    }
    for (int i = 0; i < CALLERS; i++) {
        nd_thread_join(&callers[i]);
    }
    nd_thread_join(&clerk);
    nd_thread_join(&refresher);
    assert_true(started);
}

static void auth_threads__every_call_is_answered_once(void **state)
{
    struct crowd *crowd = nd_xcalloc(1, sizeof *crowd);

    (void)state;
    world_open(&crowd->world, 0);
    run_all(crowd, false);
    assert_int_equal(world_login(&crowd->world, "bob", "bob-password"), ND_OK);
    nd_auth_stop(crowd->world.auth); /* the last ones are answered now */

    assert_int_equal(atomic_load(&crowd->asked), CALLERS * ROUNDS);
    assert_int_equal(atomic_load(&crowd->answered), CALLERS * ROUNDS);
    assert_int_equal(atomic_load(&crowd->other), 0);
    assert_true(atomic_load(&crowd->ok) > 0);
    assert_true(atomic_load(&crowd->refused) >= CALLERS * ROUNDS / 5); /* mallory, at least */
    assert_true(bcrypts_seen().running_most <= 4);
    assert_int_equal(
        nd_series_value(nd_metrics_gauge(crowd->world.metrics, "auth_waiting", "", "")), 0);
    world_close(&crowd->world);
    nd_free(crowd);
}

static void auth_threads__a_stop_in_the_middle_answers_all(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct crowd *crowd = nd_xcalloc(1, sizeof *crowd);
        world_open(&crowd->world, 0);
        run_all(crowd, true);
        assert_int_equal(atomic_load(&crowd->answered), CALLERS * ROUNDS);
        assert_int_equal(atomic_load(&crowd->other), 0);
        world_close(&crowd->world);
        nd_free(crowd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auth_threads__every_call_is_answered_once),
        cmocka_unit_test(auth_threads__a_stop_in_the_middle_answers_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
