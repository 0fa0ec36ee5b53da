/* libmicrohttpd behind nd_http_: listeners, threads, limits, TLS, one request from its head to its
 * answer. Requests go to the handlers of nd_routes_table.
 *
 *   watch thread: accepts, cuts what is too slow, notices who hangs up while a request is parked
 *   `threads` loop threads: one libmicrohttpd daemon each, run step by step from our own loop (its
 *                  own threads stall when exactly 128 sockets are ready at once)
 *
 * Beyond connections_max, and when no descriptor is left, a new connection is answered 503 and
 * closed. At most half of the process's descriptors are connections: the rest is the storage's. */
#ifndef ND_HTTP_SERVER_H
#define ND_HTTP_SERVER_H

#include "storage/base/err.h"
#include "storage/base/log.h"
#include "storage/base/metrics.h"

struct nd_gateway;
struct nd_http_server;

struct nd_http_server_options {
    struct nd_gateway *gateway; /* what nd_http_gateway gives handlers; may be NULL */
    const char *addr;           /* ":7942", "host:port", "[v6]:port"; port 0 takes any free one */
    const char *metrics_addr;   /* /metrics moves there, plain; NULL or "": it stays on `addr` */
    uint32_t threads;           /* 0: 2 */
    /* A request must have arrived whole `read` after its first byte (a new connection: after it was
     * accepted), an answer be taken `write` after it was given, the next request begin `idle` after
     * the last answer. 0: 10, 30, 60 s. */
    uint64_t read_timeout_ms, write_timeout_ms, idle_timeout_ms;
    uint64_t header_bytes_max; /* 0: 64 KiB */
    uint64_t connections_max;  /* 0: half of the descriptors */
    uint64_t large_bytes_max;  /* bodies above 1 MiB at a time, in sum; 0: 64 MiB */
    const char *tls_cert_file, *tls_key_file, *tls_client_ca_file; /* NULL or "": plain */
    struct nd_metrics *metrics;                                    /* may be NULL */
    struct nd_log *log;                                            /* may be NULL */
};

/* Listens when it returns. INVALID_ARGUMENT: an address, a TLS file; IO: what the system refuses.
 */
ND_CHECKED enum nd_err nd_http_server_start(struct nd_http_server **out,
                                            const struct nd_http_server_options *options,
                                            int *port_out, struct nd_errmsg *msg);
int nd_http_server_metrics_port(const struct nd_http_server *server); /* 0: no such listener */
/* No new connections; those that are idle are closed, the others after their next answer. */
void nd_http_server_drain(struct nd_http_server *server);
/* After a drain: until no request is open. False: `ms` passed. */
bool nd_http_server_wait(struct nd_http_server *server, uint64_t ms);
/* Cuts every connection and frees. Requests that handlers hold are waited for: each must be on its
 * way to an answer. NULL passes. */
void nd_http_server_stop(struct nd_http_server *server);
/* Certificate, key and authorities again, for connections to come; those that are open keep theirs.
 * On an error the old ones stay. @thread any */
ND_CHECKED enum nd_err nd_http_server_reload_tls(struct nd_http_server *server,
                                                 struct nd_errmsg *msg);

#endif
