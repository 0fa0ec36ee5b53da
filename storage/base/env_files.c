/* Whole-file operations on top of any nd_env. */
#include "storage/base/alloc.h"
#include "storage/base/env.h"

/* The directory that holds the entry `path`. nd_free. */
static char *parent_of(const char *path)
{
    size_t size = strlen(path);

    while (size > 1 && path[size - 1] == '/') {
        size -= 1;
    }
    while (size > 0 && path[size - 1] != '/') {
        size -= 1;
    }
    while (size > 1 && path[size - 1] == '/') {
        size -= 1;
    }
    return size == 0 ? nd_xstrdup(".") : nd_xasprintf("%.*s", (int)size, path);
}

static enum nd_err sync_parent(const struct nd_env *env, const char *path, struct nd_errmsg *msg)
{
    char *parent = parent_of(path);
    enum nd_err err = env->sync_dir(env->impl, parent, msg);

    nd_free(parent);
    return err;
}

/* The entry of the deepest directory that was there may be unsynced: the remains of a crash between
 * mkdir and sync. Of deeper ones there is none, since each is synced before the next is made. Its
 * parent may be somebody else's and closed to us, so a failure is not held against the caller. */
static void sync_remains(const struct nd_env *env, const char *path)
{
    nd_ignore(sync_parent(env, path, NULL), "an old entry; new ones are synced without fail");
}

/* `path`, whose parent is there, is a directory afterwards. `*is_new` is false while every
 * directory so far was there. */
static enum nd_err mkdir_one(const struct nd_env *env, const char *path, bool *is_new,
                             struct nd_errmsg *msg)
{
    struct nd_file_stat stat;
    enum nd_err err = env->stat(env->impl, path, &stat, msg);

    if (err == ND_OK && stat.kind != ND_FILE_DIR) {
        nd_errmsg_set(msg, "mkdir %s: a file of this name is in the way", path);
        return ND_ERR_ALREADY_EXISTS;
    }
    if (err != ND_ERR_NOT_FOUND) {
        return err;
    }
    if (!*is_new) {
        char *parent = parent_of(path);
        sync_remains(env, parent);
        nd_free(parent);
        *is_new = true;
    }
    err = env->mkdir(env->impl, path, msg);
    if (err != ND_OK && err != ND_ERR_ALREADY_EXISTS) { /* another may have made it just now */
        return err;
    }
    return sync_parent(env, path, msg);
}

enum nd_err nd_env_mkdirs(const struct nd_env *env, const char *path, struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;
    bool is_new = false;
    char *prefix = nd_xstrdup(path);
    size_t size = strlen(prefix);

    while (size > 1 && prefix[size - 1] == '/') {
        prefix[--size] = '\0';
    }
    for (size_t at = 1; at <= size && err == ND_OK; at++) {
        bool at_end = prefix[at] == '\0';
        if ((prefix[at] == '/' || at_end) && prefix[at - 1] != '/') {
            prefix[at] = '\0';
            err = mkdir_one(env, prefix, &is_new, msg);
            prefix[at] = at_end ? '\0' : '/';
        }
    }
    if (err == ND_OK && !is_new) {
        sync_remains(env, prefix);
    }
    nd_free(prefix);
    return err;
}

enum nd_err nd_env_read_file(const struct nd_env *env, const char *path, size_t size_max,
                             uint8_t **data_out, size_t *size_out, struct nd_errmsg *msg)
{
    int file;
    uint64_t size;
    size_t read;
    enum nd_err err = env->open(env->impl, path, ND_OPEN_READ, &file, msg);

    if (err != ND_OK) {
        return err;
    }
    err = env->file_size(env->impl, file, &size, msg);
    if (err != ND_OK) {
        goto fail_file;
    }
    if (size > size_max) {
        nd_errmsg_set(msg, "read %s: %llu bytes, more than the limit of %zu", path,
                      (unsigned long long)size, size_max);
        err = ND_ERR_TOO_LARGE;
        goto fail_file;
    }
    uint8_t *data = nd_malloc((size_t)size + 1);
    if (data == NULL) {
        nd_errmsg_set(msg, "read %s: out of memory", path);
        err = ND_ERR_NO_MEMORY;
        goto fail_file;
    }
    err = env->pread(env->impl, file, data, (size_t)size, 0, &read, msg);
    if (err != ND_OK) {
        goto fail_data;
    }
    env->close(env->impl, file);
    data[read] = '\0';
    *data_out = data;
    *size_out = read;
    return ND_OK;

fail_data:
    nd_free(data);
fail_file:
    env->close(env->impl, file);
    return err;
}

static enum nd_err write_whole(const struct nd_env *env, const char *path, struct nd_slice bytes,
                               struct nd_errmsg *msg)
{
    int file;
    enum nd_err err = env->open(env->impl, path, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, msg);

    if (err != ND_OK) {
        return err;
    }
    err = env->truncate(env->impl, file, 0, msg); /* the remains of an earlier try */
    if (err == ND_OK && bytes.size > 0) {
        err = env->pwrite(env->impl, file, bytes.data, bytes.size, 0, msg);
    }
    if (err == ND_OK) {
        err = env->sync(env->impl, file, msg);
    }
    env->close(env->impl, file);
    return err;
}

enum nd_err nd_env_replace_file(const struct nd_env *env, const char *path, struct nd_slice bytes,
                                struct nd_errmsg *msg)
{
    char *temporary = nd_xasprintf("%s.tmp", path);
    enum nd_err err = write_whole(env, temporary, bytes, msg);

    if (err == ND_OK) {
        err = env->rename(env->impl, temporary, path, msg);
    }
    if (err == ND_OK) {
        err = sync_parent(env, path, msg);
    } else {
        nd_ignore(env->unlink(env->impl, temporary, NULL), "the first error is the one to tell");
    }
    nd_free(temporary);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "replace %s", path);
    }
    return err;
}
