#include "server/security/accounts.h"
#include "tests/support/nd_test.h"
#include "tests/unit/security/users.h"

enum { MINUTE_MS = 60000 };

static struct nd_user *user_with(const char *name, const char *hash)
{
    struct nd_user *user = nd_user_new(name, NULL, 0);

    memcpy(user->hash, hash, strlen(hash) + 1);
    return user;
}

static struct nd_account *learn(struct nd_accounts *accounts, const char *name, const char *hash,
                                uint64_t version)
{
    struct nd_user *user = user_with(name, hash);
    struct nd_account *account = nd_accounts_learn(accounts, user, version, 0);

    nd_user_unref(user);
    return account;
}

static struct nd_token token_of(uint8_t number)
{
    struct nd_token token;

    memset(&token, number, sizeof token);
    return token;
}

static uint64_t ns(uint64_t ms)
{
    return ms * 1000000;
}

static void account__forgets_right_and_wrong_with_another_hash_only(void **state)
{
    struct nd_accounts *accounts = nd_accounts_new(1, 4);
    const struct nd_token right = token_of(1), wrong = token_of(2);
    struct nd_account *account = learn(accounts, "alice", "h1", 1);

    (void)state;
    nd_account_keep_good(account, &right);
    nd_account_keep_bad(account, &wrong, 0);
    assert_ptr_equal(learn(accounts, "alice", "h1", 2), account);
    assert_true(nd_account_is_good(account, &right));
    assert_true(nd_account_is_bad(account, &wrong, 0));
    assert_false(nd_account_is_good(account, &wrong));
    assert_false(nd_account_is_bad(account, &right, 0));
    assert_int_equal(nd_account_version(account), 2);

    assert_ptr_equal(learn(accounts, "alice", "h0", 1), account); /* read earlier, comes later */
    assert_string_equal(nd_account_user(account)->hash, "h1");
    assert_true(nd_account_is_good(account, &right));

    assert_ptr_equal(learn(accounts, "alice", "h2", 3), account);
    assert_false(nd_account_is_good(account, &right));
    assert_false(nd_account_is_bad(account, &wrong, 0));
    nd_accounts_free(accounts);
}

static void account__remembers_sixteen_wrong_ones_for_a_minute(void **state)
{
    struct nd_accounts *accounts = nd_accounts_new(1, 4);
    struct nd_account *account = learn(accounts, "alice", "h1", 1);
    struct nd_token token;

    (void)state;
    for (uint8_t i = 0; i <= ND_ACCOUNT_BAD_MAX; i++) {
        token = token_of(i);
        nd_account_keep_bad(account, &token, ns(i));
    }
    token = token_of(0);
    assert_false(nd_account_is_bad(account, &token, ns(100))); /* the seventeenth took its place */
    token = token_of(1);
    assert_true(nd_account_is_bad(account, &token, ns(MINUTE_MS)));
    assert_false(nd_account_is_bad(account, &token, ns(MINUTE_MS + 1)));
    token = token_of(2);
    assert_true(nd_account_is_bad(account, &token, ns(MINUTE_MS + 1)));
    nd_accounts_free(accounts);
}

static uint32_t tries_at(struct nd_account *account, uint64_t ms)
{
    uint32_t tries = 0;

    while (nd_account_spend(account, ns(ms))) {
        tries++;
    }
    return tries;
}

static void account_bucket__holds_five_and_gets_one_back_every_12_s(void **state)
{
    struct nd_accounts *accounts = nd_accounts_new(1, 4);
    struct nd_account *account = learn(accounts, "alice", "h1", 1);

    (void)state;
    assert_int_equal(tries_at(account, 0), 5);
    assert_int_equal(tries_at(account, 11999), 0);
    assert_int_equal(tries_at(account, 12000), 1);
    assert_int_equal(tries_at(account, 23999), 0);
    assert_int_equal(tries_at(account, 36000), 2);
    assert_int_equal(tries_at(account, 35000), 0); /* a clock that was read before */
    assert_int_equal(tries_at(account, 36000 + 10 * MINUTE_MS), 5);
    for (int i = 0; i < 9; i++) {
        nd_account_refund(account);
    }
    assert_int_equal(tries_at(account, 36000 + 10 * MINUTE_MS), 5);
    nd_accounts_free(accounts);
}

static void accounts__forget_who_was_not_asked_for_longest(void **state)
{
    struct nd_accounts *accounts = nd_accounts_new(1, 3);

    (void)state;
    (void)learn(accounts, "a", "h", 1);
    (void)learn(accounts, "b", "h", 1);
    (void)learn(accounts, "c", "h", 1);
    assert_non_null(nd_accounts_find(accounts, nd_slice_str("a")));
    (void)learn(accounts, "d", "h", 1);

    assert_int_equal(nd_accounts_count(accounts), 3);
    assert_null(nd_accounts_find(accounts, nd_slice_str("b")));
    assert_non_null(nd_accounts_find(accounts, nd_slice_str("a")));
    nd_accounts_forget(accounts, nd_slice_str("a"), 0); /* older news than the record */
    assert_non_null(nd_accounts_find(accounts, nd_slice_str("a")));
    nd_accounts_forget(accounts, nd_slice_str("a"), 2);
    assert_null(nd_accounts_find(accounts, nd_slice_str("a")));
    nd_accounts_forget(accounts, nd_slice_str("a"), 2);
    nd_accounts_free(accounts);
}

static void token__is_the_same_for_the_same_credentials_under_one_key(void **state)
{
    struct nd_token_key *keys[] = {nd_token_key_new(hand_env()), nd_token_key_new(hand_env())};
    const struct nd_credentials alice = {nd_slice_str("alice"), nd_slice_str("pw")};
    const struct nd_credentials others[] = {
        {nd_slice_str("alic"), nd_slice_str("epw")},
        {nd_slice_str("alice"), nd_slice_str("pw2")},
        {nd_slice_str("bob"), nd_slice_str("pw")},
        {nd_slice_str("alice"), nd_slice_str("")},
    };
    struct nd_token first, again;

    (void)state;
    nd_token_make(keys[0], &alice, &first);
    for (int i = 0; i < 40; i++) { /* more often than there are makers */
        nd_token_make(keys[0], &alice, &again);
        assert_true(nd_token_equal(&first, &again));
        nd_token_make(keys[0], &others[i % 4], &again);
        assert_false(nd_token_equal(&first, &again));
    }
    nd_token_make(keys[1], &alice, &again);
    assert_false(nd_token_equal(&first, &again));
    nd_token_key_free(keys[0]);
    nd_token_key_free(keys[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(account__forgets_right_and_wrong_with_another_hash_only),
        cmocka_unit_test(account__remembers_sixteen_wrong_ones_for_a_minute),
        cmocka_unit_test(account_bucket__holds_five_and_gets_one_back_every_12_s),
        cmocka_unit_test(accounts__forget_who_was_not_asked_for_longest),
        cmocka_unit_test(token__is_the_same_for_the_same_credentials_under_one_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
