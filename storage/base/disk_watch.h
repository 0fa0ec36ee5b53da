/* An environment over another one that knows which calls of the disk are under way, so that a
 * process can tell what it hangs on. A call that never returns cannot be ended from here. */
#ifndef ND_DISK_WATCH_H
#define ND_DISK_WATCH_H

#include "storage/base/env.h"
#include "storage/base/list.h"
#include "storage/base/thread.h"

/* A call; on its caller's stack. */
struct nd_disk_call {
    struct nd_list link; /* private */
    const char *name;
    const char *path; /* NULL: that of `file` */
    int file;
    uint64_t since_ns; /* private */
};

struct nd_disk_watch {
    struct nd_env env; /* for the code that works; valid while this struct stays where it is */
    const struct nd_env *base;
    struct nd_mutex lock;
    struct nd_list calls; /* guarded by lock: under way, oldest first */
};

void nd_disk_watch_init(struct nd_disk_watch *watch, const struct nd_env *base);
void nd_disk_watch_release(struct nd_disk_watch *watch); /* no call is under way */
/* For what waits for a disk by other ways than `env`. @thread any */
void nd_disk_watch_begin(struct nd_disk_watch *watch, struct nd_disk_call *call);
void nd_disk_watch_end(struct nd_disk_watch *watch, struct nd_disk_call *call);
/* The call that has been under way for the longest: its name and path as text, and since when
 * (mono_ns of `base`). False: none is. Asks no disk. @thread any */
bool nd_disk_watch_oldest(struct nd_disk_watch *watch, char *text, size_t text_size,
                          uint64_t *since_ns_out);

#endif
