/* A clock that runs faster, linked around the calls of our own code (ld's --wrap; the libraries
 * keep the real one): an hour of retention passes in seconds, under real threads and a real disk.
 *
 * ND_TEST_CLOCK="<speed> <start mono ns> <start boot ns> <start wall ns>": readings of the real
 * clocks (the wall one: what to show) at the moment from which time runs `speed` times as fast. The
 * same text at every start of a node makes one time of them all. Without it, or with what is not
 * such a text, the process ends. */

#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *deadline);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *deadline);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static int64_t speed, mono_start, boot_start, wall_start;

static void __attribute__((constructor)) clock_init(void)
{
    const char *text = getenv("ND_TEST_CLOCK");

    if (text == NULL || sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &speed,
                               &mono_start, &boot_start, &wall_start) != 4) {
        (void)fputs("ND_TEST_CLOCK is not set\n", stderr);
        exit(2);
    }
}

static int64_t in_ns(const struct timespec *time)
{
    return time->tv_sec * NS_PER_S + time->tv_nsec;
}

static struct timespec of_ns(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

/* Of a deadline on the fast monotonic clock; never early. */
static struct timespec real_deadline(const struct timespec *deadline)
{
    int64_t fast = in_ns(deadline);

    return of_ns(fast <= mono_start ? fast : mono_start + (fast - mono_start + speed - 1) / speed);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    /* The wall clock goes with the boot clock: nobody sets it during the test. */
    int result = __real_clock_gettime(clock == CLOCK_REALTIME ? CLOCK_BOOTTIME : clock, out);

    if (result != 0) {
        return result;
    }
    if (clock == CLOCK_MONOTONIC) {
        *out = of_ns(mono_start + (in_ns(out) - mono_start) * speed);
    } else if (clock == CLOCK_BOOTTIME) {
        *out = of_ns(boot_start + (in_ns(out) - boot_start) * speed);
    } else if (clock == CLOCK_REALTIME) {
        *out = of_ns(wall_start + (in_ns(out) - boot_start) * speed);
    }
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *deadline)
{
    struct timespec real = real_deadline(deadline);

    return __real_pthread_cond_timedwait(cond, mutex, &real);
}

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long); /* as libc's own: what was not passed is not looked at */
    }
    va_end(list);
    /* FUTEX_WAIT_BITSET has a deadline, on the monotonic clock. */
    if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && a[3] != 0) {
        struct timespec real = real_deadline((const struct timespec *)a[3]);
        return __real_syscall(number, a[0], a[1], a[2], &real, a[4], a[5]);
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
