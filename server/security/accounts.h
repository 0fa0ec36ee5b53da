/* What this node remembers of users that exist: the credentials that were right, those that were
 * wrong, and the bucket that limits guessing. Bounded: the user not asked for longest is forgotten
 * first; that gives a guesser nothing, since pushing out 4096 others takes as many bcrypts, longer
 * than a bucket takes to fill. No lock of its own: the caller's. */
#ifndef ND_ACCOUNTS_H
#define ND_ACCOUNTS_H

#include "cluster/user.h"
#include "server/security/token.h"

enum {
    ND_ACCOUNTS_MAX = 4096,
    ND_ACCOUNT_BAD_MAX = 16,   /* wrong credentials remembered, a user */
    ND_ACCOUNT_BAD_MS = 60000, /* for so long */
    ND_ACCOUNT_TRIES = 5,      /* what the bucket holds */
    ND_ACCOUNT_TRY_MS = 12000, /* one comes back */
};

struct nd_accounts;
struct nd_account;

struct nd_accounts *nd_accounts_new(uint64_t seed, size_t accounts_max);
void nd_accounts_free(struct nd_accounts *accounts);
size_t nd_accounts_count(const struct nd_accounts *accounts);

/* NULL: nothing is remembered. */
struct nd_account *nd_accounts_find(struct nd_accounts *accounts, struct nd_slice name);
/* The account of `user`, made if need be, with the record as read when the users' version was
 * `version`; an older one than the account has is left aside. Another hash than before: what was
 * right and wrong is forgotten, the bucket stays. */
struct nd_account *nd_accounts_learn(struct nd_accounts *accounts, const struct nd_user *user,
                                     uint64_t version, uint64_t now_ns);
/* The user was gone when the version was `version`. */
void nd_accounts_forget(struct nd_accounts *accounts, struct nd_slice name, uint64_t version);

/* The record (borrowed) and the version it was read at. */
const struct nd_user *nd_account_user(const struct nd_account *account);
uint64_t nd_account_version(const struct nd_account *account);

bool nd_account_is_good(const struct nd_account *account, const struct nd_token *token);
bool nd_account_is_bad(const struct nd_account *account, const struct nd_token *token,
                       uint64_t now_ns);
void nd_account_keep_good(struct nd_account *account, const struct nd_token *token);
void nd_account_keep_bad(struct nd_account *account, const struct nd_token *token, uint64_t now_ns);

/* One try out of the bucket; false: it is empty. */
ND_CHECKED bool nd_account_spend(struct nd_account *account, uint64_t now_ns);
void nd_account_refund(struct nd_account *account);

#endif
