/* Records that no segment takes, again at the head of the log (F3). Their old place in the log
 * stays pinned until the unit is synced; from then on the new place is. A crash in between finds
 * both and keeps one (storage/recovery.c). */
#include "storage/base/alloc.h"

#include "server/broker/restate.h"
#include "server/broker/topic_state.h"

enum {
    RECORDS_BYTES = 1 << 20,
    RUNS_MAX = 512,
    ENTRY_HEAD_SIZE = 72, /* without the topic's name; storage/README.md */
};

struct nd_records_unit {
    struct nd_wal_unit unit;
    uint32_t runs_count, spans_count;
    struct nd_tail_run runs[RUNS_MAX]; /* counted */
    uint64_t bases[RUNS_MAX];          /* of the runs */
    struct records_span {              /* runs of one partition, one span after the other */
        struct nd_partition *partition;
        uint32_t runs;
    } spans[RUNS_MAX];
};

static void records_done(struct nd_records_unit *unit, struct nd_shard *shard, enum nd_err result)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < unit->spans_count; i++) {
        const struct records_span *span = &unit->spans[i];
        struct nd_partition *partition = span->partition;
        partition->records_restating = false;
        if (result == ND_OK && !partition->topic->ended) {
            /* The lowest sequence of the unit: never too high. */
            nd_tail_restated(&partition->tail, unit->bases + at, span->runs, unit->unit.sequence);
            nd_partition_update_pin(partition);
            nd_restate_unlift(partition);
        } else if (partition->lifting) {
            nd_restate_stick(partition);
        }
        at += span->runs;
        nd_topic_state_unbusy(partition->topic);
    }
    for (uint32_t i = 0; i < unit->runs_count; i++) {
        if (result == ND_OK) {
            nd_series_add(shard->broker->meters.restated_bytes, unit->runs[i].records.size);
        }
        nd_block_unref(unit->runs[i].block);
    }
    nd_wal_unit_release(&unit->unit);
    nd_free(unit);
}

static void records_back(struct nd_msg *msg, void *owner)
{
    struct nd_records_unit *unit = ND_CONTAINER_OF(msg, struct nd_records_unit, unit.msg);
    struct nd_shard *shard = owner;

    nd_shard_unit_back(shard);
    shard->records_staged = false;
    if (unit->unit.result == ND_OK) {
        shard->housekeeping_ns = shard->now_ns; /* the next unit, if one is needed */
    }
    records_done(unit, shard, unit->unit.result);
}

void nd_restate_records_stage(struct nd_shard *shard)
{
    struct nd_records_unit *unit = shard->records;

    if (unit == NULL) {
        return;
    }
    shard->records = NULL;
    if (unit->runs_count == 0) { /* what there was is bigger than a frame of this log */
        records_done(unit, shard, ND_ERR_TOO_LARGE);
        return;
    }
    unit->unit.msg.run = records_back;
    enum nd_err err = nd_shard_stage_unit(shard, &unit->unit);
    shard->records_staged = err == ND_OK;
    if (err != ND_OK) {
        records_done(unit, shard, err);
    }
}

/* Runs of the partition for the unit, counted, behind those it has. */
static uint32_t runs_take(struct nd_records_unit *unit, const struct nd_partition *partition,
                          uint64_t below)
{
    struct nd_tail_run *out = unit->runs + unit->runs_count;
    size_t left = RECORDS_BYTES - ND_MIN(unit->unit.bytes, (size_t)RECORDS_BYTES);
    uint32_t taken =
        nd_tail_take_below(&partition->tail, below, out, RUNS_MAX - unit->runs_count, left);

    if (taken == 0 && unit->runs_count == 0) { /* a big one goes alone */
        taken = nd_tail_take_below(&partition->tail, below, out, 1, SIZE_MAX);
    }
    return taken;
}

static void run_add(struct nd_records_unit *unit, const struct nd_partition_id *id,
                    const struct nd_tail_run *run)
{
    struct nd_record_view first = {.time_ms = 0};
    size_t size;

    nd_ignore(nd_record_get(run->records, &first, &size), "records in memory were checked");
    nd_wal_unit_add_restated(&unit->unit,
                             &(struct nd_wal_commit){.id = id,
                                                     .base_offset = run->base_offset,
                                                     .time_ms = first.time_ms,
                                                     .count = run->count,
                                                     .records = run->records,
                                                     .origin_member = run->origin_member,
                                                     .origin_writer = run->origin_writer,
                                                     .origin_sequence = run->origin_sequence});
    unit->bases[unit->runs_count++] = run->base_offset;
}

static struct nd_records_unit *unit_of(struct nd_shard *shard)
{
    if (shard->records == NULL) {
        shard->records = nd_xcalloc(1, sizeof *shard->records);
        nd_wal_unit_init(&shard->records->unit, ND_WAL_RESERVED);
    }
    return shard->records;
}

bool nd_restate_records_add(struct nd_partition *partition, uint64_t below)
{
    struct nd_shard *shard = partition->topic->shard;
    size_t frame_bytes = nd_wal_unit_bytes_max(shard->wal);
    size_t head_size = ENTRY_HEAD_SIZE + strlen(partition->id.topic);

    if (!partition->unflushable || partition->topic->ended || shard->records_staged ||
        nd_tail_oldest_sequence(&partition->tail) >= below) {
        return false;
    }
    struct nd_records_unit *unit = unit_of(shard);
    uint32_t first = unit->runs_count, taken = runs_take(unit, partition, below);
    bool fits = true;
    for (uint32_t i = 0; i < taken; i++) {
        const struct nd_tail_run *run = &unit->runs[first + i];
        fits = fits && unit->unit.bytes + head_size + run->records.size <= frame_bytes;
        if (fits) {
            run_add(unit, &partition->id, run);
        } else {
            nd_block_unref(run->block);
        }
    }
    uint32_t added = unit->runs_count - first;
    if (added == 0) {
        return false;
    }
    unit->spans[unit->spans_count++] = (struct records_span){partition, added};
    partition->records_restating = true;
    partition->topic->busy += 1;
    return true;
}
