/* Unary calls of the client: one batch, one event. */
#include <string.h>

#include "storage/base/alloc.h"

#include "proto/rpc/channel.h"

typedef void (*unary_done)(void *data, const struct nd_rpc_status *status, const void *reply);

struct unary {
    struct nd_rpc_tag tag;
    struct nd_rpc_channel *channel;
    struct nd_rpc_open open;
    struct nd_rpc_head head;
    struct nd_rpc_outcome outcome;
    char *refusal; /* it could not be made, and why; owned */
    enum nd_err refusal_err;
    grpc_byte_buffer *request, *reply;
    const ProtobufCMessageDescriptor *reply_type;
    unary_done on_done;
    void *data;
};

static void unary_free(struct unary *unary)
{
    grpc_byte_buffer_destroy(unary->request);
    nd_free(unary->refusal);
    nd_rpc_metadata_release(&unary->head.own);
    nd_rpc_outcome_release(&unary->outcome);
    nd_free(unary);
}

static void on_reply(struct nd_rpc_tag *tag, bool ok)
{
    struct unary *unary = ND_CONTAINER_OF(tag, struct unary, tag);
    struct nd_rpc_channel *channel = unary->channel;
    struct nd_rpc_bytes bytes = {.open = false};
    const void *reply = NULL;

    (void)ok; /* the status tells */
    struct nd_rpc_status status = nd_rpc_outcome_status(&unary->outcome);
    if (unary->reply != NULL) {
        struct nd_slice message = nd_rpc_bytes_open(&bytes, unary->reply);
        if (status.code == GRPC_STATUS_OK) {
            reply = nd_rpc_unpack(&channel->arena, unary->reply_type, message);
        }
    }
    if (status.code == GRPC_STATUS_OK && reply == NULL) {
        status.code = GRPC_STATUS_INTERNAL;
        status.text = "the reply is missing or not a message of its type";
    }
    unary->on_done(unary->data, &status, reply);
    nd_rpc_bytes_close(&bytes);
    nd_arena_reset(&channel->arena);
    nd_rpc_channel_close(channel, &unary->open);
    unary_free(unary);
}

/* On the channel's thread, for a call that could not be made. */
static void unary_refused(void *data)
{
    struct unary *unary = data;
    struct nd_rpc_status status = {nd_err_grpc_status(unary->refusal_err), unary->refusal, "", 0};

    unary->on_done(unary->data, &status, NULL);
    unary_free(unary);
}

static void unary_start(struct unary *unary)
{
    grpc_op ops[6];

    memset(ops, 0, sizeof ops);
    nd_rpc_head_op(&unary->head, &ops[0]);
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = unary->request;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &unary->outcome.initial;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &unary->reply;
    nd_rpc_outcome_op(&unary->outcome, &ops[5]);
    nd_rpc_batch(unary->open.core, ops, ND_ARRAY_SIZE(ops), &unary->tag);
}

void nd_rpc_call_unary_with(struct nd_rpc_channel *channel, const char *path,
                            const ProtobufCMessage *request,
                            const ProtobufCMessageDescriptor *reply_type,
                            const struct nd_rpc_call_options *options, unary_done on_done,
                            void *data)
{
    struct unary *unary = nd_xcalloc(1, sizeof *unary);
    struct nd_errmsg msg = {.text = ""};

    unary->tag.run = on_reply;
    unary->channel = channel;
    unary->reply_type = reply_type;
    unary->on_done = on_done;
    unary->data = data;
    unary->request = nd_rpc_buffer_pack(request);
    nd_rpc_outcome_init(&unary->outcome);
    unary->refusal_err = nd_rpc_head_init(&unary->head, channel, options, &msg);
    if (unary->refusal_err == ND_OK &&
        !nd_rpc_channel_open(channel, &unary->open, path, options->deadline_ms)) {
        unary->refusal_err = ND_ERR_CANCELLED;
        nd_errmsg_set(&msg, "%s", ND_RPC_CLOSED_TEXT);
    }
    if (unary->refusal_err == ND_OK) {
        unary_start(unary);
    } else {
        unary->refusal = nd_xstrdup(msg.text);
        nd_rpc_channel_post(channel, unary_refused, unary);
    }
}

void nd_rpc_call_unary(struct nd_rpc_channel *channel, const char *path,
                       const ProtobufCMessage *request,
                       const ProtobufCMessageDescriptor *reply_type, uint32_t deadline_ms,
                       bool wait_for_ready, unary_done on_done, void *data)
{
    struct nd_rpc_call_options options = {.deadline_ms = deadline_ms,
                                          .wait_for_ready = wait_for_ready};

    nd_rpc_call_unary_with(channel, path, request, reply_type, &options, on_done, data);
}
