#include "server/rpc/budgets.h"
#include "tests/support/nd_test.h"

static int resumed;

static void resume(struct nd_budget_waiter *waiter)
{
    (void)waiter;
    resumed++;
}

static void waiter_init(struct nd_budget_waiter *waiter)
{
    nd_list_init(&waiter->link);
    waiter->resume = resume;
    resumed = 0;
}

static void budget_take__refuses_beyond_the_limit_and_takes_nothing_then(void **state)
{
    (void)state;
    struct nd_budget b;
    struct nd_errmsg msg = {""};
    nd_budget_init(&b, "things", 100, 150);

    assert_true(nd_budget_take(&b, 60));
    assert_false(nd_budget_take(&b, 41));
    assert_true(nd_budget_take(&b, 40));
    assert_true(nd_budget_take_hard(&b, 50));
    assert_false(nd_budget_take_hard(&b, 1));
    nd_budget_errmsg(&b, b.hard, &msg);
    assert_string_equal(msg.text, "too many things under way: at most 150 at a time");

    nd_budget_give(&b, 150);
    nd_budget_release(&b);
}

static void budget_take__lets_one_too_large_request_into_an_empty_budget(void **state)
{
    (void)state;
    struct nd_budget b;
    nd_budget_init(&b, "things", 100, 150);

    assert_true(nd_budget_take(&b, 1000));
    assert_false(nd_budget_take(&b, 1));

    nd_budget_give(&b, 1000);
    nd_budget_release(&b);
}

static void budget_wait__resumes_when_room_is_given_back(void **state)
{
    (void)state;
    struct nd_budget b;
    struct nd_budget_waiter waiter;
    nd_budget_init(&b, "things", 100, 150);
    waiter_init(&waiter);
    assert_true(nd_budget_wait(&b, &waiter));
    assert_true(nd_budget_take(&b, 100));

    assert_false(nd_budget_wait(&b, &waiter));
    assert_int_equal(resumed, 0);
    nd_budget_give(&b, 1);
    assert_int_equal(resumed, 1);
    nd_budget_give(&b, 99);
    assert_int_equal(resumed, 1);

    nd_budget_release(&b);
}

static void budget_forget__never_resumes_what_went(void **state)
{
    (void)state;
    struct nd_budget b;
    struct nd_budget_waiter waiter;
    nd_budget_init(&b, "things", 100, 150);
    waiter_init(&waiter);
    assert_true(nd_budget_take(&b, 100));
    assert_false(nd_budget_wait(&b, &waiter));

    nd_budget_forget(&b, &waiter);
    nd_budget_forget(&b, &waiter);
    nd_budget_give(&b, 100);

    assert_int_equal(resumed, 0);
    nd_budget_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budget_take__refuses_beyond_the_limit_and_takes_nothing_then),
        cmocka_unit_test(budget_take__lets_one_too_large_request_into_an_empty_budget),
        cmocka_unit_test(budget_wait__resumes_when_room_is_given_back),
        cmocka_unit_test(budget_forget__never_resumes_what_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
