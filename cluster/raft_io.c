#include "cluster/raft_io.h"

#include <string.h>

#include "storage/base/alloc.h"

enum nd_err nd_raft_status_err(int status)
{
    switch (status) {
    case 0: return ND_OK;
    case RAFT_NOMEM: return ND_ERR_NO_MEMORY;
    case RAFT_NOTLEADER: return ND_ERR_NOT_LEADER;
    case RAFT_LEADERSHIPLOST:
    case RAFT_CANCELED: return ND_ERR_UNKNOWN_OUTCOME;
    case RAFT_SHUTDOWN:
    case RAFT_BUSY: return ND_ERR_UNAVAILABLE;
    case RAFT_MALFORMED:
    case RAFT_CORRUPT: return ND_ERR_CORRUPT;
    case RAFT_TOOBIG: return ND_ERR_TOO_LARGE;
    case RAFT_NOSPACE: return ND_ERR_NO_SPACE;
    case RAFT_TOOMANY: return ND_ERR_LIMITED;
    case RAFT_IOERR: return ND_ERR_IO;
    default: return ND_ERR_INTERNAL;
    }
}

static struct nd_raft_io *from_raft(struct raft_io *io)
{
    return ND_CONTAINER_OF(io, struct nd_raft_io, io);
}

static void moved(struct nd_raft_io *io)
{
    if (!io->closing) {
        io->events.moved(io->events.arg);
    }
}

/* --- the wire of raft_uv, which is never used --- */

static int wire_init(struct raft_uv_transport *wire, raft_id id, const char *address)
{
    (void)wire;
    (void)id;
    (void)address;
    return 0;
}

static int wire_listen(struct raft_uv_transport *wire, raft_uv_accept_cb accept_cb)
{
    (void)wire;
    (void)accept_cb;
    return 0;
}

static int wire_connect(struct raft_uv_transport *wire, struct raft_uv_connect *request, raft_id id,
                        const char *address, raft_uv_connect_cb done)
{
    (void)wire;
    (void)request;
    (void)id;
    (void)address;
    (void)done;
    return RAFT_NOCONNECTION;
}

static void wire_close(struct raft_uv_transport *wire, raft_uv_transport_close_cb done)
{
    done(wire);
}

/* --- sending --- */

static int none_start(void *impl, struct nd_raft_io *io)
{
    (void)impl;
    (void)io;
    return 0;
}

static void none_send(void *impl, const struct raft_message *message, struct nd_raft_send *send)
{
    (void)message;
    if (send != NULL) {
        nd_raft_io_sent(impl, send, RAFT_NOCONNECTION);
    }
}

static void none_stop(void *impl)
{
    (void)impl;
}

struct nd_raft_transport nd_raft_transport_none(struct nd_raft_io *io)
{
    return (struct nd_raft_transport){io, none_start, none_send, none_stop};
}

void nd_raft_io_sent(struct nd_raft_io *io, struct nd_raft_send *send, int status)
{
    send->status = status;
    nd_list_remove(&send->link);
    nd_list_append(&io->finished, &send->link);
    if (!io->closing) {
        uv_async_send(&io->finished_async);
    }
}

static void finish_sends(struct nd_raft_io *io)
{
    for (struct nd_list *link; (link = nd_list_pop(&io->finished)) != NULL;) {
        struct nd_raft_send *send = ND_CONTAINER_OF(link, struct nd_raft_send, link);
        send->done(send->request, send->status);
        nd_free(send);
    }
}

static void on_finished(uv_async_t *async)
{
    struct nd_raft_io *io = async->data;
    finish_sends(io);
    moved(io);
}

/* G0: raft 0.15.0 frees the entries twice when send() fails, and uses the request after it returns.
 */
static int io_send(struct raft_io *base, struct raft_io_send *request,
                   const struct raft_message *message, raft_io_send_cb done)
{
    struct nd_raft_io *io = from_raft(base);
    struct nd_raft_send *send = NULL;

    request->cb = done;
    if (done != NULL) { /* G4: without one the request may be gone when the message is */
        send = nd_xcalloc(1, sizeof *send);
        send->request = request;
        send->done = done;
        nd_list_append(&io->sends, &send->link);
    }
    /* A late answer after a step-down has nobody to go to. */
    bool lost = io->closing || message->server_id == 0 || message->server_address == NULL;
    if (!lost) {
        io->transport.send(io->transport.impl, message, send);
    } else if (send != NULL) {
        nd_raft_io_sent(io, send, RAFT_NOCONNECTION);
    }
    return 0;
}

/* --- receiving --- */

static void message_release(struct raft_message *message)
{
    struct raft_append_entries *append = &message->append_entries;
    struct raft_install_snapshot *install = &message->install_snapshot;

    if (message->type == RAFT_IO_APPEND_ENTRIES && append->n_entries > 0) {
        raft_free(append->entries[0].batch);
        raft_free(append->entries);
    } else if (message->type == RAFT_IO_INSTALL_SNAPSHOT) {
        raft_configuration_close(&install->conf);
        raft_free(install->data.base);
    }
}

void nd_raft_io_receive(struct nd_raft_io *io, struct raft_message *message)
{
    if (io->closing || !io->started) {
        message_release(message);
        return;
    }
    io->receive(&io->io, message);
    moved(io);
}

/* --- the disk --- */

enum { SEGMENT_SIZE_DEFAULT = 8 << 20, WORD_SIZE = 8, ENTRY_HEAD_SIZE = 16 };

struct append {
    struct raft_io_append request;
    struct nd_list link; /* in io->waiting or io->lost */
    struct nd_raft_io *io;
    struct raft_io_append *raft_request;
    const struct raft_entry *entries; /* raft's copy of the array, freed by its callback */
    unsigned entries_count;
    size_t size; /* in a segment */
    raft_io_append_cb done;
};

/* Checksums, count, a head per entry, and the entries in whole words. */
static size_t append_size(const struct raft_entry entries[], unsigned count)
{
    size_t size = WORD_SIZE + WORD_SIZE + (size_t)count * ENTRY_HEAD_SIZE;

    for (unsigned i = 0; i < count; i++) {
        size += (entries[i].buf.len + WORD_SIZE - 1) / WORD_SIZE * WORD_SIZE;
    }
    return size;
}

/* A segment that cannot be created is the one failure that damages nothing. libraft fills `errmsg`
 * with the reason, and names the step in front of it. */
static bool is_missing_segment(const struct nd_raft_io *io)
{
    static const char step[] = "create segment";
    return strncmp(io->io.errmsg, step, sizeof step - 1) == 0;
}

/* Raft is not told (G3, G17); the append waits for nd_raft_io_release_lost(). */
static void append_lose(struct append *append)
{
    nd_list_append(&append->io->lost, &append->link);
}

/* Nothing of these was written. */
static void waiting_lose(struct nd_raft_io *io)
{
    for (struct nd_list *link; (link = nd_list_pop(&io->waiting)) != NULL;) {
        append_lose(ND_CONTAINER_OF(link, struct append, link));
    }
}

static void append_failed(struct append *append, int status)
{
    struct nd_raft_io *io = append->io;
    bool clean = is_missing_segment(io);

    append_lose(append);
    waiting_lose(io);
    io->starved = true;
    if (clean || status == RAFT_NOSPACE) {
        io->events.starved(io->events.arg, status, clean);
    } else {
        io->events.fatal(io->events.arg, "append to the raft log", status);
    }
}

static void append_done(struct raft_io_append *request, int status);

/* Give to raft_uv what it may have (G18). */
static void waiting_give(struct nd_raft_io *io)
{
    struct nd_list *link;

    while (!io->closing && (link = nd_list_first(&io->waiting)) != NULL) {
        struct append *append = ND_CONTAINER_OF(link, struct append, link);
        if (io->appends > 0 && io->given_bytes + append->size > io->given_bytes_max) {
            break;
        }
        nd_list_remove(&append->link);
        int status = io->uv_append(&io->io, &append->request, append->entries,
                                   append->entries_count, append_done);
        if (status == 0) {
            io->appends++;
            io->given_bytes += append->size;
        } else {
            append_failed(append, status);
        }
    }
}

static void append_done(struct raft_io_append *request, int status)
{
    struct append *append = request->data;
    struct nd_raft_io *io = append->io;

    io->appends--;
    io->given_bytes -= append->size;
    if (status == 0) {
        append->done(append->raft_request, 0);
        nd_free(append);
    } else if (io->closing) {
        append_lose(append);
    } else {
        append_failed(append, status);
    }
    waiting_give(io);
    moved(io);
}

static int io_append(struct raft_io *base, struct raft_io_append *request,
                     const struct raft_entry entries[], unsigned n, raft_io_append_cb done)
{
    struct nd_raft_io *io = from_raft(base);
    struct append *append = nd_xcalloc(1, sizeof *append);

    *append = (struct append){.io = io,
                              .raft_request = request,
                              .entries = entries,
                              .entries_count = n,
                              .size = append_size(entries, n),
                              .done = done};
    append->request.data = append;
    nd_list_init(&append->link);
    if (io->starved) { /* behind a hole nothing may be written */
        append_lose(append);
        io->events.starved(io->events.arg, RAFT_NOSPACE, true);
        return 0;
    }
    nd_list_append(&io->waiting, &append->link);
    waiting_give(io);
    return 0; /* raft frees its log twice when an append is refused */
}

/* What the callback of an append frees in raft 0.15.0, for leader and follower alike: the array of
 * entries, and the request that the raft_io_append is part of and points to. */
void nd_raft_io_release_lost(struct nd_raft_io *io)
{
    for (struct nd_list *link; (link = nd_list_pop(&io->lost)) != NULL;) {
        struct append *append = ND_CONTAINER_OF(link, struct append, link);
        raft_free((void *)(uintptr_t)append->entries);
        raft_free(append->raft_request->data);
        nd_free(append);
    }
}

struct put {
    struct raft_io_snapshot_put request;
    struct nd_raft_io *io;
    struct raft_io_snapshot_put *raft_request;
    raft_io_snapshot_put_cb done;
    unsigned trailing;
};

static void put_failed(struct nd_raft_io *io, unsigned trailing, int status)
{
    if (trailing == 0) { /* G3: an install */
        io->events.fatal(io->events.arg, "install a snapshot", status);
    } else {
        io->events.put_failed(io->events.arg, status);
    }
}

static void put_done(struct raft_io_snapshot_put *request, int status)
{
    struct put *put = request->data;
    struct nd_raft_io *io = put->io;

    io->puts--;
    if (status != 0 && !io->closing) {
        put_failed(io, put->trailing, status);
    }
    put->done(put->raft_request, status);
    nd_free(put);
    moved(io);
}

static int io_snapshot_put(struct raft_io *base, unsigned trailing,
                           struct raft_io_snapshot_put *request,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done)
{
    struct nd_raft_io *io = from_raft(base);
    struct put *put = nd_xcalloc(1, sizeof *put);

    *put = (struct put){.io = io, .raft_request = request, .done = done, .trailing = trailing};
    put->request.data = put;
    int status = io->uv_snapshot_put(base, trailing, &put->request, snapshot, put_done);
    if (status != 0) {
        nd_free(put);
        put_failed(io, trailing, status);
        return status;
    }
    io->puts++;
    return 0;
}

bool nd_raft_io_is_busy(const struct nd_raft_io *io)
{
    return io->appends > 0 || io->puts > 0 || !nd_list_empty(&io->waiting);
}

/* --- start, tick, close --- */

static void on_tick(struct raft_io *base)
{
    struct nd_raft_io *io = from_raft(base);

    if (io->closing) {
        return;
    }
    io->tick(base);
    moved(io);
}

static int io_start(struct raft_io *base, unsigned tick_ms, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    struct nd_raft_io *io = from_raft(base);

    io->tick = tick;
    io->receive = receive;
    int status = io->uv_start(base, tick_ms, on_tick, receive);
    if (status == 0) {
        status = io->transport.start(io->transport.impl, io);
    }
    io->started = status == 0;
    return status;
}

static void io_close(struct raft_io *base, raft_io_close_cb done)
{
    struct nd_raft_io *io = from_raft(base);

    io->closing = true;
    waiting_lose(io);
    if (io->started) {
        io->transport.stop(io->transport.impl);
    }
    for (struct nd_list *link; (link = nd_list_first(&io->sends)) != NULL;) {
        nd_raft_io_sent(io, ND_CONTAINER_OF(link, struct nd_raft_send, link), RAFT_CANCELED);
    }
    finish_sends(io);
    uv_close((uv_handle_t *)&io->finished_async, NULL);
    io->uv_close(base, done);
}

int nd_raft_io_init(struct nd_raft_io *io, uv_loop_t *loop, const char *dir,
                    const struct nd_raft_io_events *events)
{
    *io = (struct nd_raft_io){.events = *events};
    nd_list_init(&io->sends);
    nd_list_init(&io->finished);
    nd_list_init(&io->lost);
    nd_list_init(&io->waiting);
    io->given_bytes_max = SEGMENT_SIZE_DEFAULT / 2;
    io->transport = nd_raft_transport_none(io);
    io->no_wire = (struct raft_uv_transport){
        .init = wire_init, .listen = wire_listen, .connect = wire_connect, .close = wire_close};
    int status = raft_uv_init(&io->io, loop, dir, &io->no_wire);
    if (status != 0) {
        return status;
    }
    if (uv_async_init(loop, &io->finished_async, on_finished) != 0) {
        raft_uv_close(&io->io);
        return RAFT_NOMEM;
    }
    io->finished_async.data = io;
    io->uv_start = io->io.start;
    io->uv_close = io->io.close;
    io->uv_append = io->io.append;
    io->uv_snapshot_put = io->io.snapshot_put;
    io->io.start = io_start;
    io->io.close = io_close;
    io->io.send = io_send;
    io->io.append = io_append;
    io->io.snapshot_put = io_snapshot_put;
    io->io.version = 2; /* raft_uv fills version 2's async_work, yet says 1 */
    return 0;
}

void nd_raft_io_set_segment_size(struct nd_raft_io *io, size_t size)
{
    raft_uv_set_segment_size(&io->io, size);
    io->given_bytes_max = size / 2;
}
