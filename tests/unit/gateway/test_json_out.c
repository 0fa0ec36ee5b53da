#include <stdio.h>

#include "gateway/json_out.h"
#include "tests/support/nd_test.h"

static struct nd_buf out;

static int setup(void **state)
{
    (void)state;
    nd_buf_init(&out, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    nd_buf_release(&out);
    return 0;
}

static void assert_out(const char *want)
{
    nd_buf_put_u8(&out, 0);
    assert_false(nd_buf_failed(&out));
    assert_string_equal((const char *)out.data, want);
    nd_buf_reset(&out);
}

static ProtobufCBinaryData bytes(char *text, size_t size)
{
    return (ProtobufCBinaryData){size, (uint8_t *)text};
}

static void message__members_stand_in_their_order(void **state)
{
    Narad__V1__Message message = NARAD__V1__MESSAGE__INIT;
    char key[] = "k\"", payload[] = " {\"a\":1.0, \"a\" : 2} ", handle[] = "1:2:3";
    (void)state;
    message.partition = 1;
    message.offset = UINT64_MAX;
    message.key = bytes(key, 2);
    message.payload = bytes(payload, sizeof payload - 1);
    message.timestamp_ms = 1999;
    message.receipt_handle = handle;

    nd_json_put_message(&out, "t", &message);

    assert_out(
        "{\"topic\":\"t\",\"partition\":1,\"offset\":18446744073709551615,\"key\":\"k\\\"\","
        "\"payload\": {\"a\":1.0, \"a\" : 2} ,\"timestamp\":1,\"receipt_handle\":\"1:2:3\"}");
}

static void message__payload_is_json_text_or_base64(void **state)
{
    static const struct {
        const char *payload;
        size_t size;
        const char *want;
    } cases[] = {
        {"42", 2, "42"},
        {"null", 4, "null"},
        {"hi", 2, "\"hi\""},
        {"{} {}", 5, "\"{} {}\""},
        {"a\nb", 3, "\"a\\nb\""},
        {"\x00\xff\x8a\x01", 4, "\"AP+KAQ==\",\"payload_encoding\":\"base64\""},
        {"\"\xff\"", 3, "\"Iv8i\",\"payload_encoding\":\"base64\""},
        {"", 0, "null"},
    };
    (void)state;

    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        Narad__V1__Message message = NARAD__V1__MESSAGE__INIT;
        char payload[16], want[200];
        memcpy(payload, cases[i].payload, cases[i].size);
        message.payload = bytes(payload, cases[i].size);
        nd_json_put_message(&out, "t", &message);
        snprintf(want, sizeof want,
                 "{\"topic\":\"t\",\"partition\":0,\"offset\":0,\"payload\":%s,\"timestamp\":0}",
                 cases[i].want);
        assert_out(want);
    }
}

static void message__a_key_that_is_no_text_is_base64(void **state)
{
    Narad__V1__Message message = NARAD__V1__MESSAGE__INIT;
    char key[] = "\xff", payload[] = "1";
    (void)state;
    message.key = bytes(key, 1);
    message.payload = bytes(payload, 1);
    message.timestamp_ms = -1;

    nd_json_put_message(&out, "t", &message);

    assert_out("{\"topic\":\"t\",\"partition\":0,\"offset\":0,\"key\":\"/w==\",\"key_encoding\":"
               "\"base64\",\"payload\":1,\"timestamp\":-1}");
}

static void topic__leaves_out_what_is_empty(void **state)
{
    Narad__V1__Topic topic = NARAD__V1__TOPIC__INIT;
    char name[] = "t", role[] = "standalone", owner[] = "o";
    (void)state;
    topic.name = name;
    topic.role = role;
    topic.partitions = 3;

    nd_json_put_topic(&out, &topic, false);
    assert_out("{\"name\":\"t\",\"partitions\":3,\"retention_ms\":0,\"visibility_timeout_ms\":0,"
               "\"max_in_flight_per_partition\":0,\"max_acked_ahead_per_partition\":0,"
               "\"created_at\":0}");
    topic.owner = owner;
    nd_json_put_topic(&out, &topic, true);
    assert_out("{\"name\":\"t\",\"partitions\":3,\"retention_ms\":0,\"visibility_timeout_ms\":0,"
               "\"max_in_flight_per_partition\":0,\"max_acked_ahead_per_partition\":0,"
               "\"created_at\":0,\"owner\":\"o\",\"role\":\"standalone\"}");
}

static void lists__are_there_when_empty(void **state)
{
    Narad__V1__ListTopicsResponse topics = NARAD__V1__LIST_TOPICS_RESPONSE__INIT;
    Narad__V1__ListUsersResponse users = NARAD__V1__LIST_USERS_RESPONSE__INIT;
    (void)state;

    nd_json_put_topics(&out, &topics);
    assert_out("{\"next_page_token\":\"\",\"topics\":[]}");
    nd_json_put_users(&out, &users);
    assert_out("[]");
}

static void user__shows_grants_and_nothing_of_the_password(void **state)
{
    char name[] = "u", produce[] = "produce", admin[] = "admin", a[] = "a-*", b[] = "b";
    char *patterns[] = {a, b};
    Narad__V1__Grant scoped = NARAD__V1__GRANT__INIT, all = NARAD__V1__GRANT__INIT;
    Narad__V1__Grant *grants[] = {&scoped, &all};
    Narad__V1__User user = NARAD__V1__USER__INIT;
    (void)state;
    scoped.action = produce;
    scoped.patterns = patterns;
    scoped.n_patterns = 2;
    all.action = admin;
    user.username = name;
    user.grants = grants;
    user.n_grants = 2;
    user.created_at_ms = 5;

    nd_json_put_user(&out, &user);
    assert_out(
        "{\"username\":\"u\",\"grants\":[{\"action\":\"produce\",\"patterns\":[\"a-*\",\"b\"]},"
        "{\"action\":\"admin\"}],\"created_at_ms\":5}");
    user.n_grants = 0;
    user.root = true;
    nd_json_put_user(&out, &user);
    assert_out("{\"username\":\"u\",\"root\":true,\"created_at_ms\":5}");
}

static void text__that_is_no_utf8_is_mended(void **state)
{
    (void)state;

    nd_json_put_text(&out, "a\xff");
    assert_out("\"a\xef\xbf\xbd\"");
    nd_json_put_text(&out, NULL);
    assert_out("\"\"");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(message__members_stand_in_their_order),
        CASE(message__payload_is_json_text_or_base64),
        CASE(message__a_key_that_is_no_text_is_base64),
        CASE(topic__leaves_out_what_is_empty),
        CASE(lists__are_there_when_empty),
        CASE(user__shows_grants_and_nothing_of_the_password),
        CASE(text__that_is_no_utf8_is_mended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
