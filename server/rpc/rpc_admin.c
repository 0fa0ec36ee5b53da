/* Admin: topics. Changes are answered from the raft thread, statistics from a shard. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "storage/base/alloc.h"

#include "proto/narad/v1/admin.pb-c.h"
#include "server/rpc/admin.h"
#include "server/rpc/topic_view.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000 };

/* A change under way. */
struct change {
    struct nd_handlers *handlers;
    struct nd_rpc_call *call;
    struct nd_topic_alter steps[3]; /* alter: retention, caps, partitions */
    uint32_t steps_count, step;
    const char *event;                      /* of the audit log */
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1]; /* checked */
};

/* May the call do it? Refusals are told, also to the audit log. */
static bool is_allowed(struct nd_rpc_call *call, const char *event, const char *topic)
{
    struct nd_errmsg msg = {""};
    enum nd_err err = nd_access_check(call, nd_slice_str(topic), &msg);
    if (err != ND_OK) {
        nd_access_audit(call, event, topic, err);
        nd_call_fail(call, err, &msg);
    }
    return err == ND_OK;
}

/* A change may begin: the budget and the gate are taken. */
static struct change *change_begin(struct nd_rpc_call *call, const char *event, const char *topic)
{
    struct nd_handlers *h = nd_handlers_of(call);
    if (!nd_budget_take(&h->admin, 1)) {
        nd_call_refuse_budget(call, &h->admin);
        return NULL;
    }
    if (!nd_handlers_enter(h)) {
        nd_budget_give(&h->admin, 1);
        nd_call_refuse_stopping(call);
        return NULL;
    }
    struct change *change = nd_xcalloc(1, sizeof *change);
    change->handlers = h;
    change->call = call;
    change->event = event;
    snprintf(change->topic, sizeof change->topic, "%s", topic);
    return change;
}

/* Before the answer: behind that the handlers may be gone. */
static struct nd_rpc_call *change_end(struct change *change)
{
    struct nd_rpc_call *call = change->call;
    nd_budget_give(&change->handlers->admin, 1);
    nd_free(change);
    return call;
}

static void change_failed(struct change *change, enum nd_err err, const char *text)
{
    struct nd_errmsg msg = {""};
    nd_errmsg_set(&msg, "%s", text);
    if (err == ND_ERR_TOPIC_NOT_FOUND || err == ND_ERR_TOPIC_EXISTS) {
        nd_errmsg_set(&msg, "%s: \"%s\"", text, change->topic);
    }
    nd_access_audit(change->call, change->event, change->topic, err);
    nd_rpc_call_fail(change_end(change), err, msg.text);
}

static void change_done(struct change *change, const ProtobufCMessage *response)
{
    nd_access_audit(change->call, change->event, change->topic, ND_OK);
    nd_rpc_call_reply(change_end(change), response);
}

/* --- create --- */

/* @thread raft */
static void created(void *arg, enum nd_err err, const char *text, const struct nd_topic *topic)
{
    struct change *change = arg;
    struct nd_topic_view topic_view;
    Narad__V1__CreateTopicResponse response = NARAD__V1__CREATE_TOPIC_RESPONSE__INIT;
    if (err != ND_OK) {
        change_failed(change, err, text);
        return;
    }
    nd_topic_view_init(&topic_view, topic);
    response.topic = &topic_view.message;
    change_done(change, &response.base);
}

static void owner_set(struct nd_rpc_call *call, struct nd_topic_create *create)
{
    struct nd_user *user = nd_caller_user(nd_access_caller(call));
    snprintf(create->owner, sizeof create->owner, "%s", user == NULL ? "" : user->name);
    nd_user_unref(user);
}

/* Is there a topic whose name differs from `name` in letter case only? Of two creates at the same
 * time both may pass: the rule keeps people from mistakes, nothing depends on it. */
static bool has_twin(struct nd_metastore *metastore, const char *name, struct nd_errmsg *msg)
{
    struct nd_topic *topics[LIST_MAX];
    char after[ND_TOPIC_NAME_SIZE_MAX + 1] = "";
    bool more = true, found = false;
    while (more && !found) {
        size_t count = nd_metastore_topics(metastore, nd_slice_str(after), LIST_MAX, topics, &more);
        for (size_t i = 0; i < count; i++) {
            if (!found && strcasecmp(topics[i]->name, name) == 0 &&
                strcmp(topics[i]->name, name) != 0) {
                nd_errmsg_set(msg, "topic name \"%s\" differs only in letter case from \"%s\"",
                              name, topics[i]->name);
                found = true;
            }
            snprintf(after, sizeof after, "%s", topics[i]->name);
            nd_topic_unref(topics[i]);
        }
        more = more && count > 0;
    }
    return found;
}

static void on_create(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    struct nd_topic_create create;
    const Narad__V1__CreateTopicRequest *r =
        nd_call_decode(call, &narad__v1__create_topic_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    struct nd_topic_wish wish = {
        .name = r->name,
        .partitions = r->partitions,
        .has_retention = r->retention_choice_case ==
                         NARAD__V1__CREATE_TOPIC_REQUEST__RETENTION_CHOICE_RETENTION_MS,
        .retention_ms = r->retention_ms,
        .visibility_timeout_ms = r->visibility_timeout_ms,
        .max_in_flight = r->max_in_flight_per_partition,
        .max_acked_ahead = r->max_acked_ahead_per_partition,
    };
    if (!is_allowed(call, "topic create", r->name)) {
        return;
    }
    enum nd_err err = nd_topic_create_get(&wish, &h->options.topic, &create, &msg);
    if (err == ND_OK && h->options.names_differ && has_twin(h->options.metastore, r->name, &msg)) {
        err = ND_ERR_TOPIC_EXISTS;
    }
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    owner_set(call, &create);
    struct change *change = change_begin(call, "topic create", create.name);
    if (change != NULL) {
        nd_metastore_create_topic(h->options.metastore, &create, created, change);
        nd_handlers_leave(h);
    }
}

/* --- alter: groups one after the other, the first failure answers, earlier groups stay --- */

static void altered(void *arg, enum nd_err err, const char *text, const struct nd_topic *topic);

static void alter_step(struct change *change)
{
    struct nd_handlers *h = change->handlers;
    struct nd_errmsg msg = {""};
    struct nd_topic_alter *step = &change->steps[change->step];
    enum nd_err err = nd_topic_alter_check(step, &h->options.topic, &msg);
    if (err != ND_OK) {
        change_failed(change, err, msg.text);
        return;
    }
    nd_metastore_alter_topic(h->options.metastore, step, altered, change);
}

/* @thread raft */
static void altered(void *arg, enum nd_err err, const char *text, const struct nd_topic *topic)
{
    struct change *change = arg;
    struct nd_topic_view topic_view;
    Narad__V1__AlterTopicResponse response = NARAD__V1__ALTER_TOPIC_RESPONSE__INIT;
    if (err != ND_OK) {
        change_failed(change, err, text);
        return;
    }
    if (++change->step < change->steps_count) {
        /* No gate: a change that has begun counts in the admin budget, which the stop waits for. */
        alter_step(change);
        return;
    }
    nd_topic_view_init(&topic_view, topic);
    response.topic = &topic_view.message;
    change_done(change, &response.base);
}

/* Split the request into its groups. */
static void alter_steps(struct change *change, const Narad__V1__AlterTopicRequest *r)
{
    struct nd_topic_alter *steps = change->steps;
    uint32_t n = 0;
    if (r->retention_choice_case == NARAD__V1__ALTER_TOPIC_REQUEST__RETENTION_CHOICE_RETENTION_MS) {
        steps[n].has_retention = true;
        steps[n++].retention_ms = r->retention_ms;
    } else if (r->retention_choice_case ==
                   NARAD__V1__ALTER_TOPIC_REQUEST__RETENTION_CHOICE_RETENTION_DEFAULT &&
               r->retention_default) {
        steps[n].has_retention = true;
        steps[n++].retention_ms = change->handlers->options.topic.retention_ms;
    }
    bool in_flight =
        r->max_in_flight_choice_case ==
        NARAD__V1__ALTER_TOPIC_REQUEST__MAX_IN_FLIGHT_CHOICE_MAX_IN_FLIGHT_PER_PARTITION;
    bool ahead =
        r->max_acked_ahead_choice_case ==
        NARAD__V1__ALTER_TOPIC_REQUEST__MAX_ACKED_AHEAD_CHOICE_MAX_ACKED_AHEAD_PER_PARTITION;
    if (in_flight || ahead) {
        steps[n].has_max_in_flight = in_flight;
        steps[n].max_in_flight = in_flight ? r->max_in_flight_per_partition : 0;
        steps[n].has_max_acked_ahead = ahead;
        steps[n++].max_acked_ahead = ahead ? r->max_acked_ahead_per_partition : 0;
    }
    if (r->partitions != 0) {
        steps[n++].partitions = r->partitions;
    }
    for (uint32_t i = 0; i < n; i++) {
        snprintf(steps[i].name, sizeof steps[i].name, "%s", r->name);
    }
    change->steps_count = n;
}

static void on_alter(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    const Narad__V1__AlterTopicRequest *r =
        nd_call_decode(call, &narad__v1__alter_topic_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    if (!is_allowed(call, "topic alter", r->name)) {
        return;
    }
    enum nd_err err = nd_topic_name_check(nd_slice_str(r->name), &msg);
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    struct change *change = change_begin(call, "topic alter", r->name);
    if (change == NULL) {
        return;
    }
    struct nd_handlers *h = change->handlers;
    alter_steps(change, r);
    if (change->steps_count == 0) {
        change_failed(
            change, ND_ERR_INVALID_ARGUMENT,
            "at least one of partitions, retention_ms or max_*_per_partition is required");
    } else {
        alter_step(change);
    }
    nd_handlers_leave(h);
}

/* --- delete --- */

/* @thread raft */
static void deleted(void *arg, enum nd_err err, const char *text, const struct nd_topic *topic)
{
    struct change *change = arg;
    Narad__V1__DeleteTopicResponse response = NARAD__V1__DELETE_TOPIC_RESPONSE__INIT;
    (void)topic;
    if (err != ND_OK) {
        change_failed(change, err, text);
        return;
    }
    change_done(change, &response.base);
}

static void on_delete(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_errmsg msg = {""};
    const Narad__V1__DeleteTopicRequest *r =
        nd_call_decode(call, &narad__v1__delete_topic_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    if (!is_allowed(call, "topic delete", r->name)) {
        return;
    }
    enum nd_err err = nd_topic_name_check(nd_slice_str(r->name), &msg);
    if (err != ND_OK) {
        nd_call_fail(call, err, &msg);
        return;
    }
    struct change *change = change_begin(call, "topic delete", r->name);
    if (change != NULL) {
        struct nd_handlers *h = change->handlers;
        nd_metastore_delete_topic(h->options.metastore, r->name, deleted, change);
        nd_handlers_leave(h);
    }
}

/* --- list --- */

/* Those of `topics` that the call may see as views. After the page is cut: it may be short, even
 * empty, and not the last. An error: who asks is gone meanwhile, which no short page tells. */
static enum nd_err views_get(struct nd_rpc_call *call, struct nd_topic *const *topics, size_t count,
                             struct nd_topic_view *views, size_t *shown_out, struct nd_errmsg *msg)
{
    size_t shown = 0;
    enum nd_err err = nd_access_check(call, nd_slice_str(""), msg);
    for (size_t i = 0; i < count && err == ND_OK; i++) {
        err = nd_access_right(call, ND_RIGHT_READ, nd_slice_str(topics[i]->name), msg);
        if (err == ND_OK) {
            nd_topic_view_init(&views[shown++], topics[i]);
        } else if (err == ND_ERR_PERMISSION_DENIED) {
            err = ND_OK;
        }
    }
    *shown_out = shown;
    return err;
}

static void on_list(struct nd_rpc_call *call, struct nd_slice request)
{
    struct nd_handlers *h = nd_handlers_of(call);
    struct nd_errmsg msg = {""};
    const Narad__V1__ListTopicsRequest *r =
        nd_call_decode(call, &narad__v1__list_topics_request__descriptor, request);
    if (r == NULL) {
        return;
    }
    if (!nd_metastore_caught_up(h->options.metastore)) {
        nd_rpc_call_fail(call, ND_ERR_UNAVAILABLE,
                         "the node has not caught up with the metadata yet");
        return;
    }
    size_t limit = r->limit == 0 ? LIST_DEFAULT : ND_MIN(r->limit, (uint32_t)LIST_MAX);
    struct nd_topic **topics = nd_xcalloc(limit, sizeof *topics);
    struct nd_topic_view *views = nd_xcalloc(limit, sizeof *views);
    Narad__V1__Topic **messages = nd_xcalloc(limit, sizeof *messages);
    bool more = false;
    size_t count = nd_metastore_topics(h->options.metastore, nd_slice_str(r->page_token), limit,
                                       topics, &more);
    Narad__V1__ListTopicsResponse response = NARAD__V1__LIST_TOPICS_RESPONSE__INIT;
    enum nd_err err = views_get(call, topics, count, views, &response.n_topics, &msg);
    for (size_t i = 0; i < response.n_topics; i++) {
        messages[i] = &views[i].message;
    }
    response.topics = messages;
    if (more && count > 0) {
        response.next_page_token = topics[count - 1]->name;
    }
    if (err == ND_OK) {
        nd_rpc_call_reply(call, &response.base);
    } else {
        nd_call_fail(call, err, &msg);
    }
    for (size_t i = 0; i < count; i++) {
        nd_topic_unref(topics[i]);
    }
    nd_free(messages);
    nd_free(views);
    nd_free(topics);
}

ND_ADMIN_METHOD(nd_rpc_create_topic, "CreateTopic", on_create, ND_RIGHT_CREATE);
ND_ADMIN_METHOD(nd_rpc_alter_topic, "AlterTopic", on_alter, ND_RIGHT_MANAGE);
ND_ADMIN_METHOD(nd_rpc_delete_topic, "DeleteTopic", on_delete, ND_RIGHT_MANAGE);
ND_ADMIN_METHOD(nd_rpc_list_topics, "ListTopics", on_list, ND_RIGHT_ANY);
