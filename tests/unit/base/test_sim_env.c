/* The simulator is what later tests believe, so its own promises are tested first. */
#include <string.h>

#include "storage/base/alloc.h"

#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

enum { SECTOR = 512, SEEDS = 300 };

/* A new disk with /d and an open, saved file /d/f. */
struct fixture {
    struct sim_env *sim;
    const struct nd_env *env;
    int file;
};

static int open_file(const struct nd_env *env, const char *path, int flags)
{
    int file;

    assert_int_equal(env->open(env->impl, path, flags, &file, NULL), ND_OK);
    return file;
}

static void fixture_init(struct fixture *f, uint64_t seed)
{
    f->sim = sim_env_new(seed);
    f->env = sim_env_get(f->sim);
    assert_int_equal(f->env->mkdir(f->sim, "/d", NULL), ND_OK);
    f->file = open_file(f->env, "/d/f", ND_OPEN_WRITE | ND_OPEN_CREATE);
    assert_int_equal(f->env->sync_dir(f->sim, "/d", NULL), ND_OK);
    assert_int_equal(f->env->sync_dir(f->sim, "/", NULL), ND_OK);
}

static void fixture_release(struct fixture *f)
{
    sim_env_free(f->sim);
}

/* A write of `size` bytes, all `byte`. */
static enum nd_err fill(struct fixture *f, char byte, uint64_t at, size_t size)
{
    uint8_t *data = nd_xmalloc(size);

    memset(data, byte, size);
    enum nd_err err = f->env->pwrite(f->sim, f->file, data, size, at, NULL);
    nd_free(data);
    return err;
}

static enum nd_err sync_file(struct fixture *f)
{
    return f->env->sync(f->sim, f->file, NULL);
}

/* Cut, start, open /d/f again. */
static void cut_and_restart(struct fixture *f, uint64_t seed)
{
    sim_env_power_cut(f->sim, seed);
    sim_env_restart(f->sim);
    f->file = open_file(f->env, "/d/f", ND_OPEN_WRITE);
}

static uint64_t size_of(struct fixture *f)
{
    uint64_t size;

    assert_int_equal(f->env->file_size(f->sim, f->file, &size, NULL), ND_OK);
    return size;
}

/* The byte at `at`; -1 beyond the end. */
static int byte_at(struct fixture *f, uint64_t at)
{
    uint8_t byte;
    size_t read;

    assert_int_equal(f->env->pread(f->sim, f->file, &byte, 1, at, &read, NULL), ND_OK);
    return read == 0 ? -1 : byte;
}

static bool exists(struct fixture *f, const char *path)
{
    struct nd_file_stat stat;
    enum nd_err err = f->env->stat(f->sim, path, &stat, NULL);

    assert_true(err == ND_OK || err == ND_ERR_NOT_FOUND);
    return err == ND_OK;
}

static void cut__never_takes_what_was_synced(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, seed);
        assert_int_equal(fill(&f, 'a', 100, 5000), ND_OK);
        assert_int_equal(sync_file(&f), ND_OK);
        assert_int_equal(fill(&f, 'b', 5000, 2000), ND_OK);

        cut_and_restart(&f, seed);

        assert_true(size_of(&f) >= 5100);
        assert_int_equal(byte_at(&f, 99), 0);
        for (uint64_t at = 100; at < 4608; at++) { /* below the sector that `b` touches */
            assert_int_equal(byte_at(&f, at), 'a');
        }
        fixture_release(&f);
    }
}

static void cut__drops_tears_and_reorders_what_was_not(void **state)
{
    bool none = false, all = false, torn = false, reordered = false, first_only = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        int seen[8];
        fixture_init(&f, 1);
        assert_int_equal(fill(&f, '.', 0, 8 * SECTOR), ND_OK);
        assert_int_equal(sync_file(&f), ND_OK);
        assert_int_equal(fill(&f, 'a', 0, 4 * SECTOR), ND_OK);
        assert_int_equal(fill(&f, 'b', 4 * SECTOR, 4 * SECTOR), ND_OK);

        cut_and_restart(&f, seed);

        for (uint64_t i = 0; i < 8; i++) {
            seen[i] = byte_at(&f, i * SECTOR);
            for (uint64_t at = 0; at < SECTOR; at++) { /* sectors are whole */
                assert_int_equal(byte_at(&f, i * SECTOR + at), seen[i]);
            }
            assert_true(seen[i] == '.' || seen[i] == (i < 4 ? 'a' : 'b'));
        }
        int as = 0, bs = 0;
        for (int i = 0; i < 8; i++) {
            as += seen[i] == 'a';
            bs += seen[i] == 'b';
        }
        none = none || as + bs == 0;
        all = all || as + bs == 8;
        torn = torn || (as > 0 && as < 4);
        reordered = reordered || (as == 0 && bs == 4);
        first_only = first_only || (as == 4 && bs == 0);
        fixture_release(&f);
    }
    assert_true(none && all && torn && reordered && first_only);
}

static void cut__picks_any_version_of_a_sector(void **state)
{
    bool seen[4] = {false};

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, 1);
        assert_int_equal(fill(&f, '0', 0, SECTOR), ND_OK);
        assert_int_equal(sync_file(&f), ND_OK);
        for (char version = '1'; version <= '3'; version++) {
            assert_int_equal(fill(&f, version, 0, SECTOR), ND_OK);
        }
        cut_and_restart(&f, seed);
        seen[byte_at(&f, 0) - '0'] = true;
        fixture_release(&f);
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(seen); i++) {
        assert_true(seen[i]);
    }
}

/* A size that is saved without its data reads as zeros, never as somebody's old bytes. */
static void cut__may_keep_a_size_without_its_data(void **state)
{
    bool zeros = false, gone = false, whole = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, 1);
        assert_int_equal(fill(&f, 'a', 0, SECTOR), ND_OK);
        cut_and_restart(&f, seed);
        uint64_t size = size_of(&f);
        assert_true(size == 0 || size == SECTOR);
        gone = gone || size == 0;
        zeros = zeros || (size == SECTOR && byte_at(&f, 0) == 0);
        whole = whole || (size == SECTOR && byte_at(&f, 0) == 'a');
        fixture_release(&f);
    }
    assert_true(zeros && gone && whole);
}

static void truncate__never_shows_the_old_bytes_again(void **state)
{
    bool old = false, cut = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, 1);
        assert_int_equal(fill(&f, 'a', 0, 3000), ND_OK);
        assert_int_equal(sync_file(&f), ND_OK);
        assert_int_equal(f.env->truncate(f.sim, f.file, 700, NULL), ND_OK);
        assert_int_equal(f.env->truncate(f.sim, f.file, 3000, NULL), ND_OK);
        assert_int_equal(byte_at(&f, 700), 0);
        assert_int_equal(f.env->drop_cache(f.sim, f.file, 0, 0, NULL), ND_OK);
        assert_int_equal(byte_at(&f, 699), 'a');
        assert_int_equal(byte_at(&f, 700), 0);

        cut_and_restart(&f, seed);

        uint64_t size = size_of(&f);
        assert_true(size == 700 || size == 3000);
        assert_int_equal(byte_at(&f, 699), 'a');
        int byte = byte_at(&f, 700);
        old = old || byte == 'a'; /* neither change survived */
        cut = cut || byte != 'a';
        for (uint64_t at = 700; at < size; at++) {
            assert_int_equal(byte_at(&f, at), byte);
        }
        fixture_release(&f);
    }
    assert_true(old && cut);
}

static void cut__takes_names_that_no_directory_sync_saved(void **state)
{
    bool gone = false, kept = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, 1);
        f.file = open_file(f.env, "/d/new", ND_OPEN_WRITE | ND_OPEN_CREATE);
        assert_int_equal(fill(&f, 'a', 0, 10), ND_OK);
        assert_int_equal(sync_file(&f), ND_OK);
        cut_and_restart(&f, seed);
        gone = gone || !exists(&f, "/d/new");
        kept = kept || exists(&f, "/d/new");
        if (exists(&f, "/d/new")) {
            f.file = open_file(f.env, "/d/new", ND_OPEN_READ);
            assert_int_equal(size_of(&f), 10); /* its content was synced */
        }
        fixture_release(&f);
    }
    assert_true(gone && kept);
}

static void sync_dir__saves_the_names_of_that_directory_only(void **state)
{
    bool other_gone = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, 1);
        assert_int_equal(f.env->mkdir(f.sim, "/d/sub", NULL), ND_OK);
        f.env->close(f.sim, open_file(f.env, "/d/sub/x", ND_OPEN_WRITE | ND_OPEN_CREATE));
        assert_int_equal(f.env->unlink(f.sim, "/d/f", NULL), ND_OK);
        assert_int_equal(f.env->sync_dir(f.sim, "/d", NULL), ND_OK);

        sim_env_power_cut(f.sim, seed);
        sim_env_restart(f.sim);

        assert_true(exists(&f, "/d/sub"));
        assert_false(exists(&f, "/d/f"));
        other_gone = other_gone || !exists(&f, "/d/sub/x");
        fixture_release(&f);
    }
    assert_true(other_gone);
}

static void rename__is_atomic_in_every_cut(void **state)
{
    bool before = false, after = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, 1);
        assert_int_equal(f.env->mkdir(f.sim, "/e", NULL), ND_OK);
        assert_int_equal(f.env->sync_dir(f.sim, "/", NULL), ND_OK);
        assert_int_equal(f.env->rename(f.sim, "/d/f", "/e/g", NULL), ND_OK);
        assert_false(exists(&f, "/d/f"));
        if (seed % 3 == 0) {
            assert_int_equal(f.env->sync_dir(f.sim, "/e", NULL), ND_OK);
        }
        sim_env_power_cut(f.sim, seed);
        sim_env_restart(f.sim);
        assert_true(exists(&f, "/d/f") != exists(&f, "/e/g"));
        assert_true(seed % 3 != 0 || exists(&f, "/e/g"));
        before = before || exists(&f, "/d/f");
        after = after || (seed % 3 != 0 && exists(&f, "/e/g"));
        fixture_release(&f);
    }
    assert_true(before && after);
}

static void sync_fs__saves_everything(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, 1);
        assert_int_equal(fill(&f, 'a', 0, 1000), ND_OK);
        assert_int_equal(f.env->mkdir(f.sim, "/d/sub", NULL), ND_OK);
        f.env->close(f.sim, open_file(f.env, "/d/sub/x", ND_OPEN_WRITE | ND_OPEN_CREATE));
        assert_int_equal(f.env->sync_fs(f.sim, f.file, NULL), ND_OK);
        cut_and_restart(&f, seed);
        assert_int_equal(size_of(&f), 1000);
        assert_int_equal(byte_at(&f, 999), 'a');
        assert_true(exists(&f, "/d/sub/x"));
        fixture_release(&f);
    }
}

static void failed_sync__loses_data_behind_an_ok(void **state)
{
    bool lost = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, seed);
        assert_int_equal(fill(&f, 'a', 0, 4096), ND_OK);
        assert_int_equal(sync_file(&f), ND_OK);
        assert_int_equal(fill(&f, 'b', 0, 4096), ND_OK);
        sim_env_fail_nth(f.sim, SIM_SYNC, 1, SIM_FAULT_IO);
        assert_int_equal(sync_file(&f), ND_ERR_IO);
        assert_true(sim_env_fault_fired(f.sim));

        assert_int_equal(sync_file(&f), ND_OK); /* the lie */
        for (uint64_t at = 0; at < 4096; at += SECTOR) {
            assert_int_equal(byte_at(&f, at), 'b'); /* and the cache tells it, too */
        }

        int on_device[8];
        int direct = open_file(f.env, "/d/f", ND_OPEN_READ | ND_OPEN_DIRECT);
        uint8_t *block = nd_xaligned(4096, 4096);
        size_t read;
        assert_int_equal(f.env->pread(f.sim, direct, block, 4096, 0, &read, NULL), ND_OK);
        assert_int_equal(f.env->drop_cache(f.sim, f.file, 0, 4096, NULL), ND_OK);
        for (int i = 0; i < 8; i++) {
            on_device[i] = byte_at(&f, (uint64_t)i * SECTOR);
            assert_int_equal(block[i * SECTOR], on_device[i]); /* both ask the device */
            lost = lost || on_device[i] == 'a';
        }
        nd_free(block);

        cut_and_restart(&f, seed);
        for (int i = 0; i < 8; i++) { /* nothing was pending any more */
            assert_int_equal(byte_at(&f, (uint64_t)i * SECTOR), on_device[i]);
        }
        fixture_release(&f);
    }
    assert_true(lost);
}

static void failed_sync__does_not_spoil_later_writes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, seed);
        assert_int_equal(fill(&f, 'a', 0, 4096), ND_OK);
        sim_env_fail_nth(f.sim, SIM_SYNC, 1, SIM_FAULT_NO_SPACE);
        assert_int_equal(sync_file(&f), ND_ERR_NO_SPACE);
        assert_int_equal(f.env->truncate(f.sim, f.file, 0, NULL), ND_OK);
        assert_int_equal(fill(&f, 'b', 0, 1000), ND_OK);
        assert_int_equal(sync_file(&f), ND_OK);
        cut_and_restart(&f, seed);
        assert_int_equal(size_of(&f), 1000);
        assert_int_equal(byte_at(&f, 0), 'b');
        assert_int_equal(byte_at(&f, 999), 'b');
        fixture_release(&f);
    }
}

static void drop_cache__spares_what_is_pending(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, 1);
    assert_int_equal(fill(&f, 'a', 0, 10000), ND_OK);
    assert_int_equal(f.env->drop_cache(f.sim, f.file, 0, 10000, NULL), ND_OK);
    assert_int_equal(byte_at(&f, 0), 'a');
    assert_int_equal(byte_at(&f, 9999), 'a');
    assert_int_equal(byte_at(&f, 10000), -1);
    fixture_release(&f);
}

static void fail_nth__strikes_once_at_its_call(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, 1);
    sim_env_fail_nth(f.sim, SIM_STAT, 2, SIM_FAULT_IO);
    struct nd_file_stat stat;
    struct nd_errmsg msg;
    assert_int_equal(f.env->stat(f.sim, "/d", &stat, NULL), ND_OK);
    (void)size_of(&f); /* another kind does not count */
    assert_false(sim_env_fault_fired(f.sim));
    assert_int_equal(f.env->stat(f.sim, "/d", &stat, &msg), ND_ERR_IO);
    assert_string_equal(msg.text, "stat /d: Input/output error");
    assert_true(sim_env_fault_fired(f.sim));
    assert_int_equal(f.env->stat(f.sim, "/d", &stat, NULL), ND_OK);

    sim_env_fail_nth(f.sim, SIM_ANY, 2, SIM_FAULT_NO_SPACE);
    assert_int_equal(f.env->stat(f.sim, "/d", &stat, NULL), ND_OK);
    assert_int_equal(f.env->mkdir(f.sim, "/e", NULL), ND_ERR_NO_SPACE);
    assert_false(exists(&f, "/e"));

    sim_env_fail_from(f.sim, SIM_PWRITE, 1, SIM_FAULT_IO);
    assert_int_equal(fill(&f, 'a', 0, 10), ND_ERR_IO);
    assert_int_equal(fill(&f, 'a', 0, 10), ND_ERR_IO);
    sim_env_fail_clear(f.sim);
    assert_int_equal(fill(&f, 'a', 0, 10), ND_OK);
    fixture_release(&f);
}

static void short_write__leaves_a_part(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, 1);
    sim_env_fail_nth(f.sim, SIM_PWRITE, 1, SIM_FAULT_SHORT_WRITE);
    assert_int_equal(fill(&f, 'a', 0, 1000), ND_ERR_IO);
    assert_int_equal(size_of(&f), 999);
    assert_int_equal(byte_at(&f, 998), 'a');
    fixture_release(&f);
}

static void space__runs_out_and_comes_back(void **state)
{
    struct fixture f;
    struct nd_disk_space space;

    (void)state;
    fixture_init(&f, 1);
    sim_env_set_space(f.sim, 4 * 4096);
    assert_int_equal(fill(&f, 'a', 0, 2 * 4096), ND_OK);
    assert_int_equal(f.env->zero_fill(f.sim, f.file, 2 * 4096, 2 * 4096, NULL), ND_OK);
    assert_int_equal(fill(&f, 'b', 0, 4 * 4096), ND_OK); /* over what is there: no new blocks */
    assert_int_equal(fill(&f, 'c', 4 * 4096 - 10, 11), ND_ERR_NO_SPACE);
    assert_int_equal(f.env->space(f.sim, "/d", &space, NULL), ND_OK);
    assert_int_equal(space.bytes_free, 0);
    assert_int_equal(sim_env_space_used(f.sim), 4 * 4096);

    assert_int_equal(f.env->unlink(f.sim, "/d/f", NULL), ND_OK);
    assert_int_equal(sim_env_space_used(f.sim), 4 * 4096); /* still open */
    f.env->close(f.sim, f.file);
    assert_int_equal(sim_env_space_used(f.sim), 0);
    f.file = open_file(f.env, "/d/f", ND_OPEN_WRITE | ND_OPEN_CREATE);
    assert_int_equal(f.env->truncate(f.sim, f.file, 1 << 20, NULL), ND_OK); /* a hole is free */
    assert_int_equal(fill(&f, 'd', 1 << 19, 4096), ND_OK);
    assert_int_equal(sim_env_space_used(f.sim), 4096);
    fixture_release(&f);
}

/* One append protocol, cut at each of its changes: said means saved. */
static void cut_at__visits_every_change(void **state)
{
    uint64_t visited = 0;
    bool said_before_some_cut = false;

    (void)state;
    for (uint64_t k = 1;; k++) {
        struct fixture f;
        fixture_init(&f, k);
        sim_env_cut_at(f.sim, k);
        uint64_t said = 0;
        for (uint64_t i = 0; i < 4; i++) {
            if (fill(&f, (char)('a' + i), i * 1000, 1000) == ND_OK && sync_file(&f) == ND_OK) {
                said = i + 1;
            }
        }
        bool over = !sim_env_is_cut(f.sim);
        struct nd_file_stat stat;
        assert_int_equal(f.env->stat(f.sim, "/d", &stat, NULL), over ? ND_OK : ND_ERR_IO);
        assert_int_equal(said, over ? 4 : (k - 1) / 2);
        said_before_some_cut = said_before_some_cut || (!over && said > 0);
        sim_env_restart(f.sim);
        f.env->close(f.sim, f.file); /* ignored */

        f.file = open_file(f.env, "/d/f", ND_OPEN_READ);
        for (uint64_t at = 0; at < said * 1000; at++) {
            assert_int_equal(byte_at(&f, at), 'a' + (int)(at / 1000));
        }
        fixture_release(&f);
        if (over) {
            break;
        }
        visited += 1;
    }
    assert_int_equal(visited, 8);
    assert_true(said_before_some_cut);
}

static void struck__names_the_call_and_the_kind_of_file(void **state)
{
    struct fixture f;
    int file;

    (void)state;
    fixture_init(&f, 1);
    assert_string_equal(sim_env_struck(f.sim), "");
    sim_env_fail_nth(f.sim, SIM_PWRITE, 1, SIM_FAULT_IO);
    assert_int_equal(fill(&f, 'a', 0, SECTOR), ND_ERR_IO);
    assert_string_equal(sim_env_struck(f.sim), "write /d/f");
    assert_int_equal(f.env->mkdir(f.sim, "/d/p00001", NULL), ND_OK);
    sim_env_cut_at(f.sim, 1);
    int flags = ND_OPEN_WRITE | ND_OPEN_CREATE;
    assert_int_equal(f.env->open(f.sim, "/d/p00001/7.index.tmp", flags, &file, NULL), ND_ERR_IO);
    assert_string_equal(sim_env_struck(f.sim), "open /d/#/#.index.tmp");
    fixture_release(&f);
}

static void cut_at__a_sync_may_have_saved_all_or_nothing(void **state)
{
    bool saved = false, lost = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fixture f;
        fixture_init(&f, seed);
        assert_int_equal(fill(&f, 'a', 0, SECTOR), ND_OK);
        sim_env_cut_at(f.sim, 1);
        assert_int_equal(sync_file(&f), ND_ERR_IO);
        sim_env_restart(f.sim);
        f.file = open_file(f.env, "/d/f", ND_OPEN_READ);
        saved = saved || byte_at(&f, 0) == 'a';
        lost = lost || byte_at(&f, 0) != 'a';
        fixture_release(&f);
    }
    assert_true(saved && lost);
}

static void restart__without_a_cut_keeps_the_cache_and_frees_locks(void **state)
{
    struct fixture f;
    int lock, second;
    bool lost = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fixture_init(&f, seed);
        uint64_t boot = f.env->boot_ns(f.sim);
        assert_int_equal(f.env->lock(f.sim, "/d/lock", &lock, NULL), ND_OK);
        assert_int_equal(f.env->lock(f.sim, "/d/lock", &second, NULL), ND_ERR_UNAVAILABLE);
        assert_int_equal(fill(&f, 'a', 0, 10), ND_OK);

        sim_env_restart(f.sim);                            /* kill -9 */
        assert_int_equal(fill(&f, 'b', 0, 10), ND_ERR_IO); /* a file of the dead process */
        assert_int_equal(f.env->lock(f.sim, "/d/lock", &second, NULL), ND_OK);
        f.file = open_file(f.env, "/d/f", ND_OPEN_WRITE);
        assert_int_equal(byte_at(&f, 9), 'a');
        assert_true(f.env->boot_ns(f.sim) >= boot);

        cut_and_restart(&f, seed); /* still only in the cache */
        lost = lost || byte_at(&f, 9) != 'a';
        assert_true(f.env->boot_ns(f.sim) < boot); /* another boot */
        fixture_release(&f);
    }
    assert_true(lost);
}

static void clocks__move_by_hand_only(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, 1);
    uint64_t mono = f.env->mono_ns(f.sim), boot = f.env->boot_ns(f.sim);
    int64_t wall = f.env->wall_ms(f.sim);
    assert_true(f.env->mono_ns(f.sim) == mono);
    sim_env_advance_ms(f.sim, 5);
    assert_true(f.env->mono_ns(f.sim) == mono + 5000000);
    assert_true(f.env->boot_ns(f.sim) == boot + 5000000);
    assert_true(f.env->wall_ms(f.sim) == wall + 5);
    sim_env_suspend_ms(f.sim, 7);
    assert_true(f.env->mono_ns(f.sim) == mono + 5000000);
    assert_true(f.env->boot_ns(f.sim) == boot + 12000000);
    assert_true(f.env->wall_ms(f.sim) == wall + 12);
    sim_env_set_wall_ms(f.sim, 5);
    assert_true(f.env->wall_ms(f.sim) == 5);
    assert_true(f.env->boot_ns(f.sim) == boot + 12000000);
    fixture_release(&f);
}

static void damage__shows_in_cache_and_on_device(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, 1);
    assert_int_equal(fill(&f, 'a', 0, 100), ND_OK);
    assert_int_equal(sync_file(&f), ND_OK);
    sim_env_damage(f.sim, "/d/f", 50, 1);
    assert_int_equal(byte_at(&f, 50), 'a' ^ 1);
    cut_and_restart(&f, 1);
    assert_int_equal(byte_at(&f, 50), 'a' ^ 1);
    assert_int_equal(byte_at(&f, 51), 'a');
    fixture_release(&f);
}

static void direct__needs_alignment_and_support(void **state)
{
    struct fixture f;
    int flags = ND_OPEN_WRITE | ND_OPEN_CREATE | ND_OPEN_DIRECT, file;

    (void)state;
    fixture_init(&f, 1);
    uint8_t *block = nd_xaligned(4096, 8192);
    memset(block, 'x', 8192);
    file = open_file(f.env, "/d/direct", flags);
    assert_int_equal(f.env->pwrite(f.sim, file, block, 4096, 0, NULL), ND_OK);
    assert_int_equal(f.env->pwrite(f.sim, file, block, 100, 0, NULL), ND_ERR_IO);
    assert_int_equal(f.env->pwrite(f.sim, file, block + 1, 4096, 0, NULL), ND_ERR_IO);
    assert_int_equal(f.env->pwrite(f.sim, file, block, 4096, 512, NULL), ND_ERR_IO);
    sim_env_set_direct(f.sim, false);
    assert_int_equal(f.env->open(f.sim, "/d/other", flags, &file, NULL), ND_ERR_UNSUPPORTED);
    assert_false(exists(&f, "/d/other"));
    nd_free(block);
    fixture_release(&f);
}

/* A day in the life of a disk, from a seed. */
static uint64_t random_life(uint64_t seed)
{
    struct fixture f;
    uint64_t random = seed;

    fixture_init(&f, seed);
    for (int i = 0; i < 60; i++) {
        char path[8] = {'/', 'd', '/', (char)('a' + nd_rand_below(&random, 4)), '\0'};
        char other[8] = {'/', 'd', '/', (char)('a' + nd_rand_below(&random, 4)), '\0'};
        f.file = open_file(f.env, path, ND_OPEN_WRITE | ND_OPEN_CREATE);
        (void)fill(&f, (char)i, nd_rand_below(&random, 5000), nd_rand_below(&random, 3000));
        switch (nd_rand_below(&random, 5)) {
        case 0: assert_int_equal(sync_file(&f), ND_OK); break;
        case 1: assert_int_equal(f.env->sync_dir(f.sim, "/d", NULL), ND_OK); break;
        case 2: assert_int_equal(f.env->rename(f.sim, path, other, NULL), ND_OK); break;
        case 3: assert_int_equal(f.env->unlink(f.sim, path, NULL), ND_OK); break;
        default: break;
        }
        f.env->close(f.sim, f.file);
        if (i == 30) {
            sim_env_power_cut(f.sim, nd_rand(&random));
            sim_env_restart(f.sim);
        }
    }
    sim_env_power_cut(f.sim, nd_rand(&random));
    sim_env_restart(f.sim);
    uint64_t digest = sim_env_digest(f.sim) ^ nd_env_random_u64(f.env);
    fixture_release(&f);
    return digest;
}

static void sim__replays_from_its_seed(void **state)
{
    uint64_t last = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint64_t digest = random_life(seed);
        assert_true(random_life(seed) == digest);
        assert_true(digest != last);
        last = digest;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(struck__names_the_call_and_the_kind_of_file),
        cmocka_unit_test(cut__never_takes_what_was_synced),
        cmocka_unit_test(cut__drops_tears_and_reorders_what_was_not),
        cmocka_unit_test(cut__picks_any_version_of_a_sector),
        cmocka_unit_test(cut__may_keep_a_size_without_its_data),
        cmocka_unit_test(truncate__never_shows_the_old_bytes_again),
        cmocka_unit_test(cut__takes_names_that_no_directory_sync_saved),
        cmocka_unit_test(sync_dir__saves_the_names_of_that_directory_only),
        cmocka_unit_test(rename__is_atomic_in_every_cut),
        cmocka_unit_test(sync_fs__saves_everything),
        cmocka_unit_test(failed_sync__loses_data_behind_an_ok),
        cmocka_unit_test(failed_sync__does_not_spoil_later_writes),
        cmocka_unit_test(drop_cache__spares_what_is_pending),
        cmocka_unit_test(fail_nth__strikes_once_at_its_call),
        cmocka_unit_test(short_write__leaves_a_part),
        cmocka_unit_test(space__runs_out_and_comes_back),
        cmocka_unit_test(cut_at__visits_every_change),
        cmocka_unit_test(cut_at__a_sync_may_have_saved_all_or_nothing),
        cmocka_unit_test(restart__without_a_cut_keeps_the_cache_and_frees_locks),
        cmocka_unit_test(clocks__move_by_hand_only),
        cmocka_unit_test(damage__shows_in_cache_and_on_device),
        cmocka_unit_test(direct__needs_alignment_and_support),
        cmocka_unit_test(sim__replays_from_its_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
