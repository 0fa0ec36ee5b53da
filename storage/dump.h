/* What a file of the data directory holds, line by line (`narad dump`): files of the log, segments,
 * indexes, `state`, FORMAT, also in quarantine. Damage is a line "damage" with its place; the dump
 * goes on behind it. Changes nothing; any bytes may be given to it. @thread the tool's */
#ifndef ND_DUMP_H
#define ND_DUMP_H

#include "storage/base/env.h"
#include "storage/base/report.h"

struct nd_dump_options {
    const struct nd_env *env;
    const char *path;
    struct nd_report *report;
    bool records; /* a line for every record, with key and payload */
};

/* UNSUPPORTED: the bytes are none of the above; nothing was reported. NOT_FOUND, IO... as env.
 * *damages_out: lines "damage". */
ND_CHECKED enum nd_err nd_dump_file(const struct nd_dump_options *options, uint64_t *damages_out,
                                    struct nd_errmsg *msg);

#endif
