#include <linux/tcp.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gateway/http_impl.h"

/* Connections at rest give memory back.
 *
 * Between two requests the library clears all of a connection's pool (http.max_header_bytes and
 * some more), which makes pages of zeros resident that nobody needs: 70 KiB each, 700 MiB for
 * 10,000 polls that wait. Pages that hold nothing but zeros can be given back without anyone
 * noticing, if two things are certain:
 *
 *  - nobody writes to them meanwhile: only the connection's loop does, and this runs on it;
 *  - they are the pool's. It is mapped for itself (when it is larger than 32 KiB), page by page,
 * and a request line stands at its very beginning, unless blank lines came before it. That none
 * ever did follows when the kernel counts as many bytes received as we have seen in heads and
 * bodies.
 */

enum { REST_MS = 1000, MAPPED_MIN = 32 << 10, PAGE_SIZE_MAX = 65536 };

static size_t page_size(void)
{
    long size = sysconf(_SC_PAGESIZE);

    return size > 0 && size <= PAGE_SIZE_MAX ? (size_t)size : 0;
}

void nd_http_rest(struct nd_http_conn *conn, uint64_t now_ns)
{
    if (conn->requests >= 2 && nd_list_empty(&conn->rest)) { /* the first finds no zeros made */
        conn->rest_since_ns = now_ns;
        nd_list_append(&conn->loop->resting, &conn->rest);
    }
}

bool nd_http_received(const struct nd_http_conn *conn, uint64_t *out)
{
    struct tcp_info info = {.tcpi_state = 0};
    socklen_t size = sizeof info;
    bool says =
        getsockopt(conn->watched.file, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
        size >= offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;

    *out = info.tcpi_bytes_received;
    return says;
}

/* All that was ever received is accounted for. */
static bool begins_at_the_pool(const struct nd_http_conn *conn)
{
    uint64_t received;

    return nd_http_received(conn, &received) && received == conn->bytes_seen;
}

static bool is_zeros(const uint8_t *page, size_t size)
{
    return page[0] == 0 && memcmp(page, page + 1, size - 1) == 0;
}

/* Each run of pages that are all zeros. */
static void pages_give(uint8_t *pool, size_t size, size_t page)
{
    size_t run = 0;

    for (size_t at = page; at <= size; at += page) { /* the first holds the head */
        if (at < size && is_zeros(pool + at, page)) {
            run += page;
        } else if (run > 0) {
            (void)madvise(pool + at - run, run, MADV_DONTNEED);
            run = 0;
        }
    }
}

static void conn_trim(struct nd_http_conn *conn)
{
    const struct nd_http_server *server = conn->server;
    size_t page = page_size(), size = server->pool_size;

    if (conn->pool == NULL && conn->tls == NULL && begins_at_the_pool(conn)) {
        conn->pool = conn->request_line;
    }
    if (conn->pool == NULL || page == 0 || (uintptr_t)conn->pool % page != 0 ||
        size <= MAPPED_MIN || size < 2 * page) {
        return;
    }
    pages_give(conn->pool, (size + page - 1) / page * page, page);
}

void nd_http_trim(struct nd_http_loop *loop, uint64_t now_ns)
{
    struct nd_list *link;

    while ((link = nd_list_first(&loop->resting)) != NULL) {
        struct nd_http_conn *conn = ND_CONTAINER_OF(link, struct nd_http_conn, rest);
        if (now_ns - conn->rest_since_ns < (uint64_t)REST_MS * 1000000) {
            return;
        }
        nd_list_remove(link);
        if (loop->server->trims) {
            conn_trim(conn);
        }
    }
}
