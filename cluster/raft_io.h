/* struct raft_io for libraft 0.15.0: its own uv disk layer (log, term, vote, snapshots), messages
 * through a transport of ours, and the guards that this version needs. Internal to cluster/raft_*.
 *
 * Guards in place (numbers of the table in cluster/README.md):
 *  G3   A failed append never reaches raft, which would free its log twice or leave a hole in it.
 *       Without room for the next segment raft has to be closed and opened anew (starved()); any
 *       other failure, and a failed install of a snapshot, stops the process.
 *  G17  A cancelled append never reaches raft either; a close also waits until nothing is being
 *       written (nd_raft_io_is_busy).
 *  G18  No more than half a segment of appends is given to raft_uv at once: behind a failed append
 *       its close forgets a segment that waits, unwritten, behind a full one, and never calls back.
 *  G4   A message without a callback (TimeoutNow) keeps no pointer to its request.
 *  G0   send() never fails, never calls back before it returns.
 * The guards of received and sent AppendEntries, results and elections (G1, G2, G8, G9, G12, G13,
 * G16) belong into nd_raft_io_receive(), send() and tick() and come with the first transport that
 * has peers. */
#ifndef ND_RAFT_IO_H
#define ND_RAFT_IO_H

#include <raft.h>
#include <raft/uv.h>

#include "storage/base/err.h"
#include "storage/base/list.h"

/* From 0.17 on the structs differ and so do the bugs: package libraft-dev = 0.15.0-1. */
_Static_assert(sizeof(struct raft) == 656 && sizeof(struct raft_io) == 408, "libraft 0.15.0 only");

struct nd_raft_io;

/* One message on its way; kept by raft_io until nd_raft_io_sent(). */
struct nd_raft_send {
    struct nd_list link;
    struct raft_io_send *request;
    raft_io_send_cb done;
    int status;
};

/* How messages travel. All calls are made on the raft thread. */
struct nd_raft_transport {
    void *impl;
    int (*start)(void *impl, struct nd_raft_io *io);
    /* `message` and all it points to is borrowed until return. nd_raft_io_sent() is called once for
     * `send`, on the raft thread, in or after this call; `send` NULL: nobody waits for it. */
    void (*send)(void *impl, const struct raft_message *message, struct nd_raft_send *send);
    /* From its return on nothing is sent or received; nd_raft_io_sent() may still be owed. */
    void (*stop)(void *impl);
};

/* For a member without peers: every message comes back as RAFT_NOCONNECTION. */
struct nd_raft_transport nd_raft_transport_none(struct nd_raft_io *io);

struct nd_raft_io_events {
    void *arg;
    /* After every callback that may have moved raft: an append, a tick, a message, a snapshot. */
    void (*moved)(void *arg);
    /* An append found no room: this raft stores nothing any more and has to be closed. `clean`: not
     * a byte of what was lost is in the log. Called for each append that is lost. */
    void (*starved)(void *arg, int status, bool clean);
    /* A snapshot of our own state was not stored; raft goes on and will ask for another. */
    void (*put_failed)(void *arg, int status);
    /* Must not return in production; if it does, raft goes on as it would have. */
    void (*fatal)(void *arg, const char *what, int status);
};

struct nd_raft_io {
    struct raft_io io;                /* first: raft is given &io, and we come back by a cast */
    struct raft_uv_transport no_wire; /* for raft_uv, whose own wire is not used */
    struct nd_raft_transport transport;
    struct nd_raft_io_events events;
    uv_async_t finished_async;
    struct nd_list sends;    /* struct nd_raft_send handed to the transport */
    struct nd_list finished; /* those whose callback is due */
    struct nd_list lost;     /* struct append: those that raft is never told of */
    struct nd_list waiting;  /* struct append: not given to raft_uv yet; in order */
    size_t given_bytes;      /* of those that raft_uv has */
    size_t given_bytes_max;
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    /* raft_uv's own, which ours call */
    int (*uv_start)(struct raft_io *, unsigned, raft_io_tick_cb, raft_io_recv_cb);
    void (*uv_close)(struct raft_io *, raft_io_close_cb);
    int (*uv_append)(struct raft_io *, struct raft_io_append *, const struct raft_entry[], unsigned,
                     raft_io_append_cb);
    int (*uv_snapshot_put)(struct raft_io *, unsigned, struct raft_io_snapshot_put *,
                           const struct raft_snapshot *, raft_io_snapshot_put_cb);
    unsigned appends, puts; /* being written */
    bool started, starved, closing;
};

/* Our error for a RAFT_ code. @thread any */
enum nd_err nd_raft_status_err(int status);

/* The directory must exist. Returns a RAFT_ code; on an error nothing is left to release.
 * raft_uv_close(&io->io) is the last call, after raft_close() has called back. */
int nd_raft_io_init(struct nd_raft_io *io, uv_loop_t *loop, const char *dir,
                    const struct nd_raft_io_events *events);

/* Size of the segments, a multiple of 4096; before raft_init(). */
void nd_raft_io_set_segment_size(struct nd_raft_io *io, size_t size);

/* A message from a peer, on the raft thread; what it points to becomes raft's. Dropped when
 * closing. */
void nd_raft_io_receive(struct nd_raft_io *io, struct raft_message *message);
/* The fate of a send, on the raft thread: 0 or a RAFT_ code. */
void nd_raft_io_sent(struct nd_raft_io *io, struct nd_raft_send *send, int status);

/* After raft_close() has called back: release the appends that raft was never told of. */
void nd_raft_io_release_lost(struct nd_raft_io *io);

/* Is anything of raft being written? Then it is too early for raft_close(). */
bool nd_raft_io_is_busy(const struct nd_raft_io *io);

#endif
