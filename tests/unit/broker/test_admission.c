#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"

#include "server/broker/admission.h"
#include "tests/support/nd_test.h"

static _Atomic uint32_t spread;
static struct nd_topic *topic;

static int set_up(void **state)
{
    (void)state;
    topic = nd_topic_new(3);
    spread = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nd_topic_unref(topic);
    return 0;
}

static struct nd_produce_record record(const char *key, const char *payload)
{
    return (struct nd_produce_record){
        .key = nd_slice_str(key), .payload = nd_slice_str(payload), .partition = -1};
}

static enum nd_err encode(struct nd_admission *out, const struct nd_produce_record *records,
                          uint32_t count, struct nd_errmsg *msg)
{
    return nd_admission_encode(out, topic, records, count, &spread, msg);
}

static void fnv__has_the_documented_check_values(void **state)
{
    (void)state;
    assert_int_equal(nd_fnv1a32(nd_slice_str("k")), 3993778410u);
    assert_int_equal(nd_fnv1a32(nd_slice_str("k1")), 2554167489u);
    assert_int_equal(nd_fnv1a32(nd_slice_str("k2")), 2503834632u);
    assert_int_equal(nd_fnv1a32(nd_slice_str("customer-42")), 4268273086u);
}

static void i16__a_batch_keeps_its_order_in_each_partition(void **state)
{
    (void)state;
    struct nd_produce_record records[60];
    char payloads[60][8];
    struct nd_admission batch;
    static const char *const keys[] = {"k", "customer-42", "k2", "x", "yy", "zzz"};

    for (uint32_t i = 0; i < 60; i++) {
        snprintf(payloads[i], sizeof payloads[i], "m%u", i);
        records[i] = record(keys[i % 6], payloads[i]);
    }
    assert_int_equal(encode(&batch, records, 60, NULL), ND_OK);

    uint32_t total = 0;
    for (uint32_t r = 0; r < batch.runs_count; r++) {
        const struct nd_admission_run *run = &batch.runs[r];
        size_t at = 0;
        assert_int_equal(nd_run_check(run->records, run->count), ND_OK);
        int last = -1;
        for (uint32_t i = 0; i < run->count; i++) {
            struct nd_record_view view;
            size_t size;
            struct nd_slice rest = nd_slice_make(run->records.data + at, run->records.size - at);
            assert_int_equal(nd_record_get(rest, &view, &size), ND_OK);
            assert_int_equal(nd_fnv1a32(view.key) % 3, run->partition);
            char text[9] = {0};
            memcpy(text, view.payload.data, view.payload.size);
            int number = (int)strtol(text + 1, NULL, 10);
            assert_true(number > last);
            assert_int_equal(batch.placements[number].partition, run->partition);
            assert_int_equal(batch.placements[number].index, i);
            last = number;
            at += size;
        }
        total += run->count;
    }
    assert_int_equal(total, 60);
    nd_admission_release(&batch);
}

static void keyless__batches_go_round_the_partitions(void **state)
{
    (void)state;
    uint32_t seen[3] = {0};

    for (uint32_t i = 0; i < 9; i++) {
        struct nd_produce_record records[2] = {record("", "a"), record("", "b")};
        struct nd_admission batch;
        assert_int_equal(encode(&batch, records, 2, NULL), ND_OK);
        assert_int_equal(batch.runs_count, 1);
        seen[batch.runs[0].partition] += 1;
        nd_admission_release(&batch);
    }
    assert_int_equal(seen[0], 3);
    assert_int_equal(seen[1], 3);
    assert_int_equal(seen[2], 3);
}

static void pin__wins_over_the_key_which_is_kept(void **state)
{
    (void)state;
    struct nd_produce_record one = record("k", "v"); /* the key's own partition is 0 */
    struct nd_admission batch;
    struct nd_record_view view;
    size_t size;

    one.partition = 2;
    assert_int_equal(encode(&batch, &one, 1, NULL), ND_OK);
    assert_int_equal(batch.runs[0].partition, 2);
    assert_int_equal(nd_record_get(batch.runs[0].records, &view, &size), ND_OK);
    assert_true(nd_slice_equal(view.key, nd_slice_str("k")));
    nd_admission_release(&batch);
}

/* Every limit: the last allowed value passes, the first refused one names what is allowed. */
static void refused(const struct nd_produce_record *records, uint32_t count, enum nd_err expected,
                    const char *fragment)
{
    struct nd_admission batch;
    struct nd_errmsg msg = {""};

    assert_int_equal(encode(&batch, records, count, &msg), expected);
    assert_non_null(strstr(msg.text, fragment));
}

static void limits__name_what_is_wrong_and_what_is_allowed(void **state)
{
    (void)state;
    struct nd_produce_record *many = nd_xcalloc(1001, sizeof *many);
    uint8_t *big = nd_xcalloc(1, ND_PAYLOAD_SIZE_MAX + 1);
    struct nd_admission batch;
    struct nd_produce_record one = record("k", "v");

    for (uint32_t i = 0; i < 1001; i++) {
        many[i] = record("k", "v");
    }
    refused(many, 0, ND_ERR_INVALID_ARGUMENT, "1 to 1000");
    refused(many, 1001, ND_ERR_INVALID_ARGUMENT, "1 to 1000");
    assert_int_equal(encode(&batch, many, 1000, NULL), ND_OK);
    nd_admission_release(&batch);

    one.payload = nd_slice_make(big, 0);
    refused(&one, 1, ND_ERR_INVALID_ARGUMENT, "message required");
    one.payload = nd_slice_make(big, ND_PAYLOAD_SIZE_MAX + 1);
    refused(&one, 1, ND_ERR_TOO_LARGE, "1048576");
    one.payload = nd_slice_make(big, ND_PAYLOAD_SIZE_MAX);
    assert_int_equal(encode(&batch, &one, 1, NULL), ND_OK);
    nd_admission_release(&batch);

    for (uint32_t i = 0; i < 17; i++) {
        many[i] = one;
    }
    refused(many, 17, ND_ERR_TOO_LARGE, "16777216");

    one = record("k", "v");
    one.key = nd_slice_make(big, ND_KEY_SIZE_MAX + 1);
    refused(&one, 1, ND_ERR_INVALID_ARGUMENT, "8192");
    one = record("k", "v");
    one.partition = 3;
    refused(&one, 1, ND_ERR_INVALID_ARGUMENT, "partition out of range");
    one.partition = INT64_MAX;
    refused(&one, 1, ND_ERR_INVALID_ARGUMENT, "partition out of range");
    many[0] = many[1] = many[2] = record("k", "v");
    many[2].payload.size = 0;
    refused(many, 3, ND_ERR_INVALID_ARGUMENT, "record 2: message required");
    nd_free(big);
    nd_free(many);
}

static void header_limits__are_kept(void **state)
{
    (void)state;
    struct nd_record_header headers[65];
    uint8_t *big = nd_xcalloc(1, ND_HEADERS_SIZE_MAX);
    struct nd_produce_record one = record("", "v");
    struct nd_admission batch;
    static const char *const bad_names[] = {
        "",    "A",        "a_b",
        "a b", "\xc3\xa4", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

    for (int i = 0; i < 65; i++) {
        headers[i] = (struct nd_record_header){nd_slice_str("name"), nd_slice_str("")};
    }
    one.headers = headers;
    one.header_count = 65;
    refused(&one, 1, ND_ERR_INVALID_ARGUMENT, "at most 64");
    one.header_count = 64;
    assert_int_equal(encode(&batch, &one, 1, NULL), ND_OK);
    nd_admission_release(&batch);
    one.header_count = 1;
    for (size_t i = 0; i < ND_ARRAY_SIZE(bad_names); i++) {
        headers[0].name = nd_slice_str(bad_names[i]);
        refused(&one, 1, ND_ERR_INVALID_ARGUMENT, "[a-z0-9-]{1,64}");
    }
    headers[0] =
        (struct nd_record_header){nd_slice_str("n"), nd_slice_make(big, ND_HEADERS_SIZE_MAX)};
    refused(&one, 1, ND_ERR_INVALID_ARGUMENT, "16384");
    headers[0].value.size -= 1;
    assert_int_equal(encode(&batch, &one, 1, NULL), ND_OK);
    nd_admission_release(&batch);
    nd_free(big);
}

static void many_partitions__are_laid_out_right(void **state)
{
    (void)state;
    struct nd_produce_record records[200];
    struct nd_admission batch;

    nd_topic_unref(topic);
    topic = nd_topic_new(108);
    for (uint32_t i = 0; i < 200; i++) {
        records[i] = record("", "payload");
        records[i].partition = i % 108;
    }
    assert_int_equal(encode(&batch, records, 200, NULL), ND_OK);
    assert_int_equal(batch.runs_count, 108);
    for (uint32_t r = 0; r < 108; r++) {
        assert_int_equal(nd_run_check(batch.runs[r].records, batch.runs[r].count), ND_OK);
    }
    nd_admission_release(&batch);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(fnv__has_the_documented_check_values),
        CASE(i16__a_batch_keeps_its_order_in_each_partition),
        CASE(keyless__batches_go_round_the_partitions),
        CASE(pin__wins_over_the_key_which_is_kept),
        CASE(limits__name_what_is_wrong_and_what_is_allowed),
        CASE(header_limits__are_kept),
        CASE(many_partitions__are_laid_out_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
