/* /healthz: this process; /readyz: the node behind it; /metrics. */
#include "storage/base/alloc.h"

#include "gateway/handlers.h"
#include "proto/grpc/health/v1/health.pb-c.h"

static void answer_json_text(struct nd_http_request *request, int status, const char *text)
{
    struct nd_buf body;
    nd_buf_init(&body, 1024);
    nd_buf_put_text(&body, text);
    nd_answer_json(request, status, &body);
}

void nd_handle_healthz(struct nd_http_request *request)
{
    if (nd_gateway_draining(nd_http_gateway(request))) {
        answer_json_text(request, 503, "{\"status\":\"shutting down\"}");
    } else {
        answer_json_text(request, 200, "{\"status\":\"ok\"}");
    }
}

static void ready_told(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct nd_http_request *request = arg;
    const Grpc__Health__V1__HealthCheckResponse *response = reply;
    if (status->err == ND_OK &&
        response->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING) {
        answer_json_text(request, 200, "{\"status\":\"ready\"}");
    } else {
        nd_http_answer_error(request, 503, "not ready");
    }
}

void nd_handle_readyz(struct nd_http_request *request)
{
    static const struct nd_upstream_method method = {
        .path = "/grpc.health.v1.Health/Check",
        .reply_type = &grpc__health__v1__health_check_response__descriptor,
        .asks = true};
    Grpc__Health__V1__HealthCheckRequest message = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    if (nd_gateway_draining(nd_http_gateway(request))) {
        nd_http_answer_error(request, 503, "not ready");
        return;
    }
    nd_upstream_call(nd_upstream_of(request), (struct nd_upstream_caller){0}, &method,
                     &message.base, ready_told, request);
}

/* --- metrics --- */

/* Is the line a sample of the family or of one whose name begins so, or its HELP or TYPE? */
static bool is_of_family(struct nd_slice line, const char *family)
{
    static const char *const beginnings[] = {"", "# HELP ", "# TYPE "};
    size_t size = strlen(family);
    for (size_t i = 0; i < ND_ARRAY_SIZE(beginnings); i++) {
        size_t before = strlen(beginnings[i]);
        if (line.size >= before + size && memcmp(line.data, beginnings[i], before) == 0 &&
            memcmp(line.data + before, family, size) == 0) {
            return true;
        }
    }
    return false;
}

/* The lines of `text` that are of none of the families; NULL ends them. */
static void put_without(struct nd_buf *out, struct nd_slice text, const char *const *families)
{
    for (size_t at = 0; at < text.size;) {
        const uint8_t *start = text.data + at, *stop = memchr(start, '\n', text.size - at);
        size_t size = stop == NULL ? text.size - at : (size_t)(stop - start) + 1;
        struct nd_slice line = nd_slice_make(start, size);
        const char *const *family = families;
        while (*family != NULL && !is_of_family(line, *family)) {
            family++;
        }
        if (*family == NULL) {
            nd_buf_put_slice(out, line);
        }
        at += size;
    }
}

/* Alone: what the broker tells, then what this process counts, without what both have. Of a gateway
 * that the node has as well the node tells itself. */
static void put_both(struct nd_buf *out, const char *broker, struct nd_metrics *metrics)
{
    static const char *const ours[] = {"narad_http_", "narad_tls_", NULL};
    static const char *const theirs[] = {"process_", NULL};
    static const char *const nobodys[] = {NULL};
    struct nd_buf own;
    nd_buf_init(&own, 64 << 20);
    nd_metrics_text(metrics, &own);
    if (broker != NULL) {
        put_without(out, nd_slice_str(broker), ours);
    }
    put_without(out, nd_slice_make(own.data, own.size), broker == NULL ? nobodys : theirs);
    nd_buf_release(&own);
}

static void metrics_told(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    static const struct nd_operation operation = {"metrics", false, 503};
    struct nd_http_request *request = arg;
    const struct nd_gateway_options *options = nd_gateway_options(nd_http_gateway(request));
    const Narad__V1__MetricsResponse *response = reply;
    struct nd_buf body;
    /* A gateway alone still tells of itself when its broker is away. */
    if (status->err != ND_OK && !(options->own_metrics && status->err == ND_ERR_UNAVAILABLE)) {
        nd_answer_failure(request, status, &operation);
        return;
    }
    nd_buf_init(&body, 128 << 20);
    if (options->own_metrics) {
        put_both(&body, response == NULL ? NULL : response->text, options->metrics);
    } else if (response != NULL) {
        nd_buf_put_text(&body, response->text);
    }
    if (nd_buf_failed(&body)) {
        nd_buf_release(&body);
        nd_http_answer_error(request, 500, "the metrics are too large");
        return;
    }
    nd_http_answer(request, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

void nd_handle_metrics(struct nd_http_request *request)
{
    static const struct nd_upstream_method method = {.path = "/narad.v1.Admin/Metrics",
                                                     .reply_type =
                                                         &narad__v1__metrics_response__descriptor,
                                                     .asks = true};
    Narad__V1__MetricsRequest message = NARAD__V1__METRICS_REQUEST__INIT;
    nd_upstream_call(nd_upstream_of(request), nd_http_caller(request), &method, &message.base,
                     metrics_told, request);
}
