#include "tests/hostile/image.h"

#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"

enum { READ_SIZE_MAX = 16 << 20 };

struct taking {
    struct image *image;
    const struct nd_env *env;
    const char *dir;
    char *dirs[IMAGE_FILES_MAX];
    size_t dirs_count;
};

static bool entry_take(void *arg, const char *name, enum nd_file_kind kind)
{
    struct taking *taking = arg;
    char *path = nd_xasprintf("%s/%s", taking->dir, name);

    if (kind == ND_FILE_DIR) {
        ND_ASSERT(taking->dirs_count < IMAGE_FILES_MAX);
        taking->dirs[taking->dirs_count++] = path;
        return true;
    }
    ND_ASSERT(taking->image->count < IMAGE_FILES_MAX);
    taking->image->files[taking->image->count++] = (struct image_file){.path = path};
    return true;
}

static int path_compare(const void *a, const void *b)
{
    const struct image_file *left = a, *right = b;

    return strcmp(left->path, right->path);
}

static void file_read(struct image_file *file, const struct nd_env *env)
{
    size_t size;
    struct nd_errmsg msg = {{0}};
    enum nd_err err = nd_env_read_file(env, file->path, READ_SIZE_MAX, &file->bytes, &size, &msg);

    ND_ASSERT(err == ND_OK);
    file->size = file->filled = size;
    while (file->filled > 0 && file->bytes[file->filled - 1] == 0) {
        file->filled -= 1;
    }
}

void image_take(struct image *image, struct sim_env *sim)
{
    const struct nd_env *env = sim_env_get(sim);
    struct taking taking = {.image = image, .env = env, .dirs = {nd_xstrdup("data")}};

    memset(image, 0, sizeof *image);
    taking.dirs_count = 1;
    while (taking.dirs_count > 0) {
        char *dir = taking.dirs[--taking.dirs_count];
        taking.dir = dir;
        enum nd_err err = env->list(env->impl, dir, entry_take, &taking, NULL);
        ND_ASSERT(err == ND_OK);
        nd_free(dir);
    }
    qsort(image->files, image->count, sizeof image->files[0], path_compare);
    for (size_t i = 0; i < image->count; i++) {
        file_read(&image->files[i], env);
    }
}

void image_release(struct image *image)
{
    for (size_t i = 0; i < image->count; i++) {
        nd_free(image->files[i].path);
        nd_free(image->files[i].bytes);
    }
    image->count = 0;
}

static void file_put(const struct image_file *file, const struct nd_env *env)
{
    int handle;
    enum nd_err err =
        env->open(env->impl, file->path, ND_OPEN_WRITE | ND_OPEN_CREATE, &handle, NULL);

    if (err == ND_ERR_NOT_FOUND) {
        char *dir = nd_xstrdup(file->path);
        *strrchr(dir, '/') = '\0';
        err = nd_env_mkdirs(env, dir, NULL);
        ND_ASSERT(err == ND_OK);
        nd_free(dir);
        err = env->open(env->impl, file->path, ND_OPEN_WRITE | ND_OPEN_CREATE, &handle, NULL);
    }
    ND_ASSERT(err == ND_OK);
    err = env->truncate(env->impl, handle, file->size, NULL);
    uint64_t filled = ND_MIN(file->filled, file->size);
    if (err == ND_OK && filled > 0) {
        err = env->pwrite(env->impl, handle, file->bytes, (size_t)filled, 0, NULL);
    }
    if (err == ND_OK) {
        err = env->sync(env->impl, handle, NULL);
    }
    ND_ASSERT(err == ND_OK);
    env->close(env->impl, handle);
}

void image_put(const struct image *image, struct sim_env *sim)
{
    for (size_t i = 0; i < image->count; i++) {
        file_put(&image->files[i], sim_env_get(sim));
    }
}

static bool ends_with(const char *path, const char *suffix)
{
    size_t size = strlen(path), suffix_size = strlen(suffix);

    return size >= suffix_size && strcmp(path + size - suffix_size, suffix) == 0;
}

struct image_file *image_find(struct image *image, const char *path_end)
{
    for (size_t i = 0; i < image->count; i++) {
        if (ends_with(image->files[i].path, path_end)) {
            return &image->files[i];
        }
    }
    return NULL;
}

static bool file_kept(const struct image_file *file, const struct nd_env *env, const char *path)
{
    uint8_t *bytes;
    size_t size;

    if (nd_env_read_file(env, path, READ_SIZE_MAX, &bytes, &size, NULL) != ND_OK) {
        return false;
    }
    uint64_t filled = ND_MIN(file->filled, file->size);
    bool kept = size >= file->size && memcmp(bytes, file->bytes, (size_t)filled) == 0;
    nd_free(bytes);
    return kept;
}

const char *image_kept(const struct image *image, struct sim_env *sim, const char *suffix)
{
    for (size_t i = 0; i < image->count; i++) {
        const struct image_file *file = &image->files[i];
        if (!ends_with(file->path, suffix) || file_kept(file, sim_env_get(sim), file->path)) {
            continue;
        }
        /* A segment without a valid frame is set aside. */
        char *bad =
            nd_xasprintf("%.*s.bad", (int)(strlen(file->path) - strlen(suffix)), file->path);
        bool kept = file_kept(file, sim_env_get(sim), bad);
        nd_free(bad);
        if (!kept) {
            return file->path;
        }
    }
    return NULL;
}
