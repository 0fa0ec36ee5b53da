#include "tests/unit/cluster/meta.h"

#include <inttypes.h>
#include <stdio.h>

#include "storage/base/alloc.h"

static void told(void *arg, const struct nd_topic *before, const struct nd_topic *after)
{
    struct meta *meta = arg;
    const struct nd_topic *shown = after != NULL ? after : before;
    char kind = before == NULL ? '+' : after == NULL ? '-' : '~';

    nd_mutex_lock(&meta->story.lock);
    nd_buf_printf(&meta->story.text, "%c%s\n", kind, shown->name);
    nd_mutex_unlock(&meta->story.lock);
}

char *meta_story_take(struct meta *meta)
{
    nd_mutex_lock(&meta->story.lock);
    char *text = nd_xasprintf("%.*s", (int)meta->story.text.size,
                              meta->story.text.data == NULL ? "" : (char *)meta->story.text.data);
    nd_buf_reset(&meta->story.text);
    nd_mutex_unlock(&meta->story.lock);
    return text;
}

void meta_init(struct meta *meta, const char *dir)
{
    *meta = (struct meta){.dir = nd_xasprintf("%s/metastore", dir)};
    nd_mutex_init(&meta->story.lock);
    nd_buf_init(&meta->story.text, 64 << 20);
    meta->options = (struct nd_metastore_options){
        .dir = meta->dir,
        .env = nd_env_posix(),
        .node_id = "node-a",
        .address = "127.0.0.1:7943",
        .snapshot_threshold = 8192,
        .trailing = 10240,
        .segment_bytes = 1 << 20,
        .topic_partitions_max = 108,
        .topic_changed = told,
        .topic_changed_arg = meta,
    };
}

void meta_release(struct meta *meta)
{
    nd_buf_release(&meta->story.text);
    nd_mutex_release(&meta->story.lock);
    nd_free(meta->dir);
}

static void nothing(struct nd_msg *msg, void *owner)
{
    (void)msg;
    (void)owner;
}

void meta_wait_caught_up(struct meta *meta)
{
    struct nd_inbox inbox;
    struct nd_msg msg = {.run = nothing};

    nd_list_init(&msg.link);
    nd_inbox_init(&inbox);
    nd_metastore_when_caught_up(meta->store, &inbox, &msg);
    while (nd_inbox_run(&inbox, NULL) == 0) {
        nd_inbox_wait(&inbox, UINT64_MAX);
    }
    nd_inbox_release(&inbox);
}

void meta_open(struct meta *meta)
{
    struct nd_errmsg msg = {""};
    enum nd_err err = nd_metastore_open(&meta->store, &meta->options, &msg);

    if (err != ND_OK || msg.text[0] != '\0') { /* an open that succeeds says nothing */
        fprintf(stderr, "%s: %s\n", err == ND_OK ? "OK" : nd_err_name(err), msg.text);
    }
    ND_ASSERT(err == ND_OK && msg.text[0] == '\0');
    meta_wait_caught_up(meta);
}

void meta_close(struct meta *meta)
{
    nd_metastore_close(meta->store);
    meta->store = NULL;
}

/* --- one change --- */

struct wait {
    struct nd_mutex lock;
    struct nd_cond ready;
    bool done, gone;
    struct meta_answer answer;
};

static void wait_init(struct wait *wait)
{
    *wait = (struct wait){.done = false};
    nd_mutex_init(&wait->lock);
    nd_cond_init(&wait->ready);
}

static struct meta_answer wait_finish(struct wait *wait)
{
    nd_mutex_lock(&wait->lock);
    while (!wait->done) {
        nd_cond_wait(&wait->ready, &wait->lock);
    }
    nd_mutex_unlock(&wait->lock);
    nd_cond_release(&wait->ready);
    nd_mutex_release(&wait->lock);
    return wait->answer;
}

static void answered(void *arg, enum nd_err err, const char *text, const struct nd_topic *topic)
{
    struct wait *wait = arg;

    nd_mutex_lock(&wait->lock);
    wait->answer.err = err;
    snprintf(wait->answer.text, sizeof wait->answer.text, "%s", text);
    if (topic != NULL) {
        wait->answer.incarnation = topic->incarnation;
        wait->answer.version = topic->version;
        wait->answer.partitions = topic->partitions;
        wait->answer.owner_first = topic->owners[0];
        wait->answer.owner_last = topic->owners[topic->partitions - 1];
    }
    wait->done = true;
    nd_cond_signal(&wait->ready);
    nd_mutex_unlock(&wait->lock);
}

struct nd_topic_create meta_topic(const char *name, uint32_t partitions)
{
    struct nd_topic_create create = {.partitions = partitions,
                                     .retention_ms = 604800000,
                                     .visibility_timeout_ms = 30000,
                                     .max_in_flight = 1024,
                                     .max_acked_ahead = 1024,
                                     .owner = "admin"};
    snprintf(create.name, sizeof create.name, "%s", name);
    return create;
}

struct meta_answer meta_create(struct meta *meta, const char *name, uint32_t partitions)
{
    struct nd_topic_create create = meta_topic(name, partitions);
    struct wait wait;

    wait_init(&wait);
    nd_metastore_create_topic(meta->store, &create, answered, &wait);
    return wait_finish(&wait);
}

struct meta_answer meta_alter(struct meta *meta, const struct nd_topic_alter *alter)
{
    struct wait wait;

    wait_init(&wait);
    nd_metastore_alter_topic(meta->store, alter, answered, &wait);
    return wait_finish(&wait);
}

struct meta_answer meta_delete(struct meta *meta, const char *name)
{
    struct wait wait;

    wait_init(&wait);
    nd_metastore_delete_topic(meta->store, name, answered, &wait);
    return wait_finish(&wait);
}

/* --- users --- */

static void user_answered(void *arg, enum nd_err err, const char *text, const struct nd_user *user)
{
    struct wait *wait = arg;

    if (user != NULL) {
        memcpy(wait->answer.user, user->name, sizeof wait->answer.user);
    }
    answered(arg, err, text, NULL);
}

/* Its one grant borrows `pattern`. */
static struct nd_user *user_with(const char *name, const char *hash, const char *pattern)
{
    char *patterns[] = {(char *)(uintptr_t)pattern}; /* only read */
    const struct nd_grant grant = {ND_ACTION_PRODUCE, 1, patterns};
    struct nd_user *user = nd_user_new(name, &grant, pattern == NULL ? 0 : 1);

    snprintf(user->hash, sizeof user->hash, "%s", hash);
    return user;
}

struct meta_answer meta_create_user(struct meta *meta, const char *name, const char *hash,
                                    const char *pattern)
{
    struct nd_user *user = user_with(name, hash, pattern);
    struct wait wait;

    wait_init(&wait);
    nd_metastore_create_user(meta->store, user, user_answered, &wait);
    nd_user_unref(user); /* it was copied */
    return wait_finish(&wait);
}

struct meta_answer meta_seed_root(struct meta *meta, const char *hash)
{
    struct wait wait;

    wait_init(&wait);
    nd_metastore_seed_root(meta->store, hash, user_answered, &wait);
    return wait_finish(&wait);
}

struct meta_answer meta_set_grants_of(struct meta *meta, const char *name,
                                      const struct nd_grant *grants, uint32_t count)
{
    struct wait wait;

    wait_init(&wait);
    nd_metastore_set_grants(meta->store, name, grants, count, user_answered, &wait);
    return wait_finish(&wait);
}

struct meta_answer meta_set_grants(struct meta *meta, const char *name, const char *pattern)
{
    struct nd_user *user = user_with("", "", pattern);
    struct meta_answer answer = meta_set_grants_of(meta, name, user->grants, user->grants_count);

    nd_user_unref(user);
    return answer;
}

struct meta_answer meta_set_password(struct meta *meta, const char *name, const char *hash)
{
    return meta_replace_password(meta, name, hash, NULL);
}

struct meta_answer meta_replace_password(struct meta *meta, const char *name, const char *hash,
                                         const char *replaces)
{
    struct nd_password_change change = {name, hash, replaces};
    struct wait wait;

    wait_init(&wait);
    nd_metastore_set_password(meta->store, &change, user_answered, &wait);
    return wait_finish(&wait);
}

struct meta_answer meta_delete_user(struct meta *meta, const char *name)
{
    struct wait wait;

    wait_init(&wait);
    nd_metastore_delete_user(meta->store, name, user_answered, &wait);
    return wait_finish(&wait);
}

size_t meta_users_count(struct meta *meta)
{
    struct nd_user **users;
    size_t count = nd_metastore_users(meta->store, &users);

    for (size_t i = 0; i < count; i++) {
        nd_user_unref(users[i]);
    }
    nd_free(users);
    return count;
}

static void confirmed(void *arg, enum nd_err err, bool gone)
{
    struct wait *wait = arg;
    wait->gone = gone;
    answered(arg, err, "", NULL);
}

enum nd_err meta_confirm_gone(struct meta *meta, const char *name, uint64_t incarnation,
                              bool *gone_out)
{
    struct wait wait;

    wait_init(&wait);
    nd_metastore_confirm_gone(meta->store, name, incarnation, confirmed, &wait);
    enum nd_err err = wait_finish(&wait).err;
    *gone_out = wait.gone;
    return err;
}

/* --- many --- */

void meta_gate_init(struct meta_gate *gate)
{
    *gate = (struct meta_gate){.in_flight = 0};
    nd_mutex_init(&gate->lock);
    nd_cond_init(&gate->changed);
}

void meta_gate_release(struct meta_gate *gate)
{
    nd_cond_release(&gate->changed);
    nd_mutex_release(&gate->lock);
}

static void gate_answered(void *arg, enum nd_err err, const char *text,
                          const struct nd_topic *topic)
{
    struct meta_gate *gate = arg;
    (void)text;
    (void)topic;
    nd_mutex_lock(&gate->lock);
    gate->in_flight--;
    gate->ok += err == ND_OK ? 1 : 0;
    gate->refused += err == ND_OK ? 0 : 1;
    nd_cond_signal(&gate->changed);
    nd_mutex_unlock(&gate->lock);
}

static void gate_user_answered(void *arg, enum nd_err err, const char *text,
                               const struct nd_user *user)
{
    (void)user;
    gate_answered(arg, err, text, NULL);
}

void meta_gate_wait(struct meta_gate *gate, uint32_t in_flight_max)
{
    nd_mutex_lock(&gate->lock);
    while (gate->in_flight > in_flight_max) {
        nd_cond_wait(&gate->changed, &gate->lock);
    }
    nd_mutex_unlock(&gate->lock);
}

static void gate_enter(struct meta_gate *gate, uint32_t window)
{
    meta_gate_wait(gate, window - 1);
    nd_mutex_lock(&gate->lock);
    gate->in_flight++;
    nd_mutex_unlock(&gate->lock);
}

void meta_gate_create(struct meta *meta, struct meta_gate *gate, const char *name, uint32_t window)
{
    struct nd_topic_create create = meta_topic(name, 3);

    gate_enter(gate, window);
    nd_metastore_create_topic(meta->store, &create, gate_answered, gate);
}

void meta_gate_create_user(struct meta *meta, struct meta_gate *gate, const char *name,
                           uint32_t window)
{
    struct nd_user *user = user_with(name, "$2b$10$hash", "orders-*");

    gate_enter(gate, window);
    nd_metastore_create_user(meta->store, user, gate_user_answered, gate);
    nd_user_unref(user);
}

void meta_gate_seed(struct meta *meta, struct meta_gate *gate, const char *hash)
{
    gate_enter(gate, UINT32_MAX);
    nd_metastore_seed_root(meta->store, hash, gate_user_answered, gate);
}
