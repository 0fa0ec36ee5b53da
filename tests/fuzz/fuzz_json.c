/* JSON from clients: payloads and request bodies. What jansson takes, we take; a string that is
 * written is read as the same; a body's members lie inside it. */
#include <jansson.h>

#include "gateway/json_in.h"
#include "gateway/payload.h"
#include "tests/fuzz/fuzz.h"

static void check_kind(struct nd_slice text)
{
    enum nd_payload_kind kind = nd_payload_classify(text);
    json_t *other =
        json_loadb((const char *)text.data, text.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

    FUZZ_CHECK(nd_utf8_valid(text) == (kind != ND_PAYLOAD_BYTES));
    /* It takes a NUL behind a value for the end. */
    bool nul = text.size > 0 && memchr(text.data, 0, text.size) != NULL;
    FUZZ_CHECK(other == NULL || nul || kind == ND_PAYLOAD_JSON);
    json_decref(other);
}

static void check_string(struct nd_slice text)
{
    struct nd_buf mended, written;
    struct nd_arena arena;
    struct nd_slice again;

    nd_arena_init(&arena, 1 << 20);
    nd_buf_init(&mended, SIZE_MAX);
    nd_buf_init(&written, SIZE_MAX);
    nd_utf8_put_mended(&mended, text);
    FUZZ_CHECK(nd_utf8_valid(nd_buf_slice(&mended)));
    FUZZ_CHECK(!nd_utf8_valid(text) || nd_slice_equal(nd_buf_slice(&mended), text));
    nd_json_put_string(&written, nd_buf_slice(&mended));
    FUZZ_CHECK(nd_payload_classify(nd_buf_slice(&written)) == ND_PAYLOAD_JSON);
    FUZZ_CHECK(nd_json_string(nd_buf_slice(&written), &arena, &again, NULL) == ND_OK);
    FUZZ_CHECK(nd_slice_equal(again, nd_buf_slice(&mended)));
    nd_buf_release(&mended);
    nd_buf_release(&written);
    nd_arena_release(&arena);
}

static void check_base64(struct nd_slice text)
{
    uint8_t *bytes = nd_xmalloc(text.size + 4);
    struct nd_buf written;
    size_t size, again;

    nd_buf_init(&written, SIZE_MAX);
    if (nd_base64_get(text, bytes, &size)) {
        FUZZ_CHECK(size <= text.size / 4 * 3);
    }
    nd_base64_put(&written, text);
    uint8_t *back = nd_xmalloc(written.size + 4);
    FUZZ_CHECK(nd_base64_get(nd_buf_slice(&written), back, &again));
    FUZZ_CHECK(nd_slice_equal(nd_slice_make(back, again), text));
    nd_buf_release(&written);
    nd_free(back);
    nd_free(bytes);
}

static bool inside(struct nd_slice part, struct nd_slice whole)
{
    return part.data >= whole.data && part.data + part.size <= whole.data + whole.size;
}

static void check_body(struct nd_slice text)
{
    struct nd_json_member members[] = {{.name = "name", .type = ND_JSON_STRING},
                                       {.name = "partitions", .type = ND_JSON_INT},
                                       {.name = "schema", .type = ND_JSON_ANY},
                                       {.name = "messages", .type = ND_JSON_ARRAY}};
    struct nd_errmsg msg = {.text = ""};
    struct nd_slice element, value;
    struct nd_arena arena;
    size_t at = 0;

    nd_arena_init(&arena, 1 << 20);
    if (nd_json_read(text, members, ND_ARRAY_SIZE(members), &arena, &msg) == ND_OK) {
        FUZZ_CHECK(nd_json_scan(text, &at, &value));
        FUZZ_CHECK(nd_json_skip_blanks(text, at) == text.size);
        for (size_t i = 0; i < ND_ARRAY_SIZE(members); i++) {
            FUZZ_CHECK(!members[i].present || inside(members[i].raw, text));
        }
        at = 0;
        while (members[3].present && nd_json_next(members[3].raw, &at, &element)) {
            FUZZ_CHECK(element.size > 0 && inside(element, members[3].raw));
        }
    } else {
        FUZZ_CHECK(strncmp(msg.text, "invalid json: ", 14) == 0);
    }
    nd_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_copy(data, size);
    struct nd_slice text = nd_slice_make(copy, size);

    check_kind(text);
    check_string(text);
    check_base64(text);
    check_body(text);
    nd_free(copy);
    return 0;
}
