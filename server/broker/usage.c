#include "server/broker/usage.h"

#include "storage/base/alloc.h"

#include "server/broker/worker.h"

enum { TOPICS_A_JOB = 64, DEPTH_MAX = 8 };

static const uint64_t first_ns = 5000000000, every_ns = 30000000000;

struct measured {
    char *name; /* of a topic; NULL: the rest of the data directory */
    uint64_t bytes;
    enum nd_err err;
};

struct usage {
    struct nd_worker_job job;
    struct nd_shard *shard;
    struct measured items[TOPICS_A_JOB + 1];
    uint32_t count;
};

/* --- on a worker --- */

struct walk {
    const struct nd_env *env;
    const char *dir;
    const char *skip; /* the name of an entry; NULL: none */
    uint64_t bytes;
    uint32_t depth;
    enum nd_err err;
};

static bool entry_seen(void *arg, const char *name, enum nd_file_kind kind);

static enum nd_err dir_bytes(struct walk *walk)
{
    struct nd_errmsg msg = {{0}};
    enum nd_err err = walk->env->list(walk->env->impl, walk->dir, entry_seen, walk, &msg);

    if (err == ND_ERR_NOT_FOUND) {
        return ND_OK; /* it was removed */
    }
    return err == ND_OK ? walk->err : err;
}

static bool entry_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct walk *walk = arg;
    size_t size = strlen(name);

    if ((walk->skip != NULL && strcmp(name, walk->skip) == 0) ||
        (size > 4 && strcmp(name + size - 4, ".tmp") == 0)) {
        return true;
    }
    char *path = nd_xasprintf("%s/%s", walk->dir, name);
    if (kind != ND_FILE_DIR) {
        struct nd_file_stat stat = {.size = 0};
        struct nd_errmsg msg = {{0}};
        enum nd_err err = walk->env->stat(walk->env->impl, path, &stat, &msg);
        walk->bytes += err == ND_OK ? stat.size : 0;
        walk->err = err == ND_ERR_NOT_FOUND ? ND_OK : err;
    } else if (walk->depth < DEPTH_MAX) {
        struct walk below = {.env = walk->env, .dir = path, .depth = walk->depth + 1};
        walk->err = dir_bytes(&below);
        walk->bytes += below.bytes;
    }
    nd_free(path);
    return walk->err == ND_OK;
}

static void work(struct nd_worker_job *base)
{
    struct usage *usage = ND_CONTAINER_OF(base, struct usage, job);
    const struct nd_broker_options *options = &usage->shard->broker->options;

    for (uint32_t i = 0; i < usage->count; i++) {
        struct measured *item = &usage->items[i];
        char *dir = item->name == NULL
                        ? nd_xstrdup(options->data_dir)
                        : nd_xasprintf("%s/topics/%s", options->data_dir, item->name);
        struct walk walk = {
            .env = options->env, .dir = dir, .skip = item->name == NULL ? "topics" : NULL};
        item->err = dir_bytes(&walk);
        item->bytes = walk.bytes;
        nd_free(dir);
    }
}

/* --- on the shard --- */

static void count(struct nd_shard *shard, uint64_t *before, uint64_t bytes)
{
    struct nd_series *all = shard->broker->meters.data_dir_bytes;

    nd_series_add(all, bytes);
    nd_series_sub(all, *before);
    *before = bytes;
}

static void take(struct nd_shard *shard, const struct measured *item)
{
    if (item->err != ND_OK) {
        return; /* the next time */
    }
    if (item->name == NULL) {
        count(shard, &shard->rest_bytes, item->bytes);
        return;
    }
    struct nd_topic_meters *meters = nd_map_get(shard->meters, nd_slice_str(item->name));
    if (meters != NULL) {
        count(shard, &meters->bytes_counted, item->bytes);
        nd_series_set(meters->bytes, (double)item->bytes);
    }
}

static void next_job(struct usage *usage)
{
    struct nd_shard *shard = usage->shard;
    struct nd_list *link;

    while (shard->usage_left > 0 && usage->count < TOPICS_A_JOB &&
           (link = nd_list_pop(&shard->usage_stale)) != NULL) {
        struct nd_topic_meters *meters = ND_CONTAINER_OF(link, struct nd_topic_meters, stale);
        usage->items[usage->count++].name = nd_xstrdup(meters->name);
        shard->usage_left -= 1;
        shard->usage_stale_count -= 1;
    }
    shard->jobs += 1;
    nd_workers_submit(shard->broker->workers, &usage->job);
}

static void reply(struct nd_msg *msg, void *owner)
{
    struct usage *usage = ND_CONTAINER_OF(msg, struct usage, job.reply);
    struct nd_shard *shard = owner;

    shard->jobs -= 1;
    for (uint32_t i = 0; i < usage->count; i++) {
        take(shard, &usage->items[i]);
        nd_free(usage->items[i].name);
        usage->items[i] = (struct measured){.name = NULL};
    }
    usage->count = 0;
    if (!nd_shard_stopping(shard) && shard->usage_left > 0 && !nd_list_empty(&shard->usage_stale)) {
        next_job(usage);
        return;
    }
    shard->measuring = false;
    nd_free(usage);
}

void nd_usage_changed(struct nd_shard *shard, struct nd_topic_meters *meters)
{
    if (nd_list_empty(&meters->stale)) {
        nd_list_append(&shard->usage_stale, &meters->stale);
        shard->usage_stale_count += 1;
    }
}

void nd_usage_forget(struct nd_shard *shard, struct nd_topic_meters *meters)
{
    if (!nd_list_empty(&meters->stale)) {
        nd_list_remove(&meters->stale);
        shard->usage_stale_count -= 1;
    }
    count(shard, &meters->bytes_counted, 0);
}

uint64_t nd_usage_due_ns(const struct nd_shard *shard)
{
    bool wanted = shard->index == 0 || shard->usage_stale_count > 0;

    return wanted && !shard->measuring ? shard->usage_ns : UINT64_MAX;
}

void nd_usage_step(struct nd_shard *shard)
{
    if (shard->now_ns < nd_usage_due_ns(shard)) {
        return;
    }
    bool first = shard->usage_ns == 0;
    shard->usage_ns = shard->now_ns + (first ? first_ns : every_ns);
    if (first) {
        return;
    }
    struct usage *usage = nd_xcalloc(1, sizeof *usage);
    usage->shard = shard;
    usage->job.work = work;
    usage->job.reply.run = reply;
    usage->job.reply_to = &shard->inbox;
    usage->count = shard->index == 0 ? 1 : 0; /* the rest */
    shard->usage_left = shard->usage_stale_count;
    shard->measuring = true;
    next_job(usage);
}
