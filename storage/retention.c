#include "storage/retention.h"

#include "storage/base/alloc.h"

#include "storage/segment.h"

int64_t nd_retention_cutoff_ms(int64_t now_ms, uint64_t retention_ms)
{
    if (retention_ms == 0 || now_ms < 0 || retention_ms > (uint64_t)now_ms) {
        return ND_RETENTION_NOTHING;
    }
    return now_ms - (int64_t)retention_ms;
}

bool nd_retention_must_roll(int64_t first_ms, int64_t time_ms, uint64_t retention_ms)
{
    return retention_ms != 0 && time_ms > first_ms &&
           (uint64_t)time_ms - (uint64_t)first_ms > retention_ms;
}

/* --- looking at files --- */

struct listing {
    const struct nd_env *env;
    const char *dir;
    bool sizes;
    struct nd_log_peek *out;
    enum nd_err err;
    struct nd_errmsg *msg;
};

static bool entry_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct listing *listing = arg;
    struct nd_log_peek *out = listing->out;
    const char *suffix;
    uint64_t base;

    if (kind == ND_FILE_DIR || strlen(name) < 20 || !nd_segment_name_parse(name, &base, &suffix) ||
        strcmp(suffix, ND_SEGMENT_LOG) != 0) {
        return true;
    }
    out->start_offset = out->segments == 0 ? base : ND_MIN(out->start_offset, base);
    out->segments += 1;
    if (listing->sizes) {
        struct nd_file_stat stat = {.size = 0};
        char *path = nd_segment_path(listing->dir, base, ND_SEGMENT_LOG);
        listing->err = listing->env->stat(listing->env->impl, path, &stat, listing->msg);
        nd_free(path);
        out->size_bytes += stat.size;
    }
    return listing->err == ND_OK;
}

/* The times of the oldest segment, whose file is open. What is damaged is not known. */
static void times_read(struct nd_log_peek *out, const struct nd_env *env, const char *dir, int file,
                       const uint8_t store_id[16])
{
    struct nd_segment_summary header = {.epoch = 0};
    uint8_t bytes[ND_FRAME_HEADER_SIZE];
    struct nd_frame_header frame;
    size_t size;

    if (nd_segment_header_read(env, file, &header, NULL) != ND_OK) {
        return;
    }
    struct nd_segment *segment = nd_segment_new(store_id, out->start_offset, header.epoch);
    if (nd_segment_index_load(env, dir, segment, NULL) == ND_OK && segment->summary.records > 0) {
        out->oldest_ms = segment->summary.first_ms;
        out->goes_ms = segment->summary.last_ms;
    } else if (env->pread(env->impl, file, bytes, sizeof bytes, ND_SEGMENT_HEADER_SIZE, &size,
                          NULL) == ND_OK &&
               nd_frame_header_get(nd_slice_make(bytes, size), &frame) == ND_OK) {
        out->oldest_ms = out->goes_ms = frame.first_ms;
    }
    nd_segment_unref(segment);
}

enum nd_err nd_log_peek(struct nd_log_peek *out, const struct nd_env *env, const char *dir,
                        const uint8_t store_id[16], bool sizes, struct nd_errmsg *msg)
{
    struct listing listing = {.env = env, .dir = dir, .sizes = sizes, .out = out, .msg = msg};
    int file;

    *out = (struct nd_log_peek){.goes_ms = INT64_MAX};
    enum nd_err err = env->list(env->impl, dir, entry_seen, &listing, msg);
    if (err == ND_ERR_NOT_FOUND) {
        return ND_OK;
    }
    err = err == ND_OK ? listing.err : err;
    if (err != ND_OK || out->segments == 0) {
        return err;
    }
    out->goes_ms = ND_RETENTION_NOTHING;
    char *path = nd_segment_path(dir, out->start_offset, ND_SEGMENT_LOG);
    err = env->open(env->impl, path, ND_OPEN_READ, &file, msg);
    nd_free(path);
    if (err == ND_OK) {
        times_read(out, env, dir, file, store_id);
        env->close(env->impl, file);
    }
    return err;
}
