/* What the parts of the dump share: kinds of files (dump.c), the log (dump_wal.c), segments
 * (dump_segment.c). */
#ifndef ND_DUMP_PRIVATE_H
#define ND_DUMP_PRIVATE_H

#include "storage/dump.h"
#include "storage/positions.h"
#include "storage/read_only.h"

struct dump {
    struct nd_read_only read_only;
    const struct nd_env *env; /* read_only's */
    const char *path, *name;  /* whole; behind the last slash */
    struct nd_report *report;
    bool records;
    uint64_t size; /* of the file */
    uint64_t damages;
    struct nd_errmsg *msg;
};

/* A whole line: bytes [from, to) of the file are not what they should be. */
void dump_damage(struct dump *dump, uint64_t from, uint64_t to, const char *what);
void dump_partition_id(struct dump *dump, const struct nd_partition_id *id);
/* The values of a line for `positions`. */
void dump_positions(struct dump *dump, const struct nd_positions *positions);
/* A line a record of a checked run, when they are asked for. */
void dump_records(struct dump *dump, struct nd_slice run, uint64_t base_offset, uint32_t count);
/* Is there nothing but zeros? */
bool dump_is_zeros(struct nd_slice bytes);

ND_CHECKED enum nd_err dump_wal(struct dump *dump);
ND_CHECKED enum nd_err dump_segment(struct dump *dump);

#endif
