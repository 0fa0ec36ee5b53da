/* Opening a log (W3, W8). Sealed segments are known from their stored index, or
 * walked once when it is missing. The last segment is synced and its pages dropped before it is
 * read, because after a failed sync the cache shows bytes that the device does not have; then it is
 * walked whole:
 *
 *   below flushed_offset   what is not valid is damage: a gap, never cut
 *   from there on          valid frames count; at the first that is not, the file is cut if the WAL
 * holds the offsets from there on, otherwise it is left as it is and sealed */
#include <inttypes.h>
#include <stdlib.h>

#include "storage/base/alloc.h"

#include "storage/plog_private.h"
#include "storage/remove.h"
#include "storage/window.h"

struct opener {
    struct nd_plog *plog;
    uint64_t flushed_offset, wal_start;
    uint64_t *bases; /* of the .log files, ascending */
    size_t bases_count, bases_capacity;
    bool end_damaged; /* of the last file: what is missing behind it is damage, no lost file */
    struct nd_errmsg *msg;
};

static bool wal_holds(const struct opener *o, uint64_t offset)
{
    return offset >= o->flushed_offset && o->wal_start <= offset;
}

/* --- listing --- */

static bool entry_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct opener *o = arg;
    const char *suffix;
    uint64_t base;
    size_t size = strlen(name);
    size_t gone_size = strlen(ND_SEGMENT_GONE);

    if (kind == ND_FILE_DIR) {
        return true;
    }
    if (size > gone_size && strcmp(name + size - gone_size, ND_SEGMENT_GONE) == 0) {
        if (o->plog->options.remover != NULL) {
            char *path = nd_xasprintf("%s/%s", o->plog->dir, name);
            nd_remover_add(o->plog->options.remover, path);
            nd_free(path);
        }
        return true;
    }
    if (size < 20 || !nd_segment_name_parse(name, &base, &suffix) ||
        strcmp(suffix, ND_SEGMENT_LOG) != 0) {
        return true;
    }
    if (o->bases_count == o->bases_capacity) {
        o->bases_capacity = o->bases_capacity == 0 ? 16 : o->bases_capacity * 2;
        o->bases = nd_xrealloc(o->bases, o->bases_capacity * sizeof *o->bases);
    }
    o->bases[o->bases_count++] = base;
    return true;
}

static int base_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

/* --- one file --- */

/* Open the file and make a segment of its header. CORRUPT with *damaged_out: the header is damaged;
 * without: the file is not ours. */
static enum nd_err segment_open(struct opener *o, uint64_t base, int flags, int *file_out,
                                struct nd_segment **segment_out, bool *damaged_out)
{
    struct nd_plog *plog = o->plog;
    const struct nd_env *env = plog->options.env;
    struct nd_segment_summary found = {.epoch = 0};
    char *path = nd_segment_path(plog->dir, base, ND_SEGMENT_LOG);
    int file;

    *damaged_out = false;
    enum nd_err err = env->open(env->impl, path, flags, &file, o->msg);
    if (err == ND_OK && (flags & ND_OPEN_WRITE) != 0) {
        err = plog->options.synced ? ND_OK : env->sync(env->impl, file, o->msg);
        if (err == ND_OK) {
            err = env->drop_cache(env->impl, file, 0, UINT64_MAX / 2, o->msg);
        }
        if (err != ND_OK) {
            env->close(env->impl, file);
        }
    }
    if (err == ND_OK) {
        err = nd_segment_header_read(env, file, &found, o->msg);
        *damaged_out = err == ND_ERR_CORRUPT;
        if (err == ND_OK && (found.base_offset != base ||
                             memcmp(found.store_id, plog->options.store_id, 16) != 0)) {
            nd_errmsg_set(o->msg, "%s: belongs to another store or place", path);
            err = ND_ERR_CORRUPT;
        }
        if (err != ND_OK) {
            env->close(env->impl, file);
        }
    }
    if (err == ND_OK) {
        *file_out = file;
        *segment_out = nd_segment_new(plog->options.store_id, base, found.epoch);
    } else {
        nd_errmsg_wrap(o->msg, "open %s", path);
    }
    nd_free(path);
    return err;
}

static void segment_list(struct opener *o, struct nd_segment *segment)
{
    struct nd_plog *plog = o->plog;

    nd_mutex_lock(&plog->lock);
    plog_push_locked(plog, segment);
    plog->end_offset = ND_MAX(plog->end_offset, segment->summary.end_offset);
    nd_mutex_unlock(&plog->lock);
}

/* The header is gone, so no frame can be told from other bytes: all offsets are a gap. */
static void segment_list_damaged(struct opener *o, uint64_t base)
{
    nd_log(o->plog->options.log, ND_LOG_ERROR, "storage", "segment header is damaged",
           "dir=\"%s\" base=%" PRIu64, o->plog->dir, base);
    segment_list(o, nd_segment_new(o->plog->options.store_id, base, 0));
}

struct walk {
    struct opener *o;
    struct nd_segment *segment;
    uint64_t offset_limit; /* frames from here on do not count: the successor has them */
    bool is_last;
    bool stopped; /* at damage that may be cut */
};

static bool walk_frame(void *arg, const struct nd_segment_frame *frame, const uint8_t *bytes,
                       bool damaged)
{
    struct walk *walk = arg;
    struct nd_segment *segment = walk->segment;
    const struct nd_plog *plog = walk->o->plog;
    (void)bytes;

    if (nd_frame_end(&frame->header) > walk->offset_limit) {
        return false;
    }
    if (damaged && walk->is_last && wal_holds(walk->o, segment->summary.end_offset)) {
        walk->stopped = true;
        return false;
    }
    if (damaged) {
        nd_log(plog->options.log, ND_LOG_ERROR, "storage", "damaged frames passed over",
               "dir=\"%s\" first=%" PRIu64 " next=%" PRIu64, plog->dir, segment->summary.end_offset,
               frame->header.base_offset);
    }
    nd_segment_add(segment, frame, plog->options.index_stride_bytes);
    return true;
}

static enum nd_err segment_walk(struct walk *walk, int file, bool *torn_out)
{
    const struct nd_env *env = walk->o->plog->options.env;
    uint64_t size;
    enum nd_err err = env->file_size(env->impl, file, &size, walk->o->msg);

    if (err != ND_OK) {
        return err;
    }
    struct nd_segment_scan scan = {
        .env = env,
        .file = file,
        .epoch = walk->segment->summary.epoch,
        .from = ND_SEGMENT_HEADER_SIZE,
        .to = ND_MAX(size, (uint64_t)ND_SEGMENT_HEADER_SIZE),
        .offset_min = walk->segment->summary.base_offset,
        .frame = walk_frame,
        .arg = walk,
    };
    err = nd_segment_scan(&scan, walk->o->msg);
    *torn_out = scan.torn || walk->stopped;
    return err;
}

/* --- files that are lost (P5) --- */

/* Segments follow one another: each is named by the offset at which the one before it ended. */
static enum nd_err file_lost(const struct opener *o, uint64_t first, uint64_t next)
{
    nd_errmsg_set(o->msg,
                  "%s: no file holds offsets %" PRIu64 " to %" PRIu64 ", which were stored; "
                  "a segment is missing",
                  o->plog->dir, first, next - 1);
    return ND_ERR_CORRUPT;
}

static enum nd_err first_check(const struct opener *o)
{
    uint64_t from = o->plog->options.log_start;
    uint64_t first = o->bases_count > 0 ? o->bases[0] : o->flushed_offset;

    if (!o->plog->options.start_known || from >= o->flushed_offset || first <= from) {
        return ND_OK;
    }
    return file_lost(o, from, first);
}

static enum nd_err last_check(const struct opener *o)
{
    uint64_t end = ND_MAX(o->plog->end_offset, o->plog->options.log_start);

    if (!o->plog->options.start_known || o->end_damaged || end >= o->flushed_offset) {
        return ND_OK;
    }
    return file_lost(o, end, o->flushed_offset);
}

/* --- a sealed segment --- */

static bool index_fits(struct opener *o, struct nd_segment *segment, int file, uint64_t limit)
{
    const struct nd_env *env = o->plog->options.env;
    uint64_t size = 0;

    if (nd_segment_index_load(env, o->plog->dir, segment, NULL) != ND_OK) {
        return false;
    }
    return segment->summary.end_offset <= limit &&
           env->file_size(env->impl, file, &size, NULL) == ND_OK && segment->summary.size <= size;
}

/* It ends before its successor begins: damage at its end, or a file between them that is lost? */
static enum nd_err successor_check(struct opener *o, const struct nd_segment *segment, int file,
                                   uint64_t successor)
{
    const struct nd_segment_summary *s = &segment->summary;
    struct nd_segment *again;
    bool torn;

    if (!o->plog->options.start_known || s->end_offset >= successor ||
        successor <= o->plog->options.log_start) {
        return ND_OK;
    }
    again = nd_segment_new(o->plog->options.store_id, s->base_offset, s->epoch);
    struct walk walk = {.o = o, .segment = again, .offset_limit = successor};
    enum nd_err err = segment_walk(&walk, file, &torn);
    nd_segment_unref(again);
    return err != ND_OK || torn ? err : file_lost(o, s->end_offset, successor);
}

static enum nd_err sealed_open(struct opener *o, uint64_t base, uint64_t successor)
{
    const struct nd_env *env = o->plog->options.env;
    struct nd_segment *segment;
    bool damaged, torn;
    int file;
    enum nd_err err = segment_open(o, base, ND_OPEN_READ, &file, &segment, &damaged);

    if (damaged) {
        segment_list_damaged(o, base);
        return ND_OK;
    }
    if (err != ND_OK) {
        return err;
    }
    if (!index_fits(o, segment, file, successor)) {
        uint64_t epoch = segment->summary.epoch;
        nd_segment_unref(segment);
        segment = nd_segment_new(o->plog->options.store_id, base, epoch);
        struct walk walk = {.o = o, .segment = segment, .offset_limit = successor};
        nd_log(o->plog->options.log, ND_LOG_INFO, "storage", "index rebuilt",
               "dir=\"%s\" base=%" PRIu64, o->plog->dir, base);
        err = segment_walk(&walk, file, &torn);
        if (err == ND_OK) {
            plog_index_store(o->plog, segment);
        }
    }
    if (err == ND_OK) {
        err = successor_check(o, segment, file, successor);
    }
    env->close(env->impl, file);
    if (err != ND_OK) {
        nd_segment_unref(segment);
        return err;
    }
    segment_list(o, segment);
    return ND_OK;
}

/* --- the last segment --- */

/* It holds nothing that was ever verified. */
static enum nd_err last_without_records(struct opener *o, uint64_t base)
{
    struct nd_plog *plog = o->plog;
    const struct nd_env *env = plog->options.env;

    if (base < o->flushed_offset) {
        segment_list_damaged(o, base);
        o->end_damaged = true;
        return ND_OK;
    }
    if (wal_holds(o, base)) {
        (void)plog_discard_file(plog, base, ND_SEGMENT_LOG);
        return ND_OK;
    }
    char *path = nd_segment_path(plog->dir, base, ND_SEGMENT_LOG);
    char *bad = nd_segment_path(plog->dir, base, ND_SEGMENT_BAD);
    nd_log(plog->options.log, ND_LOG_WARN, "storage", "segment without a valid frame set aside",
           "file=\"%s\"", bad);
    enum nd_err err = env->rename(env->impl, path, bad, o->msg);
    nd_free(bad);
    nd_free(path);
    return err;
}

/* What follows the last valid frame is not valid. */
static enum nd_err last_cut_or_seal(struct opener *o, struct nd_segment *segment, int file)
{
    struct nd_plog *plog = o->plog;
    const struct nd_env *env = plog->options.env;
    uint64_t end = segment->summary.end_offset;

    o->end_damaged = true;
    if (!wal_holds(o, end)) {
        nd_log(plog->options.log, ND_LOG_WARN, "storage", "segment sealed before damaged bytes",
               "dir=\"%s\" base=%" PRIu64 " end=%" PRIu64, plog->dir, segment->summary.base_offset,
               end);
        plog_index_store(plog, segment);
        env->close(env->impl, file);
        segment_list(o, segment);
        return ND_OK;
    }
    nd_log(plog->options.log, ND_LOG_INFO, "storage", "torn end of a segment cut",
           "dir=\"%s\" base=%" PRIu64 " end=%" PRIu64, plog->dir, segment->summary.base_offset,
           end);
    enum nd_err err = env->truncate(env->impl, file, segment->summary.size, o->msg);
    if (err == ND_OK) {
        err = env->sync(env->impl, file, o->msg);
    }
    if (err != ND_OK) {
        env->close(env->impl, file);
        nd_segment_unref(segment);
        return err;
    }
    segment_list(o, segment);
    plog_writer_adopt(plog, segment, file);
    return ND_OK;
}

static enum nd_err last_open(struct opener *o, uint64_t base)
{
    const struct nd_env *env = o->plog->options.env;
    struct nd_segment *segment;
    bool damaged, torn;
    int file;
    enum nd_err err = segment_open(o, base, ND_OPEN_WRITE, &file, &segment, &damaged);

    if (damaged) {
        return last_without_records(o, base);
    }
    if (err != ND_OK) {
        return err;
    }
    struct walk walk = {.o = o, .segment = segment, .offset_limit = UINT64_MAX, .is_last = true};
    err = segment_walk(&walk, file, &torn);
    if (err == ND_OK && segment->summary.records > 0 && torn) {
        return last_cut_or_seal(o, segment, file);
    }
    if (err == ND_OK && segment->summary.records > 0) {
        segment_list(o, segment);
        plog_writer_adopt(o->plog, segment, file);
        return ND_OK;
    }
    env->close(env->impl, file);
    nd_segment_unref(segment);
    return err != ND_OK ? err : last_without_records(o, base);
}

static enum nd_err files_open(struct opener *o)
{
    struct nd_plog *plog = o->plog;
    const struct nd_env *env = plog->options.env;
    enum nd_err err = env->list(env->impl, plog->dir, entry_seen, o, o->msg);

    if (err == ND_OK && o->bases_count > 0 && !plog->options.synced) {
        /* Names may be those of a crash between a write and the sync of the directory. */
        err = env->sync_dir(env->impl, plog->dir, o->msg);
    }
    if (o->bases_count > 0) {
        qsort(o->bases, o->bases_count, sizeof o->bases[0], base_compare);
    }
    if (err == ND_OK) {
        err = first_check(o);
    }
    for (size_t i = 0; i < o->bases_count && err == ND_OK; i++) {
        err = i + 1 < o->bases_count ? sealed_open(o, o->bases[i], o->bases[i + 1])
                                     : last_open(o, o->bases[i]);
    }
    return err != ND_OK ? err : last_check(o);
}

enum nd_err nd_plog_open(struct nd_plog **out, const struct nd_plog_options *options,
                         const char *dir, uint64_t flushed_offset, uint64_t wal_start,
                         struct nd_errmsg *msg)
{
    struct nd_plog *plog = nd_xcalloc(1, sizeof *plog);
    struct opener o = {
        .plog = plog, .flushed_offset = flushed_offset, .wal_start = wal_start, .msg = msg};

    ND_ASSERT(options->frame_bytes <= ND_FRAME_RAW_MAX);
    atomic_init(&plog->refs, 1);
    plog->options = *options;
    plog->dir = nd_xstrdup(dir);
    plog->writer.file = -1;
    nd_mutex_init(&plog->lock);
    plog->unflushable_gauge =
        nd_metrics_gauge(options->metrics, "unflushable_partitions", "",
                         "Partitions whose records cannot be written to their log.");
    enum nd_err err = options->synced ? ND_OK : nd_env_mkdirs(options->env, dir, msg);
    if (err == ND_OK) {
        err = files_open(&o);
    }
    nd_free(o.bases);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "open partition log %s", dir);
        nd_plog_unref(plog);
        return err;
    }
    if (flushed_offset > plog->end_offset) {
        if (plog->end_offset > 0) {
            nd_log(options->log, ND_LOG_ERROR, "storage", "flushed records are missing",
                   "dir=\"%s\" first=%" PRIu64 " next=%" PRIu64, dir, plog->end_offset,
                   flushed_offset);
        }
        plog->end_offset = flushed_offset;
    }
    *out = plog;
    return ND_OK;
}
