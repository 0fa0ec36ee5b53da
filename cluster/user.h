/* A user as the replicated metadata holds it: an immutable counted record, replaced whole by a
 * change. What may be in it is checked before it is proposed and again when it is applied, so that
 * no way in gets around it (behaviour 8.1): only the seed makes a root, root is never deleted and
 * its grants never change. */
#ifndef ND_USER_H
#define ND_USER_H

#include <stdatomic.h>

#include "storage/base/err.h"
#include "storage/base/slice.h"

enum {
    ND_USER_NAME_SIZE_MAX = 64,
    ND_USER_HASH_SIZE_MAX = 127,      /* of crypt(3) */
    ND_USER_PATTERN_SIZE_MAX = 256,   /* 255 and the star */
    ND_USER_GRANTS_MAX = 64,          /* a user */
    ND_USER_GRANT_PATTERNS_MAX = 256, /* a grant */
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

/* One reference, the caller's; the grants are copied. @thread any, all three */
struct nd_user *nd_user_new(const char *name, const struct nd_grant *grants, uint32_t grants_count);
struct nd_user *nd_user_ref(const struct nd_user *user);
void nd_user_unref(const struct nd_user *user); /* NULL passes */

/* ^[A-Za-z0-9._-]{1,64}$ and not "." or ".."; INVALID_ARGUMENT
 * "username must match ^[A-Za-z0-9._-]{1,64}$". */
ND_CHECKED enum nd_err nd_user_name_check(struct nd_slice name, struct nd_errmsg *msg);
/* Each grant by the rules and with the texts of rest-api.md U1, and the bounds above. */
ND_CHECKED enum nd_err nd_grants_check(const struct nd_grant *grants, uint32_t count,
                                       struct nd_errmsg *msg);
/* "produce" ..., false: none of the four. */
ND_CHECKED bool nd_action_by_name(struct nd_slice name, enum nd_action *out);
const char *nd_action_name(enum nd_action action);

#endif
