/* Faults for a real process: loaded before libc (LD_PRELOAD), told what to do through a file that
 * the test maps too (ND_FAULTS names it; tests/integration/faults.py is the other side).
 *
 * The nth call of the named kinds on a file whose path contains `path` fails with `error` and does
 * nothing; with `sticky` all later ones do, until disarmed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALL_PWRITE = 1, CALL_FDATASYNC = 2, CALL_FSYNC = 4, CALL_SYNCFS = 8 };

struct control {
    _Atomic uint32_t armed; /* written last by the test */
    _Atomic uint32_t fired;
    _Atomic uint32_t nth;
    uint32_t calls; /* bits of the above */
    int32_t error;
    uint32_t sticky;
    char path[232]; /* "": any */
};

static struct control *control;
static __typeof__(pwrite) *real_pwrite;
static __typeof__(fdatasync) *real_fdatasync;
static __typeof__(fsync) *real_fsync;
static __typeof__(syncfs) *real_syncfs;

/* As dlsym's manual has it: ISO C has no cast from an object to a function. */
static void find(const char *name, void *out)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(out, &symbol, sizeof symbol);
}

/* Whoever calls first, also before the constructors of others. */
__attribute__((constructor)) static void load(void)
{
    if (real_syncfs != NULL) {
        return;
    }
    find("pwrite", &real_pwrite);
    find("fdatasync", &real_fdatasync);
    find("fsync", &real_fsync);
    find("syncfs", &real_syncfs);
    const char *name = getenv("ND_FAULTS");
    int file = name == NULL ? -1 : open(name, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        void *page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        control = page == MAP_FAILED ? NULL : page;
        (void)close(file);
    }
}

static int path_matches(int file)
{
    char link[64], path[4096];
    if (control->path[0] == '\0') {
        return 1;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = '\0';
    return strstr(path, control->path) != NULL;
}

static int fails(uint32_t call, int file)
{
    load();
    if (control == NULL || atomic_load(&control->armed) == 0 || (control->calls & call) == 0 ||
        !path_matches(file)) {
        return 0;
    }
    uint32_t nth = atomic_load(&control->nth);
    while (nth > 1 && !atomic_compare_exchange_weak(&control->nth, &nth, nth - 1)) {
    }
    if (nth > 1) {
        return 0;
    }
    if (!control->sticky && atomic_exchange(&control->armed, 0) == 0) {
        return 0; /* another thread was first */
    }
    atomic_fetch_add(&control->fired, 1);
    errno = control->error;
    return 1;
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at)
{
    return fails(CALL_PWRITE, file) ? -1 : real_pwrite(file, data, size, at);
}

int fdatasync(int file)
{
    return fails(CALL_FDATASYNC, file) ? -1 : real_fdatasync(file);
}

int fsync(int file)
{
    return fails(CALL_FSYNC, file) ? -1 : real_fsync(file);
}

int syncfs(int file)
{
    return fails(CALL_SYNCFS, file) ? -1 : real_syncfs(file);
}
