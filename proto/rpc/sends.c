#include "proto/rpc/sends.h"

#include <string.h>

#include "storage/base/alloc.h"

struct nd_rpc_send {
    struct nd_rpc_send *next;
    grpc_byte_buffer *buffer;
    size_t size;
};

size_t nd_rpc_sends_push(struct nd_rpc_sends *sends, grpc_byte_buffer *buffer)
{
    struct nd_rpc_send *send = nd_xmalloc(sizeof *send);

    *send = (struct nd_rpc_send){.buffer = buffer, .size = grpc_byte_buffer_length(buffer)};
    if (sends->first == NULL) {
        sends->first = send;
    } else {
        sends->last->next = send;
    }
    sends->last = send;
    sends->bytes += send->size;
    return sends->bytes;
}

void nd_rpc_sends_begin(struct nd_rpc_sends *sends, grpc_op *op, bool alone)
{
    struct nd_rpc_send *send = sends->first;

    ND_ASSERT(sends->in_flight == NULL && send != NULL);
    sends->first = send->next;
    sends->in_flight = send;
    op->op = GRPC_OP_SEND_MESSAGE;
    op->data.send_message.send_message = send->buffer;
    if (sends->first != NULL && alone) {
        op->flags = GRPC_WRITE_BUFFER_HINT;
    }
}

static void send_free(struct nd_rpc_sends *sends, struct nd_rpc_send *send)
{
    sends->bytes -= send->size;
    grpc_byte_buffer_destroy(send->buffer);
    nd_free(send);
}

bool nd_rpc_sends_done(struct nd_rpc_sends *sends)
{
    struct nd_rpc_send *send = sends->in_flight;

    if (send == NULL) {
        return false;
    }
    sends->in_flight = NULL;
    send_free(sends, send);
    return true;
}

void nd_rpc_sends_drop(struct nd_rpc_sends *sends)
{
    for (struct nd_rpc_send *send = sends->first, *next; send != NULL; send = next) {
        next = send->next;
        send_free(sends, send);
    }
    sends->first = NULL;
}
