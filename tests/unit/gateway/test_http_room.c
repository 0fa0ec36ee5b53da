#include "gateway/http_room.h"
#include "tests/support/nd_test.h"

enum { MAX = 64, BODY = 16 }; /* mebibytes, say */

static uint64_t who(const struct nd_http_room *room, const char *name)
{
    return nd_http_room_identity(room, nd_slice_str(name));
}

static void room__is_taken_up_to_its_end(void **state)
{
    struct nd_http_room *room = nd_http_room_new(MAX, BODY);
    uint64_t a = who(room, "a"), b = who(room, "b"), c = who(room, "c");

    (void)state;
    assert_true(nd_http_room_take(room, a, 30));
    assert_true(nd_http_room_take(room, b, 30));
    assert_true(nd_http_room_fits(room, c, 4));
    assert_false(nd_http_room_fits(room, c, 5));
    assert_false(nd_http_room_take(room, c, 5)); /* and takes nothing */
    assert_true(nd_http_room_take(room, c, 4));
    assert_false(nd_http_room_take(room, c, 1));
    nd_http_room_give(room, b, 10);
    assert_true(nd_http_room_take(room, c, 10));
    nd_http_room_give(room, a, 30);
    nd_http_room_give(room, b, 20);
    nd_http_room_give(room, c, 14);
    nd_http_room_free(room); /* asserts that nothing is left */
}

static void room__is_half_for_one_identity(void **state)
{
    struct nd_http_room *room = nd_http_room_new(MAX, BODY);
    uint64_t a = who(room, "a"), b = who(room, "b");

    (void)state;
    assert_int_not_equal(a, b);
    assert_true(nd_http_room_take(room, a, MAX / 2));
    assert_false(nd_http_room_take(room, a, 1));
    assert_false(nd_http_room_fits(room, a, 1));
    assert_true(nd_http_room_take(room, b, MAX / 2));
    nd_http_room_give(room, a, 1);
    assert_false(nd_http_room_take(room, b, 1)); /* there is one, but not for b */
    assert_true(nd_http_room_take(room, a, 1));
    nd_http_room_give(room, a, MAX / 2);
    nd_http_room_give(room, b, MAX / 2);
    nd_http_room_give(room, b, 0); /* of who has none */
    nd_http_room_free(room);
}

static void room__is_one_whole_body_where_half_is_less(void **state)
{
    struct nd_http_room *room = nd_http_room_new(BODY + 4, BODY);
    uint64_t a = who(room, "a");

    (void)state;
    assert_true(nd_http_room_take(room, a, BODY));
    assert_false(nd_http_room_take(room, a, 1));
    assert_true(nd_http_room_take(room, who(room, "b"), 4));
    nd_http_room_give(room, a, BODY);
    nd_http_room_give(room, who(room, "b"), 4);
    nd_http_room_free(room);
    room = nd_http_room_new(BODY / 2, BODY); /* set so that no whole body fits */
    assert_true(nd_http_room_take(room, who(room, "a"), BODY / 2));
    assert_false(nd_http_room_take(room, who(room, "a"), 1));
    nd_http_room_give(room, who(room, "a"), BODY / 2);
    nd_http_room_free(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room__is_taken_up_to_its_end),
        cmocka_unit_test(room__is_half_for_one_identity),
        cmocka_unit_test(room__is_one_whole_body_where_half_is_less),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
