#include "storage/base/arena.h"

#include <stdalign.h>

#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

enum { ALIGNMENT = 16, CHUNK_SIZE_MIN = 4096, CHUNK_SIZE_MAX = 65536 };

/* The bytes handed out follow the header. */
struct chunk {
    alignas(ALIGNMENT) struct chunk *next;
    size_t size; /* of the bytes after the header */
};

static uint8_t *chunk_bytes(struct chunk *chunk)
{
    return (uint8_t *)(chunk + 1);
}

void nd_arena_init(struct nd_arena *arena, size_t used_max)
{
    *arena = (struct nd_arena){.used_max = used_max};
}

/* Keeps the largest chunk of ordinary size, so that one huge request does not pin its memory. */
void nd_arena_reset(struct nd_arena *arena)
{
    struct chunk *kept = NULL;

    for (struct chunk *chunk = arena->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        bool better = chunk->size <= CHUNK_SIZE_MAX && (kept == NULL || chunk->size > kept->size);
        struct chunk *dropped = better ? kept : chunk;
        if (better) {
            kept = chunk;
        }
        nd_free(dropped);
    }
    nd_arena_init(arena, arena->used_max);
    if (kept != NULL) {
        kept->next = NULL;
        arena->chunks = kept;
        arena->at = chunk_bytes(kept);
        arena->left = kept->size;
    }
}

void nd_arena_wipe(struct nd_arena *arena)
{
    for (struct chunk *chunk = arena->chunks; chunk != NULL; chunk = chunk->next) {
        nd_wipe(chunk_bytes(chunk), chunk->size);
    }
}

void nd_arena_release(struct nd_arena *arena)
{
    for (struct chunk *chunk = arena->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        nd_free(chunk);
    }
    nd_arena_init(arena, arena->used_max);
}

/* Chunks double from 4 KiB to 64 KiB; what is larger gets one of its own size. */
static bool chunk_add(struct nd_arena *arena, size_t size)
{
    const struct chunk *newest = arena->chunks;
    size_t chunk_size = CHUNK_SIZE_MIN;

    if (newest != NULL) {
        chunk_size = ND_MIN(newest->size * 2, (size_t)CHUNK_SIZE_MAX);
        chunk_size = ND_MAX(chunk_size, (size_t)CHUNK_SIZE_MIN);
    }
    chunk_size = ND_MAX(chunk_size, size);
    if (chunk_size > SIZE_MAX - sizeof(struct chunk)) {
        return false;
    }
    struct chunk *chunk = nd_malloc(sizeof *chunk + chunk_size);
    if (chunk == NULL) {
        return false;
    }
    chunk->next = arena->chunks;
    chunk->size = chunk_size;
    arena->chunks = chunk;
    arena->at = chunk_bytes(chunk);
    arena->left = chunk_size;
    return true;
}

void *nd_arena_alloc(struct nd_arena *arena, size_t size)
{
    if (size > SIZE_MAX - ALIGNMENT) {
        return NULL;
    }
    size_t rounded = (ND_MAX(size, 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (rounded > arena->used_max || arena->used > arena->used_max - rounded) {
        return NULL;
    }
    if (rounded > arena->left && !chunk_add(arena, rounded)) {
        return NULL;
    }
    void *result = arena->at;
    arena->at += rounded;
    arena->left -= rounded;
    arena->used += rounded;
    return result;
}

char *nd_arena_strndup(struct nd_arena *arena, const void *text, size_t size)
{
    if (size == SIZE_MAX) {
        return NULL;
    }
    char *copy = nd_arena_alloc(arena, size + 1);
    if (copy == NULL) {
        return NULL;
    }
    if (size > 0) {
        memcpy(copy, text, size);
    }
    copy[size] = '\0';
    return copy;
}
