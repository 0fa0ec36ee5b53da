#include "storage/wal_entry.h"

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

/* Where the parts of an entry lie; drawn in storage/README.md. */
enum {
    AT_SIZE = 0,
    AT_TYPE = 4,
    AT_VERSION = 5,
    AT_TOPIC_SIZE = 6,
    AT_SEQUENCES = 8,
    AT_RESERVED = 12,
    AT_INCARNATION = 16,
    AT_PARTITION = 24,
    AT_COUNT = 28, /* records or ranges */
    COMMIT_AT_MEMBER = 48,
    COMMIT_AT_TOPIC = 72,
    ACK_AT_TOPIC = 32,
    CURSOR_AT_TOPIC = 64,
    POSITION_AT_POSITIONS = 16,
    ACCEPT_AT_WRITER = 40,
    CHECKPOINT_AT_REPLAY_FROM = 16,
    RANGE_SIZE = 16,
    FLUSHED_SIZE = 24, /* and the topic */
    HEADS_SIZE_MAX = 64 << 20,
    PARTS_INLINE = 4,
};

/* --- building --- */

void nd_wal_unit_init(struct nd_wal_unit *unit, enum nd_wal_class class)
{
    memset(unit, 0, sizeof *unit);
    nd_list_init(&unit->msg.link);
    unit->class = class;
    nd_buf_init(&unit->heads, HEADS_SIZE_MAX);
    unit->parts = unit->parts_inline;
    unit->parts_capacity = PARTS_INLINE;
}

void nd_wal_unit_reset(struct nd_wal_unit *unit)
{
    nd_buf_reset(&unit->heads);
    unit->parts_count = 0;
    unit->sequences = 0;
    unit->bytes = 0;
    unit->result = ND_OK;
    unit->sequence = unit->sequence_last = 0;
    unit->checkpoint = 0;
}

void nd_wal_unit_release(struct nd_wal_unit *unit)
{
    nd_buf_release(&unit->heads);
    if (unit->parts != unit->parts_inline) {
        nd_free(unit->parts);
    }
    unit->parts = unit->parts_inline;
    unit->parts_count = 0;
    unit->parts_capacity = PARTS_INLINE;
}

static struct nd_wal_part *part_new(struct nd_wal_unit *unit)
{
    if (unit->parts_count == unit->parts_capacity) {
        struct nd_wal_part *from = unit->parts;
        uint32_t capacity = unit->parts_capacity * 2;
        struct nd_wal_part *parts =
            nd_xrealloc(from == unit->parts_inline ? NULL : from, capacity * sizeof *parts);
        if (from == unit->parts_inline) {
            memcpy(parts, from, unit->parts_count * sizeof *parts);
        }
        unit->parts = parts;
        unit->parts_capacity = capacity;
    }
    return &unit->parts[unit->parts_count++];
}

/* Begin an entry: the common head, its size still 0. */
static struct nd_wal_part *entry_begin(struct nd_wal_unit *unit, enum nd_wal_entry_type type,
                                       size_t topic_size, uint32_t sequences)
{
    struct nd_wal_part *part = part_new(unit);

    *part =
        (struct nd_wal_part){.head_at = (uint32_t)unit->heads.size, .own_sequence_at = UINT32_MAX};
    nd_buf_put_u32(&unit->heads, 0);
    nd_buf_put_u8(&unit->heads, (uint8_t)type);
    nd_buf_put_u8(&unit->heads, ND_WAL_ENTRY_VERSION);
    nd_buf_put_u16(&unit->heads, (uint16_t)topic_size);
    nd_buf_put_u32(&unit->heads, sequences);
    nd_buf_put_u32(&unit->heads, 0);
    unit->sequences += sequences;
    return part;
}

static struct nd_wal_part *entry_begin_of(struct nd_wal_unit *unit, enum nd_wal_entry_type type,
                                          const struct nd_partition_id *id, uint32_t count)
{
    bool has_records = type == ND_WAL_COMMIT || type == ND_WAL_ACCEPT;
    struct nd_slice topic = nd_slice_str(id->topic);

    ND_ASSERT(nd_topic_name_is_sane(topic));
    struct nd_wal_part *part = entry_begin(unit, type, topic.size, has_records ? count : 1);
    nd_buf_put_u64(&unit->heads, id->incarnation);
    nd_buf_put_u32(&unit->heads, id->partition);
    nd_buf_put_u32(&unit->heads, count);
    return part;
}

/* The last part is complete: write its size. */
static void entry_end(struct nd_wal_unit *unit, struct nd_wal_part *part)
{
    part->head_size = (uint32_t)(unit->heads.size - part->head_at);
    size_t size = part->head_size + part->body.size;
    if (!nd_buf_failed(&unit->heads)) {
        ND_ASSERT(size <= UINT32_MAX);
        nd_put_u32(unit->heads.data + part->head_at + AT_SIZE, (uint32_t)size);
    }
    unit->bytes += size;
}

static void ranges_put(struct nd_buf *out, const struct nd_offset_range *ranges, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ND_ASSERT(ranges[i].first <= ranges[i].last && ranges[i].last < UINT64_MAX);
        nd_buf_put_u64(out, ranges[i].first);
        nd_buf_put_u64(out, ranges[i].last);
    }
}

static void records_add(struct nd_wal_unit *unit, enum nd_wal_entry_type type,
                        const struct nd_wal_commit *commit)
{
    ND_ASSERT(commit->count > 0 && commit->records.size > 0);
    ND_ASSERT(commit->base_offset < UINT64_MAX - commit->count);
    struct nd_wal_part *part = entry_begin_of(unit, type, commit->id, commit->count);
    nd_buf_put_u64(&unit->heads, commit->base_offset);
    nd_buf_put_u64(&unit->heads, (uint64_t)commit->time_ms);
    if (commit->origin_member == 0) {
        part->own_sequence_at = (uint32_t)unit->heads.size;
    }
    nd_buf_put_u64(&unit->heads, commit->origin_member);
    nd_buf_put_u64(&unit->heads, commit->origin_writer);
    nd_buf_put_u64(&unit->heads, commit->origin_sequence);
    nd_buf_put_text(&unit->heads, commit->id->topic);
    part->body = commit->records;
    entry_end(unit, part);
}

void nd_wal_unit_add_commit(struct nd_wal_unit *unit, const struct nd_wal_commit *commit)
{
    records_add(unit, ND_WAL_COMMIT, commit);
}

void nd_wal_unit_add_restated(struct nd_wal_unit *unit, const struct nd_wal_commit *commit)
{
    ND_ASSERT(commit->origin_member != 0); /* this entry's own sequence is not their origin */
    records_add(unit, ND_WAL_RESTATED, commit);
}

void nd_wal_unit_add_accept(struct nd_wal_unit *unit, const struct nd_wal_accept *accept)
{
    ND_ASSERT(accept->count > 0 && accept->records.size > 0);
    struct nd_wal_part *part = entry_begin_of(unit, ND_WAL_ACCEPT, accept->id, accept->count);
    nd_buf_put_u64(&unit->heads, (uint64_t)accept->time_ms);
    if (accept->sequence == 0) {
        part->own_sequence_at = (uint32_t)unit->heads.size;
    }
    nd_buf_put_u64(&unit->heads, accept->writer);
    nd_buf_put_u64(&unit->heads, accept->sequence);
    nd_buf_put_text(&unit->heads, accept->id->topic);
    part->body = accept->records;
    entry_end(unit, part);
}

void nd_wal_unit_add_ack(struct nd_wal_unit *unit, const struct nd_wal_ack *ack)
{
    struct nd_wal_part *part = entry_begin_of(unit, ND_WAL_ACK, ack->id, ack->ranges_count);

    nd_buf_put_text(&unit->heads, ack->id->topic);
    ranges_put(&unit->heads, ack->ranges, ack->ranges_count);
    entry_end(unit, part);
}

void nd_wal_unit_add_dispatched(struct nd_wal_unit *unit,
                                const struct nd_wal_dispatched *dispatched)
{
    struct nd_wal_part *part = entry_begin(unit, ND_WAL_DISPATCHED, 0, 1);

    nd_buf_put_u64(&unit->heads, dispatched->writer);
    nd_buf_put_u32(&unit->heads, 0);
    nd_buf_put_u32(&unit->heads, dispatched->ranges_count);
    ranges_put(&unit->heads, dispatched->ranges, dispatched->ranges_count);
    entry_end(unit, part);
}

void nd_wal_unit_add_position(struct nd_wal_unit *unit, const struct nd_positions *positions)
{
    struct nd_wal_part *part = entry_begin(unit, ND_WAL_POSITION, 0, 1);

    part->own_sequence_at = (uint32_t)unit->heads.size + ND_POSITIONS_AT_APPLIED;
    nd_positions_put(&unit->heads, positions);
    entry_end(unit, part);
}

void nd_wal_unit_add_checkpoint(struct nd_wal_unit *unit,
                                const struct nd_wal_checkpoint *checkpoint)
{
    struct nd_wal_part *part = entry_begin(unit, ND_WAL_CHECKPOINT, 0, 1);
    struct nd_buf *out = &unit->heads;

    part->own_sequence_at = (uint32_t)out->size;
    unit->checkpoint = UINT64_MAX; /* there is one; its replay_from is known at staging */
    nd_buf_put_u64(out, 0);
    nd_buf_put_u64(out, (uint64_t)checkpoint->commit_clock_ms);
    nd_buf_put_u32(out, checkpoint->flushed_count);
    nd_buf_put_u32(out, 0);
    for (uint32_t i = 0; i < checkpoint->flushed_count; i++) {
        const struct nd_wal_flushed *flushed = &checkpoint->flushed[i];
        struct nd_slice topic = nd_slice_str(flushed->id.topic);
        ND_ASSERT(nd_topic_name_is_sane(topic));
        nd_buf_put_u64(out, flushed->id.incarnation);
        nd_buf_put_u64(out, flushed->offset);
        nd_buf_put_u32(out, flushed->id.partition);
        nd_buf_put_u32(out, (uint32_t)topic.size);
        nd_buf_put_slice(out, topic);
    }
    entry_end(unit, part);
}

void nd_wal_unit_add_cursor(struct nd_wal_unit *unit, const struct nd_partition_id *parent,
                            const struct nd_cursor *cursor)
{
    struct nd_wal_part *part = entry_begin_of(unit, ND_WAL_CURSOR, parent, 0);

    nd_buf_put_u64(&unit->heads, cursor->child_incarnation);
    nd_buf_put_u64(&unit->heads, cursor->epoch);
    nd_buf_put_u64(&unit->heads, cursor->fork);
    nd_buf_put_u64(&unit->heads, cursor->next_offset);
    nd_buf_put_text(&unit->heads, parent->topic);
    entry_end(unit, part);
}

void nd_wal_unit_stamp(struct nd_wal_unit *unit, const struct nd_wal_stamp *stamp)
{
    uint64_t sequence = unit->sequence;

    unit->checkpoint = 0;
    for (uint32_t i = 0; i < unit->parts_count; i++) {
        const struct nd_wal_part *part = &unit->parts[i];
        uint8_t *head = unit->heads.data + part->head_at;
        if (part->own_sequence_at != UINT32_MAX) {
            uint8_t *own = unit->heads.data + part->own_sequence_at;
            switch ((enum nd_wal_entry_type)head[AT_TYPE]) {
            case ND_WAL_COMMIT:
                nd_put_u64(own, stamp->member);
                nd_put_u64(own + 8, stamp->writer);
                nd_put_u64(own + 16, sequence);
                break;
            case ND_WAL_ACCEPT:
                nd_put_u64(own, stamp->writer);
                nd_put_u64(own + 8, sequence);
                break;
            case ND_WAL_POSITION: nd_put_u64(own, sequence - 1); break;
            case ND_WAL_CHECKPOINT: /* its commit clock must stay, so never beyond itself */
                unit->checkpoint = ND_MIN(stamp->needed_from, sequence);
                nd_put_u64(own, unit->checkpoint);
                break;
            case ND_WAL_ACK:
            case ND_WAL_DISPATCHED:
            case ND_WAL_CURSOR:
            case ND_WAL_RESTATED: break;
            }
        }
        sequence += nd_get_u32(head + AT_SEQUENCES);
    }
}

/* --- decoding --- */

void nd_wal_decoder_init(struct nd_wal_decoder *decoder)
{
    memset(decoder, 0, sizeof *decoder);
}

void nd_wal_decoder_release(struct nd_wal_decoder *decoder)
{
    nd_free(decoder->ranges);
    nd_free(decoder->flushed);
    nd_positions_release(&decoder->positions);
    nd_wal_decoder_init(decoder);
}

/* Room for `count` items of `size`; the caller checked that the input holds so many. */
static bool room_for(void **items, uint32_t *capacity, uint32_t count, size_t size)
{
    if (count > *capacity) {
        void *grown = nd_malloc(count * size);
        if (grown == NULL) {
            return false;
        }
        nd_free(*items);
        *items = grown;
        *capacity = count;
    }
    return true;
}

static enum nd_err topic_get(struct nd_reader *in, size_t size, struct nd_partition_id *id)
{
    struct nd_slice topic = nd_read_slice(in, size);

    if (in->failed || !nd_topic_name_is_sane(topic)) {
        return ND_ERR_CORRUPT;
    }
    memcpy(id->topic, topic.data, topic.size);
    id->topic[topic.size] = '\0';
    return ND_OK;
}

static enum nd_err ranges_get(struct nd_wal_decoder *decoder, struct nd_reader *in, uint32_t count,
                              struct nd_wal_entry *out)
{
    void *items = decoder->ranges;

    if (nd_reader_left(in) != (uint64_t)count * RANGE_SIZE) {
        return ND_ERR_CORRUPT;
    }
    bool room = room_for(&items, &decoder->ranges_capacity, count, sizeof *decoder->ranges);
    decoder->ranges = items;
    if (!room) {
        return ND_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct nd_offset_range *range = &decoder->ranges[i];
        range->first = nd_read_u64(in);
        range->last = nd_read_u64(in);
        if (range->first > range->last || range->last == UINT64_MAX) {
            return ND_ERR_CORRUPT;
        }
    }
    out->ranges = decoder->ranges;
    out->ranges_count = count;
    return ND_OK;
}

static enum nd_err records_get(struct nd_reader *in, uint32_t topic_size, struct nd_wal_entry *out)
{
    enum nd_err err = topic_get(in, topic_size, &out->id);

    if (err != ND_OK) {
        return err;
    }
    out->records = nd_read_slice(in, nd_reader_left(in));
    uint64_t sequences = out->sequence_last - out->sequence + 1;
    bool is_restated = out->type == ND_WAL_RESTATED;
    if (out->count == 0 || (!is_restated && sequences != out->count) ||
        (is_restated && out->origin_member == 0) || out->base_offset >= UINT64_MAX - out->count ||
        out->origin_sequence >= UINT64_MAX - out->count) {
        return ND_ERR_CORRUPT;
    }
    return nd_run_check(out->records, out->count);
}

static enum nd_err checkpoint_get(struct nd_wal_decoder *decoder, struct nd_reader *in,
                                  struct nd_wal_entry *out)
{
    void *items = decoder->flushed;

    out->replay_from = nd_read_u64(in);
    out->time_ms = (int64_t)nd_read_u64(in);
    uint32_t count = nd_read_u32(in);
    nd_read_u32(in);
    if (in->failed || count > nd_reader_left(in) / FLUSHED_SIZE) {
        return ND_ERR_CORRUPT;
    }
    bool room = room_for(&items, &decoder->flushed_capacity, count, sizeof *decoder->flushed);
    decoder->flushed = items;
    if (!room) {
        return ND_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct nd_wal_flushed *flushed = &decoder->flushed[i];
        flushed->id.incarnation = nd_read_u64(in);
        flushed->offset = nd_read_u64(in);
        flushed->id.partition = nd_read_u32(in);
        uint32_t topic_size = nd_read_u32(in);
        enum nd_err err = topic_get(in, topic_size, &flushed->id);
        if (err != ND_OK) {
            return err;
        }
    }
    out->flushed = decoder->flushed;
    out->flushed_count = count;
    return ND_OK;
}

static enum nd_err body_get(struct nd_wal_decoder *decoder, struct nd_reader *in,
                            uint32_t topic_size, struct nd_wal_entry *out)
{
    enum nd_err err;

    switch (out->type) {
    case ND_WAL_DISPATCHED:
        out->writer = nd_read_u64(in);
        nd_read_u32(in);
        return ranges_get(decoder, in, nd_read_u32(in), out);
    case ND_WAL_POSITION:
        err = nd_positions_get(nd_read_slice(in, nd_reader_left(in)), &decoder->positions);
        out->positions = &decoder->positions;
        out->id = decoder->positions.id;
        return err;
    case ND_WAL_CHECKPOINT: return checkpoint_get(decoder, in, out);
    case ND_WAL_COMMIT:
    case ND_WAL_RESTATED:
    case ND_WAL_ACCEPT:
    case ND_WAL_ACK:
    case ND_WAL_CURSOR: break;
    }
    out->id.incarnation = nd_read_u64(in);
    out->id.partition = nd_read_u32(in);
    uint32_t count = nd_read_u32(in);
    if (out->type == ND_WAL_ACK) {
        err = topic_get(in, topic_size, &out->id);
        return err != ND_OK ? err : ranges_get(decoder, in, count, out);
    }
    if (out->type == ND_WAL_CURSOR) {
        out->cursor.child_incarnation = nd_read_u64(in);
        out->cursor.epoch = nd_read_u64(in);
        out->cursor.fork = nd_read_u64(in);
        out->cursor.next_offset = nd_read_u64(in);
        return topic_get(in, topic_size, &out->id);
    }
    out->count = count;
    if (out->type != ND_WAL_ACCEPT) {
        out->base_offset = nd_read_u64(in);
    }
    out->time_ms = (int64_t)nd_read_u64(in);
    if (out->type != ND_WAL_ACCEPT) {
        out->origin_member = nd_read_u64(in);
    }
    out->origin_writer = nd_read_u64(in);
    out->origin_sequence = nd_read_u64(in);
    return records_get(in, topic_size, out);
}

/* The common head; false when there is none or the entry would pass the end of `in`. */
static bool head_get(struct nd_slice in, size_t *size_out, uint32_t *sequences_out)
{
    if (in.size < ND_WAL_ENTRY_HEAD_SIZE) {
        return false;
    }
    uint32_t size = nd_get_u32(in.data + AT_SIZE);
    uint32_t sequences = nd_get_u32(in.data + AT_SEQUENCES);
    uint8_t type = in.data[AT_TYPE];
    if (size < ND_WAL_ENTRY_HEAD_SIZE || size > in.size || type < ND_WAL_COMMIT ||
        type > ND_WAL_RESTATED || in.data[AT_VERSION] != ND_WAL_ENTRY_VERSION || sequences == 0 ||
        nd_get_u32(in.data + AT_RESERVED) != 0) {
        return false;
    }
    *size_out = size;
    *sequences_out = sequences;
    return true;
}

enum nd_err nd_wal_entry_get(struct nd_wal_decoder *decoder, struct nd_slice in, uint64_t sequence,
                             struct nd_wal_entry *out, size_t *size_out)
{
    size_t size;
    uint32_t sequences;

    if (!head_get(in, &size, &sequences)) {
        return ND_ERR_CORRUPT;
    }
    struct nd_reader reader = nd_reader_make(nd_slice_make(in.data, size));
    nd_read_slice(&reader, ND_WAL_ENTRY_HEAD_SIZE);
    memset(out, 0, sizeof *out);
    out->type = (enum nd_wal_entry_type)in.data[AT_TYPE];
    out->sequence = sequence;
    out->sequence_last = sequence + sequences - 1;
    enum nd_err err = body_get(decoder, &reader, nd_get_u16(in.data + AT_TOPIC_SIZE), out);
    if (err != ND_OK) {
        return err;
    }
    if (reader.failed || nd_reader_left(&reader) != 0 ||
        (sequences != 1 && out->type != ND_WAL_COMMIT && out->type != ND_WAL_ACCEPT)) {
        return ND_ERR_CORRUPT;
    }
    *size_out = size;
    return ND_OK;
}

uint64_t nd_wal_entry_peek(struct nd_slice in, size_t *size_out, uint32_t *sequences_out)
{
    *size_out = 0;
    *sequences_out = 0;
    if (!head_get(in, size_out, sequences_out) || in.data[AT_TYPE] != ND_WAL_CHECKPOINT ||
        *size_out < CHECKPOINT_AT_REPLAY_FROM + 8) {
        return 0;
    }
    return nd_get_u64(in.data + CHECKPOINT_AT_REPLAY_FROM);
}

bool nd_wal_entry_partition(struct nd_slice in, struct nd_partition_id *out)
{
    size_t size, at = 0;
    uint32_t sequences;

    if (!head_get(in, &size, &sequences)) {
        return false;
    }
    in.size = size;
    switch ((enum nd_wal_entry_type)in.data[AT_TYPE]) {
    case ND_WAL_COMMIT:
    case ND_WAL_RESTATED: at = COMMIT_AT_TOPIC; break;
    case ND_WAL_ACK: at = ACK_AT_TOPIC; break;
    case ND_WAL_CURSOR: at = CURSOR_AT_TOPIC; break;
    case ND_WAL_POSITION:
        return nd_positions_id(
            nd_slice_make(in.data + POSITION_AT_POSITIONS, in.size - POSITION_AT_POSITIONS), out);
    case ND_WAL_ACCEPT:
    case ND_WAL_DISPATCHED:
    case ND_WAL_CHECKPOINT: return false;
    }
    if (in.size < at) {
        return false;
    }
    struct nd_reader reader = nd_reader_make(nd_slice_make(in.data + at, in.size - at));
    out->incarnation = nd_get_u64(in.data + AT_INCARNATION);
    out->partition = nd_get_u32(in.data + AT_PARTITION);
    return topic_get(&reader, nd_get_u16(in.data + AT_TOPIC_SIZE), out) == ND_OK;
}
