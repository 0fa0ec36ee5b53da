#include "gateway/in_flight.h"

#include "storage/base/alloc.h"
#include "storage/base/env.h"
#include "storage/base/map.h"
#include "storage/base/thread.h"

struct nd_in_flight {
    uint64_t limit;
    struct nd_mutex lock;
    struct nd_map *by_peer; /* counts, as pointers that point nowhere; guarded by lock */
};

static void *as_value(uintptr_t count)
{
    return (void *)count;
}

struct nd_in_flight *nd_in_flight_new(uint64_t limit)
{
    struct nd_in_flight *counts = nd_xcalloc(1, sizeof *counts);
    counts->limit = limit;
    nd_mutex_init(&counts->lock);
    counts->by_peer = nd_map_new(nd_env_random_u64(nd_env_posix()));
    return counts;
}

void nd_in_flight_free(struct nd_in_flight *counts)
{
    if (counts != NULL) {
        nd_map_free(counts->by_peer);
        nd_mutex_release(&counts->lock);
        nd_free(counts);
    }
}

enum nd_err nd_in_flight_begin(struct nd_in_flight *counts, const char *peer, uint32_t weight,
                               struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;
    if (counts->limit == 0) {
        return ND_OK;
    }
    nd_mutex_lock(&counts->lock);
    uintptr_t now = (uintptr_t)nd_map_get(counts->by_peer, nd_slice_str(peer));
    if (now + weight > counts->limit) {
        err = ND_ERR_LIMITED;
    } else {
        (void)nd_map_put(counts->by_peer, nd_slice_str(peer), as_value(now + weight));
    }
    nd_mutex_unlock(&counts->lock);
    if (err != ND_OK) {
        nd_errmsg_set(msg,
                      "too many in-flight consume requests for this identity (limit %llu per node)",
                      (unsigned long long)counts->limit);
    }
    return err;
}

void nd_in_flight_end(struct nd_in_flight *counts, const char *peer, uint32_t weight)
{
    if (counts->limit == 0) {
        return;
    }
    nd_mutex_lock(&counts->lock);
    uintptr_t now = (uintptr_t)nd_map_get(counts->by_peer, nd_slice_str(peer));
    ND_ASSERT(now >= weight);
    if (now == weight) {
        (void)nd_map_remove(counts->by_peer, nd_slice_str(peer));
    } else {
        (void)nd_map_put(counts->by_peer, nd_slice_str(peer), as_value(now - weight));
    }
    nd_mutex_unlock(&counts->lock);
}
