#include <stdio.h>

#include "server/rpc/wire.h"

enum wire_type { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* One field of a message. */
struct field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;        /* VARINT */
    struct nd_slice bytes; /* BYTES */
};

struct walk {
    const uint8_t *at, *end;
    bool failed;
};

static bool fail(struct walk *w)
{
    w->failed = true;
    return false;
}

/* At most `max` bytes long. */
static bool get_varint(struct walk *w, uint32_t max, uint64_t *out)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < max && w->at < w->end; i++) {
        uint8_t byte = *w->at++;
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return fail(w);
}

static bool get_fixed(struct walk *w, size_t size)
{
    if ((size_t)(w->end - w->at) < size) {
        return fail(w);
    }
    w->at += size;
    return true;
}

/* The next field; false at the end or when the bytes are not a message (`failed`). */
static bool next_field(struct walk *w, struct field *out)
{
    uint64_t tag, size;
    if (w->at == w->end) {
        return false;
    }
    if ((*w->at & 0xf8) == 0) {
        return fail(w); /* number 0 does not exist */
    }
    if (!get_varint(w, 5, &tag)) {
        return false;
    }
    out->number = (uint32_t)tag >> 3;
    switch (tag & 7) {
    case VARINT: out->type = VARINT; return get_varint(w, 10, &out->value);
    case FIXED64: out->type = FIXED64; return get_fixed(w, 8);
    case FIXED32: out->type = FIXED32; return get_fixed(w, 4);
    case BYTES: break;
    default: return fail(w); /* groups do not exist in proto3 */
    }
    out->type = BYTES;
    if (!get_varint(w, 5, &size) || size > (size_t)(w->end - w->at)) {
        return fail(w);
    }
    out->bytes = nd_slice_make(w->at, (size_t)size);
    w->at += size;
    return true;
}

static struct walk walk_begin(struct nd_slice in)
{
    return (struct walk){in.data, in.size == 0 ? in.data : in.data + in.size, false};
}

/* How often `number` occurs; SIZE_MAX: not a message. */
static size_t count_fields(struct nd_slice in, uint32_t number)
{
    struct walk w = walk_begin(in);
    struct field field;
    size_t count = 0;
    if (in.size == 0) {
        return 0;
    }
    while (next_field(&w, &field)) {
        count += field.number == number;
    }
    return w.failed ? SIZE_MAX : count;
}

static void *array(struct nd_arena *arena, size_t count, size_t size)
{
    return count == 0 ? NULL : nd_arena_alloc(arena, count * size);
}

static bool get_header(struct nd_slice in, struct nd_record_header *out)
{
    struct walk w = walk_begin(in);
    struct field field;
    *out = (struct nd_record_header){{(const uint8_t *)"", 0}, {(const uint8_t *)"", 0}};
    while (in.size > 0 && next_field(&w, &field)) {
        if ((field.number == 1 || field.number == 2) && field.type != BYTES) {
            return false;
        }
        if (field.number == 1) {
            out->name = field.bytes;
        } else if (field.number == 2) {
            out->value = field.bytes;
        }
    }
    return !w.failed;
}

struct decoder {
    struct nd_arena *arena;
    struct nd_wire_batch *batch;
};

static void limit(struct decoder *d, const char *what, size_t got, int max)
{
    if (d->batch->err == ND_OK) {
        char *text = nd_arena_alloc(d->arena, 96);
        if (text != NULL) {
            snprintf(text, 96, "%s: %zu given, at most %d are allowed", what, got, max);
        }
        d->batch->err = ND_ERR_INVALID_ARGUMENT;
        d->batch->text = text != NULL ? text : "too many records, or headers of a record";
    }
}

static enum nd_err get_record(struct decoder *d, struct nd_slice in, struct nd_produce_record *out)
{
    struct walk w = walk_begin(in);
    struct field field;
    size_t headers = 0;
    *out =
        (struct nd_produce_record){{(const uint8_t *)"", 0}, {(const uint8_t *)"", 0}, NULL, 0, -1};
    while (in.size > 0 && next_field(&w, &field)) {
        if ((field.number >= 1 && field.number <= 3 && field.type != BYTES) ||
            (field.number == 4 && field.type != VARINT)) {
            return ND_ERR_INVALID_ARGUMENT;
        }
        switch (field.number) {
        case 1: out->key = field.bytes; break;
        case 2: out->payload = field.bytes; break;
        case 3: headers++; break;
        case 4: out->partition = (uint32_t)field.value; break;
        default: break;
        }
    }
    if (w.failed) {
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (headers > ND_HEADER_COUNT_MAX) {
        limit(d, "headers of a record", headers, ND_HEADER_COUNT_MAX);
        headers = 0;
    }
    if (headers == 0) {
        return ND_OK;
    }
    struct nd_record_header *list = array(d->arena, headers, sizeof *list);
    if (list == NULL) {
        return ND_ERR_NO_MEMORY;
    }
    out->headers = list;
    w = walk_begin(in);
    while (next_field(&w, &field)) {
        if (field.number == 3 && !get_header(field.bytes, &list[out->header_count++])) {
            return ND_ERR_INVALID_ARGUMENT;
        }
    }
    return ND_OK;
}

/* `first`: number of the topic's field; the records' is one above. Of an item (2) the id is one
 * below and the client's address two above. */
static enum nd_err get_batch(struct nd_slice in, uint32_t first, struct nd_arena *arena,
                             struct nd_wire_batch *out)
{
    struct decoder d = {arena, out};
    struct walk w = walk_begin(in);
    struct field field = {0};
    uint32_t known = first == 2 ? 4 : 2;
    *out = (struct nd_wire_batch){.topic = {(const uint8_t *)"", 0},
                                  .client_address = {(const uint8_t *)"", 0}};
    size_t count = count_fields(in, first + 1);
    if (count == SIZE_MAX) {
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (count > ND_BATCH_COUNT_MAX) {
        limit(&d, "records", count, ND_BATCH_COUNT_MAX);
    }
    size_t room = ND_MIN(count, (size_t)ND_BATCH_COUNT_MAX);
    out->records = array(arena, room, sizeof *out->records);
    if (room > 0 && out->records == NULL) {
        return ND_ERR_NO_MEMORY;
    }
    out->bytes = in.size;
    while (in.size > 0 && next_field(&w, &field)) {
        if (field.number == first + 1 && field.type == BYTES) {
            if (out->count == room) {
                continue; /* beyond the limit: not looked at */
            }
            enum nd_err err = get_record(&d, field.bytes, &out->records[out->count++]);
            if (err != ND_OK) {
                return err;
            }
        } else if (field.number == first && field.type == BYTES) {
            out->topic = field.bytes;
        } else if (first == 2 && field.number == 1 && field.type == VARINT) {
            out->id = field.value;
        } else if (first == 2 && field.number == 4 && field.type == BYTES) {
            out->client_address = field.bytes;
        } else if (field.number >= 1 && field.number <= known) {
            return ND_ERR_INVALID_ARGUMENT; /* a known number with the wrong type */
        }
    }
    return ND_OK;
}

enum nd_err nd_wire_get_produce(struct nd_slice in, struct nd_arena *arena,
                                struct nd_wire_batch *out)
{
    return get_batch(in, 1, arena, out);
}

enum nd_err nd_wire_get_items(struct nd_slice in, struct nd_arena *arena,
                              struct nd_wire_batch **out, uint32_t *count_out)
{
    size_t count = count_fields(in, 1);
    if (count == SIZE_MAX) {
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (count > ND_WIRE_ITEMS_MAX) {
        *count_out = (uint32_t)count; /* below the bytes of a message */
        return ND_ERR_TOO_LARGE;
    }
    struct nd_wire_batch *items = array(arena, count, sizeof *items);
    if (count > 0 && items == NULL) {
        return ND_ERR_NO_MEMORY;
    }
    struct walk w = walk_begin(in);
    struct field field;
    uint32_t n = 0;
    while (in.size > 0 && next_field(&w, &field)) {
        if (field.number != 1) {
            continue;
        }
        enum nd_err err = field.type == BYTES ? get_batch(field.bytes, 2, arena, &items[n++])
                                              : ND_ERR_INVALID_ARGUMENT;
        if (err != ND_OK) {
            return err;
        }
    }
    *out = items;
    *count_out = n;
    return ND_OK;
}
