#include "storage/relieve.h"

#include <inttypes.h>
#include <stdlib.h>

#include "storage/base/alloc.h"

#include "storage/layout.h"

enum { LOGS_MAX = 16, PATH_SIZE = 1024 };

/* The logs that were written last stay open: a busy partition comes again and again. */
struct open_log {
    const struct nd_recovered_partition *of; /* NULL: free */
    struct nd_plog *plog;                    /* our reference */
};

struct nd_relief {
    struct nd_plog_options options;
    char *data_dir;
    struct open_log logs[LOGS_MAX];
    uint32_t log_next; /* to be replaced */
};

struct nd_relief *nd_relief_new(const struct nd_plog_options *options, const char *data_dir)
{
    struct nd_relief *relief = nd_xcalloc(1, sizeof *relief);

    relief->options = *options;
    relief->options.scratch = nd_plog_scratch_new();
    relief->data_dir = nd_xstrdup(data_dir);
    return relief;
}

void nd_relief_free(struct nd_relief *relief)
{
    if (relief == NULL) {
        return;
    }
    for (uint32_t i = 0; i < LOGS_MAX; i++) {
        nd_plog_unref(relief->logs[i].plog);
    }
    nd_plog_scratch_free(relief->options.scratch);
    nd_free(relief->data_dir);
    nd_free(relief);
}

static bool any_segment(void *arg, const char *name, enum nd_file_kind kind)
{
    size_t size = strlen(name);
    bool *found = arg;

    *found = kind == ND_FILE_REGULAR && size > 4 && strcmp(name + size - 4, ".log") == 0;
    return !*found;
}

/* NOT_FOUND: no positions were met yet, and there is no log. */
static enum nd_err log_open(const struct nd_relief *relief,
                            const struct nd_recovered_partition *partition, struct nd_plog **out,
                            struct nd_errmsg *msg)
{
    const struct nd_positions *positions = &partition->positions;
    const struct nd_env *env = relief->options.env;
    uint64_t first = partition->runs[0].base_offset;
    uint64_t flushed = partition->grounded ? positions->flushed_offset : 0;
    char dir[PATH_SIZE];

    nd_layout_partition_dir(dir, sizeof dir, relief->data_dir, &positions->id);
    if (!partition->grounded) {
        /* Perhaps an incarnation that was deleted: no directory is made for it. */
        bool found = false;
        enum nd_err err = env->list(env->impl, dir, any_segment, &found, msg);
        if (err != ND_OK || !found) {
            return err != ND_OK ? err : ND_ERR_NOT_FOUND;
        }
    }
    struct nd_plog_options options = relief->options;
    options.start_known = partition->grounded;
    options.log_start = positions->log_start;
    return nd_plog_open(out, &options, dir, flushed, first, msg);
}

static enum nd_err log_of(struct nd_relief *relief, const struct nd_recovered_partition *partition,
                          struct nd_plog **out, struct nd_errmsg *msg)
{
    for (uint32_t i = 0; i < LOGS_MAX; i++) {
        if (relief->logs[i].of == partition) {
            *out = relief->logs[i].plog;
            return ND_OK;
        }
    }
    enum nd_err err = log_open(relief, partition, out, msg);
    if (err == ND_OK) {
        struct open_log *slot = &relief->logs[relief->log_next];
        relief->log_next = (relief->log_next + 1) % LOGS_MAX;
        nd_plog_unref(slot->plog);
        *slot = (struct open_log){partition, *out};
    }
    return err;
}

/* How many runs follow one another from `end` on. */
static uint32_t runs_following(const struct nd_recovered_partition *partition, uint64_t end)
{
    uint32_t count = 0;

    while (count < partition->runs_count && partition->runs[count].base_offset <= end) {
        end = ND_MAX(end, partition->runs[count].base_offset + partition->runs[count].count);
        count += 1;
    }
    return count;
}

/* Write all it can, as a round of the flusher does (F2, F3). NOT_FOUND: nothing can be said yet. */
static enum nd_err partition_flush(struct nd_relief *relief, struct nd_recovery *recovery,
                                   struct nd_recovered_partition *partition, struct nd_errmsg *msg)
{
    const struct nd_env *env = relief->options.env;
    struct nd_plog_stats stats;
    struct nd_plog *plog;
    uint64_t end;
    enum nd_err err = log_of(relief, partition, &plog, msg);

    if (err != ND_OK) {
        return err;
    }
    nd_plog_stats(plog, &stats);
    uint32_t count = runs_following(partition, stats.end_offset);
    if (count == 0) {
        return ND_ERR_NOT_FOUND;
    }
    err = nd_plog_write(plog, partition->runs, count, msg);
    if (err == ND_OK) {
        int file = nd_plog_pending_file(plog);
        if (file != -1) {
            nd_plog_synced(plog, env->sync(env->impl, file, msg), false);
        }
        err = nd_plog_verify(plog, &end, msg);
    }
    nd_plog_stats(plog, &stats); /* also of what was done before a failure */
    nd_recovery_set_flushed(recovery, partition, stats.end_offset);
    return err;
}

static int fuller_first(const void *a, const void *b)
{
    const struct nd_recovered_partition *const *left = a, *const *right = b;

    return (*left)->runs_bytes > (*right)->runs_bytes   ? -1
           : (*left)->runs_bytes < (*right)->runs_bytes ? 1
                                                        : 0;
}

/* Those with something to flush, fullest first; nd_free. */
static struct nd_recovered_partition **by_size(struct nd_recovery *recovery, size_t *count_out)
{
    struct nd_recovered_partition **list = NULL;
    size_t count = 0, capacity = 0;

    ND_LIST_FOREACH (&recovery->partitions, link) {
        struct nd_recovered_partition *partition =
            ND_CONTAINER_OF(link, struct nd_recovered_partition, link);
        if (partition->runs_count == 0 || partition->relief_failed) {
            continue;
        }
        if (count == capacity) {
            capacity = ND_MAX(capacity * 2, (size_t)16);
            list = nd_xrealloc(list, capacity * sizeof(struct nd_recovered_partition *));
        }
        list[count++] = partition;
    }
    if (count > 1) {
        qsort(list, count, sizeof(struct nd_recovered_partition *), fuller_first);
    }
    *count_out = count;
    return list;
}

enum nd_err nd_relief_flush(void *arg, struct nd_recovery *recovery, struct nd_errmsg *msg)
{
    struct nd_relief *relief = arg;
    size_t before = recovery->tail_bytes, count;
    struct nd_recovered_partition **list = by_size(recovery, &count);

    (void)msg;
    for (size_t i = 0; i < count && recovery->tail_bytes > recovery->options.tail_bytes_max / 2;
         i++) {
        const struct nd_partition_id *id = &list[i]->positions.id;
        struct nd_errmsg why = {{0}};
        enum nd_err err = partition_flush(relief, recovery, list[i], &why);
        /* What waits for more of the replay may do so later; a failure is not tried again. */
        list[i]->relief_failed = err != ND_OK && err != ND_ERR_NOT_FOUND;
        if (list[i]->relief_failed) {
            nd_log(relief->options.log, ND_LOG_WARN, "recovery", "not flushed while replaying",
                   "topic=%s partition=%" PRIu32 " err=%s reason=\"%s\"", id->topic, id->partition,
                   nd_err_name(err), why.text);
        }
    }
    nd_free(list);
    nd_log(relief->options.log, ND_LOG_INFO, "recovery", "tails flushed while replaying",
           "bytes=%zu left=%zu", before - recovery->tail_bytes, recovery->tail_bytes);
    return ND_OK;
}
