/* The server's struct, for the files of proto/rpc that make it up. */
#ifndef ND_RPC_SERVER_IMPL_H
#define ND_RPC_SERVER_IMPL_H

#include "storage/base/list.h"

#include "proto/rpc/call.h"

struct nd_rpc_health;
struct nd_rpc_reflection;

struct nd_rpc_server {
    struct nd_rpc_server_options options; /* `methods` and `files` are not used after new */
    grpc_server *core;
    struct nd_rpc_worker *workers;
    struct nd_rpc_service_method *methods;
    size_t methods_count;
    struct nd_rpc_service_method unknown;
    struct nd_series *in_flight;
    struct nd_rpc_health *health;
    struct nd_rpc_reflection *reflection;
    struct nd_list tls; /* of struct nd_rpc_tls: the listeners that have it */
    bool started;       /* the core is */
    bool running;       /* and every worker */
    bool stopped;
    _Atomic bool stopping;
    _Atomic uint32_t calls_open;
    _Atomic uint32_t borrowers; /* channels that the first worker drives */
    struct nd_rpc_tag shutdown_tag;
    struct nd_mutex lock;
    struct nd_cond changed;
    bool shutdown_done; /* guarded by lock */
};

/* A call began or ended. Begin is false beyond calls_max. */
bool nd_rpc_server_call_begin(struct nd_rpc_server *server);
void nd_rpc_server_call_end(struct nd_rpc_server *server);
void nd_rpc_server_count(struct nd_rpc_server *server, struct nd_rpc_service_method *method,
                         int code, uint64_t duration_ns);
struct nd_rpc_server *nd_rpc_call_server(const struct nd_rpc_call *call);

/* health.c: the methods, and the state behind them. `services` are full names, borrowed. */
extern const struct nd_rpc_method nd_rpc_health_check, nd_rpc_health_watch;
struct nd_rpc_health *nd_rpc_health_new(const struct nd_rpc_file *const *files, size_t count);
void nd_rpc_health_set(struct nd_rpc_health *health, bool serving);
/* Tell the watchers NOT_SERVING and end their calls; later ones end at once. */
void nd_rpc_health_stop(struct nd_rpc_health *health);
void nd_rpc_health_free(struct nd_rpc_health *health);

/* reflection.c */
extern const struct nd_rpc_method nd_rpc_reflection_v1, nd_rpc_reflection_v1alpha;
ND_CHECKED enum nd_err nd_rpc_reflection_new(struct nd_rpc_reflection **out,
                                             const struct nd_rpc_file *const *files, size_t count,
                                             struct nd_errmsg *msg);
void nd_rpc_reflection_free(struct nd_rpc_reflection *reflection);

static inline uint64_t nd_rpc_now_ns(void)
{
    gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
