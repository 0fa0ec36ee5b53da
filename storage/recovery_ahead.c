/* The `state` files of all partitions that the log mentions, read at once and before the replay
 * needs them. From a cold disk each look costs a few reads of directories, one after the other:
 * with 30,000 partitions many seconds, though nearly none of them has such a file. */
#include "storage/base/alloc.h"
#include "storage/base/thread.h"

#include "storage/recovery_private.h"

enum {
    READERS = 16,     /* they wait for the disk, not for a core */
    FEW = 4 * READERS /* so many are not worth a thread */
};

struct ahead {
    const struct nd_recovery *recovery;
    struct nd_recovered_partition **all;
    size_t count;
    _Atomic size_t next;
    struct nd_mutex lock;
    /* guarded by lock */
    size_t failed; /* the first one, as it would be found one by one; `count`: none */
    enum nd_err err;
    struct nd_errmsg msg;
};

static void note_failure(struct ahead *ahead, size_t at, enum nd_err err,
                         const struct nd_errmsg *msg)
{
    nd_mutex_lock(&ahead->lock);
    if (at < ahead->failed) {
        ahead->failed = at;
        ahead->err = err;
        ahead->msg = *msg;
    }
    nd_mutex_unlock(&ahead->lock);
}

/* @thread each of the readers */
static void read_some(void *arg)
{
    struct ahead *ahead = arg;
    size_t at;

    /* relaxed: only hands out the numbers; the join shows what was read */
    while ((at = atomic_fetch_add_explicit(&ahead->next, 1, memory_order_relaxed)) < ahead->count) {
        struct nd_errmsg msg = {{0}};
        enum nd_err err = nd_recovery_read_state(ahead->recovery, ahead->all[at], &msg);
        if (err != ND_OK) {
            note_failure(ahead, at, err, &msg);
        }
    }
}

static enum nd_err states_read(struct nd_recovery *recovery, struct nd_errmsg *msg)
{
    struct nd_thread readers[READERS - 1] = {{.started = false}};
    struct ahead ahead = {.recovery = recovery, .err = ND_OK};

    ND_LIST_FOREACH (&recovery->partitions, link) {
        ahead.count += 1;
    }
    ahead.failed = ahead.count;
    ahead.all = nd_xcalloc(ND_MAX(ahead.count, (size_t)1), sizeof(struct nd_recovered_partition *));
    size_t at = 0;
    ND_LIST_FOREACH (&recovery->partitions, link) {
        ahead.all[at++] = ND_CONTAINER_OF(link, struct nd_recovered_partition, link);
    }
    nd_mutex_init(&ahead.lock);
    for (int i = 0; i < READERS - 1 && ahead.count > FEW; i++) {
        if (!nd_thread_start(&readers[i], "recovery", read_some, &ahead)) {
            break; /* those that run do it all */
        }
    }
    read_some(&ahead);
    for (int i = 0; i < READERS - 1; i++) {
        nd_thread_join(&readers[i]);
    }
    nd_mutex_release(&ahead.lock);
    nd_free(ahead.all);
    if (ahead.err != ND_OK && msg != NULL) {
        *msg = ahead.msg;
    }
    return ahead.err;
}

enum nd_err nd_recovery_preview(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    struct nd_recovery *recovery = arg;

    if (entry == NULL) {
        return states_read(recovery, msg);
    }
    switch (entry->type) {
    case ND_WAL_COMMIT:
    case ND_WAL_RESTATED:
    case ND_WAL_ACK:
    case ND_WAL_CURSOR:
    case ND_WAL_POSITION:
        if (nd_recovery_find(recovery, &entry->id) == NULL) {
            (void)nd_recovery_add(recovery, &entry->id);
        }
        break;
    case ND_WAL_ACCEPT:
    case ND_WAL_DISPATCHED:
    case ND_WAL_CHECKPOINT: break;
    }
    return ND_OK;
}
