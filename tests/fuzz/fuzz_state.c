/* The `state` file of a partition. The first byte says what is done to the file, the rest is the
 * encoding of the positions, twice in a file with sound headers (or the whole file). What loads is
 * stored and loaded again: the same positions. */
#include "storage/base/crc32c.h"

#include "storage/layout.h"
#include "storage/state.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/sim_env.h"

enum { MAGIC = 0x5453444e, HEADER_SIZE = 32, BLOCK = 4096 };
enum { DAMAGE_FIRST = 1, DAMAGE_SECOND = 2, WHOLE_FILE = 4 };

static const uint8_t store_id[16] = {1, 2, 3};

static void copy_put(struct nd_buf *out, struct nd_slice body, bool damage)
{
    size_t from = out->size;

    nd_buf_put_u32(out, MAGIC);
    nd_buf_put_u32(out, 0);
    nd_buf_put_u32(out, 1);
    nd_buf_put_u32(out, (uint32_t)body.size);
    nd_buf_put(out, store_id, sizeof store_id);
    nd_buf_put_slice(out, body);
    uint8_t *p = out->data + from;
    nd_put_u32(p + 4, nd_crc32c(0, p + 8, out->size - from - 8) ^ (damage ? 1u : 0u));
    while (out->size % BLOCK != 0) {
        nd_buf_put_u8(out, 0);
    }
}

static enum nd_err load(const struct nd_env *env, const char *dir, struct nd_buf *positions_out)
{
    struct nd_positions positions;
    struct nd_errmsg msg = {""};

    nd_positions_init(&positions);
    enum nd_err err = nd_state_load(env, dir, store_id, &positions, &msg);
    FUZZ_CHECK(err == ND_OK || err == ND_ERR_CORRUPT);
    if (err == ND_OK) {
        nd_positions_put(positions_out, &positions);
        struct nd_state_item item = {dir, &positions, ND_OK};
        nd_state_store(env, store_id, &item, 1, &msg);
        FUZZ_CHECK(item.result == ND_OK);
    } else {
        FUZZ_CHECK(msg.text[0] != '\0');
    }
    nd_positions_release(&positions);
    return err;
}

static void run(const char *dir, struct nd_slice file, bool must_load)
{
    char path[ND_LAYOUT_PATH_SIZE + 16];
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    struct nd_buf first, second;

    nd_buf_init(&first, SIZE_MAX);
    nd_buf_init(&second, SIZE_MAX);
    snprintf(path, sizeof path, "%s/state", dir);
    FUZZ_CHECK(nd_env_mkdirs(env, dir, NULL) == ND_OK);
    FUZZ_CHECK(nd_env_replace_file(env, path, file, NULL) == ND_OK);
    enum nd_err err = load(env, dir, &first);
    FUZZ_CHECK(err == ND_OK || !must_load);
    if (err == ND_OK) {
        FUZZ_CHECK(load(env, dir, &second) == ND_OK);
        FUZZ_CHECK(nd_slice_equal(nd_buf_slice(&first), nd_buf_slice(&second)));
    }
    nd_buf_release(&first);
    nd_buf_release(&second);
    sim_env_free(sim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_partition_id id = {.incarnation = 7, .partition = 3, .topic = "orders"};
    struct nd_positions positions;
    struct nd_buf file;
    char dir[ND_LAYOUT_PATH_SIZE];

    if (size < 1) {
        return 0;
    }
    struct nd_slice body = nd_slice_make(data + 1, size - 1);
    nd_positions_init(&positions);
    bool sound = nd_positions_get(body, &positions) == ND_OK;
    nd_layout_partition_dir(dir, sizeof dir, "/data", sound ? &positions.id : &id);
    nd_positions_release(&positions);
    if ((data[0] & WHOLE_FILE) != 0) {
        run(dir, body, false);
        return 0;
    }
    nd_buf_init(&file, SIZE_MAX);
    copy_put(&file, body, (data[0] & DAMAGE_FIRST) != 0);
    copy_put(&file, body, (data[0] & DAMAGE_SECOND) != 0);
    run(dir, nd_buf_slice(&file), sound && (data[0] & 3) != 3);
    nd_buf_release(&file);
    return 0;
}
