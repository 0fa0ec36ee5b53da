/* storage/recovery: what a log says about its partitions (W8, W9). */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/layout.h"
#include "storage/recovery.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

static const struct nd_partition_id orders = {.incarnation = 7, .partition = 3, .topic = "orders"};
static const struct nd_partition_id events = {.incarnation = 8, .partition = 0, .topic = "events"};
enum { MEMBER = 9, PAYLOAD = 20 };

struct fixture {
    struct sim_env *sim;
    const struct nd_env *env;
    struct nd_layout layout;
    struct nd_wal_options options;
    struct nd_wal *wal;
    struct nd_inbox inbox;
    struct nd_wal_stager stager;
    struct nd_recovery recovery;
    struct nd_recovery_options recovery_options;
    struct nd_errmsg msg;
    uint64_t first; /* sequence of this open */
};

/* Each case runs without and with: what is recovered is the same. */
static bool with_preview;

static void no_failure(struct nd_msg *msg, void *owner)
{
    (void)msg;
    (void)owner;
    fail_msg("the log failed");
}

static void returned(struct nd_msg *msg, void *owner)
{
    (void)owner;
    assert_int_equal(ND_CONTAINER_OF(msg, struct nd_wal_unit, msg)->result, ND_OK);
}

static void fixture_open(struct fixture *f)
{
    nd_recovery_init(&f->recovery, &f->recovery_options);
    assert_int_equal(nd_wal_open(&f->wal, &f->options, nd_recovery_replay, &f->recovery, &f->msg),
                     ND_OK);
    assert_int_equal(nd_recovery_finish(&f->recovery, &f->msg), ND_OK);
    f->stager.inbox = &f->inbox;
    f->stager.failed.run = no_failure;
    nd_wal_stager_add(f->wal, &f->stager);
    struct nd_wal_stats stats;
    nd_wal_stats(f->wal, &stats);
    f->first = stats.sequence_next;
}

static void fixture_close(struct fixture *f)
{
    nd_wal_stager_remove(f->wal, &f->stager);
    nd_wal_close(f->wal);
    nd_recovery_release(&f->recovery);
}

static void fixture_reopen(struct fixture *f)
{
    fixture_close(f);
    fixture_open(f);
}

static int setup(void **state)
{
    struct fixture *f = nd_xcalloc(1, sizeof *f);

    f->sim = sim_env_new(1);
    f->env = sim_env_get(f->sim);
    nd_inbox_init(&f->inbox);
    assert_int_equal(nd_layout_open(&f->layout, f->env, "data", &f->msg), ND_OK);
    f->options = (struct nd_wal_options){.env = f->env,
                                         .dir = f->layout.wal_dir,
                                         .member = MEMBER,
                                         .file_bytes = 256 << 10,
                                         .frame_bytes_max = 64 << 10,
                                         .staged_bytes_max = 1 << 20,
                                         .keep_bytes = 512 << 10,
                                         .spares = 2,
                                         .preview = with_preview ? nd_recovery_preview : NULL};
    memcpy(f->options.store_id, f->layout.store_id, 16);
    f->recovery_options = (struct nd_recovery_options){.env = f->env, .data_dir = "data"};
    memcpy(f->recovery_options.store_id, f->layout.store_id, 16);
    fixture_open(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    fixture_close(f);
    nd_layout_close(&f->layout);
    nd_inbox_release(&f->inbox);
    sim_env_free(f->sim);
    nd_free(f);
    return 0;
}

static void unit_write(struct fixture *f, struct nd_wal_unit *unit)
{
    unit->msg.run = returned;
    assert_int_equal(nd_wal_stage(f->wal, &f->stager, unit), ND_OK);
    assert_true(nd_wal_step(f->wal));
    assert_int_equal(nd_inbox_run(&f->inbox, NULL), 1);
    nd_wal_unit_release(unit);
}

/* Records of which the payload begins with their offset. */
static size_t run_put(uint8_t *out, uint64_t base, uint32_t count)
{
    size_t size = 0;

    for (uint32_t i = 0; i < count; i++) {
        char payload[PAYLOAD + 1];
        snprintf(payload, sizeof payload, "%020llu", (unsigned long long)(base + i));
        size += nd_record_put(out + size, (struct nd_slice){0}, NULL, 0,
                              nd_slice_make(payload, PAYLOAD));
    }
    return size;
}

static void commit_from(struct fixture *f, const struct nd_partition_id *id, uint64_t base,
                        uint32_t count, const struct nd_token *origin)
{
    uint8_t records[4096];
    struct nd_wal_unit unit;
    size_t size = run_put(records, base, count);

    nd_wal_unit_init(&unit, ND_WAL_PRODUCE);
    nd_wal_unit_add_commit(
        &unit, &(struct nd_wal_commit){.id = id,
                                       .base_offset = base,
                                       .time_ms = 1000 + (int64_t)base,
                                       .count = count,
                                       .records = nd_slice_make(records, size),
                                       .origin_member = origin != NULL ? origin->member : 0,
                                       .origin_writer = origin != NULL ? origin->writer : 0,
                                       .origin_sequence = origin != NULL ? origin->sequence : 0});
    unit_write(f, &unit);
}

static void commit(struct fixture *f, const struct nd_partition_id *id, uint64_t base,
                   uint32_t count)
{
    commit_from(f, id, base, count, NULL);
}

static void ack(struct fixture *f, const struct nd_partition_id *id, uint64_t first, uint64_t last)
{
    struct nd_offset_range range = {first, last};
    struct nd_wal_unit unit;

    nd_wal_unit_init(&unit, ND_WAL_RESERVED);
    nd_wal_unit_add_ack(&unit, &(struct nd_wal_ack){.id = id, .ranges = &range, .ranges_count = 1});
    unit_write(f, &unit);
}

static void checkpoint(struct fixture *f, const struct nd_partition_id *id, uint64_t flushed)
{
    struct nd_wal_flushed item = {.offset = flushed};
    struct nd_wal_unit unit;

    item.id = id != NULL ? *id : (struct nd_partition_id){0};
    nd_wal_unit_init(&unit, ND_WAL_RESERVED);
    nd_wal_unit_add_checkpoint(&unit, &(struct nd_wal_checkpoint){.flushed = &item,
                                                                  .flushed_count = id != NULL,
                                                                  .commit_clock_ms = 5000});
    unit_write(f, &unit);
}

static void position(struct fixture *f, const struct nd_positions *positions)
{
    struct nd_wal_unit unit;

    nd_wal_unit_init(&unit, ND_WAL_RESERVED);
    nd_wal_unit_add_position(&unit, positions);
    unit_write(f, &unit);
}

static void state_store(struct fixture *f, const struct nd_positions *positions)
{
    char dir[1024];

    nd_layout_partition_dir(dir, sizeof dir, "data", &positions->id);
    assert_int_equal(nd_env_mkdirs(f->env, dir, &f->msg), ND_OK);
    struct nd_state_item item = {.partition_dir = dir, .positions = positions};
    nd_state_store(f->env, f->layout.store_id, &item, 1, &f->msg);
    assert_int_equal(item.result, ND_OK);
}

static void segment_make(struct fixture *f, const struct nd_partition_id *id)
{
    char dir[1024], path[1100];
    int file;

    nd_layout_partition_dir(dir, sizeof dir, "data", id);
    assert_int_equal(nd_env_mkdirs(f->env, dir, &f->msg), ND_OK);
    snprintf(path, sizeof path, "%s/00000000000000000000.log", dir);
    assert_int_equal(
        f->env->open(f->env->impl, path, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, &f->msg), ND_OK);
    f->env->close(f->env->impl, file);
}

static void assert_run(const struct nd_tail_run *run, uint64_t base, uint32_t count)
{
    uint8_t records[4096];
    size_t size = run_put(records, base, count);

    assert_int_equal(run->base_offset, base);
    assert_int_equal(run->count, count);
    assert_int_equal(run->records.size, size);
    /* All but the commit time, which the caller of a produce sets. */
    assert_memory_equal(run->records.data, records, size);
}

static void recovery_w8__a_new_partition_comes_back_whole(void **state)
{
    struct fixture *f = *state;

    commit(f, &orders, 0, 3);
    commit(f, &orders, 3, 2);
    ack(f, &orders, 0, 1);
    ack(f, &orders, 4, 4);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_non_null(p);
    assert_int_equal(p->positions.next_offset, 5);
    assert_int_equal(p->positions.frontier, 2);
    assert_int_equal(p->positions.ahead_count, 1);
    assert_int_equal(p->positions.ahead[0].first, 4);
    assert_int_equal(p->positions.last_commit_ms, 1003);
    assert_int_equal(p->runs_count, 2);
    assert_run(&p->runs[0], 0, 3);
    assert_run(&p->runs[1], 3, 2);
    assert_int_equal(p->needed_from, p->runs[0].sequence);
    assert_int_equal(p->gap_records, 0);
    assert_int_equal(f->recovery.commit_clock_ms, 1003);
    nd_recovered_partition_free(p);
    assert_null(nd_recovery_pop(&f->recovery));
}

static void recovery_w8__flushed_commits_count_but_are_not_data(void **state)
{
    struct fixture *f = *state;

    commit(f, &orders, 0, 3);
    commit(f, &orders, 3, 3);
    checkpoint(f, &orders, 3);
    commit(f, &orders, 6, 1);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->positions.flushed_offset, 3);
    assert_int_equal(p->positions.next_offset, 7);
    assert_int_equal(p->runs_count, 2);
    assert_run(&p->runs[0], 3, 3);
    /* No durable positions yet: its first entry is needed (W7). */
    assert_int_equal(p->needed_from, p->runs[0].sequence - 3);
    assert_int_equal(f->recovery.commit_clock_ms, 5000);
    nd_recovered_partition_free(p);
}

static void recovery_w8__a_run_flushed_in_part_loses_that_part(void **state)
{
    struct fixture *f = *state;
    struct nd_positions positions;

    nd_positions_init(&positions);
    positions.id = orders;
    positions.flushed_offset = 2;
    state_store(f, &positions);
    commit(f, &orders, 0, 5);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->runs_count, 1);
    assert_run(&p->runs[0], 2, 3);
    nd_recovered_partition_free(p);
}

static void recovery_w8__the_newer_of_state_and_position_counts(void **state)
{
    struct fixture *f = *state;
    struct nd_positions positions;

    for (int newer_state = 0; newer_state < 2; newer_state++) {
        struct nd_partition_id id = orders;
        id.partition = (uint32_t)newer_state;
        nd_positions_init(&positions);
        positions.id = id;
        positions.frontier = positions.next_offset = 10;
        positions.flushed_offset = 10;
        positions.log_start = 4;
        position(f, &positions);
        positions.frontier = positions.next_offset = newer_state ? 20 : 6;
        positions.flushed_offset = positions.next_offset;
        positions.applied_sequence = newer_state ? f->first + 1000 : 5;
        state_store(f, &positions);
    }
    commit(f, &(struct nd_partition_id){.incarnation = 7, .partition = 0, .topic = "orders"}, 10,
           1);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->positions.id.partition, 0);
    assert_int_equal(p->positions.next_offset, 11);
    assert_int_equal(p->positions.log_start, 4);
    assert_int_equal(p->runs_count, 1);
    assert_int_equal(p->needed_from, p->runs[0].sequence - 2); /* its POSITION */
    nd_recovered_partition_free(p);
    /* The other is covered by its state: closed, nothing is opened for it. */
    assert_null(nd_recovery_pop(&f->recovery));
}

static void recovery_w8__acks_at_or_above_the_next_offset_are_dropped(void **state)
{
    struct fixture *f = *state;

    commit(f, &orders, 0, 3);
    ack(f, &orders, 2, 6);
    ack(f, &orders, 9, 9);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->acks_dropped, 5);
    assert_int_equal(p->positions.ahead_count, 1);
    assert_int_equal(p->positions.ahead[0].first, 2);
    assert_int_equal(p->positions.ahead[0].last, 2);
    nd_recovered_partition_free(p);
}

static void recovery_w8__a_missing_range_is_a_counted_gap(void **state)
{
    struct fixture *f = *state;

    commit(f, &orders, 0, 3);
    commit(f, &orders, 10, 1);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->gap_records, 7);
    assert_int_equal(p->positions.next_offset, 11);
    nd_recovered_partition_free(p);
}

/* The log was trimmed above an old `state`: what lay between is in a newer POSITION. */
static void recovery_w8__what_a_later_position_explains_is_no_gap(void **state)
{
    struct fixture *f = *state;
    struct nd_positions positions;

    nd_positions_init(&positions);
    positions.id = orders;
    positions.frontier = positions.next_offset = positions.flushed_offset = 10;
    positions.applied_sequence = 5;
    state_store(f, &positions);
    ack(f, &orders, 15, 16);
    commit(f, &orders, 30, 1);
    positions.frontier = 17;
    positions.next_offset = positions.flushed_offset = 31;
    position(f, &positions);
    commit(f, &orders, 31, 1);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->positions.next_offset, 32);
    assert_int_equal(p->positions.frontier, 17);
    assert_int_equal(p->gap_records, 0);
    assert_int_equal(p->acks_dropped, 0);
    nd_recovered_partition_free(p);
}

static void recovery_w8__an_offset_committed_twice_is_refused(void **state)
{
    struct fixture *f = *state;
    struct nd_recovery again;
    struct nd_wal *wal;

    commit(f, &orders, 0, 3);
    commit(f, &orders, 2, 1);
    nd_recovery_init(&again, &f->recovery_options);
    assert_int_equal(nd_wal_open(&wal, &f->options, nd_recovery_replay, &again, &f->msg),
                     ND_ERR_CORRUPT);
    assert_non_null(strstr(f->msg.text, "orders/3"));
    nd_recovery_release(&again);
}

/* Segments but no positions: not opened at its start, whatever the log still holds. */
static void recovery_w8__segments_without_positions_are_refused_by_name(void **state)
{
    struct fixture *f = *state;

    segment_make(f, &orders);
    commit(f, &orders, 40, 3);
    commit(f, &events, 40, 3); /* the same without segments: a deleted incarnation */
    fixture_reopen(f);

    assert_int_equal(f->recovery.refused, 1);
    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_string_equal(p->positions.id.topic, "events");
    assert_int_equal(p->positions.next_offset, 43);
    assert_int_equal(p->positions.log_start, 40);
    assert_int_equal(p->positions.frontier, 40);
    nd_recovered_partition_free(p);
    assert_null(nd_recovery_pop(&f->recovery));
}

/* A partition that never had positions: its first entry is in the log, so segments are no riddle.
 */
static void recovery_w8__a_first_commit_grounds_a_partition_with_segments(void **state)
{
    struct fixture *f = *state;

    segment_make(f, &orders);
    commit(f, &orders, 0, 3);
    checkpoint(f, &orders, 3);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_non_null(p);
    assert_int_equal(f->recovery.refused, 0);
    assert_int_equal(p->positions.next_offset, 3);
    assert_int_equal(p->runs_count, 0);
    nd_recovered_partition_free(p);
}

static void recovery_w9__one_row_a_member_with_its_highest_sequence(void **state)
{
    struct fixture *f = *state;

    commit_from(f, &orders, 0, 3, &(struct nd_token){4, 50, 100});
    commit_from(f, &orders, 3, 1, &(struct nd_token){5, 60, 7});
    commit_from(f, &orders, 4, 1, &(struct nd_token){4, 50, 103});
    commit_from(f, &orders, 5, 1, &(struct nd_token){5, 61, 2}); /* another writer replaces */
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->positions.tokens_count, 2);
    assert_int_equal(p->positions.tokens[0].sequence, 103);
    assert_int_equal(p->positions.tokens[1].writer, 61);
    assert_int_equal(p->positions.tokens[1].sequence, 2);
    nd_recovered_partition_free(p);
}

/* One sequence a record: the origin of a run's last record is what the row holds. */
static void recovery_w9__own_commits_take_a_sequence_a_record(void **state)
{
    struct fixture *f = *state;

    commit(f, &orders, 0, 3);
    commit(f, &orders, 3, 2);
    uint64_t first = f->first;
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->positions.tokens_count, 1);
    assert_int_equal(p->positions.tokens[0].member, MEMBER);
    assert_int_equal(p->positions.tokens[0].sequence, first + 4);
    nd_recovered_partition_free(p);
}

static void recovery__cursors_replace_each_other_by_child(void **state)
{
    struct fixture *f = *state;
    struct nd_wal_unit unit;

    commit(f, &orders, 0, 1);
    nd_wal_unit_init(&unit, ND_WAL_RESERVED);
    nd_wal_unit_add_cursor(&unit, &orders, &(struct nd_cursor){20, 1, 2, 3});
    nd_wal_unit_add_cursor(&unit, &orders, &(struct nd_cursor){21, 1, 2, 4});
    nd_wal_unit_add_cursor(&unit, &orders, &(struct nd_cursor){20, 1, 2, 9});
    unit_write(f, &unit);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->positions.cursors_count, 2);
    assert_int_equal(p->positions.cursors[0].next_offset, 9);
    nd_recovered_partition_free(p);
}

static void accept_stage(struct fixture *f, uint64_t base, uint32_t count, uint64_t writer,
                         uint64_t sequence)
{
    uint8_t records[4096];
    struct nd_wal_unit unit;
    size_t size = run_put(records, base, count);

    nd_wal_unit_init(&unit, ND_WAL_PRODUCE);
    nd_wal_unit_add_accept(&unit, &(struct nd_wal_accept){.id = &events,
                                                          .time_ms = 33,
                                                          .count = count,
                                                          .records = nd_slice_make(records, size),
                                                          .writer = writer,
                                                          .sequence = sequence});
    unit_write(f, &unit);
}

static void recovery__accepts_come_back_without_what_was_dispatched(void **state)
{
    struct fixture *f = *state;
    struct nd_wal_stats stats;
    struct nd_wal_unit unit;

    nd_wal_stats(f->wal, &stats);
    uint64_t first = f->first;
    accept_stage(f, 100, 5, 0, 0); /* sequences first … first+4 */
    accept_stage(f, 200, 2, 0, 0);
    accept_stage(f, 300, 1, 0, 0);
    struct nd_offset_range ranges[] = {{first + 1, first + 2}, {first + 5, first + 6}};
    nd_wal_unit_init(&unit, ND_WAL_RESERVED);
    nd_wal_unit_add_dispatched(
        &unit,
        &(struct nd_wal_dispatched){.writer = stats.writer, .ranges = ranges, .ranges_count = 2});
    unit_write(f, &unit);
    accept_stage(f, 104, 1, stats.writer, first + 4); /* restated at the head */
    fixture_reopen(f);

    static const struct {
        uint64_t base, sequence;
        uint32_t count;
    } expected[] = {{100, 0, 1}, {103, 3, 1}, {300, 7, 1}, {104, 4, 1}};
    for (size_t i = 0; i < ND_ARRAY_SIZE(expected); i++) {
        struct nd_list *link = nd_list_pop(&f->recovery.accepts);
        assert_non_null(link);
        struct nd_recovered_accept *accept =
            ND_CONTAINER_OF(link, struct nd_recovered_accept, link);
        struct nd_tail_run run = {
            .records = accept->records, .base_offset = expected[i].base, .count = accept->count};
        assert_run(&run, expected[i].base, expected[i].count);
        assert_int_equal(accept->sequence, first + expected[i].sequence);
        assert_int_equal(accept->writer, stats.writer);
        nd_recovered_accept_free(accept);
    }
    assert_true(nd_list_empty(&f->recovery.accepts));
}

/* --- records that no segment takes (F3) --- */

/* Returns its sequence. */
static uint64_t restate(struct fixture *f, uint64_t base, uint32_t count,
                        const struct nd_token *origin)
{
    uint8_t records[4096];
    struct nd_wal_unit unit;
    size_t size = run_put(records, base, count);

    nd_wal_unit_init(&unit, ND_WAL_RESERVED);
    nd_wal_unit_add_restated(&unit, &(struct nd_wal_commit){.id = &orders,
                                                            .base_offset = base,
                                                            .time_ms = 1000 + (int64_t)base,
                                                            .count = count,
                                                            .records = nd_slice_make(records, size),
                                                            .origin_member = origin->member,
                                                            .origin_writer = origin->writer,
                                                            .origin_sequence = origin->sequence});
    unit_write(f, &unit);
    return unit.sequence;
}

static const struct nd_token origin_a = {4, 40, 400}, origin_b = {5, 50, 500};

static void recovery_f3__restated_records_move_and_change_nothing_else(void **state)
{
    struct fixture *f = *state;

    commit_from(f, &orders, 0, 3, &origin_a);
    commit_from(f, &orders, 3, 2, &(struct nd_token){4, 41, 10}); /* the writer's row is replaced */
    ack(f, &orders, 0, 0);
    uint64_t at = restate(f, 0, 3, &origin_a);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->runs_count, 2);
    assert_run(&p->runs[0], 0, 3);
    assert_int_equal(p->runs[0].sequence, at);
    assert_int_equal(p->runs[0].origin_member, 4);
    assert_int_equal(p->runs[0].origin_writer, 40);
    assert_int_equal(p->runs[0].origin_sequence, 400);
    assert_run(&p->runs[1], 3, 2);
    assert_true(p->runs[1].sequence < at);
    assert_int_equal(p->positions.next_offset, 5);
    assert_int_equal(p->positions.frontier, 1);
    assert_int_equal(p->positions.last_commit_ms, 1003);
    assert_int_equal(p->positions.tokens_count, 1);
    assert_int_equal(p->positions.tokens[0].writer, 41); /* not that of the older records */
    assert_int_equal(p->gap_records, 0);
    nd_recovered_partition_free(p);
}

static void recovery_f3__what_is_needed_starts_at_the_lowest_place_of_any_run(void **state)
{
    struct fixture *f = *state;
    struct nd_positions positions;

    commit_from(f, &orders, 0, 3, &origin_a);
    commit_from(f, &orders, 3, 2, &origin_b);
    uint64_t at = restate(f, 0, 3, &origin_a);
    nd_positions_init(&positions);
    positions.id = orders;
    positions.next_offset = 5;
    position(f, &positions);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_true(p->runs[1].sequence < at);
    assert_int_equal(p->needed_from, p->runs[1].sequence);
    nd_recovered_partition_free(p);
}

/* The log begins behind the first COMMIT: what was restated lies below the first one that is
 * left. */
static void recovery_f3__records_below_the_first_commit_of_the_log_are_kept(void **state)
{
    struct fixture *f = *state;
    struct nd_positions positions;

    commit_from(f, &orders, 10, 5, &origin_b);
    uint64_t at = restate(f, 0, 10, &origin_a);
    nd_positions_init(&positions);
    positions.id = orders;
    positions.next_offset = 15;
    positions.frontier = 2;
    position(f, &positions);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_non_null(p);
    assert_int_equal(p->runs_count, 2);
    assert_run(&p->runs[0], 0, 10);
    assert_int_equal(p->runs[0].sequence, at);
    assert_run(&p->runs[1], 10, 5);
    assert_int_equal(p->positions.flushed_offset, 0);
    assert_int_equal(p->positions.log_start, 0);
    assert_int_equal(p->positions.frontier, 2);
    nd_recovered_partition_free(p);
}

static void recovery_f3__restated_records_that_were_flushed_are_no_data(void **state)
{
    struct fixture *f = *state;

    commit_from(f, &orders, 0, 10, &origin_a);
    restate(f, 0, 10, &origin_a);
    checkpoint(f, &orders, 4);
    restate(f, 0, 10, &origin_a);
    commit_from(f, &orders, 10, 5, &origin_b);
    checkpoint(f, &orders, 12);
    restate(f, 10, 5, &origin_b);
    fixture_reopen(f);

    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->runs_count, 1);
    assert_int_equal(p->runs[0].base_offset + p->runs[0].count, 15);
    assert_int_equal(p->positions.flushed_offset, 12);
    nd_recovered_partition_free(p);
}

/* A deleted incarnation leaves such entries, without positions. */
static void recovery_f3__restated_records_without_positions_are_let_go(void **state)
{
    struct fixture *f = *state;

    restate(f, 0, 10, &origin_a);
    fixture_reopen(f);
    assert_null(nd_recovery_pop(&f->recovery));
    assert_int_equal(f->recovery.tail_bytes, 0);
}

static void recovery_f3__records_that_cut_others_are_refused(void **state)
{
    struct fixture *f = *state;

    commit_from(f, &orders, 0, 10, &origin_a);
    restate(f, 5, 10, &origin_a);
    nd_wal_stager_remove(f->wal, &f->stager);
    nd_wal_close(f->wal);
    nd_recovery_release(&f->recovery);
    nd_recovery_init(&f->recovery, &f->recovery_options);
    assert_int_equal(nd_wal_open(&f->wal, &f->options, nd_recovery_replay, &f->recovery, &f->msg),
                     ND_ERR_CORRUPT);
    assert_non_null(strstr(f->msg.text, "orders/3"));
    nd_recovery_release(&f->recovery);
    f->options.dir = "data/other"; /* for the teardown */
    fixture_open(f);
}

static enum nd_err relieve(void *arg, struct nd_recovery *recovery, struct nd_errmsg *msg)
{
    uint32_t *calls = arg;

    (void)msg;
    *calls += 1;
    ND_LIST_FOREACH (&recovery->partitions, link) {
        struct nd_recovered_partition *p =
            ND_CONTAINER_OF(link, struct nd_recovered_partition, link);
        nd_recovery_set_flushed(recovery, p, p->positions.next_offset);
    }
    return ND_OK;
}

static void recovery_w8__tails_beyond_the_budget_are_flushed_while_replaying(void **state)
{
    struct fixture *f = *state;
    uint32_t calls = 0;

    for (uint64_t base = 0; base < 200; base += 10) {
        commit(f, &orders, base, 10);
    }
    f->recovery_options.tail_bytes_max = 2000;
    f->recovery_options.relieve = relieve;
    f->recovery_options.relieve_arg = &calls;
    fixture_reopen(f);

    assert_in_range(calls, 3, 10);
    assert_true(f->recovery.tail_bytes <= 2000);
    struct nd_recovered_partition *p = nd_recovery_pop(&f->recovery);
    assert_int_equal(p->positions.next_offset, 200);
    assert_true(p->positions.flushed_offset > 100);
    assert_int_equal(p->needed_from, 1ULL << 40); /* no entry says yet that they were flushed */
    nd_recovered_partition_free(p);
    assert_int_equal(f->recovery.tail_bytes, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(recovery_w8__a_new_partition_comes_back_whole),
        CASE(recovery_w8__flushed_commits_count_but_are_not_data),
        CASE(recovery_w8__a_run_flushed_in_part_loses_that_part),
        CASE(recovery_w8__the_newer_of_state_and_position_counts),
        CASE(recovery_w8__acks_at_or_above_the_next_offset_are_dropped),
        CASE(recovery_w8__a_missing_range_is_a_counted_gap),
        CASE(recovery_w8__what_a_later_position_explains_is_no_gap),
        CASE(recovery_w8__an_offset_committed_twice_is_refused),
        CASE(recovery_w8__segments_without_positions_are_refused_by_name),
        CASE(recovery_w8__a_first_commit_grounds_a_partition_with_segments),
        CASE(recovery_w9__one_row_a_member_with_its_highest_sequence),
        CASE(recovery_w9__own_commits_take_a_sequence_a_record),
        CASE(recovery__cursors_replace_each_other_by_child),
        CASE(recovery__accepts_come_back_without_what_was_dispatched),
        CASE(recovery_f3__restated_records_move_and_change_nothing_else),
        CASE(recovery_f3__what_is_needed_starts_at_the_lowest_place_of_any_run),
        CASE(recovery_f3__records_below_the_first_commit_of_the_log_are_kept),
        CASE(recovery_f3__restated_records_that_were_flushed_are_no_data),
        CASE(recovery_f3__restated_records_without_positions_are_let_go),
        CASE(recovery_f3__records_that_cut_others_are_refused),
        CASE(recovery_w8__tails_beyond_the_budget_are_flushed_while_replaying),
    };
    int failed = cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
    with_preview = true;
    return failed + cmocka_run_group_tests_name("recovery with a preview", tests, NULL, NULL);
}
