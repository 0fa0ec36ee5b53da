/* A channel and what its calls share. Private to proto/rpc. */
#ifndef ND_RPC_CHANNEL_H
#define ND_RPC_CHANNEL_H

#include "storage/base/list.h"
#include "storage/base/thread.h"

#include "proto/rpc/client.h"
#include "proto/rpc/convert.h"

enum { ND_RPC_CHANNEL_PATHS_MAX = 32 };

struct nd_rpc_channel {
    grpc_channel *core;
    grpc_completion_queue *queue;
    struct nd_thread thread;
    grpc_metadata *metadata; /* sent with every call */
    size_t metadata_count;
    struct nd_arena arena; /* the channel thread's, for the reply being delivered */
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
/* Fill the first operation of a call. */
void nd_rpc_channel_metadata_op(const struct nd_rpc_channel *channel, bool wait_for_ready,
                                grpc_op *op);

/* The end of a call as the core reports it. */
struct nd_rpc_outcome {
    grpc_status_code code;
    grpc_slice details;
    grpc_metadata_array initial, trailing;
};
void nd_rpc_outcome_init(struct nd_rpc_outcome *outcome);
void nd_rpc_outcome_op(struct nd_rpc_outcome *outcome, grpc_op *op); /* RECV_STATUS_ON_CLIENT */
/* The text is valid until release. */
struct nd_rpc_status nd_rpc_outcome_status(const struct nd_rpc_outcome *outcome, char **text_out);
void nd_rpc_outcome_release(struct nd_rpc_outcome *outcome);

#endif
