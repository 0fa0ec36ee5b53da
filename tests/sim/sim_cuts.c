/* A power cut at every change of the disk (write, sync, rename, unlink, ...) of a seeded run, and a
 * second cut during the recovery from it. After each the node must start and show what its clients
 * were told.
 *
 *   sim_cuts [--seed N] [--operations N] [--stride N] [--second N] [--sick 0|1] [--tight 0|1]
 *            [--aging 0|1] [--recreate 0|1] [--second-all 0|1]
 *
 * Prints the number of cut points and the I/O sites they were at. Exit 1 with the seed and the
 * point of the first problem. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/args.h"
#include "tests/sim/workload.h"
#include "tests/support/nd_rand.h"

static struct sim_sites sites;

static struct workload *workload_of(const struct sim_args *args)
{
    struct workload *workload = workload_new(args->seed);

    if (args->sick) {
        workload_make_sick(workload);
    }
    if (args->tight) {
        workload_make_tight(workload);
    }
    if (args->aging) {
        workload_make_aging(workload);
    }
    if (args->recreate) {
        workload_make_recreating(workload);
    }
    return workload;
}

static bool report(struct workload *workload, const struct sim_args *args, uint64_t cut,
                   uint64_t second)
{
    const struct ledger *ledger = workload_ledger(workload);

    if (ledger->problem[0] == '\0') {
        return true;
    }
    printf("seed %llu, cut at change %llu, second cut at %llu: %s\n",
           (unsigned long long)args->seed, (unsigned long long)cut, (unsigned long long)second,
           ledger->problem);
    return false;
}

/* Run to the cut; false: the run was over before it. */
static bool run_to(struct workload *workload, const struct sim_args *args, uint64_t cut)
{
    struct sim_env *sim = workload_node(workload)->sim;

    sim_env_cut_at(sim, cut);
    workload_run(workload, args->operations);
    if (!sim_env_is_cut(sim)) {
        return false;
    }
    sim_sites_add(&sites, sim_env_struck(workload_node(workload)->sim));
    workload_cut(workload, args->seed ^ cut);
    return true;
}

/* One cut, the recovery, the checks. *changes_out: changes of the disk that the recovery made. */
static bool cut_once(const struct sim_args *args, uint64_t cut, bool *over_out,
                     uint64_t *changes_out)
{
    struct workload *workload = workload_of(args);
    struct sim_env *sim = workload_node(workload)->sim;

    *over_out = !run_to(workload, args, cut);
    if (*over_out && args->sick && !workload_restated(workload)) {
        ledger_problem(workload_ledger(workload), "the run restated nothing");
    }
    if (*over_out && args->tight && !workload_relieved(workload)) {
        ledger_problem(workload_ledger(workload), "no start flushed while replaying");
    }
    if (*over_out && args->aging && !workload_aged(workload)) {
        ledger_problem(workload_ledger(workload), "the run aged or closed too little");
    }
    if (*over_out && args->recreate && !workload_recreates(workload)) {
        ledger_problem(workload_ledger(workload), "the run deleted too little: %s",
                       workload_recreates_text(workload));
    }
    if (!*over_out) {
        uint64_t before = sim_env_changes(sim);
        if (workload_reopen(workload)) {
            *changes_out = sim_env_changes(sim) - before;
            workload_check(workload);
        }
    }
    bool good = report(workload, args, cut, 0);
    workload_free(workload);
    return good;
}

static bool cut_twice(const struct sim_args *args, uint64_t cut, uint64_t second)
{
    struct workload *workload = workload_of(args);
    struct sim_env *sim = workload_node(workload)->sim;

    if (run_to(workload, args, cut)) {
        sim_env_cut_at(sim, second);
        (void)workload_reopen(workload);
        if (sim_env_is_cut(sim)) {
            sim_sites_add(&sites, sim_env_struck(sim));
            workload_cut(workload, second);
            if (workload_reopen(workload)) {
                workload_check(workload);
            }
        }
    }
    bool good = report(workload, args, cut, second);
    workload_free(workload);
    return good;
}

/* Second cuts after a first one whose recovery makes `changes`; how many, 0: a problem. */
static uint64_t cut_during_recovery(const struct sim_args *args, uint64_t cut, uint64_t changes,
                                    uint64_t *random)
{
    uint64_t count = args->second_all ? changes : args->second;

    for (uint64_t i = 1; i <= count; i++) {
        if (!cut_twice(args, cut, args->second_all ? i : 1 + nd_rand_below(random, changes))) {
            return 0;
        }
    }
    return count;
}

int main(int argc, char **argv)
{
    struct sim_args args = {.seed = 1, .operations = 300, .stride = 1, .second = 2};
    uint64_t points = 0, seconds = 0, random;
    bool over = false;

    sim_args_parse(&args, argc, argv);
    random = args.seed;
    for (uint64_t cut = 1;; cut += args.stride) {
        uint64_t changes = 0, tried = 0;
        if (!cut_once(&args, cut, &over, &changes)) {
            return 1;
        }
        if (over) {
            break;
        }
        points += 1;
        if (changes > 0 && (args.second_all || args.second > 0)) {
            tried = cut_during_recovery(&args, cut, changes, &random);
            if (tried == 0) {
                return 1;
            }
        }
        seconds += tried;
    }
    printf("seed %llu: %llu cut points, %llu second cuts, every answer kept\n",
           (unsigned long long)args.seed, (unsigned long long)points, (unsigned long long)seconds);
    sim_sites_report(&sites);
    return points > 100 / args.stride ? 0 : 1; /* fewer: the run did nothing */
}
