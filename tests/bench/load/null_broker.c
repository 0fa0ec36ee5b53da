/* A broker that answers without storing, for what a gateway costs by itself:
 *
 *   null_broker ADDRESS     serves narad.v1.Broker/ProduceStream until its standard input ends
 *
 * Every item of a message is confirmed as if it had become the next record of partition 0; what
 * gathers while an answer is on its way goes with the next. */
#include <stdio.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "proto/narad/v1/broker.nd.h"
#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/server.h"

enum { MESSAGE_MAX = 20 << 20, ITEMS_MAX = 4096 };

static void stream_message(struct nd_rpc_call *call, struct nd_slice bytes)
{
    const Narad__V1__ProduceStreamRequest *request =
        nd_rpc_call_decode(call, &narad__v1__produce_stream_request__descriptor, bytes);

    if (request == NULL || request->n_items > ITEMS_MAX) {
        nd_rpc_call_fail(call, ND_ERR_INVALID_ARGUMENT, NULL);
        return;
    }
    struct nd_arena *arena = nd_rpc_call_arena(call);
    size_t count = request->n_items;
    Narad__V1__ProduceStreamResponse response = NARAD__V1__PRODUCE_STREAM_RESPONSE__INIT;
    Narad__V1__ProduceResult *results = nd_arena_alloc(arena, count * sizeof *results);
    response.n_results = count;
    response.results = nd_arena_alloc(arena, count * sizeof *response.results);
    for (size_t i = 0; i < count; i++) {
        narad__v1__produce_result__init(&results[i]);
        results[i].id = request->items[i]->id;
        response.results[i] = &results[i];
    }
    nd_rpc_call_send(call, &response.base);
}

static void stream_end(struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, 0, NULL);
}

static const struct nd_rpc_method stream = {.path = NARAD_V1_BROKER_PRODUCE_STREAM_PATH,
                                            .kind = NARAD_V1_BROKER_PRODUCE_STREAM_KIND,
                                            .message_bytes_max = MESSAGE_MAX,
                                            .on_message = stream_message,
                                            .on_half_close = stream_end,
                                            .on_cancel = stream_end};

int main(int argc, char **argv)
{
    static const struct nd_rpc_method *const methods[] = {&stream};
    struct nd_rpc_server_options options = {
        .methods = methods, .methods_count = 1, .threads = 1, .message_bytes_max = MESSAGE_MAX};
    struct nd_rpc_server *server = NULL;
    struct nd_errmsg msg = {.text = ""};
    int port;
    char byte;

    if (argc != 2) {
        fprintf(stderr, "usage: null_broker ADDRESS\n");
        return 2;
    }
    if (nd_rpc_server_new(&server, &options, &msg) != ND_OK ||
        nd_rpc_server_listen(server, argv[1], &port, &msg) != ND_OK ||
        nd_rpc_server_start(server, &msg) != ND_OK) {
        fprintf(stderr, "null_broker: %s\n", msg.text);
        return 1;
    }
    nd_rpc_server_set_serving(server, true);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    nd_rpc_server_stop(server, 100);
    nd_rpc_server_free(server);
    return 0;
}
