/* Private to metastore*.c. */
#ifndef ND_METASTORE_IMPL_H
#define ND_METASTORE_IMPL_H

#include "cluster/command.h"
#include "cluster/identity.h"
#include "cluster/metastore.h"
#include "cluster/raft_node.h"
#include "cluster/state.h"

/* Changes under way; below ND_DEDUPE_WINDOW, so that the state never forgets one of them. */
enum { ND_CHANGES_IN_FLIGHT_MAX = 512 };

struct nd_metastore_gauges {
    struct nd_series *leader, *has_leader, *term, *last_index, *commit_index, *applied_index;
    struct nd_series *voters, *others, *topics, *users, *caught_up, *snapshot_failures,
        *view_failures;
    struct nd_series *snapshot_bytes, *starved, *ballast;
};

struct nd_metastore {
    struct nd_metastore_options options;
    char *node_id, *address, *view_path, *identity_path, *raft_dir;
    struct nd_identity identity;
    struct nd_raft_node *node;
    struct nd_metastore_gauges gauges;

    /* What readers see. Before the catch-up: the view; after: the state, swapped per change. */
    struct nd_mutex lock; /* held for a lookup or a swap; inside it nothing else is locked */
    struct nd_topic_table *published; /* guarded by lock */
    struct nd_user_table *users;      /* guarded by lock */
    struct nd_member *members;        /* guarded by lock */
    uint32_t members_count;           /* guarded by lock */
    struct nd_list waiters;           /* guarded by lock: who waits for the catch-up */
    atomic_bool caught_up, leader;
    _Atomic uint64_t users_version;   /* raised behind each swap of `users` */
    struct nd_mutex watch_lock;       /* held while users_changed runs; before `lock` */
    void (*users_changed)(void *arg); /* guarded by watch_lock; or NULL */
    void *users_changed_arg;          /* guarded by watch_lock */

    /* raft thread */
    struct nd_state state;
    struct nd_outcome outcome;   /* of the entry applied last, until the next */
    uint64_t outcome_sequence;   /* its command, if it was ours */
    uint64_t proposer, sequence; /* ours; the last one used */
    struct nd_list changes;      /* proposed, ascending by sequence */
    uint32_t changes_count;
    bool view_dirty, view_busy;
    bool view_failing; /* the last write failed, and the log says so */
    uint64_t view_at_ns;
    struct nd_buf view_bytes;   /* the worker's while view_busy */
    uint64_t snapshot_failures; /* of them the metric knows */
};

/* metastore_apply.c: the state machine that Raft drives. */
struct nd_raft_machine nd_metastore_machine(struct nd_metastore *metastore);
/* Make `table` what readers see, after telling what differs from what they saw (T3). */
void nd_metastore_publish(struct nd_metastore *metastore, struct nd_topic_table *table);
/* Nobody is told; the version is raised. */
void nd_metastore_publish_users(struct nd_metastore *metastore, struct nd_user_table *users);
void nd_metastore_publish_members(struct nd_metastore *metastore, const struct nd_state *state);
/* Nobody is told any more. */
void nd_metastore_waiters_drop(struct nd_metastore *metastore);

/* metastore_change.c: proposals. */
/* `user` is handed over, `replaces` copied (NULL: ""); what is in them: nd_command. @thread any */
void nd_metastore_propose_user(struct nd_metastore *metastore, enum nd_command_kind kind,
                               struct nd_user *user, const char *replaces, nd_user_done_fn *done,
                               void *arg);
/* On election: make this member known unless it is. @thread raft */
void nd_metastore_register_self(struct nd_metastore *metastore);

/* metastore_view.c: the view file and the gauges. */
/* Start writing the view if it is due. @thread raft */
void nd_metastore_view_tick(struct nd_metastore *metastore);
/* Write it now, if anything changed; after the raft thread has ended. */
void nd_metastore_view_finish(struct nd_metastore *metastore);
void nd_metastore_gauges_init(struct nd_metastore *metastore);
void nd_metastore_gauges_set(struct nd_metastore *metastore); /* @thread raft */

#endif
