/* Reading a record: from the tail, from a cold frame in memory, else by a worker from the
 * partition's log. A partition has one cold read under way at a time; who needs it waits and looks
 * again when it came back. @thread shard */
#ifndef ND_READ_H
#define ND_READ_H

#include "server/broker/topic_state.h"

enum nd_read_result {
    ND_READ_OK,
    ND_READ_COLD,       /* on the device: nd_read_start */
    ND_READ_SKIP,       /* unreadable, or a gap: it will never be there */
    ND_READ_BELOW_START /* retention removed it */
};

struct nd_read {
    struct nd_record_view view;
    struct nd_block *block; /* not counted; valid until the step ends */
};

enum nd_read_result nd_read_memory(struct nd_partition *partition, uint64_t offset,
                                   struct nd_read *out);
/* Read the frame of `offset` unless a read is under way already. */
void nd_read_start(struct nd_partition *partition, uint64_t offset);
/* Deliveries wait for a read (polls without time left wait with them). */
void nd_read_wait(struct nd_partition *partition);
/* A read or the opening of the log ended: everyone who waits for one looks again. CORRUPT: the log
 * cannot be opened as it is, so the partition is unavailable. */
void nd_read_resume(struct nd_partition *partition, enum nd_err err);
/* The partition log is open. Takes the reference. */
void nd_partition_set_plog(struct nd_partition *partition, struct nd_plog *plog);

#endif
