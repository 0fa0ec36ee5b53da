/* The metadata of the cluster: a deterministic state machine fed by Raft, read locally
 * (architecture 9).
 *
 * Changes are commands (protobuf, frozen numbers, cluster/command.proto) applied in log order on
 * the raft thread; every replica computes the same state: no clocks, no randomness inside apply,
 * the proposer supplies times and ids. Reads take a counted immutable record and never wait.
 *
 * The interface is the one a cluster of many members needs: a submit may answer NOT_LEADER,
 * UNAVAILABLE (no leader, not caught up) or UNKNOWN_OUTCOME (it may still be applied); each command
 * carries the proposer's id and sequence, so that a repeat is applied once. */
#ifndef ND_METASTORE_H
#define ND_METASTORE_H

#include "storage/base/env.h"
#include "storage/base/inbox.h"
#include "storage/base/log.h"
#include "storage/base/metrics.h"

#include "cluster/topic.h"
#include "cluster/user.h"

struct nd_metastore;

/* What changed, told on the raft thread, in log order, before the new record can be read (T3). Both
 * records borrowed until return: before NULL: created; after NULL: deleted. During the first load
 * after a start every topic is told as created. */
typedef void nd_topic_changed_fn(void *arg, const struct nd_topic *before,
                                 const struct nd_topic *after);

struct nd_metastore_options {
    const char *dir; /* "<data>/metastore" */
    const struct nd_env
        *env;            /* clock and randomness of the proposer; the disk of Raft is its own */
    const char *node_id; /* 1..255 bytes; the member's name */
    const char *address; /* cluster address, unused with one member */
    uint32_t snapshot_threshold; /* 8192 entries */
    uint32_t trailing;           /* 10240 entries kept behind a snapshot */
    uint32_t segment_bytes;      /* Raft's segment files; 0: its default of 8 MiB */
    bool must_exist; /* the store beside it was in use: beginning anew would disown its topics */
    uint64_t ballast_bytes; /* given back when Raft meets a full disk (W6); 0: none */
    uint32_t room_retry_ms; /* how often a full disk is looked at again; 0: 2000 */
    uint32_t topic_partitions_max;
    struct nd_log *log;
    struct nd_metrics *metrics;
    nd_topic_changed_fn *topic_changed;
    void *topic_changed_arg;
    /* The process must end: an append that failed for another reason than a full disk, an entry
     * that cannot be applied. On the raft thread, after it was logged. NULL: a line on standard
     * error and _exit(70). */
    void (*fatal)(void *arg, const char *text);
    void *fatal_arg;
};

/* Loads `view`, opens Raft (a new data directory is bootstrapped with this one member), starts its
 * thread. Returns before it is caught up. topic_changed is called for every topic of the view
 * before it returns. CORRUPT, IO, NO_SPACE (names the directory and what it needs), UNSUPPORTED
 * (format): refuse to start. */
ND_CHECKED enum nd_err nd_metastore_open(struct nd_metastore **out,
                                         const struct nd_metastore_options *options,
                                         struct nd_errmsg *msg);
/* Writes the view, hands leadership over (with peers), stops Raft and its thread. */
void nd_metastore_close(struct nd_metastore *metastore);

/* This node's number in owners and origins; fixed for the life of the data directory; never 0. */
uint64_t nd_metastore_member(const struct nd_metastore *metastore);
const char *nd_metastore_node_id(const struct nd_metastore *metastore);
/* The name of a member, or "" when unknown; copied into `out`. @thread any */
void nd_metastore_member_name(struct nd_metastore *metastore, uint64_t member, char *out,
                              size_t size);

/* Caught up once since the start (C2): until then topics are read from the view, an unknown one is
 * UNAVAILABLE and not NOT_FOUND, and nothing is owned. @thread any */
bool nd_metastore_caught_up(const struct nd_metastore *metastore);
/* `msg` is posted to `inbox` once it is caught up (at once if it is). */
void nd_metastore_when_caught_up(struct nd_metastore *metastore, struct nd_inbox *inbox,
                                 struct nd_msg *msg);
bool nd_metastore_is_leader(const struct nd_metastore *metastore);

/* --- reads. @thread any --- */
/* The caller's reference. TOPIC_NOT_FOUND, or UNAVAILABLE before the first catch-up. */
ND_CHECKED enum nd_err nd_metastore_topic(struct nd_metastore *metastore, struct nd_slice name,
                                          struct nd_topic **out);
/* Up to `limit` topics with names above `after` in byte order; references are the caller's;
 * *more_out tells whether others follow. Returns how many. */
size_t nd_metastore_topics(struct nd_metastore *metastore, struct nd_slice after, size_t limit,
                           struct nd_topic **out, bool *more_out);
uint64_t nd_metastore_topic_count(struct nd_metastore *metastore);

/* --- changes. @thread any --- */
/* The outcome of a change: runs once, on the raft thread, after the state (and what topic_changed
 * told) is in place. `topic` (create, alter) is borrowed until return; NULL on error. Errors:
 * TOPIC_EXISTS, TOPIC_NOT_FOUND, INVALID_ARGUMENT (text says why), NO_SPACE (the disk is full and
 * nothing was stored), NOT_LEADER, UNAVAILABLE, UNKNOWN_OUTCOME. */
typedef void nd_change_done_fn(void *arg, enum nd_err err, const char *text,
                               const struct nd_topic *topic);

/* The request is copied. Partitions are assigned to their owner in the same command. */
void nd_metastore_create_topic(struct nd_metastore *metastore,
                               const struct nd_topic_create *request, nd_change_done_fn *done,
                               void *arg);
void nd_metastore_alter_topic(struct nd_metastore *metastore, const struct nd_topic_alter *request,
                              nd_change_done_fn *done, void *arg);
void nd_metastore_delete_topic(struct nd_metastore *metastore, const char *name,
                               nd_change_done_fn *done, void *arg);
/* --- users. @thread any --- */
/* The caller's reference. NOT_FOUND, or UNAVAILABLE before the first catch-up when the view does
 * not know the name. */
ND_CHECKED enum nd_err nd_metastore_user(struct nd_metastore *metastore, struct nd_slice name,
                                         struct nd_user **out);
/* All of them in byte order of the names, the references and the array (nd_free) the caller's. */
size_t nd_metastore_users(struct nd_metastore *metastore, struct nd_user ***out);
/* Raised by every change of any user, after the new record can be read. Starts at 1. */
uint64_t nd_metastore_users_version(const struct nd_metastore *metastore);
/* `changed(arg)` after every raise of the version, on the raft thread; NULL: nobody, and it does
 * not run any more when this returns. One at a time. */
void nd_metastore_watch_users(struct nd_metastore *metastore, void (*changed)(void *arg),
                              void *arg);

/* As nd_change_done_fn, about users: ALREADY_EXISTS, NOT_FOUND, PERMISSION_DENIED (root is not to
 * be changed so; text says what), the rest as there. `user` borrowed; NULL on error and after a
 * delete. */
typedef void nd_user_done_fn(void *arg, enum nd_err err, const char *text,
                             const struct nd_user *user);

/* `user` is copied; its `root` is not looked at: never set by this one. */
void nd_metastore_create_user(struct nd_metastore *metastore, const struct nd_user *user,
                              nd_user_done_fn *done, void *arg);
/* Root "admin" with this hash, only while there is no user at all; otherwise ALREADY_EXISTS. */
void nd_metastore_seed_root(struct nd_metastore *metastore, const char *hash, nd_user_done_fn *done,
                            void *arg);
/* These change one field each and leave the others as they are when applied (I-108). */
void nd_metastore_set_grants(struct nd_metastore *metastore, const char *name,
                             const struct nd_grant *grants, uint32_t count, nd_user_done_fn *done,
                             void *arg);
struct nd_password_change {
    const char *name, *hash;
    const char *replaces; /* only in the place of that hash, else CONFLICT; NULL: of any */
};
void nd_metastore_set_password(struct nd_metastore *metastore,
                               const struct nd_password_change *change, nd_user_done_fn *done,
                               void *arg);
void nd_metastore_delete_user(struct nd_metastore *metastore, const char *name,
                              nd_user_done_fn *done, void *arg);

/* Is that incarnation gone for good? Asks the leader behind a barrier (P5): OK with
 * `gone`, or an error: not confirmed, keep the data. `done(arg, err, gone)` on the raft thread. */
void nd_metastore_confirm_gone(struct nd_metastore *metastore, const char *name,
                               uint64_t incarnation,
                               void (*done)(void *arg, enum nd_err err, bool gone), void *arg);

#endif
