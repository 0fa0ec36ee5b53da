/* A round of one log: frames are built from runs and appended (nd_plog_write), the flusher syncs,
 * the frames are read back (nd_plog_verify), and only then they count.
 *
 *            write            synced           verify
 *   IDLE ──────────► PENDING ───────► SYNCED ─────────► IDLE, readable
 *     ▲                 │                │
 *     └─ disk full: cut back, nothing counts; else sealed at the last verified frame
 *
 * A round that passes the end of a segment rolls on the way: what is pending is synced and verified
 * in place, the file is sealed, and the rest goes to the next. */
#include <inttypes.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

#include "storage/plog_private.h"
#include "storage/retention.h"
#include "storage/window.h"

enum {
    OUT_FLUSH = 1 << 20, /* bytes of one pwrite, about */
    OUT_CAPACITY = OUT_FLUSH + ND_FRAME_SIZE_MAX + ND_WINDOW_ALIGN,
    FAILURES_MAX = 3,
};
static const uint64_t retry_pause_ns = 10000000000;

struct nd_plog_scratch *nd_plog_scratch_new(void)
{
    struct nd_plog_scratch *scratch = nd_xcalloc(1, sizeof *scratch);

    scratch->compressor = nd_compressor_new();
    scratch->raw = nd_xmalloc(ND_FRAME_RAW_MAX);
    scratch->out = nd_xmalloc(OUT_CAPACITY);
    return scratch;
}

void nd_plog_scratch_free(struct nd_plog_scratch *scratch)
{
    if (scratch != NULL) {
        nd_compressor_free(scratch->compressor);
        nd_free(scratch->raw);
        nd_free(scratch->out);
        nd_free(scratch);
    }
}

/* --- the file that is appended to --- */

/* Held by the writers of all logs of the process, as descriptors are: without a bound 30,000
 * partitions leave none for the log of the node itself. */
static _Atomic uint32_t files_open;

static void writer_hold(struct plog_writer *w, int file)
{
    w->file = file;
    atomic_fetch_add_explicit(&files_open, 1, memory_order_relaxed); /* a bound, no order */
}

static void writer_close(struct nd_plog *plog)
{
    struct plog_writer *w = &plog->writer;

    if (w->file != -1) {
        plog->options.env->close(plog->options.env->impl, w->file);
        atomic_fetch_sub_explicit(&files_open, 1, memory_order_relaxed);
        w->file = -1;
    }
}

/* Between rounds: beyond the bound a log keeps its file closed until it is written again. */
static void writer_rest(struct nd_plog *plog)
{
    uint32_t most = plog->options.files_max;

    if (most > 0 && atomic_load_explicit(&files_open, memory_order_relaxed) > most) {
        writer_close(plog);
    }
}

static enum nd_err writer_resume(struct nd_plog *plog, struct nd_errmsg *msg)
{
    struct plog_writer *w = &plog->writer;
    int file;

    if (w->segment == NULL || w->file != -1) {
        return ND_OK;
    }
    const struct nd_env *env = plog->options.env;
    char *path = nd_segment_path(plog->dir, w->segment->summary.base_offset, ND_SEGMENT_LOG);
    enum nd_err err = env->open(env->impl, path, ND_OPEN_WRITE, &file, msg);
    if (err == ND_OK) {
        writer_hold(w, file);
    }
    nd_free(path);
    return err;
}

void plog_writer_adopt(struct nd_plog *plog, struct nd_segment *segment, int file)
{
    plog->writer.segment = nd_segment_ref(segment);
    writer_hold(&plog->writer, file);
    plog->writer.listed = true;
    plog->writer.name_synced = true;
    plog->writer.at = nd_align_up(segment->summary.size);
    writer_rest(plog);
}

/* Forget the file: sealed, discarded or closed. */
void plog_writer_drop(struct nd_plog *plog)
{
    struct plog_writer *w = &plog->writer;

    writer_close(plog);
    nd_mutex_lock(&plog->lock);
    struct nd_segment *segment = w->segment;
    w->segment = NULL; /* nd_plog_trim may look */
    nd_mutex_unlock(&plog->lock);
    nd_segment_unref(segment);
    w->listed = false;
    w->pending_count = 0;
}

void plog_writer_release(struct nd_plog *plog)
{
    plog_writer_drop(plog);
    nd_free(plog->writer.pending);
    plog->writer.pending = NULL;
}

void plog_index_store(const struct nd_plog *plog, const struct nd_segment *segment)
{
    struct nd_errmsg msg = {{0}};

    if (nd_segment_index_store(plog->options.env, plog->dir, segment, &msg) != ND_OK) {
        nd_log_lasting(plog->options.log, ND_LOG_WARN, "storage",
                       "cannot store an index; it will be rebuilt", "dir=\"%s\" err=\"%s\"",
                       plog->dir, msg.text);
    }
}

/* Nothing is appended to the file any more. One without a verified frame goes: its name is that of
 * the file that will replace it. */
static void writer_seal(struct nd_plog *plog)
{
    struct plog_writer *w = &plog->writer;

    if (w->segment == NULL) {
        return;
    }
    if (w->listed) {
        plog_index_store(plog, w->segment);
    } else {
        (void)plog_discard_file(plog, w->segment->summary.base_offset, ND_SEGMENT_LOG);
    }
    plog_writer_drop(plog);
}

static enum nd_err file_create(struct nd_plog *plog, uint64_t base_offset, int *file_out,
                               struct nd_errmsg *msg)
{
    const struct nd_env *env = plog->options.env;
    const int flags = ND_OPEN_WRITE | ND_OPEN_CREATE | ND_OPEN_EXCL;
    char *path = nd_segment_path(plog->dir, base_offset, ND_SEGMENT_LOG);
    enum nd_err err = env->open(env->impl, path, flags, file_out, msg);

    if (err == ND_ERR_ALREADY_EXISTS) {
        /* Left by a failure, without a verified frame: otherwise it would be in the list and end
         * above this offset. */
        (void)plog_discard_file(plog, base_offset, ND_SEGMENT_LOG);
        err = env->open(env->impl, path, flags, file_out, msg);
    }
    nd_free(path);
    return err;
}

static enum nd_err writer_create(struct nd_plog *plog, uint64_t base_offset, struct nd_errmsg *msg)
{
    struct plog_writer *w = &plog->writer;
    const struct nd_env *env = plog->options.env;
    uint64_t epoch = nd_env_random_u64(env);
    struct nd_segment *segment = nd_segment_new(plog->options.store_id, base_offset, epoch);
    uint8_t *header = nd_xmalloc(ND_SEGMENT_HEADER_SIZE);
    int file;
    enum nd_err err = file_create(plog, base_offset, &file, msg);

    if (err != ND_OK) {
        nd_segment_unref(segment);
    } else {
        w->segment = segment;
        writer_hold(w, file);
        w->listed = false;
        w->name_synced = false;
        w->at = ND_SEGMENT_HEADER_SIZE;
        nd_segment_header_put(header, &segment->summary);
        err = env->pwrite(env->impl, file, header, ND_SEGMENT_HEADER_SIZE, 0, msg);
    }
    nd_free(header);
    return err;
}

/* --- counting what was verified --- */

/* The first `count` pending frames are good. */
static void pending_commit(struct nd_plog *plog, uint32_t count)
{
    struct plog_writer *w = &plog->writer;

    nd_mutex_lock(&plog->lock);
    for (uint32_t i = 0; i < count; i++) {
        nd_segment_add(w->segment, &w->pending[i], plog->options.index_stride_bytes);
        plog->end_offset = nd_frame_end(&w->pending[i].header);
    }
    if (count > 0 && !w->listed) {
        plog_push_locked(plog, nd_segment_ref(w->segment));
        w->listed = true;
    }
    nd_mutex_unlock(&plog->lock);
}

static enum nd_err pending_verify(struct nd_plog *plog, struct nd_errmsg *msg)
{
    struct plog_writer *w = &plog->writer;
    const struct nd_env *env = plog->options.env;
    uint32_t verified = 0;

    if (w->sync_result != ND_OK) {
        return w->sync_result;
    }
    if (!w->name_synced) {
        enum nd_err err = env->sync_dir(env->impl, plog->dir, msg);
        if (err != ND_OK) {
            return err;
        }
        w->name_synced = true;
    }
    char *path = nd_segment_path(plog->dir, w->segment->summary.base_offset, ND_SEGMENT_LOG);
    enum nd_err err = nd_segment_verify(env, path, &w->segment->summary, w->pending,
                                        w->pending_count, &verified, msg);
    nd_free(path);
    pending_commit(plog, verified);
    if (err == ND_OK) {
        w->pending_count = 0;
    }
    return err;
}

/* --- failure --- */

static void failure_count(struct nd_plog *plog)
{
    struct plog_writer *w = &plog->writer;
    const struct nd_env *env = plog->options.env;

    w->failures += 1;
    w->retry_ns = env->mono_ns(env->impl) + retry_pause_ns;
    if (w->failures >= FAILURES_MAX && !plog->unflushable) {
        nd_mutex_lock(&plog->lock);
        plog->unflushable = true;
        nd_mutex_unlock(&plog->lock);
        nd_series_add(plog->unflushable_gauge, 1);
        nd_log(plog->options.log, ND_LOG_ERROR, "storage", "partition is unflushable", "dir=\"%s\"",
               plog->dir);
    }
}

static void failure_clear(struct nd_plog *plog)
{
    plog->writer.failures = 0;
    if (plog->unflushable) {
        nd_mutex_lock(&plog->lock);
        plog->unflushable = false;
        nd_mutex_unlock(&plog->lock);
        nd_series_sub(plog->unflushable_gauge, 1);
        nd_log(plog->options.log, ND_LOG_INFO, "storage", "partition can be flushed again",
               "dir=\"%s\"", plog->dir);
    }
}

/* A full disk, or a process out of descriptors or memory, heals by itself: nothing is sealed for
 * it. */
static bool is_postponed(enum nd_err err)
{
    return err == ND_ERR_NO_SPACE || err == ND_ERR_LIMITED || err == ND_ERR_NO_MEMORY;
}

/* Back to behind the last verified frame of the file, whose later bytes never counted. */
static enum nd_err writer_cut(struct nd_plog *plog)
{
    struct plog_writer *w = &plog->writer;
    const struct nd_env *env = plog->options.env;

    w->pending_count = 0;
    w->at = nd_align_up(w->segment->summary.size);
    return env->truncate(env->impl, w->file, w->at, NULL);
}

static enum nd_err writer_fail(struct nd_plog *plog, enum nd_err err, struct nd_errmsg *msg)
{
    struct plog_writer *w = &plog->writer;

    nd_errmsg_wrap(msg, "flush %s", plog->dir);
    if (is_postponed(err)) {
        if (w->segment != NULL && (!w->listed || writer_cut(plog) != ND_OK)) {
            writer_seal(plog);
        }
        return ND_ERR_NO_SPACE;
    }
    writer_seal(plog);
    failure_count(plog);
    return ND_ERR_IO;
}

/* --- building frames --- */

struct builder {
    struct nd_plog *plog;
    struct nd_plog_scratch *scratch;
    struct nd_errmsg *msg;
    size_t out_size;              /* in scratch->out */
    struct nd_frame_header frame; /* the one being built: its records are in scratch->raw */
};

static enum nd_err out_flush(struct builder *b)
{
    struct plog_writer *w = &b->plog->writer;
    const struct nd_env *env = b->plog->options.env;

    if (b->out_size == 0) {
        return ND_OK;
    }
    enum nd_err err = env->pwrite(env->impl, w->file, b->scratch->out, b->out_size, w->at, b->msg);
    w->at += b->out_size;
    b->out_size = 0;
    return err;
}

/* The end of a round, or of a file: zeros up to the block boundary. */
static enum nd_err out_finish(struct builder *b)
{
    uint64_t at = b->plog->writer.at + b->out_size;
    size_t padding = (size_t)(nd_align_up(at) - at);

    memset(b->scratch->out + b->out_size, 0, padding);
    b->out_size += padding;
    return out_flush(b);
}

/* The next frame would pass the end of the segment: finish this one now. */
static enum nd_err writer_roll(struct builder *b)
{
    struct nd_plog *plog = b->plog;
    const struct nd_env *env = plog->options.env;
    enum nd_err err = ND_OK;

    if (plog->writer.pending_count > 0) {
        err = out_finish(b);
        if (err == ND_OK) {
            plog->writer.sync_result = env->sync(env->impl, plog->writer.file, b->msg);
            err = pending_verify(plog, b->msg);
        }
    }
    if (err == ND_OK) {
        writer_seal(plog);
    }
    return err;
}

static void pending_push(struct plog_writer *w, const struct nd_segment_frame *frame)
{
    if (w->pending_count == w->pending_capacity) {
        w->pending_capacity = w->pending_capacity == 0 ? 8 : w->pending_capacity * 2;
        w->pending = nd_xrealloc(w->pending, w->pending_capacity * sizeof w->pending[0]);
    }
    w->pending[w->pending_count++] = *frame;
}

/* Would the file be too big with the frame, or span too much time for retention? */
static bool writer_is_full(const struct builder *b)
{
    const struct plog_writer *w = &b->plog->writer;
    uint64_t at = w->at + b->out_size;

    if (at == ND_SEGMENT_HEADER_SIZE) {
        return false;
    }
    int64_t first_ms = w->listed ? w->segment->summary.first_ms : w->pending[0].header.first_ms;
    return at + ND_FRAME_HEADER_SIZE + b->frame.raw_size > b->plog->options.segment_bytes ||
           nd_retention_must_roll(first_ms, b->frame.last_ms, w->retention_ms);
}

/* There is a file in which the frame has room. */
static enum nd_err writer_ready(struct builder *b)
{
    struct nd_plog *plog = b->plog;

    if (plog->writer.segment != NULL) {
        if (!writer_is_full(b)) {
            return ND_OK;
        }
        enum nd_err err = writer_roll(b);
        if (err != ND_OK) {
            return err;
        }
    }
    /* Named by where the one before it ended, also when a gap follows: a name that does not follow
     * is a file that is lost (plog_open.c). */
    return writer_create(plog, plog->end_offset, b->msg);
}

static enum nd_err frame_emit(struct builder *b)
{
    struct plog_writer *w = &b->plog->writer;
    const struct nd_plog_options *options = &b->plog->options;
    struct nd_frame_header *header = &b->frame;
    struct nd_slice raw = {b->scratch->raw, header->raw_size};

    if (header->record_count == 0) {
        return ND_OK;
    }
    enum nd_err err = writer_ready(b);
    if (err != ND_OK) {
        return err;
    }
    uint8_t *frame = b->scratch->out + b->out_size;
    size_t size = options->codec == ND_CODEC_NONE
                      ? 0
                      : nd_compress(b->scratch->compressor, options->level, raw,
                                    frame + ND_FRAME_HEADER_SIZE, raw.size);
    header->codec = size > 0 ? ND_CODEC_ZSTD : ND_CODEC_NONE;
    header->stored_size = size > 0 ? (uint32_t)size : header->raw_size;
    if (size == 0) {
        memcpy(frame + ND_FRAME_HEADER_SIZE, raw.data, raw.size);
    }
    nd_frame_finish(frame, w->segment->summary.epoch, header);
    struct nd_segment_frame placed = {.at = w->at + b->out_size, .header = *header};
    pending_push(w, &placed);
    b->out_size += nd_frame_size(header);
    *header = (struct nd_frame_header){0};
    return b->out_size >= OUT_FLUSH ? out_flush(b) : ND_OK;
}

static enum nd_err record_add(struct builder *b, const uint8_t *record, size_t size,
                              uint64_t offset)
{
    struct nd_frame_header *header = &b->frame;
    int64_t time_ms = (int64_t)nd_get_u64(record + 16);

    if (header->record_count > 0 &&
        (offset != nd_frame_end(header) || header->raw_size + size > b->plog->options.frame_bytes ||
         nd_retention_must_roll(header->first_ms, time_ms, b->plog->writer.retention_ms))) {
        enum nd_err err = frame_emit(b);
        if (err != ND_OK) {
            return err;
        }
    }
    if (header->record_count == 0) {
        header->base_offset = offset;
        header->first_ms = time_ms;
    }
    memcpy(b->scratch->raw + header->raw_size, record, size);
    header->raw_size += (uint32_t)size;
    header->record_count += 1;
    header->last_ms = time_ms;
    return ND_OK;
}

static enum nd_err run_add(struct builder *b, const struct nd_tail_run *run, uint64_t offset_min)
{
    uint32_t skip = offset_min > run->base_offset
                        ? (uint32_t)ND_MIN(offset_min - run->base_offset, (uint64_t)run->count)
                        : 0;
    size_t at = nd_run_seek(run->records, skip);

    for (uint32_t i = skip; i < run->count; i++) {
        ND_ASSERT(run->records.size - at > ND_RECORD_HEADER_SIZE);
        const uint8_t *record = run->records.data + at;
        size_t size = nd_get_u32(record);
        ND_ASSERT(size <= run->records.size - at && size <= ND_RECORD_SIZE_MAX);
        enum nd_err err = record_add(b, record, size, run->base_offset + i);
        if (err != ND_OK) {
            return err;
        }
        at += size;
    }
    return ND_OK;
}

static enum nd_err runs_write(struct builder *b, const struct nd_tail_run *runs, uint32_t count)
{
    uint64_t offset_min = b->plog->end_offset; /* this thread alone changes it */

    for (uint32_t i = 0; i < count; i++) {
        enum nd_err err = run_add(b, &runs[i], offset_min);
        if (err != ND_OK) {
            return err;
        }
        offset_min = ND_MAX(offset_min, runs[i].base_offset + runs[i].count);
    }
    enum nd_err err = frame_emit(b);
    if (err != ND_OK) {
        return err;
    }
    return b->plog->writer.pending_count > 0 ? out_finish(b) : ND_OK;
}

/* --- the interface --- */

void nd_plog_set_retention(struct nd_plog *plog, uint64_t retention_ms)
{
    plog->writer.retention_ms = retention_ms;
}

enum nd_err nd_plog_write(struct nd_plog *plog, const struct nd_tail_run *runs, uint32_t count,
                          struct nd_errmsg *msg)
{
    struct plog_writer *w = &plog->writer;
    const struct nd_env *env = plog->options.env;

    ND_ASSERT(w->pending_count == 0);
    if (plog->unflushable && env->mono_ns(env->impl) < w->retry_ns) {
        nd_errmsg_set(msg, "%s is unflushable", plog->dir);
        return ND_ERR_CORRUPT;
    }
    enum nd_err err = writer_resume(plog, msg);
    if (err != ND_OK) {
        return is_postponed(err) ? ND_ERR_NO_SPACE : writer_fail(plog, err, msg);
    }
    struct builder b = {
        .plog = plog,
        .scratch = plog->options.scratch != NULL ? plog->options.scratch : nd_plog_scratch_new(),
        .msg = msg,
    };
    err = runs_write(&b, runs, count);
    if (b.scratch != plog->options.scratch) {
        nd_plog_scratch_free(b.scratch);
    }
    w->synced = false;
    return err == ND_OK ? ND_OK : writer_fail(plog, err, msg);
}

int nd_plog_pending_file(const struct nd_plog *plog)
{
    return plog->writer.pending_count > 0 ? plog->writer.file : -1;
}

void nd_plog_synced(struct nd_plog *plog, enum nd_err result, bool names_too)
{
    struct plog_writer *w = &plog->writer;

    w->synced = true;
    w->sync_result = result;
    w->name_synced = w->name_synced || (names_too && result == ND_OK);
}

enum nd_err nd_plog_verify(struct nd_plog *plog, uint64_t *end_out, struct nd_errmsg *msg)
{
    struct plog_writer *w = &plog->writer;

    if (w->pending_count > 0) {
        ND_ASSERT(w->synced);
        enum nd_err err = pending_verify(plog, msg);
        if (err != ND_OK) {
            return writer_fail(plog, err, msg);
        }
    }
    failure_clear(plog);
    writer_rest(plog);
    *end_out = plog->end_offset;
    return ND_OK;
}
