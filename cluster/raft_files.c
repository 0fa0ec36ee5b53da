#include "cluster/raft_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

#include "cluster/lz4_frame.h"
#include "cluster/raft_layout.h"
#include "cluster/snapshot.h"

enum {
    NAME_SIZE = 48,
    SNAPSHOT_NAME_SIZE = 96,
    SEGMENT_SIZE_MAX = 256 << 20,
};

struct segment {
    char name[NAME_SIZE];
    bool open;
    uint64_t first, last; /* of a closed one: from its name; open: 0 and its number */
    uint64_t entries;     /* whole ones */
    uint64_t end;         /* behind the last whole batch */
    bool dirty;           /* there is something else than zeros behind it */
};

struct listing {
    const struct nd_env *env;
    const char *dir;
    struct segment *segments; /* closed by first entry, then open by number */
    size_t count;
    uint64_t snapshot_index, snapshot_time; /* of the newest: the one that libraft opens */
    char snapshot[SNAPSHOT_NAME_SIZE];      /* its name, "": none */
};

/* --- names --- */

static bool segment_get(const char *name, const struct nd_raft_name *parsed, struct segment *out)
{
    *out = (struct segment){.open = parsed->kind == ND_RAFT_OPEN,
                            .first = parsed->first,
                            .last = parsed->kind == ND_RAFT_OPEN ? parsed->number : parsed->last};
    bool good =
        out->open || (parsed->kind == ND_RAFT_CLOSED && out->first > 0 && out->last >= out->first);
    snprintf(out->name, sizeof out->name, "%s", name);
    return good;
}

/* A snapshot counts when both of its files are there. */
static bool snapshot_is_whole(const struct listing *listing, const char *meta_name)
{
    const struct nd_env *env = listing->env;
    struct nd_file_stat stat;
    char *path = nd_xasprintf("%s/%.*s", listing->dir,
                              (int)(strlen(meta_name) - strlen(ND_RAFT_META_SUFFIX)), meta_name);
    bool whole = env->stat(env->impl, path, &stat, NULL) == ND_OK;
    nd_free(path);
    return whole;
}

static void take_snapshot(struct listing *listing, const char *meta_name,
                          const struct nd_raft_name *parsed)
{
    size_t size = strlen(meta_name) - strlen(ND_RAFT_META_SUFFIX);

    if (parsed->last > listing->snapshot_index ||
        (parsed->last == listing->snapshot_index && parsed->time >= listing->snapshot_time)) {
        listing->snapshot_index = parsed->last;
        listing->snapshot_time = parsed->time;
        snprintf(listing->snapshot, sizeof listing->snapshot, "%.*s", (int)size, meta_name);
    }
}

static bool take_name(void *arg, const char *name, enum nd_file_kind kind)
{
    struct listing *listing = arg;
    const struct nd_raft_name parsed = nd_raft_name_get(name);
    struct segment segment;
    (void)kind;

    if (segment_get(name, &parsed, &segment)) {
        listing->segments = nd_xrealloc(listing->segments, (listing->count + 1) * sizeof segment);
        listing->segments[listing->count++] = segment;
    } else if (parsed.kind == ND_RAFT_META && snapshot_is_whole(listing, name)) {
        take_snapshot(listing, name, &parsed);
    }
    return true;
}

static int in_order(const void *a, const void *b)
{
    const struct segment *x = a;
    const struct segment *y = b;
    if (x->open != y->open) {
        return x->open ? 1 : -1;
    }
    return (x->last > y->last) - (x->last < y->last);
}

/* --- contents --- */

static void segment_scan(struct segment *segment, struct nd_slice file)
{
    uint64_t entries = 0;
    size_t at = ND_RAFT_FORMAT_SIZE;
    size_t size = nd_raft_batch_size(nd_slice_make(file.data + at, file.size - at), &entries);

    while (size > 0) {
        segment->entries += entries;
        at += size;
        size = nd_raft_batch_size(nd_slice_make(file.data + at, file.size - at), &entries);
    }
    segment->end = at;
    for (; at < file.size && !segment->dirty; at++) {
        segment->dirty = file.data[at] != 0;
    }
}

static enum nd_err segment_check(struct segment *segment, struct nd_slice file,
                                 struct nd_errmsg *msg)
{
    uint64_t format = file.size < ND_RAFT_FORMAT_SIZE ? 0 : nd_get_u64(file.data);

    if (format > ND_RAFT_FORMAT) {
        nd_errmsg_set(msg, "segment of an unknown format (%" PRIu64 ")", format);
        return ND_ERR_UNSUPPORTED;
    }
    if (file.size >= ND_RAFT_FORMAT_SIZE) {
        segment_scan(segment, file);
    }
    if (!segment->open && (format != ND_RAFT_FORMAT || segment->end != file.size ||
                           segment->entries != segment->last - segment->first + 1)) {
        nd_errmsg_set(
            msg, "damaged at byte %" PRIu64 " of %zu: %" PRIu64 " whole entries of %" PRIu64,
            segment->end, file.size, segment->entries, segment->last - segment->first + 1);
        return ND_ERR_CORRUPT;
    }
    return ND_OK;
}

static enum nd_err segment_read(const struct listing *listing, struct segment *segment,
                                struct nd_errmsg *msg)
{
    char *path = nd_xasprintf("%s/%s", listing->dir, segment->name);
    uint8_t *data;
    size_t size;
    enum nd_err err = nd_env_read_file(listing->env, path, SEGMENT_SIZE_MAX, &data, &size, msg);

    if (err == ND_OK) {
        err = segment_check(segment, nd_slice_make(data, size), msg);
        nd_free(data);
        if (err != ND_OK) {
            nd_errmsg_wrap(msg, "%s", path);
        }
    }
    nd_free(path);
    return err;
}

/* What else can be wrong with it libraft finds, and so does the restore. */
static enum nd_err snapshot_check(const struct listing *listing, struct nd_errmsg *msg)
{
    char *path = nd_xasprintf("%s/%s", listing->dir, listing->snapshot);
    uint8_t *data;
    size_t size;
    enum nd_err err =
        nd_env_read_file(listing->env, path, ND_SNAPSHOT_FILE_SIZE_MAX, &data, &size, msg);

    if (err == ND_OK) {
        struct nd_slice file = nd_slice_make(data, size);
        if (nd_lz4_frame_begins(file) && !nd_lz4_frame_is_whole(file)) {
            nd_errmsg_set(msg, "%s: damaged: its %zu bytes are not one whole snapshot", path, size);
            err = ND_ERR_CORRUPT;
        }
        nd_free(data);
    }
    nd_free(path);
    return err;
}

/* --- order --- */

/* The first open segment from `at` on that was written to. */
static struct segment *next_open(const struct listing *listing, size_t at)
{
    for (; at < listing->count; at++) {
        struct segment *segment = &listing->segments[at];
        if (segment->open && (segment->entries > 0 || segment->dirty)) {
            return segment;
        }
    }
    return NULL;
}

static struct segment *open_after(const struct listing *listing, const struct segment *segment)
{
    return next_open(listing, (size_t)(segment - listing->segments) + 1);
}

static enum nd_err misfit(const struct listing *listing, uint64_t next,
                          const struct segment *closed, struct nd_errmsg *msg)
{
    nd_errmsg_set(msg, "%s: the next entry is %" PRIu64 ", but the next segment is %s",
                  listing->dir, next, closed->name);
    return ND_ERR_CORRUPT;
}

/* Number the open segments that lie in front of the closed one `before`: they were written in order
 * and each was whole before the next was begun. */
static enum nd_err fill_gap(const struct listing *listing, uint64_t *next, struct segment **open,
                            const struct segment *before, struct nd_errmsg *msg)
{
    while (*next < before->first) {
        struct segment *taken = *open;
        if (taken == NULL || taken->dirty || taken->entries > before->first - *next) {
            return misfit(listing, *next, before, msg);
        }
        *open = open_after(listing, taken);
        taken->first = *next;
        *next += taken->entries;
    }
    return ND_OK;
}

/* The open segments behind all closed ones: only the last may be torn. */
static enum nd_err tail_check(const struct listing *listing, const struct segment *open,
                              uint64_t *last_index, struct nd_errmsg *msg)
{
    while (open != NULL) {
        const struct segment *next = open_after(listing, open);
        if (open->dirty && next != NULL) {
            nd_errmsg_set(msg, "%s/%s: damaged at byte %" PRIu64 ", and %s was written behind it",
                          listing->dir, open->name, open->end, next->name);
            return ND_ERR_CORRUPT;
        }
        *last_index += open->entries;
        open = next;
    }
    return ND_OK;
}

static enum nd_err order_check(const struct listing *listing, uint64_t *last_index_out,
                               struct nd_errmsg *msg)
{
    uint64_t next = listing->snapshot_index + 1;
    struct segment *open = next_open(listing, 0);
    bool begun = false;

    for (size_t i = 0; i < listing->count && !listing->segments[i].open; i++) {
        const struct segment *closed = &listing->segments[i];
        if (!begun && closed->last < next) {
            continue; /* all of it is in the snapshot */
        }
        if (!begun && closed->first < next) {
            next = closed->first;
        }
        begun = true;
        enum nd_err err = fill_gap(listing, &next, &open, closed, msg);
        if (err == ND_OK && closed->first != next) {
            err = misfit(listing, next, closed, msg);
        }
        if (err != ND_OK) {
            return err;
        }
        next = closed->last + 1;
    }
    *last_index_out = next - 1;
    return open == NULL ? ND_OK : tail_check(listing, open, last_index_out, msg);
}

/* --- settling --- */

static enum nd_err segment_name(const struct listing *listing, const struct segment *segment,
                                struct nd_errmsg *msg)
{
    const struct nd_env *env = listing->env;
    char *from = nd_xasprintf("%s/%s", listing->dir, segment->name);
    char *to = nd_xasprintf("%s/%016" PRIu64 "-%016" PRIu64, listing->dir, segment->first,
                            segment->first + segment->entries - 1);
    int file;
    enum nd_err err = env->open(env->impl, from, ND_OPEN_WRITE, &file, msg);

    if (err == ND_OK) {
        err = env->truncate(env->impl, file, segment->end, msg);
        if (err == ND_OK) {
            err = env->sync(env->impl, file, msg);
        }
        env->close(env->impl, file);
    }
    if (err == ND_OK) {
        err = env->rename(env->impl, from, to, msg);
    }
    nd_free(from);
    nd_free(to);
    return err;
}

static enum nd_err gaps_close(const struct listing *listing, struct nd_errmsg *msg)
{
    const struct nd_env *env = listing->env;
    bool any = false;
    enum nd_err err = ND_OK;

    for (size_t i = 0; err == ND_OK && i < listing->count; i++) {
        const struct segment *segment = &listing->segments[i];
        if (segment->open && segment->first != 0) {
            err = segment_name(listing, segment, msg);
            any = true;
        }
    }
    return err == ND_OK && any ? env->sync_dir(env->impl, listing->dir, msg) : err;
}

static enum nd_err reach_check(const struct listing *listing, uint64_t reached, uint64_t last,
                               struct nd_errmsg *msg)
{
    if (last == 0) {
        nd_errmsg_set(msg, "%s: the raft log is gone, yet this node had one", listing->dir);
        return ND_ERR_CORRUPT;
    }
    if (last >= reached) {
        return ND_OK;
    }
    nd_errmsg_set(msg, "%s ends at entry %" PRIu64 ", but entry %" PRIu64 " has been applied",
                  listing->dir, last, reached);
    return ND_ERR_CORRUPT;
}

enum nd_err nd_raft_files_settle(const struct nd_env *env, const char *dir, uint64_t reached_index,
                                 struct nd_errmsg *msg)
{
    uint64_t last = 0;
    struct listing listing = {.env = env, .dir = dir};
    enum nd_err err = env->list(env->impl, dir, take_name, &listing, msg);

    if (listing.count > 0) {
        qsort(listing.segments, listing.count, sizeof listing.segments[0], in_order);
    }
    for (size_t i = 0; err == ND_OK && i < listing.count; i++) {
        err = segment_read(&listing, &listing.segments[i], msg);
    }
    if (err == ND_OK && listing.snapshot[0] != '\0') {
        err = snapshot_check(&listing, msg);
    }
    if (err == ND_OK) {
        err = order_check(&listing, &last, msg);
    }
    if (err == ND_OK) {
        err = reach_check(&listing, reached_index, last, msg);
    }
    if (err == ND_OK) {
        err = gaps_close(&listing, msg);
    }
    nd_free(listing.segments);
    return err;
}
