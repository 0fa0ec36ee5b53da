#include "server/broker/produce.h"

#include "storage/base/codec.h"

#include "server/broker/accept.h"
#include "server/broker/flush.h"
#include "server/broker/waiters.h"

enum { RUN_OVERHEAD = 64 };

size_t nd_run_bytes(size_t records_size)
{
    return records_size + RUN_OVERHEAD;
}

bool nd_tail_budget_take(struct nd_broker *broker, size_t bytes)
{
    /* relaxed: see nd_broker */
    size_t before = atomic_fetch_add_explicit(&broker->tail_bytes, bytes, memory_order_relaxed);

    if (before + bytes > broker->options.tail_memory_bytes) {
        nd_tail_budget_give(broker, bytes);
        return false;
    }
    return true;
}

void nd_tail_budget_give(struct nd_broker *broker, size_t bytes)
{
    /* relaxed: see nd_broker */
    atomic_fetch_sub_explicit(&broker->tail_bytes, bytes, memory_order_relaxed);
}

int64_t nd_partition_commit_ms(struct nd_shard *shard, const struct nd_partition *partition)
{
    int64_t now_ms = nd_commit_clock_now_ms(shard->broker->options.clock);

    return ND_MAX(now_ms, partition->last_commit_ms);
}

void nd_partition_assigned(struct nd_partition *partition, uint32_t count, int64_t time_ms,
                           uint64_t sequence)
{
    partition->next += count;
    partition->last_commit_ms = time_ms;
    partition->topic->busy += 1;
    nd_partition_staged(partition, sequence);
}

/* Payload bytes of a valid run. */
static uint64_t payload_bytes(struct nd_slice records, uint32_t count)
{
    uint64_t bytes = 0;
    const uint8_t *at = records.data;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = nd_get_u32(at);
        bytes += size - ND_RECORD_HEADER_SIZE - nd_get_u16(at + 6) - nd_get_u32(at + 8);
        at += size;
    }
    return bytes;
}

void nd_partition_committed(struct nd_partition *partition, const struct nd_tail_run *run)
{
    nd_block_ref(run->block);
    nd_tail_append(&partition->tail, run);
    ND_ASSERT(run->base_offset >= partition->end);
    partition->end = run->base_offset + run->count;
    nd_series_add(partition->meters.produced, run->count);
    nd_series_add(partition->meters.produced_bytes, payload_bytes(run->records, run->count));
    nd_partition_account(partition);
    nd_partition_update_pin(partition);
    nd_partition_mark_dirty(partition);
    nd_waiters_wake(partition);
    nd_flush_check_size(partition);
}

void nd_partition_take_back(struct nd_partition *partition, uint64_t base)
{
    /* Units fail in the order they were staged and nothing is staged in between, so the first one
     * brings `next` back to what is synced. */
    partition->next = ND_MIN(partition->next, base);
    ND_ASSERT(partition->next >= partition->end);
}

void nd_produce_finish(struct nd_produce *produce, enum nd_err err)
{
    struct nd_admission batch = produce->batch;

    nd_wal_unit_release(&produce->unit);
    produce->done(produce, err);
    nd_admission_release(&batch);
}

static void placements_fill(struct nd_produce *produce)
{
    struct nd_admission *batch = &produce->batch;
    struct nd_topic_state *topic = produce->state.topic_state;

    for (uint32_t i = 0; i < batch->runs_count; i++) {
        topic->partitions[batch->runs[i].partition]->batch_base = batch->runs[i].base_offset;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct nd_placement *placement = &batch->placements[i];
        placement->offset = topic->partitions[placement->partition]->batch_base + placement->index;
    }
    batch->has_offsets = true;
}

static void produce_back(struct nd_msg *msg, void *owner)
{
    struct nd_produce *produce = ND_CONTAINER_OF(msg, struct nd_produce, unit.msg);
    struct nd_topic_state *topic = produce->state.topic_state;
    struct nd_admission *batch = &produce->batch;
    struct nd_shard *shard = owner;
    const struct nd_broker *broker = shard->broker;
    bool ok = produce->unit.result == ND_OK;
    uint64_t sequence = produce->unit.sequence; /* own origins: one a record, in this order */

    nd_shard_unit_back(shard);
    nd_tail_budget_give(shard->broker, produce->state.bytes);
    shard->producing_bytes -= produce->state.bytes;
    for (uint32_t i = 0; i < batch->runs_count; i++) {
        const struct nd_admission_run *run = &batch->runs[i];
        struct nd_partition *partition = topic->partitions[run->partition];
        if (!ok) {
            nd_partition_take_back(partition, run->base_offset);
        } else if (!topic->ended) {
            nd_partition_committed(partition,
                                   &(struct nd_tail_run){.block = batch->block,
                                                         .records = run->records,
                                                         .base_offset = run->base_offset,
                                                         .sequence = produce->unit.sequence,
                                                         .staged_ns = shard->now_ns,
                                                         .count = run->count,
                                                         .origin_member = broker->options.member,
                                                         .origin_writer = broker->wal_writer,
                                                         .origin_sequence = sequence});
        }
        sequence += run->count;
    }
    if (ok) {
        placements_fill(produce);
    }
    uint32_t runs = batch->runs_count;
    nd_produce_finish(produce, ok ? ND_OK : ND_ERR_UNKNOWN_OUTCOME);
    for (uint32_t i = 0; i < runs; i++) {
        nd_topic_state_unbusy(topic);
    }
}

/* Every partition of the batch is open: OK; UNAVAILABLE: one cannot be written; CANCELLED: one is
 * opening, or what was accepted for it is under way: the request is parked. */
static enum nd_err partitions_open(struct nd_produce *produce, struct nd_topic_state *topic)
{
    const struct nd_admission *batch = &produce->batch;
    bool opening = !nd_list_empty(&topic->parked); /* nothing overtakes what is parked */

    for (uint32_t i = 0; i < batch->runs_count; i++) {
        struct nd_partition *partition = nd_topic_state_partition(topic, batch->runs[i].partition);
        enum nd_partition_state state = nd_partition_touch(partition);
        if (state == ND_PARTITION_DAMAGED || partition->unflushable ||
            (partition->accepts > 0 && topic->shard->down_since_ns != 0)) {
            return ND_ERR_UNAVAILABLE;
        }
        opening |= state != ND_PARTITION_OPEN || partition->accepts > 0;
    }
    if (opening) {
        nd_topic_state_park(topic, &produce->msg);
        return ND_ERR_CANCELLED;
    }
    return ND_OK;
}

static uint8_t *run_bytes_of(struct nd_block *block, struct nd_slice records)
{
    return block->bytes + (records.data - block->bytes);
}

static enum nd_err produce_stage(struct nd_produce *produce, struct nd_topic_state *topic)
{
    struct nd_shard *shard = topic->shard;
    struct nd_admission *batch = &produce->batch;
    int64_t time_ms = 0;

    /* One time for the whole batch, under the clock of each of its partitions. */
    for (uint32_t i = 0; i < batch->runs_count; i++) {
        int64_t own_ms = nd_partition_commit_ms(shard, topic->partitions[batch->runs[i].partition]);
        time_ms = ND_MAX(time_ms, own_ms);
    }
    for (uint32_t i = 0; i < batch->runs_count; i++) {
        struct nd_admission_run *run = &batch->runs[i];
        const struct nd_partition *partition = topic->partitions[run->partition];
        run->base_offset = partition->next;
        nd_run_set_time(run_bytes_of(batch->block, run->records), run->records.size, time_ms);
        nd_wal_unit_add_commit(&produce->unit,
                               &(struct nd_wal_commit){.id = &partition->id,
                                                       .base_offset = run->base_offset,
                                                       .time_ms = time_ms,
                                                       .count = run->count,
                                                       .records = run->records});
    }
    produce->unit.msg.run = produce_back;
    enum nd_err err = nd_shard_stage_unit(shard, &produce->unit);
    if (err != ND_OK) {
        return err;
    }
    for (uint32_t i = 0; i < batch->runs_count; i++) {
        nd_partition_assigned(topic->partitions[batch->runs[i].partition], batch->runs[i].count,
                              time_ms, produce->unit.sequence);
    }
    return ND_OK;
}

static bool owns_all(const struct nd_admission *batch, const struct nd_topic_state *topic)
{
    for (uint32_t i = 0; i < batch->runs_count; i++) {
        if (!nd_topic_state_owns(topic, batch->runs[i].partition)) {
            return false;
        }
    }
    return true;
}

static enum nd_err produce_try(struct nd_produce *produce, struct nd_shard *shard)
{
    struct nd_admission *batch = &produce->batch;
    struct nd_topic_state *topic = nd_topic_state_find(shard, batch->topic);

    if (nd_shard_stopping(shard)) {
        return ND_ERR_UNAVAILABLE;
    }
    if (topic == NULL) {
        return ND_ERR_TOPIC_NOT_FOUND;
    }
    produce->state.topic_state = topic;
    /* acquire: pairs with nd_broker_set_caught_up */
    bool caught_up = atomic_load_explicit(&shard->broker->caught_up, memory_order_acquire);
    if (!caught_up || !owns_all(batch, topic)) {
        return nd_accept_produce(produce, topic);
    }
    if (!nd_list_empty(&shard->accepts)) {
        nd_accept_dispatch(shard); /* what was accepted before comes first */
    }
    enum nd_err err = partitions_open(produce, topic);
    if (err != ND_OK) {
        return err == ND_ERR_CANCELLED ? ND_OK : err;
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < batch->runs_count; i++) {
        bytes += nd_run_bytes(batch->runs[i].records.size);
    }
    if (!nd_tail_budget_take(shard->broker, bytes)) {
        return ND_ERR_OVERLOADED;
    }
    produce->state.bytes = bytes;
    err = produce_stage(produce, topic);
    if (err != ND_OK) {
        nd_tail_budget_give(shard->broker, bytes);
    } else {
        shard->producing_bytes += bytes;
    }
    return err;
}

/* The log takes what was staged in one group, and who comes then waits for all of it. */
static bool staged_enough(const struct nd_shard *shard)
{
    size_t most = shard->broker->options.staged_bytes_max / shard->broker->options.shards;

    return most > 0 && shard->producing_bytes >= most;
}

static void produce_now(struct nd_produce *produce, struct nd_shard *shard)
{
    produce->state.let_in = true;
    nd_wal_unit_reset(&produce->unit);
    enum nd_err err = produce_try(produce, shard);
    if (err != ND_OK) {
        nd_produce_finish(produce, err);
    }
}

static void produce_run(struct nd_msg *msg, void *owner)
{
    struct nd_produce *produce = ND_CONTAINER_OF(msg, struct nd_produce, msg);
    struct nd_shard *shard = owner;

    /* One that was parked meanwhile came before all that are held. */
    if (!produce->state.let_in && (!nd_list_empty(&shard->held) || staged_enough(shard))) {
        nd_list_append(&shard->held, &msg->link);
        return;
    }
    produce_now(produce, shard);
}

void nd_produce_let_in(struct nd_shard *shard)
{
    while (!nd_list_empty(&shard->held) && !staged_enough(shard)) {
        struct nd_msg *msg = ND_CONTAINER_OF(nd_list_pop(&shard->held), struct nd_msg, link);
        produce_now(ND_CONTAINER_OF(msg, struct nd_produce, msg), shard);
    }
}

void nd_broker_produce(struct nd_broker *broker, struct nd_produce *produce)
{
    ND_ASSERT(produce->batch.runs_count > 0);
    produce->msg.run = produce_run;
    produce->state.shard = nd_broker_shard(broker, produce->batch.topic);
    produce->state.let_in = false;
    produce->batch.has_offsets = false;
    nd_wal_unit_init(&produce->unit, ND_WAL_PRODUCE);
    nd_shard_push(produce->state.shard, &produce->msg);
}
