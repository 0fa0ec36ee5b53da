/* Which kind a file is, by its first bytes, else by its name; the small kinds. */
#include "storage/base/alloc.h"

#include "storage/dump_private.h"
#include "storage/index.h"
#include "storage/layout.h"
#include "storage/record.h"
#include "storage/state.h"

enum {
    SMALL_SIZE_MAX = 256 << 20, /* of an index or a state; what the node would read */
    HEAD_SIZE = 16,
};

void dump_damage(struct dump *dump, uint64_t from, uint64_t to, const char *what)
{
    dump->damages += 1;
    nd_report_begin(dump->report, "damage");
    nd_report_u64(dump->report, "at", from);
    nd_report_u64(dump->report, "end", to);
    nd_report_text(dump->report, "what", what);
    nd_report_end(dump->report);
}

void dump_partition_id(struct dump *dump, const struct nd_partition_id *id)
{
    nd_report_text(dump->report, "topic", id->topic);
    nd_report_id(dump->report, "incarnation", id->incarnation);
    nd_report_u64(dump->report, "partition", id->partition);
}

bool dump_is_zeros(struct nd_slice bytes)
{
    return bytes.size == 0 ||
           (bytes.data[0] == 0 && memcmp(bytes.data, bytes.data + 1, bytes.size - 1) == 0);
}

void dump_positions(struct dump *dump, const struct nd_positions *positions)
{
    struct nd_report *report = dump->report;
    struct nd_buf text;

    dump_partition_id(dump, &positions->id);
    nd_report_u64(report, "applied_sequence", positions->applied_sequence);
    nd_report_u64(report, "log_start", positions->log_start);
    nd_report_u64(report, "frontier", positions->frontier);
    nd_report_u64(report, "flushed_offset", positions->flushed_offset);
    nd_report_u64(report, "next_offset", positions->next_offset);
    nd_report_i64(report, "last_commit_ms", positions->last_commit_ms);
    nd_buf_init(&text, 8 << 20);
    for (uint32_t i = 0; i < positions->ahead_count; i++) {
        nd_buf_printf(&text, "%s%llu-%llu", i > 0 ? "," : "",
                      (unsigned long long)positions->ahead[i].first,
                      (unsigned long long)positions->ahead[i].last);
    }
    nd_report_bytes(report, "ahead", nd_buf_slice(&text));
    nd_buf_reset(&text);
    for (uint32_t i = 0; i < positions->attempts_count; i++) {
        nd_buf_printf(&text, "%s%llu:%u", i > 0 ? "," : "",
                      (unsigned long long)positions->attempts[i].offset,
                      positions->attempts[i].count);
    }
    nd_report_bytes(report, "attempts", nd_buf_slice(&text));
    nd_buf_reset(&text);
    for (uint32_t i = 0; i < positions->tokens_count; i++) {
        nd_buf_printf(&text, "%s%016llx/%016llx:%llu", i > 0 ? "," : "",
                      (unsigned long long)positions->tokens[i].member,
                      (unsigned long long)positions->tokens[i].writer,
                      (unsigned long long)positions->tokens[i].sequence);
    }
    nd_report_bytes(report, "tokens", nd_buf_slice(&text));
    nd_report_u64(report, "cursors", positions->cursors_count);
    nd_buf_release(&text);
}

void dump_records(struct dump *dump, struct nd_slice run, uint64_t base_offset, uint32_t count)
{
    for (uint32_t i = 0; dump->records && i < count; i++) {
        struct nd_record_view record;
        struct nd_record_header header;
        size_t size, at = 0;
        if (nd_record_get(run, &record, &size) != ND_OK) {
            return; /* it was checked */
        }
        nd_report_begin(dump->report, "record");
        nd_report_u64(dump->report, "offset", base_offset + i);
        nd_report_i64(dump->report, "time_ms", record.time_ms);
        nd_report_bytes(dump->report, "key", record.key);
        nd_report_u64(dump->report, "headers", record.header_count);
        while (nd_record_header_next(record.headers, &at, &header)) {
            nd_report_bytes(dump->report, "header_name", header.name);
            nd_report_bytes(dump->report, "header_value", header.value);
        }
        nd_report_u64(dump->report, "payload_size", record.payload.size);
        nd_report_bytes(dump->report, "payload", record.payload);
        nd_report_end(dump->report);
        run = nd_slice_make(run.data + size, run.size - size);
    }
}

/* --- small files, read whole --- */

static void dump_format(struct dump *dump, struct nd_slice bytes)
{
    uint8_t store_id[16];
    bool fresh;
    enum nd_err err = nd_layout_format_get(bytes, store_id, &fresh);

    if (err != ND_OK) {
        dump_damage(dump, 0, dump->size,
                    err == ND_ERR_UNSUPPORTED ? "a newer format" : "not what a node writes");
        return;
    }
    nd_report_begin(dump->report, "format");
    nd_report_hex(dump->report, "store_id", nd_slice_make(store_id, sizeof store_id));
    nd_report_text(dump->report, "state", fresh ? "new" : "ready");
    nd_report_end(dump->report);
}

static void dump_index(struct dump *dump, struct nd_slice bytes)
{
    struct nd_segment_summary summary;
    struct nd_report *report = dump->report;
    struct nd_index index;

    memset(&summary, 0, sizeof summary);
    nd_index_init(&index);
    if (!nd_index_ids(bytes, &summary) || nd_index_get(bytes, &index, &summary) != ND_OK) {
        dump_damage(dump, 0, dump->size, "not a whole index (the node makes it again)");
        return;
    }
    nd_report_begin(report, "index");
    nd_report_hex(report, "store_id", nd_slice_make(summary.store_id, sizeof summary.store_id));
    nd_report_u64(report, "base_offset", summary.base_offset);
    nd_report_u64(report, "end_offset", summary.end_offset);
    nd_report_id(report, "epoch", summary.epoch);
    nd_report_u64(report, "records", summary.records);
    nd_report_u64(report, "log_size", summary.size);
    nd_report_i64(report, "first_ms", summary.first_ms);
    nd_report_i64(report, "last_ms", summary.last_ms);
    nd_report_u64(report, "anchors", index.count);
    nd_report_end(report);
    for (uint32_t i = 0; i < index.count; i++) {
        nd_report_begin(report, "anchor");
        nd_report_u64(report, "offset", index.anchors[i].offset);
        nd_report_u64(report, "log_at", index.anchors[i].at);
        nd_report_end(report);
    }
    nd_index_release(&index);
}

static void dump_state(struct dump *dump, struct nd_slice bytes)
{
    for (int copy = 0; copy < ND_STATE_COPIES; copy++) {
        struct nd_positions positions;
        uint8_t store_id[16];
        uint64_t from = copy == 0 ? 0 : bytes.size / 2;
        nd_positions_init(&positions);
        if (nd_state_copy_get(bytes, copy, store_id, &positions) == ND_OK) {
            nd_report_begin(dump->report, "state");
            nd_report_u64(dump->report, "copy", (uint64_t)copy);
            nd_report_hex(dump->report, "store_id", nd_slice_make(store_id, sizeof store_id));
            dump_positions(dump, &positions);
            nd_report_end(dump->report);
        } else {
            dump_damage(dump, from, copy == 0 ? bytes.size / 2 : bytes.size,
                        "this copy of the positions is not whole");
        }
        nd_positions_release(&positions);
    }
}

static enum nd_err dump_small(struct dump *dump,
                              void (*dump_bytes)(struct dump *dump, struct nd_slice bytes))
{
    uint8_t *data;
    size_t size;
    enum nd_err err =
        nd_env_read_file(dump->env, dump->path, SMALL_SIZE_MAX, &data, &size, dump->msg);

    if (err == ND_ERR_TOO_LARGE) {
        dump_damage(dump, 0, dump->size, "far too large for its kind");
        return ND_OK;
    }
    if (err == ND_OK) {
        dump_bytes(dump, nd_slice_make(data, size));
        nd_free(data);
    }
    return err;
}

/* --- kinds --- */

enum kind { KIND_NONE, KIND_WAL, KIND_SEGMENT, KIND_INDEX, KIND_STATE, KIND_FORMAT, KIND_MARKER };

static bool has_suffix(const char *name, const char *suffix)
{
    size_t size = strlen(name), suffix_size = strlen(suffix);

    return size >= suffix_size && strcmp(name + size - suffix_size, suffix) == 0;
}

/* Names of all kinds, also with what quarantine and writers put behind them. */
static enum kind kind_by_name(const char *name)
{
    if (has_suffix(name, ".wal") || has_suffix(name, ".spare") || strstr(name, ".wal.") != NULL ||
        strcmp(name, "repair.tmp") == 0) {
        return KIND_WAL;
    }
    if (has_suffix(name, ".log") || has_suffix(name, ".bad") || has_suffix(name, ".gone")) {
        return KIND_SEGMENT;
    }
    if (has_suffix(name, ".index") || has_suffix(name, ".index.tmp")) {
        return KIND_INDEX;
    }
    if (strcmp(name, "state") == 0 || strcmp(name, "state.tmp") == 0) {
        return KIND_STATE;
    }
    if (strcmp(name, "LOCK") == 0 || strcmp(name, "syncfs") == 0 || strcmp(name, "ballast") == 0) {
        return KIND_MARKER;
    }
    return strcmp(name, "FORMAT") == 0 ? KIND_FORMAT : KIND_NONE;
}

static enum kind kind_by_head(struct nd_slice head)
{
    static const struct {
        const char *magic;
        enum kind kind;
    } magics[] = {{"NARADWAL", KIND_WAL},
                  {"NDSG", KIND_SEGMENT},
                  {"NDIX", KIND_INDEX},
                  {"NDST", KIND_STATE},
                  {"narad-data", KIND_FORMAT}};

    for (size_t i = 0; i < ND_ARRAY_SIZE(magics); i++) {
        size_t size = strlen(magics[i].magic);
        if (head.size >= size && memcmp(head.data, magics[i].magic, size) == 0) {
            return magics[i].kind;
        }
    }
    return KIND_NONE;
}

static enum nd_err head_read(struct dump *dump, uint8_t head[HEAD_SIZE], size_t *size_out)
{
    const struct nd_env *env = dump->env;
    int file;
    enum nd_err err = env->open(env->impl, dump->path, ND_OPEN_READ, &file, dump->msg);

    if (err != ND_OK) {
        return err;
    }
    err = env->pread(env->impl, file, head, HEAD_SIZE, 0, size_out, dump->msg);
    env->close(env->impl, file);
    return err;
}

/* A file whose content does not matter. */
static enum nd_err dump_marker(struct dump *dump)
{
    nd_report_begin(dump->report, "marker");
    nd_report_text(dump->report, "name", dump->name);
    nd_report_u64(dump->report, "size", dump->size);
    nd_report_end(dump->report);
    return ND_OK;
}

static enum nd_err kind_dump(struct dump *dump, enum kind kind)
{
    switch (kind) {
    case KIND_WAL: return dump_wal(dump);
    case KIND_SEGMENT: return dump_segment(dump);
    case KIND_INDEX: return dump_small(dump, dump_index);
    case KIND_STATE: return dump_small(dump, dump_state);
    case KIND_FORMAT: return dump_small(dump, dump_format);
    case KIND_MARKER: return dump_marker(dump);
    case KIND_NONE: break;
    }
    nd_errmsg_set(dump->msg, "%s: no file of the data directory that is known here", dump->path);
    return ND_ERR_UNSUPPORTED;
}

enum nd_err nd_dump_file(const struct nd_dump_options *options, uint64_t *damages_out,
                         struct nd_errmsg *msg)
{
    struct dump dump = {
        .path = options->path, .report = options->report, .records = options->records, .msg = msg};
    const char *slash = strrchr(options->path, '/');
    struct nd_file_stat stat;
    uint8_t head[HEAD_SIZE];
    size_t size = 0;

    *damages_out = 0;
    dump.name = slash != NULL ? slash + 1 : options->path;
    nd_read_only_init(&dump.read_only, options->env);
    dump.env = &dump.read_only.env;
    enum nd_err err = dump.env->stat(dump.env->impl, options->path, &stat, msg);
    if (err == ND_OK && stat.kind != ND_FILE_REGULAR) {
        nd_errmsg_set(msg, "%s: not a regular file", options->path);
        err = ND_ERR_INVALID_ARGUMENT;
    }
    if (err == ND_OK) {
        dump.size = stat.size;
        err = head_read(&dump, head, &size);
    }
    if (err == ND_OK) {
        enum kind kind = kind_by_head(nd_slice_make(head, size));
        err = kind_dump(&dump, kind != KIND_NONE ? kind : kind_by_name(dump.name));
    }
    *damages_out = dump.damages;
    return err;
}
