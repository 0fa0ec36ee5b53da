#include <stdio.h>

#include "server/security/grants.h"
#include "tests/support/nd_test.h"

static struct nd_user *user_of(const char *name, enum nd_action action, const char *pattern)
{
    char text[ND_USER_PATTERN_SIZE_MAX + 1], *patterns[] = {text};
    const struct nd_grant grant = {action, action == ND_ACTION_ADMIN ? 0 : 1, patterns};

    (void)snprintf(text, sizeof text, "%s", pattern);
    return nd_user_new(name, &grant, 1);
}

static struct nd_slice str(const char *text)
{
    return nd_slice_str(text);
}

static void pattern__is_a_name_or_a_beginning_with_one_star(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"orders", "orders", true},
        {"orders", "orders-eu", false},
        {"orders", "order", false},
        {"orders-*", "orders-", true},
        {"orders-*", "orders-eu", true},
        {"orders-*", "orders", false},
        {"orders*", "orders", true},
        {"*", "anything", true},
        {"*", "", true},
        {"", "", true},
        {"", "x", false},
        {"Orders", "orders", false},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        assert_int_equal(nd_pattern_matches(cases[i].pattern, str(cases[i].name)),
                         cases[i].matches);
    }
}

/* Who: nobody's grant, a literal one, a beginning, another action's, admin, root, security off. */
static void may__needs_a_grant_of_the_action_on_the_name(void **state)
{
    static const char *const texts[] = {
        [ND_ACTION_PRODUCE] = "produce not allowed on this topic",
        [ND_ACTION_CONSUME] = "consume not allowed on this topic",
        [ND_ACTION_CREATE] = "create not allowed on this topic",
        [ND_ACTION_ADMIN] = "admin privileges required",
    };

    (void)state;
    for (enum nd_action action = ND_ACTION_PRODUCE; action <= ND_ACTION_CREATE; action++) {
        enum nd_action other = action == ND_ACTION_CREATE ? ND_ACTION_PRODUCE : action + 1;
        struct nd_user *users[] = {
            user_of("none", action, "payments"),
            user_of("literal", action, "orders"),
            user_of("prefix", action, "ord*"),
            user_of("other", other, "orders"),
            user_of("admin2", ND_ACTION_ADMIN, ""),
            nd_user_new("admin", NULL, 0),
            NULL,
        };
        static const bool allowed[] = {false, true, true, false, true, true, true};
        users[5]->root = true;
        for (size_t i = 0; i < ND_ARRAY_SIZE(users); i++) {
            struct nd_errmsg msg = {""};
            enum nd_err err = nd_may(users[i], action, str("orders"), &msg);
            assert_int_equal(err, allowed[i] ? ND_OK : ND_ERR_PERMISSION_DENIED);
            assert_string_equal(msg.text, allowed[i] ? "" : texts[action]);
            err = nd_may(users[i], ND_ACTION_ADMIN, str("orders"), &msg);
            assert_int_equal(err, i >= 4 ? ND_OK : ND_ERR_PERMISSION_DENIED);
            err = nd_may_administer(users[i], &msg);
            assert_int_equal(err, i >= 4 ? ND_OK : ND_ERR_PERMISSION_DENIED);
            assert_string_equal(msg.text, i >= 4 ? "" : texts[ND_ACTION_ADMIN]);
            nd_user_unref(users[i]);
        }
    }
}

static void may_manage__is_for_the_owner_and_admins(void **state)
{
    struct nd_user *alice = user_of("alice", ND_ACTION_CREATE, "*");
    struct nd_user *boss = user_of("boss", ND_ACTION_ADMIN, "");
    struct nd_errmsg msg = {""};

    (void)state;
    assert_int_equal(nd_may_manage(alice, "alice", &msg), ND_OK);
    assert_int_equal(nd_may_manage(boss, "alice", &msg), ND_OK);
    assert_int_equal(nd_may_manage(boss, "", &msg), ND_OK);
    assert_int_equal(nd_may_manage(NULL, "alice", &msg), ND_OK);
    assert_int_equal(nd_may_manage(alice, "", &msg), ND_ERR_PERMISSION_DENIED);
    assert_int_equal(nd_may_manage(alice, "alic", &msg), ND_ERR_PERMISSION_DENIED);
    assert_string_equal(msg.text, "only the topic owner or an admin may modify this topic");
    nd_user_unref(alice);
    nd_user_unref(boss);
}

static void may_read__takes_any_grant_on_the_name(void **state)
{
    struct nd_user *alice = user_of("alice", ND_ACTION_CREATE, "orders-*");
    struct nd_errmsg msg = {""};

    (void)state;
    assert_int_equal(nd_may_read(alice, str("orders-eu"), "bob", &msg), ND_OK);
    assert_int_equal(nd_may_read(alice, str("other"), "alice", &msg), ND_OK);
    assert_int_equal(nd_may_read(NULL, str("other"), "bob", &msg), ND_OK);
    assert_int_equal(nd_may_read(alice, str("other"), "bob", &msg), ND_ERR_PERMISSION_DENIED);
    assert_string_equal(msg.text, "no grant on this topic");
    nd_user_unref(alice);
}

static enum nd_err confers(const struct nd_user *user, enum nd_action action, const char *pattern)
{
    struct nd_user *other = user_of("other", action, pattern);
    struct nd_errmsg msg = {""};
    enum nd_err err = nd_may_confer(user, other->grants, other->grants_count, &msg);

    assert_string_equal(msg.text, err == ND_OK ? "" : "cannot grant permissions you do not hold");
    nd_user_unref(other);
    return err;
}

static void may_confer__only_root_gives_admin(void **state)
{
    struct nd_user *root = nd_user_new("admin", NULL, 0);
    struct nd_user *boss = user_of("boss", ND_ACTION_ADMIN, "");
    struct nd_user *wide = user_of("wide", ND_ACTION_PRODUCE, "*");

    (void)state;
    root->root = true;
    assert_int_equal(confers(root, ND_ACTION_ADMIN, ""), ND_OK);
    assert_int_equal(confers(NULL, ND_ACTION_ADMIN, ""), ND_OK);
    assert_int_equal(confers(boss, ND_ACTION_ADMIN, ""), ND_ERR_PERMISSION_DENIED);
    assert_int_equal(confers(wide, ND_ACTION_ADMIN, ""), ND_ERR_PERMISSION_DENIED);
    assert_int_equal(confers(boss, ND_ACTION_CONSUME, "*"), ND_OK);
    nd_user_unref(root);
    nd_user_unref(boss);
    nd_user_unref(wide);
}

static void may_confer__others_give_what_they_hold_and_no_more(void **state)
{
    static const struct {
        const char *held, *given;
        bool covered;
    } cases[] = {
        {"orders", "orders", true},
        {"orders", "orders*", false},
        {"orders", "orders-eu", false},
        {"orders-*", "orders-*", true},
        {"orders-*", "orders-eu", true},
        {"orders-*", "orders-eu*", true},
        {"orders-*", "orders-", true},
        {"orders-*", "orders", false},
        {"orders-*", "orders*", false},
        {"orders-*", "*", false},
        {"*", "*", true},
        {"*", "x", true},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_user *user = user_of("u", ND_ACTION_CONSUME, cases[i].held);
        assert_int_equal(confers(user, ND_ACTION_CONSUME, cases[i].given),
                         cases[i].covered ? ND_OK : ND_ERR_PERMISSION_DENIED);
        assert_int_equal(confers(user, ND_ACTION_PRODUCE, cases[i].given),
                         ND_ERR_PERMISSION_DENIED); /* another action */
        assert_int_equal(nd_may_confer(user, NULL, 0, NULL), ND_OK);
        nd_user_unref(user);
    }
}

/* One pattern that is held does not carry the next one through. */
static void may_confer__looks_at_every_pattern_of_every_grant(void **state)
{
    char a[] = "a*", b[] = "b", *both[] = {a, b}, *first[] = {a};
    const struct nd_grant held[] = {{ND_ACTION_PRODUCE, 1, first}};
    const struct nd_grant given[] = {{ND_ACTION_PRODUCE, 2, both}};
    const struct nd_grant second[] = {{ND_ACTION_PRODUCE, 1, first}, {ND_ACTION_CONSUME, 1, first}};
    struct nd_user *user = nd_user_new("u", held, 1);

    (void)state;
    assert_int_equal(nd_may_confer(user, held, 1, NULL), ND_OK);
    assert_int_equal(nd_may_confer(user, given, 1, NULL), ND_ERR_PERMISSION_DENIED);
    assert_int_equal(nd_may_confer(user, second, 2, NULL), ND_ERR_PERMISSION_DENIED);
    nd_user_unref(user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pattern__is_a_name_or_a_beginning_with_one_star),
        cmocka_unit_test(may__needs_a_grant_of_the_action_on_the_name),
        cmocka_unit_test(may_manage__is_for_the_owner_and_admins),
        cmocka_unit_test(may_read__takes_any_grant_on_the_name),
        cmocka_unit_test(may_confer__only_root_gives_admin),
        cmocka_unit_test(may_confer__others_give_what_they_hold_and_no_more),
        cmocka_unit_test(may_confer__looks_at_every_pattern_of_every_grant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
