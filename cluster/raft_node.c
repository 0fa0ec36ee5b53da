#include "cluster/raft_node.h"

#include <signal.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

#include "cluster/raft_io.h"

enum {
    TICK_MS = 250,
    ELECTION_MS = 1000, /* never waited for by a member without peers: it leads from the start */
    ENTRY_ALIGNMENT = 8,
    SEGMENT_ALIGNMENT = 4096,
};

struct nd_raft_node {
    struct nd_raft_io io;
    struct raft raft;
    struct raft_fsm fsm;
    uv_loop_t loop;
    uv_async_t wake;
    struct nd_inbox inbox;
    struct nd_thread thread;
    struct nd_msg stop;
    struct nd_raft_machine machine;
    char *address;
    struct nd_mutex wake_lock;
    bool wake_open; /* guarded by wake_lock */
    /* raft thread */
    bool running;
    raft_term barrier_term; /* a barrier was submitted in it */
    bool elected_due;       /* that barrier was applied; the machine is told by the next look */
    bool leading;           /* the machine was told */
    bool stopping, closing, closed, failed;
    struct nd_errmsg machine_msg; /* the last failure of the machine */
    enum nd_err machine_err;
};

/* --- the state machine, as raft calls it --- */

static void fail(struct nd_raft_node *node, const char *text)
{
    node->failed = true;
    node->machine.fatal(node->machine.arg, text);
}

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *entry, void **result)
{
    struct nd_raft_node *node = fsm->data;
    uint64_t index = raft_last_applied(&node->raft) + 1; /* raised after this returns */

    *result = NULL;
    if (node->failed) {
        return RAFT_MALFORMED;
    }
    node->machine_err = node->machine.apply(
        node->machine.arg, nd_slice_make(entry->base, entry->len), index, &node->machine_msg);
    if (node->machine_err != ND_OK) {
        nd_errmsg_wrap(&node->machine_msg, "apply entry %llu of the raft log",
                       (unsigned long long)index);
        fail(node, node->machine_msg.text);
        return RAFT_MALFORMED;
    }
    return 0;
}

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *buffers[], unsigned *count)
{
    struct nd_raft_node *node = fsm->data;
    struct nd_buf buf;

    if (node->raft.configuration_uncommitted_index != 0 || node->failed) {
        return RAFT_BUSY; /* G15: it would save a configuration that may be rolled back */
    }
    nd_buf_init(&buf, SIZE_MAX);
    node->machine.snapshot(node->machine.arg, &buf);
    struct raft_buffer *array = raft_malloc(sizeof *array);
    if (nd_buf_failed(&buf) || array == NULL) {
        nd_buf_release(&buf);
        raft_free(array);
        return RAFT_NOMEM;
    }
    array->base = buf.data; /* handed over: raft's heap is malloc's */
    array->len = buf.size;
    *buffers = array;
    *count = 1;
    return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buffer)
{
    struct nd_raft_node *node = fsm->data;

    node->machine_err = node->machine.restore(
        node->machine.arg, nd_slice_make(buffer->base, buffer->len), &node->machine_msg);
    if (node->machine_err != ND_OK) {
        if (node->running) {
            fail(node, node->machine_msg.text);
        }
        return RAFT_MALFORMED;
    }
    raft_free(buffer->base); /* ours on success only */
    return 0;
}

/* --- following raft's state: it has no callback for it --- */

static void election_barrier_done(struct raft_barrier *barrier, int status)
{
    struct nd_raft_node *node = barrier->data;

    if (status == 0 && node->raft.state == RAFT_LEADER &&
        node->barrier_term == node->raft.current_term) {
        node->elected_due = true; /* told by look(): raft is in the middle of its loop here */
    }
    nd_free(barrier);
}

static void election_barrier(struct nd_raft_node *node)
{
    struct raft_barrier *barrier = nd_xcalloc(1, sizeof *barrier);

    barrier->data = node;
    node->elected_due = false;
    if (raft_barrier(&node->raft, barrier, election_barrier_done) == 0) {
        node->barrier_term = node->raft.current_term;
    } else {
        nd_free(barrier); /* the next look tries again */
    }
}

/* A late nd_raft_node_post() must not touch a closed handle. */
static void wake_close(struct nd_raft_node *node)
{
    nd_mutex_lock(&node->wake_lock);
    node->wake_open = false;
    nd_mutex_unlock(&node->wake_lock);
    uv_close((uv_handle_t *)&node->wake, NULL);
}

static void on_closed(struct raft *raft)
{
    struct nd_raft_node *node = raft->data;
    node->closed = true;
    wake_close(node);
}

static void close_raft(struct nd_raft_node *node)
{
    node->closing = true;
    raft_close(&node->raft, on_closed);
}

/* After everything that may have moved raft. */
static void look(void *arg)
{
    struct nd_raft_node *node = arg;

    if (node->closing) {
        return;
    }
    if (node->raft.state != RAFT_LEADER && node->leading) {
        node->leading = false;
        node->machine.deposed(node->machine.arg);
    }
    if (node->raft.state == RAFT_LEADER && node->barrier_term != node->raft.current_term &&
        node->raft.transfer == NULL && !node->stopping) {
        election_barrier(node);
    }
    if (node->elected_due && node->raft.state == RAFT_LEADER) {
        node->elected_due = false;
        node->leading = true;
        node->machine.elected(node->machine.arg);
    }
    if (node->raft.state == RAFT_UNAVAILABLE && !node->failed) {
        struct nd_errmsg msg;
        nd_errmsg_set(&msg, "raft became unavailable: %s", raft_errmsg(&node->raft));
        fail(node, msg.text);
    }
    if (node->stopping) {
        uv_async_send(&node->wake); /* on_wake() closes: never inside a callback of raft's */
    }
}

static void on_tick(void *arg)
{
    struct nd_raft_node *node = arg;
    node->machine.tick(node->machine.arg);
}

static void on_fatal(void *arg, const char *what, int status)
{
    struct nd_raft_node *node = arg;
    struct nd_errmsg msg;

    nd_errmsg_set(&msg, "%s: %s", what, node->io.io.errmsg);
    if (status == RAFT_NOSPACE) {
        nd_errmsg_wrap(&msg, "no space left for the metadata; free some and start again");
    }
    fail(node, msg.text);
}

/* --- messages from other threads --- */

static void notify(void *data)
{
    struct nd_raft_node *node = data;

    nd_mutex_lock(&node->wake_lock);
    if (node->wake_open) {
        uv_async_send(&node->wake);
    }
    nd_mutex_unlock(&node->wake_lock);
}

static void on_wake(uv_async_t *async)
{
    struct nd_raft_node *node = async->data;
    nd_inbox_run(&node->inbox, node->machine.arg);
    if (node->stopping && !node->closing && !nd_raft_io_is_busy(&node->io)) {
        close_raft(
            node); /* G17: with a writer that is at work it would be closed in its own poll */
    } else if (!node->stopping) {
        look(node);
    }
}

void nd_raft_node_post(struct nd_raft_node *node, struct nd_msg *msg)
{
    nd_inbox_push(&node->inbox, msg);
}

static void stop_run(struct nd_msg *msg, void *owner)
{
    struct nd_raft_node *node = ND_CONTAINER_OF(msg, struct nd_raft_node, stop);
    (void)owner;
    node->stopping = true;
}

/* --- proposing --- */

struct proposal {
    union {
        struct raft_apply apply;
        struct raft_barrier barrier;
    } request;
    nd_raft_done_fn *done;
    void *arg;
};

static struct proposal *proposal_new(nd_raft_done_fn *done, void *arg)
{
    struct proposal *proposal = nd_xcalloc(1, sizeof *proposal);
    proposal->done = done;
    proposal->arg = arg;
    return proposal;
}

static void proposal_finish(struct proposal *proposal, int status)
{
    proposal->done(proposal->arg, status == 0 ? ND_OK : ND_ERR_UNKNOWN_OUTCOME);
    nd_free(proposal);
}

static void apply_done(struct raft_apply *request, int status, void *result)
{
    (void)result;
    proposal_finish(request->data, status);
}

static void barrier_done(struct raft_barrier *request, int status)
{
    proposal_finish(request->data, status);
}

static enum nd_err refusal(const struct nd_raft_node *node)
{
    if (node->stopping || node->closed || node->failed) {
        return ND_ERR_UNAVAILABLE;
    }
    return node->raft.state == RAFT_LEADER ? ND_OK : ND_ERR_NOT_LEADER;
}

enum nd_err nd_raft_node_propose(struct nd_raft_node *node, struct nd_slice entry,
                                 nd_raft_done_fn *done, void *arg)
{
    enum nd_err err = refusal(node);
    if (err != ND_OK) {
        return err;
    }
    ND_ASSERT(entry.size > 0 && entry.size % ENTRY_ALIGNMENT == 0); /* else the log is lost */
    struct raft_buffer buffer = {raft_malloc(entry.size), entry.size};
    if (buffer.base == NULL) {
        return ND_ERR_NO_MEMORY;
    }
    memcpy(buffer.base, entry.data, entry.size);
    struct proposal *proposal = proposal_new(done, arg);
    proposal->request.apply.data = proposal;
    int status = raft_apply(&node->raft, &proposal->request.apply, &buffer, 1, apply_done);
    if (status != 0) {
        raft_free(buffer.base);
        nd_free(proposal);
    }
    return nd_raft_status_err(status);
}

enum nd_err nd_raft_node_barrier(struct nd_raft_node *node, nd_raft_done_fn *done, void *arg)
{
    enum nd_err err = refusal(node);
    if (err != ND_OK) {
        return err;
    }
    struct proposal *proposal = proposal_new(done, arg);
    proposal->request.barrier.data = proposal;
    int status = raft_barrier(&node->raft, &proposal->request.barrier, barrier_done);
    if (status != 0) {
        nd_free(proposal);
    }
    return nd_raft_status_err(status);
}

struct work {
    uv_work_t request;
    void (*work)(void *arg);
    void (*done)(void *arg);
    void *arg;
};

static void work_run(uv_work_t *request)
{
    struct work *work = request->data;
    work->work(work->arg);
}

static void work_done(uv_work_t *request, int status)
{
    struct work *work = request->data;
    (void)status; /* nothing is ever cancelled */
    work->done(work->arg);
    nd_free(work);
}

void nd_raft_node_work(struct nd_raft_node *node, void (*work)(void *arg), void (*done)(void *arg),
                       void *arg)
{
    struct work *made = nd_xcalloc(1, sizeof *made);
    *made = (struct work){.work = work, .done = done, .arg = arg};
    made->request.data = made;
    int status = uv_queue_work(&node->loop, &made->request, work_run, work_done);
    ND_ASSERT(status == 0);
}

struct nd_raft_stats nd_raft_node_stats(struct nd_raft_node *node)
{
    struct raft *raft = &node->raft;
    struct nd_raft_stats stats = {
        .term = raft->current_term,
        .last_index = node->closed ? 0 : raft_last_index(raft),
        .commit_index = raft->commit_index,
        .applied_index = raft->last_applied,
        .snapshot_index = raft->log.snapshot.last_index,
        .snapshot_failures = node->io.put_failures,
        .leader = raft->state == RAFT_LEADER,
    };
    stats.has_leader = stats.leader || (raft->state == RAFT_FOLLOWER &&
                                        raft->follower_state.current_leader.id != 0);
    for (unsigned i = 0; !node->closed && i < raft->configuration.n; i++) {
        bool voter = raft->configuration.servers[i].role == RAFT_VOTER;
        stats.voters += voter ? 1 : 0;
        stats.others += voter ? 0 : 1;
    }
    return stats;
}

/* --- open, start, stop --- */

static void loop_close(struct nd_raft_node *node)
{
    uv_run(&node->loop, UV_RUN_DEFAULT); /* what is closing calls back */
    int status = uv_loop_close(&node->loop);
    ND_ASSERT(status == 0);
}

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

static int bootstrap(struct nd_raft_node *node, uint64_t member)
{
    struct raft_configuration configuration;

    raft_configuration_init(&configuration);
    int status = raft_configuration_add(&configuration, member, node->address, RAFT_VOTER);
    if (status == 0) {
        status = raft_bootstrap(&node->raft, &configuration);
    }
    raft_configuration_close(&configuration);
    return status;
}

static void raft_settings(struct nd_raft_node *node, const struct nd_raft_node_options *options)
{
    raft_set_election_timeout(&node->raft, ELECTION_MS);
    raft_set_heartbeat_timeout(&node->raft, TICK_MS);
    raft_set_snapshot_threshold(&node->raft, options->snapshot_threshold);
    raft_set_snapshot_trailing(&node->raft, options->snapshot_trailing);
    raft_set_pre_vote(&node->raft, true);
}

static enum nd_err raft_open(struct nd_raft_node *node, const struct nd_raft_node_options *options,
                             struct nd_errmsg *msg)
{
    int status = 0;

    raft_settings(node, options);
    if (options->bootstrap) {
        status = bootstrap(node, options->member);
    }
    if (status == 0) {
        status = raft_start(&node->raft);
    }
    if (status != 0) {
        return open_failure(node, status, msg);
    }
    if (node->raft.configuration.n == 0) {
        nd_errmsg_set(msg, "the raft log is gone, yet this node had one");
        return ND_ERR_CORRUPT;
    }
    look(node);
    return ND_OK;
}

static enum nd_err parts_init(struct nd_raft_node *node, const struct nd_raft_node_options *options,
                              struct nd_errmsg *msg)
{
    const struct nd_raft_io_events events = {node, look, on_tick, on_fatal};
    int status = nd_raft_io_init(&node->io, &node->loop, options->dir, &events);

    if (status != 0) {
        nd_errmsg_set(msg, "%s", raft_strerror(status));
        return nd_raft_status_err(status);
    }
    /* What it would "recover" by renaming segments away are entries that were acknowledged. */
    raft_uv_set_auto_recovery(&node->io.io, false);
    if (options->segment_bytes != 0) {
        size_t size = options->segment_bytes + SEGMENT_ALIGNMENT - 1;
        raft_uv_set_segment_size(&node->io.io, size / SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT);
    }
    node->fsm = (struct raft_fsm){.version = 1,
                                  .data = node,
                                  .apply = fsm_apply,
                                  .snapshot = fsm_snapshot,
                                  .restore = fsm_restore};
    status = raft_init(&node->raft, &node->io.io, &node->fsm, options->member, node->address);
    if (status != 0) {
        nd_errmsg_set(msg, "%s", raft_errmsg(&node->raft));
        uv_close((uv_handle_t *)&node->io.finished_async, NULL);
        uv_run(&node->loop, UV_RUN_DEFAULT);
        raft_uv_close(&node->io.io);
        return nd_raft_status_err(status);
    }
    node->raft.data = node;
    return ND_OK;
}

static enum nd_err node_open(struct nd_raft_node **out, const struct nd_raft_node_options *options,
                             struct nd_errmsg *msg)
{
    struct nd_raft_node *node = nd_xcalloc(1, sizeof *node);
    enum nd_err err = ND_ERR_NO_MEMORY;

    node->machine = options->machine;
    node->address = nd_xstrdup(options->address);
    node->stop.run = stop_run;
    nd_list_init(&node->stop.link);
    nd_inbox_init(&node->inbox);
    nd_mutex_init(&node->wake_lock);
    if (uv_loop_init(&node->loop) != 0) {
        goto fail;
    }
    if (uv_async_init(&node->loop, &node->wake, on_wake) != 0) {
        goto fail_loop;
    }
    node->wake.data = node;
    node->wake_open = true;
    node->inbox.notify = notify;
    node->inbox.notify_data = node;
    err = parts_init(node, options, msg);
    if (err != ND_OK) {
        wake_close(node);
        goto fail_loop;
    }
    err = raft_open(node, options, msg);
    if (err != ND_OK) {
        node->failed = true; /* told here, not to the machine */
        nd_raft_node_stop(node);
        goto fail;
    }
    *out = node;
    return ND_OK;

fail_loop:
    loop_close(node);
fail:
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
        nd_errmsg_set(msg, "start the raft thread");
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
    raft_uv_close(&node->io.io);
}

void nd_raft_node_free(struct nd_raft_node *node)
{
    if (node == NULL) {
        return;
    }
    nd_inbox_release(&node->inbox);
    nd_mutex_release(&node->wake_lock);
    nd_free(node->address);
    nd_free(node);
}
