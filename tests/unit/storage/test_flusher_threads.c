/* storage/flusher with the real log of the node, in their threads and on the real disk: jobs from a
 * shard, readers beside them, stop with jobs under way. For ThreadSanitizer too. */
#include <stdatomic.h>

#include "storage/flusher.h"
#include "storage/layout.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/storage/plog_fixture.h"

enum { PARTITIONS = 10, ROUNDS = 12, COUNT = 40, SIZE = 200 };

struct partition {
    struct nd_flush_job job;
    struct nd_tail_run run;
    struct nd_plog *plog;
    uint64_t flushed; /* by the shard */
    uint32_t wrong;
};

struct world {
    char *dir;
    struct nd_layout layout;
    struct nd_wal *wal;
    struct nd_flusher *flusher;
    struct nd_inbox inbox;
    struct nd_wal_stager stager; /* the shard's: it needs every entry replayed */
    struct partition partitions[PARTITIONS];
    uint32_t under_way;
    /* what a reader thread may look at */
    struct nd_plog *_Atomic watched;
    _Atomic uint64_t watched_end;
    _Atomic bool over;
    _Atomic uint64_t read_good, read_wrong;
    /* of the replay */
    uint64_t checkpoint[PARTITIONS];
};

static enum nd_err replay(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    struct world *world = arg;
    (void)msg;

    for (uint32_t i = 0; entry->type == ND_WAL_CHECKPOINT && i < entry->flushed_count; i++) {
        world->checkpoint[entry->flushed[i].id.partition] = entry->flushed[i].offset;
    }
    return ND_OK;
}

static int64_t clock_ms(void *arg)
{
    (void)arg;
    return 5;
}

static void wal_start(struct world *world)
{
    struct nd_wal_options options = {
        .env = nd_env_posix(),
        .dir = world->layout.wal_dir,
        .member = 1,
        .file_bytes = 1 << 20,
        .frame_bytes_max = 512 << 10,
        .staged_bytes_max = 4 << 20,
        .keep_bytes = 4 << 20,
        .spares = 2,
    };
    struct nd_errmsg msg = {{0}};

    memcpy(options.store_id, world->layout.store_id, sizeof options.store_id);
    if (nd_wal_open(&world->wal, &options, replay, world, &msg) != ND_OK) {
        fail_msg("%s", msg.text);
    }
}

static void log_failed(struct nd_msg *msg, void *owner)
{
    (void)msg;
    ((struct world *)owner)->partitions[0].wrong += 1;
}

/* As a shard whose positions were never restated: whatever the rounds, all CHECKPOINTs are
 * replayed. */
static void stager_start(struct world *world)
{
    struct nd_wal_stats stats;

    nd_wal_stats(world->wal, &stats);
    world->stager.inbox = &world->inbox;
    world->stager.failed.run = log_failed;
    nd_wal_stager_add(world->wal, &world->stager);
    nd_wal_stager_needs(world->wal, &world->stager, stats.sequence_next);
}

static void world_start(struct world *world)
{
    const struct nd_env *env = nd_env_posix();
    struct nd_flusher_options options = {
        .plog = fixture_options(env), .commit_clock_ms = clock_ms, .sync_one_by_one_max = 8};

    world->dir = temp_dir_new();
    assert_int_equal(nd_layout_open(&world->layout, env, world->dir, NULL), ND_OK);
    wal_start(world);
    memcpy(options.plog.store_id, world->layout.store_id, sizeof options.plog.store_id);
    options.data_dir = world->dir;
    options.wal = world->wal;
    assert_int_equal(nd_flusher_new(&world->flusher, &options, NULL), ND_OK);
    nd_inbox_init(&world->inbox);
    stager_start(world);
    assert_true(nd_wal_thread_start(world->wal));
    assert_true(nd_flusher_thread_start(world->flusher));
}

static void job_submit(struct world *world, uint32_t i);

static void job_back(struct nd_msg *msg, void *owner)
{
    struct world *world = owner;
    struct nd_flush_job *job = ND_CONTAINER_OF(msg, struct nd_flush_job, reply);
    struct partition *p = ND_CONTAINER_OF(job, struct partition, job);
    uint32_t i = (uint32_t)(p - world->partitions);

    p->plog = job->opened != NULL ? job->opened : p->plog;
    p->wrong += job->result != ND_OK || job->flushed != p->flushed + COUNT;
    p->flushed += COUNT;
    nd_block_unref(p->run.block);
    world->under_way -= 1;
    if (i == 0) {
        atomic_store(&world->watched_end, p->flushed);
        atomic_store(&world->watched, p->plog);
    }
    if (p->flushed < ROUNDS * COUNT) {
        job_submit(world, i);
    }
}

static void job_submit(struct world *world, uint32_t i)
{
    struct partition *p = &world->partitions[i];

    p->run = fixture_run(p->flushed, COUNT, SIZE);
    p->job = (struct nd_flush_job){
        .reply.run = job_back,
        .reply_to = &world->inbox,
        .id = {.incarnation = 7, .partition = i, .topic = "orders"},
        .plog = p->plog,
        .open_wal_start = UINT64_MAX,
        .runs = &p->run,
        .runs_count = 1,
    };
    world->under_way += 1;
    nd_flusher_submit(world->flusher, &p->job);
}

static void reader_run(void *arg)
{
    struct world *world = arg;
    uint64_t offset = 0;

    while (!atomic_load(&world->over)) {
        struct nd_frame_data frame;
        struct nd_plog *plog = atomic_load(&world->watched);
        uint64_t next;
        if (plog == NULL) {
            continue;
        }
        offset = (offset + 17) % atomic_load(&world->watched_end);
        bool good = nd_plog_read(plog, offset, &frame, &next, NULL) == ND_OK;
        atomic_fetch_add(good ? &world->read_good : &world->read_wrong, 1);
        if (good) {
            nd_block_unref(frame.block);
        }
    }
}

/* The threads end, then everything they shared. */
static void world_stop(struct world *world)
{
    nd_flusher_thread_stop(world->flusher);
    nd_inbox_run(&world->inbox, world);
    nd_wal_thread_stop(world->wal);
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        nd_plog_unref(world->partitions[i].plog);
    }
    nd_flusher_free(world->flusher);
    nd_wal_stager_remove(world->wal, &world->stager);
    nd_wal_close(world->wal);
    nd_inbox_release(&world->inbox);
    nd_layout_close(&world->layout);
    temp_dir_remove(world->dir);
}

static void flusher_thread__serves_a_shard_and_readers(void **state)
{
    struct world *world = nd_xcalloc(1, sizeof *world);
    struct nd_thread reader = {0};
    (void)state;
    world_start(world);
    assert_true(nd_thread_start(&reader, "reader", reader_run, world));

    for (uint32_t i = 0; i < PARTITIONS; i++) {
        job_submit(world, i);
    }
    while (world->under_way > 0) {
        nd_inbox_wait(&world->inbox, UINT64_MAX);
        nd_inbox_run(&world->inbox, world);
    }

    atomic_store(&world->over, true);
    nd_thread_join(&reader);
    assert_int_equal(atomic_load(&world->read_wrong), 0);
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        struct partition *p = &world->partitions[i];
        assert_int_equal(p->wrong, 0);
        assert_int_equal(fixture_count(p->plog, 0, ROUNDS * COUNT, SIZE), ROUNDS * COUNT);
    }
    world_stop(world);
    nd_free(world);
}

/* Every job that was submitted before the stop comes back, and what it was told is in the log. */
static void flusher_thread_stop__waits_for_the_jobs_under_way(void **state)
{
    struct world *world = nd_xcalloc(1, sizeof *world);
    (void)state;
    world_start(world);
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        world->partitions[i].flushed = (ROUNDS - 1) * COUNT; /* one job each */
        job_submit(world, i);
    }

    nd_flusher_thread_stop(world->flusher);
    nd_inbox_run(&world->inbox, world);

    assert_int_equal(world->under_way, 0);
    nd_wal_thread_stop(world->wal);
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        assert_int_equal(world->partitions[i].wrong, 0);
        nd_plog_unref(world->partitions[i].plog);
    }
    nd_flusher_free(world->flusher);
    nd_wal_stager_remove(world->wal, &world->stager);
    nd_wal_close(world->wal);
    wal_start(world); /* replays the CHECKPOINT */
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        assert_int_equal(world->checkpoint[i], ROUNDS * COUNT);
    }
    nd_wal_close(world->wal);
    nd_inbox_release(&world->inbox);
    nd_layout_close(&world->layout);
    temp_dir_remove(world->dir);
    nd_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flusher_thread__serves_a_shard_and_readers),
        cmocka_unit_test(flusher_thread_stop__waits_for_the_jobs_under_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
