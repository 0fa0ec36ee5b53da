/* When tails go to the flusher (F2): at 4 MiB, largest first above half the budget, at 60 s of age,
 * when the WAL wants its old files back (restate.h), at stop. One flush of a partition at a time.
 * Of age and for the WAL only so many at once: thousands of small tails may be due together, and a
 * round of all of them would keep the large ones from the memory that produces wait for.
 * @thread shard */
#ifndef ND_FLUSH_H
#define ND_FLUSH_H

#include "server/broker/partition.h"

enum { ND_FLUSHES_MAX = 512 };

/* May another one start that can wait? False also until half of them are back, when housekeeping
 * looks again. */
bool nd_flush_has_room(struct nd_shard *shard);
/* When its age makes it due; only with something to flush. */
uint64_t nd_flush_due_ns(const struct nd_partition *partition);
/* False: nothing to flush, one is under way, or it is too early after a failure. */
bool nd_flush_start(struct nd_partition *partition);
/* Is it an unflushable one without a log? Then the broker counts it in the gauge. */
void nd_flush_count_unflushable(struct nd_partition *partition, bool unflushable);
/* Records were added: is it big enough? */
void nd_flush_check_size(struct nd_partition *partition);
/* Those due by age, and the largest while memory is short. */
void nd_flush_check(struct nd_shard *shard);

#endif
