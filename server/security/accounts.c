#include "server/security/accounts.h"

#include "storage/base/alloc.h"
#include "storage/base/list.h"
#include "storage/base/map.h"
#include "storage/base/wipe.h"

static const uint64_t ms = 1000000;

struct bad {
    struct nd_token token;
    uint64_t until_ns; /* 0: none */
};

struct nd_account {
    struct nd_list link; /* the one asked for last is last */
    struct nd_user *user;
    uint64_t version;
    bool has_good;
    struct nd_token good; /* one password is right */
    struct bad bad[ND_ACCOUNT_BAD_MAX];
    uint32_t bad_next;
    uint32_t tries;    /* left */
    uint64_t since_ns; /* the next one comes back ND_ACCOUNT_TRY_MS later */
};

struct nd_accounts {
    struct nd_map *by_name;
    struct nd_list used;
    size_t accounts_max;
};

struct nd_accounts *nd_accounts_new(uint64_t seed, size_t accounts_max)
{
    struct nd_accounts *accounts = nd_xcalloc(1, sizeof *accounts);

    ND_ASSERT(accounts_max > 0);
    accounts->by_name = nd_map_new(seed);
    nd_list_init(&accounts->used);
    accounts->accounts_max = accounts_max;
    return accounts;
}

static void account_drop(struct nd_accounts *accounts, struct nd_account *account)
{
    ND_ASSERT(nd_map_remove(accounts->by_name, nd_slice_str(account->user->name)) == account);
    nd_list_remove(&account->link);
    nd_user_unref(account->user);
    nd_wipe(account, sizeof *account);
    nd_free(account);
}

void nd_accounts_free(struct nd_accounts *accounts)
{
    while (!nd_list_empty(&accounts->used)) {
        struct nd_list *link = nd_list_first(&accounts->used);
        account_drop(accounts, ND_CONTAINER_OF(link, struct nd_account, link));
    }
    nd_map_free(accounts->by_name);
    nd_free(accounts);
}

size_t nd_accounts_count(const struct nd_accounts *accounts)
{
    return nd_map_count(accounts->by_name);
}

struct nd_account *nd_accounts_find(struct nd_accounts *accounts, struct nd_slice name)
{
    struct nd_account *account = nd_map_get(accounts->by_name, name);

    if (account != NULL) {
        nd_list_remove(&account->link);
        nd_list_append(&accounts->used, &account->link);
    }
    return account;
}

static void account_update(struct nd_account *account, const struct nd_user *user, uint64_t version)
{
    if (strcmp(account->user->hash, user->hash) != 0) {
        account->has_good = false;
        nd_wipe(&account->good, sizeof account->good);
        nd_wipe(account->bad, sizeof account->bad);
    }
    nd_user_unref(account->user);
    account->user = nd_user_ref(user);
    account->version = version;
}

struct nd_account *nd_accounts_learn(struct nd_accounts *accounts, const struct nd_user *user,
                                     uint64_t version, uint64_t now_ns)
{
    struct nd_account *account = nd_accounts_find(accounts, nd_slice_str(user->name));

    if (account != NULL) {
        if (version > account->version) {
            account_update(account, user, version);
        }
        return account;
    }
    if (nd_map_count(accounts->by_name) == accounts->accounts_max) {
        struct nd_list *oldest = nd_list_first(&accounts->used);
        account_drop(accounts, ND_CONTAINER_OF(oldest, struct nd_account, link));
    }
    account = nd_xcalloc(1, sizeof *account);
    account->user = nd_user_ref(user);
    account->version = version;
    account->tries = ND_ACCOUNT_TRIES;
    account->since_ns = now_ns;
    nd_list_append(&accounts->used, &account->link);
    ND_ASSERT(nd_map_put(accounts->by_name, nd_slice_str(user->name), account) == NULL);
    return account;
}

void nd_accounts_forget(struct nd_accounts *accounts, struct nd_slice name, uint64_t version)
{
    struct nd_account *account = nd_map_get(accounts->by_name, name);

    if (account != NULL && version >= account->version) {
        account_drop(accounts, account);
    }
}

const struct nd_user *nd_account_user(const struct nd_account *account)
{
    return account->user;
}

uint64_t nd_account_version(const struct nd_account *account)
{
    return account->version;
}

bool nd_account_is_good(const struct nd_account *account, const struct nd_token *token)
{
    return account->has_good && nd_token_equal(&account->good, token);
}

bool nd_account_is_bad(const struct nd_account *account, const struct nd_token *token,
                       uint64_t now_ns)
{
    bool found = false;

    for (uint32_t i = 0; i < ND_ACCOUNT_BAD_MAX; i++) {
        const struct bad *bad = &account->bad[i];
        found |= bad->until_ns > now_ns && nd_token_equal(&bad->token, token);
    }
    return found;
}

void nd_account_keep_good(struct nd_account *account, const struct nd_token *token)
{
    account->good = *token;
    account->has_good = true;
}

void nd_account_keep_bad(struct nd_account *account, const struct nd_token *token, uint64_t now_ns)
{
    account->bad[account->bad_next] = (struct bad){*token, now_ns + ND_ACCOUNT_BAD_MS * ms};
    account->bad_next = (account->bad_next + 1) % ND_ACCOUNT_BAD_MAX;
}

bool nd_account_spend(struct nd_account *account, uint64_t now_ns)
{
    /* A caller that read the clock before another one came first may be behind. */
    uint64_t passed = now_ns > account->since_ns ? now_ns - account->since_ns : 0;
    uint64_t back = passed / (ND_ACCOUNT_TRY_MS * ms);

    if (account->tries + back >= ND_ACCOUNT_TRIES) {
        account->tries = ND_ACCOUNT_TRIES;
        account->since_ns = ND_MAX(now_ns, account->since_ns);
    } else {
        account->tries += (uint32_t)back;
        account->since_ns += back * ND_ACCOUNT_TRY_MS * ms;
    }
    if (account->tries == 0) {
        return false;
    }
    account->tries -= 1;
    return true;
}

void nd_account_refund(struct nd_account *account)
{
    account->tries = ND_MIN(account->tries + 1, (uint32_t)ND_ACCOUNT_TRIES);
}
