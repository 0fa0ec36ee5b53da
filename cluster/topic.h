/* A topic as the replicated metadata holds it: an immutable counted record, replaced whole by a
 * change (T3). A request carries the record it was checked against. */
#ifndef ND_TOPIC_H
#define ND_TOPIC_H

#include <stdatomic.h>

#include "storage/base/err.h"
#include "storage/base/limits.h"
#include "storage/base/slice.h"

enum { ND_TOPIC_OWNER_SIZE_MAX = 64, ND_TOPIC_PARTITIONS_LIMIT = 4096 };

enum nd_topic_role { ND_ROLE_STANDALONE, ND_ROLE_PARENT, ND_ROLE_CHILD };

struct nd_topic {
    _Atomic uint32_t refs;
    char name[ND_TOPIC_NAME_SIZE_MAX + 1];
    uint64_t incarnation; /* random, never 0; shown as 16 hex digits */
    uint64_t version;     /* raised by every change of this topic */
    uint32_t partitions;
    uint64_t retention_ms; /* 0: forever */
    uint64_t visibility_timeout_ms;
    uint32_t max_in_flight;   /* per partition */
    uint32_t max_acked_ahead; /* per partition */
    int64_t created_at_s;
    enum nd_topic_role role;
    char owner[ND_TOPIC_OWNER_SIZE_MAX + 1]; /* user name; "" */
    uint64_t *owners; /* member number that owns each partition; 0: not assigned */
};

/* What a create asks for (nd_metastore_create_topic). */
struct nd_topic_create {
    char name[ND_TOPIC_NAME_SIZE_MAX + 1];
    uint32_t partitions; /* resolved: no zeros meaning default here, except retention 0 = forever */
    uint64_t retention_ms, visibility_timeout_ms;
    uint32_t max_in_flight, max_acked_ahead;
    char owner[ND_TOPIC_OWNER_SIZE_MAX + 1];
};

/* What an alter asks for (nd_metastore_alter_topic). */
struct nd_topic_alter {
    char name[ND_TOPIC_NAME_SIZE_MAX + 1];
    bool has_retention, has_max_in_flight, has_max_acked_ahead;
    uint64_t retention_ms;
    uint32_t max_in_flight, max_acked_ahead;
    uint32_t partitions; /* 0: unchanged; else greater than now */
};

/* One reference, the caller's; `partitions` entries of owners, zero. */
struct nd_topic *nd_topic_new(uint32_t partitions);
struct nd_topic *nd_topic_ref(const struct nd_topic *topic);
void nd_topic_unref(const struct nd_topic *topic); /* NULL passes */

/* ^[A-Za-z0-9._-]{1,255}$ and not "." or ".." in words. */
ND_CHECKED enum nd_err nd_topic_name_check(struct nd_slice name, struct nd_errmsg *msg);

#endif
