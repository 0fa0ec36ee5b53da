#include "server/broker/sweep.h"

#include "storage/base/alloc.h"

#include "cluster/topic.h"
#include "server/broker/topic_state.h"
#include "server/broker/worker.h"

enum { TOPICS_A_JOB = 64, INCARNATION_DIGITS = 16 };

static const uint64_t first_ns = 5000000000, every_ns = 3600000000000;

struct found {
    uint32_t topic; /* index of its name */
    bool is_empty;  /* no incarnation, but that nothing is in the topic's directory */
    uint64_t incarnation;
};

struct sweep {
    struct nd_worker_job job;
    struct nd_shard *shard;
    char **topics; /* names of directories */
    uint32_t topics_count, next;
    bool listed; /* the names are there */
    bool seen;   /* something is in the directory that is being listed */
    struct found *found;
    uint32_t found_count;
};

static void sweep_free(struct sweep *sweep)
{
    for (uint32_t i = 0; i < sweep->topics_count; i++) {
        nd_free(sweep->topics[i]);
    }
    nd_free(sweep->topics);
    nd_free(sweep->found);
    nd_free(sweep);
}

/* --- on a worker --- */

static bool topic_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct sweep *sweep = arg;
    struct nd_errmsg msg;

    (void)kind;
    if (nd_topic_name_check(nd_slice_str(name), &msg) == ND_OK &&
        nd_broker_shard_of_name(sweep->shard->broker, name) == sweep->shard) {
        sweep->topics =
            nd_xrealloc(sweep->topics, (sweep->topics_count + 1) * sizeof *sweep->topics);
        sweep->topics[sweep->topics_count++] = nd_xstrdup(name);
    }
    return true;
}

static void found_add(struct sweep *sweep, const struct found *found)
{
    sweep->found = nd_xrealloc(sweep->found, (sweep->found_count + 1) * sizeof *sweep->found);
    sweep->found[sweep->found_count++] = *found;
}

static bool incarnation_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct sweep *sweep = arg;
    uint64_t incarnation = 0;
    size_t i = 0;

    (void)kind;
    sweep->seen = true;
    for (; name[i] != '\0' && strchr("0123456789abcdef", name[i]) != NULL; i++) {
        uint64_t digit = (uint64_t)(name[i] <= '9' ? name[i] - '0' : name[i] - 'a' + 10);
        incarnation = incarnation << 4 | digit;
    }
    if (i == INCARNATION_DIGITS && name[i] == '\0') {
        found_add(sweep, &(struct found){.topic = sweep->next, .incarnation = incarnation});
    }
    return true;
}

static void topic_list(struct sweep *sweep)
{
    const struct nd_broker_options *options = &sweep->shard->broker->options;
    struct nd_errmsg msg = {{0}};
    char *dir = nd_xasprintf("%s/topics/%s", options->data_dir, sweep->topics[sweep->next]);

    sweep->seen = false;
    enum nd_err err = options->env->list(options->env->impl, dir, incarnation_seen, sweep, &msg);
    if (err == ND_OK && !sweep->seen) {
        found_add(sweep, &(struct found){.topic = sweep->next, .is_empty = true});
    }
    nd_free(dir);
}

/* What cannot be listed is looked at the next time. */
static void work(struct nd_worker_job *base)
{
    struct sweep *sweep = ND_CONTAINER_OF(base, struct sweep, job);
    const struct nd_broker_options *options = &sweep->shard->broker->options;
    struct nd_errmsg msg = {{0}};
    char *dir;

    if (!sweep->listed) {
        dir = nd_xasprintf("%s/topics", options->data_dir);
        (void)options->env->list(options->env->impl, dir, topic_seen, sweep, &msg);
        nd_free(dir);
        sweep->listed = true;
    }
    uint32_t end = ND_MIN(sweep->topics_count, sweep->next + TOPICS_A_JOB);
    for (; sweep->next < end; sweep->next++) {
        topic_list(sweep);
    }
}

/* --- on the shard --- */

static void submit(struct sweep *sweep)
{
    sweep->shard->jobs += 1;
    nd_workers_submit(sweep->shard->broker->workers, &sweep->job);
}

/* Ended ones do not count: they remove their directory themselves. */
static bool is_known(struct nd_shard *shard, uint64_t incarnation)
{
    if (nd_map_get_u64(shard->topics, incarnation) != NULL) {
        return true;
    }
    ND_LIST_FOREACH (&shard->ending, link) {
        if (ND_CONTAINER_OF(link, struct nd_topic_state, ending)->incarnation == incarnation) {
            return true;
        }
    }
    return false;
}

static void found_take(struct sweep *sweep, const struct found *found)
{
    struct nd_shard *shard = sweep->shard;
    const char *name = sweep->topics[found->topic];

    if (found->is_empty) { /* a delete was cut off behind its last incarnation */
        char *dir = nd_xasprintf("%s/topics/%s", shard->broker->options.data_dir, name);
        nd_flusher_remove_empty(shard->broker->options.flusher, dir);
        nd_free(dir);
    } else if (!is_known(shard, found->incarnation)) {
        (void)nd_topic_state_new(shard, name, found->incarnation);
        shard->ask_ns = 0;
    }
}

static void reply(struct nd_msg *msg, void *owner)
{
    struct sweep *sweep = ND_CONTAINER_OF(msg, struct sweep, job.reply);
    struct nd_shard *shard = owner;
    bool stopping = nd_shard_stopping(shard);

    shard->jobs -= 1;
    for (uint32_t i = 0; i < sweep->found_count && !stopping; i++) {
        found_take(sweep, &sweep->found[i]);
    }
    sweep->found_count = 0;
    if (!stopping && sweep->next < sweep->topics_count) {
        submit(sweep);
        return;
    }
    shard->sweeping = false;
    sweep_free(sweep);
}

uint64_t nd_sweep_due_ns(const struct nd_shard *shard)
{
    return shard->sweeping || shard->broker->confirm_gone == NULL ? UINT64_MAX : shard->sweep_ns;
}

void nd_sweep_step(struct nd_shard *shard)
{
    if (shard->now_ns < nd_sweep_due_ns(shard)) {
        return;
    }
    bool first = shard->sweep_ns == 0;
    shard->sweep_ns = shard->now_ns + (first ? first_ns : every_ns);
    if (!first) {
        struct sweep *sweep = nd_xcalloc(1, sizeof *sweep);
        sweep->shard = shard;
        sweep->job.work = work;
        sweep->job.reply.run = reply;
        sweep->job.reply_to = &shard->inbox;
        shard->sweeping = true;
        submit(sweep);
    }
}
