#include "tests/sim/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"

void sim_args_parse(struct sim_args *args, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        char *end;
        unsigned long long value = strtoull(argv[i + 1], &end, 10);
        if (*end != '\0') {
            argc = 0;
        } else if (strcmp(argv[i], "--seed") == 0) {
            args->seed = value;
        } else if (strcmp(argv[i], "--operations") == 0) {
            args->operations = (uint32_t)value;
        } else if (strcmp(argv[i], "--stride") == 0 && value > 0) {
            args->stride = value;
        } else if (strcmp(argv[i], "--second") == 0) {
            args->second = (uint32_t)value;
        } else if (strcmp(argv[i], "--sick") == 0) {
            args->sick = value != 0;
        } else if (strcmp(argv[i], "--tight") == 0) {
            args->tight = value != 0;
        } else if (strcmp(argv[i], "--aging") == 0) {
            args->aging = value != 0;
        } else if (strcmp(argv[i], "--recreate") == 0) {
            args->recreate = value != 0;
        } else if (strcmp(argv[i], "--second-all") == 0) {
            args->second_all = value != 0;
        } else {
            argc = 0;
        }
    }
    if (argc % 2 == 0) {
        fprintf(stderr, "usage: [--seed N] [--operations N] [--stride N] [--second N] [--sick 0|1] "
                        "[--tight 0|1] [--aging 0|1] [--recreate 0|1] [--second-all 0|1]\n");
        exit(2);
    }
}

void sim_sites_add(struct sim_sites *sites, const char *name)
{
    for (uint32_t i = 0; i < sites->count; i++) {
        if (strcmp(sites->names[i], name) == 0) {
            return;
        }
    }
    sites->names = nd_xrealloc(sites->names, (sites->count + 1) * sizeof *sites->names);
    snprintf(sites->names[sites->count], sizeof *sites->names, "%s", name);
    sites->count += 1;
}

void sim_sites_report(struct sim_sites *sites)
{
    printf("%u distinct I/O sites:\n", sites->count);
    for (uint32_t i = 0; i < sites->count; i++) {
        printf("  %s\n", sites->names[i]);
    }
    nd_free(sites->names);
}
