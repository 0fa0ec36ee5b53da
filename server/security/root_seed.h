/* The first user of a cluster: root "admin", made by whichever node comes first (behaviour 12).
 *
 *   caught up ─► any user? ── yes ──────────────────────► over
 *                  ▲  │ no                                 ▲
 *     in 2 s       │  └─► hash ─► propose ───── OK ────────────┘
 *                  └────────────────┘ any error
 *
 * A password that was made up is told when its hash is root's: when the proposal is answered OK, or
 * is seen later after an answer that was lost.
 */
#ifndef ND_ROOT_SEED_H
#define ND_ROOT_SEED_H

#include "server/security/auth.h"

struct nd_root_seed;

/* `password` copied; NULL or "": a random one. NULL: its thread did not start. */
struct nd_root_seed *nd_root_seed_start(struct nd_auth *auth, const struct nd_auth_options *options,
                                        const char *password);
/* No answer of nd_auth_hash() or of the metastore is waited for: they may come until the free. */
void nd_root_seed_stop(struct nd_root_seed *seed);
/* Tells what was answered since, and wipes the password. */
void nd_root_seed_free(struct nd_root_seed *seed);

#endif
