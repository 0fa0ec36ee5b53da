/* One frame of the write-ahead log and the entries in it. The input is the frame; its size and
 * checksum are put right, so that what lies behind them is reached. */
#include "storage/base/crc32c.h"

#include "storage/wal_entry.h"
#include "storage/wal_frame.h"
#include "tests/fuzz/fuzz.h"

enum { PLACE = 3 * ND_WAL_BLOCK, AT_BODY_SIZE = 32, AT_CRC = 44 };

static void frame_mend(uint8_t *data, size_t size)
{
    uint8_t seed[16];
    size_t body_size = size - ND_WAL_FRAME_HEADER_SIZE;

    nd_put_u64(seed, nd_wal_frame_epoch(data));
    nd_put_u64(seed + 8, PLACE);
    nd_put_u32(data + AT_BODY_SIZE, (uint32_t)body_size);
    uint32_t crc = nd_crc32c(nd_crc32c(0, seed, sizeof seed), data, AT_CRC);
    nd_put_u32(data + AT_CRC, nd_crc32c(crc, data + ND_WAL_FRAME_HEADER_SIZE, body_size));
}

static void unit_add(struct nd_wal_unit *unit, const struct nd_wal_entry *e)
{
    switch (e->type) {
    case ND_WAL_COMMIT:
        nd_wal_unit_add_commit(unit, &(struct nd_wal_commit){&e->id, e->base_offset, e->time_ms,
                                                             e->count, e->records, e->origin_member,
                                                             e->origin_writer, e->origin_sequence});
        break;
    case ND_WAL_RESTATED:
        nd_wal_unit_add_restated(
            unit, &(struct nd_wal_commit){&e->id, e->base_offset, e->time_ms, e->count, e->records,
                                          e->origin_member, e->origin_writer, e->origin_sequence});
        break;
    case ND_WAL_ACCEPT:
        nd_wal_unit_add_accept(unit,
                               &(struct nd_wal_accept){&e->id, e->time_ms, e->count, e->records,
                                                       e->origin_writer, e->origin_sequence});
        break;
    case ND_WAL_ACK:
        nd_wal_unit_add_ack(unit, &(struct nd_wal_ack){&e->id, e->ranges, e->ranges_count});
        break;
    case ND_WAL_DISPATCHED:
        nd_wal_unit_add_dispatched(
            unit, &(struct nd_wal_dispatched){e->writer, e->ranges, e->ranges_count});
        break;
    case ND_WAL_CURSOR: nd_wal_unit_add_cursor(unit, &e->id, &e->cursor); break;
    case ND_WAL_POSITION: nd_wal_unit_add_position(unit, e->positions); break;
    case ND_WAL_CHECKPOINT:
        nd_wal_unit_add_checkpoint(
            unit, &(struct nd_wal_checkpoint){e->flushed, e->flushed_count, e->time_ms});
        break;
    }
}

/* The entry as the log would write it. */
static void entry_put(struct nd_buf *out, const struct nd_wal_entry *entry)
{
    struct nd_wal_unit unit;

    nd_wal_unit_init(&unit, ND_WAL_RESERVED);
    unit_add(&unit, entry);
    FUZZ_CHECK(unit.parts_count == 1 && !nd_buf_failed(&unit.heads));
    FUZZ_CHECK(unit.sequences == entry->sequence_last - entry->sequence + 1);
    nd_buf_put_slice(out, nd_buf_slice(&unit.heads));
    nd_buf_put_slice(out, unit.parts[0].body);
    FUZZ_CHECK(out->size == unit.bytes);
    nd_wal_unit_release(&unit);
}

/* What was decoded is written and read again: the same bytes. */
static void entry_round_trip(const struct nd_wal_entry *entry, size_t size)
{
    struct nd_wal_decoder decoder;
    struct nd_wal_entry again;
    struct nd_buf first, second;
    size_t size_again;

    nd_wal_decoder_init(&decoder);
    nd_buf_init(&first, SIZE_MAX);
    nd_buf_init(&second, SIZE_MAX);
    entry_put(&first, entry);
    FUZZ_CHECK(first.size == size);
    enum nd_err err =
        nd_wal_entry_get(&decoder, nd_buf_slice(&first), entry->sequence, &again, &size_again);
    FUZZ_CHECK(err == ND_OK && size_again == size);
    entry_put(&second, &again);
    FUZZ_CHECK(nd_slice_equal(nd_buf_slice(&first), nd_buf_slice(&second)));
    nd_buf_release(&first);
    nd_buf_release(&second);
    nd_wal_decoder_release(&decoder);
}

/* Acks settle in the positions that came before them; the result must still be an encoding. */
static void settle(struct nd_positions *positions, const struct nd_wal_entry *entry)
{
    if (entry->type == ND_WAL_POSITION) {
        nd_positions_copy(positions, entry->positions);
    } else if (entry->type == ND_WAL_ACK && positions->id.topic[0] != '\0') {
        for (uint32_t i = 0; i < entry->ranges_count; i++) {
            nd_positions_settle(positions, entry->ranges[i].first, entry->ranges[i].last);
        }
        struct nd_buf bytes;
        nd_buf_init(&bytes, SIZE_MAX);
        nd_positions_put(&bytes, positions);
        nd_buf_release(&bytes);
    }
}

/* What is seen of an entry without decoding it is what decoding it says. */
static void partition_peek(struct nd_slice body, const struct nd_wal_entry *entry)
{
    bool is_of_one = entry->type == ND_WAL_COMMIT || entry->type == ND_WAL_RESTATED ||
                     entry->type == ND_WAL_ACK || entry->type == ND_WAL_CURSOR ||
                     entry->type == ND_WAL_POSITION;
    struct nd_partition_id id;

    FUZZ_CHECK(nd_wal_entry_partition(body, &id) == is_of_one);
    FUZZ_CHECK(!is_of_one ||
               (id.incarnation == entry->id.incarnation && id.partition == entry->id.partition &&
                strcmp(id.topic, entry->id.topic) == 0));
}

static void entries_walk(struct nd_slice body, uint64_t sequence)
{
    struct nd_wal_decoder decoder;
    struct nd_positions positions;
    struct nd_wal_entry entry;
    size_t size, size_peeked;
    uint32_t sequences;

    nd_wal_decoder_init(&decoder);
    nd_positions_init(&positions);
    while (body.size > 0) {
        uint64_t replay_from = nd_wal_entry_peek(body, &size_peeked, &sequences);
        if (nd_wal_entry_get(&decoder, body, sequence, &entry, &size) != ND_OK ||
            entry.sequence_last < sequence) {
            break;
        }
        FUZZ_CHECK(size > 0 && size <= body.size && size == size_peeked);
        FUZZ_CHECK(entry.sequence_last == sequence + sequences - 1);
        FUZZ_CHECK(replay_from == (entry.type == ND_WAL_CHECKPOINT ? entry.replay_from : 0));
        partition_peek(body, &entry);
        entry_round_trip(&entry, size);
        settle(&positions, &entry);
        sequence = entry.sequence_last + 1;
        body = nd_slice_make(body.data + size, body.size - size);
    }
    nd_positions_release(&positions);
    nd_wal_decoder_release(&decoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_wal_frame frame;

    if (size < ND_WAL_FRAME_HEADER_SIZE) {
        return 0;
    }
    uint8_t *copy = fuzz_copy(data, size);
    frame_mend(copy, size);
    if (nd_wal_frame_get(copy, nd_wal_frame_epoch(copy), PLACE, &frame)) {
        FUZZ_CHECK(frame.body_size == size - ND_WAL_FRAME_HEADER_SIZE);
        FUZZ_CHECK(nd_wal_frame_check(copy, &frame));
        entries_walk(nd_slice_make(copy + ND_WAL_FRAME_HEADER_SIZE, frame.body_size),
                     frame.first_sequence);
    }
    nd_free(copy);
    return 0;
}
