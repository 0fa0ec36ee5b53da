#include "gateway/query.h"
#include "tests/support/nd_test.h"

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

static bool is(struct nd_slice slice, const char *text)
{
    return nd_slice_equal(slice, nd_slice_str(text));
}

/* --- decoding --- */

static void percent_decode__takes_escapes_of_either_case(void **state)
{
    struct nd_slice out, bad;

    (void)state;
    assert_true(nd_percent_decode(nd_slice_str("a%2Fb%2fc%00d+%2B"), false, &arena, &out, &bad));
    assert_int_equal(out.size, 9);
    assert_memory_equal(out.data, "a/b/c\0d++", 9);
    assert_true(nd_percent_decode(nd_slice_str("a+%2B"), true, &arena, &out, &bad));
    assert_true(is(out, "a +"));
    assert_true(nd_percent_decode(nd_slice_str(""), true, &arena, &out, &bad));
    assert_int_equal(out.size, 0);
}

static void percent_decode__copies_only_what_it_changes(void **state)
{
    struct nd_slice text = nd_slice_str("plain~text;&="), out, bad;
    size_t used = arena.used;

    (void)state;
    assert_true(nd_percent_decode(text, true, &arena, &out, &bad));
    assert_ptr_equal(out.data, text.data);
    assert_int_equal(arena.used, used);
}

static void percent_decode__points_at_the_bad_escape(void **state)
{
    static const struct {
        const char *text, *bad;
    } cases[] = {{"x%ZZy", "%ZZ"}, {"x%", "%"}, {"x%4", "%4"}, {"%%41", "%%4"}, {"%4g", "%4g"}};

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_slice out, bad;
        assert_false(nd_percent_decode(nd_slice_str(cases[i].text), true, &arena, &out, &bad));
        assert_true(is(bad, cases[i].bad));
    }
}

static void percent_decode__tells_a_full_arena_by_no_place(void **state)
{
    struct nd_arena small;
    struct nd_slice out, bad;

    (void)state;
    nd_arena_init(&small, 2);
    assert_false(nd_percent_decode(nd_slice_str("%41%42%43"), true, &small, &out, &bad));
    assert_null(bad.data);
    nd_arena_release(&small);
}

/* --- lenient --- */

static void query_lenient__takes_the_first_and_forgives(void **state)
{
    static const struct {
        const char *query, *value; /* NULL: absent */
    } cases[] = {
        {"", NULL},
        {"wait=5s", "5s"},
        {"wait=5s&wait=6s", "5s"},
        {"a=b&&&wait=5s", "5s"},
        {"wait", NULL},
        {"wait=", NULL},
        {"wait=&wait=5s", NULL},
        {"wait=%ZZ", NULL},
        {"wait=%ZZ&wait=2s", "2s"}, /* the bad pair is as if absent */
        {"wait=1s;x&wait=2s", "2s"},
        {"x;wait=1s", NULL},
        {"Wait=1s", NULL},
        {"w%61it=1s", "1s"},
        {"w%ZZit=1s", NULL},
        {"wait=a+b%2Bc", "a b+c"},
        {"wait=a=b", "a=b"},
        {"waits=1&wai=2", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_slice value;
        bool there = nd_query_lenient(nd_slice_str(cases[i].query), "wait", &arena, &value);
        assert_int_equal(there, cases[i].value != NULL);
        assert_true(!there || is(value, cases[i].value));
    }
}

/* --- produce --- */

static void query_produce__reads_key_and_partition(void **state)
{
    static const struct {
        const char *query, *key;
        bool pinned;
        int64_t partition;
    } cases[] = {
        {"", "", false, 0},
        {"key=k", "k", false, 0},
        {"k%65y=a+b", "a b", false, 0},
        {"key", "", false, 0},
        {"key=&partition=2", "", true, 2},
        {"partition=%2B1", "", true, 1},
        {"garbage=%ZZ&key=k;x", "k;x", false, 0},
        {"partition=0&Partition=x", "", true, 0},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_produce_query out;
        assert_int_equal(nd_query_produce(nd_slice_str(cases[i].query), &arena, &out, NULL), ND_OK);
        assert_true(is(out.key, cases[i].key));
        assert_int_equal(out.has_partition, cases[i].pinned);
        assert_true(!out.has_partition || out.partition == cases[i].partition);
    }
}

static void query_produce__says_what_is_wrong(void **state)
{
    static const struct {
        const char *query, *text;
    } cases[] = {
        {"key=a&key=b", "duplicate key query parameter"},
        {"key=&k%65y=b", "duplicate key query parameter"},
        {"partition=1&partition=1", "duplicate partition query parameter"},
        {"partition=", "invalid partition: empty"},
        {"partition", "invalid partition: empty"},
        {"partition=-1", "invalid partition: must be >= 0"},
        {"partition=bad", "invalid partition: strconv.Atoi: parsing \"bad\": invalid syntax"},
        {"partition=+1", "invalid partition: strconv.Atoi: parsing \" 1\": invalid syntax"},
        {"partition=99999999999999999999",
         "invalid partition: strconv.Atoi: parsing \"99999999999999999999\": value out of range"},
        {"a%ZZ=1", "invalid query parameter: invalid URL escape \"%ZZ\""},
        {"key=%ZZ", "invalid key: invalid URL escape \"%ZZ\""},
        {"partition=%4", "invalid partition: invalid URL escape \"%4\""},
        {"key=%\"\n", "invalid key: invalid URL escape \"%\\\"\\x0a\""},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_produce_query out;
        struct nd_errmsg msg;
        assert_int_equal(nd_query_produce(nd_slice_str(cases[i].query), &arena, &out, &msg),
                         ND_ERR_INVALID_ARGUMENT);
        assert_string_equal(msg.text, cases[i].text);
    }
}

/* --- ack --- */

static void query_ack__reads_the_first_handle_and_extend(void **state)
{
    static const struct {
        const char *query, *handle;
        enum nd_ack_extend extend;
        bool bad;
    } cases[] = {
        {"", "", ND_ACK_ACK, false},
        {"receipt_handle=0%3A1%3A2", "0:1:2", ND_ACK_ACK, false},
        {"receipt%5Fhandle=0:1:2&receipt_handle=%ZZ", "0:1:2", ND_ACK_ACK, false},
        {"receipt_handle=&receipt_handle=1:1:1", "", ND_ACK_ACK, false},
        {"extend=true&extend=0&receipt_handle=h", "h", ND_ACK_EXTEND, false},
        {"extend=1", "", ND_ACK_EXTEND, false},
        {"extend=0", "", ND_ACK_NACK, false},
        {"extend=false", "", ND_ACK_ACK, false},
        {"extend=", "", ND_ACK_ACK, false},
        {"extend", "", ND_ACK_ACK, false},
        {"ext%65nd=0", "", ND_ACK_NACK, false},
        {"extend=TRUE", "", ND_ACK_ACK, true},
        {"extend=2&receipt_handle=h", "h", ND_ACK_ACK, true},
        {"extend=%ZZ", "", ND_ACK_ACK, true},
        {"ignored=%ZZ&receipt_handle=h", "h", ND_ACK_ACK, false},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        struct nd_ack_query out;
        bool bad = !cases[i].bad;
        assert_int_equal(nd_query_ack(nd_slice_str(cases[i].query), &arena, &out, &bad, NULL),
                         ND_OK);
        assert_true(is(out.receipt_handle, cases[i].handle));
        assert_int_equal(bad, cases[i].bad);
        assert_true(bad || out.extend == cases[i].extend);
    }
}

static void query_ack__refuses_bad_escapes_in_names_and_in_the_handle(void **state)
{
    static const char *const queries[] = {"receipt_handle=%ZZ", "x%ZZ=1&receipt_handle=h",
                                          "extend=9&receipt_handle=a%ZZb"};

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(queries); i++) {
        struct nd_ack_query out;
        struct nd_errmsg msg;
        bool bad;
        assert_int_equal(nd_query_ack(nd_slice_str(queries[i]), &arena, &out, &bad, &msg),
                         ND_ERR_INVALID_ARGUMENT);
        assert_string_equal(msg.text, "invalid receipt_handle: invalid URL escape \"%ZZ\"");
    }
}

/* --- numbers --- */

static void parse_int__takes_a_sign_and_digits(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"0", 0},
        {"+7", 7},
        {"-7", -7},
        {"007", 7},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        int64_t value = 1;
        assert_int_equal(nd_parse_int(nd_slice_str(cases[i].text), "f", &value, NULL), ND_OK);
        assert_true(value == cases[i].value);
    }
}

static void parse_int__refuses_the_rest(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "invalid syntax"},
        {"+", "invalid syntax"},
        {"-", "invalid syntax"},
        {" 1", "invalid syntax"},
        {"1 ", "invalid syntax"},
        {"1_000", "invalid syntax"},
        {"0x10", "invalid syntax"},
        {"1.0", "invalid syntax"},
        {"1e3", "invalid syntax"},
        {"9223372036854775808", "value out of range"},
        {"-9223372036854775809", "value out of range"},
        {"99999999999999999999x", "value out of range"},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        int64_t value;
        struct nd_errmsg msg, wanted;
        assert_int_equal(
            nd_parse_int(nd_slice_str(cases[i].text), "strconv.ParseInt", &value, &msg),
            ND_ERR_INVALID_ARGUMENT);
        nd_errmsg_set(&wanted, "strconv.ParseInt: parsing \"%s\": %s", cases[i].text, cases[i].why);
        assert_string_equal(msg.text, wanted.text);
    }
}

static void parse_duration__adds_its_parts_up(void **state)
{
    static const struct {
        const char *text;
        int64_t ns;
    } cases[] = {
        {"0", 0},
        {"+0", 0},
        {"-0", 0},
        {"10s", 10000000000},
        {"1h30m", 5400000000000},
        {"1m500ms", 60500000000},
        {"1.5s", 1500000000},
        {".5s", 500000000},
        {"1.s", 1000000000},
        {"-2s", -2000000000},
        {"+2s", 2000000000},
        {"3ns", 3},
        {"3us", 3000},
        {"3\xc2\xb5s", 3000},
        {"3\xce\xbcs", 3000},
        {"0.3333333333333333333h", 1200000000000}, /* what no longer fits changes nothing */
        {"9223372036854775807ns", INT64_MAX},
        {"-9223372036854775808ns", INT64_MIN},
        {"2562047h47m16.854775807s", INT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        int64_t ns = 1;
        assert_int_equal(nd_parse_duration(nd_slice_str(cases[i].text), &ns, NULL), ND_OK);
        assert_true(ns == cases[i].ns);
    }
}

static void parse_duration__says_what_is_wrong(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "invalid duration \"\""},
        {"-", "invalid duration \"-\""},
        {"notaduration", "invalid duration \"notaduration\""},
        {".s", "invalid duration \".s\""},
        {"1s ", "unknown unit \"s \" in duration \"1s \""},
        {" 1s", "invalid duration \" 1s\""},
        {"10", "missing unit in duration \"10\""},
        {"1s5", "missing unit in duration \"1s5\""},
        {"00", "missing unit in duration \"00\""},
        {"10x", "unknown unit \"x\" in duration \"10x\""},
        {"1S", "unknown unit \"S\" in duration \"1S\""},
        {"1d", "unknown unit \"d\" in duration \"1d\""},
        {"1e3s", "unknown unit \"e\" in duration \"1e3s\""},
        {"9223372036854775808ns", "invalid duration \"9223372036854775808ns\""},
        {"99999999999999999999s", "invalid duration \"99999999999999999999s\""},
        {"2562048h", "invalid duration \"2562048h\""},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        int64_t ns;
        struct nd_errmsg msg, wanted;
        assert_int_equal(nd_parse_duration(nd_slice_str(cases[i].text), &ns, &msg),
                         ND_ERR_INVALID_ARGUMENT);
        nd_errmsg_set(&wanted, "time: %s", cases[i].why);
        assert_string_equal(msg.text, wanted.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percent_decode__takes_escapes_of_either_case),
        cmocka_unit_test(percent_decode__copies_only_what_it_changes),
        cmocka_unit_test(percent_decode__points_at_the_bad_escape),
        cmocka_unit_test(percent_decode__tells_a_full_arena_by_no_place),
        cmocka_unit_test(query_lenient__takes_the_first_and_forgives),
        cmocka_unit_test(query_produce__reads_key_and_partition),
        cmocka_unit_test(query_produce__says_what_is_wrong),
        cmocka_unit_test(query_ack__reads_the_first_handle_and_extend),
        cmocka_unit_test(query_ack__refuses_bad_escapes_in_names_and_in_the_handle),
        cmocka_unit_test(parse_int__takes_a_sign_and_digits),
        cmocka_unit_test(parse_int__refuses_the_rest),
        cmocka_unit_test(parse_duration__adds_its_parts_up),
        cmocka_unit_test(parse_duration__says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, arena_make, arena_drop);
}
