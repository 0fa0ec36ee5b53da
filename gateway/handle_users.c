/* Users, grants, passwords. All rules are the broker's; here is only JSON. */
#include "storage/base/alloc.h"

#include "gateway/handlers.h"
#include "gateway/json_in.h"
#include "gateway/json_out.h"

enum { GRANTS_MAX = 1000, PATTERNS_MAX = 1000 }; /* above what the broker takes */

#define USER_BODY_TOO_LARGE "invalid json: http: request body too large"

static const struct nd_slice none;

/* The user of the path. False: no user can have that name. */
static bool path_user(const struct nd_http_request *request, char out[ND_TOPIC_NAME_SIZE_MAX + 1])
{
    return nd_path_topic(request, out); /* of the same letters; the broker knows how long */
}

/* --- grants --- */

static const char *read_patterns(struct nd_slice array, struct nd_arena *arena,
                                 Narad__V1__Grant *grant, struct nd_errmsg *msg)
{
    struct nd_slice element, text;
    size_t at = 0, room = 0;
    while (nd_json_next(array, &at, &element)) {
        room++;
    }
    if (room > PATTERNS_MAX) {
        nd_errmsg_set(msg, "too many patterns: %zu (max %d)", room, PATTERNS_MAX);
        return msg->text;
    }
    grant->patterns = nd_arena_alloc(arena, (room + 1) * sizeof *grant->patterns);
    at = 0;
    while (grant->patterns != NULL && nd_json_next(array, &at, &element)) {
        if (nd_json_string(element, arena, &text, msg) != ND_OK) {
            return msg->text;
        }
        grant->patterns[grant->n_patterns++] = nd_arena_text(arena, text);
    }
    return NULL;
}

static const char *read_grant(struct nd_slice element, struct nd_arena *arena,
                              Narad__V1__Grant *grant, struct nd_errmsg *msg)
{
    struct nd_json_member m[] = {{.name = "action", .type = ND_JSON_STRING},
                                 {.name = "patterns", .type = ND_JSON_ARRAY}};
    narad__v1__grant__init(grant);
    if (nd_json_read(element, m, ND_ARRAY_SIZE(m), arena, msg) != ND_OK) {
        return msg->text;
    }
    if (m[0].present) {
        grant->action = nd_arena_text(arena, m[0].text);
    }
    return m[1].present ? read_patterns(m[1].raw, arena, grant, msg) : NULL;
}

/* NULL, or what is wrong with them. */
static const char *read_grants(const struct nd_json_member *member, struct nd_arena *arena,
                               Narad__V1__Grant ***out, size_t *count_out, struct nd_errmsg *msg)
{
    struct nd_slice element;
    size_t at = 0, room = 0;
    *count_out = 0;
    if (!member->present) {
        return NULL;
    }
    while (nd_json_next(member->raw, &at, &element)) {
        room++;
    }
    Narad__V1__Grant *grants = nd_arena_alloc(arena, (room + 1) * sizeof *grants);
    *out = nd_arena_alloc(arena, (room + 1) * sizeof **out);
    if (room > GRANTS_MAX || grants == NULL || *out == NULL) {
        nd_errmsg_set(msg, "too many grants: %zu (max %d)", room, GRANTS_MAX);
        return msg->text;
    }
    at = 0;
    while (nd_json_next(member->raw, &at, &element)) {
        const char *wrong = read_grant(element, arena, &grants[*count_out], msg);
        if (wrong != NULL) {
            return wrong;
        }
        (*out)[*count_out] = &grants[*count_out];
        *count_out += 1;
    }
    return NULL;
}

/* --- bodies --- */

/* What was decoded of a body may be a password. */
static void forget(struct nd_arena *arena)
{
    nd_arena_wipe(arena);
    nd_arena_release(arena);
}

/* Read the body or refuse. The right comes first. */
static bool read_body(struct nd_http_request *request, Narad__V1__Action action,
                      struct nd_json_member *members, size_t count, struct nd_arena *arena)
{
    struct nd_slice name =
        action == NARAD__V1__ACTION__ACTION_SET_PASSWORD ? nd_http_path_value(request, 0) : none;
    struct nd_errmsg msg = {""};
    if (nd_answer_untyped(request) ||
        nd_answer_too_large(request, action, name, 400, USER_BODY_TOO_LARGE)) {
        return false;
    }
    nd_body_arena_init(arena, request);
    if (nd_json_read(nd_http_body_bytes(request), members, count, arena, &msg) == ND_OK) {
        return true;
    }
    nd_answer_refusal(request, action, name, 400, msg.text);
    forget(arena);
    return false;
}

/* A password is taken as it is or not at all. */
static bool password_is_text(const struct nd_json_member *member)
{
    return !member->present || member->text.size == 0 ||
           memchr(member->text.data, 0, member->text.size) == NULL;
}

static char *text_of(struct nd_arena *arena, const struct nd_json_member *member)
{
    return nd_arena_text(arena, member->present ? member->text : none);
}

/* --- create --- */

static void put_created(struct nd_buf *out, const void *reply)
{
    const Narad__V1__CreateUserResponse *response = reply;
    nd_json_put_user(out, response->user);
}

static const struct nd_reply create_reply = {
    {.path = "/narad.v1.Admin/CreateUser",
     .reply_type = &narad__v1__create_user_response__descriptor},
    {"create user", true, 503},
    201,
    put_created};

void nd_handle_create_user(struct nd_http_request *request)
{
    struct nd_json_member m[] = {{.name = "username", .type = ND_JSON_STRING},
                                 {.name = "password", .type = ND_JSON_STRING},
                                 {.name = "grants", .type = ND_JSON_ARRAY}};
    Narad__V1__CreateUserRequest message = NARAD__V1__CREATE_USER_REQUEST__INIT;
    struct nd_errmsg msg = {""};
    struct nd_arena arena;
    if (!read_body(request, NARAD__V1__ACTION__ACTION_ADMIN, m, ND_ARRAY_SIZE(m), &arena)) {
        return;
    }
    const char *wrong = read_grants(&m[2], &arena, &message.grants, &message.n_grants, &msg);
    if (wrong == NULL && !password_is_text(&m[1])) {
        wrong = "password must not contain a NUL byte";
    }
    if (wrong != NULL) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_ADMIN, none, 400, wrong);
    } else {
        message.username = text_of(&arena, &m[0]);
        message.password = text_of(&arena, &m[1]);
        nd_call_and_answer(request, &create_reply, &message.base);
    }
    forget(&arena);
}

/* --- list, get, delete --- */

static void put_list(struct nd_buf *out, const void *reply)
{
    nd_json_put_users(out, reply);
}

static const struct nd_reply list_reply = {
    {.path = "/narad.v1.Admin/ListUsers",
     .reply_type = &narad__v1__list_users_response__descriptor,
     .asks = true},
    {"list users", true, 503},
    200,
    put_list};

void nd_handle_list_users(struct nd_http_request *request)
{
    Narad__V1__ListUsersRequest message = NARAD__V1__LIST_USERS_REQUEST__INIT;
    nd_call_and_answer(request, &list_reply, &message.base);
}

static void put_got(struct nd_buf *out, const void *reply)
{
    const Narad__V1__GetUserResponse *response = reply;
    nd_json_put_user(out, response->user);
}

static const struct nd_reply get_reply = {{.path = "/narad.v1.Admin/GetUser",
                                           .reply_type = &narad__v1__get_user_response__descriptor,
                                           .asks = true},
                                          {"get user", true, 503},
                                          200,
                                          put_got};

void nd_handle_get_user(struct nd_http_request *request)
{
    Narad__V1__GetUserRequest message = NARAD__V1__GET_USER_REQUEST__INIT;
    char username[ND_TOPIC_NAME_SIZE_MAX + 1];
    if (!path_user(request, username)) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_ADMIN, none, 404, "not found");
        return;
    }
    message.username = username;
    nd_call_and_answer(request, &get_reply, &message.base);
}

static const struct nd_reply delete_reply = {
    {.path = "/narad.v1.Admin/DeleteUser",
     .reply_type = &narad__v1__delete_user_response__descriptor},
    {"delete user", true, 503},
    204,
    NULL};

void nd_handle_delete_user(struct nd_http_request *request)
{
    Narad__V1__DeleteUserRequest message = NARAD__V1__DELETE_USER_REQUEST__INIT;
    char username[ND_TOPIC_NAME_SIZE_MAX + 1];
    if (!path_user(request, username)) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_ADMIN, none, 404, "not found");
        return;
    }
    message.username = username;
    nd_call_and_answer(request, &delete_reply, &message.base);
}

/* --- grants and password --- */

static void put_granted(struct nd_buf *out, const void *reply)
{
    const Narad__V1__SetGrantsResponse *response = reply;
    nd_json_put_user(out, response->user);
}

static const struct nd_reply grants_reply = {
    {.path = "/narad.v1.Admin/SetGrants",
     .reply_type = &narad__v1__set_grants_response__descriptor},
    {"set grants", true, 503},
    200,
    put_granted};

void nd_handle_set_grants(struct nd_http_request *request)
{
    struct nd_json_member m[] = {{.name = "grants", .type = ND_JSON_ARRAY}};
    Narad__V1__SetGrantsRequest message = NARAD__V1__SET_GRANTS_REQUEST__INIT;
    char username[ND_TOPIC_NAME_SIZE_MAX + 1];
    struct nd_errmsg msg = {""};
    struct nd_arena arena;
    if (!read_body(request, NARAD__V1__ACTION__ACTION_ADMIN, m, ND_ARRAY_SIZE(m), &arena)) {
        return;
    }
    const char *wrong = read_grants(&m[0], &arena, &message.grants, &message.n_grants, &msg);
    if (wrong != NULL) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_ADMIN, none, 400, wrong);
    } else if (!path_user(request, username)) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_ADMIN, none, 404, "not found");
    } else {
        message.username = username;
        nd_call_and_answer(request, &grants_reply, &message.base);
    }
    nd_arena_release(&arena);
}

static const struct nd_reply password_reply = {
    {.path = "/narad.v1.Admin/SetPassword",
     .reply_type = &narad__v1__set_password_response__descriptor},
    {"set password", true, 503},
    204,
    NULL};

void nd_handle_set_password(struct nd_http_request *request)
{
    struct nd_json_member m[] = {{.name = "new_password", .type = ND_JSON_STRING},
                                 {.name = "current_password", .type = ND_JSON_STRING}};
    Narad__V1__SetPasswordRequest message = NARAD__V1__SET_PASSWORD_REQUEST__INIT;
    const Narad__V1__Action action = NARAD__V1__ACTION__ACTION_SET_PASSWORD;
    char username[ND_TOPIC_NAME_SIZE_MAX + 1];
    struct nd_arena arena;
    if (!read_body(request, action, m, ND_ARRAY_SIZE(m), &arena)) {
        return;
    }
    bool known = path_user(request, username);
    if (!password_is_text(&m[0]) || !password_is_text(&m[1])) {
        nd_answer_refusal(request, action, nd_http_path_value(request, 0), 400,
                          "a password must not contain a NUL byte");
    } else if (!m[0].present || m[0].text.size == 0) {
        nd_answer_refusal(request, action, nd_http_path_value(request, 0), 400,
                          "new_password required");
    } else if (!known) {
        nd_answer_refusal(request, action, nd_http_path_value(request, 0), 404, "not found");
    } else {
        message.username = username;
        message.new_password = text_of(&arena, &m[0]);
        message.current_password = text_of(&arena, &m[1]);
        nd_call_and_answer(request, &password_reply, &message.base);
    }
    forget(&arena);
}
