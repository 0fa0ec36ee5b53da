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
};

/* @thread each of the readers */
static void read_some(void *arg)
{
    struct ahead *ahead = arg;
    size_t at;

    /* relaxed: only hands out the numbers; the join shows what was read */
    while ((at = atomic_fetch_add_explicit(&ahead->next, 1, memory_order_relaxed)) < ahead->count) {
        struct nd_errmsg msg = {{0}};
        nd_ignore(nd_recovery_read_state(ahead->recovery, ahead->all[at], &msg),
                  "the replay tries again, if it needs it");
    }
}

static void states_read(struct nd_recovery *recovery)
{
    struct nd_thread readers[READERS - 1] = {{.started = false}};
    struct ahead ahead = {.recovery = recovery};

    ND_LIST_FOREACH (&recovery->partitions, link) {
        ahead.count += 1;
    }
    ahead.all = nd_xcalloc(ND_MAX(ahead.count, (size_t)1), sizeof(struct nd_recovered_partition *));
    size_t at = 0;
    ND_LIST_FOREACH (&recovery->partitions, link) {
        ahead.all[at++] = ND_CONTAINER_OF(link, struct nd_recovered_partition, link);
    }
    for (int i = 0; i < READERS - 1 && ahead.count > FEW; i++) {
        if (!nd_thread_start(&readers[i], "recovery", read_some, &ahead)) {
            break; /* those that run do it all */
        }
    }
    read_some(&ahead);
    for (int i = 0; i < READERS - 1; i++) {
        nd_thread_join(&readers[i]);
    }
    nd_free(ahead.all);
}

void nd_recovery_preview(void *arg, const struct nd_partition_id *id)
{
    struct nd_recovery *recovery = arg;

    if (id == NULL) {
        states_read(recovery);
    } else if (nd_recovery_find(recovery, id) == NULL) {
        (void)nd_recovery_add(recovery, id);
    }
}
