/* Setup and teardown of a started node for the tests of this folder; `*state` is the struct
 * fixture. */
#ifndef ND_TESTS_UNIT_BROKER_FIXTURE_H
#define ND_TESTS_UNIT_BROKER_FIXTURE_H

#include "tests/support/nd_test.h"
#include "tests/unit/broker/node.h"

struct fixture {
    struct sim_env *sim;
    struct node node;
};

int fixture_setup(void **state); /* one topic "t" with one partition, index 0 */
int fixture_teardown(void **state);
/* Stop and open again, perhaps with other options. */
void fixture_restart(struct fixture *fixture);
/* The path of the only segment file of partition `partition` of topic `topic`. */
void fixture_segment_path(struct fixture *fixture, uint32_t topic, uint32_t partition, char *out,
                          size_t out_size);

#endif
