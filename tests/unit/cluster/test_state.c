#include <stdio.h>

#include "storage/base/alloc.h"

#include "cluster/snapshot.h"
#include "cluster/state.h"
#include "tests/support/nd_test.h"
#include "tests/unit/cluster/commands.h"

struct fixture {
    struct nd_state state;
    struct nd_outcome outcome;
    uint64_t index;
};

static int setup(void **state)
{
    struct fixture *fixture = nd_xcalloc(1, sizeof *fixture);
    nd_state_init(&fixture->state);
    fixture->outcome.text = "";
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    nd_outcome_release(&fixture->outcome);
    nd_state_release(&fixture->state);
    nd_free(fixture);
    return 0;
}

static enum nd_err apply(struct fixture *fixture, struct nd_command command)
{
    nd_outcome_release(&fixture->outcome);
    nd_state_apply(&fixture->state, &command, ++fixture->index, &fixture->outcome);
    return fixture->outcome.err;
}

static const struct nd_topic *find(struct fixture *fixture, const char *name)
{
    return nd_topic_table_find(fixture->state.table, nd_slice_str(name));
}

static void state_apply__creates_with_an_owner_for_each_partition(void **state)
{
    struct fixture *fixture = *state;
    apply(fixture, command_register(1, 30, "node-b"));
    apply(fixture, command_register(2, 20, "node-c"));
    apply(fixture, command_register(3, 40, "node-a"));

    assert_int_equal(apply(fixture, command_create(4, "orders", 5)), ND_OK);

    const struct nd_topic *topic = find(fixture, "orders");
    const uint64_t owners[] = {40, 30, 20, 40, 30}; /* p mod 3 of node-a, node-b, node-c */
    assert_non_null(topic);
    assert_ptr_equal(fixture->outcome.after, topic);
    assert_null(fixture->outcome.before);
    assert_memory_equal(topic->owners, owners, sizeof owners);
    assert_int_equal(topic->incarnation, 1004);
    assert_int_equal(topic->version, 4); /* three registrations came before */
    assert_int_equal(topic->created_at_s, 1767225600);
    assert_string_equal(topic->owner, "ann");
}

static void state_apply__assigns_once(void **state)
{
    struct fixture *fixture = *state;
    apply(fixture, command_create(1, "early", 2)); /* nobody there yet */
    apply(fixture, command_register(2, 30, "node-b"));
    apply(fixture, command_create(3, "orders", 2));
    apply(fixture, command_register(4, 20, "node-a"));

    assert_int_equal(find(fixture, "early")->owners[0], 0);
    assert_int_equal(apply(fixture, command_alter_partitions(5, "orders", 4)), ND_OK);

    const uint64_t owners[] = {30, 30, 20, 30}; /* I-91: what was assigned stays */
    assert_memory_equal(find(fixture, "orders")->owners, owners, sizeof owners);
}

static void state_apply__refuses_without_changing_anything(void **state)
{
    struct fixture *fixture = *state;
    struct nd_command command;
    apply(fixture, command_create(1, "orders", 3));
    const struct nd_topic *topic = find(fixture, "orders");
    uint64_t changes = fixture->state.changes;

    assert_int_equal(apply(fixture, command_create(2, "orders", 3)), ND_ERR_TOPIC_EXISTS);
    assert_string_equal(fixture->outcome.text, "topic already exists");
    assert_int_equal(apply(fixture, command_delete(3, "other")), ND_ERR_TOPIC_NOT_FOUND);
    assert_int_equal(apply(fixture, command_alter_partitions(4, "other", 9)),
                     ND_ERR_TOPIC_NOT_FOUND);
    assert_int_equal(apply(fixture, command_alter_partitions(5, "orders", 3)),
                     ND_ERR_INVALID_ARGUMENT);
    assert_string_equal(fixture->outcome.text,
                        "invalid argument: new partition count (3) must be greater than current "
                        "(3); decrease is not supported");
    assert_int_equal(apply(fixture, command_create(6, "a/b", 3)), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(apply(fixture, command_create(7, "zero", 0)), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(apply(fixture, command_create(8, "many", ND_TOPIC_PARTITIONS_LIMIT + 1)),
                     ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(
        apply(fixture, command_alter_partitions(9, "orders", ND_TOPIC_PARTITIONS_LIMIT + 1)),
        ND_ERR_INVALID_ARGUMENT);
    command = command_create(10, "open", 3);
    command.topic_create.request.max_in_flight = 0;
    assert_int_equal(apply(fixture, command), ND_ERR_INVALID_ARGUMENT);
    command = command_create(11, "open", 3);
    command.topic_create.incarnation = 0;
    assert_int_equal(apply(fixture, command), ND_ERR_INVALID_ARGUMENT);
    assert_int_equal(apply(fixture, command_register(12, 0, "node-a")), ND_ERR_INVALID_ARGUMENT);
    assert_null(fixture->outcome.before);
    assert_null(fixture->outcome.after);

    assert_int_equal(nd_topic_table_count(fixture->state.table), 1);
    assert_ptr_equal(find(fixture, "orders"), topic);
    assert_int_equal(fixture->state.changes, changes);
    assert_int_equal(fixture->state.commands, 12); /* refusals count as applied */
    assert_int_equal(fixture->state.applied_index, 12);
}

static void state_apply__gives_a_recreated_topic_a_new_incarnation_and_version(void **state)
{
    struct fixture *fixture = *state;
    apply(fixture, command_create(1, "orders", 3));
    uint64_t version = find(fixture, "orders")->version;

    assert_int_equal(apply(fixture, command_delete(2, "orders")), ND_OK);
    assert_int_equal(fixture->outcome.before->incarnation, 1001);
    assert_null(fixture->outcome.after);
    assert_null(find(fixture, "orders"));
    assert_int_equal(apply(fixture, command_create(3, "orders", 3)), ND_OK);

    assert_int_equal(find(fixture, "orders")->incarnation, 1003);
    assert_true(find(fixture, "orders")->version > version + 1);
}

static void state_apply__alters_only_what_is_named(void **state)
{
    struct fixture *fixture = *state;
    struct nd_command command = command_alter_partitions(2, "orders", 0);
    apply(fixture, command_create(1, "orders", 3));
    const struct nd_topic *before = nd_topic_ref(find(fixture, "orders"));
    command.topic_alter.has_max_in_flight = true;
    command.topic_alter.max_in_flight = 99;

    assert_int_equal(apply(fixture, command), ND_OK);

    const struct nd_topic *after = find(fixture, "orders");
    assert_ptr_equal(fixture->outcome.before, before);
    assert_int_equal(after->max_in_flight, 99);
    assert_int_equal(before->max_in_flight, 10); /* a record never changes */
    assert_int_equal(after->max_acked_ahead, 20);
    assert_int_equal(after->retention_ms, 3600000);
    assert_int_equal(after->partitions, 3);
    assert_int_equal(after->incarnation, before->incarnation);
    assert_true(after->version > before->version);
    nd_topic_unref(before);
}

static void state_apply__applies_a_repeat_once(void **state)
{
    struct fixture *fixture = *state;
    struct nd_command create = command_create(1, "orders", 3);
    struct nd_command refused = command_create(2, "orders", 3);
    apply(fixture, create);
    refused.open_from = 1;
    apply(fixture, refused);
    struct nd_command delete = command_delete(3, "orders");
    delete.open_from = 1;
    apply(fixture, delete);

    assert_int_equal(apply(fixture, create), ND_OK); /* its own answer, though it is gone */
    assert_true(fixture->outcome.repeat);
    assert_null(fixture->outcome.after);
    assert_null(find(fixture, "orders"));
    assert_int_equal(apply(fixture, refused), ND_ERR_TOPIC_EXISTS);
    assert_true(fixture->outcome.repeat);
    assert_int_equal(apply(fixture, delete), ND_OK);
    assert_null(find(fixture, "orders"));
}

static void state_apply__takes_late_numbers_but_not_those_given_up(void **state)
{
    struct fixture *fixture = *state;
    struct nd_command late = command_create(2, "late", 3);
    struct nd_command last = command_create(5, "last", 3);
    late.open_from = 2;
    last.open_from = 2;

    assert_int_equal(apply(fixture, last), ND_OK);
    assert_int_equal(apply(fixture, late), ND_OK); /* overtaken, not lost */
    assert_false(fixture->outcome.repeat);
    struct nd_command given_up = command_create(4, "given-up", 3);
    given_up.open_from = 4;
    last = command_create(6, "settled", 3);
    last.open_from = 6;
    assert_int_equal(apply(fixture, last), ND_OK);

    assert_int_equal(apply(fixture, given_up), ND_ERR_UNKNOWN_OUTCOME);
    assert_null(find(fixture, "given-up"));
    assert_non_null(find(fixture, "late"));
}

static void state_apply__bounds_the_window_and_the_rows(void **state)
{
    struct fixture *fixture = *state;
    struct nd_command command = command_create(ND_DEDUPE_WINDOW + 1, "wide", 3);
    command.open_from = 1;
    assert_int_equal(apply(fixture, command), ND_ERR_INVALID_ARGUMENT);
    command.proposer = 0;
    command.open_from = command.sequence;
    assert_int_equal(apply(fixture, command), ND_ERR_INVALID_ARGUMENT);
    command = command_create(1, "backwards", 3);
    command.open_from = 2;
    assert_int_equal(apply(fixture, command), ND_ERR_INVALID_ARGUMENT);

    for (uint64_t sequence = 1; sequence <= ND_DEDUPE_WINDOW; sequence++) {
        command = command_delete(sequence, "nothing");
        command.open_from = 1;
        assert_int_equal(apply(fixture, command), ND_ERR_TOPIC_NOT_FOUND);
    }
    assert_int_equal(fixture->state.dedupe.rows[0].outcomes_count, ND_DEDUPE_WINDOW);
    for (uint64_t proposer = 1; proposer <= 2 * ND_DEDUPE_ROWS_MAX; proposer++) {
        command = command_delete(1, "nothing");
        command.proposer = 1000 + proposer;
        apply(fixture, command);
    }

    assert_int_equal(fixture->state.dedupe.rows_count, ND_DEDUPE_ROWS_MAX);
    assert_int_equal(fixture->state.dedupe.rows[0].proposer, 1001 + ND_DEDUPE_ROWS_MAX);
}

static void member_register__changes_nothing_when_nothing_is_new(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(apply(fixture, command_register(1, 30, "node-a")), ND_OK);
    assert_true(fixture->outcome.members_changed);
    uint64_t changes = fixture->state.changes;

    assert_int_equal(apply(fixture, command_register(2, 30, "node-a")), ND_OK); /* I-96 */
    assert_false(fixture->outcome.members_changed);
    assert_int_equal(fixture->state.changes, changes);
    assert_int_equal(apply(fixture, command_register(3, 31, "node-a")), ND_ERR_CONFLICT);
    assert_int_equal(apply(fixture, command_register(4, 30, "node-b")), ND_OK);
    assert_string_equal(nd_state_member(&fixture->state, 30)->node_id, "node-b");
    assert_null(nd_state_member(&fixture->state, 31));
}

/* I-86 */
static void fsm_replay_identical(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 5; seed++) {
        struct nd_state states[2];
        struct nd_buf bytes[2];
        /* The second is restored from its own snapshot every 97 entries. */
        for (int which = 0; which < 2; which++) {
            struct command_source source = {.rand = seed};
            nd_state_init(&states[which]);
            nd_buf_init(&bytes[which], 16 << 20);
            for (uint64_t index = 1; index <= 4000; index++) {
                struct nd_command command = command_next(&source);
                struct nd_outcome outcome;
                nd_state_apply(&states[which], &command, index, &outcome);
                nd_outcome_release(&outcome);
                nd_command_release(&command);
                if (which == 1 && index % 97 == 0) {
                    nd_buf_reset(&bytes[1]);
                    nd_snapshot_put(&bytes[1], &states[1]);
                    nd_state_release(&states[1]);
                    nd_state_init(&states[1]);
                    assert_int_equal(nd_snapshot_get(nd_buf_slice(&bytes[1]), &states[1], NULL),
                                     ND_OK);
                }
            }
            nd_buf_reset(&bytes[which]);
            nd_snapshot_put(&bytes[which], &states[which]);
        }

        assert_true(nd_topic_table_count(states[0].table) > 5);
        assert_true(nd_user_table_count(states[0].users) > 1);
        assert_true(states[0].changes > 500);
        assert_int_equal(bytes[0].size, bytes[1].size);
        assert_memory_equal(bytes[0].data, bytes[1].data, bytes[0].size);
        for (int which = 0; which < 2; which++) {
            nd_buf_release(&bytes[which]);
            nd_state_release(&states[which]);
        }
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(state_apply__creates_with_an_owner_for_each_partition),
        CASE(state_apply__assigns_once),
        CASE(state_apply__refuses_without_changing_anything),
        CASE(state_apply__gives_a_recreated_topic_a_new_incarnation_and_version),
        CASE(state_apply__alters_only_what_is_named),
        CASE(state_apply__applies_a_repeat_once),
        CASE(state_apply__takes_late_numbers_but_not_those_given_up),
        CASE(state_apply__bounds_the_window_and_the_rows),
        CASE(member_register__changes_nothing_when_nothing_is_new),
        cmocka_unit_test(fsm_replay_identical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
