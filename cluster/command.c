#include "cluster/command.h"

#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/wipe.h"

#include "cluster/grant_rows.h"
#include "proto/narad/cluster/v1/command.pb-c.h"

#define PB(name)      Narad__Cluster__V1__##name
#define PB_BODY(name) NARAD__CLUSTER__V1__COMMAND__BODY_##name

enum { ENTRY_FORMAT = 1, ENTRY_HEADER_SIZE = 8, ENTRY_ALIGNMENT = 8 };

_Static_assert((int)ND_COMMAND_NOOP == (int)PB_BODY(NOOP), "frozen");
_Static_assert((int)ND_COMMAND_TOPIC_CREATE == (int)PB_BODY(TOPIC_CREATE), "frozen");
_Static_assert((int)ND_COMMAND_TOPIC_ALTER == (int)PB_BODY(TOPIC_ALTER), "frozen");
_Static_assert((int)ND_COMMAND_TOPIC_DELETE == (int)PB_BODY(TOPIC_DELETE), "frozen");
_Static_assert((int)ND_COMMAND_MEMBER_REGISTER == (int)PB_BODY(MEMBER_REGISTER), "frozen");
_Static_assert((int)ND_COMMAND_USER_CREATE == (int)PB_BODY(USER_CREATE), "frozen");
_Static_assert((int)ND_COMMAND_USER_SEED_ROOT == (int)PB_BODY(USER_SEED_ROOT), "frozen");
_Static_assert((int)ND_COMMAND_USER_SET_GRANTS == (int)PB_BODY(USER_SET_GRANTS), "frozen");
_Static_assert((int)ND_COMMAND_USER_SET_PASSWORD == (int)PB_BODY(USER_SET_PASSWORD), "frozen");
_Static_assert((int)ND_COMMAND_USER_DELETE == (int)PB_BODY(USER_DELETE), "frozen");

/* --- encoding --- */

/* protobuf-c's structs are not const though packing only reads them. */
static char *lend(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void body_put(struct nd_buf *out, const PB(Command) * message)
{
    size_t size = narad__cluster__v1__command__get_packed_size(message);
    ND_ASSERT(size <= ND_COMMAND_SIZE_MAX);
    uint8_t *body = nd_xmalloc(size);
    narad__cluster__v1__command__pack(message, body);

    nd_buf_put_u32(out, ENTRY_FORMAT);
    nd_buf_put_u32(out, (uint32_t)size);
    nd_buf_put(out, body, size);
    while (size % ENTRY_ALIGNMENT != 0) {
        nd_buf_put_u8(out, 0);
        size++;
    }
    nd_free(body);
}

static void topic_create_fill(PB(TopicCreate) * to, const struct nd_command_topic_create *from)
{
    narad__cluster__v1__topic_create__init(to);
    to->name = lend(from->request.name);
    to->incarnation = from->incarnation;
    to->partitions = from->request.partitions;
    to->retention_ms = from->request.retention_ms;
    to->visibility_timeout_ms = from->request.visibility_timeout_ms;
    to->max_in_flight = from->request.max_in_flight;
    to->max_acked_ahead = from->request.max_acked_ahead;
    to->created_at_s = from->created_at_s;
    to->owner = lend(from->request.owner);
}

static void topic_alter_fill(PB(TopicAlter) * to, const struct nd_topic_alter *from)
{
    narad__cluster__v1__topic_alter__init(to);
    to->name = lend(from->name);
    to->set_retention = from->has_retention;
    to->retention_ms = from->retention_ms;
    to->set_max_in_flight = from->has_max_in_flight;
    to->max_in_flight = from->max_in_flight;
    to->set_max_acked_ahead = from->has_max_acked_ahead;
    to->max_acked_ahead = from->max_acked_ahead;
    to->partitions = from->partitions;
}

/* A body about a user, and the rows that its grants take. */
struct user_body {
    union {
        PB(UserCreate) create;
        PB(UserSeedRoot) seed_root;
        PB(UserSetGrants) set_grants;
        PB(UserSetPassword) set_password;
        PB(UserDelete) delete;
    };
    PB(Grant) * *grants; /* freed by the caller */
};

static void user_create_fill(PB(Command) * message, struct user_body *body,
                             const struct nd_user *user)
{
    narad__cluster__v1__user_create__init(&body->create);
    body->create.name = lend(user->name);
    body->create.hash = lend(user->hash);
    body->create.n_grants = user->grants_count;
    body->create.grants = body->grants = nd_grant_rows_fill(user->grants, user->grants_count);
    body->create.at_ms = user->updated_at_ms;
    message->user_create = &body->create;
}

static void user_set_grants_fill(PB(Command) * message, struct user_body *body,
                                 const struct nd_user *user)
{
    narad__cluster__v1__user_set_grants__init(&body->set_grants);
    body->set_grants.name = lend(user->name);
    body->set_grants.n_grants = user->grants_count;
    body->set_grants.grants = body->grants = nd_grant_rows_fill(user->grants, user->grants_count);
    body->set_grants.at_ms = user->updated_at_ms;
    message->user_set_grants = &body->set_grants;
}

static void user_fill(PB(Command) * message, struct user_body *body,
                      const struct nd_command *command)
{
    const struct nd_user *user = command->user;

    body->grants = NULL;
    if (command->kind == ND_COMMAND_USER_CREATE) {
        user_create_fill(message, body, user);
    } else if (command->kind == ND_COMMAND_USER_SEED_ROOT) {
        narad__cluster__v1__user_seed_root__init(&body->seed_root);
        body->seed_root.hash = lend(user->hash);
        body->seed_root.at_ms = user->updated_at_ms;
        message->user_seed_root = &body->seed_root;
    } else if (command->kind == ND_COMMAND_USER_SET_GRANTS) {
        user_set_grants_fill(message, body, user);
    } else if (command->kind == ND_COMMAND_USER_SET_PASSWORD) {
        narad__cluster__v1__user_set_password__init(&body->set_password);
        body->set_password.name = lend(user->name);
        body->set_password.hash = lend(user->hash);
        body->set_password.at_ms = user->updated_at_ms;
        body->set_password.replaces = lend(command->replaces);
        message->user_set_password = &body->set_password;
    } else {
        narad__cluster__v1__user_delete__init(&body->delete);
        body->delete.name = lend(user->name);
        message->user_delete = &body->delete;
    }
}

void nd_command_put(struct nd_buf *out, const struct nd_command *command)
{
    struct user_body user = {.grants = NULL};
    union {
        PB(Noop) noop;
        PB(TopicCreate) topic_create;
        PB(TopicAlter) topic_alter;
        PB(TopicDelete) topic_delete;
        PB(MemberRegister) member_register;
    } body;
    PB(Command) message = NARAD__CLUSTER__V1__COMMAND__INIT;
    message.proposer = command->proposer;
    message.sequence = command->sequence;
    message.open_from = command->open_from;
    message.body_case = (PB(Command__BodyCase))command->kind;

    switch (command->kind) {
    case ND_COMMAND_NOOP:
        narad__cluster__v1__noop__init(&body.noop);
        message.noop = &body.noop;
        break;
    case ND_COMMAND_TOPIC_CREATE:
        topic_create_fill(&body.topic_create, &command->topic_create);
        message.topic_create = &body.topic_create;
        break;
    case ND_COMMAND_TOPIC_ALTER:
        topic_alter_fill(&body.topic_alter, &command->topic_alter);
        message.topic_alter = &body.topic_alter;
        break;
    case ND_COMMAND_TOPIC_DELETE:
        narad__cluster__v1__topic_delete__init(&body.topic_delete);
        body.topic_delete.name = lend(command->topic_delete);
        message.topic_delete = &body.topic_delete;
        break;
    case ND_COMMAND_MEMBER_REGISTER:
        narad__cluster__v1__member_register__init(&body.member_register);
        body.member_register.member = command->member_register.member;
        body.member_register.node_id = lend(command->member_register.node_id);
        body.member_register.address = lend(command->member_register.address);
        message.member_register = &body.member_register;
        break;
    case ND_COMMAND_USER_CREATE:
    case ND_COMMAND_USER_SEED_ROOT:
    case ND_COMMAND_USER_SET_GRANTS:
    case ND_COMMAND_USER_SET_PASSWORD:
    case ND_COMMAND_USER_DELETE: user_fill(&message, &user, command); break;
    }
    body_put(out, &message);
    nd_free(user.grants);
}

/* --- decoding --- */

/* False when the text does not fit. */
static bool text_get(char *to, size_t to_size, const char *from)
{
    size_t size = strlen(from);
    if (size >= to_size) {
        return false;
    }
    memcpy(to, from, size + 1);
    return true;
}

static bool topic_create_get(struct nd_command_topic_create *to, const PB(TopicCreate) * from)
{
    to->incarnation = from->incarnation;
    to->created_at_s = from->created_at_s;
    to->request.partitions = from->partitions;
    to->request.retention_ms = from->retention_ms;
    to->request.visibility_timeout_ms = from->visibility_timeout_ms;
    to->request.max_in_flight = from->max_in_flight;
    to->request.max_acked_ahead = from->max_acked_ahead;
    return text_get(to->request.name, sizeof to->request.name, from->name) &&
           text_get(to->request.owner, sizeof to->request.owner, from->owner);
}

static bool topic_alter_get(struct nd_topic_alter *to, const PB(TopicAlter) * from)
{
    to->has_retention = from->set_retention;
    to->retention_ms = from->retention_ms;
    to->has_max_in_flight = from->set_max_in_flight;
    to->max_in_flight = from->max_in_flight;
    to->has_max_acked_ahead = from->set_max_acked_ahead;
    to->max_acked_ahead = from->max_acked_ahead;
    to->partitions = from->partitions;
    return text_get(to->name, sizeof to->name, from->name);
}

static bool member_register_get(struct nd_member_register *to, const PB(MemberRegister) * from)
{
    to->member = from->member;
    return text_get(to->node_id, sizeof to->node_id, from->node_id) &&
           text_get(to->address, sizeof to->address, from->address);
}

/* What the five bodies about users hold, as if it were one. */
struct user_texts {
    const char *name, *hash;
    int64_t at_ms;
    size_t grants_count;
    PB(Grant) * *grants;
};

static enum nd_err user_get(struct nd_command *out, struct user_texts from)
{
    struct nd_grant *grants = NULL;

    if (strlen(from.name) > ND_USER_NAME_SIZE_MAX || strlen(from.hash) > ND_USER_HASH_SIZE_MAX) {
        return ND_ERR_CORRUPT;
    }
    enum nd_err err = nd_grant_rows_read(from.grants, from.grants_count, &grants);
    if (err == ND_OK) {
        out->user = nd_user_new(from.name, grants, (uint32_t)from.grants_count);
        memcpy(out->user->hash, from.hash, strlen(from.hash));
        out->user->updated_at_ms = from.at_ms;
        nd_free(grants);
    }
    return err;
}

static enum nd_err user_body_get(const PB(Command) * message, struct nd_command *out)
{
    const ProtobufCMessage *body = NULL;
    struct user_texts texts = {.name = "", .hash = ""};
    bool fits = true;

    out->replaces[0] = '\0';
    if (message->body_case == PB_BODY(USER_CREATE)) {
        const PB(UserCreate) *from = message->user_create;
        body = &from->base;
        texts =
            (struct user_texts){from->name, from->hash, from->at_ms, from->n_grants, from->grants};
    } else if (message->body_case == PB_BODY(USER_SEED_ROOT)) {
        body = &message->user_seed_root->base;
        texts.hash = message->user_seed_root->hash;
        texts.at_ms = message->user_seed_root->at_ms;
    } else if (message->body_case == PB_BODY(USER_SET_GRANTS)) {
        const PB(UserSetGrants) *from = message->user_set_grants;
        body = &from->base;
        texts = (struct user_texts){from->name, "", from->at_ms, from->n_grants, from->grants};
    } else if (message->body_case == PB_BODY(USER_SET_PASSWORD)) {
        const PB(UserSetPassword) *from = message->user_set_password;
        body = &from->base;
        texts = (struct user_texts){from->name, from->hash, from->at_ms, 0, NULL};
        fits = text_get(out->replaces, sizeof out->replaces, from->replaces);
    } else {
        body = &message->user_delete->base;
        texts.name = message->user_delete->name;
    }
    if (body->n_unknown_fields != 0) {
        return ND_ERR_UNSUPPORTED;
    }
    return fits ? user_get(out, texts) : ND_ERR_CORRUPT;
}

static enum nd_err body_get(const PB(Command) * message, struct nd_command *out)
{
    const ProtobufCMessage *body = NULL;
    bool fits = true;

    out->kind = (enum nd_command_kind)message->body_case;
    if (message->base.n_unknown_fields != 0) {
        return ND_ERR_UNSUPPORTED;
    }
    switch (message->body_case) {
    case PB_BODY(NOOP): body = &message->noop->base; break;
    case PB_BODY(TOPIC_CREATE):
        body = &message->topic_create->base;
        fits = topic_create_get(&out->topic_create, message->topic_create);
        break;
    case PB_BODY(TOPIC_ALTER):
        body = &message->topic_alter->base;
        fits = topic_alter_get(&out->topic_alter, message->topic_alter);
        break;
    case PB_BODY(TOPIC_DELETE):
        body = &message->topic_delete->base;
        fits = text_get(out->topic_delete, sizeof out->topic_delete, message->topic_delete->name);
        break;
    case PB_BODY(MEMBER_REGISTER):
        body = &message->member_register->base;
        fits = member_register_get(&out->member_register, message->member_register);
        break;
    case PB_BODY(USER_CREATE):
    case PB_BODY(USER_SEED_ROOT):
    case PB_BODY(USER_SET_GRANTS):
    case PB_BODY(USER_SET_PASSWORD):
    case PB_BODY(USER_DELETE): return user_body_get(message, out);
    case NARAD__CLUSTER__V1__COMMAND__BODY__NOT_SET:
    default: return ND_ERR_UNSUPPORTED;
    }
    if (body->n_unknown_fields != 0) {
        return ND_ERR_UNSUPPORTED;
    }
    return fits ? ND_OK : ND_ERR_CORRUPT;
}

/* The protobuf inside the frame; NULL data when the frame is not sound. */
static struct nd_slice frame_body(struct nd_slice in)
{
    uint32_t size = nd_get_u32(in.data + 4);
    size_t padded = ((size_t)size + ENTRY_ALIGNMENT - 1) / ENTRY_ALIGNMENT * ENTRY_ALIGNMENT;

    if (size > ND_COMMAND_SIZE_MAX || padded != in.size - ENTRY_HEADER_SIZE) {
        return nd_slice_make(NULL, 0);
    }
    const uint8_t *body = in.data + ENTRY_HEADER_SIZE;
    for (size_t i = size; i < padded; i++) {
        if (body[i] != 0) {
            return nd_slice_make(NULL, 0);
        }
    }
    return nd_slice_make(body, size);
}

enum nd_err nd_command_get(struct nd_slice in, struct nd_command *out, struct nd_errmsg *msg)
{
    if (in.size < ENTRY_HEADER_SIZE) {
        nd_errmsg_set(msg, "metadata command: %zu bytes are too few", in.size);
        return ND_ERR_CORRUPT;
    }
    if (nd_get_u32(in.data) != ENTRY_FORMAT) {
        nd_errmsg_set(msg, "metadata command: unknown format %u", nd_get_u32(in.data));
        return ND_ERR_UNSUPPORTED;
    }
    struct nd_slice body = frame_body(in);
    PB(Command) *message = NULL;
    if (body.data != NULL) {
        message = narad__cluster__v1__command__unpack(NULL, body.size, body.data);
    }
    if (message == NULL) {
        nd_errmsg_set(msg, "metadata command: malformed (%zu bytes)", in.size);
        return ND_ERR_CORRUPT;
    }
    *out = (struct nd_command){.proposer = message->proposer,
                               .sequence = message->sequence,
                               .open_from = message->open_from};
    enum nd_err err = body_get(message, out);
    if (err == ND_ERR_UNSUPPORTED) {
        nd_errmsg_set(msg, "metadata command: a number, field or value of a newer version");
    } else if (err != ND_OK) {
        nd_errmsg_set(msg, "metadata command: a text is too long");
    }
    narad__cluster__v1__command__free_unpacked(message, NULL);
    return err;
}

/* --- commands about users --- */

enum nd_err nd_command_user_check(const struct nd_command *command, struct nd_errmsg *msg)
{
    const struct nd_user *user = command->user;
    enum nd_err err = ND_OK;

    if (command->kind == ND_COMMAND_USER_CREATE) {
        err = nd_user_name_check(nd_slice_str(user->name), msg);
    }
    if (err == ND_OK && command->kind != ND_COMMAND_USER_SET_GRANTS &&
        command->kind != ND_COMMAND_USER_DELETE) {
        err = nd_user_hash_check(nd_slice_str(user->hash), msg);
    }
    if (err == ND_OK && command->kind == ND_COMMAND_USER_SET_PASSWORD &&
        command->replaces[0] != '\0') {
        err = nd_user_hash_check(nd_slice_str(command->replaces), msg);
    }
    return err != ND_OK ? err : nd_grants_check(user->grants, user->grants_count, msg);
}

void nd_command_release(struct nd_command *command)
{
    if (nd_command_is_of_user(command->kind)) {
        nd_user_unref(command->user);
        command->user = NULL;
        nd_wipe(command->replaces, sizeof command->replaces);
    }
}
