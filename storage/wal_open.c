/* Opening the log: look at what is there, replay what counts, start a new file (W3, W4, W8). */
#include "storage/base/alloc.h"

#include "storage/wal_private.h"
#include "storage/wal_scan.h"

enum {
    FILE_BYTES_MIN = 256 << 10,
    FILE_BLOCKS_KEPT = 2, /* the header and the block for an empty frame */
    SEQUENCE_STEP_BITS = 40,
};

static const double sync_buckets[] = {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
                                      0.01,   0.02,   0.05,   0.1,   0.5,   1};

static void metrics_make(struct nd_wal *wal)
{
    struct nd_metrics *m = wal->options.metrics;

    wal->metric_groups = nd_metrics_counter(m, "wal_groups_total", "", "Groups made durable");
    wal->metric_syncs = nd_metrics_counter(m, "wal_syncs_total", "", "Syncs that returned");
    wal->metric_bytes =
        nd_metrics_counter(m, "wal_written_bytes_total", "", "Bytes written to the log");
    wal->metric_failures =
        nd_metrics_counter(m, "wal_failures_total", "", "Failed writes and syncs of the log");
    wal->metric_failed = nd_metrics_gauge(m, "ingress_wal_failed", "",
                                          "1 between a failure of the log and its fresh file");
    wal->metric_disk_full =
        nd_metrics_gauge(m, "disk_full", "", "1 while produce is refused for lack of room");
    wal->metric_bytes_free =
        nd_metrics_gauge(m, "data_dir_available_bytes", "",
                         "Free bytes of the log's file system, measured every second");
    wal->metric_sync_seconds =
        nd_metrics_histogram(m, "wal_sync_seconds", "", "Time of a sync of the log", sync_buckets,
                             ND_ARRAY_SIZE(sync_buckets));
}

struct nd_wal *nd_wal_new(const struct nd_wal_options *options)
{
    struct nd_wal *wal = nd_xcalloc(1, sizeof *wal);
    uint64_t frames_room = options->file_bytes - FILE_BLOCKS_KEPT * ND_WAL_BLOCK;

    ND_ASSERT(options->file_bytes >= FILE_BYTES_MIN && options->file_bytes % ND_WAL_BLOCK == 0);
    wal->options = *options;
    wal->options.dir = nd_xstrdup(options->dir);
    wal->env = options->env;
    wal->options.frame_bytes_max = (uint32_t)ND_MIN(
        frames_room, (uint64_t)options->frame_bytes_max / ND_WAL_BLOCK * ND_WAL_BLOCK);
    ND_ASSERT(wal->options.frame_bytes_max >= ND_WAL_BLOCK);
    wal->unit_bytes_max = wal->options.frame_bytes_max - ND_WAL_FRAME_HEADER_SIZE;
    wal->frame = nd_xaligned(ND_WAL_BLOCK, wal->options.frame_bytes_max);
    wal->env->random(wal->env->impl, &wal->writer, sizeof wal->writer);
    nd_mutex_init(&wal->lock);
    nd_bell_init(&wal->bell);
    nd_list_init(&wal->staged);
    nd_list_init(&wal->stagers);
    wal->left_needed_from = UINT64_MAX;
    nd_list_init(&wal->files);
    nd_list_init(&wal->spares);
    wal->bytes_free = wal->inodes_free = UINT64_MAX; /* not measured yet */
    wal->spare_next = 1;
    wal->entries_ns = wal->group_ns = wal->env->mono_ns(wal->env->impl);
    metrics_make(wal);
    return wal;
}

void nd_wal_free(struct nd_wal *wal)
{
    for (struct nd_list *link; (link = nd_list_pop(&wal->files)) != NULL;) {
        nd_free(ND_CONTAINER_OF(link, struct nd_wal_file, link));
    }
    for (struct nd_list *link; (link = nd_list_pop(&wal->spares)) != NULL;) {
        nd_free(ND_CONTAINER_OF(link, struct nd_wal_spare, link));
    }
    ND_ASSERT(nd_list_empty(&wal->staged));
    nd_mutex_release(&wal->lock);
    nd_free(wal->frame);
    nd_free((char *)(uintptr_t)wal->options.dir); /* our own copy */
    nd_free(wal);
}

/* Adopt spares of the right size, remove others. */
static enum nd_err spares_adopt(struct nd_wal *wal, const struct nd_wal_names *names,
                                struct nd_errmsg *msg)
{
    const struct nd_env *env = wal->env;

    for (size_t i = 0; i < names->spares_count; i++) {
        char path[ND_WAL_PATH_SIZE];
        struct nd_file_stat stat;
        nd_wal_spare_path(path, wal->options.dir, names->spares[i]);
        enum nd_err err = env->stat(env->impl, path, &stat, msg);
        if (err == ND_OK && stat.size == wal->options.file_bytes &&
            wal->spares_count < wal->options.spares + wal->options.spares_extra) {
            nd_wal_spare_add(wal, names->spares[i]);
        } else if (err == ND_OK) {
            err = env->unlink(env->impl, path, msg);
        }
        if (err != ND_OK) {
            return err;
        }
        wal->spare_next = ND_MAX(wal->spare_next, names->spares[i] + 1);
    }
    return ND_OK;
}

/* A file that the log no longer needs becomes a spare, durably, before its header is overwritten.
 */
static enum nd_err file_to_spare(struct nd_wal *wal, uint64_t first_sequence, uint64_t bytes,
                                 struct nd_errmsg *msg)
{
    char path[ND_WAL_PATH_SIZE], spare[ND_WAL_PATH_SIZE];
    const struct nd_env *env = wal->env;
    bool recycle = bytes == wal->options.file_bytes && wal->spares_count < wal->options.spares;
    uint64_t number = wal->spare_next++;

    nd_wal_file_path(path, wal->options.dir, first_sequence);
    nd_wal_spare_path(spare, wal->options.dir, number);
    enum nd_err err =
        recycle ? env->rename(env->impl, path, spare, msg) : env->unlink(env->impl, path, msg);
    if (err == ND_OK) {
        err = env->sync_dir(env->impl, wal->options.dir, msg);
    }
    if (err == ND_OK && recycle) {
        nd_wal_spare_add(wal, number);
    }
    return err;
}

/* Files whose name and header disagree are no part of the log. */
static enum nd_err strangers_recycle(struct nd_wal *wal, const struct nd_wal_scan *scan,
                                     struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;

    for (size_t i = 0; i < scan->count && err == ND_OK; i++) {
        if (scan->files[i].spare) {
            err = file_to_spare(wal, scan->files[i].first_sequence, scan->files[i].size, msg);
        }
    }
    return err;
}

/* Files that hold a frame, and those that were not looked at, stay; the others are of use again.
 * They may go only after the new file is durable: it says what they said about the older ones (W5).
 */
static enum nd_err frameless_recycle(struct nd_wal *wal, const struct nd_wal_scan *scan,
                                     struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;

    for (size_t i = 0; i < scan->count && err == ND_OK; i++) {
        const struct nd_wal_found *found = &scan->files[i];
        if (!found->spare && !found->ignored && found->last_sequence < found->first_sequence) {
            err = file_to_spare(wal, found->first_sequence, found->size, msg);
        }
    }
    return err;
}

/* Its size; 0, that of no spare, if it cannot be told. */
static uint64_t size_of(const struct nd_wal *wal, uint64_t first_sequence)
{
    char path[ND_WAL_PATH_SIZE];
    struct nd_file_stat stat;

    nd_wal_file_path(path, wal->options.dir, first_sequence);
    return wal->env->stat(wal->env->impl, path, &stat, NULL) == ND_OK ? stat.size : 0;
}

static void files_adopt(struct nd_wal *wal, const struct nd_wal_scan *scan)
{
    for (size_t i = 0; i < scan->count; i++) {
        const struct nd_wal_found *found = &scan->files[i];
        if (found->ignored) { /* perhaps of a start that made files of another size */
            nd_wal_file_add(wal, found->first_sequence, size_of(wal, found->first_sequence), 0);
        } else if (!found->spare && found->last_sequence >= found->first_sequence) {
            nd_wal_file_add(wal, found->first_sequence, found->size, found->end);
        }
    }
}

/* The first sequence of this open: the next multiple of 2^40 above all that any file names, so that
 * what a lost or cut end had handed out is never handed out again. */
static uint64_t first_of_open(const struct nd_wal_scan *scan)
{
    uint64_t above = scan->last_sequence;

    for (size_t i = 0; i < scan->count; i++) {
        above = scan->files[i].spare ? above : ND_MAX(above, scan->files[i].first_sequence);
    }
    return ((above >> SEQUENCE_STEP_BITS) + 1) << SEQUENCE_STEP_BITS;
}

static enum nd_err wal_begin(struct nd_wal *wal, const struct nd_wal_scan *scan,
                             const struct nd_wal_names *names, struct nd_errmsg *msg)
{
    uint64_t first = first_of_open(scan);

    wal->sequence_synced = scan->last_sequence;
    wal->sequence_next = first;
    wal->replay_from = scan->replay_from;
    enum nd_err err = spares_adopt(wal, names, msg);
    if (err != ND_OK) {
        return err;
    }
    err = strangers_recycle(wal, scan, msg);
    if (err != ND_OK) {
        return err;
    }
    files_adopt(wal, scan);
    err = nd_wal_start_file(wal, first, msg);
    if (err != ND_OK) {
        return err;
    }
    err = frameless_recycle(wal, scan, msg);
    if (err != ND_OK) {
        return err;
    }
    nd_wal_check_space(wal); /* fills the spares; a full disk refuses produce, not the start */
    return ND_OK;
}

static enum nd_err names_judge(const struct nd_wal_options *options,
                               const struct nd_wal_names *names, struct nd_errmsg *msg)
{
    if (names->files_count == 0 && options->must_exist) {
        nd_errmsg_set(msg, "%s: no log file, though this store had one", options->dir);
        return ND_ERR_CORRUPT;
    }
    return ND_OK;
}

enum nd_err nd_wal_open(struct nd_wal **out, const struct nd_wal_options *options,
                        enum nd_err (*replay)(void *arg, const struct nd_wal_entry *entry,
                                              struct nd_errmsg *msg),
                        void *arg, struct nd_errmsg *msg)
{
    struct nd_wal_names names;
    struct nd_wal_scan scan = {.preview = options->preview, .preview_arg = arg};
    enum nd_err err = nd_env_mkdirs(options->env, options->dir, msg);

    if (err != ND_OK) {
        goto fail;
    }
    err = nd_wal_names_read(&names, options->env, options->dir, msg);
    if (err != ND_OK) {
        goto fail;
    }
    err = names_judge(options, &names, msg);
    if (err != ND_OK) {
        goto fail_names;
    }
    err = nd_wal_scan_read(&scan, options->env, options->dir, &names, options->store_id, true, msg);
    if (err != ND_OK) {
        goto fail_names;
    }
    if (options->preview != NULL) {
        options->preview(arg, NULL);
    }
    err = nd_wal_scan_replay(&scan, options->env, options->dir, replay, arg, msg);
    if (err != ND_OK) {
        goto fail_scan;
    }
    struct nd_wal *wal = nd_wal_new(options);
    err = wal_begin(wal, &scan, &names, msg);
    if (err != ND_OK) {
        goto fail_wal;
    }
    nd_wal_scan_release(&scan);
    nd_wal_names_release(&names);
    *out = wal;
    return ND_OK;

fail_wal:
    if (wal->active.open) {
        wal->env->close(wal->env->impl, wal->active.file);
    }
    nd_wal_free(wal);
fail_scan:
    nd_wal_scan_release(&scan);
fail_names:
    nd_wal_names_release(&names);
fail:
    nd_errmsg_wrap(msg, "open write-ahead log");
    return err;
}
