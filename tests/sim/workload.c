#include <string.h>

#include "storage/base/alloc.h"

#include "storage/clock.h"
#include "tests/sim/workload_private.h"

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
    nd_topic_unref(workload->last.record);
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
    uint64_t pick = draw(workload, workload->recreating ? 8 : 3);

    if (workload->recreating && pick > 2) {
        return pick > 5 ? workload->flux : workload->churn;
    }
    return pick == 2 ? workload->churn : (uint32_t)pick;
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
            if (request->late) {
                ledger_problem(&workload->ledger, "message %u was taken by a deleted topic",
                               request->first_id + i);
            }
            message->has_offset = produce->has_offsets;
            message->offset = produce->offsets[i];
        } else if (produce->err != ND_ERR_UNKNOWN_OUTCOME) {
            message->produce = LEDGER_REFUSED;
        }
    }
    return true;
}

uint32_t workload_identify(struct workload *workload, uint32_t topic, uint32_t partition,
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
    uint32_t id = workload_identify(workload, topic, delivery->partition, delivery);

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
    if (request->late && poll->count > 0) {
        ledger_problem(&workload->ledger, "a deleted topic delivers");
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
    for (uint32_t i = 0; request->late && i < settle->request.count; i++) {
        if (settle->items[i].result == ND_OK) {
            ledger_problem(&workload->ledger, "an ack of a deleted topic is taken");
        }
    }
    for (uint32_t i = 0;
         !request->late && i < settle->request.count && request->action == ND_SETTLE_ACK; i++) {
        struct ledger_message *message = &workload->ledger.messages[request->settle_ids[i]];
        if (settle->items[i].result == ND_OK) {
            message->ack = LEDGER_ACKED;
        } else if (settle->items[i].result == ND_ERR_STALE && message->ack != LEDGER_ACKED) {
            message->ack = request->before[i];
        }
    }
    return true;
}

void workload_answers_take(struct workload *workload)
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

void workload_step(struct workload *workload)
{
    node_run(&workload->node);
    workload_answers_take(workload);
}

/* Parts of the node run on in any order, as threads would. */
void workload_run_partly(struct workload *workload)
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
    workload_answers_take(workload);
}

/* --- operations --- */

struct request *workload_request_new(struct workload *workload)
{
    if (workload->requests_count == REQUESTS_MAX) {
        workload_step(workload);
    }
    ND_ASSERT(workload->requests_count < REQUESTS_MAX);
    struct request *request = &workload->requests[workload->requests_count++];
    *request = (struct request){0};
    return request;
}

void workload_produce(struct workload *workload, uint32_t topic)
{
    struct ledger *ledger = &workload->ledger;
    uint32_t partition = (uint32_t)draw(workload, workload_partitions_of(workload, topic));
    uint32_t count = 1 + (uint32_t)draw(workload, BATCH_MAX);
    struct nd_produce_record records[BATCH_MAX] = {0};
    static char payloads[BATCH_MAX][PAYLOAD_MIN + PAYLOAD_SPAN];

    if (ledger->count + count > LEDGER_MESSAGES_MAX) {
        return;
    }
    struct request *request = workload_request_new(workload);
    request->first_id = ledger->count;
    request->ids = count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = ledger->count++;
        ledger->sent[topic][partition] += 1;
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
    struct request *request = workload_request_new(workload);

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
    struct request *request = workload_request_new(workload);
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

void workload_latch(struct workload *workload)
{
    if (workload->node.options.hold_latch && workload->node.broker != NULL) {
        nd_broker_set_caught_up(workload->node.broker);
    }
    workload->node.options.hold_latch = false;
}

void workload_stop(struct workload *workload)
{
    workload_aging_count(workload);
    node_stop(&workload->node);
    workload_answers_take(workload);
    workload->held_count = 0;
}

void workload_start(struct workload *workload)
{
    workload->node.options.hold_latch = draw(workload, 2) == 0;
    workload->latch_patience = draw(workload, 2) == 0 ? 8 : 80;
    if (!over(workload)) {
        (void)workload_reopen(workload); /* not sim_env_restart(): it would disarm the cut */
    }
}

void workload_forget(struct workload *workload, uint32_t topic)
{
    struct ledger *ledger = &workload->ledger;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < ledger->count; i++) {
        ledger->messages[i].gone |= ledger->messages[i].topic == topic;
    }
    for (uint32_t i = 0; i < workload->held_count; i++) {
        if (workload->held[i].topic != topic) {
            workload->held[kept++] = workload->held[i];
        }
    }
    workload->held_count = kept;
}

/* Delete a topic with all it has, perhaps in the middle of requests, and make one of the same name.
 */
static void op_churn(struct workload *workload)
{
    if (workload->node.topics_count == NODE_TOPICS_MAX) {
        return;
    }
    workload_forget(workload, workload->churn);
    node_topic_delete(&workload->node, workload->churn);
    workload->churn = node_topic(&workload->node, "churn", 1);
    workload_step(workload);
}

static void op_any(struct workload *workload)
{
    uint64_t kind = draw(workload, 100);

    if (workload->aging && draw(workload, 8) == 0) {
        workload_aging(workload);
    }
    if (workload->recreating && draw(workload, 8) == 0) {
        workload_recreate(workload);
        return;
    }
    if (draw(workload, workload->latch_patience) == 0) {
        workload_latch(workload);
    }
    if (kind < 2) {
        op_churn(workload);
    } else if (kind < 35) {
        workload_produce(workload, draw_topic(workload));
    } else if (kind < 60) {
        op_poll(workload);
    } else if (kind < 75) {
        op_settle(workload, ND_SETTLE_ACK, BATCH_MAX);
    } else if (kind < 79) {
        op_settle(workload, ND_SETTLE_NACK, 1);
    } else if (kind < 82) {
        op_settle(workload, ND_SETTLE_EXTEND, 2);
    } else if (kind < 84) {
        workload_step(workload);
    } else if (kind < 94) {
        workload_run_partly(workload);
    } else if (kind < 96) {
        node_advance(&workload->node, 200 + draw(workload, 2000));
        workload_answers_take(workload);
    } else if (kind < 97) {
        node_advance(&workload->node, NODE_LEASE_MS);
        workload_answers_take(workload);
        workload->held_count = 0;
    } else if (workload->sick && kind < 99) { /* long enough for three failures */
        node_advance(&workload->node, 3000);
        workload_answers_take(workload);
    } else {
        workload_stop(workload);
        workload_start(workload);
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
        workload_step(workload);
        workload_aging_count(workload);
    }
}

void workload_cut(struct workload *workload, uint64_t seed)
{
    node_power_cut(&workload->node, seed);
    workload_answers_take(workload);
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
    workload_latch(workload);
    node_advance(&workload->node, 15000);
    uint32_t first = ledger->count;
    workload_produce(workload, draw_topic(workload));
    workload_step(workload);
    if (ledger->count > first && ledger->messages[first].produce != LEDGER_ACCEPTED) {
        ledger_problem(ledger, "the node does not take messages after the fault is over");
    }
}
