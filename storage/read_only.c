#include "storage/read_only.h"

static const struct nd_env *base_of(void *impl)
{
    return ((struct nd_read_only *)impl)->base;
}

static enum nd_err refuse(struct nd_errmsg *msg)
{
    nd_errmsg_set(msg, "nothing is changed here");
    return ND_ERR_UNSUPPORTED;
}

static enum nd_err ro_open(void *impl, const char *path, int flags, int *file_out,
                           struct nd_errmsg *msg)
{
    const struct nd_env *base = base_of(impl);

    return base->open(base->impl, path, flags & ND_OPEN_DIRECT, file_out, msg);
}

static void ro_close(void *impl, int file)
{
    base_of(impl)->close(base_of(impl)->impl, file);
}

static enum nd_err ro_pread(void *impl, int file, void *data, size_t size, uint64_t at,
                            size_t *read_out, struct nd_errmsg *msg)
{
    const struct nd_env *base = base_of(impl);

    return base->pread(base->impl, file, data, size, at, read_out, msg);
}

static enum nd_err ro_pwrite(void *impl, int file, const void *data, size_t size, uint64_t at,
                             struct nd_errmsg *msg)
{
    (void)impl, (void)file, (void)data, (void)size, (void)at;
    return refuse(msg);
}

static enum nd_err ro_sync(void *impl, int file, struct nd_errmsg *msg)
{
    (void)impl, (void)file, (void)msg;
    return ND_OK;
}

static enum nd_err ro_sync_dir(void *impl, const char *path, struct nd_errmsg *msg)
{
    (void)impl, (void)path, (void)msg;
    return ND_OK;
}

static enum nd_err ro_truncate(void *impl, int file, uint64_t size, struct nd_errmsg *msg)
{
    (void)impl, (void)file, (void)size;
    return refuse(msg);
}

static enum nd_err ro_zero_fill(void *impl, int file, uint64_t at, uint64_t size,
                                struct nd_errmsg *msg)
{
    (void)impl, (void)file, (void)at, (void)size;
    return refuse(msg);
}

static enum nd_err ro_drop_cache(void *impl, int file, uint64_t at, uint64_t size,
                                 struct nd_errmsg *msg)
{
    const struct nd_env *base = base_of(impl);

    return base->drop_cache(base->impl, file, at, size, msg);
}

static enum nd_err ro_file_size(void *impl, int file, uint64_t *size_out, struct nd_errmsg *msg)
{
    const struct nd_env *base = base_of(impl);

    return base->file_size(base->impl, file, size_out, msg);
}

static enum nd_err ro_stat(void *impl, const char *path, struct nd_file_stat *out,
                           struct nd_errmsg *msg)
{
    const struct nd_env *base = base_of(impl);

    return base->stat(base->impl, path, out, msg);
}

static enum nd_err ro_rename(void *impl, const char *from, const char *to, struct nd_errmsg *msg)
{
    (void)impl, (void)from, (void)to;
    return refuse(msg);
}

static enum nd_err ro_path_change(void *impl, const char *path, struct nd_errmsg *msg)
{
    (void)impl, (void)path;
    return refuse(msg);
}

static enum nd_err ro_list(void *impl, const char *path, nd_list_cb *cb, void *arg,
                           struct nd_errmsg *msg)
{
    const struct nd_env *base = base_of(impl);

    return base->list(base->impl, path, cb, arg, msg);
}

static enum nd_err ro_space(void *impl, const char *path, struct nd_disk_space *out,
                            struct nd_errmsg *msg)
{
    const struct nd_env *base = base_of(impl);

    return base->space(base->impl, path, out, msg);
}

static enum nd_err ro_lock(void *impl, const char *path, int *file_out, struct nd_errmsg *msg)
{
    (void)impl, (void)path, (void)file_out;
    return refuse(msg);
}

static int64_t ro_wall_ms(void *impl)
{
    return base_of(impl)->wall_ms(base_of(impl)->impl);
}

static uint64_t ro_boot_ns(void *impl)
{
    return base_of(impl)->boot_ns(base_of(impl)->impl);
}

static uint64_t ro_mono_ns(void *impl)
{
    return base_of(impl)->mono_ns(base_of(impl)->impl);
}

static void ro_random(void *impl, void *data, size_t size)
{
    base_of(impl)->random(base_of(impl)->impl, data, size);
}

void nd_read_only_init(struct nd_read_only *out, const struct nd_env *base)
{
    *out = (struct nd_read_only){.base = base,
                                 .env = {.impl = out,
                                         .open = ro_open,
                                         .close = ro_close,
                                         .pread = ro_pread,
                                         .pwrite = ro_pwrite,
                                         .sync = ro_sync,
                                         .sync_fs = ro_sync,
                                         .sync_dir = ro_sync_dir,
                                         .truncate = ro_truncate,
                                         .zero_fill = ro_zero_fill,
                                         .drop_cache = ro_drop_cache,
                                         .file_size = ro_file_size,
                                         .stat = ro_stat,
                                         .rename = ro_rename,
                                         .unlink = ro_path_change,
                                         .mkdir = ro_path_change,
                                         .rmdir = ro_path_change,
                                         .list = ro_list,
                                         .space = ro_space,
                                         .lock = ro_lock,
                                         .wall_ms = ro_wall_ms,
                                         .boot_ns = ro_boot_ns,
                                         .mono_ns = ro_mono_ns,
                                         .random = ro_random}};
}
