/* How fast tails become verified segments: rounds of 1 and 8 MiB of records with payloads of 256
 * bytes of JSON-like text, written, synced and read back, per codec; then read again from the page
 * cache. Prints MB of records a second.
 *
 *   bench_flush [MiB per case, 256] [directory, a temporary one] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"

#include "storage/plog.h"
#include "tests/support/temp_dir.h"

enum { PAYLOAD = 256, ROUND_BYTES = 1 << 20, RUNS = 8 };

struct bench {
    const struct nd_env *env;
    const char *dir;
    uint64_t bytes; /* of records, per case */
    struct nd_tail_run runs[RUNS];
    uint32_t run_count; /* records a run */
};

static struct nd_tail_run run_make(uint32_t count, uint32_t seed)
{
    struct nd_block *block = nd_block_new(count * nd_record_size(0, 0, PAYLOAD));
    uint64_t noise = seed * 0x9e3779b97f4a7c15u + 1;
    size_t size = 0;

    for (uint32_t i = 0; i < count; i++) {
        char text[PAYLOAD + 1];
        int used = 0;
        while (used < PAYLOAD) {
            noise = noise * 6364136223846793005u + 1442695040888963407u;
            int put = snprintf(text + used, sizeof text - (size_t)used,
                               "{\"order\":%u,\"customer\":\"c%05u\",\"total\":%u.%02u},",
                               (unsigned)(noise >> 40), (unsigned)(noise >> 20) % 100000,
                               (unsigned)(noise >> 50), (unsigned)(noise >> 33) % 100);
            used += put;
        }
        size_t put = nd_record_put(block->bytes + size, nd_slice_make(NULL, 0), NULL, 0,
                                   nd_slice_make(text, PAYLOAD));
        nd_run_set_time(block->bytes + size, put, INT64_C(1800000000000) + i);
        size += put;
    }
    return (struct nd_tail_run){.block = block, .records = {block->bytes, size}, .count = count};
}

/* Does not come back from an error: figures without their work would mislead. */
static void must(enum nd_err err, const char *what, const struct nd_errmsg *msg)
{
    if (err != ND_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, nd_err_text(err), msg->text);
        exit(1);
    }
}

/* One round: `count` runs written, synced, read back. Returns the bytes of their records. */
static uint64_t round_run(const struct bench *b, struct nd_plog *plog, uint64_t base,
                          uint32_t count)
{
    struct nd_errmsg msg = {{0}};
    struct nd_tail_run runs[RUNS];
    uint64_t bytes = 0, end;

    for (uint32_t i = 0; i < count; i++) {
        runs[i] = b->runs[i];
        runs[i].base_offset = base + (uint64_t)i * b->run_count;
        bytes += runs[i].records.size;
    }
    must(nd_plog_write(plog, runs, count, &msg), "write", &msg);
    int file = nd_plog_pending_file(plog);
    nd_plog_synced(plog, b->env->sync(b->env->impl, file, &msg), false);
    must(nd_plog_verify(plog, &end, &msg), "verify", &msg);
    return bytes;
}

static void case_run(const struct bench *b, const char *name, enum nd_codec codec,
                     uint32_t round_runs)
{
    struct nd_plog_options options = {
        .env = b->env,
        .segment_bytes = 64 << 20,
        .frame_bytes = 256 << 10,
        .index_stride_bytes = 32 << 10,
        .codec = codec,
        .level = ND_LEVEL_FASTEST,
        .scratch = nd_plog_scratch_new(),
    };
    struct nd_errmsg msg = {{0}};
    struct nd_plog_stats stats;
    struct nd_plog *plog;
    char *dir = nd_xasprintf("%s/%s-%u", b->dir, name, (unsigned)round_runs);
    uint64_t bytes = 0;

    must(nd_plog_open(&plog, &options, dir, 0, UINT64_MAX, &msg), "open", &msg);
    uint64_t from_ns = b->env->mono_ns(b->env->impl);
    for (uint64_t base = 0; bytes < b->bytes; base += (uint64_t)round_runs * b->run_count) {
        bytes += round_run(b, plog, base, round_runs);
    }
    double seconds = (double)(b->env->mono_ns(b->env->impl) - from_ns) / 1e9;
    nd_plog_stats(plog, &stats);
    printf(
        "%-5s rounds of %u MiB: write+sync+read back %7.1f MB/s of records, %5.1f on the device\n",
        name, (unsigned)round_runs, (double)bytes / 1e6 / seconds,
        (double)stats.size_bytes / 1e6 / seconds);

    struct nd_frame_data frame;
    uint64_t next;
    from_ns = b->env->mono_ns(b->env->impl);
    for (uint64_t offset = 0; offset < stats.end_offset; offset = frame.base_offset + frame.count) {
        must(nd_plog_read(plog, offset, &frame, &next, &msg), "read", &msg);
        nd_block_unref(frame.block);
    }
    seconds = (double)(b->env->mono_ns(b->env->impl) - from_ns) / 1e9;
    printf("%-5s read again, decode, check           %7.1f MB/s of records\n", name,
           (double)bytes / 1e6 / seconds);
    nd_plog_unref(plog);
    nd_plog_scratch_free(options.scratch);
    nd_free(dir);
}

int main(int argc, char **argv)
{
    char *temporary = argc > 2 ? NULL : temp_dir_new();
    struct bench b = {
        .env = nd_env_posix(),
        .dir = argc > 2 ? argv[2] : temporary,
        .bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 256) << 20,
        .run_count = ROUND_BYTES / (PAYLOAD + ND_RECORD_HEADER_SIZE),
    };

    for (uint32_t i = 0; i < RUNS; i++) {
        b.runs[i] = run_make(b.run_count, i + 1);
    }
    for (uint32_t round_runs = 1; round_runs <= RUNS; round_runs *= RUNS) {
        case_run(&b, "none", ND_CODEC_NONE, round_runs);
        case_run(&b, "zstd", ND_CODEC_ZSTD, round_runs);
    }
    for (uint32_t i = 0; i < RUNS; i++) {
        nd_block_unref(b.runs[i].block);
    }
    if (temporary != NULL) {
        temp_dir_remove(temporary);
    }
    return 0;
}
