#include "server/broker/settle.h"

#include <stdlib.h>

#include "storage/base/alloc.h"

#include "server/broker/collect.h"
#include "server/broker/subscribe.h"
#include "server/broker/waiters.h"

/* More acks than this in one step go into the next unit. */
enum { ACKS_MAX = 4096, SPARE_UNITS_MAX = 4 };

struct ack {
    struct nd_partition *partition;
    struct nd_lease *lease; /* NULL: a jump of the frontier, [first, last] */
    struct nd_subscriber *subscriber;
    uint64_t first, last;
    bool skip;
};

struct nd_settle_unit {
    struct nd_wal_unit unit;
    struct nd_shard *shard;
    struct nd_settle_unit *spare_next;
    struct ack *acks;
    uint32_t count, capacity;
};

static void unit_back(struct nd_msg *msg, void *owner);

static struct nd_settle_unit *unit_get(struct nd_shard *shard)
{
    struct nd_settle_unit *unit = shard->spare_units;

    if (unit != NULL) {
        shard->spare_units = unit->spare_next;
        shard->spare_units_count -= 1;
        return unit;
    }
    unit = nd_xcalloc(1, sizeof *unit);
    unit->shard = shard;
    nd_wal_unit_init(&unit->unit, ND_WAL_RESERVED);
    return unit;
}

static void unit_free(struct nd_settle_unit *unit)
{
    nd_wal_unit_release(&unit->unit);
    nd_free(unit->acks);
    nd_free(unit);
}

static void unit_put(struct nd_settle_unit *unit)
{
    struct nd_shard *shard = unit->shard;

    if (shard->spare_units_count >= SPARE_UNITS_MAX) {
        unit_free(unit);
        return;
    }
    nd_wal_unit_reset(&unit->unit);
    unit->count = 0;
    unit->spare_next = shard->spare_units;
    shard->spare_units = unit;
    shard->spare_units_count += 1;
}

void nd_settle_release(struct nd_shard *shard)
{
    ND_ASSERT(shard->gathering == NULL);
    while (shard->spare_units != NULL) {
        struct nd_settle_unit *unit = shard->spare_units;
        shard->spare_units = unit->spare_next;
        unit_free(unit);
    }
}

static void gather(struct nd_shard *shard, const struct ack *ack)
{
    if (shard->gathering != NULL && shard->gathering->count == ACKS_MAX) {
        nd_settle_stage(shard);
    }
    if (shard->gathering == NULL) {
        shard->gathering = unit_get(shard);
    }
    struct nd_settle_unit *unit = shard->gathering;
    if (unit->count == unit->capacity) {
        unit->capacity = unit->capacity == 0 ? 16 : unit->capacity * 2;
        unit->acks = nd_xrealloc(unit->acks, unit->capacity * sizeof *unit->acks);
    }
    unit->acks[unit->count++] = *ack;
    ack->partition->acks += 1;
    ack->partition->topic->busy += 1;
}

static void ack_begin(struct nd_partition *partition, struct nd_lease *lease, bool skip)
{
    struct ack ack = {.partition = partition,
                      .lease = lease,
                      .subscriber = lease->owner,
                      .first = lease->offset,
                      .last = lease->offset,
                      .skip = skip};

    nd_lease_settle_begin(&partition->leases, lease);
    lease->settle = NULL; /* who waits for the outcome: items, by same_next */
    if (ack.subscriber != NULL && skip) {
        ack.subscriber = NULL; /* it was never delivered, so it took no credit */
    }
    if (ack.subscriber != NULL) {
        nd_subscriber_settling_begin(ack.subscriber);
    }
    gather(partition->topic->shard, &ack);
}

void nd_settle_skip(struct nd_partition *partition, struct nd_lease *lease)
{
    partition->skips += 1;
    nd_topic_state_pending_begin(partition->topic);
    ack_begin(partition, lease, true);
}

static void lease_lost(void *arg, struct nd_lease *lease)
{
    (void)arg;
    if (lease->owner != NULL) {
        nd_subscriber_lease_ended(lease->owner);
    }
}

void nd_settle_jump(struct nd_partition *partition, uint64_t offset)
{
    struct nd_shard *shard = partition->topic->shard;
    uint64_t from = partition->leases.frontier;
    uint64_t lost;

    if (offset <= from) {
        return;
    }
    lost = nd_lease_jump(&partition->leases, offset, lease_lost, NULL);
    nd_series_add(partition->meters.dropped, lost);
    nd_log(shard->broker->options.log, ND_LOG_WARN, "broker", "consumer fell behind retention",
           "topic=%s partition=%u from=%llu to=%llu dropped=%llu", partition->id.topic,
           partition->id.partition, (unsigned long long)from, (unsigned long long)offset,
           (unsigned long long)lost);
    gather(shard, &(struct ack){.partition = partition, .first = from, .last = offset - 1});
    nd_partition_mark_dirty(partition);
}

void nd_settle_expire(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;

    if (partition->state != ND_PARTITION_OPEN || shard->down_since_ns != 0) {
        return;
    }
    if (nd_lease_expire(&partition->leases, shard->now_ns, lease_lost, NULL) > 0) {
        nd_waiters_wake(partition);
        nd_partition_mark_dirty(partition);
    }
}

static int compare_acks(const void *left, const void *right)
{
    const struct ack *a = left, *b = right;
    const struct nd_partition_id *x = &a->partition->id, *y = &b->partition->id;

    if (x->incarnation != y->incarnation) {
        return x->incarnation < y->incarnation ? -1 : 1;
    }
    if (x->partition != y->partition) {
        return x->partition < y->partition ? -1 : 1;
    }
    return a->first < b->first ? -1 : a->first > b->first;
}

/* One ACK entry for each partition of the sorted acks. */
static void unit_build(struct nd_settle_unit *unit)
{
    struct nd_offset_range *ranges = nd_xmalloc(unit->count * sizeof *ranges);
    uint32_t count = 0;

    qsort(unit->acks, unit->count, sizeof *unit->acks, compare_acks);
    for (uint32_t i = 0; i < unit->count; i++) {
        const struct ack *ack = &unit->acks[i];
        if (count > 0 && ranges[count - 1].last + 1 >= ack->first) {
            ranges[count - 1].last = ND_MAX(ranges[count - 1].last, ack->last);
        } else {
            ranges[count++] = (struct nd_offset_range){ack->first, ack->last};
        }
        if (i + 1 == unit->count || unit->acks[i + 1].partition != ack->partition) {
            struct nd_wal_ack entry = {
                .id = &ack->partition->id, .ranges = ranges, .ranges_count = count};
            nd_wal_unit_add_ack(&unit->unit, &entry);
            count = 0;
        }
    }
    nd_free(ranges);
}

static void settle_put(struct nd_settle *settle)
{
    struct nd_topic *topic = settle->topic;

    settle->pending -= 1;
    if (settle->pending == 0) {
        settle->done(settle);
        nd_topic_unref(topic);
    }
}

static void items_answer(struct nd_settle_item *item, enum nd_err result)
{
    while (item != NULL) {
        struct nd_settle_item *next = item->same_next;
        item->result = result;
        settle_put(item->settle);
        item = next;
    }
}

/* Its group failed: leased again, or free when its time is over. */
static void ack_put_back(struct nd_shard *shard, const struct ack *ack)
{
    struct nd_partition *partition = ack->partition;
    struct nd_lease *lease = ack->lease;
    uint64_t now_ns = shard->down_since_ns != 0 ? shard->down_since_ns : shard->now_ns;

    if (!nd_lease_settle_failed(&partition->leases, lease, now_ns)) {
        if (ack->subscriber != NULL) {
            nd_subscriber_lease_ended(ack->subscriber);
        }
        return;
    }
    if (ack->skip) {
        nd_lease_free_up(&partition->leases, lease, false);
        return;
    }
    lease->settle = partition;
    if (ack->subscriber != NULL && !partition->topic->ended) {
        lease->owner = ack->subscriber;
        nd_list_append(&ack->subscriber->state.leases, &lease->owner_link);
    } else if (ack->subscriber != NULL) {
        nd_subscriber_lease_ended(ack->subscriber);
    }
    nd_collect_watch_expiry(partition);
}

static void ack_outcome(struct nd_shard *shard, const struct ack *ack, enum nd_err result)
{
    struct nd_partition *partition = ack->partition;
    struct nd_settle_item *items = ack->lease != NULL ? ack->lease->settle : NULL;

    if (ack->lease == NULL) {
        /* A jump stands whatever its outcome: it is found again after a crash. */
    } else if (result == ND_OK) {
        nd_lease_settle_done(&partition->leases, ack->lease);
        nd_series_add(partition->meters.corrupt_skipped, ack->skip ? 1 : 0);
        if (ack->subscriber != NULL) {
            nd_subscriber_lease_ended(ack->subscriber);
        }
    } else {
        ack_put_back(shard, ack);
    }
    partition->acks -= 1;
    nd_waiters_wake(partition);
    nd_partition_mark_dirty(partition);
    if (ack->skip) {
        partition->skips -= 1;
        nd_topic_state_pending_end(partition->topic);
    }
    if (ack->subscriber != NULL) {
        nd_subscriber_settling_end(ack->subscriber);
    }
    items_answer(items, result);
    nd_topic_state_unbusy(partition->topic);
}

static void unit_outcome(struct nd_settle_unit *unit, enum nd_err result)
{
    for (uint32_t i = 0; i < unit->count; i++) {
        ack_outcome(unit->shard, &unit->acks[i], result);
    }
    unit_put(unit);
}

static void unit_back(struct nd_msg *msg, void *owner)
{
    struct nd_settle_unit *unit = ND_CONTAINER_OF(msg, struct nd_settle_unit, unit.msg);
    enum nd_err result = unit->unit.result;

    nd_shard_unit_back(owner);
    /* Its bytes may be on the device or not; the lease stands, and an ack again is the answer. */
    unit_outcome(unit, result == ND_OK || result == ND_ERR_NO_SPACE ? result : ND_ERR_UNAVAILABLE);
}

void nd_settle_stage(struct nd_shard *shard)
{
    struct nd_settle_unit *unit = shard->gathering;

    if (unit == NULL) {
        return;
    }
    shard->gathering = NULL;
    unit_build(unit);
    unit->unit.msg.run = unit_back;
    enum nd_err err = nd_shard_stage_unit(shard, &unit->unit);
    if (err != ND_OK) {
        unit_outcome(unit, err == ND_ERR_NO_SPACE ? err : ND_ERR_UNAVAILABLE);
        return;
    }
    for (uint32_t i = 0; i < unit->count; i++) {
        nd_partition_staged(unit->acks[i].partition, unit->unit.sequence);
    }
}

/* --- requests --- */

static void ack_item(struct nd_settle *settle, struct nd_settle_item *item,
                     struct nd_partition *partition, struct nd_lease *lease)
{
    if (lease->state == ND_LEASE_LEASED) {
        ack_begin(partition, lease, false);
    }
    item->settle = settle;
    item->same_next = lease->settle;
    lease->settle = item;
    settle->pending += 1;
}

static void nack_item(struct nd_partition *partition, struct nd_lease *lease)
{
    struct nd_subscriber *subscriber = lease->owner;

    nd_lease_free_up(&partition->leases, lease, true);
    if (subscriber != NULL) {
        nd_subscriber_lease_ended(subscriber);
    }
    nd_series_add(partition->topic->meters->nacked, 1);
    nd_waiters_wake(partition);
    nd_partition_mark_dirty(partition);
}

static enum nd_err settle_item(struct nd_settle *settle, struct nd_settle_item *item,
                               struct nd_topic_state *topic)
{
    struct nd_shard *shard = topic->shard;
    struct nd_partition *partition =
        item->partition < topic->partitions_count ? topic->partitions[item->partition] : NULL;

    if (partition == NULL || partition->state != ND_PARTITION_OPEN) {
        return ND_ERR_STALE; /* nothing of it was delivered by this process */
    }
    nd_settle_expire(partition);
    struct nd_lease *lease = nd_lease_find(&partition->leases, item->offset, item->nonce);
    if (lease == NULL) {
        return ND_ERR_STALE;
    }
    if (item->action == ND_SETTLE_ACK) {
        ack_item(settle, item, partition, lease);
        return ND_OK;
    }
    if (lease->state != ND_LEASE_LEASED) {
        return ND_ERR_STALE;
    }
    if (item->action == ND_SETTLE_NACK) {
        nack_item(partition, lease);
        return ND_OK;
    }
    nd_lease_extend(&partition->leases, lease,
                    shard->now_ns + topic->topic->visibility_timeout_ms * 1000000);
    nd_series_add(topic->meters->extended, 1);
    return ND_OK;
}

static void settle_run(struct nd_msg *msg, void *owner)
{
    struct nd_settle *settle = ND_CONTAINER_OF(msg, struct nd_settle, msg);
    struct nd_shard *shard = owner;
    struct nd_topic_state *topic = nd_topic_state_find(shard, settle->topic);
    enum nd_err refused = ND_OK;

    if (topic == NULL) {
        refused = ND_ERR_TOPIC_NOT_FOUND;
    } else if (shard->stage > ND_SHARD_DRAINING ||
               /* acquire: pairs with nd_broker_set_caught_up */
               !atomic_load_explicit(&shard->broker->caught_up, memory_order_acquire)) {
        refused = ND_ERR_UNAVAILABLE;
    }
    settle->pending = 1;
    for (uint32_t i = 0; i < settle->count; i++) {
        struct nd_settle_item *item = &settle->items[i];
        if (item->result == ND_OK) {
            item->result = refused != ND_OK ? refused : settle_item(settle, item, topic);
            bool stale = item->result == ND_ERR_STALE && item->action == ND_SETTLE_ACK;
            nd_series_add(shard->broker->meters.acks_stale, stale ? 1 : 0);
        }
    }
    settle_put(settle);
}

void nd_broker_settle(struct nd_broker *broker, struct nd_settle *settle)
{
    settle->msg.run = settle_run;
    settle->shard = nd_broker_shard(broker, settle->topic);
    nd_shard_push(settle->shard, &settle->msg);
}
