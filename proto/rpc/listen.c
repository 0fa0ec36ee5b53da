/* Addresses to listen on. The core says only whether it worked; a failed one is tried again by hand
 * to learn the reason. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/rpc/init.h"
#include "proto/rpc/server_impl.h"
#include "proto/rpc/tls.h"

enum { ADDRESS_SIZE_MAX = 300 };

/* Why can `path` not become a socket? */
static const char *unix_reason(const char *path)
{
    char directory[ADDRESS_SIZE_MAX];
    struct sockaddr_un limits;

    if (strlen(path) >= sizeof limits.sun_path) {
        return "the path is too long for a socket";
    }
    snprintf(directory, sizeof directory, "%s", path);
    char *end = strrchr(directory, '/');
    if (end == directory) {
        end += 1;
    }
    if (end != NULL) {
        *end = '\0';
    }
    return access(end != NULL ? directory : ".", W_OK | X_OK) != 0 ? strerror(errno)
                                                                   : "cannot bind the socket";
}

static const char *bind_reason(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, address->ai_socktype, 0);
    int yes = 1;

    if (fd < 0) {
        return strerror(errno);
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); /* as the core does */
    int result = bind(fd, address->ai_addr, address->ai_addrlen);
    result = result == 0 ? listen(fd, 1) : result;
    int reason = errno;
    close(fd);
    return result != 0 ? strerror(reason) : "the address cannot be used";
}

/* "host:port" or "[host]:port" */
static const char *tcp_reason(const char *address)
{
    char host[ADDRESS_SIZE_MAX];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;

    snprintf(host, sizeof host, "%s", address[0] == '[' ? address + 1 : address);
    char *colon = strrchr(host, ':');
    ND_ASSERT(colon != NULL);
    *colon = '\0';
    if (colon > host && colon[-1] == ']') {
        colon[-1] = '\0';
    }
    int error = getaddrinfo(host, colon + 1, &hints, &found);
    if (error != 0) {
        return gai_strerror(error);
    }
    const char *reason = bind_reason(found);
    freeaddrinfo(found);
    return reason;
}

static enum nd_err listen_with(struct nd_rpc_server *server, const char *address,
                               grpc_server_credentials *credentials, int *port_out,
                               struct nd_errmsg *msg)
{
    char full[ADDRESS_SIZE_MAX];
    bool all = address[0] == ':';
    bool socket_file = strncmp(address, "unix:", 5) == 0;
    int length = snprintf(full, sizeof full, "%s%s", all ? "[::]" : "", address);

    if (length < 0 || (size_t)length >= sizeof full) {
        nd_errmsg_set(msg, "cannot listen on %.80s…: the address is too long", address);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (!socket_file && strchr(full, ':') == NULL) { /* the core would take the port of https */
        nd_errmsg_set(msg, "cannot listen on %s: the port is missing", address);
        return ND_ERR_INVALID_ARGUMENT;
    }
    nd_rpc_hush(true);
    int port = grpc_server_add_http2_port(server->core, full, credentials);
    nd_rpc_hush(false);
    if (port == 0) {
        nd_errmsg_set(msg, "cannot listen on %s: %s", address,
                      socket_file ? unix_reason(address + 5) : tcp_reason(full));
        return ND_ERR_UNAVAILABLE;
    }
    if (port_out != NULL) {
        *port_out = socket_file ? 0 : port;
    }
    return ND_OK;
}

enum nd_err nd_rpc_server_listen(struct nd_rpc_server *server, const char *address, int *port_out,
                                 struct nd_errmsg *msg)
{
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    enum nd_err err = listen_with(server, address, credentials, port_out, msg);

    grpc_server_credentials_release(credentials);
    return err;
}

enum nd_err nd_rpc_server_listen_tls(struct nd_rpc_server *server, const char *address,
                                     const struct nd_rpc_tls_files *files, int *port_out,
                                     struct nd_errmsg *msg)
{
    struct nd_rpc_tls *tls = NULL;
    enum nd_err err = nd_rpc_tls_new(&tls, server, address, files, msg);

    if (err != ND_OK) {
        return err;
    }
    grpc_server_credentials *credentials = nd_rpc_tls_server_credentials(tls);
    err = listen_with(server, address, credentials, port_out, msg);
    grpc_server_credentials_release(credentials);
    if (err == ND_OK) {
        nd_rpc_tls_adopt(tls);
    } else {
        nd_rpc_tls_free(tls);
    }
    return err;
}
