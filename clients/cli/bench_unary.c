/* rpc-unary and produce-unary: N calls in flight, each started by the end of the one before. */
#include <string.h>

#include "storage/base/alloc.h"

#include "clients/cli/bench.h"

struct run {
    struct bench *bench;
    const char *path;
    Narad__V1__ProduceRequest request;
    uint32_t open;
};

struct slot {
    struct run *run;
    uint64_t sent_ns;
};

static void slot_start(struct slot *slot);

static void on_done(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct slot *slot = data;
    struct bench *bench = slot->run->bench;
    uint64_t now = cli_now_ns();

    (void)reply;
    if (bench_refused(bench, status)) {
        bench->stop_ns = now;
    } else if (status->code != NARAD_OK) {
        bench_error(bench, status->text);
    } else if (now < bench->stop_ns) {
        bench->messages += slot->run->request.n_records;
        bench_hist_add(&bench->hist, now - slot->sent_ns);
    }
    if (now < bench->stop_ns && bench->errors < 1000) {
        slot_start(slot);
        return;
    }
    if (--slot->run->open == 0) {
        bench_finish(bench);
    }
}

static void slot_start(struct slot *slot)
{
    slot->sent_ns = cli_now_ns();
    nd_rpc_call_unary(slot->run->bench->channel, slot->run->path, &slot->run->request.base,
                      &narad__v1__produce_response__descriptor, 30000, true, on_done, slot);
}

static void start_all(void *data)
{
    struct slot *slots = data;

    for (uint32_t i = 0; i < slots[0].run->bench->in_flight; i++) {
        slot_start(&slots[i]);
    }
}

int bench_unary(struct bench *bench)
{
    struct run run = {.bench = bench,
                      .path = strcmp(bench->mode, "rpc-unary") == 0 ? "/narad.v1.Bench/Produce"
                                                                    : "/narad.v1.Broker/Produce",
                      .open = bench->in_flight};
    struct slot *slots = nd_xcalloc(bench->in_flight, sizeof *slots);
    Narad__V1__Record **records = bench_records(bench, bench->batch);

    narad__v1__produce_request__init(&run.request);
    run.request.topic = (char *)(uintptr_t)bench->topic;
    run.request.records = records;
    run.request.n_records = bench->batch;
    for (uint32_t i = 0; i < bench->in_flight; i++) {
        slots[i].run = &run;
    }
    /* From the channel's thread, so that all of the run happens there. */
    nd_rpc_channel_post(bench->channel, start_all, slots);
    bench_wait(bench);
    nd_free(slots);
    nd_free(records);
    return CLI_OK;
}
