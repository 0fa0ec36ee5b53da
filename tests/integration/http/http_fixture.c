/* The gateway's HTTP server with handlers of the test: test_http_raw.py speaks raw bytes to it.
 *
 *   http_fixture NAME=VALUE...    the members of struct nd_http_server_options
 *
 * Prints its port and that of metrics_addr, then obeys standard input: drain, wait, reload, eat;
 * at its end it stops. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/crc32c.h"
#include "storage/base/list.h"
#include "storage/base/thread.h"

#include "gateway/http_server.h"
#include "gateway/payload.h"
#include "gateway/routes.h"

enum { MIB = 1 << 20, BIG = 8 << 20 };

static struct nd_metrics *metrics;

/* --- requests that wait: for a release by name, or for the other thread --- */

struct waiting {
    struct nd_list link;
    struct nd_http_request *request;
    char name[64];
    bool asks; /* it is to be admitted rather than answered; its memory is its own */
};

static struct {
    struct nd_mutex lock;
    struct nd_cond changed;
    struct nd_list parked, handed, asking; /* guarded by lock */
    unsigned gone;                         /* guarded by lock */
    bool stopping;                         /* guarded by lock */
    struct nd_thread thread;
} state;

static void answer_number(struct nd_http_request *request, int status, uint64_t number)
{
    struct nd_buf body;

    nd_buf_init(&body, 100);
    nd_buf_printf(&body, "%llu\n", (unsigned long long)number);
    nd_http_answer(request, status, "application/json", &body);
}

static void other_thread(void *arg)
{
    struct nd_list *link;

    (void)arg;
    nd_mutex_lock(&state.lock);
    while (!state.stopping || !nd_list_empty(&state.handed)) {
        if ((link = nd_list_pop(&state.handed)) == NULL) {
            nd_cond_wait(&state.changed, &state.lock);
            continue;
        }
        struct waiting *waiting = ND_CONTAINER_OF(link, struct waiting, link);
        struct nd_http_request *request = waiting->request;
        nd_mutex_unlock(&state.lock);
        if (waiting->asks) {
            nd_free(waiting);
            nd_http_admit(request, nd_http_authorization(request));
        } else {
            answer_number(request, 200, nd_http_body_bytes(request).size);
        }
        nd_mutex_lock(&state.lock);
    }
    nd_mutex_unlock(&state.lock);
}

/* Whoever takes it out of the list answers it. */
static void client_gone(void *arg)
{
    struct waiting *waiting = arg;

    nd_mutex_lock(&state.lock);
    bool mine = waiting->name[0] != '\0';
    if (mine) {
        waiting->name[0] = '\0';
        nd_list_remove(&waiting->link);
        state.gone++;
    }
    nd_mutex_unlock(&state.lock);
    if (mine) {
        nd_http_answer(waiting->request, 204, NULL, NULL);
    }
}

static struct waiting *waiting_new(struct nd_http_request *request)
{
    struct waiting *waiting = nd_http_memory(request, sizeof *waiting);

    waiting->request = request;
    nd_list_init(&waiting->link);
    return waiting;
}

static void handle_park(struct nd_http_request *request)
{
    struct waiting *waiting = waiting_new(request);
    struct nd_slice name = nd_http_path_value(request, 0);

    memcpy(waiting->name, name.data, ND_MIN(name.size, sizeof waiting->name - 1));
    /* In this order: a release may answer as soon as it finds the request. */
    nd_http_on_gone(request, client_gone, waiting);
    nd_mutex_lock(&state.lock);
    if (waiting->name[0] != '\0') {
        nd_list_append(&state.parked, &waiting->link);
    }
    nd_mutex_unlock(&state.lock);
}

static void release(struct nd_slice name, uint64_t *count_out)
{
    struct nd_list mine = ND_LIST_INIT(mine);

    nd_mutex_lock(&state.lock);
    ND_LIST_FOREACH (&state.parked, link) {
        struct waiting *waiting = ND_CONTAINER_OF(link, struct waiting, link);
        if (name.data == NULL || nd_slice_equal(nd_slice_str(waiting->name), name)) {
            waiting->name[0] = '\0';
            nd_list_remove(&waiting->link);
            nd_list_append(&mine, &waiting->link);
        }
    }
    nd_mutex_unlock(&state.lock);
    *count_out = 0;
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL; *count_out += 1) {
        struct waiting *waiting = ND_CONTAINER_OF(link, struct waiting, link);
        answer_number(waiting->request, 200, *count_out);
    }
}

static void handle_release(struct nd_http_request *request)
{
    uint64_t count;

    release(nd_http_path_value(request, 0), &count);
    answer_number(request, 200, count);
}

static void handle_counts(struct nd_http_request *request)
{
    struct nd_buf body;
    unsigned parked = 0, asking = 0;

    nd_buf_init(&body, 1000);
    nd_mutex_lock(&state.lock);
    ND_LIST_FOREACH (&state.parked, link) {
        parked++;
    }
    ND_LIST_FOREACH (&state.asking, link) {
        asking++;
    }
    nd_buf_printf(&body, "{\"parked\":%u,\"gone\":%u,\"asking\":%u}\n", parked, state.gone, asking);
    nd_mutex_unlock(&state.lock);
    nd_http_answer(request, 200, "application/json", &body);
}

static void handle_async(struct nd_http_request *request)
{
    struct waiting *waiting = waiting_new(request);

    nd_mutex_lock(&state.lock);
    nd_list_append(&state.handed, &waiting->link);
    nd_cond_signal(&state.changed);
    nd_mutex_unlock(&state.lock);
}

/* --- may it send a large body? --- */

static bool is_who(struct nd_slice who, const char *kind)
{
    return who.size >= strlen(kind) && memcmp(who.data, kind, strlen(kind)) == 0;
}

static void hand(struct nd_list *list, struct nd_http_request *request)
{
    struct waiting *waiting = nd_xcalloc(1, sizeof *waiting);

    waiting->request = request;
    waiting->asks = true;
    nd_mutex_lock(&state.lock);
    nd_list_append(list, &waiting->link);
    nd_cond_signal(&state.changed);
    nd_mutex_unlock(&state.lock);
}

/* By the Authorization header: "now...", "later..." (from another thread), "ask..." (as
 * /v1/decide says), else no. */
static void admit(struct nd_http_request *request)
{
    struct nd_slice who = nd_http_authorization(request);

    if (is_who(who, "now")) {
        nd_http_admit(request, who);
    } else if (is_who(who, "later")) {
        hand(&state.handed, request);
    } else if (is_who(who, "ask")) {
        hand(&state.asking, request);
    } else {
        nd_http_set_header(request, "WWW-Authenticate", "Basic realm=\"narad\"");
        nd_http_answer_error(request, 401, "authentication required");
    }
}

static uint64_t decide(bool yes)
{
    struct nd_list mine = ND_LIST_INIT(mine);
    uint64_t count = 0;

    nd_mutex_lock(&state.lock);
    nd_list_move(&mine, &state.asking);
    nd_mutex_unlock(&state.lock);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL; count++) {
        struct waiting *waiting = ND_CONTAINER_OF(link, struct waiting, link);
        struct nd_http_request *request = waiting->request;
        nd_free(waiting);
        if (yes) {
            nd_http_admit(request, nd_http_authorization(request));
        } else {
            nd_http_answer_error(request, 403, "not allowed");
        }
    }
    return count;
}

static void handle_decide(struct nd_http_request *request)
{
    bool yes = nd_slice_equal(nd_http_path_value(request, 0), nd_slice_str("yes"));

    answer_number(request, 200, decide(yes));
}

/* --- the rest --- */

static void handle_echo(struct nd_http_request *request)
{
    struct nd_slice body = nd_http_body_bytes(request);
    struct nd_buf answer;

    if (nd_http_body_state(request) == ND_HTTP_BODY_TOO_LARGE) {
        nd_http_answer_error(request, 413, "request body too large");
        return;
    }
    nd_buf_init(&answer, 1000);
    nd_buf_printf(&answer, "{\"size\":%zu,\"crc\":%u}\n", body.size,
                  nd_crc32c(0, body.data, body.size));
    nd_http_answer(request, 200, "application/json", &answer);
}

static void handle_drop(struct nd_http_request *request)
{
    nd_http_answer(request, 204, NULL, NULL);
}

static void handle_accept(struct nd_http_request *request)
{
    nd_http_answer(request, 202, NULL, NULL);
}

static void header_put(void *arg, struct nd_slice name, struct nd_slice value)
{
    nd_buf_put_text(arg, ",");
    nd_json_put_string(arg, name);
    nd_buf_put_text(arg, ",");
    nd_json_put_string(arg, value);
}

/* What the request was read as. */
static void handle_show(struct nd_http_request *request)
{
    struct nd_buf body;

    nd_buf_init(&body, MIB);
    nd_buf_put_text(&body, "[");
    nd_json_put_string(&body, nd_http_method(request));
    nd_buf_put_text(&body, ",");
    nd_json_put_string(&body, nd_http_path_value(request, 0));
    nd_buf_put_text(&body, ",");
    nd_json_put_string(&body, nd_http_query(request));
    nd_buf_put_text(&body, ",");
    nd_json_put_string(&body, nd_slice_str(nd_http_peer(request)));
    nd_http_headers(request, "x-", header_put, &body);
    nd_buf_put_text(&body, "]\n");
    nd_http_answer(request, 200, "application/json", &body);
}

static void handle_error(struct nd_http_request *request)
{
    nd_http_answer_error(request, 400, "not \"good\"\n\x01\xff");
}

static void handle_big(struct nd_http_request *request)
{
    struct nd_buf body;

    nd_buf_init(&body, BIG);
    for (size_t i = 0; i < BIG / 8; i++) {
        nd_buf_put_u64(&body, i);
    }
    nd_http_answer(request, 200, "application/octet-stream", &body);
}

static void handle_healthz(struct nd_http_request *request)
{
    struct nd_buf body;

    nd_buf_init(&body, 100);
    nd_buf_put_text(&body, "{\"status\":\"ok\"}\n");
    nd_http_answer(request, 200, "application/json", &body);
}

static void handle_metrics(struct nd_http_request *request)
{
    struct nd_buf body;

    nd_buf_init(&body, 16 * MIB);
    nd_metrics_text(metrics, &body);
    nd_http_answer(request, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

void nd_handle_none(struct nd_http_request *request, const char *allow)
{
    if (nd_http_authorization(request).data == NULL) {
        nd_http_set_header(request, "WWW-Authenticate", "Basic realm=\"narad\"");
        nd_http_answer_error(request, 401, "authentication required");
    } else {
        nd_http_answer_none(request, allow);
    }
}

static bool query_drops(struct nd_slice query)
{
    return nd_slice_equal(query, nd_slice_str("drop"));
}

const struct nd_route nd_routes_table[] = {
    {"POST", "/v1/echo", MIB, .handle = handle_echo, .body_dropped = query_drops},
    {"POST", "/v1/batch", 16 * MIB, .handle = handle_echo},
    {"POST", "/v1/guarded", 16 * MIB, .handle = handle_echo, .admit = admit},
    {"POST", "/v1/decide/{word}", 0, .handle = handle_decide},
    {"POST", "/v1/small", 64 << 10, .handle = handle_echo, .secret = true},
    {"POST", "/v1/drop", 0, .handle = handle_drop},
    {"POST", "/v1/accept", MIB, .handle = handle_accept},
    {"POST", "/v1/async", MIB, .handle = handle_async},
    {"GET", "/v1/show/{name}", 0, .handle = handle_show},
    {"POST", "/v1/show/{name}", 0, .handle = handle_show},
    {"GET", "/v1/error", 0, .handle = handle_error},
    {"GET", "/v1/big", 0, .handle = handle_big},
    {"GET", "/v1/park/{name}", 0, .handle = handle_park, .head_refused = true},
    {"POST", "/v1/release/{name}", 0, .handle = handle_release},
    {"GET", "/v1/counts", 0, .handle = handle_counts},
    {"GET", "/healthz", 0, .handle = handle_healthz},
    {"GET", "/metrics", 0, .handle = handle_metrics},
};
const size_t nd_routes_count = ND_ARRAY_SIZE(nd_routes_table);

/* --- the program --- */

static bool option_set(struct nd_http_server_options *options, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *number;
        const char **text;
    } members[] = {
        {"read_timeout_ms", &options->read_timeout_ms, NULL},
        {"write_timeout_ms", &options->write_timeout_ms, NULL},
        {"idle_timeout_ms", &options->idle_timeout_ms, NULL},
        {"header_bytes_max", &options->header_bytes_max, NULL},
        {"connections_max", &options->connections_max, NULL},
        {"large_bytes_max", &options->large_bytes_max, NULL},
        {"addr", NULL, &options->addr},
        {"metrics_addr", NULL, &options->metrics_addr},
        {"tls_cert_file", NULL, &options->tls_cert_file},
        {"tls_key_file", NULL, &options->tls_key_file},
        {"tls_client_ca_file", NULL, &options->tls_client_ca_file},
    };

    for (size_t i = 0; i < ND_ARRAY_SIZE(members); i++) {
        if (strcmp(name, members[i].name) == 0) {
            if (members[i].number != NULL) {
                *members[i].number = strtoull(value, NULL, 10);
            } else {
                *members[i].text = value;
            }
            return true;
        }
    }
    return false;
}

static void obey(struct nd_http_server *server)
{
    char line[64];
    struct nd_errmsg msg;

    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "drain") == 0) {
            nd_http_server_drain(server);
            printf("drained\n");
        } else if (strncmp(line, "wait ", 5) == 0) {
            printf("%s\n",
                   nd_http_server_wait(server, strtoull(line + 5, NULL, 10)) ? "empty" : "open");
        } else if (strncmp(line, "eat ", 4) == 0) { /* descriptors, as a storage may */
            for (unsigned long left = strtoul(line + 4, NULL, 10); left > 0; left--) {
                ND_ASSERT(dup(0) >= 0);
            }
            printf("eaten\n");
        } else if (strcmp(line, "reload") == 0) {
            printf("%s\n", nd_http_server_reload_tls(server, &msg) == ND_OK ? "ok" : msg.text);
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct nd_http_server_options options = {.addr = "127.0.0.1:0", .threads = 2};
    struct nd_http_server *server;
    struct nd_errmsg msg;
    uint64_t ignored;
    int port;

    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        ND_ASSERT(equals != NULL);
        *equals = '\0';
        ND_ASSERT(option_set(&options, argv[i], equals + 1));
    }
    nd_mutex_init(&state.lock);
    nd_cond_init(&state.changed);
    nd_list_init(&state.parked);
    nd_list_init(&state.handed);
    nd_list_init(&state.asking);
    options.metrics = metrics = nd_metrics_new();
    options.log = nd_log_new(2, ND_LOG_INFO, ND_LOG_TEXT);
    ND_ASSERT(nd_thread_start(&state.thread, "other", other_thread, NULL));
    if (nd_http_server_start(&server, &options, &port, &msg) != ND_OK) {
        fprintf(stderr, "%s\n", msg.text);
        return 1;
    }
    printf("%d %d\n", port, nd_http_server_metrics_port(server));
    fflush(stdout);
    obey(server);
    nd_http_server_drain(server);
    (void)nd_http_server_wait(server, 100);
    release(nd_slice_make(NULL, 0), &ignored); /* what still waits is answered */
    (void)decide(false);
    nd_http_server_stop(server);
    nd_mutex_lock(&state.lock);
    state.stopping = true;
    nd_cond_signal(&state.changed);
    nd_mutex_unlock(&state.lock);
    nd_thread_join(&state.thread);
    nd_cond_release(&state.changed);
    nd_mutex_release(&state.lock);
    nd_metrics_free(metrics);
    nd_log_free(options.log);
    printf("stopped\n");
    return 0;
}
