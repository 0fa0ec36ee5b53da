/* Open addressing with linear probing. A removed entry leaves a tombstone unless its right
 * neighbour is empty, so that entries never move while a walk is under way.
 *
 * INVARIANTS
 *  M1  capacity is 0 or a power of two, and at least a quarter of the slots is empty.
 *  M2  between an entry's home slot and the entry itself there is no empty slot.
 *  M3  filled = live entries + tombstones. */
#include "storage/base/map.h"

#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/wipe.h"

enum { CAPACITY_MIN = 16, KEY_INLINE_MAX = 16 };
enum key_kind { KEY_NONE, KEY_BYTES, KEY_U64 };

/* value == NULL: empty, or a tombstone if `hash` says so. */
struct entry {
    void *value;
    uint64_t hash; /* compared before the key; of an unused slot: EMPTY or TOMBSTONE */
    size_t key_size;
    union {
        uint8_t bytes[KEY_INLINE_MAX];
        uint8_t *heap; /* when key_size > KEY_INLINE_MAX */
    } key;
};
enum { EMPTY = 0, TOMBSTONE = 1 };

struct nd_map {
    struct entry *entries;
    size_t capacity;
    size_t count;
    size_t filled;
    uint64_t seed[2];
    enum key_kind kind; /* a map holds one kind: the two hash differently */
};

static const uint8_t *entry_key(const struct entry *entry)
{
    return entry->key_size > KEY_INLINE_MAX ? entry->key.heap : entry->key.bytes;
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

uint64_t nd_siphash(const uint64_t key[2], struct nd_slice in)
{
    uint64_t v[4] = {
        key[0] ^ 0x736f6d6570736575u,
        key[1] ^ 0x646f72616e646f6du,
        key[0] ^ 0x6c7967656e657261u,
        key[1] ^ 0x7465646279746573u,
    };
    uint64_t last = (uint64_t)in.size << 56;
    size_t whole = in.size / 8 * 8;

    for (size_t at = 0; at < whole; at += 8) {
        sip_word(v, nd_get_u64(in.data + at));
    }
    for (size_t i = 0; i < in.size % 8; i++) {
        last |= (uint64_t)in.data[whole + i] << (8 * i);
    }
    sip_word(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The finaliser of SplitMix64: every bit of the input reaches every bit of the output. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t hash_bytes(const struct nd_map *map, struct nd_slice key)
{
    return nd_siphash(map->seed, key) | 2; /* apart from EMPTY and TOMBSTONE */
}

static uint64_t hash_u64(const struct nd_map *map, uint64_t key)
{
    return mix(mix(key ^ map->seed[0]) + map->seed[1]) | 2;
}

/* The low bits carry the marks of unused slots, so the place comes from the high ones. */
static size_t home(const struct nd_map *map, uint64_t hash)
{
    return (size_t)(hash >> 8) & (map->capacity - 1);
}

struct nd_map *nd_map_new(uint64_t seed)
{
    struct nd_map *map = nd_xcalloc(1, sizeof *map);

    map->seed[0] = seed;
    map->seed[1] = mix(seed + 0x9e3779b97f4a7c15u);
    return map;
}

static void entry_release(struct entry *entry)
{
    if (entry->value != NULL && entry->key_size > KEY_INLINE_MAX) {
        nd_wipe(entry->key.heap, entry->key_size);
        nd_free(entry->key.heap);
    }
}

/* The keys that lie in them go, too; numbers are no secrets. */
static void entries_free(const struct nd_map *map)
{
    if (map->kind == KEY_BYTES) {
        nd_wipe(map->entries, map->capacity * sizeof *map->entries);
    }
    nd_free(map->entries);
}

void nd_map_free(struct nd_map *map)
{
    if (map == NULL) {
        return;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        entry_release(&map->entries[i]);
    }
    entries_free(map);
    nd_free(map);
}

size_t nd_map_count(const struct nd_map *map)
{
    return map->count;
}

static bool entry_has(const struct entry *entry, uint64_t hash, struct nd_slice key)
{
    return entry->hash == hash && entry->value != NULL &&
           nd_slice_equal(nd_slice_make(entry_key(entry), entry->key_size), key);
}

static struct entry *find(const struct nd_map *map, uint64_t hash, struct nd_slice key)
{
    if (map->count == 0) {
        return NULL;
    }
    for (size_t at = home(map, hash);; at = (at + 1) & (map->capacity - 1)) {
        struct entry *entry = &map->entries[at];
        if (entry_has(entry, hash, key)) {
            return entry;
        }
        if (entry->value == NULL && entry->hash == EMPTY) {
            return NULL;
        }
    }
}

static struct entry *first_unused(const struct nd_map *map, uint64_t hash)
{
    size_t at = home(map, hash);

    while (map->entries[at].value != NULL) {
        at = (at + 1) & (map->capacity - 1);
    }
    return &map->entries[at];
}

/* Room for one more (M1). Growing doubles; a table full of tombstones is only swept. */
static void reserve(struct nd_map *map)
{
    if (map->filled + 1 <= map->capacity / 4 * 3) {
        return;
    }
    struct nd_map old = *map;
    if (map->count + 1 > map->capacity / 2) {
        map->capacity = ND_MAX((size_t)CAPACITY_MIN, map->capacity * 2);
    }
    map->entries = nd_xcalloc(map->capacity, sizeof *map->entries);
    map->filled = map->count;
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.entries[i].value != NULL) {
            *first_unused(map, old.entries[i].hash) = old.entries[i];
        }
    }
    entries_free(&old);
}

static void *put(struct nd_map *map, uint64_t hash, struct nd_slice key, void *value)
{
    ND_ASSERT(value != NULL);
    struct entry *entry = find(map, hash, key);
    if (entry != NULL) {
        void *before = entry->value;
        entry->value = value;
        return before;
    }
    reserve(map);
    entry = first_unused(map, hash);
    if (entry->hash == EMPTY) {
        map->filled += 1;
    }
    map->count += 1;
    *entry = (struct entry){.value = value, .hash = hash, .key_size = key.size};
    uint8_t *bytes = entry->key.bytes;
    if (key.size > KEY_INLINE_MAX) {
        bytes = entry->key.heap = nd_xmalloc(key.size);
    }
    if (key.size > 0) {
        memcpy(bytes, key.data, key.size);
    }
    return NULL;
}

static void *remove_entry(struct nd_map *map, uint64_t hash, struct nd_slice key)
{
    struct entry *entry = find(map, hash, key);

    if (entry == NULL) {
        return NULL;
    }
    void *value = entry->value;
    entry_release(entry);
    *entry = (struct entry){.hash = TOMBSTONE};
    map->count -= 1;

    /* Tombstones with an empty slot to their right serve nobody (M2). */
    size_t at = (size_t)(entry - map->entries);
    const struct entry *right = &map->entries[(at + 1) & (map->capacity - 1)];
    if (right->value == NULL && right->hash == EMPTY) {
        while (map->entries[at].value == NULL && map->entries[at].hash == TOMBSTONE) {
            map->entries[at].hash = EMPTY;
            map->filled -= 1;
            at = (at - 1) & (map->capacity - 1);
        }
    }
    return value;
}

static void *value_of(const struct entry *entry)
{
    return entry == NULL ? NULL : entry->value;
}

static void expect_kind(const struct nd_map *map, enum key_kind kind)
{
    ND_ASSERT(map->kind == KEY_NONE || map->kind == kind);
}

void *nd_map_get(const struct nd_map *map, struct nd_slice key)
{
    expect_kind(map, KEY_BYTES);
    return map->count == 0 ? NULL : value_of(find(map, hash_bytes(map, key), key));
}

void *nd_map_put(struct nd_map *map, struct nd_slice key, void *value)
{
    expect_kind(map, KEY_BYTES);
    map->kind = KEY_BYTES;
    return put(map, hash_bytes(map, key), key, value);
}

void *nd_map_remove(struct nd_map *map, struct nd_slice key)
{
    expect_kind(map, KEY_BYTES);
    return remove_entry(map, hash_bytes(map, key), key);
}

void *nd_map_get_u64(const struct nd_map *map, uint64_t key)
{
    expect_kind(map, KEY_U64);
    return value_of(find(map, hash_u64(map, key), nd_slice_make(&key, sizeof key)));
}

void *nd_map_put_u64(struct nd_map *map, uint64_t key, void *value)
{
    expect_kind(map, KEY_U64);
    map->kind = KEY_U64;
    return put(map, hash_u64(map, key), nd_slice_make(&key, sizeof key), value);
}

void *nd_map_remove_u64(struct nd_map *map, uint64_t key)
{
    expect_kind(map, KEY_U64);
    return remove_entry(map, hash_u64(map, key), nd_slice_make(&key, sizeof key));
}

bool nd_map_next(const struct nd_map *map, size_t *at, struct nd_slice *key_out, void **value_out)
{
    while (*at < map->capacity) {
        const struct entry *entry = &map->entries[*at];
        *at += 1;
        if (entry->value != NULL) {
            *key_out = nd_slice_make(entry_key(entry), entry->key_size);
            *value_out = entry->value;
            return true;
        }
    }
    return false;
}
