/* The state machine as raft drives it, elections, proposals. */
#include "storage/base/alloc.h"

#include "cluster/raft_node_impl.h"

enum { ENTRY_ALIGNMENT = 8 };

/* --- the state machine, as raft calls it --- */

void nd_raft_node_fail(struct nd_raft_node *node, const char *text)
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
    if (index <= node->applied) {
        return 0; /* read again after a full disk */
    }
    node->machine_err = node->machine.apply(
        node->machine.arg, nd_slice_make(entry->base, entry->len), index, &node->machine_msg);
    if (node->machine_err != ND_OK) {
        nd_errmsg_wrap(&node->machine_msg, "apply entry %llu of the raft log",
                       (unsigned long long)index);
        nd_raft_node_fail(node, node->machine_msg.text);
        return RAFT_MALFORMED;
    }
    node->applied = index;
    return 0;
}

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *buffers[], unsigned *count)
{
    struct nd_raft_node *node = fsm->data;
    struct nd_buf buf;

    if (node->raft.configuration_uncommitted_index != 0 || node->failed) {
        return RAFT_BUSY; /* G15: it would save a configuration that may be rolled back */
    }
    if (raft_last_applied(&node->raft) < node->applied ||
        uv_now(&node->loop) < node->snapshot_at_ms) {
        return RAFT_BUSY; /* the machine is ahead of what is read again; the last one failed */
    }
    nd_buf_init(&buf, SIZE_MAX);
    node->machine.snapshot(node->machine.arg, &buf);
    struct raft_buffer *array = raft_malloc(sizeof *array);
    if (nd_buf_failed(&buf) || array == NULL) {
        nd_buf_release(&buf);
        raft_free(array);
        return RAFT_BUSY; /* any other code would end raft */
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

    if (node->reopening) { /* it was made from what the machine holds */
        raft_free(buffer->base);
        return 0;
    }
    node->machine_err = node->machine.restore(
        node->machine.arg, nd_slice_make(buffer->base, buffer->len), &node->machine_msg);
    if (node->machine_err != ND_OK) {
        if (node->running) {
            nd_raft_node_fail(node, node->machine_msg.text);
        }
        return RAFT_MALFORMED;
    }
    raft_free(buffer->base); /* ours on success only */
    return 0;
}

struct raft_fsm nd_raft_node_fsm(struct nd_raft_node *node)
{
    return (struct raft_fsm){.version = 1,
                             .data = node,
                             .apply = fsm_apply,
                             .snapshot = fsm_snapshot,
                             .restore = fsm_restore};
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

void nd_raft_node_look(struct nd_raft_node *node)
{
    if (node->stopping || node->phase != ND_RAFT_UP) {
        nd_raft_life_wake(node); /* it closes there: never inside a callback of raft's */
        return;
    }
    if (node->raft.state != RAFT_LEADER && node->leading) {
        node->leading = false;
        node->machine.deposed(node->machine.arg);
    }
    if (node->raft.state == RAFT_LEADER && node->barrier_term != node->raft.current_term &&
        node->raft.transfer == NULL) {
        election_barrier(node);
    }
    if (node->elected_due && node->raft.state == RAFT_LEADER) {
        node->elected_due = false;
        node->leading = true;
        nd_raft_room_recovered(node);
        node->machine.elected(node->machine.arg);
    }
    if (node->raft.state == RAFT_UNAVAILABLE && !node->failed) {
        struct nd_errmsg msg;
        nd_errmsg_set(&msg, "raft became unavailable: %s", raft_errmsg(&node->raft));
        nd_raft_node_fail(node, msg.text);
    }
}

/* --- messages from other threads --- */

void nd_raft_node_post(struct nd_raft_node *node, struct nd_msg *msg)
{
    nd_inbox_push(&node->inbox, msg);
}

/* --- proposing --- */

struct proposal {
    union {
        struct raft_apply apply;
        struct raft_barrier barrier;
    } request;
    struct nd_list link; /* in node->parked */
    struct nd_raft_node *node;
    nd_raft_done_fn *done;
    void *arg;
    bool submitted; /* raft had it once */
    size_t size;    /* 0: a barrier */
    uint8_t entry[];
};

static void proposal_finish(struct proposal *proposal, enum nd_err err)
{
    proposal->done(proposal->arg, err);
    nd_free(proposal);
}

static void proposal_decided(struct proposal *proposal, int status)
{
    struct nd_raft_node *node = proposal->node;

    if (status == 0) {
        proposal_finish(proposal, ND_OK);
    } else if (node->recovering && node->phase == ND_RAFT_ENDING) {
        nd_list_append(&node->parked, &proposal->link);
    } else {
        proposal_finish(proposal, ND_ERR_UNKNOWN_OUTCOME);
    }
}

static void apply_done(struct raft_apply *request, int status, void *result)
{
    (void)result;
    proposal_decided(request->data, status);
}

static void barrier_done(struct raft_barrier *request, int status)
{
    proposal_decided(request->data, status);
}

/* Hand it to raft; on an error it is as before. */
static enum nd_err proposal_submit(struct proposal *proposal)
{
    struct raft *raft = &proposal->node->raft;
    int status;

    if (proposal->size == 0) {
        proposal->request.barrier.data = proposal;
        status = raft_barrier(raft, &proposal->request.barrier, barrier_done);
    } else {
        struct raft_buffer buffer = {raft_malloc(proposal->size), proposal->size};
        if (buffer.base == NULL) {
            return ND_ERR_NO_MEMORY;
        }
        memcpy(buffer.base, proposal->entry, proposal->size);
        proposal->request.apply.data = proposal;
        status = raft_apply(raft, &proposal->request.apply, &buffer, 1, apply_done);
        if (status != 0) {
            raft_free(buffer.base);
        }
    }
    proposal->submitted = proposal->submitted || status == 0;
    return nd_raft_status_err(status);
}

static void proposal_refuse(struct proposal *proposal, enum nd_err err)
{
    bool unknown = proposal->submitted && proposal->size > 0 && proposal->node->lost_may_be_kept;
    proposal_finish(proposal, unknown ? ND_ERR_UNKNOWN_OUTCOME : err);
}

void nd_raft_node_unpark(struct nd_raft_node *node)
{
    struct nd_list parked = ND_LIST_INIT(parked);

    nd_list_move(&parked, &node->parked);
    for (struct nd_list *link; (link = nd_list_pop(&parked)) != NULL;) {
        struct proposal *proposal = ND_CONTAINER_OF(link, struct proposal, link);
        enum nd_err err = proposal_submit(proposal);
        if (err != ND_OK) {
            proposal_refuse(proposal, err);
        }
    }
}

void nd_raft_node_give_up(struct nd_raft_node *node, enum nd_err err)
{
    for (struct nd_list *link; (link = nd_list_pop(&node->parked)) != NULL;) {
        proposal_refuse(ND_CONTAINER_OF(link, struct proposal, link), err);
    }
}

static enum nd_err refusal(const struct nd_raft_node *node)
{
    if (node->stopping || node->failed) {
        return ND_ERR_UNAVAILABLE;
    }
    if (node->starved) {
        return node->room_err;
    }
    return node->recovering || node->raft.state == RAFT_LEADER ? ND_OK : ND_ERR_NOT_LEADER;
}

static enum nd_err propose(struct nd_raft_node *node, struct nd_slice entry, nd_raft_done_fn *done,
                           void *arg)
{
    enum nd_err err = refusal(node);
    if (err != ND_OK) {
        return err;
    }
    struct proposal *proposal = nd_xcalloc(1, sizeof *proposal + entry.size);
    proposal->node = node;
    proposal->done = done;
    proposal->arg = arg;
    proposal->size = entry.size;
    nd_list_init(&proposal->link);
    if (entry.size > 0) {
        memcpy(proposal->entry, entry.data, entry.size);
    }
    if (node->recovering) {
        nd_list_append(&node->parked, &proposal->link);
        return ND_OK;
    }
    err = proposal_submit(proposal);
    if (err != ND_OK) {
        nd_free(proposal);
    }
    return err;
}

enum nd_err nd_raft_node_propose(struct nd_raft_node *node, struct nd_slice entry,
                                 nd_raft_done_fn *done, void *arg)
{
    ND_ASSERT(entry.size > 0 && entry.size % ENTRY_ALIGNMENT == 0); /* else the log is lost */
    return propose(node, entry, done, arg);
}

enum nd_err nd_raft_node_barrier(struct nd_raft_node *node, nd_raft_done_fn *done, void *arg)
{
    return propose(node, nd_slice_make(NULL, 0), done, arg);
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
    bool up = node->phase == ND_RAFT_UP;
    struct nd_raft_stats stats = {
        .term = raft->current_term,
        .last_index = up ? raft_last_index(raft) : raft->last_applied,
        .commit_index = raft->commit_index,
        .applied_index = raft->last_applied,
        .snapshot_index = raft->log.snapshot.last_index,
        .snapshot_failures = node->snapshot_failures,
        .leader = up && raft->state == RAFT_LEADER,
        .starved = node->starved,
        .ballast = node->ballast_there,
    };
    stats.has_leader = stats.leader || (up && raft->state == RAFT_FOLLOWER &&
                                        raft->follower_state.current_leader.id != 0);
    for (unsigned i = 0; up && i < raft->configuration.n; i++) {
        bool voter = raft->configuration.servers[i].role == RAFT_VOTER;
        stats.voters += voter ? 1 : 0;
        stats.others += voter ? 0 : 1;
    }
    return stats;
}
