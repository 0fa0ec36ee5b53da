#include "cluster/ballast.h"

#include "storage/base/alloc.h"

enum { PIECE_SIZE = 256 * 1024 };

void nd_ballast_init(struct nd_ballast *ballast, const struct nd_env *env, const char *dir,
                     uint64_t bytes)
{
    *ballast = (struct nd_ballast){.env = env, .bytes = bytes};
    ballast->dir = nd_xstrdup(dir);
    ballast->path = nd_xasprintf("%s/" ND_BALLAST_NAME, dir);
    atomic_init(&ballast->cancel, false);
}

void nd_ballast_release(struct nd_ballast *ballast)
{
    nd_free(ballast->dir);
    nd_free(ballast->path);
}

bool nd_ballast_is_whole(const struct nd_ballast *ballast)
{
    const struct nd_env *env = ballast->env;
    struct nd_file_stat stat;
    return env->stat(env->impl, ballast->path, &stat, NULL) == ND_OK &&
           stat.size == ballast->bytes && stat.allocated >= ballast->bytes;
}

bool nd_ballast_fits(const struct nd_ballast *ballast)
{
    const struct nd_env *env = ballast->env;
    struct nd_disk_space space;
    return env->space(env->impl, ballast->dir, &space, NULL) == ND_OK &&
           space.bytes_free / 2 >= ballast->bytes;
}

/* Bytes that no file system squeezes or leaves out. */
static void noise(uint8_t *piece, uint64_t *state)
{
    for (size_t i = 0; i < PIECE_SIZE; i += sizeof *state) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        memcpy(piece + i, state, sizeof *state);
    }
}

static enum nd_err fill(struct nd_ballast *ballast, int file, struct nd_errmsg *msg)
{
    const struct nd_env *env = ballast->env;
    uint8_t *piece = nd_xmalloc(PIECE_SIZE);
    uint64_t state = nd_env_random_u64(env) | 1;
    enum nd_err err = ND_OK;

    for (uint64_t at = 0; err == ND_OK && at < ballast->bytes; at += PIECE_SIZE) {
        size_t size = (size_t)ND_MIN((uint64_t)PIECE_SIZE, ballast->bytes - at);
        noise(piece, &state);
        err = env->pwrite(env->impl, file, piece, size, at, msg);
        /* relaxed: only asks to be quick about it */
        if (err == ND_OK && atomic_load_explicit(&ballast->cancel, memory_order_relaxed)) {
            nd_errmsg_set(msg, "make %s: cancelled", ballast->path);
            err = ND_ERR_CANCELLED;
        }
    }
    nd_free(piece);
    return err == ND_OK ? env->sync(env->impl, file, msg) : err;
}

enum nd_err nd_ballast_make(struct nd_ballast *ballast, struct nd_errmsg *msg)
{
    const struct nd_env *env = ballast->env;
    int file;

    nd_ballast_drop(ballast); /* a part of one that a crash left */
    enum nd_err err =
        env->open(env->impl, ballast->path, ND_OPEN_WRITE | ND_OPEN_CREATE, &file, msg);
    if (err != ND_OK) {
        return err;
    }
    err = fill(ballast, file, msg);
    env->close(env->impl, file);
    if (err == ND_OK) {
        err = env->sync_dir(env->impl, ballast->dir, msg);
    }
    if (err != ND_OK) {
        nd_ballast_drop(ballast);
    }
    return err;
}

bool nd_ballast_drop(struct nd_ballast *ballast)
{
    const struct nd_env *env = ballast->env;
    if (env->unlink(env->impl, ballast->path, NULL) != ND_OK) {
        return false;
    }
    /* The room is there at once, but a crash must not find it taken again. */
    nd_ignore(env->sync_dir(env->impl, ballast->dir, NULL), "the room is there in any case");
    return true;
}
