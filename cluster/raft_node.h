/* One member of a Raft group: the raft thread with its uv loop, submission from other threads, and
 * what the state machine is told. Hides libraft and libuv from its users.
 *
 * A FULL DISK stops no process (W6). An append that finds no room has ended libraft's log layer, so
 * Raft is closed, the ballast given back, and Raft opened again from its files; the state machine
 * stays and is told nothing twice. What was under way is proposed again.
 *
 *            no room for the next segment            closed; ballast dropped
 *   UP ──────────────────────────────────► ENDING ─────────────────────────► DOWN
 *    ▲                                                                        │
 *    └──────────────── opened: leads and has applied everything ◄─────────────┘ room: at once;
 *                                                                    none: a look every 2 s
 * In DOWN without room every proposal is refused with NO_SPACE. Segments that cannot be created for
 * another reason (no descriptors, a quota) are waited for alike, with UNAVAILABLE. */
#ifndef ND_RAFT_NODE_H
#define ND_RAFT_NODE_H

#include "storage/base/buf.h"
#include "storage/base/err.h"
#include "storage/base/inbox.h"

struct nd_raft_node;

/* What happened to the room for the log; each is told once per change. */
enum nd_raft_room {
    ND_ROOM_NONE,         /* proposals are refused; `text` is the reason */
    ND_ROOM_AGAIN,        /* they are taken again */
    ND_ROOM_BALLAST_GONE, /* given back */
    ND_ROOM_BALLAST_MADE,
};

/* Told on the raft thread; during nd_raft_node_open() on the caller's. */
struct nd_raft_machine {
    void *arg;
    /* A committed entry, borrowed until return, in log order, each index once per process. The same
     * bytes may come under two indexes (proposed again after a full disk): the machine takes them
     * once. Anything but ND_OK (with its text) stops the process: a member that skips an entry has
     * diverged. */
    enum nd_err (*apply)(void *arg, struct nd_slice entry, uint64_t index, struct nd_errmsg *msg);
    /* The state as bytes; a failed buffer postpones the snapshot. */
    void (*snapshot)(void *arg, struct nd_buf *out);
    /* Replace the state. An error stops the process, or fails the open. */
    enum nd_err (*restore)(void *arg, struct nd_slice snapshot, struct nd_errmsg *msg);
    /* This member leads, and every entry committed before has been applied (I-88). */
    void (*elected)(void *arg);
    void (*deposed)(void *arg);
    void (*tick)(void *arg); /* every 250 ms */
    void (*room)(void *arg, enum nd_raft_room what, const char *text);
    /* The process must end. May return in tests only; the node refuses everything from then on. */
    void (*fatal)(void *arg, const char *text);
};

struct nd_raft_node_options {
    const char *dir; /* exists; all files in it are Raft's */
    uint64_t member; /* this member's Raft id, never 0 */
    const char *address;
    bool bootstrap;         /* the directory is new: a group of this one member */
    uint64_t reached_index; /* the log must reach it: its entry was once applied */
    uint32_t snapshot_threshold, snapshot_trailing;
    uint32_t segment_bytes;   /* 0: the library's 8 MiB */
    const struct nd_env *env; /* for the ballast and the look at what is free */
    uint64_t ballast_bytes;   /* 0: none */
    uint32_t room_retry_ms;   /* between two looks for room; 0: 2000 */
    struct nd_raft_machine machine;
};

struct nd_raft_stats {
    uint64_t term, last_index, commit_index, applied_index, snapshot_index;
    uint32_t voters, others;
    uint64_t snapshot_failures; /* since the open */
    bool leader, has_leader;
    bool starved; /* ND_ROOM_NONE */
    bool ballast; /* it is there */
};

/* Load log and snapshot (the machine may be told to restore) and become leader if alone; entries
 * behind the snapshot are applied once the thread runs. CORRUPT (names the file; a directory that
 * should hold a log and does not), IO, NO_SPACE (says how much is needed; looked for before
 * anything is changed), NO_MEMORY, UNSUPPORTED. */
ND_CHECKED enum nd_err nd_raft_node_open(struct nd_raft_node **out,
                                         const struct nd_raft_node_options *options,
                                         struct nd_errmsg *msg);
/* Start the raft thread. */
ND_CHECKED enum nd_err nd_raft_node_start(struct nd_raft_node *node, struct nd_errmsg *msg);
/* Run what was posted, refuse what comes later, wait until nothing is being written, close Raft
 * (what is still pending gets UNKNOWN_OUTCOME) and join the thread. Also after a failed or no
 * start. Nobody may post any more when this returns. */
void nd_raft_node_stop(struct nd_raft_node *node);
void nd_raft_node_free(struct nd_raft_node *node); /* after stop; NULL passes */

/* Run `msg` on the raft thread, in order; its owner is machine.arg. @thread any */
void nd_raft_node_post(struct nd_raft_node *node, struct nd_msg *msg);

/* --- @thread raft --- */

/* `err`: ND_OK: committed and applied here, just now; NO_SPACE: not stored, nowhere;
 * UNKNOWN_OUTCOME: it may or may not be applied. */
typedef void nd_raft_done_fn(void *arg, enum nd_err err);

/* Propose one entry (copied; its size a multiple of 8). ND_OK: `done` will run, later. An error: it
 * was not appended and `done` never runs: NOT_LEADER, UNAVAILABLE (closing), NO_SPACE, NO_MEMORY,
 * TOO_LARGE. */
ND_CHECKED enum nd_err nd_raft_node_propose(struct nd_raft_node *node, struct nd_slice entry,
                                            nd_raft_done_fn *done, void *arg);
/* `done` with ND_OK when everything committed before the call has been applied, and this member was
 * the leader then. Errors as above. */
ND_CHECKED enum nd_err nd_raft_node_barrier(struct nd_raft_node *node, nd_raft_done_fn *done,
                                            void *arg);
/* Run `work` on another thread, then `done` on the raft thread; stop waits for both. */
void nd_raft_node_work(struct nd_raft_node *node, void (*work)(void *arg), void (*done)(void *arg),
                       void *arg);

/* @thread raft, or any after open and before start, or after stop */
struct nd_raft_stats nd_raft_node_stats(struct nd_raft_node *node);

#endif
