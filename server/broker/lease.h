/* Leases of one partition (architecture 6): a window of offsets from the frontier up.
 * Pure: no clock, no disk, no randomness of its own; times and nonces are passed in. @thread the
 * partition's shard
 *
 *                 reserve                 ack                 its group is synced
 *        FREE ───────────────► LEASED ───────────► SETTLING ───────────────► SETTLED
 *          ▲                   │    ▲                 │
 *          ├── expiry, nack,   │    └─────────────────┤ the group failed, lease still running
 *          │   stream closed ──┘                      │
 *          └──────────────────────────────────────────┘ the group failed, its time is over
 *
 *   skip (unreadable record): LEASED ─► SETTLING, like an ack.
 *
 * Always true: an offset has at most one live lease (I-50); the frontier passes only SETTLED
 * offsets and never moves back (I-52); in_flight counts LEASED and SETTLING and never exceeds its
 * cap (I-54); a SETTLING offset neither expires nor is released. Memory is proportional to the
 * window. */
#ifndef ND_LEASE_H
#define ND_LEASE_H

#include "storage/base/heap.h"
#include "storage/base/list.h"

#include "storage/positions.h"

enum nd_lease_state { ND_LEASE_FREE, ND_LEASE_LEASED, ND_LEASE_SETTLING, ND_LEASE_SETTLED };

/* One offset that is or was out. Allocated while it is not plainly free or settled. */
struct nd_lease {
    struct nd_heap_node expiry; /* in the table's heap while LEASED; key: monotonic ns */
    struct nd_list owner_link;  /* in its subscriber's list, or alone */
    void *owner;                /* the subscriber, or NULL */
    void *settle;               /* the broker's, while SETTLING: who waits for the outcome */
    uint64_t offset, nonce;
    uint64_t expiry_ns; /* kept while SETTLING, for when the group fails */
    uint32_t attempt;
    enum nd_lease_state state;
};

struct nd_lease_slot; /* private */

struct nd_lease_table {
    uint64_t frontier;           /* lowest unsettled offset */
    uint64_t free_hint;          /* no offset of the window below it is FREE */
    struct nd_lease_slot *slots; /* ring over [frontier, frontier + window) */
    uint32_t capacity, head, window;
    uint32_t in_flight; /* LEASED + SETTLING */
    uint32_t ahead;     /* SETTLED above the frontier */
    uint32_t detached;  /* SETTLING ones that a jump left below the frontier */
    uint32_t in_flight_max, ahead_max;
    struct nd_heap expiries;
    uint64_t settled_total; /* offsets that became SETTLED since init */
};

void nd_lease_table_init(struct nd_lease_table *table, uint64_t frontier, uint32_t in_flight_max,
                         uint32_t ahead_max);
void nd_lease_table_release(struct nd_lease_table *table);
void nd_lease_table_set_caps(struct nd_lease_table *table, uint32_t in_flight_max,
                             uint32_t ahead_max);
/* Recovery: settled ranges above the frontier, and delivery counts. */
void nd_lease_table_load(struct nd_lease_table *table, const struct nd_positions *positions);
/* Frontier, ahead (SETTLING counts as settled when `with_settling`) and attempts, into a positions.
 */
void nd_lease_table_store(const struct nd_lease_table *table, struct nd_positions *out,
                          bool with_settling);

enum nd_reserve { ND_RESERVE_OK, ND_RESERVE_EMPTY, ND_RESERVE_CAP };
/* Lease the lowest FREE offset below `end` (the high watermark); when `ahead` has reached its cap
 * only the frontier itself is served (spiral breaker). EMPTY: nothing free below end; CAP: a cap
 * holds. The lease is the table's. */
enum nd_reserve nd_lease_reserve(struct nd_lease_table *table, uint64_t end, uint64_t nonce,
                                 uint64_t expiry_ns, void *owner, struct nd_lease **out);
/* The live lease of that offset and nonce in LEASED or SETTLING, else NULL (stale). */
struct nd_lease *nd_lease_find(struct nd_lease_table *table, uint64_t offset, uint64_t nonce);
void nd_lease_extend(struct nd_lease_table *table, struct nd_lease *lease, uint64_t expiry_ns);
/* LEASED -> FREE: nack, closed stream, a failed read. The lease is gone afterwards; its attempt
 * count is remembered. `delivered` false: the attempt did not reach anybody and is taken back. */
void nd_lease_free_up(struct nd_lease_table *table, struct nd_lease *lease, bool delivered);
/* LEASED -> SETTLING. Leaves its owner's list; still counts as in flight. */
void nd_lease_settle_begin(struct nd_lease_table *table, struct nd_lease *lease);
/* SETTLING -> SETTLED; the frontier moves over what is settled. The lease is gone. */
void nd_lease_settle_done(struct nd_lease_table *table, struct nd_lease *lease);
/* SETTLING -> LEASED with its expiry, or FREE when now_ns is past it; true when it is LEASED again.
 */
bool nd_lease_settle_failed(struct nd_lease_table *table, struct nd_lease *lease, uint64_t now_ns);
/* Free every LEASED one whose expiry is <= now_ns; returns how many. Never early. `expired` (may be
 * NULL) is told each before it goes. */
uint32_t nd_lease_expire(struct nd_lease_table *table, uint64_t now_ns,
                         void (*expired)(void *arg, struct nd_lease *lease), void *arg);
uint64_t nd_lease_next_expiry(const struct nd_lease_table *table); /* UINT64_MAX: none */
/* Move all deadlines later by `by_ns` (the WAL was down, W6). */
void nd_lease_postpone(struct nd_lease_table *table, uint64_t by_ns);
/* Everything below `offset` is settled by decree (retention passed it): LEASED ones go (owners are
 * told through `dropped`), SETTLING ones keep their outcome. Returns offsets dropped unsettled
 * (I-60). */
uint64_t nd_lease_jump(struct nd_lease_table *table, uint64_t offset,
                       void (*dropped)(void *arg, struct nd_lease *lease), void *arg);
/* Is there an offset that nd_lease_reserve would give? */
bool nd_lease_available(struct nd_lease_table *table, uint64_t end);
/* Check every invariant; for tests after each step. */
void nd_lease_table_validate(const struct nd_lease_table *table);

#endif
