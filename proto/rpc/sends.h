/* The messages of one call on their way out: a queue, of which one is with the transport at a time.
 * The completion of that write is the back-pressure signal. Guarded by its call's lock. */
#ifndef ND_RPC_SENDS_H
#define ND_RPC_SENDS_H

#include "proto/rpc/core.h"

struct nd_rpc_send;

struct nd_rpc_sends {
    struct nd_rpc_send *first, *last; /* waiting */
    struct nd_rpc_send *in_flight;    /* NULL: none */
    size_t bytes;                     /* of all of them */
};

/* Takes the buffer over; returns the bytes now queued, this one included. */
size_t nd_rpc_sends_push(struct nd_rpc_sends *sends, grpc_byte_buffer *buffer);
static inline bool nd_rpc_sends_waiting(const struct nd_rpc_sends *sends)
{
    return sends->first != NULL;
}
/* Move the first waiting one in flight and fill the (zeroed) op, with the hint to gather when
 * another follows it. Nothing may be in flight. `alone`: no other op is in the batch. Only then may
 * there be a hint: with it the transport writes nothing before it is told to, and calls a small
 * message done at once, but initial metadata when it is written. A batch of both would wait for the
 * message behind it, which waits for the batch. */
void nd_rpc_sends_begin(struct nd_rpc_sends *sends, grpc_op *op, bool alone);
/* The write came back; true when there was a message in it. */
bool nd_rpc_sends_done(struct nd_rpc_sends *sends);
/* Drop what waits; what is in flight stays the transport's. */
void nd_rpc_sends_drop(struct nd_rpc_sends *sends);

#endif
