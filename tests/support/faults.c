/* Faults for a real process: loaded before libc (LD_PRELOAD), told what to do through a file that
 * the test maps too (ND_FAULTS names it; tests/integration/faults.py is the other side).
 *
 * The nth call of the named kinds on a file whose path contains `path` fails with `error` and does
 * nothing; with `sticky` all later ones do, until disarmed. With `error` 0 it hangs until disarmed,
 * and then goes on.
 *
 * libraft submits its writes with io_submit(2), which libc does not have: by syscall().
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CALL_PWRITE = 1, CALL_FDATASYNC = 2, CALL_FSYNC = 4, CALL_SYNCFS = 8, CALL_SUBMIT = 16 };

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
static __typeof__(syscall) *real_syscall;

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
    find("syscall", &real_syscall);
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

/* Is it one that shall fail, or hang? */
static int meets(uint32_t call, int file)
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
    if (!control->sticky && control->error != 0 && atomic_exchange(&control->armed, 0) == 0) {
        return 0; /* another thread was first */
    }
    atomic_fetch_add(&control->fired, 1);
    errno = control->error;
    return 1;
}

/* The test changes the word and wakes nobody: looked at again and again. */
static void hang(void)
{
    const struct timespec again = {.tv_nsec = 5000000};
    uint32_t armed;
    while ((armed = atomic_load(&control->armed)) != 0) {
        (void)real_syscall(SYS_futex, &control->armed, FUTEX_WAIT, armed, &again, NULL, 0);
    }
}

static int fails(uint32_t call, int file)
{
    int met = meets(call, file);
    if (met && control->error == 0) {
        hang();
        return 0;
    }
    return met;
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

/* Writes that the device does not get before this is disarmed. */
struct late_submit {
    long context, count;
    struct iocb *blocks[];
};

static void *submit_late(void *arg)
{
    struct late_submit *late = arg;
    hang();
    if (real_syscall(SYS_io_submit, late->context, late->count, late->blocks) != late->count) {
        abort(); /* whoever waits would wait for ever */
    }
    free(late);
    return NULL;
}

/* Who submits does not wait for the device: only what it submitted does. */
static long submit_hanging(long context, long count, struct iocb *const *blocks)
{
    struct late_submit *late = malloc(sizeof *late + (size_t)count * sizeof(struct iocb *));
    pthread_t thread;
    if (late == NULL) {
        return -1;
    }
    late->context = context;
    late->count = count;
    memcpy(late->blocks, blocks, (size_t)count * sizeof(struct iocb *));
    if (pthread_create(&thread, NULL, submit_late, late) != 0) {
        abort();
    }
    (void)pthread_detach(thread);
    return count;
}

/* Also what others call by number: six arguments are always passed on. */
long syscall(long number, ...)
{
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    load();
    if (number == SYS_io_submit && a[1] > 0) {
        struct iocb *const *blocks = (struct iocb *const *)a[2];
        if (meets(CALL_SUBMIT, (int)blocks[0]->aio_fildes)) {
            return control->error == 0 ? submit_hanging(a[0], a[1], blocks) : -1;
        }
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
