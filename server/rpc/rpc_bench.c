/* Bench: decodes what Produce and ProduceStream decode and answers at once, storing nothing: what
 * the way in and out costs by itself. Only with --dev. */
#include "storage/base/alloc.h"

#include "server/rpc/handlers.h"
#include "server/rpc/stream.h"
#include "server/rpc/wire.h"

/* Each record as if it had become the next of partition 0. */
static const struct nd_placement nowhere = {0, 0, 0};

static void on_produce(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_wire_batch batch;
    enum nd_err err = nd_wire_get_produce(request, nd_rpc_call_arena(call), &batch);
    if (err != ND_OK || batch.err != ND_OK) {
        nd_call_refuse_bytes(call, "ProduceRequest");
        return;
    }
    size_t each = nd_wire_put_placement(NULL, 1, &nowhere);
    uint8_t *bytes = nd_xmalloc(each * batch.count + 1);
    for (uint32_t i = 0; i < batch.count; i++) {
        nd_wire_put_placement(bytes + i * each, 1, &nowhere);
    }
    nd_call_reply_bytes(call, bytes, each * batch.count);
}

static void on_message(struct nd_rpc_call *call, struct nd_slice message)
{
    struct nd_stream *s = nd_stream_of(call);
    struct nd_wire_batch *items;
    uint32_t count;
    enum nd_err err = nd_wire_get_items(message, nd_rpc_call_arena(call), &items, &count);
    if (err == ND_ERR_TOO_LARGE) {
        (void)nd_stream_takes(s, "items", count);
        return;
    }
    if (err != ND_OK) {
        nd_stream_end(s, false, ND_ERR_INVALID_ARGUMENT,
                      "the message is not a valid narad.v1.ProduceStreamRequest");
        return;
    }
    struct nd_placement *placements = nd_xcalloc(ND_BATCH_COUNT_MAX, sizeof *placements);
    nd_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct nd_wire_result result = {.id = items[i].id,
                                        .err = items[i].err,
                                        .text = items[i].text,
                                        .placements = placements,
                                        .count = items[i].count};
        uint8_t *at = nd_stream_answer_locked(s, nd_wire_put_produce_result(NULL, &result));
        nd_wire_put_produce_result(at, &result);
    }
    bool gone = nd_stream_flush_locked(s, 0);
    nd_stream_unlock(s, gone);
    nd_free(placements);
    nd_stream_read_next(s);
}

static void release(struct nd_stream *stream)
{
    nd_free(stream);
}

static const struct nd_stream_ops ops = {.release = release};

static void on_open(struct nd_rpc_call *call)
{
    struct nd_stream *s = nd_xcalloc(1, sizeof *s);
    nd_stream_open(s, call, &ops, &nd_handlers_of(call)->produce);
}

const struct nd_rpc_method nd_rpc_bench_produce = {
    .path = "/narad.v1.Bench/Produce",
    .kind = ND_RPC_UNARY,
    .message_bytes_max = 20 << 20,
    .on_start = on_produce,
    .right = ND_RIGHT_ANY,
};
const struct nd_rpc_method nd_rpc_bench_produce_stream = {
    .path = "/narad.v1.Bench/ProduceStream",
    .kind = ND_RPC_BIDI,
    .message_bytes_max = 20 << 20,
    .on_open = on_open,
    .on_message = on_message,
    .on_half_close = nd_stream_on_half_close,
    .on_drained = nd_stream_on_drained,
    .on_cancel = nd_stream_on_cancel,
    .on_done = nd_stream_on_done,
    .manual_read = true,
    .right = ND_RIGHT_ANY,
};
