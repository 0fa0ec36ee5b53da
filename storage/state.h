/* The `state` file of a closed partition: its positions, twice in different 4 KiB blocks (F6). */
#ifndef ND_STATE_H
#define ND_STATE_H

#include "storage/base/env.h"

#include "storage/positions.h"

/* NOT_FOUND: there is none. CORRUPT: neither copy is whole, or it belongs to another store or
 * partition. `out` is inited by the caller. */
ND_CHECKED enum nd_err nd_state_load(const struct nd_env *env, const char *partition_dir,
                                     const uint8_t store_id[16], struct nd_positions *out,
                                     struct nd_errmsg *msg);
/* One of the two copies in the bytes of a file, whoever it belongs to: for tools. CORRUPT: it is
 * damaged. `out` is inited by the caller. */
enum { ND_STATE_COPIES = 2 };
ND_CHECKED enum nd_err nd_state_copy_get(struct nd_slice file, int copy, uint8_t store_id_out[16],
                                         struct nd_positions *out);
struct nd_state_item {
    const char *partition_dir;
    const struct nd_positions *positions;
    enum nd_err result; /* out */
};
/* Many at once: all temporaries, one sync, renames, directory syncs. */
void nd_state_store(const struct nd_env *env, const uint8_t store_id[16],
                    struct nd_state_item *items, size_t count, struct nd_errmsg *msg);

#endif
