/* The broker with its real threads on the real disk: two shards, a worker, the WAL's and the
 * flusher's. What the stepped tests prove holds when nobody orders the steps; ThreadSanitizer
 * watches. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

#include "server/broker/broker.h"
#include "storage/clock.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"

enum { TOPICS = 4, MESSAGES = 1500, WINDOW = 64, MEMBER = 3 };
static const uint64_t patience_ns = 120000000000;

struct real {
    const struct nd_env *env;
    char *dir;
    struct nd_metrics *metrics;
    struct nd_wal *wal;
    struct nd_flusher *flusher;
    struct nd_commit_clock *clock;
    struct nd_broker *broker;
    struct nd_topic *topics[TOPICS];
    bool restless; /* whatever rests for a millisecond is evicted */
    struct nd_mutex lock;
    struct nd_cond changed;
    /* guarded by lock */
    uint32_t produced, delivered, acked, failed, closed, ended, outstanding, polled;
};

static int64_t clock_ms(void *clock)
{
    return nd_commit_clock_now_ms(clock);
}

static void storage_open(struct real *real, struct nd_recovery *recovery)
{
    struct nd_errmsg msg = {{0}};
    char wal_dir[512];
    struct nd_wal_options wal = {.env = real->env,
                                 .dir = wal_dir,
                                 .member = MEMBER,
                                 .file_bytes = 1 << 20,
                                 .frame_bytes_max = 20 << 20,
                                 .staged_bytes_max = 72 << 20,
                                 .keep_bytes = 2 << 20,
                                 .disk_reserve_bytes = 1 << 20,
                                 .spares = 2,
                                 .metrics = real->metrics};

    snprintf(wal_dir, sizeof wal_dir, "%s/wal", real->dir);
    assert_int_equal(nd_wal_open(&real->wal, &wal, nd_recovery_replay, recovery, &msg), ND_OK);
    assert_int_equal(nd_recovery_finish(recovery, &msg), ND_OK);
    real->clock = nd_commit_clock_new(real->env, recovery->commit_clock_ms, NULL, real->metrics);
    struct nd_flusher_options flusher = {.plog = {.env = real->env,
                                                  .segment_bytes = 256 << 10,
                                                  .frame_bytes = 16 << 10,
                                                  .index_stride_bytes = 32 << 10,
                                                  .codec = ND_CODEC_ZSTD,
                                                  .metrics = real->metrics},
                                         .data_dir = real->dir,
                                         .wal = real->wal,
                                         .commit_clock_ms = clock_ms,
                                         .commit_clock_arg = real->clock,
                                         .sync_one_by_one_max = 8,
                                         .metrics = real->metrics};
    assert_int_equal(nd_flusher_new(&real->flusher, &flusher, &msg), ND_OK);
}

static void real_open(struct real *real)
{
    struct nd_recovery recovery;
    struct nd_recovery_options recovery_options = {.env = real->env, .data_dir = real->dir};
    struct nd_errmsg msg = {{0}};

    real->metrics = nd_metrics_new();
    nd_recovery_init(&recovery, &recovery_options);
    storage_open(real, &recovery);
    struct nd_broker_options options = {.env = real->env,
                                        .data_dir = real->dir,
                                        .wal = real->wal,
                                        .flusher = real->flusher,
                                        .clock = real->clock,
                                        .member = MEMBER,
                                        .shards = 2,
                                        .tail_memory_bytes = 8 << 20,
                                        .cache_bytes = 64 << 10,
                                        .wal_keep_bytes = 2 << 20,
                                        .flush_bytes = 32 << 10,
                                        .flush_age_ms = real->restless ? 1 : 200,
                                        .look_ms = real->restless ? 1 : 60000,
                                        .idle_eviction_ms = real->restless ? 1 : 0,
                                        .cold_walk_ms = real->restless ? 1 : 0,
                                        .workers = 1,
                                        .metrics = real->metrics};
    assert_int_equal(nd_broker_new(&real->broker, &options, &recovery, &msg), ND_OK);
    nd_recovery_release(&recovery);
    for (uint32_t i = 0; i < TOPICS; i++) {
        nd_broker_topic_changed(real->broker, NULL, real->topics[i]);
    }
    nd_broker_set_caught_up(real->broker);
    assert_true(nd_wal_thread_start(real->wal));
    assert_true(nd_flusher_thread_start(real->flusher));
    assert_int_equal(nd_broker_start(real->broker, &msg), ND_OK);
}

static void real_close(struct real *real)
{
    nd_broker_stop(real->broker);
    nd_flusher_thread_stop(real->flusher);
    nd_wal_thread_stop(real->wal);
    nd_broker_free(real->broker);
    nd_flusher_free(real->flusher);
    nd_wal_close(real->wal);
    nd_commit_clock_free(real->clock);
    nd_metrics_free(real->metrics);
}

static int setup(void **state)
{
    struct real *real = nd_xcalloc(1, sizeof *real);

    real->env = nd_env_posix();
    real->dir = temp_dir_new();
    nd_mutex_init(&real->lock);
    nd_cond_init(&real->changed);
    for (uint32_t i = 0; i < TOPICS; i++) {
        struct nd_topic *topic = real->topics[i] = nd_topic_new(2);
        snprintf(topic->name, sizeof topic->name, "topic-%u", i);
        topic->incarnation = 100 + i;
        topic->version = 1;
        topic->visibility_timeout_ms = 60000;
        topic->max_in_flight = topic->max_acked_ahead = 10000;
        topic->owners[0] = topic->owners[1] = MEMBER;
    }
    real_open(real);
    *state = real;
    return 0;
}

static int teardown(void **state)
{
    struct real *real = *state;

    real_close(real);
    for (uint32_t i = 0; i < TOPICS; i++) {
        nd_topic_unref(real->topics[i]);
    }
    temp_dir_remove(real->dir);
    nd_cond_release(&real->changed);
    nd_mutex_release(&real->lock);
    nd_free(real);
    return 0;
}

static void count(struct real *real, uint32_t *counter, uint32_t by)
{
    nd_mutex_lock(&real->lock);
    *counter += by;
    nd_cond_signal(&real->changed);
    nd_mutex_unlock(&real->lock);
}

/* Until *counter is `wanted`; false: it takes too long. */
static bool wait_for(struct real *real, const uint32_t *counter, uint32_t wanted)
{
    uint64_t deadline_ns = real->env->mono_ns(real->env->impl) + patience_ns;
    bool in_time = true;

    nd_mutex_lock(&real->lock);
    while (*counter < wanted && in_time) {
        in_time = nd_cond_wait_until(&real->changed, &real->lock, deadline_ns);
    }
    bool reached = *counter >= wanted;
    nd_mutex_unlock(&real->lock);
    return reached;
}

static void produced(struct nd_produce *produce, enum nd_err err)
{
    struct real *real = produce->data;

    count(real, err == ND_OK ? &real->produced : &real->failed, 1);
    nd_free(produce);
}

static void produce_one(struct real *real, uint32_t number)
{
    struct nd_produce *produce = nd_xcalloc(1, sizeof *produce);
    _Atomic uint32_t spread = number;
    char payload[512];
    struct nd_errmsg msg;

    memset(payload, 'x', sizeof payload);
    snprintf(payload, sizeof payload, "message %u", number);
    struct nd_produce_record record = {.payload = nd_slice_make(payload, sizeof payload),
                                       .partition = number / TOPICS % 2};
    assert_int_equal(nd_admission_encode(&produce->batch, real->topics[number % TOPICS], &record, 1,
                                         &spread, &msg),
                     ND_OK);
    produce->done = produced;
    produce->data = real;
    nd_broker_produce(real->broker, produce);
}

struct acks {
    struct nd_settle request;
    struct real *real;
    struct nd_settle_item items[16];
};

static void acked(struct nd_settle *request)
{
    struct acks *acks = ND_CONTAINER_OF(request, struct acks, request);
    uint32_t good = 0;

    for (uint32_t i = 0; i < request->count; i++) {
        good += acks->items[i].result == ND_OK;
    }
    count(acks->real, &acks->real->acked, good);
    nd_free(acks);
}

static bool deliver(struct nd_subscriber *subscriber, const struct nd_delivery *deliveries,
                    uint32_t deliveries_count)
{
    struct real *real = subscriber->data;
    struct acks *acks = nd_xcalloc(1, sizeof *acks);

    for (uint32_t i = 0; i < deliveries_count; i++) {
        acks->items[i] = (struct nd_settle_item){.offset = deliveries[i].offset,
                                                 .nonce = deliveries[i].nonce,
                                                 .partition = deliveries[i].partition,
                                                 .action = ND_SETTLE_ACK};
    }
    acks->real = real;
    acks->request = (struct nd_settle){.topic = nd_topic_ref(subscriber->topic),
                                       .items = acks->items,
                                       .count = deliveries_count,
                                       .done = acked};
    count(real, &real->delivered, deliveries_count);
    nd_broker_settle(real->broker, &acks->request);
    return true;
}

/* A poll whose deliveries are to be acked. */
struct taking {
    struct nd_poll request;
    struct acks *acks;
    struct real *real;
    enum nd_err err;
};

static void taken_by_poll(struct nd_poll *request, enum nd_err err,
                          const struct nd_delivery *deliveries, uint32_t deliveries_count)
{
    struct taking *taking = ND_CONTAINER_OF(request, struct taking, request);

    for (uint32_t i = 0; i < deliveries_count; i++) {
        taking->acks->items[i] = (struct nd_settle_item){.offset = deliveries[i].offset,
                                                         .nonce = deliveries[i].nonce,
                                                         .partition = deliveries[i].partition,
                                                         .action = ND_SETTLE_ACK};
    }
    taking->acks->request.count = deliveries_count;
    taking->err = err;
    count(taking->real, &taking->real->polled, 1);
}

static void ended(struct nd_subscriber *subscriber, enum nd_err err)
{
    struct real *real = subscriber->data;

    (void)err;
    count(real, &real->ended, 1);
}

static void closed(struct nd_subscriber *subscriber)
{
    struct real *real = subscriber->data;

    count(real, &real->closed, 1);
}

static void threads__every_message_is_delivered_and_acked_once(void **state)
{
    struct real *real = *state;
    struct nd_subscriber subscribers[2 * TOPICS];

    for (uint32_t i = 0; i < 2 * TOPICS; i++) {
        subscribers[i] = (struct nd_subscriber){.topic = nd_topic_ref(real->topics[i % TOPICS]),
                                                .partition = ND_PARTITION_ANY,
                                                .outstanding_max = 32,
                                                .deliver = deliver,
                                                .ended = ended,
                                                .closed = closed,
                                                .data = real};
        nd_broker_subscribe(real->broker, &subscribers[i]);
    }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        assert_true(i < WINDOW || wait_for(real, &real->produced, i - WINDOW));
        produce_one(real, i);
    }
    assert_true(wait_for(real, &real->acked, MESSAGES));
    for (uint32_t i = 0; i < 2 * TOPICS; i++) {
        nd_broker_subscriber_close(real->broker, &subscribers[i]);
    }
    assert_true(wait_for(real, &real->closed, 2 * TOPICS));
    assert_int_equal(real->delivered, MESSAGES);
    assert_int_equal(real->failed, 0);
}

struct poll {
    struct nd_poll request;
    enum nd_err err;
    uint32_t count;
};

static void polled(struct nd_poll *request, enum nd_err err, const struct nd_delivery *deliveries,
                   uint32_t deliveries_count)
{
    struct poll *poll = ND_CONTAINER_OF(request, struct poll, request);
    struct real *real = request->data;

    (void)deliveries;
    poll->err = err;
    poll->count = deliveries_count;
    count(real, &real->polled, 1);
}

/* Polls a topic until it is empty and acks what comes; how many that was. */
static uint32_t drain(struct real *real, struct nd_topic *topic, uint32_t *answered)
{
    uint32_t taken = 0;

    for (;;) {
        struct acks *acks = nd_xcalloc(1, sizeof *acks);
        struct taking taking = {.acks = acks,
                                .real = real,
                                .request = {.topic = nd_topic_ref(topic),
                                            .partition = ND_PARTITION_ANY,
                                            .messages_max = ND_ARRAY_SIZE(acks->items),
                                            .done = taken_by_poll,
                                            .data = real}};
        nd_broker_poll(real->broker, &taking.request);
        assert_true(wait_for(real, &real->polled, ++*answered));
        assert_int_equal(taking.err, ND_OK);
        uint32_t count = acks->request.count;
        if (count == 0) {
            nd_free(acks);
            return taken;
        }
        acks->real = real;
        acks->request.topic = nd_topic_ref(topic);
        acks->request.items = acks->items;
        acks->request.done = acked;
        taken += count;
        nd_broker_settle(real->broker, &acks->request);
    }
}

/* Until the node has evicted once more than `before`. */
static double wait_evicted(struct real *real, double before)
{
    struct nd_series *series = nd_metrics_counter(real->metrics, "idle_logs_evicted_total", "", "");
    uint64_t deadline_ns = real->env->mono_ns(real->env->impl) + patience_ns;

    nd_mutex_lock(&real->lock);
    while (nd_series_value(series) <= before && real->env->mono_ns(real->env->impl) < deadline_ns) {
        (void)nd_cond_wait_until(&real->changed, &real->lock,
                                 real->env->mono_ns(real->env->impl) + 1000000);
    }
    nd_mutex_unlock(&real->lock);
    assert_true(nd_series_value(series) > before);
    return nd_series_value(series);
}

/* Every partition is closed whenever it rests; nothing is lost or given twice by it (I-45). */
static void threads__eviction_at_every_rest_loses_nothing(void **state)
{
    struct real *real = *state;
    uint32_t sent = 0, taken = 0, answered = 0;
    double evicted = 0;

    real_close(real);
    real->restless = true;
    real_open(real);
    for (uint32_t round = 0; round < 60; round++) {
        for (uint32_t i = 0; i < 4 + round % 29; i++) {
            produce_one(real, sent++);
        }
        if (round % 3 == 0) { /* at rest: all is closed; else in the middle of it */
            assert_true(wait_for(real, &real->produced, sent));
            evicted = wait_evicted(real, evicted);
        }
        for (uint32_t t = 0; t < TOPICS; t++) {
            taken += drain(real, real->topics[t], &answered);
        }
    }
    assert_true(wait_for(real, &real->produced, sent));
    for (uint32_t t = 0; t < TOPICS; t++) {
        taken += drain(real, real->topics[t], &answered);
    }
    assert_true(wait_for(real, &real->acked, taken));
    assert_int_equal(taken, sent);
    assert_int_equal(real->failed, 0);
    (void)wait_evicted(real, evicted);
    real_close(real);
    real_open(real);
    for (uint32_t t = 0; t < TOPICS; t++) {
        assert_int_equal(drain(real, real->topics[t], &answered), 0);
    }
}

struct replay {
    struct nd_replay request;
    enum nd_err err;
};

static void replayed(struct nd_replay *request, enum nd_err err,
                     const struct nd_delivery *deliveries, uint32_t deliveries_count)
{
    struct replay *replay = ND_CONTAINER_OF(request, struct replay, request);
    struct real *real = request->data;

    (void)deliveries;
    (void)deliveries_count;
    replay->err = err;
    count(real, &real->polled, 1);
}

/* Reads go on while the segments below them are removed: each gets a record or learns that it is
 * gone (I-42, I-44). */
static void threads__retention_removes_beside_readers(void **state)
{
    struct real *real = *state;
    struct nd_topic *topic = nd_topic_new(2);
    uint32_t answered = 0, gone = 0;

    real_close(real);
    real->restless = true;
    memcpy(topic->name, real->topics[0]->name, sizeof topic->name);
    topic->incarnation = real->topics[0]->incarnation;
    topic->version = 2;
    topic->retention_ms = 50;
    topic->visibility_timeout_ms = 60000;
    topic->max_in_flight = topic->max_acked_ahead = 10000;
    topic->owners[0] = topic->owners[1] = MEMBER;
    nd_topic_unref(real->topics[0]);
    real->topics[0] = topic;
    real_open(real);
    for (uint32_t i = 0; i < 400; i++) {
        produce_one(real, i * 2 * TOPICS); /* partition 0 of it */
    }
    assert_true(wait_for(real, &real->produced, 400));
    uint64_t deadline_ns = real->env->mono_ns(real->env->impl) + patience_ns;
    for (uint64_t offset = 0; gone < 400; offset = (offset + 7) % 400) {
        struct replay replay = {.request = {.topic = nd_topic_ref(topic),
                                            .offset = offset,
                                            .messages_max = 1,
                                            .done = replayed,
                                            .data = real}};
        nd_broker_replay(real->broker, &replay.request);
        assert_true(wait_for(real, &real->polled, ++answered));
        assert_true(replay.err == ND_OK || replay.err == ND_ERR_GONE);
        gone = replay.err == ND_ERR_GONE ? gone + 1 : 0; /* all of them, in a row */
        assert_true(real->env->mono_ns(real->env->impl) < deadline_ns);
    }
    produce_one(real, 0); /* the partition lives on */
    assert_true(wait_for(real, &real->produced, 401));
    assert_int_equal(real->failed, 0);
}

static void threads__restart_gives_back_what_was_not_acked(void **state)
{
    struct real *real = *state;
    uint32_t count_all = 0, answered = 0;

    for (uint32_t i = 0; i < 400; i++) {
        produce_one(real, i);
    }
    assert_true(wait_for(real, &real->produced, 400));
    real_close(real);
    real_open(real);
    for (uint32_t i = 0; i < TOPICS; i++) {
        struct poll poll = {.request = {.topic = nd_topic_ref(real->topics[i]),
                                        .partition = ND_PARTITION_ANY,
                                        .messages_max = 1000,
                                        .wait_ms = 0,
                                        .done = polled,
                                        .data = real}};
        do { /* cold frames come one after the other */
            poll.request.topic =
                poll.count == 0 ? poll.request.topic : nd_topic_ref(real->topics[i]);
            nd_broker_poll(real->broker, &poll.request);
            assert_true(wait_for(real, &real->polled, ++answered));
            assert_int_equal(poll.err, ND_OK);
            count_all += poll.count;
        } while (poll.count > 0);
    }
    assert_int_equal(count_all, 400);
}

static void threads__cancel_races_with_the_answer(void **state)
{
    struct real *real = *state;

    for (uint32_t i = 0; i < 300; i++) {
        struct poll poll = {.request = {.topic = nd_topic_ref(real->topics[0]),
                                        .partition = ND_PARTITION_ANY,
                                        .messages_max = 1,
                                        .wait_ms = 60000,
                                        .done = polled,
                                        .data = real}};
        nd_broker_poll(real->broker, &poll.request);
        produce_one(real, 0);
        nd_broker_poll_cancel(real->broker, &poll.request);
        assert_true(wait_for(real, &real->polled, i + 1)); /* once, whoever wins */
        assert_true(poll.err == ND_ERR_CANCELLED ? poll.count == 0 : poll.count == 1);
    }
    assert_true(wait_for(real, &real->produced, 300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(threads__every_message_is_delivered_and_acked_once),
        T(threads__eviction_at_every_rest_loses_nothing),
        T(threads__retention_removes_beside_readers),
        T(threads__restart_gives_back_what_was_not_acked),
        T(threads__cancel_races_with_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
