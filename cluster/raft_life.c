/* Raft opened, closed and opened again on its loop; the raft thread's start and end.
 *
 * INVARIANT: libraft's memory is released one turn of the loop after it called back, when its
 * handles are off the loop. */
#include <signal.h>

#include "storage/base/alloc.h"

#include "cluster/raft_files.h"
#include "cluster/raft_node_impl.h"

enum {
    TICK_MS = 250,
    ELECTION_MS = 1000, /* never waited for by a member without peers: it leads from the start */
    SEGMENT_ALIGNMENT = 4096,
};

/* --- waking --- */

void nd_raft_life_wake(struct nd_raft_node *node)
{
    uv_async_send(&node->wake); /* on the raft thread, which closes it */
}

static void notify(void *data)
{
    struct nd_raft_node *node = data;

    nd_mutex_lock(&node->wake_lock);
    if (node->wake_open) {
        uv_async_send(&node->wake);
    }
    nd_mutex_unlock(&node->wake_lock);
}

/* A late nd_raft_node_post() must not touch a closed handle. */
static void handles_close(struct nd_raft_node *node)
{
    node->handles_closed = true;
    nd_mutex_lock(&node->wake_lock);
    node->wake_open = false;
    nd_mutex_unlock(&node->wake_lock);
    uv_close((uv_handle_t *)&node->wake, NULL);
    uv_close((uv_handle_t *)&node->clock, NULL);
}

static void on_wake(uv_async_t *async)
{
    struct nd_raft_node *node = async->data;

    nd_inbox_run(&node->inbox, node->machine.arg);
    nd_raft_life_step(node);
    if (!node->stopping && node->phase == ND_RAFT_UP) {
        nd_raft_node_look(node);
    }
}

static void on_clock(uv_timer_t *clock)
{
    struct nd_raft_node *node = clock->data;

    if (!node->running) {
        return; /* an open that failed is being closed */
    }
    nd_raft_room_tick(node);
    if (!node->stopping) {
        node->machine.tick(node->machine.arg);
    }
}

/* --- closing --- */

static void on_closed(struct raft *raft)
{
    struct nd_raft_node *node = raft->data;
    node->closed = true;
    nd_raft_life_wake(node);
}

static void go_down(struct nd_raft_node *node)
{
    if (node->io_open) {
        nd_raft_io_release_lost(&node->io);
        raft_uv_close(&node->io.io);
    }
    node->io_open = node->raft_open = node->closing = node->closed = false;
    node->phase = ND_RAFT_DOWN;
}

void nd_raft_life_step(struct nd_raft_node *node)
{
    if (node->handles_closed || (node->phase == ND_RAFT_UP && !node->stopping)) {
        return;
    }
    if (node->phase != ND_RAFT_DOWN) {
        node->phase = ND_RAFT_ENDING;
        if (!node->raft_open || node->closed) {
            go_down(node);
        } else if (!node->closing && !nd_raft_io_is_busy(&node->io)) {
            node->closing = true; /* G17: a writer that is at work would be closed in its poll */
            raft_close(&node->raft, on_closed);
        }
    }
    if (node->phase == ND_RAFT_DOWN && node->stopping) {
        nd_raft_room_stop(node);
        nd_raft_node_give_up(node, ND_ERR_UNAVAILABLE);
        handles_close(node);
    } else if (node->phase == ND_RAFT_DOWN && node->recovering) {
        nd_raft_room_look(node);
    }
}

static void loop_close(struct nd_raft_node *node)
{
    uv_run(&node->loop, UV_RUN_DEFAULT); /* what is closing calls back */
    int status = uv_loop_close(&node->loop);
    ND_ASSERT(status == 0);
}

/* --- what raft_io tells --- */

static void on_moved(void *arg)
{
    nd_raft_node_look(arg);
}

static void on_starved(void *arg, int status, bool clean)
{
    nd_raft_room_starved(arg, status, clean);
}

static void on_put_failed(void *arg, int status)
{
    nd_raft_room_put_failed(arg, status);
}

static void on_fatal(void *arg, const char *what, int status)
{
    struct nd_raft_node *node = arg;
    struct nd_errmsg msg;

    nd_errmsg_set(&msg, "%s: %s (%s)", what, node->io.io.errmsg, raft_strerror(status));
    nd_raft_node_fail(node, msg.text);
}

/* --- opening --- */

/* The reason in raft's words, or in the machine's when it was the one that refused. */
static enum nd_err open_failure(struct nd_raft_node *node, int status, struct nd_errmsg *msg)
{
    if (node->machine_err != ND_OK) {
        nd_errmsg_set(msg, "%s", node->machine_msg.text);
        return node->machine_err;
    }
    nd_errmsg_set(msg, "%s", raft_errmsg(&node->raft));
    return nd_raft_status_err(status);
}

static int bootstrap(struct nd_raft_node *node)
{
    struct raft_configuration configuration;

    raft_configuration_init(&configuration);
    int status =
        raft_configuration_add(&configuration, node->options.member, node->address, RAFT_VOTER);
    if (status == 0) {
        status = raft_bootstrap(&node->raft, &configuration);
    }
    raft_configuration_close(&configuration);
    return status;
}

static void raft_settings(struct nd_raft_node *node)
{
    raft_set_election_timeout(&node->raft, ELECTION_MS);
    raft_set_heartbeat_timeout(&node->raft, TICK_MS);
    raft_set_snapshot_threshold(&node->raft, node->options.snapshot_threshold);
    /* By 0 libraft tells a snapshot that was sent to it, whose failure it does not survive. */
    raft_set_snapshot_trailing(&node->raft, ND_MAX(node->options.snapshot_trailing, 1u));
    raft_set_pre_vote(&node->raft, true);
}

static enum nd_err raft_begin(struct nd_raft_node *node, bool first, struct nd_errmsg *msg)
{
    int status = 0;

    raft_settings(node);
    if (first) {
        status = bootstrap(node);
    }
    if (status == 0) {
        status = raft_start(&node->raft);
    }
    if (status != 0) {
        return open_failure(node, status, msg);
    }
    return ND_OK;
}

/* What libraft would refuse, or misread, is seen before it has changed anything. */
static enum nd_err files_check(struct nd_raft_node *node, struct nd_errmsg *msg)
{
    uint64_t reached = ND_MAX(node->options.reached_index, (uint64_t)node->applied);
    return nd_raft_files_settle(node->options.env, node->dir, reached, msg);
}

static enum nd_err parts_init(struct nd_raft_node *node, struct nd_errmsg *msg)
{
    const struct nd_raft_io_events events = {node, on_moved, on_starved, on_put_failed, on_fatal};
    int status = nd_raft_io_init(&node->io, &node->loop, node->dir, &events);

    if (status != 0) {
        nd_errmsg_set(msg, "%s", raft_strerror(status));
        return nd_raft_status_err(status);
    }
    node->io_open = true;
    /* What it would "recover" by renaming segments away are entries that were acknowledged. */
    raft_uv_set_auto_recovery(&node->io.io, false);
    if (node->options.segment_bytes != 0) {
        size_t size = node->options.segment_bytes + SEGMENT_ALIGNMENT - 1;
        nd_raft_io_set_segment_size(&node->io, size / SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT);
    }
    node->fsm = nd_raft_node_fsm(node);
    status = raft_init(&node->raft, &node->io.io, &node->fsm, node->options.member, node->address);
    if (status != 0) {
        nd_errmsg_set(msg, "%s", raft_errmsg(&node->raft));
        uv_close((uv_handle_t *)&node->io.finished_async, NULL);
        return nd_raft_status_err(status);
    }
    node->raft_open = true;
    node->raft.data = node;
    return ND_OK;
}

enum nd_err nd_raft_life_open(struct nd_raft_node *node, bool first, struct nd_errmsg *msg)
{
    node->phase = ND_RAFT_UP;
    node->barrier_term = 0;
    node->elected_due = false;
    enum nd_err err = first ? ND_OK : files_check(node, msg);
    if (err == ND_OK) {
        err = parts_init(node, msg);
    }
    if (err == ND_OK) {
        err = raft_begin(node, first, msg);
    }
    if (err != ND_OK) {
        node->phase = ND_RAFT_ENDING;
        nd_raft_life_wake(node);
        return err;
    }
    nd_raft_node_look(node);
    return ND_OK;
}

static void stop_run(struct nd_msg *msg, void *owner)
{
    struct nd_raft_node *node = ND_CONTAINER_OF(msg, struct nd_raft_node, stop);
    (void)owner;
    node->stopping = true;
}

static struct nd_raft_node *node_new(const struct nd_raft_node_options *options)
{
    struct nd_raft_node *node = nd_xcalloc(1, sizeof *node);

    node->options = *options;
    node->machine = options->machine;
    node->address = nd_xstrdup(options->address);
    node->dir = nd_xstrdup(options->dir);
    node->options.address = node->address;
    node->options.dir = node->dir;
    node->phase = ND_RAFT_DOWN;
    node->stop.run = stop_run;
    nd_list_init(&node->stop.link);
    nd_list_init(&node->parked);
    nd_inbox_init(&node->inbox);
    nd_mutex_init(&node->wake_lock);
    nd_ballast_init(&node->ballast, options->env, options->dir, options->ballast_bytes);
    node->ballast_there = options->ballast_bytes > 0 && nd_ballast_is_whole(&node->ballast);
    return node;
}

static enum nd_err loop_open(struct nd_raft_node *node)
{
    if (uv_loop_init(&node->loop) != 0) {
        return ND_ERR_NO_MEMORY;
    }
    if (uv_async_init(&node->loop, &node->wake, on_wake) != 0) {
        loop_close(node);
        return ND_ERR_NO_MEMORY;
    }
    int status = uv_timer_init(&node->loop, &node->clock);
    ND_ASSERT(status == 0);
    status = uv_timer_start(&node->clock, on_clock, TICK_MS, TICK_MS);
    ND_ASSERT(status == 0);
    node->wake.data = node;
    node->clock.data = node;
    node->wake_open = true;
    node->inbox.notify = notify;
    node->inbox.notify_data = node;
    return ND_OK;
}

static enum nd_err node_open(struct nd_raft_node **out, const struct nd_raft_node_options *options,
                             struct nd_errmsg *msg)
{
    struct nd_raft_node *node = node_new(options);
    enum nd_err err = loop_open(node);

    if (err == ND_OK) {
        err = nd_raft_room_check(node, msg);
        if (err == ND_OK) {
            err = nd_raft_life_open(node, options->bootstrap, msg);
        }
        if (err == ND_OK) {
            *out = node;
            return ND_OK;
        }
        node->failed = true; /* told here, not to the machine */
        nd_raft_node_stop(node);
    }
    nd_errmsg_wrap(msg, "open raft in %s", options->dir);
    nd_raft_node_free(node);
    return err;
}

/* libuv starts its pool of threads in here; they inherit the mask, and signals are not theirs. */
enum nd_err nd_raft_node_open(struct nd_raft_node **out, const struct nd_raft_node_options *options,
                              struct nd_errmsg *msg)
{
    sigset_t all;
    sigset_t before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    enum nd_err err = node_open(out, options, msg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

static void loop_run(void *arg)
{
    struct nd_raft_node *node = arg;
    node->running = true;
    uv_run(&node->loop, UV_RUN_DEFAULT);
}

enum nd_err nd_raft_node_start(struct nd_raft_node *node, struct nd_errmsg *msg)
{
    if (!nd_thread_start(&node->thread, "raft", loop_run, node)) {
        nd_errmsg_set(msg, "cannot start the thread raft");
        return ND_ERR_NO_MEMORY;
    }
    return ND_OK;
}

void nd_raft_node_stop(struct nd_raft_node *node)
{
    nd_raft_node_post(node, &node->stop);
    if (node->thread.started) {
        nd_thread_join(&node->thread);
    }
    loop_close(node);
    nd_inbox_run(&node->inbox, node->machine.arg); /* what was posted too late is refused */
}

void nd_raft_node_free(struct nd_raft_node *node)
{
    if (node == NULL) {
        return;
    }
    nd_ballast_release(&node->ballast);
    nd_inbox_release(&node->inbox);
    nd_mutex_release(&node->wake_lock);
    nd_free(node->address);
    nd_free(node->dir);
    nd_free(node);
}
