/* Files of the running log: the next one, and the spares it is made from (W3). */
#include "storage/base/alloc.h"

#include "storage/wal_private.h"

void nd_wal_spare_add(struct nd_wal *wal, uint64_t number)
{
    struct nd_wal_spare *spare = nd_xmalloc(sizeof *spare);

    spare->number = number;
    nd_mutex_lock(&wal->lock);
    nd_list_append(&wal->spares, &spare->link);
    wal->spares_count += 1;
    wal->spare_next = ND_MAX(wal->spare_next, number + 1);
    nd_mutex_unlock(&wal->lock);
}

void nd_wal_file_add(struct nd_wal *wal, uint64_t first_sequence, uint64_t bytes, uint64_t used)
{
    struct nd_wal_file *file = nd_xmalloc(sizeof *file);

    file->first_sequence = first_sequence;
    file->bytes = bytes;
    file->used = used;
    nd_mutex_lock(&wal->lock);
    nd_list_append(&wal->files, &file->link);
    wal->files_count += 1;
    nd_mutex_unlock(&wal->lock);
}

/* A file that will not fit is not begun: until it failed it would take the room of everything else
 * on the file system, at every attempt. */
static enum nd_err spare_fits(const struct nd_wal *wal, struct nd_errmsg *msg)
{
    struct nd_disk_space space;

    if (wal->env->space(wal->env->impl, wal->options.dir, &space, NULL) != ND_OK ||
        space.bytes_free >= wal->options.file_bytes) {
        return ND_OK; /* not known: the attempt tells */
    }
    nd_errmsg_set(msg, "make a spare log file: %llu bytes are free in %s, %llu are needed",
                  (unsigned long long)space.bytes_free, wal->options.dir,
                  (unsigned long long)wal->options.file_bytes);
    return ND_ERR_NO_SPACE;
}

static enum nd_err spare_make(struct nd_wal *wal, struct nd_errmsg *msg)
{
    enum nd_err fits = spare_fits(wal, msg);
    if (fits != ND_OK) {
        return fits;
    }
    nd_mutex_lock(&wal->lock);
    uint64_t number = wal->spare_next++;
    nd_mutex_unlock(&wal->lock);
    enum nd_err err =
        nd_wal_spare_create(wal->env, wal->options.dir, number, wal->options.file_bytes, msg);
    if (err == ND_OK) {
        nd_wal_spare_add(wal, number);
    }
    return err;
}

enum nd_err nd_wal_fill_spares(struct nd_wal *wal, struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;

    while (err == ND_OK) {
        nd_mutex_lock(&wal->lock);
        bool enough = wal->spares_count >= wal->options.spares;
        nd_mutex_unlock(&wal->lock);
        if (enough) {
            return ND_OK;
        }
        err = spare_make(wal, msg);
    }
    return err;
}

bool nd_wal_spare_wanted_locked(const struct nd_wal *wal)
{
    uint32_t extra = wal->tight ? 0 : wal->options.spares_extra;

    return wal->spares_count < wal->options.spares + extra;
}

bool nd_wal_drop_spare(struct nd_wal *wal)
{
    char path[ND_WAL_PATH_SIZE];
    struct nd_errmsg msg = {{0}};
    struct nd_list *link = NULL;

    nd_mutex_lock(&wal->lock);
    if (wal->spares_count > wal->options.spares) {
        link = nd_list_pop(&wal->spares);
        wal->spares_count -= 1;
    }
    nd_mutex_unlock(&wal->lock);
    if (link == NULL) {
        return false;
    }
    struct nd_wal_spare *spare = ND_CONTAINER_OF(link, struct nd_wal_spare, link);
    nd_wal_spare_path(path, wal->options.dir, spare->number);
    enum nd_err err = wal->env->unlink(wal->env->impl, path, &msg);
    if (err != ND_OK) { /* its name may be gone all the same: the next open adopts or removes it */
        nd_log_lasting(wal->options.log, ND_LOG_WARN, "wal", "spare not removed", "reason=\"%s\"",
                       msg.text);
    }
    nd_free(spare);
    return err == ND_OK;
}

/* Take a spare, making one when there is none: W6 keeps some, so that is the exception. */
static enum nd_err spare_take(struct nd_wal *wal, struct nd_wal_spare **out, struct nd_errmsg *msg)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        nd_mutex_lock(&wal->lock);
        struct nd_list *link = nd_list_pop(&wal->spares);
        wal->spares_count -= link != NULL;
        nd_mutex_unlock(&wal->lock);
        if (link != NULL) {
            *out = ND_CONTAINER_OF(link, struct nd_wal_spare, link);
            return ND_OK;
        }
        enum nd_err err = spare_make(wal, msg);
        if (err != ND_OK) {
            return err;
        }
    }
    nd_errmsg_set(msg, "no spare log file");
    return ND_ERR_UNAVAILABLE;
}

static void active_open(struct nd_wal *wal, const struct nd_wal_header *header, int file)
{
    if (wal->active.open) {
        wal->env->close(wal->env->impl, wal->active.file);
    }
    wal->active = (struct nd_wal_active){.file = file,
                                         .open = true,
                                         .rested = true,
                                         .epoch = header->epoch,
                                         .at = ND_WAL_BLOCK,
                                         .synced_to = ND_WAL_BLOCK,
                                         .next_sequence = header->first_sequence};
    nd_wal_file_add(wal, header->first_sequence, header->file_bytes, ND_WAL_BLOCK);
}

enum nd_err nd_wal_start_file(struct nd_wal *wal, uint64_t first, struct nd_errmsg *msg)
{
    struct nd_wal_header header = {
        .writer = wal->writer, .first_sequence = first, .file_bytes = wal->options.file_bytes};
    struct nd_wal_spare *spare;
    char path[ND_WAL_PATH_SIZE];
    int file;
    enum nd_err err = spare_take(wal, &spare, msg);

    if (err != ND_OK) {
        return err;
    }
    memcpy(header.store_id, wal->options.store_id, sizeof header.store_id);
    wal->env->random(wal->env->impl, &header.epoch, sizeof header.epoch);
    nd_mutex_lock(&wal->lock);
    header.previous_end = wal->sequence_synced;
    nd_mutex_unlock(&wal->lock);
    switch (
        nd_wal_spare_start(wal->env, wal->options.dir, spare->number, &header, &file, &err, msg)) {
    case ND_WAL_START_DONE:
        active_open(wal, &header, file);
        nd_wal_measure_room(wal); /* others may have filled the disk since the last second */
        break;
    case ND_WAL_START_SPARE_KEPT: nd_wal_spare_add(wal, spare->number); break;
    case ND_WAL_START_SPARE_LOST:
        nd_wal_spare_path(path, wal->options.dir, spare->number);
        nd_ignore(wal->env->unlink(wal->env->impl, path, NULL), "the next open tries again");
        break;
    }
    nd_free(spare);
    return err;
}
