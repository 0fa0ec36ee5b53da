/* One partition: its `state`, every frame of its segments, their indexes, and whether all that was
 * flushed is there. */
#include <stdlib.h>

#include "storage/base/alloc.h"

#include "storage/recovery.h"
#include "storage/segment.h"
#include "storage/verify_private.h"
#include "storage/window.h"

enum { STATE_SIZE_MAX = 256 << 20 };

struct checking {
    struct verify *v;
    const char *dir;
    const struct nd_partition_id *id;
    uint64_t *bases; /* of the .log files, ascending */
    size_t bases_count;
    bool has_state;
    struct nd_positions state;
    bool has_positions;
    const struct nd_positions *positions; /* the newest: of the log, or `state` */
    /* of the segments so far */
    bool seen;
    uint64_t end; /* behind the last offset; meaningless until `seen` */
};

/* A finding that concerns offsets [first, end). */
static void offsets_damage(struct checking *c, const char *file, uint64_t at, const char *what,
                           uint64_t first, uint64_t end)
{
    struct nd_report *report = verify_finding(c->v, true, file, at, what);

    nd_report_u64(report, "first", first);
    nd_report_u64(report, "last", end - 1);
    verify_finding_end(c->v);
}

/* --- state --- */

static void copies_check(struct checking *c, const char *path, struct nd_slice file)
{
    struct nd_positions first, positions;
    bool whole[ND_STATE_COPIES];
    bool differ = false;

    nd_positions_init(&first);
    for (int i = 0; i < ND_STATE_COPIES; i++) {
        uint8_t store_id[16];
        nd_positions_init(&positions);
        whole[i] = nd_state_copy_get(file, i, store_id, &positions) == ND_OK;
        if (i == 0 && whole[0]) {
            nd_positions_copy(&first, &positions);
        } else if (i == 1 && whole[0] && whole[1]) {
            differ = first.applied_sequence != positions.applied_sequence ||
                     first.frontier != positions.frontier;
        }
        nd_positions_release(&positions);
    }
    nd_positions_release(&first);
    for (int i = 0; i < ND_STATE_COPIES && (whole[0] || whole[1]); i++) {
        if (!whole[i]) {
            verify_damage(c->v, path, i == 0 ? 0 : file.size / 2,
                          "one of the two copies of the positions is damaged");
        }
    }
    if (differ) {
        verify_damage(c->v, path, file.size / 2, "the two copies of the positions differ");
    }
}

static enum nd_err state_check(struct checking *c)
{
    struct verify *v = c->v;
    char *path = nd_xasprintf("%s/state", c->dir);
    uint8_t *data;
    size_t size;
    enum nd_err err = nd_env_read_file(v->env, path, STATE_SIZE_MAX, &data, &size, v->msg);

    if (err == ND_OK) {
        v->result.bytes += size;
        copies_check(c, path, nd_slice_make(data, size));
        nd_free(data);
    }
    if (err == ND_OK || err == ND_ERR_TOO_LARGE) {
        err = nd_state_load(v->env, c->dir, v->store_id, &c->state, v->msg);
        c->has_state = err == ND_OK;
        if (err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED) {
            verify_damage(v, path, 0, v->msg->text);
            err = ND_OK;
        }
    }
    if (c->has_state && v->log_whole && c->state.applied_sequence > v->log_last) {
        struct nd_report *report = verify_finding(
            v, true, path, 0, "has applied more than the log holds: the log has lost its end");
        nd_report_u64(report, "applied_sequence", c->state.applied_sequence);
        nd_report_u64(report, "log_last", v->log_last);
        verify_finding_end(v);
    }
    nd_free(path);
    return err == ND_ERR_NOT_FOUND ? ND_OK : err;
}

/* --- one segment --- */

struct walk {
    struct checking *c;
    const char *path;
    struct nd_segment *segment;   /* what the log holds, frame by frame */
    const struct nd_index *index; /* the stored one, or NULL */
    uint32_t anchor;              /* next one to be met */
    bool anchors_fit;
    bool damaged;
    uint64_t successor; /* base offset of the next segment; UINT64_MAX */
    bool passed;        /* a frame reaches into it */
};

static void anchors_meet(struct walk *walk, uint64_t at)
{
    while (walk->index != NULL && walk->anchor < walk->index->count &&
           walk->index->anchors[walk->anchor].at <= at) {
        walk->anchors_fit = walk->anchors_fit && walk->index->anchors[walk->anchor].at == at;
        walk->anchor += 1;
    }
}

static bool frame_check(void *arg, const struct nd_segment_frame *frame, const uint8_t *bytes,
                        bool damaged)
{
    struct walk *walk = arg;
    struct verify *v = walk->c->v;
    struct nd_segment_summary *s = &walk->segment->summary;

    v->result.frames += 1;
    v->result.records += frame->header.record_count;
    if (nd_frame_end(&frame->header) > walk->successor) {
        walk->passed = true;
        verify_note(v, walk->path, frame->at, "frames that the next segment holds too");
        return false;
    }
    if (damaged) {
        walk->damaged = true;
        if (frame->header.base_offset > s->end_offset) {
            offsets_damage(walk->c, walk->path, s->size, "damaged frames", s->end_offset,
                           frame->header.base_offset);
        } else {
            verify_damage(v, walk->path, s->size, "bytes that are no frame");
        }
    }
    if (nd_frame_decode(bytes, &frame->header, v->raw) != ND_OK) {
        walk->damaged = true;
        offsets_damage(walk->c, walk->path, frame->at, "a frame without the records it names",
                       frame->header.base_offset, nd_frame_end(&frame->header));
    }
    anchors_meet(walk, frame->at);
    nd_segment_add(walk->segment, frame, 1);
    return true;
}

static void index_compare(struct walk *walk, const char *index_path,
                          const struct nd_segment_summary *stored)
{
    const struct nd_segment_summary *s = &walk->segment->summary;

    anchors_meet(walk, UINT64_MAX - 1);
    if (!walk->damaged && !walk->passed &&
        (!walk->anchors_fit || stored->end_offset != s->end_offset || stored->size != s->size ||
         stored->records != s->records)) {
        verify_damage(walk->c->v, index_path, 0, "the index disagrees with its segment");
    }
}

/* How the segment ends, and what comes behind it. */
static void end_check(struct walk *walk, const struct nd_segment_scan *scan)
{
    struct checking *c = walk->c;
    uint64_t end = walk->segment->summary.end_offset;
    bool is_last = walk->successor == UINT64_MAX;
    /* Of what retention let go a power cut may bring some back. */
    bool let_go = c->has_positions && walk->successor <= c->positions->log_start;

    if (!is_last && end < walk->successor && !let_go) {
        offsets_damage(c, walk->path, scan->end, "offsets missing before the next segment", end,
                       walk->successor);
    } else if (scan->torn && !walk->passed &&
               !(is_last && c->has_positions && end < c->positions->flushed_offset)) {
        verify_note(c->v, walk->path, scan->end,
                    !is_last           ? "bytes behind the last frame: the next segment goes on"
                    : !c->v->log_whole ? "bytes behind the last frame: damaged, or never "
                                         "verified; the log does not say which"
                                       : "bytes behind the last frame: never verified, the log "
                                         "has them");
    }
}

static enum nd_err frames_check(struct walk *walk, int file, uint64_t size)
{
    struct verify *v = walk->c->v;
    struct nd_index index;
    struct nd_segment_summary stored = walk->segment->summary;
    char *index_path = nd_segment_path(walk->c->dir, stored.base_offset, ND_SEGMENT_INDEX);
    struct nd_segment *loaded =
        nd_segment_new(v->store_id, stored.base_offset, walk->segment->summary.epoch);
    enum nd_err err = nd_segment_index_load(v->env, walk->c->dir, loaded, v->msg);
    bool has_index = err == ND_OK;

    if (err == ND_ERR_CORRUPT || err == ND_ERR_TOO_LARGE) {
        verify_damage(v, index_path, 0, "the index is damaged; the node makes it again");
    } else if (err == ND_ERR_NOT_FOUND && walk->successor != UINT64_MAX) {
        verify_note(v, index_path, 0, "no index; the node makes it again");
    }
    nd_index_init(&index);
    walk->index = has_index ? &loaded->index : &index;
    walk->anchors_fit = true;
    struct nd_segment_scan scan = {.env = v->env,
                                   .file = file,
                                   .epoch = walk->segment->summary.epoch,
                                   .from = ND_SEGMENT_HEADER_SIZE,
                                   .to = ND_MAX(size, (uint64_t)ND_SEGMENT_HEADER_SIZE),
                                   .offset_min = stored.base_offset,
                                   .frame = frame_check,
                                   .arg = walk};
    err = verify_is_fatal(err) ? err : nd_segment_scan(&scan, v->msg);
    if (err == ND_OK) {
        end_check(walk, &scan);
    }
    if (err == ND_OK && has_index) {
        index_compare(walk, index_path, &loaded->summary);
    }
    nd_segment_unref(loaded);
    nd_free(index_path);
    return err;
}

/* *usable_out: the header says that the frames are ours. */
static enum nd_err header_check(struct checking *c, const char *path, int file, uint64_t base,
                                struct nd_segment_summary *out, bool *usable_out)
{
    struct verify *v = c->v;
    struct nd_window window;
    struct nd_slice block;
    bool whole[ND_SEGMENT_HEADER_COPIES] = {false};

    *usable_out = false;
    nd_window_init(&window, v->env, file, ND_SEGMENT_HEADER_SIZE, ND_SEGMENT_HEADER_SIZE, 0);
    enum nd_err err = nd_window_get(&window, 0, ND_SEGMENT_HEADER_SIZE, &block, v->msg);
    for (int i = ND_SEGMENT_HEADER_COPIES - 1; i >= 0 && err == ND_OK; i--) {
        whole[i] = nd_segment_header_get(block, i, out);
    }
    nd_window_release(&window);
    if (err != ND_OK) {
        return err;
    }
    if ((!whole[0] || !whole[1]) && v->log_whole && c->has_positions &&
        base >= c->positions->flushed_offset) {
        verify_note(v, path, 0, "a segment that was being begun: never verified, the log has it");
    } else if (!whole[0] && !whole[1]) {
        verify_damage(v, path, 0, "neither copy of the segment header is whole");
    } else if (!whole[0] || !whole[1]) {
        verify_damage(v, path, whole[0] ? ND_SEGMENT_HEADER_SIZE / 2 : 0,
                      "one of the two copies of the segment header is damaged");
    }
    *usable_out = whole[0] || whole[1];
    if (*usable_out && (out->base_offset != base || memcmp(out->store_id, v->store_id, 16) != 0)) {
        verify_damage(v, path, 0, "belongs to another store or place");
        *usable_out = false;
    }
    return ND_OK;
}

static enum nd_err segment_check(struct checking *c, size_t number)
{
    struct verify *v = c->v;
    uint64_t base = c->bases[number], size = 0;
    char *path = nd_segment_path(c->dir, base, ND_SEGMENT_LOG);
    struct nd_segment_summary found = {.epoch = 0};
    bool usable;
    int file;

    verify_progress(v, path);
    v->result.segments += 1;
    enum nd_err err = v->env->open(v->env->impl, path, ND_OPEN_READ, &file, v->msg);
    if (err != ND_OK) {
        nd_free(path);
        return err;
    }
    err = v->env->file_size(v->env->impl, file, &size, v->msg);
    if (err == ND_OK) {
        err = header_check(c, path, file, base, &found, &usable);
    }
    if (err == ND_OK && usable) {
        struct walk walk = {.c = c,
                            .path = path,
                            .segment = nd_segment_new(v->store_id, base, found.epoch),
                            .successor =
                                number + 1 < c->bases_count ? c->bases[number + 1] : UINT64_MAX};
        err = frames_check(&walk, file, size);
        c->end = walk.segment->summary.end_offset;
        nd_segment_unref(walk.segment);
    } else if (err == ND_OK) {
        c->end = base;
    }
    c->seen = true;
    v->result.bytes += size;
    v->env->close(v->env->impl, file);
    nd_free(path);
    return err;
}

/* --- all of them --- */

static int base_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static enum nd_err files_list(struct checking *c)
{
    struct verify_names names;
    enum nd_err err = verify_list(c->v, c->dir, &names);

    c->bases = nd_xcalloc(names.count + 1, sizeof *c->bases);
    for (size_t i = 0; i < names.count && err == ND_OK; i++) {
        const char *name = names.list[i].name, *suffix;
        char *path = nd_xasprintf("%s/%s", c->dir, name);
        uint64_t base;
        if (strlen(name) >= 20 && nd_segment_name_parse(name, &base, &suffix)) {
            if (strcmp(suffix, ND_SEGMENT_LOG) == 0) {
                c->bases[c->bases_count++] = base;
            } else if (strcmp(suffix, ND_SEGMENT_BAD) == 0) {
                verify_note(c->v, path, 0, "set aside: it never held a valid frame");
            }
        } else if (strcmp(name, "state") != 0 && strstr(name, ".tmp") == NULL) {
            verify_note(c->v, path, 0, "not a name that a node gives");
        }
        nd_free(path);
    }
    verify_names_release(&names);
    if (c->bases_count > 1) {
        qsort(c->bases, c->bases_count, sizeof *c->bases, base_compare);
    }
    return err;
}

/* Do segments and positions agree? */
static void positions_check(struct checking *c)
{
    struct verify *v = c->v;
    const struct nd_positions *p = c->positions;

    if (!c->has_positions) {
        if (c->bases_count > 0 && v->log_whole) {
            verify_damage(v, c->dir, 0,
                          "segments without positions: neither `state` nor the log says where the "
                          "partition stands");
        }
        return;
    }
    /* The log start may lie above what is flushed: what no segment took ages as well. */
    if (p->log_start > p->next_offset || p->flushed_offset > p->next_offset ||
        p->frontier > p->next_offset) {
        verify_damage(v, c->dir, 0, "positions that cannot be: out of order");
        return;
    }
    uint64_t needed = ND_MAX(p->log_start, p->frontier); /* below it all may be gone */
    uint64_t first = c->seen ? c->bases[0] : p->flushed_offset;
    uint64_t end = c->seen ? c->end : p->flushed_offset;
    if (first > needed && needed < p->flushed_offset) {
        offsets_damage(c, c->dir, 0, "flushed records are missing before the first segment", needed,
                       ND_MIN(first, p->flushed_offset));
    }
    if (ND_MAX(end, p->log_start) < p->flushed_offset) {
        offsets_damage(c, c->dir, 0, "flushed records are missing behind the last segment", end,
                       p->flushed_offset);
    }
}

static void positions_choose(struct checking *c, struct nd_recovered_partition *replayed)
{
    c->has_positions = c->has_state;
    c->positions = &c->state;
    if (replayed == NULL || !replayed->grounded) {
        return;
    }
    struct nd_positions *p = &replayed->positions;
    p->next_offset = ND_MAX(p->next_offset, ND_MAX(p->flushed_offset, p->frontier));
    c->positions = p;
    c->has_positions = true;
}

enum nd_err verify_partition(struct verify *v, const char *dir, const struct nd_partition_id *id)
{
    struct checking c = {.v = v, .dir = dir, .id = id};
    char key_text[VERIFY_KEY_SIZE];
    struct nd_slice key = verify_key(key_text, id);

    v->result.partitions += 1;
    nd_positions_init(&c.state);
    struct nd_recovered_partition *replayed = nd_map_remove(v->replayed, key);
    enum nd_err err = state_check(&c);
    if (err == ND_OK) {
        err = files_list(&c);
    }
    positions_choose(&c, replayed);
    for (size_t i = 0; i < c.bases_count && err == ND_OK; i++) {
        err = segment_check(&c, i);
    }
    if (err == ND_OK) {
        positions_check(&c);
    }
    if (replayed != NULL) {
        nd_recovered_partition_free(replayed);
    }
    nd_free(c.bases);
    nd_positions_release(&c.state);
    return err;
}
