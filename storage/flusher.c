#include <inttypes.h>

#include "storage/base/alloc.h"

#include "storage/flusher_private.h"
#include "storage/layout.h"
#include "storage/remove.h"

enum { REMOVE_STEP_BYTES = 16 << 20, REMOVE_PAUSE_MS = 20, PATH_SIZE = 1024 };

/* --- life --- */

static bool removed_entry(void *arg, const char *name, enum nd_file_kind kind)
{
    struct nd_flusher *flusher = arg;
    char *path = nd_xasprintf("%s/removed/%s", flusher->data_dir, name);
    (void)kind;

    nd_remover_add(flusher->remover, path);
    nd_free(path);
    return true;
}

/* What an earlier run had renamed aside and not removed yet. */
static enum nd_err removed_resume(struct nd_flusher *flusher, struct nd_errmsg *msg)
{
    char *dir = nd_xasprintf("%s/removed", flusher->data_dir);
    enum nd_err err = nd_env_mkdirs(flusher->env, dir, msg);

    if (err == ND_OK) {
        err = flusher->env->list(flusher->env->impl, dir, removed_entry, flusher, msg);
    }
    nd_free(dir);
    return err;
}

/* syncfs tells errors since its descriptor was opened, so this one is held. */
static enum nd_err fs_file_open(struct nd_flusher *flusher, struct nd_errmsg *msg)
{
    char *path = nd_xasprintf("%s/syncfs", flusher->data_dir);
    enum nd_err err = flusher->env->open(flusher->env->impl, path, ND_OPEN_WRITE | ND_OPEN_CREATE,
                                         &flusher->fs_file, msg);

    nd_free(path);
    return err;
}

static void wal_failed(struct nd_msg *msg, void *owner)
{
    struct nd_flusher *flusher = owner;

    /* The unit has come back already; there is nothing else to take back. */
    ND_ASSERT(msg == &flusher->stager.failed && !flusher->staged);
    nd_wal_stager_adopt(flusher->options.wal, &flusher->stager);
}

static void series_make(struct nd_flusher *flusher)
{
    static const double buckets[] = {0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1};
    struct nd_metrics *metrics = flusher->options.metrics;

    flusher->round_seconds = nd_metrics_histogram(
        metrics, "storage_flush_duration_seconds", "",
        "One round of the flusher: write, sync, read back.", buckets, ND_ARRAY_SIZE(buckets));
    flusher->sync_seconds = nd_metrics_histogram(metrics, "storage_fsync_duration_seconds", "",
                                                 "The sync of one round of the flusher.", buckets,
                                                 ND_ARRAY_SIZE(buckets));
}

enum nd_err nd_flusher_new(struct nd_flusher **out, const struct nd_flusher_options *options,
                           struct nd_errmsg *msg)
{
    struct nd_flusher *flusher = nd_xcalloc(1, sizeof *flusher);

    flusher->options = *options;
    flusher->env = options->plog.env;
    flusher->data_dir = nd_xstrdup(options->data_dir);
    flusher->options.data_dir = flusher->data_dir;
    flusher->remover =
        nd_remover_new(flusher->env, REMOVE_STEP_BYTES, REMOVE_PAUSE_MS, options->log);
    enum nd_err err = removed_resume(flusher, msg);
    if (err == ND_OK) {
        err = fs_file_open(flusher, msg);
    }
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "flusher in %s", flusher->data_dir);
        nd_remover_free(flusher->remover);
        nd_free(flusher->data_dir);
        nd_free(flusher);
        return err;
    }
    flusher->scratch = nd_plog_scratch_new();
    flusher->options.plog.remover = flusher->remover;
    flusher->options.plog.scratch = flusher->scratch;
    nd_inbox_init(&flusher->inbox);
    nd_list_init(&flusher->jobs);
    nd_list_init(&flusher->round);
    nd_wal_unit_init(&flusher->unit, ND_WAL_RESERVED);
    series_make(flusher);
    flusher->stager.inbox = &flusher->inbox;
    flusher->stager.failed.run = wal_failed;
    nd_wal_stager_add(options->wal, &flusher->stager);
    nd_wal_stager_needs(options->wal, &flusher->stager, UINT64_MAX);
    *out = flusher;
    return ND_OK;
}

void nd_flusher_free(struct nd_flusher *flusher)
{
    if (flusher == NULL) {
        return;
    }
    ND_ASSERT(!flusher->staged && nd_list_empty(&flusher->jobs) && nd_list_empty(&flusher->round));
    nd_wal_stager_remove(flusher->options.wal, &flusher->stager);
    nd_wal_unit_release(&flusher->unit);
    nd_inbox_release(&flusher->inbox);
    flusher->env->close(flusher->env->impl, flusher->fs_file);
    nd_plog_scratch_free(flusher->scratch);
    nd_remover_free(flusher->remover);
    nd_free(flusher->flushed);
    nd_free(flusher->data_dir);
    nd_free(flusher);
}

void nd_flusher_partition_dir(const struct nd_flusher *flusher, const struct nd_partition_id *id,
                              char *out, size_t out_size)
{
    nd_layout_partition_dir(out, out_size, flusher->data_dir, id);
}

const struct nd_plog_options *nd_flusher_plog_options(const struct nd_flusher *flusher)
{
    return &flusher->options.plog;
}

/* --- what others send --- */

static void job_arrived(struct nd_msg *msg, void *owner)
{
    struct nd_flusher *flusher = owner;

    nd_list_append(&flusher->jobs, &msg->link);
}

void nd_flusher_submit(struct nd_flusher *flusher, struct nd_flush_job *job)
{
    job->msg.run = job_arrived;
    job->result = ND_OK;
    job->opened = NULL;
    job->flushed = 0;
    nd_inbox_push(&flusher->inbox, &job->msg);
}

void nd_flusher_run(struct nd_flusher *flusher, struct nd_flusher_task *task)
{
    nd_inbox_push(&flusher->inbox, &task->msg);
}

/* Out of the way, durably: after this a restart does not see it at its old place. */
static enum nd_err path_move_aside(struct nd_flusher *flusher, const char *path,
                                   struct nd_errmsg *msg)
{
    const struct nd_env *env = flusher->env;
    char *removed = nd_xasprintf("%s/removed", flusher->data_dir);
    char *to = nd_xasprintf("%s/%016" PRIx64, removed, nd_env_random_u64(env));
    char *parent = nd_xstrdup(path);
    char *slash = strrchr(parent, '/');
    enum nd_err err = env->rename(env->impl, path, to, msg);

    if (err == ND_OK) {
        nd_remover_add(flusher->remover, to);
        err = env->sync_dir(env->impl, removed, msg);
    }
    if (err == ND_OK && slash != NULL && slash != parent) {
        *slash = '\0';
        err = env->sync_dir(env->impl, parent, msg);
    }
    nd_free(parent);
    nd_free(to);
    nd_free(removed);
    return err == ND_ERR_NOT_FOUND ? ND_OK : err;
}

static void remove_arrived(struct nd_msg *msg, void *owner)
{
    struct nd_flusher *flusher = owner;
    struct nd_remove_job *job = ND_CONTAINER_OF(msg, struct nd_remove_job, msg);
    struct nd_errmsg why = {{0}};

    job->result = path_move_aside(flusher, job->path, &why);
    if (job->result != ND_OK) {
        nd_log_lasting(flusher->options.log, ND_LOG_ERROR, "storage",
                       "cannot move a directory aside", "path=\"%s\" reason=\"%s\"", job->path,
                       why.text);
    }
    if (job->reply_to != NULL) {
        nd_inbox_push(job->reply_to, &job->reply);
    } else {
        nd_free(job);
    }
}

void nd_flusher_remove(struct nd_flusher *flusher, struct nd_remove_job *job)
{
    job->msg.run = remove_arrived;
    nd_inbox_push(&flusher->inbox, &job->msg);
}

struct remove_empty {
    struct nd_msg msg;
    char path[PATH_SIZE];
};

static void remove_empty_arrived(struct nd_msg *msg, void *owner)
{
    struct nd_flusher *flusher = owner;
    struct remove_empty *job = ND_CONTAINER_OF(msg, struct remove_empty, msg);

    nd_ignore(flusher->env->rmdir(flusher->env->impl, job->path, NULL),
              "something is in it, or the next look for such tries again");
    nd_free(job);
}

void nd_flusher_remove_empty(struct nd_flusher *flusher, const char *path)
{
    struct remove_empty *job = nd_xcalloc(1, sizeof *job);
    size_t size = strlen(path);

    ND_ASSERT(size < sizeof job->path);
    memcpy(job->path, path, size + 1);
    job->msg.run = remove_empty_arrived;
    nd_inbox_push(&flusher->inbox, &job->msg);
}

/* --- driving --- */

bool nd_flusher_step(struct nd_flusher *flusher)
{
    bool worked = nd_inbox_run(&flusher->inbox, flusher) > 0;

    worked = flusher_round(flusher) || worked;
    worked = flusher_tick(flusher) || worked;
    worked = nd_remover_step(flusher->remover) || worked;
    return worked;
}

static bool is_quiet(struct nd_flusher *flusher)
{
    return !flusher->staged && nd_list_empty(&flusher->jobs) && nd_inbox_empty(&flusher->inbox);
}

static void thread_run(void *arg)
{
    struct nd_flusher *flusher = arg;

    for (;;) {
        if (nd_flusher_step(flusher)) {
            continue;
        }
        /* Acquire: what was submitted before the stop is in the inbox. */
        if (atomic_load_explicit(&flusher->stopping, memory_order_acquire) && is_quiet(flusher)) {
            return;
        }
        nd_inbox_wait(&flusher->inbox,
                      ND_MIN(flusher->tick_ns, nd_remover_due_ns(flusher->remover)));
    }
}

bool nd_flusher_thread_start(struct nd_flusher *flusher)
{
    atomic_store_explicit(&flusher->stopping, false, memory_order_relaxed);
    return nd_thread_start(&flusher->thread, "flusher", thread_run, flusher);
}

void nd_flusher_thread_stop(struct nd_flusher *flusher)
{
    atomic_store_explicit(&flusher->stopping, true, memory_order_release);
    nd_inbox_wake(&flusher->inbox);
    nd_thread_join(&flusher->thread);
}
