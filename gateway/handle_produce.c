/* Produce: one message, the body as it is. */
#include "gateway/handlers.h"
#include "gateway/query.h"
#include "gateway/record_headers.h"

static const struct nd_operation operation = {"produce", false, 503};

static void produced(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct nd_http_request *request = arg;
    (void)reply;
    if (status->err == ND_OK) {
        nd_answer_empty(request, 202);
    } else {
        nd_answer_failure(request, status, &operation);
    }
}

/* What is wrong with the request before the broker looks at it: a status and a text, or 0. */
static int check(struct nd_http_request *request, struct nd_arena *arena,
                 struct nd_produce_query *query, Narad__V1__Record *record, struct nd_errmsg *msg)
{
    if (nd_query_produce(nd_http_query(request), arena, query, msg) != ND_OK ||
        nd_record_headers_get(request, arena, record, msg) != ND_OK) {
        return 400;
    }
    if (nd_http_body_state(request) == ND_HTTP_BODY_TOO_LARGE) {
        nd_errmsg_set(msg, ND_BODY_TOO_LARGE);
        return 413;
    }
    if (nd_http_body_bytes(request).size == 0) {
        nd_errmsg_set(msg, "message required");
        return 400;
    }
    return 0;
}

static void produce(struct nd_http_request *request, struct nd_arena *arena)
{
    Narad__V1__Record record = NARAD__V1__RECORD__INIT, *records = &record;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    struct nd_produce_query query;
    struct nd_errmsg msg = {""};
    int status = check(request, arena, &query, &record, &msg);
    if (status == 0 && !nd_path_topic(request, topic)) {
        nd_errmsg_set(&msg, ND_NO_TOPIC);
        status = 404;
    }
    if (status != 0) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_PRODUCE,
                          nd_http_path_value(request, 0), status, msg.text);
        return;
    }
    struct nd_slice body = nd_http_body_bytes(request);
    record.payload.data = (uint8_t *)(uintptr_t)body.data;
    record.payload.len = body.size;
    record.key.data = (uint8_t *)(uintptr_t)query.key.data;
    record.key.len = query.key.size;
    if (query.has_partition) { /* the largest is out of every topic's range, as are those above */
        record.partition_choice_case = NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION;
        record.partition = nd_clamp_u32(query.partition);
    }
    Narad__V1__ProduceRequest message = NARAD__V1__PRODUCE_REQUEST__INIT;
    message.topic = topic;
    message.records = &records;
    message.n_records = 1;
    nd_upstream_produce(nd_upstream_of(request), nd_http_caller(request), &message, produced,
                        request);
}

void nd_handle_produce(struct nd_http_request *request)
{
    struct nd_arena arena;
    if (nd_answer_untyped(request)) {
        return;
    }
    nd_arena_init(&arena, 8 * nd_http_query(request).size + (64 << 10));
    produce(request, &arena);
    nd_arena_release(&arena);
}
