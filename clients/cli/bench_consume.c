/* consume-unary, consume-stream, latency. The consume modes fill the topic first, through libnarad.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/list.h"

#include "clients/cli/bench.h"

/* --- filling --- */

static void on_filled(void *data, int code, const char *text,
                      Narad__V1__Placement *const *placements, size_t placements_count)
{
    _Atomic uint64_t *errors = data;

    (void)text;
    (void)placements;
    (void)placements_count;
    atomic_fetch_add_explicit(errors, code != NARAD_OK, memory_order_relaxed);
}

static int fill(struct bench *bench, uint64_t count)
{
    _Atomic uint64_t errors = 0;
    struct cli_progress progress = {0};
    enum { AT_ONCE = 100 };
    Narad__V1__Record **records = bench_records(bench, AT_ONCE);
    int code = NARAD_OK;

    for (uint64_t sent = 0; sent < count && code == NARAD_OK; sent += AT_ONCE) {
        code = narad_produce_async(bench->cli->client, bench->topic, records, AT_ONCE, on_filled,
                                   &errors);
        cli_progress(&progress, "filling: %llu of %llu", (unsigned long long)sent,
                     (unsigned long long)count);
    }
    bool flushed = narad_flush(bench->cli->client, 60000);
    cli_progress_end(&progress);
    nd_free(records);
    uint64_t failed = atomic_load(&errors);
    return code == NARAD_OK && flushed && failed == 0
               ? CLI_OK
               : cli_fail("filling the topic failed (%llu errors)", (unsigned long long)failed);
}

/* --- consume-unary: N loops of consume one, ack it --- */

struct unary_slot {
    struct unary_run *run;
    uint64_t started_ns;
    char handle[64];
};

struct unary_run {
    struct bench *bench;
    uint32_t open;
};

static void unary_consume(struct unary_slot *slot);

static void slot_over(struct unary_slot *slot)
{
    if (--slot->run->open == 0) {
        bench_finish(slot->run->bench);
    }
}

static void on_acked(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct unary_slot *slot = data;
    struct bench *bench = slot->run->bench;
    const Narad__V1__AckResponse *response = reply;
    uint64_t now = cli_now_ns();

    if (status->code != NARAD_OK) {
        bench_error(bench, status->text);
    } else if (response->n_results != 1 || response->results[0]->code != NARAD_OK) {
        bench_error(bench, response->n_results == 1 ? response->results[0]->error : "no result");
    } else if (now < bench->stop_ns) {
        bench->messages += 1;
        bench_hist_add(&bench->hist, now - slot->started_ns);
    }
    if (now < bench->stop_ns && bench->errors < 1000) {
        unary_consume(slot);
    } else {
        slot_over(slot);
    }
}

static void on_consumed(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct unary_slot *slot = data;
    struct bench *bench = slot->run->bench;
    const Narad__V1__ConsumeResponse *response = reply;
    Narad__V1__AckRequest request;
    Narad__V1__Settle settle;
    Narad__V1__Settle *settles[] = {&settle};

    if (status->code != NARAD_OK || response->n_messages == 0) {
        if (status->code != NARAD_OK) {
            bench_error(bench, status->text);
        } else {
            bench->ended_ns = cli_now_ns(); /* the topic is empty: the run ends early */
            bench->stop_ns = ND_MIN(bench->stop_ns, bench->ended_ns);
        }
        slot_over(slot);
        return;
    }
    snprintf(slot->handle, sizeof slot->handle, "%s", response->messages[0]->receipt_handle);
    narad__v1__settle__init(&settle);
    settle.receipt_handle = slot->handle;
    narad__v1__ack_request__init(&request);
    request.topic = (char *)(uintptr_t)bench->topic;
    request.settles = settles;
    request.n_settles = 1;
    nd_rpc_call_unary(bench->channel, "/narad.v1.Broker/Ack", &request.base,
                      &narad__v1__ack_response__descriptor, 30000, true, on_acked, slot);
}

static void unary_consume(struct unary_slot *slot)
{
    Narad__V1__ConsumeRequest request;

    narad__v1__consume_request__init(&request);
    request.topic = (char *)(uintptr_t)slot->run->bench->topic;
    request.max_messages = 1;
    slot->started_ns = cli_now_ns();
    nd_rpc_call_unary(slot->run->bench->channel, "/narad.v1.Broker/Consume", &request.base,
                      &narad__v1__consume_response__descriptor, 30000, true, on_consumed, slot);
}

static void unary_start(void *data)
{
    struct unary_slot *slots = data;

    for (uint32_t i = 0; i < slots[0].run->bench->in_flight; i++) {
        unary_consume(&slots[i]);
    }
}

int bench_consume_unary(struct bench *bench)
{
    struct unary_run run = {bench, bench->in_flight};
    struct unary_slot *slots = nd_xcalloc(bench->in_flight, sizeof *slots);

    for (uint32_t i = 0; i < bench->in_flight; i++) {
        slots[i].run = &run;
    }
    int result = fill(bench, bench->seconds_ms * 40);
    if (result == CLI_OK) {
        bench_alone(bench);
        bench->started_ns = cli_now_ns();
        bench->stop_ns = bench->started_ns + bench->seconds_ms * 1000000u;
        nd_rpc_channel_post(bench->channel, unary_start, slots);
        bench_wait(bench);
    }
    nd_free(slots);
    return result;
}

/* --- a Subscribe stream: consume-stream counts, latency times one message at a time --- */

struct sub_run {
    struct bench *bench;
    struct nd_rpc_stream *stream;
    struct nd_list pending; /* handles to ack */
    uint64_t *taken_ns;     /* ring: when each un-acked delivery came, in order */
    uint64_t taken, acked;
    uint64_t mask;
    bool writing, closed, lone;
    uint64_t sent_ns; /* latency: when the one message was produced */
    uint64_t lone_id; /* latency: begins its payload, so that a backlog is not mistaken for it */
    bool lone_taken;
    Narad__V1__ProduceRequest produce;
};

struct handle {
    struct nd_list link;
    char text[64];
};

static void lone_produce(struct sub_run *run);

static void sub_pump(struct sub_run *run)
{
    enum { SETTLES = 1000 };
    Narad__V1__SubscribeRequest request;
    Narad__V1__Settle settles[SETTLES];
    Narad__V1__Settle *pointers[SETTLES];
    struct nd_list sent = ND_LIST_INIT(sent);
    struct nd_list *link;

    if (run->writing || run->closed) {
        return;
    }
    narad__v1__subscribe_request__init(&request);
    request.settles = pointers;
    while (request.n_settles < SETTLES && (link = nd_list_pop(&run->pending)) != NULL) {
        struct handle *handle = ND_CONTAINER_OF(link, struct handle, link);
        Narad__V1__Settle *settle = &settles[request.n_settles];
        narad__v1__settle__init(settle);
        settle->receipt_handle = handle->text;
        pointers[request.n_settles++] = settle;
        nd_list_append(&sent, link);
    }
    if (request.n_settles > 0) {
        run->writing = true;
        nd_rpc_stream_send(run->stream, &request.base);
    }
    while ((link = nd_list_pop(&sent)) != NULL) {
        nd_free(ND_CONTAINER_OF(link, struct handle, link));
    }
}

static void results_count(struct sub_run *run, const Narad__V1__SubscribeResponse *response,
                          uint64_t now)
{
    struct bench *bench = run->bench;

    for (size_t i = 0; i < response->n_results; i++) {
        uint64_t taken = run->taken_ns[run->acked++ & run->mask];
        if (response->results[i]->code != NARAD_OK) {
            bench_error(bench, response->results[i]->error);
        } else if (now < bench->stop_ns && !run->lone) {
            bench->messages += 1;
            bench_hist_add(&bench->hist, now - taken);
        }
    }
}

static size_t lone_id_size(const struct bench *bench)
{
    return ND_MIN(bench->payload_bytes, sizeof(uint64_t));
}

static bool is_lone_one(const struct sub_run *run, const ProtobufCBinaryData *payload)
{
    size_t size = lone_id_size(run->bench);

    return !run->lone_taken && payload->len == run->bench->payload_bytes &&
           memcmp(payload->data, &run->lone_id, size) == 0;
}

static void on_deliveries(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct sub_run *run = data;
    struct bench *bench = run->bench;
    uint64_t now = cli_now_ns();
    Narad__V1__SubscribeResponse *response =
        narad__v1__subscribe_response__unpack(NULL, bytes.size, bytes.data);

    if (response == NULL) {
        bench_error(bench, "a delivery could not be decoded");
        nd_rpc_stream_cancel(stream);
        return;
    }
    for (size_t i = 0; i < response->n_messages; i++) {
        struct handle *handle = nd_xmalloc(sizeof *handle);
        nd_list_init(&handle->link);
        snprintf(handle->text, sizeof handle->text, "%s", response->messages[i]->receipt_handle);
        nd_list_append(&run->pending, &handle->link);
        run->taken_ns[run->taken++ & run->mask] = now;
        if (run->lone && is_lone_one(run, &response->messages[i]->payload)) {
            run->lone_taken = true;
            bench->messages += 1;
            bench_hist_add(&bench->hist, now - run->sent_ns);
        }
    }
    results_count(run, response, now);
    bool settled = run->lone && run->lone_taken && run->acked == run->taken;
    narad__v1__subscribe_response__free_unpacked(response, NULL);
    if (now >= bench->stop_ns || bench->errors >= 1000) {
        if (!run->closed) {
            run->closed = true;
            nd_rpc_stream_cancel(stream);
        }
    } else if (settled) {
        lone_produce(run);
    }
    sub_pump(run);
}

static void on_drained(void *data, struct nd_rpc_stream *stream)
{
    struct sub_run *run = data;

    (void)stream;
    run->writing = false;
    sub_pump(run);
}

static void on_sub_done(void *data, struct nd_rpc_stream *stream,
                        const struct nd_rpc_status *status)
{
    struct sub_run *run = data;

    (void)stream;
    if (!run->closed) {
        bench_error(run->bench, status->text);
    }
    run->closed = true;
    bench_finish(run->bench);
}

/* A topic that runs empty gives no more events: end it then. */
static void sub_deadline(void *data)
{
    struct sub_run *run = data;

    if (!run->closed) {
        run->closed = true;
        nd_rpc_stream_cancel(run->stream);
    }
}

static void sub_start(void *data)
{
    static const struct nd_rpc_stream_events events = {
        .on_message = on_deliveries, .on_drained = on_drained, .on_done = on_sub_done};
    struct sub_run *run = data;
    Narad__V1__SubscribeRequest request;
    Narad__V1__SubscribeStart start;

    narad__v1__subscribe_request__init(&request);
    narad__v1__subscribe_start__init(&start);
    start.topic = (char *)(uintptr_t)run->bench->topic;
    start.max_outstanding = run->bench->in_flight;
    request.start = &start;
    run->stream = nd_rpc_stream_open(run->bench->channel, "/narad.v1.Broker/Subscribe", 0, true,
                                     false, &events, run);
    run->writing = true;
    nd_rpc_stream_send(run->stream, &request.base);
    nd_rpc_channel_post_after(run->bench->channel, (uint32_t)run->bench->seconds_ms + 50,
                              sub_deadline, run);
    if (run->lone) {
        run->lone_id = cli_now_ns();
        lone_produce(run);
    }
}

static int sub_bench(struct bench *bench, bool lone)
{
    struct sub_run run = {.bench = bench, .lone = lone};
    uint64_t ring = 1;
    struct nd_list *link;

    while (ring < bench->in_flight) {
        ring *= 2;
    }
    run.mask = ring - 1;
    run.taken_ns = nd_xcalloc(ring, sizeof *run.taken_ns);
    nd_list_init(&run.pending);
    narad__v1__produce_request__init(&run.produce);
    run.produce.topic = (char *)(uintptr_t)bench->topic;
    run.produce.records = bench_records(bench, 1);
    run.produce.n_records = 1;
    bench->started_ns = cli_now_ns();
    bench->stop_ns = bench->started_ns + bench->seconds_ms * 1000000u;
    nd_rpc_channel_post(bench->channel, sub_start, &run);
    bench_wait(bench);
    /* Its deadline still refers to `run`: freeing the channel runs it now. */
    nd_rpc_channel_free(bench->channel);
    bench->channel = NULL;
    while ((link = nd_list_pop(&run.pending)) != NULL) {
        nd_free(ND_CONTAINER_OF(link, struct handle, link));
    }
    nd_free(run.produce.records);
    nd_free(run.taken_ns);
    return CLI_OK;
}

int bench_consume_stream(struct bench *bench)
{
    int result = fill(bench, bench->seconds_ms * 150);

    if (result != CLI_OK) {
        return result;
    }
    bench_alone(bench);
    return sub_bench(bench, false);
}

static void on_lone_produced(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct sub_run *run = data;

    (void)reply;
    if (status->code != NARAD_OK && !run->closed) { /* closed: its end cancels what is under way */
        bench_error(run->bench, status->text);
    }
}

static void lone_produce(struct sub_run *run)
{
    run->lone_taken = false;
    run->lone_id += 1;
    memcpy(run->bench->payload, &run->lone_id, lone_id_size(run->bench));
    run->sent_ns = cli_now_ns();
    nd_rpc_call_unary(run->bench->channel, "/narad.v1.Broker/Produce", &run->produce.base,
                      &narad__v1__produce_response__descriptor, 30000, true, on_lone_produced, run);
}

int bench_latency(struct bench *bench)
{
    bench->in_flight = 1;
    return sub_bench(bench, true);
}
