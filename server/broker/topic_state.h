/* One incarnation of a topic on its shard: its partitions, who waits, what is parked.
 *
 * Made when the metadata tells of it, or when recovery hands over a partition of it (then without a
 * topic record until one is told). It ends once (delete.h): from then on it is not in
 * shard->topics, and it goes when nothing refers to it any more (`busy` is 0). @thread its shard */
#ifndef ND_TOPIC_STATE_H
#define ND_TOPIC_STATE_H

#include "server/broker/broker.h"
#include "server/broker/meters.h"
#include "server/broker/partition.h"
#include "server/broker/shard.h"

struct nd_topic_state {
    struct nd_shard *shard;
    uint64_t incarnation;
    struct nd_topic *topic;           /* counted; NULL: recovered and not told of yet */
    struct nd_partition **partitions; /* NULL: never touched */
    uint32_t partitions_count;
    uint32_t fresh_from; /* partitions from here up are known to have no files */
    struct nd_topic_meters *meters;

    struct nd_list waiters;     /* unpinned polls and subscribers, oldest first */
    struct nd_list ready;       /* partitions that may have something to deliver, rotating */
    struct nd_list arrival;     /* in shard->arrivals: has a new waiter */
    struct nd_list subscribers; /* all that are open */
    struct nd_list parked;  /* requests that wait for a partition to open, in order (nd_msg.link) */
    uint32_t pending;       /* partitions opening, cold reads and skips under way */
    struct nd_list overdue; /* polls whose time is over and that wait for a pending one */
    bool touched;           /* every owned partition was */

    uint64_t used_ns;     /* last poll or subscriber of all of it */
    struct nd_list walk;  /* in shard->walk, cold.h */
    uint64_t walk_ns;     /* when its closed partitions are looked at next */
    int64_t cold_goes_ms; /* none of them has something to remove while the cutoff is not above */

    struct nd_list ending; /* in shard->ending */
    uint32_t busy;         /* units, jobs and reads that refer to it */
    bool ended;
    bool asking;     /* is it gone? under way */
    uint64_t ask_ns; /* and not again before */
};

struct nd_topic_state *nd_topic_state_new(struct nd_shard *shard, const char *name,
                                          uint64_t incarnation);
void nd_topic_state_free(struct nd_topic_state *state);
/* The live state of the request's incarnation, or NULL: it ended. */
struct nd_topic_state *nd_topic_state_find(struct nd_shard *shard, const struct nd_topic *topic);
/* A record was told: created or changed. */
void nd_topic_state_set(struct nd_topic_state *state, const struct nd_topic *topic);
/* The partition, made when missing; `index` is below partitions_count. */
struct nd_partition *nd_topic_state_partition(struct nd_topic_state *state, uint32_t index);
bool nd_topic_state_owns(const struct nd_topic_state *state, uint32_t index);
/* Open every owned partition that is closed: somebody wants whatever the topic has. */
void nd_topic_state_touch_all(struct nd_topic_state *state);
/* Room for partitions up to `count`. */
void nd_topic_state_grow(struct nd_topic_state *state, uint32_t count);

/* Something that polls with no time left wait for began, or ended. */
void nd_topic_state_pending_begin(struct nd_topic_state *state);
void nd_topic_state_pending_end(struct nd_topic_state *state);
/* Park a request behind an opening; run all parked ones again, in order. */
void nd_topic_state_park(struct nd_topic_state *state, struct nd_msg *msg);
void nd_topic_state_unpark(struct nd_topic_state *state);
/* Something of it came back; ends the life of an ended one with the last. */
void nd_topic_state_unbusy(struct nd_topic_state *state);

#endif
