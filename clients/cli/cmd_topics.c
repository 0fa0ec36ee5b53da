/* narad topics create|list|get|alter|delete */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clients/cli/commands.h"

struct topic_flags {
    uint32_t partitions, max_in_flight, max_acked_ahead, limit, partition;
    uint64_t retention_ms, visibility_ms;
    bool has_retention, has_max_in_flight, has_max_acked_ahead, has_partition;
    const char *page_token;
};

/* protobuf-c messages hold char *, but packing never writes to it. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

static void print_topic(const struct cli *cli, const Narad__V1__Topic *topic)
{
    if (cli->json) {
        cli_print_json(cli_topic_json(topic), false);
        return;
    }
    printf("%s: %u partitions, retention ", topic->name, topic->partitions);
    if (topic->retention_ms == 0) {
        printf("forever");
    } else {
        printf("%" PRIu64 " ms", topic->retention_ms);
    }
    printf(", visibility timeout %" PRIu64 " ms, in flight <= %u, acked ahead <= %u\n",
           topic->visibility_timeout_ms, topic->max_in_flight_per_partition,
           topic->max_acked_ahead_per_partition);
}

static int create_run(struct cli *cli)
{
    const struct topic_flags *flags = cli->values;
    Narad__V1__CreateTopicRequest request;
    Narad__V1__CreateTopicResponse *response = NULL;
    struct narad_error error;

    narad__v1__create_topic_request__init(&request);
    request.name = text(cli->args[0]);
    request.partitions = flags->partitions;
    if (flags->has_retention) {
        request.retention_choice_case =
            NARAD__V1__CREATE_TOPIC_REQUEST__RETENTION_CHOICE_RETENTION_MS;
        request.retention_ms = flags->retention_ms;
    }
    request.visibility_timeout_ms = flags->visibility_ms;
    request.max_in_flight_per_partition = flags->max_in_flight;
    request.max_acked_ahead_per_partition = flags->max_acked_ahead;
    int code = narad_create_topic(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("create topic", code, error.text);
    }
    print_topic(cli, response->topic);
    narad_response_free(response);
    return CLI_OK;
}

static const struct cli_option create_options[] = {
    {"--partitions", 0, CLI_U32, offsetof(struct topic_flags, partitions), CLI_UNMARKED, "N",
     "3 to the server's maximum (default: the server's)"},
    {"--retention-ms", 0, CLI_U64, offsetof(struct topic_flags, retention_ms),
     offsetof(struct topic_flags, has_retention), "MS", "0: keep forever, else at least 3600000"},
    {"--visibility-timeout-ms", 0, CLI_U64, offsetof(struct topic_flags, visibility_ms),
     CLI_UNMARKED, "MS", "how long a delivery stays leased"},
    {"--max-in-flight-per-partition", 0, CLI_U32, offsetof(struct topic_flags, max_in_flight),
     CLI_UNMARKED, "N", "leased at a time"},
    {"--max-acked-ahead-per-partition", 0, CLI_U32, offsetof(struct topic_flags, max_acked_ahead),
     CLI_UNMARKED, "N", "acked above a hole before only the hole is served"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_topics_create = {.name = "topics create",
                                              .arguments = "NAME",
                                              .summary = "Create a topic.",
                                              .args_min = 1,
                                              .args_max = 1,
                                              .options = create_options,
                                              .values_size = sizeof(struct topic_flags),
                                              .run = create_run};

static int list_run(struct cli *cli)
{
    const struct topic_flags *flags = cli->values;
    Narad__V1__ListTopicsRequest request;
    Narad__V1__ListTopicsResponse *response = NULL;
    struct narad_error error;

    narad__v1__list_topics_request__init(&request);
    request.limit = flags->limit;
    request.page_token = text(flags->page_token != NULL ? flags->page_token : "");
    int code = narad_list_topics(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("list topics", code, error.text);
    }
    if (cli->json) {
        json_t *topics = json_array();
        for (size_t i = 0; i < response->n_topics; i++) {
            json_array_append_new(topics, cli_topic_json(response->topics[i]));
        }
        cli_print_json(
            json_pack("{s:s, s:o}", "next_page_token", response->next_page_token, "topics", topics),
            false);
    } else {
        printf("%-40s %10s %16s %s\n", "NAME", "PARTITIONS", "RETENTION_MS", "ROLE");
        for (size_t i = 0; i < response->n_topics; i++) {
            const Narad__V1__Topic *topic = response->topics[i];
            printf("%-40s %10u %16" PRIu64 " %s\n", topic->name, topic->partitions,
                   topic->retention_ms, topic->role);
        }
        if (response->next_page_token[0] != '\0') {
            fprintf(stderr, "more follow: --page-token %s\n", response->next_page_token);
        }
    }
    narad_response_free(response);
    return CLI_OK;
}

static const struct cli_option list_options[] = {
    {"--limit", 0, CLI_U32, offsetof(struct topic_flags, limit), CLI_UNMARKED, "N",
     "topics a page (default 100, at most 1000)"},
    {"--page-token", 0, CLI_TEXT, offsetof(struct topic_flags, page_token), CLI_UNMARKED, "T",
     "names above this one"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_topics_list = {.name = "topics list",
                                            .arguments = "",
                                            .summary = "List topics in byte order of their names.",
                                            .args_min = 0,
                                            .args_max = 0,
                                            .options = list_options,
                                            .values_size = sizeof(struct topic_flags),
                                            .run = list_run};

static json_t *stats_json(const Narad__V1__PartitionStats *stats)
{
    json_t *json = json_object();

    json_object_set_new(json, "index", json_integer(stats->index));
    json_object_set_new(json, "segments", json_integer(stats->segments));
    json_object_set_new(json, "oldest_offset", json_integer((json_int_t)stats->oldest_offset));
    json_object_set_new(json, "next_offset", json_integer((json_int_t)stats->next_offset));
    json_object_set_new(json, "high_watermark", json_integer((json_int_t)stats->high_watermark));
    json_object_set_new(json, "frontier", json_integer((json_int_t)stats->frontier));
    json_object_set_new(json, "in_flight", json_integer(stats->in_flight));
    json_object_set_new(json, "acked_ahead", json_integer(stats->acked_ahead));
    json_object_set_new(json, "size_bytes", json_integer((json_int_t)stats->size_bytes));
    if (stats->oldest_segment_at != 0) {
        json_object_set_new(json, "oldest_segment_at", json_integer(stats->oldest_segment_at));
    }
    if (stats->owner_node[0] != '\0') {
        json_object_set_new(json, "owner_node", json_string(stats->owner_node));
    }
    json_object_set_new(json, "status", json_string(stats->status));
    return json;
}

static void print_details(const struct cli *cli, const Narad__V1__GetTopicResponse *response)
{
    if (cli->json) {
        json_t *json = cli_topic_json(response->topic);
        json_t *list = json_array();
        for (size_t i = 0; i < response->n_partition_stats; i++) {
            json_array_append_new(list, stats_json(response->partition_stats[i]));
        }
        json_object_set_new(json, "partition_stats", list);
        cli_print_json(json, false);
        return;
    }
    print_topic(cli, response->topic);
    printf("%9s %12s %12s %12s %12s %9s %8s %12s %s\n", "PARTITION", "OLDEST", "FRONTIER",
           "HIGH_WM", "NEXT", "IN_FLIGHT", "SEGMENTS", "BYTES", "OWNER");
    for (size_t i = 0; i < response->n_partition_stats; i++) {
        const Narad__V1__PartitionStats *s = response->partition_stats[i];
        printf("%9u %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %9u %8u %12" PRIu64
               " %s\n",
               s->index, s->oldest_offset, s->frontier, s->high_watermark, s->next_offset,
               s->in_flight, s->segments, s->size_bytes, s->owner_node);
    }
}

static int get_run(struct cli *cli)
{
    const struct topic_flags *flags = cli->values;
    Narad__V1__GetTopicRequest request;
    Narad__V1__GetTopicResponse *response = NULL;
    struct narad_error error;

    narad__v1__get_topic_request__init(&request);
    request.name = text(cli->args[0]);
    if (flags->has_partition) {
        request.partition_choice_case = NARAD__V1__GET_TOPIC_REQUEST__PARTITION_CHOICE_PARTITION;
        request.partition = flags->partition;
    }
    int code = narad_get_topic(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("get topic", code, error.text);
    }
    print_details(cli, response);
    narad_response_free(response);
    return CLI_OK;
}

static const struct cli_option get_options[] = {
    {"--partition", 0, CLI_U32, offsetof(struct topic_flags, partition),
     offsetof(struct topic_flags, has_partition), "P", "only this one's statistics"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_topics_get = {.name = "topics get",
                                           .arguments = "NAME",
                                           .summary = "Show a topic and its partitions.",
                                           .args_min = 1,
                                           .args_max = 1,
                                           .options = get_options,
                                           .values_size = sizeof(struct topic_flags),
                                           .run = get_run};

static int alter_run(struct cli *cli)
{
    const struct topic_flags *flags = cli->values;
    Narad__V1__AlterTopicRequest request;
    Narad__V1__AlterTopicResponse *response = NULL;
    struct narad_error error;

    narad__v1__alter_topic_request__init(&request);
    request.name = text(cli->args[0]);
    request.partitions = flags->partitions;
    if (flags->has_retention) {
        request.retention_choice_case =
            NARAD__V1__ALTER_TOPIC_REQUEST__RETENTION_CHOICE_RETENTION_MS;
        request.retention_ms = flags->retention_ms;
    }
    if (flags->has_max_in_flight) {
        request.max_in_flight_choice_case =
            NARAD__V1__ALTER_TOPIC_REQUEST__MAX_IN_FLIGHT_CHOICE_MAX_IN_FLIGHT_PER_PARTITION;
        request.max_in_flight_per_partition = flags->max_in_flight;
    }
    if (flags->has_max_acked_ahead) {
        request.max_acked_ahead_choice_case =
            NARAD__V1__ALTER_TOPIC_REQUEST__MAX_ACKED_AHEAD_CHOICE_MAX_ACKED_AHEAD_PER_PARTITION;
        request.max_acked_ahead_per_partition = flags->max_acked_ahead;
    }
    int code = narad_alter_topic(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("alter topic", code, error.text);
    }
    print_topic(cli, response->topic);
    narad_response_free(response);
    return CLI_OK;
}

static const struct cli_option alter_options[] = {
    {"--partitions", 0, CLI_U32, offsetof(struct topic_flags, partitions), CLI_UNMARKED, "N",
     "a greater count; keys map anew"},
    {"--retention-ms", 0, CLI_U64, offsetof(struct topic_flags, retention_ms),
     offsetof(struct topic_flags, has_retention), "MS", "0: keep forever, else at least 3600000"},
    {"--max-in-flight-per-partition", 0, CLI_U32, offsetof(struct topic_flags, max_in_flight),
     offsetof(struct topic_flags, has_max_in_flight), "N", "0: the server's default"},
    {"--max-acked-ahead-per-partition", 0, CLI_U32, offsetof(struct topic_flags, max_acked_ahead),
     offsetof(struct topic_flags, has_max_acked_ahead), "N", "0: the server's default"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_topics_alter = {.name = "topics alter",
                                             .arguments = "NAME",
                                             .summary = "Change a topic.",
                                             .args_min = 1,
                                             .args_max = 1,
                                             .options = alter_options,
                                             .values_size = sizeof(struct topic_flags),
                                             .run = alter_run};

static int delete_run(struct cli *cli)
{
    Narad__V1__DeleteTopicRequest request;
    Narad__V1__DeleteTopicResponse *response = NULL;
    struct narad_error error;

    narad__v1__delete_topic_request__init(&request);
    request.name = text(cli->args[0]);
    int code = narad_delete_topic(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("delete topic", code, error.text);
    }
    narad_response_free(response);
    cli_done(cli, json_pack("{s:s, s:b}", "name", cli->args[0], "deleted", 1), "deleted");
    return CLI_OK;
}

const struct cli_command cmd_topics_delete = {.name = "topics delete",
                                              .arguments = "NAME",
                                              .summary = "Delete a topic and all its messages.",
                                              .args_min = 1,
                                              .args_max = 1,
                                              .options = NULL,
                                              .run = delete_run};

static int metrics_run(struct cli *cli)
{
    Narad__V1__MetricsRequest request;
    Narad__V1__MetricsResponse *response = NULL;
    struct narad_error error;

    if (cli->json) {
        return cli_usage_error(cli, "--json: metrics are text in the form of Prometheus only");
    }
    narad__v1__metrics_request__init(&request);
    int code = narad_metrics(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("metrics", code, error.text);
    }
    fputs(response->text, stdout);
    narad_response_free(response);
    return CLI_OK;
}

const struct cli_command cmd_metrics = {.name = "metrics",
                                        .arguments = "",
                                        .summary = "Print the node's metrics.",
                                        .args_min = 0,
                                        .args_max = 0,
                                        .options = NULL,
                                        .run = metrics_run};
