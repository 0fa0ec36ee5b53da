/* load: many clients in one process, against a node that runs already and has the topics.
 *
 *   load --server ADDRESS --topic NAME [--topics N] [--connections N] [--payload BYTES] [--batch N]
 *        [--producers N] [--in-flight N] [--rate RECORDS_PER_S] [--subscribers N] [--outstanding N]
 *        [--warm SECONDS] [--seconds SECONDS] [--idle-streams N] [--parked N] [--hold 1]
 *
 * Prints one JSON object. With --hold it prints "up" and waits for the end of its input instead. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

#include "load.h"

uint64_t load_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void load_latency(struct load *load, uint64_t ns)
{
    uint32_t power = 63 - (uint32_t)__builtin_clzll(ns | 16);

    atomic_fetch_add_explicit(&load->hist[power * 16 + (uint32_t)(ns >> (power - 4) & 15)], 1,
                              memory_order_relaxed);
}

static double latency_us(const struct load *load, double share)
{
    uint64_t total = 0, seen = 0;

    for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
        total += load->hist[i];
    }
    for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
        seen += load->hist[i];
        if (load->hist[i] > 0 && (double)seen > (double)total * share) {
            return (double)((16 + (uint64_t)(i % 16)) << (i / 16 - 4)) / 1000.0;
        }
    }
    return 0.0;
}

void load_complain(struct load *load, const char *what, const char *text)
{
    if (!atomic_exchange(&load->complained, true)) {
        fprintf(stderr, "load: %s: %s\n", what, text);
    }
}

struct flag {
    const char *name;
    size_t offset;
    enum { TEXT, U32, U64, SECONDS, BOOLEAN } kind;
};
#define AT(member) offsetof(struct load_options, member)
static const struct flag flags[] = {
    {"--server", AT(server), TEXT},      {"--topic", AT(topic), TEXT},
    {"--topics", AT(topics), U32},       {"--connections", AT(connections), U32},
    {"--producers", AT(producers), U32}, {"--subscribers", AT(subscribers), U32},
    {"--in-flight", AT(in_flight), U32}, {"--outstanding", AT(outstanding), U32},
    {"--batch", AT(batch), U32},         {"--payload", AT(payload), U32},
    {"--rate", AT(rate), U64},           {"--warm", AT(warm_seconds), SECONDS},
    {"--seconds", AT(seconds), SECONDS}, {"--idle-streams", AT(idle_streams), U32},
    {"--parked", AT(parked), U32},       {"--hold", AT(hold), BOOLEAN},
};

static void put(struct load_options *options, const struct flag *flag, char *text)
{
    void *at = (char *)options + flag->offset;

    switch (flag->kind) {
    case TEXT: memcpy(at, &text, sizeof text); break;
    case U32: *(uint32_t *)at = (uint32_t)strtoul(text, NULL, 10); break;
    case U64: *(uint64_t *)at = strtoull(text, NULL, 10); break;
    case SECONDS: *(double *)at = strtod(text, NULL); break;
    case BOOLEAN: *(bool *)at = strcmp(text, "0") != 0; break;
    }
}

static bool options_read(int argc, char **argv, struct load_options *o)
{
    *o = (struct load_options){.topics = 1,
                               .connections = 1,
                               .in_flight = 1024,
                               .outstanding = 1024,
                               .batch = 1,
                               .payload = 256,
                               .warm_seconds = 1,
                               .seconds = 5};
    for (int i = 1; i + 1 < argc; i += 2) {
        size_t at = 0;
        while (at < ND_ARRAY_SIZE(flags) && strcmp(flags[at].name, argv[i]) != 0) {
            at++;
        }
        if (at == ND_ARRAY_SIZE(flags)) {
            fprintf(stderr, "load: unknown option %s\n", argv[i]);
            return false;
        }
        put(o, &flags[at], argv[i + 1]);
    }
    return argc % 2 == 1 && o->server != NULL && o->topic != NULL && o->topics > 0 &&
           o->connections > 0 && o->connections <= LOAD_CONNECTIONS_MAX && o->in_flight > 0 &&
           o->outstanding > 0 && o->batch > 0 && o->batch <= 1000 && o->payload > 0;
}

static void pass(double seconds)
{
    struct nd_mutex lock;
    struct nd_cond never;
    uint64_t until = load_now_ns() + (uint64_t)(seconds * 1e9);

    nd_mutex_init(&lock);
    nd_cond_init(&never);
    nd_mutex_lock(&lock);
    while (load_now_ns() < until) {
        nd_cond_wait_until(&never, &lock, until);
    }
    nd_mutex_unlock(&lock);
    nd_cond_release(&never);
    nd_mutex_release(&lock);
}

static void measure(struct load *load)
{
    pass(load->options.warm_seconds);
    uint64_t began = load_now_ns();
    atomic_store(&load->counting, true);
    pass(load->options.seconds);
    atomic_store(&load->counting, false);
    double s = (double)(load_now_ns() - began) / 1e9;
    printf("{\"produced_per_s\": %.0f, \"refused_per_s\": %.0f, \"delivered_per_s\": %.0f, "
           "\"acked_per_s\": %.0f, \"failed\": %" PRIu64 ", \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           (double)load->produced / s, (double)load->refused / s, (double)load->delivered / s,
           (double)load->acked / s, load->failed, latency_us(load, 0.50), latency_us(load, 0.99));
}

static int connect_all(struct load *load)
{
    for (uint32_t i = 0; i < load->options.connections; i++) {
        struct nd_errmsg msg = {""};
        struct nd_rpc_channel_options options = {.target = load->options.server};
        if (nd_rpc_channel_new(&load->channels[i], &options, &msg) != ND_OK) {
            fprintf(stderr, "load: %s\n", msg.text);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct load *load = nd_xcalloc(1, sizeof *load);

    if (!options_read(argc, argv, &load->options)) {
        fprintf(stderr, "usage: see the head of tests/bench/load/main.c\n");
        return 2;
    }
    const struct load_options *o = &load->options;
    load->payload = nd_xmalloc(o->payload);
    memset(load->payload, 'x', o->payload);
    load->topics = nd_xcalloc(o->topics, sizeof *load->topics);
    for (uint32_t i = 0; i < o->topics; i++) {
        load->topics[i] =
            o->topics == 1 ? nd_xstrdup(o->topic) : nd_xasprintf("%s-%u", o->topic, i);
    }
    if (connect_all(load) != 0) {
        return 1;
    }
    load_subscribers_start(load);
    load_producers_start(load);
    load_waiters_start(load);
    if (o->hold) {
        puts("up");
        fflush(stdout);
        while (getchar() != EOF) {
        }
    } else {
        measure(load);
        fflush(stdout);
    }
    atomic_store(&load->stopping, true);
    _Exit(0); /* as a client that vanishes; what it held goes with the process */
}
