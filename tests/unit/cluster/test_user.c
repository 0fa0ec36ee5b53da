#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "cluster/user.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static const char name_text[] = "username must match ^[A-Za-z0-9._-]{1,64}$";

static void user_name_check__answers_the_text_of_the_contract(void **state)
{
    char longest[ND_USER_NAME_SIZE_MAX + 2];
    memset(longest, 'a', sizeof longest);
    const struct {
        struct nd_slice name;
        bool good;
    } rows[] = {
        {nd_slice_str("admin"), true},
        {nd_slice_str("A.b_c-9"), true},
        {nd_slice_str("..."), true},
        {nd_slice_str("a"), true},
        {nd_slice_make(longest, 64), true},
        {nd_slice_make(longest, 65), false},
        {nd_slice_make(NULL, 0), false},
        {nd_slice_str("."), false},
        {nd_slice_str(".."), false},
        {nd_slice_str("a b"), false},
        {nd_slice_str("a/b"), false},
        {nd_slice_str("a:b"), false}, /* else Basic credentials could not name it */
        {nd_slice_str("caf\xc3\xa9"), false},
        {nd_slice_make("a\0b", 3), false},
        {nd_slice_str("a\n"), false},
        {nd_slice_str("*"), false},
    };
    (void)state;

    for (size_t i = 0; i < ND_ARRAY_SIZE(rows); i++) {
        struct nd_errmsg msg = {""};
        enum nd_err err = nd_user_name_check(rows[i].name, &msg);

        assert_int_equal(err, rows[i].good ? ND_OK : ND_ERR_INVALID_ARGUMENT);
        assert_int_equal(strncmp(msg.text, name_text, strlen(name_text)) == 0, !rows[i].good);
        assert_int_equal(nd_user_name_check(rows[i].name, NULL), err);
    }
}

static void user_hash_check__takes_what_crypt_writes(void **state)
{
    char longest[ND_USER_HASH_SIZE_MAX + 2];
    struct nd_errmsg msg = {""};
    (void)state;
    memset(longest, 'a', sizeof longest);

    assert_int_equal(
        nd_user_hash_check(
            nd_slice_str("$2b$10$abcdefghijklmnopqrstuuQFJH8WyfDp9CeGTLnHPdqcAXvfn6qbG"), &msg),
        ND_OK);
    assert_int_equal(nd_user_hash_check(nd_slice_make(longest, 127), &msg), ND_OK);
    assert_string_equal(msg.text, "");
    assert_int_equal(nd_user_hash_check(nd_slice_make(longest, 128), NULL),
                     ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(nd_user_hash_check(nd_slice_str(""), NULL), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(nd_user_hash_check(nd_slice_str("a b"), NULL), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(nd_user_hash_check(nd_slice_make("a\0b", 3), NULL), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(nd_user_hash_check(nd_slice_str("\x7f"), &msg), ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(msg.text, "a password hash has 1 to 127 visible characters");
}

/* One grant, of copies of the texts given; "" says nothing of a refusal. */
static enum nd_err check_one(enum nd_action action, const char *const *patterns, uint32_t count,
                             struct nd_errmsg *msg)
{
    char **copies = nd_xcalloc(count + 1, sizeof copies[0]);
    const struct nd_grant grant = {action, count, copies};

    for (uint32_t i = 0; i < count; i++) {
        copies[i] = nd_xstrdup(patterns[i]);
    }
    *msg = (struct nd_errmsg){""};
    enum nd_err err = nd_grants_check(&grant, 1, msg);
    assert_int_equal(nd_grants_check(&grant, 1, NULL), err);
    for (uint32_t i = 0; i < count; i++) {
        nd_free(copies[i]);
    }
    nd_free(copies);
    return err;
}

static void grants_check__answers_the_texts_of_the_contract(void **state)
{
    static const struct {
        enum nd_action action;
        uint32_t count;
        const char *patterns[3];
        const char *text; /* NULL: good */
    } rows[] = {
        {ND_ACTION_PRODUCE, 1, {"orders-*"}, NULL},
        {ND_ACTION_CONSUME, 3, {"*", "orders", "a.b_c-9*"}, NULL},
        {ND_ACTION_CREATE, 2, {"a", "a"}, NULL},
        {ND_ACTION_ADMIN, 0, {NULL}, NULL},
        {ND_ACTION_PRODUCE, 0, {NULL}, "grant \"produce\" requires at least one topic pattern"},
        {ND_ACTION_CREATE, 0, {NULL}, "grant \"create\" requires at least one topic pattern"},
        {ND_ACTION_PRODUCE, 1, {""}, "grant \"produce\" has an empty pattern"},
        {ND_ACTION_CONSUME, 2, {"a", ""}, "grant \"consume\" has an empty pattern"},
        {ND_ACTION_PRODUCE,
         1,
         {"a*b"},
         "grant \"produce\" pattern \"a*b\" must be a topic name with an optional trailing '*'"},
        {ND_ACTION_PRODUCE,
         2,
         {"a", "**"},
         "grant \"produce\" pattern \"**\" must be a topic name with an optional trailing '*'"},
        {ND_ACTION_CREATE,
         1,
         {"a b"},
         "grant \"create\" pattern \"a b\" must be a topic name with an optional trailing '*'"},
        {ND_ACTION_ADMIN, 1, {"*"}, "admin grants are global and must not carry patterns"},
        {(enum nd_action)4, 1, {"a"}, "unknown grant action \"4\""},
    };
    struct nd_errmsg msg;
    (void)state;

    for (size_t i = 0; i < ND_ARRAY_SIZE(rows); i++) {
        enum nd_err err = check_one(rows[i].action, rows[i].patterns, rows[i].count, &msg);

        assert_int_equal(err, rows[i].text == NULL ? ND_OK : ND_ERR_INVALID_ARGUMENT);
        assert_string_equal(msg.text, rows[i].text == NULL ? "" : rows[i].text);
    }
}

static void grants_check__keeps_its_bounds(void **state)
{
    const char *many[ND_USER_GRANT_PATTERNS_MAX + 1];
    char pattern[ND_USER_PATTERN_SIZE_MAX + 2];
    const char *one = pattern;
    struct nd_grant grants[ND_USER_GRANTS_MAX + 1];
    struct nd_errmsg msg;
    (void)state;

    memset(pattern, 'a', sizeof pattern);
    pattern[255] = '\0'; /* a name of 255 */
    assert_int_equal(check_one(ND_ACTION_PRODUCE, &one, 1, &msg), ND_OK);
    memcpy(pattern + 255, "*", 2); /* and the star */
    assert_int_equal(check_one(ND_ACTION_PRODUCE, &one, 1, &msg), ND_OK);
    memcpy(pattern + 255, "a", 2);
    assert_int_equal(check_one(ND_ACTION_PRODUCE, &one, 1, &msg), ND_ERR_INVALID_ARGUMENT);
    memcpy(pattern + 255, "a*", 3);
    assert_int_equal(check_one(ND_ACTION_PRODUCE, &one, 1, &msg), ND_ERR_INVALID_ARGUMENT);

    for (size_t i = 0; i < ND_ARRAY_SIZE(many); i++) {
        many[i] = "a";
    }
    assert_int_equal(check_one(ND_ACTION_PRODUCE, many, 256, &msg), ND_OK);
    assert_int_equal(check_one(ND_ACTION_PRODUCE, many, 257, &msg), ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(msg.text, "grant \"produce\" has more than 256 patterns");

    for (size_t i = 0; i < ND_ARRAY_SIZE(grants); i++) {
        grants[i] = (struct nd_grant){ND_ACTION_ADMIN, 0, NULL};
    }
    assert_int_equal(nd_grants_check(grants, 64, &msg), ND_OK);
    assert_int_equal(nd_grants_check(grants, 65, &msg), ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(msg.text, "a user has at most 64 grants");
    assert_int_equal(nd_grants_check(NULL, 0, &msg), ND_OK);
}

static void grants_check__bounds_all_patterns_of_a_user_together(void **state)
{
    /* 32768 of them: 128 patterns of 253 bytes, 3 added each. */
    enum { PATTERNS = ND_USER_GRANTS_BYTES_MAX / 256 };
    char texts[PATTERNS][255];
    char *patterns[PATTERNS];
    struct nd_grant grants[2] = {{ND_ACTION_PRODUCE, PATTERNS / 2, patterns},
                                 {ND_ACTION_CONSUME, PATTERNS / 2, patterns + PATTERNS / 2}};
    struct nd_errmsg msg = {""};
    (void)state;
    for (int i = 0; i < PATTERNS; i++) {
        memset(texts[i], 'a', 253);
        texts[i][253] = '\0';
        patterns[i] = texts[i];
    }

    assert_int_equal(nd_grants_check(grants, 2, &msg), ND_OK);
    memcpy(texts[PATTERNS - 1] + 253, "*", 2);
    assert_int_equal(nd_grants_check(grants, 2, &msg), ND_ERR_INVALID_ARGUMENT);

    assert_string_equal(msg.text, "the patterns of a user's grants have at most 32768 bytes, 3 "
                                  "added each");
}

/* The oracle takes the star off and asks byte by byte. */
static void grants_check__takes_the_patterns_of_the_contract_and_no_other(void **state)
{
    static const char alphabet[] = "ab.-_9Z*/ \x01\xff";
    uint64_t rand = 18;
    uint32_t good_ones = 0;
    (void)state;

    for (uint32_t round = 0; round < 50000; round++) {
        char pattern[6] = "";
        size_t size = (size_t)nd_rand_below(&rand, sizeof pattern);
        bool good = size > 0;
        for (size_t i = 0; i < size; i++) {
            pattern[i] = alphabet[nd_rand_below(&rand, sizeof alphabet - 1)];
            good = good &&
                   (strchr("ab.-_9Z", pattern[i]) != NULL || (pattern[i] == '*' && i + 1 == size));
        }
        struct nd_errmsg msg;
        const char *one = pattern;

        assert_int_equal(check_one(ND_ACTION_CREATE, &one, 1, &msg),
                         good ? ND_OK : ND_ERR_INVALID_ARGUMENT);
        good_ones += good ? 1 : 0;
    }
    assert_true(good_ones > 1000 && good_ones < 49000);
}

static void action_by_name__knows_the_four(void **state)
{
    static const char *const names[] = {"produce", "consume", "create", "admin"};
    static const char *const others[] = {"", "fly", "Produce", "produce ", "produc", "adminn"};
    enum nd_action action;
    (void)state;

    for (int i = 0; i < 4; i++) {
        assert_true(nd_action_by_name(nd_slice_str(names[i]), &action));
        assert_int_equal(action, i);
        assert_string_equal(nd_action_name(action), names[i]);
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(others); i++) {
        assert_false(nd_action_by_name(nd_slice_str(others[i]), &action));
    }
}

static void user_new__copies_what_it_is_given(void **state)
{
    char text[] = "orders-*";
    char *patterns[] = {text, text};
    struct nd_grant grants[] = {{ND_ACTION_CONSUME, 2, patterns}, {ND_ACTION_ADMIN, 0, NULL}};
    char name[] = "ann";
    (void)state;

    struct nd_user *user = nd_user_new(name, grants, 2);
    memset(text, 'x', sizeof text - 1);
    memset(name, 'x', sizeof name - 1);
    grants[0].action = ND_ACTION_ADMIN;

    assert_string_equal(user->name, "ann");
    assert_string_equal(user->hash, "");
    assert_false(user->root);
    assert_int_equal(user->created_at_ms | user->updated_at_ms, 0);
    assert_int_equal(user->grants_count, 2);
    assert_int_equal(user->grants[0].action, ND_ACTION_CONSUME);
    assert_int_equal(user->grants[0].patterns_count, 2);
    assert_string_equal(user->grants[0].patterns[0], "orders-*");
    assert_string_equal(user->grants[0].patterns[1], "orders-*");
    assert_int_equal(user->grants[1].action, ND_ACTION_ADMIN);
    assert_int_equal(user->grants[1].patterns_count, 0);
    nd_user_unref(user);
}

static void user_new__leaves_a_name_that_does_not_fit_empty(void **state)
{
    char name[ND_USER_NAME_SIZE_MAX + 2];
    (void)state;
    memset(name, 'a', sizeof name);
    name[65] = '\0';

    struct nd_user *user = nd_user_new(name, NULL, 0);
    assert_string_equal(user->name, "");
    nd_user_unref(user);
    name[64] = '\0';
    user = nd_user_new(name, NULL, 0);
    assert_string_equal(user->name, name);
    nd_user_unref(user);
}

static void user_ref__keeps_the_record_until_the_last_unref(void **state)
{
    struct nd_user *user = nd_user_new("ann", NULL, 0);
    (void)state;

    const struct nd_user *mine = nd_user_ref(user);
    snprintf(user->hash, sizeof user->hash, "$2b$");
    nd_user_unref(user);

    assert_string_equal(mine->hash, "$2b$"); /* ASan would know */
    nd_user_unref(mine);
    nd_user_unref(NULL);
    assert_null(nd_user_ref(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_name_check__answers_the_text_of_the_contract),
        cmocka_unit_test(user_hash_check__takes_what_crypt_writes),
        cmocka_unit_test(grants_check__answers_the_texts_of_the_contract),
        cmocka_unit_test(grants_check__keeps_its_bounds),
        cmocka_unit_test(grants_check__bounds_all_patterns_of_a_user_together),
        cmocka_unit_test(grants_check__takes_the_patterns_of_the_contract_and_no_other),
        cmocka_unit_test(action_by_name__knows_the_four),
        cmocka_unit_test(user_new__copies_what_it_is_given),
        cmocka_unit_test(user_new__leaves_a_name_that_does_not_fit_empty),
        cmocka_unit_test(user_ref__keeps_the_record_until_the_last_unref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
