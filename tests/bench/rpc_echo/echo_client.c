#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

#include "echo.h"
#include "proto/narad/v1/bench.nd.h"
#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/client.h"

enum { RECORD_BYTES = 256, LATENCIES_MAX = 1 << 22, IDS_MAX = 1 << 16 };

/* All of it is used on the channel's thread once the run began. */
struct drive {
    const struct echo_options *options;
    struct nd_rpc_channel *channel;
    Narad__V1__ProduceRequest request;
    Narad__V1__ProduceStreamRequest stream_request;
    Narad__V1__ProduceItem item, *items[1];
    uint64_t begin_ns, end_ns;
    uint64_t done, errors, next_id, confirmed;
    uint32_t *latencies; /* units of 100 ns */
    size_t latencies_count;
    uint64_t sent_ns[IDS_MAX];
    uint32_t open;
    struct nd_mutex lock;
    struct nd_cond changed;
    bool over; /* guarded by lock */
};

struct slot {
    struct drive *drive;
    uint64_t sent_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void count(struct drive *drive, uint64_t now, uint64_t sent_ns, uint64_t messages)
{
    if (now < drive->begin_ns || now >= drive->end_ns) {
        return;
    }
    drive->done += messages;
    if (drive->latencies_count < LATENCIES_MAX) {
        drive->latencies[drive->latencies_count++] = (uint32_t)((now - sent_ns) / 100);
    }
}

static void over(struct drive *drive)
{
    nd_mutex_lock(&drive->lock);
    drive->over = true;
    nd_cond_signal(&drive->changed);
    nd_mutex_unlock(&drive->lock);
}

/* --- unary --- */

static void unary_done(void *data, const struct nd_rpc_status *status, const void *reply);

static void unary_send(struct slot *slot)
{
    struct drive *drive = slot->drive;

    slot->sent_ns = now_ns();
    nd_rpc_call_unary(drive->channel, NARAD_V1_BENCH_PRODUCE_PATH, &drive->request.base,
                      &narad__v1__produce_response__descriptor, 0, true, unary_done, slot);
}

static void unary_done(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct slot *slot = data;
    struct drive *drive = slot->drive;
    uint64_t now = now_ns();

    if (reply == NULL) {
        fprintf(stderr, "rpc_echo: status %d %s\n", status->code, status->text);
        drive->errors += 1;
    }
    count(drive, now, slot->sent_ns, 1);
    if (now < drive->end_ns && drive->errors == 0) {
        unary_send(slot);
    } else if (--drive->open == 0) {
        over(drive);
    }
}

static void unary_begin(void *data)
{
    struct slot *slots = data;
    struct drive *drive = slots[0].drive;

    drive->open = drive->options->window;
    for (uint32_t i = 0; i < drive->options->window; i++) {
        unary_send(&slots[i]);
    }
}

/* --- stream --- */

static void stream_fill(struct drive *drive, struct nd_rpc_stream *stream)
{
    uint64_t now = now_ns();

    if (now >= drive->end_ns) {
        if (drive->confirmed == drive->next_id) {
            nd_rpc_stream_half_close(stream);
        }
        return;
    }
    while (drive->next_id - drive->confirmed < drive->options->window) {
        drive->item.id = drive->next_id;
        drive->sent_ns[drive->next_id % IDS_MAX] = now_ns();
        drive->next_id += 1;
        nd_rpc_stream_send(stream, &drive->stream_request.base);
    }
}

static void stream_message(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct drive *drive = data;
    uint64_t now = now_ns();
    Narad__V1__ProduceStreamResponse *response =
        narad__v1__produce_stream_response__unpack(NULL, bytes.size, bytes.data);

    if (response == NULL || response->n_results != 1) {
        drive->errors += 1;
    } else {
        uint64_t id = response->results[0]->id;
        count(drive, now, drive->sent_ns[id % IDS_MAX], id + 1 - drive->confirmed);
        drive->confirmed = id + 1;
    }
    narad__v1__produce_stream_response__free_unpacked(response, NULL);
    stream_fill(drive, stream);
}

static void stream_done(void *data, struct nd_rpc_stream *stream,
                        const struct nd_rpc_status *status)
{
    struct drive *drive = data;

    (void)stream;
    if (status->code != 0) {
        fprintf(stderr, "rpc_echo: status %d %s\n", status->code, status->text);
        drive->errors += 1;
    }
    over(drive);
}

static void stream_begin(void *data)
{
    static const struct nd_rpc_stream_events events = {stream_message, NULL, stream_done};
    struct slot *slots = data;
    struct drive *drive = slots[0].drive;

    stream_fill(drive, nd_rpc_stream_open(drive->channel, NARAD_V1_BENCH_PRODUCE_STREAM_PATH, 0,
                                          true, false, &events, drive));
}

/* --- the run --- */

static int compare_u32(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left < right ? -1 : left > right;
}

static void report(struct drive *drive)
{
    const struct echo_options *options = drive->options;
    double messages = (double)drive->done / options->seconds;
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    qsort(drive->latencies, drive->latencies_count, sizeof *drive->latencies, compare_u32);
    size_t n = drive->latencies_count;
    printf("{\"mode\":\"%s\",\"unix\":%s,\"window\":%u,\"batch\":%u,\"messages_per_s\":%.0f,"
           "\"records_per_s\":%.0f,\"mb_per_s\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
           "\"errors\":%lu,\"client_cpu_s\":%.2f}\n",
           options->mode, options->unix_socket ? "true" : "false", options->window, options->batch,
           messages, messages * options->batch, messages * options->batch * RECORD_BYTES / 1e6,
           n > 0 ? drive->latencies[n / 2] / 10.0 : 0,
           n > 0 ? drive->latencies[n * 99 / 100] / 10.0 : 0, (unsigned long)drive->errors,
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
}

static Narad__V1__Record **records_new(uint32_t batch)
{
    static uint8_t payload[RECORD_BYTES], key[] = "k1";
    Narad__V1__Record **records = nd_xcalloc(batch, sizeof(*records));
    Narad__V1__Record *list = nd_xcalloc(batch, sizeof *list);

    for (uint32_t i = 0; i < batch; i++) {
        narad__v1__record__init(&list[i]);
        list[i].payload.data = payload;
        list[i].payload.len = sizeof payload;
        if (batch == 1) {
            list[i].key.data = key;
            list[i].key.len = 2;
        }
        records[i] = &list[i];
    }
    return records;
}

static void messages_fill(struct drive *drive, Narad__V1__Record **records)
{
    static char topic[] = "orders";

    narad__v1__produce_request__init(&drive->request);
    narad__v1__produce_stream_request__init(&drive->stream_request);
    narad__v1__produce_item__init(&drive->item);
    drive->request.topic = drive->item.topic = topic;
    drive->request.n_records = drive->item.n_records = drive->options->batch;
    drive->request.records = drive->item.records = records;
    drive->items[0] = &drive->item;
    drive->stream_request.n_items = 1;
    drive->stream_request.items = drive->items;
}

int echo_drive(const struct echo_options *options, const char *target)
{
    struct drive *drive = nd_xcalloc(1, sizeof *drive);
    struct slot *slots = nd_xcalloc(options->window, sizeof *slots);
    Narad__V1__Record **records = records_new(options->batch);
    struct nd_rpc_channel_options channel_options = {.target = target};
    struct nd_errmsg msg = {.text = ""};

    drive->options = options;
    drive->latencies = nd_xcalloc(LATENCIES_MAX, sizeof *drive->latencies);
    messages_fill(drive, records);
    nd_mutex_init(&drive->lock);
    nd_cond_init(&drive->changed);
    for (uint32_t i = 0; i < options->window; i++) {
        slots[i].drive = drive;
    }
    if (nd_rpc_channel_new(&drive->channel, &channel_options, &msg) != ND_OK) {
        fprintf(stderr, "rpc_echo: %s\n", msg.text);
        return 1;
    }
    drive->begin_ns = now_ns() + 300000000u;
    drive->end_ns = drive->begin_ns + (uint64_t)(options->seconds * 1e9);
    bool unary = options->mode[0] == 'u';
    nd_rpc_channel_post(drive->channel, unary ? unary_begin : stream_begin, slots);
    nd_mutex_lock(&drive->lock);
    while (!drive->over) {
        nd_cond_wait(&drive->changed, &drive->lock);
    }
    nd_mutex_unlock(&drive->lock);
    report(drive);
    nd_rpc_channel_free(drive->channel);
    int result = drive->errors > 0;
    nd_cond_release(&drive->changed);
    nd_mutex_release(&drive->lock);
    nd_free(records[0]);
    nd_free(records);
    nd_free(slots);
    nd_free(drive->latencies);
    nd_free(drive);
    return result;
}
