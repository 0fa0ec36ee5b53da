/* The content of one simulated file: what the device holds, what readers see, and what is pending
 * between them. Used by sim_env.c only. */
#ifndef ND_TESTS_SUPPORT_SIM_FILE_H
#define ND_TESTS_SUPPORT_SIM_FILE_H

#include "storage/base/list.h"

enum { SIM_SECTOR = 512, SIM_BLOCK = 4096 };

/* Which pending changes of one kind survive a power cut. */
enum sim_keep {
    SIM_KEEP_ALL,
    SIM_KEEP_NONE,
    SIM_KEEP_PREFIX, /* those before `sequence`; that one itself sector by sector */
    SIM_KEEP_CALLS,  /* each call whole or not at all */
    SIM_KEEP_HALVES, /* each sector by itself */
    SIM_KEEP_COUNT,
};

struct sim_choice {
    enum sim_keep data, sizes, names;
    uint64_t sequence;
    uint64_t random; /* state of nd_rand() */
};

/* Whether the change with this sequence survives, by `keep`; for data SIM_KEEP_HALVES asks again
 * for every sector. */
bool sim_choice_keeps(struct sim_choice *choice, enum sim_keep keep, uint64_t sequence);

/* Bytes with zeros behind them as far as one likes. */
struct sim_bytes {
    uint8_t *data;
    uint64_t filled, capacity;
};

struct sim_file {
    struct sim_bytes cache, device;
    uint64_t cache_size, device_size;
    struct nd_list pending; /* struct sim_change, in order */
    uint8_t *blocks;        /* one byte for each block: in use? */
    uint64_t blocks_count;  /* length of `blocks` */
    uint64_t blocks_used;
};

void sim_file_init(struct sim_file *file);
void sim_file_release(struct sim_file *file);

/* To the cache, pending. `data` NULL: zeros. `sequence` rises from change to change. */
void sim_file_write(struct sim_file *file, uint64_t sequence, uint64_t at, const void *data,
                    uint64_t size);
void sim_file_resize(struct sim_file *file, uint64_t sequence, uint64_t size);
/* Returns the bytes read. `direct` asks the device for what is not pending. */
size_t sim_file_read(const struct sim_file *file, uint64_t at, void *data, size_t size,
                     bool direct);
void sim_file_drop_cache(struct sim_file *file, uint64_t at, uint64_t size);
void sim_file_damage(struct sim_file *file, uint64_t at, uint8_t xor_mask);

/* How many of the `size` bytes at `at` find a place when `blocks_free` blocks are left. */
uint64_t sim_file_room(const struct sim_file *file, uint64_t at, uint64_t size,
                       uint64_t blocks_free);

void sim_file_sync(struct sim_file *file);
/* Some sectors reach the device, none is pending afterwards. Sizes stay pending. */
void sim_file_sync_failed(struct sim_file *file, uint64_t *random);
/* A choice of what is pending reaches the device; readers see the device afterwards. */
void sim_file_cut(struct sim_file *file, struct sim_choice *choice);
/* The lowest and highest sequence of what is pending, added to a range. */
void sim_file_pending_range(const struct sim_file *file, uint64_t *low, uint64_t *high);

#endif
