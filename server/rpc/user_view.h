/* Between the User and Grant messages and the records. */
#ifndef ND_USER_VIEW_H
#define ND_USER_VIEW_H

#include "cluster/user.h"
#include "proto/narad/v1/admin.pb-c.h"

/* A User message over a record: never anything of its password. */
struct nd_user_view {
    Narad__V1__User message;
    Narad__V1__Grant *grants;
    Narad__V1__Grant **pointers;
};
/* `out->message` borrows from `user` and from `out`. */
void nd_user_view_init(struct nd_user_view *out, const struct nd_user *user);
void nd_user_view_release(struct nd_user_view *view);

/* Grants as they came, checked by the rules of a user. The array is the caller's (nd_free), the
 * patterns borrowed from the message. INVALID_ARGUMENT with the texts of nd_grants_check(), or
 * unknown grant action "fly". */
ND_CHECKED enum nd_err nd_user_grants_get(Narad__V1__Grant *const *messages, size_t count,
                                          struct nd_grant **out, struct nd_errmsg *msg);

#endif
