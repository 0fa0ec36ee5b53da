/* One request, one arena: bump allocation, freed whole. Not thread safe. */
#ifndef ND_BASE_ARENA_H
#define ND_BASE_ARENA_H

#include "storage/base/slice.h"

struct nd_arena {
    uint8_t *at;     /* next free byte of the current chunk */
    size_t left;     /* bytes left in it */
    void *chunks;    /* list of chunks, newest first */
    size_t used;     /* bytes handed out since init or reset */
    size_t used_max; /* nd_arena_alloc returns NULL beyond it */
};

void nd_arena_init(struct nd_arena *arena, size_t used_max);
void nd_arena_reset(struct nd_arena *arena); /* keeps one chunk */
/* Overwrites all that it gave out; before a reset or release, when there was a secret among it. */
void nd_arena_wipe(struct nd_arena *arena);
void nd_arena_release(struct nd_arena *arena);
/* 16-byte aligned; NULL when the limit is passed or memory is out. */
void *nd_arena_alloc(struct nd_arena *arena, size_t size) ND_CHECKED;
char *nd_arena_strndup(struct nd_arena *arena, const void *text, size_t size) ND_CHECKED;

#endif
