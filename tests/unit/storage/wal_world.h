/* A log on a simulated disk with one stager, for the tests of the log. A unit is known by its tag:
 * it is a COMMIT of one record whose base offset and payload follow from the tag, so that a replay
 * can tell right from wrong. */
#ifndef ND_TESTS_WAL_WORLD_H
#define ND_TESTS_WAL_WORLD_H

#include "storage/wal.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

enum { WORLD_TAGS_MAX = 4096, WORLD_FILE_BYTES = 256 << 10 };

enum world_state { WORLD_UNUSED, WORLD_STAGED, WORLD_OK, WORLD_FAILED };

struct wal_world {
    struct sim_env *sim;
    const struct nd_env *env;
    struct nd_wal_options options;
    struct nd_wal *wal;
    struct nd_inbox inbox;
    struct nd_wal_stager stager;
    struct nd_errmsg msg;
    bool adopts; /* at once when the log failed; the default */

    enum world_state state[WORLD_TAGS_MAX];
    enum nd_err result[WORLD_TAGS_MAX];
    uint64_t sequence[WORLD_TAGS_MAX];
    bool replayed[WORLD_TAGS_MAX];  /* in the last open */
    uint32_t order[WORLD_TAGS_MAX]; /* tags in the order of their return */
    uint32_t returned;
    uint32_t failures;       /* `failed` messages received */
    uint32_t replayed_count; /* COMMITs */
    uint64_t replayed_last;  /* highest sequence */
    uint64_t checkpoints;    /* CHECKPOINTs replayed */
};

void world_init(struct wal_world *world, struct sim_env *sim);
void world_release(struct wal_world *world);
enum nd_err world_open(struct wal_world *world);
/* Look at and replay what is there, changing nothing. */
enum nd_err world_scan(struct wal_world *world);
/* The path of the nth file of the log, oldest first. */
void world_path(struct wal_world *world, uint32_t nth, char out[128]);
/* The process is gone: nothing is written, memory is given back. */
void world_forget(struct wal_world *world);
void world_close(struct wal_world *world);

/* Stage the unit `tag` with a payload of `size` bytes. */
enum nd_err world_stage(struct wal_world *world, uint32_t tag, size_t size);
enum nd_err world_stage_class(struct wal_world *world, uint32_t tag, size_t size,
                              enum nd_wal_class class);
enum nd_err world_stage_checkpoint(struct wal_world *world);
/* Step until nothing is left to do, taking what comes back. */
void world_run(struct wal_world *world);
/* Stage and run. */
enum nd_err world_put(struct wal_world *world, uint32_t tag, size_t size);
/* Every tag that was OK, from `first` on, was replayed; nothing that failed for sure was. */
void world_assert_kept(struct wal_world *world, uint32_t first);
/* Names of the log directory with `suffix`; sorted; returns how many. */
uint32_t world_names(struct wal_world *world, const char *suffix, char names[][64], uint32_t max);
struct nd_wal_stats world_stats(struct wal_world *world);

#endif
