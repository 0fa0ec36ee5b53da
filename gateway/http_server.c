#include "gateway/http_server.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "gateway/http_impl.h"
#include "gateway/http_listen.h"

enum {
    THREADS_DEFAULT = 2,
    HEADER_BYTES_DEFAULT = 64 << 10,
    LARGE_BYTES_DEFAULT = 64 << 20,
    SMALL_BYTES_MAX = 256 << 20,
    POOL_EXTRA = 8 << 10, /* of a connection's memory: for what the library makes of a head */
    SWEEP_MS_MIN = 10,
    SWEEP_MS_MAX = 250,
    TRIM_MS = 1000,
    HUNG_UP_MS = 10,
    MS = 1000000,
};

/* A connection on its way from the watch to a loop. */
struct nd_http_arrival {
    struct nd_list link;
    int file;
    struct sockaddr_storage addr;
    socklen_t addr_size;
};

/* --- connections --- */

void nd_http_loop_wake(struct nd_http_loop *loop)
{
    uint64_t one = 1;

    /* Whoever comes first writes. Released to the loop, which lowers it before it looks around. */
    if (!atomic_exchange_explicit(&loop->rung, true, memory_order_acq_rel)) {
        ssize_t done = write(loop->wake, &one, sizeof one);
        (void)done; /* a counter of 64 bits is never full */
    }
}

/* @thread watch */
static void accepted(void *arg, size_t listener, int file, const struct sockaddr_storage *addr,
                     socklen_t addr_size)
{
    struct nd_http_server *server = arg;
    struct nd_http_loop *loop =
        listener == 0 ? &server->loops[server->loops_next] : &server->loops[server->main_loops];
    struct nd_http_arrival *arrival = nd_xcalloc(1, sizeof *arrival);

    if (listener == 0) {
        server->loops_next = (server->loops_next + 1) % server->main_loops;
    }
    arrival->file = file;
    arrival->addr = *addr;
    arrival->addr_size = addr_size;
    nd_mutex_lock(&loop->lock);
    nd_list_append(&loop->arrivals, &arrival->link);
    nd_mutex_unlock(&loop->lock);
    nd_http_loop_wake(loop);
}

/* To be looked at by its loop. */
static void hung_up_list(struct nd_http_conn *conn)
{
    nd_mutex_lock(&conn->loop->lock);
    if (!conn->closing && nd_list_empty(&conn->hung_up)) {
        nd_list_append(&conn->loop->hung_up, &conn->hung_up);
    }
    nd_mutex_unlock(&conn->loop->lock);
}

/* @thread watch */
static void client_hung_up(struct nd_watched *watched)
{
    struct nd_http_conn *conn = ND_CONTAINER_OF(watched, struct nd_http_conn, watched);

    /* relaxed: who misses it finds the connection in the list */
    atomic_store_explicit(&conn->half_closed, true, memory_order_relaxed);
    hung_up_list(conn);
    nd_http_loop_wake(conn->loop);
}

void nd_http_reading(struct nd_http_conn *conn)
{
    conn->reading = true;
    if (atomic_load_explicit(&conn->half_closed, memory_order_relaxed)) {
        hung_up_list(conn);
    }
}

static void conn_freed(struct nd_watched *watched)
{
    nd_free(ND_CONTAINER_OF(watched, struct nd_http_conn, watched));
}

static void conn_started(struct nd_http_loop *loop, struct MHD_Connection *mhd, void **context)
{
    struct nd_http_server *server = loop->server;
    struct nd_http_conn *conn = nd_xcalloc(1, sizeof *conn);
    struct nd_http_arrival *arrival = loop->adding;

    conn->server = server;
    conn->loop = loop;
    conn->linger_file = -1;
    conn->reading = true;
    nd_list_init(&conn->rest);
    nd_list_init(&conn->chunked);
    nd_list_init(&conn->hung_up);
    nd_http_peer_text(&arrival->addr, conn->peer, sizeof conn->peer);
    if (server->tls != NULL && !loop->metrics_only) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        conn->tls = nd_tls_attach(server->tls, info->tls_session);
    }
    /* One that was accepted before the listeners were closed ends with the next sweep. */
    bool draining = atomic_load_explicit(&server->draining, memory_order_acquire);
    nd_watch_add(server->watch, &conn->watched, arrival->file,
                 nd_watch_now_ns() + (draining ? 0 : server->options.read_timeout_ms * MS));
    *context = conn;
    loop->adding = NULL;
}

static void conn_closed(struct nd_http_conn *conn)
{
    int linger_file = conn->linger_file;

    nd_list_remove(&conn->rest);
    nd_mutex_lock(&conn->loop->lock);
    conn->closing = true;
    nd_list_remove(&conn->hung_up);
    nd_mutex_unlock(&conn->loop->lock);
    nd_tls_detach(conn->tls);
    if (linger_file >= 0) {
        atomic_fetch_sub_explicit(&conn->server->lingering, 1, memory_order_relaxed);
    }
    nd_watch_remove(conn->server->watch, &conn->watched, linger_file); /* and frees it */
}

/* Of a request that it refuses twice the library tells no end. Its memory of it is gone already. */
static void request_end(struct nd_http_conn *conn, struct MHD_Connection *mhd)
{
    void *request = conn->request;

    if (request != NULL) {
        conn->request->method = nd_slice_str("");
        nd_http_ended(conn->server, mhd, &request, MHD_REQUEST_TERMINATED_WITH_ERROR);
    }
}

static void conn_notified(void *arg, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        conn_started(arg, mhd, context);
    } else {
        request_end(*context, mhd);
        conn_closed(*context);
        *context = NULL;
    }
}

/* --- a loop --- */

static void arrivals_add(struct nd_http_loop *loop)
{
    struct nd_list mine = ND_LIST_INIT(mine);

    nd_mutex_lock(&loop->lock);
    nd_list_move(&mine, &loop->arrivals);
    nd_mutex_unlock(&loop->lock);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL;) {
        struct nd_http_arrival *arrival = ND_CONTAINER_OF(link, struct nd_http_arrival, link);
        loop->adding = arrival;
        (void)MHD_add_connection(loop->daemon, arrival->file, (struct sockaddr *)&arrival->addr,
                                 arrival->addr_size);
        if (loop->adding != NULL) {
            nd_watch_given_up(loop->server->watch); /* and the library has closed it */
        }
        nd_free(arrival);
    }
}

/* The library misses the end of a stream that came with its last bytes. All that it has read is
 * worked off when this runs: who waits for more from a client that sends no more is cut. */
static void hung_up_cut(struct nd_http_loop *loop, uint64_t now_ns)
{
    if (now_ns - loop->hung_up_looked_ns < (uint64_t)HUNG_UP_MS * MS) {
        return;
    }
    loop->hung_up_looked_ns = now_ns;
    nd_mutex_lock(&loop->lock);
    ND_LIST_FOREACH (&loop->hung_up, link) {
        struct nd_http_conn *conn = ND_CONTAINER_OF(link, struct nd_http_conn, hung_up);
        int unread = 0;
        if (!conn->reading) { /* it will be listed again when it waits for its client */
            conn->looked_at = false;
            nd_list_remove(link);
        } else if (ioctl(conn->watched.file, FIONREAD, &unread) != 0 || unread != 0) {
            conn->looked_at = false;
        } else if (!conn->looked_at) {
            conn->looked_at = true; /* TLS may hold some that is read, but not decoded */
        } else {
            (void)shutdown(conn->watched.file, SHUT_RDWR);
            nd_list_remove(link);
        }
    }
    nd_mutex_unlock(&loop->lock);
}

static bool has_hung_up(struct nd_http_loop *loop)
{
    nd_mutex_lock(&loop->lock);
    bool has = !nd_list_empty(&loop->hung_up);
    nd_mutex_unlock(&loop->lock);
    return has;
}

/* What has to be done without an event, and when again. -1: nothing. */
static int loop_chores(struct nd_http_loop *loop)
{
    int ms = -1;

    if (!nd_list_empty(&loop->resting)) {
        nd_http_trim(loop, nd_watch_now_ns());
        ms = TRIM_MS;
    }
    if (!nd_list_empty(&loop->chunked)) {
        nd_http_stuck_cut(loop, nd_watch_now_ns());
    }
    if (has_hung_up(loop)) {
        hung_up_cut(loop, nd_watch_now_ns());
        ms = HUNG_UP_MS;
    }
    return ms;
}

static void loop_wait(struct nd_http_loop *loop, int epoll, int chores_ms)
{
    struct pollfd files[] = {{.fd = epoll, .events = POLLIN}, {.fd = loop->wake, .events = POLLIN}};
    MHD_UNSIGNED_LONG_LONG ms;
    int timeout = -1;
    uint64_t rings;

    if (MHD_get_timeout(loop->daemon, &ms) == MHD_YES) {
        timeout = (int)ND_MIN(ms, (MHD_UNSIGNED_LONG_LONG)INT32_MAX);
    }
    if (chores_ms >= 0 && (timeout < 0 || timeout > chores_ms)) {
        timeout = chores_ms;
    }
    loop->steps++;
    if (timeout == 0) {
        return;
    }
    int ready = poll(files, 2, timeout);
    loop->slept_step = loop->steps;
    loop->slept_ns = nd_watch_now_ns();
    if (ready > 0 && files[1].revents != 0) {
        ssize_t size = read(loop->wake, &rings, sizeof rings);
        (void)size;
        (void)atomic_exchange_explicit(&loop->rung, false, memory_order_acq_rel);
    }
}

static void loop_run(void *arg)
{
    struct nd_http_loop *loop = arg;
    int epoll = MHD_get_daemon_info(loop->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;

    for (;;) {
        /* Before the arrivals: nothing is accepted any more, so that these are the last. */
        bool stopping = atomic_load_explicit(&loop->stopping, memory_order_acquire);
        arrivals_add(loop);
        (void)MHD_run(loop->daemon);
        if (stopping && MHD_get_daemon_info(loop->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
                                ->num_connections == 0) {
            return;
        }
        loop_wait(loop, epoll, loop_chores(loop));
    }
}

/* What the library says about single connections: a client's doing, as a rule. */
static void __attribute__((format(printf, 2, 0)))
library_said(void *arg, const char *format, va_list values)
{
    struct nd_http_loop *loop = arg;
    char text[256], quoted[512];

    (void)vsnprintf(text, sizeof text, format, values);
    text[strcspn(text, "\n")] = '\0';
    nd_log(loop->server->options.log, ND_LOG_DEBUG, "gateway", "libmicrohttpd", "text=%s",
           nd_log_quote(quoted, sizeof quoted, text));
}

static struct MHD_Daemon *daemon_start(struct nd_http_loop *loop)
{
    struct nd_http_server *server = loop->server;
    bool tls = server->tls != NULL && !loop->metrics_only;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG | (tls ? (unsigned)MHD_USE_TLS : 0u);
    struct MHD_OptionItem secure[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)ND_TLS_PRIORITIES},
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, nd_tls_unused_callback()},
        {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};

    return MHD_start_daemon(
        flags, 0, NULL, NULL, nd_http_called, server, /* */
        MHD_OPTION_EXTERNAL_LOGGER, library_said, loop, MHD_OPTION_URI_LOG_CALLBACK, nd_http_began,
        server, MHD_OPTION_NOTIFY_COMPLETED, nd_http_ended, server, MHD_OPTION_NOTIFY_CONNECTION,
        conn_notified, loop, MHD_OPTION_CONNECTION_MEMORY_LIMIT, server->pool_size,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)INT32_MAX, /* the watch counts them */
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,             /* blocked in all our threads */
        MHD_OPTION_ARRAY, tls ? secure : plain, MHD_OPTION_END);
}

static enum nd_err loop_start(struct nd_http_loop *loop, struct nd_errmsg *msg)
{
    char name[16];

    nd_mutex_init(&loop->lock);
    nd_list_init(&loop->arrivals);
    nd_list_init(&loop->resting);
    nd_list_init(&loop->hung_up);
    nd_list_init(&loop->chunked);
    loop->slept_ns = nd_watch_now_ns();
    loop->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    loop->daemon = loop->wake < 0 ? NULL : daemon_start(loop);
    if (loop->daemon == NULL) {
        nd_errmsg_set(msg, "HTTP: libmicrohttpd does not start");
        return ND_ERR_IO;
    }
    snprintf(name, sizeof name, "http-%zu", (size_t)(loop - loop->server->loops));
    if (!nd_thread_start(&loop->thread, name, loop_run, loop)) {
        nd_errmsg_set(msg, "HTTP: no thread");
        return ND_ERR_IO;
    }
    return ND_OK;
}

/* Returns when the last connection is gone. */
static void loop_join(struct nd_http_loop *loop)
{
    atomic_store_explicit(&loop->stopping, true, memory_order_release);
    if (loop->wake >= 0) {
        nd_http_loop_wake(loop);
    }
    nd_thread_join(&loop->thread);
}

static void loop_free(struct nd_http_loop *loop)
{
    if (loop->daemon != NULL) {
        MHD_stop_daemon(loop->daemon);
    }
    if (loop->wake >= 0) {
        close(loop->wake);
    }
    nd_mutex_release(&loop->lock);
}

/* --- start --- */

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value == 0 ? otherwise : value;
}

/* Half of the descriptors at most: the other half is the storage's. */
static uint64_t connections_max(uint64_t wanted)
{
    struct rlimit limit = {.rlim_cur = 1024};

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return ND_MIN(or_default(wanted, UINT64_MAX), (uint64_t)limit.rlim_cur / 2);
}

static uint64_t largest_body(void)
{
    uint64_t largest = 0;

    for (size_t i = 0; i < nd_routes_count; i++) {
        largest = ND_MAX(largest, (uint64_t)nd_routes_table[i].body_max);
    }
    return largest;
}

static void options_settle(struct nd_http_server *server, const struct nd_http_server_options *from)
{
    struct nd_http_server_options *options = &server->options;

    *options = *from;
    options->threads = from->threads == 0 ? THREADS_DEFAULT : from->threads;
    options->read_timeout_ms = or_default(from->read_timeout_ms, 10000);
    options->write_timeout_ms = or_default(from->write_timeout_ms, 30000);
    options->idle_timeout_ms = or_default(from->idle_timeout_ms, 60000);
    options->header_bytes_max = or_default(from->header_bytes_max, HEADER_BYTES_DEFAULT);
    options->connections_max = connections_max(from->connections_max);
    server->room =
        nd_http_room_new(or_default(from->large_bytes_max, LARGE_BYTES_DEFAULT), largest_body());
    server->small.max = SMALL_BYTES_MAX;
    server->pool_size = (size_t)options->header_bytes_max + POOL_EXTRA;
    server->trims = strcmp(MHD_get_version(), "0.9.75") == 0;
    server->metrics_moved = from->metrics_addr != NULL && from->metrics_addr[0] != '\0';
    server->main_loops = options->threads;
    server->loops_count = options->threads + (server->metrics_moved ? 1 : 0);
}

static enum nd_err listeners_open(struct nd_http_server *server, int *port_out,
                                  struct nd_errmsg *msg)
{
    int file = -1;
    enum nd_err err = nd_http_listen(server->options.addr, &file, port_out, msg);

    if (err != ND_OK) {
        return err;
    }
    nd_watch_listen(server->watch, file, server->tls == NULL);
    if (server->metrics_moved) {
        err = nd_http_listen(server->options.metrics_addr, &file, &server->metrics_port, msg);
        if (err == ND_OK) {
            nd_watch_listen(server->watch, file, true);
        }
    }
    return err;
}

static enum nd_err tls_start(struct nd_http_server *server, struct nd_errmsg *msg)
{
    const struct nd_http_server_options *options = &server->options;

    if (options->tls_cert_file == NULL || options->tls_cert_file[0] == '\0') {
        return ND_OK;
    }
    return nd_tls_new(&server->tls, options->tls_cert_file,
                      options->tls_key_file == NULL ? "" : options->tls_key_file,
                      options->tls_client_ca_file, msg);
}

static enum nd_err watch_start(struct nd_http_server *server, struct nd_errmsg *msg)
{
    const struct nd_http_server_options *options = &server->options;
    uint64_t shortest = ND_MIN(options->read_timeout_ms,
                               ND_MIN(options->write_timeout_ms, options->idle_timeout_ms));
    struct nd_watch_options watch = {
        .accepted = accepted,
        .hung_up = client_hung_up,
        .freed = conn_freed,
        .arg = server,
        .connections_max = options->connections_max,
        .sweep_ms = ND_MAX(ND_MIN(shortest / 4, (uint64_t)SWEEP_MS_MAX), (uint64_t)SWEEP_MS_MIN),
        .metrics = options->metrics,
        .log = options->log,
    };

    return nd_watch_start(&server->watch, &watch, msg);
}

static enum nd_err server_start(struct nd_http_server *server, int *port_out, struct nd_errmsg *msg)
{
    enum nd_err err = tls_start(server, msg);

    if (err == ND_OK) {
        err = watch_start(server, msg);
    }
    if (err == ND_OK) {
        err = listeners_open(server, port_out, msg);
    }
    for (size_t i = 0; err == ND_OK && i < server->loops_count; i++) {
        struct nd_http_loop *loop = &server->loops[i];
        loop->server = server;
        loop->metrics_only = i >= server->main_loops;
        err = loop_start(loop, msg);
    }
    if (err == ND_OK && !nd_watch_run(server->watch)) {
        nd_errmsg_set(msg, "HTTP: no thread");
        err = ND_ERR_IO;
    }
    return err;
}

enum nd_err nd_http_server_start(struct nd_http_server **out,
                                 const struct nd_http_server_options *options, int *port_out,
                                 struct nd_errmsg *msg)
{
    struct nd_http_server *server = nd_xcalloc(1, sizeof *server);

    options_settle(server, options);
    nd_mutex_init(&server->lock);
    nd_cond_init(&server->changed);
    server->loops = nd_xcalloc(server->loops_count, sizeof *server->loops);
    for (size_t i = 0; i < server->loops_count; i++) {
        server->loops[i].wake = -1;
    }
    server->meters = nd_http_meters_new(options->metrics);
    enum nd_err err = server_start(server, port_out, msg);
    if (err != ND_OK) {
        nd_http_server_stop(server);
        return err;
    }
    *out = server;
    return ND_OK;
}

int nd_http_server_metrics_port(const struct nd_http_server *server)
{
    return server->metrics_port;
}

enum nd_err nd_http_server_reload_tls(struct nd_http_server *server, struct nd_errmsg *msg)
{
    return server->tls == NULL ? ND_OK : nd_tls_reload(server->tls, msg);
}

/* --- stop --- */

void nd_http_server_drain(struct nd_http_server *server)
{
    atomic_store_explicit(&server->draining, true, memory_order_release);
    nd_watch_close_listeners(server->watch);
    nd_watch_cut(server->watch, true);
}

bool nd_http_server_wait(struct nd_http_server *server, uint64_t ms)
{
    uint64_t deadline = nd_watch_now_ns() + ms * MS;
    bool good = true;

    nd_mutex_lock(&server->lock);
    while (good && atomic_load(&server->open) > 0) {
        good = nd_cond_wait_until(&server->changed, &server->lock, deadline);
    }
    nd_mutex_unlock(&server->lock);
    atomic_store(&server->refusing, true);
    while (atomic_load(&server->running) > 0) {
        sched_yield(); /* handlers do not wait */
    }
    return good;
}

void nd_http_server_stop(struct nd_http_server *server)
{
    if (server == NULL) {
        return;
    }
    atomic_store(&server->refusing, true);
    if (server->watch != NULL) {
        atomic_store_explicit(&server->draining, true, memory_order_release);
        nd_watch_close_listeners(server->watch);
        nd_watch_cut(server->watch, false);
    }
    for (size_t i = 0; i < server->loops_count && server->loops[i].server != NULL; i++) {
        loop_join(&server->loops[i]);
    }
    while (atomic_load_explicit(&server->answering, memory_order_acquire) > 0) {
        sched_yield(); /* their last steps, in which nothing waits */
    }
    for (size_t i = 0; i < server->loops_count && server->loops[i].server != NULL; i++) {
        loop_free(&server->loops[i]);
    }
    if (server->watch != NULL) {
        nd_watch_stop(server->watch);
    }
    nd_tls_free(server->tls);
    nd_http_meters_free(server->meters);
    nd_http_room_free(server->room);
    nd_free(server->loops);
    nd_cond_release(&server->changed);
    nd_mutex_release(&server->lock);
    nd_free(server);
}
