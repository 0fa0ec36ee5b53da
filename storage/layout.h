/* The data directory (F6): its lock, its FORMAT file with the store id, and where everything lies.
 *
 *   <data>/LOCK  FORMAT  wal/  topics/<topic>/<incarnation, 16 hex>/p00003/  outbox/  quarantine/
 *          staging/  removed/  metastore/ */
#ifndef ND_LAYOUT_H
#define ND_LAYOUT_H

#include "storage/base/env.h"

#include "storage/positions.h"

enum { ND_LAYOUT_PATH_SIZE = 900 };

struct nd_layout {
    const struct nd_env *env;
    char dir[ND_LAYOUT_PATH_SIZE];
    char wal_dir[ND_LAYOUT_PATH_SIZE + 8]; /* for nd_wal_options.dir */
    uint8_t store_id[16];
    bool fresh; /* never opened completely: a missing log is no loss; else nd_wal_options.must_exist
                 */
    int lock;
};

/* Make or open the directory: lock it, read FORMAT or write a new one, make what is missing.
 * Errors: UNAVAILABLE another process holds it; UNSUPPORTED a newer format; CORRUPT FORMAT is
 * damaged, or the directory has data but no FORMAT; else as env. @thread opener */
ND_CHECKED enum nd_err nd_layout_open(struct nd_layout *out, const struct nd_env *env,
                                      const char *dir, struct nd_errmsg *msg);
/* The log was opened once: from now on it must exist. */
ND_CHECKED enum nd_err nd_layout_confirm(struct nd_layout *layout, struct nd_errmsg *msg);
void nd_layout_close(struct nd_layout *layout);

/* What the bytes of a FORMAT file say. CORRUPT, UNSUPPORTED (a newer format). */
ND_CHECKED enum nd_err nd_layout_format_get(struct nd_slice text, uint8_t store_id_out[16],
                                            bool *fresh_out);

/* The directory of a partition; asserts that it fits. */
void nd_layout_partition_dir(char *out, size_t out_size, const char *data_dir,
                             const struct nd_partition_id *id);

#endif
