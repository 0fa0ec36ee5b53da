#include "storage/base/alloc.h"

#include "gateway/payload.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static enum nd_payload_kind kind_of(const char *text)
{
    return nd_payload_classify(nd_slice_str(text));
}

static void payload_classify__knows_one_json_value(void **state)
{
    static const char *const texts[] = {
        "null",
        "true",
        "false",
        "0",
        "-0",
        "42",
        "1.0",
        "-1.5e+300",
        "1E400",
        "0e0",
        "123456789012345678901234567890123456789.000000000000000000001",
        "\"\"",
        "\"x\"",
        "\"\\u0000\\ud800 \\\" \\/ \\b\\f\\n\\r\\t\"",
        "[]",
        "{}",
        "[[],{}]",
        " \t\r\n{\"a\":1 , \"a\":2,\"b\":[1,2,{\"c\":null}]}\n",
        "\"\xc3\xa9\"",
        "\"\x7f\"",
        "{\"\":{\"\":{}}}",
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(texts); i++) {
        assert_int_equal(kind_of(texts[i]), ND_PAYLOAD_JSON);
    }
}

static void payload_classify__calls_the_rest_text(void **state)
{
    static const char *const texts[] = {
        "",
        " ",
        "hello world",
        "{",
        "}",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "1 2",
        "{} {}",
        "nul",
        "nulll",
        "True",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1.e1",
        "1e",
        "1e+",
        "\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u12",
        "\"a\nb\"",
        "'a'",
        "[1 2]",
        "{\"a\" 1}",
        "[}",
        "{]",
        "NaN",
        "Infinity",
        "/**/1",
        "\xef\xbb\xbf{}",
        "0x10",
        "[",
        "[1",
        "{\"a\":1",
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(texts); i++) {
        assert_int_equal(kind_of(texts[i]), ND_PAYLOAD_TEXT);
    }
    /* Nothing ends at a NUL. */
    assert_int_equal(nd_payload_classify(nd_slice_make("{}\0", 3)), ND_PAYLOAD_TEXT);
    assert_int_equal(nd_payload_classify(nd_slice_make("\"a\0b\"", 5)), ND_PAYLOAD_TEXT);
}

static void payload_classify__looks_at_utf8_first(void **state)
{
    static const char *const texts[] = {
        "\"\xff\"",         /* valid JSON but for that */
        "{\"a\":\"\xc3\"}", /* cut */
        "\xc0\xaf",         /* too long a form */
        "\xe0\x80\xaf",     "\xf0\x80\x80\xaf",
        "\xed\xa0\x80",     /* a surrogate */
        "\xf4\x90\x80\x80", /* beyond U+10FFFF */
        "\xf5\x80\x80\x80", "\x80",
        "12345678\xff",     "abcdefgh\xe2\x82",
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(texts); i++) {
        assert_int_equal(kind_of(texts[i]), ND_PAYLOAD_BYTES);
    }
    assert_int_equal(kind_of("\"\xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\""),
                     ND_PAYLOAD_JSON);
    assert_int_equal(kind_of("\xe2\x82\xac \xed\x9f\xbf \xee\x80\x80"), ND_PAYLOAD_TEXT);
}

static enum nd_payload_kind nested(size_t depth, const char *open, const char *close)
{
    struct nd_buf text;

    nd_buf_init(&text, 16 << 20);
    for (size_t i = 0; i < depth; i++) {
        nd_buf_put_text(&text, open);
    }
    nd_buf_put_text(&text, "1");
    for (size_t i = 0; i < depth; i++) {
        nd_buf_put_text(&text, close);
    }
    enum nd_payload_kind kind = nd_payload_classify(nd_buf_slice(&text));
    nd_buf_release(&text);
    return kind;
}

static void payload_classify__counts_ten_thousand_levels(void **state)
{
    (void)state;
    assert_int_equal(nested(ND_JSON_DEPTH_MAX, "[", "]"), ND_PAYLOAD_JSON);
    assert_int_equal(nested(ND_JSON_DEPTH_MAX, "{\"a\":", "}"), ND_PAYLOAD_JSON);
    assert_int_equal(nested(ND_JSON_DEPTH_MAX / 2, "[{\"a\":", "}]"), ND_PAYLOAD_JSON);
    assert_int_equal(nested(ND_JSON_DEPTH_MAX + 1, "[", "]"), ND_PAYLOAD_TEXT);
    assert_int_equal(nested(1000000, "[", "]"), ND_PAYLOAD_TEXT);
}

static void json_scan__finds_the_span_and_the_place_that_is_wrong(void **state)
{
    static const struct {
        const char *text;
        bool good;
        size_t at;
    } cases[] = {
        {"  {\"a\":1} x", true, 9}, {"1,2", true, 1},   {"  ", false, 2}, {"[1,}", false, 3},
        {"{\"a\":tru}", false, 8},  {"\"ab", false, 3}, {"{1", false, 1},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_slice value = {NULL, 0};
        size_t at = 0;
        assert_int_equal(nd_json_scan(nd_slice_str(cases[i].text), &at, &value), cases[i].good);
        assert_int_equal(at, cases[i].at);
    }
}

/* A string is scanned eight bytes at once: whatever stands at any place of it is seen. */
static void json_scan__sees_every_byte_of_a_string(void **state)
{
    char text[24];

    (void)state;
    for (size_t place = 1; place < 20; place++) {
        for (int byte = 0; byte < 256; byte++) {
            struct nd_slice value;
            size_t at = 0;
            memset(text, 'x', sizeof text);
            text[0] = '"';
            text[sizeof text - 1] = '"';
            text[place] = (char)byte;
            bool good = nd_json_scan(nd_slice_make(text, sizeof text), &at, &value);
            size_t want = byte == '"' ? place + 1 : byte == '\\' ? place + 1 : place;
            assert_int_equal(good, byte >= 0x20 && byte != '\\');
            assert_true(at == (byte == '"' || !good ? want : sizeof text));
        }
    }
}

static void utf8_put_mended__replaces_each_stray_byte(void **state)
{
    struct nd_buf out;

    (void)state;
    nd_buf_init(&out, 1000);
    nd_utf8_put_mended(&out, nd_slice_str("a\xff\xc3\xa9\xe2\x82z\xf0"));
    assert_int_equal(out.size, 1 + 3 + 2 + 6 + 1 + 3);
    assert_memory_equal(out.data, "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd",
                        out.size);
    assert_true(nd_utf8_valid(nd_buf_slice(&out)));
    nd_buf_release(&out);
}

static void json_put_string__escapes_what_it_must(void **state)
{
    static const char wanted[] = "\"line1\\nline2\\t\\\"q\\\"\\\\ \\u0001\\u001f\x7f\xc3\xa9</>\"";
    struct nd_buf out;

    (void)state;
    nd_buf_init(&out, 1000);
    nd_json_put_string(&out, nd_slice_str("line1\nline2\t\"q\"\\ \x01\x1f\x7f\xc3\xa9</>"));
    assert_int_equal(out.size, sizeof wanted - 1);
    assert_memory_equal(out.data, wanted, out.size);
    assert_int_equal(nd_payload_classify(nd_buf_slice(&out)), ND_PAYLOAD_JSON);
    nd_buf_release(&out);
}

static void base64__comes_back(void **state)
{
    uint8_t bytes[64], back[64];
    uint64_t seed = 7;
    struct nd_buf out;

    (void)state;
    nd_buf_init(&out, 1000);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)nd_rand(&seed);
        }
        size_t back_size = 99;
        nd_buf_reset(&out);
        nd_base64_put(&out, nd_slice_make(bytes, size));
        assert_int_equal(out.size, (size + 2) / 3 * 4);
        assert_true(nd_base64_get(nd_buf_slice(&out), back, &back_size));
        assert_int_equal(back_size, size);
        assert_memory_equal(back, bytes, size);
    }
    nd_buf_reset(&out);
    nd_base64_put(&out, nd_slice_make("\x00\xff\x8a\x01", 4));
    assert_true(nd_slice_equal(nd_buf_slice(&out), nd_slice_str("AP+KAQ==")));
    nd_buf_release(&out);
}

static void base64_get__refuses_what_is_none(void **state)
{
    static const char *const texts[] = {
        "A",    "AA",    "AAA",  "AA=",  "=",     "====",  "A===", "AA=A",     "AA==A",
        "A A=", "AAAA=", "AA-_", "AA*=", "AAA=A", "AA===", "\xff", "AA==AAAA", "AAA==="};
    uint8_t out[16];
    size_t size;

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(texts); i++) {
        assert_false(nd_base64_get(nd_slice_str(texts[i]), out, &size));
    }
    assert_true(nd_base64_get(nd_slice_str("aGVs\r\nbG8=\n"), out, &size));
    assert_int_equal(size, 5);
    assert_memory_equal(out, "hello", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payload_classify__knows_one_json_value),
        cmocka_unit_test(payload_classify__calls_the_rest_text),
        cmocka_unit_test(payload_classify__looks_at_utf8_first),
        cmocka_unit_test(payload_classify__counts_ten_thousand_levels),
        cmocka_unit_test(json_scan__finds_the_span_and_the_place_that_is_wrong),
        cmocka_unit_test(json_scan__sees_every_byte_of_a_string),
        cmocka_unit_test(utf8_put_mended__replaces_each_stray_byte),
        cmocka_unit_test(json_put_string__escapes_what_it_must),
        cmocka_unit_test(base64__comes_back),
        cmocka_unit_test(base64_get__refuses_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
