/* A broker that does what a test tells it: a real gRPC server on a Unix socket, or with TLS on
 * loopback, with handlers that
 * confirm, hold back, refuse or break off. It can be stopped and started again at the same address.
 * What it counts, it counts before it answers: whoever has an answer finds it counted. */
#ifndef FAKE_BROKER_H
#define FAKE_BROKER_H

#include "storage/base/thread.h"

#include "proto/rpc/server.h"

enum { FAKE_BROKER_HELD_MAX = 16, FAKE_BROKER_METRICS_BYTES = 40 << 20 };

struct nd_rpc_call;

struct fake_broker {
    char dir[64], address[96];
    struct nd_rpc_server *server;
    struct nd_mutex lock;
    struct nd_cond changed;
    /* orders; guarded by lock, or given while it is stopped */
    bool hold; /* confirm nothing, until fake_broker_confirm_held */
    uint32_t
        break_after; /* end the stream with UNAVAILABLE after so many confirmations; 0: never */
    int refuse_code; /* end produce streams at once with this status, subscriptions with their first
                      * settle; 0: no */
    int break_code;  /* instead of UNAVAILABLE; 0: no */
    bool stale;      /* settles answer FAILED_PRECONDITION */
    bool hold_acks;  /* answer no Ack, until fake_broker_confirm_held */
    enum nd_err refuse_all;             /* every call, before its handler; ND_OK: no */
    const struct nd_rpc_tls_files *tls; /* NULL: plain */
    /* what happened; guarded by lock */
    uint32_t items, streams, settles, acks,
        messages_of_stream; /* stream messages that carried items */
    char last_topic[64];
    char authorization[128]; /* of the last call */
    uint32_t asked;          /* calls, refused ones among them */
    struct nd_rpc_call *held_ack;
    uint32_t held_settles; /* of held_ack */
    struct {
        struct nd_rpc_call *call;
        uint64_t id;
    } held[FAKE_BROKER_HELD_MAX];
    uint32_t held_count;
    uint32_t deliver; /* messages that a new Subscribe stream delivers at once */
};

void fake_broker_init(struct fake_broker *broker);
void fake_broker_start(struct fake_broker *broker);
void fake_broker_stop(struct fake_broker *broker);
void fake_broker_release(struct fake_broker *broker);
/* Confirm what it holds, in order, and hold no more. */
void fake_broker_confirm_held(struct fake_broker *broker);
/* *counter, guarded by lock. */
uint32_t fake_broker_count(struct fake_broker *broker, const uint32_t *counter);
/* Wait until *counter, guarded by lock, is at least `value`; fails the test after 2 minutes. */
void fake_broker_wait(struct fake_broker *broker, const uint32_t *counter, uint32_t value);

#endif
