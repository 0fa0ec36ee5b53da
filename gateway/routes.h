/* The one table of routes (routes_table.c), and what a path matches in it. */
#ifndef ND_ROUTES_H
#define ND_ROUTES_H

#include "gateway/http.h"

enum { ND_ROUTE_VALUES_MAX = 2 };

extern const struct nd_route nd_routes_table[];
extern const size_t nd_routes_count;

struct nd_route_match {
    const struct nd_route *route;                /* NULL: none */
    struct nd_slice values[ND_ROUTE_VALUES_MAX]; /* still percent-encoded, into `path` */
    size_t values_count;
    char allow[64]; /* the path is known and the method is not its: "GET, HEAD, POST"; else "" */
};

/* Pure. `path`: as sent, up to the '?'. A `{…}` takes one segment that is not empty; "." and ".."
 * are never a segment. Literal segments are compared as sent. HEAD goes to the GET route, unless
 * that refuses it. */
void nd_routes_match(struct nd_slice method, struct nd_slice path, struct nd_route_match *out);

/* Paths that need no credentials, whatever the method: /healthz, /readyz, /metrics. */
bool nd_routes_open(struct nd_slice path);

/* What a request without a route gets once its credentials are known to be good:
 * nd_http_answer_none with `allow`. For nd_routes_open() paths the server answers by itself. */
void nd_handle_none(struct nd_http_request *request, const char *allow);

extern nd_http_handler nd_handle_create_topic, nd_handle_list_topics, nd_handle_get_topic;
extern nd_http_handler nd_handle_alter_topic, nd_handle_delete_topic;
extern nd_http_handler nd_admit_produce_batch; /* nd_route.admit */
extern nd_http_handler nd_handle_produce, nd_handle_produce_batch, nd_handle_consume, nd_handle_ack;
extern nd_http_handler nd_handle_create_user, nd_handle_list_users, nd_handle_get_user;
extern nd_http_handler nd_handle_delete_user, nd_handle_set_grants, nd_handle_set_password;
extern nd_http_handler nd_handle_healthz, nd_handle_readyz, nd_handle_metrics;

#endif
