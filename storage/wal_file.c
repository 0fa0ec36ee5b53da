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

static void reader_init(struct nd_wal_reader *reader, const char *path)
{
    memset(reader, 0, sizeof *reader);
    ND_ASSERT(strlen(path) < sizeof reader->path);
    memcpy(reader->path, path, strlen(path) + 1);
    reader->file = -1;
}

enum nd_err nd_wal_reader_open(struct nd_wal_reader *reader, const struct nd_env *env,
                               const char *path, struct nd_errmsg *msg)
{
    reader_init(reader, path);
    reader->env = env;
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

void nd_wal_reader_open_image(struct nd_wal_reader *reader, const char *path, uint8_t *image,
                              uint64_t size)
{
    reader_init(reader, path);
    reader->image = image;
    reader->image_size = reader->size = size;
}

void nd_wal_reader_close(struct nd_wal_reader *reader)
{
    if (reader->file >= 0) {
        reader->env->close(reader->env->impl, reader->file);
    }
    nd_free(reader->image);
    nd_free(reader->window);
    reader->image = reader->window = NULL;
}

uint8_t *nd_wal_reader_take_image(struct nd_wal_reader *reader, uint64_t *size_out)
{
    uint8_t *image = reader->image;

    *size_out = reader->image_size;
    reader->image = NULL;
    reader->image_size = 0;
    return image;
}

static enum nd_err reader_pread(struct nd_wal_reader *reader, uint8_t *to, size_t size, uint64_t at,
                                struct nd_errmsg *msg)
{
    size_t got = 0;

    if (reader->file >= 0) {
        enum nd_err err =
            reader->env->pread(reader->env->impl, reader->file, to, size, at, &got, msg);
        if (err != ND_OK) {
            return err;
        }
    }
    if (got < size) {
        nd_errmsg_set(msg, "%s: short read at %llu", reader->path, (unsigned long long)at);
        return ND_ERR_IO;
    }
    return ND_OK;
}

/* Read on, so that the image holds [0, end) and some more. */
static enum nd_err image_extend(struct nd_wal_reader *reader, uint64_t end, struct nd_errmsg *msg)
{
    uint64_t from = reader->image_size;

    if (reader->image == NULL) { /* its pages are touched as they are read */
        reader->image = nd_xaligned(ND_WAL_BLOCK, (size_t)reader->size);
    }
    end = ND_MAX(end, ND_MIN(from + READ_STEP, reader->size));
    enum nd_err err = reader_pread(reader, reader->image + from, (size_t)(end - from), from, msg);
    if (err == ND_OK) {
        reader->image_size = end;
    }
    return err;
}

static enum nd_err window_move(struct nd_wal_reader *reader, uint64_t at, size_t size,
                               struct nd_errmsg *msg)
{
    size_t step = (size_t)ND_MIN((uint64_t)READ_STEP, reader->size - at);

    step = ND_MAX(step, size);
    if (step > reader->window_capacity) {
        nd_free(reader->window);
        reader->window = nd_xaligned(ND_WAL_BLOCK, step);
        reader->window_capacity = step;
    }
    reader->window_size = 0;
    enum nd_err err = reader_pread(reader, reader->window, step, at, msg);
    if (err == ND_OK) {
        reader->window_at = at;
        reader->window_size = step;
    }
    return err;
}

/* Have [at, at+size) in memory, at *out; the caller checked that the file holds it. */
static enum nd_err reader_fill(struct nd_wal_reader *reader, uint64_t at, size_t size,
                               const uint8_t **out, struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;

    if (at + size > reader->image_size && reader->keep_image && at <= reader->image_size) {
        err = image_extend(reader, at + size, msg);
    }
    if (err == ND_OK && at + size <= reader->image_size) {
        *out = reader->image + at;
        return ND_OK;
    }
    bool in_window =
        at >= reader->window_at && at + size <= reader->window_at + reader->window_size;
    if (err == ND_OK && !in_window) {
        err = window_move(reader, at, size, msg);
    }
    if (err == ND_OK) {
        *out = reader->window + (at - reader->window_at);
    }
    return err;
}

enum nd_err nd_wal_reader_header(struct nd_wal_reader *reader, struct nd_wal_header *out,
                                 struct nd_errmsg *msg)
{
    enum nd_err err = ND_ERR_CORRUPT;

    if (reader->size >= ND_WAL_BLOCK) {
        const uint8_t *block;
        err = reader_fill(reader, 0, ND_WAL_BLOCK, &block, msg);
        if (err != ND_OK) {
            return err;
        }
        err = nd_wal_header_get(block, out);
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
    return reader_fill(reader, at, ND_WAL_BLOCK, out, msg);
}

enum nd_err nd_wal_reader_frame(struct nd_wal_reader *reader, uint64_t at, struct nd_wal_frame *out,
                                struct nd_slice *body_out, struct nd_errmsg *msg)
{
    const uint8_t *data;
    enum nd_err err = nd_wal_reader_block(reader, at, &data, msg);

    if (err != ND_OK) {
        return err;
    }
    if (!nd_wal_frame_get(data, reader->epoch, at, out)) {
        return ND_ERR_CORRUPT;
    }
    uint64_t bytes = nd_wal_frame_bytes(out->body_size);
    if (bytes > reader->size - at) {
        return ND_ERR_CORRUPT;
    }
    err = reader_fill(reader, at, (size_t)bytes, &data, msg);
    if (err != ND_OK) {
        return err;
    }
    /* What an image holds was checked when it was read. */
    if (reader->file >= 0 && !nd_wal_frame_check(data, out)) {
        return ND_ERR_CORRUPT;
    }
    *body_out = nd_slice_make(data + ND_WAL_FRAME_HEADER_SIZE, out->body_size);
    return ND_OK;
}
