/* storage/wal_entry, wal_frame: bytes out and in, and hostile bytes in (W2, I-36). */
#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

#include "storage/wal_entry.h"
#include "storage/wal_frame.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static const struct nd_partition_id orders = {
    .incarnation = 0x1122334455667788, .partition = 3, .topic = "orders"};
enum { FIRST = 1000 };

struct fixture {
    struct nd_wal_unit unit;
    uint8_t records[256];
    size_t records_size;
    struct nd_positions positions;
};

/* One of each. */
static void fixture_fill(struct fixture *f)
{
    static const struct nd_offset_range ranges[] = {{1, 4}, {6, 6}};
    static struct nd_offset_range ahead[] = {{22, 23}};
    static const struct nd_wal_flushed flushed[] = {
        {.id = {.incarnation = 5, .partition = 6, .topic = "events"}, .offset = 70},
        {.id = {.incarnation = 8, .partition = 9, .topic = "x"}, .offset = 71}};

    f->records_size = nd_record_put(f->records, nd_slice_str("key"), NULL, 0, nd_slice_str("one"));
    f->records_size += nd_record_put(f->records + f->records_size, (struct nd_slice){0}, NULL, 0,
                                     nd_slice_str("two"));
    nd_positions_init(&f->positions);
    f->positions.id = orders;
    f->positions.frontier = 20;
    f->positions.ahead = ahead;
    f->positions.ahead_count = 1;
    nd_wal_unit_init(&f->unit, ND_WAL_PRODUCE);
    struct nd_slice records = nd_slice_make(f->records, f->records_size);
    nd_wal_unit_add_commit(
        &f->unit,
        &(struct nd_wal_commit){
            .id = &orders, .base_offset = 40, .time_ms = 41, .count = 2, .records = records});
    nd_wal_unit_add_commit(&f->unit, &(struct nd_wal_commit){.id = &orders,
                                                             .base_offset = 42,
                                                             .time_ms = 43,
                                                             .count = 2,
                                                             .records = records,
                                                             .origin_member = 44,
                                                             .origin_writer = 45,
                                                             .origin_sequence = 46});
    nd_wal_unit_add_accept(
        &f->unit,
        &(struct nd_wal_accept){.id = &orders, .time_ms = 47, .count = 2, .records = records});
    nd_wal_unit_add_ack(&f->unit,
                        &(struct nd_wal_ack){.id = &orders, .ranges = ranges, .ranges_count = 2});
    nd_wal_unit_add_dispatched(
        &f->unit, &(struct nd_wal_dispatched){.writer = 48, .ranges = ranges, .ranges_count = 2});
    nd_wal_unit_add_cursor(&f->unit, &orders, &(struct nd_cursor){49, 50, 51, 52});
    nd_wal_unit_add_position(&f->unit, &f->positions);
    nd_wal_unit_add_checkpoint(
        &f->unit,
        &(struct nd_wal_checkpoint){.flushed = flushed, .flushed_count = 2, .commit_clock_ms = 53});
    nd_wal_unit_add_restated(&f->unit, &(struct nd_wal_commit){.id = &orders,
                                                               .base_offset = 54,
                                                               .time_ms = 55,
                                                               .count = 2,
                                                               .records = records,
                                                               .origin_member = 56,
                                                               .origin_writer = 57,
                                                               .origin_sequence = 58});
    f->unit.sequence = FIRST;
    nd_wal_unit_stamp(&f->unit,
                      &(struct nd_wal_stamp){.member = 9, .writer = 10, .needed_from = 500});
}

static void unit_bytes(const struct nd_wal_unit *unit, struct nd_buf *out)
{
    for (uint32_t i = 0; i < unit->parts_count; i++) {
        const struct nd_wal_part *part = &unit->parts[i];
        nd_buf_put(out, unit->heads.data + part->head_at, part->head_size);
        nd_buf_put_slice(out, part->body);
    }
}

/* What is told without decoding all of it; an entry that is cut anywhere is none. */
static void expect_same_partition(struct nd_slice in, const struct nd_wal_entry *entry)
{
    bool is_of_one = entry->type != ND_WAL_DISPATCHED && entry->type != ND_WAL_CHECKPOINT &&
                     entry->type != ND_WAL_ACCEPT;
    struct nd_partition_id id;

    assert_int_equal(nd_wal_entry_partition(in, &id), is_of_one);
    if (is_of_one) {
        assert_string_equal(id.topic, entry->id.topic);
        assert_int_equal(id.incarnation, entry->id.incarnation);
        assert_int_equal(id.partition, entry->id.partition);
    }
    for (size_t cut = 0; cut < nd_get_u32(in.data); cut++) {
        assert_false(nd_wal_entry_partition(nd_slice_make(in.data, cut), &id));
    }
}

static void wal_entry__every_type_comes_back_as_it_was(void **state)
{
    struct fixture f;
    struct nd_wal_decoder decoder;
    struct nd_wal_entry e[9];
    struct nd_buf bytes;
    uint64_t sequence = FIRST;
    size_t at = 0, size;

    (void)state;
    nd_buf_init(&bytes, 1 << 20);
    nd_wal_decoder_init(&decoder);
    fixture_fill(&f);
    unit_bytes(&f.unit, &bytes);
    assert_int_equal(bytes.size, f.unit.bytes);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(nd_wal_entry_get(&decoder, nd_slice_make(bytes.data + at, bytes.size - at),
                                          sequence, &e[i], &size),
                         ND_OK);
        assert_int_equal(e[i].sequence, sequence);
        expect_same_partition(nd_slice_make(bytes.data + at, bytes.size - at), &e[i]);
        sequence = e[i].sequence_last + 1;
        at += size;
        if (i == 3 || i == 4) {
            assert_int_equal(e[i].ranges_count, 2);
            assert_int_equal(e[i].ranges[0].last, 4);
            assert_int_equal(e[i].ranges[1].first, 6);
        }
        if (e[i].type != ND_WAL_DISPATCHED && e[i].type != ND_WAL_CHECKPOINT) {
            assert_string_equal(e[i].id.topic, "orders");
            assert_int_equal(e[i].id.incarnation, orders.incarnation);
            assert_int_equal(e[i].id.partition, 3);
        }
    }
    assert_int_equal(at, bytes.size);
    assert_int_equal(sequence, FIRST + f.unit.sequences);
    assert_int_equal(e[0].base_offset, 40);
    assert_int_equal(e[0].origin_member, 9);
    assert_int_equal(e[0].origin_writer, 10);
    assert_int_equal(e[0].origin_sequence, FIRST);
    assert_int_equal(e[1].origin_member, 44);
    assert_int_equal(e[1].origin_sequence, 46);
    assert_int_equal(e[1].records.size, f.records_size);
    assert_int_equal(e[2].origin_writer, 10);
    assert_int_equal(e[2].origin_sequence, FIRST + 4);
    assert_int_equal(e[2].time_ms, 47);
    assert_int_equal(e[4].writer, 48);
    assert_int_equal(e[5].cursor.next_offset, 52);
    assert_int_equal(e[6].positions->applied_sequence, e[6].sequence - 1);
    assert_int_equal(e[6].positions->ahead[0].last, 23);
    assert_int_equal(e[7].replay_from, 500);
    assert_int_equal(e[7].time_ms, 53);
    assert_int_equal(e[7].flushed_count, 2);
    assert_int_equal(e[7].flushed[1].offset, 71);
    assert_string_equal(e[7].flushed[0].id.topic, "events");
    assert_int_equal(e[8].sequence, e[8].sequence_last); /* it has no origins of its own */
    assert_int_equal(e[8].base_offset, 54);
    assert_int_equal(e[8].origin_member, 56);
    assert_int_equal(e[8].origin_sequence, 58);
    assert_int_equal(e[8].count, 2);
    nd_wal_decoder_release(&decoder);
    nd_wal_unit_release(&f.unit);
    nd_buf_release(&bytes);
}

/* Decode all of a body that lies in memory of just its size. */
static void body_decode(struct nd_wal_decoder *decoder, const uint8_t *data, size_t size)
{
    uint64_t sequence = FIRST;
    uint8_t *exact = nd_xmalloc(size + 1);
    struct nd_slice left = nd_slice_make(exact, size);

    memcpy(exact, data, size);
    while (left.size > 0) {
        struct nd_wal_entry entry;
        size_t used;
        if (nd_wal_entry_get(decoder, left, sequence, &entry, &used) != ND_OK) {
            break;
        }
        assert_in_range(used, 1, left.size);
        sequence = entry.sequence_last + 1;
        left = nd_slice_make(left.data + used, left.size - used);
    }
    nd_free(exact);
}

static void wal_entry__hostile_bytes_stay_inside_their_memory(void **state)
{
    struct nd_wal_decoder decoder;
    struct nd_buf bytes;
    struct fixture f;
    uint64_t seed = 6;

    (void)state;
    nd_buf_init(&bytes, 1 << 20);
    nd_wal_decoder_init(&decoder);
    fixture_fill(&f);
    unit_bytes(&f.unit, &bytes);
    for (size_t size = 0; size < bytes.size; size++) {
        body_decode(&decoder, bytes.data, size);
    }
    for (int round = 0; round < 20000; round++) {
        nd_buf_reset(&bytes);
        unit_bytes(&f.unit, &bytes);
        for (uint64_t n = 1 + nd_rand_below(&seed, 4); n > 0; n--) {
            static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
            uint64_t at = nd_rand_below(&seed, bytes.size);
            bytes.data[at] =
                nd_rand_below(&seed, 2) ? values[nd_rand_below(&seed, 5)] : (uint8_t)nd_rand(&seed);
        }
        body_decode(&decoder, bytes.data, bytes.size);
    }
    nd_wal_decoder_release(&decoder);
    nd_wal_unit_release(&f.unit);
    nd_buf_release(&bytes);
}

/* W2: neither of another file, nor of another place, nor with a bit changed. */
static void wal_w2__a_frame_is_valid_only_in_its_file_at_its_place(void **state)
{
    uint8_t data[ND_WAL_BLOCK];
    struct nd_wal_frame_writer writer;
    struct nd_wal_frame frame = {.epoch = 77,
                                 .at = 8192,
                                 .first_sequence = 5,
                                 .synced_to = 4096,
                                 .body_size = 100,
                                 .sequences = 1};
    struct nd_wal_frame got;
    uint8_t body[100];

    (void)state;
    memset(body, 'b', sizeof body);
    nd_wal_frame_begin(&writer, data, &frame);
    nd_wal_frame_add(&writer, nd_slice_make(body, 60));
    nd_wal_frame_add(&writer, nd_slice_make(body + 60, 40));
    assert_int_equal(nd_wal_frame_end(&writer), ND_WAL_BLOCK);

    assert_true(nd_wal_frame_get(data, 77, 8192, &got) && nd_wal_frame_check(data, &got));
    assert_int_equal(got.first_sequence, 5);
    assert_int_equal(got.synced_to, 4096);
    assert_false(nd_wal_frame_get(data, 78, 8192, &got));
    assert_true(nd_wal_frame_get(data, 77, 12288, &got));
    assert_false(nd_wal_frame_check(data, &got));
    for (size_t at = 0; at < ND_WAL_FRAME_HEADER_SIZE + sizeof body; at++) {
        for (int bit = 0; bit < 8; bit++) {
            data[at] ^= (uint8_t)(1 << bit);
            bool valid = nd_wal_frame_get(data, 77, 8192, &got) &&
                         nd_wal_frame_bytes(got.body_size) <= sizeof data &&
                         nd_wal_frame_check(data, &got);
            assert_false(valid);
            data[at] ^= (uint8_t)(1 << bit);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wal_entry__every_type_comes_back_as_it_was),
        cmocka_unit_test(wal_entry__hostile_bytes_stay_inside_their_memory),
        cmocka_unit_test(wal_w2__a_frame_is_valid_only_in_its_file_at_its_place),
    };
    return cmocka_run_group_tests_name("wal_entry", tests, NULL, NULL);
}
