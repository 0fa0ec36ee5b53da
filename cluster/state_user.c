/* Commands about users. The rules stand here and not only before the proposal, so that no way in
 * gets around them (I-102): a create never makes a root; the seed makes "admin" root, and only
 * while there is no user at all; root is never deleted and its grants never change. Each change
 * concerns one field and takes the others from the record as it is now, not as the proposer saw it
 * (I-108).
 */
#include "cluster/state_private.h"

static const struct nd_user *user_find(const struct nd_state *state, const char *name)
{
    return nd_user_table_find(state->users, nd_slice_str(name));
}

static void users_swap(struct nd_state *state, struct nd_user_table *users)
{
    nd_user_table_unref(state->users);
    state->users = users;
    state->changes++;
}

/* `user` is handed over. */
static enum nd_outcome_code user_put(struct nd_state *state, const struct nd_user *before,
                                     struct nd_user *user, struct nd_outcome *out)
{
    out->user_before = nd_user_ref(before);
    out->user_after = user;
    users_swap(state, nd_user_table_with(state->users, user));
    return ND_OUTCOME_OK;
}

static enum nd_outcome_code user_create(struct nd_state *state, const struct nd_user *request,
                                        struct nd_outcome *out)
{
    if (user_find(state, request->name) != NULL) {
        return ND_OUTCOME_USER_EXISTS;
    }
    if (nd_user_table_count(state->users) == ND_USERS_MAX) {
        nd_errmsg_set(&out->msg, "too many users");
        return ND_OUTCOME_CONFLICT;
    }
    struct nd_user *user = nd_user_new(request->name, request->grants, request->grants_count);
    memcpy(user->hash, request->hash, sizeof user->hash);
    user->created_at_ms = user->updated_at_ms = request->updated_at_ms;
    return user_put(state, NULL, user, out);
}

static enum nd_outcome_code user_seed_root(struct nd_state *state, const struct nd_user *request,
                                           struct nd_outcome *out)
{
    if (nd_user_table_count(state->users) > 0) {
        return ND_OUTCOME_USER_EXISTS;
    }
    struct nd_user *user = nd_user_new(ND_USER_ROOT_NAME, NULL, 0);
    memcpy(user->hash, request->hash, sizeof user->hash);
    user->root = true;
    user->created_at_ms = user->updated_at_ms = request->updated_at_ms;
    return user_put(state, NULL, user, out);
}

static enum nd_outcome_code user_set_grants(struct nd_state *state, const struct nd_user *request,
                                            struct nd_outcome *out)
{
    const struct nd_user *old = user_find(state, request->name);

    if (old == NULL) {
        return ND_OUTCOME_USER_NOT_FOUND;
    }
    if (old->root) {
        return ND_OUTCOME_ROOT_GRANTS;
    }
    struct nd_user *user = nd_user_new(old->name, request->grants, request->grants_count);
    memcpy(user->hash, old->hash, sizeof user->hash);
    user->created_at_ms = old->created_at_ms;
    user->updated_at_ms = request->updated_at_ms;
    return user_put(state, old, user, out);
}

static enum nd_outcome_code
user_set_password(struct nd_state *state, const struct nd_command *command, struct nd_outcome *out)
{
    const struct nd_user *request = command->user;
    const struct nd_user *old = user_find(state, request->name);

    if (old == NULL) {
        return ND_OUTCOME_USER_NOT_FOUND;
    }
    if (command->replaces[0] != '\0' && strcmp(command->replaces, old->hash) != 0) {
        return ND_OUTCOME_CONFLICT;
    }
    struct nd_user *user = nd_user_new(old->name, old->grants, old->grants_count);
    memcpy(user->hash, request->hash, sizeof user->hash);
    user->root = old->root;
    user->created_at_ms = old->created_at_ms;
    user->updated_at_ms = request->updated_at_ms;
    return user_put(state, old, user, out);
}

static enum nd_outcome_code user_delete(struct nd_state *state, const struct nd_user *request,
                                        struct nd_outcome *out)
{
    const struct nd_user *old = user_find(state, request->name);

    if (old == NULL) {
        return ND_OUTCOME_USER_NOT_FOUND;
    }
    if (old->root) {
        return ND_OUTCOME_ROOT_STAYS;
    }
    out->user_before = nd_user_ref(old);
    users_swap(state, nd_user_table_without(state->users, nd_slice_str(request->name)));
    return ND_OUTCOME_OK;
}

enum nd_outcome_code state_apply_user(struct nd_state *state, const struct nd_command *command,
                                      struct nd_outcome *out)
{
    if (nd_command_user_check(command, &out->msg) != ND_OK) {
        return ND_OUTCOME_INVALID_ARGUMENT;
    }
    if (command->kind == ND_COMMAND_USER_CREATE) {
        return user_create(state, command->user, out);
    }
    if (command->kind == ND_COMMAND_USER_SEED_ROOT) {
        return user_seed_root(state, command->user, out);
    }
    if (command->kind == ND_COMMAND_USER_SET_GRANTS) {
        return user_set_grants(state, command->user, out);
    }
    if (command->kind == ND_COMMAND_USER_SET_PASSWORD) {
        return user_set_password(state, command, out);
    }
    ND_ASSERT(command->kind == ND_COMMAND_USER_DELETE);
    return user_delete(state, command->user, out);
}
