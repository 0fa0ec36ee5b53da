/* The first user. */

#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/security/auth.h"
#include "tests/support/nd_test.h"
#include "tests/unit/security/auth_world.h"

/* As world_open(), with no user yet and a retry after a millisecond. */
static void open_empty(struct world *world)
{
    struct nd_errmsg msg = {""};

    world_open(world, 0);
    nd_auth_free(world->auth);
    users_delete(world->users, "alice");
    users_delete(world->users, "bob");
    users_delete(world->users, "admin");
    const struct nd_auth_options options = {.metastore = world->users,
                                            .env = hand_env(),
                                            .log = world->log,
                                            .metrics = world->metrics,
                                            .cost = 4,
                                            .seed_retry_ms = 1};
    assert_int_equal(nd_auth_new(&world->auth, &options, &msg), ND_OK);
}

/* The word behind `before`, in `out`; "" when it is not there. */
static void word_after(const char *text, const char *before, char out[64])
{
    const char *at = strstr(text, before);

    out[0] = '\0';
    if (at != NULL) {
        at += strlen(before);
        (void)snprintf(out, 64, "%.*s", (int)strcspn(at, " \n"), at);
    }
}

static void root_seed__takes_the_given_password_and_never_says_it(void **state)
{
    struct world world;

    (void)state;
    open_empty(&world);
    nd_auth_seed_root(world.auth, "given-password");
    users_wait_seeds(world.users, 1);
    assert_int_equal(world_login(&world, "admin", "given-password"), ND_OK);
    nd_auth_free(world.auth);
    world.auth = NULL;

    char *log = world_log(&world);
    assert_non_null(strstr(log, "root account created"));
    assert_null(strstr(log, "given-password"));
    assert_null(strstr(log, "password="));
    nd_free(log);
    world_close(&world);
}

/* Is it the password of root as the metadata has it? */
static bool is_roots(struct world *world, const char *password)
{
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();
    struct nd_password copy;
    struct nd_user *root = NULL;

    assert_true(nd_password_copy(&copy, nd_slice_str(password)));
    assert_int_equal(nd_metastore_user(world->users, nd_slice_str("admin"), &root), ND_OK);
    bool same = nd_password_matches(room, &copy, root->hash);
    nd_user_unref(root);
    nd_bcrypt_room_free(room);
    return same;
}

/* The line tells a password of 32 letters, once, and it is root's. */
static void assert_told_once(struct world *world, const char *event)
{
    char *log = world_log(world), password[64];

    assert_non_null(strstr(log, event));
    word_after(log, "password=", password);
    assert_int_equal(strlen(password), 32);
    assert_int_equal(strspn(password, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789-_"),
                     32);
    assert_true(is_roots(world, password));
    assert_null(strstr(strstr(log, password) + 1, password));
    nd_free(log);
}

static void root_seed__makes_up_a_password_and_says_it_once(void **state)
{
    struct world world;

    (void)state;
    open_empty(&world);
    nd_auth_seed_root(world.auth, NULL);
    users_wait_seeds(world.users, 1);
    nd_auth_free(world.auth);
    assert_told_once(&world, "root account created");
    assert_int_equal(users_seeds(world.users), 1);
    world.auth = NULL;
    world_close(&world);
}

/* The proposal counted, its answer was lost: the password is told all the same. */
static void root_seed__is_told_by_its_hash_when_the_answer_was_lost(void **state)
{
    struct world world;

    (void)state;
    open_empty(&world);
    users_lose_seed_answer(world.users);
    nd_auth_seed_root(world.auth, NULL);
    world_wait_log(&world, "root account created");
    nd_auth_free(world.auth);
    assert_told_once(&world, "root account created");
    assert_int_equal(users_seeds(world.users), 1);
    world.auth = NULL;
    world_close(&world);
}

/* The node stops between proposal and answer. */
static void root_seed__is_told_when_the_answer_comes_after_the_stop(void **state)
{
    static const enum nd_err errs[] = {ND_OK, ND_ERR_UNKNOWN_OUTCOME, ND_ERR_UNAVAILABLE};
    static const char *const events[] = {"root account created", "root account perhaps created",
                                         NULL};

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(errs); i++) {
        struct world world;
        open_empty(&world);
        users_hold_seed(world.users);
        nd_auth_seed_root(world.auth, NULL);
        users_wait_seeds(world.users, 1);
        nd_auth_stop(world.auth);
        users_answer_seed(world.users, errs[i]);
        nd_auth_free(world.auth);
        world.auth = NULL;
        if (events[i] != NULL) {
            assert_told_once(&world, events[i]);
        } else {
            char *log = world_log(&world);
            assert_null(strstr(log, "password="));
            nd_free(log);
        }
        world_close(&world);
    }
}

static void root_seed__leaves_a_cluster_that_has_users_alone(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 0);
    nd_auth_seed_root(world.auth, NULL);
    assert_int_equal(world_login(&world, "admin", "root-password"), ND_OK);
    nd_auth_stop(world.auth);
    assert_int_equal(users_seeds(world.users), 0);
    char *log = world_log(&world);
    assert_null(strstr(log, "root account"));
    assert_null(strstr(log, "no user is an admin"));
    nd_free(log);
    world_close(&world);
}

/* Users made while security was off: none of them may manage users, and nobody ever will. */
static void root_seed__says_that_nobody_of_the_users_is_an_admin(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 0);
    users_delete(world.users, "admin");
    nd_auth_seed_root(world.auth, NULL);
    world_wait_log(&world, "no user is an admin");
    nd_auth_stop(world.auth);
    assert_int_equal(users_seeds(world.users), 0);
    char *log = world_log(&world);
    assert_null(strstr(log, "root account"));
    nd_free(log);
    world_close(&world);
}

static void root_seed__that_another_node_won_says_nothing(void **state)
{
    struct world world;

    (void)state;
    open_empty(&world);
    users_refuse_seed(world.users, ND_ERR_ALREADY_EXISTS, 1);
    nd_auth_seed_root(world.auth, NULL);
    users_wait_seeds(world.users, 1);
    nd_auth_free(world.auth);
    world.auth = NULL;
    char *log = world_log(&world);
    assert_null(strstr(log, "root account"));
    assert_int_equal(users_seeds(world.users), 1);
    nd_free(log);
    world_close(&world);
}

static void root_seed__tries_again_until_there_is_a_user(void **state)
{
    static const enum nd_err errs[] = {ND_ERR_NOT_LEADER, ND_ERR_UNAVAILABLE,
                                       ND_ERR_UNKNOWN_OUTCOME, ND_ERR_NO_SPACE};

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(errs); i++) {
        struct world world;
        open_empty(&world);
        users_refuse_seed(world.users, errs[i], 3);
        nd_auth_seed_root(world.auth, "given-password");
        users_wait_seeds(world.users, 4);
        assert_int_equal(world_login(&world, "admin", "given-password"), ND_OK);
        world_close(&world);
    }
}

static void root_seed__waits_for_the_metadata_and_ends_with_the_node(void **state)
{
    struct world world;

    (void)state;
    open_empty(&world);
    users_fall_behind(world.users);
    nd_auth_seed_root(world.auth, NULL);
    nd_auth_stop(world.auth); /* ends although nobody catches up */
    assert_int_equal(users_seeds(world.users), 0);
    users_catch_up(world.users); /* late news are no harm */
    world_close(&world);

    open_empty(&world);
    users_fall_behind(world.users);
    nd_auth_seed_root(world.auth, "given-password");
    users_catch_up(world.users);
    users_wait_seeds(world.users, 1);
    assert_int_equal(world_login(&world, "admin", "given-password"), ND_OK);
    world_close(&world);
}

static void root_seed__ends_at_any_moment(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct world world;
        open_empty(&world);
        users_refuse_seed(world.users, ND_ERR_NOT_LEADER, UINT32_MAX);
        nd_auth_seed_root(world.auth, i % 2 == 0 ? NULL : "given-password");
        if (i % 3 == 0) {
            users_wait_seeds(world.users, (uint64_t)i);
        }
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_seed__takes_the_given_password_and_never_says_it),
        cmocka_unit_test(root_seed__makes_up_a_password_and_says_it_once),
        cmocka_unit_test(root_seed__is_told_by_its_hash_when_the_answer_was_lost),
        cmocka_unit_test(root_seed__is_told_when_the_answer_comes_after_the_stop),
        cmocka_unit_test(root_seed__leaves_a_cluster_that_has_users_alone),
        cmocka_unit_test(root_seed__says_that_nobody_of_the_users_is_an_admin),
        cmocka_unit_test(root_seed__that_another_node_won_says_nothing),
        cmocka_unit_test(root_seed__tries_again_until_there_is_a_user),
        cmocka_unit_test(root_seed__waits_for_the_metadata_and_ends_with_the_node),
        cmocka_unit_test(root_seed__ends_at_any_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
