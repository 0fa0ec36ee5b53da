/* Command line of the simulator's programs. */
#ifndef ND_TESTS_SIM_ARGS_H
#define ND_TESTS_SIM_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/sim_env.h"

struct sim_args {
    uint64_t seed;
    uint32_t operations; /* of a run */
    uint64_t stride;     /* every how many-th point is tried */
    uint32_t second;     /* second cuts for each first one */
    bool sick;           /* with a partition whose log takes no write */
    bool tight;          /* starts have little memory */
    bool aging;          /* records age, idle partitions are closed */
    bool recreate;       /* topics are deleted and made again all the time */
    bool second_all;     /* a second cut at every change of the recovery */
};

/* Exits with a message when an argument is not known. */
void sim_args_parse(struct sim_args *args, int argc, char **argv);

/* The set of I/O sites (sim_env_struck) that a program struck. */
struct sim_sites {
    char (*names)[SIM_SITE_MAX];
    uint32_t count;
};

void sim_sites_add(struct sim_sites *sites, const char *name);
/* Prints how many and, one a line, which; frees them. */
void sim_sites_report(struct sim_sites *sites);

#endif
