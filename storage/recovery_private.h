/* What recovery.c and recovery_ahead.c share. */
#ifndef ND_RECOVERY_PRIVATE_H
#define ND_RECOVERY_PRIVATE_H

#include "storage/recovery.h"

/* NULL: no entry of it was met yet. */
struct nd_recovered_partition *nd_recovery_find(const struct nd_recovery *recovery,
                                                const struct nd_partition_id *id);
/* Met for the first time; its `state` is not read yet. */
struct nd_recovered_partition *nd_recovery_add(struct nd_recovery *recovery,
                                               const struct nd_partition_id *id);
/* Start from its `state`, if there is one. Changes nothing but the partition: many may be read at
 * once. @thread any */
ND_CHECKED enum nd_err nd_recovery_read_state(const struct nd_recovery *recovery,
                                              struct nd_recovered_partition *partition,
                                              struct nd_errmsg *msg);

#endif
