/* Pipelined settles outside subscriptions: for each topic one Ack call is under way and the next
 * takes all that gathered meanwhile. */
#include <string.h>

#include "clients/c/src/internal.h"

static void settler_pump_locked(struct settler *settler);

struct settle_item *settle_item_new(const char *handle, Narad__V1__SettleAction action,
                                    narad_settled_fn *done, void *data)
{
    struct settle_item *item = nd_xcalloc(1, sizeof *item);

    item->handle = nd_xstrdup(handle);
    item->action = action;
    item->done = done;
    item->data = data;
    return item;
}

void settle_item_end(struct settle_item *item, int code, const char *text)
{
    if (item->done != NULL) {
        item->done(item->data, code, text);
    }
    nd_free(item->handle);
    nd_free(item);
}

void settle_batch_take(struct settle_batch *batch, struct nd_list *pending, struct nd_list *sent)
{
    struct nd_list *link;

    batch->count = 0;
    while (batch->count < BATCH_ITEMS_MAX && (link = nd_list_pop(pending)) != NULL) {
        const struct settle_item *item = ND_CONTAINER_OF(link, struct settle_item, link);
        Narad__V1__Settle *settle = &batch->settles[batch->count];
        narad__v1__settle__init(settle);
        settle->receipt_handle = item->handle;
        settle->action = item->action;
        batch->pointers[batch->count++] = settle;
        nd_list_append(sent, link);
    }
}

static void settler_free(struct settler *settler)
{
    nd_free(settler->topic);
    nd_free(settler);
}

static void on_acked(void *data, const struct nd_rpc_status *status, const void *reply)
{
    struct settler *settler = data;
    struct narad_client *client = settler->client;
    const Narad__V1__AckResponse *response = reply;
    struct nd_list sent = ND_LIST_INIT(sent);
    uint32_t count = 0;

    on_own_thread(client);
    nd_mutex_lock(&client->lock);
    nd_list_move(&sent, &settler->sent);
    settler->calling = false;
    settler_pump_locked(settler);
    if (!settler->calling && nd_list_empty(&settler->pending)) {
        nd_list_remove(&settler->link);
        settler_free(settler);
    }
    nd_mutex_unlock(&client->lock);
    for (struct nd_list *link; (link = nd_list_pop(&sent)) != NULL; count++) {
        struct settle_item *item = ND_CONTAINER_OF(link, struct settle_item, link);
        if (status->code != NARAD_OK) {
            settle_item_end(item, status->code, status->text);
        } else if (response == NULL || count >= response->n_results) {
            settle_item_end(item, NARAD_INTERNAL, "the answer has no result for it");
        } else {
            settle_item_end(item, (int)response->results[count]->code,
                            response->results[count]->error);
        }
    }
    nd_mutex_lock(&client->lock);
    client->settles_open -= count;
    nd_cond_broadcast(&client->changed);
    nd_mutex_unlock(&client->lock);
}

static void settler_pump_locked(struct settler *settler)
{
    struct settle_batch batch;
    Narad__V1__AckRequest request;

    if (settler->calling || settler->client->closing) {
        return;
    }
    settle_batch_take(&batch, &settler->pending, &settler->sent);
    if (batch.count == 0) {
        return;
    }
    narad__v1__ack_request__init(&request);
    request.topic = settler->topic;
    request.n_settles = batch.count;
    request.settles = batch.pointers;
    settler->calling = true;
    nd_rpc_call_unary(settler->client->channel, "/narad.v1.Broker/Ack", &request.base,
                      &narad__v1__ack_response__descriptor, settler->client->timeout_ms, false,
                      on_acked, settler);
}

static struct settler *settler_of(struct narad_client *client, const char *topic)
    ND_REQUIRES(client->lock)
{
    ND_LIST_FOREACH (&client->settlers, link) {
        struct settler *settler = ND_CONTAINER_OF(link, struct settler, link);
        if (strcmp(settler->topic, topic) == 0) {
            return settler;
        }
    }
    struct settler *settler = nd_xcalloc(1, sizeof *settler);
    settler->client = client;
    settler->topic = nd_xstrdup(topic);
    nd_list_init(&settler->pending);
    nd_list_init(&settler->sent);
    nd_list_append(&client->settlers, &settler->link);
    return settler;
}

int narad_settle_async(struct narad_client *client, const char *topic, const char *receipt_handle,
                       Narad__V1__SettleAction action, narad_settled_fn *done, void *data)
{
    int code = NARAD_OK;

    if (topic == NULL || receipt_handle == NULL) {
        return NARAD_INVALID_ARGUMENT;
    }
    nd_mutex_lock(&client->lock);
    while (!client->closing && client->settles_open >= client->in_flight_max && code == NARAD_OK) {
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
        struct settler *settler = settler_of(client, topic);
        struct settle_item *item = settle_item_new(receipt_handle, action, done, data);
        client->settles_open += 1;
        nd_list_append(&settler->pending, &item->link);
        settler_pump_locked(settler);
    }
    nd_mutex_unlock(&client->lock);
    return code;
}

void settlers_close(struct narad_client *client)
{
    for (struct nd_list *link; (link = nd_list_pop(&client->settlers)) != NULL;) {
        struct settler *settler = ND_CONTAINER_OF(link, struct settler, link);
        nd_list_move(&settler->sent, &settler->pending);
        for (struct nd_list *item; (item = nd_list_pop(&settler->sent)) != NULL;) {
            settle_item_end(ND_CONTAINER_OF(item, struct settle_item, link), NARAD_CANCELLED,
                            "the client was closed");
        }
        settler_free(settler);
    }
}
