/* A client that loads a node as many would: streams of producers, paced or as fast as confirmed,
 * and subscribers that ack, over several topics and connections; or connections, streams and polls
 * that only wait. */
#ifndef ND_BENCH_LOAD_H
#define ND_BENCH_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/client.h"

enum { LOAD_CONNECTIONS_MAX = 4096, HIST_BUCKETS = 64 * 16 };

struct load_options {
    const char *server, *topic;
    uint32_t topics;      /* 1: `topic` itself; more: topic-0, topic-1, ... in turn */
    uint32_t connections; /* producers are spread over them, then subscribers */
    uint32_t producers, subscribers;
    uint32_t in_flight;   /* items of a producer that are not answered yet */
    uint32_t outstanding; /* messages of a subscriber that are not acked yet */
    uint32_t batch, payload;
    uint64_t rate; /* records a second that all producers offer; 0: as fast as confirmed */
    double warm_seconds, seconds;
    uint32_t idle_streams, parked; /* wait: streams without traffic, polls without a message */
    bool hold;                     /* wait until the standard input ends */
};

/* Counted by the channels' threads while `counting`. */
struct load {
    struct load_options options;
    struct nd_rpc_channel *channels[LOAD_CONNECTIONS_MAX];
    char **topics;
    uint8_t *payload;
    _Atomic bool counting, stopping;
    _Atomic uint64_t produced, refused, delivered, acked, failed;
    _Atomic uint64_t streams_open;
    _Atomic uint64_t hist[HIST_BUCKETS]; /* of confirmations, 16 buckets a power of two */
    _Atomic bool complained;
};

uint64_t load_now_ns(void);
void load_latency(struct load *load, uint64_t ns);
/* The first complaint is printed. @thread any */
void load_complain(struct load *load, const char *what, const char *text);
static inline struct nd_rpc_channel *load_channel(struct load *load, uint32_t i)
{
    return load->channels[i % load->options.connections];
}
static inline void load_count(struct load *load, _Atomic uint64_t *counter, uint64_t n)
{
    if (atomic_load_explicit(&load->counting, memory_order_relaxed)) {
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
    }
}

/* Start them all; they end once `stopping` is set and their channel is freed. The arrays are the
 * caller's, freed after the channels. */
void *load_producers_start(struct load *load);
void *load_subscribers_start(struct load *load);
void *load_waiters_start(struct load *load);

#endif
