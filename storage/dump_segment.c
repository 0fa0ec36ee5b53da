/* A segment, frame by frame. Without a header no frame can be checked: then what looks like one is
 * shown as unchecked. */
#include "storage/base/alloc.h"

#include "storage/dump_private.h"
#include "storage/segment.h"
#include "storage/window.h"

enum { CHUNK = 1 << 20 };

struct segment_dump {
    struct dump *dump;
    int file;
    struct nd_segment_summary summary; /* ids */
    uint64_t end;                      /* of the last valid frame */
    uint8_t *raw;
};

static void frame_values(struct nd_report *report, const struct nd_segment_frame *frame)
{
    const struct nd_frame_header *h = &frame->header;

    nd_report_u64(report, "at", frame->at);
    nd_report_u64(report, "size", nd_frame_size(h));
    nd_report_u64(report, "base_offset", h->base_offset);
    nd_report_u64(report, "records", h->record_count);
    nd_report_text(report, "codec", h->codec == ND_CODEC_ZSTD ? "zstd" : "none");
    nd_report_u64(report, "raw_size", h->raw_size);
    nd_report_i64(report, "first_ms", h->first_ms);
    nd_report_i64(report, "last_ms", h->last_ms);
}

static bool frame_seen(void *arg, const struct nd_segment_frame *frame, const uint8_t *bytes,
                       bool damaged)
{
    struct segment_dump *s = arg;

    if (damaged) {
        dump_damage(s->dump, s->end, frame->at, "no valid frame here");
    }
    nd_report_begin(s->dump->report, "frame");
    frame_values(s->dump->report, frame);
    nd_report_end(s->dump->report);
    s->end = frame->at + nd_frame_size(&frame->header);
    if (nd_frame_decode(bytes, &frame->header, s->raw) != ND_OK) {
        dump_damage(s->dump, frame->at, s->end, "not the records that its header says");
        return true;
    }
    dump_records(s->dump, nd_slice_make(s->raw, frame->header.raw_size), frame->header.base_offset,
                 frame->header.record_count);
    return true;
}

static enum nd_err frames_dump(struct segment_dump *s)
{
    struct nd_segment_scan scan = {.env = s->dump->env,
                                   .file = s->file,
                                   .epoch = s->summary.epoch,
                                   .from = ND_SEGMENT_HEADER_SIZE,
                                   .to = ND_MAX(s->dump->size, (uint64_t)ND_SEGMENT_HEADER_SIZE),
                                   .frame = frame_seen,
                                   .arg = s};

    s->end = ND_SEGMENT_HEADER_SIZE;
    enum nd_err err = nd_segment_scan(&scan, s->dump->msg);
    if (err == ND_OK && scan.torn) {
        dump_damage(s->dump, scan.end, s->dump->size, "no valid frame from here to the end");
    }
    return err;
}

/* What has the shape of a frame, along the chain of sizes and from block to block. */
static enum nd_err frames_guess(struct segment_dump *s)
{
    struct nd_window window;
    uint64_t at = ND_SEGMENT_HEADER_SIZE;
    enum nd_err err = ND_OK;

    nd_window_init(&window, s->dump->env, s->file, s->dump->size, CHUNK, ND_FRAME_SIZE_MAX);
    while (at < s->dump->size && err == ND_OK) {
        struct nd_segment_frame frame = {.at = at};
        struct nd_slice bytes;
        err = nd_window_get(&window, at, ND_FRAME_HEADER_SIZE, &bytes, s->dump->msg);
        if (err == ND_OK && nd_frame_header_get(bytes, &frame.header) == ND_OK) {
            nd_report_begin(s->dump->report, "unchecked-frame");
            frame_values(s->dump->report, &frame);
            nd_report_end(s->dump->report);
            at += nd_frame_size(&frame.header);
        } else {
            at = nd_align_up(at + 1);
        }
    }
    nd_window_release(&window);
    return err;
}

/* Which copies of the header are whole; the ids of the first one that is. */
static enum nd_err header_dump(struct segment_dump *s, bool *whole_out)
{
    struct nd_window window;
    struct nd_slice block;
    bool whole[ND_SEGMENT_HEADER_COPIES] = {false};
    struct nd_report *report = s->dump->report;

    nd_window_init(&window, s->dump->env, s->file, ND_SEGMENT_HEADER_SIZE, ND_SEGMENT_HEADER_SIZE,
                   0);
    enum nd_err err = nd_window_get(&window, 0, ND_SEGMENT_HEADER_SIZE, &block, s->dump->msg);
    for (int i = ND_SEGMENT_HEADER_COPIES - 1; i >= 0 && err == ND_OK; i--) {
        whole[i] = nd_segment_header_get(block, i, &s->summary);
    }
    nd_window_release(&window);
    if (err != ND_OK) {
        return err;
    }
    *whole_out = whole[0] || whole[1];
    nd_report_begin(report, "segment");
    nd_report_u64(report, "size", s->dump->size);
    nd_report_bool(report, "header", *whole_out);
    if (*whole_out) {
        nd_report_hex(report, "store_id",
                      nd_slice_make(s->summary.store_id, sizeof s->summary.store_id));
        nd_report_u64(report, "base_offset", s->summary.base_offset);
        nd_report_id(report, "epoch", s->summary.epoch);
    }
    nd_report_end(report);
    for (uint64_t i = 0; i < ND_SEGMENT_HEADER_COPIES; i++) {
        if (!whole[i]) {
            dump_damage(s->dump, i * (ND_SEGMENT_HEADER_SIZE / 2),
                        (i + 1) * (ND_SEGMENT_HEADER_SIZE / 2),
                        "this copy of the header is damaged");
        }
    }
    return ND_OK;
}

enum nd_err dump_segment(struct dump *dump)
{
    struct segment_dump s = {.dump = dump};
    const struct nd_env *env = dump->env;
    bool whole = false;
    enum nd_err err = env->open(env->impl, dump->path, ND_OPEN_READ, &s.file, dump->msg);

    if (err != ND_OK) {
        return err;
    }
    s.raw = nd_xmalloc(ND_FRAME_RAW_MAX);
    err = header_dump(&s, &whole);
    if (err == ND_OK) {
        err = whole ? frames_dump(&s) : frames_guess(&s);
    }
    nd_free(s.raw);
    env->close(env->impl, s.file);
    return err;
}
