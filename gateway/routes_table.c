#include "gateway/query.h"
#include "gateway/routes.h"

enum { KIB = 1024, MIB = 1024 * KIB };

/* A batch ack carries its handles in the body; with one in the query no body matters. */
static bool handle_in_query(struct nd_slice query)
{
    struct nd_arena arena;
    struct nd_ack_query ack;
    bool extend_bad, given;

    nd_arena_init(&arena, query.size + KIB);
    given = nd_query_ack(query, &arena, &ack, &extend_bad, NULL) != ND_OK ||
            ack.receipt_handle.size > 0;
    nd_arena_release(&arena);
    return given;
}

/* To add a route: its line, and its handler in a file of its group. */
const struct nd_route nd_routes_table[] = {
    {"POST", "/v1/topics", MIB, .handle = nd_handle_create_topic},
    {"GET", "/v1/topics", 0, .handle = nd_handle_list_topics},
    {"GET", "/v1/topics/{topic}", 0, .handle = nd_handle_get_topic},
    {"PATCH", "/v1/topics/{topic}", MIB, .handle = nd_handle_alter_topic},
    {"DELETE", "/v1/topics/{topic}", 0, .handle = nd_handle_delete_topic},
    {"POST", "/v1/topics/{topic}/produce", MIB, .handle = nd_handle_produce},
    {"POST", "/v1/topics/{topic}/produce/batch", 16 * MIB, .handle = nd_handle_produce_batch,
     .admit = nd_admit_produce_batch},
    /* A HEAD would reserve a message and throw it away. */
    {"GET", "/v1/topics/{topic}/consume", 0, .handle = nd_handle_consume, .head_refused = true},
    {"POST", "/v1/topics/{topic}/ack", 64 * KIB, .handle = nd_handle_ack,
     .body_dropped = handle_in_query},
    {"POST", "/v1/users", MIB, .handle = nd_handle_create_user, .secret = true},
    {"GET", "/v1/users", 0, .handle = nd_handle_list_users},
    {"GET", "/v1/users/{username}", 0, .handle = nd_handle_get_user},
    {"DELETE", "/v1/users/{username}", 0, .handle = nd_handle_delete_user},
    {"PUT", "/v1/users/{username}/grants", MIB, .handle = nd_handle_set_grants},
    {"PUT", "/v1/users/{username}/password", MIB, .handle = nd_handle_set_password, .secret = true},
    {"GET", "/healthz", 0, .handle = nd_handle_healthz},
    {"GET", "/readyz", 0, .handle = nd_handle_readyz},
    {"GET", "/metrics", 0, .handle = nd_handle_metrics},
};
const size_t nd_routes_count = ND_ARRAY_SIZE(nd_routes_table);
