/* What the HTTP server counts. Series are made when a route, method and status is first seen; their
 * number is bounded by the table of routes and the lists of methods and statuses. @thread any */
#ifndef ND_HTTP_METERS_H
#define ND_HTTP_METERS_H

#include "storage/base/metrics.h"
#include "storage/base/slice.h"

struct nd_http_meters;
struct nd_route;

struct nd_http_meters *nd_http_meters_new(struct nd_metrics *metrics);
void nd_http_meters_free(struct nd_http_meters *meters);
void nd_http_meters_began(struct nd_http_meters *meters);

struct nd_http_outcome {
    const struct nd_route *route; /* NULL: unmatched; so is every 401 */
    struct nd_slice method;
    int status; /* 0: none was given */
    uint64_t bytes_in, bytes_out;
    double seconds;
};
void nd_http_meters_ended(struct nd_http_meters *meters, const struct nd_http_outcome *outcome);

#endif
