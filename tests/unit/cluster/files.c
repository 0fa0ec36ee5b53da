#include "tests/unit/cluster/files.h"

#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/env.h"

struct search {
    const char *part, *without;
    char *found;
    uint32_t count;
};

static bool match(void *arg, const char *name, enum nd_file_kind kind)
{
    struct search *search = arg;
    (void)kind;
    if (strstr(name, search->part) != NULL &&
        (search->without == NULL || strstr(name, search->without) == NULL)) {
        search->count++;
        /* the lowest, so that every run takes the same */
        if (search->found == NULL || strcmp(name, search->found) < 0) {
            nd_free(search->found);
            search->found = nd_xstrdup(name);
        }
    }
    return true;
}

static struct search search_dir(const char *dir, const char *part, const char *without)
{
    const struct nd_env *env = nd_env_posix();
    struct search search = {part, without, NULL, 0};
    enum nd_err err = env->list(env->impl, dir, match, &search, NULL);
    ND_ASSERT(err == ND_OK);
    return search;
}

char *files_find(const char *dir, const char *part, const char *without)
{
    return search_dir(dir, part, without).found;
}

uint32_t files_count(const char *dir, const char *part)
{
    struct search search = search_dir(dir, part, NULL);
    nd_free(search.found);
    return search.count;
}

struct newest {
    char *name;
    unsigned long long index;
};

static bool look_newest(void *arg, const char *name, enum nd_file_kind kind)
{
    struct newest *newest = arg;
    unsigned long long term, index;
    (void)kind;
    if (sscanf(name, "snapshot-%llu-%llu", &term, &index) == 2 && strstr(name, ".meta") == NULL &&
        index > newest->index) {
        nd_free(newest->name);
        *newest = (struct newest){nd_xstrdup(name), index};
    }
    return true;
}

char *files_newest_snapshot(const char *dir)
{
    const struct nd_env *env = nd_env_posix();
    struct newest newest = {NULL, 0};
    enum nd_err err = env->list(env->impl, dir, look_newest, &newest, NULL);
    ND_ASSERT(err == ND_OK);
    return newest.name;
}

struct nd_slice files_read(const char *path)
{
    uint8_t *data;
    size_t size;
    enum nd_err err = nd_env_read_file(nd_env_posix(), path, 64 << 20, &data, &size, NULL);
    ND_ASSERT(err == ND_OK);
    return nd_slice_make(data, size);
}

void files_write(const char *path, struct nd_slice bytes)
{
    enum nd_err err = nd_env_replace_file(nd_env_posix(), path, bytes, NULL);
    ND_ASSERT(err == ND_OK);
}

void files_flip(const char *path, uint64_t at)
{
    const struct nd_env *env = nd_env_posix();
    uint8_t byte;
    size_t size;
    int file;

    enum nd_err err = env->open(env->impl, path, ND_OPEN_WRITE, &file, NULL);
    ND_ASSERT(err == ND_OK);
    err = env->pread(env->impl, file, &byte, 1, at, &size, NULL);
    ND_ASSERT(err == ND_OK && size == 1);
    byte ^= 0x40;
    err = env->pwrite(env->impl, file, &byte, 1, at, NULL);
    ND_ASSERT(err == ND_OK);
    env->close(env->impl, file);
}

struct each {
    const char *from, *to;
    uint64_t allocated;
};

static bool add_allocated(void *arg, const char *name, enum nd_file_kind kind)
{
    const struct nd_env *env = nd_env_posix();
    struct each *each = arg;
    struct nd_file_stat stat;
    char *path = nd_xasprintf("%s/%s", each->from, name);
    (void)kind;
    if (env->stat(env->impl, path, &stat, NULL) == ND_OK) {
        each->allocated += stat.allocated;
    }
    nd_free(path);
    return true;
}

uint64_t files_allocated(const char *dir)
{
    const struct nd_env *env = nd_env_posix();
    struct each each = {.from = dir};
    enum nd_err err = env->list(env->impl, dir, add_allocated, &each, NULL);
    ND_ASSERT(err == ND_OK);
    return each.allocated;
}

static bool copy(void *arg, const char *name, enum nd_file_kind kind)
{
    const struct nd_env *env = nd_env_posix();
    struct each *each = arg;
    char *from = nd_xasprintf("%s/%s", each->from, name);
    char *to = nd_xasprintf("%s/%s", each->to, name);
    uint8_t *data;
    size_t size;
    (void)kind;

    enum nd_err err = nd_env_read_file(env, from, 64 << 20, &data, &size, NULL);
    ND_ASSERT(err == ND_OK);
    err = nd_env_replace_file(env, to, nd_slice_make(data, size), NULL);
    ND_ASSERT(err == ND_OK);
    nd_free(data);
    nd_free(from);
    nd_free(to);
    return true;
}

void files_copy_dir(const char *from, const char *to)
{
    const struct nd_env *env = nd_env_posix();
    struct each each = {from, to, 0};
    enum nd_err err = nd_env_mkdirs(env, to, NULL);
    ND_ASSERT(err == ND_OK);
    err = env->list(env->impl, from, copy, &each, NULL);
    ND_ASSERT(err == ND_OK);
}

void files_remove(const char *dir, const char *name)
{
    const struct nd_env *env = nd_env_posix();
    char *path = nd_xasprintf("%s/%s", dir, name);
    enum nd_err err = env->unlink(env->impl, path, NULL);
    ND_ASSERT(err == ND_OK);
    nd_free(path);
}

static bool remove_one(void *arg, const char *name, enum nd_file_kind kind)
{
    (void)kind;
    files_remove(arg, name);
    return true;
}

void files_remove_dir(const char *dir)
{
    const struct nd_env *env = nd_env_posix();
    enum nd_err err = env->list(env->impl, dir, remove_one, (void *)(uintptr_t)dir, NULL);
    ND_ASSERT(err == ND_OK);
    err = env->rmdir(env->impl, dir, NULL);
    ND_ASSERT(err == ND_OK);
}
