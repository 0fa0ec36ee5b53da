/* What the files of the upstream share. One lock guards the sets, their flows and the table of
 * operations; it is held for table work only, never while a message is packed, sent or a completion
 * runs (opening and half-closing a stream are done under it: nothing of ours runs inside).
 *
 *   operation ─► flow's queue ─► message in flight ─► answer by id ─► done
 *                   │                  └ on_drained: the next message, with all that gathered
 *                   └ the stream ended: every operation of the flow ends with its status */
#ifndef ND_UPSTREAM_IMPL_H
#define ND_UPSTREAM_IMPL_H

#include "storage/base/arena.h"
#include "storage/base/list.h"
#include "storage/base/map.h"
#include "storage/base/thread.h"

#include "gateway/upstream.h"
#include "proto/rpc/client_address.h"

enum nd_flow_kind { ND_FLOW_PRODUCE, ND_FLOW_POLL, ND_FLOW_ACK, ND_FLOW_KINDS };

enum {
    ND_FLOW_MESSAGE_BYTES = 256 << 10, /* of one message, unless a single item is larger */
    ND_FLOW_MESSAGE_ITEMS = 1000,
    ND_UPSTREAM_QUEUED_MAX = 64 << 20, /* packed and not handed to the transport */
    ND_AUTHORIZATION_MAX = 4096,       /* a longer one is none */
    ND_ADDRESS_TEXT_MAX = 64,          /* INET6_ADDRSTRLEN and some */
    ND_UPSTREAM_METADATA_MAX = 2,
};

/* An item of a stream's message, packed as an element of its repeated field. */
struct nd_packed {
    struct nd_list link;
    struct nd_upstream_op *op; /* its `packed` points back */
    size_t size;
    uint8_t bytes[];
};

struct nd_upstream_op {
    struct nd_list link;      /* in the flow's `open`, oldest first */
    uint64_t id;              /* in the table of operations, too */
    struct nd_flow *flow;     /* NULL: it has a stream of its own, see upstream_single.c */
    struct nd_packed *packed; /* in the flow's queue; NULL: handed over */
    uint64_t deadline_ns;
    bool poll; /* may be cancelled */
    nd_upstream_done_fn *done;
    void *arg;
};

/* One stream of a set. All guarded by the upstream's lock. */
struct nd_flow {
    enum nd_flow_kind kind;
    struct nd_upstream_set *set;
    struct nd_rpc_stream *stream; /* NULL: opened when it is needed */
    bool writing;                 /* a message is in flight; on_drained follows, or the end */
    struct nd_list queue;         /* of struct nd_packed */
    struct nd_list open;          /* of struct nd_upstream_op */
    uint64_t *cancels;            /* ids, to go with the next message */
    size_t cancels_count, cancels_capacity;
};

/* What one Authorization value shares. Lives while it is in the table or has a stream. */
struct nd_upstream_set {
    struct nd_upstream *upstream;
    char *authorization;               /* "": none */
    char address[ND_ADDRESS_TEXT_MAX]; /* of who asked last, so of who a stream is opened for */
    bool listed;                       /* in the table */
    uint64_t used_ns;
    struct nd_flow flows[ND_FLOW_KINDS];
};

struct nd_upstream {
    struct nd_upstream_options options;
    struct nd_rpc_channel *channel;
    bool believed;         /* of whom an item is: the node believes it over its Unix socket */
    struct nd_arena arena; /* of the channel's thread: decoded messages */
    _Atomic uint64_t ids;
    struct nd_mutex lock;
    /* guarded by lock */
    struct nd_map *sets;  /* by Authorization */
    struct nd_map *ops;   /* by id */
    size_t queued;        /* bytes */
    bool ended, sweeping; /* ended: nothing new begins */
};

uint64_t nd_upstream_now_ns(void);
/* What a call or stream says of who asks; returns how many. Both may be "". */
size_t nd_upstream_metadata(struct nd_rpc_metadata out[ND_UPSTREAM_METADATA_MAX],
                            const char *authorization, const char *address);
/* The value as metadata; "" when it is none or cannot travel. The caller's, for
 * nd_free_secret(). */
char *nd_upstream_authorization(struct nd_slice header);
struct nd_upstream_op *nd_upstream_op_new(struct nd_upstream *upstream, nd_upstream_done_fn *done,
                                          void *arg);
/* Frees it. Without the lock. */
void nd_upstream_op_end(struct nd_upstream_op *op, const struct nd_upstream_status *status,
                        const void *reply);
/* Take the operation out of the table; NULL: it is over. */
struct nd_upstream_op *nd_upstream_take_locked(struct nd_upstream *upstream, uint64_t id)
    ND_REQUIRES(upstream->lock);
/* Decode with the channel's arena, valid until the next decode. NULL: not that message. @thread the
 * channel's */
const void *nd_upstream_decode(struct nd_upstream *upstream, const ProtobufCMessageDescriptor *type,
                               struct nd_slice bytes);

/* --- flows (upstream_flow.c) --- */

void nd_flow_init(struct nd_flow *flow, enum nd_flow_kind kind, struct nd_upstream_set *set);
/* Queue `packed` and begin its stream or its next message if none is in flight. Gives the lock
 * back. */
void nd_flow_push(struct nd_upstream *upstream, struct nd_flow *flow, struct nd_upstream_op *op,
                  struct nd_packed *packed) ND_RELEASE(upstream->lock);
/* The same for a poll that is not wanted any more. */
void nd_flow_cancel(struct nd_upstream *upstream, struct nd_flow *flow, uint64_t id)
    ND_RELEASE(upstream->lock);
/* Take operations out that waited beyond their deadline: they go to `expired`. */
void nd_flow_expire_locked(struct nd_flow *flow, uint64_t now_ns, struct nd_list *expired);
/* End the operations in `ops` (of struct nd_upstream_op, in no table any more). */
void nd_flow_fail(struct nd_list *ops, const struct nd_upstream_status *status);
struct nd_packed *nd_pack_item(const ProtobufCMessage *message);

/* --- a stream of its own for one operation (upstream_single.c) --- */

/* nd_upstream_call, with a ticket. */
uint64_t nd_upstream_single(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                            const struct nd_upstream_method *method,
                            const ProtobufCMessage *request, nd_upstream_done_fn *done, void *arg);
/* End an operation that never began, on the channel's thread. `text` is static. */
void nd_upstream_refuse(struct nd_upstream *upstream, struct nd_upstream_op *op, enum nd_err err,
                        const char *text);
/* `op` has no flow. With the lock. */
void nd_upstream_single_cancel_locked(struct nd_upstream_op *op);

#endif
