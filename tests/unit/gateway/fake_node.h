/* A node for the gateway's upstream: a real gRPC server on a Unix socket that answers at once, or
 * holds everything until the test says how to answer. What it counts, it counts before it answers.
 */
#ifndef FAKE_NODE_H
#define FAKE_NODE_H

#include "storage/base/list.h"
#include "storage/base/thread.h"

#include "proto/rpc/server.h"

enum fake_kind { FAKE_PRODUCE, FAKE_POLL, FAKE_ACK, FAKE_KINDS };

struct fake_node {
    char dir[64], address[96];
    struct nd_rpc_server *server;
    struct nd_mutex lock;
    struct nd_cond changed;
    /* orders; guarded by lock */
    bool hold;                /* answer nothing but cancels, until fake_node_answer_held */
    bool deaf;                /* not even cancels */
    enum nd_err refuse;       /* every call, when it opens */
    enum nd_err refuse_items; /* each produce and poll on a stream, for 2500 ms */
    /* what happened; guarded by lock */
    uint32_t streams[FAKE_KINDS], streams_done[FAKE_KINDS]; /* opened, over */
    uint32_t messages[FAKE_KINDS], items[FAKE_KINDS];
    uint32_t calls[FAKE_KINDS], calls_cancelled; /* unary ones */
    uint32_t cancels, nacks;
    char authorization[FAKE_KINDS][128]; /* of the last one that opened; "-": none */
    char address_of[FAKE_KINDS][64];     /* of the last produce or poll on a stream */
    struct nd_list held;                 /* of struct fake_held */
};

void fake_node_init(struct fake_node *node);
void fake_node_start(struct fake_node *node);
void fake_node_stop(struct fake_node *node);
void fake_node_release(struct fake_node *node);
/* Answer what is held, polls with a message each, and hold no more. */
void fake_node_answer_held(struct fake_node *node);
/* End the streams of what is held instead, with this error. */
void fake_node_break_held(struct fake_node *node, enum nd_err err);
/* *counter, guarded by lock. */
uint32_t fake_node_count(struct fake_node *node, const uint32_t *counter);
/* Wait until *counter, guarded by lock, is at least `value`; fails the test after 2 minutes. */
void fake_node_wait(struct fake_node *node, const uint32_t *counter, uint32_t value);

#endif
