#include "tests/unit/storage/fake_wal.h"

#include "storage/wal_entry.h"

void nd_wal_stager_add(struct nd_wal *wal, struct nd_wal_stager *stager)
{
    wal->stager = stager;
    stager->generation = wal->generation;
}

void nd_wal_stager_remove(struct nd_wal *wal, struct nd_wal_stager *stager)
{
    ND_ASSERT(wal->stager == stager && wal->staged == NULL);
    wal->stager = NULL;
}

void nd_wal_stager_needs(struct nd_wal *wal, struct nd_wal_stager *stager, uint64_t sequence)
{
    (void)wal;
    stager->needed_from = sequence;
}

void nd_wal_stager_adopt(struct nd_wal *wal, struct nd_wal_stager *stager)
{
    stager->generation = wal->generation;
    wal->adoptions += 1;
}

enum nd_err nd_wal_stage(struct nd_wal *wal, struct nd_wal_stager *stager, struct nd_wal_unit *unit)
{
    struct nd_wal_stamp stamp = {.member = 1, .writer = 1, .needed_from = UINT64_MAX};
    struct nd_wal_decoder decoder;
    struct nd_wal_entry entry;
    size_t size;

    if (wal->refuse != ND_OK) {
        return wal->refuse;
    }
    if (stager->generation != wal->generation) {
        return ND_ERR_UNAVAILABLE;
    }
    ND_ASSERT(wal->staged == NULL);
    unit->sequence = ++wal->sequence_next;
    nd_wal_unit_stamp(unit, &stamp);
    nd_wal_decoder_init(&decoder);
    enum nd_err err =
        nd_wal_entry_get(&decoder, nd_buf_slice(&unit->heads), unit->sequence, &entry, &size);
    ND_ASSERT(err == ND_OK && entry.type == ND_WAL_CHECKPOINT);
    ND_ASSERT(entry.flushed_count <= ND_ARRAY_SIZE(wal->flushed));
    wal->flushed_count = entry.flushed_count;
    if (entry.flushed_count > 0) {
        memcpy(wal->flushed, entry.flushed, entry.flushed_count * sizeof wal->flushed[0]);
    }
    wal->commit_clock_ms = entry.time_ms;
    wal->class = unit->class;
    wal->checkpoints += 1;
    nd_wal_decoder_release(&decoder);
    wal->staged = unit;
    return ND_OK;
}

bool nd_wal_trimmable(struct nd_wal *wal)
{
    return wal->trimmable;
}

void nd_wal_trim(struct nd_wal *wal)
{
    wal->trims += 1;
    wal->trimmable = false;
}

void nd_wal_check_space(struct nd_wal *wal)
{
    wal->space_checks += 1;
}

bool fake_wal_finish(struct nd_wal *wal, enum nd_err result)
{
    struct nd_wal_unit *unit = wal->staged;

    if (unit == NULL) {
        return false;
    }
    wal->staged = NULL;
    unit->result = result;
    nd_inbox_push(wal->stager->inbox, &unit->msg);
    if (result != ND_OK) {
        wal->generation += 1;
        nd_inbox_push(wal->stager->inbox, &wal->stager->failed);
    }
    return true;
}
