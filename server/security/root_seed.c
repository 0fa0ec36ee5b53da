/* Everything happens on one thread; hash and proposal are answered elsewhere, into its inbox. */
#include "server/security/root_seed.h"

#include "storage/base/alloc.h"
#include "storage/base/inbox.h"
#include "storage/base/wipe.h"

#include "server/security/grants.h"

static const char created_text[] = "root account created";
static const char perhaps_text[] = "root account perhaps created";

enum { RANDOM_SIZE = 24, RANDOM_TEXT_SIZE = RANDOM_SIZE / 3 * 4 };

enum phase { WAITING, LOOKING, HASHING, PROPOSING, OVER };

struct answer {
    struct nd_msg msg;
    enum nd_err err;
};

struct nd_root_seed {
    struct nd_auth *auth;
    struct nd_metastore *metastore;
    const struct nd_env *env;
    struct nd_log *log;
    uint64_t retry_ns;
    struct nd_inbox inbox;
    struct nd_msg caught_up;
    struct answer hashed, proposed;
    struct nd_thread thread;
    _Atomic bool stopping;
    /* The thread's: */
    enum phase phase;
    uint64_t look_at_ns;
    bool made_up; /* the password is ours, so somebody must be told */
    struct nd_password password;
    /* Of the hash's answer until it is in the inbox, then the thread's. */
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1];
};

static void password_make_up(struct nd_root_seed *seed)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t bytes[RANDOM_SIZE];

    seed->made_up = true;
    seed->env->random(seed->env->impl, bytes, sizeof bytes);
    memset(&seed->password, 0, sizeof seed->password);
    for (size_t i = 0; i < RANDOM_TEXT_SIZE; i++) {
        const uint8_t *three = &bytes[i / 4 * 3];
        uint32_t bits = (uint32_t)three[0] << 16 | (uint32_t)three[1] << 8 | three[2];
        seed->password.text[i] = digits[bits >> (18 - 6 * (i % 4)) & 63];
    }
    nd_wipe(bytes, sizeof bytes);
}

static void end(struct nd_root_seed *seed)
{
    nd_password_wipe(&seed->password);
    seed->phase = OVER;
}

static void look_again(struct nd_root_seed *seed)
{
    seed->phase = LOOKING;
    seed->look_at_ns = nd_env_posix()->mono_ns(nd_env_posix()->impl) + seed->retry_ns;
}

static bool is_stopping(struct nd_root_seed *seed)
{
    /* acquire: with the release of the stop, whose wake-up ends the wait */
    return atomic_load_explicit(&seed->stopping, memory_order_acquire);
}

/* --- answers: the first half on a foreign thread, the second on ours --- */

static void on_hash(void *arg, enum nd_err err, const char *text, const char *hash)
{
    struct nd_root_seed *seed = arg;

    (void)text;
    if (err == ND_OK) {
        memcpy(seed->hash, hash, strlen(hash) + 1);
    }
    seed->hashed.err = err;
    nd_inbox_push(&seed->inbox, &seed->hashed.msg);
}

static void on_user(void *arg, enum nd_err err, const char *text, const struct nd_user *user)
{
    struct nd_root_seed *seed = arg;

    (void)text;
    (void)user;
    seed->proposed.err = err;
    nd_inbox_push(&seed->inbox, &seed->proposed.msg);
}

/* `event` is followed by the password when nobody else can know it. */
static void announce(struct nd_root_seed *seed, const char *event)
{
    if (seed->made_up) {
        nd_log(seed->log, ND_LOG_WARN, "audit", event,
               "actor=narad subject=admin outcome=ok password=%s note=\"shown this once\"",
               seed->password.text);
    } else {
        nd_log(seed->log, ND_LOG_WARN, "audit", event, "actor=narad subject=admin outcome=ok");
    }
    end(seed);
}

/* An answer may be lost on its way: the hash tells whose proposal counted. */
static bool is_ours(const struct nd_root_seed *seed, struct nd_user *const *users, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (users[i]->root) {
            return strcmp(users[i]->hash, seed->hash) == 0;
        }
    }
    return false;
}

static bool has_admin(struct nd_user *const *users, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (nd_user_is_admin(users[i])) {
            return true;
        }
    }
    return false;
}

/* Users were made while security was off, none of them an admin: there never will be a root. */
static void warn_of_no_admin(struct nd_root_seed *seed)
{
    nd_log(seed->log, ND_LOG_WARN, "audit", "no user is an admin",
           "actor=narad subject=admin outcome=failed note=\"users cannot be managed; with security "
           "off, give one of them the grant admin\"");
}

static void propose(struct nd_root_seed *seed)
{
    seed->phase = PROPOSING;
    nd_metastore_seed_root(seed->metastore, seed->hash, on_user, seed);
}

static void look(struct nd_root_seed *seed)
{
    struct nd_user **users = NULL;
    size_t count = nd_metastore_users(seed->metastore, &users);
    bool ours = is_ours(seed, users, count), admin = has_admin(users, count);

    for (size_t i = 0; i < count; i++) {
        nd_user_unref(users[i]);
    }
    nd_free(users);
    if (ours) {
        announce(seed, created_text);
    } else if (count > 0) {
        if (!admin) {
            warn_of_no_admin(seed);
        }
        end(seed);
    } else if (seed->hash[0] != '\0') {
        propose(seed);
    } else {
        seed->phase = HASHING;
        nd_auth_hash(seed->auth, nd_slice_str(seed->password.text), on_hash, seed);
    }
}

static void caught_up_run(struct nd_msg *msg, void *owner)
{
    struct nd_root_seed *seed = owner;

    (void)msg;
    seed->phase = LOOKING;
    seed->look_at_ns = 0;
}

static void hashed_run(struct nd_msg *msg, void *owner)
{
    struct nd_root_seed *seed = owner;

    (void)msg;
    if (seed->hashed.err == ND_OK && !is_stopping(seed)) {
        propose(seed);
    } else {
        look_again(seed);
    }
}

static void proposed_run(struct nd_msg *msg, void *owner)
{
    struct nd_root_seed *seed = owner;

    (void)msg;
    if (seed->proposed.err == ND_OK) {
        announce(seed, created_text);
    } else if (seed->proposed.err == ND_ERR_UNKNOWN_OUTCOME && is_stopping(seed)) {
        announce(seed, perhaps_text); /* nobody will look again */
    } else {
        look_again(seed);
        if (seed->proposed.err == ND_ERR_ALREADY_EXISTS) {
            seed->look_at_ns = 0; /* whose? */
        }
    }
}

/* --- the thread --- */

static void thread_run(void *arg)
{
    struct nd_root_seed *seed = arg;
    const struct nd_env *real = nd_env_posix(); /* what nd_inbox_wait() counts by */

    nd_metastore_when_caught_up(seed->metastore, &seed->inbox, &seed->caught_up);
    while (!is_stopping(seed)) {
        (void)nd_inbox_run(&seed->inbox, seed);
        if (seed->phase == OVER) {
            break;
        }
        if (seed->phase == LOOKING && real->mono_ns(real->impl) >= seed->look_at_ns) {
            look(seed);
        }
        nd_inbox_wait(&seed->inbox, seed->phase == LOOKING ? seed->look_at_ns : UINT64_MAX);
    }
}

struct nd_root_seed *nd_root_seed_start(struct nd_auth *auth, const struct nd_auth_options *options,
                                        const char *password)
{
    struct nd_root_seed *seed = nd_xcalloc(1, sizeof *seed);

    seed->auth = auth;
    seed->metastore = options->metastore;
    seed->env = options->env;
    seed->log = options->log;
    seed->retry_ns = (uint64_t)options->seed_retry_ms * 1000000;
    seed->caught_up.run = caught_up_run;
    seed->hashed.msg.run = hashed_run;
    seed->proposed.msg.run = proposed_run;
    nd_list_init(&seed->caught_up.link);
    nd_list_init(&seed->hashed.msg.link);
    nd_list_init(&seed->proposed.msg.link);
    nd_inbox_init(&seed->inbox);
    if (password == NULL || password[0] == '\0') {
        password_make_up(seed);
    } else {
        ND_ASSERT(nd_password_copy(&seed->password, nd_slice_str(password)));
    }
    if (!nd_thread_start(&seed->thread, "root-seed", thread_run, seed)) {
        nd_root_seed_free(seed);
        return NULL;
    }
    return seed;
}

void nd_root_seed_stop(struct nd_root_seed *seed)
{
    /* release: see the thread's load */
    atomic_store_explicit(&seed->stopping, true, memory_order_release);
    nd_inbox_wake(&seed->inbox);
    nd_thread_join(&seed->thread);
}

void nd_root_seed_free(struct nd_root_seed *seed)
{
    /* What was answered after the thread's end is still told: nobody else knows the password. */
    (void)nd_inbox_run(&seed->inbox, seed);
    nd_inbox_release(&seed->inbox);
    nd_wipe(seed, sizeof *seed);
    nd_free(seed);
}
