#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/security/auth_impl.h"
#include "tests/support/nd_test.h"
#include "tests/unit/security/auth_world.h"

static int setup(void **state)
{
    struct world *world = nd_xcalloc(1, sizeof *world);

    world_open(world, 0);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    world_close(*state);
    nd_free(*state);
    return 0;
}

static void auth__what_was_right_once_is_let_in_at_once(void **state)
{
    struct world *world = *state;

    assert_false(world_check(world, 0, "alice", "alice-password"));
    assert_int_equal(world_wait(world, 0), ND_OK);
    assert_string_equal(world->answers[0].user->name, "alice");
    uint64_t reads = users_reads(world->users);
    for (int i = 0; i < 100; i++) {
        assert_true(world_check(world, 1, "alice", "alice-password"));
        assert_int_equal(world->answers[1].err, ND_OK);
        assert_string_equal(world->answers[1].user->name, "alice");
    }
    assert_int_equal(bcrypts_seen().begun, 1);
    assert_int_equal(users_reads(world->users), reads); /* nor is the metadata asked */
    assert_int_equal(world_metric(world, "auth_cache_hits_total", ""), 100);
}

static void auth__without_credentials_is_refused_at_once(void **state)
{
    static const char *const headers[] = {NULL, "", "Basic", "Bearer dXNlcjpwYXNz",
                                          "Basic YWxpY2U="};
    struct world *world = *state;

    for (size_t i = 0; i < ND_ARRAY_SIZE(headers); i++) {
        struct nd_user *user = NULL;
        enum nd_err err = ND_OK;
        const struct nd_auth_caller caller = {
            headers[i] == NULL ? nd_slice_make(NULL, 0) : nd_slice_str(headers[i]), NULL, NULL};
        assert_int_equal(nd_auth_check(world->auth, &caller, &err, &user, NULL, NULL),
                         ND_AUTH_DECIDED);
        assert_int_equal(err, ND_ERR_UNAUTHENTICATED);
        assert_null(user);
    }
    assert_int_equal(bcrypts_seen().begun, 0);
    assert_int_equal(world_metric(world, "auth_failures_total", "reason=\"missing\""), 1);
    assert_int_equal(world_metric(world, "auth_failures_total", "reason=\"malformed\""), 4);
}

static void grant_change_no_bcrypt(void **state)
{
    struct world *world = *state;
    uint64_t version = 0;

    assert_int_equal(world_login(world, "alice", "alice-password"), ND_OK);
    assert_false(world_check(world, 0, "bob", "bob-password"));
    assert_int_equal(world_wait(world, 0), ND_OK);
    struct nd_user *held = nd_user_ref(world->answers[0].user);
    assert_int_equal(nd_auth_refresh(world->auth, &held, &version), ND_OK);
    assert_int_equal(held->grants_count, 0);

    users_put(world->users, "bob", held->hash, "orders-*");

    assert_true(world_check(world, 0, "bob", "bob-password"));
    assert_int_equal(world->answers[0].err, ND_OK);
    assert_int_equal(world->answers[0].user->grants_count, 1);
    assert_true(world_check(world, 1, "alice", "alice-password")); /* others' caches stay too */
    assert_int_equal(world->answers[1].err, ND_OK);
    assert_int_equal(bcrypts_seen().begun, 2);
    assert_int_equal(nd_auth_refresh(world->auth, &held, &version), ND_OK);
    assert_int_equal(held->grants_count, 1);
    nd_user_unref(held);
}

static void password_change_cuts_access(void **state)
{
    struct world *world = *state;
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1];
    uint64_t version = 0;

    assert_int_equal(world_login(world, "alice", "alice-password"), ND_OK);
    assert_int_equal(world_login(world, "alice", "tomorrow"), ND_ERR_UNAUTHENTICATED);
    assert_true(world_check(world, 0, "alice", "alice-password"));
    struct nd_user *held = nd_user_ref(world->answers[0].user);
    assert_int_equal(nd_auth_refresh(world->auth, &held, &version), ND_OK);

    world_hash("tomorrow", hash);
    users_put(world->users, "alice", hash, NULL);

    assert_int_equal(nd_auth_refresh(world->auth, &held, &version), ND_ERR_UNAUTHENTICATED);
    assert_int_equal(world_login(world, "alice", "alice-password"), ND_ERR_UNAUTHENTICATED);
    assert_int_equal(world_login(world, "alice", "tomorrow"), ND_OK); /* was wrong before */
    assert_int_equal(world_login(world, "alice", "alice-password"), ND_ERR_UNAUTHENTICATED);
    nd_user_unref(held);
}

static void password_change__cuts_what_is_being_checked(void **state)
{
    struct world *world = *state;
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1];

    bcrypts_shut_gate();
    assert_false(world_check(world, 0, "alice", "alice-password"));
    bcrypts_wait_running(1);
    world_hash("tomorrow", hash);
    users_put(world->users, "alice", hash, NULL);
    assert_false(world_check(world, 1, "alice", "alice-password")); /* shares no old run */
    bcrypts_wait_running(2);
    bcrypts_open_gate();

    assert_int_equal(world_wait(world, 0), ND_ERR_UNAUTHENTICATED);
    assert_int_equal(world_wait(world, 1), ND_ERR_UNAUTHENTICATED);
    assert_int_equal(world_login(world, "alice", "tomorrow"), ND_OK);
}

static void deleted_user__is_out_at_once(void **state)
{
    struct world *world = *state;
    uint64_t version = 0;

    assert_false(world_check(world, 0, "bob", "bob-password"));
    assert_int_equal(world_wait(world, 0), ND_OK);
    struct nd_user *held = nd_user_ref(world->answers[0].user);
    assert_int_equal(nd_auth_refresh(world->auth, &held, &version), ND_OK);
    bcrypts_shut_gate();
    assert_false(world_check(world, 1, "alice", "alice-password"));
    bcrypts_wait_running(1);

    users_delete(world->users, "alice");
    users_delete(world->users, "bob");

    bcrypts_open_gate();
    assert_int_equal(world_wait(world, 1), ND_ERR_UNAUTHENTICATED);
    assert_true(world_check(world, 2, "bob", "bob-password"));
    assert_int_equal(world->answers[2].err, ND_ERR_UNAUTHENTICATED);
    assert_int_equal(nd_auth_refresh(world->auth, &held, &version), ND_ERR_UNAUTHENTICATED);

    users_put(world->users, "bob", held->hash, NULL); /* again, by the same name */
    assert_int_equal(world_login(world, "bob", "bob-password"), ND_OK);
    nd_user_unref(held);
}

static void auth_refresh__costs_one_load_while_no_user_changes(void **state)
{
    struct world *world = *state;
    struct nd_user *nobody = NULL;
    uint64_t version = 0;

    assert_false(world_check(world, 0, "bob", "bob-password"));
    assert_int_equal(world_wait(world, 0), ND_OK);
    struct nd_user *held = nd_user_ref(world->answers[0].user);
    assert_int_equal(nd_auth_refresh(world->auth, &held, &version), ND_OK);
    uint64_t reads = users_reads(world->users);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(nd_auth_refresh(world->auth, &held, &version), ND_OK);
        assert_int_equal(nd_auth_refresh(world->auth, &nobody, &version), ND_OK);
    }
    assert_int_equal(users_reads(world->users), reads);
    nd_user_unref(held);
}

/* --- the budget of bcrypts --- */

static void bcrypt_budget(void **state)
{
    struct world *world = *state;
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1], name[16], long_name[101] = "";
    enum { MANY = 12 };

    memset(long_name, 'a', 100);
    for (int i = 0; i < 50; i++) { /* unknown users cost none and are never throttled */
        assert_true(world_check(world, 0, "mallory", "guess"));
        assert_int_equal(world->answers[0].err, ND_ERR_UNAUTHENTICATED);
    }
    assert_true(world_check(world, 0, "", "guess"));
    assert_int_equal(world->answers[0].err, ND_ERR_UNAUTHENTICATED);
    assert_true(world_check(world, 0, long_name, "guess"));
    assert_int_equal(world->answers[0].err, ND_ERR_UNAUTHENTICATED);
    assert_int_equal(bcrypts_seen().begun, 0);

    bcrypts_shut_gate();
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof name, "user-%u", i);
        world_hash("the-password", hash);
        users_put(world->users, name, hash, NULL);
        for (uint32_t j = 0; j < 4; j++) { /* identical ones share one */
            assert_false(world_check(world, 4 * i + j, name, "the-password"));
        }
    }
    bcrypts_wait_running(4);
    assert_int_equal(
        nd_series_value(nd_metrics_gauge(world->metrics, "auth_verify_queued", "", "")), MANY - 4);
    bcrypts_open_gate();
    for (uint32_t i = 0; i < 4 * MANY; i++) {
        assert_int_equal(world_wait(world, i), ND_OK);
        (void)snprintf(name, sizeof name, "user-%u", i / 4);
        assert_string_equal(world->answers[i].user->name, name);
    }
    assert_int_equal(bcrypts_seen().begun, MANY);
    assert_int_equal(bcrypts_seen().running_most, 4);
    assert_int_equal(world_metric(world, "auth_bcrypt_total", ""), MANY);
}

static void auth__the_same_wrong_password_costs_one_bcrypt_a_minute(void **state)
{
    struct world *world = *state;

    assert_false(world_check(world, 0, "alice", "wrong"));
    assert_int_equal(world_wait(world, 0), ND_ERR_UNAUTHENTICATED);
    for (int i = 0; i < 50; i++) {
        assert_true(world_check(world, 0, "alice", "wrong"));
        assert_int_equal(world->answers[0].err, ND_ERR_UNAUTHENTICATED);
    }
    assert_int_equal(bcrypts_seen().begun, 1);
    hand_env_advance_ms(60000);
    assert_false(world_check(world, 0, "alice", "wrong"));
    assert_int_equal(world_wait(world, 0), ND_ERR_UNAUTHENTICATED);
    assert_int_equal(bcrypts_seen().begun, 2);
}

/* Five wrong ones, all different. */
static void empty_bucket(struct world *world, const char *name)
{
    char password[32];

    for (int i = 0; i < 5; i++) {
        (void)snprintf(password, sizeof password, "guess-%d", i);
        assert_int_equal(world_login(world, name, password), ND_ERR_UNAUTHENTICATED);
    }
    assert_true(world_check(world, 0, name, "guess-5"));
    assert_int_equal(world->answers[0].err, ND_ERR_THROTTLED);
}

static void bucket_refill_not_lockout(void **state)
{
    struct world *world = *state;

    assert_int_equal(world_login(world, "bob", "bob-password"), ND_OK);
    empty_bucket(world, "alice");
    empty_bucket(world, "bob");
    uint32_t begun = bcrypts_seen().begun;

    /* Right, but not verified yet: it cannot be told from a guess without a bcrypt. */
    assert_true(world_check(world, 0, "alice", "alice-password"));
    assert_int_equal(world->answers[0].err, ND_ERR_THROTTLED);
    assert_true(world_check(world, 0, "bob", "bob-password")); /* verified before the attack */
    assert_int_equal(world->answers[0].err, ND_OK);
    assert_true(world_check(world, 0, "bob", "guess-1")); /* known to be wrong: not throttled */
    assert_int_equal(world->answers[0].err, ND_ERR_UNAUTHENTICATED);
    assert_true(world_check(world, 0, "mallory", "guess-5"));
    assert_int_equal(world->answers[0].err, ND_ERR_UNAUTHENTICATED);
    assert_int_equal(bcrypts_seen().begun, begun);

    hand_env_advance_ms(11999);
    assert_int_equal(world_login(world, "alice", "alice-password"), ND_ERR_THROTTLED);
    hand_env_advance_ms(1);
    assert_int_equal(world_login(world, "alice", "alice-password"), ND_OK);
    /* Success gave the try back. */
    assert_int_equal(world_login(world, "alice", "guess-6"), ND_ERR_UNAUTHENTICATED);
    assert_int_equal(world_login(world, "alice", "guess-7"), ND_ERR_THROTTLED);
    assert_int_equal(world_login(world, "alice", "alice-password"), ND_OK);
}

static void auth__who_waits_for_the_same_bcrypt_spends_no_try(void **state)
{
    struct world *world = *state;
    char password[32];

    bcrypts_shut_gate();
    for (uint32_t i = 0; i < 20; i++) {
        assert_false(world_check(world, i, "alice", "wrong"));
    }
    bcrypts_open_gate();
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(world_wait(world, i), ND_ERR_UNAUTHENTICATED);
    }
    assert_int_equal(bcrypts_seen().begun, 1);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(password, sizeof password, "guess-%d", i);
        assert_int_equal(world_login(world, "alice", password), ND_ERR_UNAUTHENTICATED);
    }
    assert_int_equal(world_login(world, "alice", "guess-4"), ND_ERR_THROTTLED);
}

static void auth__what_waits_is_bounded(void **state)
{
    struct world *world = *state;

    world_close(world);
    world_open(world, 2);
    bcrypts_shut_gate();
    assert_false(world_check(world, 0, "alice", "alice-password"));
    assert_false(world_check(world, 1, "alice", "alice-password"));
    for (int i = 0; i < 20; i++) {
        assert_true(world_check(world, 2, "alice", "alice-password")); /* would wait as well */
        assert_int_equal(world->answers[2].err, ND_ERR_OVERLOADED);
        assert_true(world_check(world, 2, "bob", "bob-password"));
        assert_int_equal(world->answers[2].err, ND_ERR_OVERLOADED); /* and spends no try */
    }
    nd_auth_hash(world->auth, nd_slice_str("new"), answer_hashed, world_answer(world, 3));
    assert_int_equal(world_wait(world, 3), ND_ERR_OVERLOADED);
    bcrypts_open_gate();
    assert_int_equal(world_wait(world, 0), ND_OK);
    assert_int_equal(world_wait(world, 1), ND_OK);
    assert_int_equal(world_login(world, "bob", "bob-password"), ND_OK);
}

/* Else a crowd of names would push out those who are in, for the price of one bcrypt. */
static void auth__who_cannot_wait_is_not_remembered(void **state)
{
    struct world *world = *state;

    world_close(world);
    world_open(world, 1);
    bcrypts_shut_gate();
    assert_false(world_check(world, 0, "alice", "alice-password"));
    assert_true(world_check(world, 1, "bob", "bob-password"));
    assert_int_equal(world->answers[1].err, ND_ERR_OVERLOADED);
    nd_mutex_lock(&world->auth->lock);
    assert_int_equal(nd_accounts_count(world->auth->accounts), 1);
    nd_mutex_unlock(&world->auth->lock);
    bcrypts_open_gate();
    assert_int_equal(world_wait(world, 0), ND_OK);
}

static void auth_stop__answers_what_waits(void **state)
{
    struct world *world = *state;
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1], name[16];

    bcrypts_shut_gate();
    for (uint32_t i = 0; i < 6; i++) {
        (void)snprintf(name, sizeof name, "user-%u", i);
        world_hash("the-password", hash);
        users_put(world->users, name, hash, NULL);
        assert_false(world_check(world, i, name, "the-password"));
    }
    nd_auth_hash(world->auth, nd_slice_str("new"), answer_hashed, world_answer(world, 6));
    bcrypts_wait_running(4);
    bcrypts_open_gate();
    nd_auth_stop(world->auth);
    for (uint32_t i = 0; i < 7; i++) {
        enum nd_err err = world->answers[i].err; /* all answered by now */
        assert_true(world->answers[i].answered);
        assert_true(err == ND_ERR_CANCELLED || err == ND_OK);
    }
    assert_true(world_check(world, 8, "alice", "alice-password"));
    assert_int_equal(world->answers[8].err, ND_ERR_CANCELLED);
    nd_auth_hash(world->auth, nd_slice_str("new"), answer_hashed, world_answer(world, 9));
    assert_int_equal(world->answers[9].err, ND_ERR_CANCELLED);
    nd_auth_stop(world->auth);
}

static void auth__an_unknown_name_before_catch_up_is_unavailable(void **state)
{
    struct world *world = *state;

    users_fall_behind(world->users);
    assert_true(world_check(world, 0, "carol", "carol-password"));
    assert_int_equal(world->answers[0].err, ND_ERR_UNAVAILABLE);
    assert_int_equal(world_login(world, "alice", "alice-password"), ND_OK); /* known from before */
    users_catch_up(world->users);
    assert_int_equal(world_login(world, "carol", "carol-password"), ND_ERR_UNAUTHENTICATED);
}

/* --- passwords of one's own, new ones --- */

static enum nd_err verify(struct world *world, const char *password, size_t size)
{
    struct nd_user *alice = nd_user_new("alice", NULL, 0);

    nd_auth_verify(world->auth, alice, nd_slice_make(password, size), answer_verified,
                   world_answer(world, 0));
    nd_user_unref(alice);
    return world_wait(world, 0);
}

static void auth_verify__shares_bucket_and_caches(void **state)
{
    struct world *world = *state;

    assert_int_equal(world_login(world, "alice", "alice-password"), ND_OK);
    assert_int_equal(verify(world, "alice-password", 14), ND_OK);
    assert_int_equal(bcrypts_seen().begun, 1);
    assert_int_equal(verify(world, "wrong", 5), ND_ERR_PERMISSION_DENIED);
    assert_int_equal(verify(world, "", 0), ND_ERR_PERMISSION_DENIED);
    assert_int_equal(verify(world, "alice-password\0", 15), ND_ERR_PERMISSION_DENIED);
    assert_int_equal(bcrypts_seen().begun, 3);
    for (int i = 0; i < 3; i++) {
        const char text[] = {(char)('a' + i), '\0'};
        assert_int_equal(verify(world, text, 1), ND_ERR_PERMISSION_DENIED);
    }
    assert_int_equal(verify(world, "x", 1), ND_ERR_THROTTLED);
    assert_int_equal(verify(world, "alice-password", 14), ND_OK);
    users_delete(world->users, "alice");
    assert_int_equal(verify(world, "alice-password", 14), ND_ERR_PERMISSION_DENIED);
}

static void auth_hash__is_let_in_by_its_password(void **state)
{
    struct world *world = *state;
    char long_password[74] = "";

    memset(long_password, 'a', 73);
    nd_auth_hash(world->auth, nd_slice_str("new-password"), answer_hashed, world_answer(world, 0));
    assert_int_equal(world_wait(world, 0), ND_OK);
    users_put(world->users, "alice", world->answers[0].text, NULL);
    assert_int_equal(world_login(world, "alice", "new-password"), ND_OK);

    nd_auth_hash(world->auth, nd_slice_str(long_password), answer_hashed, world_answer(world, 0));
    assert_int_equal(world_wait(world, 0), ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(world->answers[0].text, "password must be at most 72 bytes");
    nd_auth_hash(world->auth, nd_slice_str(""), answer_hashed, world_answer(world, 0));
    assert_int_equal(world_wait(world, 0), ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(world->answers[0].text, "password required");
}

/* bcrypt reads 72 bytes: what is behind them must not be anybody's to choose. */
static void auth__a_password_of_73_bytes_is_wrong_without_a_bcrypt(void **state)
{
    struct world *world = *state;
    char password[74] = "", hash[ND_PASSWORD_HASH_SIZE_MAX + 1];

    memset(password, 'a', 72);
    world_hash(password, hash);
    users_put(world->users, "alice", hash, NULL);
    assert_int_equal(world_login(world, "alice", password), ND_OK);
    password[72] = 'a';
    for (int i = 0; i < 20; i++) {
        assert_true(world_check(world, 0, "alice", password));
        assert_int_equal(world->answers[0].err, ND_ERR_UNAUTHENTICATED);
    }
    assert_int_equal(bcrypts_seen().begun, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(auth__what_was_right_once_is_let_in_at_once),
        CASE(auth__without_credentials_is_refused_at_once),
        CASE(grant_change_no_bcrypt),
        CASE(password_change_cuts_access),
        CASE(password_change__cuts_what_is_being_checked),
        CASE(deleted_user__is_out_at_once),
        CASE(auth_refresh__costs_one_load_while_no_user_changes),
        CASE(bcrypt_budget),
        CASE(auth__the_same_wrong_password_costs_one_bcrypt_a_minute),
        CASE(bucket_refill_not_lockout),
        CASE(auth__who_waits_for_the_same_bcrypt_spends_no_try),
        CASE(auth__what_waits_is_bounded),
        CASE(auth__who_cannot_wait_is_not_remembered),
        CASE(auth_stop__answers_what_waits),
        CASE(auth__an_unknown_name_before_catch_up_is_unavailable),
        CASE(auth_verify__shares_bucket_and_caches),
        CASE(auth_hash__is_let_in_by_its_password),
        CASE(auth__a_password_of_73_bytes_is_wrong_without_a_bcrypt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
