/* The directory: its lock, FORMAT, the log, then every partition that has a directory, then those
 * that only the log names. */
#include "storage/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"

#include "storage/frame.h"
#include "storage/recovery.h"
#include "storage/verify_private.h"

enum { FORMAT_SIZE_MAX = 4096, INCARNATION_DIGITS = 16, PARTITION_DIGITS = 5 };

/* --- findings --- */

struct nd_report *verify_finding(struct verify *v, bool is_damage, const char *file, uint64_t at,
                                 const char *what)
{
    struct nd_report *report = v->options->report;

    v->result.damages += is_damage;
    v->result.notes += !is_damage;
    nd_report_begin(report, is_damage ? "damage" : "note");
    nd_report_text(report, "file", file);
    nd_report_u64(report, "at", at);
    nd_report_text(report, "what", what);
    return report;
}

void verify_finding_end(struct verify *v)
{
    nd_report_end(v->options->report);
}

void verify_damage(struct verify *v, const char *file, uint64_t at, const char *what)
{
    (void)verify_finding(v, true, file, at, what);
    verify_finding_end(v);
}

void verify_note(struct verify *v, const char *file, uint64_t at, const char *what)
{
    (void)verify_finding(v, false, file, at, what);
    verify_finding_end(v);
}

void verify_progress(struct verify *v, const char *path)
{
    if (v->options->progress != NULL) {
        v->options->progress(v->options->progress_arg, path, v->result.bytes);
    }
}

bool verify_is_fatal(enum nd_err err)
{
    return err != ND_OK && err != ND_ERR_CORRUPT && err != ND_ERR_UNSUPPORTED &&
           err != ND_ERR_NOT_FOUND && err != ND_ERR_TOO_LARGE;
}

struct nd_slice verify_key(char out[VERIFY_KEY_SIZE], const struct nd_partition_id *id)
{
    int size = snprintf(out, VERIFY_KEY_SIZE, "%016" PRIx64 "/%" PRIu32 "/%s", id->incarnation,
                        id->partition, id->topic);

    return nd_slice_make(out, (size_t)size);
}

/* --- listing --- */

static bool name_add(void *arg, const char *name, enum nd_file_kind kind)
{
    struct verify_names *names = arg;

    if (names->count == names->capacity) {
        names->capacity = names->capacity == 0 ? 64 : names->capacity * 2;
        names->list = nd_xrealloc(names->list, names->capacity * sizeof *names->list);
    }
    names->list[names->count++] = (struct verify_name){nd_xstrdup(name), kind};
    return true;
}

static int name_compare(const void *a, const void *b)
{
    const struct verify_name *left = a, *right = b;

    return strcmp(left->name, right->name);
}

enum nd_err verify_list(struct verify *v, const char *path, struct verify_names *out)
{
    memset(out, 0, sizeof *out);
    enum nd_err err = v->env->list(v->env->impl, path, name_add, out, v->msg);
    if (err == ND_ERR_NOT_FOUND) {
        return ND_OK;
    }
    if (err == ND_OK && out->count > 1) {
        qsort(out->list, out->count, sizeof *out->list, name_compare);
    }
    if (err != ND_OK) {
        verify_names_release(out);
    }
    return err;
}

void verify_names_release(struct verify_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        nd_free(names->list[i].name);
    }
    nd_free(names->list);
    memset(names, 0, sizeof *names);
}

/* --- FORMAT --- */

static enum nd_err format_check(struct verify *v)
{
    char *path = nd_xasprintf("%s/FORMAT", v->dir);
    uint8_t *data;
    size_t size;
    enum nd_err err = nd_env_read_file(v->env, path, FORMAT_SIZE_MAX, &data, &size, v->msg);

    if (err == ND_OK) {
        err = nd_layout_format_get(nd_slice_make(data, size), v->store_id, &v->fresh);
        v->result.bytes += size;
        nd_free(data);
        if (err != ND_OK) {
            verify_damage(v, path, 0,
                          err == ND_ERR_UNSUPPORTED ? "written by a newer version" : "damaged");
        }
        v->has_format = err == ND_OK;
        err = ND_OK;
    } else if (err == ND_ERR_TOO_LARGE) {
        verify_damage(v, path, 0, "damaged");
        err = ND_OK;
    }
    nd_free(path);
    return err;
}

/* --- partitions with a directory --- */

/* Exactly `digits` digits of `base` behind `prefix`. */
static bool number_parse(const char *name, const char *prefix, size_t digits, int base,
                         uint64_t *out)
{
    size_t prefix_size = strlen(prefix);
    const char *allowed = base == 16 ? "0123456789abcdef" : "0123456789";

    if (strncmp(name, prefix, prefix_size) != 0) {
        return false;
    }
    name += prefix_size;
    if (strlen(name) < digits || strspn(name, allowed) != strlen(name) ||
        strlen(name) > INCARNATION_DIGITS) {
        return false;
    }
    *out = strtoull(name, NULL, base);
    return true;
}

static void stranger_note(struct verify *v, const char *path)
{
    verify_note(v, path, 0, "not a name that a node gives");
}

static enum nd_err incarnation_check(struct verify *v, const char *path,
                                     const struct nd_partition_id *of)
{
    struct verify_names names;
    enum nd_err err = verify_list(v, path, &names);

    for (size_t i = 0; i < names.count && err == ND_OK; i++) {
        char *below = nd_xasprintf("%s/%s", path, names.list[i].name);
        struct nd_partition_id id = *of;
        uint64_t partition;
        if (names.list[i].kind != ND_FILE_DIR ||
            !number_parse(names.list[i].name, "p", PARTITION_DIGITS, 10, &partition) ||
            partition > UINT32_MAX) {
            stranger_note(v, below);
        } else {
            id.partition = (uint32_t)partition;
            err = verify_partition(v, below, &id);
        }
        nd_free(below);
    }
    verify_names_release(&names);
    return err;
}

static enum nd_err topic_check(struct verify *v, const char *path, const char *topic)
{
    struct verify_names names;
    enum nd_err err = verify_list(v, path, &names);

    for (size_t i = 0; i < names.count && err == ND_OK; i++) {
        char *below = nd_xasprintf("%s/%s", path, names.list[i].name);
        struct nd_partition_id id = {0};
        if (names.list[i].kind != ND_FILE_DIR ||
            !number_parse(names.list[i].name, "", INCARNATION_DIGITS, 16, &id.incarnation)) {
            stranger_note(v, below);
        } else {
            snprintf(id.topic, sizeof id.topic, "%s", topic);
            err = incarnation_check(v, below, &id);
        }
        nd_free(below);
    }
    verify_names_release(&names);
    return err;
}

static enum nd_err topics_check(struct verify *v)
{
    char *path = nd_xasprintf("%s/topics", v->dir);
    struct verify_names names;
    enum nd_err err = verify_list(v, path, &names);

    for (size_t i = 0; i < names.count && err == ND_OK; i++) {
        char *below = nd_xasprintf("%s/%s", path, names.list[i].name);
        if (names.list[i].kind != ND_FILE_DIR ||
            !nd_topic_name_is_sane(nd_slice_str(names.list[i].name))) {
            stranger_note(v, below);
        } else {
            err = topic_check(v, below, names.list[i].name);
        }
        nd_free(below);
    }
    verify_names_release(&names);
    nd_free(path);
    return err;
}

/* --- partitions that only the log names: verify_partition() took the others out --- */

static void missing_check(struct verify *v, const struct nd_recovered_partition *partition)
{
    const struct nd_positions *p = &partition->positions;
    char dir[ND_LAYOUT_PATH_SIZE + 512];

    /* Nothing was flushed, or all that was is settled and may be gone. */
    if (!partition->grounded || p->flushed_offset <= ND_MAX(p->log_start, p->frontier)) {
        return;
    }
    nd_layout_partition_dir(dir, sizeof dir, v->dir, &p->id);
    bool is_live = v->options->is_live != NULL &&
                   v->options->is_live(v->options->is_live_arg, p->id.topic, p->id.incarnation);
    struct nd_report *report =
        verify_finding(v, is_live, dir, 0,
                       is_live ? "no directory, though the log says that records were flushed to it"
                               : "no directory: a deleted topic, or its segments are lost");
    nd_report_u64(report, "first", ND_MAX(p->log_start, p->frontier));
    nd_report_u64(report, "last", p->flushed_offset - 1);
    verify_finding_end(v);
}

static void replayed_end(struct verify *v)
{
    struct nd_slice key;
    void *value;
    size_t at = 0;

    while (nd_map_next(v->replayed, &at, &key, &value)) {
        if (v->log_whole) {
            missing_check(v, value);
        }
        nd_recovered_partition_free(value);
    }
    nd_map_free(v->replayed);
}

/* --- places that hold nothing of the log or of a partition --- */

static enum nd_err leftovers_note(struct verify *v, const char *subdir, const char *what)
{
    char *path = nd_xasprintf("%s/%s", v->dir, subdir);
    struct verify_names names;
    enum nd_err err = verify_list(v, path, &names);

    if (err == ND_OK && names.count > 0) {
        struct nd_report *report = verify_finding(v, false, path, 0, what);
        nd_report_u64(report, "entries", names.count);
        verify_finding_end(v);
    }
    verify_names_release(&names);
    nd_free(path);
    return err;
}

static enum nd_err directory_check(struct verify *v)
{
    enum nd_err err = format_check(v);

    if (err == ND_OK && !v->has_format) {
        return ND_OK; /* which store this is, is not known: nothing can be judged */
    }
    if (err == ND_OK) {
        err = verify_wal(v);
    }
    if (err == ND_OK) {
        err = topics_check(v);
    }
    if (err == ND_OK) {
        err = leftovers_note(v, "quarantine", "damaged files that a repair set aside");
    }
    if (err == ND_OK) {
        err = leftovers_note(v, "removed", "on its way out; the next start goes on");
    }
    return err;
}

/* The lock, if its file is there and may be opened: a check of a copy, or of a device that is
 * mounted read-only, needs none. */
static enum nd_err lock_take(struct verify *v, const struct nd_env *env, int *lock_out)
{
    char *path = nd_xasprintf("%s/LOCK", v->dir);
    struct nd_errmsg unused = {{0}};
    struct nd_file_stat stat;
    enum nd_err err = env->stat(env->impl, path, &stat, &unused);

    *lock_out = -1;
    if (err == ND_OK) {
        err = env->lock(env->impl, path, lock_out, &unused);
    }
    if (err == ND_ERR_UNAVAILABLE) {
        nd_errmsg_set(v->msg, "%s: a node runs on this directory; stop it first, or check a copy",
                      v->dir);
        nd_free(path);
        return err;
    }
    if (err != ND_OK) {
        *lock_out = -1;
        verify_note(v, path, 0, "not locked: that no node runs here is not known");
    }
    nd_free(path);
    return ND_OK;
}

enum nd_err nd_verify(const struct nd_verify_options *options, struct nd_verify_result *out,
                      struct nd_errmsg *msg)
{
    struct verify v = {.options = options, .msg = msg};
    struct nd_file_stat stat;
    int lock;

    memset(out, 0, sizeof *out);
    if (strlen(options->data_dir) > ND_LAYOUT_PATH_SIZE - ND_TOPIC_NAME_SIZE_MAX - 64) {
        nd_errmsg_set(msg, "the path is too long");
        return ND_ERR_INVALID_ARGUMENT;
    }
    snprintf(v.dir, sizeof v.dir, "%s", options->data_dir);
    nd_read_only_init(&v.read_only, options->env);
    v.env = &v.read_only.env;
    char *format = nd_xasprintf("%s/FORMAT", v.dir);
    enum nd_err err = v.env->stat(v.env->impl, format, &stat, msg);
    nd_free(format);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "%s is no data directory", v.dir);
        return err;
    }
    err = lock_take(&v, options->env, &lock);
    if (err != ND_OK) {
        return err;
    }
    v.raw = nd_xmalloc(ND_FRAME_RAW_MAX);
    v.replayed = nd_map_new(nd_env_random_u64(options->env));
    err = options->locked != NULL ? options->locked(options->locked_arg, msg) : ND_OK;
    err = err == ND_OK ? directory_check(&v) : err;
    v.log_whole = v.log_whole && err == ND_OK;
    replayed_end(&v);
    nd_free(v.raw);
    if (lock >= 0) {
        options->env->close(options->env->impl, lock);
    }
    *out = v.result;
    return err;
}
