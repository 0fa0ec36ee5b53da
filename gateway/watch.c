#include "gateway/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

enum {
    LISTENERS_MAX = 2,
    EVENTS_MAX = 64,
    ACCEPTS_MAX = 64,       /* in one go */
    LINGERERS_MAX = 64,     /* beyond them the oldest is closed */
    LINGER_BYTES = 2 << 20, /* what a client may still send */
    LINGER_MS = 1000,
    ACCEPT_PAUSE_MS = 100, /* when no descriptor was left */
};

struct listener {
    int file; /* -1: closed */
    bool plain;
};

struct lingerer {
    struct nd_list link;
    int file;
    uint64_t deadline_ns;
    size_t bytes;
};

/* What an epoll event points at begins with its kind, or is a struct nd_watched. */
struct nd_watch {
    struct nd_watch_options options;
    int epoll, wake;
    struct nd_thread thread;
    _Atomic bool stopping;
    struct nd_mutex lock;
    struct nd_cond changed;                   /* a gone() has returned; the listeners are closed */
    struct nd_list live, dead, late;          /* guarded by lock */
    uint64_t count;                           /* of live; guarded by lock */
    struct nd_watched *running;               /* its gone() runs; guarded by lock */
    pthread_t self;                           /* set before the thread is of use to anyone else */
    bool close_wanted, closed;                /* the listeners; guarded by lock */
    struct listener listeners[LISTENERS_MAX]; /* the thread's, once it runs */
    size_t listeners_count;
    uint64_t paused_until_ns;         /* 0: accepting; the thread's */
    struct nd_list lingerers, handed; /* handed: guarded by lock */
    size_t lingerers_count;
    struct nd_series *open, *refused, *cut;
};

uint64_t nd_watch_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void wake(struct nd_watch *watch)
{
    uint64_t one = 1;
    ssize_t done = write(watch->wake, &one, sizeof one);

    (void)done; /* full: it is awake */
}

/* --- the epoll set --- */

static bool poll_add(struct nd_watch *watch, int file, uint32_t events, void *who)
{
    struct epoll_event event = {.events = events, .data.ptr = who};

    return epoll_ctl(watch->epoll, EPOLL_CTL_ADD, file, &event) == 0;
}

static void poll_remove(struct nd_watch *watch, int file)
{
    (void)epoll_ctl(watch->epoll, EPOLL_CTL_DEL, file, NULL);
}

/* --- connections --- */

void nd_watch_add(struct nd_watch *watch, struct nd_watched *watched, int file,
                  uint64_t deadline_ns)
{
    watched->file = file;
    watched->gone = NULL;
    watched->hung_up = watched->dead = false;
    nd_list_init(&watched->late);
    atomic_init(&watched->deadline_ns, deadline_ns);
    atomic_init(&watched->idle, true);
    nd_mutex_lock(&watch->lock);
    bool first = nd_list_empty(&watch->live);
    nd_list_append(&watch->live, &watched->link);
    watched->polled = poll_add(watch, file, EPOLLRDHUP | EPOLLONESHOT, watched);
    nd_mutex_unlock(&watch->lock);
    if (first) {
        wake(watch); /* to begin with its sweeps */
    }
}

/* The memory stays until the thread has let go of events that may name it. */
void nd_watch_remove(struct nd_watch *watch, struct nd_watched *watched, int linger_file)
{
    struct lingerer *lingerer = NULL;

    if (linger_file >= 0) {
        lingerer = nd_xcalloc(1, sizeof *lingerer);
        lingerer->file = linger_file;
        lingerer->bytes = LINGER_BYTES;
        lingerer->deadline_ns = nd_watch_now_ns() + (uint64_t)LINGER_MS * 1000000;
    }
    nd_mutex_lock(&watch->lock);
    while (watch->running == watched && !pthread_equal(pthread_self(), watch->self)) {
        nd_cond_wait(&watch->changed, &watch->lock);
    }
    if (watched->polled) {
        poll_remove(watch, watched->file);
    }
    watched->dead = true;
    watched->gone = NULL;
    nd_list_remove(&watched->late);
    nd_list_remove(&watched->link);
    nd_list_append(&watch->dead, &watched->link);
    watch->count--;
    if (lingerer != NULL) {
        nd_list_append(&watch->handed, &lingerer->link);
    }
    nd_mutex_unlock(&watch->lock);
    nd_series_sub(watch->open, 1);
    wake(watch);
}

void nd_watch_on_gone(struct nd_watch *watch, struct nd_watched *watched, void (*gone)(void *arg),
                      void *arg)
{
    nd_mutex_lock(&watch->lock);
    watched->gone = gone;
    watched->arg = arg;
    nd_list_remove(&watched->late);
    bool late = gone != NULL && watched->hung_up && !watched->dead;
    if (late) {
        nd_list_append(&watch->late, &watched->late);
    }
    while (gone == NULL && watch->running == watched &&
           !pthread_equal(pthread_self(), watch->self)) {
        nd_cond_wait(&watch->changed, &watch->lock);
    }
    nd_mutex_unlock(&watch->lock);
    if (late) {
        wake(watch);
    }
}

/* Also gives the lock back for a while. */
static void gone_tell_locked(struct nd_watch *watch, struct nd_watched *watched)
    ND_REQUIRES(watch->lock)
{
    void (*gone)(void *arg) = watched->gone;
    void *arg = watched->arg;

    if (gone == NULL) {
        return;
    }
    watched->gone = NULL;
    watch->running = watched;
    nd_mutex_unlock(&watch->lock);
    gone(arg);
    nd_mutex_lock(&watch->lock);
    watch->running = NULL;
    nd_cond_broadcast(&watch->changed);
}

/* The one event of a oneshot. */
static void hung_up(struct nd_watch *watch, struct nd_watched *watched)
{
    nd_mutex_lock(&watch->lock);
    if (!watched->dead && !watched->hung_up) {
        watched->hung_up = true;
        watch->options.hung_up(watched);
        gone_tell_locked(watch, watched);
    }
    nd_mutex_unlock(&watch->lock);
}

static void late_ones_tell(struct nd_watch *watch)
{
    struct nd_list *link;

    nd_mutex_lock(&watch->lock);
    while ((link = nd_list_pop(&watch->late)) != NULL) {
        gone_tell_locked(watch, ND_CONTAINER_OF(link, struct nd_watched, late));
    }
    nd_mutex_unlock(&watch->lock);
}

void nd_watch_cut(struct nd_watch *watch, bool idle_only)
{
    nd_mutex_lock(&watch->lock);
    ND_LIST_FOREACH (&watch->live, link) {
        struct nd_watched *watched = ND_CONTAINER_OF(link, struct nd_watched, link);
        if (!idle_only || atomic_load_explicit(&watched->idle, memory_order_relaxed)) {
            (void)shutdown(watched->file, SHUT_RDWR);
        }
    }
    nd_mutex_unlock(&watch->lock);
}

/* The file cannot be closed meanwhile, nor its number be another's: that takes the lock first. */
static void sweep(struct nd_watch *watch, uint64_t now)
{
    uint64_t cut = 0;

    nd_mutex_lock(&watch->lock);
    ND_LIST_FOREACH (&watch->live, link) {
        struct nd_watched *watched = ND_CONTAINER_OF(link, struct nd_watched, link);
        uint64_t deadline = atomic_load_explicit(&watched->deadline_ns, memory_order_relaxed);
        if (deadline <= now) {
            (void)shutdown(watched->file, SHUT_RDWR);
            nd_watch_deadline(watched, ND_WATCH_NEVER);
            cut++;
        }
    }
    nd_mutex_unlock(&watch->lock);
    nd_series_add(watch->cut, cut);
}

static void bury(struct nd_watch *watch)
{
    struct nd_list mine = ND_LIST_INIT(mine), handed = ND_LIST_INIT(handed);

    nd_mutex_lock(&watch->lock);
    nd_list_move(&mine, &watch->dead);
    nd_list_move(&handed, &watch->handed);
    nd_mutex_unlock(&watch->lock);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL;) {
        watch->options.freed(ND_CONTAINER_OF(link, struct nd_watched, link));
    }
    for (struct nd_list *link; (link = nd_list_pop(&handed)) != NULL; watch->lingerers_count++) {
        nd_list_append(&watch->lingerers, link);
    }
}

/* --- those that still read for a moment --- */

static void lingerer_end(struct nd_watch *watch, struct lingerer *lingerer)
{
    nd_list_remove(&lingerer->link);
    watch->lingerers_count--;
    close(lingerer->file);
    nd_free(lingerer);
}

/* Looked at with each step rather than by events: they are few, and live for a second. */
static void linger(struct nd_watch *watch, uint64_t now)
{
    static const size_t piece = 65536;

    ND_LIST_FOREACH (&watch->lingerers, link) {
        struct lingerer *lingerer = ND_CONTAINER_OF(link, struct lingerer, link);
        ssize_t size = 1;
        while (size > 0 && lingerer->bytes > 0) {
            /* TRUNC: dropped by the kernel. It may hold passwords, and comes nowhere. */
            size = recv(lingerer->file, NULL, ND_MIN(piece, lingerer->bytes),
                        MSG_DONTWAIT | MSG_TRUNC);
            lingerer->bytes -= size > 0 ? (size_t)size : 0;
        }
        bool waits = size < 0 && (errno == EAGAIN || errno == EINTR);
        if (!waits || lingerer->deadline_ns <= now || watch->lingerers_count > LINGERERS_MAX) {
            lingerer_end(watch, lingerer);
        }
    }
}

/* --- accepting --- */

static void refuse(const struct listener *listener, int file)
{
    static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\n"
                                 "Content-Type: application/json\r\nContent-Length: 33\r\n"
                                 "Retry-After: 1\r\nConnection: close\r\n\r\n"
                                 "{\"error\":\"too many connections\"}\n";
    char dropped[4096];

    if (listener->plain) {
        (void)send(file, answer, sizeof answer - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)shutdown(file, SHUT_WR);
        /* What is left unread at the close would reset the connection before it is seen. */
        (void)recv(file, dropped, sizeof dropped, MSG_DONTWAIT);
    }
    close(file);
}

static void listeners_poll(struct nd_watch *watch, bool on)
{
    for (size_t i = 0; i < watch->listeners_count; i++) {
        struct listener *listener = &watch->listeners[i];
        if (listener->file >= 0 && on) {
            (void)poll_add(watch, listener->file, EPOLLIN, listener);
        } else if (listener->file >= 0) {
            poll_remove(watch, listener->file);
        }
    }
}

/* Out of descriptors or memory: no accept for a moment, so that nothing spins. */
static void accept_pause(struct nd_watch *watch, int error)
{
    nd_log_lasting(watch->options.log, ND_LOG_WARN, "gateway", "cannot accept", "error=%s",
                   strerror(error));
    nd_series_add(watch->refused, 1);
    listeners_poll(watch, false);
    watch->paused_until_ns = nd_watch_now_ns() + (uint64_t)ACCEPT_PAUSE_MS * 1000000;
}

static bool room_take(struct nd_watch *watch)
{
    nd_mutex_lock(&watch->lock);
    bool room = watch->count < watch->options.connections_max;
    watch->count += room ? 1 : 0;
    nd_mutex_unlock(&watch->lock);
    nd_series_add(room ? watch->open : watch->refused, 1);
    return room;
}

static void accept_some(struct nd_watch *watch, struct listener *listener)
{
    for (int i = 0; i < ACCEPTS_MAX && listener->file >= 0; i++) {
        struct sockaddr_storage addr;
        socklen_t size = sizeof addr;
        int file =
            accept4(listener->file, (struct sockaddr *)&addr, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (file < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                accept_pause(watch, errno);
            }
            return; /* none left; a client that left before it was accepted changes nothing */
        }
        if (!room_take(watch)) {
            refuse(listener, file);
            continue;
        }
        int one = 1;
        (void)setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        watch->options.accepted(watch->options.arg, (size_t)(listener - watch->listeners), file,
                                &addr, size);
    }
}

void nd_watch_given_up(struct nd_watch *watch)
{
    nd_mutex_lock(&watch->lock);
    watch->count--;
    nd_mutex_unlock(&watch->lock);
    nd_series_sub(watch->open, 1);
}

/* --- the thread --- */

static void listeners_close(struct nd_watch *watch)
{
    for (size_t i = 0; i < watch->listeners_count; i++) {
        if (watch->listeners[i].file >= 0) {
            close(watch->listeners[i].file);
            watch->listeners[i].file = -1;
        }
    }
}

static void close_if_wanted(struct nd_watch *watch)
{
    nd_mutex_lock(&watch->lock);
    bool wanted = watch->close_wanted && !watch->closed;
    nd_mutex_unlock(&watch->lock);
    if (wanted) {
        listeners_close(watch);
        nd_mutex_lock(&watch->lock);
        watch->closed = true;
        nd_cond_broadcast(&watch->changed);
        nd_mutex_unlock(&watch->lock);
    }
}

/* How long to sleep: for ever while nothing has a deadline. */
static int sleep_ms(struct nd_watch *watch)
{
    nd_mutex_lock(&watch->lock);
    bool idle = nd_list_empty(&watch->live) && nd_list_empty(&watch->handed);
    nd_mutex_unlock(&watch->lock);
    if (!nd_list_empty(&watch->lingerers)) {
        return 10;
    }
    if (watch->paused_until_ns != 0) {
        return ACCEPT_PAUSE_MS / 2;
    }
    return idle ? -1 : (int)watch->options.sweep_ms;
}

static void event_handle(struct nd_watch *watch, void *who)
{
    uint64_t rings;

    if (who == watch) {
        ssize_t size = read(watch->wake, &rings, sizeof rings);
        (void)size;
    } else if (who >= (void *)watch->listeners &&
               who < (void *)(watch->listeners + LISTENERS_MAX)) {
        accept_some(watch, who);
    } else {
        hung_up(watch, who);
    }
}

static void run(void *arg)
{
    struct nd_watch *watch = arg;
    uint64_t swept = nd_watch_now_ns();
    struct epoll_event events[EVENTS_MAX];

    nd_mutex_lock(&watch->lock);
    watch->self = pthread_self();
    nd_mutex_unlock(&watch->lock);
    listeners_poll(watch, true);
    while (!atomic_load_explicit(&watch->stopping, memory_order_acquire)) {
        int count = epoll_wait(watch->epoll, events, EVENTS_MAX, sleep_ms(watch));
        for (int i = 0; i < count; i++) {
            event_handle(watch, events[i].data.ptr);
        }
        uint64_t now = nd_watch_now_ns();
        late_ones_tell(watch);
        bury(watch); /* no event of before names them any more */
        close_if_wanted(watch);
        linger(watch, now);
        if (now - swept >= watch->options.sweep_ms * 1000000) {
            sweep(watch, now);
            swept = now;
        }
        if (watch->paused_until_ns != 0 && watch->paused_until_ns <= now) {
            watch->paused_until_ns = 0;
            listeners_poll(watch, true);
        }
    }
}

/* --- start and stop --- */

enum nd_err nd_watch_start(struct nd_watch **out, const struct nd_watch_options *options,
                           struct nd_errmsg *msg)
{
    struct nd_watch *watch = nd_xcalloc(1, sizeof *watch);

    watch->options = *options;
    watch->epoll = epoll_create1(EPOLL_CLOEXEC);
    watch->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (watch->epoll < 0 || watch->wake < 0 || !poll_add(watch, watch->wake, EPOLLIN, watch)) {
        nd_errmsg_set(msg, "epoll: %s", strerror(errno));
        if (watch->epoll >= 0) {
            close(watch->epoll);
        }
        if (watch->wake >= 0) {
            close(watch->wake);
        }
        nd_free(watch);
        return ND_ERR_IO;
    }
    nd_mutex_init(&watch->lock);
    nd_cond_init(&watch->changed);
    nd_list_init(&watch->live);
    nd_list_init(&watch->dead);
    nd_list_init(&watch->late);
    nd_list_init(&watch->handed);
    nd_list_init(&watch->lingerers);
    watch->open = nd_metrics_gauge(options->metrics, "http_connections", "",
                                   "Open connections of the HTTP listeners.");
    watch->refused = nd_metrics_counter(
        options->metrics, "http_connections_refused_total", "",
        "Connections refused at http.max_connections or for want of descriptors.");
    watch->cut = nd_metrics_counter(options->metrics, "http_connections_cut_total", "",
                                    "Connections ended by a time limit.");
    *out = watch;
    return ND_OK;
}

void nd_watch_listen(struct nd_watch *watch, int file, bool plain)
{
    ND_ASSERT(watch->listeners_count < LISTENERS_MAX);
    watch->listeners[watch->listeners_count++] = (struct listener){file, plain};
}

bool nd_watch_run(struct nd_watch *watch)
{
    return nd_thread_start(&watch->thread, "http-watch", run, watch);
}

void nd_watch_close_listeners(struct nd_watch *watch)
{
    nd_mutex_lock(&watch->lock);
    watch->close_wanted = true;
    wake(watch);
    while (watch->thread.started && !watch->closed) {
        nd_cond_wait(&watch->changed, &watch->lock);
    }
    nd_mutex_unlock(&watch->lock);
}

void nd_watch_stop(struct nd_watch *watch)
{
    atomic_store_explicit(&watch->stopping, true, memory_order_release);
    wake(watch);
    nd_thread_join(&watch->thread);
    ND_ASSERT(nd_list_empty(&watch->live));
    bury(watch);
    listeners_close(watch);
    while (!nd_list_empty(&watch->lingerers)) {
        lingerer_end(watch,
                     ND_CONTAINER_OF(nd_list_first(&watch->lingerers), struct lingerer, link));
    }
    close(watch->epoll);
    close(watch->wake);
    nd_cond_release(&watch->changed);
    nd_mutex_release(&watch->lock);
    nd_free(watch);
}
