/* Figures of the metastore on this machine: creates a second, start, memory, disk. Not a test.
 *   bench_metastore DIR [topics] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "tests/unit/cluster/files.h"
#include "tests/unit/cluster/meta.h"

static uint64_t now_us(void)
{
    const struct nd_env *env = nd_env_posix();
    return env->mono_ns(env->impl) / 1000;
}

static uint64_t resident_kib(void)
{
    uint64_t total = 0;
    uint64_t resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%" SCNu64 " %" SCNu64, &total, &resident) != 2) {
        resident = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

static void open_timed(struct meta *meta, const char *what)
{
    uint64_t start = now_us();
    meta_open(meta);
    printf("%-28s %8.1f ms   rss %" PRIu64 " KiB\n", what, (double)(now_us() - start) / 1000,
           resident_kib());
}

static void creates(struct meta *meta, const char *prefix, uint32_t count, uint32_t window)
{
    struct meta_gate gate;
    char name[64];
    uint64_t start = now_us();

    meta_gate_init(&gate);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s-%05u", prefix, i);
        meta_gate_create(meta, &gate, name, window);
    }
    meta_gate_wait(&gate, 0);
    double seconds = (double)(now_us() - start) / 1e6;
    printf("creates, %3u in flight        %8.0f /s   (%" PRIu64 " ok, %" PRIu64 " refused)\n",
           window, count / seconds, gate.ok, gate.refused);
    meta_gate_release(&gate);
}

static void lookups(struct meta *meta, const char *prefix, uint32_t count)
{
    char name[64];
    uint64_t start = now_us();

    for (uint32_t i = 0; i < 1000000; i++) {
        struct nd_topic *topic;
        snprintf(name, sizeof name, "%s-%05u", prefix, i * 7919u % count);
        enum nd_err err = nd_metastore_topic(meta->store, nd_slice_str(name), &topic);
        ND_ASSERT(err == ND_OK);
        nd_topic_unref(topic);
    }
    printf("lookup among %6" PRIu64 "         %8.0f ns  (with the printing of its name)\n",
           nd_metastore_topic_count(meta->store), (double)(now_us() - start) / 1000);
}

int main(int argc, char **argv)
{
    struct meta meta;
    uint32_t topics = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 10000;

    if (argc < 2) {
        fprintf(stderr, "usage: bench_metastore DIR [topics]\n");
        return 2;
    }
    meta_init(&meta, argv[1]);
    char *raft_dir = nd_xasprintf("%s/raft", meta.dir);
    open_timed(&meta, "first start");
    printf("disk, idle                   %8.1f MiB\n", (double)files_allocated(raft_dir) / 1048576);
    meta_close(&meta);
    open_timed(&meta, "start, empty");
    creates(&meta, "one", 1000, 1);
    creates(&meta, "many", topics, 64);
    lookups(&meta, "many", topics);
    printf("rss %" PRIu64 " KiB, disk %.1f MiB\n", resident_kib(),
           (double)files_allocated(raft_dir) / 1048576);
    uint64_t start = now_us();
    meta_close(&meta);
    printf("%-28s %8.1f ms\n", "stop", (double)(now_us() - start) / 1000);
    open_timed(&meta, "start, all topics");
    meta_close(&meta);
    nd_free(raft_dir);
    meta_release(&meta);
    return 0;
}
