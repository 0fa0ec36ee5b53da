#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

#include "gateway/http_impl.h"
#include "gateway/query.h"

/* libmicrohttpd calls us like this, all on one loop thread:
 *
 *   nd_http_began    the request line is there
 *   nd_http_called   the head is there (answered now: the body is not read, the connection ends;
 *                    suspended while the broker is asked: called once more)
 *   nd_http_called   bytes of the body, again and again
 *   nd_http_called   the body is there
 *   nd_http_called   once more, at once: the handler runs; suspended unless it answered
 *   nd_http_called   resumed: the answer is queued
 *   nd_http_ended    sent, or the connection broke */

enum { MS = 1000000, ROOM_STEPS_IN_TIME = 4 };

/* --- budgets --- */

bool nd_http_budget_take(struct nd_http_budget *budget, uint64_t bytes)
{
    /* A sum, and no more than that: nothing is published with it. */
    if (atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed) + bytes >
        budget->max) {
        nd_http_budget_give(budget, bytes);
        return false;
    }
    return true;
}

void nd_http_budget_give(struct nd_http_budget *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

/* --- begin and end --- */

/* What stands behind the '?' the library would take apart into records of its own, and has no good
 * way out when they do not fit its memory: it gets nothing. */
static void query_hide(const char *target)
{
    char *mark = target == NULL ? NULL : strchr((char *)(uintptr_t)target, '?');

    if (mark != NULL) {
        mark[1] = '\0';
    }
}

void *nd_http_began(void *arg, const char *target, struct MHD_Connection *mhd)
{
    struct nd_http_server *server = arg;
    struct nd_http_request *request = nd_xcalloc(1, sizeof *request);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    size_t size = target == NULL ? 0 : strlen(target);

    request->target = nd_malloc(size + 1);
    if (request->target == NULL) {
        nd_free(request);
        return NULL; /* the connection ends with its head */
    }
    memcpy(request->target, size == 0 ? "" : target, size + 1);
    query_hide(target);
    request->conn = info->socket_context;
    request->conn->request = request;
    request->mhd = mhd;
    request->started_ns = nd_watch_now_ns();
    nd_arena_init(&request->arena, 4 * server->options.header_bytes_max + 65536);
    nd_buf_init(&request->body, 0);
    nd_list_init(&request->headers);
    request->read_deadline_ns =
        request->conn->requests > 0
            ? request->started_ns + server->options.read_timeout_ms * MS
            : atomic_load_explicit(&request->conn->watched.deadline_ns, memory_order_relaxed);
    nd_watch_deadline(&request->conn->watched, request->read_deadline_ns);
    request->conn->requests++;
    nd_list_remove(&request->conn->rest);
    nd_watch_idle(&request->conn->watched, false);
    return request;
}

static void open_count(struct nd_http_server *server, int change)
{
    /* Those that wait for 0 look again under the lock. */
    uint64_t before = change > 0
                          ? atomic_fetch_add_explicit(&server->open, 1, memory_order_acq_rel)
                          : atomic_fetch_sub_explicit(&server->open, 1, memory_order_acq_rel);

    if (change < 0 && before == 1 &&
        atomic_load_explicit(&server->draining, memory_order_acquire)) {
        nd_mutex_lock(&server->lock);
        nd_cond_broadcast(&server->changed);
        nd_mutex_unlock(&server->lock);
    }
}

static void outcome_count(const struct nd_http_request *request, uint64_t now)
{
    struct nd_http_outcome outcome = {
        .route = request->match.route,
        .method = request->method,
        .status = request->status,
        .bytes_in = request->body_total,
        .bytes_out = request->answer_size,
        .seconds = (double)(now - request->started_ns) / 1e9,
    };

    nd_http_meters_ended(request->conn->server->meters, &outcome);
}

static void room_give(struct nd_http_request *request)
{
    struct nd_http_server *server = request->conn->server;

    nd_http_room_give(server->room, request->identity, request->room_taken);
    nd_http_budget_give(&server->small, request->small_taken);
    request->room_taken = request->small_taken = 0;
}

static bool is_secret(const struct nd_http_request *request)
{
    return request->match.route != NULL && request->match.route->secret;
}

static void body_forget(struct nd_http_request *request)
{
    if (is_secret(request)) {
        nd_wipe_slice(nd_buf_slice(&request->body));
    }
    nd_buf_release(&request->body);
}

void nd_http_ended(void *arg, struct MHD_Connection *mhd, void **request_io,
                   enum MHD_RequestTerminationCode why)
{
    struct nd_http_server *server = arg;
    struct nd_http_request *request = *request_io;
    uint64_t now = nd_watch_now_ns();

    (void)mhd;
    (void)why;
    if (request == NULL) {
        return;
    }
    *request_io = NULL;
    bool draining = atomic_load_explicit(&server->draining, memory_order_relaxed);
    nd_watch_deadline(&request->conn->watched,
                      now + (draining ? 0 : server->options.idle_timeout_ms * MS));
    nd_watch_idle(&request->conn->watched, true);
    request->conn->request = NULL;
    nd_list_remove(&request->conn->chunked);
    nd_http_reading(request->conn);
    nd_http_rest(request->conn, now);
    room_give(request);
    if (request->stage != ND_HTTP_STAGE_HEAD) {
        outcome_count(request, now);
    }
    bool counted = request->stage != ND_HTTP_STAGE_HEAD;
    if (request->response != NULL) {
        MHD_destroy_response(request->response);
    }
    body_forget(request);
    nd_arena_release(&request->arena);
    nd_free(request->memory);
    nd_free(request->fields);
    nd_free(request->target);
    nd_free(request);
    if (counted) {
        open_count(server, -1);
    }
}

/* --- the answer --- */

void nd_http_linger(struct nd_http_conn *conn)
{
    if (conn->linger_file >= 0) {
        return;
    }
    /* Few, so that a crowd of them does not eat the descriptors up. */
    if (atomic_fetch_add_explicit(&conn->server->lingering, 1, memory_order_relaxed) <
        ND_HTTP_LINGER_MAX) {
        conn->linger_file = fcntl(conn->watched.file, F_DUPFD_CLOEXEC, 0);
    }
    if (conn->linger_file < 0) {
        atomic_fetch_sub_explicit(&conn->server->lingering, 1, memory_order_relaxed);
    }
}

static enum MHD_Result answer_queue(struct nd_http_request *request)
{
    struct MHD_Response *response = request->response;
    struct nd_http_server *server = request->conn->server;

    nd_list_remove(&request->conn->rest);
    request->stage = ND_HTTP_STAGE_ANSWER;
    body_forget(request); /* others need its room while the answer is being sent */
    room_give(request);
    if (response == NULL) {
        return MHD_NO;
    }
    if (request->unread) {
        nd_http_linger(request->conn);
    }
    nd_watch_deadline(&request->conn->watched,
                      nd_watch_now_ns() + server->options.write_timeout_ms * MS);
    request->response = NULL;
    enum MHD_Result result = nd_http_queue(request->mhd, request->status, response);
    MHD_destroy_response(response); /* our reference */
    return result;
}

/* The handler, or what stands for one. */
static void handler_run(struct nd_http_request *request)
{
    if (request->refusal != NULL && request->refusal_status == 431) {
        nd_http_answer_text(request, 431, request->refusal);
    } else if (request->refusal != NULL) {
        nd_http_answer_error(request, request->refusal_status, request->refusal);
    } else if (request->match.route != NULL) {
        request->match.route->handle(request);
    } else if (nd_routes_open(request->path) || request->conn->loop->metrics_only) {
        nd_http_answer_none(request, request->match.allow);
    } else {
        nd_handle_none(request, request->match.allow);
    }
}

/* False: the server is about to stop, nothing behind the handlers is there any more. */
static bool handler_enter(struct nd_http_server *server)
{
    /* Both sequentially consistent, as in nd_http_server_wait: either it sees us, or we it. */
    atomic_fetch_add(&server->running, 1);
    if (!atomic_load(&server->refusing)) {
        return true;
    }
    atomic_fetch_sub(&server->running, 1);
    return false;
}

/* Runs it; then it is this request's owner who moves its progress on. */
static enum MHD_Result handle(struct nd_http_request *request, nd_http_handler *run)
{
    struct nd_http_server *server = request->conn->server;

    if (!handler_enter(server)) {
        return MHD_NO;
    }
    request->conn->reading = false;
    nd_watch_deadline(&request->conn->watched, ND_WATCH_NEVER);
    run(request);
    atomic_fetch_sub(&server->running, 1);
    return MHD_YES;
}

static enum nd_http_progress progress_of(const struct nd_http_request *request)
{
    return atomic_load_explicit(&request->progress, memory_order_acquire);
}

static void park(struct nd_http_request *request)
{
    enum nd_http_progress running = ND_HTTP_RUNNING;

    nd_http_rest(request->conn, nd_watch_now_ns());
    /* Suspended first: whoever then finds it parked may resume it. */
    MHD_suspend_connection(request->mhd);
    if (!atomic_compare_exchange_strong_explicit(&request->progress, &running, ND_HTTP_PARKED,
                                                 memory_order_acq_rel, memory_order_acquire)) {
        MHD_resume_connection(request->mhd); /* answered or admitted meanwhile */
        nd_http_loop_wake(request->conn->loop);
    }
}

/* The handler, then the answer or the suspension; between them nothing that could end the
 * connection.
 */
static enum MHD_Result handle_or_park(struct nd_http_request *request)
{
    request->stage = ND_HTTP_STAGE_ANSWER;
    if (handle(request, handler_run) != MHD_YES) {
        return MHD_NO;
    }
    if (progress_of(request) == ND_HTTP_ANSWERED) {
        return answer_queue(request);
    }
    park(request);
    return MHD_YES;
}

/* Without reading what is left of the body. */
static enum MHD_Result handle_now(struct nd_http_request *request)
{
    request->close_after = true;
    request->unread = true;
    return handle_or_park(request);
}

/* --- the head --- */

/* "http://host/path", as proxies send it, is its path. */
static struct nd_slice without_authority(struct nd_slice target)
{
    static const char *const schemes[] = {"http://", "https://"};

    for (size_t i = 0; i < ND_ARRAY_SIZE(schemes); i++) {
        size_t size = strlen(schemes[i]);
        if (target.size >= size && strncasecmp((const char *)target.data, schemes[i], size) == 0) {
            while (size < target.size && target.data[size] != '/' && target.data[size] != '?') {
                size++;
            }
            return nd_slice_make(target.data + size, target.size - size);
        }
    }
    return target;
}

static void target_split(struct nd_http_request *request)
{
    struct nd_slice target = without_authority(nd_slice_str(request->target));
    const uint8_t *mark = target.size == 0 ? NULL : memchr(target.data, '?', target.size);
    size_t path_size = mark == NULL ? target.size : (size_t)(mark - target.data);

    request->path = path_size == 0 ? nd_slice_str("/") : nd_slice_make(target.data, path_size);
    request->query = mark == NULL ? nd_slice_make(target.data + target.size, 0)
                                  : nd_slice_make(mark + 1, target.size - path_size - 1);
}

/* Percent-decoded. A NUL could end a name early for whoever takes it as a C string. */
static bool values_decode(struct nd_http_request *request)
{
    for (size_t i = 0; i < request->match.values_count; i++) {
        struct nd_slice bad, *value = &request->values[i];
        if (!nd_percent_decode(request->match.values[i], false, &request->arena, value, &bad)) {
            request->refusal = "bad request: invalid URL escape in the path";
        } else if (memchr(value->data, 0, value->size) != NULL) {
            request->refusal = "bad request: NUL in the path";
        }
    }
    request->refusal_status = 400;
    return request->refusal == NULL;
}

/* /metrics is on one of the two listeners. */
static bool is_elsewhere(const struct nd_http_request *request)
{
    bool metrics = nd_slice_equal(request->path, nd_slice_str("/metrics"));
    bool here = request->conn->loop->metrics_only
                    ? metrics
                    : !metrics || !request->conn->server->metrics_moved;

    return !here;
}

static void route_find(struct nd_http_request *request)
{
    nd_routes_match(request->method, request->path, &request->match);
    if (is_elsewhere(request)) {
        request->match.route = NULL;
        request->match.values_count = 0;
        request->match.allow[0] = '\0';
    }
}

/* There is no room for its body. */
static void refuse_busy(struct nd_http_request *request)
{
    request->refusal = ND_HTTP_NO_ROOM;
    request->refusal_status = 503;
    nd_http_set_header(request, "Retry-After", "1");
}

/* Which bodies are kept, and which answered without being read. True: the handler runs now. */
static bool body_decide(struct nd_http_request *request)
{
    const struct nd_route *route = request->match.route;
    bool kept = route != NULL && route->body_max > 0 &&
                !(route->body_dropped != NULL && route->body_dropped(request->query));

    request->keep = kept ? ND_HTTP_KEEP : ND_HTTP_DROP;
    request->body_total_max = ND_HTTP_DROP_MAX + (kept ? route->body_max : 0);
    if (!kept) {
        return request->declared > ND_HTTP_DROP_MAX;
    }
    nd_buf_init(&request->body, route->body_max);
    request->identity =
        nd_http_room_identity(request->conn->server->room, nd_slice_str(request->conn->peer));
    request->admitted = route->admit == NULL;
    if (request->declared > route->body_max) {
        request->keep = ND_HTTP_EXCEEDS;
        return true;
    }
    return false;
}

/* Goes on to the body, if there is a place for it as things are; none is taken yet. */
static enum MHD_Result body_begin(struct nd_http_request *request)
{
    struct nd_http_server *server = request->conn->server;

    request->stage = ND_HTTP_STAGE_BODY;
    if (request->keep == ND_HTTP_KEEP && request->declared > ND_HTTP_MIB &&
        !nd_http_room_fits(server->room, request->identity, request->declared)) {
        refuse_busy(request);
        return handle_now(request);
    }
    return MHD_YES;
}

/* --- may the caller send a body above 1 MiB? --- */

/* As before it was asked, and with all its time. */
static void read_on(struct nd_http_request *request)
{
    struct nd_http_conn *conn = request->conn;

    nd_list_remove(&conn->rest);
    request->read_deadline_ns = nd_watch_now_ns() + conn->server->options.read_timeout_ms * MS;
    nd_watch_deadline(&conn->watched, request->read_deadline_ns);
    nd_http_reading(conn);
}

static void admitted(struct nd_http_request *request)
{
    atomic_store_explicit(&request->progress, ND_HTTP_RUNNING, memory_order_relaxed);
    request->admitted = true;
    request->close_after = request->chunked;
    read_on(request);
}

/* The body is not kept; the answer goes out if it ends within a mebibyte. */
static void body_give_up(struct nd_http_request *request, enum nd_http_keep why, uint64_t total_max)
{
    request->keep = why;
    request->body_total_max = total_max;
    request->close_after = true;
    body_forget(request);
    room_give(request);
}

/* The word is there. Within the body (`inside`) the library takes no answer before it ends. */
static enum MHD_Result asked(struct nd_http_request *request, bool inside)
{
    if (progress_of(request) == ND_HTTP_ADMITTED) {
        admitted(request);
        return inside ? MHD_YES : body_begin(request);
    }
    if (!inside) {
        request->unread = true;
        return answer_queue(request);
    }
    read_on(request);
    body_give_up(request, ND_HTTP_DROP, request->body_total + ND_HTTP_DROP_MAX);
    return MHD_YES;
}

/* *now_out: the word came at once, and is seen to. */
static enum MHD_Result ask(struct nd_http_request *request, bool inside, bool *now_out)
{
    request->stage = inside ? ND_HTTP_STAGE_ASKED_BODY : ND_HTTP_STAGE_ASKED_HEAD;
    request->close_after = true;
    *now_out = false;
    if (handle(request, request->match.route->admit) != MHD_YES) {
        return MHD_NO;
    }
    if (progress_of(request) == ND_HTTP_RUNNING) {
        park(request);
        return MHD_YES;
    }
    *now_out = true;
    return asked(request, inside);
}

/* For nd_http_stuck_cut. */
static void piece_came(struct nd_http_request *request)
{
    request->piece_ns = nd_watch_now_ns();
    request->piece_step = request->conn->loop->steps;
}

static enum MHD_Result head_handle(struct nd_http_request *request, const char *method,
                                   const char *version)
{
    bool ignored;

    piece_came(request);
    request->stage = ND_HTTP_STAGE_BODY;
    open_count(request->conn->server, 1);
    nd_http_meters_began(request->conn->server->meters);
    target_split(request);
    if (!nd_http_head_read(request, method, version)) {
        return handle_now(request);
    }
    route_find(request);
    if (!values_decode(request) || body_decide(request)) {
        return handle_now(request);
    }
    /* The library forgives bare LFs between chunks, unseen: nothing that follows on the connection
     * may be taken for a request. */
    request->close_after = request->chunked;
    if (request->chunked) {
        nd_list_append(&request->conn->loop->chunked, &request->conn->chunked);
    }
    if (request->keep == ND_HTTP_KEEP && request->declared > ND_HTTP_MIB && !request->admitted) {
        return ask(request, false, &ignored);
    }
    return body_begin(request);
}

/* --- the body --- */

/* The room that `total` bytes need, step by step: who stops sending holds no more than what came,
 * and not for long. */
static bool room_take(struct nd_http_request *request, uint64_t total)
{
    struct nd_http_server *server = request->conn->server;
    uint64_t large = (total + ND_HTTP_MIB - 1) / ND_HTTP_MIB * ND_HTTP_MIB;

    if (total > ND_HTTP_MIB && request->room_taken < large) {
        if (!nd_http_room_take(server->room, request->identity, large - request->room_taken)) {
            return false;
        }
        request->room_taken = large;
        nd_http_budget_give(&server->small, request->small_taken);
        request->small_taken = 0;
        uint64_t step_ns = server->options.read_timeout_ms * MS / ROOM_STEPS_IN_TIME;
        nd_watch_deadline(&request->conn->watched,
                          ND_MIN(request->read_deadline_ns, nd_watch_now_ns() + step_ns));
    }
    if (total <= ND_HTTP_MIB && total > ND_HTTP_SMALL_STEP && request->small_taken < total) {
        uint64_t small = (total + ND_HTTP_SMALL_STEP - 1) / ND_HTTP_SMALL_STEP * ND_HTTP_SMALL_STEP;
        if (!nd_http_budget_take(&server->small, small - request->small_taken)) {
            return false;
        }
        request->small_taken = small;
    }
    return true;
}

/* A body with secrets leaves none behind in memory that it outgrew. */
static void body_grow(struct nd_http_request *request, size_t more)
{
    struct nd_buf *body = &request->body, larger;
    size_t need = body->size + more;

    if (!is_secret(request) || need <= body->capacity) {
        return;
    }
    nd_buf_init(&larger, body->size_max);
    larger.capacity = ND_MIN(ND_MAX(2 * need, (size_t)request->declared), body->size_max);
    larger.data = nd_malloc(larger.capacity);
    if (larger.data == NULL) {
        body->failed = true;
        return;
    }
    nd_buf_put_slice(&larger, nd_buf_slice(body));
    body_forget(request);
    *body = larger;
}

/* A piece of a body that is kept. False: there is no place for it. */
static bool body_put(struct nd_http_request *request, const char *data, size_t size)
{
    if (!room_take(request, request->body.size + size)) {
        return false;
    }
    body_grow(request, size);
    nd_buf_put(&request->body, data, size);
    return !nd_buf_failed(&request->body);
}

/* False: the connection ends; without an answer when enough was read. */
static bool body_take(struct nd_http_request *request, const char *data, size_t size)
{
    request->body_total += size;
    if (request->chunked) {
        piece_came(request);
    }
    request->conn->bytes_seen += size;
    if (request->keep == ND_HTTP_KEEP) {
        if (size <= request->body.size_max - request->body.size) {
            bool good = body_put(request, data, size);
            if (!good) { /* what is left of it may be long: said at once */
                nd_http_answer_past(request->conn, request->mhd, 503, ND_HTTP_NO_ROOM);
            }
            return good;
        }
        body_give_up(request, ND_HTTP_EXCEEDS, request->body_total_max);
    }
    return request->body_total <= request->body_total_max;
}

/* A chunked one that is about to pass 1 MiB. */
static bool must_ask(const struct nd_http_request *request, size_t more)
{
    return request->keep == ND_HTTP_KEEP && !request->admitted &&
           more <= request->body.size_max - request->body.size &&
           request->body.size + more > ND_HTTP_MIB;
}

static enum MHD_Result body_handle(struct nd_http_request *request, const char *data,
                                   size_t *size_io)
{
    if (*size_io > 0 && must_ask(request, *size_io)) {
        bool now;
        if (ask(request, true, &now) != MHD_YES) {
            return MHD_NO;
        }
        if (!now) {
            return MHD_YES; /* this piece comes again */
        }
    }
    request->stage = ND_HTTP_STAGE_BODY;
    if (*size_io > 0) {
        bool more = body_take(request, data, *size_io);
        *size_io = 0;
        return more ? MHD_YES : MHD_NO;
    }
    if (progress_of(request) == ND_HTTP_ANSWERED) {
        return answer_queue(request);
    }
    /* Not yet: a connection that is suspended while it waits to read, reads first when it is
     * resumed, and ends unanswered if its client has closed its half. Asked again, which is at
     * once, it does not wait to read any more. */
    request->stage = ND_HTTP_STAGE_SETTLE;
    return MHD_YES;
}

enum MHD_Result nd_http_called(void *arg, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *data,
                               size_t *size_io, void **request_io)
{
    struct nd_http_request *request = *request_io;

    (void)arg;
    (void)mhd;
    (void)url;
    if (request == NULL) {
        return MHD_NO;
    }
    switch (request->stage) {
    case ND_HTTP_STAGE_HEAD: return head_handle(request, method, version);
    case ND_HTTP_STAGE_ASKED_HEAD: return asked(request, false);
    case ND_HTTP_STAGE_ASKED_BODY:
        (void)asked(request, true);
        return body_handle(request, data, size_io);
    case ND_HTTP_STAGE_BODY: return body_handle(request, data, size_io);
    case ND_HTTP_STAGE_SETTLE: return handle_or_park(request);
    case ND_HTTP_STAGE_ANSWER: return answer_queue(request);
    }
    ND_UNREACHABLE();
}
