/* Open, close and reads. What Raft drives is in metastore_apply.c, proposals in metastore_change.c.
 */
#include "cluster/metastore.h"

#include <stdio.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "cluster/inspect.h"
#include "cluster/metastore_impl.h"
#include "cluster/view.h"

enum { EXIT_CODE_FATAL = 70 };

static void fatal_default(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "narad: metadata: %s\n", text);
    _exit(EXIT_CODE_FATAL);
}

/* --- reads --- */

uint64_t nd_metastore_member(const struct nd_metastore *metastore)
{
    return metastore->identity.member;
}

const char *nd_metastore_node_id(const struct nd_metastore *metastore)
{
    return metastore->node_id;
}

void nd_metastore_member_name(struct nd_metastore *metastore, uint64_t member, char *out,
                              size_t size)
{
    const char *name = member == metastore->identity.member ? metastore->node_id : "";

    nd_mutex_lock(&metastore->lock);
    for (uint32_t i = 0; name[0] == '\0' && i < metastore->members_count; i++) {
        if (metastore->members[i].member == member) {
            name = metastore->members[i].node_id;
        }
    }
    snprintf(out, size, "%s", name);
    nd_mutex_unlock(&metastore->lock);
}

bool nd_metastore_caught_up(const struct nd_metastore *metastore)
{
    /* acquire: who sees the latch sees the table that came with it */
    return atomic_load_explicit(&metastore->caught_up, memory_order_acquire);
}

bool nd_metastore_is_leader(const struct nd_metastore *metastore)
{
    return atomic_load_explicit(&metastore->leader, memory_order_relaxed); /* a hint */
}

enum nd_err nd_metastore_topic(struct nd_metastore *metastore, struct nd_slice name,
                               struct nd_topic **out)
{
    /* Read before the table: a table without the topic is then at least as new as the latch. */
    bool caught_up = nd_metastore_caught_up(metastore);

    nd_mutex_lock(&metastore->lock);
    struct nd_topic *topic = nd_topic_ref(nd_topic_table_find(metastore->published, name));
    nd_mutex_unlock(&metastore->lock);
    if (topic == NULL) {
        return caught_up ? ND_ERR_TOPIC_NOT_FOUND : ND_ERR_UNAVAILABLE;
    }
    *out = topic;
    return ND_OK;
}

static struct nd_topic_table *table_now(struct nd_metastore *metastore)
{
    nd_mutex_lock(&metastore->lock);
    struct nd_topic_table *table = nd_topic_table_ref(metastore->published);
    nd_mutex_unlock(&metastore->lock);
    return table;
}

size_t nd_metastore_topics(struct nd_metastore *metastore, struct nd_slice after, size_t limit,
                           struct nd_topic **out, bool *more_out)
{
    struct nd_topic_table *table = table_now(metastore);
    struct nd_topic_walk walk = nd_topic_table_walk(table, after);
    size_t count = 0;
    const struct nd_topic *topic = nd_topic_walk_next(&walk);

    for (; topic != NULL && count < limit; topic = nd_topic_walk_next(&walk)) {
        out[count++] = nd_topic_ref(topic);
    }
    *more_out = topic != NULL;
    nd_topic_table_unref(table);
    return count;
}

uint64_t nd_metastore_topic_count(struct nd_metastore *metastore)
{
    nd_mutex_lock(&metastore->lock);
    uint64_t count = nd_topic_table_count(metastore->published);
    nd_mutex_unlock(&metastore->lock);
    return count;
}

/* --- open --- */

static bool seen_any(void *arg, const char *name, enum nd_file_kind kind)
{
    (void)name;
    (void)kind;
    *(bool *)arg = true;
    return false;
}

/* A data directory without its identity must be empty: who it was cannot be guessed. */
static enum nd_err identity_new(struct nd_metastore *metastore, struct nd_errmsg *msg)
{
    const struct nd_env *env = metastore->options.env;
    struct nd_file_stat stat;
    bool raft_has_files = false;
    if (metastore->options.must_exist) {
        nd_errmsg_set(msg,
                      "%s is missing: the metadata is lost, and with it the topics of this data "
                      "directory; nothing was removed; bring the directory back",
                      metastore->identity_path);
        return ND_ERR_CORRUPT;
    }
    enum nd_err err = env->list(env->impl, metastore->raft_dir, seen_any, &raft_has_files, msg);
    if (err != ND_OK) {
        return err;
    }
    if (raft_has_files || env->stat(env->impl, metastore->view_path, &stat, NULL) == ND_OK) {
        nd_errmsg_set(msg, "%s is missing, yet there is metadata beside it",
                      metastore->identity_path);
        return ND_ERR_CORRUPT;
    }
    metastore->identity = nd_identity_draw(env);
    return nd_identity_store(env, metastore->identity_path, &metastore->identity, msg);
}

struct removal {
    struct nd_metastore *metastore;
    struct nd_errmsg *msg;
    enum nd_err err;
};

static bool remove_file(void *arg, const char *name, enum nd_file_kind kind)
{
    struct removal *removal = arg;
    const struct nd_env *env = removal->metastore->options.env;
    char *path = nd_xasprintf("%s/%s", removal->metastore->raft_dir, name);
    (void)kind;
    removal->err = env->unlink(env->impl, path, removal->msg);
    nd_free(path);
    return removal->err == ND_OK;
}

/* A first start that was cut short: nothing was ever acknowledged from these files. */
static enum nd_err leftovers_remove(struct nd_metastore *metastore, struct nd_errmsg *msg)
{
    const struct nd_env *env = metastore->options.env;
    struct removal removal = {metastore, msg, ND_OK};
    enum nd_err err = env->list(env->impl, metastore->raft_dir, remove_file, &removal, msg);
    return err != ND_OK ? err : removal.err;
}

static enum nd_err directories_open(struct nd_metastore *metastore, struct nd_errmsg *msg)
{
    const struct nd_env *env = metastore->options.env;
    enum nd_err err = nd_env_mkdirs(env, metastore->raft_dir, msg);
    if (err != ND_OK) {
        return err;
    }
    err = nd_identity_load(env, metastore->identity_path, &metastore->identity, msg);
    if (err == ND_ERR_NOT_FOUND) {
        nd_errmsg_set(msg, "%s", "");
        return identity_new(metastore, msg);
    }
    if (err == ND_OK && !metastore->identity.bootstrapped) {
        return leftovers_remove(metastore, msg);
    }
    return err;
}

/* Term and vote. Without them libraft starts at term 0 below its own log and never leads again; and
 * they are seen to be missing before it renames or removes any segment. */
static enum nd_err term_check(const struct nd_metastore *metastore, struct nd_errmsg *msg)
{
    const struct nd_env *env = metastore->options.env;
    bool any = false;
    enum nd_err err = env->list(env->impl, metastore->raft_dir, seen_any, &any, msg);

    if (err == ND_OK && any && metastore->identity.bootstrapped) {
        err = nd_inspect_term_check(env, metastore->raft_dir, msg);
    }
    return err;
}

/* The view is written from what Raft had applied, so a log that ends before it has lost something.
 */
static enum nd_err raft_open(struct nd_metastore *metastore, uint64_t view_index,
                             struct nd_errmsg *msg)
{
    const struct nd_metastore_options *options = &metastore->options;
    const struct nd_raft_node_options raft_options = {
        .dir = metastore->raft_dir,
        .member = metastore->identity.member,
        .address = metastore->address,
        .bootstrap = !metastore->identity.bootstrapped,
        .reached_index = view_index,
        .snapshot_threshold = options->snapshot_threshold,
        .snapshot_trailing = options->trailing,
        .segment_bytes = options->segment_bytes,
        .env = options->env,
        .ballast_bytes = options->ballast_bytes,
        .room_retry_ms = options->room_retry_ms,
        .machine = nd_metastore_machine(metastore),
    };
    enum nd_err err = term_check(metastore, msg);
    return err != ND_OK ? err : nd_raft_node_open(&metastore->node, &raft_options, msg);
}

static enum nd_err bootstrapped(struct nd_metastore *metastore, struct nd_errmsg *msg)
{
    if (metastore->identity.bootstrapped) {
        return ND_OK;
    }
    metastore->identity.bootstrapped = true;
    return nd_identity_store(metastore->options.env, metastore->identity_path, &metastore->identity,
                             msg);
}

/* Raft is open; what is left before its thread may start. */
static enum nd_err view_publish(struct nd_metastore *metastore, const struct nd_state *view,
                                struct nd_errmsg *msg)
{
    enum nd_err err = bootstrapped(metastore, msg);
    if (err == ND_OK) {
        nd_metastore_publish(metastore, view->table);
        nd_metastore_publish_users(metastore, view->users);
        nd_metastore_publish_members(metastore, view);
        err = nd_raft_node_start(metastore->node, msg);
    }
    return err;
}

static enum nd_err parts_open(struct nd_metastore *metastore, struct nd_errmsg *msg)
{
    struct nd_state view;
    enum nd_err err = directories_open(metastore, msg);
    if (err != ND_OK) {
        return err;
    }
    nd_state_init(&view);
    err = nd_view_load(metastore->options.env, metastore->view_path, &view, msg);
    if (err == ND_ERR_NOT_FOUND) { /* a new directory; what fails next has its own text, or none */
        nd_errmsg_set(msg, "%s", "");
        err = ND_OK;
    }
    if (err == ND_OK) {
        err = raft_open(metastore, view.applied_index, msg);
    }
    if (err == ND_OK) {
        err = view_publish(metastore, &view, msg);
        if (err != ND_OK) {
            nd_raft_node_stop(metastore->node);
        }
    }
    nd_state_release(&view);
    return err;
}

static void metastore_free(struct nd_metastore *metastore)
{
    nd_raft_node_free(metastore->node);
    nd_metastore_waiters_drop(metastore);
    nd_outcome_release(&metastore->outcome);
    nd_state_release(&metastore->state);
    nd_topic_table_unref(metastore->published);
    nd_user_table_unref(metastore->users);
    nd_free(metastore->members);
    nd_mutex_release(&metastore->lock);
    nd_mutex_release(&metastore->watch_lock);
    nd_free(metastore->node_id);
    nd_free(metastore->address);
    nd_free(metastore->view_path);
    nd_free(metastore->identity_path);
    nd_free(metastore->raft_dir);
    nd_free(metastore);
}

static struct nd_metastore *metastore_new(const struct nd_metastore_options *options)
{
    struct nd_metastore *metastore = nd_xcalloc(1, sizeof *metastore);

    metastore->options = *options;
    metastore->options.dir = NULL; /* borrowed during the open only */
    metastore->options.node_id = metastore->options.address = NULL;
    if (options->fatal == NULL) {
        metastore->options.fatal = fatal_default;
    }
    metastore->options.topic_partitions_max = options->topic_partitions_max == 0
                                                  ? ND_TOPIC_PARTITIONS_LIMIT
                                                  : options->topic_partitions_max;
    metastore->node_id = nd_xstrdup(options->node_id);
    metastore->address = nd_xstrdup(options->address == NULL ? "" : options->address);
    metastore->view_path = nd_xasprintf("%s/view", options->dir);
    metastore->identity_path = nd_xasprintf("%s/identity", options->dir);
    metastore->raft_dir = nd_xasprintf("%s/raft", options->dir);
    metastore->published = nd_topic_table_new();
    metastore->users = nd_user_table_build(NULL, 0);
    nd_mutex_init(&metastore->lock);
    nd_mutex_init(&metastore->watch_lock);
    nd_list_init(&metastore->waiters);
    nd_list_init(&metastore->changes);
    nd_state_init(&metastore->state);
    metastore->outcome.text = "";
    while (metastore->proposer == 0) {
        metastore->proposer = nd_env_random_u64(options->env);
    }
    nd_metastore_gauges_init(metastore);
    return metastore;
}

static enum nd_err options_check(const struct nd_metastore_options *options, struct nd_errmsg *msg)
{
    size_t node_id_size = strlen(options->node_id);
    size_t address_size = options->address == NULL ? 0 : strlen(options->address);

    if (node_id_size == 0 || node_id_size > ND_NODE_ID_SIZE_MAX ||
        address_size > ND_ADDRESS_SIZE_MAX) {
        nd_errmsg_set(msg, "a node id has 1 to %d bytes, an address at most %d",
                      ND_NODE_ID_SIZE_MAX, ND_ADDRESS_SIZE_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (options->topic_partitions_max > ND_TOPIC_PARTITIONS_LIMIT) {
        nd_errmsg_set(msg, "a topic has at most %d partitions", ND_TOPIC_PARTITIONS_LIMIT);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

enum nd_err nd_metastore_open(struct nd_metastore **out, const struct nd_metastore_options *options,
                              struct nd_errmsg *msg)
{
    enum nd_err err = options_check(options, msg);
    if (err == ND_OK) {
        struct nd_metastore *metastore = metastore_new(options);
        err = parts_open(metastore, msg);
        if (err == ND_OK) {
            *out = metastore;
            return ND_OK;
        }
        metastore_free(metastore);
    }
    nd_errmsg_wrap(msg, "open metastore");
    return err;
}

/* --- close --- */

void nd_metastore_close(struct nd_metastore *metastore)
{
    nd_raft_node_stop(metastore->node);
    ND_ASSERT(metastore->changes_count == 0); /* each was answered */
    nd_metastore_view_finish(metastore);
    metastore_free(metastore);
}
