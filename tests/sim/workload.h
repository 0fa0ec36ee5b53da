/* A seeded run of produces, polls, acks, nacks, extends, waits and restarts over the whole stack on
 * the simulated disk, and the checks of what a node shows afterwards. */
#ifndef ND_TESTS_SIM_WORKLOAD_H
#define ND_TESTS_SIM_WORKLOAD_H

#include "tests/sim/ledger.h"
#include "tests/unit/broker/node.h"

struct workload;

struct workload *workload_new(uint64_t seed);
void workload_free(struct workload *workload);
struct node *workload_node(struct workload *workload);
struct ledger *workload_ledger(struct workload *workload);

/* The log of one partition takes no write for most of the run, and perhaps for ever. */
void workload_make_sick(struct workload *workload);
/* Were records restated in the run (F3)? */
bool workload_restated(const struct workload *workload);
/* Tails grow, and a start has memory for few of them. */
void workload_make_tight(struct workload *workload);
/* Did a start flush while replaying (W8)? */
bool workload_relieved(const struct workload *workload);
/* Records of two topics age within seconds and idle partitions are closed. */
void workload_make_aging(struct workload *workload);
/* Did records age, in open and in closed partitions, and were partitions closed? */
bool workload_aged(const struct workload *workload);
/* Two topics are deleted and made again all the time. */
void workload_make_recreating(struct workload *workload);
/* Were there deletes of every sort: of topics with requests under way, with unflushed tails, with a
 * flush under way, while the node was stopped, twice in a row, and requests that came too late? */
bool workload_recreates(const struct workload *workload);
const char *workload_recreates_text(const struct workload *workload); /* how many of each */
/* Start the node and do `operations`; stops early when the power is cut or a check fails. */
void workload_run(struct workload *workload, uint32_t operations);
/* The power is gone or goes now, then comes back: the node's memory is gone. */
void workload_cut(struct workload *workload, uint64_t seed);
/* Start the node again; a node that refuses to start is a problem, unless the power was cut
 * meanwhile (then false). */
bool workload_reopen(struct workload *workload);
/* Calls fail during the run: a start in its middle may be refused. */
void workload_expect_faults(struct workload *workload, bool faults);
/* The fault is over: without a restart the node must take messages again. */
void workload_heal(struct workload *workload);
/* Read and take everything: every accepted message is there exactly once, acked ones are not
 * delivered, nothing was invented. Then the node must still do its work. */
void workload_check(struct workload *workload);

#endif
