/* Every call of the disk fails once: the n-th write, sync, rename, read, ... of a seeded run
 * answers IO, NO_SPACE, or stops short. The node goes on or refuses, heals without a restart once
 * the fault is over, and after a power cut shows what its clients were told.
 *
 *   sim_faults [--seed N] [--operations N] [--stride N] [--aging 0|1] [--recreate 0|1]
 *
 * Prints the number of faults and their I/O sites. Exit 1 with the seed and the place of the first
 * problem. */
#include <stdio.h>

#include "tests/sim/args.h"
#include "tests/sim/workload.h"

static const struct {
    enum sim_call call;
    const char *name;
} calls[] = {
    {SIM_PWRITE, "pwrite"},       {SIM_SYNC, "sync"},           {SIM_SYNC_FS, "sync_fs"},
    {SIM_SYNC_DIR, "sync_dir"},   {SIM_ZERO_FILL, "zero_fill"}, {SIM_RENAME, "rename"},
    {SIM_UNLINK, "unlink"},       {SIM_OPEN, "open"},           {SIM_PREAD, "pread"},
    {SIM_TRUNCATE, "truncate"},   {SIM_MKDIR, "mkdir"},         {SIM_DROP_CACHE, "drop_cache"},
    {SIM_FILE_SIZE, "file_size"}, {SIM_STAT, "stat"},           {SIM_LIST, "list"},
    {SIM_SPACE, "space"},
};
static const struct {
    enum sim_fault fault;
    const char *name;
} faults[] = {
    {SIM_FAULT_IO, "IO"}, {SIM_FAULT_NO_SPACE, "NO_SPACE"}, {SIM_FAULT_SHORT_WRITE, "short write"}};

static struct sim_sites sites;

/* One fault; false in *fired_out: the run has fewer such calls. */
static bool fail_once(const struct sim_args *args, size_t call, size_t fault, uint64_t nth,
                      bool *fired_out)
{
    struct workload *workload = workload_new(args->seed);
    struct sim_env *sim = workload_node(workload)->sim;

    if (args->aging) {
        workload_make_aging(workload);
    }
    if (args->recreate) {
        workload_make_recreating(workload);
    }
    workload_expect_faults(workload, true);
    sim_env_fail_nth(sim, calls[call].call, nth, faults[fault].fault);
    workload_run(workload, args->operations);
    *fired_out = sim_env_fault_fired(sim);
    if (*fired_out) {
        sim_sites_add(&sites, sim_env_struck(sim));
    }
    sim_env_fail_clear(sim);
    workload_expect_faults(workload, false);
    workload_heal(workload);
    workload_cut(workload, args->seed ^ nth);
    if (workload_reopen(workload)) {
        workload_check(workload);
    }
    const char *problem = workload_ledger(workload)->problem;
    if (problem[0] != '\0') {
        printf("seed %llu, %s number %llu answers %s: %s\n", (unsigned long long)args->seed,
               calls[call].name, (unsigned long long)nth, faults[fault].name, problem);
    }
    bool good = problem[0] == '\0';
    workload_free(workload);
    return good;
}

int main(int argc, char **argv)
{
    struct sim_args args = {.seed = 1, .operations = 300, .stride = 1};
    uint64_t points = 0;

    sim_args_parse(&args, argc, argv);
    for (size_t call = 0; call < sizeof calls / sizeof calls[0]; call++) {
        for (size_t fault = 0; fault < sizeof faults / sizeof faults[0]; fault++) {
            bool fired = true;
            if (faults[fault].fault == SIM_FAULT_SHORT_WRITE && calls[call].call != SIM_PWRITE) {
                continue;
            }
            for (uint64_t nth = 1; fired; nth += args.stride) {
                if (!fail_once(&args, call, fault, nth, &fired)) {
                    return 1;
                }
                points += fired;
            }
        }
    }
    printf("seed %llu: %llu failed calls, every answer kept\n", (unsigned long long)args.seed,
           (unsigned long long)points);
    sim_sites_report(&sites);
    return points > 100 / args.stride ? 0 : 1; /* fewer: the run did nothing */
}
