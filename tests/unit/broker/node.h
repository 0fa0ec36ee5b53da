/* A whole broker on the simulated disk and clock, stepped on the test's thread: WAL, flusher,
 * broker, and the few topics that the metadata would know. Shared by the broker's unit tests and
 * the simulator. */
#ifndef ND_TESTS_UNIT_BROKER_NODE_H
#define ND_TESTS_UNIT_BROKER_NODE_H

#include "server/broker/broker.h"
#include "tests/support/sim_env.h"

enum {
    NODE_TOPICS_MAX = 64,
    NODE_WAL_FILE = 256 << 10,
    NODE_SEGMENT = 64 << 10,
    NODE_FRAME = 4 << 10,
    NODE_LEASE_MS = 30000,
    NODE_PAYLOAD_MAX = 64,
};

struct node_options {
    size_t tail_memory_bytes, cache_bytes;
    uint32_t flush_bytes, flush_age_ms;
    uint64_t wal_keep_bytes;
    uint32_t segment_bytes; /* NODE_SEGMENT */
    uint32_t look_ms;       /* 0: neither retention nor eviction */
    uint64_t idle_eviction_ms, cold_walk_ms;
    size_t recovery_tail_bytes; /* of tails while replaying; 0: tail_memory_bytes */
    size_t staged_bytes_max;    /* 16 KiB, so that some are held */
    bool hold_latch;            /* node_open leaves the ownership latch open */
};

struct node {
    struct sim_env *sim; /* the test's */
    const struct nd_env *env;
    struct node_options options;
    struct nd_metrics *metrics;
    struct nd_wal *wal;
    struct nd_flusher *flusher;
    struct nd_commit_clock *clock;
    struct nd_broker *broker;
    struct nd_topic *topics[NODE_TOPICS_MAX]; /* survive a restart, as Raft's do */
    uint32_t topics_count;
    uint64_t incarnation_next;
    size_t recovery_bytes_peak; /* of the last node_open */
    bool wal_stalled;           /* node_run leaves the WAL alone */
    bool flusher_stalled;       /* the same of the flusher */
    bool gone;                  /* what confirm_gone answers */
    enum nd_err gone_err;
    uint32_t gone_asked;
};

void node_init(struct node *node, struct sim_env *sim);
void node_release(struct node *node);
/* Recover what is on the disk and start; `msg` says why not. */
ND_CHECKED enum nd_err node_open(struct node *node, struct nd_errmsg *msg);
void node_stop(struct node *node);  /* the stop sequence, then all memory goes */
void node_crash(struct node *node); /* the process is gone: the disk keeps what it has, all of it */
/* The power goes: the disk keeps a choice of what was not synced. */
void node_power_cut(struct node *node, uint64_t seed);
/* Memory only; for when the disk answers nothing any more. */
void node_discard(struct node *node);

/* Step everything until nothing moves. */
void node_run(struct node *node);
bool node_step(struct node *node);                 /* each part once */
void node_advance(struct node *node, uint64_t ms); /* in steps of at most 50 ms, running each */

/* A topic that exists from now on; 30 s visibility. Index of node->topics. */
uint32_t node_topic(struct node *node, const char *name, uint32_t partitions);
void node_topic_caps(struct node *node, uint32_t topic, uint32_t in_flight_max, uint32_t ahead_max);
/* 0: forever, as it is at first; no floor here. */
void node_topic_retention(struct node *node, uint32_t topic, uint64_t retention_ms);
void node_topic_delete(struct node *node, uint32_t topic);

/* --- requests. Each start returns an object that the test frees --- */
struct node_produce {
    struct nd_produce request;
    bool done;
    enum nd_err err;
    bool has_offsets;
    uint32_t count;
    uint64_t offsets[1000];
};
/* One record a payload, all to `partition` (-1: by key, which is the payload). */
struct node_produce *node_produce_start(struct node *node, uint32_t topic, int64_t partition,
                                        const char *const *payloads, uint32_t count);
struct node_produce *node_produce_records(struct node *node, uint32_t topic,
                                          const struct nd_produce_record *records, uint32_t count);
/* `count` records of the same random bytes. */
struct node_produce *node_produce_bytes(struct node *node, uint32_t topic, int64_t partition,
                                        size_t payload_size, uint32_t count);
/* Run until it is answered; the offset of the first record. */
enum nd_err node_produce(struct node *node, uint32_t topic, int64_t partition, const char *payload,
                         uint64_t *offset_out);

struct node_delivery {
    uint64_t offset, nonce;
    uint32_t partition, attempt;
    int64_t time_ms;
    size_t payload_size;
    uint32_t payload_crc;
    char payload[NODE_PAYLOAD_MAX + 1]; /* its beginning */
};

struct node_poll {
    struct nd_poll request;
    bool done;
    enum nd_err err;
    uint32_t count;
    struct node_delivery list[ND_POLL_MESSAGES_MAX];
};
struct node_poll *node_poll_start(struct node *node, uint32_t topic, int32_t partition,
                                  uint32_t messages_max, uint32_t wait_ms);
/* One message without waiting; false: nothing there. */
bool node_take(struct node *node, uint32_t topic, int32_t partition, struct node_delivery *out);

struct node_settle {
    struct nd_settle request;
    struct nd_settle_item items[1000];
    bool done;
};
struct node_settle *node_settle_start(struct node *node, uint32_t topic,
                                      const struct node_delivery *deliveries, uint32_t count,
                                      enum nd_settle_action action);
enum nd_err node_settle(struct node *node, uint32_t topic, const struct node_delivery *delivery,
                        enum nd_settle_action action);

struct node_subscriber {
    struct nd_subscriber request;
    uint32_t turns, turn_max; /* deliver calls; most deliveries in one */
    uint32_t count;
    struct node_delivery list[4096];
    bool take; /* what deliver returns */
    bool ended, closed;
    enum nd_err ended_err;
};
struct node_subscriber *node_subscribe(struct node *node, uint32_t topic, int32_t partition,
                                       uint32_t outstanding_max);

struct node_replay {
    struct nd_replay request;
    bool done;
    enum nd_err err;
    uint32_t count;
    struct node_delivery list[1000];
};
/* Run until it is answered. */
struct node_replay *node_replay(struct node *node, uint32_t topic, uint32_t partition,
                                uint64_t offset, uint32_t messages_max);

struct nd_partition_stats node_stats(struct node *node, uint32_t topic, uint32_t partition);
/* Value of a series of one partition. */
double node_metric(struct node *node, const char *name, uint32_t topic, uint32_t partition);

#endif
