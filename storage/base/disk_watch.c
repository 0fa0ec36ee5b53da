#include "storage/base/disk_watch.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static struct nd_disk_watch *watch_of(void *impl)
{
    return impl;
}

void nd_disk_watch_begin(struct nd_disk_watch *watch, struct nd_disk_call *call)
{
    call->since_ns = watch->base->mono_ns(watch->base->impl);
    nd_mutex_lock(&watch->lock);
    nd_list_append(&watch->calls, &call->link);
    nd_mutex_unlock(&watch->lock);
}

void nd_disk_watch_end(struct nd_disk_watch *watch, struct nd_disk_call *call)
{
    nd_mutex_lock(&watch->lock);
    nd_list_remove(&call->link);
    nd_mutex_unlock(&watch->lock);
}

/* Call `member` of the base with the arguments that follow, watched. */
#define WATCHED(result, watch, call, member, ...)                                                  \
    do {                                                                                           \
        nd_disk_watch_begin((watch), (call));                                                      \
        (result) = (watch)->base->member((watch)->base->impl, __VA_ARGS__);                        \
        nd_disk_watch_end((watch), (call));                                                        \
    } while (0)

static enum nd_err w_open(void *impl, const char *path, int flags, int *file_out,
                          struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "open", .path = path};
    enum nd_err err;

    WATCHED(err, watch, &call, open, path, flags, file_out, msg);
    return err;
}

static void w_close(void *impl, int file)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "close", .file = file};

    nd_disk_watch_begin(watch, &call);
    watch->base->close(watch->base->impl, file);
    nd_disk_watch_end(watch, &call);
}

static enum nd_err w_pread(void *impl, int file, void *data, size_t size, uint64_t at,
                           size_t *read_out, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "pread", .file = file};
    enum nd_err err;

    WATCHED(err, watch, &call, pread, file, data, size, at, read_out, msg);
    return err;
}

static enum nd_err w_pwrite(void *impl, int file, const void *data, size_t size, uint64_t at,
                            struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "pwrite", .file = file};
    enum nd_err err;

    WATCHED(err, watch, &call, pwrite, file, data, size, at, msg);
    return err;
}

static enum nd_err w_sync(void *impl, int file, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "fdatasync", .file = file};
    enum nd_err err;

    WATCHED(err, watch, &call, sync, file, msg);
    return err;
}

static enum nd_err w_sync_fs(void *impl, int file, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "syncfs", .file = file};
    enum nd_err err;

    WATCHED(err, watch, &call, sync_fs, file, msg);
    return err;
}

static enum nd_err w_sync_dir(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "fsync", .path = path};
    enum nd_err err;

    WATCHED(err, watch, &call, sync_dir, path, msg);
    return err;
}

static enum nd_err w_truncate(void *impl, int file, uint64_t size, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "ftruncate", .file = file};
    enum nd_err err;

    WATCHED(err, watch, &call, truncate, file, size, msg);
    return err;
}

static enum nd_err w_zero_fill(void *impl, int file, uint64_t at, uint64_t size,
                               struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "pwrite of zeros", .file = file};
    enum nd_err err;

    WATCHED(err, watch, &call, zero_fill, file, at, size, msg);
    return err;
}

static enum nd_err w_drop_cache(void *impl, int file, uint64_t at, uint64_t size,
                                struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "posix_fadvise", .file = file};
    enum nd_err err;

    WATCHED(err, watch, &call, drop_cache, file, at, size, msg);
    return err;
}

static enum nd_err w_file_size(void *impl, int file, uint64_t *size_out, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "fstat", .file = file};
    enum nd_err err;

    WATCHED(err, watch, &call, file_size, file, size_out, msg);
    return err;
}

static enum nd_err w_stat(void *impl, const char *path, struct nd_file_stat *out,
                          struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "stat", .path = path};
    enum nd_err err;

    WATCHED(err, watch, &call, stat, path, out, msg);
    return err;
}

static enum nd_err w_rename(void *impl, const char *from, const char *to, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "rename", .path = from};
    enum nd_err err;

    WATCHED(err, watch, &call, rename, from, to, msg);
    return err;
}

static enum nd_err w_unlink(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "unlink", .path = path};
    enum nd_err err;

    WATCHED(err, watch, &call, unlink, path, msg);
    return err;
}

static enum nd_err w_mkdir(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "mkdir", .path = path};
    enum nd_err err;

    WATCHED(err, watch, &call, mkdir, path, msg);
    return err;
}

static enum nd_err w_rmdir(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "rmdir", .path = path};
    enum nd_err err;

    WATCHED(err, watch, &call, rmdir, path, msg);
    return err;
}

/* A listing is no call while its caller looks at an entry. */
struct listing {
    struct nd_disk_watch *watch;
    struct nd_disk_call call;
    nd_list_cb *cb;
    void *arg;
};

static bool entry_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct listing *listing = arg;

    nd_disk_watch_end(listing->watch, &listing->call);
    bool more = listing->cb(listing->arg, name, kind);
    nd_disk_watch_begin(listing->watch, &listing->call);
    return more;
}

static enum nd_err w_list(void *impl, const char *path, nd_list_cb *cb, void *arg,
                          struct nd_errmsg *msg)
{
    struct listing listing = {
        .watch = watch_of(impl), .call = {.name = "readdir", .path = path}, .cb = cb, .arg = arg};
    enum nd_err err;

    WATCHED(err, listing.watch, &listing.call, list, path, entry_seen, &listing, msg);
    return err;
}

static enum nd_err w_space(void *impl, const char *path, struct nd_disk_space *out,
                           struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "statvfs", .path = path};
    enum nd_err err;

    WATCHED(err, watch, &call, space, path, out, msg);
    return err;
}

static enum nd_err w_lock(void *impl, const char *path, int *file_out, struct nd_errmsg *msg)
{
    struct nd_disk_watch *watch = watch_of(impl);
    struct nd_disk_call call = {.name = "lock", .path = path};
    enum nd_err err;

    WATCHED(err, watch, &call, lock, path, file_out, msg);
    return err;
}

static int64_t w_wall_ms(void *impl)
{
    const struct nd_env *base = watch_of(impl)->base;

    return base->wall_ms(base->impl);
}

static uint64_t w_boot_ns(void *impl)
{
    const struct nd_env *base = watch_of(impl)->base;

    return base->boot_ns(base->impl);
}

static uint64_t w_mono_ns(void *impl)
{
    const struct nd_env *base = watch_of(impl)->base;

    return base->mono_ns(base->impl);
}

static void w_random(void *impl, void *data, size_t size)
{
    const struct nd_env *base = watch_of(impl)->base;

    base->random(base->impl, data, size);
}

void nd_disk_watch_init(struct nd_disk_watch *watch, const struct nd_env *base)
{
    *watch = (struct nd_disk_watch){.base = base,
                                    .env = {.impl = watch,
                                            .open = w_open,
                                            .close = w_close,
                                            .pread = w_pread,
                                            .pwrite = w_pwrite,
                                            .sync = w_sync,
                                            .sync_fs = w_sync_fs,
                                            .sync_dir = w_sync_dir,
                                            .truncate = w_truncate,
                                            .zero_fill = w_zero_fill,
                                            .drop_cache = w_drop_cache,
                                            .file_size = w_file_size,
                                            .stat = w_stat,
                                            .rename = w_rename,
                                            .unlink = w_unlink,
                                            .mkdir = w_mkdir,
                                            .rmdir = w_rmdir,
                                            .list = w_list,
                                            .space = w_space,
                                            .lock = w_lock,
                                            .wall_ms = w_wall_ms,
                                            .boot_ns = w_boot_ns,
                                            .mono_ns = w_mono_ns,
                                            .random = w_random}};
    nd_mutex_init(&watch->lock);
    nd_list_init(&watch->calls);
}

void nd_disk_watch_release(struct nd_disk_watch *watch)
{
    ND_ASSERT(nd_list_empty(&watch->calls));
    nd_mutex_release(&watch->lock);
}

/* The path that the kernel knows for the descriptor: no disk is asked. */
static void call_tell(const struct nd_disk_call *call, char *text, size_t text_size)
{
    char link[64], path[PATH_MAX];
    ssize_t size = -1;

    if (call->path == NULL) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", call->file);
        size = readlink(link, path, sizeof path - 1);
        path[ND_MAX(size, (ssize_t)0)] = '\0';
    }
    (void)snprintf(text, text_size, "%s %s", call->name,
                   call->path != NULL ? call->path
                   : size > 0         ? path
                                      : "of a file");
}

bool nd_disk_watch_oldest(struct nd_disk_watch *watch, char *text, size_t text_size,
                          uint64_t *since_ns_out)
{
    nd_mutex_lock(&watch->lock);
    struct nd_list *link = nd_list_first(&watch->calls);
    if (link != NULL) {
        const struct nd_disk_call *call = ND_CONTAINER_OF(link, struct nd_disk_call, link);
        *since_ns_out = call->since_ns;
        call_tell(call, text, text_size); /* it cannot end meanwhile: its path is the caller's */
    }
    nd_mutex_unlock(&watch->lock);
    return link != NULL;
}
