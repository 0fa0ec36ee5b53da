/* Produce: one batch, one answer. */
#include "storage/base/alloc.h"

#include "server/rpc/handlers.h"
#include "server/rpc/wire.h"

struct produce_call {
    struct nd_produce produce;
    struct nd_handlers *handlers;
    struct nd_rpc_call *call;
    size_t charged;
    uint32_t counted; /* records begun with the caller's quota */
};

/* A request on its way in. */
struct entry {
    struct nd_admission batch; /* out */
    uint32_t counted;          /* out: as above */
    uint32_t retry_after_ms;   /* out, with LIMITED */
};

static void reply(struct nd_rpc_call *call, const struct nd_admission *batch)
{
    size_t size = 0;
    for (uint32_t i = 0; batch->has_offsets && i < batch->count; i++) {
        size += nd_wire_put_placement(NULL, 1, &batch->placements[i]);
    }
    uint8_t *bytes = nd_xmalloc(size + 1); /* at most 1000 placements */
    size_t at = 0;
    for (uint32_t i = 0; batch->has_offsets && i < batch->count; i++) {
        at += nd_wire_put_placement(bytes + at, 1, &batch->placements[i]);
    }
    nd_call_reply_bytes(call, bytes, size);
}

/* @thread shard */
static void produced(struct nd_produce *produce, enum nd_err err)
{
    struct produce_call *p = produce->data;
    nd_budget_give(&p->handlers->produce, p->charged);
    nd_caller_end(nd_access_caller(p->call), ND_QUOTA_PRODUCE, p->counted);
    if (err == ND_OK) {
        reply(p->call, &produce->batch);
    } else {
        nd_call_fail_topic(p->call, err, produce->batch.topic,
                           nd_admission_partition(&produce->batch));
    }
    nd_free(p);
}

size_t nd_payload_bytes(const struct nd_produce_record *records, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += records[i].payload.size;
    }
    return bytes;
}

/* As much as its caller may, and then encoded. */
static enum nd_err encode(struct nd_rpc_call *call, const struct nd_wire_batch *batch,
                          const struct nd_topic *topic, struct entry *out, struct nd_errmsg *msg)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_caller *caller = nd_access_caller(call);
    size_t bytes = caller == NULL ? 0 : nd_payload_bytes(batch->records, batch->count);
    enum nd_err err =
        nd_caller_begin(caller, ND_QUOTA_PRODUCE, batch->count, bytes, &out->retry_after_ms, msg);
    if (err != ND_OK) {
        return err;
    }
    out->counted = batch->count;
    err = nd_admission_encode(&out->batch, topic, batch->records, batch->count, &h->spread, msg);
    if (err != ND_OK) {
        nd_caller_undo(caller, ND_QUOTA_PRODUCE, batch->count, bytes);
    }
    return err;
}

/* The request as an admitted batch, or an error with its text. */
static enum nd_err admit(struct nd_rpc_call *call, struct nd_slice request, struct entry *out,
                         struct nd_errmsg *msg)
{
    struct nd_wire_batch batch;
    enum nd_err err = nd_wire_get_produce(request, nd_rpc_call_arena(call), &batch);
    if (err != ND_OK) {
        nd_errmsg_set(msg, "%s",
                      err == ND_ERR_NO_MEMORY
                          ? "the records are too many small pieces"
                          : "the request is not a valid narad.v1.ProduceRequest message");
        return err;
    }
    err = nd_access_check(call, batch.topic, msg);
    if (err != ND_OK) {
        return err;
    }
    if (batch.err != ND_OK) {
        nd_errmsg_set(msg, "%s", batch.text);
        return batch.err;
    }
    struct nd_topic *topic;
    err = nd_handlers_topic(nd_handlers_of(call), batch.topic, &topic, msg);
    if (err == ND_OK) {
        err = encode(call, &batch, topic, out, msg);
        nd_topic_unref(topic);
    }
    return err;
}

static void on_start(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    struct entry entry = {.counted = 0};
    size_t charge = request.size + sizeof(struct produce_call);
    if (!nd_budget_take(&h->produce, charge)) {
        nd_call_refuse_budget(call, &h->produce);
        return;
    }
    enum nd_err err = admit(call, request, &entry, &msg);
    if (err != ND_OK) {
        nd_budget_give(&h->produce, charge);
        nd_rpc_call_fail_retry(call, err, msg.text, entry.retry_after_ms);
        return;
    }
    if (!nd_handlers_enter(h)) {
        nd_admission_release(&entry.batch);
        nd_caller_end(nd_access_caller(call), ND_QUOTA_PRODUCE, entry.counted);
        nd_budget_give(&h->produce, charge);
        nd_call_refuse_stopping(call);
        return;
    }
    struct produce_call *p = nd_xcalloc(1, sizeof *p);
    *p = (struct produce_call){
        .handlers = h, .call = call, .charged = charge, .counted = entry.counted};
    p->produce.batch = entry.batch;
    p->produce.done = produced;
    p->produce.data = p;
    nd_broker_produce(h->options.broker, &p->produce);
    nd_handlers_leave(h);
}

const struct nd_rpc_method nd_rpc_produce = {
    .path = "/narad.v1.Broker/Produce",
    .kind = ND_RPC_UNARY,
    .message_bytes_max = 20 << 20,
    .on_start = on_start,
    .right = ND_RIGHT_PRODUCE,
};
