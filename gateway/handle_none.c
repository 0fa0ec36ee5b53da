/* Requests without a route: who may not ask at all learns nothing of the routes. */
#include "storage/base/alloc.h"

#include "gateway/handlers.h"

static void answer_none(struct nd_http_request *request, void *arg)
{
    char *allow = arg;
    nd_http_answer_none(request, allow);
    nd_free(allow);
}

void nd_handle_none(struct nd_http_request *request, const char *allow)
{
    if (!nd_answer_untyped(request)) {
        nd_answer_if_allowed(request, NARAD__V1__ACTION__ACTION_UNSPECIFIED, nd_slice_str(""),
                             answer_none, nd_xstrdup(allow));
    }
}
