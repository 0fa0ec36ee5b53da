/* Flushing while replaying (W8): when the tails that a recovery gathers pass their budget, the
 * fullest go into segments at once, so that a start needs no more memory than a run. What cannot be
 * flushed (a bad device, a log that is not as the entries say) stays in memory and is logged; it
 * never stops a start. Every step may be cut: the entries are still in the log, and the next replay
 * finds in the segments what it has already.
 *
 * Only records that follow what the log has are flushed: below a gap, what was restated (F3) may
 * still come. @thread the opener's */
#ifndef ND_RELIEVE_H
#define ND_RELIEVE_H

#include "storage/recovery.h"

struct nd_relief;

/* `options` and `data_dir` are copied. */
struct nd_relief *nd_relief_new(const struct nd_plog_options *options, const char *data_dir);
void nd_relief_free(struct nd_relief *relief); /* after the replay; NULL passes */
/* nd_recovery_options.relieve; the argument is the relief. Frees down to half the budget. */
ND_CHECKED enum nd_err nd_relief_flush(void *relief, struct nd_recovery *recovery,
                                       struct nd_errmsg *msg);

#endif
