#include "server/rpc/user_view.h"

#include "storage/base/alloc.h"

#include "server/rpc/topic_view.h"

void nd_user_view_init(struct nd_user_view *out, const struct nd_user *user)
{
    narad__v1__user__init(&out->message);
    out->grants = nd_xcalloc(user->grants_count + 1, sizeof *out->grants);
    out->pointers = nd_xcalloc(user->grants_count + 1, sizeof *out->pointers);
    for (uint32_t i = 0; i < user->grants_count; i++) {
        Narad__V1__Grant *grant = &out->grants[i];
        narad__v1__grant__init(grant);
        grant->action = nd_message_text(nd_action_name(user->grants[i].action));
        grant->n_patterns = user->grants[i].patterns_count;
        grant->patterns = user->grants[i].patterns;
        out->pointers[i] = grant;
    }
    out->message.username = nd_message_text(user->name);
    out->message.n_grants = user->grants_count;
    out->message.grants = out->pointers;
    out->message.root = user->root;
    out->message.created_at_ms = user->created_at_ms;
    out->message.updated_at_ms = user->updated_at_ms;
}

void nd_user_view_release(struct nd_user_view *view)
{
    nd_free(view->pointers);
    nd_free(view->grants);
}

static enum nd_err grant_get(const Narad__V1__Grant *message, struct nd_grant *out,
                             struct nd_errmsg *msg)
{
    if (!nd_action_by_name(nd_slice_str(message->action), &out->action)) {
        nd_errmsg_set(msg, "unknown grant action \"%.100s\"", message->action);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (message->n_patterns > UINT32_MAX) {
        return ND_ERR_INVALID_ARGUMENT;
    }
    out->patterns_count = (uint32_t)message->n_patterns;
    out->patterns = message->patterns;
    return nd_grants_check(out, 1, msg);
}

enum nd_err nd_user_grants_get(Narad__V1__Grant *const *messages, size_t count,
                               struct nd_grant **out, struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;

    *out = NULL;
    if (count > ND_USER_GRANTS_MAX) {
        nd_errmsg_set(msg, "a user has at most %d grants", ND_USER_GRANTS_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    struct nd_grant *grants = nd_xcalloc(count + 1, sizeof *grants);
    for (size_t i = 0; i < count && err == ND_OK; i++) {
        err = grant_get(messages[i], &grants[i], msg);
    }
    if (err == ND_OK) {
        err = nd_grants_check(grants, (uint32_t)count, msg); /* the bounds of all together */
    }
    if (err == ND_OK) {
        *out = grants;
    } else {
        nd_free(grants);
    }
    return err;
}
