#include "storage/base/buf.h"

#include "gateway/json_in.h"
#include "tests/support/nd_test.h"

enum { NAME, PARTITIONS, SCHEMA, LIST, MEMBERS };

struct read {
    struct nd_json_member members[MEMBERS];
    struct nd_errmsg msg;
    enum nd_err err;
};

static struct nd_arena arena;

static int arena_make(void **state)
{
    (void)state;
    nd_arena_init(&arena, 1 << 20);
    return 0;
}

static int arena_drop(void **state)
{
    (void)state;
    nd_arena_release(&arena);
    return 0;
}

static struct read read_slice(struct nd_slice body)
{
    struct read read = {.members = {{.name = "name", .type = ND_JSON_STRING},
                                    {.name = "partitions", .type = ND_JSON_INT},
                                    {.name = "schema", .type = ND_JSON_ANY},
                                    {.name = "list", .type = ND_JSON_ARRAY}}};

    read.err = nd_json_read(body, read.members, MEMBERS, &arena, &read.msg);
    return read;
}

static struct read read_text(const char *body)
{
    return read_slice(nd_slice_str(body));
}

static bool is(struct nd_slice slice, const char *text)
{
    return nd_slice_equal(slice, nd_slice_str(text));
}

static void json_read__takes_known_members_of_any_letter_case(void **state)
{
    struct read read = read_text(" {\"Name\":\"a\\u00e9\\n\", \"PARTITIONS\" : -12,"
                                 "\"schema\":{\"x\":[1, 2.0]},\"list\": [ ] }\r\n");

    (void)state;
    assert_int_equal(read.err, ND_OK);
    assert_true(is(read.members[NAME].text, "a\xc3\xa9\n"));
    assert_int_equal(read.members[NAME].text.data[read.members[NAME].text.size], 0);
    assert_int_equal(read.members[PARTITIONS].number, -12);
    assert_true(is(read.members[SCHEMA].raw, "{\"x\":[1, 2.0]}")); /* as written */
    assert_true(is(read.members[LIST].raw, "[ ]"));
}

static void json_read__lets_the_last_of_a_name_win(void **state)
{
    struct read read =
        read_text("{\"name\":\"a\",\"NAME\":\"b\",\"partitions\":1,\"n\\u0061me\":\"c\"}");

    (void)state;
    assert_int_equal(read.err, ND_OK);
    assert_true(is(read.members[NAME].text, "c"));
}

static void json_read__takes_null_for_left_out(void **state)
{
    struct read all = read_text("null"), each;

    (void)state;
    assert_int_equal(all.err, ND_OK);
    assert_false(all.members[NAME].present);
    each = read_text("{\"name\":null,\"partitions\":null,\"schema\":null,\"list\":null}");
    assert_int_equal(each.err, ND_OK);
    assert_false(each.members[NAME].present);
    assert_false(each.members[PARTITIONS].present);
    assert_true(each.members[SCHEMA].present); /* of any type: null is a value */
    assert_true(is(each.members[SCHEMA].raw, "null"));
    assert_false(each.members[LIST].present);
}

static void json_read__mends_strings_that_are_no_utf8(void **state)
{
    struct read read = read_text("{\"name\":\"a\xff\\ud800b\\udc00\\ud83d\\ude00\"}");

    (void)state;
    assert_int_equal(read.err, ND_OK);
    assert_true(is(read.members[NAME].text, "a\xef\xbf\xbd\xef\xbf\xbd"
                                            "b\xef\xbf\xbd\xf0\x9f\x98\x80"));
}

static void json_read__keeps_a_nul_inside_a_string(void **state)
{
    struct read read = read_text("{\"name\":\"a\\u0000b\"}");

    (void)state;
    assert_int_equal(read.err, ND_OK);
    assert_int_equal(read.members[NAME].text.size, 3);
}

static void json_read__says_what_is_wrong(void **state)
{
    static const struct {
        const char *body, *text;
    } cases[] = {
        {"", "EOF"},
        {" \n", "EOF"},
        {"{", "unexpected EOF"},
        {"{\"name\":\"x", "unexpected EOF"},
        {"{\"name\":\"x\"", "unexpected EOF"},
        {"nul", "unexpected EOF"},
        {"{not json}", "invalid character 'n' looking for beginning of object key string"},
        {"{'a':1}", "invalid character '\\'' looking for beginning of object key string"},
        {"x", "invalid character 'x' looking for beginning of value"},
        {"{\"name\":1,}", "invalid character '}' looking for beginning of object key string"},
        {"{\"name\" 1}", "invalid character '1' after object key"},
        {"{\"name\":\"a\" \"b\"}", "invalid character '\"' after object key:value pair"},
        {"{\"list\":[1 2]}", "invalid character '2' after array element"},
        {"{\"name\":\"a\nb\"}", "invalid character '\\x0a' in string literal"},
        {"{\"garbage\":1}", "json: unknown field \"garbage\""},
        {"{\"name\":\"x\",\"garbage\":\"nope\"}", "json: unknown field \"garbage\""},
        {"{}{}", "multiple JSON values"},
        {"{} x", "multiple JSON values"},
        {"null null", "multiple JSON values"},
        {"[]", "json: cannot unmarshal array into an object"},
        {"\"x\"", "json: cannot unmarshal string into an object"},
        {"3", "json: cannot unmarshal number into an object"},
        {"true", "json: cannot unmarshal bool into an object"},
        {"{\"name\":1}", "json: cannot unmarshal number 1 into member name of type string"},
        {"{\"name\":[]}", "json: cannot unmarshal array into member name of type string"},
        {"{\"partitions\":\"3\"}",
         "json: cannot unmarshal string into member partitions of type int"},
        {"{\"partitions\":3.5}",
         "json: cannot unmarshal number 3.5 into member partitions of type int"},
        {"{\"partitions\":3.0}",
         "json: cannot unmarshal number 3.0 into member partitions of type int"},
        {"{\"partitions\":1e2}",
         "json: cannot unmarshal number 1e2 into member partitions of type int"},
        {"{\"partitions\":9223372036854775808}",
         "json: cannot unmarshal number 9223372036854775808 into member partitions of type int"},
        {"{\"partitions\":true}", "json: cannot unmarshal bool into member partitions of type int"},
        {"{\"list\":{}}", "json: cannot unmarshal object into member list of type array"},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct read read = read_text(cases[i].body);
        struct nd_errmsg wanted;
        assert_int_equal(read.err, ND_ERR_INVALID_ARGUMENT);
        nd_errmsg_set(&wanted, "invalid json: %s", cases[i].text);
        assert_string_equal(read.msg.text, wanted.text);
    }
}

static enum nd_err read_nested(size_t depth)
{
    struct nd_buf body;

    nd_buf_init(&body, 1 << 20);
    nd_buf_put_text(&body, "{\"schema\":");
    for (size_t i = 1; i < depth; i++) {
        nd_buf_put_u8(&body, '[');
    }
    for (size_t i = 1; i < depth; i++) {
        nd_buf_put_u8(&body, ']');
    }
    nd_buf_put_u8(&body, '}');
    struct read read = read_slice(nd_buf_slice(&body));
    nd_buf_release(&body);
    return read.err;
}

static void json_read__goes_ten_thousand_levels_deep(void **state)
{
    (void)state;
    assert_int_equal(read_nested(ND_JSON_DEPTH_MAX), ND_OK);
    assert_int_equal(read_nested(ND_JSON_DEPTH_MAX + 1), ND_ERR_INVALID_ARGUMENT);
}

static void json_next__walks_every_element(void **state)
{
    static const char *const wanted[] = {"1", "\"a,]\"", "[ 2 ]", "{\"b\":[]}", "null"};
    struct nd_slice array = nd_slice_str("[ 1 ,\"a,]\", [ 2 ],{\"b\":[]},null\n]"), element;
    size_t at = 0, count = 0;

    (void)state;
    while (nd_json_next(array, &at, &element)) {
        assert_true(count < ND_ARRAY_SIZE(wanted));
        assert_true(is(element, wanted[count++]));
    }
    assert_int_equal(count, ND_ARRAY_SIZE(wanted));
    at = 0;
    assert_false(nd_json_next(nd_slice_str("[ ]"), &at, &element));
    at = 0;
    assert_false(nd_json_next(nd_slice_str("[]"), &at, &element));
}

static void json_string__takes_a_string_only(void **state)
{
    struct nd_slice out;

    (void)state;
    assert_int_equal(nd_json_string(nd_slice_str("\"0:1:2\""), &arena, &out, NULL), ND_OK);
    assert_true(is(out, "0:1:2"));
    assert_int_equal(nd_json_string(nd_slice_str("12"), &arena, &out, NULL),
                     ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(nd_json_string(nd_slice_str("null"), &arena, &out, NULL),
                     ND_ERR_INVALID_ARGUMENT);
}

static void json_read__tells_a_full_arena(void **state)
{
    struct nd_json_member member = {.name = "name", .type = ND_JSON_STRING};
    struct nd_arena small;

    (void)state;
    nd_arena_init(&small, 4);
    assert_int_equal(
        nd_json_read(nd_slice_str("{\"name\":\"abcdefgh\"}"), &member, 1, &small, NULL),
        ND_ERR_NO_MEMORY);
    nd_arena_release(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_read__takes_known_members_of_any_letter_case),
        cmocka_unit_test(json_read__lets_the_last_of_a_name_win),
        cmocka_unit_test(json_read__takes_null_for_left_out),
        cmocka_unit_test(json_read__mends_strings_that_are_no_utf8),
        cmocka_unit_test(json_read__keeps_a_nul_inside_a_string),
        cmocka_unit_test(json_read__says_what_is_wrong),
        cmocka_unit_test(json_read__goes_ten_thousand_levels_deep),
        cmocka_unit_test(json_next__walks_every_element),
        cmocka_unit_test(json_string__takes_a_string_only),
        cmocka_unit_test(json_read__tells_a_full_arena),
    };
    return cmocka_run_group_tests(tests, arena_make, arena_drop);
}
