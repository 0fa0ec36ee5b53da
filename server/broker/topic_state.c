#include "server/broker/topic_state.h"

#include "storage/base/alloc.h"

#include "server/broker/chores.h"
#include "server/broker/cold.h"
#include "server/broker/delete.h"
#include "server/broker/waiters.h"

struct nd_topic_state *nd_topic_state_new(struct nd_shard *shard, const char *name,
                                          uint64_t incarnation)
{
    struct nd_topic_state *state = nd_xcalloc(1, sizeof *state);

    state->shard = shard;
    state->incarnation = incarnation;
    state->fresh_from = UINT32_MAX;
    state->meters = nd_topic_meters_get(shard, name);
    nd_list_init(&state->waiters);
    nd_list_init(&state->ready);
    nd_list_init(&state->arrival);
    nd_list_init(&state->subscribers);
    nd_list_init(&state->parked);
    nd_list_init(&state->overdue);
    nd_list_init(&state->ending);
    nd_list_init(&state->walk);
    state->cold_goes_ms = ND_RETENTION_NOTHING;
    nd_map_put_u64(shard->topics, incarnation, state);
    /* relaxed: a gauge */
    atomic_fetch_add_explicit(&shard->broker->topics, 1, memory_order_relaxed);
    return state;
}

void nd_topic_state_free(struct nd_topic_state *state)
{
    struct nd_shard *shard = state->shard;

    ND_ASSERT(nd_list_empty(&state->waiters) && nd_list_empty(&state->parked));
    ND_ASSERT(nd_list_empty(&state->subscribers));
    for (uint32_t i = 0; i < state->partitions_count; i++) {
        if (state->partitions[i] != NULL) {
            nd_partition_free(state->partitions[i]);
        }
    }
    nd_list_remove(&state->arrival);
    nd_list_remove(&state->ending);
    nd_list_remove(&state->walk);
    nd_topic_meters_put(shard, state->meters);
    nd_topic_unref(state->topic);
    nd_free(state->partitions);
    nd_free(state);
    /* relaxed: a gauge */
    atomic_fetch_sub_explicit(&shard->broker->topics, 1, memory_order_relaxed);
}

struct nd_topic_state *nd_topic_state_find(struct nd_shard *shard, const struct nd_topic *topic)
{
    struct nd_topic_state *state = nd_map_get_u64(shard->topics, topic->incarnation);

    return state != NULL && state->topic != NULL ? state : NULL;
}

void nd_topic_state_grow(struct nd_topic_state *state, uint32_t count)
{
    if (count <= state->partitions_count) {
        return;
    }
    state->partitions = nd_xrealloc(state->partitions, count * sizeof *state->partitions);
    for (uint32_t i = state->partitions_count; i < count; i++) {
        state->partitions[i] = NULL;
    }
    state->partitions_count = count;
    state->touched = false;
}

void nd_topic_state_touch_all(struct nd_topic_state *state)
{
    state->used_ns = state->shard->now_ns;
    if (state->touched) {
        return;
    }
    for (uint32_t i = 0; i < state->topic->partitions; i++) {
        if (nd_topic_state_owns(state, i)) {
            (void)nd_partition_touch(nd_topic_state_partition(state, i));
        }
    }
    state->touched = true;
}

/* Its partitions are looked at with the new retention now, not in their turn (I-49). */
static void retention_changed(struct nd_topic_state *state)
{
    for (uint32_t i = 0; i < state->partitions_count; i++) {
        if (state->partitions[i] != NULL) {
            nd_chores_look_soon(state->partitions[i]);
        }
    }
    nd_cold_watch_now(state);
}

void nd_topic_state_set(struct nd_topic_state *state, const struct nd_topic *topic)
{
    struct nd_topic *before = state->topic;

    if (before != NULL && topic->version < before->version) {
        return; /* told twice, the older one last */
    }
    bool changed = before != NULL && before->retention_ms != topic->retention_ms;
    state->topic = nd_topic_ref(topic);
    nd_topic_unref(before);
    if (changed) {
        retention_changed(state);
    } else if (before == NULL && state->fresh_from == 0) {
        nd_cold_watch(state); /* there can be no files yet */
    } else if (before == NULL) {
        nd_cold_watch_first(state);
    }
    nd_topic_state_grow(state, topic->partitions);
    state->touched = false; /* it may own others now */
    for (uint32_t i = 0; i < state->partitions_count; i++) {
        struct nd_partition *partition = state->partitions[i];
        if (partition != NULL && partition->state == ND_PARTITION_OPEN) {
            nd_lease_table_set_caps(&partition->leases, topic->max_in_flight,
                                    topic->max_acked_ahead);
            nd_waiters_wake(partition);
        }
    }
}

struct nd_partition *nd_topic_state_partition(struct nd_topic_state *state, uint32_t index)
{
    ND_ASSERT(index < state->partitions_count);
    if (state->partitions[index] == NULL) {
        state->partitions[index] = nd_partition_new(state, index);
    }
    return state->partitions[index];
}

bool nd_topic_state_owns(const struct nd_topic_state *state, uint32_t index)
{
    return index < state->topic->partitions &&
           state->topic->owners[index] == state->shard->broker->options.member;
}

void nd_topic_state_pending_begin(struct nd_topic_state *state)
{
    state->pending += 1;
}

void nd_topic_state_pending_end(struct nd_topic_state *state)
{
    ND_ASSERT(state->pending > 0);
    state->pending -= 1;
    if (state->pending == 0 && !nd_list_empty(&state->overdue)) {
        nd_waiters_arrived(state); /* the last look at them is in this step */
    }
}

void nd_topic_state_park(struct nd_topic_state *state, struct nd_msg *msg)
{
    nd_list_append(&state->parked, &msg->link);
}

void nd_topic_state_unpark(struct nd_topic_state *state)
{
    struct nd_list mine = ND_LIST_INIT(mine);
    struct nd_shard *shard = state->shard;

    nd_list_move(&mine, &state->parked);
    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL;) {
        struct nd_msg *msg = ND_CONTAINER_OF(link, struct nd_msg, link);
        msg->run(msg, shard);
    }
}

void nd_topic_state_unbusy(struct nd_topic_state *state)
{
    ND_ASSERT(state->busy > 0);
    state->busy -= 1;
    if (state->ended && state->busy == 0) {
        nd_topic_finish(state);
    }
}
