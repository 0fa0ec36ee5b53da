#include "storage/wal_file.h"

#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"

enum {
    READ_STEP = 1 << 20,
    NAME_DIGITS = 20,
};

static void path_format(char out[ND_WAL_PATH_SIZE], const char *dir, uint64_t number,
                        const char *suffix)
{
    int size = snprintf(out, ND_WAL_PATH_SIZE, "%s/%0*llu%s", dir, NAME_DIGITS,
                        (unsigned long long)number, suffix);
    ND_ASSERT(size > 0 && size < ND_WAL_PATH_SIZE);
}

void nd_wal_file_path(char out[ND_WAL_PATH_SIZE], const char *dir, uint64_t first_sequence)
{
    path_format(out, dir, first_sequence, ".wal");
}

void nd_wal_spare_path(char out[ND_WAL_PATH_SIZE], const char *dir, uint64_t number)
{
    path_format(out, dir, number, ".spare");
}

/* Exactly 20 digits and the suffix. */
static bool name_parse(const char *name, const char *suffix, uint64_t *out)
{
    uint64_t number = 0;

    for (int i = 0; i < NAME_DIGITS; i++) {
        unsigned digit = (unsigned)name[i] - '0';
        if (digit > 9 || number > (UINT64_MAX - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    *out = number;
    return strcmp(name + NAME_DIGITS, suffix) == 0;
}

static void number_append(uint64_t **numbers, size_t *count, uint64_t number)
{
    *numbers = nd_xrealloc(*numbers, (*count + 1) * sizeof **numbers);
    (*numbers)[*count] = number;
    *count += 1;
}

static bool names_add(void *arg, const char *name, enum nd_file_kind kind)
{
    struct nd_wal_names *names = arg;
    uint64_t number;

    if (kind == ND_FILE_REGULAR && name_parse(name, ".wal", &number)) {
        number_append(&names->files, &names->files_count, number);
    } else if (kind == ND_FILE_REGULAR && name_parse(name, ".spare", &number)) {
        number_append(&names->spares, &names->spares_count, number);
    }
    return true;
}

static int number_compare(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;

    return *left < *right ? -1 : *left > *right;
}

enum nd_err nd_wal_names_read(struct nd_wal_names *out, const struct nd_env *env, const char *dir,
                              struct nd_errmsg *msg)
{
    memset(out, 0, sizeof *out);
    enum nd_err err = env->list(env->impl, dir, names_add, out, msg);
    if (err != ND_OK) {
        nd_wal_names_release(out);
        return err;
    }
    if (out->files_count > 1) {
        qsort(out->files, out->files_count, sizeof *out->files, number_compare);
    }
    if (out->spares_count > 1) {
        qsort(out->spares, out->spares_count, sizeof *out->spares, number_compare);
    }
    return ND_OK;
}

void nd_wal_names_release(struct nd_wal_names *names)
{
    nd_free(names->files);
    nd_free(names->spares);
    memset(names, 0, sizeof *names);
}

enum nd_err nd_wal_file_open(const struct nd_env *env, const char *path, int *file_out,
                             struct nd_errmsg *msg)
{
    enum nd_err err = env->open(env->impl, path, ND_OPEN_WRITE | ND_OPEN_DIRECT, file_out, msg);

    if (err == ND_ERR_UNSUPPORTED) {
        err = env->open(env->impl, path, ND_OPEN_WRITE, file_out, msg);
    }
    return err;
}

enum nd_err nd_wal_spare_create(const struct nd_env *env, const char *dir, uint64_t number,
                                uint64_t bytes, struct nd_errmsg *msg)
{
    char path[ND_WAL_PATH_SIZE];
    int file;

    nd_wal_spare_path(path, dir, number);
    enum nd_err err =
        env->open(env->impl, path, ND_OPEN_WRITE | ND_OPEN_CREATE | ND_OPEN_EXCL, &file, msg);
    if (err != ND_OK) {
        goto fail;
    }
    err = env->zero_fill(env->impl, file, 0, bytes, msg);
    if (err == ND_OK) {
        err = env->sync(env->impl, file, msg);
    }
    env->close(env->impl, file);
    if (err == ND_OK) {
        err = env->sync_dir(env->impl, dir, msg);
    }
    if (err == ND_OK) {
        return ND_OK;
    }
    nd_ignore(env->unlink(env->impl, path, NULL), "the next open removes or adopts it");
fail:
    nd_errmsg_wrap(msg, "make a spare log file");
    return err;
}

static enum nd_err header_write(const struct nd_env *env, int file,
                                const struct nd_wal_header *header, struct nd_errmsg *msg)
{
    uint8_t *block = nd_xaligned(ND_WAL_BLOCK, ND_WAL_BLOCK);

    nd_wal_header_put(block, header);
    enum nd_err err = env->pwrite(env->impl, file, block, ND_WAL_BLOCK, 0, msg);
    if (err == ND_OK) {
        err = env->sync(env->impl, file, msg);
    }
    nd_free(block);
    return err;
}

enum nd_wal_start nd_wal_spare_start(const struct nd_env *env, const char *dir, uint64_t number,
                                     const struct nd_wal_header *header, int *file_out,
                                     enum nd_err *err_out, struct nd_errmsg *msg)
{
    char spare[ND_WAL_PATH_SIZE], path[ND_WAL_PATH_SIZE];
    enum nd_wal_start result = ND_WAL_START_SPARE_KEPT;
    int file;

    nd_wal_spare_path(spare, dir, number);
    nd_wal_file_path(path, dir, header->first_sequence);
    enum nd_err err = nd_wal_file_open(env, spare, &file, msg);
    if (err != ND_OK) {
        result = err == ND_ERR_NOT_FOUND ? ND_WAL_START_SPARE_LOST : result;
        goto fail;
    }
    err = header_write(env, file, header, msg);
    if (err != ND_OK) { /* a failed write or sync is final for the file (W5) */
        result = ND_WAL_START_SPARE_LOST;
        goto fail_file;
    }
    err = env->rename(env->impl, spare, path, msg);
    if (err != ND_OK) {
        goto fail_file;
    }
    err = env->sync_dir(env->impl, dir, msg);
    if (err != ND_OK) {
        /* Either name may be the durable one, so its header must not be written again. The file
         * holds no frame: it may stay, and the next attempt is renamed over it. */
        result = ND_WAL_START_SPARE_LOST;
        goto fail_file;
    }
    *file_out = file;
    return ND_WAL_START_DONE;

fail_file:
    env->close(env->impl, file);
fail:
    nd_errmsg_wrap(msg, "start log file %s", path);
    *err_out = err;
    return result;
}

/* --- reading --- */

enum nd_err nd_wal_reader_open(struct nd_wal_reader *reader, const struct nd_env *env,
                               const char *path, struct nd_errmsg *msg)
{
    memset(reader, 0, sizeof *reader);
    reader->env = env;
    reader->frame_bytes_max = UINT32_MAX;
    ND_ASSERT(strlen(path) < sizeof reader->path);
    memcpy(reader->path, path, strlen(path) + 1);
    enum nd_err err = nd_wal_file_open(env, path, &reader->file, msg);
    if (err != ND_OK) {
        return err;
    }
    err = env->sync(env->impl, reader->file, msg);
    if (err == ND_OK) {
        err = env->file_size(env->impl, reader->file, &reader->size, msg);
    }
    if (err == ND_OK) {
        err = env->drop_cache(env->impl, reader->file, 0, reader->size, msg);
    }
    if (err != ND_OK) {
        env->close(env->impl, reader->file);
        return err;
    }
    reader->size -= reader->size % ND_WAL_BLOCK;
    return ND_OK;
}

void nd_wal_reader_close(struct nd_wal_reader *reader)
{
    reader->env->close(reader->env->impl, reader->file);
    nd_free(reader->buffer);
    reader->buffer = NULL;
}

/* Have [at, at+size) in the buffer; the caller checked that the file holds it. */
static enum nd_err reader_fill(struct nd_wal_reader *reader, uint64_t at, size_t size,
                               struct nd_errmsg *msg)
{
    const struct nd_env *env = reader->env;

    if (at >= reader->buffer_at && at + size <= reader->buffer_at + reader->buffer_size) {
        return ND_OK;
    }
    size_t step = ND_MAX(size, (size_t)ND_MIN(reader->size, (uint64_t)READ_STEP));
    if (step > reader->capacity) {
        nd_free(reader->buffer);
        reader->buffer = nd_xaligned(ND_WAL_BLOCK, step);
        reader->capacity = step;
    }
    reader->buffer_size = 0;
    step = (size_t)ND_MIN((uint64_t)step, reader->size - at);
    size_t got;
    enum nd_err err = env->pread(env->impl, reader->file, reader->buffer, step, at, &got, msg);
    if (err != ND_OK) {
        return err;
    }
    if (got < size) {
        nd_errmsg_set(msg, "%s: short read at %llu", reader->path, (unsigned long long)at);
        return ND_ERR_IO;
    }
    reader->buffer_at = at;
    reader->buffer_size = got;
    return ND_OK;
}

enum nd_err nd_wal_reader_header(struct nd_wal_reader *reader, struct nd_wal_header *out,
                                 struct nd_errmsg *msg)
{
    enum nd_err err = ND_ERR_CORRUPT;

    if (reader->size >= ND_WAL_BLOCK) {
        err = reader_fill(reader, 0, ND_WAL_BLOCK, msg);
        if (err != ND_OK) {
            return err;
        }
        err = nd_wal_header_get(reader->buffer, out);
    }
    if (err == ND_OK) {
        reader->epoch = out->epoch;
    } else {
        nd_errmsg_set(msg, "%s: offset 0: %s", reader->path,
                      err == ND_ERR_UNSUPPORTED ? "a newer format" : "the file header is damaged");
    }
    return err;
}

enum nd_err nd_wal_reader_block(struct nd_wal_reader *reader, uint64_t at, const uint8_t **out,
                                struct nd_errmsg *msg)
{
    if (at % ND_WAL_BLOCK != 0 || at + ND_WAL_BLOCK > reader->size) {
        return ND_ERR_CORRUPT;
    }
    enum nd_err err = reader_fill(reader, at, ND_WAL_BLOCK, msg);
    if (err == ND_OK) {
        *out = reader->buffer + (at - reader->buffer_at);
    }
    return err;
}

enum nd_err nd_wal_reader_frame(struct nd_wal_reader *reader, uint64_t at, struct nd_wal_frame *out,
                                struct nd_slice *body_out, struct nd_errmsg *msg)
{
    const uint8_t *block;
    enum nd_err err = nd_wal_reader_block(reader, at, &block, msg);
    if (err != ND_OK) {
        return err;
    }
    if (!nd_wal_frame_get(block, reader->epoch, at, out)) {
        return ND_ERR_CORRUPT;
    }
    uint64_t bytes = nd_wal_frame_bytes(out->body_size);
    if (bytes > reader->frame_bytes_max || bytes > reader->size - at) {
        return ND_ERR_CORRUPT;
    }
    err = reader_fill(reader, at, (size_t)bytes, msg);
    if (err != ND_OK) {
        return err;
    }
    const uint8_t *data = reader->buffer + (at - reader->buffer_at);
    if (!nd_wal_frame_check(data, out)) {
        return ND_ERR_CORRUPT;
    }
    *body_out = nd_slice_make(data + ND_WAL_FRAME_HEADER_SIZE, out->body_size);
    return ND_OK;
}
