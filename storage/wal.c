/* Staging and the step of the write-ahead log.
 *
 *   stage: [lock] sequences, stamp, append to `staged` [unlock]          any stager's thread
 *   step:  [lock] take all of `staged` [unlock]                          the WAL's thread
 *          frames: build in `frame`, one pwrite each
 *          one fdatasync                                                 W1
 *          [lock] what is synced, what room is left [unlock]
 *          units back to their inboxes, one push a stager
 *
 * STATES (W5)                    write or sync fails
 *      RUNNING ─────────────────────────────────────────────► FAILED
 *         ▲        generation + 1; group and staged units fail   │
 *         └──────────────────────────────────────────────────────┘
 *            every stager has adopted, and a fresh file with
 *            previous_end = the last synced sequence is durable */
#include "storage/base/alloc.h"

#include "storage/wal_entry.h"
#include "storage/wal_private.h"

enum {
    NS_PER_S = 1000000000,
    HELP_UNITS_MAX = 8, /* more are the stager's own work: the next group must not wait for it */
};

/* Rest before an empty frame (W2), and between attempts at a fresh file (W5). */
static const uint64_t rest_ns = NS_PER_S, retry_ns = NS_PER_S;

static uint64_t mono_ns(const struct nd_wal *wal)
{
    return wal->env->mono_ns(wal->env->impl);
}

static struct nd_wal_unit *unit_of(struct nd_list *link)
{
    struct nd_msg *msg = ND_CONTAINER_OF(link, struct nd_msg, link);

    return ND_CONTAINER_OF(msg, struct nd_wal_unit, msg);
}

/* Under the lock. True: the thread sleeps; nd_bell_wake() without the lock. */
static bool ring_locked(struct nd_wal *wal) ND_REQUIRES(wal->lock)
{
    bool sleeping = wal->sleeping;

    if (sleeping) {
        wal->sleeping = false;
        nd_bell_ring(&wal->bell);
    }
    return sleeping;
}

static void unlock_and_wake(struct nd_wal *wal, bool wake) ND_RELEASE(wal->lock)
{
    nd_mutex_unlock(&wal->lock);
    if (wake) {
        nd_bell_wake(&wal->bell);
    }
}

/* --- stagers --- */

void nd_wal_stager_add(struct nd_wal *wal, struct nd_wal_stager *stager)
{
    nd_list_init(&stager->failed.link);
    nd_list_init(&stager->returned);
    nd_list_init(&stager->returned_link);
    nd_mutex_lock(&wal->lock);
    stager->generation = wal->generation;
    stager->failed_posted = false;
    stager->needed_from = UINT64_MAX;
    nd_list_append(&wal->stagers, &stager->link);
    nd_mutex_unlock(&wal->lock);
}

void nd_wal_stager_remove(struct nd_wal *wal, struct nd_wal_stager *stager)
{
    nd_mutex_lock(&wal->lock);
    wal->left_needed_from = ND_MIN(wal->left_needed_from, stager->needed_from);
    nd_list_remove(&stager->link);
    unlock_and_wake(wal, ring_locked(wal)); /* perhaps the last one that had not adopted */
}

void nd_wal_stager_needs(struct nd_wal *wal, struct nd_wal_stager *stager, uint64_t sequence)
{
    nd_mutex_lock(&wal->lock);
    stager->needed_from = sequence;
    nd_wal_judge_space_locked(wal);
    nd_mutex_unlock(&wal->lock);
}

void nd_wal_stager_adopt(struct nd_wal *wal, struct nd_wal_stager *stager)
{
    nd_mutex_lock(&wal->lock);
    stager->generation = wal->generation;
    stager->failed_posted = false;
    unlock_and_wake(wal, ring_locked(wal));
}

size_t nd_wal_unit_bytes_max(const struct nd_wal *wal)
{
    return wal->unit_bytes_max; /* final since the open */
}

uint64_t nd_wal_needed_from_locked(const struct nd_wal *wal)
{
    uint64_t lowest = wal->left_needed_from;

    ND_LIST_FOREACH (&wal->stagers, link) {
        const struct nd_wal_stager *stager = ND_CONTAINER_OF(link, struct nd_wal_stager, link);
        lowest = ND_MIN(lowest, stager->needed_from);
    }
    return lowest;
}

static enum nd_err stage_locked(struct nd_wal *wal, struct nd_wal_stager *stager,
                                struct nd_wal_unit *unit) ND_REQUIRES(wal->lock)
{
    if (wal->failed || stager->generation != wal->generation) {
        return ND_ERR_UNAVAILABLE;
    }
    if (unit->class == ND_WAL_PRODUCE && wal->disk_full) {
        return ND_ERR_NO_SPACE;
    }
    if (wal->staged_bytes + unit->bytes > wal->options.staged_bytes_max) {
        return ND_ERR_OVERLOADED;
    }
    unit->stager = stager;
    unit->generation = wal->generation;
    unit->sequence = wal->sequence_next;
    unit->sequence_last = unit->sequence + unit->sequences - 1;
    wal->sequence_next += unit->sequences;
    wal->staged_bytes += unit->bytes;
    struct nd_wal_stamp stamp = {.member = wal->options.member, .writer = wal->writer};
    if (unit->checkpoint != 0) {
        stamp.needed_from = nd_wal_needed_from_locked(wal);
    } else if (stager->needed_from == UINT64_MAX) {
        stager->needed_from = unit->sequence;
    }
    nd_wal_unit_stamp(unit, &stamp);
    nd_list_append(&wal->staged, &unit->msg.link);
    return ND_OK;
}

enum nd_err nd_wal_stage(struct nd_wal *wal, struct nd_wal_stager *stager, struct nd_wal_unit *unit)
{
    ND_ASSERT(unit->parts_count > 0 && unit->msg.run != NULL);
    if (nd_buf_failed(&unit->heads) || unit->bytes > wal->unit_bytes_max) {
        return ND_ERR_TOO_LARGE;
    }
    nd_mutex_lock(&wal->lock);
    enum nd_err err = stage_locked(wal, stager, unit);
    unlock_and_wake(wal, err == ND_OK && ring_locked(wal));
    return err;
}

/* --- returning units --- */

/* Give the units back in order, one push a stager. They may be gone when this returns. `help`: the
 * log has nothing else to do and may see to them itself. */
static void units_return(struct nd_list *units, enum nd_err result, bool help)
{
    struct nd_list touched = ND_LIST_INIT(touched);
    uint32_t count = 0;

    for (struct nd_list *link; (link = nd_list_pop(units)) != NULL;) {
        struct nd_wal_unit *unit = unit_of(link);
        struct nd_wal_stager *stager = unit->stager;
        unit->result = result;
        if (nd_list_empty(&stager->returned)) {
            nd_list_append(&touched, &stager->returned_link);
        }
        nd_list_append(&stager->returned, link);
        count += 1;
    }
    for (struct nd_list *link; (link = nd_list_pop(&touched)) != NULL;) {
        struct nd_wal_stager *stager = ND_CONTAINER_OF(link, struct nd_wal_stager, returned_link);
        struct nd_list returned = ND_LIST_INIT(returned);
        nd_list_move(&returned, &stager->returned);
        if (help && count <= HELP_UNITS_MAX && nd_list_empty(&touched)) {
            nd_inbox_push_help(stager->inbox, &returned);
        } else {
            nd_inbox_push_all(stager->inbox, &returned);
        }
    }
}

/* --- frames --- */

struct frame_plan {
    uint32_t units;
    uint32_t sequences;
    size_t bytes;
};

/* As many of the first units as one frame and the rest of the file hold. The last block of a file
 * is kept for an empty frame. */
static struct frame_plan frame_plan(const struct nd_wal *wal, const struct nd_list *group)
{
    uint64_t used = wal->active.at + ND_WAL_BLOCK;
    uint64_t room = used < wal->options.file_bytes ? wal->options.file_bytes - used : 0;
    size_t frame_max = (size_t)ND_MIN(room, (uint64_t)wal->options.frame_bytes_max);
    size_t bytes_max =
        frame_max > ND_WAL_FRAME_HEADER_SIZE ? frame_max - ND_WAL_FRAME_HEADER_SIZE : 0;
    struct frame_plan plan = {0};

    ND_LIST_FOREACH (group, link) {
        const struct nd_wal_unit *unit = unit_of(link);
        if (plan.bytes + unit->bytes > bytes_max) {
            break;
        }
        plan.units += 1;
        plan.sequences += unit->sequences;
        plan.bytes += unit->bytes;
    }
    return plan;
}

static enum nd_err frame_pwrite(struct nd_wal *wal, size_t size, struct nd_errmsg *msg)
{
    enum nd_err err =
        wal->env->pwrite(wal->env->impl, wal->active.file, wal->frame, size, wal->active.at, msg);

    if (err == ND_OK) {
        wal->active.at += size;
        nd_series_add(wal->metric_bytes, size);
    }
    return err;
}

static void unit_put(struct nd_wal_frame_writer *writer, const struct nd_wal_unit *unit)
{
    for (uint32_t i = 0; i < unit->parts_count; i++) {
        const struct nd_wal_part *part = &unit->parts[i];
        nd_wal_frame_add(writer, nd_slice_make(unit->heads.data + part->head_at, part->head_size));
        nd_wal_frame_add(writer, part->body);
    }
}

/* Write the planned units as one frame and move them from `group` to `written`. */
static enum nd_err frame_write(struct nd_wal *wal, struct nd_list *group, struct frame_plan plan,
                               struct nd_list *written, struct nd_errmsg *msg)
{
    struct nd_wal_active *active = &wal->active;
    struct nd_wal_frame_writer writer;
    struct nd_wal_frame frame = {.epoch = active->epoch,
                                 .at = active->at,
                                 .first_sequence = active->next_sequence,
                                 .synced_to = active->synced_to,
                                 .body_size = (uint32_t)plan.bytes,
                                 .sequences = plan.sequences};

    ND_ASSERT(unit_of(group->next)->sequence == active->next_sequence);
    nd_wal_frame_begin(&writer, wal->frame, &frame);
    for (uint32_t i = 0; i < plan.units; i++) {
        struct nd_list *link = nd_list_pop(group);
        unit_put(&writer, unit_of(link));
        nd_list_append(written, link);
    }
    active->next_sequence += plan.sequences;
    active->rested = false;
    return frame_pwrite(wal, nd_wal_frame_end(&writer), msg);
}

/* --- groups --- */

/* What a sync that returned changes: state under the lock, then the units go home. `last`: no more
 * of the group is to be written. */
static void group_settle(struct nd_wal *wal, struct nd_list *written, bool last)
{
    uint64_t checkpoint = 0, sequence = 0;
    size_t bytes = 0;

    ND_LIST_FOREACH (written, link) {
        const struct nd_wal_unit *unit = unit_of(link);
        bytes += unit->bytes;
        sequence = unit->sequence_last;
        checkpoint = ND_MAX(checkpoint, unit->checkpoint);
    }
    wal->group_ns = mono_ns(wal);
    nd_mutex_lock(&wal->lock);
    wal->staged_bytes -= bytes;
    wal->sequence_synced = sequence;
    wal->replay_from = ND_MAX(wal->replay_from, checkpoint);
    wal->entries_ns = wal->group_ns;
    wal->groups += 1;
    struct nd_wal_file *file = ND_CONTAINER_OF(wal->files.prev, struct nd_wal_file, link);
    wal->bytes_written += wal->active.at - file->used;
    file->used = wal->active.at;
    nd_wal_judge_space_locked(wal);
    bool idle = last && nd_list_empty(&wal->staged);
    nd_mutex_unlock(&wal->lock);
    nd_series_add(wal->metric_groups, 1);
    units_return(written, ND_OK, idle);
}

static enum nd_err active_sync(struct nd_wal *wal, struct nd_errmsg *msg)
{
    uint64_t began_ns = mono_ns(wal);
    enum nd_err err = wal->env->sync(wal->env->impl, wal->active.file, msg);

    if (err == ND_OK) {
        wal->active.synced_to = wal->active.at;
        nd_series_add(wal->metric_syncs, 1);
        nd_series_observe(wal->metric_sync_seconds, (double)(mono_ns(wal) - began_ns) / NS_PER_S);
    }
    nd_mutex_lock(&wal->lock);
    wal->syncs += 1;
    nd_mutex_unlock(&wal->lock);
    return err;
}

static enum nd_err group_sync(struct nd_wal *wal, struct nd_list *written, bool last,
                              struct nd_errmsg *msg)
{
    if (nd_list_empty(written)) {
        return ND_OK;
    }
    enum nd_err err = active_sync(wal, msg);
    if (err == ND_OK) {
        group_settle(wal, written, last);
    }
    return err;
}

/* Write and sync all of `group`; what is left in either list when this fails has no known outcome.
 */
static enum nd_err group_write(struct nd_wal *wal, struct nd_list *group, struct nd_list *written,
                               struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;

    while (err == ND_OK && !nd_list_empty(group)) {
        struct frame_plan plan = frame_plan(wal, group);
        if (plan.units > 0) {
            err = frame_write(wal, group, plan, written, msg);
            continue;
        }
        err = group_sync(wal, written, false, msg); /* before the next header may name it (W3) */
        if (err == ND_OK) {
            err = nd_wal_start_file(wal, unit_of(group->next)->sequence, msg);
        }
    }
    return err != ND_OK ? err : group_sync(wal, written, true, msg);
}

enum nd_err nd_wal_write_rest(struct nd_wal *wal, struct nd_errmsg *msg)
{
    struct nd_wal_active *active = &wal->active;
    struct nd_wal_frame_writer writer;
    struct nd_wal_frame frame = {.epoch = active->epoch,
                                 .at = active->at,
                                 .first_sequence = active->next_sequence,
                                 .synced_to = active->synced_to};

    if (active->rested || active->at + ND_WAL_BLOCK > wal->options.file_bytes) {
        return ND_OK;
    }
    nd_wal_frame_begin(&writer, wal->frame, &frame);
    enum nd_err err = frame_pwrite(wal, nd_wal_frame_end(&writer), msg);
    if (err == ND_OK) {
        err = active_sync(wal, msg);
    }
    active->rested = true;
    return err;
}

/* --- failure and resumption (W5) --- */

/* Raise the generation, fail `units` and everything staged, then tell every stager. */
static void wal_fail(struct nd_wal *wal, struct nd_list *units, const struct nd_errmsg *msg)
{
    nd_mutex_lock(&wal->lock);
    wal->failed = true;
    wal->generation += 1;
    nd_list_move(units, &wal->staged);
    wal->staged_bytes = 0;
    wal->sequence_next += 1; /* the fresh file never has the name of the failed one */
    nd_mutex_unlock(&wal->lock);
    if (wal->active.open) {
        wal->env->close(wal->env->impl, wal->active.file);
        wal->active.open = false;
    }
    wal->retry_ns = 0;
    nd_log(wal->options.log, ND_LOG_ERROR, "wal", "write-ahead log failed", "reason=\"%s\"",
           msg->text);
    nd_series_add(wal->metric_failures, 1);
    nd_series_set(wal->metric_failed, 1);
    units_return(units, ND_ERR_UNKNOWN_OUTCOME, false);
    nd_mutex_lock(&wal->lock);
    ND_LIST_FOREACH (&wal->stagers, link) {
        struct nd_wal_stager *stager = ND_CONTAINER_OF(link, struct nd_wal_stager, link);
        if (stager->generation != wal->generation && !stager->failed_posted) {
            stager->failed_posted = true;
            nd_inbox_push(stager->inbox, &stager->failed);
        }
    }
    nd_mutex_unlock(&wal->lock);
}

static bool all_adopted_locked(const struct nd_wal *wal) ND_REQUIRES(wal->lock)
{
    ND_LIST_FOREACH (&wal->stagers, link) {
        if (ND_CONTAINER_OF(link, struct nd_wal_stager, link)->generation != wal->generation) {
            return false;
        }
    }
    return true;
}

static bool wal_resume(struct nd_wal *wal)
{
    struct nd_errmsg msg = {{0}};

    nd_mutex_lock(&wal->lock);
    bool ready = all_adopted_locked(wal);
    uint64_t first = wal->sequence_next;
    nd_mutex_unlock(&wal->lock);
    if (!ready || mono_ns(wal) < wal->retry_ns) {
        return false;
    }
    enum nd_err err = nd_wal_start_file(wal, first, &msg);
    if (err != ND_OK) {
        wal->retry_ns = mono_ns(wal) + retry_ns;
        nd_log_lasting(wal->options.log, ND_LOG_WARN, "wal", "no fresh file yet", "reason=\"%s\"",
                       msg.text);
        return true;
    }
    nd_mutex_lock(&wal->lock);
    wal->failed = false;
    nd_mutex_unlock(&wal->lock);
    nd_series_set(wal->metric_failed, 0);
    nd_log(wal->options.log, ND_LOG_INFO, "wal", "write-ahead log goes on", "sequence=%llu",
           (unsigned long long)first);
    return true;
}

/* --- driving --- */

static bool wal_rest(struct nd_wal *wal)
{
    struct nd_list none = ND_LIST_INIT(none);
    struct nd_errmsg msg = {{0}};

    if (wal->active.rested || mono_ns(wal) < wal->group_ns + rest_ns) {
        return false;
    }
    if (nd_wal_write_rest(wal, &msg) != ND_OK) {
        wal_fail(wal, &none, &msg);
    }
    wal->active.rested = true;
    return true;
}

bool nd_wal_step(struct nd_wal *wal)
{
    struct nd_list group = ND_LIST_INIT(group), written = ND_LIST_INIT(written);
    struct nd_errmsg msg = {{0}};

    nd_mutex_lock(&wal->lock);
    bool failed = wal->failed;
    nd_list_move(&group, &wal->staged);
    nd_mutex_unlock(&wal->lock);
    if (failed) {
        ND_ASSERT(nd_list_empty(&group));
        return wal_resume(wal);
    }
    if (nd_list_empty(&group)) {
        return wal_rest(wal);
    }
    if (group_write(wal, &group, &written, &msg) != ND_OK) {
        nd_list_move(&written, &group);
        wal_fail(wal, &written, &msg);
    }
    return true;
}

/* Sleep until something is staged, or the next rest or retry is due. False: stop. */
static bool thread_wait(struct nd_wal *wal)
{
    nd_mutex_lock(&wal->lock);
    while (nd_list_empty(&wal->staged) && !wal->stopping) {
        uint64_t due = UINT64_MAX;
        if (wal->failed) {
            due = all_adopted_locked(wal) ? wal->retry_ns : UINT64_MAX;
        } else if (!wal->active.rested) {
            due = wal->group_ns + rest_ns;
        }
        if (due != UINT64_MAX && due <= mono_ns(wal)) {
            break;
        }
        wal->sleeping = true;
        uint32_t seen = nd_bell_count(&wal->bell);
        nd_mutex_unlock(&wal->lock);
        (void)nd_bell_wait_until(&wal->bell, seen, due); /* the loop looks at the time */
        nd_mutex_lock(&wal->lock);
    }
    wal->sleeping = false;
    bool go_on = !wal->stopping || !nd_list_empty(&wal->staged);
    nd_mutex_unlock(&wal->lock);
    return go_on;
}

static void thread_run(void *arg)
{
    struct nd_wal *wal = arg;

    do {
        while (nd_wal_step(wal)) {
        }
    } while (thread_wait(wal));
}

bool nd_wal_thread_start(struct nd_wal *wal)
{
    return nd_thread_start(&wal->thread, "wal", thread_run, wal);
}

void nd_wal_thread_stop(struct nd_wal *wal)
{
    nd_mutex_lock(&wal->lock);
    wal->stopping = true;
    unlock_and_wake(wal, ring_locked(wal));
    nd_thread_join(&wal->thread);
    nd_mutex_lock(&wal->lock);
    wal->stopping = false;
    nd_mutex_unlock(&wal->lock);
}

void nd_wal_close(struct nd_wal *wal)
{
    struct nd_errmsg msg = {{0}};

    nd_wal_thread_stop(wal);
    while (wal->active.open && nd_wal_step(wal)) {
    }
    if (wal->active.open) {
        if (nd_wal_write_rest(wal, &msg) != ND_OK) {
            nd_log(wal->options.log, ND_LOG_WARN, "wal", "last frame not written", "reason=\"%s\"",
                   msg.text);
        }
        wal->env->close(wal->env->impl, wal->active.file);
    }
    nd_wal_free(wal);
}
