/* A hash map from bytes or from a 64-bit number to a pointer. Keys are copied; those of bytes are
 * overwritten before their memory is given up, since some are credentials. Not thread safe. Hashing
 * is seeded (SipHash-2-4 for bytes) so that clients cannot choose collisions. One map holds
 * keys of one of the two kinds; mixing them is a bug (asserted). */
#ifndef ND_BASE_MAP_H
#define ND_BASE_MAP_H

#include "storage/base/slice.h"

struct nd_map;

struct nd_map *nd_map_new(uint64_t seed);
void nd_map_free(struct nd_map *map); /* the values are the caller's */
size_t nd_map_count(const struct nd_map *map);
void *nd_map_get(const struct nd_map *map, struct nd_slice key);
/* Returns the value that was there before, or NULL. `value` must not be NULL. */
void *nd_map_put(struct nd_map *map, struct nd_slice key, void *value);
void *nd_map_remove(struct nd_map *map, struct nd_slice key); /* the value, or NULL */
void *nd_map_get_u64(const struct nd_map *map, uint64_t key);
void *nd_map_put_u64(struct nd_map *map, uint64_t key, void *value);
void *nd_map_remove_u64(struct nd_map *map, uint64_t key);

/* Walk in no particular order; removing the current key while walking is allowed, adding is not.
 *   size_t at = 0; void *value; struct nd_slice key;
 *   while (nd_map_next(map, &at, &key, &value)) ...   (a u64 key is 8 bytes in memory order) */
bool nd_map_next(const struct nd_map *map, size_t *at, struct nd_slice *key_out, void **value_out);

/* SipHash-2-4 of `in` under a 128-bit key. @thread any */
uint64_t nd_siphash(const uint64_t key[2], struct nd_slice in);

#endif
