/* Repair of a log that does not open (W4): `narad wal-repair DIR [--new]`. What it cannot keep it
 * says; a damaged file is copied to <data>/quarantine/ before anything of it is replaced. Salvaged
 * frames keep their sequences: what is lost between them becomes a gap that a file header names.
 * Only while no server runs on the directory (it takes its lock). @thread the tool's */
#ifndef ND_WAL_REPAIR_H
#define ND_WAL_REPAIR_H

#include "storage/base/env.h"

struct nd_wal_repair_options {
    const struct nd_env *env;
    const char *data_dir;
    bool make_new; /* no file is left: begin a log above every stored applied_sequence */
    /* One line a finding or deed: "data/wal/….wal: offset 8192: cut, sequences 5..9 lost". */
    void (*report)(void *arg, const char *line);
    void *report_arg;
};

/* Errors: UNAVAILABLE a server holds the directory; NOT_FOUND there is no log and `make_new` is not
 * set; CONFLICT there is one and it is set; else as env. OK: the log opens now, or nothing was
 * wrong. */
ND_CHECKED enum nd_err nd_wal_repair(const struct nd_wal_repair_options *options,
                                     struct nd_errmsg *msg);

#endif
