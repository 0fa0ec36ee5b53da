#include "server/broker/chores.h"

#include "server/broker/cold.h"
#include "server/broker/evict.h"
#include "server/broker/restate.h"
#include "server/broker/retain.h"
#include "server/broker/sweep.h"
#include "server/broker/usage.h"

enum { LOOKS_A_STEP = 64 };

static struct nd_partition *first_watched(const struct nd_shard *shard)
{
    struct nd_list *link = nd_list_first(&shard->watched);

    return link == NULL ? NULL : ND_CONTAINER_OF(link, struct nd_partition, watched);
}

static bool is_off(const struct nd_shard *shard)
{
    /* acquire: pairs with nd_broker_set_caught_up */
    return shard->broker->options.look_ms == 0 || shard->stage != ND_SHARD_RUNNING ||
           !atomic_load_explicit(&shard->broker->caught_up, memory_order_acquire);
}

void nd_chores_watch(struct nd_partition *partition)
{
    struct nd_shard *shard = partition->topic->shard;

    partition->look_ns = shard->now_ns + nd_ms_to_ns(shard->broker->options.look_ms);
    nd_list_remove(&partition->watched);
    nd_list_append(&shard->watched, &partition->watched);
}

void nd_chores_look_soon(struct nd_partition *partition)
{
    if (!nd_list_empty(&partition->watched)) {
        partition->look_ns = 0;
        nd_list_remove(&partition->watched);
        nd_list_prepend(&partition->topic->shard->watched, &partition->watched);
    }
}

uint64_t nd_chores_due_ns(const struct nd_shard *shard)
{
    const struct nd_partition *partition = first_watched(shard);

    if (is_off(shard)) {
        return UINT64_MAX;
    }
    uint64_t due = partition == NULL ? UINT64_MAX : partition->look_ns;
    due = ND_MIN(due, ND_MIN(nd_sweep_due_ns(shard), nd_usage_due_ns(shard)));
    return ND_MIN(due, nd_cold_due_ns(shard));
}

bool nd_chores_step(struct nd_shard *shard)
{
    struct nd_partition *partition;
    uint32_t looks = 0;

    if (is_off(shard)) {
        return false;
    }
    while ((partition = first_watched(shard)) != NULL && partition->look_ns <= shard->now_ns &&
           looks < LOOKS_A_STEP) {
        looks += 1;
        nd_chores_watch(partition); /* to the end */
        if (shard->down_since_ns == 0 && !partition->topic->ended) {
            nd_retain_look(partition);
            (void)nd_evict_look(partition);
        }
    }
    if (looks > 0) {
        (void)nd_restate_stage(shard); /* a failure comes back to each of them */
        nd_evict_submit(shard);
    }
    nd_sweep_step(shard);
    nd_usage_step(shard);
    return nd_cold_step(shard) || looks == LOOKS_A_STEP;
}
