#include "gateway/gateway.h"

#include <stdatomic.h>

#include "storage/base/alloc.h"
#include "storage/base/env.h"

#include "gateway/http_server.h"
#include "gateway/in_flight.h"
#include "proto/narad/v1/admin.pb-c.h"

/* How old the broker's word on whether it wants credentials may get. */
#define PROBE_NS UINT64_C(10000000000)

/* For answers that the broker owed until the grace was over to go out. */
enum { LAST_ANSWERS_MS = 1000 };

enum security { SECURITY_UNKNOWN, SECURITY_ON, SECURITY_OFF };

struct nd_gateway {
    struct nd_gateway_options options; /* the strings are the starter's, and used only there */
    struct nd_upstream *upstream;
    struct nd_http_server *http;
    struct nd_in_flight *in_flight;
    _Atomic bool draining;
    _Atomic enum security security;
    _Atomic uint64_t probed_ns;
};

struct nd_upstream *nd_gateway_upstream(const struct nd_gateway *gateway)
{
    return gateway->upstream;
}

const struct nd_gateway_options *nd_gateway_options(const struct nd_gateway *gateway)
{
    return &gateway->options;
}

bool nd_gateway_draining(const struct nd_gateway *gateway)
{
    return atomic_load(&gateway->draining);
}

struct nd_in_flight *nd_gateway_in_flight(const struct nd_gateway *gateway)
{
    return gateway->in_flight;
}

/* --- does the broker want credentials? --- */

/* @thread the channel's */
static void probed(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct nd_gateway *gateway = arg;
    const Narad__V1__CheckAccessResponse *response = reply;
    if (status->err == ND_OK) {
        atomic_store(&gateway->security, response->security_enabled ? SECURITY_ON : SECURITY_OFF);
    } else if (status->err == ND_ERR_UNAUTHENTICATED) {
        atomic_store(&gateway->security, SECURITY_ON);
    }
}

/* Without credentials: refused when the broker wants some. */
static void probe(struct nd_gateway *gateway)
{
    static const struct nd_upstream_method method = {
        .path = "/narad.v1.Admin/CheckAccess",
        .reply_type = &narad__v1__check_access_response__descriptor,
        .asks = true};
    Narad__V1__CheckAccessRequest message = NARAD__V1__CHECK_ACCESS_REQUEST__INIT;
    const struct nd_env *env = nd_env_posix();
    uint64_t now_ns = env->mono_ns(env->impl), last_ns = atomic_load(&gateway->probed_ns);
    if ((last_ns == 0 || now_ns - last_ns >= PROBE_NS) &&
        atomic_compare_exchange_strong(&gateway->probed_ns, &last_ns, now_ns)) {
        nd_upstream_call(gateway->upstream, (struct nd_upstream_caller){0}, &method, &message.base,
                         probed, gateway);
    }
}

bool nd_gateway_security_on(struct nd_gateway *gateway)
{
    probe(gateway);
    return atomic_load(&gateway->security) != SECURITY_OFF;
}

/* --- life --- */

static enum nd_err start_http(struct nd_gateway *gateway, int *port_out, struct nd_errmsg *msg)
{
    const struct nd_gateway_options *o = &gateway->options;
    struct nd_http_server_options options = {
        .gateway = gateway,
        .addr = o->addr,
        .metrics_addr = o->metrics_addr,
        .threads = o->threads,
        .read_timeout_ms = o->read_timeout_ms,
        .write_timeout_ms = o->write_timeout_ms,
        .idle_timeout_ms = o->idle_timeout_ms,
        .header_bytes_max = o->header_bytes_max,
        .connections_max = o->connections_max,
        .large_bytes_max = o->batch_bytes_in_flight_max,
        .tls_cert_file = o->tls_cert_file,
        .tls_key_file = o->tls_key_file,
        .tls_client_ca_file = o->tls_client_ca_file,
        .metrics = o->metrics,
        .log = o->log,
    };
    enum nd_err err = nd_http_server_start(&gateway->http, &options, port_out, msg);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "http.addr \"%s\"", o->addr);
    }
    return err;
}

enum nd_err nd_gateway_start(struct nd_gateway **out, const struct nd_gateway_options *options,
                             int *port_out, struct nd_errmsg *msg)
{
    struct nd_gateway *gateway = nd_xcalloc(1, sizeof *gateway);
    gateway->options = *options;
    enum nd_err err = nd_upstream_new(&gateway->upstream, &options->upstream, msg);
    if (err == ND_OK) {
        /* A broker that is told of whom each poll is counts them itself. */
        bool told = nd_upstream_tells_clients(gateway->upstream);
        gateway->in_flight = nd_in_flight_new(told ? 0 : options->consume_in_flight_max);
        probe(gateway);
        err = start_http(gateway, port_out, msg);
    }
    if (err != ND_OK) {
        nd_upstream_free(gateway->upstream);
        nd_in_flight_free(gateway->in_flight);
        nd_free(gateway);
        return err;
    }
    nd_log(options->log, ND_LOG_INFO, "gateway", "http listening",
           "addr=%s port=%d broker=%s tls=%s", options->addr, *port_out,
           options->upstream.channel.target,
           options->tls_cert_file != NULL && options->tls_cert_file[0] != '\0' ? "yes" : "no");
    *out = gateway;
    return ND_OK;
}

void nd_gateway_drain(struct nd_gateway *gateway)
{
    if (!atomic_exchange(&gateway->draining, true)) {
        nd_http_server_drain(gateway->http);
        nd_upstream_cancel_polls(gateway->upstream);
    }
}

void nd_gateway_stop(struct nd_gateway *gateway)
{
    if (gateway == NULL) {
        return;
    }
    nd_gateway_drain(gateway);
    bool all = nd_http_server_wait(gateway->http, gateway->options.shutdown_grace_ms);
    nd_upstream_end(gateway->upstream); /* what the broker still owes is answered now */
    if (!all && !nd_http_server_wait(gateway->http, LAST_ANSWERS_MS)) {
        nd_log(gateway->options.log, ND_LOG_WARN, "gateway", "requests were cut off",
               "after_ms=%llu", (unsigned long long)gateway->options.shutdown_grace_ms);
    }
    nd_http_server_stop(gateway->http);
    nd_upstream_free(gateway->upstream);
    nd_in_flight_free(gateway->in_flight);
    nd_free(gateway);
}

enum nd_err nd_gateway_reload_tls(struct nd_gateway *gateway, struct nd_errmsg *msg)
{
    return nd_http_server_reload_tls(gateway->http, msg);
}
