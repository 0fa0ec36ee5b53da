/* Between protobuf bytes and the broker's structs, without protobuf structs between: the hot
 * messages only (produce in; placements, messages and settle results out). The numbers here are
 * those of proto/narad/v1/{broker,types}.proto; tests compare every function with protobuf-c. Input
 * is hostile. */
#ifndef ND_WIRE_H
#define ND_WIRE_H

#include "storage/base/arena.h"

#include "server/broker/broker.h"

/* --- in --- */

/* A ProduceRequest, or an item of a ProduceStreamRequest. Slices borrow from the message, arrays
 * from the arena. */
struct nd_wire_batch {
    uint64_t id;                    /* of an item */
    struct nd_slice topic;          /* empty: absent */
    struct nd_slice client_address; /* of an item; empty: absent */
    struct nd_produce_record *records;
    uint32_t count;
    size_t bytes;    /* of the encoded batch, what it costs in memory */
    enum nd_err err; /* not OK: well-formed, but beyond a limit; `text` says which */
    const char *text;
};

/* Of payloads alone: what rates are measured by. */
size_t nd_payload_bytes(const struct nd_produce_record *records, uint32_t count);
/* INVALID_ARGUMENT: the bytes are not that message. NO_MEMORY: the arena is full. */
ND_CHECKED enum nd_err nd_wire_get_produce(struct nd_slice in, struct nd_arena *arena,
                                           struct nd_wire_batch *out);

/* Items, polls, settles of one stream message: each of them is answered. */
enum { ND_WIRE_ITEMS_MAX = 10000 };
/* Errors as above; TOO_LARGE: more than ND_WIRE_ITEMS_MAX, *count_out tells how many. */
ND_CHECKED enum nd_err nd_wire_get_items(struct nd_slice in, struct nd_arena *arena,
                                         struct nd_wire_batch **out, uint32_t *count_out);

/* --- out: elements of repeated fields, so that appending two encodings is a message with both ---
 */

/* Writes at `at` (NULL: nothing is written) and returns the bytes that it takes. */
/* ConsumeResponse.messages (1), SubscribeResponse.messages (1), ReplayResponse.messages (1),
 * PollResult.messages (4). */
size_t nd_wire_put_message(uint8_t *at, uint32_t field, const struct nd_delivery *delivery);
/* ProduceResponse.placements (1), ProduceResult.placements (4). */
size_t nd_wire_put_placement(uint8_t *at, uint32_t field, const struct nd_placement *placement);
/* AckResponse.results (1), SubscribeResponse.results (2). INVALID_ARGUMENT: of the handle;
 * UNSUPPORTED: an action that is none, told as an INVALID_ARGUMENT, too. */
size_t nd_wire_put_settle_result(uint8_t *at, uint32_t field, enum nd_err err);

/* A ProduceStreamResponse.results element: placements of `count` records, or the error. */
struct nd_wire_result {
    uint64_t id;
    enum nd_err err;
    const char *text;                      /* with an error */
    uint32_t retry_after_ms;               /* with an error; 0: not said */
    const struct nd_placement *placements; /* NULL: none are told */
    uint32_t count;
};
size_t nd_wire_put_produce_result(uint8_t *at, const struct nd_wire_result *result);
/* An AckStreamResponse.results element: the results of `count` settles, or the item's error. */
struct nd_wire_ack_result {
    uint64_t id;
    enum nd_err err;
    const char *text; /* with an error */
    const struct nd_settle_item *settles;
    uint32_t count;
};
size_t nd_wire_put_ack_result(uint8_t *at, const struct nd_wire_ack_result *result);
/* A ConsumeStreamResponse.results element. */
struct nd_wire_poll_result {
    uint64_t id;
    enum nd_err err;
    const char *text;        /* with an error */
    uint32_t retry_after_ms; /* with an error; 0: not said */
    const struct nd_delivery *deliveries;
    uint32_t count;
};
size_t nd_wire_put_poll_result(uint8_t *at, const struct nd_wire_poll_result *result);

#endif
