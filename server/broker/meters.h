/* The broker's metrics. Series of a topic are shared by all incarnations of its name
 * on the shard and go with the last of them. */
#ifndef ND_METERS_H
#define ND_METERS_H

#include "storage/base/list.h"
#include "storage/base/metrics.h"

struct nd_partition;
struct nd_shard;

struct nd_meters {
    struct nd_series *topics, *partitions, *open_partition_logs, *tail_bytes, *errors_read,
        *accepts_held, *accepts_discarded, *unflushable, *restated_bytes, *evicted, *errors_evict,
        *errors_retain, *cold_opened, *retention_seconds, *data_dir_bytes, *acks_stale;
};

enum nd_wait_outcome {
    ND_WAIT_HIT,
    ND_WAIT_TIMEOUT,
    ND_WAIT_CANCELLED,
    ND_WAIT_NONE,
    ND_WAIT_COUNT
};

struct nd_topic_meters {
    char *name;
    uint32_t refs;
    struct nd_series *wait[ND_WAIT_COUNT]; /* made at first use */
    struct nd_series *empty, *extended, *nacked;
    struct nd_series *bytes; /* usage.h */
    uint64_t bytes_counted;
    struct nd_list stale;
};

struct nd_partition_meters {
    struct nd_series *produced, *produced_bytes, *consumed, *consumed_bytes, *corrupt_skipped,
        *dropped, *lag, *in_flight, *ahead, *size_bytes, *segments;
    struct nd_series *oldest; /* made when it is known for the first time */
};

void nd_meters_init(struct nd_meters *meters, struct nd_metrics *metrics);
struct nd_topic_meters *nd_topic_meters_get(struct nd_shard *shard, const char *name);
void nd_topic_meters_put(struct nd_shard *shard, struct nd_topic_meters *meters);
void nd_topic_meters_waited(struct nd_shard *shard, struct nd_topic_meters *meters,
                            enum nd_wait_outcome outcome, uint64_t ns);
void nd_partition_meters_init(struct nd_partition *partition);
/* The partition is forgotten: its series go, but for those that tell of something amiss (a lag,
 * messages dropped or skipped). Not while another incarnation of the name uses them. */
void nd_partition_meters_release(struct nd_partition *partition);
/* Refresh the gauges of every partition that was touched since the last time. */
void nd_meters_refresh(struct nd_shard *shard);

#endif
