/* narad bench: what its modes share. Each mode drives the channel directly, so that a mode and its
 * baseline differ only in what the server does. */
#ifndef ND_CLI_BENCH_H
#define ND_CLI_BENCH_H

#include "storage/base/thread.h"

#include "clients/cli/cli.h"
#include "proto/rpc/client.h"

enum { HIST_BUCKETS = 64 * 32 };

/* Latencies in nanoseconds, kept to 1 part in 32. */
struct bench_hist {
    uint64_t counts[HIST_BUCKETS];
    uint64_t total;
};

void bench_hist_add(struct bench_hist *hist, uint64_t ns);
/* The value that `share` (0..1) of them do not exceed, microseconds. */
double bench_hist_us(const struct bench_hist *hist, double share);

struct bench {
    struct cli *cli;
    const char *mode, *topic, *dir;
    uint32_t in_flight, batch, payload_bytes;
    uint64_t seconds_ms;
    struct nd_rpc_channel *channel;
    uint8_t *payload;
    /* Written on the channel's thread until `finished`. */
    struct nd_mutex lock;
    struct nd_cond changed;
    struct bench_hist hist;
    uint64_t started_ns, stop_ns, ended_ns;
    uint64_t messages; /* records done in time */
    uint64_t errors;
    char error_text[256]; /* the first */
    bool refused;         /* the node has no such method: nothing to measure */
    bool finished;        /* guarded by lock */
};

/* Close the library's client, before the run: each channel has a thread, and the core lets either
 * of them wait for what comes for both, which then crosses from one to the other. */
void bench_alone(struct bench *bench);
void bench_error(struct bench *bench, const char *text);
/* Did a call end because the node has no such method? */
bool bench_refused(struct bench *bench, const struct nd_rpc_status *status);
void bench_finish(struct bench *bench); /* from the channel's thread, once */
void bench_wait(struct bench *bench);   /* the main thread, with progress */
/* `count` records of the payload; freed with nd_free (one block). */
Narad__V1__Record **bench_records(const struct bench *bench, uint32_t count);

int bench_unary(struct bench *bench);  /* rpc-unary, produce-unary, rpc-batch1 */
int bench_stream(struct bench *bench); /* *-stream, *-batch */
int bench_consume_unary(struct bench *bench);
int bench_consume_stream(struct bench *bench);
int bench_latency(struct bench *bench);
int bench_disk(struct bench *bench);

#endif
