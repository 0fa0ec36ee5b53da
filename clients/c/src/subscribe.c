/* Subscriptions: one Subscribe stream each; settles gather while a write is under way.
 *
 *   starting ─► flowing ─► closing (its settles get their outcome) ─► ended
 *       ▲          │ connection lost
 *       └──────────┘
 *
 * It starts again while the server may come back: see struct outage. */
#include <string.h>

#include "clients/c/src/internal.h"

struct narad_subscription {
    struct nd_list link; /* in client->subscriptions */
    struct narad_client *client;
    struct narad_subscription_options options;
    char *topic;
    struct nd_rpc_stream *stream;
    struct nd_list pending; /* settles to send */
    struct nd_list sent;    /* in order, without a result yet */
    bool started;           /* the first message of this stream was sent */
    bool writing, retrying, closing;
    bool ending; /* `ended` comes next: nothing is sent any more */
    struct outage outage;
};

static void subscription_pump_locked(struct narad_subscription *sub);

static void settles_end(struct nd_list *items, int code, const char *text)
{
    for (struct nd_list *link; (link = nd_list_pop(items)) != NULL;) {
        settle_item_end(ND_CONTAINER_OF(link, struct settle_item, link), code, text);
    }
}

static void subscription_free(struct narad_subscription *sub)
{
    nd_free(sub->topic);
    nd_free(sub);
}

/* The last callback, and the end of the subscription, which is `ending`. What the program settles
 * meanwhile, maybe because a settle failed, is cancelled. */
static void subscription_end(struct narad_subscription *sub, int code, const char *text)
{
    struct nd_list settles = ND_LIST_INIT(settles);
    int settles_code = code == NARAD_OK ? NARAD_CANCELLED : code;

    nd_mutex_lock(&sub->client->lock);
    nd_list_move(&settles, &sub->sent);
    nd_list_move(&settles, &sub->pending);
    while (!nd_list_empty(&settles)) {
        nd_mutex_unlock(&sub->client->lock);
        settles_end(&settles, settles_code, text);
        settles_code = NARAD_CANCELLED;
        nd_mutex_lock(&sub->client->lock);
        nd_list_move(&settles, &sub->pending);
    }
    nd_list_remove(&sub->link);
    nd_mutex_unlock(&sub->client->lock);
    sub->options.ended(sub->options.data, code, text);
    subscription_free(sub);
}

static void results_take(struct narad_subscription *sub,
                         const Narad__V1__SubscribeResponse *response)
{
    for (size_t i = 0; i < response->n_results; i++) {
        nd_mutex_lock(&sub->client->lock);
        struct nd_list *link = nd_list_pop(&sub->sent);
        nd_mutex_unlock(&sub->client->lock);
        if (link == NULL) {
            nd_rpc_stream_cancel(sub->stream); /* more results than settles */
            return;
        }
        settle_item_end(ND_CONTAINER_OF(link, struct settle_item, link),
                        (int)response->results[i]->code, response->results[i]->error);
    }
}

static void on_deliveries(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct narad_subscription *sub = data;
    struct narad_client *client = sub->client;
    Narad__V1__SubscribeResponse *response =
        narad__v1__subscribe_response__unpack(NULL, bytes.size, bytes.data);

    on_own_thread(client);
    if (response == NULL) {
        nd_rpc_stream_cancel(stream);
        return;
    }
    nd_mutex_lock(&client->lock);
    outage_over(&sub->outage);
    bool closing = sub->closing;
    nd_mutex_unlock(&client->lock);
    for (size_t i = 0; i < response->n_messages && !closing; i++) {
        sub->options.message(sub->options.data, sub, response->messages[i]);
        nd_mutex_lock(&client->lock);
        closing = sub->closing;
        nd_mutex_unlock(&client->lock);
    }
    results_take(sub, response);
    narad__v1__subscribe_response__free_unpacked(response, NULL);
    nd_mutex_lock(&client->lock);
    subscription_pump_locked(sub);
    nd_mutex_unlock(&client->lock);
}

static void on_drained(void *data, struct nd_rpc_stream *stream)
{
    struct narad_subscription *sub = data;

    (void)stream;
    on_own_thread(sub->client);
    nd_mutex_lock(&sub->client->lock);
    sub->writing = false;
    outage_taken(&sub->outage);
    subscription_pump_locked(sub);
    nd_mutex_unlock(&sub->client->lock);
}

static void retry(void *data)
{
    struct narad_subscription *sub = data;

    nd_mutex_lock(&sub->client->lock);
    sub->retrying = false;
    sub->ending = sub->closing || sub->client->closing;
    int code = sub->closing ? NARAD_OK : NARAD_CANCELLED;
    bool over = sub->ending;
    if (!over) {
        subscription_pump_locked(sub);
    }
    nd_mutex_unlock(&sub->client->lock);
    if (over) {
        subscription_end(sub, code, code == NARAD_OK ? "" : "the client was closed");
    }
}

static bool worth_a_retry_locked(struct narad_subscription *sub, const struct nd_rpc_status *status)
{
    bool in_time = outage_goes_on(&sub->outage, sub->client->connect_timeout_ms);

    return in_time && !sub->closing && !sub->client->closing &&
           (status->code == NARAD_UNAVAILABLE || status->code == NARAD_OK);
}

static void on_stream_done(void *data, struct nd_rpc_stream *stream,
                           const struct nd_rpc_status *status)
{
    struct narad_subscription *sub = data;
    struct narad_client *client = sub->client;
    struct nd_list unknown = ND_LIST_INIT(unknown);

    (void)stream;
    on_own_thread(client);
    nd_mutex_lock(&client->lock);
    sub->stream = NULL;
    sub->writing = false;
    sub->started = false;
    nd_list_move(&unknown, &sub->sent);
    bool again = worth_a_retry_locked(sub, status);
    int code = client->closing ? NARAD_CANCELLED : status->code;
    if (sub->closing) {
        code = NARAD_OK;
    }
    sub->ending = !again;
    if (again) {
        sub->retrying = true;
        nd_rpc_channel_post_after(
            client->channel, outage_pause_ms(&sub->outage, client->connect_timeout_ms), retry, sub);
    }
    nd_mutex_unlock(&client->lock);
    settles_end(&unknown, NARAD_UNAVAILABLE, "the connection was lost");
    if (!again) {
        struct explanation explanation;
        subscription_end(sub, code, code == NARAD_OK ? "" : explain(client, status, &explanation));
    }
}

static void start_fill(struct narad_subscription *sub, Narad__V1__SubscribeStart *start)
{
    narad__v1__subscribe_start__init(start);
    start->topic = sub->topic;
    start->max_outstanding = sub->options.max_outstanding;
    if (sub->options.partition >= 0) {
        start->partition_choice_case = NARAD__V1__SUBSCRIBE_START__PARTITION_CHOICE_PARTITION;
        start->partition = (uint32_t)sub->options.partition;
    }
}

static void subscription_pump_locked(struct narad_subscription *sub)
{
    static const struct nd_rpc_stream_events events = {
        .on_message = on_deliveries, .on_drained = on_drained, .on_done = on_stream_done};
    Narad__V1__SubscribeRequest request;
    Narad__V1__SubscribeStart start;
    struct settle_batch batch;

    narad__v1__subscribe_request__init(&request);
    if (sub->writing || sub->retrying || sub->ending || sub->client->closing) {
        return;
    }
    if (sub->stream == NULL) {
        sub->stream = nd_rpc_stream_open(sub->client->channel, "/narad.v1.Broker/Subscribe", 0,
                                         false, false, &events, sub);
    }
    if (!sub->started) {
        start_fill(sub, &start);
        request.start = &start;
    }
    settle_batch_take(&batch, &sub->pending, &sub->sent);
    request.n_settles = batch.count;
    request.settles = batch.pointers;
    if (request.start != NULL || request.n_settles > 0) {
        sub->started = true;
        sub->writing = true;
        nd_rpc_stream_send(sub->stream, &request.base);
    } else if (sub->closing && nd_list_empty(&sub->sent)) {
        nd_rpc_stream_cancel(sub->stream);
    }
}

int narad_subscribe(struct narad_client *client, const struct narad_subscription_options *options,
                    struct narad_subscription **out, struct narad_error *error)
{
    if (options->topic == NULL || options->message == NULL || options->ended == NULL) {
        return error_set(error, NARAD_INVALID_ARGUMENT, "topic, message and ended are required");
    }
    struct narad_subscription *sub = nd_xcalloc(1, sizeof *sub);
    sub->client = client;
    sub->options = *options;
    sub->topic = nd_xstrdup(options->topic);
    sub->options.topic = sub->topic;
    nd_list_init(&sub->link);
    nd_list_init(&sub->pending);
    nd_list_init(&sub->sent);
    *out = sub;
    nd_mutex_lock(&client->lock);
    nd_list_append(&client->subscriptions, &sub->link);
    sub->outage.since_ns = now_ns();
    subscription_pump_locked(sub);
    nd_mutex_unlock(&client->lock);
    return error_set(error, NARAD_OK, "");
}

void narad_subscription_settle(struct narad_subscription *sub, const char *receipt_handle,
                               Narad__V1__SettleAction action, narad_settled_fn *done, void *data)
{
    struct settle_item *item = settle_item_new(receipt_handle, action, done, data);

    nd_mutex_lock(&sub->client->lock);
    nd_list_append(&sub->pending, &item->link);
    subscription_pump_locked(sub);
    nd_mutex_unlock(&sub->client->lock);
}

void narad_subscription_close(struct narad_subscription *sub)
{
    nd_mutex_lock(&sub->client->lock);
    sub->closing = true;
    subscription_pump_locked(sub); /* or retry() ends it */
    nd_mutex_unlock(&sub->client->lock);
}

void subscriptions_close(struct narad_client *client)
{
    struct nd_list *link;

    while ((link = nd_list_first(&client->subscriptions)) != NULL) {
        subscription_end(ND_CONTAINER_OF(link, struct narad_subscription, link), NARAD_CANCELLED,
                         "the client was closed");
    }
}
