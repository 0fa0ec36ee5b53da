#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/map.h"

#include "storage/layout.h"
#include "storage/recovery_private.h"

enum {
    KEY_SIZE = 12,
    RUN_OVERHEAD = 64, /* bookkeeping of a run, as a tail counts it */
    RUNS_FIRST = 8,
    PATH_SIZE = 1024,
};

void nd_recovery_init(struct nd_recovery *recovery, const struct nd_recovery_options *options)
{
    memset(recovery, 0, sizeof *recovery);
    recovery->options = *options;
    recovery->by_id = nd_map_new(nd_env_random_u64(options->env));
    recovery->dispatched = nd_map_new(nd_env_random_u64(options->env));
    recovery->relieve_above = options->tail_bytes_max;
    nd_list_init(&recovery->partitions);
    nd_list_init(&recovery->accepts);
}

/* --- partitions --- */

static struct nd_slice key_put(uint8_t key[KEY_SIZE], const struct nd_partition_id *id)
{
    nd_put_u64(key, id->incarnation);
    nd_put_u32(key + 8, id->partition);
    return nd_slice_make(key, KEY_SIZE);
}

struct nd_recovered_partition *nd_recovery_find(const struct nd_recovery *recovery,
                                                const struct nd_partition_id *id)
{
    uint8_t key[KEY_SIZE];

    return nd_map_get(recovery->by_id, key_put(key, id));
}

static void partition_remove(struct nd_recovery *recovery, struct nd_recovered_partition *partition)
{
    uint8_t key[KEY_SIZE];

    (void)nd_map_remove(recovery->by_id, key_put(key, &partition->positions.id));
    nd_list_remove(&partition->link);
    recovery->tail_bytes -= partition->runs_bytes;
}

struct nd_recovered_partition *nd_recovery_add(struct nd_recovery *recovery,
                                               const struct nd_partition_id *id)
{
    struct nd_recovered_partition *partition = nd_xcalloc(1, sizeof *partition);
    uint8_t key[KEY_SIZE];

    nd_positions_init(&partition->positions);
    partition->positions.id = *id;
    partition->position_from = partition->relieved_from = UINT64_MAX;
    (void)nd_map_put(recovery->by_id, key_put(key, id), partition);
    nd_list_append(&recovery->partitions, &partition->link);
    return partition;
}

enum nd_err nd_recovery_read_state(const struct nd_recovery *recovery,
                                   struct nd_recovered_partition *partition, struct nd_errmsg *msg)
{
    const struct nd_partition_id id = partition->positions.id;
    char dir[PATH_SIZE];

    nd_layout_partition_dir(dir, sizeof dir, recovery->options.data_dir, &id);
    enum nd_err err = nd_state_load(recovery->options.env, dir, recovery->options.store_id,
                                    &partition->positions, msg);
    if (err == ND_OK) {
        partition->grounded = partition->started = true;
        partition->checkpointed = partition->positions.flushed_offset;
    } else if (err == ND_ERR_NOT_FOUND) {
        partition->positions.id = id;
        err = ND_OK;
    } else {
        nd_positions_release(&partition->positions); /* they may be another's */
        nd_positions_init(&partition->positions);
        partition->positions.id = id;
        nd_errmsg_wrap(msg, "recover partition %s/%u", id.topic, id.partition);
    }
    partition->state_read = err == ND_OK;
    return err;
}

/* The partition of an entry, made from its `state` file when it is met for the first time. */
static enum nd_err partition_get(struct nd_recovery *recovery, const struct nd_partition_id *id,
                                 struct nd_recovered_partition **out, struct nd_errmsg *msg)
{
    *out = nd_recovery_find(recovery, id);
    if (*out == NULL) {
        *out = nd_recovery_add(recovery, id);
    }
    (*out)->replayed = true;
    return (*out)->state_read ? ND_OK : nd_recovery_read_state(recovery, *out, msg);
}

/* The entry is newer than the positions: they do not cover it. */
static void applied(struct nd_recovered_partition *partition, const struct nd_wal_entry *entry)
{
    if (partition->position_from == UINT64_MAX) {
        partition->position_from = entry->sequence;
    }
    partition->positions.applied_sequence = entry->sequence_last;
}

/* --- runs --- */

/* Records below it are in segments, or were let go. Until its positions are known only what was
 * said counts: where its first COMMIT in the log begins tells nothing about what is restated. */
static uint64_t data_from(const struct nd_recovered_partition *partition)
{
    const struct nd_positions *positions = &partition->positions;

    return partition->grounded ? ND_MAX(positions->flushed_offset, positions->log_start)
                               : partition->checkpointed;
}

static uint64_t run_end(const struct nd_tail_run *run)
{
    return run->base_offset + run->count;
}

static void run_put(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                    uint32_t at, const struct nd_tail_run *run)
{
    if (partition->runs_count == partition->runs_capacity) {
        uint32_t capacity = ND_MAX(partition->runs_capacity * 2, (uint32_t)RUNS_FIRST);
        partition->runs = nd_xrealloc(partition->runs, capacity * sizeof *partition->runs);
        partition->runs_capacity = capacity;
    }
    memmove(partition->runs + at + 1, partition->runs + at,
            (partition->runs_count - at) * sizeof *partition->runs);
    partition->runs[at] = *run;
    partition->runs_count += 1;
    partition->runs_bytes += run->records.size + RUN_OVERHEAD;
    recovery->tail_bytes += run->records.size + RUN_OVERHEAD;
    recovery->tail_bytes_peak = ND_MAX(recovery->tail_bytes_peak, recovery->tail_bytes);
}

/* Let the runs [from, to) go. */
static void runs_drop(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                      uint32_t from, uint32_t to)
{
    if (from == to) {
        return;
    }
    for (uint32_t i = from; i < to; i++) {
        partition->runs_bytes -= partition->runs[i].records.size + RUN_OVERHEAD;
        recovery->tail_bytes -= partition->runs[i].records.size + RUN_OVERHEAD;
        nd_block_unref(partition->runs[i].block);
    }
    memmove(partition->runs + from, partition->runs + to,
            (partition->runs_count - to) * sizeof *partition->runs);
    partition->runs_count -= to - from;
}

static void runs_drop_below(struct nd_recovery *recovery, struct nd_recovered_partition *partition)
{
    uint64_t below = data_from(partition);
    uint32_t gone = 0;

    while (gone < partition->runs_count && run_end(&partition->runs[gone]) <= below) {
        gone += 1;
    }
    runs_drop(recovery, partition, 0, gone);
}

static void flushed_raise(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                          uint64_t offset)
{
    partition->checkpointed = ND_MAX(partition->checkpointed, offset);
    partition->positions.flushed_offset = ND_MAX(partition->positions.flushed_offset, offset);
    runs_drop_below(recovery, partition);
}

/* An entry says so. */
static void flushed_stated(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                           uint64_t offset)
{
    if (offset >= partition->relieved_to) {
        partition->relieved_from = UINT64_MAX;
    }
    flushed_raise(recovery, partition, offset);
}

void nd_recovery_set_flushed(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                             uint64_t offset)
{
    for (uint32_t i = 0; i < partition->runs_count && partition->runs[i].base_offset < offset;
         i++) {
        partition->relieved_from = ND_MIN(partition->relieved_from, partition->runs[i].sequence);
    }
    partition->relieved_to = ND_MAX(partition->relieved_to, offset);
    flushed_raise(recovery, partition, offset);
}

/* Put a run at its place. One that was restated ends where an older one ends that holds the same
 * records (the front of either may be cut off by what was flushed when it was read), and takes its
 * place if it holds all of it. Otherwise the older one stays, and with it what the log must keep.
 * False: it cuts another one, which no run does. */
static bool run_insert(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                       const struct nd_tail_run *run)
{
    uint32_t at = partition->runs_count;

    while (at > 0 && partition->runs[at - 1].base_offset >= run_end(run)) {
        at -= 1;
    }
    const struct nd_tail_run *older = at > 0 ? &partition->runs[at - 1] : NULL;
    if (older == NULL || run_end(older) <= run->base_offset) {
        run_put(recovery, partition, at, run);
        return true;
    }
    if (run_end(older) != run_end(run)) {
        return false;
    }
    if (older->base_offset < run->base_offset) {
        nd_block_unref(run->block);
        return true;
    }
    if (at > 1 && run_end(&partition->runs[at - 2]) > run->base_offset) {
        return false;
    }
    runs_drop(recovery, partition, at - 1, at);
    run_put(recovery, partition, at - 1, run);
    return true;
}

/* Copy the part of a COMMIT or RESTATED that no segment holds. */
static enum nd_err data_keep(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                             const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    uint64_t below = data_from(partition);

    if (recovery->options.positions_only || entry->base_offset + entry->count <= below) {
        return ND_OK;
    }
    struct nd_block *block = nd_block_new(entry->records.size);
    if (block == NULL) {
        nd_errmsg_set(msg, "recover partition %s/%u: out of memory", entry->id.topic,
                      entry->id.partition);
        return ND_ERR_NO_MEMORY;
    }
    memcpy(block->bytes, entry->records.data, entry->records.size);
    struct nd_tail_run run = {.block = block,
                              .records = nd_slice_make(block->bytes, entry->records.size),
                              .base_offset = entry->base_offset,
                              .sequence = entry->sequence,
                              .staged_ns =
                                  recovery->options.env->mono_ns(recovery->options.env->impl),
                              .count = entry->count,
                              .origin_member = entry->origin_member,
                              .origin_writer = entry->origin_writer,
                              .origin_sequence = entry->origin_sequence};
    if (entry->base_offset < below) {
        uint32_t skipped = (uint32_t)(below - entry->base_offset);
        size_t at = nd_run_seek(run.records, skipped);
        run.records = nd_slice_make(run.records.data + at, run.records.size - at);
        run.base_offset = below;
        run.count -= skipped;
        run.origin_sequence += skipped;
    }
    if (!run_insert(recovery, partition, &run)) {
        nd_block_unref(run.block);
        nd_errmsg_set(msg, "partition %s/%u: sequence %llu cuts records at offset %llu",
                      entry->id.topic, entry->id.partition, (unsigned long long)entry->sequence,
                      (unsigned long long)run.base_offset);
        return ND_ERR_CORRUPT;
    }
    return ND_OK;
}

static enum nd_err relieve(struct nd_recovery *recovery, struct nd_errmsg *msg)
{
    const struct nd_recovery_options *options = &recovery->options;

    if (options->relieve == NULL || options->tail_bytes_max == 0 ||
        recovery->tail_bytes <= recovery->relieve_above) {
        return ND_OK;
    }
    enum nd_err err = options->relieve(options->relieve_arg, recovery, msg);
    /* What could not be flushed is not tried again for every record that follows. */
    recovery->relieve_above =
        ND_MAX(options->tail_bytes_max, recovery->tail_bytes + options->tail_bytes_max / 8);
    return err;
}

/* --- entries of a partition --- */

/* W9: one row per (partition, member); a commit of another writer replaces it. */
static void token_note(struct nd_positions *positions, const struct nd_wal_entry *entry)
{
    struct nd_token token = {entry->origin_member, entry->origin_writer,
                             entry->origin_sequence + entry->count - 1};

    for (uint32_t i = 0; i < positions->tokens_count; i++) {
        struct nd_token *row = &positions->tokens[i];
        if (row->member == token.member) {
            if (row->writer == token.writer) {
                token.sequence = ND_MAX(token.sequence, row->sequence);
            }
            *row = token;
            return;
        }
    }
    positions->tokens =
        nd_xrealloc(positions->tokens, (positions->tokens_count + 1) * sizeof *positions->tokens);
    positions->tokens[positions->tokens_count++] = token;
}

static enum nd_err commit_apply(struct nd_recovery *recovery,
                                struct nd_recovered_partition *partition,
                                const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    struct nd_positions *positions = &partition->positions;
    bool is_new = entry->sequence_last > positions->applied_sequence;

    if (is_new && !partition->started) {
        /* Its first entry, or one of an incarnation whose positions went with its directory. */
        partition->grounded = entry->base_offset == 0;
        positions->frontier = positions->next_offset = entry->base_offset;
        positions->flushed_offset = positions->log_start = entry->base_offset;
    }
    partition->started = true;
    if (is_new) {
        if (entry->base_offset < positions->next_offset) {
            nd_errmsg_set(msg, "partition %s/%u: sequence %llu commits offset %llu again",
                          entry->id.topic, entry->id.partition, (unsigned long long)entry->sequence,
                          (unsigned long long)entry->base_offset);
            return ND_ERR_CORRUPT;
        }
        partition->gap_records += entry->base_offset - positions->next_offset;
        positions->next_offset = entry->base_offset + entry->count;
        positions->last_commit_ms = ND_MAX(positions->last_commit_ms, entry->time_ms);
        token_note(positions, entry);
        applied(partition, entry);
    }
    enum nd_err err = data_keep(recovery, partition, entry, msg);
    return err != ND_OK ? err : relieve(recovery, msg);
}

/* Data and no more: what its COMMIT said beside it is in positions that are newer than that. */
static enum nd_err restated_apply(struct nd_recovery *recovery,
                                  struct nd_recovered_partition *partition,
                                  const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    enum nd_err err = data_keep(recovery, partition, entry, msg);

    return err != ND_OK ? err : relieve(recovery, msg);
}

static void ack_apply(struct nd_recovered_partition *partition, const struct nd_wal_entry *entry)
{
    struct nd_positions *positions = &partition->positions;

    for (uint32_t i = 0; i < entry->ranges_count; i++) {
        uint64_t first = entry->ranges[i].first, last = entry->ranges[i].last;
        if (last >= positions->next_offset) {
            partition->acks_dropped += last - ND_MAX(first, positions->next_offset) + 1;
            if (first >= positions->next_offset) {
                continue;
            }
            last = positions->next_offset - 1;
        }
        nd_positions_settle(positions, first, last);
    }
    applied(partition, entry);
}

static void cursor_apply(struct nd_recovered_partition *partition, const struct nd_wal_entry *entry)
{
    struct nd_positions *positions = &partition->positions;
    uint32_t i = 0;

    while (i < positions->cursors_count &&
           positions->cursors[i].child_incarnation != entry->cursor.child_incarnation) {
        i += 1;
    }
    if (i == positions->cursors_count) {
        positions->cursors = nd_xrealloc(positions->cursors, (i + 1) * sizeof *positions->cursors);
        positions->cursors_count += 1;
    }
    positions->cursors[i] = entry->cursor;
    applied(partition, entry);
}

/* A POSITION states everything before it. */
static void position_apply(struct nd_recovery *recovery, struct nd_recovered_partition *partition,
                           const struct nd_wal_entry *entry)
{
    partition->gap_records = partition->acks_dropped = 0; /* against what it stood on before */
    nd_positions_copy(&partition->positions, entry->positions);
    partition->positions.applied_sequence = entry->sequence_last;
    partition->position_from = entry->sequence;
    partition->grounded = partition->started = true;
    flushed_stated(recovery, partition, entry->positions->flushed_offset);
    flushed_raise(recovery, partition, partition->checkpointed);
}

static enum nd_err partition_replay(struct nd_recovery *recovery, const struct nd_wal_entry *entry,
                                    struct nd_errmsg *msg)
{
    struct nd_recovered_partition *partition;
    enum nd_err err = partition_get(recovery, &entry->id, &partition, msg);

    if (err != ND_OK) {
        return err;
    }
    if (entry->type == ND_WAL_COMMIT) {
        return commit_apply(recovery, partition, entry, msg);
    }
    if (entry->type == ND_WAL_RESTATED) {
        return restated_apply(recovery, partition, entry, msg);
    }
    if (entry->sequence_last <= partition->positions.applied_sequence) {
        return ND_OK; /* the positions cover it */
    }
    switch (entry->type) {
    case ND_WAL_ACK: ack_apply(partition, entry); break;
    case ND_WAL_CURSOR: cursor_apply(partition, entry); break;
    case ND_WAL_POSITION: position_apply(recovery, partition, entry); break;
    case ND_WAL_COMMIT:
    case ND_WAL_RESTATED:
    case ND_WAL_ACCEPT:
    case ND_WAL_DISPATCHED:
    case ND_WAL_CHECKPOINT: break;
    }
    return ND_OK;
}

/* --- accepts --- */

/* Sequences of one writer that need no more work. */
struct dispatched {
    struct nd_positions settled; /* of sequences, not of offsets */
};

static struct dispatched *dispatched_get(struct nd_recovery *recovery, uint64_t writer)
{
    struct dispatched *of = nd_map_get_u64(recovery->dispatched, writer);

    if (of == NULL) {
        of = nd_xcalloc(1, sizeof *of);
        nd_positions_init(&of->settled);
        (void)nd_map_put_u64(recovery->dispatched, writer, of);
    }
    return of;
}

static enum nd_err accept_keep(struct nd_recovery *recovery, const struct nd_wal_entry *entry,
                               struct nd_errmsg *msg)
{
    struct nd_block *block = nd_block_new(entry->records.size);

    if (block == NULL) {
        nd_errmsg_set(msg, "recover an accepted record: out of memory");
        return ND_ERR_NO_MEMORY;
    }
    struct nd_recovered_accept *accept = nd_xcalloc(1, sizeof *accept);
    memcpy(block->bytes, entry->records.data, entry->records.size);
    accept->id = entry->id;
    accept->block = block;
    accept->records = nd_slice_make(block->bytes, entry->records.size);
    accept->writer = entry->origin_writer;
    accept->sequence = entry->origin_sequence;
    accept->entry_sequence = entry->sequence;
    accept->time_ms = entry->time_ms;
    accept->count = entry->count;
    nd_list_append(&recovery->accepts, &accept->link);
    return ND_OK;
}

/* Put the records [from, to) of `accept` in front of `out` as an accept of their own. */
static void accept_put(struct nd_list *out, const struct nd_recovered_accept *accept, uint32_t from,
                       uint32_t to)
{
    struct nd_recovered_accept *part = nd_xmalloc(sizeof *part);
    size_t begin = nd_run_seek(accept->records, from);
    size_t end = to == accept->count ? accept->records.size : nd_run_seek(accept->records, to);

    *part = *accept;
    nd_list_init(&part->link);
    part->block = nd_block_ref(accept->block);
    part->records = nd_slice_make(accept->records.data + begin, end - begin);
    part->sequence += from;
    part->count = to - from;
    nd_list_prepend(out, &part->link);
}

static bool is_settled(const struct nd_positions *settled, uint64_t sequence)
{
    uint32_t low = 0, high = settled->ahead_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (settled->ahead[middle].last < sequence) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return sequence < settled->frontier ||
           (low < settled->ahead_count && settled->ahead[low].first <= sequence);
}

/* Newest first: a copy with the same origin stands for the older ones. */
static void accepts_settle(struct nd_recovery *recovery)
{
    struct nd_list kept = ND_LIST_INIT(kept);

    while (!nd_list_empty(&recovery->accepts)) {
        struct nd_recovered_accept *accept =
            ND_CONTAINER_OF(recovery->accepts.prev, struct nd_recovered_accept, link);
        struct nd_positions *settled = &dispatched_get(recovery, accept->writer)->settled;
        nd_list_remove(&accept->link);
        uint32_t to = accept->count;
        while (to > 0) { /* from the back, as the parts are put in front */
            if (is_settled(settled, accept->sequence + to - 1)) {
                to -= 1;
                continue;
            }
            uint32_t from = to - 1;
            while (from > 0 && !is_settled(settled, accept->sequence + from - 1)) {
                from -= 1;
            }
            accept_put(&kept, accept, from, to);
            to = from;
        }
        nd_positions_settle(settled, accept->sequence, accept->sequence + accept->count - 1);
        nd_recovered_accept_free(accept);
    }
    nd_list_move(&recovery->accepts, &kept);
}

/* --- replay --- */

static void checkpoint_replay(struct nd_recovery *recovery, const struct nd_wal_entry *entry)
{
    for (uint32_t i = 0; i < entry->flushed_count; i++) {
        const struct nd_wal_flushed *flushed = &entry->flushed[i];
        struct nd_recovered_partition *partition = nd_recovery_find(recovery, &flushed->id);
        if (partition != NULL) { /* else nothing of it needs replaying */
            flushed_stated(recovery, partition, flushed->offset);
        }
    }
}

enum nd_err nd_recovery_replay(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    struct nd_recovery *recovery = arg;

    recovery->entries += 1;
    recovery->commit_clock_ms = ND_MAX(recovery->commit_clock_ms, entry->time_ms);
    switch (entry->type) {
    case ND_WAL_COMMIT:
    case ND_WAL_RESTATED:
    case ND_WAL_ACK:
    case ND_WAL_CURSOR:
    case ND_WAL_POSITION: return partition_replay(recovery, entry, msg);
    case ND_WAL_ACCEPT: return accept_keep(recovery, entry, msg);
    case ND_WAL_DISPATCHED: {
        struct dispatched *of = dispatched_get(recovery, entry->writer);
        for (uint32_t i = 0; i < entry->ranges_count; i++) {
            nd_positions_settle(&of->settled, entry->ranges[i].first, entry->ranges[i].last);
        }
        return ND_OK;
    }
    case ND_WAL_CHECKPOINT: checkpoint_replay(recovery, entry); return ND_OK;
    }
    return ND_ERR_CORRUPT;
}

/* --- the end --- */

static bool segment_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    bool *seen = arg;
    size_t size = strlen(name);

    *seen = kind == ND_FILE_REGULAR && size > 4 && strcmp(name + size - 4, ".log") == 0;
    return !*seen;
}

static enum nd_err has_segments(const struct nd_recovery *recovery,
                                const struct nd_partition_id *id, bool *out, struct nd_errmsg *msg)
{
    const struct nd_env *env = recovery->options.env;
    char dir[PATH_SIZE];

    *out = false;
    nd_layout_partition_dir(dir, sizeof dir, recovery->options.data_dir, id);
    enum nd_err err = env->list(env->impl, dir, segment_seen, out, msg);
    return err == ND_ERR_NOT_FOUND ? ND_OK : err;
}

/* Drops what needs no opening and what must not be opened. */
static enum nd_err partition_finish(struct nd_recovery *recovery,
                                    struct nd_recovered_partition *partition, struct nd_errmsg *msg)
{
    struct nd_positions *positions = &partition->positions;
    bool refused = false;

    if (partition->replayed && !partition->grounded) {
        enum nd_err err = has_segments(recovery, &positions->id, &refused, msg);
        if (err != ND_OK) {
            return err;
        }
    }
    if (refused) {
        nd_log(recovery->options.log, ND_LOG_ERROR, "recovery", "partition without positions",
               "topic=%s incarnation=%016llx partition=%u", positions->id.topic,
               (unsigned long long)positions->id.incarnation, positions->id.partition);
        recovery->refused += 1;
    }
    partition->grounded = true; /* as far as it ever will be */
    runs_drop_below(recovery, partition);
    uint64_t entries_from = ND_MIN(partition->position_from, partition->relieved_from);
    bool is_covered = partition->runs_count == 0 && entries_from == UINT64_MAX;
    bool is_remnant = !partition->started; /* acks of an incarnation that was deleted */
    if (!partition->replayed || refused || is_covered || is_remnant) {
        partition_remove(recovery, partition);
        nd_recovered_partition_free(partition);
        return ND_OK;
    }
    positions->next_offset = ND_MAX(positions->next_offset, positions->flushed_offset);
    positions->next_offset = ND_MAX(positions->next_offset, positions->frontier);
    partition->needed_from = entries_from;
    for (uint32_t i = 0; i < partition->runs_count; i++) {
        partition->needed_from = ND_MIN(partition->needed_from, partition->runs[i].sequence);
    }
    if (partition->gap_records > 0 || partition->acks_dropped > 0) {
        nd_log(recovery->options.log, ND_LOG_WARN, "recovery", "partition has a gap",
               "topic=%s partition=%u records=%llu acks_dropped=%llu", positions->id.topic,
               positions->id.partition, (unsigned long long)partition->gap_records,
               (unsigned long long)partition->acks_dropped);
    }
    return ND_OK;
}

enum nd_err nd_recovery_finish(struct nd_recovery *recovery, struct nd_errmsg *msg)
{
    accepts_settle(recovery);
    ND_LIST_FOREACH (&recovery->partitions, link) {
        struct nd_recovered_partition *partition =
            ND_CONTAINER_OF(link, struct nd_recovered_partition, link);
        enum nd_err err = partition_finish(recovery, partition, msg);
        if (err != ND_OK) {
            return err;
        }
    }
    return ND_OK;
}

struct nd_recovered_partition *nd_recovery_pop(struct nd_recovery *recovery)
{
    struct nd_list *link = nd_list_first(&recovery->partitions);

    if (link == NULL) {
        return NULL;
    }
    struct nd_recovered_partition *partition =
        ND_CONTAINER_OF(link, struct nd_recovered_partition, link);
    partition_remove(recovery, partition);
    return partition;
}

void nd_recovered_partition_free(struct nd_recovered_partition *partition)
{
    for (uint32_t i = 0; i < partition->runs_count; i++) {
        nd_block_unref(partition->runs[i].block);
    }
    nd_free(partition->runs);
    nd_positions_release(&partition->positions);
    nd_free(partition);
}

void nd_recovered_accept_free(struct nd_recovered_accept *accept)
{
    nd_block_unref(accept->block);
    nd_free(accept);
}

void nd_recovery_release(struct nd_recovery *recovery)
{
    struct nd_recovered_partition *partition;
    struct nd_slice key;
    void *value;
    size_t at = 0;

    while ((partition = nd_recovery_pop(recovery)) != NULL) {
        nd_recovered_partition_free(partition);
    }
    for (struct nd_list *link; (link = nd_list_pop(&recovery->accepts)) != NULL;) {
        nd_recovered_accept_free(ND_CONTAINER_OF(link, struct nd_recovered_accept, link));
    }
    while (nd_map_next(recovery->dispatched, &at, &key, &value)) {
        struct dispatched *of = value;
        nd_positions_release(&of->settled);
        nd_free(of);
    }
    nd_map_free(recovery->dispatched);
    nd_map_free(recovery->by_id);
}
