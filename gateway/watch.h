/* The one thread that looks at sockets which libmicrohttpd does not look at: it accepts connections
 * and hands each to a loop, cuts those that passed their time limit, tells a parked request that
 * its client left, and lets connections that are closed early read on for a moment, so that the
 * answer is not lost to a reset. */
#ifndef ND_WATCH_H
#define ND_WATCH_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "storage/base/err.h"
#include "storage/base/list.h"
#include "storage/base/log.h"
#include "storage/base/metrics.h"

struct nd_watch;

#define ND_WATCH_NEVER UINT64_MAX

/* One open connection; embedded in its owner's. */
struct nd_watched {
    struct nd_list link; /* guarded by the watch's lock, as all but the deadline */
    int file;
    _Atomic uint64_t deadline_ns; /* CLOCK_MONOTONIC; beyond it the socket is shut down */
    _Atomic bool idle;            /* between two requests, or before the first */
    struct nd_list late;          /* it had hung up before someone wanted to be told */
    void (*gone)(void *arg);
    void *arg;
    bool polled;  /* in the epoll set */
    bool hung_up; /* the client sends no more */
    bool dead;
};

struct nd_watch_options {
    /* A connection was accepted; the callee owns the file. @thread watch */
    void (*accepted)(void *arg, size_t listener, int file, const struct sockaddr_storage *addr,
                     socklen_t addr_size);
    /* The client sends no more: it is gone, or has closed its half. Once. @thread watch
     * @locks the watch's */
    void (*hung_up)(struct nd_watched *watched);
    void (*freed)(struct nd_watched *watched); /* after nd_watch_remove, once nothing names it */
    void *arg;
    uint64_t connections_max;
    uint64_t sweep_ms; /* how often deadlines are looked at */
    struct nd_metrics *metrics;
    struct nd_log *log;
};

ND_CHECKED enum nd_err nd_watch_start(struct nd_watch **out, const struct nd_watch_options *options,
                                      struct nd_errmsg *msg);
/* `file` listens; taken over. `plain`: a refused connection is told so in HTTP. Before the first
 * nd_watch_run. */
void nd_watch_listen(struct nd_watch *watch, int file, bool plain);
ND_CHECKED bool nd_watch_run(struct nd_watch *watch);
/* Closes the listeners; returns when none accepts any more. */
void nd_watch_close_listeners(struct nd_watch *watch);
/* Ends the thread and frees. No connection is left. */
void nd_watch_stop(struct nd_watch *watch);

/* --- connections. @thread any --- */
void nd_watch_add(struct nd_watch *watch, struct nd_watched *watched, int file,
                  uint64_t deadline_ns);
/* The file is about to be closed. `linger_file` (-1: none) is taken over and read from until the
 * client ends, for a second at most. */
void nd_watch_remove(struct nd_watch *watch, struct nd_watched *watched, int linger_file);
/* As nd_http_on_gone. */
void nd_watch_on_gone(struct nd_watch *watch, struct nd_watched *watched, void (*gone)(void *arg),
                      void *arg);
/* What `accepted` was given came to nothing; the file is closed already. */
void nd_watch_given_up(struct nd_watch *watch);
/* Shut down every socket (`idle_only`: those between two requests). */
void nd_watch_cut(struct nd_watch *watch, bool idle_only);
uint64_t nd_watch_now_ns(void);
static inline void nd_watch_deadline(struct nd_watched *watched, uint64_t deadline_ns)
{
    /* Looked at now and then by the sweep; nothing else hangs on its order. */
    atomic_store_explicit(&watched->deadline_ns, deadline_ns, memory_order_relaxed);
}
static inline void nd_watch_idle(struct nd_watched *watched, bool idle)
{
    /* As above: who cuts what has just begun does what any close of an idle connection may do. */
    atomic_store_explicit(&watched->idle, idle, memory_order_relaxed);
}

#endif
