/* Ack, extend, nack: one handle in the query, or up to 100 in the body. */
#include "storage/base/alloc.h"

#include "gateway/handlers.h"
#include "gateway/json_in.h"
#include "gateway/json_out.h"
#include "gateway/query.h"

enum { HANDLES_MAX = 100 };

#define MALFORMED "receipt handle is malformed"

/* The broker may have done it: 502. */
static const struct nd_operation operations[] = {
    [ND_ACK_ACK] = {"ack", false, 502},
    [ND_ACK_EXTEND] = {"extend ack", false, 502},
    [ND_ACK_NACK] = {"nack", false, 502},
};

/* What stands in a receipt handle. */
struct handle {
    uint64_t partition, offset, nonce; /* nonce 0: it is malformed, the broker is not asked */
    uint8_t same_as;                   /* an earlier one of the batch, or itself */
};

struct ack {
    struct nd_http_request *request;
    enum nd_ack_extend extend;
    bool batch;
    uint32_t count; /* of handles that were given */
    struct handle handles[HANDLES_MAX];
};

/* --- handles --- */

/* Digits worth at most `max`, then `stop` or, with NUL, the end. */
static bool read_number(struct nd_slice *rest_io, char stop, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < rest_io->size && rest_io->data[i] != (uint8_t)stop; i++) {
        uint8_t digit = (uint8_t)(rest_io->data[i] - '0');
        if (digit > 9 || value > (max - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    bool stopped = i < rest_io->size;
    *rest_io = nd_slice_make(rest_io->data + i + stopped, rest_io->size - i - stopped);
    *out = value;
    return i > 0 && stopped == (stop != '\0');
}

static bool read_handle(struct nd_slice text, struct handle *out)
{
    *out = (struct handle){.nonce = 0};
    bool good = text.size < 128 && read_number(&text, ':', INT32_MAX, &out->partition) &&
                read_number(&text, ':', INT64_MAX, &out->offset) &&
                read_number(&text, '\0', INT64_MAX, &out->nonce);
    out->nonce = good ? out->nonce : 0;
    return out->nonce > 0;
}

static bool is_same(const struct handle *a, const struct handle *b)
{
    return a->nonce == b->nonce && a->offset == b->offset && a->partition == b->partition;
}

static void find_same(struct ack *ack)
{
    for (uint32_t i = 0; i < ack->count; i++) {
        uint32_t first = 0;
        while (!is_same(&ack->handles[first], &ack->handles[i])) {
            first++;
        }
        ack->handles[i].same_as = (uint8_t)first;
    }
}

/* Is the broker asked about the i-th? */
static bool is_asked(const struct ack *ack, uint32_t i)
{
    return ack->handles[i].nonce != 0 && ack->handles[i].same_as == i;
}

/* --- the answer --- */

/* Of one settle; NULL: the handle was malformed. */
static int status_of(const struct ack *ack, const Narad__V1__SettleResult *result,
                     struct nd_errmsg *text)
{
    struct nd_upstream_status status = {3, ND_ERR_INVALID_ARGUMENT, MALFORMED, 0};
    if (result != NULL) {
        status = (struct nd_upstream_status){(int)result->code,
                                             nd_upstream_err((int)result->code, result->reason),
                                             result->error, 0};
    }
    if (status.err == ND_OK) {
        return 204;
    }
    if (status.err == ND_ERR_INVALID_ARGUMENT) {
        nd_errmsg_set(text, MALFORMED);
        return 400;
    }
    return nd_error_of(&status, &operations[ack->extend], text);
}

static void put_result(struct nd_buf *body, bool first, int status, const char *text)
{
    nd_buf_printf(body, "%s{\"status\":%d", first ? "" : ",", status);
    if (status != 204) {
        nd_buf_put_text(body, ",\"error\":");
        nd_json_put_text(body, text);
    }
    nd_buf_put_u8(body, '}');
}

/* One handle twice is as two requests: the second finds the lease over, unless it was extended. */
static void answer_batch(const struct ack *ack, const Narad__V1__AckItemResult *result)
{
    int statuses[HANDLES_MAX];
    struct nd_errmsg *texts = nd_xcalloc(ack->count, sizeof *texts);
    struct nd_buf body;
    size_t next = 0;
    nd_buf_init(&body, 1 << 20);
    nd_buf_put_text(&body, "{\"results\":[");
    for (uint32_t i = 0; i < ack->count; i++) {
        uint32_t first = ack->handles[i].same_as;
        if (is_asked(ack, i) || ack->handles[i].nonce == 0) {
            statuses[i] =
                status_of(ack, is_asked(ack, i) ? result->results[next++] : NULL, &texts[i]);
        } else if (statuses[first] == 204 && ack->extend != ND_ACK_EXTEND) {
            statuses[i] = nd_err_http_status(ND_ERR_STALE);
            nd_errmsg_set(&texts[i], "%s", nd_err_text(ND_ERR_STALE));
        } else {
            statuses[i] = statuses[first];
            texts[i] = texts[first];
        }
        put_result(&body, i == 0, statuses[i], texts[i].text);
    }
    nd_buf_put_text(&body, "]}");
    nd_free(texts);
    nd_answer_json(ack->request, 200, &body);
}

static void answer_single(const struct ack *ack, const Narad__V1__AckItemResult *result)
{
    struct nd_errmsg text = {""};
    int status = status_of(ack, result->results[0], &text);
    if (status == 204) {
        nd_answer_empty(ack->request, 204);
    } else {
        nd_http_answer_error(ack->request, status, text.text);
    }
}

static uint32_t asked(const struct ack *ack)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ack->count; i++) {
        count += is_asked(ack, i);
    }
    return count;
}

static void settled(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct ack *ack = arg;
    const Narad__V1__AckItemResult *result = reply;
    if (status->err == ND_OK && result->n_results != asked(ack)) {
        static const struct nd_upstream_status odd = {13, ND_ERR_INTERNAL, "", 0};
        nd_answer_failure(ack->request, &odd, &operations[ack->extend]);
    } else if (status->err != ND_OK) {
        nd_answer_failure(ack->request, status, &operations[ack->extend]);
    } else if (ack->batch) {
        answer_batch(ack, result);
    } else {
        answer_single(ack, result);
    }
    nd_free(ack);
}

/* None of the handles is one. */
static void none_asked(struct nd_http_request *request, void *arg)
{
    (void)request;
    answer_batch(arg, NULL);
    nd_free(arg);
}

/* --- the request --- */

static void refuse(struct nd_http_request *request, int status, const char *text)
{
    nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_CONSUME, nd_http_path_value(request, 0),
                      status, text);
}

/* `ack` says which of the handles are asked about. Gives it up. */
static void settle(struct ack *ack, struct nd_slice *handles, struct nd_arena *arena)
{
    static const Narad__V1__SettleAction actions[] = {
        [ND_ACK_ACK] = NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_ACK,
        [ND_ACK_EXTEND] = NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_EXTEND,
        [ND_ACK_NACK] = NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_NACK,
    };
    Narad__V1__AckRequest message = NARAD__V1__ACK_REQUEST__INIT;
    Narad__V1__Settle settles[HANDLES_MAX], *pointers[HANDLES_MAX];
    struct nd_http_request *request = ack->request;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    size_t count = 0;
    for (uint32_t i = 0; i < ack->count; i++) {
        if (is_asked(ack, i)) {
            narad__v1__settle__init(&settles[count]);
            settles[count].receipt_handle = nd_arena_text(arena, handles[i]);
            settles[count].action = actions[ack->extend];
            pointers[count] = &settles[count];
            count++;
        }
    }
    if (count == 0) {
        nd_answer_if_allowed(request, NARAD__V1__ACTION__ACTION_CONSUME,
                             nd_http_path_value(request, 0), none_asked, ack);
    } else if (!nd_path_topic(request, topic)) {
        nd_free(ack);
        refuse(request, 404, ND_NO_TOPIC);
    } else {
        message.topic = topic;
        message.settles = pointers;
        message.n_settles = count;
        nd_upstream_ack(nd_upstream_of(request), nd_http_caller(request), &message, settled, ack);
    }
}

static struct ack *ack_new(struct nd_http_request *request, enum nd_ack_extend extend, bool batch,
                           uint32_t count)
{
    struct ack *ack = nd_xcalloc(1, sizeof *ack);
    *ack = (struct ack){.request = request, .extend = extend, .batch = batch, .count = count};
    return ack;
}

/* Up to HANDLES_MAX of `array` into `handles`; false: one of them is no string. */
static bool read_handles(struct nd_slice array, struct nd_arena *arena, struct nd_slice *handles,
                         size_t *count_out, struct nd_errmsg *msg)
{
    struct nd_slice element, text;
    size_t at = 0, count = 0;
    while (nd_json_next(array, &at, &element)) {
        if (nd_json_string(element, arena, &text, msg) != ND_OK) {
            return false;
        }
        if (count < HANDLES_MAX) {
            handles[count] = text;
        }
        count++;
    }
    *count_out = count;
    return true;
}

static void batch(struct nd_http_request *request, enum nd_ack_extend extend,
                  struct nd_arena *arena)
{
    struct nd_json_member list = {.name = "receipt_handles", .type = ND_JSON_ARRAY};
    struct nd_slice handles[HANDLES_MAX];
    struct nd_errmsg msg = {""};
    size_t count = 0;
    if (nd_json_read(nd_http_body_bytes(request), &list, 1, arena, &msg) != ND_OK ||
        (list.present && !read_handles(list.raw, arena, handles, &count, &msg))) {
        refuse(request, 400, msg.text);
    } else if (count == 0) {
        refuse(request, 400, "receipt_handles required");
    } else if (count > HANDLES_MAX) {
        refuse(request, 400, "too many receipt_handles: more than 100 (max 100)");
    } else {
        struct ack *ack = ack_new(request, extend, true, (uint32_t)count);
        for (size_t i = 0; i < count; i++) {
            (void)read_handle(handles[i], &ack->handles[i]);
        }
        find_same(ack);
        settle(ack, handles, arena);
    }
}

static void handle(struct nd_http_request *request, struct nd_arena *arena)
{
    struct nd_ack_query query;
    struct nd_errmsg msg = {""};
    struct handle one;
    bool extend_bad = false;
    if (nd_query_ack(nd_http_query(request), arena, &query, &extend_bad, &msg) != ND_OK) {
        refuse(request, 400, msg.text);
        return;
    }
    bool single = query.receipt_handle.size > 0;
    if (!single && nd_http_body_state(request) == ND_HTTP_BODY_TOO_LARGE) {
        refuse(request, 413, ND_BODY_TOO_LARGE);
    } else if (!single && nd_http_body_bytes(request).size == 0) {
        refuse(request, 400, "receipt_handle required");
    } else if (extend_bad) {
        refuse(request, 400,
               "invalid extend: want \"true\" (renew lease) or \"0\" (release for redelivery)");
    } else if (!single) {
        batch(request, query.extend, arena);
    } else if (!read_handle(query.receipt_handle, &one)) {
        refuse(request, 400, MALFORMED);
    } else {
        struct ack *ack = ack_new(request, query.extend, false, 1);
        ack->handles[0] = one;
        settle(ack, &query.receipt_handle, arena);
    }
}

void nd_handle_ack(struct nd_http_request *request)
{
    struct nd_arena arena;
    if (nd_answer_untyped(request)) {
        return;
    }
    nd_arena_init(&arena, 32 * nd_http_query(request).size + 8 * nd_http_body_bytes(request).size +
                              (64 << 10));
    handle(request, &arena);
    nd_arena_release(&arena);
}
