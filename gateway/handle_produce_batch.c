/* Batch produce: payloads are cut out of the body as they stand in it; all or none. */
#include <stdio.h>
#include <strings.h>

#include "storage/base/wipe.h"

#include "gateway/handlers.h"
#include "gateway/json_in.h"
#include "gateway/payload.h"
#include "gateway/query.h"

enum { MESSAGES_MAX = 1000, PAYLOAD_MAX = 1 << 20 };

static const struct nd_operation operation = {"produce", false, 503};

struct batch {
    struct nd_arena arena;
    Narad__V1__Record **records; /* MESSAGES_MAX places, in the arena */
    size_t count;
    int status; /* of what was found wrong; 0: nothing */
    struct nd_errmsg msg;
};

static void wrong(struct batch *batch, int status, const char *text)
{
    nd_errmsg_set(&batch->msg, "%s", text);
    batch->status = status;
}

/* --- one message --- */

enum { PAYLOAD, PAYLOAD_ENCODING, KEY, KEY_ENCODING, PARTITION, MEMBERS };

static const struct nd_json_member members[MEMBERS] = {
    [PAYLOAD] = {.name = "payload", .type = ND_JSON_ANY},
    [PAYLOAD_ENCODING] = {.name = "payload_encoding", .type = ND_JSON_STRING},
    [KEY] = {.name = "key", .type = ND_JSON_STRING},
    [KEY_ENCODING] = {.name = "key_encoding", .type = ND_JSON_STRING},
    [PARTITION] = {.name = "partition", .type = ND_JSON_INT},
};

/* Is it base64? False: neither that nor absent. */
static bool encoding_of(const struct nd_json_member *member, bool *base64_out)
{
    *base64_out = member->present && nd_slice_equal(member->text, nd_slice_str("base64"));
    return *base64_out || !member->present || member->text.size == 0;
}

static bool decode(struct batch *batch, struct nd_slice text, ProtobufCBinaryData *out)
{
    out->data = nd_arena_alloc(&batch->arena, text.size / 4 * 3 + 3);
    return out->data != NULL && nd_base64_get(text, out->data, &out->len);
}

static void get_payload(struct batch *batch, const struct nd_json_member *m,
                        ProtobufCBinaryData *out)
{
    struct nd_slice text;
    bool base64;
    if (!encoding_of(&m[PAYLOAD_ENCODING], &base64)) {
        wrong(batch, 400, "invalid payload_encoding: want \"base64\" or none");
    } else if (!m[PAYLOAD].present) {
        wrong(batch, 400, "message required");
    } else if (!base64) {
        out->data = (uint8_t *)(uintptr_t)m[PAYLOAD].raw.data;
        out->len = m[PAYLOAD].raw.size;
    } else if (nd_json_string(m[PAYLOAD].raw, &batch->arena, &text, NULL) != ND_OK ||
               !decode(batch, text, out)) {
        wrong(batch, 400, "invalid payload: not a base64 string");
    } else if (out->len == 0) {
        wrong(batch, 400, "message required");
    }
    if (batch->status == 0 && out->len > PAYLOAD_MAX) {
        wrong(batch, 413, ND_BODY_TOO_LARGE);
    }
}

static void get_key(struct batch *batch, const struct nd_json_member *m, ProtobufCBinaryData *out)
{
    bool base64;
    if (!encoding_of(&m[KEY_ENCODING], &base64)) {
        wrong(batch, 400, "invalid key_encoding: want \"base64\" or none");
    } else if (m[KEY].present && !base64) {
        out->data = (uint8_t *)(uintptr_t)m[KEY].text.data;
        out->len = m[KEY].text.size;
    } else if (m[KEY].present && !decode(batch, m[KEY].text, out)) {
        wrong(batch, 400, "invalid key: not a base64 string");
    }
}

static void get_message(struct batch *batch, struct nd_slice element, Narad__V1__Record *record)
{
    struct nd_json_member m[MEMBERS];
    struct nd_errmsg msg = {""};
    memcpy(m, members, sizeof m);
    if (nd_json_read(element, m, MEMBERS, &batch->arena, &msg) != ND_OK) {
        wrong(batch, 400, msg.text);
        return;
    }
    narad__v1__record__init(record);
    get_payload(batch, m, &record->payload);
    if (batch->status == 0) {
        get_key(batch, m, &record->key);
    }
    if (batch->status == 0 && m[PARTITION].present) {
        if (m[PARTITION].number < 0) {
            wrong(batch, 400, "invalid partition: must be >= 0");
        }
        record->partition_choice_case = NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION;
        record->partition = nd_clamp_u32(m[PARTITION].number);
    }
}

/* --- all of them --- */

static void get_messages(struct batch *batch, struct nd_slice array)
{
    struct nd_slice element;
    size_t at = 0;
    batch->records = nd_arena_alloc(&batch->arena, MESSAGES_MAX * sizeof *batch->records);
    while (batch->status == 0 && nd_json_next(array, &at, &element)) {
        Narad__V1__Record *record = NULL;
        if (batch->count < MESSAGES_MAX && batch->records != NULL) {
            record = nd_arena_alloc(&batch->arena, sizeof *record);
        }
        batch->count++;
        if (batch->count > MESSAGES_MAX) {
            continue; /* counted for the text */
        }
        if (record == NULL) {
            wrong(batch, 413, ND_BODY_TOO_LARGE);
            return;
        }
        batch->records[batch->count - 1] = record;
        get_message(batch, element, record);
    }
    if (batch->status != 0) {
        nd_errmsg_wrap(&batch->msg, "message %zu", batch->count - 1);
    } else if (batch->count == 0) {
        wrong(batch, 400, "messages required");
    } else if (batch->count > MESSAGES_MAX) {
        nd_errmsg_set(&batch->msg, "too many messages: %zu (max %d)", batch->count, MESSAGES_MAX);
        batch->status = 400;
    }
}

static void check_query(struct batch *batch, struct nd_slice query)
{
    struct nd_produce_query parsed;
    struct nd_errmsg msg = {""};
    if (nd_query_produce(query, &batch->arena, &parsed, &msg) != ND_OK) {
        wrong(batch, 400, msg.text);
    } else if (parsed.key.size > 0) {
        wrong(batch, 400, "key is set per message in a batch produce, not as a query parameter");
    } else if (parsed.has_partition) {
        wrong(batch, 400,
              "partition is set per message in a batch produce, not as a query parameter");
    }
}

static void header_found(void *found, struct nd_slice name, struct nd_slice value)
{
    (void)name;
    (void)value;
    *(bool *)found = true;
}

/* One set of headers has no message to belong to. */
static void check_headers(struct batch *batch, const struct nd_http_request *request)
{
    bool found = false;
    nd_http_headers(request, "X-Narad-Header-", header_found, &found);
    if (batch->status == 0 && found) {
        wrong(batch, 400,
              "X-Narad-Header-* belongs to a message produced alone: a batch takes no headers");
    }
}

static void read_batch(struct batch *batch, struct nd_http_request *request)
{
    struct nd_json_member list = {.name = "messages", .type = ND_JSON_ARRAY};
    struct nd_errmsg msg = {""};
    struct nd_slice encoding = nd_http_header(request, "Content-Encoding");
    check_query(batch, nd_http_query(request));
    check_headers(batch, request);
    if (batch->status == 0 && encoding.size > 0 &&
        !nd_slice_equal(encoding, nd_slice_str("identity"))) {
        wrong(batch, 415, "Content-Encoding is not supported: send the batch as it is");
    }
    if (batch->status == 0 && nd_http_body_state(request) == ND_HTTP_BODY_TOO_LARGE) {
        wrong(batch, 413, ND_BODY_TOO_LARGE);
    }
    if (batch->status != 0) {
        return;
    }
    if (nd_json_read(nd_http_body_bytes(request), &list, 1, &batch->arena, &msg) != ND_OK) {
        wrong(batch, 400, msg.text);
    } else if (!list.present) {
        wrong(batch, 400, "messages required");
    } else {
        get_messages(batch, list.raw);
    }
}

struct waiting {
    struct nd_http_request *request;
    size_t count;
};

/* The broker names a record by its place among several; of one it speaks without. */
static bool names_record(const struct waiting *waiting, const struct nd_upstream_status *status,
                         unsigned long long *index_out, const char **rest_out)
{
    int end = 0;
    if (status->text != NULL && sscanf(status->text, "record %llu: %n", index_out, &end) == 1 &&
        end > 0) {
        *rest_out = status->text + end;
        return true;
    }
    *index_out = 0;
    *rest_out = status->text;
    return waiting->count == 1 &&
           (status->err == ND_ERR_INVALID_ARGUMENT || status->err == ND_ERR_TOO_LARGE);
}

static void answer_failure(const struct waiting *waiting, const struct nd_upstream_status *status)
{
    struct nd_upstream_status bare = *status;
    unsigned long long index;
    if (!names_record(waiting, status, &index, &bare.text)) {
        nd_answer_failure(waiting->request, status, &operation);
        return;
    }
    struct nd_errmsg text = {""};
    int http = nd_error_of(&bare, &operation, &text);
    nd_errmsg_wrap(&text, "message %llu", index);
    nd_http_answer_error(waiting->request, http, text.text);
}

static void produced(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct waiting *waiting = arg;
    struct nd_buf body;
    (void)reply;
    if (status->err != ND_OK) {
        answer_failure(waiting, status);
        return;
    }
    nd_buf_init(&body, 64);
    nd_buf_printf(&body, "{\"accepted\":%zu}", waiting->count);
    nd_answer_json(waiting->request, 202, &body);
}

void nd_handle_produce_batch(struct nd_http_request *request)
{
    Narad__V1__ProduceRequest message = NARAD__V1__PRODUCE_REQUEST__INIT;
    struct batch batch = {.count = 0};
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    if (nd_answer_untyped(request)) {
        return;
    }
    nd_arena_init(&batch.arena, 4 * nd_http_body_bytes(request).size +
                                    8 * nd_http_query(request).size + (1 << 20));
    read_batch(&batch, request);
    if (batch.status == 0 && !nd_path_topic(request, topic)) {
        wrong(&batch, 404, ND_NO_TOPIC);
    }
    if (batch.status != 0) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_PRODUCE,
                          nd_http_path_value(request, 0), batch.status, batch.msg.text);
    } else {
        struct waiting *waiting = nd_http_memory(request, sizeof *waiting);
        *waiting = (struct waiting){request, batch.count};
        message.topic = topic;
        message.records = batch.records;
        message.n_records = batch.count;
        nd_upstream_produce(nd_upstream_of(request), nd_http_caller(request), &message, produced,
                            waiting);
    }
    nd_arena_release(&batch.arena);
}

/* --- before the body --- */

enum { CREDENTIALS_MAX = 4096 };

/* The name in Basic credentials; size 0: none. They are known to be good. */
static struct nd_slice user_name(struct nd_slice header, uint8_t out[CREDENTIALS_MAX])
{
    static const char scheme[] = "Basic ";
    const size_t scheme_size = sizeof scheme - 1;
    size_t size = 0;
    if (header.size < scheme_size || header.size > CREDENTIALS_MAX ||
        strncasecmp((const char *)header.data, scheme, scheme_size) != 0) {
        return nd_slice_make(NULL, 0);
    }
    struct nd_slice coded = nd_slice_make(header.data + scheme_size, header.size - scheme_size);
    while (coded.size > 0 && coded.data[0] == ' ') {
        coded = nd_slice_make(coded.data + 1, coded.size - 1);
    }
    if (!nd_base64_get(coded, out, &size)) {
        return nd_slice_make(NULL, 0);
    }
    const uint8_t *colon = memchr(out, ':', size);
    return nd_slice_make(out, colon == NULL ? 0 : (size_t)(colon - out));
}

static void admit(struct nd_http_request *request, void *arg)
{
    uint8_t credentials[CREDENTIALS_MAX];
    struct nd_slice name = nd_slice_make(NULL, 0);
    (void)arg;
    if (nd_gateway_security_on(nd_http_gateway(request))) {
        name = user_name(nd_http_authorization(request), credentials);
    }
    nd_http_admit(request, name);
    nd_wipe(credentials, sizeof credentials);
}

void nd_admit_produce_batch(struct nd_http_request *request)
{
    if (!nd_answer_untyped(request)) {
        nd_answer_if_allowed(request, NARAD__V1__ACTION__ACTION_PRODUCE,
                             nd_http_path_value(request, 0), admit, NULL);
    }
}
