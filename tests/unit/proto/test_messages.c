/* The messages, the plugin's output, and decoding hostile bytes. */
#include <stdlib.h>
#include <string.h>

#include "proto/narad/v1/broker.nd.h"
#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/convert.h"
#include "proto/rpc/service.h"
#include "tests/support/nd_test.h"

static void plugin__keeps_stream_kinds(void **state)
{
    const struct nd_rpc_file *file = &narad_v1_broker_file;

    (void)state;
    assert_string_equal(file->name, "narad/v1/broker.proto");
    assert_int_equal(file->methods_count, 8);
    assert_int_equal(file->methods_count, narad__v1__broker__descriptor.n_methods);
    assert_string_equal(file->methods[0].path, "/narad.v1.Broker/Produce");
    assert_int_equal(file->methods[0].kind, ND_RPC_UNARY);
    assert_int_equal(NARAD_V1_BROKER_PRODUCE_STREAM_KIND, ND_RPC_BIDI);
    assert_int_equal(NARAD_V1_BROKER_REPLAY_KIND, ND_RPC_SERVER_STREAM);
    for (size_t i = 0; i < file->methods_count; i++) {
        const char *name = strrchr(file->methods[i].path, '/') + 1;
        assert_string_equal(name, narad__v1__broker__descriptor.methods[i].name);
    }
}

static size_t request_pack(uint8_t *out)
{
    Narad__V1__ProduceRequest request;
    Narad__V1__Record record, *records[] = {&record};
    char topic[] = "orders";
    uint8_t payload[] = "payload";

    narad__v1__produce_request__init(&request);
    narad__v1__record__init(&record);
    record.payload.data = payload;
    record.payload.len = sizeof payload;
    record.partition_choice_case = NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION;
    record.partition = 0;
    request.topic = topic;
    request.n_records = 1;
    request.records = records;
    return narad__v1__produce_request__pack(&request, out);
}

static void record__partition_0_is_told_from_no_partition(void **state)
{
    uint8_t bytes[200];
    size_t size = request_pack(bytes);
    struct nd_arena arena;

    (void)state;
    nd_arena_init(&arena, 1 << 20);
    const Narad__V1__ProduceRequest *request =
        nd_rpc_unpack(&arena, &narad__v1__produce_request__descriptor, nd_slice_make(bytes, size));
    assert_non_null(request);
    assert_int_equal(request->records[0]->partition_choice_case,
                     NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION);
    nd_arena_release(&arena);
}

/* Every cut and every flipped bit is either a message or NULL, never a crash or a read beyond. */
static void unpack__takes_any_bytes(void **state)
{
    uint8_t bytes[200];
    size_t size = request_pack(bytes);
    struct nd_arena arena;
    unsigned refused = 0;

    (void)state;
    nd_arena_init(&arena, 1 << 20);
    for (size_t cut = 0; cut <= size; cut++) {
        uint8_t *copy = test_malloc(cut + 1);
        memcpy(copy, bytes, cut);
        refused += nd_rpc_unpack(&arena, &narad__v1__produce_request__descriptor,
                                 nd_slice_make(copy, cut)) == NULL;
        test_free(copy);
        nd_arena_reset(&arena);
    }
    assert_true(refused > 0);
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        (void)nd_rpc_unpack(&arena, &narad__v1__produce_request__descriptor,
                            nd_slice_make(bytes, size));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        nd_arena_reset(&arena);
    }
    nd_arena_release(&arena);
}

/* Two bytes each on the wire, a hundred in memory. */
static void unpack__refuses_to_grow_beyond_its_arena(void **state)
{
    enum { COUNT = 200000 };
    struct nd_arena arena;
    uint8_t *bytes = test_malloc(2 * COUNT);

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        bytes[2 * i] = 2 << 3 | 2; /* records, length-delimited */
        bytes[2 * i + 1] = 0;
    }
    nd_arena_init(&arena, nd_rpc_decode_bytes_max(2 * COUNT));
    assert_null(nd_rpc_unpack(&arena, &narad__v1__produce_request__descriptor,
                              nd_slice_make(bytes, 2 * COUNT)));
    assert_true(arena.used <= nd_rpc_decode_bytes_max(2 * COUNT));
    nd_arena_release(&arena);
    test_free(bytes);
}

static bool texts_are_whole(const char *bytes, size_t size)
{
    return nd_rpc_texts_are_whole(&narad__v1__produce_request__descriptor,
                                  nd_slice_make((const uint8_t *)bytes, size));
}

static void texts__with_a_nul_are_found_in_any_depth_and_bytes_may_have_one(void **state)
{
    uint8_t request[200];
    size_t size = request_pack(request); /* its payload ends with a NUL */

    (void)state;
    assert_true(texts_are_whole((const char *)request, size));
    assert_true(texts_are_whole("", 0));
    assert_false(texts_are_whole("\x0a\x02t\0", 4));
    /* a record's header's name; behind a varint, fixed numbers and bytes that nobody knows */
    const char header[] = "\x78\x00\x79"
                          "12345678"
                          "\x7d"
                          "1234"
                          "\x7a\x02\x00\x00"
                          "\x12\x06\x1a\x04\x0a\x02"
                          "a";
    assert_false(texts_are_whole(header, sizeof header));
    /* cut short anywhere */
    for (size_t cut = 0; cut < sizeof header; cut++) {
        (void)texts_are_whole(header, cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plugin__keeps_stream_kinds),
        cmocka_unit_test(record__partition_0_is_told_from_no_partition),
        cmocka_unit_test(unpack__takes_any_bytes),
        cmocka_unit_test(texts__with_a_nul_are_found_in_any_depth_and_bytes_may_have_one),
        cmocka_unit_test(unpack__refuses_to_grow_beyond_its_arena),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
