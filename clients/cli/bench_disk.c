/* disk: write and fdatasync in a directory, over blocks that are already allocated, as the WAL
 * does. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "clients/cli/bench.h"

enum { FILE_BYTES = 64 << 20 };

static bool file_fill(int file, const uint8_t *bytes, size_t size)
{
    for (uint64_t at = 0; at + size <= FILE_BYTES; at += size) {
        if (pwrite(file, bytes, size, (off_t)at) != (ssize_t)size) {
            return false;
        }
    }
    return fsync(file) == 0;
}

static int disk_loop(struct bench *bench, int file, const uint8_t *bytes, size_t size)
{
    uint64_t at = 0;

    bench->started_ns = cli_now_ns();
    bench->stop_ns = bench->started_ns + bench->seconds_ms * 1000000u;
    while (bench->ended_ns < bench->stop_ns) {
        uint64_t before = cli_now_ns();
        if (pwrite(file, bytes, size, (off_t)at) != (ssize_t)size || fdatasync(file) != 0) {
            return cli_fail("%s: %s", bench->dir, strerror(errno));
        }
        bench->ended_ns = cli_now_ns();
        bench_hist_add(&bench->hist, bench->ended_ns - before);
        bench->messages += 1;
        at = at + 2 * size <= FILE_BYTES ? at + size : 0;
    }
    return CLI_OK;
}

int bench_disk(struct bench *bench)
{
    char path[4096];
    size_t size = (bench->payload_bytes + 4095u) / 4096u * 4096u;

    if (snprintf(path, sizeof path, "%s/narad-bench-XXXXXX", bench->dir) >= (int)sizeof path) {
        return cli_fail("--dir is too long");
    }
    int file = mkstemp(path);
    if (file < 0) {
        return cli_fail("%s: %s", path, strerror(errno));
    }
    unlink(path);
    uint8_t *bytes = nd_xaligned(4096, size);
    memset(bytes, 0x5a, size);
    int result = file_fill(file, bytes, size) ? disk_loop(bench, file, bytes, size)
                                              : cli_fail("%s: %s", bench->dir, strerror(errno));
    bench->payload_bytes = (uint32_t)size;
    nd_free(bytes);
    close(file);
    return result;
}
