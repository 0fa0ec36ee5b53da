/* A channel and what its calls share. Private to proto/rpc. */
#ifndef ND_RPC_CHANNEL_H
#define ND_RPC_CHANNEL_H

#include "storage/base/list.h"
#include "storage/base/thread.h"

#include "proto/rpc/client.h"
#include "proto/rpc/convert.h"

enum { ND_RPC_CHANNEL_PATHS_MAX = 32 };

struct nd_rpc_metadata_list {
    grpc_metadata *entries;
    size_t count;
};

struct nd_rpc_channel {
    grpc_channel *core;
    grpc_completion_queue *queue; /* the server's, when there is one */
    struct nd_rpc_server *server;
    struct nd_thread thread;              /* without a server */
    struct nd_rpc_metadata_list metadata; /* sent with every call */
    struct nd_arena arena;                /* the channel thread's, for the reply being delivered */
    struct nd_rpc_tag wake;
    struct nd_mutex lock;
    struct nd_cond idle;
    /* guarded by lock */
    struct nd_list calls; /* of struct nd_rpc_open */
    struct nd_list posts; /* of struct channel_post */
    size_t busy;          /* calls and posts whose callback has not returned */
    bool waking;          /* the wake tag is with the core */
    bool closing;
    struct {
        char *path;
        void *handle;
    } paths[ND_RPC_CHANNEL_PATHS_MAX]; /* registered once */
    size_t paths_count;
};

/* The part of an open call that the channel needs to cancel it. */
struct nd_rpc_open {
    struct nd_list link;
    grpc_call *core;
};

/* Make the core's call and list it. False when the channel closes: nothing was made. @thread any */
bool nd_rpc_channel_open(struct nd_rpc_channel *channel, struct nd_rpc_open *open, const char *path,
                         uint32_t deadline_ms);
/* After the last callback of the call returned: off the list, the core's call released. */
void nd_rpc_channel_close(struct nd_rpc_channel *channel, struct nd_rpc_open *open);
/* One thing less that nd_rpc_channel_free waits for. */
void nd_rpc_channel_busy_drop(struct nd_rpc_channel *channel);

/* --- metadata.c --- */

/* Append copies. INVALID_ARGUMENT: one is not legal; release the list all the same. */
ND_CHECKED enum nd_err nd_rpc_metadata_add(struct nd_rpc_metadata_list *list,
                                           const struct nd_rpc_metadata *entries, size_t count,
                                           struct nd_errmsg *msg);
void nd_rpc_metadata_release(struct nd_rpc_metadata_list *list);

/* What a call begins with; lives as long as the call. */
struct nd_rpc_head {
    const struct nd_rpc_channel *channel;
    bool wait_for_ready;
    struct nd_rpc_metadata_list own; /* the channel's and the call's; none: the channel's alone */
};
/* `head` is zeroed. As nd_rpc_metadata_add; `own` is the caller's to release. */
ND_CHECKED enum nd_err nd_rpc_head_init(struct nd_rpc_head *head,
                                        const struct nd_rpc_channel *channel,
                                        const struct nd_rpc_call_options *options,
                                        struct nd_errmsg *msg);
/* Fill the first operation of a call. */
void nd_rpc_head_op(const struct nd_rpc_head *head, grpc_op *op);

/* The end of a call as the core reports it, and as it is told. */
struct nd_rpc_outcome {
    grpc_status_code code;
    grpc_slice details;
    grpc_metadata_array initial, trailing;
    char *text; /* of gpr_malloc */
    char reason[40];
};
void nd_rpc_outcome_init(struct nd_rpc_outcome *outcome);
void nd_rpc_outcome_op(struct nd_rpc_outcome *outcome, grpc_op *op); /* RECV_STATUS_ON_CLIENT */
/* Once; its texts are valid until release. */
struct nd_rpc_status nd_rpc_outcome_status(struct nd_rpc_outcome *outcome);
void nd_rpc_outcome_release(struct nd_rpc_outcome *outcome);

#endif
