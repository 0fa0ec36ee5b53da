/* Handlers that only have to be told apart, for tests of the table of routes. */
#include "gateway/routes.h"

#define HANDLER(name)                                                                              \
    void name(struct nd_http_request *request)                                                     \
    {                                                                                              \
        (void)request;                                                                             \
    }

HANDLER(nd_handle_create_topic)
HANDLER(nd_handle_list_topics)
HANDLER(nd_handle_get_topic)
HANDLER(nd_handle_alter_topic)
HANDLER(nd_handle_delete_topic)
HANDLER(nd_handle_produce)
HANDLER(nd_handle_produce_batch)
HANDLER(nd_admit_produce_batch)
HANDLER(nd_handle_consume)
HANDLER(nd_handle_ack)
HANDLER(nd_handle_create_user)
HANDLER(nd_handle_list_users)
HANDLER(nd_handle_get_user)
HANDLER(nd_handle_delete_user)
HANDLER(nd_handle_set_grants)
HANDLER(nd_handle_set_password)
HANDLER(nd_handle_healthz)
HANDLER(nd_handle_readyz)
HANDLER(nd_handle_metrics)

void nd_handle_none(struct nd_http_request *request, const char *allow)
{
    (void)request;
    (void)allow;
}
