#include "tests/unit/security/users.h"

#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

enum { USERS_MAX = 64 };

struct nd_metastore {
    struct nd_mutex lock;
    struct nd_cond changed;
    struct nd_user *users[USERS_MAX]; /* guarded by lock, as all below */
    size_t count;
    bool caught_up;
    struct nd_inbox *inbox;
    struct nd_msg *waiter;
    enum nd_err seed_err;
    uint32_t seed_refusals;
    bool seed_answer_lost, seed_held;
    uint64_t seeds, seeds_answered;
    nd_user_done_fn *held_done;
    void *held_arg;
    _Atomic uint64_t reads;
    _Atomic uint64_t version;
};

/* --- clock and randomness --- */

static _Atomic uint64_t clock_ns = 1000000000000;
static _Atomic uint64_t random_state = 1;

static uint64_t hand_mono_ns(void *impl)
{
    (void)impl;
    return atomic_load(&clock_ns);
}

static void hand_random(void *impl, void *data, size_t size)
{
    uint8_t *bytes = data;

    (void)impl;
    for (size_t i = 0; i < size; i++) {
        uint64_t x = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15u);
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        bytes[i] = (uint8_t)(x ^ x >> 31);
    }
}

const struct nd_env *hand_env(void)
{
    static const struct nd_env env = {.mono_ns = hand_mono_ns, .random = hand_random};
    return &env;
}

void hand_env_advance_ms(uint64_t ms)
{
    atomic_fetch_add(&clock_ns, ms * 1000000);
}

/* --- the users, turned by hand --- */

struct nd_metastore *users_new(void)
{
    struct nd_metastore *users = nd_xcalloc(1, sizeof *users);

    nd_mutex_init(&users->lock);
    nd_cond_init(&users->changed);
    users->caught_up = true;
    atomic_init(&users->version, 1);
    return users;
}

void users_free(struct nd_metastore *users)
{
    for (size_t i = 0; i < users->count; i++) {
        nd_user_unref(users->users[i]);
    }
    nd_cond_release(&users->changed);
    nd_mutex_release(&users->lock);
    nd_free(users);
}

/* Where it is, or the place behind the last. */
static size_t place_of(const struct nd_metastore *users, struct nd_slice name)
{
    size_t at = 0;

    while (at < users->count && !nd_slice_equal(nd_slice_str(users->users[at]->name), name)) {
        at++;
    }
    return at;
}

static void put_locked(struct nd_metastore *users, struct nd_user *user, const char *hash)
    ND_REQUIRES(users->lock)
{
    size_t at = place_of(users, nd_slice_str(user->name)), size = strlen(hash) + 1;

    ND_ASSERT(at < USERS_MAX && size <= sizeof user->hash);
    memcpy(user->hash, hash, size);
    if (at < users->count) {
        nd_user_unref(users->users[at]);
    } else {
        users->count++;
    }
    users->users[at] = user;
    atomic_fetch_add(&users->version, 1);
}

void users_put(struct nd_metastore *users, const char *name, const char *hash, const char *pattern)
{
    char text[ND_USER_PATTERN_SIZE_MAX + 1], *patterns[] = {text};
    const struct nd_grant grant = {ND_ACTION_PRODUCE, 1, patterns};

    (void)snprintf(text, sizeof text, "%s", pattern == NULL ? "" : pattern);
    nd_mutex_lock(&users->lock);
    put_locked(users, nd_user_new(name, &grant, pattern == NULL ? 0 : 1), hash);
    nd_mutex_unlock(&users->lock);
}

static void put_root_locked(struct nd_metastore *users, const char *hash) ND_REQUIRES(users->lock)
{
    struct nd_user *root = nd_user_new("admin", NULL, 0);

    root->root = true;
    put_locked(users, root, hash);
}

void users_put_root(struct nd_metastore *users, const char *hash)
{
    nd_mutex_lock(&users->lock);
    put_root_locked(users, hash);
    nd_mutex_unlock(&users->lock);
}

void users_delete(struct nd_metastore *users, const char *name)
{
    nd_mutex_lock(&users->lock);
    size_t at = place_of(users, nd_slice_str(name));
    ND_ASSERT(at < users->count);
    nd_user_unref(users->users[at]);
    users->users[at] = users->users[--users->count];
    atomic_fetch_add(&users->version, 1);
    nd_mutex_unlock(&users->lock);
}

uint64_t users_reads(struct nd_metastore *users)
{
    return atomic_load(&users->reads);
}

void users_fall_behind(struct nd_metastore *users)
{
    nd_mutex_lock(&users->lock);
    users->caught_up = false;
    nd_mutex_unlock(&users->lock);
}

void users_catch_up(struct nd_metastore *users)
{
    nd_mutex_lock(&users->lock);
    users->caught_up = true;
    if (users->waiter != NULL) {
        nd_inbox_push(users->inbox, users->waiter);
        users->waiter = NULL;
    }
    nd_mutex_unlock(&users->lock);
}

void users_refuse_seed(struct nd_metastore *users, enum nd_err err, uint32_t times)
{
    nd_mutex_lock(&users->lock);
    users->seed_err = err;
    users->seed_refusals = times;
    nd_mutex_unlock(&users->lock);
}

void users_lose_seed_answer(struct nd_metastore *users)
{
    nd_mutex_lock(&users->lock);
    users->seed_answer_lost = true;
    nd_mutex_unlock(&users->lock);
}

void users_hold_seed(struct nd_metastore *users)
{
    nd_mutex_lock(&users->lock);
    users->seed_held = true;
    nd_mutex_unlock(&users->lock);
}

void users_answer_seed(struct nd_metastore *users, enum nd_err err)
{
    users->held_done(users->held_arg, err, "", NULL);
}

uint64_t users_seeds(struct nd_metastore *users)
{
    nd_mutex_lock(&users->lock);
    uint64_t seeds = users->seeds;
    nd_mutex_unlock(&users->lock);
    return seeds;
}

void users_wait_seeds(struct nd_metastore *users, uint64_t count)
{
    nd_mutex_lock(&users->lock);
    while (users->seeds_answered < count) {
        nd_cond_wait(&users->changed, &users->lock);
    }
    nd_mutex_unlock(&users->lock);
}

/* --- cluster/metastore.h --- */

uint64_t nd_metastore_users_version(const struct nd_metastore *users)
{
    return atomic_load(&users->version);
}

enum nd_err nd_metastore_user(struct nd_metastore *users, struct nd_slice name,
                              struct nd_user **out)
{
    enum nd_err err = ND_OK;

    atomic_fetch_add(&users->reads, 1);
    nd_mutex_lock(&users->lock);
    size_t at = place_of(users, name);
    if (at < users->count) {
        *out = nd_user_ref(users->users[at]);
    } else {
        err = users->caught_up ? ND_ERR_NOT_FOUND : ND_ERR_UNAVAILABLE;
    }
    nd_mutex_unlock(&users->lock);
    return err;
}

size_t nd_metastore_users(struct nd_metastore *users, struct nd_user ***out)
{
    nd_mutex_lock(&users->lock);
    size_t count = users->count;
    *out = nd_xcalloc(count + 1, sizeof(struct nd_user *));
    for (size_t i = 0; i < count; i++) {
        (*out)[i] = nd_user_ref(users->users[i]);
    }
    nd_mutex_unlock(&users->lock);
    return count;
}

void nd_metastore_when_caught_up(struct nd_metastore *users, struct nd_inbox *inbox,
                                 struct nd_msg *msg)
{
    nd_mutex_lock(&users->lock);
    if (users->caught_up) {
        nd_inbox_push(inbox, msg);
    } else {
        users->inbox = inbox;
        users->waiter = msg;
    }
    nd_mutex_unlock(&users->lock);
}

void nd_metastore_seed_root(struct nd_metastore *users, const char *hash, nd_user_done_fn *done,
                            void *arg)
{
    enum nd_err err = ND_OK;

    nd_mutex_lock(&users->lock);
    users->seeds++;
    if (users->seed_refusals > 0) {
        users->seed_refusals--;
        err = users->seed_err;
        if (err == ND_ERR_ALREADY_EXISTS) {
            put_root_locked(users, "$2b$04$of somebody else");
        }
    } else if (users->count > 0) {
        err = ND_ERR_ALREADY_EXISTS;
    } else {
        put_root_locked(users, hash);
        err = users->seed_answer_lost ? ND_ERR_UNKNOWN_OUTCOME : ND_OK;
    }
    bool held = users->seed_held;
    users->held_done = done;
    users->held_arg = arg;
    nd_mutex_unlock(&users->lock);
    if (!held) {
        done(arg, err, "", NULL);
    }
    nd_mutex_lock(&users->lock);
    users->seeds_answered++;
    nd_cond_broadcast(&users->changed);
    nd_mutex_unlock(&users->lock);
}
