/* The snapshot of the metadata. Size and checksum of the frame are put right; what decodes is
 * written and read again: the same bytes, and commands still apply to it. */
#include "storage/base/crc32c.h"

#include "cluster/snapshot.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/cluster/commands.h"

enum { HEADER_SIZE = 24, AT_SIZE = 8, AT_CRC = 16, AT_ZERO = 20, ALIGNMENT = 8 };

/* The body of the input in a sound frame. */
static void frame_put(struct nd_buf *out, const uint8_t *data, size_t size)
{
    nd_buf_put(out, data, size);
    uint8_t *p = out->data;
    nd_put_u64(p + AT_SIZE, size - HEADER_SIZE);
    nd_put_u32(p + AT_ZERO, 0);
    nd_put_u32(p + AT_CRC, nd_crc32c(nd_crc32c(0, p, AT_CRC), p + HEADER_SIZE, size - HEADER_SIZE));
    while (out->size % ALIGNMENT != 0) {
        nd_buf_put_u8(out, 0);
    }
}

static void round_trip(const struct nd_state *state)
{
    struct nd_state again;
    struct nd_buf first, second;
    struct nd_errmsg msg = {""};

    nd_state_init(&again);
    nd_buf_init(&first, SIZE_MAX);
    nd_buf_init(&second, SIZE_MAX);
    nd_snapshot_put(&first, state);
    enum nd_err err = nd_snapshot_get(nd_buf_slice(&first), &again, &msg);
    if (err != ND_OK) {
        fprintf(stderr, "%s\n", msg.text);
    }
    FUZZ_CHECK(err == ND_OK);
    nd_snapshot_put(&second, &again);
    FUZZ_CHECK(nd_slice_equal(nd_buf_slice(&first), nd_buf_slice(&second)));
    nd_buf_release(&first);
    nd_buf_release(&second);
    nd_state_release(&again);
}

static void apply_some(struct nd_state *state)
{
    struct command_source source = {.rand = 5};

    for (uint64_t i = 1; i <= 8; i++) {
        struct nd_command command = command_next(&source);
        struct nd_outcome outcome;
        nd_state_apply(state, &command, state->applied_index, &outcome);
        nd_outcome_release(&outcome);
        nd_command_release(&command);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_state state;
    struct nd_buf bytes;
    struct nd_errmsg msg = {""};

    if (size < HEADER_SIZE) {
        return 0;
    }
    nd_buf_init(&bytes, SIZE_MAX);
    frame_put(&bytes, data, size);
    uint8_t *copy = fuzz_copy(bytes.data, bytes.size);
    nd_state_init(&state);
    if (nd_snapshot_get(nd_slice_make(copy, bytes.size), &state, &msg) == ND_OK) {
        round_trip(&state);
        if (state.changes < UINT64_MAX / 4 && state.commands < UINT64_MAX / 4) {
            apply_some(&state);
            round_trip(&state);
        }
    } else {
        FUZZ_CHECK(msg.text[0] != '\0' && nd_topic_table_count(state.table) == 0 &&
                   nd_user_table_count(state.users) == 0);
    }
    nd_state_release(&state);
    nd_free(copy);
    nd_buf_release(&bytes);
    return 0;
}
