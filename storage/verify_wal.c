/* The log: what the opener would say of every file (wal_scan, not strict), every entry decoded, and
 * the positions that a start would come to (recovery, without records). */
#include "storage/base/alloc.h"

#include "storage/recovery.h"
#include "storage/verify_private.h"
#include "storage/wal_scan.h"

/* --- files that the replay needs no more --- */

/* All of them lie below replay_from: what they hold is of no use, so damage is only worth a note.
 */
static enum nd_err ignored_check(struct verify *v, const char *path)
{
    struct nd_wal_reader reader;
    struct nd_wal_header header;
    enum nd_err err = nd_wal_reader_open(&reader, v->env, path, v->msg);

    if (err != ND_OK) {
        return err;
    }
    v->result.bytes += reader.size;
    err = nd_wal_reader_header(&reader, &header, v->msg);
    if (err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED) {
        verify_note(v, path, 0, "the file header is damaged; the file is not needed any more");
        err = ND_OK;
    }
    nd_wal_reader_close(&reader);
    return err;
}

/* --- files that count --- */

/* A frame of this life of the file, not whole, where the log ends. */
static enum nd_err torn_end_note(struct verify *v, const char *path,
                                 const struct nd_wal_found *found)
{
    struct nd_wal_reader reader;
    struct nd_wal_frame frame;
    const uint8_t *block;
    enum nd_err err = nd_wal_reader_open(&reader, v->env, path, v->msg);

    if (err != ND_OK) {
        return err;
    }
    err = nd_wal_reader_block(&reader, found->end, &block, v->msg);
    if (err == ND_OK && nd_wal_frame_get(block, found->header.epoch, found->end, &frame)) {
        struct nd_report *report = verify_finding(
            v, false, path, found->end,
            "the log ends with a frame that is not whole: never confirmed, or damaged");
        nd_report_u64(report, "first_sequence", frame.first_sequence);
        verify_finding_end(v);
    }
    nd_wal_reader_close(&reader);
    return verify_is_fatal(err) ? err : ND_OK;
}

static enum nd_err found_report(struct verify *v, const char *path,
                                const struct nd_wal_found *found, bool is_last)
{
    v->result.wal_files += 1;
    if (found->ignored) {
        return ignored_check(v, path);
    }
    v->result.bytes += found->size;
    if (found->spare) {
        verify_note(v, path, 0, "name and header disagree: a spare");
    } else if (found->header_damaged) {
        verify_damage(v, path, 0, "the file header is damaged");
    } else if (found->orphan) {
        verify_damage(v, path, ND_WAL_BLOCK, "the file before it is missing");
    } else if (found->damaged_at != 0 && found->size < found->header.file_bytes) {
        verify_damage(v, path, found->damaged_at, "the file was cut here");
    } else if (found->damaged_at != 0) {
        struct nd_report *report =
            verify_finding(v, true, path, found->damaged_at,
                           is_last ? "a damaged frame, and a later one says that it was synced"
                                   : "a damaged frame, and the next file follows later ones");
        nd_report_u64(report, "first_sequence", found->last_sequence + 1);
        verify_finding_end(v);
    } else if (is_last) {
        return torn_end_note(v, path, found);
    }
    return ND_OK;
}

/* *damaged_out: the node will not open this log. */
static enum nd_err files_report(struct verify *v, const struct nd_wal_scan *scan, const char *dir,
                                bool *damaged_out)
{
    uint64_t before = v->result.damages;
    enum nd_err err = ND_OK;

    for (size_t i = 0; i < scan->count && err == ND_OK; i++) {
        char path[ND_WAL_PATH_SIZE];
        nd_wal_file_path(path, dir, scan->files[i].first_sequence);
        verify_progress(v, path);
        err = found_report(v, path, &scan->files[i], i + 1 == scan->count);
    }
    *damaged_out = v->result.damages > before;
    return err;
}

/* --- entries --- */

struct replay {
    struct verify *v;
    const char *dir;
    struct nd_recovery recovery;
    struct nd_map *bad; /* verify_key of partitions that could not be replayed */
};

static bool is_of_partition(const struct nd_wal_entry *entry)
{
    return entry->type != ND_WAL_ACCEPT && entry->type != ND_WAL_DISPATCHED &&
           entry->type != ND_WAL_CHECKPOINT;
}

static enum nd_err replay_entry(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    struct replay *replay = arg;
    struct verify *v = replay->v;
    char key_text[VERIFY_KEY_SIZE];
    struct nd_slice key = {0};

    v->result.wal_entries += 1;
    if (is_of_partition(entry)) {
        key = verify_key(key_text, &entry->id);
        if (nd_map_get(replay->bad, key) != NULL) {
            return ND_OK;
        }
    } else if (entry->type != ND_WAL_CHECKPOINT) {
        return ND_OK; /* of records that are in no partition yet */
    }
    enum nd_err err = nd_recovery_replay(&replay->recovery, entry, msg);
    if (err == ND_ERR_CORRUPT && is_of_partition(entry)) {
        verify_damage(v, replay->dir, 0, msg->text);
        (void)nd_map_put(replay->bad, key, replay);
        return ND_OK;
    }
    return err;
}

/* Hand the partitions over to the check of their directories. */
static void replayed_take(struct verify *v, struct replay *replay)
{
    struct nd_recovered_partition *partition;

    while ((partition = nd_recovery_pop(&replay->recovery)) != NULL) {
        char key_text[VERIFY_KEY_SIZE];
        struct nd_slice key = verify_key(key_text, &partition->positions.id);
        if (nd_map_get(replay->bad, key) != NULL) {
            nd_recovered_partition_free(partition);
        } else {
            (void)nd_map_put(v->replayed, key, partition);
        }
    }
}

static enum nd_err entries_check(struct verify *v, struct nd_wal_scan *scan, const char *dir)
{
    struct replay replay = {.v = v, .dir = dir};
    struct nd_recovery_options options = {
        .env = v->env, .data_dir = v->dir, .positions_only = true};

    memcpy(options.store_id, v->store_id, sizeof options.store_id);
    nd_recovery_init(&replay.recovery, &options);
    replay.bad = nd_map_new(nd_env_random_u64(v->env));
    enum nd_err err = nd_wal_scan_replay(scan, v->env, dir, replay_entry, &replay, v->msg);
    if (err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED) {
        verify_damage(v, dir, 0, v->msg->text);
        v->log_whole = false;
        err = ND_OK;
    }
    if (err == ND_OK) {
        replayed_take(v, &replay);
    }
    nd_map_free(replay.bad);
    nd_recovery_release(&replay.recovery);
    return err;
}

static enum nd_err log_check(struct verify *v, const char *dir, const struct nd_wal_names *names)
{
    struct nd_wal_scan scan = {.count = 0};
    bool damaged;
    enum nd_err err = nd_wal_scan_read(&scan, v->env, dir, names, v->store_id, false, v->msg);

    if (err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED) { /* names the file */
        verify_damage(v, dir, 0, v->msg->text);
        return ND_OK;
    }
    if (err != ND_OK) {
        return err;
    }
    err = files_report(v, &scan, dir, &damaged);
    v->log_whole = !damaged;
    v->log_last = scan.last_sequence;
    if (err == ND_OK) {
        err = entries_check(v, &scan, dir);
    }
    nd_wal_scan_release(&scan);
    return err;
}

enum nd_err verify_wal(struct verify *v)
{
    char *dir = nd_xasprintf("%s/wal", v->dir);
    struct nd_wal_names names;
    enum nd_err err = nd_wal_names_read(&names, v->env, dir, v->msg);

    if (err == ND_ERR_NOT_FOUND || (err == ND_OK && names.files_count == 0)) {
        if (v->fresh) {
            v->log_whole = true;
        } else {
            verify_damage(v, dir, 0, "no log file, though this store had one");
        }
        nd_free(dir);
        if (err == ND_OK) {
            nd_wal_names_release(&names);
        }
        return ND_OK;
    }
    if (err == ND_OK) {
        err = log_check(v, dir, &names);
        nd_wal_names_release(&names);
    }
    nd_free(dir);
    return err;
}
