#include <dlfcn.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "gateway/http_impl.h"

/* What the library does not understand it answers by itself, with an HTML page: a line without a
 * colon, a Content-Length that is no number (with its head twice, in 0.9.75), a version that it
 * does not speak, a head or a chunk that it has no room for. It does so through MHD_queue_response,
 * as everybody does, and since it calls that by name, the one below is what it finds. There the
 * answer is written past the library, which then finds the socket closed for writing and ends the
 * connection. Where a library is built so that it does not look its own functions up, its pages go
 * out as they are. */

typedef enum MHD_Result queue_fn(struct MHD_Connection *mhd, unsigned status,
                                 struct MHD_Response *response);

static queue_fn *library_queue(void)
{
    static _Atomic(queue_fn *) found; /* the same for whoever looks */
    queue_fn *queue = atomic_load_explicit(&found, memory_order_relaxed);

    if (queue == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "MHD_queue_response");
        ND_ASSERT(symbol != NULL);
        memcpy(&queue, &symbol, sizeof queue);
        atomic_store_explicit(&found, queue, memory_order_relaxed);
    }
    return queue;
}

enum MHD_Result nd_http_queue(struct MHD_Connection *mhd, int status, struct MHD_Response *response)
{
    return library_queue()(mhd, (unsigned)status, response);
}

/* --- past the library --- */

static gnutls_session_t session_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);

    return info == NULL ? NULL : info->tls_session;
}

/* As much of it as there is room for: who does not take its answers gets no more of them. */
static void write_past(const struct nd_http_conn *conn, struct MHD_Connection *mhd,
                       const char *text, size_t size)
{
    if (conn->tls == NULL) {
        (void)send(conn->watched.file, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (session_of(mhd) != NULL) {
        (void)gnutls_record_send(session_of(mhd), text, size);
    }
}

static const char *reason_of(int status)
{
    const char *reason = MHD_get_reason_phrase_for((unsigned)status);

    return reason == NULL ? "Error" : reason;
}

void nd_http_answer_past(struct nd_http_conn *conn, struct MHD_Connection *mhd, int status,
                         const char *error)
{
    char date[64], body[256], answer[768];
    time_t now = time(NULL);
    struct tm parts;
    bool plain = status == 431;

    (void)gmtime_r(&now, &parts);
    (void)strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    (void)snprintf(body, sizeof body, plain ? "%s\n" : "{\"error\":\"%s\"}\n", error);
    int size = snprintf(answer, sizeof answer,
                        "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\n%s%s"
                        "Content-Length: %zu\r\n\r\n%s",
                        status, reason_of(status), date,
                        plain ? "Content-Type: text/plain; charset=utf-8\r\n"
                                "X-Content-Type-Options: nosniff\r\n"
                              : "Content-Type: application/json\r\n",
                        status == 503 ? "Retry-After: 1\r\n" : "", strlen(body), body);
    ND_ASSERT(size > 0 && (size_t)size < sizeof answer);
    nd_http_linger(conn);
    write_past(conn, mhd, answer, (size_t)size);
    if (conn->request != NULL) {
        conn->request->status = status;
        conn->request->answer_size = strlen(body);
    }
}

/* What the library writes from here on reaches nobody, and tells it so. */
static void end_writing(const struct nd_http_conn *conn, struct MHD_Connection *mhd)
{
    if (conn->tls != NULL && session_of(mhd) != NULL) {
        (void)gnutls_bye(session_of(mhd), GNUTLS_SHUT_WR);
    }
    (void)shutdown(conn->watched.file, SHUT_WR);
}

/* --- the library's pages --- */

static const char *error_of(const struct nd_http_conn *conn, int status)
{
    switch (status) {
    case 431: return ND_HTTP_HEAD_TOO_LARGE;
    case 413: return "request body too large";
    case 505: return "HTTP version not supported: want HTTP/1.1 or HTTP/1.0";
    case 400: break;
    default: return "internal error";
    }
    if (conn->request == NULL) {
        return "bad request: malformed request line";
    }
    return conn->request->stage == ND_HTTP_STAGE_HEAD
               ? "bad request: a header without a colon, or a Content-Length that is no number"
               : "bad request: malformed chunk or trailer";
}

/* NOLINTNEXTLINE: the name is the library's. */
__attribute__((visibility("default"))) enum MHD_Result
MHD_queue_response(struct MHD_Connection *connection, unsigned int status_code,
                   struct MHD_Response *response)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct nd_http_conn *conn = info == NULL ? NULL : info->socket_context;
    int status = status_code == 414 ? 431 : (int)status_code; /* the line is of the head */

    if (conn != NULL) {
        nd_http_answer_past(conn, connection, status, error_of(conn, status));
        end_writing(conn, connection);
    }
    return nd_http_queue(connection, (int)status_code, response);
}
