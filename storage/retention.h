/* Retention by age: which records may go, and when a segment must end so that they can.
 *
 * All times are commit times, on the commit clock (F8). A record may go once it is older than the
 * retention of its topic, never earlier (I-43). Only whole segments go, with their youngest record;
 * a segment ends before it would span more than one retention, so a record is gone within two of
 * them, and a look's interval, after its commit (I-44).
 *
 * The decisions are pure; nd_log_peek() looks at a log that nobody has open. */
#ifndef ND_RETENTION_H
#define ND_RETENTION_H

#include "storage/base/env.h"

/* A cutoff that nothing is older than. */
#define ND_RETENTION_NOTHING INT64_MIN

/* Records with a commit time below it may go. `retention_ms` 0: for ever. */
int64_t nd_retention_cutoff_ms(int64_t now_ms, uint64_t retention_ms);
/* Must a segment that begins with `first_ms` end before a record of `time_ms`? `retention_ms` 0:
 * never. */
bool nd_retention_must_roll(int64_t first_ms, int64_t time_ms, uint64_t retention_ms);

/* What the files of a log say without opening it: no sync, no walk, at most one descriptor. */
struct nd_log_peek {
    uint32_t segments;
    uint64_t size_bytes;   /* of the files */
    uint64_t start_offset; /* of the oldest segment; 0 without segments */
    int64_t oldest_ms;     /* commit time of the first record; 0: not known, or none */
    /* While the cutoff is at or below it nothing may go: the time of the youngest record of the
     * oldest segment, or, where only opening it would tell, of its first one. INT64_MAX without
     * segments; ND_RETENTION_NOTHING when it is not known. */
    int64_t goes_ms;
};
/* `sizes`: add up the sizes, one stat a segment. A directory that is not there has no segments.
 * @thread worker (does I/O) */
ND_CHECKED enum nd_err nd_log_peek(struct nd_log_peek *out, const struct nd_env *env,
                                   const char *dir, const uint8_t store_id[16], bool sizes,
                                   struct nd_errmsg *msg);

#endif
