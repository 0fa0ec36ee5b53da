/* grpc.health.v1.Health. Every service of this server has the server's own status. */
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/list.h"

#include "proto/grpc/health/v1/health.nd.h"
#include "proto/grpc/health/v1/health.pb-c.h"
#include "proto/rpc/server_impl.h"

typedef Grpc__Health__V1__HealthCheckRequest health_request;
typedef Grpc__Health__V1__HealthCheckResponse health_response;

enum {
    SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING,
    NOT_SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING,
    SERVICE_UNKNOWN = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN,
};

/* An open Watch; the user data of its call. */
struct watcher {
    struct nd_list link; /* in health->watchers until the call is done */
    struct nd_rpc_call *call;
    bool known; /* the service exists */
};

/* Lock order: health, then a call. */
struct nd_rpc_health {
    char **services;
    size_t services_count;
    struct nd_mutex lock;
    /* guarded by lock */
    struct nd_list watchers;
    bool serving, stopped;
};

/* "/narad.v1.Broker/Produce" is a method of "narad.v1.Broker". */
static bool service_has(const struct nd_rpc_health *health, const char *name, size_t size)
{
    for (size_t i = 0; i < health->services_count; i++) {
        if (strlen(health->services[i]) == size && memcmp(health->services[i], name, size) == 0) {
            return true;
        }
    }
    return false;
}

static void service_add(struct nd_rpc_health *health, const char *path)
{
    const char *name = path + 1;
    size_t size = strcspn(name, "/");

    if (!service_has(health, name, size)) {
        health->services[health->services_count++] = nd_xasprintf("%.*s", (int)size, name);
    }
}

struct nd_rpc_health *nd_rpc_health_new(const struct nd_rpc_file *const *files, size_t count)
{
    struct nd_rpc_health *health = nd_xcalloc(1, sizeof *health);
    size_t methods = 0;

    for (size_t i = 0; i < count; i++) {
        methods += files[i]->methods_count;
    }
    health->services = nd_xcalloc(methods + 1, sizeof *health->services);
    for (size_t i = 0; i < count; i++) {
        for (size_t m = 0; m < files[i]->methods_count; m++) {
            service_add(health, files[i]->methods[m].path);
        }
    }
    nd_mutex_init(&health->lock);
    nd_list_init(&health->watchers);
    return health;
}

void nd_rpc_health_free(struct nd_rpc_health *health)
{
    ND_ASSERT(nd_list_empty(&health->watchers));
    for (size_t i = 0; i < health->services_count; i++) {
        nd_free(health->services[i]);
    }
    nd_free(health->services);
    nd_mutex_release(&health->lock);
    nd_free(health);
}

static void status_fill(health_response *response, bool serving)
{
    grpc__health__v1__health_check_response__init(response);
    response->status = serving ? (int)SERVING : (int)NOT_SERVING;
}

static void watchers_tell_locked(struct nd_rpc_health *health) ND_REQUIRES(health->lock)
{
    health_response response;

    status_fill(&response, health->serving);
    ND_LIST_FOREACH (&health->watchers, link) {
        struct watcher *watcher = ND_CONTAINER_OF(link, struct watcher, link);
        if (watcher->known) {
            nd_rpc_call_send(watcher->call, &response.base);
        }
    }
}

void nd_rpc_health_set(struct nd_rpc_health *health, bool serving)
{
    nd_mutex_lock(&health->lock);
    if (serving != health->serving) {
        health->serving = serving;
        watchers_tell_locked(health);
    }
    nd_mutex_unlock(&health->lock);
}

void nd_rpc_health_stop(struct nd_rpc_health *health)
{
    nd_rpc_health_set(health, false);
    nd_mutex_lock(&health->lock);
    health->stopped = true;
    ND_LIST_FOREACH (&health->watchers, link) {
        struct watcher *watcher = ND_CONTAINER_OF(link, struct watcher, link);
        nd_rpc_call_fail(watcher->call, ND_ERR_UNAVAILABLE, "the server is stopping");
    }
    nd_mutex_unlock(&health->lock);
}

static const health_request *request_decode(struct nd_rpc_call *call, struct nd_slice bytes)
{
    const health_request *request =
        nd_rpc_call_decode(call, &grpc__health__v1__health_check_request__descriptor, bytes);

    if (request == NULL) {
        nd_rpc_call_fail(call, ND_ERR_INVALID_ARGUMENT, "not a HealthCheckRequest");
    }
    return request;
}

static bool request_known(const struct nd_rpc_health *health, const health_request *request)
{
    return request->service[0] == '\0' ||
           service_has(health, request->service, strlen(request->service));
}

static void check_start(struct nd_rpc_call *call, struct nd_slice bytes)
{
    struct nd_rpc_health *health = nd_rpc_call_server(call)->health;
    const health_request *request = request_decode(call, bytes);
    health_response response;

    if (request == NULL) {
        return;
    }
    if (!request_known(health, request)) {
        nd_rpc_call_fail(call, ND_ERR_NOT_FOUND, "unknown service");
        return;
    }
    nd_mutex_lock(&health->lock);
    status_fill(&response, health->serving);
    nd_mutex_unlock(&health->lock);
    nd_rpc_call_reply(call, &response.base);
}

static void watch_start(struct nd_rpc_call *call, struct nd_slice bytes)
{
    struct nd_rpc_health *health = nd_rpc_call_server(call)->health;
    const health_request *request = request_decode(call, bytes);
    health_response response;

    if (request == NULL) {
        return;
    }
    struct watcher *watcher = nd_xcalloc(1, sizeof *watcher);
    watcher->call = call;
    watcher->known = request_known(health, request);
    nd_rpc_call_set_user(call, watcher);
    nd_mutex_lock(&health->lock);
    nd_list_append(&health->watchers, &watcher->link);
    status_fill(&response, health->serving);
    if (!watcher->known) {
        response.status = (int)SERVICE_UNKNOWN;
    }
    nd_rpc_call_send(call, &response.base);
    bool stopped = health->stopped;
    nd_mutex_unlock(&health->lock);
    if (stopped) {
        nd_rpc_call_fail(call, ND_ERR_UNAVAILABLE, "the server is stopping");
    }
}

static void watch_cancel(struct nd_rpc_call *call)
{
    nd_rpc_call_fail(call, ND_ERR_CANCELLED, NULL);
}

static void watch_done(struct nd_rpc_call *call)
{
    struct nd_rpc_health *health = nd_rpc_call_server(call)->health;
    struct watcher *watcher = nd_rpc_call_user(call);

    if (watcher != NULL) {
        nd_mutex_lock(&health->lock);
        nd_list_remove(&watcher->link);
        nd_mutex_unlock(&health->lock);
        nd_free(watcher);
    }
}

const struct nd_rpc_method nd_rpc_health_check = {
    .path = GRPC_HEALTH_V1_HEALTH_CHECK_PATH,
    .kind = GRPC_HEALTH_V1_HEALTH_CHECK_KIND,
    .message_bytes_max = 4096,
    .armed = 2,
    .on_start = check_start,
};

const struct nd_rpc_method nd_rpc_health_watch = {
    .path = GRPC_HEALTH_V1_HEALTH_WATCH_PATH,
    .kind = GRPC_HEALTH_V1_HEALTH_WATCH_KIND,
    .message_bytes_max = 4096,
    .armed = 2,
    .on_start = watch_start,
    .on_cancel = watch_cancel,
    .on_done = watch_done,
};
