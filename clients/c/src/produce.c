/* Pipelined produce: items gather while a write is under way, travel on one ProduceStream in the
 * order they came, and are confirmed in that order.
 *
 *   narad_produce_async ─► pending ─► (write) ─► sent ─► confirmed
 *                             ▲                    │ the stream broke
 *                             └── resend ──────────┴─► reported UNAVAILABLE
 */
#include <string.h>

#include "clients/c/src/internal.h"

static void producer_pump(struct narad_client *client) ND_REQUIRES(client->lock);

void producer_init(struct producer *producer)
{
    *producer = (struct producer){.id_next = 1};
    nd_list_init(&producer->pending);
    nd_list_init(&producer->sent);
}

/* --- items --- */

static size_t record_bytes(const Narad__V1__Record *record)
{
    size_t bytes = record->key.len + record->payload.len;

    for (size_t h = 0; h < record->n_headers; h++) {
        bytes += strlen(record->headers[h]->name) + 1 + record->headers[h]->value.len +
                 sizeof(Narad__V1__Header) + sizeof(Narad__V1__Header *) + 16;
    }
    return bytes + sizeof(Narad__V1__Record) + sizeof(Narad__V1__Record *) + 32;
}

/* Cut aligned pieces off one allocation. */
static void *cut(uint8_t **at, size_t size)
{
    void *piece = *at;

    *at += (size + 7) & ~(size_t)7;
    return piece;
}

static ProtobufCBinaryData bytes_copy(uint8_t **at, ProtobufCBinaryData from)
{
    ProtobufCBinaryData to = {from.len, cut(at, from.len)};

    if (from.len > 0) {
        memcpy(to.data, from.data, from.len);
    }
    return to;
}

static Narad__V1__Record *record_copy(uint8_t **at, const Narad__V1__Record *from)
{
    Narad__V1__Record *to = cut(at, sizeof *to);

    *to = *from;
    to->base.n_unknown_fields = 0;
    to->base.unknown_fields = NULL;
    to->key = bytes_copy(at, from->key);
    to->payload = bytes_copy(at, from->payload);
    to->headers = cut(at, from->n_headers * sizeof *to->headers);
    for (size_t h = 0; h < from->n_headers; h++) {
        Narad__V1__Header *header = cut(at, sizeof *header);
        size_t name_size = strlen(from->headers[h]->name) + 1;
        *header = *from->headers[h];
        header->name = memcpy(cut(at, name_size), from->headers[h]->name, name_size);
        header->value = bytes_copy(at, from->headers[h]->value);
        to->headers[h] = header;
    }
    return to;
}

static struct produce_item *item_new(const char *topic, Narad__V1__Record *const *records,
                                     size_t count, narad_produced_fn *done, void *data)
{
    struct produce_item *item = nd_xcalloc(1, sizeof *item);
    size_t topic_size = strlen(topic) + 1;
    size_t bytes = topic_size + 8 + count * sizeof *records;

    for (size_t i = 0; i < count; i++) {
        bytes += record_bytes(records[i]);
    }
    item->memory = nd_xmalloc(bytes);
    item->bytes = bytes;
    item->done = done;
    item->data = data;
    uint8_t *at = item->memory;
    narad__v1__produce_item__init(&item->message);
    item->message.topic = memcpy(cut(&at, topic_size), topic, topic_size);
    item->message.n_records = count;
    item->message.records = cut(&at, count * sizeof *records);
    for (size_t i = 0; i < count; i++) {
        item->message.records[i] = record_copy(&at, records[i]);
    }
    ND_ASSERT((size_t)(at - (uint8_t *)item->memory) <= bytes + 8);
    return item;
}

static void item_free(struct produce_item *item)
{
    nd_free(item->memory);
    nd_free(item);
}

/* An item has its outcome: tell it, without the lock, and make room. */
static void item_end(struct narad_client *client, struct produce_item *item, int code,
                     const char *text, const Narad__V1__ProduceResult *result)
{
    item->done(item->data, code, text, result != NULL ? result->placements : NULL,
               result != NULL ? result->n_placements : 0);
    nd_mutex_lock(&client->lock);
    client->producer.count -= 1;
    client->producer.bytes -= item->bytes;
    nd_cond_broadcast(&client->changed);
    nd_mutex_unlock(&client->lock);
    item_free(item);
}

static void items_end(struct narad_client *client, struct nd_list *items, int code,
                      const char *text)
{
    for (struct nd_list *link; (link = nd_list_pop(items)) != NULL;) {
        item_end(client, ND_CONTAINER_OF(link, struct produce_item, link), code, text, NULL);
    }
}

/* --- the stream --- */

static void on_confirmations(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct narad_client *client = data;
    Narad__V1__ProduceStreamResponse *response =
        narad__v1__produce_stream_response__unpack(NULL, bytes.size, bytes.data);

    on_own_thread(client);
    if (response == NULL) {
        nd_rpc_stream_cancel(stream);
        return;
    }
    for (size_t i = 0; i < response->n_results; i++) {
        const Narad__V1__ProduceResult *result = response->results[i];
        struct produce_item *item = NULL;
        nd_mutex_lock(&client->lock);
        struct nd_list *link = nd_list_first(&client->producer.sent);
        if (link != NULL) {
            item = ND_CONTAINER_OF(link, struct produce_item, link);
            if (item->message.id == result->id) {
                nd_list_remove(link);
                outage_over(&client->producer.outage);
            } else {
                item = NULL;
            }
        }
        nd_mutex_unlock(&client->lock);
        if (item == NULL) {
            nd_rpc_stream_cancel(stream); /* not what we sent: trust nothing of it */
            break;
        }
        item_end(client, item, (int)result->code, result->error, result);
    }
    narad__v1__produce_stream_response__free_unpacked(response, NULL);
}

static void on_drained(void *data, struct nd_rpc_stream *stream)
{
    struct narad_client *client = data;

    (void)stream;
    on_own_thread(client);
    nd_mutex_lock(&client->lock);
    client->producer.writing = false;
    outage_taken(&client->producer.outage);
    producer_pump(client);
    nd_mutex_unlock(&client->lock);
}

static void retry(void *data)
{
    struct narad_client *client = data;

    nd_mutex_lock(&client->lock);
    client->producer.opening = false;
    producer_pump(client);
    nd_mutex_unlock(&client->lock);
}

/* The connection may come back; other ends of a stream are answers. */
static bool worth_a_retry_locked(struct narad_client *client, const struct nd_rpc_status *status)
    ND_REQUIRES(client->lock)
{
    bool in_time = outage_goes_on(&client->producer.outage, client->connect_timeout_ms);

    return in_time && !client->closing &&
           (status->code == NARAD_UNAVAILABLE || status->code == NARAD_OK);
}

static void on_stream_done(void *data, struct nd_rpc_stream *stream,
                           const struct nd_rpc_status *status)
{
    struct narad_client *client = data;
    struct producer *producer = &client->producer;
    struct nd_list unknown = ND_LIST_INIT(unknown);
    struct nd_list refused = ND_LIST_INIT(refused);
    struct explanation explanation;
    bool again = false;

    (void)stream;
    on_own_thread(client);
    nd_mutex_lock(&client->lock);
    producer->stream = NULL;
    producer->writing = false;
    bool taken = producer->outage.taken_ns != 0;
    again = worth_a_retry_locked(client, status);
    if (again && (client->resend_unconfirmed || !taken)) {
        nd_list_move(&producer->sent, &producer->pending);
        nd_list_move(&producer->pending, &producer->sent);
    } else {
        nd_list_move(&unknown, &producer->sent);
    }
    if (!again) {
        nd_list_move(&refused, &producer->pending);
        outage_over(&producer->outage);
    } else if (nd_list_empty(&producer->pending)) {
        outage_over(&producer->outage); /* nothing waits: the next item has all its time */
    } else {
        producer->opening = true;
        nd_rpc_channel_post_after(client->channel,
                                  outage_pause_ms(&producer->outage, client->connect_timeout_ms),
                                  retry, client);
    }
    int code = client->closing ? NARAD_CANCELLED : status->code;
    nd_mutex_unlock(&client->lock);
    const char *text = explain(client, status, &explanation);
    items_end(client, &unknown, code == NARAD_OK ? NARAD_UNAVAILABLE : code, text);
    items_end(client, &refused, code == NARAD_OK ? NARAD_UNAVAILABLE : code, text);
}

static void stream_open(struct narad_client *client) ND_REQUIRES(client->lock)
{
    static const struct nd_rpc_stream_events events = {
        .on_message = on_confirmations, .on_drained = on_drained, .on_done = on_stream_done};

    client->producer.stream = nd_rpc_stream_open(client->channel, "/narad.v1.Broker/ProduceStream",
                                                 0, false, false, &events, client);
}

/* Send what gathered, as one message. Topics are sent once per run of equal ones. */
static void producer_pump(struct narad_client *client)
{
    struct producer *producer = &client->producer;
    Narad__V1__ProduceItem *items[BATCH_ITEMS_MAX];
    Narad__V1__ProduceStreamRequest request;
    size_t bytes = 0;

    narad__v1__produce_stream_request__init(&request);
    if (producer->writing || producer->opening || client->closing ||
        nd_list_empty(&producer->pending)) {
        return;
    }
    if (producer->stream == NULL) {
        stream_open(client);
    }
    request.items = items;
    while (request.n_items < BATCH_ITEMS_MAX && bytes < BATCH_BYTES_MAX) {
        struct nd_list *link = nd_list_first(&producer->pending);
        if (link == NULL) {
            break;
        }
        struct produce_item *item = ND_CONTAINER_OF(link, struct produce_item, link);
        if (request.n_items > 0 && bytes + item->bytes > BATCH_BYTES_MAX) {
            break;
        }
        nd_list_remove(link);
        nd_list_append(&producer->sent, link);
        bytes += item->bytes;
        items[request.n_items++] = &item->message;
    }
    producer->writing = true;
    nd_rpc_stream_send(producer->stream, &request.base);
}

static bool is_full(const struct narad_client *client, size_t bytes)
{
    return client->producer.count >= client->in_flight_max ||
           (client->producer.count > 0 && client->producer.bytes + bytes > client->bytes_max);
}

int narad_produce_async(struct narad_client *client, const char *topic,
                        Narad__V1__Record *const *records, size_t records_count,
                        narad_produced_fn *done, void *data)
{
    if (topic == NULL || done == NULL || records_count == 0) {
        return NARAD_INVALID_ARGUMENT;
    }
    struct produce_item *item = item_new(topic, records, records_count, done, data);
    int code = NARAD_OK;

    nd_mutex_lock(&client->lock);
    while (!client->closing && is_full(client, item->bytes) && code == NARAD_OK) {
        if (is_own_thread(client)) {
            code = NARAD_RESOURCE_EXHAUSTED;
        } else {
            nd_cond_wait(&client->changed, &client->lock);
        }
    }
    if (client->closing) {
        code = NARAD_CANCELLED;
    }
    if (code == NARAD_OK) {
        item->message.id = client->producer.id_next++;
        client->producer.count += 1;
        client->producer.bytes += item->bytes;
        nd_list_append(&client->producer.pending, &item->link);
        producer_pump(client);
    }
    nd_mutex_unlock(&client->lock);
    if (code != NARAD_OK) {
        item_free(item);
    }
    return code;
}

void producer_close(struct narad_client *client)
{
    items_end(client, &client->producer.sent, NARAD_CANCELLED, "the client was closed");
    items_end(client, &client->producer.pending, NARAD_CANCELLED, "the client was closed");
}
