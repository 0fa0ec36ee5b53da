/* Random numbers from a seed (SplitMix64): a failing test says its seed, and the seed says it
 * again. */
#ifndef ND_TESTS_SUPPORT_ND_RAND_H
#define ND_TESTS_SUPPORT_ND_RAND_H

#include <stdint.h>

static inline uint64_t nd_rand(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* 0 .. limit-1; `limit` is not 0. */
static inline uint64_t nd_rand_below(uint64_t *seed, uint64_t limit)
{
    return nd_rand(seed) % limit;
}

#endif
