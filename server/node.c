#include "server/node.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/disk_watch.h"

#include "cluster/metastore.h"
#include "proto/rpc/server.h"
#include "server/addresses.h"
#include "server/broker/broker.h"
#include "server/config_check.h"
#include "server/gateway_setup.h"
#include "server/rpc/handlers.h"
#include "server/rpc/pacer.h"
#include "server/security/auth.h"
#include "server/security/quota.h"
#include "server/topic_relay.h"
#include "server/version.h"
#include "storage/clock.h"
#include "storage/layout.h"
#include "storage/relieve.h"

enum {
    FRAME_BYTES_MAX = 20 << 20,
    STAGED_BYTES_MAX = 96 << 20, /* above the sum of the hard budgets of rpc/handlers.c */
    PRODUCING_BYTES_MAX = 4 << 20,
    METADATA_SEGMENT_BYTES = 1 << 20, /* one that a death left open stays in memory whole */
    SEGMENT_BYTES = 64 << 20,
    SEGMENT_FILES_MAX = 1024,
    SEGMENT_FRAME_BYTES = 256 << 10,
    INDEX_STRIDE_BYTES = 32 << 10,
    FLUSH_BYTES = 4 << 20,
    FLUSH_AGE_MS = 60000,
    LOOK_MS = 60000, /* between two looks at an open partition: retention, eviction */
    WAL_SPARES = 2,
    WAL_SPARES_EXTRA = 4,
    METADATA_BALLAST_BYTES = 32 << 20,
    SYNC_ONE_BY_ONE_MAX = 8,
    COLD_READ_WORKERS = 2,
    CALLS_MAX = 131072,
    RECEIVE_BYTES_MAX = 20 << 20,
    KEEPALIVE_MS = 20000,
    KEEPALIVE_TIMEOUT_MS = 10000,
    TRANSPORT_BYTES_MAX = 512 << 20,
    STOP_CHANGES_WAIT_MS = 5000,
};

struct nd_node {
    struct nd_node_options options;
    const struct nd_settings *settings; /* options.launch's */
    const struct nd_env *env;
    struct nd_metrics *metrics;
    struct nd_layout layout; /* the locked data directory */
    bool locked;
    struct nd_topic_relay relay;
    struct nd_metastore *metastore;
    struct nd_auth *auth;
    struct nd_quotas *quotas;
    struct nd_pacer *pacer; /* NULL: no rate needs one */
    struct nd_recovery recovery;
    struct nd_wal *wal;
    bool wal_running, flusher_running, broker_running, ready;
    uint64_t boot_ns; /* when the start began */
    struct nd_commit_clock *clock;
    struct nd_flusher *flusher;
    struct nd_broker *broker;
    struct nd_handlers *handlers;
    struct nd_rpc_server *rpc;
    bool rpc_running;
    int port;
    char host[256];   /* of grpc.addr */
    char socket[512]; /* "": none */
    struct nd_node_gateway gateway;
};

/* --- boot, in this order --- */

static enum nd_err no_thread(const char *name, struct nd_errmsg *msg)
{
    nd_errmsg_set(
        msg, "cannot start the thread %s: no more threads, or no memory, for this process", name);
    return ND_ERR_NO_MEMORY;
}

static enum nd_err start_metastore(struct nd_node *n, struct nd_errmsg *msg)
{
    char dir[1024];
    snprintf(dir, sizeof dir, "%s/metastore", n->settings->storage_data_dir);
    struct nd_metastore_options options = {
        .dir = dir,
        .env = n->env,
        .node_id = n->settings->cluster_node_id,
        .address = n->settings->cluster_addr,
        .snapshot_threshold = (uint32_t)n->settings->cluster_raft_snapshot_threshold,
        .trailing = (uint32_t)n->settings->cluster_raft_trailing_logs,
        .segment_bytes = METADATA_SEGMENT_BYTES,
        .must_exist = !n->layout.fresh,
        .ballast_bytes = METADATA_BALLAST_BYTES,
        .topic_partitions_max = (uint32_t)n->settings->topic_max_partitions,
        .log = n->options.log,
        .metrics = n->metrics,
        .topic_changed = nd_topic_relay_changed,
        .topic_changed_arg = &n->relay,
    };
    return nd_metastore_open(&n->metastore, &options, msg);
}

/* Also with security off: there may be users, and their passwords are set all the same. */
static enum nd_err start_auth(struct nd_node *n, struct nd_errmsg *msg)
{
    const struct nd_settings *s = n->settings;
    struct nd_auth_options auth = {
        .metastore = n->metastore, .env = n->env, .log = n->options.log, .metrics = n->metrics};
    struct nd_quota_limits limits = {
        .in_flight = {[ND_QUOTA_PRODUCE] = s->http_max_produce_in_flight_per_identity,
                      [ND_QUOTA_CONSUME] = s->http_max_consume_in_flight_per_identity},
        .messages_per_s = {[ND_QUOTA_PRODUCE] = s->limits_produce_messages_per_second,
                           [ND_QUOTA_CONSUME] = s->limits_consume_messages_per_second},
        .bytes_per_s = {[ND_QUOTA_PRODUCE] = s->limits_produce_bytes_per_second},
    };
    n->quotas = nd_quotas_new(&limits, n->env, n->metrics);
    if (s->limits_consume_messages_per_second > 0) {
        n->pacer = nd_pacer_new();
        if (n->pacer == NULL) {
            return no_thread("pacer", msg);
        }
    }
    return nd_auth_new(&n->auth, &auth, msg);
}

static enum nd_level level_of(const char *name)
{
    static const struct {
        const char *name;
        enum nd_level level;
    } levels[] = {{"fastest", ND_LEVEL_FASTEST},
                  {"default", ND_LEVEL_DEFAULT},
                  {"better", ND_LEVEL_BETTER},
                  {"best", ND_LEVEL_BEST}};
    for (size_t i = 0; i < ND_ARRAY_SIZE(levels); i++) {
        if (strcmp(levels[i].name, name) == 0) {
            return levels[i].level;
        }
    }
    ND_UNREACHABLE(); /* the settings table has no others */
}

static struct nd_plog_options plog_options(const struct nd_node *n)
{
    struct nd_plog_options options = {
        .env = n->env,
        .segment_bytes = SEGMENT_BYTES,
        .frame_bytes = SEGMENT_FRAME_BYTES,
        .index_stride_bytes = INDEX_STRIDE_BYTES,
        .files_max = SEGMENT_FILES_MAX,
        .codec = strcmp(n->settings->storage_codec, "none") == 0 ? ND_CODEC_NONE : ND_CODEC_ZSTD,
        .level = level_of(n->settings->storage_compression_level),
        .log = n->options.log,
        .metrics = n->metrics,
    };
    memcpy(options.store_id, n->layout.store_id, sizeof options.store_id);
    return options;
}

/* Open the log and replay it, within the memory that the tails may take (W8). */
static enum nd_err recover(struct nd_node *n, const struct nd_wal_options *options,
                           struct nd_errmsg *msg)
{
    struct nd_plog_options plog = plog_options(n);
    struct nd_relief *relief = nd_relief_new(&plog, n->settings->storage_data_dir);
    struct nd_recovery_options recovery = {
        .env = n->env,
        .data_dir = n->settings->storage_data_dir,
        .tail_bytes_max = (size_t)n->settings->storage_tail_memory_bytes,
        .relieve = nd_relief_flush,
        .relieve_arg = relief,
        .log = n->options.log,
    };
    memcpy(recovery.store_id, n->layout.store_id, sizeof recovery.store_id);
    nd_recovery_init(&n->recovery, &recovery);
    enum nd_err err = nd_wal_open(&n->wal, options, nd_recovery_replay, &n->recovery, msg);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "open the log");
    } else {
        err = nd_recovery_finish(&n->recovery, msg);
        if (err != ND_OK) {
            nd_errmsg_wrap(msg, "recover");
        }
    }
    nd_relief_free(relief);
    n->recovery.options.relieve = NULL;
    return err;
}

static enum nd_err start_wal(struct nd_node *n, struct nd_errmsg *msg)
{
    struct nd_wal_options options = {
        .env = n->env,
        .dir = n->layout.wal_dir,
        .preview = nd_recovery_preview,
        .must_exist = !n->layout.fresh,
        .member = nd_metastore_member(n->metastore),
        .file_bytes = n->settings->storage_wal_file_bytes,
        .frame_bytes_max = FRAME_BYTES_MAX,
        .staged_bytes_max = STAGED_BYTES_MAX,
        .keep_bytes = n->settings->storage_wal_keep_bytes,
        .disk_reserve_bytes = n->settings->storage_disk_reserve_bytes,
        .spares = WAL_SPARES,
        .spares_extra = WAL_SPARES_EXTRA,
        .log = n->options.log,
        .metrics = n->metrics,
    };
    memcpy(options.store_id, n->layout.store_id, sizeof options.store_id);
    enum nd_err err = recover(n, &options, msg);
    if (err != ND_OK) {
        return err;
    }
    err = nd_layout_confirm(&n->layout, msg);
    if (err != ND_OK) {
        return err;
    }
    n->clock = nd_commit_clock_new(n->env, n->recovery.commit_clock_ms, n->options.log, n->metrics);
    n->wal_running = nd_wal_thread_start(n->wal);
    return n->wal_running ? ND_OK : no_thread("wal", msg);
}

static int64_t commit_clock_ms(void *arg)
{
    return nd_commit_clock_now_ms(arg);
}

static enum nd_err make_flusher(struct nd_node *n, struct nd_errmsg *msg)
{
    struct nd_flusher_options options = {
        .plog = plog_options(n),
        .data_dir = n->settings->storage_data_dir,
        .wal = n->wal,
        .commit_clock_ms = commit_clock_ms,
        .commit_clock_arg = n->clock,
        .sync_one_by_one_max = SYNC_ONE_BY_ONE_MAX,
        .log = n->options.log,
        .metrics = n->metrics,
    };
    return nd_flusher_new(&n->flusher, &options, msg);
}

/* One per two cores, unless set. */
static uint32_t threads_of(uint64_t setting)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return setting != 0 ? (uint32_t)setting : (uint32_t)ND_MAX(1, cores / 2);
}

static void confirm_gone(void *arg, const char *topic, uint64_t incarnation,
                         void (*done)(void *done_arg, enum nd_err err, bool gone), void *done_arg)
{
    nd_metastore_confirm_gone(arg, topic, incarnation, done, done_arg);
}

static enum nd_err start_broker(struct nd_node *n, struct nd_errmsg *msg)
{
    struct nd_broker_options options = {
        .env = n->env,
        .data_dir = n->settings->storage_data_dir,
        .wal = n->wal,
        .flusher = n->flusher,
        .clock = n->clock,
        .member = nd_metastore_member(n->metastore),
        .shards = threads_of(n->settings->server_shards),
        .tail_memory_bytes = (size_t)n->settings->storage_tail_memory_bytes,
        .cache_bytes = (size_t)n->settings->storage_cache_bytes,
        .wal_keep_bytes = n->settings->storage_wal_keep_bytes,
        .flush_bytes = FLUSH_BYTES,
        .staged_bytes_max = PRODUCING_BYTES_MAX,
        .flush_age_ms = FLUSH_AGE_MS,
        .look_ms = LOOK_MS,
        .idle_eviction_ms = n->settings->storage_idle_log_eviction_ms,
        .cold_walk_ms = n->settings->storage_cold_retention_walk_ms,
        .workers = COLD_READ_WORKERS,
        .log = n->options.log,
        .metrics = n->metrics,
    };
    enum nd_err err = nd_broker_new(&n->broker, &options, &n->recovery, msg);
    if (err != ND_OK) {
        return err;
    }
    nd_broker_set_confirm_gone(n->broker, confirm_gone, n->metastore);
    /* Not before: until the broker said what it recovered, nothing of the log seems needed. */
    n->flusher_running = nd_flusher_thread_start(n->flusher);
    if (!n->flusher_running) {
        return no_thread("flusher", msg);
    }
    nd_topic_relay_attach(&n->relay, n->broker);
    err = nd_broker_start(n->broker, msg);
    n->broker_running = err == ND_OK;
    return err;
}

/* The socket's path; "" when there is none to make. */
static void choose_socket(struct nd_node *n)
{
    struct sockaddr_un address;
    const char *wanted = n->settings->grpc_socket;
    n->socket[0] = '\0';
    if (strcmp(wanted, "none") == 0) {
        return;
    }
    int size = wanted[0] != '\0' ? snprintf(n->socket, sizeof n->socket, "%s", wanted)
                                 : snprintf(n->socket, sizeof n->socket, "%s/narad.sock",
                                            n->settings->storage_data_dir);
    if ((size_t)size >= sizeof address.sun_path) {
        nd_log(n->options.log, ND_LOG_WARN, "serve", "no Unix socket",
               "reason=the path is longer than %zu bytes", sizeof address.sun_path - 1);
        n->socket[0] = '\0';
    }
}

/* Does nobody have the socket? Only the kernel's word counts: a socket of another kind, or of
 * another user, refuses us in other words. Without blocking: a listener may be busy. */
static bool socket_is_dead(const char *path, struct nd_errmsg *msg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int reason = errno;
    memcpy(address.sun_path, path, ND_MIN(strlen(path), sizeof address.sun_path - 1));
    if (fd >= 0) {
        int result = connect(fd, (const struct sockaddr *)&address, sizeof address);
        reason = result == 0 ? 0 : errno;
        (void)close(fd);
    }
    if (reason == ECONNREFUSED) {
        return true;
    }
    if (reason == 0 || reason == EAGAIN) {
        nd_errmsg_set(msg, "%s: another process listens there", path);
    } else {
        nd_errmsg_set(msg, "%s: a socket that may be in use: %s", path, strerror(reason));
    }
    return false;
}

/* Only a dead socket of an earlier run may lie at the socket's path: it goes. Whatever else is
 * there is somebody's. */
static enum nd_err clear_socket(const char *path, struct nd_errmsg *msg)
{
    struct stat status;
    if (lstat(path, &status) != 0) {
        return ND_OK; /* nothing there; other troubles show when it is made */
    }
    if (!S_ISSOCK(status.st_mode)) {
        nd_errmsg_set(msg, "%s exists and is no socket", path);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (!socket_is_dead(path, msg)) {
        return ND_ERR_INVALID_ARGUMENT;
    }
    (void)unlink(path);
    return ND_OK;
}

/* Only the node's owner may connect: who does may say for whom it asks (access.h). */
static enum nd_err listen_socket(struct nd_node *n, char *path, struct nd_errmsg *msg)
{
    char target[600];
    int port;
    enum nd_err err = clear_socket(path, msg);
    if (err != ND_OK) {
        path[0] = '\0'; /* not ours: the stop leaves it */
    } else {
        snprintf(target, sizeof target, "unix:%s", path);
        mode_t before = umask(077);
        err = nd_rpc_server_listen(n->rpc, target, &port, msg);
        (void)umask(before);
    }
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "grpc.socket");
    }
    return err;
}

/* Empty texts when there is no TLS. */
static struct nd_rpc_tls_files grpc_tls(const struct nd_node *n)
{
    return (struct nd_rpc_tls_files){n->settings->grpc_tls_cert_file,
                                     n->settings->grpc_tls_key_file,
                                     n->settings->grpc_tls_client_ca_file};
}

static struct nd_rpc_tls_files http_tls(const struct nd_node *n)
{
    return (struct nd_rpc_tls_files){n->settings->http_tls_cert_file,
                                     n->settings->http_tls_key_file,
                                     n->settings->http_tls_client_ca_file};
}

/* Before data is touched. */
static enum nd_err check_tls(const struct nd_node *n, struct nd_errmsg *msg)
{
    const struct nd_rpc_tls_files grpc = grpc_tls(n), http = http_tls(n);
    enum nd_err err = nd_rpc_tls_files_check(&grpc, msg);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "grpc.addr");
    } else if (n->settings->gateway_enabled) {
        err = nd_rpc_tls_files_check(&http, msg);
        if (err != ND_OK) {
            nd_errmsg_wrap(msg, "http.addr");
        }
    }
    return err;
}

/* What the gateway has just read; replaced meanwhile, maybe: then the next reload tells. */
static void tell_http_tls(const struct nd_node *n)
{
    const struct nd_rpc_tls_files http = http_tls(n);
    struct nd_errmsg msg = {""};
    nd_ignore(nd_rpc_tls_files_tell(&http, "http", n->options.log, n->metrics, &msg),
              "the gateway could use them");
}

static enum nd_err listen_all(struct nd_node *n, struct nd_errmsg *msg)
{
    const char *address = n->settings->grpc_addr;
    const char *colon = strrchr(address, ':');
    const struct nd_rpc_tls_files tls = grpc_tls(n);
    enum nd_err err = tls.cert_file[0] != '\0'
                          ? nd_rpc_server_listen_tls(n->rpc, address, &tls, &n->port, msg)
                          : nd_rpc_server_listen(n->rpc, address, &n->port, msg);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "grpc.addr");
        return err;
    }
    snprintf(n->host, sizeof n->host, "%.*s", (int)(colon - address), address);
    choose_socket(n);
    if (n->socket[0] != '\0') {
        return listen_socket(n, n->socket, msg);
    }
    if (!n->settings->gateway_enabled) {
        return ND_OK;
    }
    err = nd_node_gateway_choose_socket(&n->gateway, n->settings->storage_data_dir, msg);
    return err != ND_OK ? err : listen_socket(n, n->gateway.socket, msg);
}

static struct nd_handlers_options handlers_options(const struct nd_node *n)
{
    const struct nd_settings *s = n->settings;
    return (struct nd_handlers_options){
        .broker = n->broker,
        .metastore = n->metastore,
        .metrics = n->metrics,
        .log = n->options.log,
        .topic = {.partitions = (uint32_t)s->topic_default_partitions,
                  .partitions_max = (uint32_t)s->topic_max_partitions,
                  .retention_ms = s->topic_default_retention_age_ms,
                  .visibility_timeout_ms = s->topic_default_visibility_timeout_ms,
                  .max_in_flight = (uint32_t)s->topic_default_max_in_flight_per_partition,
                  .max_acked_ahead = (uint32_t)s->topic_default_max_acked_ahead_per_partition},
        .version = nd_version(),
        .dev = n->options.launch->dev,
        .auth = n->auth,
        .quotas = n->quotas,
        .pacer = n->pacer,
        .security = s->security_enabled,
        .metrics_open = s->http_metrics_unauthenticated,
        .reads_need_grant = strcmp(s->compat, "3") == 0,
        .names_differ = strcmp(s->compat, "3") == 0,
        .count_produce = s->http_max_produce_in_flight_per_identity > 0 ||
                         s->limits_produce_messages_per_second > 0 ||
                         s->limits_produce_bytes_per_second > 0,
        .count_consume = s->http_max_consume_in_flight_per_identity > 0 ||
                         s->limits_consume_messages_per_second > 0,
    };
}

static enum nd_err start_rpc(struct nd_node *n, struct nd_errmsg *msg)
{
    const struct nd_settings *s = n->settings;
    struct nd_handlers_options handlers = handlers_options(n);
    n->handlers = nd_handlers_new(&handlers);
    nd_metastore_watch_users(n->metastore, nd_access_users_changed, n->handlers);
    struct nd_rpc_server_options options = {
        .user = n->handlers,
        .authenticate = nd_access_authenticate,
        .threads = threads_of(s->server_net_threads),
        .message_bytes_max = RECEIVE_BYTES_MAX,
        .calls_max = CALLS_MAX,
        .keepalive_time_ms = KEEPALIVE_MS,
        .keepalive_timeout_ms = KEEPALIVE_TIMEOUT_MS,
        .memory_bytes_max = TRANSPORT_BYTES_MAX,
        .log = n->options.log,
        .metrics = n->metrics,
    };
    options.methods = nd_handlers_methods(handlers.dev, &options.methods_count);
    options.files = nd_handlers_files(handlers.dev, &options.files_count);
    enum nd_err err = nd_rpc_server_new(&n->rpc, &options, msg);
    if (err == ND_OK) {
        err = listen_all(n, msg);
    }
    if (err == ND_OK) {
        err = nd_rpc_server_start(n->rpc, msg);
        n->rpc_running = err == ND_OK;
    }
    return err;
}

static enum nd_err check_host(struct nd_node *n, struct nd_errmsg *msg)
{
    enum nd_err err = nd_wall_clock_check(n->env, msg);
    if (err == ND_OK) {
        err = check_tls(n, msg);
    }
    return err != ND_OK ? err : nd_addresses_check(n->settings, msg);
}

static enum nd_err open_layout(struct nd_node *n, struct nd_errmsg *msg)
{
    enum nd_err err = nd_layout_open(&n->layout, n->env, n->settings->storage_data_dir, msg);
    n->locked = err == ND_OK;
    if (n->locked && n->options.launch->ready_file != NULL) {
        (void)unlink(n->options.launch->ready_file); /* of an earlier run */
    }
    return err;
}

static enum nd_err start_gateway(struct nd_node *n, struct nd_errmsg *msg)
{
    const char *socket = n->socket[0] != '\0' ? n->socket : n->gateway.socket;
    if (!n->settings->gateway_enabled) {
        return ND_OK;
    }
    enum nd_err err = nd_node_gateway_start(&n->gateway, n->settings, socket, n->rpc, n->metrics,
                                            n->options.log, msg);
    if (err == ND_OK) {
        tell_http_tls(n);
    }
    return err;
}

static enum nd_err boot(struct nd_node *n, struct nd_errmsg *msg)
{
    static enum nd_err (*const steps[])(struct nd_node *, struct nd_errmsg *) = {
        check_host,   open_layout,  start_metastore, start_auth,   start_wal,
        make_flusher, start_broker, start_rpc,       start_gateway};
    enum nd_err err = ND_OK;
    for (size_t i = 0; err == ND_OK && i < ND_ARRAY_SIZE(steps); i++) {
        msg->text[0] = '\0'; /* what went wrong before, and did not matter */
        err = steps[i](n, msg);
    }
    return err;
}

/* What an operator should know about who can get in. */
static void log_security(const struct nd_node *n)
{
    const struct nd_settings *s = n->settings;
    nd_log(n->options.log, ND_LOG_INFO, "serve",
           s->security_enabled ? "security on" : "security off",
           "compat=%s metrics=%s client_certificates=%s", s->compat,
           s->security_enabled && !s->http_metrics_unauthenticated ? "credentials" : "open",
           s->grpc_tls_client_ca_file[0] != '\0' ? "needed" : "no");
    if (s->security_enabled && s->grpc_tls_cert_file[0] == '\0' &&
        !nd_host_is_loopback(n->host, strlen(n->host))) {
        nd_log(n->options.log, ND_LOG_WARN, "serve", "passwords travel in clear",
               "listener=grpc addr=%s:%d hint=set grpc.tls_cert_file and grpc.tls_key_file",
               n->host[0] == '\0' ? "0.0.0.0" : n->host, n->port);
    }
}

enum nd_err nd_node_start(struct nd_node **out, const struct nd_node_options *options,
                          struct nd_errmsg *msg)
{
    struct nd_node *n = nd_xcalloc(1, sizeof *n);
    n->options = *options;
    n->settings = &options->launch->settings;
    n->env = &options->disk->env;
    n->metrics = nd_metrics_new();
    n->boot_ns = n->env->mono_ns(n->env->impl);
    nd_topic_relay_init(&n->relay);
    enum nd_err err = boot(n, msg);
    if (err != ND_OK) {
        if (msg->text[0] == '\0') {
            nd_errmsg_set(msg, "%s", nd_err_text(err));
        }
        nd_node_stop(n);
        return err;
    }
    nd_log(options->log, ND_LOG_INFO, "serve", "grpc listening",
           "addr=%s:%d tls=%s socket=%s node_id=%s", n->host[0] == '\0' ? "0.0.0.0" : n->host,
           n->port, n->settings->grpc_tls_cert_file[0] != '\0' ? "on" : "off",
           n->socket[0] == '\0' ? "none" : n->socket, n->settings->cluster_node_id);
    log_security(n);
    nd_metastore_when_caught_up(n->metastore, options->inbox, options->caught_up);
    *out = n;
    return ND_OK;
}

/* --- ready --- */

void nd_node_address(const struct nd_node *node, char *out, size_t out_size)
{
    const char *host = node->host;
    bool any = host[0] == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "[::]") == 0;

    snprintf(out, out_size, "%s:%d", any ? "127.0.0.1" : host, node->port);
}

void nd_node_http_address(const struct nd_node *node, char *out, size_t out_size)
{
    nd_node_gateway_address(&node->gateway, out, out_size);
}

static enum nd_err write_ready_file(struct nd_node *n, struct nd_errmsg *msg)
{
    char address[300];
    char http_address[300];
    nd_node_address(n, address, sizeof address);
    nd_node_http_address(n, http_address, sizeof http_address);
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:i, s:s, s:s}", "grpc_addr", address, "grpc_socket", n->socket,
                  "http_addr", http_address, "pid", (int)getpid(), "node_id",
                  nd_metastore_node_id(n->metastore), "data_dir", n->settings->storage_data_dir);
    char *text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (text == NULL) {
        nd_errmsg_set(msg, "ready file: the texts are not UTF-8");
        return ND_ERR_INVALID_ARGUMENT;
    }
    enum nd_err err =
        nd_env_replace_file(n->env, n->options.launch->ready_file, nd_slice_str(text), msg);
    free(text);
    return err;
}

enum nd_err nd_node_ready(struct nd_node *node, struct nd_errmsg *msg)
{
    uint64_t now_ns = node->env->mono_ns(node->env->impl);

    node->ready = true;
    nd_series_set(nd_metrics_gauge(node->metrics, "boot_duration_seconds", "",
                                   "From the start of the boot until the node was ready."),
                  (double)(now_ns - node->boot_ns) / 1e9);
    nd_broker_set_caught_up(node->broker);
    if (node->settings->security_enabled) {
        nd_auth_seed_root(node->auth, node->options.admin_password);
    }
    node->options.admin_password = NULL;
    nd_rpc_server_set_serving(node->rpc, true);
    nd_log(node->options.log, ND_LOG_INFO, "serve", "ready", "node_id=%s topics=%llu",
           nd_metastore_node_id(node->metastore),
           (unsigned long long)nd_metastore_topic_count(node->metastore));
    return node->options.launch->ready_file == NULL ? ND_OK : write_ready_file(node, msg);
}

/* --- reload --- */

static void reload_told(struct nd_node *node, const char *listener, enum nd_err err,
                        const struct nd_errmsg *msg)
{
    if (err != ND_OK) {
        nd_log(node->options.log, ND_LOG_ERROR, "serve", "reload failed, the old certificate stays",
               "listener=%s err=%s", listener, msg->text);
    }
}

void nd_node_reload(struct nd_node *node)
{
    struct nd_errmsg msg = {""};

    nd_log(node->options.log, ND_LOG_INFO, "serve", "reload", "signal=SIGHUP");
    reload_told(node, "grpc", nd_rpc_server_reload_tls(node->rpc, &msg), &msg);
    if (node->gateway.gateway != NULL) {
        enum nd_err err = nd_gateway_reload_tls(node->gateway.gateway, &msg);
        reload_told(node, "http", err, &msg);
        if (err == ND_OK) {
            tell_http_tls(node);
        }
    }
}

/* --- stop, in this order; also of what a failed boot left --- */

/* Calls that wait for the metadata end when it answers, which a disk may prevent. */
static void stop_rpc(struct nd_node *n)
{
    struct nd_disk_call call = {.name = "the end of", .path = "open gRPC calls"};

    nd_disk_watch_begin(n->options.disk, &call);
    nd_rpc_server_stop(n->rpc, (uint32_t)n->settings->http_shutdown_grace);
    nd_disk_watch_end(n->options.disk, &call);
}

static void stop_calls(struct nd_node *n)
{
    if (n->ready && n->options.launch->ready_file != NULL) {
        (void)unlink(n->options.launch->ready_file);
    }
    if (n->rpc_running) {
        nd_rpc_server_set_serving(n->rpc, false);
        nd_node_gateway_stop(&n->gateway); /* while the broker still answers it */
        nd_handlers_stop(n->handlers, STOP_CHANGES_WAIT_MS);
    }
    if (n->auth != NULL) {
        nd_auth_stop(n->auth); /* calls that wait for a password are answered */
    }
    if (n->broker_running) {
        nd_broker_stop(n->broker);
    }
    if (n->rpc_running) {
        stop_rpc(n);
    }
    if (n->rpc != NULL) {
        nd_rpc_server_free(n->rpc);
    }
    if (n->socket[0] != '\0') {
        (void)unlink(n->socket);
    }
    nd_node_gateway_release(&n->gateway);
    if (n->handlers != NULL) {
        nd_metastore_watch_users(n->metastore, NULL, NULL);
    }
    nd_pacer_free(n->pacer);
    nd_handlers_free(n->handlers);
}

static void stop_storage(struct nd_node *n)
{
    nd_topic_relay_detach(&n->relay);
    if (n->flusher_running) {
        nd_flusher_thread_stop(
            n->flusher); /* before the broker lets go of what it needs of the log */
    }
    if (n->broker != NULL) {
        nd_broker_free(n->broker);
    }
    if (n->flusher != NULL) {
        nd_flusher_free(n->flusher);
    }
    if (n->wal_running) {
        nd_wal_thread_stop(n->wal);
    }
    if (n->wal != NULL) {
        nd_wal_close(n->wal);
    }
    if (n->recovery.by_id != NULL) {
        nd_recovery_release(&n->recovery);
    }
    if (n->clock != NULL) {
        nd_commit_clock_free(n->clock);
    }
}

/* Raft's library writes by itself, and its end waits for what it writes. */
static void stop_metastore(struct nd_node *n)
{
    struct nd_disk_call call = {.name = "write below", .path = "metastore/"};

    nd_disk_watch_begin(n->options.disk, &call);
    nd_metastore_close(n->metastore);
    nd_disk_watch_end(n->options.disk, &call);
}

void nd_node_stop(struct nd_node *node)
{
    if (node == NULL) {
        return;
    }
    stop_calls(node);
    stop_storage(node);
    if (node->metastore != NULL) {
        stop_metastore(node);
    }
    nd_auth_free(node->auth);
    nd_quotas_free(node->quotas); /* streams may have held one until the broker let go of them */
    nd_topic_relay_release(&node->relay);
    if (node->locked) {
        nd_layout_close(&node->layout);
    }
    nd_metrics_free(node->metrics);
    nd_log(node->options.log, ND_LOG_INFO, "serve", "stopped", NULL);
    nd_free(node);
}
