/* What is encoded by hand reads back through protobuf-c as what was meant. */
#include <string.h>

#include "storage/base/alloc.h"

#include "proto/narad/v1/broker.pb-c.h"
#include "server/broker/handle.h"
#include "server/rpc/wire.h"
#include "tests/support/nd_test.h"

struct fixture {
    uint8_t *record;
    struct nd_delivery delivery;
};

static void make(struct fixture *f, uint64_t offset, size_t payload_size)
{
    const struct nd_record_header headers[] = {{nd_slice_str("trace"), nd_slice_str("t-1")},
                                               {nd_slice_str("empty"), nd_slice_str("")}};
    uint8_t *payload = nd_xmalloc(payload_size);
    memset(payload, 'p', payload_size);
    f->record = nd_xmalloc(nd_record_size(3, nd_record_headers_size(headers, 2), payload_size));
    size_t size = nd_record_put(f->record, nd_slice_str("key"), headers, 2,
                                nd_slice_make(payload, payload_size));
    nd_run_set_time(f->record, size, 1700000000123);
    f->delivery = (struct nd_delivery){
        .offset = offset, .nonce = UINT64_C(9223372036854775807), .partition = 2, .attempt = 1};
    size_t used;
    assert_int_equal(nd_record_get(nd_slice_make(f->record, size), &f->delivery.record, &used),
                     ND_OK);
    nd_free(payload);
}

static void check_message(const Narad__V1__Message *m, const struct fixture *f, bool leased)
{
    char handle[ND_HANDLE_SIZE_MAX] = "";
    struct nd_handle value = {f->delivery.offset, f->delivery.nonce, f->delivery.partition};
    if (leased) {
        nd_handle_put(handle, &value);
    }
    assert_int_equal(m->partition, 2);
    assert_int_equal(m->offset, f->delivery.offset);
    assert_int_equal(m->key.len, 3);
    assert_int_equal(m->payload.len, f->delivery.record.payload.size);
    assert_memory_equal(m->payload.data, f->delivery.record.payload.data, m->payload.len);
    assert_int_equal(m->timestamp_ms, 1700000000123);
    assert_string_equal(m->receipt_handle, handle);
    assert_int_equal(m->delivery_attempt, leased ? 1 : 0);
    assert_int_equal(m->n_headers, 2);
    assert_string_equal(m->headers[0]->name, "trace");
    assert_memory_equal(m->headers[0]->value.data, "t-1", 3);
    assert_string_equal(m->headers[1]->name, "empty");
    assert_int_equal(m->headers[1]->value.len, 0);
}

static void wire_put_message__reads_back_through_protobuf_c(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, 127, 128, 16383, 16384, 1 << 20};
    for (size_t i = 0; i < ND_ARRAY_SIZE(sizes); i++) {
        struct fixture f;
        make(&f, i == 0 ? 0 : UINT64_C(1) << (i * 7), sizes[i]);
        size_t size = nd_wire_put_message(NULL, 1, &f.delivery);
        uint8_t *bytes = nd_xmalloc(2 * size);
        assert_int_equal(nd_wire_put_message(bytes, 1, &f.delivery), size);
        assert_int_equal(nd_wire_put_message(bytes + size, 1, &f.delivery), size);

        Narad__V1__ConsumeResponse *r = narad__v1__consume_response__unpack(NULL, 2 * size, bytes);

        assert_non_null(r);
        assert_int_equal(r->n_messages, 2);
        check_message(r->messages[0], &f, true);
        check_message(r->messages[1], &f, true);
        assert_int_equal(protobuf_c_message_get_packed_size(&r->base), 2 * size);
        narad__v1__consume_response__free_unpacked(r, NULL);
        nd_free(bytes);
        nd_free(f.record);
    }
}

static void wire_put_message__leaves_the_handle_of_a_replayed_record_out(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 5, 10);
    f.delivery.nonce = 0;
    f.delivery.attempt = 0;
    size_t size = nd_wire_put_message(NULL, 1, &f.delivery);
    uint8_t *bytes = nd_xmalloc(size);
    nd_wire_put_message(bytes, 1, &f.delivery);

    Narad__V1__ReplayResponse *r = narad__v1__replay_response__unpack(NULL, size, bytes);

    assert_non_null(r);
    check_message(r->messages[0], &f, false);
    narad__v1__replay_response__free_unpacked(r, NULL);
    nd_free(bytes);
    nd_free(f.record);
}

static void wire_put_poll_result__reads_back_through_protobuf_c(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 70000, 300);
    struct nd_delivery list[3] = {f.delivery, f.delivery, f.delivery};
    const struct nd_wire_poll_result full = {77, ND_OK, NULL, 5, list, 3};
    const struct nd_wire_poll_result none = {0, ND_ERR_TOPIC_NOT_FOUND, NULL, 1500, NULL, 0};
    size_t size = nd_wire_put_poll_result(NULL, &full);
    size_t empty = nd_wire_put_poll_result(NULL, &none);
    uint8_t *bytes = nd_xmalloc(size + empty);
    assert_int_equal(nd_wire_put_poll_result(bytes, &full), size);
    assert_int_equal(nd_wire_put_poll_result(bytes + size, &none), empty);

    Narad__V1__ConsumeStreamResponse *r =
        narad__v1__consume_stream_response__unpack(NULL, size + empty, bytes);

    assert_non_null(r);
    assert_int_equal(r->n_results, 2);
    assert_int_equal(r->results[0]->id, 77);
    assert_int_equal(r->results[0]->code, 0);
    assert_int_equal(r->results[0]->n_messages, 3);
    check_message(r->results[0]->messages[2], &f, true);
    assert_int_equal(r->results[1]->code, 5);
    assert_string_equal(r->results[1]->error, "topic not found");
    assert_string_equal(r->results[1]->reason, "TOPIC_NOT_FOUND");
    assert_string_equal(r->results[0]->reason, "");
    assert_int_equal(r->results[0]->retry_after_ms, 0); /* only an error has it */
    assert_int_equal(r->results[1]->retry_after_ms, 1500);
    narad__v1__consume_stream_response__free_unpacked(r, NULL);
    nd_free(bytes);
    nd_free(f.record);
}

static void wire_put_produce_result__reads_back_through_protobuf_c(void **state)
{
    (void)state;
    const struct nd_placement placements[] = {{0, 0, 0}, {2, 1, 300}, {107, 0, UINT64_MAX}};
    const struct nd_wire_result results[] = {
        {UINT64_MAX, ND_OK, NULL, 5, placements, 3},
        {0, ND_ERR_NO_SPACE, NULL, 0, NULL, 0},
        {5, ND_ERR_INVALID_ARGUMENT, "record 2: no", 1500, NULL, 0},
    };
    uint8_t bytes[512];
    size_t size = 0;
    for (size_t i = 0; i < ND_ARRAY_SIZE(results); i++) {
        size_t wanted = nd_wire_put_produce_result(NULL, &results[i]);
        assert_int_equal(nd_wire_put_produce_result(bytes + size, &results[i]), wanted);
        size += wanted;
    }

    Narad__V1__ProduceStreamResponse *r =
        narad__v1__produce_stream_response__unpack(NULL, size, bytes);

    assert_non_null(r);
    assert_int_equal(r->n_results, 3);
    assert_true(r->results[0]->id == UINT64_MAX);
    assert_int_equal(r->results[0]->n_placements, 3);
    assert_int_equal(r->results[0]->placements[1]->partition, 2);
    assert_int_equal(r->results[0]->placements[1]->offset, 300);
    assert_true(r->results[0]->placements[2]->offset == UINT64_MAX);
    assert_int_equal(r->results[1]->code, 8);
    assert_string_equal(r->results[1]->error, "disk full");
    assert_string_equal(r->results[1]->reason, "NO_SPACE");
    assert_string_equal(r->results[0]->reason, "");
    assert_int_equal(r->results[2]->code, 3);
    assert_string_equal(r->results[2]->error, "record 2: no");
    assert_int_equal(r->results[0]->retry_after_ms, 0); /* only an error has it */
    assert_int_equal(r->results[2]->retry_after_ms, 1500);
    narad__v1__produce_stream_response__free_unpacked(r, NULL);
}

static void wire_put_settle_result__reads_back_through_protobuf_c(void **state)
{
    (void)state;
    static const enum nd_err errors[] = {ND_OK, ND_ERR_STALE, ND_ERR_INVALID_ARGUMENT,
                                         ND_ERR_UNSUPPORTED};
    static const int codes[] = {0, 9, 3, 3};
    static const char *const reasons[] = {"", "STALE", "INVALID_ARGUMENT", "INVALID_ARGUMENT"};
    uint8_t bytes[512];
    size_t size = 0;
    for (size_t i = 0; i < 4; i++) {
        size_t wanted = nd_wire_put_settle_result(NULL, 1, errors[i]);
        assert_int_equal(nd_wire_put_settle_result(bytes + size, 1, errors[i]), wanted);
        size += wanted;
    }

    Narad__V1__AckResponse *r = narad__v1__ack_response__unpack(NULL, size, bytes);

    assert_non_null(r);
    assert_int_equal(r->n_results, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(r->results[i]->code, codes[i]);
        assert_string_equal(r->results[i]->reason, reasons[i]);
    }
    assert_non_null(strstr(r->results[2]->error, "receipt handle is malformed"));
    assert_non_null(strstr(r->results[3]->error, "0 (ACK), 1 (EXTEND) and 2 (NACK) are allowed"));
    narad__v1__ack_response__free_unpacked(r, NULL);
}

static void wire_put_ack_result__reads_back_through_protobuf_c(void **state)
{
    (void)state;
    const struct nd_settle_item settles[] = {{.result = ND_OK}, {.result = ND_ERR_STALE}};
    const struct nd_wire_ack_result results[] = {
        {.id = 300, .settles = settles, .count = 2},
        {.id = UINT64_MAX, .err = ND_ERR_TOPIC_NOT_FOUND, .text = "topic not found: \"t\""},
    };
    uint8_t bytes[512];
    size_t size = 0;
    for (size_t i = 0; i < ND_ARRAY_SIZE(results); i++) {
        size_t wanted = nd_wire_put_ack_result(NULL, &results[i]);
        assert_int_equal(nd_wire_put_ack_result(bytes + size, &results[i]), wanted);
        size += wanted;
    }

    Narad__V1__AckStreamResponse *r = narad__v1__ack_stream_response__unpack(NULL, size, bytes);

    assert_non_null(r);
    assert_int_equal(r->n_results, 2);
    assert_int_equal(r->results[0]->id, 300);
    assert_int_equal(r->results[0]->code, 0);
    assert_int_equal(r->results[0]->n_results, 2);
    assert_int_equal(r->results[0]->results[0]->code, 0);
    assert_int_equal(r->results[0]->results[1]->code, 9);
    assert_string_equal(r->results[0]->results[1]->reason, "STALE");
    assert_true(r->results[1]->id == UINT64_MAX);
    assert_int_equal(r->results[1]->code, 5);
    assert_string_equal(r->results[1]->error, "topic not found: \"t\"");
    assert_string_equal(r->results[1]->reason, "TOPIC_NOT_FOUND");
    assert_int_equal(r->results[1]->n_results, 0);
    narad__v1__ack_stream_response__free_unpacked(r, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_put_message__reads_back_through_protobuf_c),
        cmocka_unit_test(wire_put_message__leaves_the_handle_of_a_replayed_record_out),
        cmocka_unit_test(wire_put_poll_result__reads_back_through_protobuf_c),
        cmocka_unit_test(wire_put_produce_result__reads_back_through_protobuf_c),
        cmocka_unit_test(wire_put_settle_result__reads_back_through_protobuf_c),
        cmocka_unit_test(wire_put_ack_result__reads_back_through_protobuf_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
