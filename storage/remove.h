/* Gentle removal (F7): big files are shortened in steps, spread over time, because unlinking much
 * at once stalls the syncs of everybody on some devices. What is handed over has been renamed out
 * of the way before, so that nobody opens it and a restart finds it again. */
#ifndef ND_REMOVE_H
#define ND_REMOVE_H

#include "storage/base/env.h"
#include "storage/base/log.h"

struct nd_remover;

/* `step_bytes`: at most so much is given back to the file system in one step (16 MiB); `pause_ms`:
 * time between two steps that gave back bytes (20 ms). */
struct nd_remover *nd_remover_new(const struct nd_env *env, uint64_t step_bytes, uint32_t pause_ms,
                                  struct nd_log *log);
void nd_remover_free(struct nd_remover *remover); /* what is left stays on the disk */
/* Remove a file, or a directory with all that is in it. The path is copied. @thread any */
void nd_remover_add(struct nd_remover *remover, const char *path);
/* One step: shorten a file, unlink one, or list or remove a directory. False: nothing is due now.
 * @thread flusher */
bool nd_remover_step(struct nd_remover *remover);
/* When the next step is due, CLOCK_MONOTONIC; UINT64_MAX: nothing is left. @thread flusher */
uint64_t nd_remover_due_ns(struct nd_remover *remover);

#endif
