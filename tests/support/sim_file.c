/* INVARIANTS
 *  S1  A pending write holds whole sectors as readers saw them after it, since that is what the
 * page cache would send. S2  A write beyond the end has its change of size in front of it. S3
 * Applying every pending change in order to the device gives the cache, unless a sync failed. */
#include "tests/support/sim_file.h"

#include <string.h>

#include "storage/base/alloc.h"

#include "tests/support/nd_rand.h"

#define FILE_SIZE_MAX ((uint64_t)1 << 32)

enum change_kind { CHANGE_DATA, CHANGE_SIZE };

struct sim_change {
    struct nd_list link;
    enum change_kind kind;
    uint64_t sequence;
    uint64_t at, size; /* data: whole sectors; size: the new size in `size` */
    uint8_t *data;     /* NULL: zeros */
};

bool sim_choice_keeps(struct sim_choice *choice, enum sim_keep keep, uint64_t sequence)
{
    uint64_t coin = choice->random ^ sequence;

    switch (keep) {
    case SIM_KEEP_ALL: return true;
    case SIM_KEEP_NONE: return false;
    case SIM_KEEP_PREFIX:
        if (sequence == choice->sequence) {
            return nd_rand(&choice->random) % 2 == 0;
        }
        return sequence < choice->sequence;
    case SIM_KEEP_CALLS: return nd_rand(&coin) % 2 == 0;
    case SIM_KEEP_HALVES: return nd_rand(&choice->random) % 2 == 0;
    case SIM_KEEP_COUNT: break;
    }
    ND_UNREACHABLE();
}

static void bytes_reserve(struct sim_bytes *bytes, uint64_t size)
{
    ND_ASSERT(size <= FILE_SIZE_MAX);
    if (size > bytes->capacity) {
        uint64_t capacity = ND_MAX(size, ND_MIN(bytes->capacity * 2, FILE_SIZE_MAX));
        bytes->data = nd_xrealloc(bytes->data, capacity);
        memset(bytes->data + bytes->capacity, 0, capacity - bytes->capacity);
        bytes->capacity = capacity;
    }
}

static void bytes_put(struct sim_bytes *bytes, uint64_t at, const uint8_t *data, uint64_t size)
{
    bytes_reserve(bytes, at + size);
    if (data == NULL) {
        memset(bytes->data + at, 0, size);
    } else {
        memcpy(bytes->data + at, data, size);
    }
    bytes->filled = ND_MAX(bytes->filled, at + size);
}

static void bytes_get(const struct sim_bytes *bytes, uint64_t at, uint8_t *data, uint64_t size)
{
    uint64_t known = at < bytes->filled ? ND_MIN(size, bytes->filled - at) : 0;

    if (known > 0) {
        memcpy(data, bytes->data + at, known);
    }
    memset(data + known, 0, size - known);
}

/* Nothing but zeros from `size` on. */
static void bytes_cut(struct sim_bytes *bytes, uint64_t size)
{
    if (size < bytes->filled) {
        memset(bytes->data + size, 0, bytes->filled - size);
        bytes->filled = size;
    }
}

void sim_file_init(struct sim_file *file)
{
    *file = (struct sim_file){.cache_size = 0};
    nd_list_init(&file->pending);
}

static void change_free(struct sim_change *change)
{
    nd_list_remove(&change->link);
    nd_free(change->data);
    nd_free(change);
}

static struct sim_change *change_of(struct nd_list *link)
{
    return ND_CONTAINER_OF(link, struct sim_change, link);
}

static void pending_clear(struct sim_file *file)
{
    ND_LIST_FOREACH (&file->pending, link) {
        change_free(change_of(link));
    }
}

void sim_file_release(struct sim_file *file)
{
    pending_clear(file);
    nd_free(file->cache.data);
    nd_free(file->device.data);
    nd_free(file->blocks);
}

static void blocks_use(struct sim_file *file, uint64_t at, uint64_t size)
{
    uint64_t end = (at + size + SIM_BLOCK - 1) / SIM_BLOCK;

    if (end > file->blocks_count) {
        file->blocks = nd_xrealloc(file->blocks, end);
        memset(file->blocks + file->blocks_count, 0, end - file->blocks_count);
        file->blocks_count = end;
    }
    for (uint64_t i = at / SIM_BLOCK; i < end; i++) {
        file->blocks_used += file->blocks[i] == 0;
        file->blocks[i] = 1;
    }
}

static void blocks_cut(struct sim_file *file, uint64_t size)
{
    uint64_t end = (size + SIM_BLOCK - 1) / SIM_BLOCK;

    for (uint64_t i = end; i < file->blocks_count; i++) {
        file->blocks_used -= file->blocks[i];
        file->blocks[i] = 0;
    }
}

uint64_t sim_file_room(const struct sim_file *file, uint64_t at, uint64_t size,
                       uint64_t blocks_free)
{
    uint64_t end = at + size;

    for (uint64_t i = at / SIM_BLOCK; i * SIM_BLOCK < end; i++) {
        bool is_used = i < file->blocks_count && file->blocks[i] != 0;
        if (!is_used && blocks_free == 0) {
            return i * SIM_BLOCK > at ? i * SIM_BLOCK - at : 0;
        }
        blocks_free -= !is_used;
    }
    return size;
}

static struct sim_change *pending_add(struct sim_file *file, enum change_kind kind,
                                      uint64_t sequence)
{
    struct sim_change *change = nd_xcalloc(1, sizeof *change);

    change->kind = kind;
    change->sequence = sequence;
    nd_list_append(&file->pending, &change->link);
    return change;
}

void sim_file_resize(struct sim_file *file, uint64_t sequence, uint64_t size)
{
    if (size == file->cache_size) {
        return;
    }
    pending_add(file, CHANGE_SIZE, sequence)->size = size;
    bytes_cut(&file->cache, size);
    blocks_cut(file, size);
    file->cache_size = size;
}

void sim_file_write(struct sim_file *file, uint64_t sequence, uint64_t at, const void *data,
                    uint64_t size)
{
    if (size == 0) {
        return;
    }
    if (at + size > file->cache_size) {
        sim_file_resize(file, sequence, at + size); /* S2 */
    }
    bytes_put(&file->cache, at, data, size);
    blocks_use(file, at, size);

    struct sim_change *change = pending_add(file, CHANGE_DATA, sequence);
    uint64_t end = (at + size + SIM_SECTOR - 1) / SIM_SECTOR * SIM_SECTOR;
    change->at = at / SIM_SECTOR * SIM_SECTOR;
    change->size = end - change->at;
    if (data != NULL || change->at != at || change->size != size) { /* S1 */
        change->data = nd_xmalloc(change->size);
        bytes_get(&file->cache, change->at, change->data, change->size);
    }
}

static bool is_pending(const struct sim_file *file, uint64_t at, uint64_t size)
{
    ND_LIST_FOREACH (&file->pending, link) {
        const struct sim_change *change = change_of(link);
        if (change->kind == CHANGE_DATA && change->at < at + size &&
            at < change->at + change->size) {
            return true;
        }
    }
    return false;
}

/* One block as a read of the device would find it now: what a pending shrink took away reads as
 * zeros, since the size is known to all before it is saved. */
static void device_block(const struct sim_file *file, uint64_t at, uint8_t block[SIM_BLOCK])
{
    uint64_t valid = UINT64_MAX, size = file->device_size;

    ND_LIST_FOREACH (&file->pending, link) {
        const struct sim_change *change = change_of(link);
        if (change->kind == CHANGE_SIZE) {
            valid = change->size < size ? ND_MIN(valid, change->size) : valid;
            size = change->size;
        }
    }
    bytes_get(&file->device, at, block, SIM_BLOCK);
    if (valid < at + SIM_BLOCK) {
        uint64_t from = valid > at ? valid - at : 0;
        memset(block + from, 0, SIM_BLOCK - from);
    }
}

size_t sim_file_read(const struct sim_file *file, uint64_t at, void *data, size_t size, bool direct)
{
    uint8_t block[SIM_BLOCK];
    uint8_t *out = data;
    size_t done = 0;

    if (at >= file->cache_size) {
        return 0;
    }
    size = (size_t)ND_MIN((uint64_t)size, file->cache_size - at);
    while (done < size) {
        uint64_t start = (at + done) / SIM_BLOCK * SIM_BLOCK;
        uint64_t skip = at + done - start;
        size_t part = (size_t)ND_MIN((uint64_t)(size - done), SIM_BLOCK - skip);
        if (direct && !is_pending(file, start, SIM_BLOCK)) {
            device_block(file, start, block);
            memcpy(out + done, block + skip, part);
        } else {
            bytes_get(&file->cache, at + done, out + done, part);
        }
        done += part;
    }
    return size;
}

void sim_file_drop_cache(struct sim_file *file, uint64_t at, uint64_t size)
{
    uint64_t last = (file->cache_size + SIM_BLOCK - 1) / SIM_BLOCK * SIM_BLOCK;
    uint64_t end = size == 0 || at + size >= file->cache_size ? last : at + size;
    uint8_t block[SIM_BLOCK];

    at = (at + SIM_BLOCK - 1) / SIM_BLOCK * SIM_BLOCK; /* only whole pages are dropped */
    for (; at + SIM_BLOCK <= end; at += SIM_BLOCK) {
        if (!is_pending(file, at, SIM_BLOCK)) {
            device_block(file, at, block);
            bytes_put(&file->cache, at, block, SIM_BLOCK);
        }
    }
    bytes_cut(&file->cache, file->cache_size);
}

void sim_file_damage(struct sim_file *file, uint64_t at, uint8_t xor_mask)
{
    ND_ASSERT(at < file->cache_size);
    bytes_reserve(&file->cache, at + 1);
    bytes_reserve(&file->device, at + 1);
    file->cache.filled = ND_MAX(file->cache.filled, at + 1);
    file->cache.data[at] ^= xor_mask;
    if (at < file->device_size) {
        file->device.filled = ND_MAX(file->device.filled, at + 1);
        file->device.data[at] ^= xor_mask;
    }
}

static void apply_size(struct sim_file *file, const struct sim_change *change)
{
    if (change->size < file->device_size) {
        bytes_cut(&file->device, change->size);
    }
    file->device_size = change->size;
}

static void apply_sector(struct sim_file *file, const struct sim_change *change, uint64_t from)
{
    bytes_put(&file->device, change->at + from, change->data == NULL ? NULL : change->data + from,
              SIM_SECTOR);
}

void sim_file_sync(struct sim_file *file)
{
    ND_LIST_FOREACH (&file->pending, link) {
        struct sim_change *change = change_of(link);
        if (change->kind == CHANGE_SIZE) {
            apply_size(file, change);
        } else {
            bytes_put(&file->device, change->at, change->data, change->size);
        }
        change_free(change);
    }
    ND_ASSERT(file->device_size == file->cache_size);
    bytes_cut(&file->device, file->device_size);
}

void sim_file_sync_failed(struct sim_file *file, uint64_t *random)
{
    ND_LIST_FOREACH (&file->pending, link) {
        struct sim_change *change = change_of(link);
        if (change->kind == CHANGE_SIZE) {
            continue;
        }
        for (uint64_t from = 0; from < change->size; from += SIM_SECTOR) {
            if (nd_rand(random) % 2 == 0) {
                apply_sector(file, change, from);
            }
        }
        change_free(change);
    }
}

/* For sizes, what survives is a prefix: a journal writes them in order. */
static void choose_sizes(struct sim_file *file, struct sim_choice *choice, uint64_t *first_lost)
{
    bool by_coin = choice->sizes == SIM_KEEP_HALVES || choice->sizes == SIM_KEEP_CALLS;
    uint64_t count = 0;

    *first_lost = UINT64_MAX;
    ND_LIST_FOREACH (&file->pending, link) {
        count += change_of(link)->kind == CHANGE_SIZE;
    }
    uint64_t kept = by_coin ? nd_rand_below(&choice->random, count + 1) : 0;
    ND_LIST_FOREACH (&file->pending, link) {
        const struct sim_change *change = change_of(link);
        if (change->kind != CHANGE_SIZE) {
            continue;
        }
        bool keeps = by_coin ? kept > 0 : sim_choice_keeps(choice, choice->sizes, change->sequence);
        kept -= by_coin && kept > 0;
        if (!keeps) {
            *first_lost = change->sequence;
            return;
        }
    }
}

static void cut_data(struct sim_file *file, const struct sim_change *change,
                     struct sim_choice *choice)
{
    for (uint64_t from = 0; from < change->size; from += SIM_SECTOR) {
        if (sim_choice_keeps(choice, choice->data, change->sequence)) {
            apply_sector(file, change, from);
        }
    }
}

void sim_file_cut(struct sim_file *file, struct sim_choice *choice)
{
    uint64_t first_lost;

    choose_sizes(file, choice, &first_lost);
    ND_LIST_FOREACH (&file->pending, link) {
        struct sim_change *change = change_of(link);
        if (change->kind == CHANGE_DATA) {
            cut_data(file, change, choice);
        } else if (change->sequence < first_lost) {
            apply_size(file, change);
        }
        change_free(change);
    }
    bytes_cut(&file->device, file->device_size);
    bytes_cut(&file->cache, 0);
    if (file->device.filled > 0) {
        bytes_put(&file->cache, 0, file->device.data, file->device.filled);
    }
    file->cache_size = file->device_size;
    blocks_cut(file, file->cache_size);
}

void sim_file_pending_range(const struct sim_file *file, uint64_t *low, uint64_t *high)
{
    ND_LIST_FOREACH (&file->pending, link) {
        *low = ND_MIN(*low, change_of(link)->sequence);
        *high = ND_MAX(*high, change_of(link)->sequence);
    }
}
