/* Subscribe streams that ack what they get, and what only waits: streams without traffic, polls. */
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "load.h"

enum { POLL_WAIT_MS = 30000 };

struct subscriber {
    struct load *load;
    struct nd_rpc_channel *channel;
    struct nd_rpc_stream *stream;
    uint32_t topic, outstanding;
    Narad__V1__Settle *settles; /* what was delivered and not acked yet; owns the handles */
    Narad__V1__Settle **pointers;
    uint32_t count;
    bool writing, over;
};

static void pump(struct subscriber *s)
{
    Narad__V1__SubscribeRequest request;

    if (s->writing || s->over || s->count == 0) {
        return;
    }
    narad__v1__subscribe_request__init(&request);
    request.settles = s->pointers;
    request.n_settles = s->count;
    s->writing = true;
    nd_rpc_stream_send(s->stream, &request.base);
    for (uint32_t i = 0; i < s->count; i++) {
        nd_free(s->settles[i].receipt_handle);
    }
    s->count = 0;
}

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct subscriber *s = data;
    Narad__V1__SubscribeResponse *response =
        narad__v1__subscribe_response__unpack(NULL, bytes.size, bytes.data);
    uint64_t acked = 0;

    if (response == NULL || s->count + response->n_messages > s->outstanding) {
        load_complain(s->load, "subscribe", "an answer that cannot be");
        nd_rpc_stream_cancel(stream);
        return;
    }
    for (size_t i = 0; i < response->n_messages; i++) {
        Narad__V1__Settle *settle = &s->settles[s->count];
        narad__v1__settle__init(settle);
        settle->receipt_handle = nd_xstrdup(response->messages[i]->receipt_handle);
        s->pointers[s->count++] = settle;
    }
    for (size_t i = 0; i < response->n_results; i++) {
        if (response->results[i]->code == 0) {
            acked += 1;
        } else {
            load_complain(s->load, "ack", response->results[i]->error);
            load_count(s->load, &s->load->failed, 1);
        }
    }
    load_count(s->load, &s->load->delivered, response->n_messages);
    load_count(s->load, &s->load->acked, acked);
    narad__v1__subscribe_response__free_unpacked(response, NULL);
    pump(s);
}

static void on_drained(void *data, struct nd_rpc_stream *stream)
{
    struct subscriber *s = data;

    (void)stream;
    s->writing = false;
    pump(s);
}

static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    struct subscriber *s = data;

    (void)stream;
    s->over = true;
    if (!atomic_load_explicit(&s->load->stopping, memory_order_relaxed)) {
        load_complain(s->load, "subscribe stream", status->text);
        load_count(s->load, &s->load->failed, 1);
    }
}

static void start(void *data)
{
    static const struct nd_rpc_stream_events events = {
        .on_message = on_message, .on_drained = on_drained, .on_done = on_done};
    struct subscriber *s = data;
    Narad__V1__SubscribeRequest request;
    Narad__V1__SubscribeStart begin;

    narad__v1__subscribe_request__init(&request);
    narad__v1__subscribe_start__init(&begin);
    begin.topic = s->load->topics[s->topic];
    begin.max_outstanding = s->outstanding;
    request.start = &begin;
    s->stream =
        nd_rpc_stream_open(s->channel, "/narad.v1.Broker/Subscribe", 0, true, false, &events, s);
    s->writing = true;
    nd_rpc_stream_send(s->stream, &request.base);
}

static struct subscriber *subscribers_start(struct load *load, uint32_t count, uint32_t outstanding)
{
    struct subscriber *subscribers = nd_xcalloc(count + 1, sizeof *subscribers);

    for (uint32_t i = 0; i < count; i++) {
        struct subscriber *s = &subscribers[i];
        *s = (struct subscriber){.load = load,
                                 .channel = load_channel(load, load->options.producers + i),
                                 .topic = i % load->options.topics,
                                 .outstanding = outstanding,
                                 .settles = nd_xcalloc(outstanding, sizeof *s->settles),
                                 .pointers = nd_xcalloc(outstanding, sizeof(void *))};
        nd_rpc_channel_post(s->channel, start, s);
    }
    return subscribers;
}

void *load_subscribers_start(struct load *load)
{
    return subscribers_start(load, load->options.subscribers, load->options.outstanding);
}

/* --- what only waits --- */

struct poller {
    struct load *load;
    struct nd_rpc_channel *channel;
    char *topic;
};

static void poll_start(void *data);

static void on_polled(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct poller *p = data;

    (void)reply;
    if (atomic_load_explicit(&p->load->stopping, memory_order_relaxed)) {
        return;
    }
    if (status->code != 0) {
        load_complain(p->load, "consume", status->text);
        load_count(p->load, &p->load->failed, 1);
        return;
    }
    poll_start(p);
}

static void poll_start(void *data)
{
    struct poller *p = data;
    Narad__V1__ConsumeRequest request;

    narad__v1__consume_request__init(&request);
    request.topic = p->topic;
    request.max_messages = 1;
    request.wait_ms = POLL_WAIT_MS;
    nd_rpc_call_unary(p->channel, "/narad.v1.Broker/Consume", &request.base,
                      &narad__v1__consume_response__descriptor, 2 * POLL_WAIT_MS, true, on_polled,
                      p);
}

/* The streams' array; the polls' is found in no other place and stays, they end with the process.
 */
void *load_waiters_start(struct load *load)
{
    const struct load_options *o = &load->options;
    struct poller *pollers = nd_xcalloc(o->parked + 1, sizeof *pollers);

    for (uint32_t i = 0; i < o->parked; i++) {
        pollers[i] = (struct poller){load, load_channel(load, i), load->topics[i % o->topics]};
        nd_rpc_channel_post(pollers[i].channel, poll_start, &pollers[i]);
    }
    return subscribers_start(load, o->idle_streams, 1);
}
