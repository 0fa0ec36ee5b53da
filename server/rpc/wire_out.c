#include <string.h>

#include "server/broker/handle.h"
#include "server/rpc/wire.h"

/* Writes when `at` is not NULL and counts in any case, so that one function sizes and encodes. */
struct out {
    uint8_t *at;
    size_t size;
};

static inline size_t varint_size(uint64_t value)
{
    return (size_t)(63 - __builtin_clzll(value | 1)) / 7 + 1;
}

static inline void put_varint(struct out *o, uint64_t value)
{
    if (o->at == NULL) {
        o->size += varint_size(value);
        return;
    }
    if (value < 0x80) {
        o->at[o->size++] = (uint8_t)value;
        return;
    }
    uint8_t *at = o->at + o->size;
    for (; value >= 0x80; value >>= 7) {
        *at++ = (uint8_t)(value | 0x80);
    }
    *at++ = (uint8_t)value;
    o->size = (size_t)(at - o->at);
}

/* Zero is the default and is left out. */
static inline void put_number(struct out *o, uint32_t field, uint64_t value)
{
    if (value != 0) {
        put_varint(o, field << 3);
        put_varint(o, value);
    }
}

static void put_head(struct out *o, uint32_t field, size_t size)
{
    put_varint(o, field << 3 | 2);
    put_varint(o, size);
}

static void put_raw(struct out *o, const void *data, size_t size)
{
    if (o->at != NULL) {
        memcpy(o->at + o->size, data, size);
    }
    o->size += size;
}

static void put_bytes(struct out *o, uint32_t field, const void *data, size_t size)
{
    if (size > 0) {
        put_head(o, field, size);
        put_raw(o, data, size);
    }
}

static void put_headers(struct out *o, const struct nd_record_view *record)
{
    struct nd_record_header header;
    size_t at = 0;
    while (record->header_count > 0 && nd_record_header_next(record->headers, &at, &header)) {
        struct out inner = {NULL, 0};
        put_bytes(&inner, 1, header.name.data, header.name.size);
        put_bytes(&inner, 2, header.value.data, header.value.size);
        put_head(o, 5, inner.size);
        put_bytes(o, 1, header.name.data, header.name.size);
        put_bytes(o, 2, header.value.data, header.value.size);
    }
}

static void message_body(struct out *o, const struct nd_delivery *d)
{
    char handle[ND_HANDLE_SIZE_MAX];
    put_number(o, 1, d->partition);
    put_number(o, 2, d->offset);
    put_bytes(o, 3, d->record.key.data, d->record.key.size);
    put_bytes(o, 4, d->record.payload.data, d->record.payload.size);
    put_headers(o, &d->record);
    put_number(o, 6, (uint64_t)d->record.time_ms);
    if (d->nonce != 0) {
        struct nd_handle value = {d->offset, d->nonce, d->partition};
        put_bytes(o, 7, handle, nd_handle_put(handle, &value));
    }
    put_number(o, 8, d->attempt);
}

size_t nd_wire_put_message(uint8_t *at, uint32_t field, const struct nd_delivery *delivery)
{
    struct out body = {NULL, 0}, o = {at, 0};
    message_body(&body, delivery);
    put_head(&o, field, body.size);
    if (at == NULL) {
        return o.size + body.size;
    }
    message_body(&o, delivery);
    return o.size;
}

static void placement_body(struct out *o, const struct nd_placement *placement)
{
    put_number(o, 1, placement->partition);
    put_number(o, 2, placement->offset);
}

/* Up to a thousand of them make an answer, so their size is not found by a dry run. */
static void put_placement(struct out *o, uint32_t field, const struct nd_placement *placement)
{
    size_t body = (placement->partition == 0 ? 0 : 1 + varint_size(placement->partition)) +
                  (placement->offset == 0 ? 0 : 1 + varint_size(placement->offset));
    if (o->at == NULL) {
        o->size += 2 + body; /* a field below 16, a size below 128 */
        return;
    }
    put_head(o, field, body);
    placement_body(o, placement);
}

size_t nd_wire_put_placement(uint8_t *at, uint32_t field, const struct nd_placement *placement)
{
    struct out o = {at, 0};
    put_placement(&o, field, placement);
    return o.size;
}

/* Code and text in fields `first` and the next, the error's name in field `reason`. */
static void status_body(struct out *o, uint32_t first, uint32_t reason, enum nd_err err,
                        const char *text)
{
    if (err != ND_OK) {
        const char *name = nd_err_name(err);
        text = text == NULL || text[0] == '\0' ? nd_err_text(err) : text;
        put_number(o, first, (uint64_t)nd_err_grpc_status(err));
        put_bytes(o, first + 1, text, strlen(text));
        put_bytes(o, reason, name, strlen(name));
    }
}

size_t nd_wire_put_settle_result(uint8_t *at, uint32_t field, enum nd_err err)
{
    struct out body = {NULL, 0}, o = {at, 0};
    const char *text = NULL;
    if (err == ND_ERR_INVALID_ARGUMENT) {
        text = "receipt handle is malformed: give it back as it was delivered";
    } else if (err == ND_ERR_UNSUPPORTED) {
        text = "unknown action: 0 (ACK), 1 (EXTEND) and 2 (NACK) are allowed";
        err = ND_ERR_INVALID_ARGUMENT;
    }
    status_body(&body, 1, 3, err, text);
    put_head(&o, field, body.size);
    status_body(&o, 1, 3, err, text);
    return o.size;
}

static void produce_result_body(struct out *o, const struct nd_wire_result *result)
{
    put_number(o, 1, result->id);
    status_body(o, 2, 5, result->err, result->text);
    put_number(o, 6, result->err == ND_OK ? 0 : result->retry_after_ms);
    for (uint32_t i = 0; result->placements != NULL && i < result->count; i++) {
        put_placement(o, 4, &result->placements[i]);
    }
}

size_t nd_wire_put_produce_result(uint8_t *at, const struct nd_wire_result *result)
{
    struct out body = {NULL, 0}, o = {at, 0};
    produce_result_body(&body, result);
    put_head(&o, 1, body.size);
    produce_result_body(&o, result);
    return o.size;
}

size_t nd_wire_put_ack_result(uint8_t *at, const struct nd_wire_ack_result *result)
{
    struct out body = {NULL, 0}, o = {at, 0};
    put_number(&body, 1, result->id);
    status_body(&body, 2, 4, result->err, result->text);
    for (uint32_t i = 0; i < result->count; i++) {
        body.size += nd_wire_put_settle_result(NULL, 5, result->settles[i].result);
    }
    put_head(&o, 1, body.size);
    if (at == NULL) {
        return o.size + body.size;
    }
    put_number(&o, 1, result->id);
    status_body(&o, 2, 4, result->err, result->text);
    for (uint32_t i = 0; i < result->count; i++) {
        o.size += nd_wire_put_settle_result(at + o.size, 5, result->settles[i].result);
    }
    return o.size;
}

/* All but the messages. */
static void poll_result_head(struct out *o, const struct nd_wire_poll_result *result)
{
    put_number(o, 1, result->id);
    status_body(o, 2, 5, result->err, result->text);
    put_number(o, 6, result->err == ND_OK ? 0 : result->retry_after_ms);
}

size_t nd_wire_put_poll_result(uint8_t *at, const struct nd_wire_poll_result *result)
{
    struct out body = {NULL, 0}, o = {at, 0};
    poll_result_head(&body, result);
    for (uint32_t i = 0; i < result->count; i++) {
        body.size += nd_wire_put_message(NULL, 4, &result->deliveries[i]);
    }
    put_head(&o, 1, body.size);
    if (at == NULL) {
        return o.size + body.size;
    }
    poll_result_head(&o, result);
    for (uint32_t i = 0; i < result->count; i++) {
        o.size += nd_wire_put_message(at + o.size, 4, &result->deliveries[i]);
    }
    return o.size;
}
