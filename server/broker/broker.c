#include "server/broker/broker.h"

#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/broker/accept.h"
#include "server/broker/delete.h"
#include "server/broker/topic_state.h"
#include "server/broker/worker.h"

struct nd_shard *nd_broker_shard(struct nd_broker *broker, const struct nd_topic *topic)
{
    return nd_broker_shard_of_name(broker, topic->name);
}

struct nd_shard *nd_broker_shard_of_name(struct nd_broker *broker, const char *name)
{
    return &broker->shards[nd_fnv1a32(nd_slice_str(name)) % broker->options.shards];
}

/* --- start --- */

static struct nd_topic_state *state_of(struct nd_shard *shard, const char *name,
                                       uint64_t incarnation)
{
    struct nd_topic_state *state = nd_map_get_u64(shard->topics, incarnation);

    return state != NULL ? state : nd_topic_state_new(shard, name, incarnation);
}

static void recover(struct nd_broker *broker, struct nd_recovery *recovery)
{
    struct nd_recovered_partition *recovered;
    struct nd_list *link;

    while ((recovered = nd_recovery_pop(recovery)) != NULL) {
        const struct nd_partition_id *id = &recovered->positions.id;
        struct nd_topic_state *state =
            state_of(nd_broker_shard_of_name(broker, id->topic), id->topic, id->incarnation);
        nd_topic_state_grow(state, id->partition + 1);
        nd_partition_recover(nd_topic_state_partition(state, id->partition), recovered);
        nd_recovered_partition_free(recovered);
    }
    while ((link = nd_list_pop(&recovery->accepts)) != NULL) {
        struct nd_recovered_accept *accept =
            ND_CONTAINER_OF(link, struct nd_recovered_accept, link);
        nd_accept_recover(nd_broker_shard_of_name(broker, accept->id.topic), accept);
        nd_recovered_accept_free(accept);
    }
}

enum nd_err nd_broker_new(struct nd_broker **out, const struct nd_broker_options *options,
                          struct nd_recovery *recovery, struct nd_errmsg *msg)
{
    struct nd_wal_stats stats;
    uint64_t next_ns;

    if (options->shards == 0 || options->tail_memory_bytes == 0 || options->flush_bytes == 0) {
        nd_errmsg_set(msg, "broker: shards, tail memory and flush size must not be 0");
        return ND_ERR_INVALID_ARGUMENT;
    }
    struct nd_broker *broker = nd_xcalloc(1, sizeof *broker);
    broker->options = *options;
    nd_meters_init(&broker->meters, options->metrics);
    nd_wal_stats(options->wal, &stats);
    broker->wal_writer = stats.writer;
    broker->workers = nd_workers_new(options->workers);
    broker->shards = nd_xcalloc(options->shards, sizeof *broker->shards);
    for (uint32_t i = 0; i < options->shards; i++) {
        nd_shard_init(&broker->shards[i], broker, i);
    }
    if (recovery != NULL) {
        recover(broker, recovery);
    }
    for (uint32_t i = 0; i < options->shards; i++) {
        /* Before anybody trims the log it must know what is needed of it. */
        (void)nd_shard_step(&broker->shards[i], &next_ns);
    }
    *out = broker;
    return ND_OK;
}

static bool threads_start(struct nd_broker *broker)
{
    if (!nd_workers_start(broker->workers)) {
        return false;
    }
    for (uint32_t i = 0; i < broker->options.shards; i++) {
        char name[16];
        snprintf(name, sizeof name, "nd-shard-%u", i % 1000);
        if (!nd_thread_start(&broker->shards[i].thread, name, nd_shard_run, &broker->shards[i])) {
            return false;
        }
    }
    return true;
}

enum nd_err nd_broker_start(struct nd_broker *broker, struct nd_errmsg *msg)
{
    broker->started = true;
    if (!threads_start(broker)) {
        nd_broker_stop(broker); /* those that run */
        nd_errmsg_set(msg, "broker: a thread cannot be started");
        return ND_ERR_NO_MEMORY;
    }
    return ND_OK;
}

bool nd_broker_step(struct nd_broker *broker, uint32_t shard, uint64_t *next_ns)
{
    bool worked = nd_workers_step(broker->workers);

    return nd_shard_step(&broker->shards[shard], next_ns) || worked;
}

/* --- stop --- */

/* A message that every shard gets. */
struct shard_note {
    struct nd_msg msg;
};

static void note_all(struct nd_broker *broker, void (*run)(struct nd_msg *msg, void *owner))
{
    for (uint32_t i = 0; i < broker->options.shards; i++) {
        struct shard_note *note = nd_xcalloc(1, sizeof *note);
        note->msg.run = run;
        nd_inbox_push(&broker->shards[i].inbox, &note->msg);
    }
}

static void note_stop(struct nd_msg *msg, void *owner)
{
    nd_free(ND_CONTAINER_OF(msg, struct shard_note, msg));
    nd_shard_stop_begin(owner);
}

void nd_broker_stop_begin(struct nd_broker *broker)
{
    /* relaxed: only makes the second call do nothing */
    if (!atomic_exchange_explicit(&broker->stopping, true, memory_order_relaxed)) {
        note_all(broker, note_stop);
    }
}

bool nd_broker_stopped(const struct nd_broker *broker)
{
    for (uint32_t i = 0; i < broker->options.shards; i++) {
        /* acquire: pairs with nd_shard_stop_step */
        if (!atomic_load_explicit(&broker->shards[i].stopped, memory_order_acquire)) {
            return false;
        }
    }
    return true;
}

/* Without threads everything is stepped from here, as far as it moves. */
static void stop_stepping(struct nd_broker *broker)
{
    bool moved = true;

    while (!nd_broker_stopped(broker) && moved) {
        moved = false;
        for (uint32_t i = 0; i < broker->options.shards; i++) {
            uint64_t next_ns;
            moved |= nd_broker_step(broker, i, &next_ns);
        }
        moved |= nd_wal_step(broker->options.wal);
        moved |= nd_flusher_step(broker->options.flusher);
    }
}

void nd_broker_stop(struct nd_broker *broker)
{
    nd_broker_stop_begin(broker);
    if (!broker->started) {
        stop_stepping(broker);
        return;
    }
    for (uint32_t i = 0; i < broker->options.shards; i++) {
        nd_thread_join(&broker->shards[i].thread);
    }
    nd_workers_stop(broker->workers);
}

void nd_broker_free(struct nd_broker *broker)
{
    if (broker == NULL) {
        return;
    }
    nd_workers_free(broker->workers);
    for (uint32_t i = 0; i < broker->options.shards; i++) {
        nd_shard_release(&broker->shards[i]);
    }
    nd_free(broker->shards);
    nd_free(broker);
}

/* --- what the metadata tells --- */

struct topic_note {
    struct nd_msg msg;
    struct nd_topic *before, *after; /* counted */
    bool is_new;                     /* created since this node caught up: it has no files */
};

static void topic_note_run(struct nd_msg *msg, void *owner)
{
    struct topic_note *note = ND_CONTAINER_OF(msg, struct topic_note, msg);
    struct nd_shard *shard = owner;
    const struct nd_topic *topic = note->after != NULL ? note->after : note->before;
    struct nd_topic_state *state = nd_map_get_u64(shard->topics, topic->incarnation);

    if (shard->stage == ND_SHARD_STOPPED) {
        /* Told again at the next start. */
    } else if (note->after == NULL) {
        if (state != NULL) {
            nd_topic_end(state);
        }
    } else {
        if (state == NULL) {
            state = nd_topic_state_new(shard, topic->name, topic->incarnation);
            state->fresh_from = note->is_new && note->before == NULL ? 0 : UINT32_MAX;
        }
        if (note->is_new && note->before != NULL) {
            state->fresh_from = ND_MIN(state->fresh_from, note->before->partitions);
        }
        nd_topic_state_set(state, note->after);
        shard->accepts_due = true;
    }
    nd_topic_unref(note->before);
    nd_topic_unref(note->after);
    nd_free(note);
}

void nd_broker_topic_changed(void *arg, const struct nd_topic *before, const struct nd_topic *after)
{
    struct nd_broker *broker = arg;
    struct topic_note *note;

    if (before != NULL && after != NULL && before->incarnation != after->incarnation) {
        nd_broker_topic_changed(arg, before, NULL);
        before = NULL;
    }
    note = nd_xcalloc(1, sizeof *note);
    note->msg.run = topic_note_run;
    note->before = before != NULL ? nd_topic_ref(before) : NULL;
    note->after = after != NULL ? nd_topic_ref(after) : NULL;
    /* acquire: pairs with nd_broker_set_caught_up */
    note->is_new = atomic_load_explicit(&broker->caught_up, memory_order_acquire);
    nd_inbox_push(&nd_broker_shard(broker, after != NULL ? after : before)->inbox, &note->msg);
}

void nd_broker_set_confirm_gone(struct nd_broker *broker, nd_confirm_gone_fn *confirm, void *arg)
{
    broker->confirm_gone = confirm;
    broker->confirm_gone_arg = arg;
}

static void note_caught_up(struct nd_msg *msg, void *owner)
{
    struct nd_shard *shard = owner;

    nd_free(ND_CONTAINER_OF(msg, struct shard_note, msg));
    shard->accepts_due = true;
    shard->housekeeping_ns = shard->now_ns;
    shard->active = true;
}

void nd_broker_set_caught_up(struct nd_broker *broker)
{
    /* release: topics told before it, and confirm_gone, are seen by who sees it */
    atomic_store_explicit(&broker->caught_up, true, memory_order_release);
    note_all(broker, note_caught_up);
}
