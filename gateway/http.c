#include "gateway/http.h"

#include <strings.h>

#include "storage/base/alloc.h"

#include "gateway/http_impl.h"
#include "gateway/payload.h"

/* --- the request --- */

struct nd_gateway *nd_http_gateway(const struct nd_http_request *request)
{
    return request->conn->server->options.gateway;
}

struct nd_slice nd_http_method(const struct nd_http_request *request)
{
    return request->method;
}

struct nd_slice nd_http_path(const struct nd_http_request *request)
{
    return request->path;
}

struct nd_slice nd_http_path_value(const struct nd_http_request *request, size_t index)
{
    ND_ASSERT(index < request->match.values_count);
    return request->values[index];
}

struct nd_slice nd_http_query(const struct nd_http_request *request)
{
    return request->query;
}

static bool begins_with(struct nd_slice name, const char *prefix, size_t size)
{
    return name.size >= size && strncasecmp((const char *)name.data, prefix, size) == 0;
}

struct nd_slice nd_http_header(const struct nd_http_request *request, const char *name)
{
    size_t size = strlen(name);

    for (size_t i = 0; i < request->fields_count; i++) {
        const struct nd_http_field *field = &request->fields[i];
        if (field->name.size == size && begins_with(field->name, name, size)) {
            return field->value;
        }
    }
    return nd_slice_make(NULL, 0);
}

void nd_http_headers(const struct nd_http_request *request, const char *prefix,
                     void (*each)(void *arg, struct nd_slice name, struct nd_slice value),
                     void *arg)
{
    size_t size = strlen(prefix);

    for (size_t i = 0; i < request->fields_count; i++) {
        if (begins_with(request->fields[i].name, prefix, size)) {
            each(arg, request->fields[i].name, request->fields[i].value);
        }
    }
}

struct nd_slice nd_http_authorization(const struct nd_http_request *request)
{
    return nd_http_header(request, "Authorization");
}

struct nd_slice nd_http_body_bytes(const struct nd_http_request *request)
{
    return nd_buf_slice(&request->body);
}

enum nd_http_body nd_http_body_state(const struct nd_http_request *request)
{
    return request->keep == ND_HTTP_EXCEEDS ? ND_HTTP_BODY_TOO_LARGE : ND_HTTP_BODY_WHOLE;
}

const char *nd_http_peer(const struct nd_http_request *request)
{
    return request->conn->peer;
}

void *nd_http_memory(struct nd_http_request *request, size_t size)
{
    ND_ASSERT(request->memory == NULL);
    request->memory = nd_xcalloc(1, size);
    return request->memory;
}

void nd_http_on_gone(struct nd_http_request *request, void (*gone)(void *arg), void *arg)
{
    /* Only this request's owner reads it, in the answer. */
    atomic_store_explicit(&request->gone_told, gone != NULL, memory_order_relaxed);
    nd_watch_on_gone(request->conn->server->watch, &request->conn->watched, gone, arg);
}

/* --- answers --- */

void nd_http_set_header(struct nd_http_request *request, const char *name, const char *value)
{
    struct nd_http_header_out *header = nd_arena_alloc(&request->arena, sizeof *header);

    if (header == NULL) {
        return; /* the arena is sized for the head and these: a handler that sets thousands */
    }
    header->name = nd_arena_strndup(&request->arena, name, strlen(name));
    header->value = nd_arena_strndup(&request->arena, value, strlen(value));
    if (header->name != NULL && header->value != NULL) {
        nd_list_append(&request->headers, &header->link);
    }
}

void nd_http_close_after(struct nd_http_request *request)
{
    request->close_after = true;
}

/* NULL: memory is out. */
static struct MHD_Response *response_make(const struct nd_http_request *request, const char *type,
                                          struct nd_buf *body)
{
    struct MHD_Response *response;

    if (body == NULL || body->size == 0 || nd_buf_failed(body)) {
        static char nothing[1];
        response = MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT);
    } else {
        response =
            MHD_create_response_from_buffer_with_free_callback(body->size, body->data, nd_free);
        if (response != NULL) {
            nd_buf_init(body, body->size_max); /* the bytes are the response's */
        }
    }
    bool good = response != NULL;
    if (good && type != NULL) {
        good = MHD_add_response_header(response, "Content-Type", type) == MHD_YES;
    }
    ND_LIST_FOREACH (&request->headers, link) {
        const struct nd_http_header_out *header =
            ND_CONTAINER_OF(link, struct nd_http_header_out, link);
        good = good && MHD_add_response_header(response, header->name, header->value) == MHD_YES;
    }
    bool closes = request->close_after ||
                  atomic_load_explicit(&request->conn->server->draining, memory_order_relaxed);
    if (good && closes) {
        good = MHD_add_response_header(response, "Connection", "close") == MHD_YES;
    }
    if (!good && response != NULL) {
        MHD_destroy_response(response);
        response = NULL;
    }
    return response;
}

/* The owner lets go of it: from here on it is the loop's. */
static void hand_over(struct nd_http_request *request, enum nd_http_progress progress)
{
    struct nd_http_server *server = request->conn->server;
    struct nd_http_loop *loop = request->conn->loop;
    struct MHD_Connection *mhd = request->mhd;

    /* Release: the loop thread reads what was given. Acquire: parked means that the suspension is
     * done. */
    enum nd_http_progress before =
        atomic_exchange_explicit(&request->progress, progress, memory_order_acq_rel);
    ND_ASSERT(before == ND_HTTP_RUNNING || before == ND_HTTP_PARKED);
    if (before == ND_HTTP_PARKED) {
        MHD_resume_connection(mhd); /* until here nobody else could */
        nd_http_loop_wake(loop);
    }
    /* Release: a stop that sees 0 frees all of it. */
    atomic_fetch_sub_explicit(&server->answering, 1, memory_order_release);
}

void nd_http_admit(struct nd_http_request *request, struct nd_slice identity)
{
    struct nd_http_server *server = request->conn->server;

    atomic_fetch_add_explicit(&server->answering, 1, memory_order_relaxed);
    if (identity.size > 0) {
        request->identity = nd_http_room_identity(server->room, identity);
    }
    hand_over(request, ND_HTTP_ADMITTED);
}

void nd_http_answer(struct nd_http_request *request, int status, const char *type,
                    struct nd_buf *body)
{
    struct nd_http_server *server = request->conn->server;

    atomic_fetch_add_explicit(&server->answering, 1, memory_order_relaxed);
    if (atomic_load_explicit(&request->gone_told, memory_order_relaxed)) {
        nd_http_on_gone(request, NULL, NULL);
    }
    if (body != NULL && nd_buf_failed(body)) {
        request->response = NULL; /* an answer that is cut would be none: the connection ends */
    } else {
        request->answer_size = body == NULL ? 0 : body->size;
        request->response = response_make(request, type, body);
    }
    request->status = status;
    if (body != NULL) {
        nd_buf_release(body);
    }
    hand_over(request, ND_HTTP_ANSWERED);
}

void nd_http_answer_error(struct nd_http_request *request, int status, const char *text)
{
    struct nd_buf mended, body;

    nd_buf_init(&mended, SIZE_MAX);
    nd_buf_init(&body, SIZE_MAX);
    nd_utf8_put_mended(&mended, nd_slice_str(text));
    nd_buf_put_text(&body, "{\"error\":");
    nd_json_put_string(&body, nd_buf_slice(&mended));
    nd_buf_put_text(&body, "}\n");
    nd_buf_release(&mended);
    nd_http_answer(request, status, "application/json", &body);
}

void nd_http_answer_text(struct nd_http_request *request, int status, const char *text)
{
    struct nd_buf body;

    nd_buf_init(&body, SIZE_MAX);
    nd_buf_put_text(&body, text);
    nd_buf_put_u8(&body, '\n');
    nd_http_set_header(request, "X-Content-Type-Options", "nosniff");
    nd_http_answer(request, status, "text/plain; charset=utf-8", &body);
}

void nd_http_answer_none(struct nd_http_request *request, const char *allow)
{
    if (allow[0] == '\0') {
        nd_http_answer_text(request, 404, "404 page not found");
    } else {
        nd_http_set_header(request, "Allow", allow);
        nd_http_answer_text(request, 405, "Method Not Allowed");
    }
}
