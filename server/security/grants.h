/* Who may do what (behaviour 12, rest-api.md 1.8). Pure.
 * A NULL user stands for "security is off": everything passes. */
#ifndef ND_GRANTS_H
#define ND_GRANTS_H

#include "cluster/topic.h"
#include "cluster/user.h"

/* Literal, or the beginning before a final '*'. */
bool nd_pattern_matches(const char *pattern, struct nd_slice name);

/* Root, or holds "admin". */
bool nd_user_is_admin(const struct nd_user *user);
/* May `user` produce to, consume from or create a topic of that name? PERMISSION_DENIED with the
 * text of rest-api.md 1.8. Existence and syntax of the name are not looked at. */
ND_CHECKED enum nd_err nd_may(const struct nd_user *user, enum nd_action action,
                              struct nd_slice topic, struct nd_errmsg *msg);
/* Alter, delete: its owner or an admin. `owner`: "" for nobody. */
ND_CHECKED enum nd_err nd_may_manage(const struct nd_user *user, const char *owner,
                                     struct nd_errmsg *msg);
/* See it: admin, owner, any grant on the name: "no grant on this topic". (Profile 3; in profile 1.2
 * every user may.) */
ND_CHECKED enum nd_err nd_may_read(const struct nd_user *user, struct nd_slice topic,
                                   const char *owner, struct nd_errmsg *msg);
/* "admin privileges required" */
ND_CHECKED enum nd_err nd_may_administer(const struct nd_user *user, struct nd_errmsg *msg);
/* May `user` give these grants to somebody? Only root confers admin; an admin any scoped ones;
 * others only what they hold, a pattern being covered by itself or a shorter beginning with a star.
 * "cannot grant permissions you do not hold" */
ND_CHECKED enum nd_err nd_may_confer(const struct nd_user *user, const struct nd_grant *grants,
                                     uint32_t count, struct nd_errmsg *msg);

#endif
