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

/* The next of a random log: all kinds, a few names, repeats, refusals, several proposers. */
struct command_source {
    uint64_t rand; /* the seed */
    uint64_t sequences[6];
};
struct nd_command command_next(struct command_source *source);

#endif
