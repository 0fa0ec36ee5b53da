#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/env.h"

#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"

struct fixture {
    const struct nd_env *env;
    void *impl;
    char *dir;
    char path[200], other[200];
    struct nd_errmsg msg;
};

static int setup(void **state)
{
    struct fixture *f = test_calloc(1, sizeof *f);

    f->env = nd_env_posix();
    f->impl = f->env->impl;
    f->dir = temp_dir_new();
    (void)snprintf(f->path, sizeof f->path, "%s/file", f->dir);
    (void)snprintf(f->other, sizeof f->other, "%s/other", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    temp_dir_remove(f->dir);
    test_free(f);
    return 0;
}

static int create(struct fixture *f, const char *path)
{
    int file;

    assert_int_equal(f->env->open(f->impl, path, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, &f->msg),
                     ND_OK);
    return file;
}

static void open__says_missing_and_existing(void **state)
{
    struct fixture *f = *state;
    int file;

    assert_int_equal(f->env->open(f->impl, f->path, ND_OPEN_READ, &file, &f->msg),
                     ND_ERR_NOT_FOUND);
    assert_non_null(strstr(f->msg.text, "open "));
    assert_non_null(strstr(f->msg.text, f->path));
    assert_non_null(strstr(f->msg.text, "No such file"));
    assert_int_equal(f->env->open(f->impl, f->path, ND_OPEN_WRITE, &file, NULL), ND_ERR_NOT_FOUND);

    f->env->close(f->impl, create(f, f->path));
    int flags = ND_OPEN_WRITE | ND_OPEN_CREATE | ND_OPEN_EXCL;
    assert_int_equal(f->env->open(f->impl, f->path, flags, &file, NULL), ND_ERR_ALREADY_EXISTS);
}

static void open__makes_private_files_closed_on_exec(void **state)
{
    struct fixture *f = *state;
    struct stat status;
    int file = create(f, f->path);

    assert_int_equal(fstat(file, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_true((fcntl(file, F_GETFD) & FD_CLOEXEC) != 0);
    f->env->close(f->impl, file);
}

static void pread__stops_at_the_end_only(void **state)
{
    struct fixture *f = *state;
    char data[16] = "";
    size_t read = 99;
    int file = create(f, f->path);

    assert_int_equal(f->env->pwrite(f->impl, file, "hello", 5, 3, NULL), ND_OK);
    assert_int_equal(f->env->pread(f->impl, file, data, sizeof data, 0, &read, NULL), ND_OK);
    assert_int_equal(read, 8);
    assert_memory_equal(data, "\0\0\0hello", 8);
    assert_int_equal(f->env->pread(f->impl, file, data, 2, 3, &read, NULL), ND_OK);
    assert_int_equal(read, 2);
    assert_int_equal(f->env->pread(f->impl, file, data, 2, 100, &read, NULL), ND_OK);
    assert_int_equal(read, 0);
    f->env->close(f->impl, file);
}

static void pwrite__on_a_read_only_file_names_call_path_and_reason(void **state)
{
    struct fixture *f = *state;
    int file;

    f->env->close(f->impl, create(f, f->path));
    assert_int_equal(f->env->open(f->impl, f->path, ND_OPEN_READ, &file, NULL), ND_OK);
    assert_int_equal(f->env->pwrite(f->impl, file, "x", 1, 0, &f->msg), ND_ERR_IO);
    assert_non_null(strstr(f->msg.text, "write "));
    assert_non_null(strstr(f->msg.text, f->path));
    assert_non_null(strstr(f->msg.text, "Bad file descriptor"));
    f->env->close(f->impl, file);
}

static void pwrite__to_a_full_device_says_no_space(void **state)
{
    struct fixture *f = *state;
    int file;

    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    assert_int_equal(f->env->open(f->impl, "/dev/full", ND_OPEN_WRITE, &file, NULL), ND_OK);
    assert_int_equal(f->env->pwrite(f->impl, file, "x", 1, 0, &f->msg), ND_ERR_NO_SPACE);
    f->env->close(f->impl, file);
}

static void zero_fill__writes_zeros_and_nothing_beside_them(void **state)
{
    enum { SIZE = 3 << 20 };
    struct fixture *f = *state;
    struct nd_file_stat stat;
    size_t read;
    uint8_t *data = nd_xmalloc(SIZE + 2);
    int file = create(f, f->path);

    memset(data, 'x', SIZE + 2);
    assert_int_equal(f->env->pwrite(f->impl, file, data, SIZE + 2, 0, NULL), ND_OK);
    assert_int_equal(f->env->zero_fill(f->impl, file, 1, SIZE, NULL), ND_OK);
    assert_int_equal(f->env->pread(f->impl, file, data, SIZE + 2, 0, &read, NULL), ND_OK);
    assert_int_equal(read, SIZE + 2);
    assert_int_equal(data[0], 'x');
    assert_int_equal(data[SIZE + 1], 'x');
    assert_int_equal(data[1], 0);
    assert_memory_equal(data + 1, data + 2, SIZE - 1);

    /* Real blocks, not a hole. */
    int fresh = create(f, f->other);
    assert_int_equal(f->env->zero_fill(f->impl, fresh, 0, 1 << 20, NULL), ND_OK);
    assert_int_equal(f->env->sync(f->impl, fresh, NULL), ND_OK);
    assert_int_equal(f->env->stat(f->impl, f->other, &stat, NULL), ND_OK);
    assert_int_equal(stat.size, 1 << 20);
    assert_true(stat.allocated >= 1 << 20);
    f->env->close(f->impl, fresh);
    f->env->close(f->impl, file);
    nd_free(data);
}

static void file__changes_its_size_and_is_synced(void **state)
{
    struct fixture *f = *state;
    struct nd_file_stat stat;
    uint64_t size;
    int64_t now = f->env->wall_ms(f->impl);
    int file = create(f, f->path);

    assert_int_equal(f->env->pwrite(f->impl, file, "0123456789", 10, 0, NULL), ND_OK);
    assert_int_equal(f->env->truncate(f->impl, file, 4, NULL), ND_OK);
    assert_int_equal(f->env->file_size(f->impl, file, &size, NULL), ND_OK);
    assert_int_equal(size, 4);
    assert_int_equal(f->env->sync(f->impl, file, NULL), ND_OK);
    assert_int_equal(f->env->sync_fs(f->impl, file, NULL), ND_OK);
    assert_int_equal(f->env->sync_dir(f->impl, f->dir, NULL), ND_OK);
    assert_int_equal(f->env->drop_cache(f->impl, file, 0, 4, NULL), ND_OK);
    assert_int_equal(f->env->stat(f->impl, f->path, &stat, NULL), ND_OK);
    assert_int_equal(stat.kind, ND_FILE_REGULAR);
    assert_int_equal(stat.size, 4);
    assert_true(stat.mtime_ms > now - 60000 && stat.mtime_ms < now + 60000);
    f->env->close(f->impl, file);
    assert_int_equal(f->env->sync_dir(f->impl, f->other, &f->msg), ND_ERR_NOT_FOUND);
}

static void direct__reads_and_writes_aligned_blocks(void **state)
{
    enum { BLOCK = 4096 };
    struct fixture *f = *state;
    size_t read;
    int file;
    uint8_t *data = nd_xaligned(BLOCK, 3 * BLOCK);
    int flags = ND_OPEN_WRITE | ND_OPEN_CREATE | ND_OPEN_DIRECT;
    enum nd_err err = f->env->open(f->impl, f->path, flags, &file, &f->msg);

    if (err != ND_OK) {
        assert_int_equal(err, ND_ERR_UNSUPPORTED);
        nd_free(data);
        skip();
    }
    memset(data, 'd', 2 * BLOCK);
    assert_int_equal(f->env->pwrite(f->impl, file, data, 2 * BLOCK, 0, NULL), ND_OK);
    assert_int_equal(f->env->zero_fill(f->impl, file, BLOCK, BLOCK, &f->msg), ND_OK);
    assert_int_equal(f->env->truncate(f->impl, file, BLOCK + 100, NULL), ND_OK);
    /* An end inside a block is an end, not an error. */
    assert_int_equal(f->env->pread(f->impl, file, data, 3 * BLOCK, 0, &read, &f->msg), ND_OK);
    assert_int_equal(read, BLOCK + 100);
    assert_int_equal(data[BLOCK - 1], 'd');
    assert_int_equal(data[BLOCK], 0);
    f->env->close(f->impl, file);
    nd_free(data);
}

static void names__move_and_go(void **state)
{
    struct fixture *f = *state;
    struct nd_file_stat stat;

    assert_int_equal(f->env->rename(f->impl, f->path, f->other, NULL), ND_ERR_NOT_FOUND);
    assert_int_equal(f->env->unlink(f->impl, f->path, NULL), ND_ERR_NOT_FOUND);
    assert_int_equal(f->env->rmdir(f->impl, f->path, NULL), ND_ERR_NOT_FOUND);

    f->env->close(f->impl, create(f, f->path));
    f->env->close(f->impl, create(f, f->other));
    assert_int_equal(f->env->rename(f->impl, f->path, f->other, NULL), ND_OK);
    assert_int_equal(f->env->stat(f->impl, f->path, &stat, NULL), ND_ERR_NOT_FOUND);
    assert_int_equal(f->env->unlink(f->impl, f->other, NULL), ND_OK);

    assert_int_equal(f->env->mkdir(f->impl, f->path, NULL), ND_OK);
    assert_int_equal(f->env->mkdir(f->impl, f->path, NULL), ND_ERR_ALREADY_EXISTS);
    assert_int_equal(f->env->stat(f->impl, f->path, &stat, NULL), ND_OK);
    assert_int_equal(stat.kind, ND_FILE_DIR);
    assert_int_equal(f->env->rmdir(f->impl, f->dir, &f->msg), ND_ERR_IO); /* not empty */
    assert_int_equal(f->env->rmdir(f->impl, f->path, NULL), ND_OK);
}

struct listing {
    int files, dirs, stop_after;
};

static bool count_entry(void *arg, const char *name, enum nd_file_kind kind)
{
    struct listing *listing = arg;

    assert_string_not_equal(name, ".");
    assert_string_not_equal(name, "..");
    listing->files += kind == ND_FILE_REGULAR;
    listing->dirs += kind == ND_FILE_DIR;
    return listing->files + listing->dirs != listing->stop_after;
}

static void list__gives_every_entry_until_told_to_stop(void **state)
{
    struct fixture *f = *state;
    struct listing all = {0}, one = {.stop_after = 1}, none = {0};

    f->env->close(f->impl, create(f, f->path));
    f->env->close(f->impl, create(f, f->other));
    char *dir = nd_xasprintf("%s/dir", f->dir);
    assert_int_equal(f->env->mkdir(f->impl, dir, NULL), ND_OK);

    assert_int_equal(f->env->list(f->impl, f->dir, count_entry, &all, NULL), ND_OK);
    assert_int_equal(all.files, 2);
    assert_int_equal(all.dirs, 1);
    assert_int_equal(f->env->list(f->impl, f->dir, count_entry, &one, NULL), ND_OK);
    assert_int_equal(one.files + one.dirs, 1);
    assert_int_equal(f->env->rmdir(f->impl, dir, NULL), ND_OK);
    assert_int_equal(f->env->list(f->impl, dir, count_entry, &none, NULL), ND_ERR_NOT_FOUND);
    nd_free(dir);
}

static void lock__has_one_holder_at_a_time(void **state)
{
    struct fixture *f = *state;
    int first, second;

    assert_int_equal(f->env->lock(f->impl, f->path, &first, NULL), ND_OK);
    assert_int_equal(f->env->lock(f->impl, f->path, &second, &f->msg), ND_ERR_UNAVAILABLE);
    assert_non_null(strstr(f->msg.text, "another process, such as a node, holds it"));
    assert_non_null(strstr(f->msg.text, f->path));
    f->env->close(f->impl, first);
    assert_int_equal(f->env->lock(f->impl, f->path, &second, NULL), ND_OK);
    f->env->close(f->impl, second);
}

static void space__is_plausible(void **state)
{
    struct fixture *f = *state;
    struct nd_disk_space space;

    assert_int_equal(f->env->space(f->impl, f->dir, &space, NULL), ND_OK);
    assert_true(space.bytes_total > 0 && space.bytes_free <= space.bytes_total);
    assert_true(space.inodes_free > 0);
    assert_int_equal(f->env->space(f->impl, f->path, &space, NULL), ND_ERR_NOT_FOUND);
}

static void open__beyond_the_limit_of_files_says_limited(void **state)
{
    struct fixture *f = *state;
    int files[4096];
    size_t count = 0;
    enum nd_err err = ND_OK;

    f->env->close(f->impl, create(f, f->path));
    while (count < ND_ARRAY_SIZE(files) && err == ND_OK) {
        err = f->env->open(f->impl, f->path, ND_OPEN_READ, &files[count], NULL);
        count += err == ND_OK;
    }
    for (size_t i = 0; i < count; i++) {
        f->env->close(f->impl, files[i]);
    }
    if (err == ND_OK) {
        skip(); /* the limit is higher */
    }
    assert_int_equal(err, ND_ERR_LIMITED);
}

static void clocks_and_random__move(void **state)
{
    struct fixture *f = *state;
    uint64_t before = f->env->mono_ns(f->impl);

    assert_true(f->env->wall_ms(f->impl) > 1500000000000);
    assert_true(f->env->boot_ns(f->impl) > 0);
    assert_true(f->env->mono_ns(f->impl) >= before);
    uint64_t a = nd_env_random_u64(f->env), b = nd_env_random_u64(f->env);
    assert_true(a != b);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(open__says_missing_and_existing),
        CASE(open__makes_private_files_closed_on_exec),
        CASE(pread__stops_at_the_end_only),
        CASE(pwrite__on_a_read_only_file_names_call_path_and_reason),
        CASE(pwrite__to_a_full_device_says_no_space),
        CASE(zero_fill__writes_zeros_and_nothing_beside_them),
        CASE(file__changes_its_size_and_is_synced),
        CASE(direct__reads_and_writes_aligned_blocks),
        CASE(names__move_and_go),
        CASE(list__gives_every_entry_until_told_to_stop),
        CASE(lock__has_one_holder_at_a_time),
        CASE(space__is_plausible),
        CASE(open__beyond_the_limit_of_files_says_limited),
        CASE(clocks_and_random__move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
