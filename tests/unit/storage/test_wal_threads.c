/* storage/wal under real threads and on the real disk: stagers race with the log's own thread, with
 * rolls and with the trim (I-12, I-13). For ThreadSanitizer, and for the count of syncs. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/wal.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"

enum { STAGERS = 4, UNITS_EACH = 300, IN_FLIGHT = 16, PAYLOAD = 2000 };

static const struct nd_partition_id orders = {.incarnation = 7, .partition = 1, .topic = "orders"};

struct producer {
    struct nd_wal *wal;
    struct nd_inbox inbox;
    struct nd_wal_stager stager;
    struct nd_thread thread;
    uint8_t records[PAYLOAD + 64];
    size_t records_size;
    uint32_t returned, wrong;
    uint64_t last;
};

struct one {
    struct nd_wal_unit unit;
    struct producer *producer;
};

static void unit_back(struct nd_msg *msg, void *owner)
{
    struct one *one =
        ND_CONTAINER_OF(ND_CONTAINER_OF(msg, struct nd_wal_unit, msg), struct one, unit);
    struct producer *p = owner;

    p->wrong += one->unit.result != ND_OK || one->unit.sequence <= p->last;
    p->last = one->unit.sequence;
    p->returned += 1;
    nd_wal_unit_release(&one->unit);
    nd_free(one);
}

static void failed(struct nd_msg *msg, void *owner)
{
    struct producer *p = owner;

    (void)msg;
    p->wrong += 1;
}

static void produce(void *arg)
{
    struct producer *p = arg;
    uint32_t staged = 0;

    while (p->returned < UNITS_EACH) {
        while (staged < UNITS_EACH && staged - p->returned < IN_FLIGHT) {
            struct one *one = nd_xcalloc(1, sizeof *one);
            nd_wal_unit_init(&one->unit, ND_WAL_PRODUCE);
            one->producer = p;
            one->unit.msg.run = unit_back;
            nd_wal_unit_add_commit(
                &one->unit,
                &(struct nd_wal_commit){.id = &orders,
                                        .base_offset = staged,
                                        .count = 1,
                                        .records = nd_slice_make(p->records, p->records_size)});
            if (nd_wal_stage(p->wal, &p->stager, &one->unit) != ND_OK) {
                p->wrong += 1;
                nd_wal_unit_release(&one->unit);
                nd_free(one);
                return;
            }
            staged += 1;
        }
        nd_inbox_wait(&p->inbox, UINT64_MAX);
        nd_inbox_run(&p->inbox, p);
        nd_wal_stager_needs(p->wal, &p->stager, p->last);
    }
}

static enum nd_err count_entry(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    uint32_t *count = arg;

    (void)msg;
    *count += entry->type == ND_WAL_COMMIT;
    return ND_OK;
}

static void producers_start(struct producer *producers, struct nd_wal *wal)
{
    uint8_t payload[PAYLOAD];

    memset(payload, 'x', sizeof payload);
    for (int i = 0; i < STAGERS; i++) {
        struct producer *p = &producers[i];
        p->wal = wal;
        p->records_size = nd_record_put(p->records, (struct nd_slice){0}, NULL, 0,
                                        nd_slice_make(payload, sizeof payload));
        nd_inbox_init(&p->inbox);
        p->stager.inbox = &p->inbox;
        p->stager.failed.run = failed;
        nd_wal_stager_add(wal, &p->stager);
        assert_true(nd_thread_start(&p->thread, "stager", produce, p));
    }
}

static void wal_w1__stagers_rolls_and_trims_race_and_share_syncs(void **state)
{
    struct producer *producers = nd_xcalloc(STAGERS, sizeof *producers);
    char *dir = temp_dir_new();
    struct nd_wal_options options = {.env = nd_env_posix(),
                                     .dir = dir,
                                     .file_bytes = 256 << 10,
                                     .frame_bytes_max = 64 << 10,
                                     .staged_bytes_max = 8 << 20,
                                     .keep_bytes = 512 << 10,
                                     .spares = 2};
    struct nd_errmsg msg = {{0}};
    struct nd_wal_stats stats;
    uint32_t replayed = 0;
    struct nd_wal *wal;

    (void)state;
    assert_int_equal(nd_wal_open(&wal, &options, count_entry, &replayed, &msg), ND_OK);
    assert_true(nd_wal_thread_start(wal));
    producers_start(producers, wal);
    for (int i = 0; i < 20; i++) { /* the flusher's part, meanwhile */
        nd_wal_check_space(wal);
        nd_wal_trim(wal);
        (void)nd_wal_lift_below(wal);
    }
    for (int i = 0; i < STAGERS; i++) {
        nd_thread_join(&producers[i].thread);
        assert_int_equal(producers[i].wrong, 0);
        assert_int_equal(producers[i].returned, UNITS_EACH);
    }
    nd_wal_thread_stop(wal);
    nd_wal_stats(wal, &stats);
    assert_true(stats.syncs < STAGERS * UNITS_EACH);
    assert_true(stats.files > 4);
    for (int i = 0; i < STAGERS; i++) {
        nd_wal_stager_remove(wal, &producers[i].stager);
        nd_inbox_release(&producers[i].inbox);
    }
    nd_wal_close(wal);
    assert_int_equal(nd_wal_open(&wal, &options, count_entry, &replayed, &msg), ND_OK);
    assert_int_equal(replayed, STAGERS * UNITS_EACH);
    nd_wal_close(wal);
    temp_dir_remove(dir);
    nd_free(producers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wal_w1__stagers_rolls_and_trims_race_and_share_syncs),
    };
    return cmocka_run_group_tests_name("wal_threads", tests, NULL, NULL);
}
