#include "cluster/topic.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static const char pattern_text[] =
    "invalid argument: topic name must match ^[A-Za-z0-9._-]{1,255}$";

static void topic_name_check__answers_the_texts_of_the_contract(void **state)
{
    char longest[ND_TOPIC_NAME_SIZE_MAX + 2];
    memset(longest, 'a', sizeof longest);
    const struct {
        struct nd_slice name;
        const char *text; /* NULL: good */
    } rows[] = {
        {nd_slice_str("orders"), NULL},
        {nd_slice_str("A.b_c-9"), NULL},
        {nd_slice_str("..."), NULL},
        {nd_slice_str("a"), NULL},
        {nd_slice_make(longest, 255), NULL},
        {nd_slice_make(longest, 256), pattern_text},
        {nd_slice_str(""), "invalid argument: name required"},
        {nd_slice_str("."), "invalid argument: topic name must not be \".\""},
        {nd_slice_str(".."), "invalid argument: topic name must not be \"..\""},
        {nd_slice_str("../etc"), pattern_text},
        {nd_slice_str("a/b"), pattern_text},
        {nd_slice_str("a b"), pattern_text},
        {nd_slice_str("a\\b"), pattern_text},
        {nd_slice_str("caf\xc3\xa9"), pattern_text},
        {nd_slice_make("a\0b", 3), pattern_text},
        {nd_slice_make("\0", 1), pattern_text},
        {nd_slice_str("a\n"), pattern_text},
        {nd_slice_str("*"), pattern_text},
    };
    (void)state;

    for (size_t i = 0; i < ND_ARRAY_SIZE(rows); i++) {
        struct nd_errmsg msg = {""};
        enum nd_err err = nd_topic_name_check(rows[i].name, &msg);

        assert_int_equal(err, rows[i].text == NULL ? ND_OK : ND_ERR_INVALID_ARGUMENT);
        assert_string_equal(msg.text, rows[i].text == NULL ? "" : rows[i].text);
        assert_int_equal(nd_topic_name_check(rows[i].name, NULL), err);
    }
}

/* I-106. The oracle says it the other way round: what a path could do harm with. */
static void topic_name_traversal_fuzz(void **state)
{
    static const char alphabet[] = "./\\ab-_\0~:%\x7f\xff";
    uint64_t rand = 106;
    uint32_t good = 0;
    (void)state;

    for (uint32_t round = 0; round < 200000; round++) {
        char name[8];
        size_t size = nd_rand_below(&rand, sizeof name + 1);
        bool harmless = size > 0;
        for (size_t i = 0; i < size; i++) {
            name[i] = alphabet[nd_rand_below(&rand, sizeof alphabet - 1)];
            harmless =
                harmless && strchr("./ab-_", name[i]) != NULL && name[i] != '\0' && name[i] != '/';
        }
        struct nd_slice slice = nd_slice_make(name, size);
        harmless = harmless && !nd_slice_equal(slice, nd_slice_str(".")) &&
                   !nd_slice_equal(slice, nd_slice_str(".."));

        assert_int_equal(nd_topic_name_check(slice, NULL),
                         harmless ? ND_OK : ND_ERR_INVALID_ARGUMENT);
        good += harmless ? 1 : 0;
    }
    assert_true(good > 100);
}

static void topic_ref__keeps_the_record_until_the_last_unref(void **state)
{
    struct nd_topic *topic = nd_topic_new(3);
    (void)state;

    const struct nd_topic *mine = nd_topic_ref(topic);
    topic->owners[2] = 7;
    nd_topic_unref(topic);

    assert_int_equal(mine->owners[0], 0);
    assert_int_equal(mine->owners[2], 7); /* ASan would know */
    nd_topic_unref(mine);
    nd_topic_unref(NULL);
    assert_null(nd_topic_ref(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topic_name_check__answers_the_texts_of_the_contract),
        cmocka_unit_test(topic_name_traversal_fuzz),
        cmocka_unit_test(topic_ref__keeps_the_record_until_the_last_unref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
