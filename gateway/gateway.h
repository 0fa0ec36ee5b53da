/* The HTTP gateway, in the node's process or alone. */
#ifndef ND_GATEWAY_H
#define ND_GATEWAY_H

#include "storage/base/log.h"
#include "storage/base/metrics.h"

#include "gateway/http.h"
#include "gateway/upstream.h"

struct nd_gateway_options {
    const char *addr; /* ":7942"; port 0 takes any free one */
    uint32_t threads; /* libmicrohttpd's */
    uint64_t read_timeout_ms, write_timeout_ms, idle_timeout_ms, shutdown_grace_ms;
    uint64_t consume_wait_ms_max; /* http.max_consume_wait; 0: 30 s */
    uint64_t header_bytes_max, connections_max, batch_bytes_in_flight_max;
    uint64_t consume_in_flight_max; /* of a client without credentials, by address; 0: none */
    const char *metrics_addr;       /* "": /metrics on `addr` */
    const char *tls_cert_file, *tls_key_file, *tls_client_ca_file; /* "": plain */
    bool compat_3;
    struct nd_upstream_options upstream;
    struct nd_metrics *metrics;
    /* Alone: what it counts is appended to what the broker tells. In the node's process both count
     * in one place. */
    bool own_metrics;
    struct nd_log *log;
};

ND_CHECKED enum nd_err nd_gateway_start(struct nd_gateway **out,
                                        const struct nd_gateway_options *options, int *port_out,
                                        struct nd_errmsg *msg);
/* /healthz 503 from here on; polls that wait are answered 204; no new connections. @thread main */
void nd_gateway_drain(struct nd_gateway *gateway);
/* Waits for open requests, shutdown_grace_ms at most; frees. @thread main */
void nd_gateway_stop(struct nd_gateway *gateway);
/* Certificate and key again; on an error the old ones stay. @thread main */
ND_CHECKED enum nd_err nd_gateway_reload_tls(struct nd_gateway *gateway, struct nd_errmsg *msg);

/* --- for handlers --- */
struct nd_upstream *nd_gateway_upstream(const struct nd_gateway *gateway);
const struct nd_gateway_options *nd_gateway_options(const struct nd_gateway *gateway);
bool nd_gateway_draining(const struct nd_gateway *gateway);
struct nd_in_flight *nd_gateway_in_flight(const struct nd_gateway *gateway);
/* Does the broker want credentials? As far as is known: true until it said otherwise. */
bool nd_gateway_security_on(struct nd_gateway *gateway);

#endif
