/* What sim_env.c (the test's side: clock, faults, cuts) and sim_calls.c (the nd_env of the code
 * under test) share. */
#ifndef ND_TESTS_SUPPORT_SIM_IMPL_H
#define ND_TESTS_SUPPORT_SIM_IMPL_H

#include "tests/support/sim_env.h"
#include "tests/support/sim_tree.h"

enum { NS_PER_MS = 1000000, HANDLES_MAX = 4096 };

struct handle {
    struct sim_node *node; /* NULL: closed */
    int number;
    int flags;
    bool locks;
    char *path;
};

/* A fault that waits for its call. */
struct armed {
    bool on, lasts, fired;
    enum sim_call call;
    enum sim_fault fault;
    uint64_t left; /* calls to go; 1: the next */
};

struct sim_env {
    struct nd_env env;
    struct sim_tree tree;
    uint64_t env_random, disk_random; /* states of nd_rand(), one for the code, one for the disk */
    uint64_t mono_ns, boot_ns, wall_ns;
    uint64_t space_total;
    bool direct;
    FILE *trace;
    struct handle *handles;
    size_t handles_count;
    int number_next, number_first; /* file numbers; those before `first` are of an earlier life */
    uint64_t calls[SIM_CALL_COUNT + 1];
    uint64_t changes, cut_at;
    bool is_cut;
    struct armed armed;
    const char *bad_prefix; /* NULL: none */
    char struck[SIM_SITE_MAX];
};

/* One call, from begin to end. */
struct call {
    struct sim_env *sim;
    enum sim_call kind;
    bool is_change;
    const char *path;
    uint64_t at, size;
    struct nd_errmsg *msg;
    bool faulted, cuts; /* by call_begin() */
    enum sim_fault fault;
};

/* Counts the call; an error is what the call must fail with, a fault by its kind's own rules. */
enum nd_err sim_call_begin(struct call *call);
/* Cuts the power if it is this call's turn, words the error, and returns it. */
enum nd_err sim_call_end(struct call *call, enum nd_err err);

/* NULL for a file of an earlier life, whose owner has not noticed yet. */
struct handle *sim_handle_get(struct sim_env *sim, int file);
int sim_handle_add(struct sim_env *sim, struct sim_node *node, int flags, const char *path);
void sim_handle_close(struct handle *handle);
uint64_t sim_blocks_free(const struct sim_env *sim);

/* The functions of an nd_env whose impl is a struct sim_env. */
extern const struct nd_env sim_calls;

#endif
