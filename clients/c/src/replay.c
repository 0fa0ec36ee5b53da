/* Replay: a blocking walk over a server stream. */
#include "clients/c/src/internal.h"

struct replay {
    struct narad_client *client;
    bool (*message)(void *data, const Narad__V1__Message *message);
    void *data;
    struct narad_error *error;
    int code;
    bool finished, stopped;
};

static void on_records(void *data, struct nd_rpc_stream *stream, struct nd_slice bytes)
{
    struct replay *replay = data;
    Narad__V1__ReplayResponse *response =
        narad__v1__replay_response__unpack(NULL, bytes.size, bytes.data);

    on_own_thread(replay->client);
    if (response == NULL) {
        nd_rpc_stream_cancel(stream);
        return;
    }
    for (size_t i = 0; i < response->n_messages && !replay->stopped; i++) {
        replay->stopped = !replay->message(replay->data, response->messages[i]);
    }
    narad__v1__replay_response__free_unpacked(response, NULL);
    if (replay->stopped) {
        nd_rpc_stream_cancel(stream);
    } else {
        nd_rpc_stream_read_next(stream);
    }
}

static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    struct replay *replay = data;
    struct narad_client *client = replay->client;
    struct explanation explanation;

    (void)stream;
    on_own_thread(client);
    nd_mutex_lock(&client->lock);
    replay->code = replay->stopped ? NARAD_OK : status->code;
    error_set(replay->error, replay->code,
              replay->code == NARAD_OK ? "" : explain(client, status, &explanation));
    replay->finished = true;
    nd_cond_broadcast(&client->changed);
    nd_mutex_unlock(&client->lock);
}

int narad_replay(struct narad_client *client, const Narad__V1__ReplayRequest *request,
                 bool (*message)(void *data, const Narad__V1__Message *message), void *data,
                 struct narad_error *error)
{
    static const struct nd_rpc_stream_events events = {.on_message = on_records,
                                                       .on_done = on_done};
    struct replay replay = {.client = client, .message = message, .data = data, .error = error};

    if (is_own_thread(client)) {
        return error_set(error, NARAD_FAILED_PRECONDITION, "a blocking call inside a callback");
    }
    nd_mutex_lock(&client->lock); /* on_done takes it: the stream cannot go while it is used here */
    struct nd_rpc_stream *stream = nd_rpc_stream_open(client->channel, "/narad.v1.Broker/Replay", 0,
                                                      false, true, &events, &replay);
    nd_rpc_stream_send(stream, &request->base);
    nd_rpc_stream_half_close(stream);
    while (!replay.finished) {
        nd_cond_wait(&client->changed, &client->lock);
    }
    nd_mutex_unlock(&client->lock);
    return replay.code;
}
