/* The gateway beside the broker, in the node's process: its options from the settings, its way to
 * the broker (a Unix socket), start and stop. */
#ifndef ND_GATEWAY_SETUP_H
#define ND_GATEWAY_SETUP_H

#include "gateway/gateway.h"
#include "server/config.h"

/* All but the upstream, metrics and log. Texts are borrowed from the settings. */
void nd_gateway_options_init(struct nd_gateway_options *out, const struct nd_settings *settings);

struct nd_node_gateway {
    struct nd_gateway *gateway; /* NULL: none is running */
    int port;
    char host[256];
    char socket[512], dir[64]; /* of its own, when the node has no other: removed at the end */
};

/* Choose a path for a socket of its own: in the data directory, or where that path would be too
 * long in a directory that only this user may enter. */
ND_CHECKED enum nd_err nd_node_gateway_choose_socket(struct nd_node_gateway *node_gateway,
                                                     const char *data_dir, struct nd_errmsg *msg);
/* The broker listens at `socket` already; its server drives the gateway's calls. */
ND_CHECKED enum nd_err nd_node_gateway_start(struct nd_node_gateway *node_gateway,
                                             const struct nd_settings *settings, const char *socket,
                                             struct nd_rpc_server *server,
                                             struct nd_metrics *metrics, struct nd_log *log,
                                             struct nd_errmsg *msg);
/* Its requests end; call it while the broker still answers. Also when it never was. */
void nd_node_gateway_stop(struct nd_node_gateway *node_gateway);
/* The files of its own socket, once the broker let go of it. */
void nd_node_gateway_release(struct nd_node_gateway *node_gateway);
/* "127.0.0.1:7942", where a client of this machine finds it; "": it is not running. */
void nd_node_gateway_address(const struct nd_node_gateway *node_gateway, char *out,
                             size_t out_size);

#endif
