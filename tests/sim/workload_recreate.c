#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "server/broker/topic_state.h"
#include "tests/sim/workload_private.h"

enum {
    RECREATE_PARTITIONS_MAX = 3,
    REMOVED_MS = 90000, /* enough to look for what was left behind, ask, and remove it gently */
};

static const char *const names[] = {"churn", "flux"};
/* Of this name there never is a next one for long: its directory must go as well. */
static const char once[] = "once";

void workload_make_recreating(struct workload *workload)
{
    struct node_options *options = &workload->node.options;

    workload->recreating = true;
    workload->flux = node_topic(&workload->node, names[1], 2);
    /* Some are closed when they go. */
    options->look_ms = 300;
    options->idle_eviction_ms = 700;
}

bool workload_recreates(const struct workload *workload)
{
    const struct workload_recreated *r = &workload->recreated;

    return r->deleted > 15 && r->under_way > 4 && r->tails > 2 && r->flushes > 1 &&
           r->stopped > 2 && r->twice > 1 && r->late > 4;
}

const char *workload_recreates_text(const struct workload *workload)
{
    static char text[160];
    const struct workload_recreated *r = &workload->recreated;

    snprintf(
        text, sizeof text,
        "%u topics; requests under way %u, tails %u, flushes %u, stopped %u, twice %u, late %u",
        r->deleted, r->under_way, r->tails, r->flushes, r->stopped, r->twice, r->late);
    return text;
}

/* What the broker has of the topic that goes. */
static void count(struct workload *workload, uint32_t topic)
{
    struct workload_recreated *r = &workload->recreated;
    const struct nd_topic_state *state = NULL;

    r->deleted += 1;
    for (uint32_t i = 0; i < workload->requests_count; i++) {
        const struct request *request = &workload->requests[i];
        r->under_way +=
            request->produce != NULL && workload->ledger.messages[request->first_id].topic == topic;
    }
    if (workload->node.broker != NULL) {
        state = nd_map_get_u64(workload->node.broker->shards[0].topics,
                               workload->node.topics[topic]->incarnation);
    }
    for (uint32_t i = 0; state != NULL && i < state->partitions_count; i++) {
        const struct nd_partition *partition = state->partitions[i];
        r->tails += partition != NULL && partition->tail.bytes_unflushed > 0;
        r->flushes += partition != NULL && partition->flush != NULL;
    }
}

/* Enough for a flush, which begins; now and then it is written too, and the shard has not heard. */
static void begin_flush(struct workload *workload, uint32_t topic)
{
    struct node *node = &workload->node;
    uint64_t next_ns;

    for (uint32_t i = 0; i < 3; i++) {
        workload_produce(workload, topic);
    }
    (void)nd_broker_step(node->broker, 0, &next_ns);
    (void)nd_wal_step(node->wal);
    (void)nd_broker_step(node->broker, 0, &next_ns);
    if (draw(workload, 3) > 0) {
        (void)nd_flusher_step(node->flusher);
    }
}

/* How far the node is with what was sent before. */
static void prepare(struct workload *workload, uint32_t topic)
{
    switch (draw(workload, 6)) {
    case 0: workload_run_partly(workload); break;
    case 1: /* all is synced, and not all is flushed */
        workload_produce(workload, topic);
        workload_step(workload);
        break;
    case 2: workload_produce(workload, topic); break; /* not even looked at */
    case 3:
        workload_latch(workload);
        workload_step(workload);
        begin_flush(workload, topic);
        break;
    case 4: begin_flush(workload, topic); break;
    default: break;
    }
    workload_answers_take(workload);
}

static void topic_delete(struct workload *workload, uint32_t topic)
{
    struct workload_ended *last = &workload->last;
    struct nd_topic *record = nd_topic_ref(workload->node.topics[topic]);

    nd_topic_unref(last->record);
    *last = (struct workload_ended){.record = record, .topic = topic};
    for (uint32_t i = 0; i < workload->held_count && last->held_count < BATCH_MAX; i++) {
        if (workload->held[i].topic == topic) {
            last->held[last->held_count++] = workload->held[i].delivery;
        }
    }
    count(workload, topic);
    workload_forget(workload, topic);
    node_topic_delete(&workload->node, topic);
}

/* Requests that know the topic as it was, and handles of it for the one that has its name now. */
static void come_late(struct workload *workload, uint32_t now)
{
    struct node *node = &workload->node;
    struct workload_ended *last = &workload->last;

    if (node->broker == NULL || over(workload)) {
        return;
    }
    node->topics[last->topic] = last->record;
    switch (draw(workload, 4)) {
    case 0:
        workload_produce(workload, last->topic);
        workload->requests[workload->requests_count - 1].late = true;
        workload_forget(workload, last->topic);
        break;
    case 1: {
        struct request *request = workload_request_new(workload);
        request->topic = last->topic;
        request->poll = node_poll_start(node, last->topic, ND_PARTITION_ANY, 5, 0);
        request->late = true;
        break;
    }
    default:
        if (last->held_count == 0) {
            node->topics[last->topic] = NULL;
            return;
        }
        struct request *request = workload_request_new(workload);
        uint32_t to = node->topics[now] != NULL && draw(workload, 2) == 0 ? now : last->topic;
        request->action = ND_SETTLE_ACK;
        request->settle =
            node_settle_start(node, to, last->held, last->held_count, request->action);
        request->late = true;
        break;
    }
    node->topics[last->topic] = NULL;
    workload->recreated.late += 1;
}

static uint32_t make(struct workload *workload, const char *name)
{
    return node_topic(&workload->node, name, 1 + (uint32_t)draw(workload, RECREATE_PARTITIONS_MAX));
}

static void live_briefly(struct workload *workload, const char *name)
{
    uint32_t topic = make(workload, name);

    workload_produce(workload, topic);
    switch (draw(workload, 3)) {
    case 0: break;
    case 1: workload_run_partly(workload); break;
    default: /* it has files */
        workload_step(workload);
        begin_flush(workload, topic);
        break;
    }
    topic_delete(workload, topic);
}

/* What happens between the end of one topic and the next of its name. */
static void between(struct workload *workload, uint32_t *topic, const char *name)
{
    switch (draw(workload, 5)) {
    case 0: break; /* at once */
    case 1: workload_run_partly(workload); break;
    case 2: workload_step(workload); break;
    case 3: /* the start finds another topic than the stop left */
        workload_stop(workload);
        *topic = make(workload, name);
        workload_start(workload);
        workload->recreated.stopped += 1;
        return;
    default: /* one that lives for a single produce */
        live_briefly(workload, draw(workload, 2) == 0 ? name : once);
        workload->recreated.twice += 1;
        break;
    }
    *topic = make(workload, name);
}

void workload_recreate(struct workload *workload)
{
    uint64_t which = draw(workload, 2);
    uint32_t *topic = which == 0 ? &workload->churn : &workload->flux;

    if (workload->node.topics_count + 2 > NODE_TOPICS_MAX) {
        return;
    }
    prepare(workload, *topic);
    if (over(workload)) {
        return;
    }
    if (draw(workload, 6) == 0) { /* deleted while the node is down */
        workload_stop(workload);
        topic_delete(workload, *topic);
        *topic = make(workload, names[which]);
        workload_start(workload);
        workload->recreated.stopped += 1;
        return;
    }
    topic_delete(workload, *topic);
    between(workload, topic, names[which]);
    come_late(workload, *topic);
}

/* --- what is left --- */

struct listing {
    struct workload *workload;
    const char *dir;
    const char *alive; /* the one entry that may be there; NULL: none */
};

static bool entry_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct listing *listing = arg;

    (void)kind;
    if (listing->alive == NULL || strcmp(name, listing->alive) != 0) {
        ledger_problem(&listing->workload->ledger, "%s/%s is left of a deleted topic", listing->dir,
                       name);
    }
    return true;
}

static void check_dir(struct workload *workload, const char *dir, const char *alive)
{
    const struct nd_env *env = workload->node.env;
    struct listing listing = {.workload = workload, .dir = dir, .alive = alive};
    struct nd_errmsg msg = {{0}};
    enum nd_err err = env->list(env->impl, dir, entry_seen, &listing, &msg);

    if (err != ND_OK && err != ND_ERR_NOT_FOUND && !over(workload)) {
        ledger_problem(&workload->ledger, "cannot list %s: %s", dir, msg.text);
    }
}

static void check_gone(struct workload *workload, const char *name)
{
    const struct nd_env *env = workload->node.env;
    struct nd_file_stat stat;
    char dir[64];

    snprintf(dir, sizeof dir, "data/topics/%s", name);
    if (env->stat(env->impl, dir, &stat, NULL) == ND_OK) {
        ledger_problem(&workload->ledger, "%s is left of a deleted topic", dir);
    }
}

void workload_check_removed(struct workload *workload)
{
    const uint32_t topics[] = {workload->churn, workload->flux};

    node_advance(&workload->node, REMOVED_MS);
    for (size_t i = 0; i < ND_ARRAY_SIZE(topics) && !over(workload); i++) {
        char dir[64], alive[17];
        snprintf(dir, sizeof dir, "data/topics/%s", names[i]);
        snprintf(alive, sizeof alive, "%016llx",
                 (unsigned long long)workload->node.topics[topics[i]]->incarnation);
        check_dir(workload, dir, alive);
    }
    if (!over(workload)) {
        check_dir(workload, "data/removed", NULL);
        check_gone(workload, once);
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(topics) && !over(workload); i++) {
        node_topic_delete(&workload->node, topics[i]);
        node_advance(&workload->node, REMOVED_MS);
        check_gone(workload, names[i]);
    }
}
