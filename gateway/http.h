/* One HTTP request as a handler sees it, whatever carried it here.
 *
 *   head read ─► (body read) ─► handler ─► answered
 *                                  └► parked: the connection is suspended until nd_http_answer
 *
 * A handler runs on a thread of the HTTP server and answers before it returns, or later from any
 * thread; exactly once. After the answer the request is not touched any more. */
#ifndef ND_HTTP_H
#define ND_HTTP_H

#include "storage/base/buf.h"
#include "storage/base/err.h"
#include "storage/base/slice.h"

struct nd_http_request;
struct nd_gateway;

enum nd_http_body {
    ND_HTTP_BODY_WHOLE,    /* read, maybe empty */
    ND_HTTP_BODY_TOO_LARGE /* above the route's cap, not kept; the connection closes after the
                              answer */
};

struct nd_gateway *nd_http_gateway(const struct nd_http_request *request);
/* Borrowed until the answer, all of them. */
struct nd_slice nd_http_method(const struct nd_http_request *request);
struct nd_slice nd_http_path(const struct nd_http_request *request); /* as sent, up to the '?' */
struct nd_slice nd_http_path_value(const struct nd_http_request *request,
                                   size_t index); /* of the i-th {…}, percent-decoded */
struct nd_slice nd_http_query(const struct nd_http_request *request); /* as sent; no '?' */
/* The first of that name, any letter case; data NULL: absent. */
struct nd_slice nd_http_header(const struct nd_http_request *request, const char *name);
/* Every header whose name begins with `prefix`, any letter case. */
void nd_http_headers(const struct nd_http_request *request, const char *prefix,
                     void (*each)(void *arg, struct nd_slice name, struct nd_slice value),
                     void *arg);
/* The Authorization header's value, or data NULL. */
struct nd_slice nd_http_authorization(const struct nd_http_request *request);
struct nd_slice nd_http_body_bytes(const struct nd_http_request *request);
enum nd_http_body nd_http_body_state(const struct nd_http_request *request);
const char *nd_http_peer(const struct nd_http_request *request); /* "127.0.0.1", no port */

/* A handler's memory about the request, freed with nd_free after the answer. */
void *nd_http_memory(struct nd_http_request *request, size_t size);

/* Tell `gone(arg)` once if the client hangs up while the request waits; then it is still to be
 * answered, which it may do itself. NULL takes it back, and so does the answer; after that return
 * it is not running and will not run (but when called from it): hold no lock that it takes.
 * @thread any */
void nd_http_on_gone(struct nd_http_request *request, void (*gone)(void *arg), void *arg);

/* --- answers. @thread any --- */
/* A header of the answer to come; both copied. */
void nd_http_set_header(struct nd_http_request *request, const char *name, const char *value);
/* `body`: its bytes are taken over and `body` is empty afterwards; NULL: no body. `type` NULL: no
 * Content-Type. */
void nd_http_answer(struct nd_http_request *request, int status, const char *type,
                    struct nd_buf *body);
/* {"error":"text"} + LF. Bytes that are not UTF-8 become U+FFFD. */
void nd_http_answer_error(struct nd_http_request *request, int status, const char *text);
/* Plain text with a LF behind it, and X-Content-Type-Options. */
void nd_http_answer_text(struct nd_http_request *request, int status, const char *text);
/* Plain text, as the router says it: 404 "404 page not found" or, with `allow` not "", 405 "Method
 * Not Allowed" and Allow. */
void nd_http_answer_none(struct nd_http_request *request, const char *allow);
/* From nd_route.admit, instead of an answer: the body may come, and be as large as the route takes.
 * `identity`: whose room it takes, see http_room.h; "": the client's address. */
void nd_http_admit(struct nd_http_request *request, struct nd_slice identity);
/* The connection ends after the answer. Before it. */
void nd_http_close_after(struct nd_http_request *request);

/* --- the server behind it --- */
typedef void nd_http_handler(struct nd_http_request *request);

struct nd_route {
    const char *method;  /* "GET"; HEAD comes with it */
    const char *pattern; /* "/v1/topics/{topic}" */
    uint32_t body_max;   /* bytes; 0: a body is read and dropped; after more than 1 MiB of it the
                            connection ends with the answer */
    nd_http_handler *handle;
    bool head_refused; /* a GET route that HEAD must not reach */
    /* The body does not matter to a request with this query: as with body_max 0. NULL: never. */
    bool (*body_dropped)(struct nd_slice query);
    /* May the caller send more than 1 MiB? Run before room is taken for that, as a handler, with no
     * body yet (or some of a chunked one): it answers, or calls nd_http_admit. It leaves
     * nd_http_memory alone. NULL: everybody may. */
    nd_http_handler *admit;
    bool secret; /* the body holds passwords: wiped when it is not needed any more */
};

#endif
