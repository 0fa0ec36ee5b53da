/* Attributes, assertions and small macros that every file may use. */
#ifndef ND_BASE_COMPILER_H
#define ND_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ND_CHECKED            __attribute__((warn_unused_result))
#define ND_PRINTF(form, args) __attribute__((format(printf, form, args)))
#define ND_NORETURN           __attribute__((noreturn))

#ifdef __clang__
#define ND_CAPABILITY(name) __attribute__((capability(name)))
#define ND_ACQUIRE(...)     __attribute__((acquire_capability(__VA_ARGS__)))
#define ND_RELEASE(...)     __attribute__((release_capability(__VA_ARGS__)))
#define ND_REQUIRES(...)    __attribute__((requires_capability(__VA_ARGS__)))
#define ND_NO_THREAD_CHECK  __attribute__((no_thread_safety_analysis))
#else
#define ND_CAPABILITY(name)
#define ND_ACQUIRE(...)
#define ND_RELEASE(...)
#define ND_REQUIRES(...)
#define ND_NO_THREAD_CHECK
#endif

/* On in release builds too: a broken invariant must not write to the disk. */
#define ND_ASSERT(condition)                                                                       \
    ((condition) ? (void)0 : nd_assert_failed(#condition, __FILE__, __LINE__))
#define ND_UNREACHABLE() nd_assert_failed("unreachable", __FILE__, __LINE__)

ND_NORETURN void nd_assert_failed(const char *condition, const char *file, int line);

#define ND_CONTAINER_OF(pointer, type, member)                                                     \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#define ND_ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define ND_MIN(a, b)         ((a) < (b) ? (a) : (b))
#define ND_MAX(a, b)         ((a) > (b) ? (a) : (b))

#endif
