/* The walker over produce messages beside protobuf-c: both take and refuse the same bytes and see
 * the same records. The first byte chooses the message. */
#include "proto/narad/v1/broker.pb-c.h"
#include "server/rpc/wire.h"
#include "tests/fuzz/fuzz.h"

enum { ARENA_MAX = 64 << 20 };

static bool same(struct nd_slice a, const void *data, size_t size)
{
    return a.size == size && (size == 0 || memcmp(a.data, data, size) == 0);
}

/* protobuf-c's texts end at the first NUL byte; the walker keeps all bytes. */
static bool same_text(struct nd_slice a, const char *text)
{
    size_t length = strlen(text);

    return a.size >= length && (length == 0 || memcmp(a.data, text, length) == 0);
}

static void compare_record(const struct nd_produce_record *a, const Narad__V1__Record *b)
{
    bool pinned = b->partition_choice_case == NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION;

    FUZZ_CHECK(same(a->key, b->key.data, b->key.len));
    FUZZ_CHECK(same(a->payload, b->payload.data, b->payload.len));
    FUZZ_CHECK(a->partition == (pinned ? (int64_t)b->partition : -1));
    FUZZ_CHECK(a->header_count == b->n_headers);
    for (size_t i = 0; i < b->n_headers; i++) {
        FUZZ_CHECK(same_text(a->headers[i].name, b->headers[i]->name));
        FUZZ_CHECK(same(a->headers[i].value, b->headers[i]->value.data, b->headers[i]->value.len));
    }
}

static void compare_batch(const struct nd_wire_batch *a, const char *topic, size_t count,
                          Narad__V1__Record *const *records)
{
    FUZZ_CHECK((a->err == ND_OK) == (a->text == NULL));
    if (a->err == ND_OK) { /* else: beyond a limit, refused by its text */
        FUZZ_CHECK(same_text(a->topic, topic) && a->count == count);
        for (size_t i = 0; i < count; i++) {
            compare_record(&a->records[i], records[i]);
        }
    }
}

static void run_request(struct nd_slice in, struct nd_arena *arena)
{
    struct nd_wire_batch batch;
    enum nd_err err = nd_wire_get_produce(in, arena, &batch);
    Narad__V1__ProduceRequest *r = narad__v1__produce_request__unpack(NULL, in.size, in.data);

    FUZZ_CHECK((err == ND_OK) == (r != NULL));
    if (r != NULL) {
        compare_batch(&batch, r->topic, r->n_records, r->records);
        narad__v1__produce_request__free_unpacked(r, NULL);
    }
}

static void run_items(struct nd_slice in, struct nd_arena *arena)
{
    struct nd_wire_batch *items = NULL;
    uint32_t count = 0;
    enum nd_err err = nd_wire_get_items(in, arena, &items, &count);
    Narad__V1__ProduceStreamRequest *r =
        narad__v1__produce_stream_request__unpack(NULL, in.size, in.data);

    if (err == ND_ERR_TOO_LARGE) {
        FUZZ_CHECK(r == NULL || r->n_items > ND_WIRE_ITEMS_MAX);
    } else {
        FUZZ_CHECK((err == ND_OK) == (r != NULL) && (r == NULL || count == r->n_items));
        for (uint32_t i = 0; r != NULL && i < count; i++) {
            FUZZ_CHECK(items[i].id == r->items[i]->id);
            compare_batch(&items[i], r->items[i]->topic, r->items[i]->n_records,
                          r->items[i]->records);
        }
    }
    if (r != NULL) {
        narad__v1__produce_stream_request__free_unpacked(r, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_arena arena;

    if (size < 1) {
        return 0;
    }
    uint8_t *copy = fuzz_copy(data + 1, size - 1);
    struct nd_slice in = nd_slice_make(size == 1 ? NULL : copy, size - 1);
    nd_arena_init(&arena, ARENA_MAX);
    if (data[0] % 2 == 0) {
        run_request(in, &arena);
    } else {
        run_items(in, &arena);
    }
    nd_arena_release(&arena);
    nd_free(copy);
    return 0;
}
