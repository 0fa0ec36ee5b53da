/* The broker's RPC server over handlers, and a channel to it, in one process. */
#ifndef ND_TEST_RPC_PAIR_H
#define ND_TEST_RPC_PAIR_H

#include "proto/rpc/client.h"
#include "proto/rpc/server.h"
#include "server/rpc/handlers.h"

struct rpc_pair {
    struct nd_rpc_server *server;
    struct nd_rpc_channel *channel;
    char *dir; /* of the Unix socket */
};

/* Over loopback TCP, or a Unix socket in a directory of its own. */
void rpc_pair_start(struct rpc_pair *pair, const struct nd_rpc_method *const *methods, size_t count,
                    struct nd_handlers *handlers, bool tcp);
void rpc_pair_stop(struct rpc_pair *pair); /* no call is left; what they use may be stopped next */
void rpc_pair_free(struct rpc_pair *pair); /* before its handlers */

#endif
