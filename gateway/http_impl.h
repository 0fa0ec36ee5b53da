/* What the files of the HTTP server share: http_server (start, loops, stop), http_gather (a request
 * from its head to its answer), http_head (is its framing beyond doubt?), http (what handlers see),
 * http_room, http_pages, http_stuck, http_tls, http_meters. */
#ifndef ND_HTTP_IMPL_H
#define ND_HTTP_IMPL_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "storage/base/arena.h"
#include "storage/base/thread.h"

#include "gateway/http.h"
#include "gateway/http_meters.h"
#include "gateway/http_room.h"
#include "gateway/http_server.h"
#include "gateway/http_tls.h"
#include "gateway/routes.h"
#include "gateway/watch.h"

enum {
    ND_HTTP_MIB = 1 << 20,
    ND_HTTP_DROP_MAX = ND_HTTP_MIB, /* of a body that is not kept */
    ND_HTTP_SMALL_STEP = 64 << 10,  /* bodies are counted in steps of it */
    ND_HTTP_PEER_SIZE = 48,
    ND_HTTP_LINGER_MAX = 64,
};

#define ND_HTTP_HEAD_TOO_LARGE "request header fields too large"

/* Not now, maybe soon. */
#define ND_HTTP_NO_ROOM "the node is at its limit: too many bytes of request bodies at a time"

/* Bytes of bodies up to 1 MiB in memory, of all requests. */
struct nd_http_budget {
    _Atomic uint64_t used;
    uint64_t max;
};
bool nd_http_budget_take(struct nd_http_budget *budget, uint64_t bytes);
void nd_http_budget_give(struct nd_http_budget *budget, uint64_t bytes);

struct nd_http_loop {
    struct nd_http_server *server;
    bool metrics_only; /* the listener of metrics_addr */
    struct MHD_Daemon *daemon;
    struct nd_thread thread;
    int wake;
    _Atomic bool rung; /* `wake` was written to and not read since */
    struct nd_mutex lock;
    struct nd_list arrivals;        /* guarded by lock */
    struct nd_http_arrival *adding; /* the loop's: what MHD_add_connection is told of */
    struct nd_list resting;         /* the loop's: by how long, connections that wait */
    struct nd_list hung_up;         /* guarded by lock: connections whose client sends no more */
    uint64_t hung_up_looked_ns;
    struct nd_list chunked; /* the loop's: connections whose chunked body is arriving */
    /* The loop's: steps so far; when it last slept, by steps and by time. */
    uint64_t steps, slept_step, slept_ns;
    uint64_t looked_ns; /* why it does not */
    _Atomic bool stopping;
};

struct nd_http_conn {
    struct nd_watched watched;
    struct nd_http_server *server;
    struct nd_http_loop *loop;
    struct nd_http_request *request; /* the one that has begun; NULL: none. The loop's */
    struct nd_tls_files *tls;        /* counted; NULL: plain */
    int linger_file;                 /* -1: none */
    uint64_t requests;               /* that have begun on it */
    bool reading;                    /* idle, or a request is arriving; the loop's */
    struct nd_list hung_up;          /* guarded by the loop's lock */
    bool closing;                    /* guarded by the loop's lock */
    _Atomic bool half_closed;        /* the client sends no more */
    bool looked_at; /* the loop's: waited for more from a client that had hung up */
    struct nd_list chunked;
    struct nd_list rest; /* of http_trim.c, as what follows */
    uint64_t rest_since_ns;
    uint64_t bytes_seen;   /* heads and bodies of all its requests */
    uint8_t *request_line; /* where the newest one's stands */
    uint8_t *pool;         /* NULL: it is not known to be there */
    char peer[ND_HTTP_PEER_SIZE];
};

struct nd_http_server {
    struct nd_http_server_options options; /* strings are borrowed during the start only */
    struct nd_http_loop *loops;
    size_t loops_count, loops_next; /* next: the watch's */
    size_t main_loops;              /* of them serve `addr`; the one behind, metrics_addr */
    struct nd_watch *watch;
    struct nd_tls *tls; /* NULL: plain */
    struct nd_http_meters *meters;
    struct nd_http_room *room;   /* for bodies above 1 MiB */
    struct nd_http_budget small; /* for those up to it */
    size_t pool_size;            /* of a connection */
    bool trims;                  /* the library is the one that http_trim.c knows */
    int metrics_port;
    bool metrics_moved;
    _Atomic bool draining;
    _Atomic bool refusing;      /* no handler is called any more */
    _Atomic uint64_t running;   /* handlers that have not returned */
    _Atomic uint64_t answering; /* threads in nd_http_answer */
    _Atomic uint32_t lingering; /* second descriptors of connections that end early */
    struct nd_mutex lock;
    struct nd_cond changed; /* `open` fell to 0 */
    _Atomic uint64_t open;  /* requests whose head was read and that are not over */
};

struct nd_http_field {
    struct nd_slice name, value;
};

/*  HEAD ─► BODY ─► SETTLE ─► ANSWER
 *    │       │ ▲
 *  ASKED     └─► ASKED       may the caller send a body above 1 MiB?
 *
 * ASKED_HEAD: asked before the body; called again, the word is there. It is no, which is the
 * answer, or BODY follows.
 * ASKED_BODY: the same within a chunked body; after a no its rest is read and dropped as BODY.
 * SETTLE: all of the body is there; called again, the handler runs.
 * ANSWER: the handler ran; called again, its answer is there. */
enum nd_http_stage {
    ND_HTTP_STAGE_HEAD,
    ND_HTTP_STAGE_ASKED_HEAD,
    ND_HTTP_STAGE_BODY,
    ND_HTTP_STAGE_ASKED_BODY,
    ND_HTTP_STAGE_SETTLE,
    ND_HTTP_STAGE_ANSWER,
};

/* RUNNING ─► ANSWERED                     answered before the handler returned
 * RUNNING ─► PARKED ─► ANSWERED           the connection is suspended; the answer resumes it
 * RUNNING (─► PARKED) ─► ADMITTED ─► RUNNING   the same of who was asked before the body */
enum nd_http_progress { ND_HTTP_RUNNING, ND_HTTP_PARKED, ND_HTTP_ADMITTED, ND_HTTP_ANSWERED };

enum nd_http_keep {
    ND_HTTP_KEEP,    /* the body goes to the handler */
    ND_HTTP_DROP,    /* read and dropped: it does not matter, or it is answered already */
    ND_HTTP_EXCEEDS, /* above the cap: read and dropped */
};

struct nd_http_request {
    struct nd_http_conn *conn;
    struct MHD_Connection *mhd;
    enum nd_http_stage stage;
    struct nd_arena arena;
    uint64_t started_ns, read_deadline_ns;

    /* The head; slices into `target`, the library's memory of this request, and the arena. */
    char *target;
    struct nd_slice method, path, query;
    struct nd_http_field *fields;
    size_t fields_count;
    bool chunked, http_1_0;
    uint64_t declared; /* Content-Length; 0 without */
    struct nd_route_match match;
    struct nd_slice values[ND_ROUTE_VALUES_MAX]; /* decoded */
    const char *refusal;                         /* with refusal_status: answered by the server */
    int refusal_status;

    /* The body. */
    enum nd_http_keep keep;
    struct nd_buf body;
    uint64_t body_total;           /* bytes that came */
    uint64_t piece_ns, piece_step; /* chunked: when the last of them did, or the head */
    uint64_t body_total_max;       /* beyond it the connection ends, where the body is not kept */
    bool admitted;                 /* it may be larger than 1 MiB */
    uint64_t identity;             /* whose room it takes then */
    uint64_t room_taken, small_taken;

    /* The answer. Written by its one giver before `progress` says ANSWERED. */
    _Atomic enum nd_http_progress progress;
    struct MHD_Response *response; /* NULL: memory was out, the connection ends */
    int status;
    uint64_t answer_size;
    bool close_after;
    bool unread;            /* it goes out before the body was read */
    struct nd_list headers; /* of struct nd_http_header_out, in the arena */
    _Atomic bool gone_told;
    void *memory;
};

struct nd_http_header_out {
    struct nd_list link;
    const char *name, *value;
};

/* --- http_server.c --- */
void nd_http_loop_wake(struct nd_http_loop *loop);
/* It waits for the client again: a request, or more of one. @thread loop */
void nd_http_reading(struct nd_http_conn *conn);

/* --- http_gather.c: libmicrohttpd's callbacks --- */
void *nd_http_began(void *server, const char *target, struct MHD_Connection *mhd);
enum MHD_Result nd_http_called(void *server, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *data,
                               size_t *size_io, void **request);
void nd_http_ended(void *server, struct MHD_Connection *mhd, void **request,
                   enum MHD_RequestTerminationCode why);
/* What the client may still be sending must not reset the connection before it has read the answer:
 * a second descriptor keeps it open for a moment. @thread loop */
void nd_http_linger(struct nd_http_conn *conn);

/* --- http_pages.c. @thread loop --- */
/* MHD_queue_response, the library's own. */
enum MHD_Result nd_http_queue(struct MHD_Connection *mhd, int status,
                              struct MHD_Response *response);
/* Where the library takes no answer: written to the socket at once; the connection must end. 431 is
 * plain text, 503 says when to try again. `error`: no quotes, backslashes or control bytes. */
void nd_http_answer_past(struct nd_http_conn *conn, struct MHD_Connection *mhd, int status,
                         const char *error);

/* --- http_trim.c. @thread loop --- */
/* It waits: parked, or for its next request. Taken out of the list by whoever goes on with it. */
void nd_http_rest(struct nd_http_conn *conn, uint64_t now_ns);
/* Those that have waited for a second give memory back. */
void nd_http_trim(struct nd_http_loop *loop, uint64_t now_ns);

/* Bytes that the kernel has received on it. False: it does not say. */
bool nd_http_received(const struct nd_http_conn *conn, uint64_t *out);

/* --- http_stuck.c. @thread loop --- */
/* Those that keep the loop from sleep are answered and cut. */
void nd_http_stuck_cut(struct nd_http_loop *loop, uint64_t now_ns);

/* --- http_head.c --- */
/* Method, fields, lengths. False: `refusal` and its status are set; nothing of the request is to be
 * trusted, least of all where it ends. */
bool nd_http_head_read(struct nd_http_request *request, const char *method, const char *version);

#endif
