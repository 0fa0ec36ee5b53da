/* The view file, written behind the changes by a worker, and the gauges. */
#include "cluster/metastore_impl.h"
#include "cluster/snapshot.h"
#include "cluster/view.h"

#define VIEW_INTERVAL_NS ((uint64_t)500 * 1000 * 1000) /* with the tick of 250 ms: within 1 s */
#define VIEW_RETRY_NS    ((uint64_t)5 * 1000 * 1000 * 1000) /* after a failed write */

static void view_write(struct nd_metastore *metastore)
{
    struct nd_errmsg msg = {""};
    enum nd_err err = ND_ERR_NO_MEMORY;

    if (!nd_buf_failed(&metastore->view_bytes)) {
        err = nd_view_store(metastore->options.env, metastore->view_path,
                            nd_buf_slice(&metastore->view_bytes), &msg);
    }
    if (err != ND_OK) {
        nd_series_add(metastore->gauges.view_failures, 1);
    }
    if (err != ND_OK && !metastore->view_failing) { /* one line for a full disk, not one a second */
        nd_log(metastore->options.log, ND_LOG_WARN, "metastore", "view not written", "err=\"%s\"",
               msg.text);
    }
    nd_buf_release(&metastore->view_bytes);
    metastore->view_bytes.failed = err != ND_OK; /* read back by view_written() */
}

static void view_work(void *arg)
{
    view_write(arg);
}

static void view_written(void *arg)
{
    struct nd_metastore *metastore = arg;
    metastore->view_busy = false;
    metastore->view_failing = metastore->view_bytes.failed;
    if (metastore->view_failing) {
        metastore->view_dirty = true;
    }
}

static void view_encode(struct nd_metastore *metastore)
{
    nd_buf_init(&metastore->view_bytes, ND_SNAPSHOT_SIZE_MAX);
    nd_snapshot_put(&metastore->view_bytes, &metastore->state);
    metastore->view_dirty = false;
}

/* Before the catch-up the state is older than the view on the disk. */
static bool view_is_due(const struct nd_metastore *metastore)
{
    return metastore->view_dirty && !metastore->view_busy && nd_metastore_caught_up(metastore);
}

void nd_metastore_view_tick(struct nd_metastore *metastore)
{
    const struct nd_env *env = metastore->options.env;
    uint64_t now_ns = env->mono_ns(env->impl);
    uint64_t pause_ns = metastore->view_failing ? VIEW_RETRY_NS : VIEW_INTERVAL_NS;

    if (!view_is_due(metastore) || now_ns - metastore->view_at_ns < pause_ns) {
        return;
    }
    metastore->view_at_ns = now_ns;
    metastore->view_busy = true;
    view_encode(metastore);
    nd_raft_node_work(metastore->node, view_work, view_written, metastore);
}

void nd_metastore_view_finish(struct nd_metastore *metastore)
{
    if (view_is_due(metastore)) {
        view_encode(metastore);
        view_write(metastore);
    }
}

void nd_metastore_gauges_init(struct nd_metastore *metastore)
{
    struct nd_metrics *m = metastore->options.metrics;
    struct nd_metastore_gauges *g = &metastore->gauges;

    g->leader = nd_metrics_gauge(m, "raft_is_leader", "", "1 while this node leads the metadata");
    g->has_leader = nd_metrics_gauge(m, "raft_has_leader", "", "1 while a leader is known");
    g->term = nd_metrics_gauge(m, "raft_term", "", "Raft term");
    g->last_index = nd_metrics_gauge(m, "raft_last_log_index", "", "Last index of the Raft log");
    g->commit_index = nd_metrics_gauge(m, "raft_commit_index", "", "Raft commit index");
    g->applied_index = nd_metrics_gauge(m, "raft_applied_index", "", "Raft applied index");
    g->voters = nd_metrics_gauge(m, "raft_voters", "", "Voting members");
    g->others = nd_metrics_gauge(m, "raft_nonvoters", "", "Members without a vote");
    g->topics = nd_metrics_gauge(m, "metastore_topics", "", "Topics known");
    g->users = nd_metrics_gauge(m, "metastore_users", "", "Users known");
    g->caught_up =
        nd_metrics_gauge(m, "metastore_caught_up", "", "1 once the replica has caught up");
    g->snapshot_failures = nd_metrics_counter(m, "metastore_snapshot_failures_total", "",
                                              "Raft snapshots that could not be stored");
    g->view_failures = nd_metrics_counter(m, "metastore_view_failures_total", "",
                                          "Writes of the view file that failed");
    g->starved = nd_metrics_gauge(m, "metastore_disk_full", "",
                                  "1 while metadata changes are refused for want of room");
    g->ballast = nd_metrics_gauge(m, "metastore_ballast_present", "",
                                  "1 while the ballast file holds room for the metadata log");
    g->snapshot_bytes =
        nd_metrics_gauge(m, "metastore_snapshot_bytes", "", "Size of the last snapshot");
}

static void snapshot_failures_count(struct nd_metastore *metastore, uint64_t so_far)
{
    nd_series_add(metastore->gauges.snapshot_failures, so_far - metastore->snapshot_failures);
    metastore->snapshot_failures = so_far;
}

void nd_metastore_gauges_set(struct nd_metastore *metastore)
{
    const struct nd_raft_stats stats = nd_raft_node_stats(metastore->node);
    const struct nd_metastore_gauges *g = &metastore->gauges;

    nd_series_set(g->leader, stats.leader ? 1 : 0);
    nd_series_set(g->has_leader, stats.has_leader ? 1 : 0);
    nd_series_set(g->term, (double)stats.term);
    nd_series_set(g->last_index, (double)stats.last_index);
    nd_series_set(g->commit_index, (double)stats.commit_index);
    nd_series_set(g->applied_index, (double)stats.applied_index);
    nd_series_set(g->voters, stats.voters);
    nd_series_set(g->others, stats.others);
    nd_series_set(g->topics, (double)nd_topic_table_count(metastore->state.table));
    nd_series_set(g->users, (double)nd_user_table_count(metastore->state.users));
    nd_series_set(g->caught_up, nd_metastore_caught_up(metastore) ? 1 : 0);
    snapshot_failures_count(metastore, stats.snapshot_failures);
    nd_series_set(g->starved, stats.starved ? 1 : 0);
    nd_series_set(g->ballast, stats.ballast ? 1 : 0);
}
