#include "server/gateway_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/rpc/answer_size.h"

enum { KEEPALIVE_MS = 20000, KEEPALIVE_TIMEOUT_MS = 10000 };

void nd_gateway_options_init(struct nd_gateway_options *out, const struct nd_settings *s)
{
    *out = (struct nd_gateway_options){
        .addr = s->http_addr,
        .threads = (uint32_t)s->gateway_threads,
        .read_timeout_ms = s->http_read_timeout,
        .write_timeout_ms = s->http_write_timeout,
        .idle_timeout_ms = s->http_idle_timeout,
        .shutdown_grace_ms = s->http_shutdown_grace,
        .consume_wait_ms_max = s->http_max_consume_wait,
        .header_bytes_max = s->http_max_header_bytes,
        .connections_max = s->http_max_connections,
        .batch_bytes_in_flight_max = s->http_max_batch_body_bytes_in_flight,
        .consume_in_flight_max = s->http_max_consume_in_flight_per_identity,
        .metrics_addr = s->http_metrics_addr,
        .tls_cert_file = s->http_tls_cert_file,
        .tls_key_file = s->http_tls_key_file,
        .tls_client_ca_file = s->http_tls_client_ca_file,
        .compat_3 = strcmp(s->compat, "3") == 0,
    };
    out->upstream.channel.message_bytes_max = ND_ANSWER_BYTES_MAX;
    out->upstream.channel.keepalive_time_ms = KEEPALIVE_MS;
    out->upstream.channel.keepalive_timeout_ms = KEEPALIVE_TIMEOUT_MS;
}

enum nd_err nd_node_gateway_choose_socket(struct nd_node_gateway *g, const char *data_dir,
                                          struct nd_errmsg *msg)
{
    struct sockaddr_un address;
    const char *base = getenv("TMPDIR");
    int size = snprintf(g->socket, sizeof g->socket, "%s/gateway.sock", data_dir);
    if ((size_t)size < sizeof address.sun_path) {
        return ND_OK;
    }
    size = snprintf(g->dir, sizeof g->dir, "%s/narad-XXXXXX",
                    base == NULL || base[0] == '\0' || strlen(base) > 40 ? "/tmp" : base);
    if ((size_t)size >= sizeof g->dir || mkdtemp(g->dir) == NULL) {
        nd_errmsg_set(msg, "no directory for the gateway's socket: %s: %m", g->dir);
        g->dir[0] = g->socket[0] = '\0';
        return ND_ERR_IO;
    }
    snprintf(g->socket, sizeof g->socket, "%s/s", g->dir);
    return ND_OK;
}

enum nd_err nd_node_gateway_start(struct nd_node_gateway *g, const struct nd_settings *settings,
                                  const char *socket, struct nd_rpc_server *server,
                                  struct nd_metrics *metrics, struct nd_log *log,
                                  struct nd_errmsg *msg)
{
    struct nd_gateway_options options;
    char target[600];
    const char *colon = strrchr(settings->http_addr, ':');
    nd_gateway_options_init(&options, settings);
    snprintf(target, sizeof target, "unix:%s", socket);
    options.upstream.channel.target = target;
    options.upstream.channel.server = server;
    options.upstream.log = log;
    options.metrics = metrics;
    options.log = log;
    snprintf(g->host, sizeof g->host, "%.*s", (int)(colon - settings->http_addr),
             settings->http_addr);
    return nd_gateway_start(&g->gateway, &options, &g->port, msg);
}

void nd_node_gateway_stop(struct nd_node_gateway *g)
{
    nd_gateway_stop(g->gateway);
    g->gateway = NULL;
}

void nd_node_gateway_release(struct nd_node_gateway *g)
{
    if (g->socket[0] != '\0') {
        (void)unlink(g->socket);
    }
    if (g->dir[0] != '\0') {
        (void)rmdir(g->dir);
    }
}

void nd_node_gateway_address(const struct nd_node_gateway *g, char *out, size_t out_size)
{
    bool any =
        g->host[0] == '\0' || strcmp(g->host, "0.0.0.0") == 0 || strcmp(g->host, "[::]") == 0;
    if (g->gateway == NULL) {
        snprintf(out, out_size, "%s", "");
    } else {
        snprintf(out, out_size, "%s:%d", any ? "127.0.0.1" : g->host, g->port);
    }
}
