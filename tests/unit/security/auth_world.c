#include "tests/unit/security/auth_world.h"

#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/base64.h"

/* --- bcrypt, with a gate --- */

static struct {
    struct nd_mutex lock;
    struct nd_cond changed;
    struct bcrypts seen; /* guarded by lock */
    bool shut;           /* guarded by lock */
} gate = {.lock = {PTHREAD_MUTEX_INITIALIZER}, .changed = {PTHREAD_COND_INITIALIZER}};

bool __real_nd_password_matches(struct nd_bcrypt_room *room, const struct nd_password *password,
                                const char *hash);
bool __wrap_nd_password_matches(struct nd_bcrypt_room *room, const struct nd_password *password,
                                const char *hash);

bool __wrap_nd_password_matches(struct nd_bcrypt_room *room, const struct nd_password *password,
                                const char *hash)
{
    nd_mutex_lock(&gate.lock);
    gate.seen.begun++;
    gate.seen.running++;
    gate.seen.running_most = ND_MAX(gate.seen.running_most, gate.seen.running);
    nd_cond_broadcast(&gate.changed);
    while (gate.shut) {
        nd_cond_wait(&gate.changed, &gate.lock);
    }
    nd_mutex_unlock(&gate.lock);
    bool same = __real_nd_password_matches(room, password, hash);
    nd_mutex_lock(&gate.lock);
    gate.seen.running--;
    nd_cond_broadcast(&gate.changed);
    nd_mutex_unlock(&gate.lock);
    return same;
}

struct bcrypts bcrypts_seen(void)
{
    nd_mutex_lock(&gate.lock);
    struct bcrypts seen = gate.seen;
    nd_mutex_unlock(&gate.lock);
    return seen;
}

static void gate_set(bool shut)
{
    nd_mutex_lock(&gate.lock);
    gate.shut = shut;
    nd_cond_broadcast(&gate.changed);
    nd_mutex_unlock(&gate.lock);
}

void bcrypts_shut_gate(void)
{
    gate_set(true);
}

void bcrypts_open_gate(void)
{
    gate_set(false);
}

void bcrypts_wait_running(uint32_t count)
{
    nd_mutex_lock(&gate.lock);
    while (gate.seen.running != count) {
        nd_cond_wait(&gate.changed, &gate.lock);
    }
    nd_mutex_unlock(&gate.lock);
}

/* --- life --- */

void world_hash(const char *password, char out[ND_PASSWORD_HASH_SIZE_MAX + 1])
{
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();
    struct nd_password copy;

    ND_ASSERT(nd_password_copy(&copy, nd_slice_str(password)) &&
              nd_password_hash(room, &copy, 4, hand_env(), out));
    nd_bcrypt_room_free(room);
}

void world_open(struct world *world, uint32_t queued_max)
{
    char hash[ND_PASSWORD_HASH_SIZE_MAX + 1];
    struct nd_errmsg msg = {""};

    *world = (struct world){.users = users_new(), .metrics = nd_metrics_new()};
    nd_mutex_init(&world->lock);
    nd_cond_init(&world->changed);
    world->log_file = memfd_create("log", MFD_CLOEXEC);
    world->log = nd_log_new(world->log_file, ND_LOG_DEBUG, ND_LOG_TEXT);
    world_hash("alice-password", hash);
    users_put(world->users, "alice", hash, NULL);
    world_hash("bob-password", hash);
    users_put(world->users, "bob", hash, NULL);
    world_hash("root-password", hash);
    users_put_root(world->users, hash);
    const struct nd_auth_options options = {.metastore = world->users,
                                            .env = hand_env(),
                                            .log = world->log,
                                            .metrics = world->metrics,
                                            .cost = 4,
                                            .queued_max = queued_max};
    ND_ASSERT(nd_auth_new(&world->auth, &options, &msg) == ND_OK);
    nd_mutex_lock(&gate.lock);
    gate.seen = (struct bcrypts){0};
    gate.shut = false;
    nd_mutex_unlock(&gate.lock);
}

void world_close(struct world *world)
{
    bcrypts_open_gate();
    nd_auth_free(world->auth);
    for (size_t i = 0; i < ANSWERS_MAX; i++) {
        nd_user_unref(world->answers[i].user);
    }
    users_free(world->users);
    nd_log_free(world->log);
    (void)close(world->log_file);
    nd_metrics_free(world->metrics);
    nd_cond_release(&world->changed);
    nd_mutex_release(&world->lock);
}

/* --- calls and answers --- */

static void answer_put(struct answer *answer, enum nd_err err, struct nd_user *user,
                       const char *text)
{
    struct world *world = answer->world;

    nd_mutex_lock(&world->lock);
    ND_ASSERT(!answer->answered);
    answer->answered = true;
    answer->err = err;
    answer->user = user;
    (void)snprintf(answer->text, sizeof answer->text, "%s", text);
    nd_cond_broadcast(&world->changed);
    nd_mutex_unlock(&world->lock);
}

static void answer_checked(void *arg, enum nd_err err, struct nd_user *user)
{
    answer_put(arg, err, user, "");
}

void answer_verified(void *arg, enum nd_err err)
{
    answer_put(arg, err, NULL, "");
}

void answer_hashed(void *arg, enum nd_err err, const char *text, const char *hash)
{
    answer_put(arg, err, NULL, err == ND_OK ? hash : text);
}

struct answer *world_answer(struct world *world, uint32_t at)
{
    struct answer *answer = &world->answers[at];

    ND_ASSERT(at < ANSWERS_MAX);
    nd_mutex_lock(&world->lock);
    nd_user_unref(answer->user);
    *answer = (struct answer){.world = world};
    nd_mutex_unlock(&world->lock);
    return answer;
}

/* "Basic " and base64. */
static void header_make(char out[512], const char *name, const char *password)
{
    char text[300];
    int size = snprintf(text, sizeof text, "%s:%s", name, password);

    memcpy(out, "Basic ", 6);
    nd_base64_encode(nd_slice_make(text, (size_t)size), out + 6);
}

/* Counts how often it is asked. */
static void peer_put(void *asked, char *out, size_t out_size)
{
    *(uint32_t *)asked += 1;
    (void)snprintf(out, out_size, "192.0.2.7:1234");
}

bool world_check(struct world *world, uint32_t at, const char *name, const char *password)
{
    struct answer *answer = world_answer(world, at);
    struct nd_user *user = NULL;
    enum nd_err err = ND_OK;
    char header[512];

    header_make(header, name, password);
    const struct nd_auth_caller caller = {nd_slice_str(header), peer_put, &world->peers_asked};
    bool decided =
        nd_auth_check(world->auth, &caller, &err, &user, answer_checked, answer) == ND_AUTH_DECIDED;
    if (decided) {
        answer_put(answer, err, user, "");
    }
    return decided;
}

enum nd_err world_wait(struct world *world, uint32_t at)
{
    nd_mutex_lock(&world->lock);
    while (!world->answers[at].answered) {
        nd_cond_wait(&world->changed, &world->lock);
    }
    enum nd_err err = world->answers[at].err;
    nd_mutex_unlock(&world->lock);
    return err;
}

enum nd_err world_login(struct world *world, const char *name, const char *password)
{
    (void)world_check(world, ANSWERS_MAX - 1, name, password);
    return world_wait(world, ANSWERS_MAX - 1);
}

/* --- what was said --- */

char *world_log(struct world *world)
{
    char *text = nd_xcalloc(LOG_MAX, 1);
    ssize_t size = pread(world->log_file, text, LOG_MAX - 1, 0);

    ND_ASSERT(size >= 0 && size < LOG_MAX - 1);
    return text;
}

void world_wait_log(struct world *world, const char *part)
{
    for (bool found = false; !found;) {
        char *log = world_log(world);
        found = strstr(log, part) != NULL;
        nd_free(log);
        (void)sched_yield();
    }
}

double world_metric(struct world *world, const char *name, const char *labels)
{
    return nd_series_value(nd_metrics_counter(world->metrics, name, labels, ""));
}
