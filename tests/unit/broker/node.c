#include "tests/unit/broker/node.h"

#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/crc32c.h"

#include "storage/clock.h"
#include "storage/relieve.h"

enum { STEPS_MAX = 200000, STORE_ID = 0x5a, MEMBER = 7 };

void node_init(struct node *node, struct sim_env *sim)
{
    *node = (struct node){.sim = sim,
                          .env = sim_env_get(sim),
                          .options = {.tail_memory_bytes = 4 << 20,
                                      .cache_bytes = 1 << 20,
                                      .flush_bytes = 16 << 10,
                                      .flush_age_ms = 60000,
                                      .segment_bytes = NODE_SEGMENT,
                                      .staged_bytes_max = 16 << 10,
                                      .look_ms = 60000,
                                      .idle_eviction_ms = 1800000,
                                      .cold_walk_ms = 300000,
                                      .wal_keep_bytes = 512 << 10},
                          .incarnation_next = 0x1000};
}

void node_release(struct node *node)
{
    for (uint32_t i = 0; i < node->topics_count; i++) {
        nd_topic_unref(node->topics[i]);
    }
}

static int64_t clock_ms(void *clock)
{
    return nd_commit_clock_now_ms(clock);
}

static void confirm_gone(void *arg, const char *topic, uint64_t incarnation,
                         void (*done)(void *done_arg, enum nd_err err, bool gone), void *done_arg)
{
    struct node *node = arg;

    (void)topic;
    (void)incarnation;
    node->gone_asked += 1;
    done(done_arg, node->gone_err, node->gone);
}

static struct nd_plog_options plog_options(const struct node *node)
{
    struct nd_plog_options options = {.env = node->env,
                                      .segment_bytes = node->options.segment_bytes,
                                      .frame_bytes = NODE_FRAME,
                                      .index_stride_bytes = 8 << 10,
                                      .codec = ND_CODEC_ZSTD,
                                      .level = ND_LEVEL_FASTEST,
                                      .metrics = node->metrics};

    memset(options.store_id, STORE_ID, sizeof options.store_id);
    return options;
}

static enum nd_err flusher_new(struct node *node, struct nd_errmsg *msg)
{
    struct nd_flusher_options options = {.plog = plog_options(node),
                                         .data_dir = "data",
                                         .wal = node->wal,
                                         .commit_clock_ms = clock_ms,
                                         .commit_clock_arg = node->clock,
                                         .sync_one_by_one_max = 8,
                                         .metrics = node->metrics};

    return nd_flusher_new(&node->flusher, &options, msg);
}

static enum nd_err wal_open(struct node *node, struct nd_recovery *recovery, struct nd_errmsg *msg)
{
    struct nd_wal_options options = {.env = node->env,
                                     .dir = "data/wal",
                                     .member = MEMBER,
                                     .file_bytes = NODE_WAL_FILE,
                                     .frame_bytes_max = 20 << 20,
                                     .staged_bytes_max = 72 << 20,
                                     .keep_bytes = node->options.wal_keep_bytes,
                                     .disk_reserve_bytes = 1 << 20,
                                     .spares = 2,
                                     .metrics = node->metrics};

    memset(options.store_id, STORE_ID, sizeof options.store_id);
    struct nd_plog_options plog = plog_options(node);
    struct nd_relief *relief = nd_relief_new(&plog, "data");
    recovery->options.relieve = nd_relief_flush;
    recovery->options.relieve_arg = relief;
    enum nd_err err = nd_wal_open(&node->wal, &options, nd_recovery_replay, recovery, msg);
    if (err == ND_OK) {
        err = nd_recovery_finish(recovery, msg);
    }
    nd_relief_free(relief);
    node->recovery_bytes_peak = recovery->tail_bytes_peak;
    return err;
}

static enum nd_err broker_new(struct node *node, struct nd_recovery *recovery,
                              struct nd_errmsg *msg)
{
    struct nd_broker_options options = {.env = node->env,
                                        .data_dir = "data",
                                        .wal = node->wal,
                                        .flusher = node->flusher,
                                        .clock = node->clock,
                                        .member = MEMBER,
                                        .shards = 1,
                                        .staged_bytes_max = node->options.staged_bytes_max,
                                        .tail_memory_bytes = node->options.tail_memory_bytes,
                                        .cache_bytes = node->options.cache_bytes,
                                        .wal_keep_bytes = node->options.wal_keep_bytes,
                                        .flush_bytes = node->options.flush_bytes,
                                        .flush_age_ms = node->options.flush_age_ms,
                                        .look_ms = node->options.look_ms,
                                        .idle_eviction_ms = node->options.idle_eviction_ms,
                                        .cold_walk_ms = node->options.cold_walk_ms,
                                        .metrics = node->metrics};

    return nd_broker_new(&node->broker, &options, recovery, msg);
}

enum nd_err node_open(struct node *node, struct nd_errmsg *msg)
{
    struct nd_recovery recovery;
    struct nd_recovery_options options = {.env = node->env,
                                          .data_dir = "data",
                                          .tail_bytes_max = node->options.recovery_tail_bytes != 0
                                                                ? node->options.recovery_tail_bytes
                                                                : node->options.tail_memory_bytes};

    node->wal_stalled = node->flusher_stalled = false;
    node->metrics = nd_metrics_new();
    memset(options.store_id, STORE_ID, sizeof options.store_id);
    nd_recovery_init(&recovery, &options);
    enum nd_err err = nd_env_mkdirs(node->env, "data", msg);
    if (err == ND_OK) {
        err = wal_open(node, &recovery, msg);
    }
    if (err == ND_OK) {
        node->clock = nd_commit_clock_new(node->env, recovery.commit_clock_ms, NULL, node->metrics);
        err = flusher_new(node, msg);
    }
    if (err == ND_OK) {
        err = broker_new(node, &recovery, msg);
    }
    nd_recovery_release(&recovery);
    if (err != ND_OK) {
        node_discard(node);
        return err;
    }
    nd_broker_set_confirm_gone(node->broker, confirm_gone, node);
    for (uint32_t i = 0; i < node->topics_count; i++) {
        if (node->topics[i] != NULL) {
            nd_broker_topic_changed(node->broker, NULL, node->topics[i]);
        }
    }
    if (!node->options.hold_latch) {
        nd_broker_set_caught_up(node->broker);
    }
    node_run(node);
    return ND_OK;
}

/* Memory goes; the disk may answer or not. */
void node_discard(struct node *node)
{
    node->wal_stalled = node->flusher_stalled = false;
    if (node->broker != NULL) {
        nd_broker_stop(node->broker);
        nd_broker_free(node->broker);
    }
    if (node->flusher != NULL) {
        /* Whatever the flusher does with nobody left must not trim what the next start needs. */
        sim_env_advance_ms(node->sim, 2000);
        while (nd_wal_step(node->wal) || nd_flusher_step(node->flusher)) {
        }
        nd_flusher_free(node->flusher);
    }
    if (node->wal != NULL) {
        nd_wal_close(node->wal);
    }
    nd_commit_clock_free(node->clock);
    nd_metrics_free(node->metrics);
    node->broker = NULL;
    node->flusher = NULL;
    node->wal = NULL;
    node->clock = NULL;
    node->metrics = NULL;
}

void node_stop(struct node *node)
{
    node_discard(node);
}

void node_power_cut(struct node *node, uint64_t seed)
{
    if (!sim_env_is_cut(node->sim)) {
        sim_env_power_cut(node->sim, seed);
    }
    node_discard(node);
    sim_env_restart(node->sim);
}

void node_crash(struct node *node)
{
    /* From here on every call fails, so that freeing memory leaves the disk alone. */
    sim_env_fail_from(node->sim, SIM_ANY, 1, SIM_FAULT_IO);
    node_discard(node);
    sim_env_fail_clear(node->sim);
    sim_env_restart(node->sim);
}

bool node_step(struct node *node)
{
    uint64_t next_ns;
    bool moved = nd_broker_step(node->broker, 0, &next_ns);

    if (!node->wal_stalled) {
        moved |= nd_wal_step(node->wal);
    }
    if (!node->flusher_stalled) {
        moved |= nd_flusher_step(node->flusher);
    }
    return moved;
}

void node_run(struct node *node)
{
    uint32_t steps = 0;

    while (node_step(node)) {
        ND_ASSERT(++steps < STEPS_MAX);
    }
}

void node_advance(struct node *node, uint64_t ms)
{
    node_run(node);
    while (ms > 0) {
        uint64_t slice = ND_MIN(ms, 50u);
        sim_env_advance_ms(node->sim, slice);
        node_run(node);
        ms -= slice;
    }
}

/* --- topics --- */

uint32_t node_topic(struct node *node, const char *name, uint32_t partitions)
{
    struct nd_topic *topic = nd_topic_new(partitions);

    ND_ASSERT(node->topics_count < NODE_TOPICS_MAX);
    snprintf(topic->name, sizeof topic->name, "%s", name);
    topic->incarnation = node->incarnation_next++;
    topic->version = 1;
    topic->visibility_timeout_ms = NODE_LEASE_MS;
    topic->max_in_flight = 1000;
    topic->max_acked_ahead = 1000;
    for (uint32_t i = 0; i < partitions; i++) {
        topic->owners[i] = MEMBER;
    }
    node->topics[node->topics_count] = topic;
    if (node->broker != NULL) {
        nd_broker_topic_changed(node->broker, NULL, topic);
    }
    return node->topics_count++;
}

/* The next version of a topic, to be changed and told. */
static struct nd_topic *topic_copy(const struct nd_topic *before)
{
    struct nd_topic *after = nd_topic_new(before->partitions);

    memcpy(after->name, before->name, sizeof after->name);
    after->incarnation = before->incarnation;
    after->version = before->version + 1;
    after->retention_ms = before->retention_ms;
    after->visibility_timeout_ms = before->visibility_timeout_ms;
    after->max_in_flight = before->max_in_flight;
    after->max_acked_ahead = before->max_acked_ahead;
    memcpy(after->owners, before->owners, before->partitions * sizeof *after->owners);
    return after;
}

static void topic_replace(struct node *node, uint32_t index, struct nd_topic *after)
{
    if (node->broker != NULL) {
        nd_broker_topic_changed(node->broker, node->topics[index], after);
    }
    nd_topic_unref(node->topics[index]);
    node->topics[index] = after;
}

void node_topic_caps(struct node *node, uint32_t index, uint32_t in_flight_max, uint32_t ahead_max)
{
    struct nd_topic *after = topic_copy(node->topics[index]);

    after->max_in_flight = in_flight_max;
    after->max_acked_ahead = ahead_max;
    topic_replace(node, index, after);
}

void node_topic_retention(struct node *node, uint32_t index, uint64_t retention_ms)
{
    struct nd_topic *after = topic_copy(node->topics[index]);

    after->retention_ms = retention_ms;
    topic_replace(node, index, after);
}

void node_topic_delete(struct node *node, uint32_t index)
{
    if (node->broker != NULL) {
        nd_broker_topic_changed(node->broker, node->topics[index], NULL);
    }
    nd_topic_unref(node->topics[index]);
    node->topics[index] = NULL;
}

/* --- produce --- */

static void produce_done(struct nd_produce *request, enum nd_err err)
{
    struct node_produce *produce = request->data;

    ND_ASSERT(!produce->done);
    produce->done = true;
    produce->err = err;
    produce->has_offsets = err == ND_OK && request->batch.has_offsets;
    for (uint32_t i = 0; i < produce->count && produce->has_offsets; i++) {
        produce->offsets[i] = request->batch.placements[i].offset;
    }
}

struct node_produce *node_produce_records(struct node *node, uint32_t topic,
                                          const struct nd_produce_record *records, uint32_t count)
{
    struct node_produce *produce = nd_xcalloc(1, sizeof *produce);
    _Atomic uint32_t spread = 0;
    struct nd_errmsg msg = {{0}};
    enum nd_err err = nd_admission_encode(&produce->request.batch, node->topics[topic], records,
                                          count, &spread, &msg);

    ND_ASSERT(err == ND_OK);
    produce->count = count;
    produce->request.done = produce_done;
    produce->request.data = produce;
    nd_broker_produce(node->broker, &produce->request);
    return produce;
}

struct node_produce *node_produce_start(struct node *node, uint32_t topic, int64_t partition,
                                        const char *const *payloads, uint32_t count)
{
    struct nd_produce_record *records = nd_xcalloc(count, sizeof *records);

    for (uint32_t i = 0; i < count; i++) {
        records[i].payload = nd_slice_str(payloads[i]);
        records[i].partition = partition;
        if (partition < 0) {
            records[i].key = records[i].payload;
        }
    }
    struct node_produce *produce = node_produce_records(node, topic, records, count);
    nd_free(records);
    return produce;
}

struct node_produce *node_produce_bytes(struct node *node, uint32_t topic, int64_t partition,
                                        size_t payload_size, uint32_t count)
{
    struct nd_produce_record *records = nd_xcalloc(count, sizeof *records);
    uint8_t *payload = nd_xmalloc(payload_size);

    node->env->random(node->env->impl, payload, payload_size); /* does not compress */
    for (uint32_t i = 0; i < count; i++) {
        records[i].payload = nd_slice_make(payload, payload_size);
        records[i].partition = partition;
    }
    struct node_produce *produce = node_produce_records(node, topic, records, count);
    nd_free(payload);
    nd_free(records);
    return produce;
}

enum nd_err node_produce(struct node *node, uint32_t topic, int64_t partition, const char *payload,
                         uint64_t *offset_out)
{
    struct node_produce *produce = node_produce_start(node, topic, partition, &payload, 1);

    node_run(node);
    ND_ASSERT(produce->done);
    enum nd_err err = produce->err;
    if (offset_out != NULL) {
        *offset_out = produce->offsets[0];
    }
    nd_free(produce);
    return err;
}

/* --- consume --- */

static void delivery_copy(struct node_delivery *out, const struct nd_delivery *from)
{
    size_t size = ND_MIN(from->record.payload.size, (size_t)NODE_PAYLOAD_MAX);

    *out = (struct node_delivery){
        .offset = from->offset,
        .nonce = from->nonce,
        .partition = from->partition,
        .attempt = from->attempt,
        .time_ms = from->record.time_ms,
        .payload_size = from->record.payload.size,
        .payload_crc = nd_crc32c(0, from->record.payload.data, from->record.payload.size)};
    memcpy(out->payload, from->record.payload.data, size);
}

static void poll_done(struct nd_poll *request, enum nd_err err,
                      const struct nd_delivery *deliveries, uint32_t count)
{
    struct node_poll *poll = request->data;

    ND_ASSERT(!poll->done);
    poll->done = true;
    poll->err = err;
    poll->count = count;
    for (uint32_t i = 0; i < count; i++) {
        delivery_copy(&poll->list[i], &deliveries[i]);
    }
}

struct node_poll *node_poll_start(struct node *node, uint32_t topic, int32_t partition,
                                  uint32_t messages_max, uint32_t wait_ms)
{
    struct node_poll *poll = nd_xcalloc(1, sizeof *poll);

    poll->request.topic = nd_topic_ref(node->topics[topic]);
    poll->request.partition = partition;
    poll->request.messages_max = messages_max;
    poll->request.wait_ms = wait_ms;
    poll->request.done = poll_done;
    poll->request.data = poll;
    nd_broker_poll(node->broker, &poll->request);
    return poll;
}

bool node_take(struct node *node, uint32_t topic, int32_t partition, struct node_delivery *out)
{
    struct node_poll *poll = node_poll_start(node, topic, partition, 1, 0);

    node_run(node);
    ND_ASSERT(poll->done);
    bool taken = poll->err == ND_OK && poll->count == 1;
    if (taken) {
        *out = poll->list[0];
    }
    nd_free(poll);
    return taken;
}

static void settle_done(struct nd_settle *request)
{
    struct node_settle *settle = request->data;

    ND_ASSERT(!settle->done);
    settle->done = true;
}

struct node_settle *node_settle_start(struct node *node, uint32_t topic,
                                      const struct node_delivery *deliveries, uint32_t count,
                                      enum nd_settle_action action)
{
    struct node_settle *settle = nd_xcalloc(1, sizeof *settle);

    settle->request.topic = nd_topic_ref(node->topics[topic]);
    settle->request.items = settle->items;
    settle->request.count = count;
    settle->request.done = settle_done;
    settle->request.data = settle;
    for (uint32_t i = 0; i < count; i++) {
        settle->items[i] = (struct nd_settle_item){.offset = deliveries[i].offset,
                                                   .nonce = deliveries[i].nonce,
                                                   .partition = deliveries[i].partition,
                                                   .action = action};
    }
    nd_broker_settle(node->broker, &settle->request);
    return settle;
}

enum nd_err node_settle(struct node *node, uint32_t topic, const struct node_delivery *delivery,
                        enum nd_settle_action action)
{
    struct node_settle *settle = node_settle_start(node, topic, delivery, 1, action);

    node_run(node);
    ND_ASSERT(settle->done);
    enum nd_err err = settle->items[0].result;
    nd_free(settle);
    return err;
}

static bool subscriber_deliver(struct nd_subscriber *request, const struct nd_delivery *deliveries,
                               uint32_t count)
{
    struct node_subscriber *subscriber = request->data;

    subscriber->turns += 1;
    subscriber->turn_max = ND_MAX(subscriber->turn_max, count);
    for (uint32_t i = 0; i < count && subscriber->count < ND_ARRAY_SIZE(subscriber->list); i++) {
        delivery_copy(&subscriber->list[subscriber->count++], &deliveries[i]);
    }
    return subscriber->take;
}

static void subscriber_ended(struct nd_subscriber *request, enum nd_err err)
{
    struct node_subscriber *subscriber = request->data;

    subscriber->ended = true;
    subscriber->ended_err = err;
}

static void subscriber_closed(struct nd_subscriber *request)
{
    struct node_subscriber *subscriber = request->data;

    ND_ASSERT(!subscriber->closed);
    subscriber->closed = true;
}

struct node_subscriber *node_subscribe(struct node *node, uint32_t topic, int32_t partition,
                                       uint32_t outstanding_max)
{
    struct node_subscriber *subscriber = nd_xcalloc(1, sizeof *subscriber);

    subscriber->take = true;
    subscriber->request.topic = nd_topic_ref(node->topics[topic]);
    subscriber->request.partition = partition;
    subscriber->request.outstanding_max = outstanding_max;
    subscriber->request.deliver = subscriber_deliver;
    subscriber->request.ended = subscriber_ended;
    subscriber->request.closed = subscriber_closed;
    subscriber->request.data = subscriber;
    nd_broker_subscribe(node->broker, &subscriber->request);
    return subscriber;
}

static void replay_done(struct nd_replay *request, enum nd_err err,
                        const struct nd_delivery *deliveries, uint32_t count)
{
    struct node_replay *replay = request->data;

    replay->done = true;
    replay->err = err;
    replay->count = count;
    for (uint32_t i = 0; i < count; i++) {
        delivery_copy(&replay->list[i], &deliveries[i]);
    }
}

struct node_replay *node_replay(struct node *node, uint32_t topic, uint32_t partition,
                                uint64_t offset, uint32_t messages_max)
{
    struct node_replay *replay = nd_xcalloc(1, sizeof *replay);

    replay->request.topic = nd_topic_ref(node->topics[topic]);
    replay->request.partition = partition;
    replay->request.offset = offset;
    replay->request.messages_max = messages_max;
    replay->request.done = replay_done;
    replay->request.data = replay;
    nd_broker_replay(node->broker, &replay->request);
    node_run(node);
    ND_ASSERT(replay->done);
    return replay;
}

static void stats_done(struct nd_stats *request, enum nd_err err,
                       const struct nd_partition_stats *list, uint32_t count)
{
    ND_ASSERT(err == ND_OK && count == 1);
    *(struct nd_partition_stats *)request->data = list[0];
}

struct nd_partition_stats node_stats(struct node *node, uint32_t topic, uint32_t partition)
{
    struct nd_partition_stats out = {0};
    struct nd_stats request = {.topic = nd_topic_ref(node->topics[topic]),
                               .partition = (int32_t)partition,
                               .done = stats_done,
                               .data = &out};

    nd_broker_stats(node->broker, &request);
    node_run(node);
    return out;
}

double node_metric(struct node *node, const char *name, uint32_t topic, uint32_t partition)
{
    char labels[600] = "", number[16];

    snprintf(number, sizeof number, "%u", partition);
    nd_metrics_label(labels, sizeof labels, "topic", node->topics[topic]->name);
    nd_metrics_label(labels, sizeof labels, "partition", number);
    bool is_gauge = strcmp(name, "consumer_dropped_messages") == 0;
    return nd_series_value(is_gauge ? nd_metrics_gauge(node->metrics, name, labels, "")
                                    : nd_metrics_counter(node->metrics, name, labels, ""));
}
