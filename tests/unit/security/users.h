/* The users of a metadata that a test turns by hand, and a clock and randomness to go with it, all
 * for any thread. Defines what the security module asks of cluster/metastore.h. */
#ifndef ND_TESTS_UNIT_SECURITY_USERS_H
#define ND_TESTS_UNIT_SECURITY_USERS_H

#include "storage/base/env.h"

#include "cluster/metastore.h"

/* Both begin anew with users_new(). */
struct nd_metastore *users_new(void); /* caught up, empty, version 1 */
void users_free(struct nd_metastore *users);

/* A new record in place of the one before, with the next version. `pattern` NULL: no grant; else it
 * may produce to that. */
void users_put(struct nd_metastore *users, const char *name, const char *hash, const char *pattern);
void users_put_root(struct nd_metastore *users, const char *hash);
void users_delete(struct nd_metastore *users, const char *name);
uint64_t users_reads(struct nd_metastore *users); /* nd_metastore_user() calls */

/* Not yet caught up: unknown names are UNAVAILABLE, until users_catch_up(). */
void users_fall_behind(struct nd_metastore *users);
void users_catch_up(struct nd_metastore *users);

/* What the next proposals of a root are answered with; then it is made. ALREADY_EXISTS: somebody
 * else's root is there from then on. */
void users_refuse_seed(struct nd_metastore *users, enum nd_err err, uint32_t times);
/* The next one is made, and answered UNKNOWN_OUTCOME. */
void users_lose_seed_answer(struct nd_metastore *users);
/* The next one is answered (UNKNOWN_OUTCOME) by users_answer_seed() only. */
void users_hold_seed(struct nd_metastore *users);
void users_answer_seed(struct nd_metastore *users, enum nd_err err);
uint64_t users_seeds(struct nd_metastore *users); /* proposals so far */
/* Until there are `count` proposals and the last one is answered. */
void users_wait_seeds(struct nd_metastore *users, uint64_t count);

/* Clock and randomness only. */
const struct nd_env *hand_env(void);
void hand_env_advance_ms(uint64_t ms);

#endif
