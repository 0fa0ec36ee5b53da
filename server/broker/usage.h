/* How many bytes the files of this node take: topic_bytes of each topic, data_dir_size_bytes of
 * all. A worker adds them up, some topics at a time, at most once in 30 s, and only those in which
 * something changed since; the small rest of the data directory is added up by the first shard each
 * time. `*.tmp` is left out. Nobody waits for it, and nothing is opened. @thread shard */
#ifndef ND_USAGE_H
#define ND_USAGE_H

#include "server/broker/shard.h"

/* Begin when it is due. */
void nd_usage_step(struct nd_shard *shard);
uint64_t nd_usage_due_ns(const struct nd_shard *shard);
/* Its files may have changed. */
void nd_usage_changed(struct nd_shard *shard, struct nd_topic_meters *meters);
/* It goes, and with it what it counted for. */
void nd_usage_forget(struct nd_shard *shard, struct nd_topic_meters *meters);

#endif
