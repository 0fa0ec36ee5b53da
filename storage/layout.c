#include "storage/layout.h"

#include <inttypes.h>
#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/crc32c.h"

/* FORMAT is text of four lines, so that a person can read it:
 *   narad-data 1
 *   store <32 hex digits>
 *   state new | ready         new: the log was never opened; it may be missing
 *   crc32c <8 hex digits>     of the lines above
 * A newer number in the first line is refused. To change it see storage/README.md. */
enum {
    FORMAT_VERSION = 1,
    FORMAT_SIZE_MAX = 4096,
    TEXT_SIZE = 256,
};

static const char *const subdirs[] = {"wal",        "topics",  "outbox",
                                      "quarantine", "staging", "removed"};

void nd_layout_partition_dir(char *out, size_t out_size, const char *data_dir,
                             const struct nd_partition_id *id)
{
    int size = snprintf(out, out_size, "%s/topics/%s/%016" PRIx64 "/p%05" PRIu32, data_dir,
                        id->topic, id->incarnation, id->partition);

    ND_ASSERT(size > 0 && (size_t)size < out_size);
}

static void hex_put(char out[33], const uint8_t id[16])
{
    for (size_t i = 0; i < 16; i++) {
        snprintf(out + 2 * i, 3, "%02x", id[i]);
    }
}

static void format_path(const struct nd_layout *layout, char out[ND_LAYOUT_PATH_SIZE + 16])
{
    snprintf(out, ND_LAYOUT_PATH_SIZE + 16, "%s/FORMAT", layout->dir);
}

static size_t format_render(const struct nd_layout *layout, char text[TEXT_SIZE])
{
    char id[33];

    hex_put(id, layout->store_id);
    int size = snprintf(text, TEXT_SIZE, "narad-data %d\nstore %s\nstate %s\n", FORMAT_VERSION, id,
                        layout->fresh ? "new" : "ready");
    uint32_t crc = nd_crc32c(0, text, (size_t)size);
    size += snprintf(text + size, TEXT_SIZE - (size_t)size, "crc32c %08" PRIx32 "\n", crc);
    return (size_t)size;
}

static enum nd_err format_write(const struct nd_layout *layout, struct nd_errmsg *msg)
{
    char text[TEXT_SIZE], path[ND_LAYOUT_PATH_SIZE + 16];
    size_t size = format_render(layout, text);

    format_path(layout, path);
    return nd_env_replace_file(layout->env, path, nd_slice_make(text, size), msg);
}

static bool hex_get(const char *text, uint8_t out[16])
{
    for (size_t i = 0; i < 16; i++) {
        unsigned value;
        if (sscanf(text + 2 * i, "%2x", &value) != 1) {
            return false;
        }
        out[i] = (uint8_t)value;
    }
    return true;
}

/* `text` is NUL-terminated. It must be, to the byte, what we would write. */
static enum nd_err format_parse(struct nd_layout *layout, const char *text)
{
    char store[33], state[9], again[TEXT_SIZE];
    unsigned version;

    if (sscanf(text, "narad-data %u\n", &version) != 1) {
        return ND_ERR_CORRUPT;
    }
    if (version != FORMAT_VERSION) {
        return ND_ERR_UNSUPPORTED;
    }
    int count =
        sscanf(text, "narad-data %u\nstore %32[0-9a-f]\nstate %8[a-z]\n", &version, store, state);
    if (count != 3 || strlen(store) != 32 || !hex_get(store, layout->store_id)) {
        return ND_ERR_CORRUPT;
    }
    layout->fresh = strcmp(state, "new") == 0;
    (void)format_render(layout, again);
    return strcmp(text, again) == 0 ? ND_OK : ND_ERR_CORRUPT;
}

enum nd_err nd_layout_format_get(struct nd_slice in, uint8_t store_id_out[16], bool *fresh_out)
{
    char text[TEXT_SIZE];
    struct nd_layout layout;

    /* A longer one is none of ours, but its first line may say that it is a newer one. */
    size_t size = ND_MIN(in.size, sizeof text - 1);
    if (memchr(in.data, '\0', size) != NULL) {
        return ND_ERR_CORRUPT;
    }
    memcpy(text, in.data, size);
    text[size] = '\0';
    enum nd_err err = format_parse(&layout, text);
    if (err == ND_OK) {
        memcpy(store_id_out, layout.store_id, sizeof layout.store_id);
        *fresh_out = layout.fresh;
    }
    return err;
}

static bool entry_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    bool *seen = arg;

    (void)name;
    (void)kind;
    *seen = true;
    return false;
}

/* Data that no FORMAT speaks for is not ours to write over. */
static enum nd_err emptiness_check(const struct nd_layout *layout, struct nd_errmsg *msg)
{
    static const char *const dirs[] = {"wal", "topics"};
    const struct nd_env *env = layout->env;

    for (size_t i = 0; i < ND_ARRAY_SIZE(dirs); i++) {
        char path[ND_LAYOUT_PATH_SIZE + 16];
        bool seen = false;
        snprintf(path, sizeof path, "%s/%s", layout->dir, dirs[i]);
        enum nd_err err = env->list(env->impl, path, entry_seen, &seen, msg);
        if (err != ND_OK && err != ND_ERR_NOT_FOUND) {
            return err;
        }
        if (seen) {
            nd_errmsg_set(msg, "%s holds data, but there is no FORMAT file", path);
            return ND_ERR_CORRUPT;
        }
    }
    return ND_OK;
}

static enum nd_err format_read(struct nd_layout *layout, struct nd_errmsg *msg)
{
    char path[ND_LAYOUT_PATH_SIZE + 16];
    uint8_t *data;
    size_t size;

    format_path(layout, path);
    enum nd_err err = nd_env_read_file(layout->env, path, FORMAT_SIZE_MAX, &data, &size, msg);
    if (err == ND_ERR_NOT_FOUND) {
        err = emptiness_check(layout, msg);
        if (err != ND_OK) {
            return err;
        }
        layout->env->random(layout->env->impl, layout->store_id, sizeof layout->store_id);
        layout->fresh = true;
        return format_write(layout, msg);
    }
    if (err != ND_OK) {
        return err;
    }
    err = nd_layout_format_get(nd_slice_make(data, size), layout->store_id, &layout->fresh);
    nd_free(data);
    if (err != ND_OK) {
        nd_errmsg_set(msg, "%s: %s", path,
                      err == ND_ERR_UNSUPPORTED ? "written by a newer version" : "damaged");
    }
    return err;
}

enum nd_err nd_layout_open(struct nd_layout *out, const struct nd_env *env, const char *dir,
                           struct nd_errmsg *msg)
{
    char path[ND_LAYOUT_PATH_SIZE + 16];
    enum nd_err err = ND_ERR_INVALID_ARGUMENT;

    memset(out, 0, sizeof *out);
    out->env = env;
    if (strlen(dir) > ND_LAYOUT_PATH_SIZE - ND_TOPIC_NAME_SIZE_MAX - 64) {
        nd_errmsg_set(msg, "the path is too long");
        goto fail;
    }
    snprintf(out->dir, sizeof out->dir, "%s", dir);
    snprintf(out->wal_dir, sizeof out->wal_dir, "%s/wal", dir);
    err = nd_env_mkdirs(env, dir, msg);
    if (err != ND_OK) {
        goto fail;
    }
    snprintf(path, sizeof path, "%s/LOCK", dir);
    err = env->lock(env->impl, path, &out->lock, msg);
    if (err != ND_OK) {
        goto fail;
    }
    err = format_read(out, msg);
    for (size_t i = 0; i < ND_ARRAY_SIZE(subdirs) && err == ND_OK; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, subdirs[i]);
        err = nd_env_mkdirs(env, path, msg);
    }
    if (err == ND_OK) {
        return ND_OK;
    }
    env->close(env->impl, out->lock);
fail:
    nd_errmsg_wrap(msg, "data directory %s", dir);
    return err;
}

enum nd_err nd_layout_confirm(struct nd_layout *layout, struct nd_errmsg *msg)
{
    if (!layout->fresh) {
        return ND_OK;
    }
    layout->fresh = false;
    enum nd_err err = format_write(layout, msg);
    layout->fresh = err != ND_OK;
    return err;
}

void nd_layout_close(struct nd_layout *layout)
{
    layout->env->close(layout->env->impl, layout->lock);
}
