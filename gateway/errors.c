#include "gateway/errors.h"

#include <stdio.h>
#include <strings.h>

#include "storage/base/alloc.h"

#include "gateway/gateway.h"

static const char *or_text(const char *text, enum nd_err err)
{
    return text == NULL || text[0] == '\0' ? nd_err_text(err) : text;
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Of the broker's sentences, the API documents the first half of one. */
static void invalid_argument(const char *text, const struct nd_operation *operation,
                             struct nd_errmsg *out)
{
    static const char prefix[] = "invalid argument: ", range[] = "partition out of range";
    const char *bare = begins(text, prefix) ? text + sizeof prefix - 1 : text;
    const char *found = strstr(bare, range);
    int size = found == NULL ? (int)strlen(bare) : (int)(found - bare) + (int)sizeof range - 1;
    nd_errmsg_set(out, "%s%.*s", operation->plain ? "" : prefix, size, bare);
}

static void failed(const struct nd_operation *operation, struct nd_errmsg *out)
{
    nd_errmsg_set(out, "%s failed", operation->name);
}

int nd_error_of(const struct nd_upstream_status *status, const struct nd_operation *operation,
                struct nd_errmsg *out)
{
    const char *text = or_text(status->text, status->err);
    int http = nd_err_http_status(status->err);
    switch (status->err) {
    case ND_ERR_INVALID_ARGUMENT: invalid_argument(text, operation, out); return http;
    case ND_ERR_UNAUTHENTICATED:
    case ND_ERR_NOT_FOUND:
    case ND_ERR_TOPIC_NOT_FOUND:
    case ND_ERR_ALREADY_EXISTS:
    case ND_ERR_STALE:
    case ND_ERR_NOT_OWNER:
    case ND_ERR_TOO_LARGE:
    case ND_ERR_THROTTLED: nd_errmsg_set(out, "%s", nd_err_text(status->err)); return http;
    case ND_ERR_TOPIC_EXISTS: /* one that differs in letter case is named */
        nd_errmsg_set(out, "%s",
                      strstr(text, "letter case") != NULL ? text : nd_err_text(status->err));
        return http;
    case ND_ERR_GONE: nd_errmsg_set(out, "%s: %s", nd_err_text(ND_ERR_STALE), text); return http;
    case ND_ERR_PERMISSION_DENIED:
    case ND_ERR_CONFLICT:
    case ND_ERR_LIMITED:
    case ND_ERR_OVERLOADED:
    case ND_ERR_NO_SPACE:
    case ND_ERR_NO_MEMORY:
    case ND_ERR_UNAVAILABLE:
    case ND_ERR_NOT_LEADER:
    case ND_ERR_UNSUPPORTED: nd_errmsg_set(out, "%s", text); return http;
    case ND_ERR_UNKNOWN_OUTCOME:
        nd_errmsg_set(out, "no answer from the broker, the outcome is unknown: %s", text);
        return operation->lost_status;
    case ND_ERR_CANCELLED:
    case ND_ERR_DEADLINE: nd_errmsg_set(out, "%s: %s", operation->name, text); return http;
    case ND_OK:
    case ND_ERR_CORRUPT:
    case ND_ERR_IO:
    case ND_ERR_INTERNAL:
    case ND_ERR_COUNT: break;
    }
    failed(operation, out);
    return 500;
}

void nd_answer_later(struct nd_http_request *request, uint32_t ms)
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", ms == 0 ? 1 : (ms + 999) / 1000);
    nd_http_set_header(request, "Retry-After", seconds);
}

void nd_answer_failure(struct nd_http_request *request, const struct nd_upstream_status *status,
                       const struct nd_operation *operation)
{
    struct nd_errmsg text = {""};
    int http = nd_error_of(status, operation, &text);
    if (http == 401) {
        nd_http_set_header(request, "WWW-Authenticate", "Basic realm=\"narad\"");
    }
    if (status->err == ND_ERR_LIMITED || (status->retry_after_ms > 0 && http == 503)) {
        nd_answer_later(request, status->retry_after_ms);
    }
    if (http == 500) {
        nd_log(nd_gateway_options(nd_http_gateway(request))->log, ND_LOG_ERROR, "gateway",
               "a request failed in the broker", "operation=%s code=%d reason=%s", operation->name,
               status->code, nd_err_name(status->err));
    }
    nd_http_answer_error(request, http, text.text);
}

void nd_answer_json(struct nd_http_request *request, int status, struct nd_buf *body)
{
    nd_buf_put_u8(body, '\n');
    if (nd_buf_failed(body)) {
        nd_buf_release(body);
        nd_http_answer_error(request, 500, "the answer is too large");
        return;
    }
    nd_http_answer(request, status, "application/json", body);
}

void nd_answer_empty(struct nd_http_request *request, int status)
{
    nd_http_answer(request, status, NULL, NULL);
}

/* --- permission before syntax --- */

struct check {
    struct nd_http_request *request;
    void (*then)(struct nd_http_request *request, void *arg);
    void *arg;
};

static void checked(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    static const struct nd_operation operation = {"access check", true, 503};
    struct check check = *(struct check *)arg;
    (void)reply;
    nd_free(arg);
    if (status->err == ND_OK) {
        check.then(check.request, check.arg);
    } else {
        nd_free(check.arg);
        nd_answer_failure(check.request, status, &operation);
    }
}

/* A name that no C string holds is nobody's: "" stands for it. */
static void copy_name(char *out, size_t out_size, struct nd_slice name)
{
    bool good = name.size < out_size && (name.size == 0 || memchr(name.data, 0, name.size) == NULL);
    out[0] = '\0';
    if (good && name.size > 0) {
        memcpy(out, name.data, name.size);
        out[name.size] = '\0';
    }
}

void nd_answer_if_allowed(struct nd_http_request *request, Narad__V1__Action action,
                          struct nd_slice name,
                          void (*then)(struct nd_http_request *request, void *arg), void *arg)
{
    static const struct nd_upstream_method method = {
        .path = "/narad.v1.Admin/CheckAccess",
        .reply_type = &narad__v1__check_access_response__descriptor,
        .asks = true};
    char text[1024];
    struct check *check = nd_xcalloc(1, sizeof *check);
    Narad__V1__CheckAccessRequest message = NARAD__V1__CHECK_ACCESS_REQUEST__INIT;
    *check = (struct check){request, then, arg};
    copy_name(text, sizeof text, name);
    message.action = action;
    message.name = text;
    nd_upstream_call(nd_gateway_upstream(nd_http_gateway(request)), nd_http_caller(request),
                     &method, &message.base, checked, check);
}

struct refusal {
    int status;
    char text[];
};

static void refuse(struct nd_http_request *request, void *arg)
{
    struct refusal *refusal = arg;
    if (refusal->status == 429) {
        nd_answer_later(request, 0);
    }
    nd_http_answer_error(request, refusal->status, refusal->text);
    nd_free(refusal);
}

void nd_answer_refusal(struct nd_http_request *request, Narad__V1__Action action,
                       struct nd_slice name, int status, const char *text)
{
    size_t size = strlen(text) + 1;
    struct refusal *refusal = nd_xmalloc(sizeof *refusal + size);
    refusal->status = status;
    memcpy(refusal->text, text, size);
    nd_answer_if_allowed(request, action, name, refuse, refusal);
}

static bool is_method(const struct nd_http_request *request, const char *method)
{
    return nd_slice_equal(nd_http_method(request), nd_slice_str(method));
}

/* Is it that media type, with or without parameters? */
static bool is_type(struct nd_slice value, const char *type)
{
    const uint8_t *end = value.size == 0 ? NULL : memchr(value.data, ';', value.size);
    size_t size = end == NULL ? value.size : (size_t)(end - value.data);
    while (size > 0 && (value.data[size - 1] == ' ' || value.data[size - 1] == '\t')) {
        size--;
    }
    return size == strlen(type) && strncasecmp((const char *)value.data, type, size) == 0;
}

bool nd_answer_untyped(struct nd_http_request *request)
{
    if (!nd_gateway_options(nd_http_gateway(request))->compat_3 ||
        !(is_method(request, "POST") || is_method(request, "PUT") || is_method(request, "PATCH"))) {
        return false;
    }
    struct nd_slice type = nd_http_header(request, "Content-Type");
    if (nd_http_header(request, "X-Narad-Client").size > 0 || is_type(type, "application/json") ||
        is_type(type, "application/octet-stream")) {
        return false;
    }
    nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_UNSPECIFIED, nd_slice_str(""), 415,
                      "state-changing requests must send Content-Type: application/json or "
                      "application/octet-stream, or an X-Narad-Client header");
    return true;
}

bool nd_answer_too_large(struct nd_http_request *request, Narad__V1__Action action,
                         struct nd_slice name, int status, const char *text)
{
    if (nd_http_body_state(request) != ND_HTTP_BODY_TOO_LARGE) {
        return false;
    }
    nd_answer_refusal(request, action, name, status, text);
    return true;
}
