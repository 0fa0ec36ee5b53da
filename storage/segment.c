#include "storage/segment.h"

#include <inttypes.h>
#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/crc32c.h"

#include "storage/window.h"

enum {
    HEADER_MAGIC = 0x4753444e,
    HEADER_FORMAT = 1,
    HEADER_CRC_FROM = 8,
    HEADER_BYTES = 44, /* of one copy */
    HEADER_COPY_AT = 2048,
    NAME_DIGITS = 20,
    INDEX_SIZE_MAX = 64 << 20,
    SCAN_CHUNK = 1 << 20,
};

struct nd_segment *nd_segment_new(const uint8_t store_id[16], uint64_t base_offset, uint64_t epoch)
{
    struct nd_segment *segment = nd_xcalloc(1, sizeof *segment);

    atomic_init(&segment->refs, 1);
    memcpy(segment->summary.store_id, store_id, sizeof segment->summary.store_id);
    segment->summary.base_offset = base_offset;
    segment->summary.end_offset = base_offset;
    segment->summary.epoch = epoch;
    segment->summary.size = ND_SEGMENT_HEADER_SIZE;
    nd_index_init(&segment->index);
    return segment;
}

struct nd_segment *nd_segment_ref(struct nd_segment *segment)
{
    /* Relaxed: the caller holds the list's lock or a reference, so the count is not zero. */
    (void)atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);
    return segment;
}

void nd_segment_unref(struct nd_segment *segment)
{
    /* Acquire and release: the last one sees what all others did. */
    if (segment != NULL &&
        atomic_fetch_sub_explicit(&segment->refs, 1, memory_order_acq_rel) == 1) {
        nd_index_release(&segment->index);
        nd_free(segment);
    }
}

void nd_segment_add(struct nd_segment *segment, const struct nd_segment_frame *frame,
                    uint32_t stride)
{
    struct nd_segment_summary *s = &segment->summary;

    ND_ASSERT(frame->at >= s->size && frame->header.base_offset >= s->end_offset);
    if (s->records == 0) {
        s->first_ms = frame->header.first_ms;
    }
    s->records += frame->header.record_count;
    s->last_ms = frame->header.last_ms;
    s->end_offset = nd_frame_end(&frame->header);
    s->size = frame->at + nd_frame_size(&frame->header);
    nd_index_add(&segment->index, frame->header.base_offset, frame->at, stride);
}

char *nd_segment_path(const char *dir, uint64_t base_offset, const char *suffix)
{
    return nd_xasprintf("%s/%020" PRIu64 "%s", dir, base_offset, suffix);
}

bool nd_segment_name_parse(const char *name, uint64_t *base_out, const char **suffix_out)
{
    uint64_t base = 0;

    for (size_t i = 0; i < NAME_DIGITS; i++) {
        uint64_t digit = (uint64_t)name[i] - '0';
        if (name[i] < '0' || name[i] > '9' || base > (UINT64_MAX - digit) / 10) {
            return false;
        }
        base = base * 10 + digit;
    }
    const char *suffix = name + NAME_DIGITS;
    if (strcmp(suffix, ND_SEGMENT_LOG) != 0 && strcmp(suffix, ND_SEGMENT_INDEX) != 0 &&
        strcmp(suffix, ND_SEGMENT_BAD) != 0 && strcmp(suffix, ND_SEGMENT_GONE) != 0) {
        return false;
    }
    *base_out = base;
    *suffix_out = suffix;
    return true;
}

void nd_segment_header_put(uint8_t *out, const struct nd_segment_summary *summary)
{
    memset(out, 0, ND_SEGMENT_HEADER_SIZE);
    nd_put_u32(out, HEADER_MAGIC);
    nd_put_u32(out + 8, HEADER_FORMAT);
    memcpy(out + 12, summary->store_id, sizeof summary->store_id);
    nd_put_u64(out + 28, summary->base_offset);
    nd_put_u64(out + 36, summary->epoch);
    nd_put_u32(out + 4, nd_crc32c(0, out + HEADER_CRC_FROM, HEADER_BYTES - HEADER_CRC_FROM));
    memcpy(out + HEADER_COPY_AT, out, HEADER_BYTES);
}

static bool header_get(const uint8_t *p, struct nd_segment_summary *out)
{
    if (nd_get_u32(p) != HEADER_MAGIC ||
        nd_get_u32(p + 4) != nd_crc32c(0, p + HEADER_CRC_FROM, HEADER_BYTES - HEADER_CRC_FROM) ||
        nd_get_u32(p + 8) != HEADER_FORMAT) {
        return false;
    }
    memcpy(out->store_id, p + 12, sizeof out->store_id);
    out->base_offset = nd_get_u64(p + 28);
    out->epoch = nd_get_u64(p + 36);
    return true;
}

bool nd_segment_header_get(struct nd_slice block, int copy, struct nd_segment_summary *out)
{
    size_t at = (size_t)copy * HEADER_COPY_AT;

    return block.size >= at + HEADER_BYTES && header_get(block.data + at, out);
}

enum nd_err nd_segment_header_read(const struct nd_env *env, int file,
                                   struct nd_segment_summary *out, struct nd_errmsg *msg)
{
    struct nd_window window;
    struct nd_slice bytes;

    nd_window_init(&window, env, file, ND_SEGMENT_HEADER_SIZE, ND_SEGMENT_HEADER_SIZE, 0);
    enum nd_err err = nd_window_get(&window, 0, ND_SEGMENT_HEADER_SIZE, &bytes, msg);
    if (err == ND_OK) {
        bool whole = nd_segment_header_get(bytes, 0, out) || nd_segment_header_get(bytes, 1, out);
        if (!whole) {
            nd_errmsg_set(msg, "neither copy of the segment header is whole");
            err = ND_ERR_CORRUPT;
        }
    }
    nd_window_release(&window);
    return err;
}

static bool is_zeros(struct nd_slice bytes)
{
    return bytes.size == 0 ||
           (bytes.data[0] == 0 && memcmp(bytes.data, bytes.data + 1, bytes.size - 1) == 0);
}

/* --- the walk --- */

struct walk {
    struct nd_segment_scan *scan;
    struct nd_window window;
    struct nd_errmsg *msg;
    uint64_t at;
    uint64_t offset_next; /* frames that begin below it do not count */
    bool damaged;         /* since the last frame */
};

/* Is there a valid frame at walk->at? */
static enum nd_err frame_try(struct walk *walk, struct nd_segment_frame *frame, bool *valid_out,
                             const uint8_t **bytes_out)
{
    struct nd_slice bytes;

    *valid_out = false;
    enum nd_err err =
        nd_window_get(&walk->window, walk->at, ND_FRAME_HEADER_SIZE, &bytes, walk->msg);
    if (err != ND_OK) {
        return err;
    }
    frame->at = walk->at;
    if (nd_frame_header_get(bytes, &frame->header) != ND_OK ||
        nd_frame_size(&frame->header) > walk->scan->to - walk->at) {
        return ND_OK;
    }
    err = nd_window_get(&walk->window, walk->at, nd_frame_size(&frame->header), &bytes, walk->msg);
    if (err != ND_OK) {
        return err;
    }
    *valid_out = bytes.size >= nd_frame_size(&frame->header) &&
                 nd_frame_crc_holds(bytes.data, walk->scan->epoch, &frame->header) &&
                 frame->header.base_offset >= walk->offset_next;
    *bytes_out = bytes.data;
    return ND_OK;
}

/* After a frame: pass over the zeros up to the next block, if that is what follows. */
static enum nd_err padding_skip(struct walk *walk)
{
    uint64_t next = ND_MIN(nd_align_up(walk->at), walk->scan->to);
    struct nd_slice bytes;
    enum nd_err err =
        nd_window_get(&walk->window, walk->at, (size_t)(next - walk->at), &bytes, walk->msg);

    if (err == ND_OK && next > walk->at) {
        bytes.size = (size_t)ND_MIN((uint64_t)bytes.size, next - walk->at);
        if (is_zeros(bytes)) {
            walk->at = next;
        }
    }
    return err;
}

/* Nothing valid at walk->at: go to the next place where the magic stands, or to the end. */
static enum nd_err magic_search(struct walk *walk, bool *zeros)
{
    uint8_t magic[4];
    struct nd_slice bytes;

    nd_put_u32(magic, ND_FRAME_MAGIC);
    for (;;) {
        enum nd_err err = nd_window_get(&walk->window, walk->at, SCAN_CHUNK, &bytes, walk->msg);
        if (err != ND_OK) {
            return err;
        }
        if (bytes.size == 0) {
            walk->at = walk->scan->to;
            return ND_OK;
        }
        /* The byte at walk->at itself was tried already. */
        const uint8_t *found =
            bytes.size < 5 ? NULL : memmem(bytes.data + 1, bytes.size - 1, magic, sizeof magic);
        size_t skip = found != NULL ? (size_t)(found - bytes.data) : bytes.size;
        *zeros = *zeros && is_zeros(nd_slice_make(bytes.data, skip));
        if (found != NULL) {
            walk->at += skip;
            return ND_OK;
        }
        if (walk->at + skip >= walk->scan->to || bytes.size < 5) {
            walk->at = walk->scan->to;
            return ND_OK;
        }
        walk->at += skip - 4; /* the magic may begin in the last bytes */
    }
}

static enum nd_err walk_run(struct walk *walk)
{
    struct nd_segment_scan *scan = walk->scan;
    bool zeros = true; /* only zeros since the last valid frame */

    while (walk->at < scan->to) {
        struct nd_segment_frame frame;
        const uint8_t *bytes;
        bool valid;
        enum nd_err err = frame_try(walk, &frame, &valid, &bytes);
        if (err != ND_OK) {
            return err;
        }
        if (!valid) {
            walk->damaged = true;
            err = magic_search(walk, &zeros);
            scan->torn = !zeros;
        } else {
            if (!scan->frame(scan->arg, &frame, bytes, walk->damaged)) {
                return ND_OK;
            }
            walk->offset_next = nd_frame_end(&frame.header);
            walk->at = scan->end = frame.at + nd_frame_size(&frame.header);
            walk->damaged = scan->torn = false;
            zeros = true;
            err = padding_skip(walk);
        }
        if (err != ND_OK) {
            return err;
        }
    }
    return ND_OK;
}

enum nd_err nd_segment_scan(struct nd_segment_scan *scan, struct nd_errmsg *msg)
{
    struct walk walk = {
        .scan = scan, .msg = msg, .at = scan->from, .offset_next = scan->offset_min};

    scan->end = scan->from;
    scan->torn = false;
    nd_window_init(&walk.window, scan->env, scan->file, scan->to, SCAN_CHUNK, ND_FRAME_SIZE_MAX);
    enum nd_err err = walk_run(&walk);
    nd_window_release(&walk.window);
    return err;
}

/* --- reading back --- */

static bool header_is_as_written(struct nd_slice bytes, const struct nd_segment_summary *summary)
{
    uint8_t wanted[ND_SEGMENT_HEADER_SIZE];

    nd_segment_header_put(wanted, summary);
    return bytes.size >= sizeof wanted && memcmp(bytes.data, wanted, sizeof wanted) == 0;
}

static enum nd_err verify_open(const struct nd_env *env, const char *path, uint64_t from,
                               uint64_t to, int *file_out, struct nd_errmsg *msg)
{
    enum nd_err err = env->open(env->impl, path, ND_OPEN_READ | ND_OPEN_DIRECT, file_out, msg);

    if (err != ND_ERR_UNSUPPORTED) {
        return err;
    }
    err = env->open(env->impl, path, ND_OPEN_READ, file_out, msg);
    if (err != ND_OK) {
        return err;
    }
    err = env->drop_cache(env->impl, *file_out, from, to - from, msg);
    if (err != ND_OK) {
        env->close(env->impl, *file_out);
    }
    return err;
}

static bool frame_is_as_written(struct nd_slice bytes, uint64_t epoch,
                                const struct nd_segment_frame *frame)
{
    struct nd_frame_header found;

    return bytes.size >= nd_frame_size(&frame->header) &&
           nd_frame_header_get(bytes, &found) == ND_OK && found.crc == frame->header.crc &&
           found.base_offset == frame->header.base_offset &&
           found.stored_size == frame->header.stored_size &&
           nd_frame_crc_holds(bytes.data, epoch, &found);
}

/* The frames of a file, and its header in front of the first one. */
static enum nd_err verify_frames(struct nd_window *window, const struct nd_segment_summary *summary,
                                 const struct nd_segment_frame *frames, uint32_t count,
                                 uint32_t *verified_out, struct nd_errmsg *msg)
{
    struct nd_slice bytes;

    if (frames[0].at == ND_SEGMENT_HEADER_SIZE) {
        enum nd_err err = nd_window_get(window, 0, ND_SEGMENT_HEADER_SIZE, &bytes, msg);
        if (err == ND_OK && !header_is_as_written(bytes, summary)) {
            nd_errmsg_set(msg, "the device returned another segment header than written");
            err = ND_ERR_CORRUPT;
        }
        if (err != ND_OK) {
            return err;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        enum nd_err err =
            nd_window_get(window, frames[i].at, nd_frame_size(&frames[i].header), &bytes, msg);
        if (err == ND_OK && !frame_is_as_written(bytes, summary->epoch, &frames[i])) {
            nd_errmsg_set(msg, "at %" PRIu64 " the device returned other bytes than written",
                          frames[i].at);
            err = ND_ERR_CORRUPT;
        }
        if (err != ND_OK) {
            return err;
        }
        *verified_out += 1;
    }
    return ND_OK;
}

enum nd_err nd_segment_verify(const struct nd_env *env, const char *path,
                              const struct nd_segment_summary *summary,
                              const struct nd_segment_frame *frames, uint32_t count,
                              uint32_t *verified_out, struct nd_errmsg *msg)
{
    struct nd_window window;
    int file;

    *verified_out = 0;
    ND_ASSERT(count > 0);
    uint64_t from = frames[0].at == ND_SEGMENT_HEADER_SIZE ? 0 : frames[0].at;
    uint64_t to = frames[count - 1].at + nd_frame_size(&frames[count - 1].header);
    enum nd_err err = verify_open(env, path, from, nd_align_up(to), &file, msg);
    if (err != ND_OK) {
        return err;
    }
    size_t chunk = (size_t)ND_MIN(to - from, (uint64_t)SCAN_CHUNK);
    nd_window_init(&window, env, file, to, chunk, ND_FRAME_SIZE_MAX);
    err = verify_frames(&window, summary, frames, count, verified_out, msg);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "read back %s", path);
    }
    nd_window_release(&window);
    env->close(env->impl, file);
    return err;
}

/* --- the stored index --- */

static enum nd_err index_write(const struct nd_env *env, const char *path, struct nd_slice bytes,
                               struct nd_errmsg *msg)
{
    int file;
    char *temporary = nd_xasprintf("%s.tmp", path);
    enum nd_err err = env->open(env->impl, temporary, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, msg);

    if (err == ND_OK) {
        err = env->truncate(env->impl, file, 0, msg);
        if (err == ND_OK) {
            err = env->pwrite(env->impl, file, bytes.data, bytes.size, 0, msg);
        }
        env->close(env->impl, file);
    }
    if (err == ND_OK) {
        err = env->rename(env->impl, temporary, path, msg);
    }
    nd_free(temporary);
    return err;
}

enum nd_err nd_segment_index_store(const struct nd_env *env, const char *dir,
                                   const struct nd_segment *segment, struct nd_errmsg *msg)
{
    struct nd_buf buf;
    char *path = nd_segment_path(dir, segment->summary.base_offset, ND_SEGMENT_INDEX);
    enum nd_err err = ND_ERR_NO_MEMORY;

    nd_buf_init(&buf, INDEX_SIZE_MAX);
    nd_index_put(&buf, &segment->index, &segment->summary);
    if (!nd_buf_failed(&buf)) {
        err = index_write(env, path, nd_buf_slice(&buf), msg);
    }
    nd_buf_release(&buf);
    nd_free(path);
    return err;
}

enum nd_err nd_segment_index_load(const struct nd_env *env, const char *dir,
                                  struct nd_segment *segment, struct nd_errmsg *msg)
{
    char *path = nd_segment_path(dir, segment->summary.base_offset, ND_SEGMENT_INDEX);
    uint8_t *data;
    size_t size;
    enum nd_err err = nd_env_read_file(env, path, INDEX_SIZE_MAX, &data, &size, msg);

    if (err == ND_OK) {
        err = nd_index_get(nd_slice_make(data, size), &segment->index, &segment->summary);
        if (err != ND_OK) {
            nd_errmsg_set(msg, "%s: not the index of this segment", path);
        }
        nd_free(data);
    }
    nd_free(path);
    return err;
}
