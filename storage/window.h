/* A sliding window over a file, for readers that walk upwards: aligned reads of whole 4 KiB blocks
 * (so that the file may be open with ND_OPEN_DIRECT) into one aligned buffer. */
#ifndef ND_WINDOW_H
#define ND_WINDOW_H

#include "storage/base/env.h"

enum { ND_WINDOW_ALIGN = 4096 };

struct nd_window {
    const struct nd_env *env;
    int file;          /* the caller's */
    uint64_t file_end; /* nothing at or beyond it is asked for or shown */
    size_t chunk, want_max;
    uint8_t *buffer; /* capacity bytes; grows to what is asked for */
    size_t capacity;
    uint64_t at; /* what the buffer holds: [at, at + size) */
    size_t size;
};

/* Reads `chunk` bytes or more at a time; asks for at most `want_max` are answered. */
void nd_window_init(struct nd_window *window, const struct nd_env *env, int file, uint64_t file_end,
                    size_t chunk, size_t want_max);
void nd_window_release(struct nd_window *window);
/* The bytes from `at` on: at least `want` of them unless the file ends before; maybe more. Borrowed
 * until the next call. */
ND_CHECKED enum nd_err nd_window_get(struct nd_window *window, uint64_t at, size_t want,
                                     struct nd_slice *out, struct nd_errmsg *msg);

static inline uint64_t nd_align_up(uint64_t at)
{
    return (at + ND_WINDOW_ALIGN - 1) & ~(uint64_t)(ND_WINDOW_ALIGN - 1);
}

#endif
