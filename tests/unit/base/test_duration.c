#include "storage/base/compiler.h"
#include "storage/base/duration.h"

#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static void duration_parse__reads_what_people_write(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {
        {"0", 0},           {"0s", 0},         {"10s", 10000},     {"500ms", 500},
        {"1h30m", 5400000}, {"1.5h", 5400000}, {"90m", 5400000},   {"1000us", 1},
        {"2000000ns", 2},   {".5s", 500},      {"1m1s1ms", 61001}, {"0.001s", 1},
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        uint64_t ms = 77;
        assert_true(nd_duration_parse(cases[i].text, &ms));
        assert_int_equal(ms, cases[i].ms);
    }
}

static void duration_parse__refuses_the_rest_and_writes_nothing(void **state)
{
    static const char *const texts[] = {
        "",
        "10",
        "-1s",
        "+1s",
        "1 s",
        "s",
        ".s",
        "1sx",
        "1S",
        "1d",
        "1us",
        "1.5ms",
        "1s ",
        "1,5s",
        "1..5s",
        "99999999999999999999s",
        "99999999999h",
    };

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(texts); i++) {
        uint64_t ms = 77;
        assert_false(nd_duration_parse(texts[i], &ms));
        assert_int_equal(ms, 77);
    }
}

static void duration_put__is_read_back(void **state)
{
    uint64_t seed = 1;
    char text[64];

    (void)state;
    assert_int_equal(nd_duration_put(text, sizeof text, 90000), 5);
    assert_string_equal(text, "1m30s");
    for (int i = 0; i < 1000; i++) {
        uint64_t ms = nd_rand(&seed) >> (24 + i % 40), back = 0;
        ms = i % 2 == 0 ? ms / 1000 * 1000 : ms;
        assert_true(nd_duration_put(text, sizeof text, ms) < sizeof text);
        assert_true(nd_duration_parse(text, &back));
        assert_true(back == ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duration_parse__reads_what_people_write),
        cmocka_unit_test(duration_parse__refuses_the_rest_and_writes_nothing),
        cmocka_unit_test(duration_put__is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
