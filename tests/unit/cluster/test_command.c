#include "storage/base/alloc.h"
#include "storage/base/codec.h"

#include "cluster/command.h"
#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

static void text_fill(char *to, size_t size)
{
    memset(to, 'x', size);
    to[size] = '\0';
}

/* One of each kind with every field set, then one of each at its limits. */
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
    return count;
}

static struct nd_buf encoded(const struct nd_command *command)
{
    struct nd_buf buf;
    nd_buf_init(&buf, ND_COMMAND_SIZE_MAX);
    nd_command_put(&buf, command);
    assert_false(nd_buf_failed(&buf));
    return buf;
}

/* A copy of exactly `size` bytes, so that ASan sees a read beyond it. */
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
    struct nd_command commands[8];
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
}

static void command_get__refuses_every_truncation_and_extension(void **state)
{
    struct nd_command commands[8];
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
}

static void command_get__survives_every_changed_byte(void **state)
{
    struct nd_command commands[8];
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
            }
        }
        nd_buf_release(&buf);
    }
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
    }
}

static enum nd_err decode_body(const uint8_t *body, uint32_t size)
{
    uint8_t bytes[128] = {0};
    struct nd_command read;

    nd_put_u32(bytes, 1);
    nd_put_u32(bytes + 4, size);
    memcpy(bytes + 8, body, size);
    return decode_exact(bytes, 8 + (size + 7) / 8 * 8, &read);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
