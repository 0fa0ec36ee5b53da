#include "server/broker/delete.h"

#include "storage/base/alloc.h"

#include "server/broker/accept.h"
#include "server/broker/replay.h"
#include "server/broker/subscribe.h"
#include "server/broker/waiters.h"

static const uint64_t ask_again_ns = 10000000000;

void nd_topic_end(struct nd_topic_state *state)
{
    struct nd_shard *shard = state->shard;

    ND_ASSERT(!state->ended);
    nd_log(shard->broker->options.log, ND_LOG_INFO, "broker", "topic ended",
           "topic=%s incarnation=%016llx", state->meters->name,
           (unsigned long long)state->incarnation);
    nd_map_remove_u64(shard->topics, state->incarnation);
    state->ended = true;
    state->busy += 1; /* until the end of this function */
    nd_list_append(&shard->ending, &state->ending);
    nd_topic_state_unpark(state); /* each finds that it is gone */
    nd_waiters_end(state, ND_ERR_TOPIC_NOT_FOUND);
    nd_subscribers_end(state, ND_ERR_TOPIC_NOT_FOUND);
    for (uint32_t i = 0; i < state->partitions_count; i++) {
        struct nd_partition *partition = state->partitions[i];
        if (partition != NULL) {
            nd_replays_resume(partition, ND_ERR_TOPIC_NOT_FOUND);
            nd_list_remove(&partition->woken);
            if (partition->state == ND_PARTITION_OPEN) {
                nd_partition_account(partition); /* out of the flush heaps */
                nd_partition_update_pin(partition);
            }
        }
    }
    nd_list_remove(&state->walk);
    nd_list_remove(&state->arrival);
    nd_topic_state_unbusy(state);
}

/* The directory above. */
static void cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    ND_ASSERT(slash != NULL);
    *slash = '\0';
}

/* <data>/topics/<topic>/<incarnation>, the directory above a partition's. */
static void incarnation_dir(struct nd_topic_state *state, char *out, size_t out_size)
{
    struct nd_partition_id id = {.incarnation = state->incarnation};

    memcpy(id.topic, state->meters->name, strlen(state->meters->name) + 1);
    nd_flusher_partition_dir(state->shard->broker->options.flusher, &id, out, out_size);
    cut_last(out);
}

void nd_topic_finish(struct nd_topic_state *state)
{
    struct nd_shard *shard = state->shard;
    struct nd_flusher *flusher = shard->broker->options.flusher;
    struct nd_remove_job *job = nd_xcalloc(1, sizeof *job);
    char above[sizeof job->path];

    incarnation_dir(state, job->path, sizeof job->path);
    memcpy(above, job->path, sizeof above);
    cut_last(above);
    nd_flusher_remove(flusher, job);         /* frees it */
    nd_flusher_remove_empty(flusher, above); /* unless another incarnation is there */
    nd_accept_unbind(state);
    nd_topic_state_free(state);
    shard->accepts_due = true;
}

/* The answer to a question, on its way back to the shard. */
struct ask {
    struct nd_msg msg;
    struct nd_shard *shard;
    uint64_t incarnation;
    bool gone;
};

static void ask_reply(struct nd_msg *msg, void *owner)
{
    struct ask *ask = ND_CONTAINER_OF(msg, struct ask, msg);
    struct nd_shard *shard = owner;
    struct nd_topic_state *state = nd_map_get_u64(shard->topics, ask->incarnation);

    shard->jobs -= 1;
    if (state != NULL) {
        state->asking = false;
        if (ask->gone && state->topic == NULL) {
            nd_accept_discard(state);
            bool held = false;
            for (uint32_t i = 0; i < state->partitions_count; i++) {
                held |= state->partitions[i] != NULL && state->partitions[i]->accepts > 0;
            }
            if (!held) {
                nd_topic_end(state);
            }
        }
    }
    nd_free(ask);
}

/* @thread any */
static void ask_done(void *arg, enum nd_err err, bool gone)
{
    struct ask *ask = arg;

    ask->gone = err == ND_OK && gone; /* not confirmed: keep the data */
    nd_inbox_push(&ask->shard->inbox, &ask->msg);
}

static void ask_start(struct nd_topic_state *state)
{
    struct nd_shard *shard = state->shard;
    struct ask *ask = nd_xcalloc(1, sizeof *ask);

    ask->msg.run = ask_reply;
    ask->shard = shard;
    ask->incarnation = state->incarnation;
    state->asking = true;
    state->ask_ns = shard->now_ns + ask_again_ns;
    shard->jobs += 1;
    shard->broker->confirm_gone(shard->broker->confirm_gone_arg, state->meters->name,
                                state->incarnation, ask_done, ask);
}

uint64_t nd_topics_ask(struct nd_shard *shard)
{
    struct nd_broker *broker = shard->broker;
    uint64_t next_ns = UINT64_MAX;
    size_t at = 0;
    void *value;
    struct nd_slice key;

    /* acquire: pairs with nd_broker_set_caught_up */
    if (broker->confirm_gone == NULL || nd_shard_stopping(shard) ||
        !atomic_load_explicit(&broker->caught_up, memory_order_acquire)) {
        return UINT64_MAX;
    }
    while (nd_map_next(shard->topics, &at, &key, &value)) {
        struct nd_topic_state *state = value;
        if (state->topic != NULL || state->asking) {
            continue;
        }
        if (shard->now_ns >= state->ask_ns) {
            ask_start(state);
        }
        next_ns = ND_MIN(next_ns, state->ask_ns);
    }
    return next_ns;
}
