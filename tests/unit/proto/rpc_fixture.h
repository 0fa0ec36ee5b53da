/* A server with an echo service and a channel to it, in one process. The service speaks
 * narad.v1.Header: `name` says what to do, `value` comes back. */
#ifndef ND_TEST_RPC_FIXTURE_H
#define ND_TEST_RPC_FIXTURE_H

#include "storage/base/thread.h"

#include "proto/narad/v1/types.pb-c.h"
#include "proto/rpc/client.h"
#include "proto/rpc/server.h"
#include "tests/support/nd_test.h"

#define ECHO_PLAIN  "/test.Echo/Plain" /* unary, fast path */
#define ECHO_WATCH  "/test.Echo/Watch" /* unary with on_cancel; "park" is never answered */
#define ECHO_MANY   "/test.Echo/Many"  /* server stream of fixture->many messages of value's size */
#define ECHO_SUM    "/test.Echo/Sum"   /* client stream, replies the number of messages */
#define ECHO_BIDI   "/test.Echo/Bidi"  /* echoes until half close */
#define ECHO_MANUAL "/test.Echo/Manual" /* the same, one message for each fixture_allow_read() */

enum {
    FIXTURE_MESSAGE_MAX = 1 << 20,
    FIXTURE_SERVER_MESSAGE_MAX = 2 << 20,
    FIXTURE_HELD_MAX = 1024
};

struct fixture {
    struct nd_rpc_server *server;
    struct nd_rpc_channel *channel;
    struct nd_metrics *metrics;
    char address[64];
    char target[64];
    bool authenticate; /* ask for "authorization: secret" */
    bool later;        /* every call is held; see fixture_admit() */
    bool at_once;      /* with `later`: admitted before authenticate returns */
    uint32_t calls_max;
    uint32_t threads;      /* of the server; 0: 1 */
    uint32_t keepalive_ms; /* of the server; 0: 20 s */
    bool flood;            /* ECHO_MANY does not pause */
    bool elsewhere; /* ECHO_MANY, and two messages of ECHO_BIDI: sent by another thread before the
                       worker is done with the start of the call */
    struct nd_mutex lock;
    struct nd_cond changed;
    /* guarded by lock; what the service saw */
    unsigned started, cancelled, done, half_closed, messages, drained;
    unsigned lost; /* calls whose client was gone in on_done */
    uint32_t many; /* messages of ECHO_MANY */
    uint32_t many_sent;
    size_t queued_max;             /* highest result of nd_rpc_call_send */
    struct nd_rpc_call *last_bidi; /* the newest ECHO_BIDI call */
    struct nd_rpc_call *manual;    /* the open ECHO_MANUAL call */
    struct nd_rpc_call *parked;    /* the last ECHO_WATCH call that was parked and is still open */
    char peer[64];
    uint64_t deadline_left_ms;
    char metadata[64]; /* value of "x-test" */
    struct nd_rpc_call *held[FIXTURE_HELD_MAX];
    unsigned held_count;        /* of all that ever were held */
    unsigned identities;        /* released */
    unsigned done_before_those; /* on_done seen when the last identity was released */
    const void *identity;       /* of the last call that started */
    bool elsewhere_started;     /* a handler began on another thread than authenticate */
    pthread_t asked;            /* the thread of the last authenticate */
};

/* With the argument "shared" the channels of the fixtures to come have no thread of their own: the
 * server's first worker drives them. Such a channel is freed before its server stops, and made
 * again when it starts. */
void fixture_arguments(int argc, char **argv);
/* On a loopback address of this process alone: nobody takes the port while the server is stopped.
 */
void fixture_init_tcp(struct fixture *fixture);
/* `address`: "127.x.y.z:0" or "unix:<path>". */
void fixture_init(struct fixture *fixture, const char *address);
void fixture_release(struct fixture *fixture);
void fixture_server_start(struct fixture *fixture); /* again after a stop */
void fixture_server_stop(struct fixture *fixture, uint32_t grace_ms);
struct nd_rpc_channel *fixture_channel_new(struct fixture *fixture,
                                           const struct nd_rpc_metadata *metadata, size_t count);
/* Decide about the held call of that number, with an identity of its own. */
void fixture_admit(struct fixture *fixture, unsigned index, enum nd_err err, const char *text);
/* Wait until a counter of the fixture is at least `at_least`; fails the test after 2 minutes. */
void fixture_wait(struct fixture *fixture, const unsigned *counter, unsigned at_least);
unsigned fixture_count(struct fixture *fixture, const unsigned *counter);

/* A unary call and its outcome. */
struct outcome {
    struct fixture *fixture;
    bool done;
    int code;
    char text[200];
    char reason[40];
    uint32_t retry_after_ms;
    char name[64];
    size_t value_size;
};
void outcome_init(struct outcome *outcome, struct fixture *fixture);
void outcome_start(struct outcome *outcome, struct nd_rpc_channel *channel, const char *path,
                   const char *name, size_t value_size, uint32_t deadline_ms);
/* The same with options; their deadline as it is. */
void outcome_start_with(struct outcome *outcome, struct nd_rpc_channel *channel, const char *path,
                        const char *name, const struct nd_rpc_call_options *options);
void outcome_wait(struct outcome *outcome);
void echo_call(struct fixture *fixture, const char *path, const char *name, size_t value_size,
               struct outcome *outcome);

/* A client stream and what came. */
struct watcher {
    struct fixture *fixture;
    struct nd_rpc_stream *stream;
    unsigned messages, drained, done;
    int code;
    char text[200];
    char reason[40];
    char last[64];
    bool in_order; /* names are "0", "1", … */
};
void watcher_open(struct watcher *watcher, struct fixture *fixture, const char *path,
                  uint32_t deadline_ms, bool manual_read);
void watcher_open_with(struct watcher *watcher, struct fixture *fixture, const char *path,
                       const struct nd_rpc_call_options *options);
size_t watcher_send(struct watcher *watcher, const char *name, size_t value_size);
void watcher_wait(struct watcher *watcher, const unsigned *counter, unsigned at_least);

#endif
