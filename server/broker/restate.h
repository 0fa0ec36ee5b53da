/* What stands in the way of keeping the WAL small (W7): when it wants to let old files go, the
 * partitions that hold them are flushed, or restated at the head of the log: their POSITIONs, and,
 * where no segment takes them, their records (F3). Records go one unit at a time, of 1 MiB at most
 * or one run, once nd_wal_restate_below() says so; each unit asks for the next when it comes back.
 * @thread shard */
#ifndef ND_RESTATE_H
#define ND_RESTATE_H

#include "server/broker/partition.h"

/* Help every partition that stands below what the WAL wants to be rid of. */
void nd_restate_lift(struct nd_shard *shard);
/* A flush or POSITION of it ended, or its records were restated: its pin goes back among the
 * others.
 */
void nd_restate_unlift(struct nd_partition *partition);
/* To be looked at again at the next housekeeping; perhaps it waits for that already. */
void nd_restate_stick(struct nd_partition *partition);
/* State a partition in the unit that is being gathered; false: not while it is flushed or restated.
 */
bool nd_restate_add(struct nd_partition *partition);
/* Stage what was gathered; false: the WAL did not take it, or there was nothing. */
bool nd_restate_stage(struct nd_shard *shard);

/* restate_records.c: the same for the records of an unflushable partition that lie below `below`;
 * false: there are none, or the unit is full or under way. */
bool nd_restate_records_add(struct nd_partition *partition, uint64_t below);
void nd_restate_records_stage(struct nd_shard *shard);

#endif
