/* Where a partition stands, without its records: the body of a WAL POSITION and of a `state` file.
 * Times in Unix milliseconds. Decoding takes hostile input: every count is checked before it is
 * allocated. */
#ifndef ND_POSITIONS_H
#define ND_POSITIONS_H

#include "storage/base/buf.h"
#include "storage/base/err.h"
#include "storage/base/limits.h"

enum { ND_POSITIONS_AT_APPLIED = 8 }; /* where an encoding holds applied_sequence, a u64 */

/* Which partition of which create of which topic. `topic` is NUL-terminated. */
struct nd_partition_id {
    uint64_t incarnation;
    uint32_t partition;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
};

struct nd_offset_range {
    uint64_t first, last; /* inclusive */
};

struct nd_attempt {
    uint64_t offset;
    uint32_t count; /* deliveries so far */
};

/* W9: highest sequence seen from a member (or, for fan-out, a parent partition). */
struct nd_token {
    uint64_t member, writer, sequence;
};

/* A fan-out cursor held by the parent partition. */
struct nd_cursor {
    uint64_t child_incarnation, epoch, fork, next_offset;
};

struct nd_positions {
    struct nd_partition_id id;
    uint64_t applied_sequence; /* WAL entries up to and including it are in here */
    uint64_t frontier;         /* lowest unsettled offset: everything below is settled */
    uint64_t next_offset;
    uint64_t flushed_offset; /* everything below is in verified segments */
    uint64_t log_start;      /* lowest stored offset */
    int64_t last_commit_ms;
    struct nd_offset_range *ahead; /* settled above the frontier, ascending, not touching */
    uint32_t ahead_count;
    struct nd_attempt *attempts; /* of unsettled offsets that will be delivered again, ascending */
    uint32_t attempts_count;
    struct nd_token *tokens;
    uint32_t tokens_count;
    struct nd_cursor *cursors;
    uint32_t cursors_count;
};

void nd_positions_init(struct nd_positions *positions); /* zeros, no arrays */
void nd_positions_release(struct nd_positions *positions);
void nd_positions_copy(struct nd_positions *to,
                       const struct nd_positions *from); /* `to` is inited */
void nd_positions_put(struct nd_buf *out, const struct nd_positions *positions);
/* CORRUPT when the bytes are not exactly one encoding. `out` is inited by the caller. */
ND_CHECKED enum nd_err nd_positions_get(struct nd_slice in, struct nd_positions *out);
/* Only whose they are, of an encoding that is not checked further. False: it is none. */
bool nd_positions_id(struct nd_slice in, struct nd_partition_id *out);

/* Can `topic` be the name of a directory of ours? No separators, not "." or "..", 1..255 bytes. */
bool nd_topic_name_is_sane(struct nd_slice topic);

/* Settle [first, last] in frontier and ahead; repeats change nothing. */
void nd_positions_settle(struct nd_positions *positions, uint64_t first, uint64_t last);

#endif
