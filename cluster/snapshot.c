#include "cluster/snapshot.h"

#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/crc32c.h"

#include "cluster/grant_rows.h"
#include "proto/narad/cluster/v1/command.pb-c.h"

#define PB(name) Narad__Cluster__V1__##name

enum { MAGIC = 0x534D444E /* "NDMS" */, FORMAT = 1, HEADER_SIZE = 24, CRC_AT = 16, ALIGNMENT = 8 };

/* No state comes near it; from there on versions would begin again. */
#define COUNT_MAX (UINT64_MAX / 2)

#define OUTCOME_IS_FROZEN(name)                                                                    \
    _Static_assert((int)ND_##name == (int)NARAD__CLUSTER__V1__OUTCOME__##name, "frozen")
OUTCOME_IS_FROZEN(OUTCOME_OK);
OUTCOME_IS_FROZEN(OUTCOME_INVALID_ARGUMENT);
OUTCOME_IS_FROZEN(OUTCOME_TOPIC_EXISTS);
OUTCOME_IS_FROZEN(OUTCOME_TOPIC_NOT_FOUND);
OUTCOME_IS_FROZEN(OUTCOME_CONFLICT);
OUTCOME_IS_FROZEN(OUTCOME_TOO_OLD);
OUTCOME_IS_FROZEN(OUTCOME_USER_EXISTS);
OUTCOME_IS_FROZEN(OUTCOME_USER_NOT_FOUND);
OUTCOME_IS_FROZEN(OUTCOME_ROOT_STAYS);
OUTCOME_IS_FROZEN(OUTCOME_ROOT_GRANTS);

/* --- encoding: the messages borrow every text and array from the state --- */

static char *lend(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* An array of `count` pointers to the `count` structs that follow it; freed with one nd_free(). */
static void *row_array(size_t count, size_t row_size, void **rows_out)
{
    uint8_t *memory = nd_xmalloc(count * sizeof(void *) + count * row_size + 1);
    void **pointers = (void **)(void *)memory;
    uint8_t *rows = memory + count * sizeof(void *);

    for (size_t i = 0; i < count; i++) {
        pointers[i] = rows + i * row_size;
    }
    *rows_out = rows;
    return memory;
}

static PB(MemberRecord) * *members_fill(const struct nd_state *state)
{
    void *rows;
    void *array = row_array(state->members_count, sizeof(PB(MemberRecord)), &rows);
    PB(MemberRecord) *to = rows;

    for (uint32_t i = 0; i < state->members_count; i++) {
        const struct nd_member *from = &state->members[i];
        narad__cluster__v1__member_record__init(&to[i]);
        to[i].member = from->member;
        to[i].node_id = lend(from->node_id);
        to[i].address = lend(from->address);
        to[i].status = from->alive ? NARAD__CLUSTER__V1__MEMBER_STATUS__MEMBER_STATUS_ALIVE
                                   : NARAD__CLUSTER__V1__MEMBER_STATUS__MEMBER_STATUS_UNSPECIFIED;
    }
    return array;
}

static PB(TopicRecord) * *topics_fill(const struct nd_state *state)
{
    void *rows;
    void *array = row_array(nd_topic_table_count(state->table), sizeof(PB(TopicRecord)), &rows);
    PB(TopicRecord) *to = rows;
    struct nd_topic_walk walk = nd_topic_table_walk(state->table, nd_slice_make(NULL, 0));

    for (const struct nd_topic *from; (from = nd_topic_walk_next(&walk)) != NULL; to++) {
        narad__cluster__v1__topic_record__init(to);
        to->name = lend(from->name);
        to->incarnation = from->incarnation;
        to->version = from->version;
        to->retention_ms = from->retention_ms;
        to->visibility_timeout_ms = from->visibility_timeout_ms;
        to->max_in_flight = from->max_in_flight;
        to->max_acked_ahead = from->max_acked_ahead;
        to->created_at_s = from->created_at_s;
        to->role = (uint32_t)from->role;
        to->owner = lend(from->owner);
        to->n_owners = from->partitions;
        to->owners = from->owners;
    }
    return array;
}

static PB(UserRecord) * *users_fill(const struct nd_state *state)
{
    size_t count = nd_user_table_count(state->users);
    void *rows;
    void *array = row_array(count, sizeof(PB(UserRecord)), &rows);
    PB(UserRecord) *to = rows;

    for (size_t i = 0; i < count; i++) {
        const struct nd_user *from = nd_user_table_at(state->users, i);
        narad__cluster__v1__user_record__init(&to[i]);
        to[i].name = lend(from->name);
        to[i].hash = lend(from->hash);
        to[i].root = from->root;
        to[i].created_at_ms = from->created_at_ms;
        to[i].updated_at_ms = from->updated_at_ms;
        to[i].n_grants = from->grants_count;
        to[i].grants = nd_grant_rows_fill(from->grants, from->grants_count);
    }
    return array;
}

static PB(ProposerOutcome) * *outcomes_fill(const struct nd_dedupe_row *row)
{
    void *rows;
    void *array = row_array(row->outcomes_count, sizeof(PB(ProposerOutcome)), &rows);
    PB(ProposerOutcome) *to = rows;

    for (uint32_t i = 0; i < row->outcomes_count; i++) {
        narad__cluster__v1__proposer_outcome__init(&to[i]);
        to[i].sequence = row->outcomes[i].sequence;
        to[i].outcome = (PB(Outcome))row->outcomes[i].code;
    }
    return array;
}

static PB(ProposerRecord) * *proposers_fill(const struct nd_state *state)
{
    void *rows;
    void *array = row_array(state->dedupe.rows_count, sizeof(PB(ProposerRecord)), &rows);
    PB(ProposerRecord) *to = rows;

    for (uint32_t i = 0; i < state->dedupe.rows_count; i++) {
        const struct nd_dedupe_row *from = &state->dedupe.rows[i];
        narad__cluster__v1__proposer_record__init(&to[i]);
        to[i].proposer = from->proposer;
        to[i].open_from = from->open_from;
        to[i].used_at = from->used_at;
        to[i].n_outcomes = from->outcomes_count;
        to[i].outcomes = outcomes_fill(from);
    }
    return array;
}

static void frame_put(struct nd_buf *out, struct nd_slice body)
{
    uint8_t header[HEADER_SIZE] = {0};

    nd_put_u32(header, MAGIC);
    nd_put_u32(header + 4, FORMAT);
    nd_put_u64(header + 8, body.size);
    uint32_t crc = nd_crc32c(nd_crc32c(0, header, CRC_AT), body.data, body.size);
    nd_put_u32(header + CRC_AT, crc);
    nd_buf_put(out, header, sizeof header);
    nd_buf_put_slice(out, body);
    for (size_t size = body.size; size % ALIGNMENT != 0; size++) {
        nd_buf_put_u8(out, 0);
    }
}

void nd_snapshot_put(struct nd_buf *out, const struct nd_state *state)
{
    PB(Snapshot) message = NARAD__CLUSTER__V1__SNAPSHOT__INIT;
    message.applied_index = state->applied_index;
    message.commands = state->commands;
    message.changes = state->changes;
    message.n_members = state->members_count;
    message.members = members_fill(state);
    message.n_topics = nd_topic_table_count(state->table);
    message.topics = topics_fill(state);
    message.n_proposers = state->dedupe.rows_count;
    message.proposers = proposers_fill(state);
    message.n_users = nd_user_table_count(state->users);
    message.users = users_fill(state);

    size_t size = narad__cluster__v1__snapshot__get_packed_size(&message);
    uint8_t *body = nd_xmalloc(size + 1);
    narad__cluster__v1__snapshot__pack(&message, body);
    frame_put(out, nd_slice_make(body, size));

    nd_free(body);
    for (size_t i = 0; i < message.n_proposers; i++) {
        nd_free(message.proposers[i]->outcomes);
    }
    for (size_t i = 0; i < message.n_users; i++) {
        nd_free(message.users[i]->grants);
    }
    nd_free(message.users);
    nd_free(message.proposers);
    nd_free(message.topics);
    nd_free(message.members);
}

/* --- decoding: what is read is checked as if a stranger had written it --- */

static enum nd_err members_get(struct nd_state *state, const PB(Snapshot) * message)
{
    uint64_t last = 0;

    if (message->n_members > ND_MEMBERS_MAX) {
        return ND_ERR_CORRUPT;
    }
    if (message->n_members > 0) {
        state->members = nd_xcalloc(message->n_members, sizeof state->members[0]);
    }
    for (size_t i = 0; i < message->n_members; i++) {
        const PB(MemberRecord) *from = message->members[i];
        struct nd_member *to = &state->members[state->members_count++];
        size_t node_id_size = strlen(from->node_id);
        size_t address_size = strlen(from->address);
        if (from->base.n_unknown_fields != 0) {
            return ND_ERR_UNSUPPORTED;
        }
        if (from->member <= last || node_id_size == 0 || node_id_size > ND_NODE_ID_SIZE_MAX ||
            address_size > ND_ADDRESS_SIZE_MAX) {
            return ND_ERR_CORRUPT;
        }
        last = to->member = from->member;
        memcpy(to->node_id, from->node_id, node_id_size);
        memcpy(to->address, from->address, address_size);
        to->alive = from->status == NARAD__CLUSTER__V1__MEMBER_STATUS__MEMBER_STATUS_ALIVE;
    }
    return ND_OK;
}

static bool topic_is_sane(const PB(TopicRecord) * from, const struct nd_state *state)
{
    return nd_topic_name_check(nd_slice_str(from->name), NULL) == ND_OK && from->n_owners > 0 &&
           from->n_owners <= ND_TOPIC_PARTITIONS_LIMIT && from->incarnation != 0 &&
           from->version != 0 && from->version <= state->changes && from->role <= ND_ROLE_CHILD &&
           strlen(from->owner) <= ND_TOPIC_OWNER_SIZE_MAX;
}

static struct nd_topic *topic_get(const PB(TopicRecord) * from)
{
    struct nd_topic *topic = nd_topic_new((uint32_t)from->n_owners);

    memcpy(topic->name, from->name, strlen(from->name));
    memcpy(topic->owner, from->owner, strlen(from->owner));
    memcpy(topic->owners, from->owners, from->n_owners * sizeof topic->owners[0]);
    topic->incarnation = from->incarnation;
    topic->version = from->version;
    topic->retention_ms = from->retention_ms;
    topic->visibility_timeout_ms = from->visibility_timeout_ms;
    topic->max_in_flight = from->max_in_flight;
    topic->max_acked_ahead = from->max_acked_ahead;
    topic->created_at_s = from->created_at_s;
    topic->role = (enum nd_topic_role)from->role;
    return topic;
}

/* The records so far go to `topics`, a reference each, also when it fails. */
static enum nd_err records_get(const struct nd_state *state, const PB(Snapshot) * message,
                               const struct nd_topic **topics, size_t *count)
{
    for (size_t i = 0; i < message->n_topics; i++) {
        const PB(TopicRecord) *from = message->topics[i];
        if (from->base.n_unknown_fields != 0) {
            return ND_ERR_UNSUPPORTED;
        }
        if (!topic_is_sane(from, state) ||
            (i > 0 && strcmp(message->topics[i - 1]->name, from->name) >= 0)) {
            return ND_ERR_CORRUPT;
        }
        topics[(*count)++] = topic_get(from);
    }
    return ND_OK;
}

static enum nd_err topics_get(struct nd_state *state, const PB(Snapshot) * message)
{
    size_t count = 0;
    const struct nd_topic **topics = nd_malloc((message->n_topics + 1) * sizeof topics[0]);
    if (topics == NULL) {
        return ND_ERR_NO_MEMORY;
    }
    enum nd_err err = records_get(state, message, topics, &count);
    if (err == ND_OK) {
        nd_topic_table_unref(state->table);
        state->table = nd_topic_table_build(topics, count);
    }
    for (size_t i = 0; i < count; i++) {
        nd_topic_unref(topics[i]);
    }
    nd_free(topics);
    return err;
}

/* At most one root, and it is the one that the seed makes. */
static bool user_is_sane(const PB(UserRecord) * from, const struct nd_grant *grants)
{
    return nd_user_name_check(nd_slice_str(from->name), NULL) == ND_OK &&
           nd_user_hash_check(nd_slice_str(from->hash), NULL) == ND_OK &&
           nd_grants_check(grants, (uint32_t)from->n_grants, NULL) == ND_OK &&
           (!from->root || (from->n_grants == 0 && strcmp(from->name, ND_USER_ROOT_NAME) == 0));
}

static enum nd_err user_get(const PB(UserRecord) * from, const struct nd_user **out)
{
    struct nd_grant *grants;

    if (from->base.n_unknown_fields != 0) {
        return ND_ERR_UNSUPPORTED;
    }
    enum nd_err err = nd_grant_rows_read(from->grants, from->n_grants, &grants);
    if (err != ND_OK) {
        return err;
    }
    if (user_is_sane(from, grants)) {
        struct nd_user *user = nd_user_new(from->name, grants, (uint32_t)from->n_grants);
        memcpy(user->hash, from->hash, strlen(from->hash));
        user->root = from->root;
        user->created_at_ms = from->created_at_ms;
        user->updated_at_ms = from->updated_at_ms;
        *out = user;
    } else {
        err = ND_ERR_CORRUPT;
    }
    nd_free(grants);
    return err;
}

static enum nd_err users_get(struct nd_state *state, const PB(Snapshot) * message)
{
    enum nd_err err = ND_OK;
    size_t count = 0;

    if (message->n_users > ND_USERS_MAX) {
        return ND_ERR_CORRUPT;
    }
    const struct nd_user **users = nd_xcalloc(message->n_users + 1, sizeof users[0]);
    for (size_t i = 0; err == ND_OK && i < message->n_users; i++) {
        if (i > 0 && strcmp(message->users[i - 1]->name, message->users[i]->name) >= 0) {
            err = ND_ERR_CORRUPT;
        } else {
            err = user_get(message->users[i], &users[i]);
        }
        count += err == ND_OK ? 1 : 0;
    }
    if (err == ND_OK) {
        nd_user_table_unref(state->users);
        state->users = nd_user_table_build(users, count);
    }
    for (size_t i = 0; i < count; i++) {
        nd_user_unref(users[i]);
    }
    nd_free(users);
    return err;
}

/* What a member that knows fewer of them must not guess. */
static enum nd_err outcome_check(PB(Outcome) outcome)
{
    if ((int)outcome > (int)ND_OUTCOME_ROOT_GRANTS) {
        return ND_ERR_UNSUPPORTED;
    }
    return (int)outcome < 0 || (int)outcome == (int)ND_OUTCOME_TOO_OLD ? ND_ERR_CORRUPT : ND_OK;
}

static enum nd_err outcomes_get(struct nd_dedupe_row *row, const PB(ProposerRecord) * from)
{
    uint64_t last = 0;

    for (size_t i = 0; i < from->n_outcomes; i++) {
        const PB(ProposerOutcome) *outcome = from->outcomes[i];
        if (outcome->base.n_unknown_fields != 0) {
            return ND_ERR_UNSUPPORTED;
        }
        if (outcome->sequence <= last || outcome->sequence < row->open_from ||
            outcome->sequence - row->open_from >= ND_DEDUPE_WINDOW) {
            return ND_ERR_CORRUPT;
        }
        enum nd_err err = outcome_check(outcome->outcome);
        if (err != ND_OK) {
            return err;
        }
        last = outcome->sequence;
        nd_dedupe_add_outcome(row, outcome->sequence, (enum nd_outcome_code)outcome->outcome);
    }
    return ND_OK;
}

static enum nd_err proposers_get(struct nd_state *state, const PB(Snapshot) * message)
{
    uint64_t last = 0;

    if (message->n_proposers > ND_DEDUPE_ROWS_MAX) {
        return ND_ERR_CORRUPT;
    }
    for (size_t i = 0; i < message->n_proposers; i++) {
        const PB(ProposerRecord) *from = message->proposers[i];
        if (from->base.n_unknown_fields != 0) {
            return ND_ERR_UNSUPPORTED;
        }
        if (from->proposer <= last || from->open_from == 0 || from->used_at > state->commands) {
            return ND_ERR_CORRUPT;
        }
        last = from->proposer;
        struct nd_dedupe_row *row = nd_dedupe_add_row(&state->dedupe, from->proposer);
        row->open_from = from->open_from;
        row->used_at = from->used_at;
        enum nd_err err = outcomes_get(row, from);
        if (err != ND_OK) {
            return err;
        }
    }
    return ND_OK;
}

static enum nd_err message_get(struct nd_state *state, const PB(Snapshot) * message)
{
    if (message->base.n_unknown_fields != 0) {
        return ND_ERR_UNSUPPORTED;
    }
    if (ND_MAX(message->commands, message->changes) > COUNT_MAX) {
        return ND_ERR_CORRUPT;
    }
    state->applied_index = message->applied_index;
    state->commands = message->commands;
    state->changes = message->changes;
    enum nd_err err = members_get(state, message);
    if (err == ND_OK) {
        err = topics_get(state, message);
    }
    if (err == ND_OK) {
        err = proposers_get(state, message);
    }
    if (err == ND_OK) {
        err = users_get(state, message);
    }
    return err;
}

/* The body inside a sound frame. */
static enum nd_err frame_get(struct nd_slice in, struct nd_slice *body_out)
{
    if (in.size < HEADER_SIZE || nd_get_u32(in.data) != MAGIC) {
        return ND_ERR_CORRUPT;
    }
    if (nd_get_u32(in.data + 4) != FORMAT) {
        return ND_ERR_UNSUPPORTED;
    }
    uint64_t size = nd_get_u64(in.data + 8);
    if (size > ND_SNAPSHOT_SIZE_MAX ||
        HEADER_SIZE + (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT != in.size ||
        nd_get_u32(in.data + 20) != 0) {
        return ND_ERR_CORRUPT;
    }
    const uint8_t *body = in.data + HEADER_SIZE;
    for (size_t i = (size_t)size; i < in.size - HEADER_SIZE; i++) {
        if (body[i] != 0) {
            return ND_ERR_CORRUPT;
        }
    }
    if (nd_crc32c(nd_crc32c(0, in.data, CRC_AT), body, (size_t)size) !=
        nd_get_u32(in.data + CRC_AT)) {
        return ND_ERR_CORRUPT;
    }
    *body_out = nd_slice_make(body, (size_t)size);
    return ND_OK;
}

enum nd_err nd_snapshot_get(struct nd_slice in, struct nd_state *state, struct nd_errmsg *msg)
{
    struct nd_slice body;
    enum nd_err err = frame_get(in, &body);

    if (err == ND_OK) {
        PB(Snapshot) *message = narad__cluster__v1__snapshot__unpack(NULL, body.size, body.data);
        err = message == NULL ? ND_ERR_CORRUPT : message_get(state, message);
        if (message != NULL) {
            narad__cluster__v1__snapshot__free_unpacked(message, NULL);
        }
    }
    if (err != ND_OK) {
        nd_errmsg_set(msg, "metadata snapshot of %zu bytes: %s", in.size,
                      err == ND_ERR_UNSUPPORTED ? "of a newer version" : nd_err_text(err));
        nd_state_release(state);
        nd_state_init(state);
    }
    return err;
}
