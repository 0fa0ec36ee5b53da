/* The offline check of a data directory (`narad verify`): every frame, checksum, index and `state`,
 * the chain of the log, and whether they agree with each other. Changes nothing. Memory: a row a
 * partition that the log names, the names of one directory, and the largest frame.
 *
 * What is found is reported line by line: "damage" is something that the node will refuse, cannot
 * serve, or has lost; "note" is something worth knowing that costs nothing. @thread the tool's */
#ifndef ND_VERIFY_H
#define ND_VERIFY_H

#include "storage/base/env.h"
#include "storage/base/report.h"

struct nd_verify_options {
    const struct nd_env *env;
    const char *data_dir;
    struct nd_report *report; /* lines "damage" and "note": file, at, what, and what it concerns */
    /* Called once the directory is locked, before anything is looked at: for a check of what else
     * is in it. Not OK ends it all. NULL passes. */
    enum nd_err (*locked)(void *arg, struct nd_errmsg *msg);
    void *locked_arg;
    /* Does the metadata know this incarnation? Then a directory of it that is missing is a loss.
     * NULL: not known. */
    bool (*is_live)(void *arg, const char *topic, uint64_t incarnation);
    void *is_live_arg;
    /* Before each file, and now and then inside a long one. NULL passes. */
    void (*progress)(void *arg, const char *path, uint64_t bytes_done);
    void *progress_arg;
};

struct nd_verify_result {
    uint64_t damages, notes;
    uint64_t wal_files, wal_entries;
    uint64_t partitions, segments, frames, records;
    uint64_t bytes; /* read */
};

/* OK: all was looked at, whatever was found. UNAVAILABLE: a node holds the directory; nothing was
 * looked at. NOT_FOUND: no data directory. INVALID_ARGUMENT: the path is too long. IO: a device or
 * file system error ended it. */
ND_CHECKED enum nd_err nd_verify(const struct nd_verify_options *options,
                                 struct nd_verify_result *out, struct nd_errmsg *msg);

#endif
