/* rpc-stream, produce-stream, rpc-batch, produce-batch: one ProduceStream with a window of items;
 * what the window allows when a write ends travels in the next message. */
#include <string.h>

#include "storage/base/alloc.h"

#include "clients/cli/bench.h"

enum { ITEMS_PER_MESSAGE = 256 };

struct run {
    struct bench *bench;
    struct nd_rpc_stream *stream;
    Narad__V1__Record **records;
    uint64_t *sent_ns; /* ring by id */
    uint64_t id_next;
    uint32_t outstanding, window_mask;
    bool writing, closed;
};

static void pump(struct run *run)
{
    struct bench *bench = run->bench;
    Narad__V1__ProduceStreamRequest request;
    Narad__V1__ProduceItem items[ITEMS_PER_MESSAGE];
    Narad__V1__ProduceItem *pointers[ITEMS_PER_MESSAGE];
    uint64_t now = cli_now_ns();

    if (run->writing || run->closed) {
        return;
    }
    if (now >= bench->stop_ns || bench->errors >= 1000) {
        if (run->outstanding == 0) {
            run->closed = true;
            nd_rpc_stream_half_close(run->stream);
        }
        return;
    }
    narad__v1__produce_stream_request__init(&request);
    request.items = pointers;
    size_t bytes = 0;
    while (run->outstanding < bench->in_flight && request.n_items < ITEMS_PER_MESSAGE &&
           bytes < 1 << 20) {
        Narad__V1__ProduceItem *item = &items[request.n_items];
        narad__v1__produce_item__init(item);
        item->id = run->id_next++;
        run->sent_ns[item->id & run->window_mask] = now;
        item->topic = (char *)(uintptr_t)(request.n_items == 0 ? bench->topic : "");
        item->records = run->records;
        item->n_records = bench->batch;
        pointers[request.n_items++] = item;
        run->outstanding += 1;
        bytes += (size_t)bench->batch * (bench->payload_bytes + 8);
    }
    if (request.n_items > 0) {
        run->writing = true;
        nd_rpc_stream_send(run->stream, &request.base);
    }
}

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct run *run = data;
    struct bench *bench = run->bench;
    Narad__V1__ProduceStreamResponse *response =
        narad__v1__produce_stream_response__unpack(NULL, bytes.size, bytes.data);
    uint64_t now = cli_now_ns();

    if (response == NULL) {
        bench_error(bench, "an answer could not be decoded");
        nd_rpc_stream_cancel(stream);
        return;
    }
    for (size_t i = 0; i < response->n_results; i++) {
        const Narad__V1__ProduceResult *result = response->results[i];
        run->outstanding -= 1;
        if (result->code != NARAD_OK) {
            bench_error(bench, result->error);
        } else if (now < bench->stop_ns) {
            bench->messages += bench->batch;
            bench_hist_add(&bench->hist, now - run->sent_ns[result->id & run->window_mask]);
        }
    }
    narad__v1__produce_stream_response__free_unpacked(response, NULL);
    pump(run);
}

static void on_drained(void *data, struct nd_rpc_stream *stream)
{
    struct run *run = data;

    (void)stream;
    run->writing = false;
    pump(run);
}

static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    struct run *run = data;

    (void)stream;
    if (!bench_refused(run->bench, status) && status->code != NARAD_OK) {
        bench_error(run->bench, status->text);
    }
    bench_finish(run->bench);
}

static void start(void *data)
{
    static const struct nd_rpc_stream_events events = {
        .on_message = on_message, .on_drained = on_drained, .on_done = on_done};
    struct run *run = data;
    bool baseline = strncmp(run->bench->mode, "rpc-", 4) == 0;

    run->stream = nd_rpc_stream_open(run->bench->channel,
                                     baseline ? "/narad.v1.Bench/ProduceStream"
                                              : "/narad.v1.Broker/ProduceStream",
                                     0, true, false, &events, run);
    pump(run);
}

int bench_stream(struct bench *bench)
{
    struct run run = {.bench = bench, .records = bench_records(bench, bench->batch)};
    uint32_t ring = 1;

    while (ring < bench->in_flight) {
        ring *= 2;
    }
    run.window_mask = ring - 1;
    run.sent_ns = nd_xcalloc(ring, sizeof *run.sent_ns);
    nd_rpc_channel_post(bench->channel, start, &run);
    bench_wait(bench);
    nd_free(run.sent_ns);
    nd_free(run.records);
    return CLI_OK;
}
