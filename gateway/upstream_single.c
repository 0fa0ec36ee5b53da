/* A stream of its own for one operation: replay, and what finds no set. A unary method is a stream
 * with one message each way, and as a stream it can be cancelled. */
#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

#include "gateway/upstream_impl.h"

struct single {
    struct nd_upstream_op op; /* in the table; freed with this struct */
    struct nd_upstream *upstream;
    const ProtobufCMessageDescriptor *reply_type;
    struct nd_rpc_stream *stream; /* guarded by the upstream's lock */
    ProtobufCMessage *reply;      /* the first message; of the channel's thread */
    bool broken;                  /* what came is no such message */
    bool asks, may_be_none;       /* the method's */
};

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice message)
{
    struct single *single = data;
    (void)stream;
    if (single->reply == NULL) {
        single->reply =
            protobuf_c_message_unpack(single->reply_type, NULL, message.size, message.data);
        single->broken = single->reply == NULL;
    }
}

/* How it ended, from what came. */
static struct nd_upstream_status end_of(const struct single *single,
                                        const struct nd_rpc_status *status, bool ended)
{
    bool named = status->reason[0] != '\0';
    struct nd_upstream_status end = {status->code, nd_upstream_err(status->code, status->reason),
                                     status->text, status->retry_after_ms};
    if (single->broken || (single->reply == NULL && end.err == ND_OK && !single->may_be_none)) {
        end = (struct nd_upstream_status){13, ND_ERR_INTERNAL,
                                          "the broker's answer was not understood", 0};
    } else if (single->reply != NULL) {
        end = (struct nd_upstream_status){0, ND_OK, "", 0}; /* maybe a cancel that came too late */
    } else if (!named && (end.err == ND_ERR_UNAVAILABLE || end.err == ND_ERR_DEADLINE ||
                          end.err == ND_ERR_CANCELLED)) {
        end.err = single->asks ? ND_ERR_UNAVAILABLE : ND_ERR_UNKNOWN_OUTCOME;
        end.text = ended ? "the gateway is stopping" : status->text;
    }
    return end;
}

static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    struct single *single = data;
    struct nd_upstream *upstream = single->upstream;
    (void)stream;
    nd_mutex_lock(&upstream->lock);
    (void)nd_upstream_take_locked(upstream, single->op.id);
    bool ended = upstream->ended;
    nd_mutex_unlock(&upstream->lock);
    struct nd_upstream_status end = end_of(single, status, ended);
    single->op.done(single->op.arg, &end, single->reply);
    if (single->reply != NULL) {
        protobuf_c_message_free_unpacked(single->reply, NULL);
    }
    nd_free(single);
}

static const struct nd_rpc_stream_events events = {.on_message = on_message, .on_done = on_done};

static struct single *single_new(struct nd_upstream *upstream,
                                 const struct nd_upstream_method *method,
                                 const struct nd_upstream_op *op)
{
    struct single *single = nd_xcalloc(1, sizeof *single);
    single->op = *op;
    nd_list_init(&single->op.link);
    single->op.poll = method->poll;
    single->upstream = upstream;
    single->reply_type = method->reply_type;
    single->asks = method->asks;
    single->may_be_none = method->may_be_none;
    return single;
}

uint64_t nd_upstream_single(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                            const struct nd_upstream_method *method,
                            const ProtobufCMessage *request, nd_upstream_done_fn *done, void *arg)
{
    struct nd_upstream_op *op = nd_upstream_op_new(upstream, done, arg);
    char *value = nd_upstream_authorization(caller.authorization);
    struct nd_rpc_metadata metadata[ND_UPSTREAM_METADATA_MAX];
    struct nd_rpc_call_options options = {
        .deadline_ms = upstream->options.deadline_ms + method->wait_ms,
        .metadata = metadata,
        .metadata_count =
            nd_upstream_metadata(metadata, value, caller.address == NULL ? "" : caller.address),
    };
    uint64_t id = op->id;
    nd_mutex_lock(&upstream->lock); /* on_done takes it: the stream does not end meanwhile */
    if (upstream->ended) {
        nd_upstream_refuse(upstream, op, ND_ERR_UNAVAILABLE, "the gateway is stopping");
    } else {
        struct single *single = single_new(upstream, method, op);
        (void)nd_map_put_u64(upstream->ops, id, &single->op);
        single->stream =
            nd_rpc_stream_open_with(upstream->channel, method->path, &options, &events, single);
        (void)nd_rpc_stream_send(single->stream, request);
        nd_rpc_stream_half_close(single->stream);
        nd_free(op);
    }
    nd_mutex_unlock(&upstream->lock);
    nd_free_secret(value);
    return id;
}

void nd_upstream_single_cancel_locked(struct nd_upstream_op *op)
{
    nd_rpc_stream_cancel(ND_CONTAINER_OF(op, struct single, op)->stream);
}
