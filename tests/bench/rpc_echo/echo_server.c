#include <stdio.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "echo.h"
#include "proto/narad/v1/bench.nd.h"
#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/server.h"

enum { MESSAGE_MAX = 20 << 20 };

static void unary_start(struct nd_rpc_call *call, struct nd_slice bytes)
{
    Narad__V1__ProduceResponse reply;

    if (nd_rpc_call_decode(call, &narad__v1__produce_request__descriptor, bytes) == NULL) {
        nd_rpc_call_fail(call, ND_ERR_INVALID_ARGUMENT, NULL);
        return;
    }
    narad__v1__produce_response__init(&reply);
    nd_rpc_call_reply(call, &reply.base);
}

/* Confirmations gather while a write is in flight; one result stands for all up to its id. */
struct stream {
    uint64_t last_id;
    bool waiting, writing;
};

static void confirm(struct nd_rpc_call *call, struct stream *stream)
{
    Narad__V1__ProduceStreamResponse response;
    Narad__V1__ProduceResult result, *results[] = {&result};

    narad__v1__produce_stream_response__init(&response);
    narad__v1__produce_result__init(&result);
    result.id = stream->last_id;
    response.n_results = 1;
    response.results = results;
    stream->waiting = false;
    stream->writing = true;
    nd_rpc_call_send(call, &response.base);
}

static void stream_open(struct nd_rpc_call *call)
{
    nd_rpc_call_set_user(call, nd_xcalloc(1, sizeof(struct stream)));
}

static void stream_message(struct nd_rpc_call *call, struct nd_slice bytes)
{
    struct stream *stream = nd_rpc_call_user(call);
    const Narad__V1__ProduceStreamRequest *request =
        nd_rpc_call_decode(call, &narad__v1__produce_stream_request__descriptor, bytes);

    if (request == NULL || request->n_items != 1) {
        nd_rpc_call_fail(call, ND_ERR_INVALID_ARGUMENT, NULL);
        return;
    }
    stream->last_id = request->items[0]->id;
    stream->waiting = true;
    if (!stream->writing) {
        confirm(call, stream);
    }
}

static void stream_drained(struct nd_rpc_call *call)
{
    struct stream *stream = nd_rpc_call_user(call);

    stream->writing = false;
    if (stream->waiting) {
        confirm(call, stream);
    }
}

static void stream_end(struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, 0, NULL);
}

static void stream_done(struct nd_rpc_call *call)
{
    nd_free(nd_rpc_call_user(call));
}

static const struct nd_rpc_method unary = {.path = NARAD_V1_BENCH_PRODUCE_PATH,
                                           .kind = NARAD_V1_BENCH_PRODUCE_KIND,
                                           .message_bytes_max = MESSAGE_MAX,
                                           .armed = 64,
                                           .on_start = unary_start};
static const struct nd_rpc_method stream = {.path = NARAD_V1_BENCH_PRODUCE_STREAM_PATH,
                                            .kind = NARAD_V1_BENCH_PRODUCE_STREAM_KIND,
                                            .message_bytes_max = MESSAGE_MAX,
                                            .on_open = stream_open,
                                            .on_message = stream_message,
                                            .on_half_close = stream_end,
                                            .on_drained = stream_drained,
                                            .on_cancel = stream_end,
                                            .on_done = stream_done};

int echo_serve(const struct echo_options *options, const char *address, int ready_fd, int stop_fd)
{
    static const struct nd_rpc_method *const methods[] = {&unary, &stream};
    struct nd_rpc_server_options server_options = {.methods = methods,
                                                   .methods_count = ND_ARRAY_SIZE(methods),
                                                   .threads = options->server_threads,
                                                   .message_bytes_max = MESSAGE_MAX};
    struct nd_rpc_server *server = NULL;
    struct nd_errmsg msg = {.text = ""};
    char target[200], byte;
    int port = 0;

    if (nd_rpc_server_new(&server, &server_options, &msg) != ND_OK ||
        nd_rpc_server_listen(server, address, &port, &msg) != ND_OK ||
        nd_rpc_server_start(server, &msg) != ND_OK) {
        fprintf(stderr, "rpc_echo: %s\n", msg.text);
        return 1;
    }
    if (port == 0) {
        snprintf(target, sizeof target, "%s", address);
    } else {
        snprintf(target, sizeof target, "127.0.0.1:%d", port);
    }
    if (write(ready_fd, target, sizeof target) != (ssize_t)sizeof target) {
        return 1;
    }
    while (read(stop_fd, &byte, 1) > 0) {
    }
    nd_rpc_server_stop(server, 100);
    nd_rpc_server_free(server);
    return 0;
}
