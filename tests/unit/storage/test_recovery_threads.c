/* storage/recovery on the real disk: many `state` files are read at once. For ThreadSanitizer too.
 */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "storage/layout.h"
#include "storage/recovery.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"

enum { PARTITIONS = 300, WITH_STATE_EACH = 3 };

static const uint8_t store_id[16] = {1, 2, 3};

struct fixture {
    char *dir;
    struct nd_recovery recovery;
    struct nd_errmsg msg;
};

static struct nd_partition_id id_of(uint32_t index)
{
    struct nd_partition_id id = {.incarnation = 5, .partition = index, .topic = "many"};

    return id;
}

static void state_store(struct fixture *f, uint32_t index)
{
    struct nd_partition_id id = id_of(index);
    struct nd_positions positions;
    char dir[1024];

    nd_layout_partition_dir(dir, sizeof dir, f->dir, &id);
    nd_positions_init(&positions);
    positions.id = id;
    positions.next_offset = positions.flushed_offset = 100 + index;
    positions.applied_sequence = 1000 + index;
    struct nd_state_item item = {.partition_dir = dir, .positions = &positions};
    nd_state_store(nd_env_posix(), store_id, &item, 1, &f->msg);
    assert_int_equal(item.result, ND_OK);
    nd_positions_release(&positions);
}

static void state_damage(struct fixture *f, uint32_t index)
{
    struct nd_partition_id id = id_of(index);
    char dir[1024], path[1100];

    nd_layout_partition_dir(dir, sizeof dir, f->dir, &id);
    snprintf(path, sizeof path, "%s/state", dir);
    assert_int_equal(
        nd_env_replace_file(nd_env_posix(), path, nd_slice_str("neither copy"), &f->msg), ND_OK);
}

static int setup(void **state)
{
    struct fixture *f = nd_xcalloc(1, sizeof *f);

    f->dir = temp_dir_new();
    for (uint32_t i = 0; i < PARTITIONS; i += WITH_STATE_EACH) {
        state_store(f, i);
    }
    struct nd_recovery_options options = {.env = nd_env_posix(), .data_dir = f->dir};
    memcpy(options.store_id, store_id, sizeof store_id);
    nd_recovery_init(&f->recovery, &options);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    nd_recovery_release(&f->recovery);
    temp_dir_remove(f->dir);
    nd_free(f);
    return 0;
}

/* As the log opens: what it has seen, each partition twice, then the end. */
static void preview_all(struct fixture *f)
{
    for (uint32_t i = 0; i < 2 * PARTITIONS; i++) {
        struct nd_partition_id id = id_of(i % PARTITIONS);
        nd_recovery_preview(&f->recovery, &id);
    }
    nd_recovery_preview(&f->recovery, NULL);
}

static enum nd_err replay(struct fixture *f, uint32_t index)
{
    struct nd_wal_entry entry = {.type = ND_WAL_ACK, .id = id_of(index)};

    return nd_recovery_replay(&f->recovery, &entry, &f->msg);
}

static void recovery_preview__finds_every_state_that_is_there(void **state)
{
    struct fixture *f = *state;
    uint32_t index = 0;

    preview_all(f);
    ND_LIST_FOREACH (&f->recovery.partitions, link) {
        const struct nd_recovered_partition *p =
            ND_CONTAINER_OF(link, struct nd_recovered_partition, link);
        bool has_state = index % WITH_STATE_EACH == 0;
        assert_int_equal(p->positions.id.partition, index);
        assert_string_equal(p->positions.id.topic, "many");
        assert_int_equal(p->positions.next_offset, has_state ? 100 + index : 0);
        assert_int_equal(p->positions.applied_sequence, has_state ? 1000 + index : 0);
        assert_int_equal(p->grounded, has_state);
        index += 1;
    }
    assert_int_equal(index, PARTITIONS);
}

static void recovery_preview__leaves_a_damaged_one_to_the_replay(void **state)
{
    struct fixture *f = *state;

    state_damage(f, 297);
    state_damage(f, 150);
    preview_all(f);
    assert_int_equal(replay(f, 3), ND_OK);
    assert_int_equal(replay(f, 150), ND_ERR_CORRUPT);
    assert_non_null(strstr(f->msg.text, "many/150"));
    assert_non_null(strstr(f->msg.text, "neither copy is whole"));
}

/* What was seen below the place where the replay starts, even when its `state` is damaged. */
static void recovery_preview__forgets_what_is_not_replayed(void **state)
{
    struct fixture *f = *state;

    state_damage(f, 150);
    preview_all(f);
    assert_int_equal(replay(f, 3), ND_OK); /* its `state` covers it */
    assert_int_equal(nd_recovery_finish(&f->recovery, &f->msg), ND_OK);
    assert_null(nd_recovery_pop(&f->recovery));
    assert_int_equal(f->recovery.refused, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(recovery_preview__finds_every_state_that_is_there),
        CASE(recovery_preview__leaves_a_damaged_one_to_the_replay),
        CASE(recovery_preview__forgets_what_is_not_replayed),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
