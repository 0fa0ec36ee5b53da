/* narad sub: a subscription that prints and acks; narad replay: records by offset. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

#include "clients/cli/commands.h"

static struct {
    uint32_t partition, outstanding;
    uint64_t count, idle_ms, from, to;
    bool has_partition, no_ack, raw, has_to;
} flags;

/* --- sub --- */

struct session {
    struct cli *cli;
    struct nd_mutex lock;
    struct nd_cond changed;
    uint64_t received, settled, refused;
    uint64_t last_ns; /* a message came */
    uint64_t busy_ns; /* a message or the outcome of an ack came */
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
    } else {
        session->refused += 1;
        snprintf(session->text, sizeof session->text, "%s", text);
    }
    nd_cond_signal(&session->changed);
    nd_mutex_unlock(&session->lock);
}

static void message_print(const struct cli *cli, const Narad__V1__Message *message)
{
    if (cli->json) {
        cli_print_json(cli_message_json(cli->args[0], message), true);
    } else if (flags.raw) {
        fwrite(message->payload.data, 1, message->payload.len, stdout);
        putchar('\n');
    } else {
        cli_print_message(message);
    }
}

static void on_message(void *data, struct narad_subscription *subscription,
                       const Narad__V1__Message *message)
{
    struct session *session = data;

    nd_mutex_lock(&session->lock);
    bool wanted = flags.count == 0 || session->received < flags.count;
    session->received += wanted ? 1 : 0;
    session->last_ns = session->busy_ns = cli_now_ns();
    nd_cond_signal(&session->changed);
    nd_mutex_unlock(&session->lock);
    if (!wanted) {
        return; /* its lease ends with the stream */
    }
    message_print(session->cli, message);
    cli_progress(&session->progress, "%" PRIu64 " messages", session->received);
    if (!flags.no_ack) {
        narad_subscription_settle(subscription, message->receipt_handle,
                                  NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_ACK, on_settled, session);
    }
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
    uint64_t outcomes = session->settled + session->refused;
    bool settled = flags.no_ack || outcomes == session->received;
    bool counted = flags.count > 0 && session->received >= flags.count && settled;
    bool idle =
        flags.idle_ms > 0 && settled && cli_now_ns() - session->last_ns >= flags.idle_ms * 1000000u;

    return session->ended || counted || idle || cli_interrupted();
}

static int session_report(const struct session *session, uint64_t took_ns)
{
    double seconds = (double)took_ns / 1e9;

    fprintf(stderr, "%" PRIu64 " messages, %" PRIu64 " acked in %.3f s (%.0f/s)\n",
            session->received, session->settled, seconds,
            seconds > 0 ? (double)session->received / seconds : 0.0);
    if (session->code != NARAD_OK) {
        return cli_fail_code("sub", session->code, session->text);
    }
    if (session->refused > 0) {
        return cli_fail("sub: %" PRIu64 " acks were not taken: %s", session->refused,
                        session->text);
    }
    bool missing = flags.count > 0 && session->received < flags.count && !cli_interrupted();
    return missing ? cli_fail("sub: %" PRIu64 " of %" PRIu64 " messages came", session->received,
                              flags.count)
                   : CLI_OK;
}

static int sub_run(struct cli *cli)
{
    struct session session = {.cli = cli, .last_ns = cli_now_ns()};
    struct narad_subscription *subscription = NULL;
    struct narad_error error;
    struct narad_subscription_options options = {
        .topic = cli->args[0],
        .max_outstanding = flags.outstanding,
        .partition = flags.has_partition ? (int32_t)ND_MIN(flags.partition, INT32_MAX) : -1,
        .message = on_message,
        .ended = on_ended,
        .data = &session,
    };

    nd_mutex_init(&session.lock);
    nd_cond_init(&session.changed);
    cli_catch_signals();
    uint64_t start = cli_now_ns();
    int code = narad_subscribe(cli->client, &options, &subscription, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("sub", code, error.text);
    }
    nd_mutex_lock(&session.lock);
    while (!enough(&session)) {
        /* Signals do not signal a condition, so look at them ten times a second. */
        nd_cond_wait_until(&session.changed, &session.lock, cli_now_ns() + 100000000u);
        if (!flags.raw && !cli->json) {
            fflush(stdout);
        }
    }
    bool ended = session.ended;
    /* Waiting for --idle is no work. */
    uint64_t took = session.busy_ns > start ? session.busy_ns - start : 0;
    nd_mutex_unlock(&session.lock);
    if (!ended) {
        narad_subscription_close(subscription);
        nd_mutex_lock(&session.lock);
        while (!session.ended) {
            nd_cond_wait(&session.changed, &session.lock);
        }
        nd_mutex_unlock(&session.lock);
    }
    cli_progress_end(&session.progress);
    fflush(stdout);
    int result = session_report(&session, took);
    nd_cond_release(&session.changed);
    nd_mutex_release(&session.lock);
    return result;
}

static struct cli_option sub_options[] = {
    {"--partition", 0, CLI_U32, &flags.partition, &flags.has_partition, "P", "this partition only"},
    {"--count", 'n', CLI_U64, &flags.count, NULL, "N", "end after N messages"},
    {"--idle", 0, CLI_DURATION, &flags.idle_ms, NULL, "D", "end when none came for so long"},
    {"--max-outstanding", 0, CLI_U32, &flags.outstanding, NULL, "N",
     "delivered and not acked (default 256)"},
    {"--no-ack", 0, CLI_FLAG, &flags.no_ack, NULL, NULL, "print only; the messages come again"},
    {"--raw", 0, CLI_FLAG, &flags.raw, NULL, NULL, "payloads only, a line end after each"},
    {NULL, 0, CLI_FLAG, NULL, NULL, NULL, NULL},
};

const struct cli_command cmd_sub = {.name = "sub",
                                    .arguments = "TOPIC",
                                    .summary =
                                        "Subscribe: print messages as they come, and ack them.",
                                    .details = "Runs until --count, --idle or an interrupt. Every "
                                               "ack is confirmed when it is on the node's\n"
                                               "disk; the command fails when one was not taken.",
                                    .args_min = 1,
                                    .args_max = 1,
                                    .options = sub_options,
                                    .run = sub_run};

/* --- replay --- */

struct replayed {
    const struct cli *cli;
    uint64_t count, last;
};

static bool on_replayed(void *data, const Narad__V1__Message *message)
{
    struct replayed *replayed = data;

    message_print(replayed->cli, message);
    replayed->count += 1;
    replayed->last = message->offset;
    return !cli_interrupted();
}

static int replay_run(struct cli *cli)
{
    Narad__V1__ReplayRequest request;
    struct narad_error error;
    struct replayed replayed = {.cli = cli};

    if (!flags.has_partition) {
        return cli_usage_error(cli, "--partition is required");
    }
    if (flags.has_to && flags.to <= flags.from) {
        return cli_usage_error(cli, "--to must be greater than --from");
    }
    cli_catch_signals();
    narad__v1__replay_request__init(&request);
    request.topic = (char *)(uintptr_t)cli->args[0];
    request.partition = flags.partition;
    request.offset = flags.from;
    request.max_messages = flags.has_to ? flags.to - flags.from : 0;
    int code = narad_replay(cli->client, &request, on_replayed, &replayed, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("replay", code, error.text);
    }
    fprintf(stderr, "%" PRIu64 " message(s) replayed from p%u", replayed.count, flags.partition);
    if (replayed.count > 0) {
        fprintf(stderr, " [%" PRIu64 ", %" PRIu64 ")", flags.from, replayed.last + 1);
    }
    fputc('\n', stderr);
    return CLI_OK;
}

static struct cli_option replay_options[] = {
    {"--partition", 0, CLI_U32, &flags.partition, &flags.has_partition, "P", "required"},
    {"--from", 0, CLI_U64, &flags.from, NULL, "O", "first offset (default 0)"},
    {"--to", 0, CLI_U64, &flags.to, &flags.has_to, "O",
     "stop below it (default: the high watermark)"},
    {"--raw", 0, CLI_FLAG, &flags.raw, NULL, NULL, "payloads only, a line end after each"},
    {NULL, 0, CLI_FLAG, NULL, NULL, NULL, NULL},
};

const struct cli_command cmd_replay = {
    .name = "replay",
    .arguments = "TOPIC",
    .summary = "Read records by offset; takes no lease and changes nothing.",
    .args_min = 1,
    .args_max = 1,
    .options = replay_options,
    .run = replay_run};
