/* A ProduceStream with a window of items. Paced ones send what is due whenever a millisecond has
 * passed or an answer came; what the window or the transport does not take is not sent. */
#include "storage/base/alloc.h"

#include "load.h"

enum { ITEMS_PER_MESSAGE = 256, MESSAGE_BYTES = 1 << 20, PACE_MS = 1 };

struct producer {
    struct load *load;
    struct nd_rpc_channel *channel;
    struct nd_rpc_stream *stream;
    Narad__V1__Record **records;
    uint64_t *sent_ns; /* ring by id */
    uint64_t id_next, started_ns, window_mask;
    uint32_t outstanding, topic;
    bool writing, over;
};

static uint64_t due(const struct producer *p, uint64_t now)
{
    const struct load_options *o = &p->load->options;

    if (o->rate == 0) {
        return UINT64_MAX;
    }
    double each = (double)o->rate / o->producers / o->batch;
    return (uint64_t)(each * ((double)(now - p->started_ns) / 1e9));
}

static void pump(struct producer *p)
{
    const struct load_options *o = &p->load->options;
    Narad__V1__ProduceStreamRequest request;
    Narad__V1__ProduceItem items[ITEMS_PER_MESSAGE], *pointers[ITEMS_PER_MESSAGE];
    uint64_t now = load_now_ns(), until = due(p, now);
    size_t bytes = 0;

    if (p->writing || p->over || atomic_load_explicit(&p->load->stopping, memory_order_relaxed)) {
        return;
    }
    narad__v1__produce_stream_request__init(&request);
    request.items = pointers;
    while (p->outstanding < o->in_flight && request.n_items < ITEMS_PER_MESSAGE &&
           bytes < MESSAGE_BYTES && p->id_next < until) {
        Narad__V1__ProduceItem *item = &items[request.n_items];
        narad__v1__produce_item__init(item);
        item->id = p->id_next++;
        p->sent_ns[item->id & p->window_mask] = now;
        item->topic = p->load->topics[p->topic];
        p->topic = (p->topic + 1) % o->topics;
        if (o->topics == 1 && request.n_items > 0) {
            item->topic = (char *)(uintptr_t) "";
        }
        item->records = p->records;
        item->n_records = o->batch;
        pointers[request.n_items++] = item;
        p->outstanding += 1;
        bytes += (size_t)o->batch * (o->payload + 8);
    }
    if (request.n_items > 0) {
        p->writing = true;
        nd_rpc_stream_send(p->stream, &request.base);
    }
}

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct producer *p = data;
    struct load *load = p->load;
    Narad__V1__ProduceStreamResponse *response =
        narad__v1__produce_stream_response__unpack(NULL, bytes.size, bytes.data);
    uint64_t now = load_now_ns(), done = 0, refused = 0;

    if (response == NULL) {
        load_complain(load, "produce", "an answer could not be decoded");
        nd_rpc_stream_cancel(stream);
        return;
    }
    for (size_t i = 0; i < response->n_results; i++) {
        const Narad__V1__ProduceResult *result = response->results[i];
        p->outstanding -= 1;
        if (result->code != 0) {
            refused += 1;
            load_complain(load, "produce", result->error);
            continue;
        }
        done += 1;
        if (atomic_load_explicit(&load->counting, memory_order_relaxed)) {
            load_latency(load, now - p->sent_ns[result->id & p->window_mask]);
        }
    }
    load_count(load, &load->produced, done * load->options.batch);
    load_count(load, &load->refused, refused * load->options.batch);
    narad__v1__produce_stream_response__free_unpacked(response, NULL);
    pump(p);
}

static void on_drained(void *data, struct nd_rpc_stream *stream)
{
    struct producer *p = data;

    (void)stream;
    p->writing = false;
    pump(p);
}

static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    struct producer *p = data;

    (void)stream;
    p->over = true;
    if (!atomic_load_explicit(&p->load->stopping, memory_order_relaxed)) {
        load_complain(p->load, "produce stream", status->text);
        load_count(p->load, &p->load->failed, 1);
    }
}

static void pace(void *data)
{
    struct producer *p = data;

    if (p->over || atomic_load_explicit(&p->load->stopping, memory_order_relaxed)) {
        return;
    }
    pump(p);
    nd_rpc_channel_post_after(p->channel, PACE_MS, pace, p);
}

static void start(void *data)
{
    static const struct nd_rpc_stream_events events = {
        .on_message = on_message, .on_drained = on_drained, .on_done = on_done};
    struct producer *p = data;

    p->started_ns = load_now_ns();
    p->stream = nd_rpc_stream_open(p->channel, "/narad.v1.Broker/ProduceStream", 0, true, false,
                                   &events, p);
    if (p->load->options.rate == 0) {
        pump(p);
    } else {
        pace(p);
    }
}

static Narad__V1__Record **records_new(const struct load *load)
{
    uint32_t count = load->options.batch;
    Narad__V1__Record **pointers =
        nd_xmalloc(count * (sizeof(Narad__V1__Record *) + sizeof(Narad__V1__Record)));
    Narad__V1__Record *records = (Narad__V1__Record *)(void *)(pointers + count);

    for (uint32_t i = 0; i < count; i++) {
        narad__v1__record__init(&records[i]);
        records[i].payload.data = load->payload;
        records[i].payload.len = load->options.payload;
        pointers[i] = &records[i];
    }
    return pointers;
}

void *load_producers_start(struct load *load)
{
    const struct load_options *o = &load->options;
    struct producer *producers = nd_xcalloc(o->producers + 1, sizeof *producers);
    Narad__V1__Record **records = records_new(load);
    uint64_t ring = 1;

    while (ring < o->in_flight) {
        ring *= 2;
    }
    for (uint32_t i = 0; i < o->producers; i++) {
        producers[i] = (struct producer){.load = load,
                                         .channel = load_channel(load, i),
                                         .records = records,
                                         .sent_ns = nd_xcalloc(ring, sizeof(uint64_t)),
                                         .window_mask = ring - 1,
                                         .topic = i % o->topics};
        nd_rpc_channel_post(producers[i].channel, start, &producers[i]);
    }
    return producers;
}
