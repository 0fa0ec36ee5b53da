/* THE REPAIR. Files are worked oldest first; `kept` is the last sequence that counts so far.
 *  1  The frames of a damaged file that are valid and may count fall into pieces, each without a
 * gap. 2  The file is copied to quarantine, synced, its name synced. 3  Every piece but the first
 * becomes a file of its own, last piece first: its header says that what it follows ends where the
 * piece before it ends. Each is written under a temporary name, synced, renamed, the directory
 * synced. 4  The first piece replaces the damaged file in the same way. 5  A file whose
 * previous_end is beyond `kept` is replaced by a copy that says `kept`. A crash between the steps
 * leaves a log that is damaged in the same place, or already repaired. */
#include "storage/wal_repair.h"

#include <stdarg.h>
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/layout.h"
#include "storage/state.h"
#include "storage/wal_scan.h"

enum {
    LINE_SIZE = 2048,
    COPY_STEP = 1 << 20,
    NEW_FILE_BYTES = 256 << 10, /* the next open starts one of its own size */
    SEQUENCE_STEP_BITS = 40,
};

/* Valid frames without a gap between them. */
struct piece {
    uint64_t first, last; /* sequences */
    uint64_t *at;         /* places of its frames in the damaged file */
    uint64_t *epoch;
    size_t count;
};

struct repair {
    const struct nd_wal_repair_options *options;
    const struct nd_env *env;
    const char *dir; /* of the log */
    const char *data_dir;
    const uint8_t *store_id;
    struct nd_errmsg *msg;
    struct piece *pieces; /* of the file under work */
    size_t pieces_count;
    uint64_t kept;
};

static void say(const struct repair *r, const char *format, ...) ND_PRINTF(2, 3);
static void say(const struct repair *r, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (r->options->report != NULL) {
        r->options->report(r->options->report_arg, line);
    }
}

/* --- salvage --- */

static void pieces_reset(struct repair *r)
{
    for (size_t i = 0; i < r->pieces_count; i++) {
        nd_free(r->pieces[i].at);
        nd_free(r->pieces[i].epoch);
    }
    nd_free(r->pieces);
    r->pieces = NULL;
    r->pieces_count = 0;
}

static void frame_add(struct repair *r, const struct nd_wal_frame *frame)
{
    struct piece *piece = r->pieces_count > 0 ? &r->pieces[r->pieces_count - 1] : NULL;

    if (piece == NULL || piece->last + 1 != frame->first_sequence) {
        r->pieces = nd_xrealloc(r->pieces, (r->pieces_count + 1) * sizeof *r->pieces);
        piece = &r->pieces[r->pieces_count++];
        *piece = (struct piece){.first = frame->first_sequence};
    }
    piece->at = nd_xrealloc(piece->at, (piece->count + 1) * sizeof *piece->at);
    piece->epoch = nd_xrealloc(piece->epoch, (piece->count + 1) * sizeof *piece->epoch);
    piece->at[piece->count] = frame->at;
    piece->epoch[piece->count] = frame->epoch;
    piece->count += 1;
    piece->last = frame->first_sequence + frame->sequences - 1;
}

/* Collect every valid frame of the file that may count, in order of sequence. */
static enum nd_err salvage(struct repair *r, struct nd_wal_reader *reader,
                           const struct nd_wal_found *found, uint64_t below)
{
    uint64_t next = found->first_sequence, at = ND_WAL_BLOCK;

    while (at + ND_WAL_BLOCK <= reader->size) {
        struct nd_wal_frame frame;
        struct nd_slice body;
        const uint8_t *block;
        enum nd_err err = nd_wal_reader_block(reader, at, &block, r->msg);
        if (err != ND_OK) {
            return err;
        }
        if (found->header_damaged) {
            reader->epoch = nd_wal_frame_epoch(block);
        }
        err = nd_wal_reader_frame(reader, at, &frame, &body, r->msg);
        if (err != ND_OK && err != ND_ERR_CORRUPT) {
            return err;
        }
        uint64_t end = err == ND_OK ? frame.first_sequence + frame.sequences : 0;
        if (err == ND_ERR_CORRUPT || frame.first_sequence < next || end > below ||
            end - 1 > found->limit) {
            at += ND_WAL_BLOCK;
            continue;
        }
        if (frame.sequences > 0) {
            frame_add(r, &frame);
            next = end;
        }
        at += nd_wal_frame_bytes(frame.body_size);
    }
    return ND_OK;
}

/* --- writing --- */

struct target {
    int file;
    char temporary[ND_WAL_PATH_SIZE];
};

static enum nd_err target_begin(struct repair *r, struct target *target, uint64_t bytes)
{
    const struct nd_env *env = r->env;

    snprintf(target->temporary, sizeof target->temporary, "%s/repair.tmp", r->dir);
    enum nd_err err = env->open(env->impl, target->temporary, ND_OPEN_WRITE | ND_OPEN_CREATE,
                                &target->file, r->msg);
    if (err != ND_OK) {
        return err;
    }
    err = env->truncate(env->impl, target->file, 0, r->msg);
    if (err == ND_OK) {
        err = env->zero_fill(env->impl, target->file, 0, bytes, r->msg);
    }
    if (err != ND_OK) {
        env->close(env->impl, target->file);
    }
    return err;
}

static enum nd_err target_end(struct repair *r, struct target *target, const char *path)
{
    const struct nd_env *env = r->env;
    enum nd_err err = env->sync(env->impl, target->file, r->msg);

    env->close(env->impl, target->file);
    if (err == ND_OK) {
        err = env->rename(env->impl, target->temporary, path, r->msg);
    }
    if (err == ND_OK) {
        err = env->sync_dir(env->impl, r->dir, r->msg);
    }
    return err;
}

static enum nd_err header_write(struct repair *r, struct target *target,
                                const struct nd_wal_header *header)
{
    uint8_t block[ND_WAL_BLOCK];

    nd_wal_header_put(block, header);
    return r->env->pwrite(r->env->impl, target->file, block, sizeof block, 0, r->msg);
}

static enum nd_err frames_write(struct repair *r, struct target *target,
                                struct nd_wal_reader *reader, const struct piece *piece,
                                uint64_t epoch)
{
    uint64_t to = ND_WAL_BLOCK;
    enum nd_err err = ND_OK;

    for (size_t i = 0; i < piece->count && err == ND_OK; i++) {
        struct nd_wal_frame_writer writer;
        struct nd_wal_frame frame;
        struct nd_slice body;
        reader->epoch = piece->epoch[i];
        err = nd_wal_reader_frame(reader, piece->at[i], &frame, &body, r->msg);
        if (err != ND_OK) {
            return err;
        }
        frame.epoch = epoch;
        frame.at = frame.synced_to = to; /* the whole file is synced before it counts */
        uint8_t *data = nd_xmalloc((size_t)nd_wal_frame_bytes(frame.body_size));
        nd_wal_frame_begin(&writer, data, &frame);
        nd_wal_frame_add(&writer, body);
        size_t size = nd_wal_frame_end(&writer);
        err = r->env->pwrite(r->env->impl, target->file, data, size, to, r->msg);
        nd_free(data);
        to += size;
    }
    return err;
}

/* Write `piece` (NULL: no frames) as the file `header->first_sequence`. */
static enum nd_err piece_write(struct repair *r, struct nd_wal_reader *reader,
                               const struct piece *piece, struct nd_wal_header *header)
{
    char path[ND_WAL_PATH_SIZE];
    struct target target;

    header->epoch = nd_env_random_u64(r->env);
    nd_wal_file_path(path, r->dir, header->first_sequence);
    enum nd_err err = target_begin(r, &target, header->file_bytes);
    if (err != ND_OK) {
        return err;
    }
    err = header_write(r, &target, header);
    if (err == ND_OK && piece != NULL) {
        err = frames_write(r, &target, reader, piece, header->epoch);
    }
    if (err != ND_OK) {
        r->env->close(r->env->impl, target.file);
        return err;
    }
    say(r, "%s: written with sequences %llu..%llu", path,
        (unsigned long long)header->first_sequence,
        (unsigned long long)(piece != NULL ? piece->last : header->first_sequence - 1));
    return target_end(r, &target, path);
}

/* Copy `bytes` from place to place of two open files. */
static enum nd_err bytes_copy(struct repair *r, int from, int to, uint64_t at, uint64_t end)
{
    uint8_t *buffer = nd_xaligned(ND_WAL_BLOCK, COPY_STEP);
    enum nd_err err = ND_OK;

    while (at < end && err == ND_OK) {
        size_t got, step = (size_t)ND_MIN((uint64_t)COPY_STEP, end - at);
        err = r->env->pread(r->env->impl, from, buffer, step, at, &got, r->msg);
        if (err == ND_OK && got == 0) {
            break;
        }
        if (err == ND_OK) {
            err = r->env->pwrite(r->env->impl, to, buffer, got, at, r->msg);
            at += got;
        }
    }
    nd_free(buffer);
    return err;
}

static enum nd_err quarantine(struct repair *r, const char *path)
{
    const struct nd_env *env = r->env;
    char dir[ND_WAL_PATH_SIZE], copy[ND_WAL_PATH_SIZE + 64];
    uint64_t size;
    int from, to;

    snprintf(dir, sizeof dir, "%s/quarantine", r->data_dir);
    snprintf(copy, sizeof copy, "%s/%s.%016llx", dir, strrchr(path, '/') + 1,
             (unsigned long long)nd_env_random_u64(env));
    enum nd_err err = env->open(env->impl, path, ND_OPEN_READ, &from, r->msg);
    if (err != ND_OK) {
        return err;
    }
    err = env->file_size(env->impl, from, &size, r->msg);
    if (err == ND_OK) {
        err =
            env->open(env->impl, copy, ND_OPEN_WRITE | ND_OPEN_CREATE | ND_OPEN_EXCL, &to, r->msg);
    }
    if (err != ND_OK) {
        env->close(env->impl, from);
        return err;
    }
    err = bytes_copy(r, from, to, 0, size);
    if (err == ND_OK) {
        err = env->sync(env->impl, to, r->msg);
    }
    env->close(env->impl, to);
    env->close(env->impl, from);
    if (err == ND_OK) {
        err = env->sync_dir(env->impl, dir, r->msg);
    }
    say(r, "%s: copied as it was to %s", path, copy);
    return err;
}

/* --- one file --- */

/* What is lost in front of each piece and behind the last. */
static void losses_say(const struct repair *r, const struct nd_wal_found *found, const char *path)
{
    uint64_t next = found->first_sequence;

    for (size_t i = 0; i < r->pieces_count; i++) {
        if (r->pieces[i].first > next) {
            say(r, "%s: sequences %llu..%llu are lost", path, (unsigned long long)next,
                (unsigned long long)(r->pieces[i].first - 1));
        }
        next = r->pieces[i].last + 1;
    }
    if (found->limit == UINT64_MAX) {
        say(r, "%s: what followed sequence %llu, if anything, is lost", path,
            (unsigned long long)(next - 1));
    } else if (found->limit >= next) {
        say(r, "%s: sequences %llu..%llu are lost", path, (unsigned long long)next,
            (unsigned long long)found->limit);
    }
}

/* Steps 1 to 4. */
static enum nd_err damaged_repair(struct repair *r, const struct nd_wal_found *found,
                                  const char *path, uint64_t below)
{
    struct nd_wal_header header = found->header;
    struct nd_wal_reader reader;
    enum nd_err err = nd_wal_reader_open(&reader, r->env, path, r->msg);

    if (err != ND_OK) {
        return err;
    }
    memcpy(header.store_id, r->store_id, sizeof header.store_id);
    header.first_sequence = found->first_sequence;
    header.previous_end = r->kept;
    header.file_bytes = ND_MAX(header.file_bytes, reader.size);
    header.file_bytes = ND_MAX(header.file_bytes, (uint64_t)NEW_FILE_BYTES);
    reader.epoch = header.epoch;
    err = salvage(r, &reader, found, below);
    if (err == ND_OK) {
        err = quarantine(r, path);
    }
    if (err != ND_OK) {
        goto done;
    }
    losses_say(r, found, path);
    size_t first = r->pieces_count > 0 && r->pieces[0].first == found->first_sequence;
    for (size_t i = r->pieces_count; i-- > first && err == ND_OK;) {
        struct nd_wal_header own = header;
        own.first_sequence = r->pieces[i].first;
        own.previous_end = i > 0 ? r->pieces[i - 1].last : r->kept;
        err = piece_write(r, &reader, &r->pieces[i], &own);
    }
    if (err == ND_OK) {
        err = piece_write(r, &reader, first == 1 ? &r->pieces[0] : NULL, &header);
    }
    if (err == ND_OK && r->pieces_count > 0) {
        r->kept = r->pieces[r->pieces_count - 1].last;
    }
done:
    pieces_reset(r);
    nd_wal_reader_close(&reader);
    return err;
}

/* Step 5: the same bytes under another header. */
static enum nd_err header_replace(struct repair *r, const struct nd_wal_found *found,
                                  const char *path)
{
    struct nd_wal_header header = found->header;
    const struct nd_env *env = r->env;
    struct target target;
    int from;
    enum nd_err err = env->open(env->impl, path, ND_OPEN_READ, &from, r->msg);

    if (err != ND_OK) {
        return err;
    }
    err = target_begin(r, &target, found->size);
    if (err != ND_OK) {
        goto done;
    }
    say(r, "%s: follows sequence %llu, not %llu", path, (unsigned long long)r->kept,
        (unsigned long long)header.previous_end);
    header.previous_end = r->kept;
    err = header_write(r, &target, &header);
    if (err == ND_OK) {
        err = bytes_copy(r, from, target.file, ND_WAL_BLOCK, found->size);
    }
    if (err == ND_OK) {
        err = target_end(r, &target, path);
    } else {
        env->close(env->impl, target.file);
    }
done:
    env->close(env->impl, from);
    return err;
}

static enum nd_err file_repair(struct repair *r, const struct nd_wal_found *found, uint64_t below,
                               bool is_first)
{
    char path[ND_WAL_PATH_SIZE];

    nd_wal_file_path(path, r->dir, found->first_sequence);
    if (is_first) {
        r->kept = found->header_damaged || found->orphan ? 0 : found->header.previous_end;
    }
    bool follows_more = !found->header_damaged && found->header.previous_end > r->kept;
    if (found->orphan) {
        say(r, "%s: the files before it are missing: sequences up to %llu are lost", path,
            (unsigned long long)found->header.previous_end);
    }
    if (found->header_damaged || found->damaged_at != 0) {
        say(r, "%s: offset %llu: damaged", path,
            (unsigned long long)(found->header_damaged ? 0 : found->damaged_at));
        if (!found->header_damaged) {
            r->kept = ND_MIN(r->kept, found->header.previous_end);
        }
        return damaged_repair(r, found, path, below);
    }
    if (follows_more) {
        enum nd_err err = header_replace(r, found, path);
        if (err != ND_OK) {
            return err;
        }
    }
    if (found->last_sequence >= found->first_sequence) {
        r->kept = found->last_sequence;
    } else {
        r->kept = ND_MIN(r->kept, found->header.previous_end);
    }
    return ND_OK;
}

static enum nd_err files_repair(struct repair *r, const struct nd_wal_scan *scan)
{
    bool is_first = true;

    for (size_t i = 0; i < scan->count; i++) {
        const struct nd_wal_found *found = &scan->files[i];
        if (found->ignored || found->spare) {
            continue;
        }
        uint64_t below = i + 1 < scan->count ? scan->files[i + 1].first_sequence : UINT64_MAX;
        enum nd_err err = file_repair(r, found, below, is_first);
        if (err != ND_OK) {
            return err;
        }
        is_first = false;
    }
    return ND_OK;
}

/* --- a new log --- */

struct walk {
    char **names;
    size_t count;
};

static bool walk_add(void *arg, const char *name, enum nd_file_kind kind)
{
    struct walk *walk = arg;

    if (kind == ND_FILE_DIR) {
        walk->names = nd_xrealloc(walk->names, (walk->count + 1) * sizeof *walk->names);
        walk->names[walk->count++] = nd_xstrdup(name);
    }
    return true;
}

/* The highest applied_sequence in `path` and, `depth` levels down, in the `state` files below it.
 */
static enum nd_err applied_find(struct repair *r, const char *path, int depth,
                                const uint8_t store_id[16], uint64_t *highest)
{
    struct walk walk = {0};
    enum nd_err err;

    if (depth == 0) {
        struct nd_positions positions;
        nd_positions_init(&positions);
        err = nd_state_load(r->env, path, store_id, &positions, r->msg);
        *highest = err == ND_OK ? ND_MAX(*highest, positions.applied_sequence) : *highest;
        nd_positions_release(&positions);
        return err == ND_ERR_NOT_FOUND ? ND_OK : err;
    }
    err = r->env->list(r->env->impl, path, walk_add, &walk, r->msg);
    for (size_t i = 0; i < walk.count; i++) {
        if (err == ND_OK) {
            char *below = nd_xasprintf("%s/%s", path, walk.names[i]);
            err = applied_find(r, below, depth - 1, store_id, highest);
            nd_free(below);
        }
        nd_free(walk.names[i]);
    }
    nd_free(walk.names);
    return err;
}

static enum nd_err new_make(struct repair *r, const struct nd_layout *layout)
{
    enum { TOPIC_INCARNATION_PARTITION = 3 };
    struct nd_wal_header header = {.file_bytes = NEW_FILE_BYTES};
    char *topics = nd_xasprintf("%s/topics", r->data_dir);
    uint64_t highest = 0;
    enum nd_err err =
        applied_find(r, topics, TOPIC_INCARNATION_PARTITION, layout->store_id, &highest);

    nd_free(topics);
    if (err != ND_OK) {
        nd_errmsg_wrap(r->msg, "where a new log may begin is not known");
        return err;
    }
    memcpy(header.store_id, layout->store_id, sizeof header.store_id);
    header.writer = nd_env_random_u64(r->env);
    header.first_sequence = ((highest >> SEQUENCE_STEP_BITS) + 1) << SEQUENCE_STEP_BITS;
    say(r, "%s: a new log; everything that only the old one held is lost", r->dir);
    return piece_write(r, NULL, NULL, &header);
}

/* --- the tool --- */

static enum nd_err log_repair(struct repair *r, const struct nd_layout *layout)
{
    struct nd_wal_names names;
    struct nd_wal_scan scan = {.count = 0};
    enum nd_err err = nd_wal_names_read(&names, r->env, r->dir, r->msg);

    if (err != ND_OK) {
        return err;
    }
    if (names.files_count == 0) {
        err = r->options->make_new ? new_make(r, layout) : ND_ERR_NOT_FOUND;
        if (!r->options->make_new) {
            nd_errmsg_set(r->msg, "%s: no log file is left; --new begins a new log", r->dir);
        }
        goto done;
    }
    if (r->options->make_new) {
        nd_errmsg_set(r->msg, "%s: there is a log; --new is for a store without one", r->dir);
        err = ND_ERR_CONFLICT;
        goto done;
    }
    err = nd_wal_scan_read(&scan, r->env, r->dir, &names, layout->store_id, false, r->msg);
    if (err != ND_OK) {
        goto done;
    }
    err = files_repair(r, &scan);
    nd_wal_scan_release(&scan);
    nd_wal_names_release(&names);
    if (err != ND_OK) {
        return err;
    }
    /* Proof: it is accepted now. */
    err = nd_wal_names_read(&names, r->env, r->dir, r->msg);
    if (err != ND_OK) {
        return err;
    }
    err = nd_wal_scan_read(&scan, r->env, r->dir, &names, layout->store_id, true, r->msg);
    if (err == ND_OK) {
        nd_wal_scan_release(&scan);
    }
done:
    nd_wal_names_release(&names);
    return err;
}

enum nd_err nd_wal_repair(const struct nd_wal_repair_options *options, struct nd_errmsg *msg)
{
    struct repair r = {
        .options = options, .env = options->env, .data_dir = options->data_dir, .msg = msg};
    char *format = nd_xasprintf("%s/FORMAT", options->data_dir);
    struct nd_file_stat stat;
    struct nd_layout layout;
    enum nd_err err = options->env->stat(options->env->impl, format, &stat, msg);

    nd_free(format);
    if (err != ND_OK) { /* and make no data directory by mistake */
        return err;
    }
    err = nd_layout_open(&layout, options->env, options->data_dir, msg);
    if (err != ND_OK) {
        return err;
    }
    r.dir = layout.wal_dir;
    r.store_id = layout.store_id;
    err = log_repair(&r, &layout);
    if (err == ND_OK) {
        err = nd_layout_confirm(&layout, msg);
    }
    nd_layout_close(&layout);
    return err;
}
