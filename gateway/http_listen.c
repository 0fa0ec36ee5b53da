#include "gateway/http_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST_SIZE = 256, PORT_SIZE = 8, BACKLOG = 1024 };

/* "host:port" in two; the host is "" for every address, without brackets. */
static bool addr_split(const char *addr, char host[HOST_SIZE], char port[PORT_SIZE])
{
    const char *colon = strrchr(addr, ':');
    size_t size = colon == NULL ? 0 : (size_t)(colon - addr), digits;

    if (colon == NULL || size >= HOST_SIZE) {
        return false;
    }
    digits = strspn(colon + 1, "0123456789");
    if (digits == 0 || digits > 5 || colon[1 + digits] != '\0') {
        return false;
    }
    memcpy(port, colon + 1, digits + 1);
    if (size >= 2 && addr[0] == '[' && addr[size - 1] == ']') {
        addr++;
        size -= 2;
    } else if (memchr(addr, ':', size) != NULL) {
        return false; /* a v6 address without brackets: where does its port begin? */
    }
    memcpy(host, addr, size);
    host[size] = '\0';
    return true;
}

static int bound_socket(const struct addrinfo *info)
{
    int one = 1, zero = 0;
    int file = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (file < 0) {
        return -1;
    }
    (void)setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (info->ai_family == AF_INET6) {
        (void)setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    if (bind(file, info->ai_addr, info->ai_addrlen) != 0 || listen(file, BACKLOG) != 0) {
        int error = errno;
        close(file);
        errno = error;
        return -1;
    }
    return file;
}

static int port_of(int file)
{
    struct sockaddr_storage addr;
    socklen_t size = sizeof addr;

    if (getsockname(file, (struct sockaddr *)&addr, &size) != 0) {
        return 0;
    }
    return ntohs(addr.ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)(const void *)&addr)->sin6_port
                     : ((const struct sockaddr_in *)(const void *)&addr)->sin_port);
}

/* Every address: v6 with v4 inside it; v4 alone where there is no v6. */
static int listen_any(const char *port)
{
    static const char *const wildcards[] = {"::", "0.0.0.0"};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    int file = -1;

    for (size_t i = 0; i < ND_ARRAY_SIZE(wildcards) && file < 0; i++) {
        if (getaddrinfo(wildcards[i], port, &hints, &found) == 0) {
            file = bound_socket(found);
            freeaddrinfo(found);
            if (file < 0 && errno == EADDRINUSE) {
                break; /* v4 alone may well be free, and would hide that */
            }
        }
    }
    return file;
}

enum nd_err nd_http_listen(const char *addr, int *file_out, int *port_out, struct nd_errmsg *msg)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char host[HOST_SIZE], port[PORT_SIZE];
    int file;

    if (!addr_split(addr, host, port) || strtoul(port, NULL, 10) > 65535) {
        nd_errmsg_set(msg, "HTTP address \"%s\": want \":port\", \"host:port\" or \"[v6]:port\"",
                      addr);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (host[0] == '\0') {
        file = listen_any(port);
    } else {
        int code = getaddrinfo(host, port, &hints, &found);
        if (code != 0) {
            nd_errmsg_set(msg, "HTTP address \"%s\": %s", addr, gai_strerror(code));
            return ND_ERR_INVALID_ARGUMENT;
        }
        file = bound_socket(found);
        freeaddrinfo(found);
    }
    if (file < 0) {
        nd_errmsg_set(msg, "HTTP address \"%s\": %s", addr, strerror(errno));
        return ND_ERR_IO;
    }
    *file_out = file;
    *port_out = port_of(file);
    return ND_OK;
}

void nd_http_peer_text(const struct sockaddr_storage *addr, char *out, size_t out_size)
{
    static const char mapped[] = "::ffff:";

    out[0] = '\0';
    if (addr->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)addr;
        (void)inet_ntop(AF_INET6, &six->sin6_addr, out, (socklen_t)out_size);
        if (strncmp(out, mapped, sizeof mapped - 1) == 0 && strchr(out, '.') != NULL) {
            memmove(out, out + sizeof mapped - 1, strlen(out + sizeof mapped - 1) + 1);
        }
    } else if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)addr;
        (void)inet_ntop(AF_INET, &four->sin_addr, out, (socklen_t)out_size);
    }
}
