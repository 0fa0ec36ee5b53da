#include "tests/sim/workload.h"

#include <string.h>

#include "storage/base/alloc.h"

#include "storage/clock.h"

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
};

struct held {
    struct node_delivery delivery;
    uint32_t id, topic;
};

struct workload {
    struct sim_env *sim;
    struct node node;
    struct ledger ledger;
    struct request requests[REQUESTS_MAX];
    uint32_t requests_count;
    struct held held[HELD_MAX];
    uint32_t held_count;
    uint32_t churn;          /* the topic that is deleted and made again */
    uint64_t latch_patience; /* operations until the latch, about */
    uint64_t random;
    bool faults; /* calls fail: a start in the middle of the run may be refused */
    bool sick;   /* one partition's log takes no write for most of the run */
    bool restated;
    bool relieved; /* a start had more than the memory for tails holds (W8) */
    bool aging;    /* records age and idle partitions are closed */
    double evicted, aged, swept;
};

static uint64_t draw(struct workload *workload, uint64_t below)
{
    uint64_t z = workload->random += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % below;
}

struct workload *workload_new(uint64_t seed)
{
    struct workload *workload = nd_xcalloc(1, sizeof *workload);

    workload->sim = sim_env_new(seed);
    workload->random = seed;
    node_init(&workload->node, workload->sim);
    workload->node.options.flush_bytes = 8 << 10;
    workload->node.options.flush_age_ms = 3000;
    workload->node.options.cache_bytes = 16 << 10;
    workload->node.options.wal_keep_bytes = 0; /* partitions are restated whenever a file ends */
    workload->node.options.hold_latch = true;
    workload->latch_patience = seed % 2 == 0 ? 8 : 80;
    node_topic(&workload->node, "orders", PARTITIONS);
    node_topic(&workload->node, "mail", 1);
    workload->churn = node_topic(&workload->node, "churn", 1);
    workload->node.gone = true; /* what nobody told of was deleted */
    return workload;
}

void workload_free(struct workload *workload)
{
    node_discard(&workload->node);
    for (uint32_t i = 0; i < workload->requests_count; i++) {
        nd_free(workload->requests[i].produce);
        nd_free(workload->requests[i].poll);
        nd_free(workload->requests[i].settle);
    }
    node_release(&workload->node);
    sim_env_free(workload->sim);
    nd_free(workload);
}

struct node *workload_node(struct workload *workload)
{
    return &workload->node;
}

struct ledger *workload_ledger(struct workload *workload)
{
    return &workload->ledger;
}

/* One of the topics that exist. */
static uint32_t draw_topic(struct workload *workload)
{
    uint64_t pick = draw(workload, 3);

    return pick == 2 ? workload->churn : (uint32_t)pick;
}

static uint32_t partitions_of(const struct workload *workload, uint32_t topic)
{
    return workload->node.topics[topic] == NULL ? 0 : workload->node.topics[topic]->partitions;
}

static bool over(const struct workload *workload)
{
    return workload->ledger.problem[0] != '\0' || sim_env_is_cut(workload->sim);
}

/* --- answers --- */

static bool produce_answered(struct workload *workload, struct request *request)
{
    const struct node_produce *produce = request->produce;

    if (!produce->done) {
        return false;
    }
    for (uint32_t i = 0; i < request->ids; i++) {
        struct ledger_message *message = &workload->ledger.messages[request->first_id + i];
        if (produce->err == ND_OK) {
            message->produce = LEDGER_ACCEPTED;
            message->has_offset = produce->has_offsets;
            message->offset = produce->offsets[i];
        } else if (produce->err != ND_ERR_UNKNOWN_OUTCOME) {
            message->produce = LEDGER_REFUSED;
        }
    }
    return true;
}

static uint32_t identify(struct workload *workload, uint32_t topic, uint32_t partition,
                         const struct node_delivery *delivery)
{
    struct ledger_record record = {.payload = delivery->payload,
                                   .size = delivery->payload_size,
                                   .crc = delivery->payload_crc,
                                   .topic = topic,
                                   .partition = partition,
                                   .offset = delivery->offset};

    return ledger_identify(&workload->ledger, &record);
}

static void delivered(struct workload *workload, uint32_t topic,
                      const struct node_delivery *delivery)
{
    struct ledger *ledger = &workload->ledger;
    uint32_t id = identify(workload, topic, delivery->partition, delivery);

    if (id == UINT32_MAX) {
        return;
    }
    if (ledger->messages[id].ack == LEDGER_ACKED) {
        ledger_problem(ledger, "message %u was acked and is delivered again", id);
    }
    if (workload->held_count < HELD_MAX) {
        workload->held[workload->held_count++] =
            (struct held){.delivery = *delivery, .id = id, .topic = topic};
    }
}

static bool poll_answered(struct workload *workload, struct request *request)
{
    const struct node_poll *poll = request->poll;

    if (!poll->done) {
        return false;
    }
    for (uint32_t i = 0; i < poll->count; i++) {
        delivered(workload, request->topic, &poll->list[i]);
    }
    return true;
}

static bool settle_answered(struct workload *workload, struct request *request)
{
    const struct node_settle *settle = request->settle;

    if (!settle->done) {
        return false;
    }
    for (uint32_t i = 0; i < settle->request.count && request->action == ND_SETTLE_ACK; i++) {
        struct ledger_message *message = &workload->ledger.messages[request->settle_ids[i]];
        if (settle->items[i].result == ND_OK) {
            message->ack = LEDGER_ACKED;
        } else if (settle->items[i].result == ND_ERR_STALE && message->ack != LEDGER_ACKED) {
            message->ack = request->before[i];
        }
    }
    return true;
}

static void answers_take(struct workload *workload)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < workload->requests_count; i++) {
        struct request *request = &workload->requests[i];
        bool answered = request->produce != NULL ? produce_answered(workload, request)
                        : request->poll != NULL  ? poll_answered(workload, request)
                                                 : settle_answered(workload, request);
        if (!answered) {
            workload->requests[kept++] = *request;
            continue;
        }
        nd_free(request->produce);
        nd_free(request->poll);
        nd_free(request->settle);
    }
    workload->requests_count = kept;
}

static void run(struct workload *workload)
{
    node_run(&workload->node);
    answers_take(workload);
}

/* Parts of the node run on in any order, as threads would. */
static void run_partly(struct workload *workload)
{
    struct node *node = &workload->node;
    uint64_t next_ns;

    for (uint64_t i = 1 + draw(workload, 6); i > 0; i--) {
        switch (draw(workload, 4)) {
        case 0: (void)nd_broker_step(node->broker, 0, &next_ns); break;
        case 1: (void)nd_wal_step(node->wal); break;
        case 2: sim_env_advance_ms(workload->sim, 110); break; /* housekeeping is due again */
        default: (void)nd_flusher_step(node->flusher); break;
        }
    }
    answers_take(workload);
}

/* --- operations --- */

static struct request *request_new(struct workload *workload)
{
    if (workload->requests_count == REQUESTS_MAX) {
        run(workload);
    }
    ND_ASSERT(workload->requests_count < REQUESTS_MAX);
    struct request *request = &workload->requests[workload->requests_count++];
    *request = (struct request){0};
    return request;
}

static void op_produce(struct workload *workload)
{
    struct ledger *ledger = &workload->ledger;
    uint32_t topic = draw_topic(workload);
    uint32_t partition = (uint32_t)draw(workload, partitions_of(workload, topic));
    uint32_t count = 1 + (uint32_t)draw(workload, BATCH_MAX);
    struct nd_produce_record records[BATCH_MAX] = {0};
    static char payloads[BATCH_MAX][PAYLOAD_MIN + PAYLOAD_SPAN];

    if (ledger->count + count > LEDGER_MESSAGES_MAX) {
        return;
    }
    struct request *request = request_new(workload);
    request->first_id = ledger->count;
    request->ids = count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = ledger->count++;
        ledger->messages[id] = (struct ledger_message){
            .sent_ms = nd_commit_clock_now_ms(workload->node.clock),
            .topic = topic,
            .partition = partition,
            .size = PAYLOAD_MIN + (uint32_t)draw(workload, PAYLOAD_SPAN),
        };
        ledger_payload(ledger, id, payloads[i]);
        records[i].payload = nd_slice_make(payloads[i], ledger->messages[id].size);
        records[i].partition = partition;
    }
    request->produce = node_produce_records(&workload->node, topic, records, count);
}

static void op_poll(struct workload *workload)
{
    struct request *request = request_new(workload);

    request->topic = draw_topic(workload);
    request->poll = node_poll_start(&workload->node, request->topic, ND_PARTITION_ANY,
                                    1 + (uint32_t)draw(workload, 5), 0);
}

static void op_settle(struct workload *workload, enum nd_settle_action action, uint32_t count_max)
{
    struct node_delivery deliveries[BATCH_MAX];
    uint32_t count = 0, kept = 0;

    if (workload->held_count == 0) {
        return;
    }
    struct request *request = request_new(workload);
    uint32_t topic = workload->held[draw(workload, workload->held_count)].topic;
    for (uint32_t i = 0; i < workload->held_count; i++) {
        const struct held *held = &workload->held[i];
        bool mine = held->topic == topic && count < count_max && draw(workload, 2) == 0;
        if (!mine) {
            workload->held[kept++] = *held;
            continue;
        }
        struct ledger_message *message = &workload->ledger.messages[held->id];
        request->settle_ids[count] = held->id;
        request->before[count] = message->ack;
        deliveries[count++] = held->delivery;
        if (action == ND_SETTLE_ACK && message->ack == LEDGER_UNACKED) {
            message->ack = LEDGER_ACK_UNKNOWN;
        }
        if (action == ND_SETTLE_EXTEND) {
            workload->held[kept++] = *held;
        }
    }
    workload->held_count = kept;
    if (count == 0) {
        workload->requests_count -= 1;
        return;
    }
    request->action = action;
    request->settle = node_settle_start(&workload->node, topic, deliveries, count, action);
}

/* Until the latch a node accepts for whoever the owner turns out to be. */
static void latch(struct workload *workload)
{
    if (workload->node.options.hold_latch && workload->node.broker != NULL) {
        nd_broker_set_caught_up(workload->node.broker);
    }
    workload->node.options.hold_latch = false;
}

static void aging_count(struct workload *workload);

static void op_restart(struct workload *workload)
{
    aging_count(workload);
    node_stop(&workload->node);
    answers_take(workload);
    workload->held_count = 0;
    workload->node.options.hold_latch = draw(workload, 2) == 0;
    workload->latch_patience = draw(workload, 2) == 0 ? 8 : 80;
    if (!over(workload)) {
        (void)workload_reopen(workload); /* not sim_env_restart(): it would disarm the cut */
    }
}

/* Delete a topic with all it has, perhaps in the middle of requests, and make one of the same name.
 */
static void op_churn(struct workload *workload)
{
    struct ledger *ledger = &workload->ledger;
    uint32_t kept = 0;

    if (workload->node.topics_count == NODE_TOPICS_MAX) {
        return;
    }
    for (uint32_t i = 0; i < ledger->count; i++) {
        ledger->messages[i].gone |= ledger->messages[i].topic == workload->churn;
    }
    for (uint32_t i = 0; i < workload->held_count; i++) {
        if (workload->held[i].topic != workload->churn) {
            workload->held[kept++] = workload->held[i];
        }
    }
    workload->held_count = kept;
    node_topic_delete(&workload->node, workload->churn);
    workload->churn = node_topic(&workload->node, "churn", 1);
    run(workload);
}

/* --- records age, idle partitions are closed --- */

void workload_make_aging(struct workload *workload)
{
    struct node_options *options = &workload->node.options;

    workload->aging = true;
    options->look_ms = AGE_LOOK_MS;
    options->cold_walk_ms = AGE_WALK_MS;
    options->idle_eviction_ms = 700;
    options->flush_age_ms = 400;
    for (uint32_t topic = 0; topic < 2; topic++) {
        node_topic_retention(&workload->node, topic, AGE_MS);
    }
}

bool workload_aged(const struct workload *workload)
{
    return workload->evicted > 20 && workload->aged > 20 && workload->swept > 0;
}

/* What the node counted in this life. */
static void aging_count(struct workload *workload)
{
    static const char *const labels[] = {"topic=\"orders\",partition=\"0\",reason=\"age\"",
                                         "topic=\"orders\",partition=\"1\",reason=\"age\"",
                                         "topic=\"mail\",partition=\"0\",reason=\"age\""};
    struct nd_metrics *m = workload->node.metrics;

    if (m == NULL || !workload->aging) {
        return;
    }
    workload->evicted += nd_series_value(nd_metrics_counter(m, "idle_logs_evicted_total", "", ""));
    workload->swept += nd_series_value(nd_metrics_counter(m, "cold_retention_swept_total", "", ""));
    for (size_t i = 0; i < ND_ARRAY_SIZE(labels); i++) {
        workload->aged += nd_series_value(
            nd_metrics_counter(m, "storage_retention_messages_deleted_total", labels[i], ""));
    }
}

/* Time goes by, or "mail" is kept for ever from now on, or no longer; now and then the flusher is
 * slow, so that much happens between a snapshot and its `state`. */
static void op_aging(struct workload *workload)
{
    workload->node.flusher_stalled = draw(workload, 4) == 0;
    if (draw(workload, 6) == 0) {
        node_topic_retention(&workload->node, 1, draw(workload, 2) == 0 ? 0 : AGE_MS);
        return;
    }
    node_advance(&workload->node, 100 + draw(workload, 2500));
    answers_take(workload);
}

/* May retention have taken it by now? */
static bool may_be_aged(const struct workload *workload, const struct ledger_message *message)
{
    return workload->aging && message->topic < 2 &&
           nd_commit_clock_now_ms(workload->node.clock) - message->sent_ms > AGE_MS;
}

static void op_any(struct workload *workload)
{
    uint64_t kind = draw(workload, 100);

    if (workload->aging && draw(workload, 8) == 0) {
        op_aging(workload);
    }
    if (draw(workload, workload->latch_patience) == 0) {
        latch(workload);
    }
    if (kind < 2) {
        op_churn(workload);
    } else if (kind < 35) {
        op_produce(workload);
    } else if (kind < 60) {
        op_poll(workload);
    } else if (kind < 75) {
        op_settle(workload, ND_SETTLE_ACK, BATCH_MAX);
    } else if (kind < 79) {
        op_settle(workload, ND_SETTLE_NACK, 1);
    } else if (kind < 82) {
        op_settle(workload, ND_SETTLE_EXTEND, 2);
    } else if (kind < 84) {
        run(workload);
    } else if (kind < 94) {
        run_partly(workload);
    } else if (kind < 96) {
        node_advance(&workload->node, 200 + draw(workload, 2000));
        answers_take(workload);
    } else if (kind < 97) {
        node_advance(&workload->node, NODE_LEASE_MS);
        answers_take(workload);
        workload->held_count = 0;
    } else if (workload->sick && kind < 99) { /* long enough for three failures */
        node_advance(&workload->node, 3000);
        answers_take(workload);
    } else {
        op_restart(workload);
    }
}

/* --- a partition whose log takes no write (F3); starts with little memory (W8) --- */

void workload_make_sick(struct workload *workload)
{
    workload->sick = true;
}

void workload_make_tight(struct workload *workload)
{
    workload->node.options.recovery_tail_bytes = 24 << 10;
    workload->node.options.flush_bytes = 256 << 10;
    workload->node.options.flush_age_ms = 20000;
}

bool workload_relieved(const struct workload *workload)
{
    return workload->relieved;
}

bool workload_restated(const struct workload *workload)
{
    return workload->restated;
}

/* From the first tenth of the run on, in every second run to the last one. */
static void sicken(struct workload *workload, uint32_t operation, uint32_t operations)
{
    static const char bad[] = "data/topics/orders/0000000000001000/p00000/";

    if (operation == operations / 10) {
        sim_env_fail_writes_under(workload->sim, bad);
    } else if (operation == operations - operations / 10 && draw(workload, 2) == 0) {
        sim_env_fail_writes_under(workload->sim, NULL);
    }
    if (workload->node.metrics != NULL) {
        workload->restated |= nd_series_value(nd_metrics_counter(
                                  workload->node.metrics, "wal_restated_bytes_total", "", "")) > 0;
    }
}

/* --- the run --- */

void workload_run(struct workload *workload, uint32_t operations)
{
    (void)workload_reopen(workload);
    for (uint32_t i = 0; i < operations && workload->node.broker != NULL && !over(workload); i++) {
        if (workload->sick) {
            sicken(workload, i, operations);
        }
        op_any(workload);
    }
    if (workload->node.broker != NULL && !over(workload)) {
        run(workload);
        aging_count(workload);
    }
}

void workload_cut(struct workload *workload, uint64_t seed)
{
    node_power_cut(&workload->node, seed);
    answers_take(workload);
    if (workload->requests_count > 0) {
        ledger_problem(&workload->ledger, "%u requests were never answered",
                       workload->requests_count);
    }
    workload->held_count = 0;
    workload->node.options.hold_latch = false;
}

bool workload_reopen(struct workload *workload)
{
    struct nd_errmsg msg = {{0}};
    const struct node_options *options = &workload->node.options;
    enum nd_err err = node_open(&workload->node, &msg);

    if (err == ND_OK) {
        workload->relieved |= options->recovery_tail_bytes != 0 &&
                              workload->node.recovery_bytes_peak > options->recovery_tail_bytes;
        return true;
    }
    if (!sim_env_is_cut(workload->sim) && !workload->faults) {
        ledger_problem(&workload->ledger, "the node does not start: %s: %s", nd_err_name(err),
                       msg.text);
    }
    return false;
}

void workload_expect_faults(struct workload *workload, bool faults)
{
    workload->faults = faults;
}

void workload_heal(struct workload *workload)
{
    struct ledger *ledger = &workload->ledger;

    if (workload->node.broker == NULL || over(workload)) {
        return;
    }
    workload->node.flusher_stalled = false;
    latch(workload);
    node_advance(&workload->node, 15000);
    uint32_t first = ledger->count;
    op_produce(workload);
    run(workload);
    if (ledger->count > first && ledger->messages[first].produce != LEDGER_ACCEPTED) {
        ledger_problem(ledger, "the node does not take messages after the fault is over");
    }
}

/* --- checks --- */

static void seen_reset(struct ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->count; i++) {
        ledger->messages[i].seen = 0;
    }
}

/* All that is stored, by offset. */
static void check_stored(struct workload *workload, uint32_t topic, uint32_t partition)
{
    struct ledger *ledger = &workload->ledger;
    uint64_t offset = 0;

    for (;;) {
        struct node_replay *replay =
            node_replay(&workload->node, topic, partition, offset, ND_POLL_MESSAGES_MAX);
        uint32_t count = replay->count;
        enum nd_err err = replay->err;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t id = identify(workload, topic, partition, &replay->list[i]);
            if (id != UINT32_MAX) {
                ledger->messages[id].seen += 1;
            }
        }
        uint64_t oldest = replay->request.oldest;
        offset = replay->request.offset;
        nd_free(replay);
        if (err == ND_ERR_GONE && workload->aging && topic < 2 && offset < oldest) {
            offset = oldest;
            continue;
        }
        if (err != ND_OK && !over(workload)) {
            ledger_problem(ledger, "topic %u partition %u cannot be read at %llu: %s", topic,
                           partition, (unsigned long long)offset, nd_err_name(err));
        }
        if (count == 0 || err != ND_OK) {
            return;
        }
    }
}

static void check_seen(struct workload *workload, bool deliveries)
{
    struct ledger *ledger = &workload->ledger;

    for (uint32_t i = 0; i < ledger->count; i++) {
        const struct ledger_message *message = &ledger->messages[i];
        bool must = message->produce == LEDGER_ACCEPTED && !message->gone &&
                    (!deliveries || message->ack == LEDGER_UNACKED) &&
                    !may_be_aged(workload, message);
        if (message->seen > 1) {
            ledger_problem(ledger, "message %u is %s %u times", i,
                           deliveries ? "delivered" : "stored", message->seen);
        } else if (must && message->seen == 0) {
            ledger_problem(ledger, "message %u (topic %u partition %u offset %llu) is lost: not %s",
                           i, message->topic, message->partition,
                           (unsigned long long)message->offset,
                           deliveries ? "delivered" : "stored");
        }
    }
}

static void check_deliveries(struct workload *workload, uint32_t topic)
{
    struct ledger *ledger = &workload->ledger;

    for (uint32_t round = 0; round < DRAIN_MAX && !over(workload); round++) {
        struct node_poll *poll =
            node_poll_start(&workload->node, topic, ND_PARTITION_ANY, ND_POLL_MESSAGES_MAX, 0);
        node_run(&workload->node);
        ND_ASSERT(poll->done);
        uint32_t count = poll->count;
        for (uint32_t i = 0; i < count; i++) {
            const struct node_delivery *delivery = &poll->list[i];
            uint32_t id = identify(workload, topic, delivery->partition, delivery);
            if (id != UINT32_MAX) {
                ledger->messages[id].seen += 1;
                if (ledger->messages[id].ack == LEDGER_ACKED) {
                    ledger_problem(ledger, "message %u was acked and is delivered again", id);
                }
            }
        }
        nd_free(poll);
        if (count == 0) {
            return;
        }
    }
}

/* A node that came back takes a message, gives it, and forgets it when it is acked. */
static void check_alive(struct workload *workload)
{
    struct ledger *ledger = &workload->ledger;

    for (uint32_t topic = 0; topic <= workload->churn && !over(workload); topic++) {
        struct node_delivery delivery;
        uint64_t offset;
        if (workload->node.topics[topic] == NULL) {
            continue;
        }
        enum nd_err err = node_produce(&workload->node, topic, 0, "alive", &offset);
        if (err != ND_OK) {
            ledger_problem(ledger, "produce after the restart: %s", nd_err_name(err));
        } else if (!node_take(&workload->node, topic, 0, &delivery)) {
            ledger_problem(ledger, "a message produced after the restart is not delivered");
        } else if (strcmp(delivery.payload, "alive") != 0 || delivery.offset != offset) {
            ledger_problem(ledger, "another message is delivered than the one produced");
        } else if (node_settle(&workload->node, topic, &delivery, ND_SETTLE_ACK) != ND_OK) {
            ledger_problem(ledger, "ack after the restart fails");
        }
    }
}

/* After two retentions, and the looks, nothing is left, and what comes next has the next offset. */
static void check_aged(struct workload *workload)
{
    struct node *node = &workload->node;
    uint64_t ends[2][PARTITIONS], offset;

    for (uint32_t topic = 0; topic < 2; topic++) {
        node_topic_retention(node, topic, AGE_MS);
        for (uint32_t i = 0; i < partitions_of(workload, topic); i++) {
            ends[topic][i] = node_stats(node, topic, i).high_watermark;
        }
    }
    node_advance(node, 2 * AGE_MS + 2 * AGE_WALK_MS + 4 * AGE_LOOK_MS);
    for (uint32_t topic = 0; topic < 2 && !over(workload); topic++) {
        for (uint32_t i = 0; i < partitions_of(workload, topic) && !over(workload); i++) {
            struct nd_partition_stats stats = node_stats(node, topic, i);
            if (stats.segments > 0 || stats.oldest_offset != ends[topic][i]) {
                ledger_problem(&workload->ledger,
                               "topic %u partition %u keeps %u segments from %llu on", topic, i,
                               stats.segments, (unsigned long long)stats.oldest_offset);
            } else if (node_produce(node, topic, i, "next", &offset) != ND_OK ||
                       offset != ends[topic][i]) {
                ledger_problem(&workload->ledger, "topic %u partition %u: offset %llu, not %llu",
                               topic, i, (unsigned long long)offset,
                               (unsigned long long)ends[topic][i]);
            }
        }
    }
}

void workload_check(struct workload *workload)
{
    struct ledger *ledger = &workload->ledger;

    seen_reset(ledger);
    for (uint32_t topic = 0; topic <= workload->churn && !over(workload); topic++) {
        for (uint32_t i = 0; i < partitions_of(workload, topic); i++) {
            check_stored(workload, topic, i);
        }
    }
    if (!over(workload)) {
        check_seen(workload, false);
    }
    seen_reset(ledger);
    for (uint32_t topic = 0; topic <= workload->churn && !over(workload); topic++) {
        if (workload->node.topics[topic] != NULL) {
            check_deliveries(workload, topic);
        }
    }
    if (!over(workload)) {
        check_seen(workload, true);
        check_alive(workload);
    }
    if (workload->aging && !over(workload)) {
        check_aged(workload);
    }
}
