/* storage/flusher: rounds against a fake log of the node and a simulated disk. */
#include "storage/flusher.h"
#include "storage/remove.h"
#include "tests/unit/storage/fake_wal.h"
#include "tests/unit/storage/plog_fixture.h"

enum { SIZE = 120, JOBS = 20 };

struct fixture {
    struct sim_env *sim;
    const struct nd_env *env;
    struct nd_metrics *metrics;
    struct nd_wal wal;
    struct nd_flusher *flusher;
    struct nd_inbox inbox; /* of the shard */
    struct job {
        struct nd_flush_job job;
        struct nd_tail_run run;
        bool back;
    } jobs[JOBS];
    struct nd_plog *plogs[JOBS];
    uint32_t tasks, files_max;
};

static int64_t clock_ms(void *arg)
{
    (void)arg;
    return 777;
}

static void flusher_start(struct fixture *f)
{
    struct nd_flusher_options options = {
        .plog = fixture_options(f->env),
        .data_dir = "data",
        .wal = &f->wal,
        .commit_clock_ms = clock_ms,
        .sync_one_by_one_max = 8,
        .metrics = f->metrics,
    };

    options.plog.metrics = f->metrics;
    options.plog.files_max = f->files_max;
    assert_int_equal(nd_flusher_new(&f->flusher, &options, NULL), ND_OK);
}

static int setup(void **state)
{
    struct fixture *f = nd_xcalloc(1, sizeof *f);

    f->sim = sim_env_new(1);
    f->env = sim_env_get(f->sim);
    f->metrics = nd_metrics_new();
    nd_inbox_init(&f->inbox);
    flusher_start(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    nd_flusher_free(f->flusher);
    for (uint32_t i = 0; i < JOBS; i++) {
        nd_plog_unref(f->plogs[i]);
        nd_block_unref(f->jobs[i].run.block);
    }
    nd_inbox_release(&f->inbox);
    nd_metrics_free(f->metrics);
    sim_env_free(f->sim);
    nd_free(f);
    return 0;
}

static void job_back(struct nd_msg *msg, void *owner)
{
    struct fixture *f = owner;
    struct job *job = ND_CONTAINER_OF(msg, struct job, job.reply);
    size_t i = (size_t)(job - f->jobs);

    job->back = true;
    if (job->job.opened != NULL) {
        assert_null(f->plogs[i]);
        f->plogs[i] = job->job.opened;
    }
}

/* Have records [base, base + count) of partition `i` flushed. */
static void submit(struct fixture *f, uint32_t i, uint64_t base, uint32_t count)
{
    struct job *job = &f->jobs[i];

    nd_block_unref(job->run.block);
    job->run = fixture_run(base, count, SIZE);
    job->back = false;
    job->job = (struct nd_flush_job){
        .reply.run = job_back,
        .reply_to = &f->inbox,
        .id = {.incarnation = 7, .partition = i, .topic = "orders"},
        .plog = f->plogs[i],
        .open_wal_start = UINT64_MAX,
        .runs = &job->run,
        .runs_count = 1,
    };
    nd_flusher_submit(f->flusher, &job->job);
}

/* Step until nothing moves, the log answering every CHECKPOINT with `outcome`. */
static void run(struct fixture *f, enum nd_err outcome)
{
    bool moved = true;

    for (uint32_t steps = 0; moved; steps++) {
        assert_true(steps < 1000);
        moved = nd_flusher_step(f->flusher);
        moved = fake_wal_finish(&f->wal, outcome) || moved;
        moved = nd_inbox_run(&f->inbox, f) > 0 || moved;
    }
}

static enum nd_err flush(struct fixture *f, uint32_t i, uint64_t base, uint32_t count)
{
    submit(f, i, base, count);
    run(f, ND_OK);
    assert_true(f->jobs[i].back);
    return f->jobs[i].job.result;
}

static void flusher__flushes_checkpoints_trims_and_replies(void **state)
{
    struct fixture *f = *state;
    char dir[300];

    run(f, ND_OK); /* the look of this second */
    uint32_t checks = f->wal.space_checks;
    submit(f, 3, 0, 50);
    while (f->wal.staged == NULL) {
        assert_true(nd_flusher_step(f->flusher));
    }

    assert_int_equal(nd_inbox_run(&f->inbox, f), 0); /* nothing is said before the sync */
    assert_int_equal(f->wal.trims, 0);
    assert_int_equal(f->wal.space_checks,
                     checks + 1); /* as the disk fills, not in the next second */
    assert_int_equal(f->wal.class, ND_WAL_RESERVED);
    assert_int_equal(f->wal.commit_clock_ms, 777);
    assert_int_equal(f->wal.flushed_count, 1);
    assert_int_equal(f->wal.flushed[0].offset, 50);
    assert_int_equal(f->wal.flushed[0].id.partition, 3);
    assert_string_equal(f->wal.flushed[0].id.topic, "orders");
    run(f, ND_OK);
    assert_true(f->jobs[3].back);
    assert_int_equal(f->jobs[3].job.result, ND_OK);
    assert_int_equal(f->jobs[3].job.flushed, 50);
    assert_int_equal(f->wal.trims, 1);
    assert_true(f->wal.stager->needed_from == UINT64_MAX);
    assert_int_equal(fixture_count(f->plogs[3], 0, 50, SIZE), 50);
    nd_flusher_partition_dir(f->flusher, &f->jobs[3].job.id, dir, sizeof dir);
    assert_string_equal(dir, FIXTURE_DIR);
}

static void flusher__syncs_few_files_one_by_one_and_many_at_once(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < 8; i++) {
        submit(f, i, 0, 10);
    }
    uint64_t syncs = sim_env_calls(f->sim, SIM_SYNC);
    run(f, ND_OK);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC) - syncs, 8);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC_FS), 0);
    assert_int_equal(f->wal.checkpoints, 1);

    for (uint32_t i = 0; i < 9; i++) {
        submit(f, i, i == 8 ? 0 : 10, 10);
    }
    syncs = sim_env_calls(f->sim, SIM_SYNC);
    run(f, ND_OK);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC), syncs);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC_FS), 1);
    assert_int_equal(f->wal.checkpoints, 2);
    assert_int_equal(f->wal.flushed_count, 9);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(f->jobs[i].job.result, ND_OK);
        assert_int_equal(fixture_count(f->plogs[i], 0, 20, SIZE), i == 8 ? 10 : 20);
    }
}

/* 3,000 partitions that get their first records at once must not cost a sync for each of their
 * directories. */
static void flusher__opens_many_logs_with_few_syncs(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < JOBS; i++) {
        submit(f, i, 0, 10);
    }
    uint64_t dirs = sim_env_calls(f->sim, SIM_SYNC_DIR), files = sim_env_calls(f->sim, SIM_SYNC);
    run(f, ND_OK);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC_DIR), dirs);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC), files);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC_FS), 5); /* a level each, and the files */

    for (uint32_t i = 0; i < JOBS; i++) { /* known directories: as after a restart */
        nd_plog_unref(f->plogs[i]);
        f->plogs[i] = NULL;
        submit(f, i, 10, 10);
        f->jobs[i].job.open_flushed = 10;
    }
    run(f, ND_OK);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC_DIR), dirs);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC), files);
    assert_int_equal(sim_env_calls(f->sim, SIM_SYNC_FS), 7);
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(f->jobs[i].job.result, ND_OK);
        assert_int_equal(fixture_count(f->plogs[i], 0, 20, SIZE), 20);
    }
}

/* Descriptors do not grow with partitions: beyond a bound a log opens its file for a round only. */
static void flusher__keeps_few_files_open(void **state)
{
    struct fixture *f = *state;
    uint64_t opens[2];
    nd_flusher_free(f->flusher);
    f->files_max = JOBS / 2;
    flusher_start(f);

    for (uint32_t round = 0; round < 4; round++) {
        uint64_t before = sim_env_calls(f->sim, SIM_OPEN);
        for (uint32_t i = 0; i < JOBS; i++) {
            submit(f, i, round * 10, 10);
        }
        run(f, ND_OK);
        opens[round % 2] = sim_env_calls(f->sim, SIM_OPEN) - before;
    }

    assert_int_equal(opens[0], opens[1]);
    assert_int_equal(opens[0], JOBS + JOBS / 2); /* each to be read back, half to be written */
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(f->jobs[i].job.result, ND_OK);
        assert_int_equal(fixture_count(f->plogs[i], 0, 40, SIZE), 40);
    }
}

/* A power cut at every change of the disk of two such rounds: what a CHECKPOINT stated is there. */
static void flusher__keeps_many_logs_through_a_power_cut_at_every_change(void **state)
{
    struct fixture *f = *state;
    uint64_t flushed[JOBS];
    bool over = false;

    for (uint64_t cut = 1; !over; cut++) {
        assert_true(cut < 1000);
        for (uint32_t i = 0; i < JOBS; i++) {
            nd_plog_unref(f->plogs[i]);
            f->plogs[i] = NULL;
        }
        nd_flusher_free(f->flusher);
        sim_env_free(f->sim);
        f->sim = sim_env_new(cut);
        f->env = sim_env_get(f->sim);
        flusher_start(f);
        memset(flushed, 0, sizeof flushed);
        sim_env_cut_at(f->sim, cut);
        for (uint64_t base = 0; base < 20; base += 10) {
            for (uint32_t i = 0; i < JOBS; i++) {
                submit(f, i, base, 10);
                f->jobs[i].job.open_flushed = flushed[i];
            }
            run(f, ND_OK);
            for (uint32_t i = 0; i < JOBS; i++) {
                flushed[i] = ND_MAX(flushed[i], f->jobs[i].job.flushed);
            }
        }
        over = !sim_env_is_cut(f->sim);
        for (uint32_t i = 0; i < JOBS; i++) {
            nd_plog_unref(f->plogs[i]);
            f->plogs[i] = NULL;
        }
        sim_env_restart(f->sim);
        for (uint32_t i = 0; i < JOBS; i++) {
            char dir[300];
            struct nd_plog_options options = fixture_options(f->env);
            nd_flusher_partition_dir(f->flusher, &f->jobs[i].job.id, dir, sizeof dir);
            assert_int_equal(
                nd_plog_open(&f->plogs[i], &options, dir, flushed[i], UINT64_MAX, NULL), ND_OK);
            assert_int_equal(fixture_count(f->plogs[i], 0, flushed[i], SIZE), flushed[i]);
        }
        assert_true(!over || flushed[0] == 20);
    }
}

/* The disk with a syncfs that reports an error of somebody, and an fdatasync that fails for one
 * file. Its `impl` is the disk's, so what the two know is here. */
static struct {
    const struct nd_env *env;
    uint32_t syncs, fail_nth;
} liar;

static enum nd_err liar_sync_fs(void *impl, int file, struct nd_errmsg *msg)
{
    (void)impl;
    (void)file;
    nd_errmsg_set(msg, "syncfs: somebody's");
    return ND_ERR_IO;
}

static enum nd_err liar_sync(void *impl, int file, struct nd_errmsg *msg)
{
    return ++liar.syncs == liar.fail_nth ? ND_ERR_IO : liar.env->sync(impl, file, msg);
}

/* F2: after an error of syncfs each file is asked for its own; only those that fail have failed. */
static void flusher__fails_only_the_file_that_failed(void **state)
{
    struct fixture *f = *state;
    struct nd_env env = *f->env;
    liar.env = f->env;
    liar.fail_nth = 4;
    env.sync = liar_sync;
    env.sync_fs = liar_sync_fs;
    nd_flusher_free(f->flusher);
    f->env = &env;
    flusher_start(f);

    for (uint32_t i = 0; i < 12; i++) {
        submit(f, i, 0, 10);
    }
    run(f, ND_OK);

    assert_int_equal(liar.syncs, 12);
    assert_int_equal(f->wal.flushed_count, 11);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(f->jobs[i].job.result, i == 3 ? ND_ERR_IO : ND_OK);
        assert_int_equal(fixture_count(f->plogs[i], 0, 10, SIZE), i == 3 ? 0 : 10);
    }
    assert_int_equal(flush(f, 3, 0, 10), ND_OK);
    assert_int_equal(fixture_count(f->plogs[3], 0, 10, SIZE), 10);
    for (uint32_t i = 0; i < 12; i++) {
        nd_plog_unref(f->plogs[i]); /* they know `env`, which ends here */
        f->plogs[i] = NULL;
    }
    nd_flusher_free(f->flusher);
    f->env = sim_env_get(f->sim);
    flusher_start(f);
}

static void flusher__postpones_on_a_full_disk(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(flush(f, 0, 0, 10), ND_OK);
    sim_env_set_space(f->sim, sim_env_space_used(f->sim));

    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(flush(f, 0, 10, 100), ND_ERR_NO_SPACE);
        assert_int_equal(f->jobs[0].job.flushed, 10);
    }
    assert_int_equal(flush(f, 1, 0, 10), ND_ERR_NO_SPACE);
    sim_env_set_space(f->sim, 1 << 30);

    assert_int_equal(flush(f, 0, 10, 100), ND_OK);
    assert_int_equal(f->jobs[0].job.flushed, 110);
    assert_int_equal(flush(f, 1, 0, 10), ND_OK);
    assert_int_equal(fixture_count(f->plogs[0], 0, 110, SIZE), 110);
}

static void flusher__tells_unflushable_and_heals(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(flush(f, 0, 0, 10), ND_OK);
    assert_int_equal(flush(f, 1, 0, 10), ND_OK);

    for (uint32_t i = 0; i < 3; i++) {
        sim_env_fail_from(f->sim, SIM_PWRITE, 1, SIM_FAULT_IO);
        assert_int_equal(flush(f, 0, 10, 10), ND_ERR_IO);
        sim_env_fail_clear(f->sim);
        assert_int_equal(flush(f, 1, 10 + i * 10, 10), ND_OK); /* others go on */
    }
    assert_int_equal(flush(f, 0, 10, 10), ND_ERR_CORRUPT);
    sim_env_advance_ms(f->sim, 10000);
    assert_int_equal(flush(f, 0, 10, 10), ND_OK);

    assert_int_equal(f->jobs[0].job.flushed, 20);
    assert_int_equal(fixture_count(f->plogs[0], 0, 20, SIZE), 20);
}

/* The log failed: the segment is verified, the outcome is unknown, and a repeat makes no copies. */
static void flusher__says_unknown_outcome_and_repeats_without_copies(void **state)
{
    struct fixture *f = *state;
    struct nd_plog_stats before, after;

    submit(f, 0, 0, 30);
    run(f, ND_ERR_IO);
    assert_int_equal(f->jobs[0].job.result, ND_ERR_UNKNOWN_OUTCOME);
    assert_int_equal(f->jobs[0].job.flushed, 30);
    assert_int_equal(f->wal.trims, 0);
    assert_int_equal(f->wal.adoptions, 1);
    assert_int_equal(fixture_count(f->plogs[0], 0, 30, SIZE), 30);
    f->wal.refuse = ND_ERR_UNAVAILABLE;
    submit(f, 0, 0, 30);
    run(f, ND_OK);
    assert_int_equal(f->jobs[0].job.result, ND_ERR_UNKNOWN_OUTCOME);
    f->wal.refuse = ND_OK;

    nd_plog_stats(f->plogs[0], &before);
    assert_int_equal(flush(f, 0, 0, 30), ND_OK);
    nd_plog_stats(f->plogs[0], &after);

    assert_int_equal(after.size_bytes, before.size_bytes);
    assert_int_equal(f->jobs[0].job.flushed, 30);
    assert_int_equal(f->wal.flushed[0].offset, 30);
    assert_int_equal(f->wal.trims, 1);
}

static void flusher__takes_two_jobs_of_one_log_in_two_rounds(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(flush(f, 0, 0, 10), ND_OK);
    f->plogs[1] = nd_plog_ref(f->plogs[0]);

    submit(f, 0, 10, 10);
    submit(f, 1, 20, 10);
    f->jobs[1].job.id = f->jobs[0].job.id;
    run(f, ND_OK);

    assert_int_equal(f->jobs[0].job.result, ND_OK);
    assert_int_equal(f->jobs[1].job.result, ND_OK);
    assert_int_equal(f->wal.checkpoints, 3);
    assert_int_equal(fixture_count(f->plogs[0], 0, 30, SIZE), 30);
}

static void flusher__looks_at_the_log_once_a_second(void **state)
{
    struct fixture *f = *state;
    run(f, ND_OK);
    uint32_t checks = f->wal.space_checks;

    run(f, ND_OK);
    sim_env_advance_ms(f->sim, 999);
    run(f, ND_OK);
    assert_int_equal(f->wal.space_checks, checks);
    f->wal.trimmable = true;
    sim_env_advance_ms(f->sim, 1);
    run(f, ND_OK);

    assert_int_equal(f->wal.space_checks, checks + 1);
    assert_int_equal(f->wal.checkpoints, 1);
    assert_int_equal(f->wal.flushed_count, 0);
    assert_int_equal(f->wal.trims, 1);
}

struct task {
    struct nd_flusher_task task;
    struct fixture *fixture;
};

static void task_run(struct nd_msg *msg, void *owner)
{
    struct task *task = ND_CONTAINER_OF(msg, struct task, task.msg);

    assert_ptr_equal(owner, task->fixture->flusher);
    task->fixture->tasks += 1;
}

static void removed(struct nd_msg *msg, void *owner)
{
    struct nd_remove_job *job = ND_CONTAINER_OF(msg, struct nd_remove_job, reply);

    assert_int_equal(job->result, ND_OK);
    ((struct fixture *)owner)->tasks += 1;
}

static void flusher__runs_tasks_and_removes_directories_gently(void **state)
{
    struct fixture *f = *state;
    struct task task = {.task.msg.run = task_run, .fixture = f};
    struct nd_remove_job job = {.reply.run = removed, .reply_to = &f->inbox, .path = "data/topics"};
    struct nd_file_stat stat;
    bool left = true;
    for (uint64_t base = 0; base < 2000; base += 200) {
        assert_int_equal(flush(f, 0, base, 200), ND_OK);
    }
    uint64_t used = sim_env_space_used(f->sim);
    nd_flusher_run(f->flusher, &task.task);
    run(f, ND_OK);
    assert_int_equal(f->tasks, 1);

    nd_flusher_remove(f->flusher, &job);
    (void)nd_flusher_step(f->flusher);
    assert_int_equal(nd_inbox_run(&f->inbox, f), 1);
    assert_int_equal(f->tasks, 2);
    assert_int_equal(f->env->stat(f->env->impl, "data/topics", &stat, NULL), ND_ERR_NOT_FOUND);
    nd_plog_unref(f->plogs[0]);
    f->plogs[0] = NULL;
    nd_flusher_free(f->flusher); /* a restart goes on with it */
    flusher_start(f);
    for (uint32_t i = 0; i < 1000 && left; i++) {
        (void)nd_flusher_step(f->flusher);
        sim_env_advance_ms(f->sim, 20);
        left = sim_env_space_used(f->sim) * 10 > used;
    }
    assert_false(left);
}

static void flusher__removes_a_directory_only_when_nothing_is_in_it(void **state)
{
    struct fixture *f = *state;
    struct nd_file_stat stat;

    assert_int_equal(flush(f, 0, 0, 10), ND_OK);
    assert_int_equal(nd_env_mkdirs(f->env, "data/topics/none", NULL), ND_OK);
    nd_flusher_remove_empty(f->flusher, "data/topics/none");
    nd_flusher_remove_empty(f->flusher, "data/topics");
    nd_flusher_remove_empty(f->flusher, "data/topics/never-there");
    run(f, ND_OK);
    assert_int_equal(f->env->stat(f->env->impl, "data/topics/none", &stat, NULL), ND_ERR_NOT_FOUND);
    assert_int_equal(f->env->stat(f->env->impl, "data/topics", &stat, NULL), ND_OK);
    assert_int_equal(fixture_count(f->plogs[0], 0, 10, SIZE), 10);
}

static void flusher__survives_the_failure_of_any_call_of_a_round(void **state)
{
    bool fired = true;
    (void)state;

    for (uint64_t nth = 1; fired; nth++) {
        void *inner;
        setup(&inner);
        struct fixture *f = inner;
        assert_int_equal(flush(f, 0, 0, 10), ND_OK);
        sim_env_fail_nth(f->sim, SIM_ANY, nth, SIM_FAULT_IO);
        submit(f, 0, 10, 40);
        submit(f, 1, 0, 40);
        run(f, ND_OK);
        fired = sim_env_fault_fired(f->sim);
        sim_env_fail_clear(f->sim);
        for (uint32_t i = 0; i < 2; i++) {
            assert_true(f->jobs[i].back);
            assert_true(fired || f->jobs[i].job.result == ND_OK);
        }
        assert_int_equal(flush(f, 0, 10, 40), ND_OK);
        assert_int_equal(flush(f, 1, 0, 40), ND_OK);
        assert_int_equal(fixture_count(f->plogs[0], 0, 50, SIZE), 50);
        assert_int_equal(fixture_count(f->plogs[1], 0, 40, SIZE), 40);
        teardown(&inner);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(flusher__flushes_checkpoints_trims_and_replies),
        CASE(flusher__syncs_few_files_one_by_one_and_many_at_once),
        CASE(flusher__opens_many_logs_with_few_syncs),
        CASE(flusher__keeps_few_files_open),
        CASE(flusher__keeps_many_logs_through_a_power_cut_at_every_change),
        CASE(flusher__fails_only_the_file_that_failed),
        CASE(flusher__postpones_on_a_full_disk),
        CASE(flusher__tells_unflushable_and_heals),
        CASE(flusher__says_unknown_outcome_and_repeats_without_copies),
        CASE(flusher__takes_two_jobs_of_one_log_in_two_rounds),
        CASE(flusher__looks_at_the_log_once_a_second),
        CASE(flusher__runs_tasks_and_removes_directories_gently),
        CASE(flusher__removes_a_directory_only_when_nothing_is_in_it),
        CASE(flusher__survives_the_failure_of_any_call_of_a_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
