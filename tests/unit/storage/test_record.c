/* storage/record: round trips at the limits, and hostile bytes. */
#include <stdlib.h>

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

#include "storage/record.h"
#include "tests/support/nd_test.h"

static uint8_t *record_make(size_t *size_out, size_t key_size, uint32_t header_count,
                            size_t value_size, size_t payload_size)
{
    static uint8_t filler[ND_PAYLOAD_SIZE_MAX];
    static struct nd_record_header headers[ND_HEADER_COUNT_MAX];

    memset(filler, 'f', sizeof filler);
    for (uint32_t i = 0; i < header_count; i++) {
        headers[i] = (struct nd_record_header){nd_slice_str("name"), {filler, value_size}};
    }
    size_t headers_size = nd_record_headers_size(headers, header_count);
    size_t size = nd_record_size(key_size, headers_size, payload_size);
    uint8_t *bytes = nd_xmalloc(size);
    *size_out = nd_record_put(bytes, nd_slice_make(filler, key_size), headers, header_count,
                              nd_slice_make(filler, payload_size));
    assert_int_equal(*size_out, size);
    return bytes;
}

static void record_get__returns_what_was_put(void **state)
{
    struct nd_record_header headers[2] = {
        {nd_slice_str("content-type"), nd_slice_str("text/plain")},
        {nd_slice_str("empty"), nd_slice_str("")},
    };
    uint8_t bytes[256];
    struct nd_record_view view;
    struct nd_record_header header;
    size_t size, at = 0;
    (void)state;

    size_t put = nd_record_put(bytes, nd_slice_str("key"), headers, 2, nd_slice_str("payload"));
    nd_run_set_time(bytes, put, 1234567890123);

    assert_int_equal(nd_record_get(nd_slice_make(bytes, sizeof bytes), &view, &size), ND_OK);
    assert_int_equal(size, put);
    assert_true(nd_slice_equal(view.key, nd_slice_str("key")));
    assert_true(nd_slice_equal(view.payload, nd_slice_str("payload")));
    assert_int_equal(view.time_ms, 1234567890123);
    assert_int_equal(view.header_count, 2);
    assert_true(nd_record_header_next(view.headers, &at, &header));
    assert_true(nd_slice_equal(header.name, headers[0].name));
    assert_true(nd_slice_equal(header.value, headers[0].value));
    assert_true(nd_record_header_next(view.headers, &at, &header));
    assert_true(nd_slice_equal(header.name, headers[1].name));
    assert_int_equal(header.value.size, 0);
    assert_false(nd_record_header_next(view.headers, &at, &header));
}

static void record_get__accepts_the_limits(void **state)
{
    struct nd_record_view view;
    size_t size, got;
    (void)state;

    /* 64 headers of 4 + 252 bytes are exactly 16 KiB. */
    uint8_t *bytes = record_make(&size, ND_KEY_SIZE_MAX, 64, 252, ND_PAYLOAD_SIZE_MAX);
    assert_int_equal(size, ND_RECORD_SIZE_MAX);
    assert_int_equal(nd_record_get(nd_slice_make(bytes, size), &view, &got), ND_OK);
    assert_int_equal(got, size);
    nd_free(bytes);

    bytes = record_make(&size, 0, 0, 0, 1);
    assert_int_equal(nd_record_get(nd_slice_make(bytes, size), &view, &got), ND_OK);
    assert_int_equal(view.payload.size, 1);
    nd_free(bytes);
}

static void record_get__refuses_what_passes_a_limit(void **state)
{
    struct nd_record_view view;
    size_t size, got;
    uint8_t *bytes = record_make(&size, 10, 2, 5, 20);
    static const struct {
        size_t at;
        uint8_t value;
        const char *what;
    } changes[] = {
        {4, 0, "version 0"},        {4, 2, "version 2"},      {5, 65, "65 headers"},
        {5, 1, "a header less"},    {5, 3, "a header more"},  {7, 0xff, "key of 64 KiB"},
        {11, 1, "16 MiB headers"},  {12, 1, "reserved"},      {15, 0x80, "reserved, last byte"},
        {23, 0x80, "time below 0"}, {3, 1, "size of 16 MiB"}, {0, 24, "only a header"},
    };
    (void)state;

    for (size_t i = 0; i < ND_ARRAY_SIZE(changes); i++) {
        uint8_t *copy = nd_xmalloc(size);
        memcpy(copy, bytes, size);
        copy[changes[i].at] = changes[i].value;
        if (nd_record_get(nd_slice_make(copy, size), &view, &got) != ND_ERR_CORRUPT) {
            fail_msg("accepted: %s", changes[i].what);
        }
        nd_free(copy);
    }
    nd_free(bytes);
}

static void record_get__refuses_every_truncation(void **state)
{
    struct nd_record_view view;
    size_t size, got;
    uint8_t *bytes = record_make(&size, 10, 3, 7, 20);
    (void)state;

    for (size_t left = 0; left < size; left++) {
        uint8_t *copy = nd_xmalloc(left + 1); /* so that a read too far is seen by ASan */
        memcpy(copy, bytes, left);
        assert_int_equal(nd_record_get(nd_slice_make(copy, left), &view, &got), ND_ERR_CORRUPT);
        nd_free(copy);
    }
    nd_free(bytes);
}

/* Random bytes and random changes to a good record never make the decoder read outside its input,
 * and whatever it accepts lies inside it. */
static void record_get__stays_inside_hostile_input(void **state)
{
    size_t size, got;
    uint8_t *bytes = record_make(&size, 6, 4, 9, 30);
    uint32_t accepted = 0;
    (void)state;

    srandom(7);
    for (uint32_t round = 0; round < 200000; round++) {
        size_t length = (size_t)random() % (size + 1);
        uint8_t *copy = nd_xmalloc(length + 1);
        struct nd_record_view view;
        memcpy(copy, bytes, length);
        for (uint32_t change = (uint32_t)random() % 4; change > 0 && length > 0; change--) {
            copy[(size_t)random() % ND_MIN(length, 40)] = (uint8_t)random();
        }
        if (nd_record_get(nd_slice_make(copy, length), &view, &got) == ND_OK) {
            struct nd_record_header header;
            size_t at = 0;
            uint32_t count = 0;
            accepted += 1;
            assert_true(got <= length && view.payload.size >= 1);
            assert_true(view.payload.data + view.payload.size == copy + got);
            while (nd_record_header_next(view.headers, &at, &header)) {
                count += 1;
            }
            assert_int_equal(count, view.header_count);
        }
        nd_free(copy);
    }
    assert_true(accepted > 0);
    nd_free(bytes);
}

static void run_check__wants_exactly_the_count(void **state)
{
    uint8_t run[512];
    size_t size = 0, third = 0;
    (void)state;

    for (uint32_t i = 0; i < 5; i++) {
        char text[8] = {(char)('a' + i), 'x', 0};
        third = i == 3 ? size : third;
        size += nd_record_put(run + size, nd_slice_str(""), NULL, 0, nd_slice_str(text));
    }

    assert_int_equal(nd_run_check(nd_slice_make(run, size), 5), ND_OK);
    assert_int_equal(nd_run_check(nd_slice_make(run, size), 4), ND_ERR_CORRUPT);
    assert_int_equal(nd_run_check(nd_slice_make(run, size), 6), ND_ERR_CORRUPT);
    assert_int_equal(nd_run_check(nd_slice_make(run, size - 1), 5), ND_ERR_CORRUPT);
    assert_int_equal(nd_run_check(nd_slice_make(run, 0), 0), ND_OK);
    assert_int_equal(nd_run_seek(nd_slice_make(run, size), 3), third);
    assert_int_equal(nd_run_seek(nd_slice_make(run, size), 5), size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_get__returns_what_was_put),
        cmocka_unit_test(record_get__accepts_the_limits),
        cmocka_unit_test(record_get__refuses_what_passes_a_limit),
        cmocka_unit_test(record_get__refuses_every_truncation),
        cmocka_unit_test(record_get__stays_inside_hostile_input),
        cmocka_unit_test(run_check__wants_exactly_the_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
