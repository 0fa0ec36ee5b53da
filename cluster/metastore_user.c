/* Users: reads, and what is proposed about them. */
#include "storage/base/alloc.h"

#include "cluster/metastore_impl.h"

/* --- reads --- */

enum nd_err nd_metastore_user(struct nd_metastore *metastore, struct nd_slice name,
                              struct nd_user **out)
{
    /* Read before the table: a table without the user is then at least as new as the latch. */
    bool caught_up = nd_metastore_caught_up(metastore);

    nd_mutex_lock(&metastore->lock);
    struct nd_user *user = nd_user_ref(nd_user_table_find(metastore->users, name));
    nd_mutex_unlock(&metastore->lock);
    if (user == NULL) {
        return caught_up ? ND_ERR_NOT_FOUND : ND_ERR_UNAVAILABLE;
    }
    *out = user;
    return ND_OK;
}

size_t nd_metastore_users(struct nd_metastore *metastore, struct nd_user ***out)
{
    nd_mutex_lock(&metastore->lock);
    struct nd_user_table *table = nd_user_table_ref(metastore->users);
    nd_mutex_unlock(&metastore->lock);
    size_t count = nd_user_table_count(table);
    struct nd_user **users = nd_xcalloc(count + 1, sizeof users[0]);

    for (size_t i = 0; i < count; i++) {
        users[i] = nd_user_ref(nd_user_table_at(table, i));
    }
    nd_user_table_unref(table);
    *out = users;
    return count;
}

uint64_t nd_metastore_users_version(const struct nd_metastore *metastore)
{
    /* acquire: who sees the new version reads the new records */
    return atomic_load_explicit(&metastore->users_version, memory_order_acquire);
}

void nd_metastore_watch_users(struct nd_metastore *metastore, void (*changed)(void *arg), void *arg)
{
    nd_mutex_lock(&metastore->watch_lock);
    metastore->users_changed = changed;
    metastore->users_changed_arg = arg;
    nd_mutex_unlock(&metastore->watch_lock);
}

/* --- changes --- */

/* A hash that does not fit stays empty, which is refused. */
static void hash_set(struct nd_user *user, const char *hash)
{
    size_t size = strlen(hash);
    if (size < sizeof user->hash) {
        memcpy(user->hash, hash, size + 1);
    }
}

void nd_metastore_create_user(struct nd_metastore *metastore, const struct nd_user *user,
                              nd_user_done_fn *done, void *arg)
{
    struct nd_user *request = nd_user_new(user->name, user->grants, user->grants_count);
    hash_set(request, user->hash);
    nd_metastore_propose_user(metastore, ND_COMMAND_USER_CREATE, request, NULL, done, arg);
}

void nd_metastore_seed_root(struct nd_metastore *metastore, const char *hash, nd_user_done_fn *done,
                            void *arg)
{
    struct nd_user *request = nd_user_new("", NULL, 0);
    hash_set(request, hash);
    nd_metastore_propose_user(metastore, ND_COMMAND_USER_SEED_ROOT, request, NULL, done, arg);
}

void nd_metastore_set_grants(struct nd_metastore *metastore, const char *name,
                             const struct nd_grant *grants, uint32_t count, nd_user_done_fn *done,
                             void *arg)
{
    struct nd_user *request = nd_user_new(name, grants, count);
    nd_metastore_propose_user(metastore, ND_COMMAND_USER_SET_GRANTS, request, NULL, done, arg);
}

void nd_metastore_set_password(struct nd_metastore *metastore,
                               const struct nd_password_change *change, nd_user_done_fn *done,
                               void *arg)
{
    struct nd_user *request = nd_user_new(change->name, NULL, 0);
    hash_set(request, change->hash);
    nd_metastore_propose_user(metastore, ND_COMMAND_USER_SET_PASSWORD, request, change->replaces,
                              done, arg);
}

void nd_metastore_delete_user(struct nd_metastore *metastore, const char *name,
                              nd_user_done_fn *done, void *arg)
{
    struct nd_user *request = nd_user_new(name, NULL, 0);
    nd_metastore_propose_user(metastore, ND_COMMAND_USER_DELETE, request, NULL, done, arg);
}
