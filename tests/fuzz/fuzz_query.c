/* Query strings: what decodes is, escaped again, read as the same by every parser that takes it. */
#include <inttypes.h>

#include "gateway/query.h"
#include "tests/fuzz/fuzz.h"

static struct nd_arena arena;

/* `name`=value, every byte of it escaped. */
static void pair_put(struct nd_buf *out, const char *name, struct nd_slice value)
{
    nd_buf_printf(out, "%s=", name);
    for (size_t i = 0; i < value.size; i++) {
        nd_buf_printf(out, "%%%02x", value.data[i]);
    }
}

static void check_lenient(struct nd_slice query)
{
    struct nd_slice value, again;
    struct nd_buf written;

    if (!nd_query_lenient(query, "wait", &arena, &value)) {
        return;
    }
    nd_buf_init(&written, SIZE_MAX);
    pair_put(&written, "w%61it", value);
    FUZZ_CHECK(value.size > 0);
    FUZZ_CHECK(nd_query_lenient(nd_buf_slice(&written), "wait", &arena, &again));
    FUZZ_CHECK(nd_slice_equal(again, value));
    nd_buf_release(&written);
}

static void check_produce(struct nd_slice query)
{
    struct nd_produce_query read, again;
    struct nd_errmsg msg = {.text = ""};
    struct nd_buf written;

    if (nd_query_produce(query, &arena, &read, &msg) != ND_OK) {
        FUZZ_CHECK(msg.text[0] != '\0');
        return;
    }
    nd_buf_init(&written, SIZE_MAX);
    pair_put(&written, "key", read.key);
    if (read.has_partition) {
        FUZZ_CHECK(read.partition >= 0);
        nd_buf_printf(&written, "&partition=%" PRId64, read.partition);
    }
    FUZZ_CHECK(nd_query_produce(nd_buf_slice(&written), &arena, &again, NULL) == ND_OK);
    FUZZ_CHECK(nd_slice_equal(again.key, read.key) && again.partition == read.partition);
    FUZZ_CHECK(again.has_partition == read.has_partition);
    nd_buf_release(&written);
}

static void check_ack(struct nd_slice query)
{
    struct nd_ack_query read, again;
    struct nd_errmsg msg = {.text = ""};
    struct nd_buf written;
    bool bad;

    if (nd_query_ack(query, &arena, &read, &bad, &msg) != ND_OK) {
        FUZZ_CHECK(strncmp(msg.text, "invalid receipt_handle: ", 24) == 0);
        return;
    }
    nd_buf_init(&written, SIZE_MAX);
    pair_put(&written, "receipt_handle", read.receipt_handle);
    FUZZ_CHECK(nd_query_ack(nd_buf_slice(&written), &arena, &again, &bad, NULL) == ND_OK && !bad);
    FUZZ_CHECK(nd_slice_equal(again.receipt_handle, read.receipt_handle));
    nd_buf_release(&written);
}

static void check_numbers(struct nd_slice text)
{
    struct nd_errmsg msg;
    char written[32];
    int64_t value, again;

    if (nd_parse_int(text, "f", &value, &msg) == ND_OK) {
        snprintf(written, sizeof written, "%" PRId64, value);
        FUZZ_CHECK(nd_parse_int(nd_slice_str(written), "f", &again, NULL) == ND_OK);
        FUZZ_CHECK(again == value);
    }
    if (nd_parse_duration(text, &value, &msg) == ND_OK) {
        snprintf(written, sizeof written, "%" PRId64 "ns", value);
        FUZZ_CHECK(nd_parse_duration(nd_slice_str(written), &again, NULL) == ND_OK);
        FUZZ_CHECK(again == value);
    } else {
        FUZZ_CHECK(strncmp(msg.text, "time: ", 6) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_copy(data, size);
    struct nd_slice text = nd_slice_make(copy, size);

    nd_arena_init(&arena, 1 << 20);
    check_lenient(text);
    check_produce(text);
    check_ack(text);
    check_numbers(text);
    nd_arena_release(&arena);
    nd_free(copy);
    return 0;
}
