/* What errors are in HTTP: the status from the one table of errors, the texts as docs/HTTP_API.md
 * lists them. Here too: permission before syntax. What the gateway itself refuses, it refuses only
 * after the broker said that the caller may do it, so that nobody learns from its errors what the
 * broker would not tell. */
#ifndef ND_GATEWAY_ERRORS_H
#define ND_GATEWAY_ERRORS_H

#include "gateway/http.h"
#include "gateway/upstream.h"
#include "proto/narad/v1/admin.pb-c.h"

/* Borrowed from the request. */
static inline struct nd_upstream_caller nd_http_caller(const struct nd_http_request *request)
{
    return (struct nd_upstream_caller){nd_http_authorization(request), nd_http_peer(request)};
}

/* What was asked for, for the texts. */
struct nd_operation {
    const char *name; /* "produce": "produce failed" */
    bool plain;       /* texts without "invalid argument: " in front */
    int lost_status;  /* when the broker's answer got lost: 503 or 502 */
};

/* The HTTP status of an error, *text_out its text. */
int nd_error_of(const struct nd_upstream_status *status, const struct nd_operation *operation,
                struct nd_errmsg *text_out);
/* Answer with it, with WWW-Authenticate or Retry-After where they belong. */
void nd_answer_failure(struct nd_http_request *request, const struct nd_upstream_status *status,
                       const struct nd_operation *operation);

/* Retry-After of the answer to come; 0: a second. */
void nd_answer_later(struct nd_http_request *request, uint32_t ms);

/* 200 and its kin: JSON + LF from `body`, which is empty afterwards. */
void nd_answer_json(struct nd_http_request *request, int status, struct nd_buf *body);
void nd_answer_empty(struct nd_http_request *request, int status);

/* Answer `status` and `text` if the caller may do `action` on `name`, else that it may not. The
 * request is as good as answered. `text` is copied. */
void nd_answer_refusal(struct nd_http_request *request, Narad__V1__Action action,
                       struct nd_slice name, int status, const char *text);
/* The same with another answer: `then(request, arg)` runs if it may and gives `arg` up, else
 * nd_free does. */
void nd_answer_if_allowed(struct nd_http_request *request, Narad__V1__Action action,
                          struct nd_slice name,
                          void (*then)(struct nd_http_request *request, void *arg), void *arg);
/* Profile 3: POST, PUT and PATCH name their type or their client. True: refused. */
bool nd_answer_untyped(struct nd_http_request *request);
/* The body is above its cap: refused, with the right checked first. True: refused. */
bool nd_answer_too_large(struct nd_http_request *request, Narad__V1__Action action,
                         struct nd_slice name, int status, const char *text);

#endif
