/* All that storage and broker ask of the outside world: disk, clocks, randomness (architecture 12).
 * The server passes nd_env_posix(); the simulator passes a disk that drops, tears and reorders
 * unsynced writes, a clock turned by hand and a seed that replays.
 *
 * Every call may be made from any thread; calls on one file from several threads are the caller's
 * to order where order matters. Paths are absolute or relative to the process's directory, and
 * given whole. Errors: NOT_FOUND (ENOENT), ALREADY_EXISTS (EEXIST), NO_SPACE (ENOSPC, EDQUOT),
 * NO_MEMORY, LIMITED (EMFILE, ENFILE), UNSUPPORTED (EINVAL of an optional feature), IO for all
 * else. The message names the call, the path and the reason. */
#ifndef ND_BASE_ENV_H
#define ND_BASE_ENV_H

#include "storage/base/err.h"
#include "storage/base/slice.h"

enum nd_open_flags {
    ND_OPEN_READ = 0,        /* read only, must exist */
    ND_OPEN_WRITE = 1 << 0,  /* read and write */
    ND_OPEN_CREATE = 1 << 1, /* with WRITE: make it if missing, mode 0600 */
    ND_OPEN_EXCL = 1 << 2,   /* with CREATE: ALREADY_EXISTS if it is there */
    ND_OPEN_DIRECT = 1 << 3, /* bypass the page cache: offsets, sizes and memory are multiples of
                                4096; UNSUPPORTED where the file system has no O_DIRECT */
};

enum nd_file_kind { ND_FILE_REGULAR, ND_FILE_DIR, ND_FILE_OTHER };

struct nd_file_stat {
    enum nd_file_kind kind;
    uint64_t size;      /* bytes */
    uint64_t allocated; /* bytes of the device in use */
    int64_t mtime_ms;   /* Unix milliseconds */
};

struct nd_disk_space {
    uint64_t bytes_free, bytes_total;
    uint64_t inodes_free; /* UINT64_MAX where the file system does not count them */
};

/* Called once per entry, in no order, without "." and ".."; return false to stop. */
typedef bool nd_list_cb(void *arg, const char *name, enum nd_file_kind kind);

struct nd_env {
    void *impl;
    enum nd_err (*open)(void *impl, const char *path, int flags, int *file_out, struct nd_errmsg *);
    void (*close)(void *impl, int file);
    /* Reads up to `size` bytes; *read_out < size only at the end of the file. */
    enum nd_err (*pread)(void *impl, int file, void *data, size_t size, uint64_t at,
                         size_t *read_out, struct nd_errmsg *);
    /* Writes all, or fails; after a failure any part of it may have been written. */
    enum nd_err (*pwrite)(void *impl, int file, const void *data, size_t size, uint64_t at,
                          struct nd_errmsg *);
    enum nd_err (*sync)(void *impl, int file, struct nd_errmsg *);    /* fdatasync */
    enum nd_err (*sync_fs)(void *impl, int file, struct nd_errmsg *); /* syncfs */
    enum nd_err (*sync_dir)(void *impl, const char *path, struct nd_errmsg *);
    enum nd_err (*truncate)(void *impl, int file, uint64_t size, struct nd_errmsg *);
    /* Written zeros in [at, at+size), so that a later sync overwrites allocated blocks. */
    enum nd_err (*zero_fill)(void *impl, int file, uint64_t at, uint64_t size, struct nd_errmsg *);
    /* Forget cached clean pages of [at, at+size); the next read asks the device. */
    enum nd_err (*drop_cache)(void *impl, int file, uint64_t at, uint64_t size, struct nd_errmsg *);
    enum nd_err (*file_size)(void *impl, int file, uint64_t *size_out, struct nd_errmsg *);
    enum nd_err (*stat)(void *impl, const char *path, struct nd_file_stat *out, struct nd_errmsg *);
    enum nd_err (*rename)(void *impl, const char *from, const char *to, struct nd_errmsg *);
    enum nd_err (*unlink)(void *impl, const char *path, struct nd_errmsg *);
    enum nd_err (*mkdir)(void *impl, const char *path,
                         struct nd_errmsg *); /* 0700; ALREADY_EXISTS */
    enum nd_err (*rmdir)(void *impl, const char *path, struct nd_errmsg *);
    enum nd_err (*list)(void *impl, const char *path, nd_list_cb *cb, void *arg,
                        struct nd_errmsg *);
    enum nd_err (*space)(void *impl, const char *path, struct nd_disk_space *out,
                         struct nd_errmsg *);
    /* An exclusive lock on `path` (made if missing) until closed; UNAVAILABLE when another holds
     * it. */
    enum nd_err (*lock)(void *impl, const char *path, int *file_out, struct nd_errmsg *);

    int64_t (*wall_ms)(void *impl);  /* Unix milliseconds; may jump */
    uint64_t (*boot_ns)(void *impl); /* CLOCK_BOOTTIME */
    uint64_t (*mono_ns)(void *impl); /* CLOCK_MONOTONIC */
    void (*random)(void *impl, void *data, size_t size);
};

/* The real one. Static, never freed. */
const struct nd_env *nd_env_posix(void);

static inline uint64_t nd_env_random_u64(const struct nd_env *env)
{
    uint64_t value;
    env->random(env->impl, &value, sizeof value);
    return value;
}

/* mkdir of `path` and every missing parent; each new entry's directory is synced. */
ND_CHECKED enum nd_err nd_env_mkdirs(const struct nd_env *env, const char *path,
                                     struct nd_errmsg *msg);
/* Read a whole file of at most `size_max` bytes into `*data_out` (nd_free). TOO_LARGE beyond it. */
ND_CHECKED enum nd_err nd_env_read_file(const struct nd_env *env, const char *path, size_t size_max,
                                        uint8_t **data_out, size_t *size_out,
                                        struct nd_errmsg *msg);
/* Replace `path` durably: temporary beside it, write, sync, rename, directory sync. */
ND_CHECKED enum nd_err nd_env_replace_file(const struct nd_env *env, const char *path,
                                           struct nd_slice bytes, struct nd_errmsg *msg);

#endif
