/* A user as the replicated metadata holds it: an immutable counted record, replaced whole by a
 * change. What may be in it is checked before it is proposed and again when it is applied, so that
 * no way in gets around it (behaviour 8.1): only the seed makes a root, root is never deleted and
 * its grants never change. */
#ifndef ND_USER_H
#define ND_USER_H

#include <stdatomic.h>

#include "storage/base/err.h"
#include "storage/base/slice.h"

#define ND_USER_ROOT_NAME "admin"

enum {
    ND_USER_NAME_SIZE_MAX = 64,
    ND_USER_HASH_SIZE_MAX = 127,      /* of crypt(3) */
    ND_USER_PATTERN_SIZE_MAX = 256,   /* 255 and the star */
    ND_USER_GRANTS_MAX = 64,          /* a user */
    ND_USER_GRANT_PATTERNS_MAX = 256, /* a grant */
    /* Of all patterns of a user, each counted with the overhead, so that a user always fits into
     * one entry of the Raft log (64 KiB). */
    ND_USER_GRANTS_BYTES_MAX = 32 * 1024,
    ND_USER_PATTERN_OVERHEAD = 3,
};

enum nd_action { ND_ACTION_PRODUCE, ND_ACTION_CONSUME, ND_ACTION_CREATE, ND_ACTION_ADMIN };

struct nd_grant {
    enum nd_action action;
    uint32_t patterns_count; /* 0 for ND_ACTION_ADMIN */
    char **patterns;         /* topic names, or beginnings of names with one '*' at the end */
};

struct nd_user {
    _Atomic uint32_t refs;
    char name[ND_USER_NAME_SIZE_MAX + 1];
    char hash[ND_USER_HASH_SIZE_MAX + 1]; /* "$2b$10$..."; never leaves the process but to peers */
    bool root;
    int64_t created_at_ms, updated_at_ms; /* Unix, of the proposer */
    uint32_t grants_count;
    struct nd_grant *grants;
};

/* One reference, the caller's; name and grants are copied, the rest is the caller's to fill in. A
 * name that does not fit stays empty, which no user is called. @thread any, all three */
struct nd_user *nd_user_new(const char *name, const struct nd_grant *grants, uint32_t grants_count);
struct nd_user *nd_user_ref(const struct nd_user *user);
void nd_user_unref(const struct nd_user *user); /* NULL passes */

/* ^[A-Za-z0-9._-]{1,64}$ and not "." or ".."; INVALID_ARGUMENT
 * "username must match ^[A-Za-z0-9._-]{1,64}$"; of the two words: that, " and not be ...". */
ND_CHECKED enum nd_err nd_user_name_check(struct nd_slice name, struct nd_errmsg *msg);
/* 1..ND_USER_HASH_SIZE_MAX visible ASCII characters; what is hashed, and how, is not looked at. */
ND_CHECKED enum nd_err nd_user_hash_check(struct nd_slice hash, struct nd_errmsg *msg);
/* Each grant in turn, and the bounds above. INVALID_ARGUMENT with the text of the interface:
 *   grant "produce" requires at least one topic pattern
 *   grant "produce" has an empty pattern
 *   grant "produce" pattern "a*b" must be a topic name with an optional trailing '*'
 *   admin grants are global and must not carry patterns */
ND_CHECKED enum nd_err nd_grants_check(const struct nd_grant *grants, uint32_t count,
                                       struct nd_errmsg *msg);
/* "produce" ..., false: none of the four. */
ND_CHECKED bool nd_action_by_name(struct nd_slice name, enum nd_action *out);
const char *nd_action_name(enum nd_action action);

#endif
