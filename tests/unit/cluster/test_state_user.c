/* Users in the state machine: what a command may do, whoever sends it. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "cluster/snapshot.h"
#include "cluster/state.h"
#include "tests/support/nd_test.h"
#include "tests/unit/cluster/commands.h"

struct fixture {
    struct nd_state state;
    struct nd_outcome outcome;
    uint64_t index;
};

static int setup(void **state)
{
    struct fixture *fixture = nd_xcalloc(1, sizeof *fixture);
    nd_state_init(&fixture->state);
    fixture->outcome.text = "";
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    nd_outcome_release(&fixture->outcome);
    nd_state_release(&fixture->state);
    nd_free(fixture);
    return 0;
}

/* The command is given up. */
static enum nd_err apply(struct fixture *fixture, struct nd_command command)
{
    nd_outcome_release(&fixture->outcome);
    nd_state_apply(&fixture->state, &command, ++fixture->index, &fixture->outcome);
    nd_command_release(&command);
    return fixture->outcome.err;
}

static const struct nd_user *find(const struct fixture *fixture, const char *name)
{
    return nd_user_table_find(fixture->state.users, nd_slice_str(name));
}

static void expect_pattern(const struct nd_user *user, const char *pattern)
{
    assert_int_equal(user->grants_count, 1);
    assert_int_equal(user->grants[0].patterns_count, 1);
    assert_string_equal(user->grants[0].patterns[0], pattern);
}

static void user_create__takes_all_from_the_command_but_root(void **state)
{
    struct fixture *fixture = *state;
    struct nd_command command = command_user_create(7, "ann", "orders-*");
    command.user->root = true;
    command.user->created_at_ms = 1;

    assert_int_equal(apply(fixture, command), ND_OK);

    const struct nd_user *user = find(fixture, "ann");
    assert_non_null(user);
    assert_ptr_equal(fixture->outcome.user_after, user);
    assert_null(fixture->outcome.user_before);
    assert_null(fixture->outcome.after);
    assert_false(user->root);
    assert_string_equal(user->hash, "$2b$10$first");
    expect_pattern(user, "orders-*");
    assert_int_equal(user->created_at_ms, 1767225600007);
    assert_int_equal(user->updated_at_ms, 1767225600007);
    assert_int_equal(fixture->state.changes, 1);
    command = command_user_create(8, "admin", NULL); /* the name alone makes no root */
    command.user->root = true;
    assert_int_equal(apply(fixture, command), ND_OK);
    assert_false(find(fixture, "admin")->root);
}

static void seed_root__makes_admin_and_only_while_there_is_nobody(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(apply(fixture, command_user_create(1, "ann", NULL)), ND_OK);
    assert_int_equal(apply(fixture, command_user_seed_root(2, "$2b$a")), ND_ERR_ALREADY_EXISTS);
    assert_int_equal(apply(fixture, command_user_delete(3, "ann")), ND_OK);
    assert_int_equal(apply(fixture, command_user_seed_root(4, "")), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(apply(fixture, command_user_seed_root(5, "$2b$b")), ND_OK);
    assert_int_equal(apply(fixture, command_user_seed_root(6, "$2b$c")), ND_ERR_ALREADY_EXISTS);
    assert_string_equal(fixture->outcome.text, "already exists");

    const struct nd_user *root = find(fixture, "admin");
    assert_true(root->root);
    assert_string_equal(root->hash, "$2b$b");
    assert_int_equal(root->grants_count, 0);
    assert_int_equal(nd_user_table_count(fixture->state.users), 1);
}

static void seed_root__of_two_members_at_once_only_the_first_counts(void **state)
{
    struct fixture *fixture = *state;
    struct nd_command mine = command_user_seed_root(1, "$2b$mine");
    struct nd_command other = command_user_seed_root(1, "$2b$other");
    other.proposer = mine.proposer + 1;

    assert_int_equal(apply(fixture, command_again(&other)), ND_OK);
    assert_int_equal(apply(fixture, command_again(&mine)), ND_ERR_ALREADY_EXISTS);
    assert_int_equal(apply(fixture, other), ND_OK); /* repeats: each its own answer */
    assert_true(fixture->outcome.repeat);
    assert_int_equal(apply(fixture, mine), ND_ERR_ALREADY_EXISTS);
    assert_true(fixture->outcome.repeat);

    assert_string_equal(find(fixture, "admin")->hash, "$2b$other");
    assert_int_equal(fixture->state.changes, 1);
}

static void root__is_never_deleted_and_its_grants_never_change(void **state)
{
    struct fixture *fixture = *state;
    apply(fixture, command_user_seed_root(1, "$2b$a"));
    const struct nd_user *root = find(fixture, "admin");

    for (int twice = 0; twice < 2; twice++) { /* a repeat says why, too */
        assert_int_equal(apply(fixture, command_user_delete(2, "admin")), ND_ERR_PERMISSION_DENIED);
        assert_string_equal(fixture->outcome.text, "the root admin cannot be deleted");
        assert_int_equal(fixture->outcome.repeat, twice == 1);
    }
    for (int twice = 0; twice < 2; twice++) {
        assert_int_equal(apply(fixture, command_user_set_grants(3, "admin", "*")),
                         ND_ERR_PERMISSION_DENIED);
        assert_string_equal(fixture->outcome.text, "the root admin's grants are immutable");
    }
    assert_int_equal(apply(fixture, command_user_set_grants(4, "admin", NULL)),
                     ND_ERR_PERMISSION_DENIED);
    assert_int_equal(apply(fixture, command_user_create(5, "admin", NULL)), ND_ERR_ALREADY_EXISTS);

    assert_ptr_equal(find(fixture, "admin"), root);
    assert_int_equal(fixture->state.changes, 1);
    assert_int_equal(apply(fixture, command_user_set_password(6, "admin", "$2b$b")), ND_OK);
    assert_true(find(fixture, "admin")->root); /* a new password leaves it root */
    assert_string_equal(find(fixture, "admin")->hash, "$2b$b");
}

/* The command as it comes out of the log of another member. */
static struct nd_command through_the_log(struct nd_command command)
{
    struct nd_command read;
    struct nd_buf bytes;

    nd_buf_init(&bytes, ND_COMMAND_SIZE_MAX + 8);
    nd_command_put(&bytes, &command);
    assert_int_equal(nd_command_get(nd_buf_slice(&bytes), &read, NULL), ND_OK);
    nd_buf_release(&bytes);
    nd_command_release(&command);
    return read;
}

/* I-108. Who changes the password read the user before its grants were taken away, and sends all it
 * knows; who changes grants knows an old password. */
static void field_scoped_user_update(void **state)
{
    struct fixture *fixture = *state;
    const char *pattern = "orders-*";
    apply(fixture, command_user_create(1, "ann", pattern));
    const struct nd_user *stale = nd_user_ref(find(fixture, "ann"));

    assert_int_equal(apply(fixture, command_user_set_grants(2, "ann", NULL)), ND_OK);
    for (int decoded = 0; decoded < 2; decoded++) {
        struct nd_command command = command_user_set_password(3 + decoded, "ann", "$2b$10$second");
        int64_t at_ms = command.user->updated_at_ms;
        nd_user_unref(command.user);
        command.user = user_of("ann", "$2b$10$second", &pattern, 1); /* with the old grants */
        command.user->updated_at_ms = at_ms;
        command.user->root = true;
        command = decoded == 0 ? command : through_the_log(command);
        assert_int_equal(apply(fixture, command), ND_OK);

        const struct nd_user *user = find(fixture, "ann");
        assert_int_equal(user->grants_count, 0); /* what was revoked stays revoked */
        assert_string_equal(user->hash, "$2b$10$second");
        assert_false(user->root);
        assert_int_equal(user->created_at_ms, stale->created_at_ms);
        assert_int_equal(user->updated_at_ms, at_ms);
    }

    struct nd_command command = command_user_set_grants(5, "ann", "*");
    snprintf(command.user->hash, sizeof command.user->hash, "%s", stale->hash);
    assert_int_equal(apply(fixture, command), ND_OK);
    assert_string_equal(find(fixture, "ann")->hash, "$2b$10$second");
    expect_pattern(find(fixture, "ann"), "*");
    assert_int_equal(find(fixture, "ann")->created_at_ms, stale->created_at_ms);
    expect_pattern(stale, "orders-*"); /* a record never changes */
    nd_user_unref(stale);
}

/* Two changes of one password: the second was made for one that is no more. */
static void user_set_password__replaces_the_hash_that_it_names(void **state)
{
    struct fixture *fixture = *state;
    const char *const first = "$2b$10$first", *const second = "$2b$10$second";
    apply(fixture, command_user_create(1, "ann", NULL));
    assert_int_equal(apply(fixture, command_user_set_password(2, "ann", first)), ND_OK);

    for (uint64_t decoded = 0; decoded < 2; decoded++) {
        struct nd_command command = command_user_set_password(3 + decoded, "ann", second);
        snprintf(command.replaces, sizeof command.replaces, "$2b$10$another");
        command = decoded == 0 ? command : through_the_log(command);
        assert_int_equal(apply(fixture, command), ND_ERR_CONFLICT);
        assert_string_equal(find(fixture, "ann")->hash, first);
    }
    struct nd_command command = command_user_set_password(5, "ann", second);
    snprintf(command.replaces, sizeof command.replaces, "%s", first);
    assert_int_equal(apply(fixture, through_the_log(command)), ND_OK);
    assert_string_equal(find(fixture, "ann")->hash, second);
}

static void user_change__refuses_without_changing_anything(void **state)
{
    struct fixture *fixture = *state;
    char hash[2] = "";
    apply(fixture, command_user_create(1, "ann", "orders-*"));
    const struct nd_user *user = find(fixture, "ann");
    struct nd_user_table *users = fixture->state.users;

    assert_int_equal(apply(fixture, command_user_create(2, "ann", NULL)), ND_ERR_ALREADY_EXISTS);
    assert_int_equal(apply(fixture, command_user_create(3, "a b", NULL)), ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(fixture->outcome.text, "username must match ^[A-Za-z0-9._-]{1,64}$");
    assert_int_equal(apply(fixture, command_user_create(4, "", NULL)), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(apply(fixture, command_user_create(5, "bob", "a*b")), ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(fixture->outcome.text, "grant \"produce\" pattern \"a*b\" must be a topic "
                                               "name with an optional trailing '*'");
    struct nd_command command = command_user_create(6, "bob", NULL);
    command.user->hash[0] = '\0';
    assert_int_equal(apply(fixture, command), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(apply(fixture, command_user_set_grants(7, "ann", "")),
                     ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(apply(fixture, command_user_set_grants(8, "bob", NULL)), ND_ERR_NOT_FOUND);
    assert_int_equal(apply(fixture, command_user_set_password(9, "bob", "$2b$")), ND_ERR_NOT_FOUND);
    assert_int_equal(apply(fixture, command_user_set_password(10, "ann", hash)),
                     ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(apply(fixture, command_user_delete(11, "bob")), ND_ERR_NOT_FOUND);
    assert_string_equal(fixture->outcome.text, "not found");
    assert_int_equal(apply(fixture, command_user_delete(12, "")), ND_ERR_NOT_FOUND);

    assert_null(fixture->outcome.user_before);
    assert_null(fixture->outcome.user_after);
    assert_ptr_equal(fixture->state.users, users);
    assert_ptr_equal(find(fixture, "ann"), user);
    assert_int_equal(fixture->state.changes, 1);
    assert_int_equal(fixture->state.commands, 12); /* refusals count as applied */
}

static void user_change__applies_a_repeat_once(void **state)
{
    struct fixture *fixture = *state;
    struct nd_command create = command_user_create(1, "ann", NULL);
    struct nd_command grants = command_user_set_grants(2, "ann", "*");
    struct nd_command delete = command_user_delete(3, "ann");
    grants.open_from = delete.open_from = 1;
    apply(fixture, command_again(&create));
    apply(fixture, command_again(&grants));
    assert_int_equal(apply(fixture, command_again(&delete)), ND_OK);
    assert_string_equal(fixture->outcome.user_before->name, "ann");
    assert_null(fixture->outcome.user_after);

    assert_int_equal(apply(fixture, create), ND_OK); /* its own answer, though it is gone */
    assert_true(fixture->outcome.repeat);
    assert_null(fixture->outcome.user_after);
    assert_null(find(fixture, "ann"));
    assert_int_equal(apply(fixture, grants), ND_OK);
    assert_int_equal(apply(fixture, delete), ND_OK);
    assert_true(fixture->outcome.repeat);

    assert_int_equal(nd_user_table_count(fixture->state.users), 0);
    assert_int_equal(fixture->state.changes, 3);
}

static void user_create__is_refused_beyond_the_limit(void **state)
{
    struct fixture *fixture = *state;
    const struct nd_user **users = nd_xcalloc(ND_USERS_MAX, sizeof users[0]);
    for (unsigned i = 0; i < ND_USERS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "user-%05u", i);
        users[i] = nd_user_new(name, NULL, 0);
    }
    nd_user_table_unref(fixture->state.users);
    fixture->state.users = nd_user_table_build(users, ND_USERS_MAX);
    for (unsigned i = 0; i < ND_USERS_MAX; i++) {
        nd_user_unref(users[i]);
    }
    nd_free(users);

    assert_int_equal(apply(fixture, command_user_create(1, "ann", NULL)), ND_ERR_CONFLICT);
    assert_string_equal(fixture->outcome.text, "too many users");
    assert_int_equal(apply(fixture, command_user_delete(2, "user-00007")), ND_OK);
    assert_int_equal(apply(fixture, command_user_create(3, "ann", NULL)), ND_OK);
    assert_int_equal(nd_user_table_count(fixture->state.users), ND_USERS_MAX);
}

/* I-102, as far as it is the state machine's: whatever is sent, in whatever order, there is at most
 * one root, called admin, without grants, made from nothing; and once it is there it stays. */
static void state_apply__lets_nobody_become_root(void **state)
{
    uint32_t rooted = 0;
    uint32_t changes = 0;
    (void)state;

    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct command_source source = {.rand = seed};
        struct nd_state users;
        bool was_there = false;
        nd_state_init(&users);
        for (uint64_t index = 1; index <= 500; index++) {
            struct nd_command command = command_next_user(&source);
            bool was_empty = nd_user_table_count(users.users) == 0;
            struct nd_outcome outcome;
            uint32_t roots = 0;
            nd_state_apply(&users, &command, index, &outcome);
            for (size_t i = 0; i < nd_user_table_count(users.users); i++) {
                const struct nd_user *user = nd_user_table_at(users.users, i);
                roots += user->root ? 1 : 0;
                assert_true(!user->root || strcmp(user->name, "admin") == 0);
                assert_true(!user->root || user->grants_count == 0);
                assert_int_equal(nd_grants_check(user->grants, user->grants_count, NULL), ND_OK);
            }
            assert_true(roots <= 1 && roots >= (was_there ? 1u : 0u));
            assert_true(roots == 0 || was_there ||
                        (was_empty && command.kind == ND_COMMAND_USER_SEED_ROOT));
            was_there = roots == 1;
            nd_outcome_release(&outcome);
            nd_command_release(&command);
        }
        rooted += was_there ? 1 : 0;
        changes += (uint32_t)users.changes;
        nd_state_release(&users);
    }
    assert_true(rooted > 5 && changes > 1000); /* else it proves little */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(user_create__takes_all_from_the_command_but_root),
        CASE(seed_root__makes_admin_and_only_while_there_is_nobody),
        CASE(seed_root__of_two_members_at_once_only_the_first_counts),
        CASE(root__is_never_deleted_and_its_grants_never_change),
        CASE(field_scoped_user_update),
        CASE(user_set_password__replaces_the_hash_that_it_names),
        CASE(user_change__refuses_without_changing_anything),
        CASE(user_change__applies_a_repeat_once),
        CASE(user_create__is_refused_beyond_the_limit),
        cmocka_unit_test(state_apply__lets_nobody_become_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
