/* A file of the log, frame by frame and entry by entry. Where no valid frame of this life of the
 * file begins, the next one is looked for at every block. */
#include "storage/dump_private.h"
#include "storage/record.h"
#include "storage/wal_entry.h"
#include "storage/wal_file.h"

struct wal_dump {
    struct dump *dump;
    struct nd_wal_reader reader;
    struct nd_wal_header header;
    struct nd_wal_decoder decoder;
    bool has_header;
    uint64_t at;
    uint64_t next; /* sequence that the next frame should begin with; 0: any */
    uint64_t frames;
    /* Since the last valid frame. */
    uint64_t gap_from;
    bool gap_zeros;  /* nothing else */
    uint64_t own_at; /* a frame of this life of the file that is not whole; 0: none */
};

static bool is_spare(const struct dump *dump)
{
    return strstr(dump->name, ".spare") != NULL;
}

static void header_report(struct wal_dump *w, bool is_zero)
{
    struct nd_report *report = w->dump->report;
    const struct nd_wal_header *h = &w->header;

    nd_report_begin(report, is_spare(w->dump) ? "wal-spare" : "wal-file");
    nd_report_u64(report, "size", w->dump->size);
    nd_report_bool(report, "header", w->has_header);
    if (w->has_header) {
        nd_report_hex(report, "store_id", nd_slice_make(h->store_id, sizeof h->store_id));
        nd_report_id(report, "epoch", h->epoch);
        nd_report_id(report, "writer", h->writer);
        nd_report_u64(report, "first_sequence", h->first_sequence);
        nd_report_u64(report, "previous_end", h->previous_end);
        nd_report_u64(report, "file_bytes", h->file_bytes);
    }
    nd_report_end(report);
    if (!w->has_header && !(is_spare(w->dump) && is_zero)) {
        dump_damage(w->dump, 0, ND_WAL_BLOCK, "the file header is damaged");
    }
    if (w->has_header && w->dump->size < h->file_bytes) {
        dump_damage(w->dump, w->dump->size, h->file_bytes, "the file was cut here");
    }
}

/* --- entries --- */

static const char *type_name(enum nd_wal_entry_type type)
{
    switch (type) {
    case ND_WAL_COMMIT: return "commit";
    case ND_WAL_ACCEPT: return "accept";
    case ND_WAL_ACK: return "ack";
    case ND_WAL_DISPATCHED: return "dispatched";
    case ND_WAL_CURSOR: return "cursor";
    case ND_WAL_POSITION: return "position";
    case ND_WAL_CHECKPOINT: return "checkpoint";
    case ND_WAL_RESTATED: return "restated";
    }
    return "unknown";
}

static void ranges_report(struct wal_dump *w, const struct nd_wal_entry *entry)
{
    struct nd_buf text;

    nd_buf_init(&text, 8 << 20);
    for (uint32_t i = 0; i < entry->ranges_count; i++) {
        nd_buf_printf(&text, "%s%llu-%llu", i > 0 ? "," : "",
                      (unsigned long long)entry->ranges[i].first,
                      (unsigned long long)entry->ranges[i].last);
    }
    nd_report_bytes(w->dump->report, "ranges", nd_buf_slice(&text));
    nd_buf_release(&text);
}

static void records_report(struct wal_dump *w, const struct nd_wal_entry *entry)
{
    struct nd_report *report = w->dump->report;

    dump_partition_id(w->dump, &entry->id);
    if (entry->type != ND_WAL_ACCEPT) {
        nd_report_u64(report, "base_offset", entry->base_offset);
        nd_report_id(report, "origin_member", entry->origin_member);
    }
    nd_report_id(report, "origin_writer", entry->origin_writer);
    nd_report_u64(report, "origin_sequence", entry->origin_sequence);
    nd_report_i64(report, "time_ms", entry->time_ms);
    nd_report_u64(report, "count", entry->count);
    nd_report_u64(report, "bytes", entry->records.size);
}

static void entry_values(struct wal_dump *w, const struct nd_wal_entry *entry)
{
    struct nd_report *report = w->dump->report;

    switch (entry->type) {
    case ND_WAL_ACK:
        dump_partition_id(w->dump, &entry->id);
        ranges_report(w, entry);
        break;
    case ND_WAL_DISPATCHED:
        nd_report_id(report, "writer", entry->writer);
        ranges_report(w, entry);
        break;
    case ND_WAL_CURSOR:
        dump_partition_id(w->dump, &entry->id);
        nd_report_id(report, "child", entry->cursor.child_incarnation);
        nd_report_u64(report, "epoch", entry->cursor.epoch);
        nd_report_u64(report, "fork", entry->cursor.fork);
        nd_report_u64(report, "next_offset", entry->cursor.next_offset);
        break;
    case ND_WAL_POSITION: dump_positions(w->dump, entry->positions); break;
    case ND_WAL_CHECKPOINT:
        nd_report_u64(report, "replay_from", entry->replay_from);
        nd_report_i64(report, "commit_clock_ms", entry->time_ms);
        nd_report_u64(report, "flushed", entry->flushed_count);
        break;
    case ND_WAL_COMMIT:
    case ND_WAL_RESTATED:
    case ND_WAL_ACCEPT: records_report(w, entry); break;
    }
}

static void entry_report(struct wal_dump *w, const struct nd_wal_entry *entry, uint64_t at)
{
    struct nd_report *report = w->dump->report;

    nd_report_begin(report, type_name(entry->type));
    nd_report_u64(report, "at", at);
    nd_report_u64(report, "sequence", entry->sequence);
    entry_values(w, entry);
    nd_report_end(report);
    if (entry->records.size > 0) {
        dump_records(w->dump, entry->records, entry->type != ND_WAL_ACCEPT ? entry->base_offset : 0,
                     entry->count);
    }
    for (uint32_t i = 0; entry->type == ND_WAL_CHECKPOINT && i < entry->flushed_count; i++) {
        nd_report_begin(report, "flushed");
        dump_partition_id(w->dump, &entry->flushed[i].id);
        nd_report_u64(report, "offset", entry->flushed[i].offset);
        nd_report_end(report);
    }
}

/* --- frames --- */

static void frame_report(struct wal_dump *w, const struct nd_wal_frame *frame, struct nd_slice body)
{
    struct nd_report *report = w->dump->report;
    uint64_t sequence = frame->first_sequence, at = frame->at + ND_WAL_FRAME_HEADER_SIZE;

    nd_report_begin(report, "frame");
    nd_report_u64(report, "at", frame->at);
    nd_report_u64(report, "first_sequence", frame->first_sequence);
    nd_report_u64(report, "sequences", frame->sequences);
    nd_report_u64(report, "synced_to", frame->synced_to);
    nd_report_u64(report, "body_size", frame->body_size);
    nd_report_end(report);
    while (body.size > 0) {
        struct nd_wal_entry entry;
        size_t size;
        if (nd_wal_entry_get(&w->decoder, body, sequence, &entry, &size) != ND_OK) {
            dump_damage(w->dump, at, at + body.size, "an entry that is none, in a whole frame");
            return;
        }
        entry_report(w, &entry, at);
        sequence = entry.sequence_last + 1;
        at += size;
        body = nd_slice_make(body.data + size, body.size - size);
    }
}

/* What lies between two frames, or behind the last one. */
static void gap_report(struct wal_dump *w, bool is_last)
{
    if (w->at == w->gap_from) {
        return;
    }
    if (!is_last || !w->has_header) {
        if (!is_last || !w->gap_zeros) {
            dump_damage(w->dump, w->gap_from, w->at, "no valid frame begins here");
        }
        return;
    }
    nd_report_begin(w->dump->report, "end");
    nd_report_u64(w->dump->report, "at", w->gap_from);
    nd_report_u64(w->dump->report, "frames", w->frames);
    nd_report_text(w->dump->report, "then",
                   w->own_at != 0 ? "a torn frame"
                   : w->gap_zeros ? "zeros"
                                  : "older frames of a recycled file");
    nd_report_end(w->dump->report);
}

static enum nd_err block_step(struct wal_dump *w)
{
    struct nd_wal_frame frame;
    struct nd_slice body;
    const uint8_t *block;
    enum nd_err err = nd_wal_reader_block(&w->reader, w->at, &block, w->dump->msg);

    if (err != ND_OK) {
        return err;
    }
    bool is_zero = dump_is_zeros(nd_slice_make(block, ND_WAL_BLOCK));
    if (!w->has_header) {
        w->reader.epoch = nd_wal_frame_epoch(block);
    }
    bool is_own = nd_wal_frame_get(block, w->reader.epoch, w->at, &frame);
    err = nd_wal_reader_frame(&w->reader, w->at, &frame, &body, w->dump->msg);
    if (err == ND_ERR_CORRUPT) {
        w->gap_zeros = w->gap_zeros && is_zero;
        w->own_at = w->own_at == 0 && is_own ? w->at : w->own_at;
        w->at += ND_WAL_BLOCK;
        return ND_OK;
    }
    if (err != ND_OK) {
        return err;
    }
    gap_report(w, false);
    if (w->next != 0 && frame.first_sequence != w->next && w->at == w->gap_from) {
        dump_damage(w->dump, w->at, w->at, "the sequences jump here");
    }
    frame_report(w, &frame, body);
    w->frames += 1;
    w->next = frame.first_sequence + frame.sequences;
    w->at += nd_wal_frame_bytes(frame.body_size);
    w->gap_from = w->at;
    w->gap_zeros = true;
    w->own_at = 0;
    return ND_OK;
}

enum nd_err dump_wal(struct dump *dump)
{
    struct wal_dump w = {
        .dump = dump, .at = ND_WAL_BLOCK, .gap_from = ND_WAL_BLOCK, .gap_zeros = true};
    const uint8_t *block;

    if (strlen(dump->path) >= sizeof w.reader.path) {
        nd_errmsg_set(dump->msg, "the path is too long");
        return ND_ERR_INVALID_ARGUMENT;
    }
    enum nd_err err = nd_wal_reader_open(&w.reader, dump->env, dump->path, dump->msg);
    if (err != ND_OK) {
        return err;
    }
    err = nd_wal_reader_header(&w.reader, &w.header, dump->msg);
    w.has_header = err == ND_OK;
    if (err == ND_OK || err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED) {
        err = nd_wal_reader_block(&w.reader, 0, &block, dump->msg);
        header_report(&w, err == ND_OK && dump_is_zeros(nd_slice_make(block, ND_WAL_BLOCK)));
        err = err == ND_ERR_CORRUPT ? ND_OK : err;
    }
    w.next = w.has_header ? w.header.first_sequence : 0;
    nd_wal_decoder_init(&w.decoder);
    while (err == ND_OK && w.at + ND_WAL_BLOCK <= w.reader.size) {
        err = block_step(&w);
    }
    if (err == ND_OK) {
        gap_report(&w, true);
    }
    nd_wal_decoder_release(&w.decoder);
    nd_wal_reader_close(&w.reader);
    return err;
}
