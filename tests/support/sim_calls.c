/* The nd_env of the simulated disk: each call begins, does its work on the tree, and ends. */
#include "storage/base/alloc.h"

#include "tests/support/nd_rand.h"
#include "tests/support/sim_impl.h"

static bool is_aligned(const struct handle *handle, const void *data, uint64_t size, uint64_t at)
{
    return (handle->flags & ND_OPEN_DIRECT) == 0 ||
           (size % SIM_BLOCK == 0 && at % SIM_BLOCK == 0 && (uintptr_t)data % SIM_BLOCK == 0);
}

/* ---- nd_env: files ---- */

static enum nd_err open_checked(struct sim_env *sim, const struct call *call, int flags,
                                struct sim_node **node_out)
{
    char name[SIM_NAME_MAX + 1];
    enum nd_err err;
    struct sim_node *dir = sim_tree_parent(&sim->tree, call->path, name, &err);

    if (dir == NULL) {
        return err;
    }
    struct sim_node *node = sim_names_get(&dir->seen, name);
    if ((flags & ND_OPEN_DIRECT) != 0 && !sim->direct) {
        return ND_ERR_UNSUPPORTED;
    }
    if (node != NULL && (flags & ND_OPEN_EXCL) != 0) {
        return ND_ERR_ALREADY_EXISTS;
    }
    if (node != NULL && node->is_dir) {
        return ND_ERR_IO;
    }
    if (node == NULL && (flags & ND_OPEN_CREATE) == 0) {
        return ND_ERR_NOT_FOUND;
    }
    if (node == NULL) {
        node = sim_tree_create(&sim->tree, sim->changes, dir, name, false);
        node->mtime_ms = (int64_t)(sim->wall_ns / NS_PER_MS);
    }
    *node_out = node;
    return ND_OK;
}

static enum nd_err open_common(struct call *call, int flags, int *file_out)
{
    struct sim_env *sim = call->sim;
    struct sim_node *node = NULL;
    enum nd_err missing;

    call->is_change =
        (flags & ND_OPEN_CREATE) != 0 && sim_tree_find(&sim->tree, call->path, &missing) == NULL;
    enum nd_err err = sim_call_begin(call);
    if (err == ND_OK) {
        err = open_checked(sim, call, flags, &node);
    }
    if (err == ND_OK && call->kind == SIM_LOCK && node->locked) {
        err = ND_ERR_UNAVAILABLE;
    }
    err = sim_call_end(call, err);
    if (err == ND_OK) {
        *file_out = sim_handle_add(sim, node, flags, call->path);
    }
    return err;
}

static enum nd_err sim_open(void *impl, const char *path, int flags, int *file_out,
                            struct nd_errmsg *msg)
{
    struct call call = {.sim = impl, .kind = SIM_OPEN, .path = path, .msg = msg};

    return open_common(&call, flags, file_out);
}

static enum nd_err sim_lock(void *impl, const char *path, int *file_out, struct nd_errmsg *msg)
{
    struct call call = {.sim = impl, .kind = SIM_LOCK, .path = path, .msg = msg};
    enum nd_err err = open_common(&call, ND_OPEN_WRITE | ND_OPEN_CREATE, file_out);

    if (err == ND_OK) {
        struct handle *handle = sim_handle_get(impl, *file_out);
        handle->locks = handle->node->locked = true;
    }
    return err;
}

static void sim_close(void *impl, int file)
{
    struct handle *handle = sim_handle_get(impl, file);

    if (handle != NULL) {
        sim_handle_close(handle);
    }
}

/* Begins a call on an open file; on success `*handle_out` is it. */
static enum nd_err file_begin(struct call *call, int file, struct handle **handle_out)
{
    *handle_out = sim_handle_get(call->sim, file);
    call->path = *handle_out == NULL ? "(a file of an earlier life)" : (*handle_out)->path;
    enum nd_err err = sim_call_begin(call);
    return *handle_out == NULL ? ND_ERR_IO : err;
}

static enum nd_err sim_pread(void *impl, int file, void *data, size_t size, uint64_t at,
                             size_t *read_out, struct nd_errmsg *msg)
{
    struct call call = {.sim = impl, .kind = SIM_PREAD, .at = at, .size = size, .msg = msg};
    struct handle *handle;
    enum nd_err err = file_begin(&call, file, &handle);

    if (err == ND_OK && !is_aligned(handle, data, size, at)) {
        err = ND_ERR_IO;
    }
    if (err == ND_OK) {
        bool direct = (handle->flags & ND_OPEN_DIRECT) != 0;
        *read_out = sim_file_read(&handle->node->file, at, data, size, direct);
    }
    return sim_call_end(&call, err);
}

/* How much of a failing write is done. */
static uint64_t faulty_part(const struct call *call)
{
    if (call->fault == SIM_FAULT_SHORT_WRITE) {
        return call->size == 0 ? 0 : call->size - 1;
    }
    return nd_rand_below(&call->sim->disk_random, call->size + 1);
}

/* A write of `data`, or of zeros (NULL). */
static enum nd_err write_common(struct call *call, int file, const void *data)
{
    struct sim_env *sim = call->sim;
    struct handle *handle;
    enum nd_err err = file_begin(call, file, &handle);
    uint64_t part = call->faulted ? faulty_part(call) : call->size;

    if (handle == NULL || (err != ND_OK && !call->faulted)) {
        return sim_call_end(call, err);
    }
    if ((handle->flags & ND_OPEN_WRITE) == 0 || !is_aligned(handle, data, call->size, call->at)) {
        return sim_call_end(call, ND_ERR_IO);
    }
    uint64_t room = sim_file_room(&handle->node->file, call->at, part, sim_blocks_free(sim));
    if (room < part) {
        part = room;
        err = err == ND_OK ? ND_ERR_NO_SPACE : err;
    }
    sim_file_write(&handle->node->file, sim->changes, call->at, data, part);
    handle->node->mtime_ms = (int64_t)(sim->wall_ns / NS_PER_MS);
    return sim_call_end(call, err);
}

static enum nd_err sim_pwrite(void *impl, int file, const void *data, size_t size, uint64_t at,
                              struct nd_errmsg *msg)
{
    static const uint8_t nothing;
    struct call call = {
        .sim = impl, .kind = SIM_PWRITE, .is_change = true, .at = at, .size = size, .msg = msg};

    return write_common(&call, file, data == NULL ? &nothing : data); /* NULL with size 0 */
}

static enum nd_err sim_zero_fill(void *impl, int file, uint64_t at, uint64_t size,
                                 struct nd_errmsg *msg)
{
    struct call call = {
        .sim = impl, .kind = SIM_ZERO_FILL, .is_change = true, .at = at, .size = size, .msg = msg};

    return write_common(&call, file, NULL);
}

static enum nd_err sim_sync(void *impl, int file, struct nd_errmsg *msg)
{
    struct sim_env *sim = impl;
    struct call call = {.sim = sim, .kind = SIM_SYNC, .is_change = true, .msg = msg};
    struct handle *handle;
    enum nd_err err = file_begin(&call, file, &handle);

    if (call.faulted && handle != NULL && !call.cuts) {
        sim_file_sync_failed(&handle->node->file, &sim->disk_random);
    } else if (err == ND_OK && !call.cuts) {
        sim_file_sync(&handle->node->file);
    }
    return sim_call_end(&call, err);
}

static enum nd_err sim_sync_fs(void *impl, int file, struct nd_errmsg *msg)
{
    struct sim_env *sim = impl;
    struct call call = {.sim = sim, .kind = SIM_SYNC_FS, .is_change = true, .msg = msg};
    struct handle *handle;
    enum nd_err err = file_begin(&call, file, &handle);

    if (call.cuts || handle == NULL || (err != ND_OK && !call.faulted)) {
        return sim_call_end(&call, err);
    }
    ND_LIST_FOREACH (&sim->tree.nodes, link) {
        struct sim_node *node = ND_CONTAINER_OF(link, struct sim_node, link);
        if (call.faulted) {
            sim_file_sync_failed(&node->file, &sim->disk_random);
        } else {
            sim_file_sync(&node->file);
        }
    }
    if (!call.faulted) {
        sim_tree_sync(&sim->tree, NULL);
        sim_tree_sweep(&sim->tree);
    }
    return sim_call_end(&call, err);
}

static enum nd_err sim_truncate(void *impl, int file, uint64_t size, struct nd_errmsg *msg)
{
    struct sim_env *sim = impl;
    struct call call = {
        .sim = sim, .kind = SIM_TRUNCATE, .is_change = true, .size = size, .msg = msg};
    struct handle *handle;
    enum nd_err err = file_begin(&call, file, &handle);

    if (err == ND_OK && (handle->flags & ND_OPEN_WRITE) == 0) {
        err = ND_ERR_IO;
    }
    if (err == ND_OK) {
        sim_file_resize(&handle->node->file, sim->changes, size);
        handle->node->mtime_ms = (int64_t)(sim->wall_ns / NS_PER_MS);
    }
    return sim_call_end(&call, err);
}

static enum nd_err sim_drop_cache(void *impl, int file, uint64_t at, uint64_t size,
                                  struct nd_errmsg *msg)
{
    struct call call = {.sim = impl, .kind = SIM_DROP_CACHE, .at = at, .size = size, .msg = msg};
    struct handle *handle;
    enum nd_err err = file_begin(&call, file, &handle);

    if (err == ND_OK) {
        sim_file_drop_cache(&handle->node->file, at, size);
    }
    return sim_call_end(&call, err);
}

static enum nd_err sim_file_size(void *impl, int file, uint64_t *size_out, struct nd_errmsg *msg)
{
    struct call call = {.sim = impl, .kind = SIM_FILE_SIZE, .msg = msg};
    struct handle *handle;
    enum nd_err err = file_begin(&call, file, &handle);

    if (err == ND_OK) {
        *size_out = handle->node->file.cache_size;
    }
    return sim_call_end(&call, err);
}

/* ---- nd_env: names ---- */

static enum nd_err sim_stat(void *impl, const char *path, struct nd_file_stat *out,
                            struct nd_errmsg *msg)
{
    struct sim_env *sim = impl;
    struct call call = {.sim = sim, .kind = SIM_STAT, .path = path, .msg = msg};
    enum nd_err err = sim_call_begin(&call);

    if (err == ND_OK) {
        const struct sim_node *node = sim_tree_find(&sim->tree, path, &err);
        if (node != NULL) {
            *out = (struct nd_file_stat){
                .kind = node->is_dir ? ND_FILE_DIR : ND_FILE_REGULAR,
                .size = node->file.cache_size,
                .allocated = node->file.blocks_used * SIM_BLOCK,
                .mtime_ms = node->mtime_ms,
            };
        }
    }
    return sim_call_end(&call, err);
}

/* Is `node` one of the directories on the way to `path`? */
static bool leads_through(const struct sim_env *sim, const char *path, const struct sim_node *node)
{
    bool found = false;
    char *prefix = nd_xstrdup(path);
    enum nd_err err;

    for (char *at = prefix; *at != '\0' && !found; at++) {
        if (*at == '/') {
            *at = '\0';
            found = sim_tree_find(&sim->tree, prefix, &err) == node;
            *at = '/';
        }
    }
    nd_free(prefix);
    return found;
}

static enum nd_err rename_checked(struct sim_env *sim, const char *from, const char *to)
{
    char from_name[SIM_NAME_MAX + 1], to_name[SIM_NAME_MAX + 1];
    enum nd_err err;
    struct sim_node *from_dir = sim_tree_parent(&sim->tree, from, from_name, &err);
    struct sim_node *to_dir =
        from_dir == NULL ? NULL : sim_tree_parent(&sim->tree, to, to_name, &err);

    if (to_dir == NULL) {
        return err;
    }
    const struct sim_node *node = sim_names_get(&from_dir->seen, from_name);
    const struct sim_node *target = sim_names_get(&to_dir->seen, to_name);
    if (node == NULL) {
        return ND_ERR_NOT_FOUND;
    }
    if (node == target) {
        return ND_OK;
    }
    if (leads_through(sim, to, node)) {
        return ND_ERR_IO;
    }
    if (target != NULL && (target->is_dir != node->is_dir || target->seen.count > 0)) {
        return ND_ERR_IO;
    }
    sim_tree_rename(&sim->tree, sim->changes, (struct sim_entry){from_name, from_dir},
                    (struct sim_entry){to_name, to_dir});
    return ND_OK;
}

static enum nd_err sim_rename(void *impl, const char *from, const char *to, struct nd_errmsg *msg)
{
    struct call call = {
        .sim = impl, .kind = SIM_RENAME, .is_change = true, .path = from, .msg = msg};
    enum nd_err err = sim_call_begin(&call);

    if (err == ND_OK) {
        err = rename_checked(impl, from, to);
    }
    return sim_call_end(&call, err);
}

static enum nd_err remove_checked(struct sim_env *sim, const char *path, bool is_dir)
{
    char name[SIM_NAME_MAX + 1];
    enum nd_err err;
    struct sim_node *dir = sim_tree_parent(&sim->tree, path, name, &err);

    if (dir == NULL) {
        return err;
    }
    const struct sim_node *node = sim_names_get(&dir->seen, name);
    if (node == NULL) {
        return ND_ERR_NOT_FOUND;
    }
    if (node->is_dir != is_dir || node->seen.count > 0) {
        return ND_ERR_IO;
    }
    sim_tree_unlink(&sim->tree, sim->changes, dir, name);
    return ND_OK;
}

static enum nd_err remove_common(struct call *call, bool is_dir)
{
    enum nd_err err = sim_call_begin(call);

    if (err == ND_OK) {
        err = remove_checked(call->sim, call->path, is_dir);
    }
    return sim_call_end(call, err);
}

static enum nd_err sim_unlink(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct call call = {
        .sim = impl, .kind = SIM_UNLINK, .is_change = true, .path = path, .msg = msg};

    return remove_common(&call, false);
}

static enum nd_err sim_rmdir(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct call call = {
        .sim = impl, .kind = SIM_RMDIR, .is_change = true, .path = path, .msg = msg};

    return remove_common(&call, true);
}

static enum nd_err mkdir_checked(struct sim_env *sim, const char *path)
{
    char name[SIM_NAME_MAX + 1];
    enum nd_err err;

    if (sim_tree_find(&sim->tree, path, &err) != NULL) { /* the root, too */
        return ND_ERR_ALREADY_EXISTS;
    }
    struct sim_node *dir = sim_tree_parent(&sim->tree, path, name, &err);
    if (dir == NULL) {
        return err;
    }
    sim_tree_create(&sim->tree, sim->changes, dir, name, true)->mtime_ms =
        (int64_t)(sim->wall_ns / NS_PER_MS);
    return ND_OK;
}

static enum nd_err sim_mkdir(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct call call = {
        .sim = impl, .kind = SIM_MKDIR, .is_change = true, .path = path, .msg = msg};
    enum nd_err err = sim_call_begin(&call);

    if (err == ND_OK) {
        err = mkdir_checked(impl, path);
    }
    return sim_call_end(&call, err);
}

static struct sim_node *find_dir(const struct sim_env *sim, const char *path, enum nd_err *err_out)
{
    struct sim_node *node = sim_tree_find(&sim->tree, path, err_out);

    if (node != NULL && !node->is_dir) {
        *err_out = ND_ERR_IO;
        return NULL;
    }
    return node;
}

static enum nd_err sim_sync_dir(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct sim_env *sim = impl;
    struct call call = {
        .sim = sim, .kind = SIM_SYNC_DIR, .is_change = true, .path = path, .msg = msg};
    enum nd_err err = sim_call_begin(&call);

    if (err == ND_OK && !call.cuts) {
        const struct sim_node *dir = find_dir(sim, path, &err);
        if (dir != NULL) {
            sim_tree_sync(&sim->tree, dir);
            sim_tree_sweep(&sim->tree);
        }
    }
    return sim_call_end(&call, err);
}

/* The callback may change the directory, so it walks over a copy; it begins anywhere, since "in no
 * order" is what callers must live with. */
static void list_dir(struct sim_env *sim, const struct sim_node *dir, nd_list_cb *cb, void *arg)
{
    size_t count = dir->seen.count;
    size_t first = count == 0 ? 0 : (size_t)nd_rand_below(&sim->disk_random, count);
    struct sim_entry *copy = nd_xcalloc(count, sizeof *copy);
    bool goes_on = true;

    for (size_t i = 0; i < count; i++) {
        copy[i] = dir->seen.entries[i];
        copy[i].name = nd_xstrdup(copy[i].name);
    }
    for (size_t i = 0; i < count && goes_on; i++) {
        const struct sim_entry *entry = &copy[(first + i) % count];
        enum nd_file_kind kind = entry->node->is_dir ? ND_FILE_DIR : ND_FILE_REGULAR;
        goes_on = cb(arg, entry->name, kind);
    }
    for (size_t i = 0; i < count; i++) {
        nd_free(copy[i].name);
    }
    nd_free(copy);
}

static enum nd_err sim_list(void *impl, const char *path, nd_list_cb *cb, void *arg,
                            struct nd_errmsg *msg)
{
    struct sim_env *sim = impl;
    struct call call = {.sim = sim, .kind = SIM_LIST, .path = path, .msg = msg};
    enum nd_err err = sim_call_begin(&call);
    const struct sim_node *dir = err == ND_OK ? find_dir(sim, path, &err) : NULL;

    err = sim_call_end(&call, err);
    if (dir != NULL) {
        list_dir(sim, dir, cb, arg);
    }
    return err;
}

static enum nd_err sim_space(void *impl, const char *path, struct nd_disk_space *out,
                             struct nd_errmsg *msg)
{
    struct sim_env *sim = impl;
    struct call call = {.sim = sim, .kind = SIM_SPACE, .path = path, .msg = msg};
    enum nd_err err = sim_call_begin(&call);

    if (err == ND_OK && sim_tree_find(&sim->tree, path, &err) != NULL) {
        out->bytes_total = sim->space_total;
        out->bytes_free = sim_blocks_free(sim) * SIM_BLOCK;
        out->inodes_free = UINT64_MAX;
    }
    return sim_call_end(&call, err);
}

/* ---- nd_env: clocks and randomness ---- */

static int64_t sim_wall_ms(void *impl)
{
    const struct sim_env *sim = impl;

    return (int64_t)(sim->wall_ns / NS_PER_MS);
}

static uint64_t sim_boot_ns(void *impl)
{
    const struct sim_env *sim = impl;

    return sim->boot_ns;
}

static uint64_t sim_mono_ns(void *impl)
{
    const struct sim_env *sim = impl;

    return sim->mono_ns;
}

static void sim_random(void *impl, void *data, size_t size)
{
    struct sim_env *sim = impl;
    uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(nd_rand(&sim->env_random) >> 32);
    }
}

const struct nd_env sim_calls = {
    .open = sim_open,
    .close = sim_close,
    .pread = sim_pread,
    .pwrite = sim_pwrite,
    .sync = sim_sync,
    .sync_fs = sim_sync_fs,
    .sync_dir = sim_sync_dir,
    .truncate = sim_truncate,
    .zero_fill = sim_zero_fill,
    .drop_cache = sim_drop_cache,
    .file_size = sim_file_size,
    .stat = sim_stat,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .mkdir = sim_mkdir,
    .rmdir = sim_rmdir,
    .list = sim_list,
    .space = sim_space,
    .lock = sim_lock,
    .wall_ms = sim_wall_ms,
    .boot_ns = sim_boot_ns,
    .mono_ns = sim_mono_ns,
    .random = sim_random,
};
