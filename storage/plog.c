#include <inttypes.h>

#include "storage/base/alloc.h"

#include "storage/plog_private.h"
#include "storage/remove.h"

struct nd_plog *nd_plog_ref(struct nd_plog *plog)
{
    /* Relaxed: the caller holds a reference. */
    (void)atomic_fetch_add_explicit(&plog->refs, 1, memory_order_relaxed);
    return plog;
}

void nd_plog_unref(struct nd_plog *plog)
{
    /* Acquire and release: the last one sees what all others did. */
    if (plog == NULL || atomic_fetch_sub_explicit(&plog->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    plog_writer_release(plog);
    for (uint32_t i = 0; i < plog->segments_count; i++) {
        nd_segment_unref(plog->segments[i]);
    }
    if (plog->unflushable) {
        nd_series_sub(plog->unflushable_gauge, 1);
    }
    nd_mutex_release(&plog->lock);
    nd_free(plog->segments);
    nd_free(plog->dir);
    nd_free(plog);
}

void plog_push_locked(struct nd_plog *plog, struct nd_segment *segment)
{
    if (plog->segments_count == plog->segments_capacity) {
        plog->segments_capacity = plog->segments_capacity == 0 ? 4 : plog->segments_capacity * 2;
        plog->segments =
            nd_xrealloc(plog->segments, plog->segments_capacity * sizeof *plog->segments);
    }
    plog->segments[plog->segments_count++] = segment;
}

uint32_t plog_find_locked(const struct nd_plog *plog, uint64_t offset)
{
    uint32_t low = 0, high = plog->segments_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plog->segments[middle]->summary.base_offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? UINT32_MAX : low - 1;
}

static uint64_t start_locked(const struct nd_plog *plog)
{
    return plog->segments_count > 0 ? plog->segments[0]->summary.base_offset : plog->end_offset;
}

static void stats_locked(const struct nd_plog *plog, struct nd_plog_stats *out)
{
    uint64_t records = 0;

    *out = (struct nd_plog_stats){
        .segments = plog->segments_count,
        .start_offset = start_locked(plog),
        .end_offset = plog->end_offset,
        .unflushable = plog->unflushable,
    };
    for (uint32_t i = 0; i < plog->segments_count; i++) {
        const struct nd_segment_summary *s = &plog->segments[i]->summary;
        records += s->records;
        out->size_bytes += s->size;
        if (out->oldest_ms == 0 && s->records > 0) {
            out->oldest_ms = s->first_ms;
        }
    }
    out->gap_records = out->end_offset - out->start_offset - records;
}

void nd_plog_stats(const struct nd_plog *plog, struct nd_plog_stats *out)
{
    /* The lock alone changes; callers see a log that they only look at. */
    struct nd_mutex *lock = (struct nd_mutex *)(uintptr_t)&plog->lock;

    nd_mutex_lock(lock);
    stats_locked(plog, out);
    nd_mutex_unlock(lock);
}

int64_t nd_plog_time_ms(const struct nd_plog *plog, uint64_t offset)
{
    struct nd_mutex *lock = (struct nd_mutex *)(uintptr_t)&plog->lock; /* as in nd_plog_stats */
    int64_t time_ms = 0;

    nd_mutex_lock(lock);
    for (uint32_t i = plog->segments_count; i > 0 && time_ms == 0; i--) {
        const struct nd_segment_summary *s = &plog->segments[i - 1]->summary;
        time_ms = s->base_offset <= offset && s->records > 0 ? s->first_ms : 0;
    }
    nd_mutex_unlock(lock);
    return time_ms;
}

bool plog_discard_file(const struct nd_plog *plog, uint64_t base_offset, const char *suffix)
{
    const struct nd_env *env = plog->options.env;
    struct nd_errmsg msg = {{0}};
    char *path = nd_segment_path(plog->dir, base_offset, suffix);
    char *gone = nd_xasprintf("%s" ND_SEGMENT_GONE, path);
    enum nd_err err;

    if (plog->options.remover == NULL) {
        err = env->unlink(env->impl, path, &msg);
    } else {
        err = env->rename(env->impl, path, gone, &msg);
        if (err == ND_OK) {
            nd_remover_add(plog->options.remover, gone);
        }
    }
    if (err != ND_OK && err != ND_ERR_NOT_FOUND) {
        nd_log_lasting(plog->options.log, ND_LOG_WARN, "storage", "cannot remove a segment file",
                       "file=\"%s\" err=\"%s\"", path, msg.text);
    }
    nd_free(gone);
    nd_free(path);
    return err == ND_OK || err == ND_ERR_NOT_FOUND;
}

/* --- retention --- */

/* No record of segment `i` is younger. INT64_MAX: not known. */
static int64_t youngest_locked(const struct nd_plog *plog, uint32_t i, int64_t newest_ms)
{
    const struct nd_segment_summary *s = &plog->segments[i]->summary;
    bool is_last = i + 1 == plog->segments_count;
    uint64_t next = is_last ? plog->end_offset : plog->segments[i + 1]->summary.base_offset;

    if (s->records > 0 && s->end_offset == next) {
        return s->last_ms;
    }
    if (is_last) {
        return newest_ms;
    }
    const struct nd_segment_summary *after = &plog->segments[i + 1]->summary;
    return after->records > 0 ? after->first_ms : INT64_MAX;
}

void nd_plog_aged(const struct nd_plog *plog, int64_t cutoff_ms, int64_t newest_ms,
                  struct nd_plog_aged *out)
{
    struct nd_mutex *lock = (struct nd_mutex *)(uintptr_t)&plog->lock; /* as in nd_plog_stats */
    uint32_t i = 0;

    nd_mutex_lock(lock);
    out->goes_ms = INT64_MAX;
    for (; i < plog->segments_count; i++) {
        out->goes_ms = youngest_locked(plog, i, newest_ms);
        if (out->goes_ms >= cutoff_ms) {
            break;
        }
    }
    if (i < plog->segments_count) {
        out->start_offset = plog->segments[i]->summary.base_offset;
    } else {
        out->start_offset = plog->end_offset;
        out->goes_ms = INT64_MAX;
    }
    nd_mutex_unlock(lock);
}

bool nd_plog_trimmable(const struct nd_plog *plog, uint64_t offset)
{
    struct nd_mutex *lock = (struct nd_mutex *)(uintptr_t)&plog->lock; /* as in nd_plog_stats */

    nd_mutex_lock(lock);
    uint64_t end = plog->segments_count > 1    ? plog->segments[1]->summary.base_offset
                   : plog->segments_count == 1 ? plog->end_offset
                                               : UINT64_MAX;
    nd_mutex_unlock(lock);
    return end <= offset;
}

/* Take the first segment out of the list if all of it lies below `offset`. */
static struct nd_segment *trim_next(struct nd_plog *plog, uint64_t offset)
{
    if (!nd_plog_trimmable(plog, offset)) {
        return NULL;
    }
    if (plog->segments[0] == plog->writer.segment) { /* this thread alone changes both */
        ND_ASSERT(plog->writer.pending_count == 0);
        plog_writer_drop(plog);
    }
    nd_mutex_lock(&plog->lock);
    struct nd_segment *segment = plog->segments[0];
    plog->segments_count -= 1;
    memmove(plog->segments, plog->segments + 1, plog->segments_count * sizeof *plog->segments);
    nd_mutex_unlock(&plog->lock);
    return segment;
}

/* Its file could not be removed: it is the first one again. */
static void trim_undo(struct nd_plog *plog, struct nd_segment *segment)
{
    nd_mutex_lock(&plog->lock); /* there is room: it was in the list before */
    memmove(plog->segments + 1, plog->segments, plog->segments_count * sizeof *plog->segments);
    plog->segments[0] = segment;
    plog->segments_count += 1;
    nd_mutex_unlock(&plog->lock);
}

void nd_plog_trim(struct nd_plog *plog, uint64_t offset, struct nd_plog_trimmed *out)
{
    struct nd_segment *segment;

    *out = (struct nd_plog_trimmed){.segments = 0};
    while ((segment = trim_next(plog, offset)) != NULL) {
        const struct nd_segment_summary *s = &segment->summary;
        /* Readers that look it up from here on do not find it; one that reads it right now looks
         * again when it meets the end of the file. */
        if (!plog_discard_file(plog, s->base_offset, ND_SEGMENT_LOG)) {
            out->failed = true;
            trim_undo(plog, segment);
            return;
        }
        (void)plog_discard_file(plog, s->base_offset, ND_SEGMENT_INDEX);
        nd_log(plog->options.log, ND_LOG_INFO, "storage", "segment removed",
               "dir=\"%s\" base=%" PRIu64 " end=%" PRIu64, plog->dir, s->base_offset,
               s->end_offset);
        out->segments += 1;
        out->records += s->records;
        out->bytes += s->size;
        nd_segment_unref(segment);
    }
}
