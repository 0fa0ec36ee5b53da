#include "cluster/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "cluster/identity.h"
#include "cluster/inspect_private.h"
#include "cluster/snapshot.h"
#include "cluster/view.h"

enum { MAGIC_SIZE = 4 };

void inspect_damage(struct inspect *in, const char *path, uint64_t at, const char *what)
{
    in->damages += 1;
    if (in->silent) {
        return;
    }
    nd_report_begin(in->report, "damage");
    if (in->quiet) {
        nd_report_text(in->report, "file", path);
    }
    nd_report_u64(in->report, "at", at);
    nd_report_text(in->report, "what", what);
    nd_report_end(in->report);
}

/* --- files of ours --- */

static void identity_inspect(struct inspect *in, const char *path)
{
    struct nd_identity identity;
    struct nd_report *report = in->report;

    if (nd_identity_load(in->env, path, &identity, in->msg) != ND_OK) {
        inspect_damage(in, path, 0, "not an identity");
        return;
    }
    if (!in->quiet) {
        nd_report_begin(report, "identity");
        nd_report_id(report, "member", identity.member);
        nd_report_hex(report, "cluster", nd_slice_make(identity.cluster, ND_CLUSTER_ID_SIZE));
        nd_report_bool(report, "bootstrapped", identity.bootstrapped);
        nd_report_end(report);
    }
}

void inspect_grants(struct nd_report *report, const struct nd_user *user)
{
    struct nd_buf text;

    nd_buf_init(&text, SIZE_MAX);
    for (uint32_t i = 0; i < user->grants_count; i++) {
        const struct nd_grant *grant = &user->grants[i];
        nd_buf_printf(&text, "%s%s", i == 0 ? "" : " ", nd_action_name(grant->action));
        for (uint32_t j = 0; j < grant->patterns_count; j++) {
            nd_buf_printf(&text, "%c%s", j == 0 ? ':' : ',', grant->patterns[j]);
        }
    }
    nd_report_bytes(report, "grants", nd_buf_slice(&text));
    nd_buf_release(&text);
}

static void users_report(struct nd_report *report, const struct nd_state *state)
{
    for (size_t i = 0; i < nd_user_table_count(state->users); i++) {
        const struct nd_user *user = nd_user_table_at(state->users, i);
        nd_report_begin(report, "user");
        nd_report_text(report, "name", user->name);
        nd_report_bool(report, "root", user->root);
        nd_report_text(report, "hash", INSPECT_HIDDEN);
        inspect_grants(report, user);
        nd_report_i64(report, "created_at_ms", user->created_at_ms);
        nd_report_i64(report, "updated_at_ms", user->updated_at_ms);
        nd_report_end(report);
    }
}

static void topics_report(struct nd_report *report, const struct nd_state *state)
{
    struct nd_topic_walk walk = nd_topic_table_walk(state->table, nd_slice_make(NULL, 0));

    nd_report_begin(report, "view");
    nd_report_u64(report, "applied_index", state->applied_index);
    nd_report_u64(report, "commands", state->commands);
    nd_report_u64(report, "members", state->members_count);
    nd_report_u64(report, "topics", nd_topic_table_count(state->table));
    nd_report_u64(report, "users", nd_user_table_count(state->users));
    nd_report_end(report);
    for (uint32_t i = 0; i < state->members_count; i++) {
        nd_report_begin(report, "member");
        nd_report_id(report, "member", state->members[i].member);
        nd_report_text(report, "node_id", state->members[i].node_id);
        nd_report_text(report, "address", state->members[i].address);
        nd_report_end(report);
    }
    for (const struct nd_topic *topic; (topic = nd_topic_walk_next(&walk)) != NULL;) {
        nd_report_begin(report, "topic");
        nd_report_text(report, "name", topic->name);
        nd_report_id(report, "incarnation", topic->incarnation);
        nd_report_u64(report, "version", topic->version);
        nd_report_u64(report, "partitions", topic->partitions);
        nd_report_u64(report, "retention_ms", topic->retention_ms);
        nd_report_u64(report, "visibility_timeout_ms", topic->visibility_timeout_ms);
        nd_report_end(report);
    }
}

/* NOT_FOUND passes through; other findings are reported. */
static enum nd_err view_inspect(struct inspect *in, const char *path, struct nd_state *state)
{
    enum nd_err err = nd_view_load(in->env, path, state, in->msg);

    if (err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED || err == ND_ERR_TOO_LARGE) {
        inspect_damage(in, path, 0,
                       err == ND_ERR_UNSUPPORTED ? "a newer format" : "not a view of the metadata");
        return ND_OK;
    }
    if (err == ND_OK && !in->quiet) {
        topics_report(in->report, state);
        users_report(in->report, state);
    }
    return err;
}

/* --- one file --- */

static enum nd_err magic_read(struct inspect *in, const char *path, uint8_t magic[MAGIC_SIZE])
{
    size_t got = 0;
    int file;
    enum nd_err err = in->env->open(in->env->impl, path, ND_OPEN_READ, &file, in->msg);

    memset(magic, 0, MAGIC_SIZE);
    if (err != ND_OK) {
        return err;
    }
    err = in->env->pread(in->env->impl, file, magic, MAGIC_SIZE, 0, &got, in->msg);
    in->env->close(in->env->impl, file);
    return err;
}

static enum nd_err raft_inspect(struct inspect *in, const char *path,
                                const struct nd_raft_name *name, bool *valid_out)
{
    uint8_t *data;
    size_t size;
    enum nd_err err =
        nd_env_read_file(in->env, path, ND_SNAPSHOT_FILE_SIZE_MAX, &data, &size, in->msg);

    *valid_out = false;
    if (err == ND_ERR_TOO_LARGE) {
        inspect_damage(in, path, 0, "far too large for its kind");
        return ND_OK;
    }
    if (err == ND_OK) {
        in->bytes += size;
        inspect_raft_bytes(in, path, name, nd_slice_make(data, size), valid_out);
        nd_free(data);
    }
    return err;
}

enum nd_err nd_inspect_file(const struct nd_env *env, const char *path, struct nd_report *report,
                            uint64_t *damages_out, struct nd_errmsg *msg)
{
    struct inspect in = {.env = env, .report = report, .msg = msg};
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    struct nd_raft_name name = nd_raft_name_get(base);
    struct nd_file_stat stat;
    uint8_t magic[MAGIC_SIZE];
    bool valid;
    enum nd_err err = env->stat(env->impl, path, &stat, msg);

    *damages_out = 0;
    if (err == ND_OK && stat.kind != ND_FILE_REGULAR) {
        nd_errmsg_set(msg, "%s: not a regular file", path);
        return ND_ERR_INVALID_ARGUMENT;
    }
    err = err == ND_OK ? magic_read(&in, path, magic) : err;
    if (err != ND_OK) {
        return err;
    }
    if (memcmp(magic, "NDID", MAGIC_SIZE) == 0 || strcmp(base, "identity") == 0) {
        identity_inspect(&in, path);
    } else if (memcmp(magic, "NDMS", MAGIC_SIZE) == 0 || strcmp(base, "view") == 0) {
        struct nd_state state;
        nd_state_init(&state);
        err = view_inspect(&in, path, &state);
        nd_state_release(&state);
    } else if (name.kind != ND_RAFT_NONE) {
        err = raft_inspect(&in, path, &name, &valid);
    } else {
        nd_errmsg_set(msg, "%s: no file of the metadata", path);
        err = ND_ERR_UNSUPPORTED;
    }
    *damages_out = in.damages;
    return err;
}

/* --- all of them --- */

struct raft_dir {
    struct nd_raft_name *segments; /* ND_RAFT_CLOSED */
    char **names;                  /* of all files of Raft */
    size_t segments_count, names_count;
    uint64_t snapshot_index; /* of the newest that is whole; 0: none */
    uint32_t terms;          /* whole ones */
    uint32_t snapshots, metas;
};

static bool raft_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct raft_dir *dir = arg;
    struct nd_raft_name parsed = nd_raft_name_get(name);

    if (kind == ND_FILE_REGULAR && parsed.kind != ND_RAFT_NONE) {
        dir->names = nd_xrealloc(dir->names, (dir->names_count + 1) * sizeof *dir->names);
        dir->names[dir->names_count++] = nd_xstrdup(name);
    }
    return true;
}

static int segment_compare(const void *a, const void *b)
{
    const struct nd_raft_name *left = a, *right = b;

    return left->first < right->first ? -1 : left->first > right->first;
}

static void raft_count(struct inspect *in, struct raft_dir *dir, const struct nd_raft_name *name,
                       bool valid)
{
    if (name->kind == ND_RAFT_CLOSED) {
        dir->segments =
            nd_xrealloc(dir->segments, (dir->segments_count + 1) * sizeof *dir->segments);
        dir->segments[dir->segments_count++] = *name;
    }
    dir->terms += name->kind == ND_RAFT_TERM && valid;
    if (name->kind == ND_RAFT_SNAPSHOT) {
        in->entries_term = ND_MAX(in->entries_term, name->term);
    }
    dir->snapshots += name->kind == ND_RAFT_SNAPSHOT;
    dir->metas += name->kind == ND_RAFT_META;
    if (name->kind == ND_RAFT_SNAPSHOT && valid) {
        dir->snapshot_index = ND_MAX(dir->snapshot_index, name->last);
    }
}

/* Every entry after the newest snapshot must be there. */
static void chain_check(struct inspect *in, const char *path, struct raft_dir *dir)
{
    uint64_t next = dir->snapshot_index + 1;

    if (dir->segments_count > 1) {
        qsort(dir->segments, dir->segments_count, sizeof *dir->segments, segment_compare);
    }
    for (size_t i = 0; i < dir->segments_count; i++) {
        if (dir->segments[i].first > next) {
            inspect_damage(in, path, dir->segments[i].first,
                           "entries before this index are missing");
        }
        next = ND_MAX(next, dir->segments[i].last + 1);
    }
    if (dir->snapshots != dir->metas) {
        inspect_damage(in, path, 0, "a snapshot without its .meta, or the other way round");
    }
}

static enum nd_err raft_dir_inspect(struct inspect *in, const char *path, bool bootstrapped)
{
    struct raft_dir dir = {0};
    enum nd_err err = in->env->list(in->env->impl, path, raft_seen, &dir, in->msg);

    if (err == ND_ERR_NOT_FOUND) {
        err = ND_OK;
    }
    for (size_t i = 0; i < dir.names_count; i++) {
        struct nd_raft_name name = nd_raft_name_get(dir.names[i]);
        char *file = nd_xasprintf("%s/%s", path, dir.names[i]);
        bool valid = false;
        err = err == ND_OK ? raft_inspect(in, file, &name, &valid) : err;
        raft_count(in, &dir, &name, valid);
        nd_free(file);
        nd_free(dir.names[i]);
    }
    if (err == ND_OK && bootstrapped && dir.terms == 0) {
        inspect_damage(in, path, 0, "no file with a term, though Raft was started here");
    } else if (err == ND_OK && in->term < in->entries_term) {
        inspect_damage(in, path, 0, "the term is below that of the entries");
    }
    if (err == ND_OK) {
        chain_check(in, path, &dir);
    }
    nd_free(dir.segments);
    nd_free(dir.names);
    return err;
}

enum nd_err nd_inspect_term_check(const struct nd_env *env, const char *raft_dir,
                                  struct nd_errmsg *msg)
{
    struct inspect in = {.env = env, .quiet = true, .silent = true, .msg = msg};
    enum nd_err err = raft_dir_inspect(&in, raft_dir, false);

    if (err == ND_OK && in.term_version == 0) {
        nd_errmsg_set(msg, "%s: neither metadata1 nor metadata2 holds a term, yet there is a log",
                      raft_dir);
        err = ND_ERR_CORRUPT;
    } else if (err == ND_OK && in.term < in.entries_term) {
        nd_errmsg_set(msg, "%s: metadata1 and metadata2 hold a term below that of the log",
                      raft_dir);
        err = ND_ERR_CORRUPT;
    }
    return err;
}

enum nd_err nd_inspect_metadata(const struct nd_env *env, const char *data_dir,
                                struct nd_report *report, struct nd_state *topics_out,
                                struct nd_inspect_result *out, struct nd_errmsg *msg)
{
    struct inspect in = {.env = env, .report = report, .quiet = true, .msg = msg};
    char *identity_path = nd_xasprintf("%s/metastore/identity", data_dir);
    char *view_path = nd_xasprintf("%s/metastore/view", data_dir);
    char *raft_path = nd_xasprintf("%s/metastore/raft", data_dir);
    struct nd_identity identity = {0};
    enum nd_err err = nd_identity_load(env, identity_path, &identity, msg);

    if (err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED || err == ND_ERR_TOO_LARGE) {
        inspect_damage(&in, identity_path, 0, "not an identity");
        err = ND_OK;
    }
    if (err == ND_OK || err == ND_ERR_NOT_FOUND) {
        err = view_inspect(&in, view_path, topics_out);
    }
    if (err == ND_OK || err == ND_ERR_NOT_FOUND) {
        err = raft_dir_inspect(&in, raft_path, identity.bootstrapped);
    }
    out->damages = in.damages;
    out->bytes = in.bytes;
    nd_free(raft_path);
    nd_free(view_path);
    nd_free(identity_path);
    return err;
}
