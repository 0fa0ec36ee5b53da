/* Topics: list, get, delete. */
#include "storage/base/alloc.h"

#include "gateway/handlers.h"
#include "gateway/json_out.h"
#include "gateway/query.h"

enum { LIMIT_DEFAULT = 100, LIMIT_MAX = 1000 };

static const struct nd_slice none;

/* --- list --- */

static void put_list(struct nd_buf *out, const void *reply)
{
    nd_json_put_topics(out, reply);
}

static const struct nd_reply list_reply = {
    {.path = "/narad.v1.Admin/ListTopics",
     .reply_type = &narad__v1__list_topics_response__descriptor,
     .asks = true},
    {"list topics", false, 503},
    200,
    put_list};

void nd_handle_list_topics(struct nd_http_request *request)
{
    Narad__V1__ListTopicsRequest message = NARAD__V1__LIST_TOPICS_REQUEST__INIT;
    struct nd_slice query = nd_http_query(request), text;
    struct nd_arena arena;
    int64_t limit = LIMIT_DEFAULT;
    enum nd_err err = ND_OK;
    nd_arena_init(&arena, 8 * query.size + 4096);
    if (nd_query_lenient(query, "limit", &arena, &text)) {
        err = nd_parse_int(text, "strconv.Atoi", &limit, NULL);
    }
    if (err != ND_OK || limit < 1) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_UNSPECIFIED, none, 400,
                          "limit must be a positive integer");
    } else {
        message.limit = (uint32_t)ND_MIN(limit, (int64_t)LIMIT_MAX);
        if (nd_query_lenient(query, "page_token", &arena, &text)) {
            message.page_token = nd_arena_text(&arena, text);
        }
        nd_call_and_answer(request, &list_reply, &message.base);
    }
    nd_arena_release(&arena);
}

/* --- get --- */

static void put_details(struct nd_buf *out, const void *reply)
{
    nd_json_put_topic_details(out, reply);
}

static const struct nd_reply get_reply = {{.path = "/narad.v1.Admin/GetTopic",
                                           .reply_type = &narad__v1__get_topic_response__descriptor,
                                           .asks = true},
                                          {"get topic", false, 503},
                                          200,
                                          put_details};

/* A topic's partition that it has not: told once it is known that the topic is there. */
static void got_for_partition(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct nd_http_request *request = arg;
    (void)reply;
    if (status->err == ND_OK || status->err == ND_ERR_INVALID_ARGUMENT) {
        nd_http_answer_error(request, 400, "invalid partition");
    } else {
        nd_answer_failure(request, status, &get_reply.operation);
    }
}

/* The broker's own word on the partition, in the words of the API. */
static void got_one(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct nd_http_request *request = arg;
    struct nd_buf body;
    if (status->err != ND_OK) {
        got_for_partition(request, status, reply);
        return;
    }
    nd_buf_init(&body, 64 << 20);
    nd_json_put_topic_details(&body, reply);
    nd_answer_json(request, 200, &body);
}

void nd_handle_get_topic(struct nd_http_request *request)
{
    Narad__V1__GetTopicRequest message = NARAD__V1__GET_TOPIC_REQUEST__INIT;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    struct nd_slice query = nd_http_query(request), text;
    struct nd_arena arena;
    int64_t partition = -1;
    if (!nd_path_topic(request, topic)) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_READ, nd_http_path_value(request, 0),
                          404, ND_NO_TOPIC);
        return;
    }
    nd_arena_init(&arena, 8 * query.size + 4096);
    message.name = topic;
    if (!nd_query_lenient(query, "partition", &arena, &text)) {
        nd_call_and_answer(request, &get_reply, &message.base);
    } else {
        bool good = nd_parse_int(text, "strconv.Atoi", &partition, NULL) == ND_OK &&
                    partition >= 0 && partition <= UINT32_MAX;
        message.partition_choice_case = NARAD__V1__GET_TOPIC_REQUEST__PARTITION_CHOICE_PARTITION;
        message.partition = good ? (uint32_t)partition : 0;
        nd_upstream_call(nd_upstream_of(request), nd_http_caller(request), &get_reply.method,
                         &message.base, good ? got_one : got_for_partition, request);
    }
    nd_arena_release(&arena);
}

/* --- delete --- */

static const struct nd_reply delete_reply = {
    {.path = "/narad.v1.Admin/DeleteTopic",
     .reply_type = &narad__v1__delete_topic_response__descriptor},
    {"delete topic", false, 503},
    204,
    NULL};

void nd_handle_delete_topic(struct nd_http_request *request)
{
    Narad__V1__DeleteTopicRequest message = NARAD__V1__DELETE_TOPIC_REQUEST__INIT;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    if (!nd_path_topic(request, topic)) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_MANAGE, nd_http_path_value(request, 0),
                          404, ND_NO_TOPIC);
        return;
    }
    message.name = topic;
    nd_call_and_answer(request, &delete_reply, &message.base);
}
