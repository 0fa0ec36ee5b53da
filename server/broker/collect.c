#include "server/broker/collect.h"

#include "server/broker/read.h"
#include "server/broker/settle.h"
#include "server/broker/waiters.h"

enum { SKIPS_A_TURN = 1000 };

static size_t view_bytes(const struct nd_record_view *view)
{
    return view->key.size + view->headers.size + view->payload.size;
}

void nd_collect_watch_expiry(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;
    uint64_t next = nd_lease_next_expiry(&partition->leases);

    /* An extend makes the key too early, which costs one look; never too late. */
    if (next != UINT64_MAX &&
        (!nd_heap_contains(&partition->expiry) || next < partition->expiry.key)) {
        nd_heap_put(&shard->expiries, &partition->expiry, next);
    }
}

static void collect_add(struct nd_collect *collect, struct nd_partition *partition,
                        struct nd_lease *lease, const struct nd_read *read)
{
    struct nd_shard *shard = partition->topic->shard;

    shard->deliveries[collect->count] = (struct nd_delivery){.block = read->block,
                                                             .record = read->view,
                                                             .offset = lease->offset,
                                                             .nonce = lease->nonce,
                                                             .partition = partition->id.partition,
                                                             .attempt = lease->attempt};
    lease->settle = partition; /* until an ack makes it SETTLING */
    if (collect->owner != NULL) {
        nd_list_append(&collect->owner->state.leases, &lease->owner_link);
    }
    collect->count += 1;
    collect->bytes += view_bytes(&read->view);
    collect->payload_bytes += read->view.payload.size;
}

/* One reserved offset; false: no more from this partition now. */
static bool collect_one(struct nd_collect *collect, struct nd_partition *partition,
                        struct nd_lease *lease, uint32_t *skips)
{
    struct nd_read read;

    switch (nd_read_memory(partition, lease->offset, &read)) {
    case ND_READ_OK:
        if (collect->count > 0 && collect->bytes + view_bytes(&read.view) > collect->bytes_max) {
            nd_lease_free_up(&partition->leases, lease, false);
            return false;
        }
        collect_add(collect, partition, lease, &read);
        return true;
    case ND_READ_COLD: {
        uint64_t offset = lease->offset;
        nd_lease_free_up(&partition->leases, lease, false);
        nd_read_wait(partition);
        nd_read_start(partition, offset);
        return false;
    }
    case ND_READ_SKIP:
        if (partition->topic->shard->down_since_ns != 0) {
            nd_lease_free_up(&partition->leases, lease, false);
            return false; /* a skip must be synced: once the WAL takes it */
        }
        nd_settle_skip(partition, lease);
        return ++*skips < SKIPS_A_TURN;
    case ND_READ_BELOW_START:
        nd_lease_free_up(&partition->leases, lease, false);
        nd_settle_jump(partition, partition->log_start);
        return true;
    }
    ND_UNREACHABLE();
}

void nd_collect_from(struct nd_collect *collect, struct nd_partition *partition)
{
    struct nd_topic_state *topic = partition->topic;
    struct nd_shard *shard = topic->shard;
    uint64_t expiry_ns = shard->now_ns + topic->topic->visibility_timeout_ms * 1000000;
    uint32_t count_before = collect->count, skips = 0;
    size_t payload_before = collect->payload_bytes;
    struct nd_lease *lease;

    while (collect->count < collect->messages_max && collect->bytes < collect->bytes_max &&
           nd_lease_reserve(&partition->leases, partition->end, nd_shard_nonce(shard), expiry_ns,
                            collect->owner, &lease) == ND_RESERVE_OK) {
        if (!collect_one(collect, partition, lease, &skips)) {
            break;
        }
    }
    if (skips >= SKIPS_A_TURN) {
        nd_waiters_wake(partition);
    }
    nd_collect_watch_expiry(partition);
    if (collect->count > count_before) {
        partition->uses += 1;
        partition->unsaved = true; /* how often each was delivered */
    }
    nd_series_add(partition->meters.consumed, collect->count - count_before);
    nd_series_add(partition->meters.consumed_bytes, collect->payload_bytes - payload_before);
    nd_partition_mark_dirty(partition);
}

void nd_collect_from_ready(struct nd_collect *collect, struct nd_topic_state *topic,
                           const struct nd_partition *except)
{
    struct nd_list *last = topic->ready.prev;
    struct nd_list *link;

    while (collect->count < collect->messages_max && collect->bytes < collect->bytes_max &&
           (link = nd_list_first(&topic->ready)) != NULL) {
        struct nd_partition *partition = ND_CONTAINER_OF(link, struct nd_partition, ready);
        bool was_last = link == last;
        nd_list_remove(link);
        if (partition != except && nd_partition_available(partition)) {
            nd_collect_from(collect, partition);
        }
        if (nd_partition_available(partition)) {
            nd_list_append(&topic->ready, link);
        }
        if (was_last) {
            break;
        }
    }
}

void nd_collect_undo(struct nd_topic_state *topic, uint32_t count)
{
    struct nd_shard *shard = topic->shard;

    for (uint32_t i = 0; i < count; i++) {
        const struct nd_delivery *delivery = &shard->deliveries[i];
        struct nd_partition *partition = topic->partitions[delivery->partition];
        struct nd_lease *lease =
            nd_lease_find(&partition->leases, delivery->offset, delivery->nonce);
        if (lease != NULL) {
            nd_lease_free_up(&partition->leases, lease, false);
        }
        nd_waiters_wake(partition);
    }
}
