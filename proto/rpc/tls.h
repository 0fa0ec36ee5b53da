/* What TLS adds to a server and to a channel. Private to proto/rpc. */
#ifndef ND_RPC_TLS_H
#define ND_RPC_TLS_H

#include "storage/base/list.h"

#include "proto/rpc/client.h"
#include "proto/rpc/core.h"
#include "proto/rpc/server.h"

/* The certificate of a listener, asked for at each handshake. It is the server's until its end. */
struct nd_rpc_tls;

/* Read the files. `server` is borrowed until nd_rpc_tls_free. */
ND_CHECKED enum nd_err nd_rpc_tls_new(struct nd_rpc_tls **out, struct nd_rpc_server *server,
                                      const char *address, const struct nd_rpc_tls_files *files,
                                      struct nd_errmsg *msg);
/* Give it to the server: reloaded and freed with it from here on; what it uses is told in log and
 * metrics. Once the listener stands. */
void nd_rpc_tls_adopt(struct nd_rpc_tls *tls);
void nd_rpc_tls_free(struct nd_rpc_tls *tls);
/* All that a server adopted. The core must be done with it. */
void nd_rpc_tls_free_all(struct nd_rpc_server *server);
/* The caller's. */
grpc_server_credentials *nd_rpc_tls_server_credentials(struct nd_rpc_tls *tls);

/* The caller's; plain ones without options->tls. Errors as nd_rpc_channel_new. */
ND_CHECKED enum nd_err nd_rpc_channel_credentials(grpc_channel_credentials **out,
                                                  const struct nd_rpc_channel_options *options,
                                                  struct nd_errmsg *msg);

#endif
