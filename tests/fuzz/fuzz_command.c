/* Commands of the metadata as the Raft log holds them. The input is a row of bodies, each u16 size
 * and bytes; frame and padding are put right. What decodes is written again, and applied to one
 * state, whose snapshot must stay one. */
#include "cluster/command.h"
#include "cluster/snapshot.h"
#include "tests/fuzz/fuzz.h"

enum { HEADER_SIZE = 8, ALIGNMENT = 8, FORMAT = 1, COMMANDS_MAX = 64 };

static void entry_put(struct nd_buf *out, struct nd_slice body)
{
    nd_buf_put_u32(out, FORMAT);
    nd_buf_put_u32(out, (uint32_t)body.size);
    nd_buf_put_slice(out, body);
    while (out->size % ALIGNMENT != 0) {
        nd_buf_put_u8(out, 0);
    }
}

static void round_trip(const struct nd_command *command)
{
    struct nd_command again;
    struct nd_buf first, second;
    struct nd_errmsg msg = {""};

    nd_buf_init(&first, SIZE_MAX);
    nd_buf_init(&second, SIZE_MAX);
    nd_command_put(&first, command);
    FUZZ_CHECK(first.size % ALIGNMENT == 0);
    FUZZ_CHECK(nd_command_get(nd_buf_slice(&first), &again, &msg) == ND_OK);
    FUZZ_CHECK(again.kind == command->kind);
    nd_command_put(&second, &again);
    FUZZ_CHECK(nd_slice_equal(nd_buf_slice(&first), nd_buf_slice(&second)));
    nd_command_release(&again);
    nd_buf_release(&first);
    nd_buf_release(&second);
}

static void command_run(struct nd_state *state, struct nd_slice body)
{
    struct nd_command command;
    struct nd_outcome outcome;
    struct nd_errmsg msg = {""};
    struct nd_buf entry;

    nd_buf_init(&entry, SIZE_MAX);
    entry_put(&entry, body);
    uint8_t *copy = fuzz_copy(entry.data, entry.size);
    if (nd_command_get(nd_slice_make(copy, entry.size), &command, &msg) == ND_OK) {
        round_trip(&command);
        nd_state_apply(state, &command, state->applied_index + 1, &outcome);
        FUZZ_CHECK((outcome.err == ND_OK) == (outcome.text[0] == '\0') || outcome.repeat);
        nd_outcome_release(&outcome);
        nd_command_release(&command);
    } else {
        FUZZ_CHECK(msg.text[0] != '\0');
    }
    nd_free(copy);
    nd_buf_release(&entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_reader in = nd_reader_make(nd_slice_make(data, size));
    struct nd_state state, again;
    struct nd_errmsg msg = {""};
    struct nd_buf bytes;

    nd_state_init(&state);
    nd_state_init(&again);
    nd_buf_init(&bytes, SIZE_MAX);
    for (uint32_t i = 0; i < COMMANDS_MAX && nd_reader_left(&in) >= 2; i++) {
        uint16_t body_size = nd_read_u16(&in);
        command_run(&state, fuzz_take(&in, body_size));
    }
    nd_snapshot_put(&bytes, &state);
    FUZZ_CHECK(nd_snapshot_get(nd_buf_slice(&bytes), &again, &msg) == ND_OK);
    nd_buf_release(&bytes);
    nd_state_release(&state);
    nd_state_release(&again);
    return 0;
}
