#include <sys/socket.h>

#include "gateway/http_impl.h"

/* The line before a chunk has to fit the library's memory of the connection. One that does not, say
 * because of an extension, it neither refuses nor waits for: with that memory full it comes back to
 * it with every step, and the loop never sleeps. It tells nobody; so a loop that has not slept for
 * a while looks for it among the chunked bodies that are arriving on it. It is one of which no
 * piece came all the while, although half of that memory was sent besides heads and pieces. Both
 * are told by steps as well as by time: a loop that was not let run has seen nothing. Whoever sends
 * his body byte by byte and pauses looks the same, but only while another keeps the loop from
 * sleep. */

enum { STUCK_MS = 100, UNSURE_MS = 3000, STUCK_STEPS = 1000, MS = 1000000 };

static bool is_long(const struct nd_http_loop *loop, uint64_t now_ns, uint64_t since_ns,
                    uint64_t since_step, uint64_t ms)
{
    return now_ns - since_ns >= ms * MS && loop->steps - since_step >= (uint64_t)STUCK_STEPS;
}

/* A head may have left little of the memory: then there is but time to tell by. */
static bool is_stuck(const struct nd_http_conn *conn, uint64_t now_ns)
{
    const struct nd_http_request *request = conn->request;
    const struct nd_http_loop *loop = conn->loop;
    uint64_t received;

    if (request->stage != ND_HTTP_STAGE_BODY || !nd_http_received(conn, &received)) {
        return false;
    }
    bool sure = received - conn->bytes_seen >= conn->server->pool_size / 2;
    uint64_t ms = sure ? STUCK_MS : UNSURE_MS;
    return is_long(loop, now_ns, request->piece_ns, request->piece_step, ms) &&
           is_long(loop, now_ns, loop->slept_ns, loop->slept_step, ms);
}

void nd_http_stuck_cut(struct nd_http_loop *loop, uint64_t now_ns)
{
    if (!is_long(loop, now_ns, loop->slept_ns, loop->slept_step, STUCK_MS) ||
        now_ns - loop->looked_ns < (uint64_t)STUCK_MS * MS) {
        return;
    }
    loop->looked_ns = now_ns;
    ND_LIST_FOREACH (&loop->chunked, link) {
        struct nd_http_conn *conn = ND_CONTAINER_OF(link, struct nd_http_conn, chunked);
        if (is_stuck(conn, now_ns)) {
            nd_http_answer_past(conn, conn->request->mhd, 400,
                                "bad request: the line before a chunk is too long");
            (void)shutdown(conn->watched.file, SHUT_RDWR);
            /* Once it was suspended, the library does not hear of that: it is to end it by itself.
             */
            (void)MHD_set_connection_option(conn->request->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
            nd_list_remove(link);
        }
    }
}
