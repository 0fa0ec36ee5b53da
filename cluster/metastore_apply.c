/* The state machine that Raft drives: apply, snapshot, restore, and what readers are shown of it.
 *
 * INVARIANTS
 *  1. Until the first catch-up readers see the view and nobody is told anything: the entries behind
 * the snapshot are applied in silence. At the catch-up the difference is told, once.
 *  2. A change is told before it can be read, and its proposer hears of it after both (T3). */
#include <inttypes.h>

#include "storage/base/alloc.h"

#include "cluster/metastore_impl.h"
#include "cluster/snapshot.h"

static void tell(struct nd_metastore *metastore, const struct nd_topic *before,
                 const struct nd_topic *after)
{
    if (metastore->options.topic_changed != NULL) {
        metastore->options.topic_changed(metastore->options.topic_changed_arg, before, after);
    }
}

static void tell_same_name(struct nd_metastore *metastore, const struct nd_topic *before,
                           const struct nd_topic *after)
{
    if (before->incarnation != after->incarnation) {
        tell(metastore, before, NULL);
        tell(metastore, NULL, after);
    } else if (before->version != after->version) {
        tell(metastore, before, after);
    }
}

static void tell_difference(struct nd_metastore *metastore, const struct nd_topic_table *before,
                            const struct nd_topic_table *after)
{
    const struct nd_slice start = nd_slice_make(NULL, 0);
    struct nd_topic_walk old_walk = nd_topic_table_walk(before, start);
    struct nd_topic_walk new_walk = nd_topic_table_walk(after, start);
    const struct nd_topic *old = nd_topic_walk_next(&old_walk);
    const struct nd_topic *new = nd_topic_walk_next(&new_walk);

    while (old != NULL || new != NULL) {
        int order = old == NULL ? 1
                    : new == NULL
                        ? -1
                        : nd_topic_name_compare(nd_slice_str(old->name), nd_slice_str(new->name));
        if (order < 0) {
            tell(metastore, old, NULL);
        } else if (order > 0) {
            tell(metastore, NULL, new);
        } else {
            tell_same_name(metastore, old, new);
        }
        old = order <= 0 ? nd_topic_walk_next(&old_walk) : old;
        new = order >= 0 ? nd_topic_walk_next(&new_walk) : new;
    }
}

static void swap(struct nd_metastore *metastore, struct nd_topic_table *table)
{
    nd_topic_table_ref(table);
    nd_mutex_lock(&metastore->lock);
    struct nd_topic_table *old = metastore->published;
    metastore->published = table;
    nd_mutex_unlock(&metastore->lock);
    nd_topic_table_unref(old);
}

void nd_metastore_publish(struct nd_metastore *metastore, struct nd_topic_table *table)
{
    tell_difference(metastore, metastore->published, table);
    swap(metastore, table);
}

void nd_metastore_publish_users(struct nd_metastore *metastore, struct nd_user_table *users)
{
    nd_user_table_ref(users);
    nd_mutex_lock(&metastore->lock);
    struct nd_user_table *old = metastore->users;
    metastore->users = users;
    nd_mutex_unlock(&metastore->lock);
    /* release: who sees the new version reads the new records */
    atomic_fetch_add_explicit(&metastore->users_version, 1, memory_order_release);
    nd_user_table_unref(old);
    nd_mutex_lock(&metastore->watch_lock);
    if (metastore->users_changed != NULL) {
        metastore->users_changed(metastore->users_changed_arg);
    }
    nd_mutex_unlock(&metastore->watch_lock);
}

void nd_metastore_publish_members(struct nd_metastore *metastore, const struct nd_state *state)
{
    size_t size = state->members_count * sizeof state->members[0];
    struct nd_member *copy = nd_xmalloc(size + 1);
    if (size > 0) {
        memcpy(copy, state->members, size);
    }
    nd_mutex_lock(&metastore->lock);
    struct nd_member *old = metastore->members;
    metastore->members = copy;
    metastore->members_count = state->members_count;
    nd_mutex_unlock(&metastore->lock);
    nd_free(old);
}

static void outcome_publish(struct nd_metastore *metastore)
{
    const struct nd_outcome *outcome = &metastore->outcome;

    if (outcome->members_changed) {
        nd_metastore_publish_members(metastore, &metastore->state);
    }
    if (outcome->before != NULL || outcome->after != NULL) {
        tell(metastore, outcome->before, outcome->after);
        swap(metastore, metastore->state.table);
    }
    if (outcome->user_before != NULL || outcome->user_after != NULL) {
        nd_metastore_publish_users(metastore, metastore->state.users);
    }
}

static enum nd_err machine_apply(void *arg, struct nd_slice entry, uint64_t index,
                                 struct nd_errmsg *msg)
{
    struct nd_metastore *metastore = arg;
    struct nd_command command;
    enum nd_err err = nd_command_get(entry, &command, msg);
    if (err != ND_OK) {
        return err;
    }
    nd_outcome_release(&metastore->outcome);
    nd_state_apply(&metastore->state, &command, index, &metastore->outcome);
    nd_command_release(&command);
    metastore->outcome_sequence = command.proposer == metastore->proposer ? command.sequence : 0;
    metastore->view_dirty = true;
    if (atomic_load_explicit(&metastore->caught_up, memory_order_relaxed)) { /* set here only */
        outcome_publish(metastore);
    }
    return ND_OK;
}

static void machine_snapshot(void *arg, struct nd_buf *out)
{
    struct nd_metastore *metastore = arg;
    nd_snapshot_put(out, &metastore->state);
    nd_series_set(metastore->gauges.snapshot_bytes, (double)out->size);
}

static enum nd_err machine_restore(void *arg, struct nd_slice snapshot, struct nd_errmsg *msg)
{
    struct nd_metastore *metastore = arg;
    struct nd_state state;

    nd_state_init(&state);
    enum nd_err err = nd_snapshot_get(snapshot, &state, msg);
    if (err != ND_OK) {
        nd_state_release(&state);
        return err;
    }
    nd_state_release(&metastore->state);
    metastore->state = state;
    metastore->view_dirty = true;
    if (atomic_load_explicit(&metastore->caught_up, memory_order_relaxed)) { /* set here only */
        nd_metastore_publish(metastore, metastore->state.table);
        nd_metastore_publish_users(metastore, metastore->state.users);
        nd_metastore_publish_members(metastore, &metastore->state);
    }
    return ND_OK;
}

struct waiter {
    struct nd_list link;
    struct nd_inbox *inbox;
    struct nd_msg *msg;
};

/* The latch (C2): never unset. */
static void catch_up(struct nd_metastore *metastore)
{
    struct nd_list waiters = ND_LIST_INIT(waiters);

    nd_metastore_publish(metastore, metastore->state.table);
    nd_metastore_publish_users(metastore, metastore->state.users);
    nd_metastore_publish_members(metastore, &metastore->state);
    nd_mutex_lock(&metastore->lock);
    /* release: who sees the latch sees the table; under the lock: no waiter is missed */
    atomic_store_explicit(&metastore->caught_up, true, memory_order_release);
    nd_list_move(&waiters, &metastore->waiters);
    nd_mutex_unlock(&metastore->lock);
    nd_log(metastore->options.log, ND_LOG_INFO, "metastore", "caught up",
           "topics=%zu users=%zu applied_index=%" PRIu64,
           nd_topic_table_count(metastore->state.table),
           nd_user_table_count(metastore->state.users), metastore->state.applied_index);
    for (struct nd_list *link; (link = nd_list_pop(&waiters)) != NULL;) {
        struct waiter *waiter = ND_CONTAINER_OF(link, struct waiter, link);
        nd_inbox_push(waiter->inbox, waiter->msg);
        nd_free(waiter);
    }
}

void nd_metastore_when_caught_up(struct nd_metastore *metastore, struct nd_inbox *inbox,
                                 struct nd_msg *msg)
{
    struct waiter *waiter = nd_xcalloc(1, sizeof *waiter);

    *waiter = (struct waiter){.inbox = inbox, .msg = msg};
    nd_mutex_lock(&metastore->lock);
    bool now = nd_metastore_caught_up(metastore);
    if (!now) {
        nd_list_append(&metastore->waiters, &waiter->link);
    }
    nd_mutex_unlock(&metastore->lock);
    if (now) {
        nd_free(waiter);
        nd_inbox_push(inbox, msg);
    }
}

void nd_metastore_waiters_drop(struct nd_metastore *metastore)
{
    for (struct nd_list *link; (link = nd_list_pop(&metastore->waiters)) != NULL;) {
        nd_free(ND_CONTAINER_OF(link, struct waiter, link));
    }
}

static void machine_elected(void *arg)
{
    struct nd_metastore *metastore = arg;

    nd_log(metastore->options.log, ND_LOG_INFO, "metastore", "leader", "member=%016" PRIx64,
           metastore->identity.member);
    /* relaxed: a hint; a proposal finds out for itself */
    atomic_store_explicit(&metastore->leader, true, memory_order_relaxed);
    nd_metastore_register_self(metastore);
    if (!nd_metastore_caught_up(metastore)) {
        catch_up(metastore);
    }
    nd_metastore_gauges_set(metastore);
}

static void machine_deposed(void *arg)
{
    struct nd_metastore *metastore = arg;
    atomic_store_explicit(&metastore->leader, false, memory_order_relaxed); /* a hint */
}

static void machine_tick(void *arg)
{
    struct nd_metastore *metastore = arg;
    nd_metastore_view_tick(metastore);
    nd_metastore_gauges_set(metastore);
}

static void machine_room(void *arg, enum nd_raft_room what, const char *text)
{
    struct nd_metastore *metastore = arg;
    struct nd_log *log = metastore->options.log;

    switch (what) {
    case ND_ROOM_NONE:
        nd_log(log, ND_LOG_ERROR, "metastore", "metadata changes are refused", "err=\"%s\"", text);
        break;
    case ND_ROOM_AGAIN:
        nd_log(log, ND_LOG_INFO, "metastore", "metadata changes are taken again", "dir=%s", text);
        break;
    case ND_ROOM_BALLAST_GONE:
        nd_log(log, ND_LOG_WARN, "metastore", "ballast given back to a full disk", "path=%s", text);
        break;
    case ND_ROOM_BALLAST_MADE:
        nd_log(log, ND_LOG_INFO, "metastore", "ballast made", "path=%s", text);
        break;
    }
}

static void machine_fatal(void *arg, const char *text)
{
    struct nd_metastore *metastore = arg;
    nd_log(metastore->options.log, ND_LOG_ERROR, "metastore", "cannot go on", "err=\"%s\"", text);
    metastore->options.fatal(metastore->options.fatal_arg, text);
}

struct nd_raft_machine nd_metastore_machine(struct nd_metastore *metastore)
{
    return (struct nd_raft_machine){
        .arg = metastore,
        .apply = machine_apply,
        .snapshot = machine_snapshot,
        .restore = machine_restore,
        .elected = machine_elected,
        .deposed = machine_deposed,
        .tick = machine_tick,
        .room = machine_room,
        .fatal = machine_fatal,
    };
}
