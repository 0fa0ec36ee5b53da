/* Listening sockets of the HTTP server. */
#ifndef ND_HTTP_LISTEN_H
#define ND_HTTP_LISTEN_H

#include <sys/socket.h>

#include "storage/base/err.h"

/* ":7942" (every address), "host:port", "[v6]:port"; port 0 takes any free one. INVALID_ARGUMENT:
 * no such address; IO: it cannot be bound. */
ND_CHECKED enum nd_err nd_http_listen(const char *addr, int *file_out, int *port_out,
                                      struct nd_errmsg *msg);
/* "127.0.0.1", also for a v4 address in v6's clothes. */
void nd_http_peer_text(const struct sockaddr_storage *addr, char *out, size_t out_size);

#endif
