/* narad sub: a subscription that prints and acks; narad replay: records by offset. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

#include "clients/cli/commands.h"

struct sub_flags {
    uint32_t partition, outstanding;
    uint64_t count, idle_ms, reconnect_ms;
    bool has_partition, no_ack, raw;
};

static const struct sub_flags sub_defaults = {.reconnect_ms = 30000};

/* --- sub --- */

struct session {
    struct cli *cli;
    const struct sub_flags *flags;
    struct nd_mutex lock;
    struct nd_cond changed;
    uint64_t received, settled, refused;
    uint64_t again;   /* their acks were lost with the connection, or too late: they come again */
    uint64_t last_ns; /* a message came */
    uint64_t busy_ns; /* a message or the outcome of an ack came */
    bool output_failed;
    bool ended;
    int code;
    char text[512];
    struct cli_progress progress;
};

static void on_settled(void *data, int code, const char *text)
{
    struct session *session = data;

    nd_mutex_lock(&session->lock);
    session->busy_ns = cli_now_ns();
    if (code == NARAD_OK) {
        session->settled += 1;
    } else if (code == NARAD_UNAVAILABLE || code == NARAD_FAILED_PRECONDITION) {
        session->again += 1;
    } else {
        session->refused += 1;
        snprintf(session->text, sizeof session->text, "%s", text);
    }
    nd_cond_signal(&session->changed);
    nd_mutex_unlock(&session->lock);
}

static void message_print(const struct cli *cli, const Narad__V1__Message *message, bool raw)
{
    if (cli->json) {
        cli_print_message_json(cli->args[0], message, true);
    } else if (raw) {
        fwrite(message->payload.data, 1, message->payload.len, stdout);
        putchar('\n');
    } else {
        cli_print_message(message);
    }
}

/* Is it one of the --count? One whose ack was lost does not count, for it comes again. */
static bool take_locked(struct session *session)
{
    uint64_t count = session->flags->count;
    bool wanted = count == 0 || session->received - session->again < count;

    session->received += wanted ? 1 : 0;
    session->last_ns = session->busy_ns = cli_now_ns();
    return wanted && !session->output_failed;
}

static void on_message(void *data, struct narad_subscription *subscription,
                       const Narad__V1__Message *message)
{
    struct session *session = data;

    nd_mutex_lock(&session->lock);
    bool wanted = take_locked(session);
    nd_cond_signal(&session->changed);
    nd_mutex_unlock(&session->lock);
    if (!wanted) {
        return; /* its lease ends with the stream */
    }
    message_print(session->cli, message, session->flags->raw);
    cli_progress(&session->progress, "%" PRIu64 " messages", session->received);
    if (session->flags->no_ack) {
        return;
    }
    if (cli_output_flush()) {
        narad_subscription_settle(subscription, message->receipt_handle,
                                  NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_ACK, on_settled, session);
        return;
    }
    /* Not printed, so not acked: it comes again. */
    nd_mutex_lock(&session->lock);
    session->output_failed = true;
    nd_mutex_unlock(&session->lock);
}

static void on_ended(void *data, int code, const char *text)
{
    struct session *session = data;

    nd_mutex_lock(&session->lock);
    session->ended = true;
    session->code = code;
    if (code != NARAD_OK) {
        snprintf(session->text, sizeof session->text, "%s", text);
    }
    nd_cond_signal(&session->changed);
    nd_mutex_unlock(&session->lock);
}

/* All that was asked for has been received and settled, nothing came for --idle, or a signal. */
static bool enough(const struct session *session)
{
    const struct sub_flags *flags = session->flags;
    uint64_t outcomes = session->settled + session->refused + session->again;
    bool settled = flags->no_ack || outcomes == session->received;
    bool counted =
        flags->count > 0 && session->received - session->again >= flags->count && settled;
    bool idle = flags->idle_ms > 0 && settled &&
                cli_now_ns() - session->last_ns >= flags->idle_ms * 1000000u;

    return session->ended || session->output_failed || counted || idle || cli_interrupted();
}

static int session_report(const struct session *session, uint64_t took_ns)
{
    uint64_t count = session->flags->count;
    double seconds = (double)took_ns / 1e9;

    if (session->code != NARAD_OK && session->received == 0) {
        return cli_fail_code("sub", session->code, session->text);
    }
    fprintf(stderr, "%" PRIu64 " messages, %" PRIu64 " acked in %.3f s (%.0f/s)\n",
            session->received, session->settled, seconds,
            seconds > 0 ? (double)session->received / seconds : 0.0);
    if (session->again > 0) {
        fprintf(stderr, "%" PRIu64 " acks were lost or too late: their messages come again\n",
                session->again);
    }
    if (session->code != NARAD_OK) {
        return cli_fail_code("sub", session->code, session->text);
    }
    if (session->refused > 0) {
        return cli_fail("sub: %" PRIu64 " acks were not taken: %s", session->refused,
                        session->text);
    }
    if (session->output_failed) {
        return CLI_FAILED; /* told when the command ends */
    }
    bool missing = session->received - session->again < count && !cli_interrupted();
    return missing ? cli_fail("sub: %" PRIu64 " of %" PRIu64 " messages came",
                              session->received - session->again, count)
                   : CLI_OK;
}

static void session_wait(struct session *session)
{
    nd_mutex_lock(&session->lock);
    while (!enough(session)) {
        /* Signals do not signal a condition, so look at them ten times a second. */
        nd_cond_wait_until(&session->changed, &session->lock, cli_now_ns() + 100000000u);
        if (session->flags->no_ack && !cli_output_flush()) {
            session->output_failed = true;
        }
    }
    nd_mutex_unlock(&session->lock);
}

static int session_run(struct session *session, struct narad_client *client)
{
    const struct sub_flags *flags = session->flags;
    struct narad_subscription *subscription = NULL;
    struct narad_error error;
    struct narad_subscription_options options = {
        .topic = session->cli->args[0],
        .max_outstanding = flags->outstanding,
        .partition = flags->has_partition ? (int32_t)ND_MIN(flags->partition, INT32_MAX) : -1,
        .message = on_message,
        .ended = on_ended,
        .data = session,
    };
    uint64_t start = cli_now_ns();
    int code = narad_subscribe(client, &options, &subscription, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("sub", code, error.text);
    }
    nd_mutex_lock(&session->lock);
    session->last_ns = ND_MAX(session->last_ns, start); /* --idle counts from here */
    nd_mutex_unlock(&session->lock);
    session_wait(session);
    nd_mutex_lock(&session->lock);
    /* Waiting for --idle is no work. */
    uint64_t took = session->busy_ns > start ? session->busy_ns - start : 0;
    if (!session->ended) {
        narad_subscription_close(subscription); /* on_ended waits for the lock */
    }
    while (!session->ended) {
        nd_cond_wait(&session->changed, &session->lock);
    }
    nd_mutex_unlock(&session->lock);
    cli_progress_end(&session->progress);
    return session_report(session, took);
}

static int sub_run(struct cli *cli)
{
    const struct sub_flags *flags = cli->values;
    struct session session = {.cli = cli, .flags = flags};
    struct narad_client *client = NULL;
    struct narad_error error;
    struct narad_options options = cli_target_options(cli->target);

    options.connect_timeout_ms = (uint32_t)ND_MIN(flags->reconnect_ms, UINT32_MAX - 1);
    /* A running subscription waits for its node to come back; a wrong address is told at once. */
    int result = cli_node_ask(cli, "sub");
    if (result != CLI_OK) {
        return result;
    }
    if (narad_client_new(&client, &options, &error) != NARAD_OK) {
        return cli_fail("%s", error.text);
    }
    nd_mutex_init(&session.lock);
    nd_cond_init(&session.changed);
    cli_catch_signals();
    result = session_run(&session, client);
    narad_client_free(client);
    nd_cond_release(&session.changed);
    nd_mutex_release(&session.lock);
    return result;
}

static const struct cli_option sub_options[] = {
    {"--partition", 0, CLI_U32, offsetof(struct sub_flags, partition),
     offsetof(struct sub_flags, has_partition), "P", "this partition only"},
    {"--count", 'n', CLI_U64, offsetof(struct sub_flags, count), CLI_UNMARKED, "N",
     "end after N messages (default 0: never)"},
    {"--idle", 0, CLI_DURATION, offsetof(struct sub_flags, idle_ms), CLI_UNMARKED, "D",
     "end when none came for so long"},
    {"--max-outstanding", 0, CLI_U32, offsetof(struct sub_flags, outstanding), CLI_UNMARKED, "N",
     "delivered and not acked (default 256)"},
    {"--reconnect", 0, CLI_DURATION, offsetof(struct sub_flags, reconnect_ms), CLI_UNMARKED, "D",
     "wait so long for a lost node (default 30s)"},
    {"--no-ack", 0, CLI_FLAG, offsetof(struct sub_flags, no_ack), CLI_UNMARKED, NULL,
     "print only; the messages come again"},
    {"--raw", 0, CLI_FLAG, offsetof(struct sub_flags, raw), CLI_UNMARKED, NULL,
     "payloads only, a line end after each"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_sub = {
    .name = "sub",
    .arguments = "TOPIC",
    .summary = "Subscribe: print messages as they come, and ack them.",
    .details = "Runs until --count, --idle or an interrupt. A message is acked once it has been\n"
               "written to standard output; every ack is confirmed when it is on the node's disk,\n"
               "and the command fails when one was refused. When the node goes away and comes\n"
               "back, the subscription goes on; messages whose acks were lost come again.",
    .args_min = 1,
    .args_max = 1,
    .options = sub_options,
    .values_size = sizeof(struct sub_flags),
    .defaults = &sub_defaults,
    .run = sub_run};

/* --- replay --- */

struct replay_flags {
    uint32_t partition;
    uint64_t from, to;
    bool has_partition, has_to, raw;
};

struct replayed {
    const struct cli *cli;
    uint64_t count, first, last;
};

static bool on_replayed(void *data, const Narad__V1__Message *message)
{
    struct replayed *replayed = data;

    const struct replay_flags *flags = replayed->cli->values;

    message_print(replayed->cli, message, flags->raw);
    replayed->first = replayed->count == 0 ? message->offset : replayed->first;
    replayed->count += 1;
    replayed->last = message->offset;
    return !cli_interrupted() && !ferror(stdout);
}

static int replay_run(struct cli *cli)
{
    const struct replay_flags *flags = cli->values;
    Narad__V1__ReplayRequest request;
    struct narad_error error;
    struct replayed replayed = {.cli = cli};

    if (!flags->has_partition) {
        return cli_usage_error(cli, "--partition is required");
    }
    if (flags->has_to && flags->to <= flags->from) {
        return cli_usage_error(cli, "--to must be greater than --from");
    }
    cli_catch_signals();
    narad__v1__replay_request__init(&request);
    request.topic = (char *)(uintptr_t)cli->args[0];
    request.partition = flags->partition;
    request.offset = flags->from;
    request.max_messages = flags->has_to ? flags->to - flags->from : 0;
    int code = narad_replay(cli->client, &request, on_replayed, &replayed, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("replay", code, error.text);
    }
    fprintf(stderr, "%" PRIu64 " message(s) replayed from p%u", replayed.count, flags->partition);
    if (replayed.count > 0) {
        fprintf(stderr, " [%" PRIu64 ", %" PRIu64 ")", replayed.first, replayed.last + 1);
    }
    fputc('\n', stderr);
    return CLI_OK;
}

static const struct cli_option replay_options[] = {
    {"--partition", 0, CLI_U32, offsetof(struct replay_flags, partition),
     offsetof(struct replay_flags, has_partition), "P", "required"},
    {"--from", 0, CLI_U64, offsetof(struct replay_flags, from), CLI_UNMARKED, "O",
     "first offset (default 0)"},
    {"--to", 0, CLI_U64, offsetof(struct replay_flags, to), offsetof(struct replay_flags, has_to),
     "O", "stop below it (default: the high watermark)"},
    {"--raw", 0, CLI_FLAG, offsetof(struct replay_flags, raw), CLI_UNMARKED, NULL,
     "payloads only, a line end after each"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_replay = {
    .name = "replay",
    .arguments = "TOPIC",
    .summary = "Read records by offset; takes no lease and changes nothing.",
    .args_min = 1,
    .args_max = 1,
    .options = replay_options,
    .values_size = sizeof(struct replay_flags),
    .run = replay_run};
