#include "storage/window.h"

#include "storage/base/alloc.h"

void nd_window_init(struct nd_window *window, const struct nd_env *env, int file, uint64_t file_end,
                    size_t chunk, size_t want_max)
{
    *window = (struct nd_window){
        .env = env,
        .file = file,
        .file_end = file_end,
        .chunk = chunk,
        .want_max = want_max,
    };
}

void nd_window_release(struct nd_window *window)
{
    nd_free(window->buffer);
    window->buffer = NULL;
    window->size = window->capacity = 0;
}

/* Fill the buffer from the block that holds `at`, with room for `want` bytes behind it. */
static enum nd_err window_fill(struct nd_window *window, uint64_t at, size_t want,
                               struct nd_errmsg *msg)
{
    uint64_t from = at & ~(uint64_t)(ND_WINDOW_ALIGN - 1);
    size_t got = 0;

    ND_ASSERT(want <= ND_MAX(window->chunk, window->want_max));
    size_t size = nd_align_up((size_t)(at - from) + ND_MAX(want, window->chunk));
    size = (size_t)ND_MIN((uint64_t)size, nd_align_up(window->file_end) - from);
    if (size > window->capacity) {
        nd_free(window->buffer);
        window->buffer = nd_xaligned(ND_WINDOW_ALIGN, size);
        window->capacity = size;
    }
    window->size = 0;
    enum nd_err err =
        window->env->pread(window->env->impl, window->file, window->buffer, size, from, &got, msg);
    if (err != ND_OK) {
        return err;
    }
    window->at = from;
    window->size = got;
    return ND_OK;
}

enum nd_err nd_window_get(struct nd_window *window, uint64_t at, size_t want, struct nd_slice *out,
                          struct nd_errmsg *msg)
{
    if (at >= window->file_end) {
        *out = nd_slice_make(NULL, 0);
        return ND_OK;
    }
    want = (size_t)ND_MIN((uint64_t)want, window->file_end - at);
    if (at < window->at || at + want > window->at + window->size) {
        enum nd_err err = window_fill(window, at, want, msg);
        if (err != ND_OK) {
            return err;
        }
    }
    size_t skip = (size_t)(at - window->at);
    size_t size = window->size > skip ? window->size - skip : 0;
    *out = nd_slice_make(window->buffer + skip, (size_t)ND_MIN(size, window->file_end - at));
    return ND_OK;
}
