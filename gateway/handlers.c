#include "gateway/handlers.h"

#include "storage/base/alloc.h"

bool nd_topic_name_good(struct nd_slice name, size_t size_max)
{
    if (name.size == 0 || name.size > size_max || nd_slice_equal(name, nd_slice_str(".")) ||
        nd_slice_equal(name, nd_slice_str(".."))) {
        return false;
    }
    for (size_t i = 0; i < name.size; i++) {
        uint8_t c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-')) {
            return false;
        }
    }
    return true;
}

bool nd_path_topic(const struct nd_http_request *request, char out[ND_TOPIC_NAME_SIZE_MAX + 1])
{
    struct nd_slice name = nd_http_path_value(request, 0);
    out[0] = '\0';
    if (!nd_topic_name_good(name, ND_TOPIC_NAME_SIZE_MAX)) {
        return false;
    }
    memcpy(out, name.data, name.size);
    out[name.size] = '\0';
    return true;
}

char *nd_arena_text(struct nd_arena *arena, struct nd_slice text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *out = nd_arena_alloc(arena, 3 * text.size + 1);
    size_t size = 0;
    for (size_t i = 0; out != NULL && i < text.size; i++) {
        if (text.data[i] == 0) {
            memcpy(out + size, replacement, 3);
            size += 3;
        } else {
            out[size++] = (char)text.data[i];
        }
    }
    if (out != NULL) {
        out[size] = '\0';
    }
    return out == NULL ? nd_message_text("") : out;
}

void nd_body_arena_init(struct nd_arena *arena, const struct nd_http_request *request)
{
    nd_arena_init(arena, 8 * nd_http_body_bytes(request).size + (64 << 10));
}

/* --- calls --- */

struct call {
    struct nd_http_request *request;
    const struct nd_reply *reply;
    int64_t given; /* what was clamped; 0: nothing */
};

static void answer_clamped(const struct call *call, const struct nd_upstream_status *status)
{
    static const char clamped[] = "(4294967295)";
    struct nd_upstream_status meant = *status;
    struct nd_errmsg text;
    const char *at =
        call->given == 0 || status->text == NULL ? NULL : strstr(status->text, clamped);
    if (at != NULL) {
        nd_errmsg_set(&text, "%.*s(%lld)%s", (int)(at - status->text), status->text,
                      (long long)call->given, at + sizeof clamped - 1);
        meant.text = text.text;
    }
    nd_answer_failure(call->request, &meant, &call->reply->operation);
}

static void answered(void *arg, const struct nd_upstream_status *status, const void *message)
{
    struct call call = *(struct call *)arg;
    nd_free(arg);
    if (status->err != ND_OK) {
        answer_clamped(&call, status);
    } else if (call.reply->put == NULL) {
        nd_answer_empty(call.request, call.reply->status);
    } else {
        struct nd_buf body;
        nd_buf_init(&body, 64 << 20);
        call.reply->put(&body, message);
        nd_answer_json(call.request, call.reply->status, &body);
    }
}

void nd_call_and_answer(struct nd_http_request *request, const struct nd_reply *reply,
                        const ProtobufCMessage *message)
{
    nd_call_and_answer_clamped(request, reply, message, 0);
}

void nd_call_and_answer_clamped(struct nd_http_request *request, const struct nd_reply *reply,
                                const ProtobufCMessage *message, int64_t given)
{
    struct call *call = nd_xcalloc(1, sizeof *call);
    *call = (struct call){request, reply, given};
    nd_upstream_call(nd_upstream_of(request), nd_http_caller(request), &reply->method, message,
                     answered, call);
}

/* --- deliveries that nobody receives --- */

static void given_back(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    (void)arg;
    (void)status; /* what was not given back comes back when its lease is over */
    (void)reply;
}

void nd_give_back(struct nd_http_request *request, const char *topic,
                  Narad__V1__Message *const *messages, size_t count)
{
    if (count == 0) {
        return;
    }
    Narad__V1__AckRequest message = NARAD__V1__ACK_REQUEST__INIT;
    Narad__V1__Settle *settles = nd_xcalloc(count, sizeof *settles);
    Narad__V1__Settle **pointers = nd_xcalloc(count, sizeof *pointers);
    for (size_t i = 0; i < count; i++) {
        narad__v1__settle__init(&settles[i]);
        settles[i].receipt_handle = messages[i]->receipt_handle;
        settles[i].action = NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_NACK;
        pointers[i] = &settles[i];
    }
    message.topic = nd_message_text(topic);
    message.settles = pointers;
    message.n_settles = count;
    nd_upstream_ack(nd_upstream_of(request), nd_http_caller(request), &message, given_back, NULL);
    nd_free(pointers);
    nd_free(settles);
}
