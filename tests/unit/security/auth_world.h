/* An nd_auth over users that a test turns by hand, and what is known of its bcrypts: they are
 * counted, and held back while the gate is shut. */
#ifndef ND_TESTS_UNIT_SECURITY_AUTH_WORLD_H
#define ND_TESTS_UNIT_SECURITY_AUTH_WORLD_H

#include "storage/base/thread.h"

#include "server/security/auth.h"
#include "tests/unit/security/users.h"

enum { ANSWERS_MAX = 64, LOG_MAX = 1 << 20 };

/* One call that is answered later. */
struct answer {
    struct world *world;
    bool answered;
    enum nd_err err;
    struct nd_user *user;
    char text[256]; /* of a hash: the text of the error, or the hash */
};

struct world {
    struct nd_metastore *users;
    struct nd_metrics *metrics;
    struct nd_log *log;
    int log_file;
    struct nd_auth *auth;
    uint32_t peers_asked; /* by world_check() */
    struct nd_mutex lock;
    struct nd_cond changed;
    struct answer answers[ANSWERS_MAX]; /* guarded by lock */
};

/* cost 4; users "alice" (password "alice-password"), "bob" ("bob-password") and root "admin"
 * ("root-password"). `queued_max` 0: the default. */
void world_open(struct world *world, uint32_t queued_max);
void world_close(struct world *world);
/* A hash of the real bcrypt, not counted. `out` as of nd_password_hash(). */
void world_hash(const char *password, char out[ND_PASSWORD_HASH_SIZE_MAX + 1]);

/* The answer goes to answers[at], at once or later. Returns whether it was decided at once. */
bool world_check(struct world *world, uint32_t at, const char *name, const char *password);
enum nd_err world_wait(struct world *world, uint32_t at);
/* Both, the user let go of. */
enum nd_err world_login(struct world *world, const char *name, const char *password);
/* What nd_auth_verify() and nd_auth_hash() answer into &answers[at]. */
struct answer *world_answer(struct world *world, uint32_t at);
void answer_verified(void *arg, enum nd_err err);
void answer_hashed(void *arg, enum nd_err err, const char *text, const char *hash);

/* All that was logged, ended by a NUL; the caller's. */
char *world_log(struct world *world);
/* Until it holds `part`. */
void world_wait_log(struct world *world, const char *part);
double world_metric(struct world *world, const char *name, const char *labels);

/* --- bcrypt (of verifications) --- */
struct bcrypts {
    uint32_t begun, running, running_most;
};
struct bcrypts bcrypts_seen(void); /* since world_open() */
void bcrypts_shut_gate(void);
void bcrypts_open_gate(void);
void bcrypts_wait_running(uint32_t count);

#endif
