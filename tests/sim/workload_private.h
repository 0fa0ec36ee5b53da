/* What the parts of a run share: workload.c (the steps of every run), workload_aging.c (records
 * age), workload_recreate.c (topics go and come back), workload_check.c (what a node must show). */
#ifndef ND_TESTS_SIM_WORKLOAD_PRIVATE_H
#define ND_TESTS_SIM_WORKLOAD_PRIVATE_H

#include "tests/sim/workload.h"

enum {
    PARTITIONS = 2, /* of the first topic; the others have one */
    REQUESTS_MAX = 64,
    HELD_MAX = 128,
    BATCH_MAX = 4,
    PAYLOAD_MIN = 20,
    PAYLOAD_SPAN = 8000,
    DRAIN_MAX = 10000,
    AGE_MS = 6000, /* of the topics "orders" and "mail" in a run in which records age */
    AGE_LOOK_MS = 300,
    AGE_WALK_MS = 900,
};

/* One request under way. */
struct request {
    struct node_produce *produce;
    uint32_t first_id, ids; /* of a produce */
    struct node_poll *poll;
    uint32_t topic;
    struct node_settle *settle;
    uint32_t settle_ids[BATCH_MAX];
    enum ledger_ack before[BATCH_MAX]; /* what was known before this ack */
    enum nd_settle_action action;
    bool late; /* sent after its topic was deleted, or with a handle of the topic before */
};

struct held {
    struct node_delivery delivery;
    uint32_t id, topic;
};

/* The topic that was deleted last, for requests that come too late. */
struct workload_ended {
    struct nd_topic *record;
    uint32_t topic;
    struct node_delivery held[BATCH_MAX];
    uint32_t held_count;
};

/* What topics had and did when they were deleted: how often. */
struct workload_recreated {
    uint32_t deleted, under_way, tails, flushes, stopped, twice, late;
};

struct workload {
    struct sim_env *sim;
    struct node node;
    struct ledger ledger;
    struct request requests[REQUESTS_MAX];
    uint32_t requests_count;
    struct held held[HELD_MAX];
    uint32_t held_count;
    uint32_t churn, flux;    /* the topics that are deleted and made again */
    uint64_t latch_patience; /* operations until the latch, about */
    uint64_t random;
    bool faults; /* calls fail: a start in the middle of the run may be refused */
    bool sick;   /* one partition's log takes no write for most of the run */
    bool restated;
    bool relieved; /* a start had more than the memory for tails holds (W8) */
    bool aging;    /* records age and idle partitions are closed */
    double evicted, aged, swept;
    bool recreating; /* much of the run deletes topics and makes them again */
    struct workload_ended last;
    struct workload_recreated recreated;
};

static inline uint64_t draw(struct workload *workload, uint64_t below)
{
    uint64_t z = workload->random += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % below;
}

static inline uint32_t workload_partitions_of(const struct workload *workload, uint32_t topic)
{
    return workload->node.topics[topic] == NULL ? 0 : workload->node.topics[topic]->partitions;
}

static inline bool over(const struct workload *workload)
{
    return workload->ledger.problem[0] != '\0' || sim_env_is_cut(workload->sim);
}

/* Take what was answered; run until nothing moves, then take it; run parts in any order. */
void workload_answers_take(struct workload *workload);
void workload_step(struct workload *workload);
void workload_run_partly(struct workload *workload);
/* A request that counts as under way from now on. */
struct request *workload_request_new(struct workload *workload);
/* Until the latch a node accepts for whoever the owner turns out to be. */
void workload_latch(struct workload *workload);
void workload_produce(struct workload *workload, uint32_t topic);
uint32_t workload_identify(struct workload *workload, uint32_t topic, uint32_t partition,
                           const struct node_delivery *delivery);

/* A stop, and a start, with or without the latch. */
void workload_stop(struct workload *workload);
void workload_start(struct workload *workload);
/* A topic goes: nothing of it is promised any more. It is deleted next. */
void workload_forget(struct workload *workload, uint32_t topic);

/* Delete a topic, perhaps in the middle of requests and of the flusher's work, and make one of the
 * same name. */
void workload_recreate(struct workload *workload);
/* A while after the start nothing is left of the topics that were deleted. */
void workload_check_removed(struct workload *workload);

/* What the node counted in this life. */
void workload_aging_count(struct workload *workload);
void workload_aging(struct workload *workload);
/* May retention have taken it by now? */
bool workload_may_be_aged(const struct workload *workload, const struct ledger_message *message);
/* After two retentions, and the looks, nothing is left, and what comes next has the next offset. */
void workload_check_aged(struct workload *workload);

#endif
