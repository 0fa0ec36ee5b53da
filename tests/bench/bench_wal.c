/* What the log costs on this disk (P6, W1), beside what the disk itself costs, in one run:
 *
 *   raw      overwrite 4 KiB of an allocated file and fdatasync, through the cache and past it
 *   step     a lone unit of one 256-byte record: stage, step, return, on one thread
 *   thread   the same through the log's own thread: two hand-overs more
 *   batch    units of 100 records of 256 bytes, 32 in flight: MB/s
 *   cpu      batches with syncs that cost nothing (the disk left out): ns a record
 *
 * usage: bench_wal [DIR] [ROUNDS]   (default: a temporary directory, 2000) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "storage/base/alloc.h"

#include "storage/wal.h"
#include "tests/support/temp_dir.h"

enum {
    BLOCK = 4096,
    RAW_BYTES = 64 << 20,
    RECORD_PAYLOAD = 256 - ND_RECORD_HEADER_SIZE,
    BATCH_RECORDS = 100,
    BATCHES_IN_FLIGHT = 32,
    CHECKPOINT_EVERY = 500,
};

static const struct nd_partition_id orders = {.incarnation = 7, .partition = 1, .topic = "orders"};

struct bench {
    const struct nd_env *env;
    struct nd_wal *wal;
    struct nd_inbox inbox;
    struct nd_wal_stager stager;
    struct nd_wal_unit units[BATCHES_IN_FLIGHT];
    struct nd_slice records;
    uint32_t records_count;
    uint64_t offset, returned, staged, staged_max;
    uint64_t *ns; /* of each round */
    int rounds;
};

static void die(const char *what, const struct nd_errmsg *msg)
{
    fprintf(stderr, "bench_wal: %s: %s\n", what, msg != NULL ? msg->text : "");
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static void report(struct bench *bench, const char *name)
{
    uint64_t sum = 0;

    qsort(bench->ns, (size_t)bench->rounds, sizeof *bench->ns, compare);
    for (int i = 0; i < bench->rounds; i++) {
        sum += bench->ns[i];
    }
    printf("%-22s p50 %7.1f us   p99 %7.1f us   mean %7.1f us\n", name,
           (double)bench->ns[bench->rounds / 2] / 1e3,
           (double)bench->ns[bench->rounds * 99 / 100] / 1e3, (double)sum / bench->rounds / 1e3);
}

static void raw_run(struct bench *bench, const char *dir, int flags, const char *name)
{
    char *path = nd_xasprintf("%s/raw", dir);
    uint8_t *block = nd_xaligned(BLOCK, BLOCK);
    const struct nd_env *env = bench->env;
    struct nd_errmsg msg = {{0}};
    int file;

    memset(block, 7, BLOCK);
    if (env->open(env->impl, path, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, &msg) != ND_OK ||
        env->zero_fill(env->impl, file, 0, RAW_BYTES, &msg) != ND_OK ||
        env->sync(env->impl, file, &msg) != ND_OK) {
        die("raw", &msg);
    }
    env->close(env->impl, file);
    if (env->open(env->impl, path, ND_OPEN_WRITE | flags, &file, &msg) != ND_OK) {
        die("raw", &msg);
    }
    for (int i = 0; i < bench->rounds; i++) {
        uint64_t at = (uint64_t)i * BLOCK % RAW_BYTES, began = now_ns();
        if (env->pwrite(env->impl, file, block, BLOCK, at, &msg) != ND_OK ||
            env->sync(env->impl, file, &msg) != ND_OK) {
            die("raw", &msg);
        }
        bench->ns[i] = now_ns() - began;
    }
    env->close(env->impl, file);
    nd_free(block);
    nd_ignore(env->unlink(env->impl, path, NULL), "the directory goes too");
    nd_free(path);
    report(bench, name);
}

static void unit_stage(struct bench *bench, struct nd_wal_unit *unit)
{
    nd_wal_unit_reset(unit);
    nd_wal_unit_add_commit(unit, &(struct nd_wal_commit){.id = &orders,
                                                         .base_offset = bench->offset,
                                                         .count = bench->records_count,
                                                         .records = bench->records});
    bench->offset += bench->records_count;
    if (bench->staged % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1) {
        /* As after a flush: nothing older is needed. */
        nd_wal_stager_needs(bench->wal, &bench->stager, UINT64_MAX);
        nd_wal_unit_add_checkpoint(unit, &(struct nd_wal_checkpoint){0});
    }
    enum nd_err err = nd_wal_stage(bench->wal, &bench->stager, unit);
    if (err != ND_OK) {
        die(nd_err_name(err), NULL);
    }
    bench->staged += 1;
}

static void unit_back(struct nd_msg *msg, void *owner)
{
    struct nd_wal_unit *unit = ND_CONTAINER_OF(msg, struct nd_wal_unit, msg);
    struct bench *bench = owner;

    if (unit->result != ND_OK) {
        die(nd_err_name(unit->result), NULL);
    }
    bench->returned += 1;
    if (bench->staged < bench->staged_max) {
        unit_stage(bench, unit);
    }
}

static void failed(struct nd_msg *msg, void *owner)
{
    (void)msg;
    (void)owner;
    die("the log failed", NULL);
}

static void records_make(struct bench *bench, uint32_t count)
{
    uint8_t payload[RECORD_PAYLOAD], *records = nd_xmalloc((size_t)count * 256);
    size_t size = 0;

    for (size_t i = 0; i < sizeof payload; i++) {
        payload[i] = (uint8_t)(i * 37);
    }
    for (uint32_t i = 0; i < count; i++) {
        size += nd_record_put(records + size, (struct nd_slice){0}, NULL, 0,
                              nd_slice_make(payload, sizeof payload));
    }
    nd_free((uint8_t *)(uintptr_t)bench->records.data); /* our own */
    bench->records = nd_slice_make(records, size);
    bench->records_count = count;
}

static void lone_run(struct bench *bench, bool threaded, const char *name)
{
    records_make(bench, 1);
    bench->staged_max = 0;
    if (threaded && !nd_wal_thread_start(bench->wal)) {
        die("thread", NULL);
    }
    for (int i = 0; i < bench->rounds; i++) {
        uint64_t began = now_ns();
        unit_stage(bench, &bench->units[0]);
        if (threaded) {
            while (nd_inbox_empty(&bench->inbox)) {
                nd_inbox_wait(&bench->inbox, UINT64_MAX);
            }
        } else {
            nd_wal_step(bench->wal);
        }
        nd_inbox_run(&bench->inbox, bench);
        bench->ns[i] = now_ns() - began;
    }
    if (threaded) {
        nd_wal_thread_stop(bench->wal);
    }
    report(bench, name);
}

static void batch_run(struct bench *bench, int batches, bool threaded, const char *name)
{
    struct nd_wal_stats before, after;
    uint64_t trim_at = CHECKPOINT_EVERY;

    records_make(bench, BATCH_RECORDS);
    bench->returned = bench->staged = 0;
    bench->staged_max = (uint64_t)batches;
    nd_wal_stats(bench->wal, &before);
    uint64_t began = now_ns();
    if (threaded && !nd_wal_thread_start(bench->wal)) {
        die("thread", NULL);
    }
    for (int i = 0; i < BATCHES_IN_FLIGHT; i++) {
        unit_stage(bench, &bench->units[i]);
    }
    while (bench->returned < bench->staged_max) {
        if (threaded) {
            nd_inbox_wait(&bench->inbox, UINT64_MAX);
        } else {
            nd_wal_step(bench->wal);
        }
        nd_inbox_run(&bench->inbox, bench);
        if (bench->returned >= trim_at) { /* the flusher's part */
            nd_wal_trim(bench->wal);
            trim_at += CHECKPOINT_EVERY;
        }
    }
    uint64_t took = now_ns() - began;
    if (threaded) {
        nd_wal_thread_stop(bench->wal);
    }
    nd_wal_stats(bench->wal, &after);
    double records = (double)batches * BATCH_RECORDS;
    printf("%-22s %7.1f MB/s   %9.0f records/s   %6.1f ns a record   %.1f batches a sync\n", name,
           records * 256 / 1e6 / ((double)took / 1e9), records / ((double)took / 1e9),
           (double)took / records, (double)batches / (double)(after.syncs - before.syncs));
}

static enum nd_err no_replay(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    (void)arg;
    (void)entry;
    (void)msg;
    return ND_OK;
}

static void wal_start(struct bench *bench, const struct nd_env *env, const char *dir)
{
    struct nd_wal_options options = {.env = env,
                                     .dir = dir,
                                     .member = 1,
                                     .file_bytes = 64 << 20,
                                     .frame_bytes_max = 20 << 20,
                                     .staged_bytes_max = 72 << 20,
                                     .keep_bytes = 128 << 20,
                                     .disk_reserve_bytes = 64 << 20,
                                     .spares = 2};
    struct nd_errmsg msg = {{0}};

    if (nd_wal_open(&bench->wal, &options, no_replay, NULL, &msg) != ND_OK) {
        die("open", &msg);
    }
    bench->stager.inbox = &bench->inbox;
    bench->stager.failed.run = failed;
    nd_wal_stager_add(bench->wal, &bench->stager);
}

static void wal_stop(struct bench *bench)
{
    nd_wal_stager_remove(bench->wal, &bench->stager);
    nd_wal_close(bench->wal);
}

/* A disk that costs nothing: what is left is the log's own work. */
static enum nd_err free_sync(void *impl, int file, struct nd_errmsg *msg)
{
    (void)impl;
    (void)file;
    (void)msg;
    return ND_OK;
}

static enum nd_err free_write(void *impl, int file, const void *data, size_t size, uint64_t at,
                              struct nd_errmsg *msg)
{
    (void)impl;
    (void)file;
    (void)data;
    (void)size;
    (void)at;
    (void)msg;
    return ND_OK;
}

enum { ROUNDS_MIN = 100 };

int main(int argc, char **argv)
{
    struct bench *bench = nd_xcalloc(1, sizeof *bench);
    char *own = argc > 1 ? NULL : temp_dir_new();
    const char *dir = argc > 1 ? argv[1] : own;
    struct nd_env quiet = *nd_env_posix();

    bench->env = nd_env_posix();
    bench->rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 2000;
    bench->rounds = ND_MAX(bench->rounds, (int)ROUNDS_MIN);
    bench->ns = nd_xcalloc((size_t)bench->rounds, sizeof *bench->ns);
    nd_inbox_init(&bench->inbox);
    for (int i = 0; i < BATCHES_IN_FLIGHT; i++) {
        nd_wal_unit_init(&bench->units[i], ND_WAL_PRODUCE);
        bench->units[i].msg.run = unit_back;
    }
    char *wal_dir = nd_xasprintf("%s/wal", dir);
    wal_start(bench, bench->env, wal_dir);
    for (int round = 0; round < 2; round++) {
        raw_run(bench, dir, 0, "raw, cached");
        raw_run(bench, dir, ND_OPEN_DIRECT, "raw, direct");
        lone_run(bench, false, "lone unit, step");
        lone_run(bench, true, "lone unit, thread");
    }
    batch_run(bench, bench->rounds * 2, false, "batches, step");
    batch_run(bench, bench->rounds * 2, true, "batches, thread");
    wal_stop(bench);
    quiet.sync = free_sync;
    quiet.pwrite = free_write;
    wal_start(bench, &quiet, wal_dir);
    batch_run(bench, bench->rounds * 20, false, "batches, cpu only");
    wal_stop(bench);
    for (int i = 0; i < BATCHES_IN_FLIGHT; i++) {
        nd_wal_unit_release(&bench->units[i]);
    }
    nd_free((uint8_t *)(uintptr_t)bench->records.data);
    nd_free(wal_dir);
    nd_free(bench->ns);
    nd_inbox_release(&bench->inbox);
    nd_free(bench);
    if (own != NULL) {
        temp_dir_remove(own);
    }
    return 0;
}
