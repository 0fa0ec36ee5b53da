/* narad produce: one message, or a message a line, pipelined. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "clients/cli/commands.h"

enum { PAYLOAD_MAX = 1 << 20, BATCH_BYTES = 256 << 10 };

struct produce_flags {
    const char *key;
    uint32_t partition, batch;
    bool has_partition, lines;
    struct cli_texts headers;
};

static const struct produce_flags produce_defaults = {.batch = 1};

/* --- one record from the flags --- */

struct record_parts {
    Narad__V1__Header headers[64];
    Narad__V1__Header *header_pointers[64];
    char names[64][65];
    size_t headers_count;
    const struct produce_flags *flags;
};

static int parts_fill(const struct cli *cli, struct record_parts *parts)
{
    const struct produce_flags *flags = parts->flags;

    for (size_t i = 0; i < flags->headers.count; i++) {
        const char *text = flags->headers.items[i];
        const char *equals = strchr(text, '=');
        size_t size = equals != NULL ? (size_t)(equals - text) : 0;
        if (equals == NULL || size == 0 || size >= sizeof parts->names[i]) {
            return cli_usage_error(
                cli, "--header \"%s\": must be NAME=VALUE with a name of 1 to 64", text);
        }
        memcpy(parts->names[i], text, size);
        parts->names[i][size] = '\0';
        narad__v1__header__init(&parts->headers[i]);
        parts->headers[i].name = parts->names[i];
        parts->headers[i].value.len = strlen(equals + 1);
        parts->headers[i].value.data = (uint8_t *)(uintptr_t)(equals + 1);
        parts->header_pointers[i] = &parts->headers[i];
    }
    parts->headers_count = flags->headers.count;
    return CLI_OK;
}

static void record_fill(Narad__V1__Record *record, struct record_parts *parts)
{
    const struct produce_flags *flags = parts->flags;

    narad__v1__record__init(record);
    if (flags->key != NULL) {
        record->key.len = strlen(flags->key);
        record->key.data = (uint8_t *)(uintptr_t)flags->key;
    }
    if (flags->has_partition) {
        record->partition_choice_case = NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION;
        record->partition = flags->partition;
    }
    record->headers = parts->header_pointers;
    record->n_headers = parts->headers_count;
}

static int produce_one(struct cli *cli, struct record_parts *parts)
{
    Narad__V1__ProduceRequest request;
    Narad__V1__ProduceResponse *response = NULL;
    Narad__V1__Record record;
    Narad__V1__Record *records[] = {&record};
    struct narad_error error;
    uint8_t *payload;
    size_t size;

    if (!cli_read_file(cli->args_count > 1 ? cli->args[1] : "-", PAYLOAD_MAX, &payload, &size)) {
        return CLI_FAILED;
    }
    record_fill(&record, parts);
    record.payload.data = payload;
    record.payload.len = size;
    narad__v1__produce_request__init(&request);
    request.topic = (char *)(uintptr_t)cli->args[0];
    request.records = records;
    request.n_records = 1;
    int code = narad_produce(cli->client, &request, &response, &error);
    nd_free(payload);
    if (code != NARAD_OK) {
        return cli_fail_code("produce", code, error.text);
    }
    if (cli->json) {
        json_t *json = json_pack("{s:i}", "accepted", 1);
        if (response->n_placements == 1) {
            json_object_set_new(json, "partition",
                                json_integer(response->placements[0]->partition));
            json_object_set_new(json, "offset",
                                json_integer((json_int_t)response->placements[0]->offset));
        }
        cli_print_json(json, true);
    } else {
        fprintf(stderr, "accepted (%zu bytes)\n", size);
    }
    narad_response_free(response);
    return CLI_OK;
}

/* --- lines --- */

/* Counts change on the client's thread and are read here. */
struct tally {
    _Atomic uint64_t confirmed, failed; /* records */
    _Atomic bool stop;
    uint64_t first_failed; /* the least line of them; 0: none */
    char text[512];        /* of the first failure; written once before failed rises from 0 */
    int code;
};

struct sent_batch {
    struct tally *tally;
    uint64_t line; /* of its first record, from 1 */
    uint32_t records;
};

static void on_produced(void *data, int code, const char *text,
                        Narad__V1__Placement *const *placements, size_t placements_count)
{
    struct sent_batch *batch = data;
    struct tally *tally = batch->tally;

    (void)placements;
    (void)placements_count;
    if (code == NARAD_OK) {
        atomic_fetch_add(&tally->confirmed, batch->records);
    } else {
        if (atomic_load(&tally->failed) == 0) {
            tally->code = code;
            snprintf(tally->text, sizeof tally->text, "%s", text);
        }
        if (tally->first_failed == 0 || batch->line < tally->first_failed) {
            tally->first_failed = batch->line;
        }
        atomic_fetch_add(&tally->failed, batch->records);
        atomic_store(&tally->stop, true);
    }
    nd_free(batch);
}

struct gathering {
    Narad__V1__Record records[1000];
    Narad__V1__Record *pointers[1000];
    uint8_t *bytes;
    size_t used;
    uint64_t line; /* of the first */
    uint32_t count;
};

static int batch_send(struct cli *cli, struct gathering *g, struct tally *tally)
{
    if (g->count == 0) {
        return NARAD_OK;
    }
    struct sent_batch *batch = nd_xmalloc(sizeof *batch);
    *batch = (struct sent_batch){tally, g->line, g->count};
    int code =
        narad_produce_async(cli->client, cli->args[0], g->pointers, g->count, on_produced, batch);
    if (code != NARAD_OK) {
        nd_free(batch);
    }
    g->count = 0;
    g->used = 0;
    return code;
}

static void line_add(struct gathering *g, struct record_parts *parts, const char *line, size_t size)
{
    Narad__V1__Record *record = &g->records[g->count];

    record_fill(record, parts);
    record->payload.data = memcpy(g->bytes + g->used, line, size);
    record->payload.len = size;
    g->pointers[g->count++] = record;
    g->used += size;
}

struct lines_result {
    uint64_t read, skipped;
    int code; /* of sending */
    bool broken_input;
};

/* Read lines and send them until the input ends, something fails, or the user interrupts. */
static void lines_send(struct cli *cli, FILE *in, struct record_parts *parts, struct tally *tally,
                       struct lines_result *result)
{
    struct gathering *g = nd_xcalloc(1, sizeof *g);
    struct cli_progress progress = {0};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;

    g->bytes = nd_xmalloc(BATCH_BYTES + PAYLOAD_MAX + 1);
    while (result->code == NARAD_OK && !atomic_load(&tally->stop) && !cli_interrupted() &&
           (size = getline(&line, &capacity, in)) >= 0) {
        if (size > 0 && line[size - 1] == '\n') {
            size -= 1;
        }
        if (size == 0) {
            result->skipped += 1; /* an empty payload cannot be stored */
            continue;
        }
        if (size > PAYLOAD_MAX) {
            cli_fail("line %" PRIu64 " has more than %d bytes", result->read + result->skipped + 1,
                     PAYLOAD_MAX);
            result->broken_input = true;
            break;
        }
        result->read += 1;
        g->line = g->count == 0 ? result->read + result->skipped : g->line;
        line_add(g, parts, line, (size_t)size);
        if (g->count == parts->flags->batch || g->used >= BATCH_BYTES) {
            result->code = batch_send(cli, g, tally);
        }
        cli_progress(&progress, "%" PRIu64 " sent, %" PRIu64 " confirmed", result->read,
                     atomic_load(&tally->confirmed));
    }
    if (result->code == NARAD_OK && !atomic_load(&tally->stop)) {
        result->code = batch_send(cli, g, tally);
    }
    if (ferror(in) && !cli_interrupted()) {
        cli_fail("%s: %s", cli->args_count > 1 ? cli->args[1] : "standard input", strerror(errno));
        result->broken_input = true;
    }
    cli_progress_end(&progress);
    free(line);
    nd_free(g->bytes);
    nd_free(g);
}

static int lines_report(const struct cli *cli, const struct tally *tally,
                        const struct lines_result *result, uint64_t took_ns)
{
    uint64_t confirmed = atomic_load(&tally->confirmed);
    double seconds = (double)took_ns / 1e9;
    bool whole = confirmed == result->read && !result->broken_input && !cli_interrupted();

    if (cli->json) {
        cli_print_json(json_pack("{s:I, s:I, s:I, s:f, s:f}", "read", (json_int_t)result->read,
                                 "confirmed", (json_int_t)confirmed, "empty_lines_skipped",
                                 (json_int_t)result->skipped, "seconds", seconds, "per_s",
                                 seconds > 0 ? (double)confirmed / seconds : 0.0),
                       true);
    } else {
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " lines confirmed in %.3f s (%.0f/s)\n",
                confirmed, result->read, seconds, seconds > 0 ? (double)confirmed / seconds : 0.0);
        if (result->skipped > 0) {
            fprintf(stderr, "%" PRIu64 " empty lines skipped\n", result->skipped);
        }
    }
    if (atomic_load(&tally->failed) > 0) {
        return cli_fail("produce: %s: %s (line %" PRIu64 " is the first that is not confirmed)",
                        narad_code_name(tally->code), tally->text, tally->first_failed);
    }
    if (cli_interrupted()) {
        return cli_fail("produce: interrupted after line %" PRIu64, result->read + result->skipped);
    }
    if (result->code != NARAD_OK) {
        return cli_fail("produce: %s", narad_code_name(result->code));
    }
    if (confirmed < result->read && !result->broken_input) {
        return cli_fail("produce: %" PRIu64 " lines have no answer", result->read - confirmed);
    }
    return whole ? CLI_OK : CLI_FAILED;
}

static int produce_lines(struct cli *cli, struct record_parts *parts)
{
    const char *path = cli->args_count > 1 ? cli->args[1] : "-";
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    struct tally *tally = nd_xcalloc(1, sizeof *tally);
    struct lines_result result = {.code = NARAD_OK};

    if (in == NULL) {
        nd_free(tally);
        return cli_fail("%s: %s", path, strerror(errno));
    }
    cli_catch_signals();
    uint64_t start = cli_now_ns();
    lines_send(cli, in, parts, tally, &result);
    narad_flush(cli->client, (uint32_t)ND_MIN(cli->timeout_ms, UINT32_MAX - 1));
    int exit_code = lines_report(cli, tally, &result, cli_now_ns() - start);
    if (in != stdin) {
        fclose(in);
    }
    if (narad_flush(cli->client, 0)) {
        nd_free(tally);
    } /* else callbacks may still use it: the process ends soon */
    return exit_code;
}

static int produce_run(struct cli *cli)
{
    const struct produce_flags *flags = cli->values;

    if (flags->batch < 1 || flags->batch > 1000) {
        return cli_usage_error(cli, "--batch %u: must be 1 to 1000", flags->batch);
    }
    struct record_parts *parts = nd_xcalloc(1, sizeof *parts);
    parts->flags = flags;
    int result = parts_fill(cli, parts);
    if (result == CLI_OK) {
        result = flags->lines ? produce_lines(cli, parts) : produce_one(cli, parts);
    }
    nd_free(parts);
    return result;
}

static const struct cli_option options[] = {
    {"--key", 'k', CLI_TEXT, offsetof(struct produce_flags, key), CLI_UNMARKED, "K",
     "partition key (default: none, spread)"},
    {"--partition", 0, CLI_U32, offsetof(struct produce_flags, partition),
     offsetof(struct produce_flags, has_partition), "P", "this partition"},
    {"--header", 0, CLI_REPEAT, offsetof(struct produce_flags, headers), CLI_UNMARKED, "NAME=VALUE",
     "may be given many times"},
    {"--lines", 0, CLI_FLAG, offsetof(struct produce_flags, lines), CLI_UNMARKED, NULL,
     "a message a line, pipelined"},
    {"--batch", 0, CLI_U32, offsetof(struct produce_flags, batch), CLI_UNMARKED, "N",
     "with --lines: records stored all or none (default 1)"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_produce = {
    .name = "produce",
    .arguments = "TOPIC [FILE]",
    .summary = "Store a message, or one a line.",
    .details =
        "The message is FILE, or standard input. It is confirmed when it is on the node's disk.\n"
        "With --lines every line is a message of its own (without its line end; empty lines are\n"
        "skipped). When the connection breaks, the command says how many were confirmed; those "
        "that\n"
        "were under way then may or may not have been stored.",
    .args_min = 1,
    .args_max = 2,
    .options = options,
    .values_size = sizeof(struct produce_flags),
    .defaults = &produce_defaults,
    .run = produce_run};
