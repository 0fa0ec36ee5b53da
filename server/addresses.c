#include "server/addresses.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HOST_SIZE = 256 };

/* 0, or errno. As the listeners do it: what an earlier process left in TIME_WAIT is no hindrance,
 * and a v6 wildcard takes v4 along. */
static int bind_try(const struct addrinfo *info)
{
    int one = 1, zero = 0, error = 0;
    int file = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0) {
        return errno;
    }
    (void)setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (info->ai_family == AF_INET6) {
        (void)setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    if (bind(file, info->ai_addr, info->ai_addrlen) != 0) {
        error = errno;
    }
    (void)close(file);
    return error;
}

/* "host:port", "[v6]:port", ":port" in two. */
static void split(const char *address, char host[HOST_SIZE], const char **port)
{
    const char *colon = strrchr(address, ':');
    size_t size = (size_t)(colon - address);
    *port = colon + 1;
    if (size >= 2 && address[0] == '[' && address[size - 1] == ']') {
        address++;
        size -= 2;
    }
    snprintf(host, HOST_SIZE, "%.*s", (int)size, address);
}

/* NULL: one of what the name stands for can be bound; else why the first one cannot. */
static const char *problem_of(const char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char host[HOST_SIZE];
    const char *port;
    int first = 0;
    split(address, host, &port);
    if (host[0] == '\0') { /* v4 alone may be free, and would hide that v6 is not */
        hints.ai_family = AF_INET6;
    }
    int code = getaddrinfo(host[0] == '\0' ? NULL : host, port, &hints, &found);
    if (code != 0) {
        return gai_strerror(code);
    }
    for (const struct addrinfo *info = found; info != NULL; info = info->ai_next) {
        int error = bind_try(info);
        if (error == 0 || (host[0] == '\0' && error == EAFNOSUPPORT)) {
            first = 0;
            break;
        }
        first = first == 0 ? error : first;
    }
    freeaddrinfo(found);
    return first == 0 ? NULL : strerror(first);
}

static enum nd_err check(const char *key, const char *address, struct nd_errmsg *msg)
{
    const char *problem = problem_of(address);
    if (problem == NULL) {
        return ND_OK;
    }
    nd_errmsg_set(msg, "%s: cannot listen on %s: %s", key, address, problem);
    return ND_ERR_UNAVAILABLE;
}

enum nd_err nd_addresses_check(const struct nd_settings *settings, struct nd_errmsg *msg)
{
    enum nd_err err = check("grpc.addr", settings->grpc_addr, msg);
    if (err == ND_OK && settings->gateway_enabled) {
        err = check("http.addr", settings->http_addr, msg);
    }
    if (err == ND_OK && settings->gateway_enabled && settings->http_metrics_addr[0] != '\0') {
        err = check("http.metrics_addr", settings->http_metrics_addr, msg);
    }
    return err;
}
