#include "storage/wal_scan.h"

#include "storage/base/alloc.h"

#include "storage/wal_entry.h"

/* Memory for what was read, while the log opens: the newest files, three of the usual size. */
enum { IMAGES_BYTES_MAX = 192 << 20 };

/* Note damage, or refuse because of it. */
static enum nd_err damage(struct nd_wal_found *found, const char *path, uint64_t at,
                          const char *what, bool strict, struct nd_errmsg *msg)
{
    if (found->damaged_at == 0) {
        found->damaged_at = at;
    }
    if (!strict) {
        return ND_OK;
    }
    nd_errmsg_set(msg, "%s: offset %llu: %s", path, (unsigned long long)at, what);
    return ND_ERR_CORRUPT;
}

/* The newest CHECKPOINT of a frame decides where replay starts. */
static void entries_note(struct nd_wal_scan *scan, struct nd_slice body)
{
    while (body.size > 0) {
        struct nd_partition_id id;
        size_t size;
        uint32_t sequences;
        uint64_t from = nd_wal_entry_peek(body, &size, &sequences);
        if (size == 0) {
            return; /* the replay will refuse it by name */
        }
        scan->checkpoint = from != 0 ? from : scan->checkpoint;
        if (scan->preview != NULL && nd_wal_entry_partition(body, &id)) {
            scan->preview(scan->preview_arg, &id);
        }
        body = nd_slice_make(body.data + size, body.size - size);
    }
}

/* Walk the frames that count. */
static enum nd_err frames_walk(struct nd_wal_scan *scan, struct nd_wal_reader *reader,
                               struct nd_wal_found *found, struct nd_errmsg *msg)
{
    found->end = ND_WAL_BLOCK;
    found->last_sequence = found->header.first_sequence - 1;
    for (;;) {
        struct nd_wal_frame frame;
        struct nd_slice body;
        enum nd_err err = nd_wal_reader_frame(reader, found->end, &frame, &body, msg);
        if (err != ND_OK) {
            return err == ND_ERR_CORRUPT ? ND_OK : err;
        }
        if (frame.first_sequence != found->last_sequence + 1 ||
            (frame.sequences > 0 && found->last_sequence + frame.sequences > found->limit)) {
            return ND_OK;
        }
        entries_note(scan, body);
        found->last_sequence += frame.sequences;
        found->end += nd_wal_frame_bytes(frame.body_size);
    }
}

/* W4: is there a later valid frame that was written after a sync had passed the end? */
static enum nd_err later_frame_find(struct nd_wal_reader *reader, uint64_t end, bool *found_out,
                                    struct nd_errmsg *msg)
{
    *found_out = false;
    reader->keep_image = false;
    for (uint64_t at = end + ND_WAL_BLOCK; at + ND_WAL_BLOCK <= reader->size; at += ND_WAL_BLOCK) {
        struct nd_wal_frame frame;
        struct nd_slice body;
        enum nd_err err = nd_wal_reader_frame(reader, at, &frame, &body, msg);
        if (err == ND_OK && frame.synced_to > end) {
            *found_out = true;
            return ND_OK;
        }
        if (err != ND_OK && err != ND_ERR_CORRUPT) {
            return err;
        }
    }
    return ND_OK;
}

/* Does the file hold all that it must? */
static enum nd_err file_judge(struct nd_wal_reader *reader, struct nd_wal_found *found,
                              bool is_last, bool strict, struct nd_errmsg *msg)
{
    if (found->size < found->header.file_bytes) {
        return damage(found, reader->path, found->size, "the file was cut here", strict, msg);
    }
    if (!is_last) {
        if (found->must_reach && found->limit >= found->header.first_sequence &&
            found->last_sequence < found->limit) {
            return damage(found, reader->path, found->end,
                          "a damaged frame, and the next file follows later ones", strict, msg);
        }
        return ND_OK;
    }
    bool later = false;
    enum nd_err err = later_frame_find(reader, found->end, &later, msg);
    if (err == ND_OK && later) {
        err = damage(found, reader->path, found->end,
                     "a damaged frame, and a later one says that it was synced", strict, msg);
    }
    return err;
}

/* Check the header, walk. */
static enum nd_err file_look(struct nd_wal_scan *scan, struct nd_wal_reader *reader,
                             struct nd_wal_found *found, const uint8_t store_id[16], bool is_last,
                             bool strict, struct nd_errmsg *msg)
{
    scan->checkpoint = 0;
    found->size = reader->size;
    enum nd_err err = nd_wal_reader_header(reader, &found->header, msg);
    if (err == ND_ERR_CORRUPT && !strict) {
        found->header_damaged = true;
        return ND_OK;
    }
    if (err != ND_OK) {
        return err;
    }
    if (memcmp(found->header.store_id, store_id, sizeof found->header.store_id) != 0) {
        nd_errmsg_set(msg, "%s: a file of another store", reader->path);
        return ND_ERR_CORRUPT;
    }
    if (found->header.first_sequence != found->first_sequence) {
        found->spare = true;
        return ND_OK;
    }
    err = frames_walk(scan, reader, found, msg);
    return err == ND_OK ? file_judge(reader, found, is_last, strict, msg) : err;
}

/* Nothing that replay needs may be missing below the oldest file looked at. */
static enum nd_err start_judge(const struct nd_wal_scan *scan, const char *dir, bool strict,
                               struct nd_errmsg *msg)
{
    size_t i = 0;
    char path[ND_WAL_PATH_SIZE];

    while (i < scan->count && (scan->files[i].ignored || scan->files[i].spare)) {
        i += 1;
    }
    if (i == scan->count || scan->files[i].header_damaged ||
        scan->files[i].header.previous_end == 0 ||
        scan->files[i].header.previous_end < scan->replay_from) {
        return ND_OK;
    }
    nd_wal_file_path(path, dir, scan->files[i].first_sequence);
    scan->files[i].orphan = true;
    return strict ? damage(&scan->files[i], path, ND_WAL_BLOCK, "the file before it is missing",
                           strict, msg)
                  : ND_OK;
}

enum nd_err nd_wal_scan_read(struct nd_wal_scan *scan, const struct nd_env *env, const char *dir,
                             const struct nd_wal_names *names, const uint8_t store_id[16],
                             bool strict, struct nd_errmsg *msg)
{
    uint64_t limit = UINT64_MAX, successor = UINT64_MAX;
    bool must_reach = false;
    enum nd_err err = ND_OK;

    scan->count = names->files_count;
    scan->files = nd_xcalloc(scan->count + 1, sizeof *scan->files);
    for (size_t i = scan->count; i-- > 0 && err == ND_OK;) {
        struct nd_wal_found *found = &scan->files[i];
        char path[ND_WAL_PATH_SIZE];
        found->first_sequence = names->files[i];
        found->limit = limit;
        found->must_reach = must_reach;
        if (scan->replay_from != 0 && successor <= scan->replay_from) {
            found->ignored = true;
            continue;
        }
        nd_wal_file_path(path, dir, found->first_sequence);
        struct nd_wal_reader reader;
        err = nd_wal_reader_open(&reader, env, path, msg);
        if (err == ND_OK) {
            reader.keep_image = strict && scan->images_bytes < IMAGES_BYTES_MAX;
            err = file_look(scan, &reader, found, store_id, successor == UINT64_MAX, strict, msg);
            found->image = nd_wal_reader_take_image(&reader, &found->image_size);
            scan->images_bytes += found->image_size;
            nd_wal_reader_close(&reader);
        }
        if (err != ND_OK || found->spare) {
            continue;
        }
        successor = found->first_sequence;
        must_reach = !found->header_damaged;
        if (found->header_damaged) { /* where its forerunner ends is not known */
            limit = ND_MIN(limit, found->first_sequence - 1);
            continue;
        }
        if (scan->replay_from == 0) {
            scan->replay_from = scan->checkpoint;
        }
        if (scan->last_sequence == 0) {
            bool has_frames = found->last_sequence >= found->first_sequence;
            scan->last_sequence = has_frames ? found->last_sequence : found->header.previous_end;
        }
        limit = ND_MIN(limit, found->header.previous_end);
    }
    if (err == ND_OK) {
        err = start_judge(scan, dir, strict, msg);
    }
    if (err != ND_OK) {
        nd_wal_scan_release(scan);
    }
    return err;
}

void nd_wal_scan_release(struct nd_wal_scan *scan)
{
    for (size_t i = 0; i < scan->count; i++) {
        nd_free(scan->files[i].image);
    }
    nd_free(scan->files);
    memset(scan, 0, sizeof *scan);
}

/* --- replay --- */

struct replay {
    enum nd_err (*call)(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg);
    void *arg;
    uint64_t from;
    struct nd_wal_decoder decoder;
};

static enum nd_err frame_replay(struct replay *replay, const struct nd_wal_frame *frame,
                                struct nd_slice body, const char *path, struct nd_errmsg *msg)
{
    uint64_t sequence = frame->first_sequence;
    size_t left = body.size;

    while (left > 0) {
        struct nd_slice rest = nd_slice_make(body.data + (body.size - left), left);
        struct nd_wal_entry entry;
        size_t size;
        enum nd_err err = nd_wal_entry_get(&replay->decoder, rest, sequence, &entry, &size);
        if (err != ND_OK) {
            nd_errmsg_set(
                msg, "%s: offset %llu: %s", path,
                (unsigned long long)(frame->at + ND_WAL_FRAME_HEADER_SIZE + (body.size - left)),
                err == ND_ERR_CORRUPT ? "an entry that is none" : nd_err_text(err));
            return err;
        }
        if (entry.sequence_last >= replay->from) {
            err = replay->call(replay->arg, &entry, msg);
            if (err != ND_OK) {
                return err;
            }
        }
        sequence = entry.sequence_last + 1;
        left -= size;
    }
    if (sequence != frame->first_sequence + frame->sequences) {
        nd_errmsg_set(msg, "%s: offset %llu: entries and frame disagree", path,
                      (unsigned long long)frame->at);
        return ND_ERR_CORRUPT;
    }
    return ND_OK;
}

static enum nd_err file_replay(struct replay *replay, const struct nd_env *env, const char *path,
                               struct nd_wal_found *found, struct nd_errmsg *msg)
{
    struct nd_wal_reader reader;
    enum nd_err err = ND_OK;

    if (found->image != NULL) {
        nd_wal_reader_open_image(&reader, path, found->image, found->image_size);
        found->image = NULL;
    } else {
        err = nd_wal_reader_open(&reader, env, path, msg);
    }
    if (err != ND_OK) {
        return err;
    }
    reader.epoch = found->header.epoch;
    for (uint64_t at = ND_WAL_BLOCK; at < found->end && err == ND_OK;) {
        struct nd_wal_frame frame;
        struct nd_slice body;
        err = nd_wal_reader_frame(&reader, at, &frame, &body, msg);
        if (err == ND_ERR_CORRUPT) {
            nd_errmsg_set(msg, "%s: offset %llu: the device changed its mind", path,
                          (unsigned long long)at);
        }
        if (err == ND_OK) {
            err = frame_replay(replay, &frame, body, path, msg);
            at += nd_wal_frame_bytes(frame.body_size);
        }
    }
    nd_wal_reader_close(&reader);
    return err;
}

enum nd_err nd_wal_scan_replay(struct nd_wal_scan *scan, const struct nd_env *env, const char *dir,
                               enum nd_err (*call)(void *arg, const struct nd_wal_entry *entry,
                                                   struct nd_errmsg *msg),
                               void *arg, struct nd_errmsg *msg)
{
    struct replay replay = {.call = call, .arg = arg, .from = scan->replay_from};
    enum nd_err err = ND_OK;

    nd_wal_decoder_init(&replay.decoder);
    for (size_t i = 0; i < scan->count && err == ND_OK; i++) {
        struct nd_wal_found *found = &scan->files[i];
        char path[ND_WAL_PATH_SIZE];
        if (!found->ignored && !found->spare && !found->header_damaged &&
            found->end > ND_WAL_BLOCK) {
            nd_wal_file_path(path, dir, found->first_sequence);
            err = file_replay(&replay, env, path, found, msg);
        }
    }
    nd_wal_decoder_release(&replay.decoder);
    return err;
}
