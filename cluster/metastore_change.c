/* Proposals. A change travels to the raft thread, is numbered and proposed there, and is answered
 * there once its entry has been applied; Raft calls back right behind the apply, so the outcome of
 * the entry applied last is the outcome of this change. */
#include <inttypes.h>
#include <stdio.h>

#include "storage/base/alloc.h"

#include "cluster/metastore_impl.h"

static const char not_caught_up_text[] = "the metadata of this node has not caught up yet";

struct change {
    struct nd_msg msg;   /* on its way to the raft thread */
    struct nd_list link; /* in metastore->changes, from the proposal to the answer */
    struct nd_metastore *metastore;
    struct nd_command command;
    nd_change_done_fn *done;
    nd_user_done_fn *user_done; /* of a change of a user, in the place of `done` */
    void *arg;
};

static void change_free(struct change *change)
{
    nd_command_release(&change->command);
    nd_free(change);
}

/* Refused before it was proposed, or undecided. */
static void change_fail(struct change *change, enum nd_err err, const char *text)
{
    if (change->done != NULL) {
        change->done(change->arg, err, text, NULL);
    }
    if (change->user_done != NULL) {
        change->user_done(change->arg, err, text, NULL);
    }
    change_free(change);
}

/* The record that the answer shows: the one just made, or for a repeat the one of today. */
static const struct nd_topic *outcome_topic(const struct nd_metastore *metastore,
                                            const struct nd_command *command)
{
    const char *name = NULL;

    if (metastore->outcome.err != ND_OK) {
        return NULL;
    }
    if (!metastore->outcome.repeat) {
        return metastore->outcome.after;
    }
    if (command->kind == ND_COMMAND_TOPIC_CREATE) {
        name = command->topic_create.request.name;
    } else if (command->kind == ND_COMMAND_TOPIC_ALTER) {
        name = command->topic_alter.name;
    }
    return name == NULL ? NULL : nd_topic_table_find(metastore->state.table, nd_slice_str(name));
}

/* The same of a user. */
static const struct nd_user *outcome_user(const struct nd_metastore *metastore,
                                          const struct nd_command *command)
{
    if (metastore->outcome.err != ND_OK) {
        return NULL;
    }
    if (!metastore->outcome.repeat) {
        return metastore->outcome.user_after;
    }
    if (command->kind == ND_COMMAND_USER_DELETE) {
        return NULL;
    }
    const char *name =
        command->kind == ND_COMMAND_USER_SEED_ROOT ? ND_USER_ROOT_NAME : command->user->name;
    return nd_user_table_find(metastore->state.users, nd_slice_str(name));
}

static void change_decided(void *arg, enum nd_err err)
{
    struct change *change = arg;
    struct nd_metastore *metastore = change->metastore;

    nd_list_remove(&change->link);
    metastore->changes_count--;
    if (err != ND_OK) {
        change_fail(change, err, nd_err_text(err));
        return;
    }
    ND_ASSERT(metastore->outcome_sequence == change->command.sequence);
    const struct nd_outcome *outcome = &metastore->outcome;
    if (change->done != NULL) {
        change->done(change->arg, outcome->err, outcome->text,
                     outcome_topic(metastore, &change->command));
    }
    if (change->user_done != NULL) {
        change->user_done(change->arg, outcome->err, outcome->text,
                          outcome_user(metastore, &change->command));
    }
    change_free(change);
}

/* What needs no log entry to be refused. */
static enum nd_err change_check(const struct nd_metastore *metastore,
                                const struct nd_command *command, struct nd_errmsg *msg)
{
    uint32_t partitions = 0;

    if (nd_command_is_of_user(command->kind)) {
        return nd_command_user_check(command, msg);
    }
    if (command->kind == ND_COMMAND_TOPIC_CREATE) {
        const struct nd_topic_create *request = &command->topic_create.request;
        enum nd_err err = nd_topic_name_check(nd_slice_str(request->name), msg);
        if (err != ND_OK) {
            return err;
        }
        partitions = request->partitions;
    } else if (command->kind == ND_COMMAND_TOPIC_ALTER) {
        partitions = command->topic_alter.partitions;
    }
    if (partitions > metastore->options.topic_partitions_max) {
        nd_errmsg_set(msg,
                      "invalid argument: partitions (%" PRIu32
                      ") exceeds topic.max_partitions (%" PRIu32 ")",
                      partitions, metastore->options.topic_partitions_max);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

/* Give the change its number. The window of the state must hold everything from the oldest on. */
static enum nd_err change_number(struct nd_metastore *metastore, struct nd_command *command)
{
    struct nd_list *oldest = nd_list_first(&metastore->changes);

    command->proposer = metastore->proposer;
    command->sequence = metastore->sequence + 1;
    command->open_from = command->sequence;
    if (oldest != NULL) {
        command->open_from = ND_CONTAINER_OF(oldest, struct change, link)->command.sequence;
    }
    return metastore->changes_count >= ND_CHANGES_IN_FLIGHT_MAX ||
                   command->sequence - command->open_from >= ND_DEDUPE_WINDOW
               ? ND_ERR_UNAVAILABLE
               : ND_OK;
}

static enum nd_err change_propose(struct change *change, struct nd_errmsg *msg)
{
    struct nd_metastore *metastore = change->metastore;
    struct nd_buf entry;
    enum nd_err err = change_number(metastore, &change->command);
    if (err != ND_OK) {
        nd_errmsg_set(msg, "too many metadata changes at once");
        return err;
    }
    nd_buf_init(&entry, ND_COMMAND_SIZE_MAX);
    nd_command_put(&entry, &change->command);
    if (nd_buf_failed(&entry)) {
        err = ND_ERR_NO_MEMORY;
    } else {
        err = nd_raft_node_propose(metastore->node, nd_buf_slice(&entry), change_decided, change);
    }
    nd_buf_release(&entry);
    if (err != ND_OK) {
        nd_errmsg_set(msg, "%s", nd_err_text(err));
        return err;
    }
    metastore->sequence++;
    metastore->changes_count++;
    nd_list_append(&metastore->changes, &change->link);
    return ND_OK;
}

static void change_run(struct nd_msg *posted, void *owner)
{
    struct change *change = ND_CONTAINER_OF(posted, struct change, msg);
    struct nd_metastore *metastore = owner;
    struct nd_errmsg msg = {""};
    enum nd_err err = change_check(metastore, &change->command, &msg);

    if (err == ND_OK && !nd_metastore_caught_up(metastore)) {
        nd_errmsg_set(&msg, "%s", not_caught_up_text);
        err = ND_ERR_UNAVAILABLE;
    }
    if (err == ND_OK) {
        err = change_propose(change, &msg);
    }
    if (err != ND_OK) {
        change_fail(change, err, msg.text);
    }
}

static struct change *change_new(struct nd_metastore *metastore, enum nd_command_kind kind,
                                 nd_change_done_fn *done, void *arg)
{
    struct change *change = nd_xcalloc(1, sizeof *change);
    nd_list_init(&change->link);
    nd_list_init(&change->msg.link);
    change->msg.run = change_run;
    change->metastore = metastore;
    change->command.kind = kind;
    change->done = done;
    change->arg = arg;
    return change;
}

static uint64_t random_number(const struct nd_metastore *metastore)
{
    uint64_t number = 0;
    while (number == 0) {
        number = nd_env_random_u64(metastore->options.env);
    }
    return number;
}

void nd_metastore_create_topic(struct nd_metastore *metastore,
                               const struct nd_topic_create *request, nd_change_done_fn *done,
                               void *arg)
{
    const struct nd_env *env = metastore->options.env;
    struct change *change = change_new(metastore, ND_COMMAND_TOPIC_CREATE, done, arg);
    change->command.topic_create.request = *request;
    change->command.topic_create.incarnation = random_number(metastore);
    change->command.topic_create.created_at_s = env->wall_ms(env->impl) / 1000;
    nd_raft_node_post(metastore->node, &change->msg);
}

void nd_metastore_alter_topic(struct nd_metastore *metastore, const struct nd_topic_alter *request,
                              nd_change_done_fn *done, void *arg)
{
    struct change *change = change_new(metastore, ND_COMMAND_TOPIC_ALTER, done, arg);
    change->command.topic_alter = *request;
    nd_raft_node_post(metastore->node, &change->msg);
}

void nd_metastore_delete_topic(struct nd_metastore *metastore, const char *name,
                               nd_change_done_fn *done, void *arg)
{
    struct change *change = change_new(metastore, ND_COMMAND_TOPIC_DELETE, done, arg);
    /* A name that does not fit stays empty, which no topic is called. */
    size_t size = strlen(name);
    if (size < sizeof change->command.topic_delete) {
        memcpy(change->command.topic_delete, name, size + 1);
    }
    nd_raft_node_post(metastore->node, &change->msg);
}

void nd_metastore_propose_user(struct nd_metastore *metastore, enum nd_command_kind kind,
                               struct nd_user *user, const char *replaces, nd_user_done_fn *done,
                               void *arg)
{
    const struct nd_env *env = metastore->options.env;
    struct change *change = change_new(metastore, kind, NULL, arg);

    change->user_done = done;
    change->command.user = user;
    snprintf(change->command.replaces, sizeof change->command.replaces, "%s",
             replaces == NULL ? "" : replaces);
    user->updated_at_ms = (int64_t)env->wall_ms(env->impl);
    nd_raft_node_post(metastore->node, &change->msg);
}

/* --- members --- */

static void registered(void *arg, enum nd_err err, const char *text, const struct nd_topic *topic)
{
    struct nd_metastore *metastore = arg;
    (void)topic;
    if (err != ND_OK) {
        nd_log(metastore->options.log, ND_LOG_ERROR, "metastore", "not registered as a member",
               "err=\"%s\"", text);
    }
}

void nd_metastore_register_self(struct nd_metastore *metastore)
{
    const struct nd_member *mine = nd_state_member(&metastore->state, metastore->identity.member);
    if (mine != NULL && mine->alive && strcmp(mine->node_id, metastore->node_id) == 0 &&
        strcmp(mine->address, metastore->address) == 0) {
        return;
    }
    struct nd_errmsg msg = {""};
    struct change *change =
        change_new(metastore, ND_COMMAND_MEMBER_REGISTER, registered, metastore);
    struct nd_member_register *request = &change->command.member_register;
    request->member = metastore->identity.member;
    memcpy(request->node_id, metastore->node_id, strlen(metastore->node_id) + 1);
    memcpy(request->address, metastore->address, strlen(metastore->address) + 1);
    enum nd_err err = change_propose(change, &msg);
    if (err != ND_OK) {
        change_fail(change, err, msg.text); /* proposed again at the next election */
    }
}

/* --- leader confirmation (P5) --- */

struct confirm {
    struct nd_msg msg;
    struct nd_metastore *metastore;
    char name[ND_TOPIC_NAME_SIZE_MAX + 1];
    uint64_t incarnation;
    void (*done)(void *arg, enum nd_err err, bool gone);
    void *arg;
};

static void confirm_finish(struct confirm *confirm, enum nd_err err, bool gone)
{
    confirm->done(confirm->arg, err, gone);
    nd_free(confirm);
}

static void confirm_decided(void *arg, enum nd_err err)
{
    struct confirm *confirm = arg;
    const struct nd_topic *topic =
        nd_topic_table_find(confirm->metastore->state.table, nd_slice_str(confirm->name));
    bool gone = topic == NULL || topic->incarnation != confirm->incarnation;

    confirm_finish(confirm, err == ND_OK ? ND_OK : ND_ERR_UNAVAILABLE, err == ND_OK && gone);
}

static void confirm_run(struct nd_msg *posted, void *owner)
{
    struct confirm *confirm = ND_CONTAINER_OF(posted, struct confirm, msg);
    struct nd_metastore *metastore = owner;
    enum nd_err err = ND_ERR_UNAVAILABLE;

    if (nd_metastore_caught_up(metastore)) {
        err = nd_raft_node_barrier(metastore->node, confirm_decided, confirm);
    }
    if (err != ND_OK) {
        confirm_finish(confirm, err, false);
    }
}

void nd_metastore_confirm_gone(struct nd_metastore *metastore, const char *name,
                               uint64_t incarnation,
                               void (*done)(void *arg, enum nd_err err, bool gone), void *arg)
{
    struct confirm *confirm = nd_xcalloc(1, sizeof *confirm);
    size_t size = strlen(name);

    ND_ASSERT(size < sizeof confirm->name); /* of a directory that this node made */
    nd_list_init(&confirm->msg.link);
    confirm->msg.run = confirm_run;
    confirm->metastore = metastore;
    memcpy(confirm->name, name, size + 1);
    confirm->incarnation = incarnation;
    confirm->done = done;
    confirm->arg = arg;
    nd_raft_node_post(metastore->node, &confirm->msg);
}
