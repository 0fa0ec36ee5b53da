/* Private to raft_node.c, raft_life.c and raft_room.c. */
#ifndef ND_RAFT_NODE_IMPL_H
#define ND_RAFT_NODE_IMPL_H

#include "storage/base/thread.h"

#include "cluster/ballast.h"
#include "cluster/raft_io.h"
#include "cluster/raft_node.h"

enum nd_raft_phase {
    ND_RAFT_UP,     /* raft is open */
    ND_RAFT_ENDING, /* it is to be closed; nothing new is given to it */
    ND_RAFT_DOWN,   /* there is none */
};

struct nd_raft_node {
    struct nd_raft_node_options options; /* its texts are ours */
    struct nd_raft_io io;
    struct raft raft;
    struct raft_fsm fsm;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t clock;
    struct nd_inbox inbox;
    struct nd_thread thread;
    struct nd_msg stop;
    struct nd_raft_machine machine;
    char *address, *dir;
    struct nd_mutex wake_lock;
    bool wake_open; /* guarded by wake_lock */
    /* raft thread */
    enum nd_raft_phase phase;
    bool io_open, raft_open; /* what has to be closed */
    bool running, stopping, closing, closed, failed, handles_closed;
    raft_term barrier_term; /* a barrier was submitted in it */
    bool elected_due;       /* that barrier was applied; the machine is told by the next look */
    bool leading;           /* the machine was told */
    raft_index applied;     /* what the machine was given last */
    struct nd_errmsg machine_msg; /* the last failure of the machine */
    enum nd_err machine_err;
    /* room */
    struct nd_ballast ballast;
    bool ballast_there, ballast_busy; /* busy: a worker makes it */
    enum nd_err ballast_err;
    bool recovering;       /* from the lost append until this member leads again */
    bool starved;          /* the machine was told ND_ROOM_NONE */
    bool reopening;        /* raft reads files that the machine has seen */
    bool lost_may_be_kept; /* something of what was lost may be in the log */
    uint64_t room_at_ms;   /* the next look for room; on the clock of the loop */
    uint64_t ballast_at_ms, snapshot_at_ms;
    uint64_t snapshot_failures; /* so far; a raft that is opened anew goes on counting */
    enum nd_err room_err;       /* why proposals are refused: NO_SPACE, or UNAVAILABLE */
    struct nd_errmsg room_msg;
    struct nd_list parked; /* struct proposal: to be proposed (again) */
};

/* raft_node.c */
void nd_raft_node_fail(struct nd_raft_node *node, const char *text);
/* After everything that may have moved raft. */
void nd_raft_node_look(struct nd_raft_node *node);
/* Propose what is parked. */
void nd_raft_node_unpark(struct nd_raft_node *node);
/* Answer what is parked: it will not be proposed. */
void nd_raft_node_give_up(struct nd_raft_node *node, enum nd_err err);
struct raft_fsm nd_raft_node_fsm(struct nd_raft_node *node);

/* raft_life.c */
/* Open raft in node->dir. On an error it is to be closed by nd_raft_life_step(). */
ND_CHECKED enum nd_err nd_raft_life_open(struct nd_raft_node *node, bool bootstrap,
                                         struct nd_errmsg *msg);
/* What is due in the phase; on the raft thread, never inside a callback of raft's. */
void nd_raft_life_step(struct nd_raft_node *node);
/* Let nd_raft_life_step() come soon. */
void nd_raft_life_wake(struct nd_raft_node *node);

/* raft_room.c */
/* Before the first open: is there room to start? Gives the ballast back if that helps. */
ND_CHECKED enum nd_err nd_raft_room_check(struct nd_raft_node *node, struct nd_errmsg *msg);
void nd_raft_room_starved(struct nd_raft_node *node, int status, bool clean);
void nd_raft_room_put_failed(struct nd_raft_node *node, int status);
/* Raft is down, or has just gone down: open it again when there is room. */
void nd_raft_room_look(struct nd_raft_node *node);
/* This member leads again. */
void nd_raft_room_recovered(struct nd_raft_node *node);
void nd_raft_room_tick(struct nd_raft_node *node);
/* Let the worker end soon. */
void nd_raft_room_stop(struct nd_raft_node *node);

#endif
