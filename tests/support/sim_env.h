/* A disk, a clock and randomness for tests, as an nd_env: everything is in memory, nothing happens
 * by itself, and the same seed gives the same run.
 *
 * THE DISK. A file has what the device holds (synced) and what its readers see (the cache). A write
 * goes to the cache and is pending, sector by sector (512 bytes), until a sync of its file puts it
 * on the device; so are changes of the size. A create, rename, unlink, mkdir or rmdir is seen at
 * once and is pending until sync_dir() of a directory it touches; syncing a file does not save its
 * name. sync_fs() saves all.
 *
 * A POWER CUT keeps a seeded choice of what is pending: each sector of each write, in any
 * combination (dropped, torn, reordered), each pending change of a directory, and a prefix of each
 * file's changes of size. The choice is all, nothing, halves, whole calls or a prefix of the calls,
 * so that the extremes are met often. What was synced always survives.
 *
 * A FAILED SYNC behaves as Linux does: the pending writes may have reached the device or not (a
 * seeded choice per sector), they are no longer pending, and the next sync answers OK. The cache
 * goes on to show what was written until drop_cache() or a read through ND_OPEN_DIRECT asks the
 * device.
 *
 *   for (uint64_t k = 1;; k++) {                      (cut the power at every change of the disk)
 *       struct sim_env *sim = sim_env_new(seed);
 *       sim_env_cut_at(sim, k);
 *       workload(sim_env_get(sim));                   (sees IO from the k-th change on)
 *       bool over = !sim_env_is_cut(sim);
 *       sim_env_restart(sim);
 *       check_after_recovery(sim_env_get(sim));
 *       sim_env_free(sim);
 *       if (over) break;
 *   }
 *
 * Paths "a/b", "/a/b" and "./a/b" are the same; ".." is not known. Not thread safe. Misuse of a
 * test's own making (an unknown file number) is asserted. */
#ifndef ND_TESTS_SUPPORT_SIM_ENV_H
#define ND_TESTS_SUPPORT_SIM_ENV_H

#include <stdio.h>

#include "storage/base/env.h"

struct sim_env;

/* An empty root directory, wall clock 2026-01-01T00:00:00Z, mono 1000 s, boot 2000 s, 1 GiB of
 * space, O_DIRECT supported. */
struct sim_env *sim_env_new(uint64_t seed);
void sim_env_free(struct sim_env *sim);
/* The environment to hand to the code under test; lives as long as `sim`. */
const struct nd_env *sim_env_get(struct sim_env *sim);

/* ---- Clock ---- */
void sim_env_advance_ms(struct sim_env *sim, uint64_t ms); /* all three clocks */
void sim_env_advance_ns(struct sim_env *sim, uint64_t ns); /* mono and boot, and wall by whole ms */
void sim_env_suspend_ms(struct sim_env *sim, uint64_t ms); /* boot and wall go on, mono stands */
void sim_env_set_wall_ms(struct sim_env *sim, int64_t wall_ms);

/* ---- Limits and properties ---- */
void sim_env_set_space(struct sim_env *sim, uint64_t bytes_total); /* NO_SPACE beyond it */
uint64_t sim_env_space_used(const struct sim_env *sim);            /* in blocks of 4096 bytes */
void sim_env_set_direct(struct sim_env *sim, bool supported);
/* Print every call (its number, name, path, place, result) to `out`; NULL: silent. */
void sim_env_trace(struct sim_env *sim, FILE *out);

/* ---- Counting calls ---- */
enum sim_call {
    SIM_OPEN,
    SIM_PREAD,
    SIM_PWRITE,
    SIM_SYNC,
    SIM_SYNC_FS,
    SIM_SYNC_DIR,
    SIM_TRUNCATE,
    SIM_ZERO_FILL,
    SIM_DROP_CACHE,
    SIM_FILE_SIZE,
    SIM_STAT,
    SIM_RENAME,
    SIM_UNLINK,
    SIM_MKDIR,
    SIM_RMDIR,
    SIM_LIST,
    SIM_SPACE,
    SIM_LOCK,
    SIM_CALL_COUNT,
    SIM_ANY = SIM_CALL_COUNT, /* all of them together */
};

/* Calls of a kind since sim_env_new(). */
uint64_t sim_env_calls(const struct sim_env *sim, enum sim_call call);
/* Calls that change the disk since sim_env_new(): pwrite, zero_fill, truncate, sync, sync_fs,
 * sync_dir, rename, unlink, mkdir, rmdir, and an open or lock that makes its file. */
uint64_t sim_env_changes(const struct sim_env *sim);

/* What the last power cut by sim_env_cut_at() or armed fault struck: the kind of call and of file,
 * such as "write data/wal/#.wal" (a name with a digit in it is a #). Empty: none. */
enum { SIM_SITE_MAX = 128 };
const char *sim_env_struck(const struct sim_env *sim);

/* ---- Faults ---- */
enum sim_fault {
    SIM_FAULT_IO, /* a write may have been done in part, a sync see above, the rest not at all */
    SIM_FAULT_NO_SPACE,    /* the same with NO_SPACE */
    SIM_FAULT_SHORT_WRITE, /* a write stops before its last byte and fails with IO; elsewhere as IO
                            */
};

/* Fail the nth call of this kind from now (1: the next), once. One fault is armed at a time. */
void sim_env_fail_nth(struct sim_env *sim, enum sim_call call, uint64_t nth, enum sim_fault fault);
/* Fail it and all of this kind that follow, until sim_env_fail_clear(). */
void sim_env_fail_from(struct sim_env *sim, enum sim_call call, uint64_t nth, enum sim_fault fault);
void sim_env_fail_clear(struct sim_env *sim);
/* A bad place: every write to a file whose path begins with `prefix` fails with IO, also after a
 * restart, until it is told NULL. Beside an armed fault. `prefix` is borrowed. */
void sim_env_fail_writes_under(struct sim_env *sim, const char *prefix);
bool sim_env_fault_fired(const struct sim_env *sim); /* since it was armed */
/* Change bits of one byte of a file, on the device and in the cache: damage at rest. */
void sim_env_damage(struct sim_env *sim, const char *path, uint64_t at, uint8_t xor_mask);

/* ---- Power cuts and restarts ---- */
/* Cut the power at the k-th change from now (1: the next; 0: never). That change itself fails with
 * IO and counts as pending: a write or a rename may survive it, a sync saves a choice. */
void sim_env_cut_at(struct sim_env *sim, uint64_t k);
/* Cut it now; `seed` makes the choice. Every call fails with IO until sim_env_restart(). */
void sim_env_power_cut(struct sim_env *sim, uint64_t seed);
bool sim_env_is_cut(const struct sim_env *sim);
/* Start the machine after a cut, or only the process (kill -9) when there was none: then the cache
 * and what is pending stay. Open files and locks are gone, closing them is ignored, using them
 * fails with IO. Armed faults and cuts are disarmed. A started machine has been up for 10 s (mono,
 * boot). */
void sim_env_restart(struct sim_env *sim);

/* A checksum of all names and contents that readers see, for comparing runs. */
uint64_t sim_env_digest(struct sim_env *sim);

#endif
