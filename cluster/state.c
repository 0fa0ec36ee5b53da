#include "cluster/state.h"

#include <inttypes.h>

#include "storage/base/alloc.h"

#include "cluster/state_private.h"

void nd_state_init(struct nd_state *state)
{
    *state =
        (struct nd_state){.table = nd_topic_table_new(), .users = nd_user_table_build(NULL, 0)};
    nd_dedupe_init(&state->dedupe);
}

void nd_state_release(struct nd_state *state)
{
    nd_topic_table_unref(state->table);
    nd_user_table_unref(state->users);
    nd_free(state->members);
    nd_dedupe_release(&state->dedupe);
    *state = (struct nd_state){0};
}

void nd_outcome_release(struct nd_outcome *outcome)
{
    nd_topic_unref(outcome->before);
    nd_topic_unref(outcome->after);
    nd_user_unref(outcome->user_before);
    nd_user_unref(outcome->user_after);
    outcome->before = outcome->after = NULL;
    outcome->user_before = outcome->user_after = NULL;
}

static enum nd_outcome_code refuse(struct nd_outcome *out, const char *text)
{
    nd_errmsg_set(&out->msg, "%s", text);
    return ND_OUTCOME_INVALID_ARGUMENT;
}

static void table_swap(struct nd_state *state, struct nd_topic_table *table)
{
    nd_topic_table_unref(state->table);
    state->table = table;
}

/* --- topics --- */

static enum nd_outcome_code create_check(const struct nd_command_topic_create *create,
                                         struct nd_outcome *out)
{
    const struct nd_topic_create *request = &create->request;

    if (nd_topic_name_check(nd_slice_str(request->name), &out->msg) != ND_OK) {
        return ND_OUTCOME_INVALID_ARGUMENT;
    }
    if (request->partitions == 0) {
        return refuse(out, "invalid argument: partitions must be > 0");
    }
    if (request->partitions > ND_TOPIC_PARTITIONS_LIMIT) {
        return refuse(out, "invalid argument: too many partitions");
    }
    if (request->visibility_timeout_ms == 0 || request->max_in_flight == 0 ||
        request->max_acked_ahead == 0 || create->incarnation == 0) {
        return refuse(out, "invalid argument: a setting of the topic was left open");
    }
    return ND_OUTCOME_OK;
}

static enum nd_outcome_code topic_create(struct nd_state *state,
                                         const struct nd_command_topic_create *create,
                                         struct nd_outcome *out)
{
    const struct nd_topic_create *request = &create->request;
    enum nd_outcome_code code = create_check(create, out);

    if (code != ND_OUTCOME_OK) {
        return code;
    }
    if (nd_topic_table_find(state->table, nd_slice_str(request->name)) != NULL) {
        return ND_OUTCOME_TOPIC_EXISTS;
    }
    struct nd_topic *topic = nd_topic_new(request->partitions);
    memcpy(topic->name, request->name, sizeof topic->name);
    memcpy(topic->owner, request->owner, sizeof topic->owner);
    topic->incarnation = create->incarnation;
    topic->version = ++state->changes;
    topic->retention_ms = request->retention_ms;
    topic->visibility_timeout_ms = request->visibility_timeout_ms;
    topic->max_in_flight = request->max_in_flight;
    topic->max_acked_ahead = request->max_acked_ahead;
    topic->created_at_s = create->created_at_s;
    topic->role = ND_ROLE_STANDALONE;
    nd_placement_assign(state->members, state->members_count, topic->partitions, topic->owners);
    table_swap(state, nd_topic_table_with(state->table, topic));
    out->after = topic;
    return ND_OUTCOME_OK;
}

static enum nd_outcome_code alter_check(const struct nd_topic_alter *alter,
                                        const struct nd_topic *topic, struct nd_outcome *out)
{
    if (alter->partitions > ND_TOPIC_PARTITIONS_LIMIT) {
        return refuse(out, "invalid argument: too many partitions");
    }
    if ((alter->has_max_in_flight && alter->max_in_flight == 0) ||
        (alter->has_max_acked_ahead && alter->max_acked_ahead == 0)) {
        return refuse(out, "invalid argument: a setting of the topic was left open");
    }
    if (alter->partitions != 0 && alter->partitions <= topic->partitions) {
        nd_errmsg_set(&out->msg,
                      "invalid argument: new partition count (%" PRIu32
                      ") must be greater than current (%" PRIu32 "); decrease is not supported",
                      alter->partitions, topic->partitions);
        return ND_OUTCOME_INVALID_ARGUMENT;
    }
    return ND_OUTCOME_OK;
}

/* A copy with `partitions` of them, all else equal. */
static struct nd_topic *topic_copy(const struct nd_topic *from, uint32_t partitions)
{
    struct nd_topic *to = nd_topic_new(partitions);

    memcpy(to->name, from->name, sizeof to->name);
    memcpy(to->owner, from->owner, sizeof to->owner);
    memcpy(to->owners, from->owners, from->partitions * sizeof to->owners[0]);
    to->incarnation = from->incarnation;
    to->version = from->version;
    to->retention_ms = from->retention_ms;
    to->visibility_timeout_ms = from->visibility_timeout_ms;
    to->max_in_flight = from->max_in_flight;
    to->max_acked_ahead = from->max_acked_ahead;
    to->created_at_s = from->created_at_s;
    to->role = from->role;
    return to;
}

static enum nd_outcome_code topic_alter(struct nd_state *state, const struct nd_topic_alter *alter,
                                        struct nd_outcome *out)
{
    const struct nd_topic *old = nd_topic_table_find(state->table, nd_slice_str(alter->name));
    if (old == NULL) {
        return ND_OUTCOME_TOPIC_NOT_FOUND;
    }
    enum nd_outcome_code code = alter_check(alter, old, out);
    if (code != ND_OUTCOME_OK) {
        return code;
    }
    struct nd_topic *topic =
        topic_copy(old, alter->partitions != 0 ? alter->partitions : old->partitions);
    topic->version = ++state->changes;
    if (alter->has_retention) {
        topic->retention_ms = alter->retention_ms;
    }
    if (alter->has_max_in_flight) {
        topic->max_in_flight = alter->max_in_flight;
    }
    if (alter->has_max_acked_ahead) {
        topic->max_acked_ahead = alter->max_acked_ahead;
    }
    nd_placement_assign(state->members, state->members_count, topic->partitions, topic->owners);
    out->before = nd_topic_ref(old);
    out->after = topic;
    table_swap(state, nd_topic_table_with(state->table, topic));
    return ND_OUTCOME_OK;
}

static enum nd_outcome_code topic_delete(struct nd_state *state, const char *name,
                                         struct nd_outcome *out)
{
    const struct nd_topic *old = nd_topic_table_find(state->table, nd_slice_str(name));
    if (old == NULL) {
        return ND_OUTCOME_TOPIC_NOT_FOUND;
    }
    out->before = nd_topic_ref(old);
    state->changes++;
    table_swap(state, nd_topic_table_without(state->table, nd_slice_str(name)));
    return ND_OUTCOME_OK;
}

/* --- members --- */

const struct nd_member *nd_state_member(const struct nd_state *state, uint64_t member)
{
    for (uint32_t i = 0; i < state->members_count; i++) {
        if (state->members[i].member == member) {
            return &state->members[i];
        }
    }
    return NULL;
}

/* Room for one more at its place by number. */
static struct nd_member *member_insert(struct nd_state *state, uint64_t member)
{
    uint32_t at = 0;
    while (at < state->members_count && state->members[at].member < member) {
        at++;
    }
    state->members =
        nd_xrealloc(state->members, (state->members_count + 1) * sizeof state->members[0]);
    memmove(state->members + at + 1, state->members + at,
            (state->members_count - at) * sizeof state->members[0]);
    state->members_count++;
    state->members[at] = (struct nd_member){.member = member};
    return &state->members[at];
}

static enum nd_outcome_code member_register(struct nd_state *state,
                                            const struct nd_member_register *request,
                                            struct nd_outcome *out)
{
    struct nd_member *mine = NULL;

    if (request->member == 0 || request->node_id[0] == '\0') {
        return refuse(out, "invalid argument: a member needs a number and a node id");
    }
    for (uint32_t i = 0; i < state->members_count; i++) {
        if (state->members[i].member == request->member) {
            mine = &state->members[i];
        } else if (strcmp(state->members[i].node_id, request->node_id) == 0) {
            nd_errmsg_set(&out->msg, "another member is called %s", request->node_id);
            return ND_OUTCOME_CONFLICT;
        }
    }
    if (mine == NULL) {
        if (state->members_count == ND_MEMBERS_MAX) {
            nd_errmsg_set(&out->msg, "too many members");
            return ND_OUTCOME_CONFLICT;
        }
        mine = member_insert(state, request->member);
    } else if (mine->alive && strcmp(mine->node_id, request->node_id) == 0 &&
               strcmp(mine->address, request->address) == 0) {
        return ND_OUTCOME_OK; /* I-96: a heartbeat alone changes nothing */
    }
    mine->alive = true;
    memcpy(mine->node_id, request->node_id, sizeof mine->node_id);
    memcpy(mine->address, request->address, sizeof mine->address);
    state->changes++;
    out->members_changed = true;
    return ND_OUTCOME_OK;
}

/* --- applying --- */

static enum nd_outcome_code dispatch(struct nd_state *state, const struct nd_command *command,
                                     struct nd_outcome *out)
{
    switch (command->kind) {
    case ND_COMMAND_NOOP: return ND_OUTCOME_OK;
    case ND_COMMAND_TOPIC_CREATE: return topic_create(state, &command->topic_create, out);
    case ND_COMMAND_TOPIC_ALTER: return topic_alter(state, &command->topic_alter, out);
    case ND_COMMAND_TOPIC_DELETE: return topic_delete(state, command->topic_delete, out);
    case ND_COMMAND_MEMBER_REGISTER: return member_register(state, &command->member_register, out);
    case ND_COMMAND_USER_CREATE:
    case ND_COMMAND_USER_SEED_ROOT:
    case ND_COMMAND_USER_SET_GRANTS:
    case ND_COMMAND_USER_SET_PASSWORD:
    case ND_COMMAND_USER_DELETE: return state_apply_user(state, command, out);
    }
    ND_UNREACHABLE();
}

static enum nd_err code_to_err(enum nd_outcome_code code)
{
    switch (code) {
    case ND_OUTCOME_OK: return ND_OK;
    case ND_OUTCOME_INVALID_ARGUMENT: return ND_ERR_INVALID_ARGUMENT;
    case ND_OUTCOME_TOPIC_EXISTS: return ND_ERR_TOPIC_EXISTS;
    case ND_OUTCOME_TOPIC_NOT_FOUND: return ND_ERR_TOPIC_NOT_FOUND;
    case ND_OUTCOME_CONFLICT: return ND_ERR_CONFLICT;
    case ND_OUTCOME_TOO_OLD: return ND_ERR_UNKNOWN_OUTCOME;
    case ND_OUTCOME_USER_EXISTS: return ND_ERR_ALREADY_EXISTS;
    case ND_OUTCOME_USER_NOT_FOUND: return ND_ERR_NOT_FOUND;
    case ND_OUTCOME_ROOT_STAYS:
    case ND_OUTCOME_ROOT_GRANTS: return ND_ERR_PERMISSION_DENIED;
    }
    ND_UNREACHABLE();
}

/* Where the outcome alone says why; so a repeat says the same. */
static const char *code_text(enum nd_outcome_code code)
{
    switch (code) {
    case ND_OUTCOME_ROOT_STAYS: return "the root admin cannot be deleted";
    case ND_OUTCOME_ROOT_GRANTS: return "the root admin's grants are immutable";
    case ND_OUTCOME_OK:
    case ND_OUTCOME_INVALID_ARGUMENT:
    case ND_OUTCOME_TOPIC_EXISTS:
    case ND_OUTCOME_TOPIC_NOT_FOUND:
    case ND_OUTCOME_CONFLICT:
    case ND_OUTCOME_TOO_OLD:
    case ND_OUTCOME_USER_EXISTS:
    case ND_OUTCOME_USER_NOT_FOUND: return nd_err_text(code_to_err(code));
    }
    ND_UNREACHABLE();
}

void nd_state_apply(struct nd_state *state, const struct nd_command *command, uint64_t index,
                    struct nd_outcome *out)
{
    enum nd_outcome_code code = ND_OUTCOME_OK;
    *out = (struct nd_outcome){.text = ""};
    state->applied_index = index;
    state->commands++;

    switch (nd_dedupe_check(&state->dedupe, command->proposer, command->sequence,
                            command->open_from, state->commands, &code)) {
    case ND_DEDUPE_NEW:
        code = dispatch(state, command, out);
        nd_dedupe_settle(&state->dedupe, command->proposer, command->sequence, code);
        break;
    case ND_DEDUPE_REPEAT: out->repeat = true; break;
    case ND_DEDUPE_TOO_OLD:
        out->repeat = true;
        code = ND_OUTCOME_TOO_OLD;
        break;
    case ND_DEDUPE_BAD: code = refuse(out, "invalid argument: proposer numbers"); break;
    }
    out->err = code_to_err(code);
    if (out->err != ND_OK) {
        out->text = out->msg.text[0] != '\0' ? out->msg.text : code_text(code);
    }
}
