#include "storage/remove.h"

#include "storage/base/alloc.h"
#include "storage/base/list.h"
#include "storage/base/thread.h"

enum { LIST_MAX = 64, NS_PER_MS = 1000000 };

struct item {
    struct nd_list link;
    char *path;
};

struct nd_remover {
    const struct nd_env *env;
    struct nd_log *log;
    uint64_t step_bytes;
    uint64_t pause_ns;
    uint64_t due_ns;
    struct nd_mutex lock;
    struct nd_list
        items; /* guarded by lock; the first is worked on, what it contains goes in front */
};

struct nd_remover *nd_remover_new(const struct nd_env *env, uint64_t step_bytes, uint32_t pause_ms,
                                  struct nd_log *log)
{
    struct nd_remover *remover = nd_xcalloc(1, sizeof *remover);

    ND_ASSERT(step_bytes > 0);
    remover->env = env;
    remover->log = log;
    remover->step_bytes = step_bytes;
    remover->pause_ns = (uint64_t)pause_ms * NS_PER_MS;
    nd_mutex_init(&remover->lock);
    nd_list_init(&remover->items);
    return remover;
}

static void item_free(struct item *item)
{
    nd_free(item->path);
    nd_free(item);
}

void nd_remover_free(struct nd_remover *remover)
{
    if (remover == NULL) {
        return;
    }
    for (struct nd_list *link; (link = nd_list_pop(&remover->items)) != NULL;) {
        item_free(ND_CONTAINER_OF(link, struct item, link));
    }
    nd_mutex_release(&remover->lock);
    nd_free(remover);
}

static struct item *item_new(char *path)
{
    struct item *item = nd_xcalloc(1, sizeof *item);

    nd_list_init(&item->link);
    item->path = path;
    return item;
}

void nd_remover_add(struct nd_remover *remover, const char *path)
{
    struct item *item = item_new(nd_xstrdup(path));

    nd_mutex_lock(&remover->lock);
    nd_list_append(&remover->items, &item->link);
    nd_mutex_unlock(&remover->lock);
}

static struct item *item_first(struct nd_remover *remover)
{
    nd_mutex_lock(&remover->lock);
    struct nd_list *link = nd_list_first(&remover->items);
    nd_mutex_unlock(&remover->lock);
    return link == NULL ? NULL : ND_CONTAINER_OF(link, struct item, link);
}

struct entries {
    const char *dir;
    struct nd_list items;
    uint32_t count;
};

static bool entry_add(void *arg, const char *name, enum nd_file_kind kind)
{
    struct entries *entries = arg;
    struct item *item = item_new(nd_xasprintf("%s/%s", entries->dir, name));
    (void)kind;

    nd_list_append(&entries->items, &item->link);
    entries->count += 1;
    return entries->count < LIST_MAX;
}

/* Put what a directory contains in front of it, or remove it when it is empty. */
static enum nd_err dir_step(struct nd_remover *remover, struct item *item, bool *done,
                            struct nd_errmsg *msg)
{
    struct entries entries = {.dir = item->path};
    const struct nd_env *env = remover->env;

    nd_list_init(&entries.items);
    enum nd_err err = env->list(env->impl, item->path, entry_add, &entries, msg);
    if (err != ND_OK || entries.count == 0) {
        *done = true;
        return err != ND_OK ? err : env->rmdir(env->impl, item->path, msg);
    }
    nd_mutex_lock(&remover->lock);
    for (struct nd_list *link; (link = nd_list_pop(&entries.items)) != NULL;) {
        nd_list_prepend(&remover->items, link);
    }
    nd_mutex_unlock(&remover->lock);
    return ND_OK;
}

static enum nd_err file_step(struct nd_remover *remover, struct item *item, uint64_t size,
                             bool *done, struct nd_errmsg *msg)
{
    const struct nd_env *env = remover->env;
    int file;

    remover->due_ns = env->mono_ns(env->impl) + remover->pause_ns;
    if (size <= remover->step_bytes) {
        *done = true;
        return env->unlink(env->impl, item->path, msg);
    }
    enum nd_err err = env->open(env->impl, item->path, ND_OPEN_WRITE, &file, msg);
    if (err != ND_OK) {
        return err;
    }
    err = env->truncate(env->impl, file, size - remover->step_bytes, msg);
    env->close(env->impl, file);
    return err;
}

bool nd_remover_step(struct nd_remover *remover)
{
    const struct nd_env *env = remover->env;
    struct item *item = item_first(remover);
    struct nd_file_stat stat;
    struct nd_errmsg msg = {{0}};
    bool done = false;

    if (item == NULL || env->mono_ns(env->impl) < remover->due_ns) {
        return false;
    }
    enum nd_err err = env->stat(env->impl, item->path, &stat, &msg);
    if (err == ND_OK && stat.kind == ND_FILE_DIR) {
        err = dir_step(remover, item, &done, &msg);
    } else if (err == ND_OK) {
        err = file_step(remover, item, stat.size, &done, &msg);
    }
    if (err != ND_OK && err != ND_ERR_NOT_FOUND) {
        nd_log_lasting(remover->log, ND_LOG_WARN, "storage",
                       "cannot remove; the next start tries again", "path=\"%s\" err=\"%s\"",
                       item->path, msg.text);
    }
    if (done || err != ND_OK) {
        nd_mutex_lock(&remover->lock);
        nd_list_remove(&item->link);
        nd_mutex_unlock(&remover->lock);
        item_free(item);
    }
    return true;
}

uint64_t nd_remover_due_ns(struct nd_remover *remover)
{
    return item_first(remover) == NULL ? UINT64_MAX : remover->due_ns;
}
