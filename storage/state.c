/* FILE, little-endian: two copies of the same bytes, the second in the middle of the file, each
 * filled up with zeros to whole 4 KiB blocks, so that one bad block leaves one copy:
 *
 *    0 u32 magic "NDST" | 4 u32 crc32c of the rest up to the end of the body | 8 u32 format 1
 *   12 u32 body size | 16 store id | 32 positions (positions.h)
 *
 * Order of writes: all temporaries, one sync, renames, directories. */
#include "storage/state.h"

#include <inttypes.h>
#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/crc32c.h"

enum {
    MAGIC = 0x5453444e,
    FORMAT = 1,
    HEADER_SIZE = 32,
    CRC_FROM = 8,
    BLOCK = 4096,
    SIZE_MAX_STORED = 256 << 20, /* both copies */
    SYNC_ONE_BY_ONE_MAX = 8,
};

static size_t align_up(size_t size)
{
    return (size + BLOCK - 1) & ~(size_t)(BLOCK - 1);
}

/* --- load --- */

enum nd_err nd_state_copy_get(struct nd_slice file, int copy, uint8_t store_id_out[16],
                              struct nd_positions *out)
{
    size_t from = copy == 0 ? 0 : file.size / 2;
    struct nd_slice in = nd_slice_make(file.data + from, file.size - from);

    if (in.size < HEADER_SIZE || nd_get_u32(in.data) != MAGIC ||
        nd_get_u32(in.data + 8) != FORMAT) {
        return ND_ERR_CORRUPT;
    }
    size_t body_size = nd_get_u32(in.data + 12);
    if (body_size > in.size - HEADER_SIZE ||
        nd_get_u32(in.data + 4) !=
            nd_crc32c(0, in.data + CRC_FROM, HEADER_SIZE - CRC_FROM + body_size)) {
        return ND_ERR_CORRUPT;
    }
    memcpy(store_id_out, in.data + 16, 16);
    return nd_positions_get(nd_slice_make(in.data + HEADER_SIZE, body_size), out);
}

static enum nd_err copy_get(struct nd_slice file, int copy, const uint8_t store_id[16],
                            bool *foreign, struct nd_positions *out)
{
    uint8_t found[16];
    enum nd_err err = nd_state_copy_get(file, copy, found, out);

    *foreign = err == ND_OK && memcmp(found, store_id, sizeof found) != 0;
    return *foreign ? ND_ERR_CORRUPT : err;
}

/* Do the positions belong where they were found? */
static bool is_dir_of(const char *dir, const struct nd_partition_id *id)
{
    char *end =
        nd_xasprintf("/%s/%016" PRIx64 "/p%05" PRIu32, id->topic, id->incarnation, id->partition);
    size_t size = strlen(dir), end_size = strlen(end);
    bool fits = size >= end_size && strcmp(dir + size - end_size, end) == 0;

    nd_free(end);
    return fits;
}

enum nd_err nd_state_load(const struct nd_env *env, const char *partition_dir,
                          const uint8_t store_id[16], struct nd_positions *out,
                          struct nd_errmsg *msg)
{
    char *path = nd_xasprintf("%s/state", partition_dir);
    bool foreign = false;
    uint8_t *data;
    size_t size;
    enum nd_err err = nd_env_read_file(env, path, SIZE_MAX_STORED, &data, &size, msg);

    if (err == ND_OK) {
        struct nd_slice file = nd_slice_make(data, size);
        err = copy_get(file, 0, store_id, &foreign, out);
        if (err != ND_OK && !foreign) {
            nd_positions_release(out);
            nd_positions_init(out);
            err = copy_get(file, 1, store_id, &foreign, out);
        }
        if (err != ND_OK) {
            nd_errmsg_set(msg, "%s: %s", path,
                          foreign ? "belongs to another store" : "neither copy is whole");
        } else if (!is_dir_of(partition_dir, &out->id)) {
            nd_errmsg_set(msg, "%s: belongs to another partition", path);
            err = ND_ERR_CORRUPT;
        }
        nd_free(data);
    } else if (err == ND_ERR_TOO_LARGE) {
        err = ND_ERR_CORRUPT;
    }
    nd_free(path);
    return err;
}

/* --- store --- */

struct writing {
    const struct nd_env *env;
    const uint8_t *store_id;
    struct nd_errmsg *msg;
};

static enum nd_err encode(const struct writing *w, const struct nd_positions *positions,
                          struct nd_buf *out)
{
    static const uint8_t zeros[BLOCK];

    nd_buf_put_u32(out, MAGIC);
    nd_buf_put_u32(out, 0);
    nd_buf_put_u32(out, FORMAT);
    nd_buf_put_u32(out, 0);
    nd_buf_put(out, w->store_id, 16);
    nd_positions_put(out, positions);
    if (nd_buf_failed(out)) {
        return ND_ERR_NO_MEMORY;
    }
    size_t size = out->size;
    nd_put_u32(out->data + 12, (uint32_t)(size - HEADER_SIZE));
    nd_put_u32(out->data + 4, nd_crc32c(0, out->data + CRC_FROM, size - CRC_FROM));
    nd_buf_put(out, zeros, align_up(size) - size);
    return nd_buf_failed(out) ? ND_ERR_NO_MEMORY : ND_OK;
}

static enum nd_err temporary_open(const struct writing *w, const char *dir, int *file_out)
{
    const struct nd_env *env = w->env;
    const int flags = ND_OPEN_WRITE | ND_OPEN_CREATE;
    char *path = nd_xasprintf("%s/state.tmp", dir);
    enum nd_err err = env->open(env->impl, path, flags, file_out, w->msg);

    if (err == ND_ERR_NOT_FOUND) { /* a partition that never had a segment */
        err = nd_env_mkdirs(env, dir, w->msg);
        if (err == ND_OK) {
            err = env->open(env->impl, path, flags, file_out, w->msg);
        }
    }
    nd_free(path);
    return err;
}

/* Write the temporary of one item, both copies. On success the file is open. */
static enum nd_err temporary_write(const struct writing *w, const struct nd_state_item *item,
                                   int *file_out)
{
    const struct nd_env *env = w->env;
    struct nd_buf buf;
    int file;

    nd_buf_init(&buf, SIZE_MAX_STORED / 2);
    enum nd_err err = encode(w, item->positions, &buf);
    if (err == ND_OK) {
        err = temporary_open(w, item->partition_dir, &file);
    }
    if (err == ND_OK) {
        err = env->truncate(env->impl, file, 0, w->msg);
        for (uint64_t at = 0; at <= buf.size && err == ND_OK; at += buf.size) {
            err = env->pwrite(env->impl, file, buf.data, buf.size, at, w->msg);
        }
        if (err == ND_OK) {
            *file_out = file;
        } else {
            env->close(env->impl, file);
        }
    }
    nd_buf_release(&buf);
    return err;
}

static enum nd_err rename_one(const struct writing *w, const char *dir)
{
    char *from = nd_xasprintf("%s/state.tmp", dir);
    char *to = nd_xasprintf("%s/state", dir);
    enum nd_err err = w->env->rename(w->env->impl, from, to, w->msg);

    nd_free(from);
    nd_free(to);
    return err;
}

/* Write and sync the temporaries; the files are closed again. */
static void temporaries_make(const struct writing *w, struct nd_state_item *items, size_t count)
{
    const struct nd_env *env = w->env;
    int *files = nd_xcalloc(count, sizeof *files);
    size_t good = 0, last = 0;

    for (size_t i = 0; i < count; i++) {
        items[i].result = temporary_write(w, &items[i], &files[i]);
        last = items[i].result == ND_OK ? i : last;
        good += items[i].result == ND_OK;
    }
    /* When syncfs fails, all have failed: it does not say whose bytes it lost, and nobody reads
     * these back. The caller keeps what it has and tries again. */
    bool all_at_once = good > SYNC_ONE_BY_ONE_MAX;
    enum nd_err err = all_at_once ? env->sync_fs(env->impl, files[last], w->msg) : ND_OK;
    for (size_t i = 0; i < count; i++) {
        if (items[i].result == ND_OK) {
            items[i].result = all_at_once ? err : env->sync(env->impl, files[i], w->msg);
            env->close(env->impl, files[i]);
        }
    }
    nd_free(files);
}

void nd_state_store(const struct nd_env *env, const uint8_t store_id[16],
                    struct nd_state_item *items, size_t count, struct nd_errmsg *msg)
{
    struct writing w = {.env = env, .store_id = store_id, .msg = msg};

    if (count == 0) {
        return;
    }
    temporaries_make(&w, items, count);
    for (size_t i = 0; i < count; i++) {
        if (items[i].result == ND_OK) {
            items[i].result = rename_one(&w, items[i].partition_dir);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (items[i].result == ND_OK) {
            items[i].result = env->sync_dir(env->impl, items[i].partition_dir, msg);
        }
    }
}
