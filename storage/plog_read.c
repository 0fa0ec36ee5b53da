#include <inttypes.h>

#include "storage/base/alloc.h"

#include "storage/plog_private.h"
#include "storage/window.h"

enum { READ_CHUNK = 64 << 10 };

/* One search for an offset in one file. `to` and `index` are of the moment of the look-up: all of
 * it is verified and does not change any more. */
struct search {
    const struct nd_plog *plog;
    uint64_t offset;
    uint64_t epoch;
    uint64_t from, to; /* positions in the file */
    uint64_t next;     /* lowest offset behind this file; UINT64_MAX: none */
    int file;
    /* out */
    struct nd_frame_data *frame;
    bool found;
    enum nd_err err; /* why it was found and cannot be had, or was not found */
};

static enum nd_err frame_take(struct search *search, const uint8_t *bytes,
                              const struct nd_frame_header *header)
{
    struct nd_block *block = nd_block_new(header->raw_size);

    if (block == NULL) {
        return ND_ERR_NO_MEMORY;
    }
    enum nd_err err = nd_frame_decode(bytes, header, block->bytes);
    if (err != ND_OK) {
        nd_block_unref(block);
        return err;
    }
    *search->frame = (struct nd_frame_data){
        .block = block,
        .records = {block->bytes, header->raw_size},
        .base_offset = header->base_offset,
        .count = header->record_count,
    };
    search->found = true;
    return ND_OK;
}

static bool holds(const struct nd_frame_header *header, uint64_t offset)
{
    return header->base_offset <= offset && offset < nd_frame_end(header);
}

/* Walk upwards by the headers alone; only the frame that seems to hold the offset is checked.
 * Anything that does not fit ends the walk without a result. */
static enum nd_err search_fast(struct search *search, struct nd_errmsg *msg)
{
    struct nd_window window;
    uint64_t at = search->from;
    enum nd_err err = ND_OK;

    nd_window_init(&window, search->plog->options.env, search->file, search->to, READ_CHUNK,
                   ND_FRAME_SIZE_MAX);
    while (at < search->to) {
        struct nd_slice bytes;
        struct nd_frame_header header;
        err = nd_window_get(&window, at, ND_FRAME_HEADER_SIZE, &bytes, msg);
        if (err != ND_OK) {
            break;
        }
        if (nd_frame_header_get(bytes, &header) != ND_OK) {
            if (at == nd_align_up(at)) {
                break;
            }
            at = nd_align_up(at); /* a round's padding */
            continue;
        }
        if (header.base_offset > search->offset) {
            break;
        }
        if (holds(&header, search->offset)) {
            err = nd_window_get(&window, at, nd_frame_size(&header), &bytes, msg);
            if (err == ND_OK && bytes.size >= nd_frame_size(&header) &&
                nd_frame_crc_holds(bytes.data, search->epoch, &header)) {
                err = frame_take(search, bytes.data, &header);
            }
            break;
        }
        at += nd_frame_size(&header);
    }
    nd_window_release(&window);
    return err;
}

/* For the thorough search: every frame here has its checksum checked. */
static bool search_frame(void *arg, const struct nd_segment_frame *frame, const uint8_t *bytes,
                         bool damaged)
{
    struct search *search = arg;

    if (holds(&frame->header, search->offset)) {
        search->next = nd_frame_end(&frame->header);
        search->err = frame_take(search, bytes, &frame->header);
        return false;
    }
    if (frame->header.base_offset > search->offset) {
        search->next = frame->header.base_offset;
        search->err = damaged ? ND_ERR_CORRUPT : ND_ERR_NOT_FOUND;
        return false;
    }
    return true;
}

static enum nd_err search_thorough(struct search *search, struct nd_errmsg *msg)
{
    struct nd_segment_scan scan = {
        .env = search->plog->options.env,
        .file = search->file,
        .epoch = search->epoch,
        .from = search->from,
        .to = search->to,
        .frame = search_frame,
        .arg = search,
    };

    search->err = ND_ERR_CORRUPT; /* nothing valid up to the end */
    enum nd_err err = nd_segment_scan(&scan, msg);
    if (err != ND_OK) {
        return err;
    }
    if (search->err == ND_ERR_CORRUPT) {
        nd_errmsg_set(msg, "%s: offset %" PRIu64 " is damaged, behind position %" PRIu64,
                      search->plog->dir, search->offset, scan.end);
    }
    return search->err;
}

static enum nd_err search_run(struct search *search, const struct nd_segment *segment,
                              struct nd_errmsg *msg)
{
    const struct nd_env *env = search->plog->options.env;
    char *path = nd_segment_path(search->plog->dir, segment->summary.base_offset, ND_SEGMENT_LOG);
    enum nd_err err = env->open(env->impl, path, ND_OPEN_READ, &search->file, msg);

    nd_free(path);
    if (err == ND_ERR_NOT_FOUND) {
        return ND_ERR_IO; /* the caller sees whether it was trimmed meanwhile */
    }
    if (err != ND_OK) {
        return err;
    }
    err = search_fast(search, msg);
    if (!search->found && (err == ND_OK || err == ND_ERR_CORRUPT)) {
        err = search_thorough(search, msg);
    }
    env->close(env->impl, search->file);
    return err;
}

/* The lowest stored offset from segment number `index` on. */
static uint64_t next_locked(const struct nd_plog *plog, uint32_t index)
{
    for (; index < plog->segments_count; index++) {
        if (plog->segments[index]->summary.records > 0) {
            return plog->segments[index]->summary.base_offset;
        }
    }
    return UINT64_MAX;
}

/* Which segment may hold the offset, with a reference; NULL: none does, search->next is set. */
static struct nd_segment *lookup(struct nd_plog *plog, struct search *search)
{
    struct nd_segment *segment = NULL;

    nd_mutex_lock(&plog->lock);
    uint32_t index = plog_find_locked(plog, search->offset);
    if (index == UINT32_MAX) {
        search->next = next_locked(plog, 0);
    } else {
        const struct nd_segment_summary *s = &plog->segments[index]->summary;
        search->next = next_locked(plog, index + 1);
        if (search->offset < s->end_offset) {
            segment = nd_segment_ref(plog->segments[index]);
            search->from = nd_index_find(&segment->index, search->offset);
            search->from = ND_MAX(search->from, (uint64_t)ND_SEGMENT_HEADER_SIZE);
            search->to = s->size;
            search->epoch = s->epoch;
        }
    }
    nd_mutex_unlock(&plog->lock);
    return segment;
}

static bool is_listed(struct nd_plog *plog, const struct nd_segment *segment)
{
    nd_mutex_lock(&plog->lock);
    uint32_t index = plog_find_locked(plog, segment->summary.base_offset);
    bool listed = index != UINT32_MAX && plog->segments[index] == segment;
    nd_mutex_unlock(&plog->lock);
    return listed;
}

enum nd_err nd_plog_read(struct nd_plog *plog, uint64_t offset, struct nd_frame_data *out,
                         uint64_t *next_out, struct nd_errmsg *msg)
{
    for (;;) {
        struct search search = {.plog = plog, .offset = offset, .frame = out};
        struct nd_segment *segment = lookup(plog, &search);
        if (segment == NULL) {
            *next_out = search.next;
            return ND_ERR_NOT_FOUND;
        }
        enum nd_err err = search_run(&search, segment, msg);
        bool trimmed = err != ND_OK && !is_listed(plog, segment);
        nd_segment_unref(segment);
        if (trimmed) {
            continue; /* what was read may have been cut short: look again */
        }
        if (err == ND_ERR_CORRUPT) {
            nd_log_lasting(plog->options.log, ND_LOG_ERROR, "storage", "damaged frame",
                           "dir=\"%s\" offset=%" PRIu64, plog->dir, offset);
        }
        *next_out = search.next;
        return err;
    }
}
