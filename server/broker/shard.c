#include "server/broker/shard.h"

#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/broker/accept.h"
#include "server/broker/chores.h"
#include "server/broker/collect.h"
#include "server/broker/delete.h"
#include "server/broker/flush.h"
#include "server/broker/frames.h"
#include "server/broker/poll.h"
#include "server/broker/produce.h"
#include "server/broker/restate.h"
#include "server/broker/settle.h"
#include "server/broker/topic_state.h"
#include "server/broker/waiters.h"
#include "server/broker/worker.h"

enum {
    HOUSEKEEPING_ACTIVE_NS = 100000000,
    HOUSEKEEPING_IDLE_NS = 1000000000,
    DOWN_PROBE_NS = 100000000,
    DOWN_FULL_NS = 1000000000,
};

/* Whether this thread is in a step: nothing that a step calls steps another shard. */
static _Thread_local bool stepping;

static void wal_failed(struct nd_msg *msg, void *owner);
static bool help_step(void *data, uint64_t *next_ns);

void nd_shard_init(struct nd_shard *shard, struct nd_broker *broker, uint32_t index)
{
    *shard = (struct nd_shard){.broker = broker, .index = index};
    shard->env = broker->options.env;
    shard->wal = broker->options.wal;
    shard->now_ns = shard->env->mono_ns(shard->env->impl);
    shard->needs_stale = true;
    nd_inbox_init(&shard->inbox);
    shard->inbox.step = help_step;
    shard->inbox.step_data = shard;
    shard->topics = nd_map_new(nd_env_random_u64(shard->env));
    shard->meters = nd_map_new(nd_env_random_u64(shard->env));
    shard->deliveries = nd_xcalloc(ND_POLL_MESSAGES_MAX, sizeof *shard->deliveries);
    struct nd_list *lists[] = {&shard->ending, &shard->woken,   &shard->arrivals,
                               &shard->stuck,  &shard->accepts, &shard->cached,
                               &shard->frames, &shard->dirty,   &shard->watched,
                               &shard->walk,   &shard->held,    &shard->usage_stale};
    for (size_t i = 0; i < ND_ARRAY_SIZE(lists); i++) {
        nd_list_init(lists[i]);
    }
    struct nd_heap *heaps[] = {&shard->polls,   &shard->expiries, &shard->retries, &shard->pins,
                               &shard->lifting, &shard->by_size,  &shard->by_age};
    for (size_t i = 0; i < ND_ARRAY_SIZE(heaps); i++) {
        nd_heap_init(heaps[i]);
    }
    atomic_init(&shard->stopped, false);
    shard->stager.inbox = &shard->inbox;
    shard->stager.failed.run = wal_failed;
    nd_wal_stager_add(shard->wal, &shard->stager);
}

static void topics_free(struct nd_shard *shard)
{
    size_t at = 0;
    void *value;
    struct nd_slice key;
    struct nd_list *link;

    while ((link = nd_list_first(&shard->ending)) != NULL) {
        nd_topic_state_free(ND_CONTAINER_OF(link, struct nd_topic_state, ending));
    }
    while (nd_map_next(shard->topics, &at, &key, &value)) {
        struct nd_topic_state *topic = value;
        nd_map_remove_u64(shard->topics, topic->incarnation);
        nd_topic_state_free(topic);
    }
}

void nd_shard_release(struct nd_shard *shard)
{
    nd_inbox_run(&shard->inbox, shard); /* what came after the stop: refused, closed */
    nd_accept_release(shard);
    topics_free(shard);
    nd_settle_stage(shard);
    nd_settle_release(shard);
    nd_wal_stager_remove(shard->wal, &shard->stager);
    nd_map_free(shard->topics);
    nd_map_free(shard->meters);
    nd_free(shard->deliveries);
    struct nd_heap *heaps[] = {&shard->polls,   &shard->expiries, &shard->retries, &shard->pins,
                               &shard->lifting, &shard->by_size,  &shard->by_age};
    for (size_t i = 0; i < ND_ARRAY_SIZE(heaps); i++) {
        nd_heap_release(heaps[i]);
    }
    nd_inbox_release(&shard->inbox);
}

uint64_t nd_shard_nonce(struct nd_shard *shard)
{
    uint64_t nonce;

    do {
        if (shard->nonces_left == 0) {
            shard->env->random(shard->env->impl, shard->nonces, sizeof shard->nonces);
            shard->nonces_left = ND_NONCES;
        }
        nonce = shard->nonces[--shard->nonces_left] >> 1;
    } while (nonce == 0);
    return nonce;
}

/* --- the WAL, up and down --- */

static void down_begin(struct nd_shard *shard, uint64_t for_ns)
{
    if (shard->down_since_ns == 0) {
        shard->down_since_ns = shard->now_ns;
    }
    shard->down_until_ns = shard->now_ns + for_ns;
}

/* Every unit staged before the failure has come back and took back what it held (W5). */
static void wal_failed(struct nd_msg *msg, void *owner)
{
    struct nd_shard *shard = owner;

    (void)msg;
    down_begin(shard, DOWN_PROBE_NS);
    nd_wal_stager_adopt(shard->wal, &shard->stager);
}

static void postpone_all(struct nd_shard *shard, uint64_t by_ns)
{
    size_t at = 0;
    void *value;
    struct nd_slice key;

    while (nd_map_next(shard->topics, &at, &key, &value)) {
        struct nd_topic_state *topic = value;
        for (uint32_t i = 0; i < topic->partitions_count; i++) {
            struct nd_partition *partition = topic->partitions[i];
            if (partition != NULL && partition->state == ND_PARTITION_OPEN) {
                nd_lease_postpone(&partition->leases, by_ns);
                nd_waiters_wake(partition); /* skips stood still as well */
            }
        }
    }
}

static void down_check(struct nd_shard *shard)
{
    struct nd_wal_stats stats;

    if (shard->down_since_ns == 0 || shard->now_ns < shard->down_until_ns) {
        return;
    }
    nd_wal_stats(shard->wal, &stats);
    if (stats.failed) {
        shard->down_until_ns = shard->now_ns + DOWN_PROBE_NS;
        return;
    }
    postpone_all(shard, shard->now_ns - shard->down_since_ns);
    shard->down_since_ns = 0;
    shard->accepts_due = true;
}

enum nd_err nd_shard_stage_unit(struct nd_shard *shard, struct nd_wal_unit *unit)
{
    enum nd_err err = nd_wal_stage(shard->wal, &shard->stager, unit);

    if (err == ND_OK) {
        shard->staged += 1;
        shard->active = true;
        shard->needs_stale = true;
        return ND_OK;
    }
    if (err == ND_ERR_OVERLOADED || err == ND_ERR_TOO_LARGE) {
        /* The budgets in front (T1) and our own sizes exclude it. */
        nd_log_lasting(shard->broker->options.log, ND_LOG_ERROR, "broker", "WAL refused a unit",
                       "err=%s bytes=%zu", nd_err_name(err), unit->bytes);
    }
    if (unit->class == ND_WAL_RESERVED) {
        down_begin(shard, err == ND_ERR_UNAVAILABLE ? DOWN_PROBE_NS : DOWN_FULL_NS);
    }
    return err;
}

void nd_shard_unit_back(struct nd_shard *shard)
{
    ND_ASSERT(shard->staged > 0);
    shard->staged -= 1;
    shard->needs_stale = true;
}

/* What the log must keep for this shard, in O(1) from the heaps. */
static void publish_needs(struct nd_shard *shard)
{
    struct nd_heap_node *pin = nd_heap_first(&shard->pins);
    struct nd_heap_node *lifting = nd_heap_first(&shard->lifting);
    uint64_t needs = nd_accept_needs(shard);

    needs = pin != NULL ? ND_MIN(needs, pin->key) : needs;
    needs = lifting != NULL ? ND_MIN(needs, lifting->key) : needs;
    /* Staging lowers what the WAL knows by itself, so after it the same number is said again. */
    if (needs != shard->needs_published || shard->needs_stale) {
        shard->needs_published = needs;
        shard->needs_stale = false;
        nd_wal_stager_needs(shard->wal, &shard->stager, needs);
    }
}

/* --- the step --- */

static void expire_leases(struct nd_shard *shard)
{
    struct nd_heap_node *node;

    if (shard->down_since_ns != 0) {
        return;
    }
    while ((node = nd_heap_first(&shard->expiries)) != NULL && node->key <= shard->now_ns) {
        struct nd_partition *partition = ND_CONTAINER_OF(node, struct nd_partition, expiry);
        nd_heap_remove(&shard->expiries, node);
        nd_settle_expire(partition);
        nd_collect_watch_expiry(partition);
    }
}

static void end_retries(struct nd_shard *shard)
{
    struct nd_heap_node *node;

    while ((node = nd_heap_first(&shard->retries)) != NULL && node->key <= shard->now_ns) {
        nd_heap_remove(&shard->retries, node);
        nd_waiters_wake(ND_CONTAINER_OF(node, struct nd_partition, retry));
    }
}

static void housekeeping(struct nd_shard *shard)
{
    if (shard->now_ns < shard->housekeeping_ns) {
        return;
    }
    shard->housekeeping_ns =
        shard->now_ns + (shard->active ? HOUSEKEEPING_ACTIVE_NS : HOUSEKEEPING_IDLE_NS);
    shard->active = false;
    if (shard->stage <= ND_SHARD_DRAINING) {
        nd_restate_lift(shard);
    }
    /* relaxed: see nd_broker */
    uint32_t tails = atomic_load_explicit(&shard->broker->tails, memory_order_relaxed);
    if (tails != shard->tails_told) {
        shard->tails_told = tails;
        nd_wal_set_tails(shard->wal, tails);
    }
    shard->ask_ns = nd_topics_ask(shard);
    nd_meters_refresh(shard);
}

static uint64_t heap_key(const struct nd_heap *heap)
{
    struct nd_heap_node *node = nd_heap_first(heap);

    return node == NULL ? UINT64_MAX : node->key;
}

/* When there is something to do without a message. */
static uint64_t next_deadline(struct nd_shard *shard)
{
    uint64_t next = ND_MIN(heap_key(&shard->polls), heap_key(&shard->retries));

    next = shard->flushes_held ? next : ND_MIN(next, heap_key(&shard->by_age));
    next = ND_MIN(next, nd_chores_due_ns(shard));
    if (shard->down_since_ns != 0) {
        next = ND_MIN(next, shard->down_until_ns);
    } else {
        next = ND_MIN(next, heap_key(&shard->expiries));
    }
    if (shard->stage == ND_SHARD_DRAINING) {
        next = ND_MIN(next, shard->stop_give_up_ns);
    }
    bool chores = shard->active || shard->pins.count > 0 || shard->lifting.count > 0 ||
                  !nd_list_empty(&shard->dirty) || shard->ask_ns != UINT64_MAX;
    return chores ? ND_MIN(next, shard->housekeeping_ns) : next;
}

static bool step(struct nd_shard *shard, uint64_t *next_ns)
{
    shard->now_ns = shard->env->mono_ns(shard->env->impl);
    bool any = nd_inbox_run(&shard->inbox, shard) > 0;
    if (shard->stage == ND_SHARD_STOPPED) {
        *next_ns = UINT64_MAX;
        return any;
    }
    down_check(shard);
    if (shard->accepts_due) {
        nd_accept_dispatch(shard);
    }
    expire_leases(shard);
    end_retries(shard);
    any |= nd_waiters_serve(shard);
    any |= nd_polls_expire(shard);
    nd_settle_stage(shard);
    nd_produce_let_in(shard); /* after the acks: they are in the group before */
    nd_flush_check(shard);
    housekeeping(shard);
    any |= nd_chores_step(shard);
    any |= nd_shard_stop_step(shard);
    nd_frames_trim(shard);
    publish_needs(shard);
    /* Acks that could not be staged may have woken someone. */
    any |= !nd_list_empty(&shard->woken) || !nd_list_empty(&shard->arrivals);
    *next_ns = next_deadline(shard);
    return any;
}

bool nd_shard_step(struct nd_shard *shard, uint64_t *next_ns)
{
    stepping = true;
    bool any = step(shard, next_ns);
    stepping = false;
    return any;
}

/* In the place of the shard's thread, which has to be woken to see that it is done. */
static bool help_step(void *data, uint64_t *next_ns)
{
    struct nd_shard *shard = data;
    bool any = nd_shard_step(shard, next_ns);

    return any || shard->stage == ND_SHARD_STOPPED;
}

void nd_shard_push(struct nd_shard *shard, struct nd_msg *msg)
{
    struct nd_list one = ND_LIST_INIT(one);

    if (stepping) {
        nd_inbox_push(&shard->inbox, msg);
        return;
    }
    nd_list_append(&one, &msg->link);
    nd_inbox_push_help(&shard->inbox, &one);
}

void nd_shard_run(void *arg)
{
    struct nd_shard *shard = arg;
    uint64_t next_ns;

    while (shard->stage != ND_SHARD_STOPPED) {
        if (!nd_shard_step(shard, &next_ns)) {
            nd_inbox_wait(&shard->inbox, next_ns);
        }
    }
}
