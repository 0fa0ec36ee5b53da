#include "storage/base/alloc.h"
#include "storage/base/codec.h"

#include "cluster/command.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

enum { SAMPLES_MAX = 16 };

static void text_fill(char *to, size_t size)
{
    memset(to, 'x', size);
    to[size] = '\0';
}

/* As many grants as one user may have, and one of each action. */
static struct nd_user *user_full(void)
{
    char longest[ND_USER_PATTERN_SIZE_MAX + 1];
    char *patterns[ND_USER_GRANTS_MAX];
    struct nd_grant grants[ND_USER_GRANTS_MAX];

    text_fill(longest, ND_USER_PATTERN_SIZE_MAX - 1);
    memcpy(longest + ND_USER_PATTERN_SIZE_MAX - 1, "*", 2);
    for (uint32_t i = 0; i < ND_USER_GRANTS_MAX; i++) {
        bool admin = i % 4 == ND_ACTION_ADMIN;
        patterns[i] = longest;
        grants[i] = (struct nd_grant){(enum nd_action)(i % 4), admin ? 0 : 1, &patterns[i]};
    }
    char name[ND_USER_NAME_SIZE_MAX + 1];
    text_fill(name, ND_USER_NAME_SIZE_MAX);
    struct nd_user *user = nd_user_new(name, grants, ND_USER_GRANTS_MAX);
    text_fill(user->hash, ND_USER_HASH_SIZE_MAX);
    user->updated_at_ms = INT64_MIN;
    return user;
}

/* The five of users, each with what it carries; `out` holds references. */
static size_t user_samples(struct nd_command *out, struct nd_command base)
{
    const enum nd_command_kind kinds[] = {ND_COMMAND_USER_CREATE, ND_COMMAND_USER_SEED_ROOT,
                                          ND_COMMAND_USER_SET_GRANTS, ND_COMMAND_USER_SET_PASSWORD,
                                          ND_COMMAND_USER_DELETE};
    char pattern[] = "orders-*";
    char *patterns[] = {pattern, pattern};
    const struct nd_grant grants[] = {{ND_ACTION_PRODUCE, 2, patterns}, {ND_ACTION_ADMIN, 0, NULL}};
    size_t count = 0;

    for (; count < ND_ARRAY_SIZE(kinds); count++) {
        out[count] = base;
        out[count].kind = kinds[count];
        out[count].user = nd_user_new("ann", grants, 2);
        memcpy(out[count].user->hash, "$2b$10$hash", sizeof "$2b$10$hash");
        out[count].user->updated_at_ms = 1767225600000;
        memcpy(out[count].replaces, "$2b$10$before", sizeof "$2b$10$before");
    }
    out[count] = out[0];
    out[count++].user = user_full();
    return count;
}

static void release_all(struct nd_command *commands, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        nd_command_release(&commands[i]);
    }
}

/* One of each kind with every field set, then one of each at its limits. release_all() them. */
static size_t samples(struct nd_command *out)
{
    struct nd_command base = {.proposer = 0x1122334455667788, .sequence = 900, .open_from = 877};
    size_t count = 0;

    out[count] = base;
    out[count++].kind = ND_COMMAND_NOOP;

    out[count] = base;
    out[count].kind = ND_COMMAND_TOPIC_CREATE;
    out[count++].topic_create = (struct nd_command_topic_create){
        .request = {.name = "orders",
                    .partitions = 12,
                    .retention_ms = 604800000,
                    .visibility_timeout_ms = 30000,
                    .max_in_flight = 1024,
                    .max_acked_ahead = 2048,
                    .owner = "admin"},
        .incarnation = UINT64_MAX,
        .created_at_s = -5,
    };

    out[count] = out[1];
    text_fill(out[count].topic_create.request.name, ND_TOPIC_NAME_SIZE_MAX);
    text_fill(out[count].topic_create.request.owner, ND_TOPIC_OWNER_SIZE_MAX);
    out[count].topic_create.request.retention_ms = UINT64_MAX;
    out[count].topic_create.created_at_s = INT64_MAX;
    out[count++].sequence = UINT64_MAX;

    out[count] = base;
    out[count].kind = ND_COMMAND_TOPIC_ALTER;
    out[count++].topic_alter = (struct nd_topic_alter){.name = "orders",
                                                       .has_retention = true,
                                                       .has_max_acked_ahead = true,
                                                       .max_acked_ahead = 7,
                                                       .partitions = 9};
    out[count] = base;
    out[count].kind = ND_COMMAND_TOPIC_DELETE;
    memcpy(out[count++].topic_delete, "orders", sizeof "orders");

    out[count] = base;
    out[count].kind = ND_COMMAND_MEMBER_REGISTER;
    out[count].member_register.member = 1;
    text_fill(out[count].member_register.node_id, ND_NODE_ID_SIZE_MAX);
    text_fill(out[count++].member_register.address, ND_ADDRESS_SIZE_MAX);
    return count + user_samples(out + count, base);
}

static struct nd_buf encoded(const struct nd_command *command)
{
    struct nd_buf buf;
    nd_buf_init(&buf, ND_COMMAND_SIZE_MAX);
    nd_command_put(&buf, command);
    assert_false(nd_buf_failed(&buf));
    return buf;
}

/* A copy of exactly `size` bytes, so that ASan sees a read beyond it. `out` is to be released. */
static enum nd_err decode_exact(const uint8_t *bytes, size_t size, struct nd_command *out)
{
    uint8_t *copy = nd_xmalloc(size == 0 ? 1 : size);
    struct nd_errmsg msg;
    memcpy(copy, bytes, size);
    enum nd_err err = nd_command_get(nd_slice_make(copy, size), out, &msg);
    nd_free(copy);
    return err;
}

static void command_get__returns_what_was_put(void **state)
{
    struct nd_command commands[SAMPLES_MAX];
    size_t count = samples(commands);
    (void)state;

    for (size_t i = 0; i < count; i++) {
        struct nd_command read;
        struct nd_buf buf = encoded(&commands[i]);

        assert_int_equal(buf.size % 8, 0); /* else this libraft loses its log */
        assert_int_equal(decode_exact(buf.data, buf.size, &read), ND_OK);
        struct nd_buf again = encoded(&read);
        assert_int_equal(read.kind, commands[i].kind);
        assert_int_equal(again.size, buf.size);
        assert_memory_equal(again.data, buf.data, buf.size);
        nd_buf_release(&again);
        nd_buf_release(&buf);
        nd_command_release(&read);
    }
    struct nd_command read;
    struct nd_buf buf = encoded(&commands[1]);
    assert_int_equal(decode_exact(buf.data, buf.size, &read), ND_OK);
    assert_memory_equal(&read.topic_create, &commands[1].topic_create, sizeof read.topic_create);
    nd_buf_release(&buf);
    buf = encoded(&commands[3]);
    assert_int_equal(decode_exact(buf.data, buf.size, &read), ND_OK);
    assert_memory_equal(&read.topic_alter, &commands[3].topic_alter, sizeof read.topic_alter);
    nd_buf_release(&buf);
    release_all(commands, count);
}

static void command_get__refuses_every_truncation_and_extension(void **state)
{
    struct nd_command commands[SAMPLES_MAX];
    struct nd_command read;
    size_t count = samples(commands);
    (void)state;

    for (size_t i = 0; i < count; i++) {
        struct nd_buf buf = encoded(&commands[i]);
        for (size_t size = 0; size < buf.size; size++) {
            assert_int_equal(decode_exact(buf.data, size, &read), ND_ERR_CORRUPT);
        }
        nd_buf_put_u64(&buf, 0);
        assert_int_equal(decode_exact(buf.data, buf.size, &read), ND_ERR_CORRUPT);
        nd_buf_release(&buf);
    }
    release_all(commands, count);
}

static void command_get__survives_every_changed_byte(void **state)
{
    struct nd_command commands[SAMPLES_MAX];
    struct nd_command read;
    size_t count = samples(commands);
    (void)state;

    for (size_t i = 0; i < count; i++) {
        struct nd_buf buf = encoded(&commands[i]);
        for (size_t at = 0; at < buf.size; at++) {
            for (unsigned mask = 1; mask < 256; mask = mask * 2 + (mask == 1)) {
                buf.data[at] ^= (uint8_t)mask;
                enum nd_err err = decode_exact(buf.data, buf.size, &read);
                assert_true(err == ND_OK || err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED);
                buf.data[at] ^= (uint8_t)mask;
                if (err == ND_OK) {
                    nd_command_release(&read);
                }
            }
        }
        nd_buf_release(&buf);
    }
    release_all(commands, count);
}

static void command_get__survives_random_bodies(void **state)
{
    uint64_t rand = 1;
    struct nd_command read;
    (void)state;

    for (uint32_t round = 0; round < 50000; round++) {
        uint8_t bytes[72] = {0};
        uint32_t size = (uint32_t)nd_rand_below(&rand, 65);
        nd_put_u32(bytes, 1);
        nd_put_u32(bytes + 4, size);
        for (uint32_t i = 0; i < size; i++) {
            bytes[8 + i] = (uint8_t)nd_rand_below(&rand, 256);
        }
        enum nd_err err = decode_exact(bytes, 8 + (size + 7) / 8 * 8, &read);
        assert_true(err == ND_OK || err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED);
        if (err == ND_OK) {
            nd_command_release(&read);
        }
    }
}

static enum nd_err decode_body(const uint8_t *body, uint32_t size)
{
    uint8_t bytes[256] = {0};
    struct nd_command read;

    nd_put_u32(bytes, 1);
    nd_put_u32(bytes + 4, size);
    memcpy(bytes + 8, body, size);
    enum nd_err err = decode_exact(bytes, 8 + (size + 7) / 8 * 8, &read);
    if (err == ND_OK) {
        nd_command_release(&read);
    }
    return err;
}

static void command_get__tells_what_is_newer_from_what_is_damaged(void **state)
{
    const uint8_t noop[] = {0x82, 0x01, 0x00};                     /* field 16, empty */
    const uint8_t unknown_command[] = {0xca, 0x3e, 0x00};          /* field 1001, empty */
    const uint8_t noop_new_field[] = {0x82, 0x01, 2, 0x08, 5};     /* a field inside noop */
    const uint8_t envelope_new_field[] = {0x82, 0x01, 0, 0x78, 5}; /* field 15 */
    uint8_t newer_format[16] = {9};
    struct nd_command read;
    (void)state;

    assert_int_equal(decode_body(noop, sizeof noop), ND_OK);
    assert_int_equal(decode_body(unknown_command, sizeof unknown_command), ND_ERR_UNSUPPORTED);
    assert_int_equal(decode_body(noop_new_field, sizeof noop_new_field), ND_ERR_UNSUPPORTED);
    assert_int_equal(decode_body(envelope_new_field, sizeof envelope_new_field),
                     ND_ERR_UNSUPPORTED);
    assert_int_equal(decode_exact(newer_format, sizeof newer_format, &read), ND_ERR_UNSUPPORTED);
    assert_int_equal(decode_body(noop, 0), ND_ERR_UNSUPPORTED); /* a command that is none */
}

static void command_get__refuses_texts_that_do_not_fit(void **state)
{
    uint8_t bytes[512] = {0};
    struct nd_command read;
    (void)state;

    /* topic_delete { name: 256 bytes } */
    const uint8_t head[] = {0x9a, 0x01, 0x83, 0x02, 0x0a, 0x80, 0x02};
    uint32_t size = sizeof head + 256;
    nd_put_u32(bytes, 1);
    nd_put_u32(bytes + 4, size);
    memcpy(bytes + 8, head, sizeof head);
    memset(bytes + 8 + sizeof head, 'a', 256);

    assert_int_equal(decode_exact(bytes, 8 + (size + 7) / 8 * 8, &read), ND_ERR_CORRUPT);

    /* user_delete { name: 65 bytes }, user_seed_root { hash: 128 bytes } */
    uint8_t long_name[5 + 65] = {0xca, 0x01, 67, 0x0a, 65};
    uint8_t long_hash[7 + 128] = {0xb2, 0x01, 0x83, 0x01, 0x0a, 0x80, 0x01};
    memset(long_name + 5, 'a', 65);
    memset(long_hash + 7, 'a', 128);
    assert_int_equal(decode_body(long_name, sizeof long_name), ND_ERR_CORRUPT);
    assert_int_equal(decode_body(long_hash, sizeof long_hash), ND_ERR_CORRUPT);
}

static void expect_user(const struct nd_command *command, const char *name, const char *hash,
                        uint32_t grants_count)
{
    const struct nd_user *user = command->user;

    assert_string_equal(user->name, name);
    assert_string_equal(user->hash, hash);
    assert_int_equal(user->grants_count, grants_count);
    assert_false(user->root);
    assert_int_equal(user->created_at_ms, 0);
    assert_int_equal(user->updated_at_ms,
                     command->kind == ND_COMMAND_USER_DELETE ? 0 : 1767225600000);
    if (grants_count != 0) {
        assert_int_equal(user->grants[0].action, ND_ACTION_PRODUCE);
        assert_int_equal(user->grants[0].patterns_count, 2);
        assert_string_equal(user->grants[0].patterns[1], "orders-*");
        assert_int_equal(user->grants[1].action, ND_ACTION_ADMIN);
        assert_int_equal(user->grants[1].patterns_count, 0);
    }
}

/* I-108: there is no place for grants in a change of a password, nor the other way round. */
static void command_put__of_a_user_carries_what_its_kind_names_and_no_more(void **state)
{
    struct nd_command commands[SAMPLES_MAX];
    size_t count = user_samples(commands, (struct nd_command){.proposer = 7, .sequence = 1});
    static const struct {
        const char *name, *hash;
        uint32_t grants_count;
    } rows[] = {{"ann", "$2b$10$hash", 2},
                {"", "$2b$10$hash", 0},
                {"ann", "", 2},
                {"ann", "$2b$10$hash", 0},
                {"ann", "", 0}};
    (void)state;

    for (size_t i = 0; i < ND_ARRAY_SIZE(rows); i++) {
        struct nd_command read;
        struct nd_buf buf = encoded(&commands[i]);
        assert_int_equal(decode_exact(buf.data, buf.size, &read), ND_OK);
        assert_int_equal(read.kind, commands[i].kind);
        expect_user(&read, rows[i].name, rows[i].hash, rows[i].grants_count);
        assert_string_equal(read.replaces,
                            read.kind == ND_COMMAND_USER_SET_PASSWORD ? "$2b$10$before" : "");
        nd_command_release(&read);
        nd_buf_release(&buf);
    }
    release_all(commands, count);
}

/* The bytes of the log are frozen. */
static void command_put__of_a_user_writes_the_frozen_bytes(void **state)
{
    static const uint8_t bodies[][64] = {
        /* user_create (21): 1 name, 2 hash, 3 grants { 1 action, 2 patterns }, 4 at_ms */
        {0x09, 7,    0, 0,   0,    0,   0,    0, 0,    0x10, 1,    0xaa, 0x01,
         0x17, 0x0a, 3, 'a', 'n',  'n', 0x12, 2, '$',  'h',  0x1a, 5,    0x08,
         1,    0x12, 1, '*', 0x1a, 2,   0x08, 4, 0x20, 0xac, 0x02},
        /* user_seed_root (22): 1 hash, 2 at_ms */
        {0x09, 7, 0, 0, 0, 0, 0, 0, 0, 0x10, 1, 0xb2, 0x01, 7, 0x0a, 2, '$', 'h', 0x10, 0xac, 0x02},
        /* user_set_grants (23): 1 name, 2 grants, 3 at_ms */
        {0x09, 7,   0,    0, 0,    0, 0,    0, 0,   0x10, 1, 0xba, 0x01, 0x13, 0x0a, 3,   'a',
         'n',  'n', 0x12, 5, 0x08, 1, 0x12, 1, '*', 0x12, 2, 0x08, 4,    0x18, 0xac, 0x02},
        /* user_set_password (24): 1 name, 2 hash, 3 at_ms */
        {0x09, 7,    0, 0,   0,   0,   0,    0, 0,   0x10, 1,    0xc2, 0x01,
         0x0c, 0x0a, 3, 'a', 'n', 'n', 0x12, 2, '$', 'h',  0x18, 0xac, 0x02},
        /* user_delete (25): 1 name */
        {0x09, 7, 0, 0, 0, 0, 0, 0, 0, 0x10, 1, 0xca, 0x01, 5, 0x0a, 3, 'a', 'n', 'n'},
    };
    char star[] = "*";
    char *patterns[] = {star};
    const struct nd_grant grants[] = {{ND_ACTION_PRODUCE, 1, patterns}, {ND_ACTION_ADMIN, 0, NULL}};
    struct nd_user *user = nd_user_new("ann", grants, 2);
    (void)state;
    memcpy(user->hash, "$h", 3);
    user->updated_at_ms = 150;

    for (size_t i = 0; i < ND_ARRAY_SIZE(bodies); i++) {
        struct nd_command command = {.proposer = 7,
                                     .sequence = 1,
                                     .kind = (enum nd_command_kind)(ND_COMMAND_USER_CREATE + i),
                                     .user = user};
        struct nd_buf buf = encoded(&command);
        size_t size = nd_get_u32(buf.data + 4);
        assert_true(size <= sizeof bodies[i]);
        assert_memory_equal(buf.data + 8, bodies[i], size);
        for (size_t k = size; k < sizeof bodies[i]; k++) {
            assert_int_equal(bodies[i][k], 0); /* all of it was there */
        }
        nd_buf_release(&buf);
    }
    nd_user_unref(user);
}

/* 1 name, 2 hash, 3 at_ms, 4 replaces, which is left out where it is empty. */
static void command_put__of_a_password_says_what_it_replaces(void **state)
{
    static const uint8_t body[] = {0x09, 7,    0,   0,    0,    0, 0,    0,   0,   0x10,
                                   1,    0xc2, 1,   0x10, 0x0a, 3, 'a',  'n', 'n', 0x12,
                                   2,    '$',  'h', 0x18, 0xac, 2, 0x22, 2,   '$', 'b'};
    struct nd_command command = {
        .proposer = 7, .sequence = 1, .kind = ND_COMMAND_USER_SET_PASSWORD, .replaces = "$b"};
    (void)state;
    command.user = nd_user_new("ann", NULL, 0);
    memcpy(command.user->hash, "$h", 3);
    command.user->updated_at_ms = 150;

    struct nd_buf buf = encoded(&command);
    assert_int_equal(nd_get_u32(buf.data + 4), sizeof body);
    assert_memory_equal(buf.data + 8, body, sizeof body);
    nd_buf_release(&buf);
    assert_int_equal(nd_command_user_check(&command, NULL), ND_OK);
    memcpy(command.replaces, "no hash", 8);
    assert_int_equal(nd_command_user_check(&command, NULL), ND_ERR_INVALID_ARGUMENT);
    nd_command_release(&command);
    assert_string_equal(command.replaces, ""); /* as the hash of a user that is given up */
}

/* However long a client makes its texts: what passes the check fits. */
static void command_put__a_user_that_passes_the_check_fits_into_an_entry(void **state)
{
    uint64_t rand = 25;
    size_t largest = 0;
    (void)state;

    for (uint32_t round = 0; round < 300; round++) {
        char text[ND_USER_PATTERN_SIZE_MAX + 1];
        char *patterns[ND_USER_GRANT_PATTERNS_MAX];
        struct nd_grant grants[ND_USER_GRANTS_MAX];
        uint32_t each = 1 + (uint32_t)nd_rand_below(&rand, ND_ARRAY_SIZE(patterns));
        uint32_t grants_count = (uint32_t)nd_rand_below(&rand, ND_ARRAY_SIZE(grants) + 1);
        text_fill(text, 1 + (size_t)nd_rand_below(&rand, 1u << nd_rand_below(&rand, 9)) % 255);
        for (uint32_t i = 0; i < ND_ARRAY_SIZE(patterns); i++) {
            patterns[i] = text;
        }
        for (uint32_t i = 0; i < grants_count; i++) {
            grants[i] = (struct nd_grant){ND_ACTION_CREATE, each, patterns};
        }
        struct nd_command command = {.proposer = UINT64_MAX,
                                     .sequence = UINT64_MAX,
                                     .open_from = UINT64_MAX,
                                     .kind = ND_COMMAND_USER_CREATE};
        char name[ND_USER_NAME_SIZE_MAX + 1];
        text_fill(name, ND_USER_NAME_SIZE_MAX);
        command.user = nd_user_new(name, grants, grants_count);
        text_fill(command.user->hash, ND_USER_HASH_SIZE_MAX);
        command.user->updated_at_ms = INT64_MIN;

        if (nd_command_user_check(&command, NULL) == ND_OK) {
            struct nd_buf buf = encoded(&command);
            largest = ND_MAX(largest, buf.size);
            nd_buf_release(&buf);
        }
        nd_command_release(&command);
    }
    assert_true(largest > ND_USER_GRANTS_BYTES_MAX / 2); /* else it proves little */
    assert_true(largest < ND_USER_GRANTS_BYTES_MAX + 2048);
}

static void command_get__stops_at_an_action_it_does_not_know(void **state)
{
    /* user_set_grants { name: "a" grants { action: <last byte> } } */
    uint8_t body[] = {0xba, 0x01, 7, 0x0a, 1, 'a', 0x12, 2, 0x08, 0};
    const uint8_t grant_new_field[] = {0xba, 0x01, 9, 0x0a, 1, 'a', 0x12, 4, 0x08, 1, 0x18, 1};
    const uint8_t create_new_field[] = {0xaa, 0x01, 2, 0x28, 1};
    (void)state;

    for (uint8_t action = 0; action < 8; action++) {
        body[sizeof body - 1] = action;
        assert_int_equal(decode_body(body, sizeof body),
                         action >= 1 && action <= 4 ? ND_OK : ND_ERR_UNSUPPORTED);
    }
    assert_int_equal(decode_body(grant_new_field, sizeof grant_new_field), ND_ERR_UNSUPPORTED);
    assert_int_equal(decode_body(create_new_field, sizeof create_new_field), ND_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_get__returns_what_was_put),
        cmocka_unit_test(command_get__refuses_every_truncation_and_extension),
        cmocka_unit_test(command_get__survives_every_changed_byte),
        cmocka_unit_test(command_get__survives_random_bodies),
        cmocka_unit_test(command_get__tells_what_is_newer_from_what_is_damaged),
        cmocka_unit_test(command_get__refuses_texts_that_do_not_fit),
        cmocka_unit_test(command_put__of_a_user_carries_what_its_kind_names_and_no_more),
        cmocka_unit_test(command_put__of_a_user_writes_the_frozen_bytes),
        cmocka_unit_test(command_put__of_a_password_says_what_it_replaces),
        cmocka_unit_test(command_put__a_user_that_passes_the_check_fits_into_an_entry),
        cmocka_unit_test(command_get__stops_at_an_action_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
