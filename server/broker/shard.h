/* A shard: whole topics, worked by one thread without locks (architecture 5). One step is
 *
 *    inbox (requests, WAL completions, replies of flusher and workers)
 *    -> expire leases and polls -> serve waiters -> stage acks -> housekeeping -> publish what the
 * WAL must keep
 *
 * Everything of a shard happens in its step, so a step in the simulator is a step in the server. */
#ifndef ND_SHARD_H
#define ND_SHARD_H

#include "storage/base/heap.h"
#include "storage/base/map.h"

#include "server/broker/broker.h"
#include "server/broker/meters.h"
#include "storage/clock.h"

struct nd_accept;
struct nd_partition;
struct nd_records_unit;
struct nd_settle_unit;
struct nd_topic_state;
struct nd_workers;

enum nd_shard_stage { /* of the stop sequence, stop.c */
                      ND_SHARD_RUNNING,
                      ND_SHARD_DRAINING,  /* intake refused; the last units come back */
                      ND_SHARD_FLUSHING,  /* tails go into segments */
                      ND_SHARD_RESTATING, /* POSITIONs */
                      ND_SHARD_STOPPED
};

enum { ND_NONCES = 64 };

struct nd_shard {
    struct nd_broker *broker;
    const struct nd_env *env;
    struct nd_wal *wal;
    uint32_t index;
    struct nd_inbox inbox;
    struct nd_thread thread;
    struct nd_wal_stager stager;
    uint64_t now_ns; /* of this step */

    struct nd_map *topics; /* by incarnation */
    struct nd_list ending; /* ended ones that something still refers to */
    struct nd_map *meters; /* by topic name */
    uint64_t tickets;

    struct nd_heap polls;    /* by deadline */
    struct nd_heap expiries; /* partitions by next lease expiry */
    struct nd_heap retries;  /* partitions by the end of a pause after a failed read */

    struct nd_list woken;           /* partitions that may have something to deliver */
    struct nd_list arrivals;        /* topics with a new unpinned waiter */
    struct nd_delivery *deliveries; /* room for one answer */

    struct nd_settle_unit *gathering; /* the acks of this step */
    struct nd_settle_unit *spare_units;
    uint32_t spare_units_count;

    struct nd_heap pins;               /* partitions by the lowest sequence they need */
    struct nd_heap lifting;            /* the same, of those whose pin is being moved */
    struct nd_restate_unit *restating; /* the POSITIONs of this step */
    struct nd_records_unit *records;   /* being gathered: records that no segment takes (F3) */
    bool records_staged;               /* such a unit is under way */
    struct nd_list stuck;              /* lifting ones that could not be helped now */
    uint64_t needs_published;
    uint32_t tails_told;
    bool needs_stale;       /* something was staged or came back since */
    struct nd_list accepts; /* by sequence: staged, held, being dispatched */
    size_t dispatching_bytes;
    uint64_t accepts_held; /* records */
    uint64_t scan;         /* number of the look at them that is under way */
    bool accepts_due;      /* look at them in this step */

    struct nd_heap by_size, by_age; /* partitions with a tail and no flush under way */
    struct nd_list cached;          /* partitions with flushed runs in memory, oldest flush first */
    struct nd_list frames;          /* cold frames, least recently used first */
    size_t cached_bytes, frames_bytes;

    uint32_t staged; /* units under way */
    uint32_t jobs;   /* flushes, reads, opens under way */
    uint32_t subscribers;
    uint64_t down_since_ns;   /* acks cannot be synced since; 0: they can */
    uint64_t down_until_ns;   /* at least until */
    uint64_t housekeeping_ns; /* next */
    uint64_t ask_ns;          /* when to ask again about topics nobody told of */
    bool active;              /* something was staged since the last housekeeping */
    uint32_t flushes;         /* under way */
    bool flushes_held;        /* enough are: those of age and of the WAL wait, flush.h */
    struct nd_list dirty;

    struct nd_list held;    /* produces that wait for those before them, produce.h */
    size_t producing_bytes; /* of records in staged produces */

    struct nd_list watched;  /* open partitions, the one not looked at for the longest first */
    struct nd_list walk;     /* topics by when their closed partitions are looked at */
    uint64_t walks_begun;    /* topics that this process found and did not create */
    struct nd_peek *walking; /* the look of the walk that is under way */
    struct nd_evict_batch *evicting; /* the snapshots of this step */
    uint32_t retaining;              /* partitions that only retention has open */
    uint64_t sweep_ns;               /* when its directories are listed next, sweep.h */
    bool sweeping;
    struct nd_list usage_stale; /* meters of topics whose files may have changed, usage.h */
    uint32_t usage_stale_count, usage_left;
    uint64_t usage_ns;   /* when they are added up next */
    uint64_t rest_bytes; /* of the data directory without topics; the first shard's */
    bool measuring;

    enum nd_shard_stage stage;
    uint64_t stop_give_up_ns;
    _Atomic bool stopped;

    uint64_t nonces[ND_NONCES];
    uint32_t nonces_left;
};

/* What all shards share. Counts are relaxed atomics: bounds, not order. */
struct nd_broker {
    struct nd_broker_options options;
    struct nd_shard *shards;
    struct nd_workers *workers;
    struct nd_meters meters;
    nd_confirm_gone_fn *confirm_gone;
    void *confirm_gone_arg;
    _Atomic bool caught_up;
    _Atomic bool stopping;
    bool started;
    uint64_t wal_writer;              /* of the ACCEPTs of this process */
    _Atomic size_t tail_bytes;        /* unflushed and staged records, all shards */
    _Atomic size_t flushing_bytes;    /* of them under way to the flusher */
    _Atomic size_t unflushable_bytes; /* of them those that no segment takes (F3) */
    _Atomic uint32_t topics, partitions, plogs;
    _Atomic uint32_t tails; /* partitions with unflushed records: room for their files (W6) */
};

void nd_shard_init(struct nd_shard *shard, struct nd_broker *broker, uint32_t index);
void nd_shard_release(struct nd_shard *shard);
bool nd_shard_step(struct nd_shard *shard, uint64_t *next_ns);
/* Hand it a request; when the shard's thread sleeps, this thread steps the shard in its place (T2).
 * Hold no lock that a request's `done` takes. @thread any */
void nd_shard_push(struct nd_shard *shard, struct nd_msg *msg);
void nd_shard_run(void *shard); /* the thread's loop: until it stopped */

/* Stage a unit: counts it; an error of the reserved class starts the time in which leases stand
 * still (W6). Each staged unit calls nd_shard_unit_back() first thing when it comes back. */
ND_CHECKED enum nd_err nd_shard_stage_unit(struct nd_shard *shard, struct nd_wal_unit *unit);
void nd_shard_unit_back(struct nd_shard *shard);
/* The shard of a topic. @thread any */
struct nd_shard *nd_broker_shard(struct nd_broker *broker, const struct nd_topic *topic);
struct nd_shard *nd_broker_shard_of_name(struct nd_broker *broker, const char *name);
/* A random number in 1..2^63-1. */
uint64_t nd_shard_nonce(struct nd_shard *shard);
/* Is intake closed? */
static inline bool nd_shard_stopping(const struct nd_shard *shard)
{
    return shard->stage != ND_SHARD_RUNNING;
}

/* stop.c: the next step of the stop sequence; true when something moved. */
bool nd_shard_stop_step(struct nd_shard *shard);
void nd_shard_stop_begin(struct nd_shard *shard);

#endif
