#include <string.h>

#include "storage/base/alloc.h"

#include "tests/sim/workload_private.h"

static void seen_reset(struct ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->count; i++) {
        ledger->messages[i].seen = 0;
    }
}

/* What the node says of a partition is not more than was ever sent there. */
static void check_counted(struct workload *workload, uint32_t topic, uint32_t partition)
{
    struct nd_partition_stats stats = node_stats(&workload->node, topic, partition);
    uint32_t sent = workload->ledger.sent[topic][partition];

    if (stats.high_watermark > sent || stats.frontier > sent || stats.next_offset > sent) {
        ledger_problem(&workload->ledger,
                       "topic %u partition %u: end %llu, frontier %llu, and %u were sent", topic,
                       partition, (unsigned long long)stats.high_watermark,
                       (unsigned long long)stats.frontier, sent);
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
            uint32_t id = workload_identify(workload, topic, partition, &replay->list[i]);
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
                    !workload_may_be_aged(workload, message);
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
            uint32_t id = workload_identify(workload, topic, delivery->partition, delivery);
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

    for (uint32_t topic = 0; topic < workload->node.topics_count && !over(workload); topic++) {
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

void workload_check(struct workload *workload)
{
    struct ledger *ledger = &workload->ledger;

    seen_reset(ledger);
    for (uint32_t topic = 0; topic < workload->node.topics_count && !over(workload); topic++) {
        for (uint32_t i = 0; i < workload_partitions_of(workload, topic); i++) {
            check_counted(workload, topic, i);
            check_stored(workload, topic, i);
        }
    }
    if (!over(workload)) {
        check_seen(workload, false);
    }
    seen_reset(ledger);
    for (uint32_t topic = 0; topic < workload->node.topics_count && !over(workload); topic++) {
        if (workload->node.topics[topic] != NULL) {
            check_deliveries(workload, topic);
        }
    }
    if (!over(workload)) {
        check_seen(workload, true);
        check_alive(workload);
    }
    if (workload->recreating && !over(workload)) {
        workload_check_removed(workload);
    }
    if (workload->aging && !over(workload)) {
        workload_check_aged(workload);
    }
}
