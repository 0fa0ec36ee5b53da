/* nd_env on Linux. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/env.h"

enum { ZEROS_SIZE = 1 << 20, DIRECT_ALIGNMENT = 4096, SECTOR_SIZE = 512, NS_PER_S = 1000000000 };

static enum nd_err err_of_errno(int error)
{
    switch (error) {
    case ENOENT: return ND_ERR_NOT_FOUND;
    case EEXIST: return ND_ERR_ALREADY_EXISTS;
    case ENOSPC:
    case EDQUOT: return ND_ERR_NO_SPACE;
    case ENOMEM: return ND_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE: return ND_ERR_LIMITED;
    default: return ND_ERR_IO;
    }
}

/* From errno, which it reads first. */
static enum nd_err fail(struct nd_errmsg *msg, const char *call, const char *path)
{
    int error = errno;
    char buffer[128];

    nd_errmsg_set(msg, "%s %s: %s", call, path, strerror_r(error, buffer, sizeof buffer));
    return err_of_errno(error);
}

/* As fail(), with the path that the kernel knows for the descriptor. */
static enum nd_err fail_file(struct nd_errmsg *msg, const char *call, int file)
{
    int error = errno;
    char link[64], path[PATH_MAX];

    if (msg != NULL) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t size = readlink(link, path, sizeof path - 1);
        if (size < 0) {
            size = snprintf(path, sizeof path, "file %d", file);
        }
        path[size] = '\0';
        errno = error;
        return fail(msg, call, path);
    }
    return err_of_errno(error);
}

static enum nd_err posix_open(void *impl, const char *path, int flags, int *file_out,
                              struct nd_errmsg *msg)
{
    int how = O_CLOEXEC;
    int file;

    (void)impl;
    how |= (flags & ND_OPEN_WRITE) != 0 ? O_RDWR : O_RDONLY;
    how |= (flags & ND_OPEN_CREATE) != 0 ? O_CREAT : 0;
    how |= (flags & ND_OPEN_EXCL) != 0 ? O_EXCL : 0;
    how |= (flags & ND_OPEN_DIRECT) != 0 ? O_DIRECT : 0;
    do {
        file = open(path, how, 0600);
    } while (file < 0 && errno == EINTR);
    if (file < 0) {
        bool direct_refused = errno == EINVAL && (flags & ND_OPEN_DIRECT) != 0;
        enum nd_err err = fail(msg, "open", path);
        return direct_refused ? ND_ERR_UNSUPPORTED : err;
    }
    *file_out = file;
    return ND_OK;
}

static void posix_close(void *impl, int file)
{
    (void)impl;
    (void)close(file); /* what matters was synced before; after EINTR Linux has closed it, too */
}

/* A direct read that ends inside a block has met the end of the file; asking again from there would
 * be refused as unaligned. */
static bool is_direct_end(int file, uint64_t at)
{
    return at % SECTOR_SIZE != 0 && (fcntl(file, F_GETFL) & O_DIRECT) != 0;
}

static enum nd_err posix_pread(void *impl, int file, void *data, size_t size, uint64_t at,
                               size_t *read_out, struct nd_errmsg *msg)
{
    size_t done = 0;

    (void)impl;
    while (done < size) {
        ssize_t got = pread(file, (uint8_t *)data + done, size - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail_file(msg, "read", file);
        }
        done += (size_t)got;
        if (got == 0 || (done < size && is_direct_end(file, at + done))) {
            break;
        }
    }
    *read_out = done;
    return ND_OK;
}

static enum nd_err posix_pwrite(void *impl, int file, const void *data, size_t size, uint64_t at,
                                struct nd_errmsg *msg)
{
    size_t done = 0;

    (void)impl;
    while (done < size) {
        ssize_t put = pwrite(file, (const uint8_t *)data + done, size - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put == 0) {
            errno = EIO; /* a regular file never answers so; do not turn in circles */
        }
        if (put <= 0) {
            return fail_file(msg, "write", file);
        }
        done += (size_t)put;
    }
    return ND_OK;
}

static enum nd_err posix_sync(void *impl, int file, struct nd_errmsg *msg)
{
    (void)impl;
    return fdatasync(file) == 0 ? ND_OK : fail_file(msg, "fdatasync", file);
}

static enum nd_err posix_sync_fs(void *impl, int file, struct nd_errmsg *msg)
{
    (void)impl;
    return syncfs(file) == 0 ? ND_OK : fail_file(msg, "syncfs", file);
}

static enum nd_err posix_sync_dir(void *impl, const char *path, struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;
    int dir;

    (void)impl;
    do {
        dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (dir < 0 && errno == EINTR);
    if (dir < 0) {
        return fail(msg, "open directory", path);
    }
    if (fsync(dir) != 0) {
        err = fail(msg, "fsync directory", path);
    }
    (void)close(dir);
    return err;
}

static enum nd_err posix_truncate(void *impl, int file, uint64_t size, struct nd_errmsg *msg)
{
    int result;

    (void)impl;
    do {
        result = ftruncate(file, (off_t)size);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? ND_OK : fail_file(msg, "truncate", file);
}

static enum nd_err posix_zero_fill(void *impl, int file, uint64_t at, uint64_t size,
                                   struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;
    /* Never written, so all of it is the kernel's one page of zeros; aligned, so O_DIRECT takes it.
     */
    void *zeros = mmap(NULL, ZEROS_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (zeros == MAP_FAILED) {
        return fail_file(msg, "map zeros for", file);
    }
    while (size > 0 && err == ND_OK) {
        size_t part = (size_t)ND_MIN(size, (uint64_t)ZEROS_SIZE);
        err = posix_pwrite(impl, file, zeros, part, at, msg);
        at += part;
        size -= part;
    }
    (void)munmap(zeros, ZEROS_SIZE);
    return err;
}

static enum nd_err posix_drop_cache(void *impl, int file, uint64_t at, uint64_t size,
                                    struct nd_errmsg *msg)
{
    (void)impl;
    int error = posix_fadvise(file, (off_t)at, (off_t)size, POSIX_FADV_DONTNEED);
    if (error != 0) {
        errno = error;
        return fail_file(msg, "drop the cache of", file);
    }
    return ND_OK;
}

static enum nd_err posix_file_size(void *impl, int file, uint64_t *size_out, struct nd_errmsg *msg)
{
    struct stat status;

    (void)impl;
    if (fstat(file, &status) != 0) {
        return fail_file(msg, "stat", file);
    }
    *size_out = (uint64_t)status.st_size;
    return ND_OK;
}

static enum nd_file_kind kind_of_mode(mode_t mode)
{
    return S_ISREG(mode) ? ND_FILE_REGULAR : S_ISDIR(mode) ? ND_FILE_DIR : ND_FILE_OTHER;
}

static enum nd_err posix_stat(void *impl, const char *path, struct nd_file_stat *out,
                              struct nd_errmsg *msg)
{
    struct stat status;

    (void)impl;
    if (stat(path, &status) != 0) {
        return fail(msg, "stat", path);
    }
    out->kind = kind_of_mode(status.st_mode);
    out->size = (uint64_t)status.st_size;
    out->allocated = (uint64_t)status.st_blocks * SECTOR_SIZE;
    out->mtime_ms = (int64_t)status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec / 1000000;
    return ND_OK;
}

static enum nd_err posix_rename(void *impl, const char *from, const char *to, struct nd_errmsg *msg)
{
    (void)impl;
    return rename(from, to) == 0 ? ND_OK : fail(msg, "rename", from);
}

static enum nd_err posix_unlink(void *impl, const char *path, struct nd_errmsg *msg)
{
    (void)impl;
    return unlink(path) == 0 ? ND_OK : fail(msg, "unlink", path);
}

static enum nd_err posix_mkdir(void *impl, const char *path, struct nd_errmsg *msg)
{
    (void)impl;
    return mkdir(path, 0700) == 0 ? ND_OK : fail(msg, "mkdir", path);
}

static enum nd_err posix_rmdir(void *impl, const char *path, struct nd_errmsg *msg)
{
    (void)impl;
    return rmdir(path) == 0 ? ND_OK : fail(msg, "rmdir", path);
}

static enum nd_file_kind kind_of_entry(DIR *dir, const struct dirent *entry)
{
    struct stat status;

    switch (entry->d_type) {
    case DT_REG: return ND_FILE_REGULAR;
    case DT_DIR: return ND_FILE_DIR;
    case DT_UNKNOWN: /* some file systems do not say */
        if (fstatat(dirfd(dir), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
            return kind_of_mode(status.st_mode);
        }
        return ND_FILE_OTHER;
    default: return ND_FILE_OTHER;
    }
}

static enum nd_err posix_list(void *impl, const char *path, nd_list_cb *cb, void *arg,
                              struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;
    DIR *dir = opendir(path); /* close-on-exec by itself */

    (void)impl;
    if (dir == NULL) {
        return fail(msg, "open directory", path);
    }
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            err = errno == 0 ? ND_OK : fail(msg, "read directory", path);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (!cb(arg, entry->d_name, kind_of_entry(dir, entry))) {
            break;
        }
    }
    (void)closedir(dir);
    return err;
}

static enum nd_err posix_space(void *impl, const char *path, struct nd_disk_space *out,
                               struct nd_errmsg *msg)
{
    struct statvfs status;

    (void)impl;
    if (statvfs(path, &status) != 0) {
        return fail(msg, "statvfs", path);
    }
    out->bytes_free = (uint64_t)status.f_bavail * status.f_frsize;
    out->bytes_total = (uint64_t)status.f_blocks * status.f_frsize;
    out->inodes_free = status.f_files == 0 ? UINT64_MAX : (uint64_t)status.f_favail;
    return ND_OK;
}

static enum nd_err posix_lock(void *impl, const char *path, int *file_out, struct nd_errmsg *msg)
{
    int file;
    enum nd_err err = posix_open(impl, path, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, msg);

    if (err != ND_OK) {
        return err;
    }
    int result;
    do {
        result = flock(file, LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result != 0) {
        bool taken = errno == EWOULDBLOCK;
        err = fail(msg, "lock", path);
        if (taken) {
            nd_errmsg_set(msg, "lock %s: another process, such as a node, holds it", path);
        }
        posix_close(impl, file);
        return taken ? ND_ERR_UNAVAILABLE : err;
    }
    *file_out = file;
    return ND_OK;
}

static struct timespec clock_read(clockid_t clock)
{
    struct timespec now;

    ND_ASSERT(clock_gettime(clock, &now) == 0);
    return now;
}

static int64_t posix_wall_ms(void *impl)
{
    struct timespec now = clock_read(CLOCK_REALTIME);

    (void)impl;
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint64_t posix_boot_ns(void *impl)
{
    struct timespec now = clock_read(CLOCK_BOOTTIME);

    (void)impl;
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t posix_mono_ns(void *impl)
{
    struct timespec now = clock_read(CLOCK_MONOTONIC);

    (void)impl;
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void posix_random(void *impl, void *data, size_t size)
{
    size_t done = 0;

    (void)impl;
    while (done < size) {
        ssize_t got = getrandom((uint8_t *)data + done, size - done, 0);
        ND_ASSERT(got > 0 || errno == EINTR); /* without randomness no nonce or store id is safe */
        done += got > 0 ? (size_t)got : 0;
    }
}

const struct nd_env *nd_env_posix(void)
{
    static const struct nd_env env = {
        .open = posix_open,
        .close = posix_close,
        .pread = posix_pread,
        .pwrite = posix_pwrite,
        .sync = posix_sync,
        .sync_fs = posix_sync_fs,
        .sync_dir = posix_sync_dir,
        .truncate = posix_truncate,
        .zero_fill = posix_zero_fill,
        .drop_cache = posix_drop_cache,
        .file_size = posix_file_size,
        .stat = posix_stat,
        .rename = posix_rename,
        .unlink = posix_unlink,
        .mkdir = posix_mkdir,
        .rmdir = posix_rmdir,
        .list = posix_list,
        .space = posix_space,
        .lock = posix_lock,
        .wall_ms = posix_wall_ms,
        .boot_ns = posix_boot_ns,
        .mono_ns = posix_mono_ns,
        .random = posix_random,
    };

    return &env;
}
