/* One partition on this node: where it stands, what of it is in memory, who holds its records.
 *
 *                touched           state loaded
 *     CLOSED ──────────────► OPENING ──────────► OPEN
 *        └─ known to be new, or recovered ────────▲
 *                               └─ damaged ─► DAMAGED (refused by name, tried again when touched)
 *
 * Offsets: [log_start, flushed) in verified segments, [flushed, end) in the tail, both visible;
 * [end, next) staged in the WAL and not synced. Nothing at or above `end` is shown to anybody.
 *
 * Always true: frontier <= end <= next; every entry of the partition that is staged or that its
 * newest durable positions do not cover has a sequence >= the key of its pin (W7). @thread its
 * shard */
#ifndef ND_PARTITION_H
#define ND_PARTITION_H

#include "server/broker/lease.h"
#include "server/broker/meters.h"
#include "server/broker/shard.h"
#include "storage/recovery.h"
#include "storage/tail.h"

enum nd_partition_state {
    ND_PARTITION_CLOSED,
    ND_PARTITION_OPENING,
    ND_PARTITION_OPEN,
    ND_PARTITION_DAMAGED
};

/* Offsets [offset, next) of which a read said that they cannot be had. */
struct nd_bad_range {
    uint64_t offset, next;
    enum nd_err err; /* CORRUPT, NOT_FOUND; OK: nothing is known */
};

struct nd_partition {
    struct nd_topic_state *topic;
    struct nd_partition_id id;
    enum nd_partition_state state;

    uint64_t next;
    uint64_t end;
    uint64_t log_start;
    int64_t last_commit_ms;
    struct nd_tail tail;
    struct nd_lease_table leases;
    struct nd_positions carried; /* tokens and cursors only: what recovery handed over */

    uint32_t accepts; /* records accepted and not dispatched, which nothing may overtake */
    uint64_t scan;    /* accept.c: the scan that may dispatch nothing more of it */

    /* Durability: restate.h, flush.h. */
    uint64_t position_from; /* sequence of the newest synced POSITION, else of the first entry */
    struct nd_heap_node pin;
    bool lifting; /* its pin is in shard->lifting: a flush or a POSITION that moves it is under way
                   */
    bool restating;         /* its POSITION is under way */
    bool records_restating; /* some of its records are (F3) */
    struct nd_list stuck;   /* in shard->stuck: to be looked at again */
    struct nd_plog *plog;
    bool plog_opening; /* by the flusher or by a worker: one of them at a time */
    struct nd_flush_work *flush;
    struct nd_heap_node by_size,
        by_age; /* in the shard's heaps while there is something to flush */
    /* Retention and eviction: retain.h, evict.h, cold.h, chores.h. */
    struct nd_list watched; /* in shard->watched while OPEN */
    uint64_t look_ns;       /* when it is looked at next */
    uint64_t used_ns;       /* last use; observation is none */
    uint32_t uses;          /* counts uses and whatever a snapshot would miss */
    uint32_t acks;          /* settles of it that are gathered or staged */
    bool unsaved;           /* it differs from what is durable although nothing was staged */
    bool evicting;          /* a snapshot of it is being made durable */
    bool retain_due;        /* its files were found to hold what may go */
    bool for_retention;     /* nobody else wanted it open: counted in shard->retaining */
    struct nd_retain_job *retain;
    uint64_t durable_start; /* log start of its newest durable positions */
    uint64_t stated_start;  /* of the POSITION under way */
    uint64_t flush_retry_ns;
    size_t accounted; /* of the tail budget */
    size_t cached;    /* of the shard's cache */
    struct nd_list cached_link;
    bool unflushable;         /* F3: produce is refused */
    bool unflushable_counted; /* in the gauge by the broker: there is no log that would be */
    uint32_t flush_failures;  /* in a row, disk full not counted */
    size_t accounted_unflushable;
    bool flush_failed; /* the last flush, for the stop sequence */

    /* Reading: read.h, frames.h. */
    struct nd_list frames;
    struct nd_cold_read *read;
    struct nd_bad_range bad;
    bool wait_read;    /* deliveries wait for a cold read */
    uint64_t retry_ns; /* after a failed read or open: not before */
    struct nd_heap_node retry;
    uint32_t skips; /* offsets whose skip is under way */
    struct nd_list replays;

    /* Deliveries: waiters.h, settle.h. */
    uint64_t batch_base;   /* while a batch gets its placements */
    struct nd_list pinned; /* waiters of this partition only */
    struct nd_list ready;  /* in topic->ready: may have something to deliver */
    struct nd_list woken;  /* in shard->woken: to be served in this step */
    struct nd_heap_node expiry;

    struct nd_list dirty; /* in shard->dirty: its gauges are old */
    struct nd_partition_meters meters;
};

/* A new partition object of `topic`, CLOSED. The topic keeps it until it ends. */
struct nd_partition *nd_partition_new(struct nd_topic_state *topic, uint32_t index);
void nd_partition_free(struct nd_partition *partition); /* nothing of it is under way */

/* Make it OPEN: with positions (recovered, or from a `state`), or empty at 0 when NULL. */
void nd_partition_open_with(struct nd_partition *partition, struct nd_positions *positions);
/* What recovery found; takes its runs and positions. The caller frees the rest. */
void nd_partition_recover(struct nd_partition *partition, struct nd_recovered_partition *recovered);
/* Its state; a CLOSED one starts opening (then OPENING), a DAMAGED one is tried again after a
 * while. Who needs an OPENING one is parked or waits: both are looked at again when it opened. */
enum nd_partition_state nd_partition_touch(struct nd_partition *partition);
/* The same for who only looks after it: that is no use of it. */
enum nd_partition_state nd_partition_open_closed(struct nd_partition *partition);

/* Its pin: the lowest sequence that it needs; moves in the shard's heaps. */
void nd_partition_update_pin(struct nd_partition *partition);
/* An entry of it was staged at `sequence`. */
void nd_partition_staged(struct nd_partition *partition, uint64_t sequence);
/* Tail or cache changed: budgets, flush heaps. */
void nd_partition_account(struct nd_partition *partition);
/* The lowest offset that only the WAL and memory hold; UINT64_MAX: none. */
uint64_t nd_partition_unflushed_start(const struct nd_partition *partition);
/* What a POSITION says now: as if everything staged were synced. `out` is inited; the caller's. */
void nd_partition_positions(struct nd_partition *partition, struct nd_positions *out);
/* Its gauges need a look. */
void nd_partition_mark_dirty(struct nd_partition *partition);

#endif
