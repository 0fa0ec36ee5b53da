/* Room for the log (W6): the look before a start, the ballast, and what follows an append that
 * found none. See the picture in raft_node.h.
 *
 * INVARIANTS
 *  1. Whoever waits for an answer while raft is closed and opened is in node->parked.
 *  2. NO_SPACE (UNAVAILABLE when it is not the room that is missing) is answered only for what is
 * in no log; all else is UNKNOWN_OUTCOME. */
#include <inttypes.h>

#include "cluster/raft_node_impl.h"

enum {
    RETRY_MS = 2000,
    SNAPSHOT_RETRY_MS = 5000,
    SEGMENT_BYTES = 8 << 20, /* libraft's own choice */
    BESIDE_BYTES = 256 << 10 /* term, a probe of libraft's, blocks of the directory */
};

static uint64_t retry_ms(const struct nd_raft_node *node)
{
    return node->options.room_retry_ms == 0 ? RETRY_MS : node->options.room_retry_ms;
}

/* To go on Raft needs one segment; more it makes when it can. */
static uint64_t needed_bytes(const struct nd_raft_node *node)
{
    uint32_t segment = node->options.segment_bytes;
    return (segment == 0 ? SEGMENT_BYTES : segment) + BESIDE_BYTES;
}

static struct nd_disk_space space_now(const struct nd_raft_node *node)
{
    const struct nd_env *env = node->options.env;
    struct nd_disk_space space;
    if (env->space(env->impl, node->dir, &space, NULL) != ND_OK) {
        return (struct nd_disk_space){UINT64_MAX, UINT64_MAX, UINT64_MAX}; /* then Raft finds out */
    }
    return space;
}

static bool is_enough(const struct nd_raft_node *node, const struct nd_disk_space *space)
{
    return space->bytes_free >= needed_bytes(node) && space->inodes_free > 2;
}

static bool has_room(const struct nd_raft_node *node)
{
    const struct nd_disk_space space = space_now(node);
    return is_enough(node, &space);
}

static void tell(struct nd_raft_node *node, enum nd_raft_room what, const char *text)
{
    if (node->machine.room != NULL) {
        node->machine.room(node->machine.arg, what, text);
    }
}

/* --- the ballast --- */

static void ballast_drop(struct nd_raft_node *node)
{
    if (node->ballast.bytes == 0) {
        return;
    }
    node->ballast_there = false;
    node->ballast_at_ms = uv_now(&node->loop) + retry_ms(node);
    if (nd_ballast_drop(&node->ballast)) {
        tell(node, ND_ROOM_BALLAST_GONE, node->ballast.path);
    }
}

static void ballast_work(void *arg)
{
    struct nd_raft_node *node = arg;
    node->ballast_err = nd_ballast_make(&node->ballast, NULL); /* without room: later */
}

static void ballast_made(void *arg)
{
    struct nd_raft_node *node = arg;

    node->ballast_busy = false;
    if (node->handles_closed) {
        return;
    }
    node->ballast_there = node->ballast_err == ND_OK;
    node->ballast_at_ms = uv_now(&node->loop) + retry_ms(node);
    if (node->ballast_there) {
        tell(node, ND_ROOM_BALLAST_MADE, node->ballast.path);
    }
    nd_raft_life_wake(node); /* it may have been waited for */
}

static void ballast_make(struct nd_raft_node *node)
{
    /* relaxed: no worker runs, and starting one orders it */
    atomic_store_explicit(&node->ballast.cancel, false, memory_order_relaxed);
    node->ballast_busy = true;
    nd_raft_node_work(node, ballast_work, ballast_made, node);
}

static void ballast_cancel(struct nd_raft_node *node)
{
    atomic_store_explicit(&node->ballast.cancel, true, memory_order_relaxed); /* only a hint */
}

/* --- before a start --- */

enum nd_err nd_raft_room_check(struct nd_raft_node *node, struct nd_errmsg *msg)
{
    if (has_room(node)) {
        return ND_OK;
    }
    ballast_drop(node);
    const struct nd_disk_space space = space_now(node);
    if (is_enough(node, &space)) {
        return ND_OK;
    }
    nd_errmsg_set(msg,
                  "disk full: the metadata log in %s needs %" PRIu64 " free bytes to start and "
                  "finds %" PRIu64 " (%" PRIu64 " inodes)",
                  node->dir, needed_bytes(node), space.bytes_free, space.inodes_free);
    return ND_ERR_NO_SPACE;
}

/* --- without room --- */

void nd_raft_room_starved(struct nd_raft_node *node, int status, bool clean)
{
    if (!clean || node->raft.configuration.n > 1) {
        node->lost_may_be_kept = true; /* by a peer, or in part by the file */
    }
    if (node->phase != ND_RAFT_UP || node->failed) {
        return;
    }
    nd_errmsg_set(&node->room_msg, "append to the log in %s: %s", node->dir,
                  node->io.io.errmsg[0] != '\0' ? node->io.io.errmsg : raft_strerror(status));
    /* A segment that cannot be made for another reason is waited for in the same way. */
    node->room_err =
        status == RAFT_NOSPACE || !has_room(node) ? ND_ERR_NO_SPACE : ND_ERR_UNAVAILABLE;
    if (!node->recovering) {
        node->recovering = true;
        node->room_at_ms = 0; /* the first try is made at once; later ones wait */
    }
    node->phase = ND_RAFT_ENDING;
    if (node->leading) {
        node->leading = false;
        node->machine.deposed(node->machine.arg);
    }
    nd_raft_life_wake(node);
}

static void no_room(struct nd_raft_node *node)
{
    if (!node->starved) {
        node->starved = true;
        tell(node, ND_ROOM_NONE, node->room_msg.text);
    }
    nd_raft_node_give_up(node, node->room_err);
}

static void reopen(struct nd_raft_node *node)
{
    struct nd_errmsg msg = {""};

    node->reopening = true;
    enum nd_err err = nd_raft_life_open(node, false, &msg);
    node->reopening = false;
    if (err == ND_OK) {
        return;
    }
    nd_errmsg_wrap(&msg, "open raft in %s again", node->dir);
    if (err == ND_ERR_CORRUPT || err == ND_ERR_UNSUPPORTED) {
        nd_raft_node_fail(node, msg.text);
        return;
    }
    node->room_err =
        err == ND_ERR_NO_SPACE || !has_room(node) ? ND_ERR_NO_SPACE : ND_ERR_UNAVAILABLE;
    node->room_msg = msg;
}

void nd_raft_room_look(struct nd_raft_node *node)
{
    uint64_t now = uv_now(&node->loop);

    if (node->failed) {
        return;
    }
    if (node->ballast_busy) {
        ballast_cancel(node); /* ballast_made() comes back here */
        return;
    }
    if (now < node->room_at_ms) {
        no_room(node); /* the try that has just been made was in vain */
        return;
    }
    node->room_at_ms = now + retry_ms(node);
    ballast_drop(node);
    if (has_room(node)) {
        reopen(node);
    } else {
        node->room_err = ND_ERR_NO_SPACE;
        no_room(node);
    }
}

void nd_raft_room_recovered(struct nd_raft_node *node)
{
    node->recovering = false;
    node->lost_may_be_kept = false;
    if (node->starved) {
        node->starved = false;
        tell(node, ND_ROOM_AGAIN, node->dir);
    }
    nd_raft_node_unpark(node);
}

void nd_raft_room_put_failed(struct nd_raft_node *node, int status)
{
    node->snapshot_failures++;
    node->snapshot_at_ms = uv_now(&node->loop) + SNAPSHOT_RETRY_MS;
    if (status == RAFT_NOSPACE || !has_room(node)) {
        if (node->ballast_busy) {
            ballast_cancel(node);
        } else {
            ballast_drop(node);
        }
    }
}

void nd_raft_room_stop(struct nd_raft_node *node)
{
    ballast_cancel(node);
}

void nd_raft_room_tick(struct nd_raft_node *node)
{
    uint64_t now = uv_now(&node->loop);

    if (node->stopping) {
        return;
    }
    if (node->phase == ND_RAFT_DOWN && now >= node->room_at_ms) {
        nd_raft_room_look(node);
    } else if (node->phase == ND_RAFT_UP && !node->recovering && node->ballast.bytes > 0 &&
               !node->ballast_there && !node->ballast_busy && now >= node->ballast_at_ms) {
        node->ballast_at_ms = now + retry_ms(node);
        if (nd_ballast_fits(&node->ballast)) {
            ballast_make(node);
        }
    }
}
