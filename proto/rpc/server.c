#include "proto/rpc/server.h"

#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "proto/grpc/health/v1/health.nd.h"
#include "proto/grpc/reflection/v1/reflection.nd.h"
#include "proto/grpc/reflection/v1alpha/reflection.nd.h"
#include "proto/rpc/init.h"
#include "proto/rpc/server_impl.h"
#include "proto/rpc/tls.h"

/* Added by the stack itself, without authentication. */
static const struct nd_rpc_method *const own_methods[] = {
    &nd_rpc_health_check, &nd_rpc_health_watch, &nd_rpc_reflection_v1, &nd_rpc_reflection_v1alpha};

static const struct nd_rpc_file *const own_files[] = {&grpc_health_v1_health_file,
                                                      &grpc_reflection_v1_reflection_file,
                                                      &grpc_reflection_v1alpha_reflection_file};

enum { OWN_METHODS = ND_ARRAY_SIZE(own_methods), OWN_FILES = ND_ARRAY_SIZE(own_files) };
/* For connections to end by themselves after the last call, at a stop. */
enum { GOODBYE_MS = 200 };
/* TLS and the first bytes of HTTP/2. */
enum { HANDSHAKE_TIMEOUT_MS = 10000 };
/* Between two looks at the queues of threads that did not start. */
enum { STEP_NS = 1000000 };

/* --- counting --- */

bool nd_rpc_server_call_begin(struct nd_rpc_server *server)
{
    uint32_t before = atomic_fetch_add_explicit(&server->calls_open, 1, memory_order_relaxed);

    nd_series_add(server->in_flight, 1); /* not set: workers would overtake one another */
    return before < server->options.calls_max;
}

void nd_rpc_server_call_end(struct nd_rpc_server *server)
{
    /* seq_cst with the stop's store of `stopping` and its load of the count: one of both sees it.
     */
    uint32_t before = atomic_fetch_sub(&server->calls_open, 1);

    nd_series_sub(server->in_flight, 1);
    if (before == 1 && atomic_load(&server->stopping)) {
        nd_mutex_lock(&server->lock);
        nd_cond_broadcast(&server->changed);
        nd_mutex_unlock(&server->lock);
    }
}

static struct nd_series *requests_series(struct nd_rpc_server *server, const char *path, int code)
{
    char method[300] = "", labels[320];

    nd_metrics_label(method, sizeof method, "method", path);
    snprintf(labels, sizeof labels, "%s,code=\"%d\"", method, code);
    return nd_metrics_counter(server->options.metrics, "grpc_requests_total", labels,
                              "Finished gRPC calls by method and status code.");
}

void nd_rpc_server_count(struct nd_rpc_server *server, struct nd_rpc_service_method *method,
                         int code, uint64_t duration_ns)
{
    if (server->options.metrics == NULL) {
        return;
    }
    struct nd_series *series = atomic_load_explicit(&method->requests[code], memory_order_acquire);
    if (series == NULL) {
        series =
            requests_series(server, method->desc != NULL ? method->desc->path : "unknown", code);
        atomic_store_explicit(&method->requests[code], series, memory_order_release);
    }
    nd_series_add(series, 1);
    if (method->duration != NULL) {
        nd_series_observe(method->duration, (double)duration_ns / 1e9);
    }
}

static struct nd_series *duration_series(struct nd_rpc_server *server, const char *path)
{
    static const double buckets[] = {.0001, .00025, .0005, .001, .0025, .005, .01, .025,
                                     .05,   .1,     .25,   .5,   1,     2.5,  5,   10};
    char label[300] = "";

    nd_metrics_label(label, sizeof label, "method", path);
    return nd_metrics_histogram(server->options.metrics, "grpc_request_duration_seconds", label,
                                "Time from the request to the end of the call, unary methods.",
                                buckets, ND_ARRAY_SIZE(buckets));
}

/* --- making --- */

static const struct nd_rpc_method_info *file_method(const struct nd_rpc_file *const *files,
                                                    size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t m = 0; m < files[i]->methods_count; m++) {
            if (strcmp(files[i]->methods[m].path, path) == 0) {
                return &files[i]->methods[m];
            }
        }
    }
    return NULL;
}

/* A method that is served otherwise than its .proto says would confuse every client: refused. */
static enum nd_err options_check(const struct nd_rpc_server_options *options, struct nd_errmsg *msg)
{
    for (size_t i = 0; i < options->methods_count; i++) {
        const struct nd_rpc_method *desc = options->methods[i];
        const struct nd_rpc_method_info *info =
            file_method(options->files, options->files_count, desc->path);
        bool request = desc->kind == ND_RPC_UNARY || desc->kind == ND_RPC_SERVER_STREAM;

        if (info != NULL && info->kind != desc->kind) {
            nd_errmsg_set(msg, "method %s is declared with another stream kind", desc->path);
            return ND_ERR_INVALID_ARGUMENT;
        }
        if ((request && desc->on_start == NULL) || (!request && desc->on_message == NULL)) {
            nd_errmsg_set(msg, "method %s has no handler", desc->path);
            return ND_ERR_INVALID_ARGUMENT;
        }
        if (desc->message_bytes_max == 0 || desc->message_bytes_max > options->message_bytes_max) {
            nd_errmsg_set(msg, "method %s: its message limit must be between 1 and the server's",
                          desc->path);
            return ND_ERR_INVALID_ARGUMENT;
        }
    }
    return ND_OK;
}

static void core_new(struct nd_rpc_server *server)
{
    const struct nd_rpc_server_options *options = &server->options;
    struct nd_rpc_args args = {.count = 0};
    grpc_resource_quota *quota = NULL;

    nd_rpc_args_common(&args, options->message_bytes_max, options->keepalive_time_ms,
                       options->keepalive_timeout_ms);
    nd_rpc_args_int(&args, GRPC_ARG_ALLOW_REUSEPORT, 0);
    nd_rpc_args_int(&args, GRPC_ARG_MAX_CONCURRENT_STREAMS, INT32_MAX);
    nd_rpc_args_int(&args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    nd_rpc_args_int(&args, GRPC_ARG_HTTP2_MAX_PING_STRIKES, 100);
    /* Who connects and says nothing is cut. */
    nd_rpc_args_int(&args, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_TIMEOUT_MS);
    if (options->memory_bytes_max > 0) {
        quota = grpc_resource_quota_create("nd_rpc_server");
        grpc_resource_quota_resize(quota, options->memory_bytes_max);
        args.list[args.count].type = GRPC_ARG_POINTER;
        args.list[args.count].key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA;
        args.list[args.count].value.pointer.p = quota;
        args.list[args.count].value.pointer.vtable = grpc_resource_quota_arg_vtable();
        args.count += 1;
    }
    grpc_channel_args list = {args.count, args.list};
    server->core = grpc_server_create(&list, NULL);
    if (quota != NULL) {
        grpc_resource_quota_unref(quota);
    }
    for (uint32_t i = 0; i < options->threads; i++) {
        nd_rpc_worker_init(&server->workers[i], server);
        grpc_server_register_completion_queue(server->core, server->workers[i].queue, NULL);
    }
}

static void method_add(struct nd_rpc_server *server, const struct nd_rpc_method *desc, bool own)
{
    struct nd_rpc_service_method *method = &server->methods[server->methods_count++];
    bool request = desc->kind == ND_RPC_UNARY || desc->kind == ND_RPC_SERVER_STREAM;

    method->desc = desc;
    method->exempt = own;
    method->registered = grpc_server_register_method(
        server->core, desc->path, NULL,
        request ? GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER : GRPC_SRM_PAYLOAD_NONE, 0);
    ND_ASSERT(method->registered != NULL); /* a path given twice */
    if (server->options.metrics != NULL && desc->kind == ND_RPC_UNARY) {
        method->duration = duration_series(server, desc->path);
    }
}

static const struct nd_rpc_file **files_all(const struct nd_rpc_server_options *options)
{
    size_t count = options->files_count;
    const struct nd_rpc_file **files = nd_xcalloc(count + OWN_FILES, sizeof(*files));

    for (size_t i = 0; i < count; i++) {
        files[i] = options->files[i];
    }
    for (size_t i = 0; i < OWN_FILES; i++) {
        files[count + i] = own_files[i];
    }
    return files;
}

enum nd_err nd_rpc_server_new(struct nd_rpc_server **out,
                              const struct nd_rpc_server_options *options, struct nd_errmsg *msg)
{
    struct nd_rpc_reflection *reflection = NULL;
    const struct nd_rpc_file **files = files_all(options);
    size_t files_count = options->files_count + OWN_FILES;
    enum nd_err err = options_check(options, msg);

    if (err == ND_OK) {
        err = nd_rpc_reflection_new(&reflection, files, files_count, msg);
    }
    if (err != ND_OK) {
        nd_free(files);
        return err;
    }
    struct nd_rpc_server *server = nd_xcalloc(1, sizeof *server);
    server->options = *options;
    server->options.threads = ND_MAX(options->threads, 1u);
    server->options.calls_max = options->calls_max == 0 ? UINT32_MAX : options->calls_max;
    server->reflection = reflection;
    server->health = nd_rpc_health_new(files, files_count);
    nd_free(files);
    nd_mutex_init(&server->lock);
    nd_list_init(&server->tls);
    nd_cond_init(&server->changed);
    nd_rpc_init(options->log);
    server->workers = nd_xcalloc(server->options.threads, sizeof *server->workers);
    server->methods = nd_xcalloc(options->methods_count + OWN_METHODS, sizeof *server->methods);
    core_new(server);
    for (size_t i = 0; i < options->methods_count; i++) {
        method_add(server, options->methods[i], false);
    }
    for (size_t i = 0; i < OWN_METHODS; i++) {
        method_add(server, own_methods[i], true);
    }
    if (options->metrics != NULL) {
        server->in_flight = nd_metrics_gauge(options->metrics, "grpc_requests_in_flight", "",
                                             "Open gRPC calls, streams and parked polls included.");
    }
    *out = server;
    return ND_OK;
}

/* --- running --- */

static void worker_arm(struct nd_rpc_worker *worker)
{
    struct nd_rpc_server *server = worker->server;

    for (size_t i = 0; i < server->methods_count; i++) {
        const struct nd_rpc_method *desc = server->methods[i].desc;
        uint32_t usual = desc->kind == ND_RPC_UNARY ? ND_RPC_ARMED_UNARY : ND_RPC_ARMED_STREAM;
        for (uint32_t n = desc->armed > 0 ? desc->armed : usual; n > 0; n--) {
            nd_rpc_call_arm(worker, &server->methods[i]);
        }
    }
    for (uint32_t n = 0; n < ND_RPC_ARMED_UNKNOWN; n++) {
        nd_rpc_call_arm_unknown(worker);
    }
}

enum nd_err nd_rpc_server_start(struct nd_rpc_server *server, struct nd_errmsg *msg)
{
    ND_ASSERT(!server->started);
    grpc_server_start(server->core);
    server->started = true;
    for (uint32_t i = 0; i < server->options.threads; i++) {
        char name[16];
        snprintf(name, sizeof name, "net-%u", i % 1000);
        worker_arm(&server->workers[i]);
        if (!nd_thread_start(&server->workers[i].thread, name, nd_rpc_worker_run,
                             &server->workers[i])) {
            nd_errmsg_set(msg, "cannot start the thread %s", name);
            return ND_ERR_NO_MEMORY;
        }
    }
    server->running = true;
    return ND_OK;
}

grpc_completion_queue *nd_rpc_server_queue_borrow(struct nd_rpc_server *server)
{
    ND_ASSERT(server->started && !server->stopped);
    (void)atomic_fetch_add(&server->borrowers, 1);
    return server->workers[0].queue;
}

void nd_rpc_server_queue_return(struct nd_rpc_server *server)
{
    (void)atomic_fetch_sub(&server->borrowers, 1);
}

void nd_rpc_server_set_serving(struct nd_rpc_server *server, bool serving)
{
    nd_rpc_health_set(server->health, serving);
}

static void on_shutdown(struct nd_rpc_tag *tag, bool ok)
{
    struct nd_rpc_server *server = ND_CONTAINER_OF(tag, struct nd_rpc_server, shutdown_tag);

    (void)ok;
    nd_mutex_lock(&server->lock);
    server->shutdown_done = true;
    nd_cond_broadcast(&server->changed);
    nd_mutex_unlock(&server->lock);
}

static void shutdown_start(struct nd_rpc_server *server)
{
    server->shutdown_tag.run = on_shutdown;
    ND_RPC_TAG_RELEASE(&server->shutdown_tag);
    grpc_server_shutdown_and_notify(server->core, server->workers[0].queue, &server->shutdown_tag);
}

/* Until every handler is done, with `connections` also until the core has closed those, or
 * `deadline_ns`. */
static bool ended_wait(struct nd_rpc_server *server, bool connections, uint64_t deadline_ns)
{
    bool in_time = true;

    nd_mutex_lock(&server->lock);
    while (in_time &&
           ((connections && !server->shutdown_done) || atomic_load(&server->calls_open) > 0)) {
        if (deadline_ns == UINT64_MAX) {
            nd_cond_wait(&server->changed, &server->lock);
        } else {
            in_time = nd_cond_wait_until(&server->changed, &server->lock, deadline_ns);
        }
    }
    nd_mutex_unlock(&server->lock);
    return in_time;
}

void nd_rpc_server_stop(struct nd_rpc_server *server, uint32_t grace_ms)
{
    if (!server->running || server->stopped) {
        return;
    }
    ND_ASSERT(atomic_load(&server->borrowers) == 0); /* their channels are freed first */
    uint64_t deadline_ns = nd_rpc_now_ns() + (uint64_t)grace_ms * 1000000u;
    atomic_store(&server->stopping, true);
    nd_rpc_health_stop(server->health);
    shutdown_start(server);
    /* A client without calls looks at its connection every 5 s only, so it may leave the core's
     * goodbye unanswered for that long: it gets a moment, not the grace. */
    bool quiet = ended_wait(server, false, deadline_ns);
    uint64_t goodbye_ns = nd_rpc_now_ns() + GOODBYE_MS * UINT64_C(1000000);
    if (!quiet || !ended_wait(server, true, ND_MIN(goodbye_ns, deadline_ns))) {
        grpc_server_cancel_all_calls(server->core);
        ended_wait(server, true, UINT64_MAX);
    }
    grpc_server_destroy(server->core);
    server->core = NULL;
    for (uint32_t i = 0; i < server->options.threads; i++) {
        grpc_completion_queue_shutdown(server->workers[i].queue);
        nd_thread_join(&server->workers[i].thread);
    }
    server->stopped = true;
}

/* In the place of the threads that are not there: what was armed comes back, and what was matched
 * before the end is refused. */
static void queues_step(struct nd_rpc_server *server)
{
    for (uint32_t i = 0; i < server->options.threads; i++) {
        const struct nd_rpc_worker *worker = &server->workers[i];
        bool any = !worker->thread.started;
        while (any) {
            any = nd_rpc_event_run(
                grpc_completion_queue_next(worker->queue, gpr_inf_past(GPR_CLOCK_MONOTONIC), NULL));
        }
    }
}

/* It was not started, or not all of its threads were. Its listeners are closed by the core's
 * shutdown only. */
static void never_ran_end(struct nd_rpc_server *server)
{
    atomic_store(&server->stopping, true);
    nd_rpc_health_stop(server->health);
    shutdown_start(server);
    if (server->started) {
        grpc_server_cancel_all_calls(server->core);
    }
    while (!ended_wait(server, true, nd_rpc_now_ns() + STEP_NS)) {
        queues_step(server);
    }
    grpc_server_destroy(server->core);
    for (uint32_t i = 0; i < server->options.threads; i++) {
        struct nd_rpc_worker *worker = &server->workers[i];
        grpc_completion_queue_shutdown(worker->queue);
        if (worker->thread.started) {
            nd_thread_join(&worker->thread);
        }
        while (nd_rpc_queue_step(worker->queue)) {
        }
    }
}

void nd_rpc_server_free(struct nd_rpc_server *server)
{
    if (server == NULL) {
        return;
    }
    ND_ASSERT(!server->running || server->stopped);
    if (!server->stopped) {
        never_ran_end(server);
    }
    for (uint32_t i = 0; i < server->options.threads; i++) {
        nd_rpc_worker_release(&server->workers[i]);
    }
    nd_rpc_health_free(server->health);
    nd_rpc_reflection_free(server->reflection);
    nd_rpc_tls_free_all(server);
    nd_rpc_shutdown(server->options.log);
    nd_cond_release(&server->changed);
    nd_mutex_release(&server->lock);
    nd_free(server->workers);
    nd_free(server->methods);
    nd_free(server);
}
