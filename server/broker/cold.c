#include "server/broker/cold.h"

#include "storage/base/alloc.h"

#include "server/broker/chores.h"

enum {
    TOPICS_A_STEP = 256,
    OPEN_MAX = 64,
    /* What this process finds is looked at soon after the start, one topic after the other. */
    FIRST_MS = 5000,
    FIRST_GAP_NS = 2000000,
};

/* --- looking --- */

struct nd_peek *nd_peek_new(struct nd_topic_state *topic, uint32_t capacity)
{
    struct nd_peek *peek = nd_xcalloc(1, sizeof *peek);

    peek->topic = topic;
    peek->capacity = capacity;
    peek->items = nd_xcalloc(ND_MAX(capacity, 1u), sizeof *peek->items);
    return peek;
}

void nd_peek_add(struct nd_peek *peek, uint32_t index, bool with_state)
{
    ND_ASSERT(peek->count < peek->capacity);
    struct nd_peek_item *item = &peek->items[peek->count++];
    item->index = index;
    item->with_state = with_state;
    item->state_err = ND_ERR_NOT_FOUND;
    nd_positions_init(&item->positions);
}

void nd_peek_free(struct nd_peek *peek)
{
    for (uint32_t i = 0; i < peek->count; i++) {
        nd_positions_release(&peek->items[i].positions);
    }
    nd_free(peek->items);
    nd_free(peek);
}

/* @thread worker; the topic's state is the shard's: only its name and number are read, which never
 * change */
static void peek_work(struct nd_worker_job *base)
{
    struct nd_peek *peek = ND_CONTAINER_OF(base, struct nd_peek, job);
    const struct nd_flusher *flusher = peek->topic->shard->broker->options.flusher;
    const struct nd_plog_options *options = nd_flusher_plog_options(flusher);
    struct nd_partition_id id = {.incarnation = peek->topic->incarnation};
    char dir[1024];

    memcpy(id.topic, peek->topic->meters->name, strlen(peek->topic->meters->name) + 1);
    for (uint32_t i = 0; i < peek->count; i++) {
        struct nd_peek_item *item = &peek->items[i];
        struct nd_errmsg msg = {{0}};
        id.partition = item->index;
        nd_flusher_partition_dir(flusher, &id, dir, sizeof dir);
        item->err =
            nd_log_peek(&item->log, options->env, dir, options->store_id, peek->sizes, &msg);
        if (item->with_state && item->err == ND_OK) {
            item->state_err =
                nd_state_load(options->env, dir, options->store_id, &item->positions, &msg);
        }
    }
}

static void peek_reply(struct nd_msg *msg, void *owner)
{
    struct nd_peek *peek = ND_CONTAINER_OF(msg, struct nd_peek, job.reply);
    struct nd_topic_state *topic = peek->topic;
    struct nd_shard *shard = owner;

    shard->jobs -= 1;
    peek->done(peek);
    nd_peek_free(peek);
    nd_topic_state_unbusy(topic);
}

void nd_peek_start(struct nd_peek *peek)
{
    struct nd_shard *shard = peek->topic->shard;

    peek->job.work = peek_work;
    peek->job.reply.run = peek_reply;
    peek->job.reply_to = &shard->inbox;
    peek->topic->busy += 1;
    shard->jobs += 1;
    nd_workers_submit(shard->broker->workers, &peek->job);
}

bool nd_partition_is_cold(const struct nd_topic_state *topic, uint32_t index)
{
    const struct nd_partition *partition =
        index < topic->partitions_count ? topic->partitions[index] : NULL;

    if (partition == NULL || partition->state == ND_PARTITION_CLOSED) {
        return index < topic->fresh_from;
    }
    /* Also when all of it was let go: a crash may have come before its files were removed. */
    return partition->state == ND_PARTITION_OPEN && partition->plog == NULL &&
           partition->tail.flushed > 0;
}

/* --- the walk --- */

static struct nd_topic_state *first_walked(const struct nd_shard *shard)
{
    struct nd_list *link = nd_list_first(&shard->walk);

    return link == NULL ? NULL : ND_CONTAINER_OF(link, struct nd_topic_state, walk);
}

/* At its place by `walk_ns`, which nearly always is the last. */
static void walk_put(struct nd_topic_state *topic, uint64_t walk_ns)
{
    struct nd_list *head = &topic->shard->walk, *after;

    nd_list_remove(&topic->walk);
    topic->walk_ns = walk_ns;
    for (after = head->prev; after != head; after = after->prev) {
        if (ND_CONTAINER_OF(after, struct nd_topic_state, walk)->walk_ns <= walk_ns) {
            break;
        }
    }
    nd_list_prepend(after, &topic->walk); /* behind it */
}

static uint64_t interval_ns(const struct nd_shard *shard)
{
    return nd_ms_to_ns(shard->broker->options.cold_walk_ms);
}

void nd_cold_watch(struct nd_topic_state *topic)
{
    walk_put(topic, topic->shard->now_ns + interval_ns(topic->shard));
}

void nd_cold_watch_first(struct nd_topic_state *topic)
{
    struct nd_shard *shard = topic->shard;
    uint64_t wait_ns = nd_ms_to_ns(FIRST_MS) + shard->walks_begun * FIRST_GAP_NS;

    shard->walks_begun += 1;
    walk_put(topic, shard->now_ns + ND_MIN(wait_ns, interval_ns(shard)));
}

void nd_cold_watch_now(struct nd_topic_state *topic)
{
    topic->cold_goes_ms = ND_RETENTION_NOTHING;
    walk_put(topic, 0);
}

void nd_cold_closed(struct nd_topic_state *topic, int64_t goes_ms)
{
    topic->cold_goes_ms = ND_MIN(topic->cold_goes_ms, goes_ms);
}

static int64_t cutoff_of(const struct nd_topic_state *topic)
{
    return topic->topic == NULL
               ? ND_RETENTION_NOTHING
               : nd_retention_cutoff_ms(nd_commit_clock_now_ms(topic->shard->broker->options.clock),
                                        topic->topic->retention_ms);
}

void nd_cold_release(struct nd_partition *partition)
{
    if (partition->for_retention) {
        partition->for_retention = false;
        partition->topic->shard->retaining -= 1;
    }
}

/* Open it, if it still is closed, for retention alone: that is no use. */
static void open_for_retention(struct nd_topic_state *topic, uint32_t index)
{
    struct nd_shard *shard = topic->shard;

    if (!nd_partition_is_cold(topic, index) || !nd_topic_state_owns(topic, index)) {
        return;
    }
    struct nd_partition *partition = nd_topic_state_partition(topic, index);
    partition->retain_due = true;
    if (partition->state == ND_PARTITION_OPEN) {
        nd_chores_look_soon(partition);
    } else {
        partition->for_retention = true;
        shard->retaining += 1;
        (void)nd_partition_open_closed(partition);
    }
    nd_series_add(shard->broker->meters.cold_opened, 1);
}

static void walk_done(struct nd_peek *peek)
{
    struct nd_topic_state *topic = peek->topic;
    struct nd_shard *shard = topic->shard;

    shard->walking = NULL;
    if (topic->ended || nd_shard_stopping(shard)) {
        return;
    }
    int64_t cutoff_ms = cutoff_of(topic);
    bool more = false;
    for (uint32_t i = 0; i < peek->count; i++) {
        const struct nd_peek_item *item = &peek->items[i];
        int64_t goes_ms = item->err == ND_OK ? item->log.goes_ms : ND_RETENTION_NOTHING;
        bool aged = item->err == ND_OK && goes_ms < cutoff_ms;
        if (aged && shard->retaining < OPEN_MAX) {
            open_for_retention(topic, item->index); /* when it is closed again it tells more */
        } else {
            nd_cold_closed(topic, aged ? ND_RETENTION_NOTHING : goes_ms);
            more |= aged;
        }
    }
    if (more) {
        nd_cold_watch_now(topic); /* when some of these are done */
    }
}

/* True: a worker looks at it. */
static bool walk_topic(struct nd_topic_state *topic)
{
    struct nd_shard *shard = topic->shard;
    int64_t cutoff_ms = cutoff_of(topic);

    nd_cold_watch(topic);
    if (cutoff_ms == ND_RETENTION_NOTHING ||
        (topic->cold_goes_ms != ND_RETENTION_NOTHING && topic->cold_goes_ms >= cutoff_ms)) {
        return false; /* nothing can have aged */
    }
    struct nd_peek *peek = nd_peek_new(topic, topic->topic->partitions);
    for (uint32_t i = 0; i < topic->topic->partitions; i++) {
        if (nd_topic_state_owns(topic, i) && nd_partition_is_cold(topic, i)) {
            nd_peek_add(peek, i, false);
        }
    }
    topic->cold_goes_ms = INT64_MAX; /* lowered by what is found, and by what is closed meanwhile */
    peek->done = walk_done;
    shard->walking = peek;
    nd_peek_start(peek);
    return true;
}

uint64_t nd_cold_due_ns(const struct nd_shard *shard)
{
    const struct nd_topic_state *topic = first_walked(shard);

    if (topic == NULL || shard->walking != NULL || shard->retaining > OPEN_MAX / 2 ||
        shard->broker->options.cold_walk_ms == 0) {
        return UINT64_MAX;
    }
    return topic->walk_ns;
}

bool nd_cold_step(struct nd_shard *shard)
{
    uint32_t topics = 0;

    while (nd_cold_due_ns(shard) <= shard->now_ns && topics < TOPICS_A_STEP) {
        topics += 1;
        if (walk_topic(first_walked(shard))) {
            break; /* the next one when its answer is there */
        }
    }
    return topics == TOPICS_A_STEP;
}
