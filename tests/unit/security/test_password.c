#include "storage/base/alloc.h"

#include "server/security/password.h"
#include "tests/support/nd_test.h"
#include "tests/unit/security/users.h"

static struct nd_password password_of(const char *text)
{
    struct nd_password password;

    assert_true(nd_password_copy(&password, nd_slice_str(text)));
    return password;
}

static bool matches(const char *text, const char *hash)
{
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();
    const struct nd_password password = password_of(text);
    bool same = nd_password_matches(room, &password, hash);

    nd_bcrypt_room_free(room);
    return same;
}

/* Vectors that other implementations of bcrypt publish. */
static void password__matches_hashes_made_elsewhere(void **state)
{
    static const struct {
        const char *password, *hash;
    } cases[] = {
        {"U*U", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"},
        {"U*U*", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK"},
        {"U*U", "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"},
        {"U*U", "$2b$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"},
        {"", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy"},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        assert_true(matches(cases[i].password, cases[i].hash));
        assert_false(matches("U*U!", cases[i].hash));
    }
}

/* Among them what crypt(3) would take: MD5 and DES of that very password. */
static void password__matches_nothing_that_is_no_bcrypt_hash(void **state)
{
    static const char *const hashes[] = {
        "",
        "*",
        "abCY/CHNnliwA",
        "*0",
        "*1",
        "$2",
        "$2b$",
        "$2b$05$short",
        "$1$salt$PO1.V1FGUM0xX8wYGMTqm0",
        "$2b$99$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
        "$2b$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW ",
        "$2b$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOe",
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(hashes); i++) {
        assert_false(matches("U*U", hashes[i]));
    }
}

static void password_hash__is_salted_and_of_the_given_cost(void **state)
{
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();
    const struct nd_password password = password_of("correct horse");
    char first[ND_PASSWORD_HASH_SIZE_MAX + 1], second[ND_PASSWORD_HASH_SIZE_MAX + 1];

    (void)state;
    assert_true(nd_password_hash(room, &password, 5, hand_env(), first));
    assert_true(nd_password_hash(room, &password, 5, hand_env(), second));
    assert_memory_equal(first, "$2b$05$", 7);
    assert_int_equal(strlen(first), ND_PASSWORD_HASH_SIZE_MAX);
    assert_string_not_equal(first, second);
    assert_true(matches("correct horse", first));
    assert_false(matches("correct hors", first));
    nd_bcrypt_room_free(room);
}

static enum nd_err check(const void *data, size_t size, const char *text)
{
    struct nd_errmsg msg = {""};
    enum nd_err err = nd_password_check(nd_slice_make(data, size), &msg);

    assert_string_equal(msg.text, text);
    return err;
}

static void password__has_1_to_72_bytes_and_no_nul(void **state)
{
    struct nd_password password;
    char text[73];

    (void)state;
    memset(text, 'a', sizeof text);
    assert_int_equal(check("", 0, "password required"), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(check("a", 1, ""), ND_OK);
    assert_int_equal(check(text, 72, ""), ND_OK);
    assert_int_equal(check(text, 73, "password must be at most 72 bytes"), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(check("a\0b", 3, "password must not hold a NUL byte"),
                     ND_ERR_INVALID_ARGUMENT);

    assert_true(nd_password_copy(&password, nd_slice_make(text, 72)));
    assert_int_equal(strlen(password.text), 72);
    assert_false(nd_password_copy(&password, nd_slice_make(text, 73)));
    assert_false(nd_password_copy(&password, nd_slice_make("a\0b", 3)));
}

/* What bcrypt worked in holds nothing of it afterwards, nor does a wiped copy. */
static void password__leaves_no_trace_in_the_room(void **state)
{
    static const char secret[] = "a secret that is long enough to be found";
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();
    struct nd_password password = password_of(secret);
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1];
    const size_t room_size = 32768; /* of struct crypt_data */

    (void)state;
    assert_true(nd_password_hash(room, &password, 4, hand_env(), hash));
    assert_null(memmem(room, room_size, secret, 8));
    assert_null(memmem(room, room_size, hash, 20));
    assert_true(nd_password_matches(room, &password, hash));
    assert_null(memmem(room, room_size, secret, 8));
    assert_null(memmem(room, room_size, hash, 20));
    nd_password_wipe(&password);
    assert_null(memmem(&password, sizeof password, secret, 8));
    nd_bcrypt_room_free(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(password__matches_hashes_made_elsewhere),
        cmocka_unit_test(password__matches_nothing_that_is_no_bcrypt_hash),
        cmocka_unit_test(password_hash__is_salted_and_of_the_given_cost),
        cmocka_unit_test(password__has_1_to_72_bytes_and_no_nul),
        cmocka_unit_test(password__leaves_no_trace_in_the_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
