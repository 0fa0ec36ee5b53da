/* The walker over produce messages against protobuf-c: both take and refuse the same bytes and see
 * the same records, whatever the bytes are. */
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "proto/narad/v1/broker.pb-c.h"
#include "server/rpc/wire.h"
#include "tests/support/nd_test.h"

enum { ARENA_MAX = 64 << 20 };

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 11) % n;
}

/* --- messages to start from --- */

struct sample {
    uint8_t *bytes;
    size_t size;
};

static struct sample pack(const ProtobufCMessage *message)
{
    struct sample s = {NULL, protobuf_c_message_get_packed_size(message)};
    s.bytes = nd_xmalloc(s.size + 1);
    protobuf_c_message_pack(message, s.bytes);
    return s;
}

static uint8_t key_bytes[] = "key-1",
               payload_bytes[] = "some payload bytes, long enough for a few cuts",
               value_bytes[] = "value";

struct builder {
    Narad__V1__Header headers[2];
    Narad__V1__Header *header_list[2];
    Narad__V1__Record records[3];
    Narad__V1__Record *record_list[3];
};

static void build_records(struct builder *b)
{
    for (size_t i = 0; i < 2; i++) {
        narad__v1__header__init(&b->headers[i]);
        b->headers[i].name = i == 0 ? (char *)(uintptr_t) "trace-id" : (char *)(uintptr_t) "x";
        b->headers[i].value = (ProtobufCBinaryData){i == 0 ? 5 : 0, value_bytes};
        b->header_list[i] = &b->headers[i];
    }
    for (size_t i = 0; i < 3; i++) {
        narad__v1__record__init(&b->records[i]);
        b->records[i].payload = (ProtobufCBinaryData){sizeof payload_bytes - 1 - i, payload_bytes};
        b->record_list[i] = &b->records[i];
    }
    b->records[1].key = (ProtobufCBinaryData){5, key_bytes};
    b->records[1].n_headers = 2;
    b->records[1].headers = b->header_list;
    b->records[2].partition_choice_case = NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION;
    b->records[2].partition = 300;
}

static struct sample sample_request(void)
{
    struct builder b;
    build_records(&b);
    Narad__V1__ProduceRequest r = NARAD__V1__PRODUCE_REQUEST__INIT;
    r.topic = (char *)(uintptr_t) "orders";
    r.n_records = 3;
    r.records = b.record_list;
    return pack(&r.base);
}

static struct sample sample_stream(void)
{
    struct builder b;
    build_records(&b);
    Narad__V1__ProduceItem items[3];
    Narad__V1__ProduceItem *list[3];
    for (size_t i = 0; i < 3; i++) {
        narad__v1__produce_item__init(&items[i]);
        items[i].id = i == 2 ? UINT64_MAX : i;
        items[i].client_address = (char *)(uintptr_t)(i == 1 ? "2001:db8::7" : "");
        items[i].topic = i == 1 ? (char *)(uintptr_t) "" : (char *)(uintptr_t) "orders";
        items[i].n_records = i + 1;
        items[i].records = b.record_list;
        list[i] = &items[i];
    }
    Narad__V1__ProduceStreamRequest r = NARAD__V1__PRODUCE_STREAM_REQUEST__INIT;
    r.n_items = 3;
    r.items = list;
    return pack(&r.base);
}

/* --- comparison --- */

static bool same(struct nd_slice a, const void *data, size_t size)
{
    return a.size == size && (size == 0 || memcmp(a.data, data, size) == 0);
}

/* protobuf-c's strings end at the first NUL byte; the walker keeps all bytes. */
static bool same_text(struct nd_slice a, const char *text)
{
    size_t length = strlen(text);
    return a.size >= length && memcmp(a.data, text, length) == 0;
}

static bool same_record(const struct nd_produce_record *a, const Narad__V1__Record *b)
{
    bool pinned = b->partition_choice_case == NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION;
    if (!same(a->key, b->key.data, b->key.len) ||
        !same(a->payload, b->payload.data, b->payload.len) ||
        a->partition != (pinned ? (int64_t)b->partition : -1) || a->header_count != b->n_headers) {
        return false;
    }
    for (size_t i = 0; i < b->n_headers; i++) {
        if (!same_text(a->headers[i].name, b->headers[i]->name) ||
            !same(a->headers[i].value, b->headers[i]->value.data, b->headers[i]->value.len)) {
            return false;
        }
    }
    return true;
}

static bool same_batch(const struct nd_wire_batch *a, const char *topic, size_t n,
                       Narad__V1__Record *const *records)
{
    if (a->err != ND_OK) {
        return true; /* beyond a limit: refused with a text, tested by itself */
    }
    if (!same_text(a->topic, topic) || a->count != n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!same_record(&a->records[i], records[i])) {
            return false;
        }
    }
    return true;
}

static bool agree_request(struct nd_arena *arena, const uint8_t *bytes, size_t size)
{
    struct nd_wire_batch batch;
    nd_arena_reset(arena);
    enum nd_err err = nd_wire_get_produce(nd_slice_make(bytes, size), arena, &batch);
    Narad__V1__ProduceRequest *r = narad__v1__produce_request__unpack(NULL, size, bytes);
    bool ok = (err == ND_OK) == (r != NULL) &&
              (r == NULL || same_batch(&batch, r->topic, r->n_records, r->records));
    if (r != NULL) {
        narad__v1__produce_request__free_unpacked(r, NULL);
    }
    return ok;
}

static bool agree_stream(struct nd_arena *arena, const uint8_t *bytes, size_t size)
{
    struct nd_wire_batch *items = NULL;
    uint32_t count = 0;
    nd_arena_reset(arena);
    enum nd_err err = nd_wire_get_items(nd_slice_make(bytes, size), arena, &items, &count);
    Narad__V1__ProduceStreamRequest *r =
        narad__v1__produce_stream_request__unpack(NULL, size, bytes);
    bool ok = (err == ND_OK) == (r != NULL) && (r == NULL || count == r->n_items);
    for (uint32_t i = 0; ok && r != NULL && i < count; i++) {
        ok =
            items[i].id == r->items[i]->id &&
            same_text(items[i].client_address, r->items[i]->client_address) &&
            same_batch(&items[i], r->items[i]->topic, r->items[i]->n_records, r->items[i]->records);
    }
    if (r != NULL) {
        narad__v1__produce_stream_request__free_unpacked(r, NULL);
    }
    return ok;
}

typedef bool agree_fn(struct nd_arena *arena, const uint8_t *bytes, size_t size);

static void check(agree_fn *agree, struct nd_arena *arena, const uint8_t *bytes, size_t size,
                  const char *what)
{
    /* In memory of exactly its size, so that a read past the end is seen. */
    uint8_t *exact = nd_xmalloc(size == 0 ? 1 : size);
    memcpy(exact, bytes, size);
    if (!agree(arena, size == 0 ? NULL : exact, size)) {
        char hex[1024];
        size_t at = 0;
        for (size_t i = 0; i < size && at + 3 < sizeof hex; i++) {
            at += (size_t)snprintf(hex + at, sizeof hex - at, "%02x", bytes[i]);
        }
        fail_msg("%s: walker and protobuf-c differ on %zu bytes: %s", what, size, hex);
    }
    nd_free(exact);
}

static void check_all(agree_fn *agree, struct sample s)
{
    struct nd_arena arena;
    nd_arena_init(&arena, ARENA_MAX);
    for (size_t size = 0; size <= s.size; size++) {
        check(agree, &arena, s.bytes, size, "cut");
    }
    uint8_t *copy = nd_xmalloc(s.size + 8);
    for (size_t at = 0; at < s.size; at++) {
        for (unsigned value = 0; value < 256; value++) {
            memcpy(copy, s.bytes, s.size);
            copy[at] = (uint8_t)value;
            check(agree, &arena, copy, s.size, "one byte changed");
        }
    }
    for (size_t round = 0; round < 60000; round++) {
        memcpy(copy, s.bytes, s.size);
        size_t size = s.size;
        for (uint32_t n = 1 + random_below(4); n > 0; n--) {
            copy[random_below((uint32_t)size)] = (uint8_t)random_below(256);
        }
        if (random_below(3) == 0) {
            size = 1 + random_below((uint32_t)size);
        }
        check(agree, &arena, copy, size, "several bytes changed");
    }
    for (size_t round = 0; round < 60000; round++) {
        uint8_t noise[40];
        size_t size = random_below(sizeof noise);
        for (size_t i = 0; i < size; i++) {
            /* Mostly plausible tags and small lengths: pure noise ends at the first byte. */
            noise[i] = (uint8_t)(random_below(2) == 0 ? random_below(256) : random_below(40));
        }
        check(agree, &arena, noise, size, "noise");
    }
    nd_free(copy);
    nd_free(s.bytes);
    nd_arena_release(&arena);
}

static void wire_get_produce__agrees_with_protobuf_c_on_any_bytes(void **state)
{
    (void)state;
    check_all(agree_request, sample_request());
}

static void wire_get_items__agrees_with_protobuf_c_on_any_bytes(void **state)
{
    (void)state;
    check_all(agree_stream, sample_stream());
}

static void wire_get_produce__borrows_payloads_from_the_message(void **state)
{
    (void)state;
    struct nd_arena arena;
    struct nd_wire_batch batch;
    struct sample s = sample_request();
    nd_arena_init(&arena, ARENA_MAX);

    enum nd_err err = nd_wire_get_produce(nd_slice_make(s.bytes, s.size), &arena, &batch);

    assert_int_equal(err, ND_OK);
    assert_int_equal(batch.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(batch.records[i].payload.data > s.bytes);
        assert_true(batch.records[i].payload.data < s.bytes + s.size);
    }
    nd_arena_release(&arena);
    nd_free(s.bytes);
}

/* `count` empty elements of field `field`. */
static struct sample repeat(uint8_t field, size_t count, const uint8_t *body, uint8_t body_size)
{
    struct sample s = {nd_xmalloc(count * (3u + body_size)), 0};
    for (size_t i = 0; i < count; i++) {
        s.bytes[s.size++] = (uint8_t)(field << 3 | 2);
        if (body_size > 127) {
            s.bytes[s.size++] = body_size;
        }
        s.bytes[s.size++] = body_size > 127 ? 1 : body_size;
        if (body_size > 0) {
            memcpy(s.bytes + s.size, body, body_size);
            s.size += body_size;
        }
    }
    return s;
}

static void wire_get_produce__refuses_counts_beyond_the_limits_with_little_memory(void **state)
{
    (void)state;
    struct nd_arena arena;
    struct nd_wire_batch batch;
    struct sample many = repeat(2, 1000000, NULL, 0);
    struct sample headers = repeat(3, 65, NULL, 0);
    struct sample record = repeat(2, 1, headers.bytes, (uint8_t)headers.size);
    nd_arena_init(&arena, 1 << 20);

    assert_int_equal(nd_wire_get_produce(nd_slice_make(many.bytes, many.size), &arena, &batch),
                     ND_OK);
    assert_int_equal(batch.err, ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(batch.text, "records: 1000000 given, at most 1000 are allowed");
    assert_int_equal(nd_wire_get_produce(nd_slice_make(record.bytes, record.size), &arena, &batch),
                     ND_OK);
    assert_int_equal(batch.err, ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(batch.text, "headers of a record: 65 given, at most 64 are allowed");
    nd_arena_release(&arena);
    nd_arena_init(&arena, sizeof(struct nd_produce_record) + 15); /* none for a text */
    assert_int_equal(nd_wire_get_produce(nd_slice_make(record.bytes, record.size), &arena, &batch),
                     ND_OK);
    assert_int_equal(batch.err, ND_ERR_INVALID_ARGUMENT);
    assert_non_null(batch.text);
    nd_arena_release(&arena);
    nd_free(many.bytes);
    nd_free(headers.bytes);
    nd_free(record.bytes);
}

static void wire_get_items__refuses_too_many_items_and_full_arenas(void **state)
{
    (void)state;
    struct nd_arena arena;
    struct nd_wire_batch *items;
    uint32_t count;
    struct sample many = repeat(1, ND_WIRE_ITEMS_MAX + 1, NULL, 0);
    nd_arena_init(&arena, 4096);

    assert_int_equal(
        nd_wire_get_items(nd_slice_make(many.bytes, many.size), &arena, &items, &count),
        ND_ERR_TOO_LARGE);
    assert_int_equal(count, ND_WIRE_ITEMS_MAX + 1);
    assert_int_equal(
        nd_wire_get_items(nd_slice_make(many.bytes, many.size - 2), &arena, &items, &count),
        ND_ERR_NO_MEMORY);
    nd_arena_release(&arena);
    nd_free(many.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_get_produce__agrees_with_protobuf_c_on_any_bytes),
        cmocka_unit_test(wire_get_items__agrees_with_protobuf_c_on_any_bytes),
        cmocka_unit_test(wire_get_produce__borrows_payloads_from_the_message),
        cmocka_unit_test(wire_get_produce__refuses_counts_beyond_the_limits_with_little_memory),
        cmocka_unit_test(wire_get_items__refuses_too_many_items_and_full_arenas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
