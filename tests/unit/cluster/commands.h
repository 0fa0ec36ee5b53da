/* Commands as a proposer makes them, and random logs of them. */
#ifndef ND_TESTS_CLUSTER_COMMANDS_H
#define ND_TESTS_CLUSTER_COMMANDS_H

#include "cluster/state.h"
#include "tests/support/nd_rand.h"

struct nd_command command_create(uint64_t sequence, const char *name, uint32_t partitions);
struct nd_command command_alter_partitions(uint64_t sequence, const char *name,
                                           uint32_t partitions);
struct nd_command command_delete(uint64_t sequence, const char *name);
struct nd_command command_register(uint64_t sequence, uint64_t member, const char *node_id);

/* About users: each holds a reference, for nd_command_release(). A pattern that is NULL: no grants;
 * else one grant of that pattern. */
struct nd_command command_user_create(uint64_t sequence, const char *name, const char *pattern);
struct nd_command command_user_seed_root(uint64_t sequence, const char *hash);
struct nd_command command_user_set_grants(uint64_t sequence, const char *name, const char *pattern);
struct nd_command command_user_set_password(uint64_t sequence, const char *name, const char *hash);
struct nd_command command_user_delete(uint64_t sequence, const char *name);
/* A copy with a reference of its own. */
struct nd_command command_again(const struct nd_command *command);

/* A user with one grant of each of `count` patterns in turn: produce, consume, create, and of every
 * NULL one admin. */
struct nd_user *user_of(const char *name, const char *hash, const char *const *patterns,
                        uint32_t count);

/* The next of a random log: all kinds, a few names, repeats, refusals, several proposers. To be
 * released. */
struct command_source {
    uint64_t rand; /* the seed */
    uint64_t sequences[6];
};
struct nd_command command_next(struct command_source *source);
/* The same, of users alone. */
struct nd_command command_next_user(struct command_source *source);

#endif
