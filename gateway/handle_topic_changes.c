/* Topics: create and alter. */
#include <inttypes.h>

#include "storage/base/alloc.h"

#include "gateway/handlers.h"
#include "gateway/json_in.h"
#include "gateway/json_out.h"

static const struct nd_slice none;

static bool refused_before_json(struct nd_http_request *request)
{
    return nd_answer_untyped(request) ||
           nd_answer_too_large(request, NARAD__V1__ACTION__ACTION_UNSPECIFIED, none, 413,
                               ND_BODY_TOO_LARGE);
}

/* Is the number there and below zero? */
static bool is_negative(const struct nd_json_member *member)
{
    return member->present && member->number < 0;
}

/* The first of the numbers that does not fit what the broker takes; 0: all do. */
static int64_t first_clamped(const struct nd_json_member *m, const int *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (m[numbers[i]].present && m[numbers[i]].number > UINT32_MAX) {
            return m[numbers[i]].number;
        }
    }
    return 0;
}

/* --- create --- */

enum {
    NAME,
    PARTITIONS,
    RETENTION,
    VISIBILITY,
    IN_FLIGHT,
    ACKED_AHEAD,
    SCHEMA,
    PARENT,
    DELAY,
    OWNER,
    CREATE_MEMBERS
};

static const struct nd_json_member create_members[CREATE_MEMBERS] = {
    [NAME] = {.name = "name", .type = ND_JSON_STRING},
    [PARTITIONS] = {.name = "partitions", .type = ND_JSON_INT},
    [RETENTION] = {.name = "retention_ms", .type = ND_JSON_INT},
    [VISIBILITY] = {.name = "visibility_timeout_ms", .type = ND_JSON_INT},
    [IN_FLIGHT] = {.name = "max_in_flight_per_partition", .type = ND_JSON_INT},
    [ACKED_AHEAD] = {.name = "max_acked_ahead_per_partition", .type = ND_JSON_INT},
    [SCHEMA] = {.name = "schema", .type = ND_JSON_ANY},
    [PARENT] = {.name = "parent", .type = ND_JSON_STRING},
    [DELAY] = {.name = "fanout_delay_ms", .type = ND_JSON_INT},
    [OWNER] = {.name = "owner", .type = ND_JSON_STRING},
};

static void put_created(struct nd_buf *out, const void *reply)
{
    const Narad__V1__CreateTopicResponse *response = reply;
    nd_json_put_topic(out, response->topic, false);
}

static const struct nd_reply create_reply = {
    {.path = "/narad.v1.Admin/CreateTopic",
     .reply_type = &narad__v1__create_topic_response__descriptor},
    {"create topic", false, 503},
    201,
    put_created};

static int check_name(struct nd_slice name, size_t size_max, struct nd_errmsg *msg)
{
    if (name.size == 0) {
        nd_errmsg_set(msg, "invalid argument: name required");
    } else if (nd_slice_equal(name, nd_slice_str(".")) ||
               nd_slice_equal(name, nd_slice_str(".."))) {
        nd_errmsg_set(msg, "invalid argument: topic name must not be \"%.*s\"", (int)name.size,
                      (const char *)name.data);
    } else if (!nd_topic_name_good(name, size_max)) {
        nd_errmsg_set(msg, "invalid argument: topic name must match ^[A-Za-z0-9._-]{1,%zu}$",
                      size_max);
    } else {
        return 0;
    }
    return 400;
}

/* What this version does not do yet is not silently left out. */
static int check_later(const struct nd_json_member *m, struct nd_errmsg *msg)
{
    if (m[SCHEMA].present) {
        nd_errmsg_set(msg, "schema is not supported by this version");
    } else if (m[PARENT].present && m[PARENT].text.size > 0) {
        nd_errmsg_set(msg, "parent is not supported by this version: there is no fan-out yet");
    } else if (m[DELAY].present && m[DELAY].number != 0) {
        nd_errmsg_set(msg,
                      "fanout_delay_ms is not supported by this version: there is no fan-out yet");
    } else {
        return 0;
    }
    return 501;
}

static int check_numbers(const struct nd_json_member *m, struct nd_errmsg *msg)
{
    static const int others[] = {RETENTION, VISIBILITY, IN_FLIGHT, ACKED_AHEAD};
    if (is_negative(&m[PARTITIONS])) {
        nd_errmsg_set(msg, "invalid argument: partitions must be >= 3 (0 = use default)");
        return 400;
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(others); i++) {
        if (is_negative(&m[others[i]])) {
            nd_errmsg_set(msg, "invalid argument: %s must be >= 0 (0 = use default)",
                          m[others[i]].name);
            return 400;
        }
    }
    return 0;
}

static void create(struct nd_http_request *request, const struct nd_json_member *m,
                   struct nd_arena *arena)
{
    Narad__V1__CreateTopicRequest message = NARAD__V1__CREATE_TOPIC_REQUEST__INIT;
    struct nd_errmsg msg = {""};
    struct nd_slice name = m[NAME].present ? m[NAME].text : none;
    int status = check_name(name, nd_compat_3(request) ? 200 : ND_TOPIC_NAME_SIZE_MAX, &msg);
    status = status != 0 ? status : check_later(m, &msg);
    status = status != 0 ? status : check_numbers(m, &msg);
    if (status != 0) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_CREATE, name, status, msg.text);
        return;
    }
    message.name = nd_arena_text(arena, name);
    message.partitions = nd_clamp_u32(m[PARTITIONS].number);
    /* A zero that is written out is the default in profile 1.2 and keeps for ever in profile 3. */
    if (m[RETENTION].present && (m[RETENTION].number != 0 || nd_compat_3(request))) {
        message.retention_choice_case =
            NARAD__V1__CREATE_TOPIC_REQUEST__RETENTION_CHOICE_RETENTION_MS;
        message.retention_ms = (uint64_t)m[RETENTION].number;
    }
    message.visibility_timeout_ms = (uint64_t)m[VISIBILITY].number;
    message.max_in_flight_per_partition = nd_clamp_u32(m[IN_FLIGHT].number);
    message.max_acked_ahead_per_partition = nd_clamp_u32(m[ACKED_AHEAD].number);
    static const int clamped[] = {PARTITIONS, IN_FLIGHT, ACKED_AHEAD};
    nd_call_and_answer_clamped(request, &create_reply, &message.base,
                               first_clamped(m, clamped, ND_ARRAY_SIZE(clamped)));
}

void nd_handle_create_topic(struct nd_http_request *request)
{
    struct nd_json_member members[CREATE_MEMBERS];
    struct nd_errmsg msg = {""};
    struct nd_arena arena;
    if (refused_before_json(request)) {
        return;
    }
    nd_body_arena_init(&arena, request);
    memcpy(members, create_members, sizeof members);
    if (nd_json_read(nd_http_body_bytes(request), members, CREATE_MEMBERS, &arena, &msg) != ND_OK) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_UNSPECIFIED, none, 400, msg.text);
    } else {
        create(request, members, &arena);
    }
    nd_arena_release(&arena);
}

/* --- alter --- */

enum {
    A_RETENTION,
    A_IN_FLIGHT,
    A_ACKED_AHEAD,
    A_PARTITIONS,
    A_SCHEMA,
    A_SCHEMA_BASE,
    ALTER_MEMBERS
};

static const struct nd_json_member alter_members[ALTER_MEMBERS] = {
    [A_RETENTION] = {.name = "retention_ms", .type = ND_JSON_INT},
    [A_IN_FLIGHT] = {.name = "max_in_flight_per_partition", .type = ND_JSON_INT},
    [A_ACKED_AHEAD] = {.name = "max_acked_ahead_per_partition", .type = ND_JSON_INT},
    [A_PARTITIONS] = {.name = "partitions", .type = ND_JSON_INT},
    [A_SCHEMA] = {.name = "schema", .type = ND_JSON_ANY},
    [A_SCHEMA_BASE] = {.name = "schema_base_version", .type = ND_JSON_INT},
};

static void put_altered(struct nd_buf *out, const void *reply)
{
    const Narad__V1__AlterTopicResponse *response = reply;
    nd_json_put_topic(out, response->topic, true);
}

static const struct nd_reply alter_reply = {
    {.path = "/narad.v1.Admin/AlterTopic",
     .reply_type = &narad__v1__alter_topic_response__descriptor},
    {"alter topic", false, 503},
    200,
    put_altered};

/* Rules that need no topic; they come before the right to alter it. */
static bool check_alter(const struct nd_json_member *m, struct nd_errmsg *msg)
{
    static const int others[] = {A_RETENTION, A_IN_FLIGHT, A_ACKED_AHEAD};
    bool any = m[A_SCHEMA].present || m[A_SCHEMA_BASE].present ||
               (m[A_PARTITIONS].present && m[A_PARTITIONS].number != 0);
    for (size_t i = 0; i < ND_ARRAY_SIZE(others); i++) {
        any = any || m[others[i]].present;
    }
    if (!any) {
        nd_errmsg_set(msg, "at least one of partitions, retention_ms, max_*_per_partition, or "
                           "schema is required");
        return false;
    }
    if (is_negative(&m[A_PARTITIONS])) {
        nd_errmsg_set(msg, "partitions must be > 0");
        return false;
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(others); i++) {
        if (is_negative(&m[others[i]])) {
            nd_errmsg_set(msg, "%s must be >= 0 (0 = use default)", m[others[i]].name);
            return false;
        }
    }
    return true;
}

static void put_retention(Narad__V1__AlterTopicRequest *message, int64_t ms, bool compat_3)
{
    if (ms == 0 && !compat_3) {
        message->retention_choice_case =
            NARAD__V1__ALTER_TOPIC_REQUEST__RETENTION_CHOICE_RETENTION_DEFAULT;
        message->retention_default = true;
    } else {
        message->retention_choice_case =
            NARAD__V1__ALTER_TOPIC_REQUEST__RETENTION_CHOICE_RETENTION_MS;
        message->retention_ms = (uint64_t)ms;
    }
}

static void alter(struct nd_http_request *request, const struct nd_json_member *m)
{
    Narad__V1__AlterTopicRequest message = NARAD__V1__ALTER_TOPIC_REQUEST__INIT;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    bool known = nd_path_topic(request, topic);
    if (!known || m[A_SCHEMA].present || m[A_SCHEMA_BASE].present) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_MANAGE, nd_http_path_value(request, 0),
                          known ? 501 : 404,
                          known ? "schema is not supported by this version" : ND_NO_TOPIC);
        return;
    }
    message.name = topic;
    if (m[A_RETENTION].present) {
        put_retention(&message, m[A_RETENTION].number, nd_compat_3(request));
    }
    if (m[A_IN_FLIGHT].present) {
        message.max_in_flight_choice_case =
            NARAD__V1__ALTER_TOPIC_REQUEST__MAX_IN_FLIGHT_CHOICE_MAX_IN_FLIGHT_PER_PARTITION;
        message.max_in_flight_per_partition = nd_clamp_u32(m[A_IN_FLIGHT].number);
    }
    if (m[A_ACKED_AHEAD].present) {
        message.max_acked_ahead_choice_case =
            NARAD__V1__ALTER_TOPIC_REQUEST__MAX_ACKED_AHEAD_CHOICE_MAX_ACKED_AHEAD_PER_PARTITION;
        message.max_acked_ahead_per_partition = nd_clamp_u32(m[A_ACKED_AHEAD].number);
    }
    message.partitions = nd_clamp_u32(m[A_PARTITIONS].number);
    static const int clamped[] = {A_IN_FLIGHT, A_ACKED_AHEAD, A_PARTITIONS};
    nd_call_and_answer_clamped(request, &alter_reply, &message.base,
                               first_clamped(m, clamped, ND_ARRAY_SIZE(clamped)));
}

void nd_handle_alter_topic(struct nd_http_request *request)
{
    struct nd_json_member members[ALTER_MEMBERS];
    struct nd_errmsg msg = {""};
    struct nd_arena arena;
    if (refused_before_json(request)) {
        return;
    }
    nd_body_arena_init(&arena, request);
    memcpy(members, alter_members, sizeof members);
    if (nd_json_read(nd_http_body_bytes(request), members, ALTER_MEMBERS, &arena, &msg) != ND_OK ||
        !check_alter(members, &msg)) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_UNSPECIFIED, none, 400, msg.text);
    } else {
        alter(request, members);
    }
    nd_arena_release(&arena);
}
