#include "server/broker/accept.h"

#include "storage/base/alloc.h"

#include "server/broker/produce.h"

/* Of what is being dispatched, at most this waits in the WAL at one time (T1). */
enum { DISPATCHING_BYTES_MAX = 8 << 20 };

enum accept_state {
    ACCEPT_STAGED,      /* its ACCEPT is not synced */
    ACCEPT_HELD,        /* it is, and nothing is done about it now */
    ACCEPT_DISPATCHING, /* its COMMIT + DISPATCHED, or DISPATCHED alone, is staged */
};

struct nd_accept {
    struct nd_list link;       /* in shard->accepts, by entry_sequence */
    struct nd_list of_produce; /* in its produce while STAGED */
    struct nd_partition_id id;
    struct nd_block *block;
    struct nd_slice records;
    uint64_t writer, sequence, entry_sequence;
    uint32_t count;
    enum accept_state state;
    struct nd_wal_unit unit; /* of the dispatch */
    struct nd_partition *partition;
    uint64_t base_offset;
    int64_t time_ms;
};

static void held_changed(struct nd_shard *shard, int64_t records)
{
    shard->accepts_held += (uint64_t)records;
    nd_series_set(shard->broker->meters.accepts_held, (double)shard->accepts_held);
}

/* Find its partition, which from now on knows that something waits in front. A topic that nobody
 * told of, or that ended, gets a state without a record: housekeeping asks whether it is gone. */
static void accept_bind(struct nd_shard *shard, struct nd_accept *accept)
{
    struct nd_topic_state *topic = nd_map_get_u64(shard->topics, accept->id.incarnation);

    if (topic == NULL) {
        topic = nd_topic_state_new(shard, accept->id.topic, accept->id.incarnation);
    }
    nd_topic_state_grow(topic, accept->id.partition + 1);
    accept->partition = nd_topic_state_partition(topic, accept->id.partition);
    accept->partition->accepts += 1;
}

static void accept_set(struct nd_accept *accept, enum accept_state state)
{
    if (state == ACCEPT_DISPATCHING) {
        accept->partition->accepts -= 1;
    } else if (accept->state == ACCEPT_DISPATCHING) {
        accept->partition->accepts += 1;
    }
    accept->state = state;
}

static struct nd_accept *accept_new(struct nd_shard *shard, const struct nd_partition_id *id,
                                    struct nd_block *block, struct nd_slice records, uint32_t count)
{
    struct nd_accept *accept = nd_xcalloc(1, sizeof *accept);

    accept->id = *id;
    accept->block = block;
    accept->records = records;
    accept->count = count;
    nd_list_init(&accept->of_produce);
    nd_list_append(&shard->accepts, &accept->link);
    held_changed(shard, count);
    accept_bind(shard, accept);
    return accept;
}

static void accept_free(struct nd_shard *shard, struct nd_accept *accept)
{
    if (accept->partition != NULL && accept->state != ACCEPT_DISPATCHING) {
        accept->partition->accepts -= 1;
    }
    held_changed(shard, -(int64_t)accept->count);
    nd_tail_budget_give(shard->broker, nd_run_bytes(accept->records.size));
    nd_list_remove(&accept->link);
    nd_list_remove(&accept->of_produce);
    nd_block_unref(accept->block);
    nd_free(accept);
}

/* --- taking --- */

static void produce_accepted(struct nd_msg *msg, void *owner)
{
    struct nd_produce *produce = ND_CONTAINER_OF(msg, struct nd_produce, unit.msg);
    struct nd_topic_state *topic = produce->state.topic_state;
    struct nd_shard *shard = owner;
    bool ok = produce->unit.result == ND_OK;
    struct nd_list *link;

    nd_shard_unit_back(shard);
    while ((link = nd_list_pop(&produce->state.accepts)) != NULL) {
        struct nd_accept *accept = ND_CONTAINER_OF(link, struct nd_accept, of_produce);
        if (ok) {
            accept->state = ACCEPT_HELD;
        } else {
            accept_free(shard, accept);
        }
    }
    nd_produce_finish(produce, ok ? ND_OK : ND_ERR_UNKNOWN_OUTCOME);
    nd_accept_dispatch(shard); /* the latch may have come meanwhile */
    nd_topic_state_unpark(topic);
    nd_topic_state_unbusy(topic);
}

static void accepts_keep(struct nd_produce *produce, struct nd_topic_state *topic)
{
    struct nd_shard *shard = topic->shard;
    uint64_t sequence = produce->unit.sequence;

    nd_list_init(&produce->state.accepts);
    for (uint32_t i = 0; i < produce->batch.runs_count; i++) {
        const struct nd_admission_run *run = &produce->batch.runs[i];
        const struct nd_partition_id *id = &nd_topic_state_partition(topic, run->partition)->id;
        struct nd_accept *accept =
            accept_new(shard, id, nd_block_ref(produce->batch.block), run->records, run->count);
        accept->writer = shard->broker->wal_writer;
        accept->sequence = accept->entry_sequence = sequence;
        sequence += run->count; /* one sequence a record */
        nd_list_append(&produce->state.accepts, &accept->of_produce);
    }
}

enum nd_err nd_accept_produce(struct nd_produce *produce, struct nd_topic_state *topic)
{
    struct nd_shard *shard = topic->shard;
    int64_t now_ms = nd_commit_clock_now_ms(shard->broker->options.clock);
    size_t bytes = 0;

    for (uint32_t i = 0; i < produce->batch.runs_count; i++) {
        bytes += nd_run_bytes(produce->batch.runs[i].records.size);
    }
    if (!nd_tail_budget_take(shard->broker, bytes)) {
        return ND_ERR_OVERLOADED;
    }
    for (uint32_t i = 0; i < produce->batch.runs_count; i++) {
        const struct nd_admission_run *run = &produce->batch.runs[i];
        struct nd_wal_accept entry = {.id = &nd_topic_state_partition(topic, run->partition)->id,
                                      .time_ms = now_ms,
                                      .count = run->count,
                                      .records = run->records};
        nd_wal_unit_add_accept(&produce->unit, &entry);
    }
    produce->unit.msg.run = produce_accepted;
    enum nd_err err = nd_shard_stage_unit(shard, &produce->unit);
    if (err != ND_OK) {
        nd_tail_budget_give(shard->broker, bytes);
        return err;
    }
    topic->busy += 1;
    accepts_keep(produce, topic);
    return ND_OK;
}

void nd_accept_recover(struct nd_shard *shard, struct nd_recovered_accept *recovered)
{
    struct nd_accept *accept =
        accept_new(shard, &recovered->id, recovered->block, recovered->records, recovered->count);

    recovered->block = NULL;
    accept->writer = recovered->writer;
    accept->sequence = recovered->sequence;
    accept->entry_sequence = recovered->entry_sequence;
    accept->state = ACCEPT_HELD;
    /* Accepted is accepted: over the budget if need be. relaxed: see nd_broker */
    atomic_fetch_add_explicit(&shard->broker->tail_bytes, nd_run_bytes(accept->records.size),
                              memory_order_relaxed);
    shard->accepts_due = true;
}

/* --- dispatching --- */

static void add_dispatched(struct nd_accept *accept)
{
    struct nd_offset_range range = {accept->sequence, accept->sequence + accept->count - 1};
    struct nd_wal_dispatched entry = {
        .writer = accept->writer, .ranges = &range, .ranges_count = 1};

    nd_wal_unit_add_dispatched(&accept->unit, &entry);
}

static void dispatch_back(struct nd_msg *msg, void *owner)
{
    struct nd_accept *accept = ND_CONTAINER_OF(msg, struct nd_accept, unit.msg);
    struct nd_partition *partition = accept->partition;
    struct nd_topic_state *topic = partition->topic;
    struct nd_shard *shard = owner;
    bool ok = accept->unit.result == ND_OK;

    nd_shard_unit_back(shard);
    shard->dispatching_bytes -= accept->records.size;
    nd_wal_unit_release(&accept->unit);
    if (ok && !topic->ended) {
        nd_partition_committed(partition,
                               &(struct nd_tail_run){.block = accept->block,
                                                     .records = accept->records,
                                                     .base_offset = accept->base_offset,
                                                     .sequence = accept->unit.sequence,
                                                     .staged_ns = shard->now_ns,
                                                     .count = accept->count,
                                                     .origin_member = shard->broker->options.member,
                                                     .origin_writer = accept->writer,
                                                     .origin_sequence = accept->sequence});
    }
    if (ok) {
        accept_free(shard, accept);
    } else {
        nd_partition_take_back(partition, accept->base_offset);
        accept_set(accept, ACCEPT_HELD);
    }
    nd_accept_dispatch(shard);
    nd_topic_state_unpark(topic);
    nd_topic_state_unbusy(topic);
}

static enum nd_err dispatch_one(struct nd_shard *shard, struct nd_accept *accept,
                                struct nd_partition *partition)
{
    uint8_t *records = accept->block->bytes + (accept->records.data - accept->block->bytes);

    accept->base_offset = partition->next;
    accept->time_ms = nd_partition_commit_ms(shard, partition);
    nd_run_set_time(records, accept->records.size, accept->time_ms);
    nd_wal_unit_init(&accept->unit, ND_WAL_RESERVED);
    nd_wal_unit_add_commit(&accept->unit,
                           &(struct nd_wal_commit){.id = &partition->id,
                                                   .base_offset = accept->base_offset,
                                                   .time_ms = accept->time_ms,
                                                   .count = accept->count,
                                                   .records = accept->records,
                                                   .origin_member = shard->broker->options.member,
                                                   .origin_writer = accept->writer,
                                                   .origin_sequence = accept->sequence});
    add_dispatched(accept);
    accept->unit.msg.run = dispatch_back;
    enum nd_err err = nd_shard_stage_unit(shard, &accept->unit);
    if (err != ND_OK) {
        nd_wal_unit_release(&accept->unit);
        return err;
    }
    accept_set(accept, ACCEPT_DISPATCHING);
    shard->dispatching_bytes += accept->records.size;
    nd_partition_assigned(partition, accept->count, accept->time_ms, accept->unit.sequence);
    return ND_OK;
}

/* Can records be committed to it now? */
static bool destination_open(struct nd_partition *partition)
{
    const struct nd_topic_state *topic = partition->topic;

    return topic->topic != NULL && !topic->ended &&
           nd_topic_state_owns(topic, partition->id.partition) &&
           nd_partition_touch(partition) == ND_PARTITION_OPEN && !partition->unflushable;
}

void nd_accept_dispatch(struct nd_shard *shard)
{
    shard->accepts_due = false;
    /* acquire: pairs with nd_broker_set_caught_up */
    if (nd_list_empty(&shard->accepts) || shard->down_since_ns != 0 ||
        shard->stage > ND_SHARD_DRAINING ||
        !atomic_load_explicit(&shard->broker->caught_up, memory_order_acquire)) {
        return;
    }
    shard->scan += 1;
    ND_LIST_FOREACH (&shard->accepts, link) {
        struct nd_accept *accept = ND_CONTAINER_OF(link, struct nd_accept, link);
        if (accept->state == ACCEPT_DISPATCHING) {
            continue;
        }
        if (accept->partition == NULL) {
            accept_bind(shard, accept);
        }
        struct nd_partition *partition = accept->partition;
        if (accept->state == ACCEPT_STAGED || partition->scan == shard->scan ||
            !destination_open(partition)) {
            partition->scan = shard->scan; /* nothing of the partition overtakes it */
            continue;
        }
        if (shard->dispatching_bytes > DISPATCHING_BYTES_MAX ||
            dispatch_one(shard, accept, partition) != ND_OK) {
            return;
        }
    }
}

void nd_accept_unbind(struct nd_topic_state *topic)
{
    ND_LIST_FOREACH (&topic->shard->accepts, link) {
        struct nd_accept *accept = ND_CONTAINER_OF(link, struct nd_accept, link);
        if (accept->partition != NULL && accept->partition->topic == topic) {
            ND_ASSERT(accept->state == ACCEPT_HELD); /* else the topic is busy */
            accept->partition = NULL;
        }
    }
}

/* --- discarding --- */

static void discard_back(struct nd_msg *msg, void *owner)
{
    struct nd_accept *accept = ND_CONTAINER_OF(msg, struct nd_accept, unit.msg);
    struct nd_topic_state *topic = accept->partition->topic;
    struct nd_shard *shard = owner;
    bool ok = accept->unit.result == ND_OK;

    nd_shard_unit_back(shard);
    nd_wal_unit_release(&accept->unit);
    if (ok) {
        nd_series_add(shard->broker->meters.accepts_discarded, accept->count);
        accept_free(shard, accept);
    } else {
        accept_set(accept, ACCEPT_HELD); /* it will be asked about again */
    }
    nd_topic_state_unbusy(topic);
}

void nd_accept_discard(struct nd_topic_state *topic)
{
    struct nd_shard *shard = topic->shard;

    ND_LIST_FOREACH (&shard->accepts, link) {
        struct nd_accept *accept = ND_CONTAINER_OF(link, struct nd_accept, link);
        if (accept->partition == NULL || accept->partition->topic != topic ||
            accept->state != ACCEPT_HELD) {
            continue;
        }
        nd_log(shard->broker->options.log, ND_LOG_WARN, "broker", "accepted records discarded",
               "topic=%s partition=%u count=%u", accept->id.topic, accept->id.partition,
               accept->count);
        nd_wal_unit_init(&accept->unit, ND_WAL_RESERVED);
        add_dispatched(accept);
        accept->unit.msg.run = discard_back;
        if (nd_shard_stage_unit(shard, &accept->unit) != ND_OK) {
            nd_wal_unit_release(&accept->unit);
            return;
        }
        accept_set(accept, ACCEPT_DISPATCHING);
        topic->busy += 1;
    }
}

uint64_t nd_accept_needs(const struct nd_shard *shard)
{
    struct nd_list *link = nd_list_first(&shard->accepts);

    return link == NULL ? UINT64_MAX
                        : ND_CONTAINER_OF(link, struct nd_accept, link)->entry_sequence;
}

void nd_accept_release(struct nd_shard *shard)
{
    struct nd_list *link;

    while ((link = nd_list_first(&shard->accepts)) != NULL) {
        accept_free(shard, ND_CONTAINER_OF(link, struct nd_accept, link));
    }
}
