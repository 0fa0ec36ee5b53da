#include "gateway/http_meters.h"

#include <stdatomic.h>
#include <stdio.h>

#include "storage/base/alloc.h"

#include "gateway/routes.h"

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OTHER"};
/* In order; another status counts as the last that is not above it. */
static const int statuses[] = {200, 201, 202, 204, 400, 401, 403, 404, 405, 409, 410,
                               413, 415, 417, 421, 429, 431, 499, 500, 501, 502, 503};
static const double seconds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                 0.25,   0.5,   1,      2.5,   5,    10,    30};

enum { METHODS = ND_ARRAY_SIZE(methods), STATUSES = ND_ARRAY_SIZE(statuses) };

/* Of one route, method and status. */
struct cell {
    _Atomic(struct nd_series *) requests, duration;
};

struct row {
    _Atomic(struct nd_series *) bytes_in, bytes_out;
    struct cell cells[METHODS][STATUSES];
};

struct nd_http_meters {
    struct nd_metrics *metrics;
    struct nd_series *in_flight;
    struct row rows[]; /* of the routes; the last is of what has none */
};

struct nd_http_meters *nd_http_meters_new(struct nd_metrics *metrics)
{
    struct nd_http_meters *meters =
        nd_xcalloc(1, sizeof *meters + (nd_routes_count + 1) * sizeof(struct row));

    meters->metrics = metrics;
    meters->in_flight = nd_metrics_gauge(metrics, "http_requests_in_flight", "",
                                         "HTTP requests that are not answered yet.");
    return meters;
}

void nd_http_meters_free(struct nd_http_meters *meters)
{
    nd_free(meters);
}

void nd_http_meters_began(struct nd_http_meters *meters)
{
    nd_series_add(meters->in_flight, 1);
}

/* The same series whoever makes it: the registry finds it by name and labels. */
static struct nd_series *kept(_Atomic(struct nd_series *) *place, struct nd_series *made)
{
    atomic_store_explicit(place, made, memory_order_release);
    return made;
}

static struct nd_series *known(_Atomic(struct nd_series *) *place)
{
    return atomic_load_explicit(place, memory_order_acquire);
}

static void label_route(const struct nd_route *route, char *out, size_t size)
{
    char text[128];

    snprintf(text, sizeof text, "%s%s%s", route == NULL ? "" : route->method,
             route == NULL ? "unmatched" : " ", route == NULL ? "" : route->pattern);
    out[0] = '\0';
    nd_metrics_label(out, size, "route", text);
}

static size_t method_index(struct nd_slice method)
{
    size_t i = 0;

    while (i + 1 < METHODS && !nd_slice_equal(method, nd_slice_str(methods[i]))) {
        i++;
    }
    return i;
}

static size_t status_index(int status)
{
    size_t i = 0;

    while (i + 1 < STATUSES && statuses[i + 1] <= status) {
        i++;
    }
    return i;
}

static void request_count(struct nd_http_meters *meters, const struct nd_http_outcome *outcome,
                          const struct nd_route *route, struct row *row)
{
    size_t method = method_index(outcome->method), status = status_index(outcome->status);
    struct cell *cell = &row->cells[method][status];
    struct nd_series *requests = known(&cell->requests), *duration = known(&cell->duration);

    if (requests == NULL || duration == NULL) {
        char labels[256], number[16];
        label_route(route, labels, sizeof labels);
        nd_metrics_label(labels, sizeof labels, "method", methods[method]);
        snprintf(number, sizeof number, "%d", statuses[status]);
        nd_metrics_label(labels, sizeof labels, "status", number);
        requests = kept(&cell->requests, nd_metrics_counter(meters->metrics, "http_requests_total",
                                                            labels, "HTTP requests answered."));
        duration = kept(&cell->duration,
                        nd_metrics_histogram(meters->metrics, "http_request_duration_seconds",
                                             labels, "From the request line to the answer's end.",
                                             seconds, ND_ARRAY_SIZE(seconds)));
    }
    nd_series_add(requests, 1);
    nd_series_observe(duration, outcome->seconds);
}

static void bytes_count(struct nd_http_meters *meters, const struct nd_http_outcome *outcome,
                        const struct nd_route *route, struct row *row)
{
    struct nd_series *in = known(&row->bytes_in), *out = known(&row->bytes_out);

    if (in == NULL || out == NULL) {
        char labels[192];
        label_route(route, labels, sizeof labels);
        in = kept(&row->bytes_in,
                  nd_metrics_counter(meters->metrics, "http_request_bytes_in_total", labels,
                                     "Bytes of request bodies that were read."));
        out = kept(&row->bytes_out,
                   nd_metrics_counter(meters->metrics, "http_response_bytes_out_total", labels,
                                      "Bytes of bodies of answers."));
    }
    nd_series_add(in, outcome->bytes_in);
    nd_series_add(out, outcome->bytes_out);
}

void nd_http_meters_ended(struct nd_http_meters *meters, const struct nd_http_outcome *outcome)
{
    const struct nd_route *route = outcome->status == 401 ? NULL : outcome->route;
    size_t index = route == NULL ? nd_routes_count : (size_t)(route - nd_routes_table);

    nd_series_sub(meters->in_flight, 1);
    if (meters->metrics == NULL) {
        return;
    }
    if (outcome->status != 0) {
        request_count(meters, outcome, route, &meters->rows[index]);
    }
    bytes_count(meters, outcome, route, &meters->rows[index]);
}
