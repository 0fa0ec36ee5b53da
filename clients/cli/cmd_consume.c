/* narad consume, narad ack */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/commands.h"

struct consume_flags {
    uint64_t wait_ms, offset;
    uint32_t partition, max;
    bool has_partition, has_offset, raw, ack;
};

static const struct consume_flags consume_defaults = {.max = 1};

struct ack_flags {
    const char *handle;
    bool extend, nack;
};

static void print_raw(const Narad__V1__Message *message)
{
    fwrite(message->payload.data, 1, message->payload.len, stdout);
    putchar('\n');
}

static void print_one(const struct cli *cli, const Narad__V1__Message *message)
{
    const struct consume_flags *flags = cli->values;
    if (cli->json) {
        cli_print_message_json(cli->args[0], message, false);
        return;
    }
    if (flags->raw) {
        print_raw(message);
    } else {
        cli_print_message(message);
    }
    if (message->receipt_handle[0] != '\0' && !flags->ack) {
        fprintf(stderr, "receipt handle: %s\n", message->receipt_handle);
    }
}

struct replayed {
    const struct cli *cli;
    bool found;
};

static bool on_replayed(void *data, const Narad__V1__Message *message)
{
    struct replayed *replayed = data;

    replayed->found = true;
    print_one(replayed->cli, message);
    return false;
}

static int replay_one(struct cli *cli)
{
    const struct consume_flags *flags = cli->values;
    Narad__V1__ReplayRequest request;
    struct narad_error error;
    struct replayed replayed = {.cli = cli};

    if (!flags->has_partition) {
        return cli_usage_error(cli, "--offset needs --partition");
    }
    narad__v1__replay_request__init(&request);
    request.topic = (char *)(uintptr_t)cli->args[0];
    request.partition = flags->partition;
    request.offset = flags->offset;
    request.max_messages = 1;
    int code = narad_replay(cli->client, &request, on_replayed, &replayed, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("consume", code, error.text);
    }
    return replayed.found ? CLI_OK : CLI_NOTHING;
}

static int ack_all(struct cli *cli, const Narad__V1__ConsumeResponse *consumed)
{
    Narad__V1__AckRequest request;
    Narad__V1__AckResponse *response = NULL;
    Narad__V1__Settle settles[1000];
    Narad__V1__Settle *pointers[1000];
    struct narad_error error;
    int result = CLI_OK;

    narad__v1__ack_request__init(&request);
    request.topic = (char *)(uintptr_t)cli->args[0];
    request.settles = pointers;
    for (; request.n_settles < consumed->n_messages && request.n_settles < 1000;
         request.n_settles++) {
        Narad__V1__Settle *settle = &settles[request.n_settles];
        narad__v1__settle__init(settle);
        settle->receipt_handle = consumed->messages[request.n_settles]->receipt_handle;
        pointers[request.n_settles] = settle;
    }
    int code = narad_ack(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("ack", code, error.text);
    }
    for (size_t i = 0; i < response->n_results; i++) {
        if (response->results[i]->code != NARAD_OK) {
            result =
                cli_fail_code("ack", (int)response->results[i]->code, response->results[i]->error);
        }
    }
    narad_response_free(response);
    return result;
}

static int consume_run(struct cli *cli)
{
    const struct consume_flags *flags = cli->values;
    Narad__V1__ConsumeRequest request;
    Narad__V1__ConsumeResponse *response = NULL;
    struct narad_error error;

    if (flags->has_offset) {
        return replay_one(cli);
    }
    if (flags->wait_ms >= cli->timeout_ms) {
        return cli_usage_error(cli, "--wait must be below --timeout (%" PRIu64 " ms)",
                               cli->timeout_ms);
    }
    narad__v1__consume_request__init(&request);
    request.topic = (char *)(uintptr_t)cli->args[0];
    request.max_messages = flags->max;
    request.wait_ms = (uint32_t)ND_MIN(flags->wait_ms, UINT32_MAX);
    if (flags->has_partition) {
        request.partition_choice_case = NARAD__V1__CONSUME_REQUEST__PARTITION_CHOICE_PARTITION;
        request.partition = flags->partition;
    }
    int code = narad_consume(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("consume", code, error.text);
    }
    for (size_t i = 0; i < response->n_messages; i++) {
        print_one(cli, response->messages[i]);
    }
    int result = response->n_messages > 0 ? CLI_OK : CLI_NOTHING;
    if (!cli_output_flush()) {
        result = CLI_FAILED; /* not acked: what was not printed comes again */
    } else if (result == CLI_OK && flags->ack) {
        result = ack_all(cli, response);
    }
    narad_response_free(response);
    return result;
}

static const struct cli_option consume_options[] = {
    {"--wait", 0, CLI_DURATION, offsetof(struct consume_flags, wait_ms), CLI_UNMARKED, "D",
     "wait for a message (default 0, at most 30s)"},
    {"--partition", 0, CLI_U32, offsetof(struct consume_flags, partition),
     offsetof(struct consume_flags, has_partition), "P", "this partition only"},
    {"--offset", 0, CLI_U64, offsetof(struct consume_flags, offset),
     offsetof(struct consume_flags, has_offset), "O",
     "replay this offset of --partition; takes no lease"},
    {"--max", 0, CLI_U32, offsetof(struct consume_flags, max), CLI_UNMARKED, "N",
     "up to N messages (default 1, at most 1000)"},
    {"--ack", 0, CLI_FLAG, offsetof(struct consume_flags, ack), CLI_UNMARKED, NULL,
     "ack what was printed"},
    {"--raw", 0, CLI_FLAG, offsetof(struct consume_flags, raw), CLI_UNMARKED, NULL,
     "payloads only, a line end after each"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_consume = {
    .name = "consume",
    .arguments = "TOPIC",
    .summary = "Take messages under a lease.",
    .details = "Without --ack the message comes again when its lease ends; the receipt handle for\n"
               "`narad ack` is on standard error, or in --json. Exit status 3: no message came.",
    .args_min = 1,
    .args_max = 1,
    .options = consume_options,
    .values_size = sizeof(struct consume_flags),
    .defaults = &consume_defaults,
    .run = consume_run};

/* The handle from --handle, or the first line of standard input. */
static const char *handle_get(const struct ack_flags *flags, char *line, size_t line_size)
{
    if (flags->handle != NULL) {
        return flags->handle;
    }
    if (fgets(line, (int)line_size, stdin) == NULL) {
        return NULL;
    }
    line[strcspn(line, "\r\n")] = '\0';
    return line;
}

static int ack_run(struct cli *cli)
{
    const struct ack_flags *flags = cli->values;
    Narad__V1__AckRequest request;
    Narad__V1__AckResponse *response = NULL;
    Narad__V1__Settle settle;
    Narad__V1__Settle *settles[] = {&settle};
    struct narad_error error;
    char line[256];
    const char *handle = handle_get(flags, line, sizeof line);

    if (flags->extend && flags->nack) {
        return cli_usage_error(cli, "--extend and --nack exclude each other");
    }
    if (handle == NULL || *handle == '\0') {
        return cli_usage_error(cli,
                               "no receipt handle: give --handle, or a line on standard input");
    }
    narad__v1__settle__init(&settle);
    settle.receipt_handle = (char *)(uintptr_t)handle;
    settle.action = flags->extend ? NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_EXTEND
                    : flags->nack ? NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_NACK
                                  : NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_ACK;
    narad__v1__ack_request__init(&request);
    request.topic = (char *)(uintptr_t)cli->args[0];
    request.settles = settles;
    request.n_settles = 1;
    int code = narad_ack(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("ack", code, error.text);
    }
    int result = CLI_OK;
    if (response->n_results != 1) {
        result = cli_fail("ack: the answer has no result");
    } else if (response->results[0]->code != NARAD_OK) {
        result = cli_fail_code("ack", (int)response->results[0]->code, response->results[0]->error);
    } else {
        const char *word = flags->extend ? "extended" : flags->nack ? "nacked" : "acked";
        cli_done(cli,
                 json_pack("{s:s, s:s, s:s}", "topic", cli->args[0], "receipt_handle", handle,
                           "outcome", word),
                 word);
    }
    narad_response_free(response);
    return result;
}

static const struct cli_option ack_options[] = {
    {"--handle", 0, CLI_TEXT, offsetof(struct ack_flags, handle), CLI_UNMARKED, "H",
     "receipt handle (default: a line of standard input)"},
    {"--extend", 0, CLI_FLAG, offsetof(struct ack_flags, extend), CLI_UNMARKED, NULL,
     "restart the lease instead"},
    {"--nack", 0, CLI_FLAG, offsetof(struct ack_flags, nack), CLI_UNMARKED, NULL,
     "give the message back instead"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_ack = {.name = "ack",
                                    .arguments = "TOPIC",
                                    .summary = "Settle a delivered message.",
                                    .args_min = 1,
                                    .args_max = 1,
                                    .options = ack_options,
                                    .values_size = sizeof(struct ack_flags),
                                    .run = ack_run};
