/* The broker: queue semantics over partition logs. It knows neither gRPC nor protobuf nor sockets
 * (architecture 12); server/rpc translates.
 *
 * Every operation is a request struct that is the caller's memory and the broker's until its
 * callback. Callbacks run exactly once, on a shard's thread or on one that steps a sleeping shard
 * in its place (admin changes: on the raft thread), for produce, settle and poll maybe before the
 * call that started the operation returns: its caller holds no lock that they take. They must not
 * block: they pack an answer and hand it to the transport. A topic record in a request is a counted
 * reference that the broker releases.
 *
 * Topics are spread over shards by name, so that all incarnations of a name meet on one shard; a
 * shard owns its topics' partitions, tails, leases and waiters, without locks. */
#ifndef ND_BROKER_H
#define ND_BROKER_H

#include "storage/base/heap.h"

#include "cluster/metastore.h"
#include "server/broker/admission.h"
#include "storage/flusher.h"
#include "storage/recovery.h"

struct nd_broker;

struct nd_broker_options {
    const struct nd_env *env;
    const char *data_dir;
    struct nd_wal *wal;         /* open; outlives the broker */
    struct nd_flusher *flusher; /* outlives the broker */
    struct nd_commit_clock *clock;
    uint64_t member;           /* this node */
    uint32_t shards;           /* 1 per two cores; the simulator passes 1 and steps it */
    size_t tail_memory_bytes;  /* 128 MiB, all shards together (F1) */
    size_t cache_bytes;        /* 32 MiB of flushed runs and cold frames */
    uint64_t wal_keep_bytes;   /* 128 MiB (F2) */
    uint32_t flush_bytes;      /* 4 MiB a partition (F2) */
    uint32_t flush_age_ms;     /* 60 s (F2) */
    size_t staged_bytes_max;   /* 4 MiB: then produces wait their turn (produce.h); 0: no bound */
    uint32_t look_ms;          /* 60 s between looks at an open partition; 0: never (chores.h) */
    uint64_t idle_eviction_ms; /* 30 min: an unused partition is closed; 0: never (evict.h) */
    uint64_t cold_walk_ms;     /* 5 min between looks at closed partitions; 0: never (cold.h) */
    uint32_t workers; /* threads for cold reads; 0: reads run on the stepping thread (sim) */
    struct nd_log *log;
    struct nd_metrics *metrics;
};

/* Takes the recovered partitions over from `recovery` (which is empty afterwards). Nothing runs
 * yet. Before the flusher's first step: only from here on the WAL knows what must not be trimmed.
 */
ND_CHECKED enum nd_err nd_broker_new(struct nd_broker **out,
                                     const struct nd_broker_options *options,
                                     struct nd_recovery *recovery, struct nd_errmsg *msg);
ND_CHECKED enum nd_err nd_broker_start(struct nd_broker *broker,
                                       struct nd_errmsg *msg); /* threads */
/* The stop sequence (architecture 13): refuse intake, answer parked polls (empty) and subscribers
 * (UNAVAILABLE), let the last group land, flush all tails, write POSITIONs. Blocks; then no thread
 * of it runs and no callback is outstanding. */
void nd_broker_stop(struct nd_broker *broker);
void nd_broker_free(struct nd_broker *broker);
/* The halves of nd_broker_stop for who steps the shards himself: begin, then step until it is
 * stopped. */
void nd_broker_stop_begin(struct nd_broker *broker);
bool nd_broker_stopped(const struct nd_broker *broker);
/* One step of one shard, for the simulator: run its inbox, expire leases, serve waiters, stage.
 * False: nothing to do before *next_ns (monotonic; UINT64_MAX never). */
bool nd_broker_step(struct nd_broker *broker, uint32_t shard, uint64_t *next_ns);

/* For nd_metastore_options.topic_changed: the shard acts on it (caps, retention, delete). */
void nd_broker_topic_changed(void *broker, const struct nd_topic *before,
                             const struct nd_topic *after);
/* The ownership latch (C2): from now on this node knows what it owns. Before it, produce is
 * accepted (ACCEPT entries), consume and ack answer UNAVAILABLE. */
void nd_broker_set_caught_up(struct nd_broker *broker);
/* Whom to ask before data of an incarnation that nobody told about is removed, and before an
 * accepted record of such a one is discarded (P5, I-24): nd_metastore_confirm_gone.
 * Without it nothing is. `done` may run on any thread. Before nd_broker_set_caught_up. */
typedef void nd_confirm_gone_fn(void *arg, const char *topic, uint64_t incarnation,
                                void (*done)(void *done_arg, enum nd_err err, bool gone),
                                void *done_arg);
void nd_broker_set_confirm_gone(struct nd_broker *broker, nd_confirm_gone_fn *confirm, void *arg);

/* --- produce --- */
struct nd_produce {
    struct nd_msg msg;         /* the broker's */
    struct nd_admission batch; /* encoded records, see admission.h; its topic and block are released
                                  by the broker. On OK batch.placements are filled in (has_offsets
                                  false: accepted for another owner). */
    void (*done)(struct nd_produce *produce, enum nd_err err);
    void *data;               /* the caller's */
    struct nd_wal_unit unit;  /* the broker's */
    struct nd_produce_state { /* the broker's */
        struct nd_shard *shard;
        struct nd_topic_state *topic_state;
        struct nd_list accepts; /* its ACCEPTs, until their unit came back */
        size_t bytes;           /* of the tail budget */
        bool let_in;            /* it had its turn: not held again */
    } state;
};
/* @thread any. NO_SPACE, OVERLOADED, UNAVAILABLE: not taken; UNKNOWN_OUTCOME; TOPIC_NOT_FOUND. */
void nd_broker_produce(struct nd_broker *broker, struct nd_produce *produce);

/* --- deliveries --- */
/* One record on its way out. Slices borrow from `block`: take nd_block_ref to keep it longer. */
struct nd_delivery {
    struct nd_block *block;
    struct nd_record_view record;
    uint64_t offset;
    uint64_t nonce; /* 0: replayed, no lease */
    uint32_t partition;
    uint32_t attempt; /* 0: replayed */
};

/* Whoever waits for deliveries, in the queue of its topic, or of its partition. The broker's. */
struct nd_waiter {
    struct nd_list link;
    uint64_t ticket; /* order of arrival, over both kinds of queue */
    bool is_subscriber;
};

enum { ND_PARTITION_ANY = -1, ND_POLL_MESSAGES_MAX = 1000, ND_POLL_BYTES_MAX = 4 << 20 };

/* --- poll: unary consume and polls of a ConsumeStream --- */
struct nd_poll {
    struct nd_msg msg;
    struct nd_topic *topic; /* reference given to the broker */
    int32_t partition;      /* or ND_PARTITION_ANY */
    uint32_t messages_max;  /* 1..1000 */
    uint32_t wait_ms;       /* 0: answer at once */
    /* err OK with count 0: nothing came in time. Deliveries are valid until return. If the answer
     * cannot be sent any more, release the leases with nd_broker_settle NACK. */
    void (*done)(struct nd_poll *poll, enum nd_err err, const struct nd_delivery *deliveries,
                 uint32_t count);
    void *data;
    struct nd_poll_state { /* the broker's */
        struct nd_waiter waiter;
        struct nd_heap_node deadline;
        struct nd_list overdue; /* its time is over, but a read that it may get is under way */
        struct nd_msg cancel;
        struct nd_shard *shard;
        struct nd_topic_state *topic_state;
        struct nd_partition *partition; /* pinned to it, or NULL */
        uint64_t arrived_ns;
        _Atomic bool claimed; /* by the answer or by the cancel, whichever came first */
    } state;
};
void nd_broker_poll(struct nd_broker *broker, struct nd_poll *poll); /* @thread any */
/* End the wait soon: done runs with CANCELLED and nothing is leased to it; if deliveries were on
 * their way they went to done first. Only before done ran (the caller orders that); at most once.
 * @thread any */
void nd_broker_poll_cancel(struct nd_broker *broker, struct nd_poll *poll);

/* --- settle: ack, extend, nack --- */
enum nd_settle_action { ND_SETTLE_ACK, ND_SETTLE_EXTEND, ND_SETTLE_NACK };

struct nd_settle_item {
    uint64_t offset, nonce;
    uint32_t partition;
    enum nd_settle_action action;
    enum nd_err result; /* in: not OK (a handle that did not parse): left as it is; out: OK, STALE,
                           NO_SPACE, UNAVAILABLE, TOPIC_NOT_FOUND */
    struct nd_settle *settle;         /* the broker's */
    struct nd_settle_item *same_next; /* the broker's: waits for the outcome of the same offset */
};

struct nd_settle {
    struct nd_msg msg;
    struct nd_topic *topic;       /* reference given to the broker */
    struct nd_settle_item *items; /* the caller's, until done */
    uint32_t count;
    void (*done)(
        struct nd_settle *settle); /* when every item has its result: acks after their sync */
    void *data;
    struct nd_shard *shard; /* the broker's */
    uint32_t pending;       /* the broker's */
};
void nd_broker_settle(struct nd_broker *broker, struct nd_settle *settle); /* @thread any */

/* --- subscribe --- */
struct nd_subscriber {
    struct nd_msg msg;
    struct nd_topic *topic;   /* reference given to the broker, held until closed */
    int32_t partition;        /* or ND_PARTITION_ANY */
    uint32_t outstanding_max; /* 1..65536 */
    /* Up to 16 deliveries or 64 KiB a turn; return false to pause until nd_broker_subscriber_resume
     * (the transport has enough queued). Deliveries valid until return. */
    bool (*deliver)(struct nd_subscriber *subscriber, const struct nd_delivery *deliveries,
                    uint32_t count);
    /* The broker ends it: TOPIC_NOT_FOUND (deleted), UNAVAILABLE (stopping). Its leases are
     * released; the caller still closes it. May not be called at all. */
    void (*ended)(struct nd_subscriber *subscriber, enum nd_err err);
    /* After nd_broker_subscriber_close: nothing refers to it any more. */
    void (*closed)(struct nd_subscriber *subscriber);
    void *data;
    struct nd_subscriber_state { /* the broker's */
        struct nd_waiter waiter;
        struct nd_list link;   /* in its topic */
        struct nd_list leases; /* LEASED ones, by owner_link */
        struct nd_msg resume, close;
        struct nd_shard *shard;
        struct nd_topic_state *topic_state; /* NULL: not there, or ended */
        struct nd_partition *partition;     /* pinned to it, or NULL */
        uint32_t outstanding;               /* delivered minus settled */
        uint32_t settling;                  /* of them with an ack under way */
        bool paused, closing;
        _Atomic bool resume_posted;
    } state;
};
void nd_broker_subscribe(struct nd_broker *broker,
                         struct nd_subscriber *subscriber); /* @thread any */
void nd_broker_subscriber_resume(struct nd_broker *broker, struct nd_subscriber *subscriber);
/* Releases its leases at once (the stream is gone). Once. Settles of leases it got still count. */
void nd_broker_subscriber_close(struct nd_broker *broker, struct nd_subscriber *subscriber);

/* --- replay --- */
struct nd_replay {
    struct nd_msg msg;
    struct nd_topic *topic;
    uint32_t partition;
    uint64_t offset;       /* in; out: where the next read continues */
    uint64_t end;          /* in: 0 = high watermark now; out: the bound used */
    uint32_t messages_max; /* of this read, 1..1000; also at most 1 MiB */
    /* OK, count 0: the end. GONE: below `oldest`. CORRUPT: go on from the next. One at a time. */
    void (*done)(struct nd_replay *replay, enum nd_err err, const struct nd_delivery *deliveries,
                 uint32_t count);
    uint64_t oldest; /* out: lowest stored offset */
    void *data;
    struct nd_shard *shard; /* the broker's */
};
void nd_broker_replay(struct nd_broker *broker, struct nd_replay *replay); /* @thread any */

/* --- statistics --- */
struct nd_partition_stats {
    uint32_t index, segments, in_flight, acked_ahead;
    uint64_t oldest_offset, next_offset, high_watermark, frontier, size_bytes;
    int64_t oldest_segment_at_s;
    uint64_t owner; /* member number; 0: none */
};
struct nd_stats {
    struct nd_msg msg;
    struct nd_topic *topic;
    int32_t partition; /* or ND_PARTITION_ANY: all */
    /* Observation opens nothing (I-46). `stats` has one entry a partition, ascending. */
    void (*done)(struct nd_stats *stats, enum nd_err err, const struct nd_partition_stats *list,
                 uint32_t count);
    void *data;
    struct nd_shard *shard; /* the broker's */
};
void nd_broker_stats(struct nd_broker *broker, struct nd_stats *stats); /* @thread any */

#endif
