/* narad bench MODE: options, the table of modes, the report. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "clients/c/src/basic.h"
#include "clients/cli/bench.h"
#include "clients/cli/commands.h"

static const struct mode {
    const char *name;
    int (*run)(struct bench *bench);
    uint32_t in_flight, batch; /* defaults */
    bool needs_topic, fills;
    const char *help;
} modes[] = {
    {"produce-unary", bench_unary, 64, 1, true, false, "a Produce call a message"},
    {"produce-stream", bench_stream, 1024, 1, true, false,
     "messages on one ProduceStream, each confirmed"},
    {"produce-batch", bench_stream, 16, 100, true, false, "batches on one ProduceStream"},
    {"consume-unary", bench_consume_unary, 64, 1, true, true, "Consume, then Ack, a call each"},
    {"consume-stream", bench_consume_stream, 1024, 1, true, true,
     "Subscribe with acks on the stream"},
    {"latency", bench_latency, 1, 1, true, false, "a lone message, from produce to delivery"},
    {"rpc-unary", bench_unary, 64, 1, false, false, "as produce-unary, nothing is stored"},
    {"rpc-stream", bench_stream, 1024, 1, false, false, "as produce-stream, nothing is stored"},
    {"rpc-batch", bench_stream, 16, 100, false, false, "as produce-batch, nothing is stored"},
    {"disk", bench_disk, 1, 1, false, false, "write + fdatasync in --dir, no node"},
};

struct bench_flags {
    const char *topic, *dir;
    uint32_t in_flight, batch, payload;
    uint64_t seconds;
    bool has_payload;
};

static const struct bench_flags bench_defaults = {.payload = 256, .seconds = 5};

/* 32 buckets for each power of two. */
static uint32_t bucket_of(uint64_t ns)
{
    if (ns < 32) {
        return (uint32_t)ns;
    }
    uint32_t power = 63 - (uint32_t)__builtin_clzll(ns);
    return power * 32 + (uint32_t)(ns >> (power - 5) & 31);
}

void bench_hist_add(struct bench_hist *hist, uint64_t ns)
{
    hist->counts[bucket_of(ns)] += 1;
    hist->total += 1;
}

double bench_hist_us(const struct bench_hist *hist, double share)
{
    uint64_t wanted = (uint64_t)((double)hist->total * share);
    uint64_t seen = 0;

    for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
        seen += hist->counts[i];
        if (hist->counts[i] > 0 && seen > wanted) {
            uint32_t power = i / 32;
            double ns = power < 5 ? (double)i : (double)((32 + (uint64_t)(i % 32)) << (power - 5));
            return ns / 1000.0;
        }
    }
    return 0.0;
}

void bench_error(struct bench *bench, const char *text)
{
    if (bench->errors++ == 0) {
        snprintf(bench->error_text, sizeof bench->error_text, "%s", text);
    }
}

void bench_finish(struct bench *bench)
{
    nd_mutex_lock(&bench->lock);
    if (bench->ended_ns == 0) {
        bench->ended_ns = cli_now_ns();
    }
    bench->finished = true;
    nd_cond_broadcast(&bench->changed);
    nd_mutex_unlock(&bench->lock);
}

void bench_wait(struct bench *bench)
{
    struct cli_progress progress = {0};

    nd_mutex_lock(&bench->lock);
    while (!bench->finished) {
        nd_cond_wait_until(&bench->changed, &bench->lock, cli_now_ns() + 200000000u);
        cli_progress(&progress, "%s: %.1f s", bench->mode,
                     (double)(cli_now_ns() - bench->started_ns) / 1e9);
    }
    nd_mutex_unlock(&bench->lock);
    cli_progress_end(&progress);
}

Narad__V1__Record **bench_records(const struct bench *bench, uint32_t count)
{
    Narad__V1__Record **pointers =
        nd_xmalloc(count * (sizeof(Narad__V1__Record *) + sizeof(Narad__V1__Record)));
    Narad__V1__Record *records = (Narad__V1__Record *)(void *)(pointers + count);

    for (uint32_t i = 0; i < count; i++) {
        narad__v1__record__init(&records[i]);
        records[i].payload.data = bench->payload;
        records[i].payload.len = bench->payload_bytes;
        pointers[i] = &records[i];
    }
    return pointers;
}

static int topic_make(struct bench *bench)
{
    Narad__V1__CreateTopicRequest request;
    Narad__V1__CreateTopicResponse *response = NULL;
    struct narad_error error;

    narad__v1__create_topic_request__init(&request);
    request.name = (char *)(uintptr_t)bench->topic;
    int code = narad_create_topic(bench->cli->client, &request, &response, &error);
    narad_response_free(response);
    return code == NARAD_OK || code == NARAD_ALREADY_EXISTS
               ? CLI_OK
               : cli_fail_code("create topic", code, error.text);
}

bool bench_refused(struct bench *bench, const struct nd_rpc_status *status)
{
    bench->refused = bench->refused || status->code == NARAD_UNIMPLEMENTED;
    return bench->refused;
}

static int report(const struct bench *bench)
{
    double seconds = (double)(ND_MIN(bench->ended_ns, bench->stop_ns) - bench->started_ns) / 1e9;
    double per_s = seconds > 0 ? (double)bench->messages / seconds : 0.0;
    double mb_s = per_s * bench->payload_bytes / 1e6;
    double p50 = bench_hist_us(&bench->hist, 0.50);
    double p99 = bench_hist_us(&bench->hist, 0.99);

    if (bench->refused) {
        return cli_fail("%s: the node does not offer it; was it started with --dev?", bench->mode);
    }
    if (bench->messages == 0 && bench->errors == 0) {
        return cli_fail("%s: nothing was measured in %.1f s; has topic %s a backlog?", bench->mode,
                        seconds, bench->topic);
    }
    if (bench->cli->json) {
        cli_print_json(json_pack("{s:s, s:i, s:i, s:i, s:I, s:f, s:f, s:f, s:f, s:I}", "mode",
                                 bench->mode, "in_flight", (int)bench->in_flight, "batch",
                                 (int)bench->batch, "payload", (int)bench->payload_bytes, "count",
                                 (json_int_t)bench->messages, "per_s", per_s, "mb_s", mb_s,
                                 "p50_us", p50, "p99_us", p99, "errors", (json_int_t)bench->errors),
                       true);
    } else {
        printf("%-15s in flight %-5u batch %-4u payload %-7u %12" PRIu64 " messages %11.0f/s "
               "%8.1f MB/s  p50 %9.1f us  p99 %9.1f us  errors %" PRIu64 "\n",
               bench->mode, bench->in_flight, bench->batch, bench->payload_bytes, bench->messages,
               per_s, mb_s, p50, p99, bench->errors);
    }
    return bench->errors == 0 ? CLI_OK : cli_fail("%s: %s", bench->mode, bench->error_text);
}

void bench_alone(struct bench *bench)
{
    narad_client_free(bench->cli->client);
    bench->cli->client = NULL;
}

/* Where the library's client leads, and as the same user. */
static enum nd_err bench_connect(struct bench *bench, struct nd_errmsg *msg)
{
    const struct cli_target *target = bench->cli->target;
    char *basic = target->user != NULL ? basic_new(target->user, target->password) : NULL;
    struct nd_rpc_metadata authorization = {"authorization", basic};
    struct nd_rpc_channel_options options = {
        .target = narad_client_server(bench->cli->client),
        .metadata = &authorization,
        .metadata_count = basic != NULL ? 1 : 0,
        .tls = target->tls,
        .tls_ca_file = target->ca_file,
        .tls_cert_file = target->cert_file,
        .tls_key_file = target->key_file,
        .tls_server_name = target->tls_server_name,
    };
    enum nd_err err = nd_rpc_channel_new(&bench->channel, &options, msg);

    basic_free(basic);
    return err;
}

static int bench_run_mode(struct bench *bench, const struct mode *mode)
{
    struct nd_errmsg msg = {""};
    if (mode->run != bench_disk && cli_node_ask(bench->cli, mode->name) != CLI_OK) {
        return CLI_FAILED;
    }
    if (mode->needs_topic && topic_make(bench) != CLI_OK) {
        return CLI_FAILED;
    }
    if (bench_connect(bench, &msg) != ND_OK) {
        return cli_fail("%s", msg.text);
    }
    if (!mode->fills) {
        bench_alone(bench);
    }
    bench->started_ns = cli_now_ns();
    bench->stop_ns = bench->started_ns + bench->seconds_ms * 1000000u;
    int result = mode->run(bench);
    if (bench->channel != NULL) {
        nd_rpc_channel_free(bench->channel);
    }
    return result == CLI_OK ? report(bench) : result;
}

static int bench_run(struct cli *cli)
{
    const struct bench_flags *flags = cli->values;
    const struct mode *mode = NULL;

    for (size_t i = 0; i < ND_ARRAY_SIZE(modes); i++) {
        mode = strcmp(modes[i].name, cli->args[0]) == 0 ? &modes[i] : mode;
    }
    if (mode == NULL) {
        return cli_usage_error(cli, "unknown mode \"%s\"", cli->args[0]);
    }
    uint32_t batch = flags->batch != 0 ? flags->batch : mode->batch;
    uint32_t in_flight = flags->in_flight != 0 ? flags->in_flight : mode->in_flight;
    bool disk = mode->run == bench_disk;
    if (batch > 1000 || in_flight > 65536 || flags->seconds < 1 || flags->seconds > 86400 ||
        flags->payload < 1 || flags->payload > (disk ? 64u << 20 : 1u << 20)) {
        return cli_usage_error(cli,
                               "--batch must be 1 to 1000, --in-flight 1 to 65536, --seconds 1 "
                               "to 86400, --payload 1 to 1048576");
    }
    if (disk && flags->dir == NULL) {
        return cli_usage_error(cli, "disk needs --dir");
    }
    struct bench *bench = nd_xcalloc(1, sizeof *bench);
    bench->cli = cli;
    bench->mode = mode->name;
    /* A backlog would stand before the lone message. */
    const char *topic = mode->run == bench_latency ? "bench-latency" : "bench";
    bench->topic = flags->topic != NULL ? flags->topic : topic;
    bench->dir = flags->dir;
    bench->in_flight = in_flight;
    bench->batch = batch;
    bench->payload_bytes = disk && !flags->has_payload ? 4096 : flags->payload;
    bench->seconds_ms = flags->seconds * 1000;
    bench->payload = nd_xmalloc(bench->payload_bytes);
    memset(bench->payload, 'x', bench->payload_bytes);
    nd_mutex_init(&bench->lock);
    nd_cond_init(&bench->changed);
    int result = bench_run_mode(bench, mode);
    nd_cond_release(&bench->changed);
    nd_mutex_release(&bench->lock);
    nd_free(bench->payload);
    nd_free(bench);
    return result;
}

static const struct cli_option options[] = {
    {"--topic", 0, CLI_TEXT, offsetof(struct bench_flags, topic), CLI_UNMARKED, "T",
     "made when missing (default bench; latency: bench-latency)"},
    {"--payload", 0, CLI_U32, offsetof(struct bench_flags, payload),
     offsetof(struct bench_flags, has_payload), "BYTES",
     "of a message (default 256; disk: of a write, 4096)"},
    {"--in-flight", 0, CLI_U32, offsetof(struct bench_flags, in_flight), CLI_UNMARKED, "N",
     "unconfirmed at a time (default: the mode's)"},
    {"--batch", 0, CLI_U32, offsetof(struct bench_flags, batch), CLI_UNMARKED, "N",
     "records stored all or none (default: the mode's)"},
    {"--seconds", 0, CLI_U64, offsetof(struct bench_flags, seconds), CLI_UNMARKED, "S",
     "length of the run (default 5)"},
    {"--dir", 0, CLI_TEXT, offsetof(struct bench_flags, dir), CLI_UNMARKED, "DIR", "for disk"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_bench = {
    .name = "bench",
    .arguments = "MODE",
    .summary = "Measure a node, or the disk below it.",
    .details =
        "Modes:\n"
        "  produce-unary    a Produce call a message\n"
        "  produce-stream   messages on one ProduceStream, each confirmed\n"
        "  produce-batch    batches on one ProduceStream\n"
        "  consume-unary    Consume, then Ack, a call each (the topic is filled first)\n"
        "  consume-stream   Subscribe with acks on the stream (the topic is filled first)\n"
        "  latency          a lone message, from produce to delivery to a waiting subscriber\n"
        "  rpc-unary, rpc-stream, rpc-batch   the same messages, nothing is stored (node with "
        "--dev)\n"
        "  disk             write + fdatasync in --dir; no node is asked",
    .args_min = 1,
    .args_max = 1,
    .options = options,
    .values_size = sizeof(struct bench_flags),
    .defaults = &bench_defaults,
    .run = bench_run};
