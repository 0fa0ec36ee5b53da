#include "server/security/grants.h"

static const char *const refusals[] = {
    [ND_ACTION_PRODUCE] = "produce not allowed on this topic",
    [ND_ACTION_CONSUME] = "consume not allowed on this topic",
    [ND_ACTION_CREATE] = "create not allowed on this topic",
    [ND_ACTION_ADMIN] = "admin privileges required",
};

/* A pattern in two: what it begins with, and whether anything may follow. */
struct beginning {
    struct nd_slice text;
    bool open;
};

static struct beginning beginning_of(const char *pattern)
{
    struct beginning beginning = {nd_slice_str(pattern), false};

    if (beginning.text.size > 0 && pattern[beginning.text.size - 1] == '*') {
        beginning.text.size -= 1;
        beginning.open = true;
    }
    return beginning;
}

static bool begins_with(struct nd_slice text, struct nd_slice with)
{
    return text.size >= with.size && nd_slice_equal(nd_slice_make(text.data, with.size), with);
}

bool nd_pattern_matches(const char *pattern, struct nd_slice name)
{
    struct beginning beginning = beginning_of(pattern);

    return beginning.open ? begins_with(name, beginning.text)
                          : nd_slice_equal(name, beginning.text);
}

bool nd_user_is_admin(const struct nd_user *user)
{
    if (user == NULL || user->root) {
        return true;
    }
    for (uint32_t i = 0; i < user->grants_count; i++) {
        if (user->grants[i].action == ND_ACTION_ADMIN) {
            return true;
        }
    }
    return false;
}

static bool grant_matches(const struct nd_grant *grant, struct nd_slice topic)
{
    for (uint32_t i = 0; i < grant->patterns_count; i++) {
        if (nd_pattern_matches(grant->patterns[i], topic)) {
            return true;
        }
    }
    return false;
}

enum nd_err nd_may(const struct nd_user *user, enum nd_action action, struct nd_slice topic,
                   struct nd_errmsg *msg)
{
    if (nd_user_is_admin(user)) {
        return ND_OK;
    }
    for (uint32_t i = 0; i < user->grants_count; i++) {
        if (user->grants[i].action == action && grant_matches(&user->grants[i], topic)) {
            return ND_OK;
        }
    }
    nd_errmsg_set(msg, "%s", refusals[action]);
    return ND_ERR_PERMISSION_DENIED;
}

static bool owns(const struct nd_user *user, const char *owner)
{
    return owner[0] != '\0' && strcmp(user->name, owner) == 0;
}

enum nd_err nd_may_manage(const struct nd_user *user, const char *owner, struct nd_errmsg *msg)
{
    if (nd_user_is_admin(user) || owns(user, owner)) {
        return ND_OK;
    }
    nd_errmsg_set(msg, "only the topic owner or an admin may modify this topic");
    return ND_ERR_PERMISSION_DENIED;
}

enum nd_err nd_may_read(const struct nd_user *user, struct nd_slice topic, const char *owner,
                        struct nd_errmsg *msg)
{
    if (nd_user_is_admin(user) || owns(user, owner)) {
        return ND_OK;
    }
    for (uint32_t i = 0; i < user->grants_count; i++) {
        if (grant_matches(&user->grants[i], topic)) {
            return ND_OK;
        }
    }
    nd_errmsg_set(msg, "no grant on this topic");
    return ND_ERR_PERMISSION_DENIED;
}

enum nd_err nd_may_administer(const struct nd_user *user, struct nd_errmsg *msg)
{
    if (nd_user_is_admin(user)) {
        return ND_OK;
    }
    nd_errmsg_set(msg, "%s", refusals[ND_ACTION_ADMIN]);
    return ND_ERR_PERMISSION_DENIED;
}

/* Does all that `pattern` matches match `held` too? */
static bool pattern_covers(const char *held, const char *pattern)
{
    struct beginning outer = beginning_of(held), inner = beginning_of(pattern);

    if (outer.open) {
        return begins_with(inner.text, outer.text);
    }
    return !inner.open && nd_slice_equal(outer.text, inner.text);
}

static bool holds(const struct nd_user *user, enum nd_action action, const char *pattern)
{
    for (uint32_t i = 0; i < user->grants_count; i++) {
        const struct nd_grant *held = &user->grants[i];
        for (uint32_t j = 0; held->action == action && j < held->patterns_count; j++) {
            if (pattern_covers(held->patterns[j], pattern)) {
                return true;
            }
        }
    }
    return false;
}

static bool grant_is_held(const struct nd_user *user, const struct nd_grant *grant)
{
    if (grant->action == ND_ACTION_ADMIN) {
        return false; /* root's to give, and root was asked before */
    }
    if (nd_user_is_admin(user)) {
        return true;
    }
    for (uint32_t i = 0; i < grant->patterns_count; i++) {
        if (!holds(user, grant->action, grant->patterns[i])) {
            return false;
        }
    }
    return true;
}

enum nd_err nd_may_confer(const struct nd_user *user, const struct nd_grant *grants, uint32_t count,
                          struct nd_errmsg *msg)
{
    if (user == NULL || user->root) {
        return ND_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!grant_is_held(user, &grants[i])) {
            nd_errmsg_set(msg, "cannot grant permissions you do not hold");
            return ND_ERR_PERMISSION_DENIED;
        }
    }
    return ND_OK;
}
