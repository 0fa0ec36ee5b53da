#include "gateway/http_room.h"

#include "storage/base/alloc.h"
#include "storage/base/env.h"
#include "storage/base/map.h"
#include "storage/base/thread.h"

/* What one identity holds; in the table while that is something. */
struct share {
    uint64_t bytes;
};

struct nd_http_room {
    uint64_t max, share_max;
    uint64_t key[2];
    struct nd_mutex lock;
    uint64_t used;         /* guarded by lock */
    struct nd_map *shares; /* by identity; guarded by lock */
};

struct nd_http_room *nd_http_room_new(uint64_t max, uint64_t body_max)
{
    struct nd_http_room *room = nd_xcalloc(1, sizeof *room);
    const struct nd_env *env = nd_env_posix();
    uint64_t seed;

    env->random(env->impl, room->key, sizeof room->key);
    env->random(env->impl, &seed, sizeof seed);
    room->max = max;
    room->share_max = ND_MAX(max / 2, body_max);
    room->shares = nd_map_new(seed);
    nd_mutex_init(&room->lock);
    return room;
}

void nd_http_room_free(struct nd_http_room *room)
{
    if (room == NULL) {
        return;
    }
    ND_ASSERT(room->used == 0 && nd_map_count(room->shares) == 0);
    nd_map_free(room->shares);
    nd_mutex_release(&room->lock);
    nd_free(room);
}

uint64_t nd_http_room_identity(const struct nd_http_room *room, struct nd_slice who)
{
    return nd_siphash(room->key, who);
}

static bool fits_locked(const struct nd_http_room *room, const struct share *share, uint64_t bytes)
    ND_REQUIRES(room->lock)
{
    uint64_t held = share == NULL ? 0 : share->bytes;

    return bytes <= room->max - room->used && held <= room->share_max &&
           bytes <= room->share_max - held;
}

bool nd_http_room_fits(struct nd_http_room *room, uint64_t identity, uint64_t bytes)
{
    nd_mutex_lock(&room->lock);
    bool fits = fits_locked(room, nd_map_get_u64(room->shares, identity), bytes);
    nd_mutex_unlock(&room->lock);
    return fits;
}

bool nd_http_room_take(struct nd_http_room *room, uint64_t identity, uint64_t bytes)
{
    nd_mutex_lock(&room->lock);
    struct share *share = nd_map_get_u64(room->shares, identity);
    bool fits = fits_locked(room, share, bytes);
    if (fits && share == NULL) {
        share = nd_xcalloc(1, sizeof *share);
        (void)nd_map_put_u64(room->shares, identity, share);
    }
    if (fits) {
        share->bytes += bytes;
        room->used += bytes;
    }
    nd_mutex_unlock(&room->lock);
    return fits;
}

void nd_http_room_give(struct nd_http_room *room, uint64_t identity, uint64_t bytes)
{
    if (bytes == 0) {
        return;
    }
    nd_mutex_lock(&room->lock);
    struct share *share = nd_map_get_u64(room->shares, identity);
    ND_ASSERT(share != NULL && share->bytes >= bytes && room->used >= bytes);
    share->bytes -= bytes;
    room->used -= bytes;
    if (share->bytes == 0) {
        (void)nd_map_remove_u64(room->shares, identity);
        nd_free(share);
    }
    nd_mutex_unlock(&room->lock);
}
