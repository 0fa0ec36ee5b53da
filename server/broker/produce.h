/* Produce to partitions that this node owns: offsets and commit times are assigned, the whole batch
 * is one WAL unit (I-16), and the records are seen when it is synced. @thread shard */
#ifndef ND_PRODUCE_H
#define ND_PRODUCE_H

#include "server/broker/topic_state.h"

/* Memory that a run takes in a tail. */
size_t nd_run_bytes(size_t records_size);
/* Take `bytes` of the tail budget; false: it is used up (F1). */
bool nd_tail_budget_take(struct nd_broker *broker, size_t bytes);
void nd_tail_budget_give(struct nd_broker *broker, size_t bytes);

/* The commit time of what enters `partition` now (I-39, F8). */
int64_t nd_partition_commit_ms(struct nd_shard *shard, const struct nd_partition *partition);
/* Offsets [base, base + count) are staged at `sequence`. */
void nd_partition_assigned(struct nd_partition *partition, uint32_t count, int64_t time_ms,
                           uint64_t sequence);
/* The unit of [base, base + count) came back OK: they are visible. Takes a reference to the block.
 */
void nd_partition_committed(struct nd_partition *partition, const struct nd_tail_run *run);
/* It failed: the offsets are taken back (W5). */
void nd_partition_take_back(struct nd_partition *partition, uint64_t base);

/* The log writes all that is staged in one group, so an ack that comes then waits for all of it.
 * Therefore no more than options.staged_bytes_max is staged for produces at a time (T1); the others
 * are held, which costs nothing, and staged after the acks of the step in which room was made. */
void nd_produce_let_in(struct nd_shard *shard);
/* Answer, and let go of topic and block. */
void nd_produce_finish(struct nd_produce *produce, enum nd_err err);

#endif
