/* Keeping the log small (W7) and the room for it (W6). */
#include "storage/base/alloc.h"

#include "storage/wal_private.h"

enum {
    SPACE_FILES = 2, /* files' worth of room that produce must leave */
    INODES_RESERVE = 16,
};

static const uint64_t idle_ns = 60ULL * 1000000000ULL;

static struct nd_wal_file *file_of(struct nd_list *link)
{
    return ND_CONTAINER_OF(link, struct nd_wal_file, link);
}

/* Where `file` certainly ends: at its successor's start. UINT64_MAX for the active one. */
static uint64_t file_end_locked(const struct nd_wal *wal, const struct nd_wal_file *file)
    ND_REQUIRES(wal->lock)
{
    return file->link.next == &wal->files ? UINT64_MAX : file_of(file->link.next)->first_sequence;
}

/* --- room --- */

/* Bytes of the files that hold what somebody still needs: as much again may go into segments. */
static uint64_t unflushed_locked(const struct nd_wal *wal) ND_REQUIRES(wal->lock)
{
    uint64_t needed_from = nd_wal_needed_from_locked(wal), bytes = wal->staged_bytes;

    ND_LIST_FOREACH (&wal->files, link) {
        const struct nd_wal_file *file = file_of(link);
        if (needed_from != UINT64_MAX && file_end_locked(wal, file) > needed_from) {
            bytes += file->used;
        }
    }
    return bytes;
}

void nd_wal_judge_space_locked(struct nd_wal *wal)
{
    uint64_t need = unflushed_locked(wal) + wal->options.disk_reserve_bytes +
                    SPACE_FILES * wal->options.file_bytes + (uint64_t)wal->tails * ND_WAL_BLOCK;
    uint64_t extra = (uint64_t)wal->options.spares_extra * wal->options.file_bytes;
    bool full = wal->bytes_free < need || wal->inodes_free < INODES_RESERVE + (uint64_t)wal->tails;

    /* Much more is plenty than is tight, or the files that go would make it plenty. */
    wal->tight = wal->bytes_free < need + (wal->tight ? 4 * extra : extra);
    if (full != wal->disk_full) {
        wal->disk_full = full;
        nd_series_set(wal->metric_disk_full, full);
        nd_log(wal->options.log, full ? ND_LOG_ERROR : ND_LOG_INFO, "wal",
               full ? "disk full, produce is refused" : "disk has room again",
               "free_bytes=%llu needed_bytes=%llu", (unsigned long long)wal->bytes_free,
               (unsigned long long)need);
    }
}

static bool idle_locked(const struct nd_wal *wal, uint64_t now_ns) ND_REQUIRES(wal->lock)
{
    return now_ns >= wal->entries_ns + idle_ns;
}

void nd_wal_measure_room(struct nd_wal *wal)
{
    struct nd_errmsg msg = {{0}};
    struct nd_disk_space space;

    if (wal->env->space(wal->env->impl, wal->options.dir, &space, &msg) != ND_OK) {
        nd_log_lasting(wal->options.log, ND_LOG_WARN, "wal", "free space unknown", "reason=\"%s\"",
                       msg.text);
        return;
    }
    nd_mutex_lock(&wal->lock);
    nd_series_set(wal->metric_bytes_free, (double)space.bytes_free);
    wal->bytes_free = space.bytes_free;
    wal->inodes_free = space.inodes_free;
    nd_wal_judge_space_locked(wal);
    nd_mutex_unlock(&wal->lock);
}

void nd_wal_check_space(struct nd_wal *wal)
{
    struct nd_errmsg msg = {{0}};
    uint64_t now_ns = wal->env->mono_ns(wal->env->impl);

    if (nd_wal_fill_spares(wal, &msg) != ND_OK) {
        nd_log_lasting(wal->options.log, ND_LOG_WARN, "wal", "spare not made", "reason=\"%s\"",
                       msg.text);
    }
    nd_wal_measure_room(wal);
    nd_mutex_lock(&wal->lock);
    bool tight = wal->tight, idle = idle_locked(wal, now_ns);
    nd_mutex_unlock(&wal->lock);
    if (tight) {
        while (nd_wal_drop_spare(wal)) {
        }
        nd_wal_measure_room(wal);
    } else if (idle) {
        (void)nd_wal_drop_spare(wal); /* one at a time: removing big files stalls syncs */
    }
}

void nd_wal_set_tails(struct nd_wal *wal, uint32_t tails)
{
    nd_mutex_lock(&wal->lock);
    wal->tails = tails;
    nd_wal_judge_space_locked(wal);
    nd_mutex_unlock(&wal->lock);
}

/* --- what stands in the way --- */

/* The sequence below which everything goes when the newest closed files of `keep_bytes` stay. */
static uint64_t below_locked(const struct nd_wal *wal, uint64_t keep_bytes) ND_REQUIRES(wal->lock)
{
    const struct nd_list *active = wal->files.prev;
    uint64_t kept = 0;

    for (struct nd_list *link = active->prev; link != &wal->files; link = link->prev) {
        kept += file_of(link)->bytes;
        if (kept > keep_bytes) { /* the first that is too much, and all before it */
            return file_of(link->next)->first_sequence;
        }
    }
    return 0;
}

uint64_t nd_wal_lift_below(struct nd_wal *wal)
{
    uint64_t now_ns = wal->env->mono_ns(wal->env->impl);

    nd_mutex_lock(&wal->lock);
    bool hurry = wal->disk_full || idle_locked(wal, now_ns);
    uint64_t below = below_locked(wal, hurry ? 0 : wal->options.keep_bytes);
    nd_mutex_unlock(&wal->lock);
    return below;
}

uint64_t nd_wal_restate_below(struct nd_wal *wal, uint64_t bytes)
{
    uint64_t now_ns = wal->env->mono_ns(wal->env->impl);
    uint64_t below = 0;

    nd_mutex_lock(&wal->lock);
    /* What is restated needs a file more before the oldest one can go. */
    bool room = wal->bytes_free >= wal->options.disk_reserve_bytes + wal->options.file_bytes;
    if (!wal->failed && room) {
        bool hurry = wal->disk_full || idle_locked(wal, now_ns);
        below = below_locked(wal, (hurry ? 0 : wal->options.keep_bytes) + 2 * bytes);
    }
    nd_mutex_unlock(&wal->lock);
    return below;
}

/* The oldest file if it lies below `replay_from`, else NULL. */
static struct nd_wal_file *oldest_below_locked(struct nd_wal *wal, uint64_t replay_from)
    ND_REQUIRES(wal->lock)
{
    struct nd_wal_file *file = file_of(wal->files.next);

    return file_end_locked(wal, file) <= replay_from ? file : NULL;
}

bool nd_wal_trimmable(struct nd_wal *wal)
{
    nd_mutex_lock(&wal->lock);
    /* A CHECKPOINT staged now would itself be needed. */
    uint64_t replay_from = ND_MIN(nd_wal_needed_from_locked(wal), wal->sequence_next);
    bool trimmable = !wal->failed && oldest_below_locked(wal, replay_from) != NULL;
    nd_mutex_unlock(&wal->lock);
    return trimmable;
}

/* --- trimming --- */

/* Rename to a spare when one is wanted, else remove; then sync the directory. */
static enum nd_err file_retire(struct nd_wal *wal, const struct nd_wal_file *file,
                               struct nd_errmsg *msg)
{
    char path[ND_WAL_PATH_SIZE], spare[ND_WAL_PATH_SIZE];
    const struct nd_env *env = wal->env;
    enum nd_err err;

    nd_mutex_lock(&wal->lock);
    bool recycle = nd_wal_spare_wanted_locked(wal) && file->bytes == wal->options.file_bytes;
    uint64_t number = wal->spare_next;
    wal->spare_next += recycle;
    nd_mutex_unlock(&wal->lock);
    nd_wal_file_path(path, wal->options.dir, file->first_sequence);
    if (recycle) {
        nd_wal_spare_path(spare, wal->options.dir, number);
        err = env->rename(env->impl, path, spare, msg);
    } else {
        err = env->unlink(env->impl, path, msg);
    }
    if (err != ND_OK && err != ND_ERR_NOT_FOUND) {
        return err;
    }
    bool kept = recycle && err == ND_OK;
    err = env->sync_dir(env->impl, wal->options.dir, msg);
    if (err != ND_OK) {
        wal->dir_in_doubt = true; /* its name may be back after a crash: not to be overwritten */
    } else if (kept) {
        nd_wal_spare_add(wal, number);
    }
    return ND_OK;
}

void nd_wal_trim(struct nd_wal *wal)
{
    struct nd_errmsg msg = {{0}};
    enum nd_err err = ND_OK;

    if (wal->dir_in_doubt) { /* the directory is synced before the next one goes */
        err = wal->env->sync_dir(wal->env->impl, wal->options.dir, &msg);
        wal->dir_in_doubt = err != ND_OK;
    }
    while (err == ND_OK && !wal->dir_in_doubt) {
        nd_mutex_lock(&wal->lock);
        struct nd_wal_file *file = oldest_below_locked(wal, wal->replay_from);
        nd_mutex_unlock(&wal->lock);
        if (file == NULL) {
            break;
        }
        err = file_retire(wal, file, &msg);
        if (err == ND_OK) {
            nd_mutex_lock(&wal->lock);
            nd_list_remove(&file->link);
            wal->files_count -= 1;
            nd_mutex_unlock(&wal->lock);
            nd_free(file);
        }
    }
    if (err == ND_OK) {
        err = nd_wal_fill_spares(wal, &msg);
    }
    if (err != ND_OK) {
        nd_log_lasting(wal->options.log, ND_LOG_WARN, "wal", "trim postponed", "reason=\"%s\"",
                       msg.text);
    }
}

void nd_wal_stats(struct nd_wal *wal, struct nd_wal_stats *out)
{
    memset(out, 0, sizeof *out);
    nd_mutex_lock(&wal->lock);
    out->sequence_next = wal->sequence_next;
    out->sequence_synced = wal->sequence_synced;
    out->replay_from = wal->replay_from;
    out->writer = wal->writer;
    ND_LIST_FOREACH (&wal->files, link) {
        out->bytes_retained += file_of(link)->bytes;
    }
    out->groups = wal->groups;
    out->syncs = wal->syncs;
    out->bytes_written = wal->bytes_written;
    out->files = wal->files_count;
    out->spares = wal->spares_count;
    out->failed = wal->failed;
    out->disk_full = wal->disk_full;
    nd_mutex_unlock(&wal->lock);
}
