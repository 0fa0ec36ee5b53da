/* What is written down about callers, and what is not. */

#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/security/auth.h"
#include "tests/support/nd_test.h"
#include "tests/unit/security/auth_world.h"

static uint32_t count(const char *text, const char *part)
{
    uint32_t found = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        found++;
    }
    return found;
}

static void audit__failures_say_who_why_and_from_where(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 0);
    assert_int_equal(world_login(&world, "alice", "wrong"), ND_ERR_UNAUTHENTICATED);
    assert_int_equal(world_login(&world, "mallory", "guess"), ND_ERR_UNAUTHENTICATED);
    for (int i = 0; i < 5; i++) {
        char password[32];
        (void)snprintf(password, sizeof password, "guess-%d", i);
        (void)world_login(&world, "alice", password);
    }
    assert_int_equal(world_login(&world, "bob", "bob-password"), ND_OK);

    char *log = world_log(&world);
    assert_non_null(strstr(log, "audit"));
    assert_int_equal(count(log, "actor=\"alice\" outcome=denied reason=\"wrong password\" "
                                "peer=\"192.0.2.7:1234\""),
                     5);
    assert_int_equal(count(log, "actor=\"mallory\" outcome=denied reason=\"unknown user\""), 1);
    assert_int_equal(count(log, "actor=\"alice\" outcome=denied reason=\"throttled\""), 1);
    assert_int_equal(count(log, "\"bob\""), 0);
    assert_int_equal(world_metric(&world, "auth_failures_total", "reason=\"wrong_password\""), 5);
    assert_int_equal(world_metric(&world, "auth_failures_total", "reason=\"unknown_user\""), 1);
    assert_int_equal(world_metric(&world, "auth_failures_total", "reason=\"throttled\""), 1);
    nd_free(log);
    world_close(&world);
}

static void audit__a_line_holds_what_it_is_given_and_cannot_be_forged(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 0);
    nd_audit(world.auth, "user created", "admin", "alice", "ok", "192.0.2.7");
    nd_audit(world.auth, "user deleted", "x outcome=ok\n2026 forged", "a\"b", "denied", NULL);

    char *log = world_log(&world);
    assert_non_null(strstr(log, "actor=\"admin\" subject=\"alice\" outcome=\"ok\" "
                                "peer=\"192.0.2.7\""));
    assert_non_null(strstr(log, "outcome=\"denied\" peer=\"\""));
    assert_int_equal(count(log, "\n"), 2); /* two lines, whatever is in them */
    assert_null(strstr(log, "\n2026 forged"));
    nd_free(log);
    world_close(&world);
}

/* Names that are none (a password in the wrong place) are kept out as well. */
static void auth__secrets_are_in_no_line_and_no_metric(void **state)
{
    static const char *const secrets[] = {
        "alice-password", "wrong-secret", "in the wrong place", "new-secret",
        "YWxpY2U6",       "$2b$",         "root-password",
    };
    struct nd_buf metrics;
    struct world world;
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1], guess[32];

    (void)state;
    world_open(&world, 0);
    (void)world_login(&world, "alice", "alice-password");
    (void)world_login(&world, "alice", "alice-password");
    (void)world_login(&world, "in the wrong place!", "x");
    (void)world_login(&world, "mallory", "wrong-secret");
    nd_auth_hash(world.auth, nd_slice_str("new-secret"), answer_hashed, world_answer(&world, 0));
    (void)world_wait(&world, 0);
    world_hash("new-secret", hash);
    users_put(world.users, "alice", hash, NULL);
    (void)world_login(&world, "alice", "alice-password");
    (void)world_login(&world, "alice", "new-secret");
    for (int i = 0; i < 7; i++) {
        (void)snprintf(guess, sizeof guess, "wrong-secret-%d", i);
        (void)world_login(&world, "admin", guess);
    }
    nd_auth_stop(world.auth);

    char *log = world_log(&world);
    nd_buf_init(&metrics, 1 << 20);
    nd_metrics_text(world.metrics, &metrics);
    nd_buf_put_u8(&metrics, 0);
    assert_false(nd_buf_failed(&metrics));
    assert_true(strlen(log) > 500);
    assert_non_null(strstr((const char *)metrics.data, "narad_auth_failures_total"));
    for (size_t i = 0; i < ND_ARRAY_SIZE(secrets); i++) {
        assert_null(strstr(log, secrets[i]));
        assert_null(strstr((const char *)metrics.data, secrets[i]));
    }
    nd_buf_release(&metrics);
    nd_free(log);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(audit__failures_say_who_why_and_from_where),
        cmocka_unit_test(audit__a_line_holds_what_it_is_given_and_cannot_be_forged),
        cmocka_unit_test(auth__secrets_are_in_no_line_and_no_metric),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
