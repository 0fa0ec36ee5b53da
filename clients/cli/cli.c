/* The table of commands, the command line, and help. */
#include "clients/cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/duration.h"

#include "clients/cli/commands.h"

static const struct cli_command *const commands[] = {
    &cmd_topics_create, &cmd_topics_list, &cmd_topics_get, &cmd_topics_alter,
    &cmd_topics_delete, &cmd_produce,     &cmd_consume,    &cmd_ack,
    &cmd_sub,           &cmd_replay,      &cmd_bench,      &cmd_metrics,
};

uint64_t cli_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int cli_fail(const char *format, ...)
{
    va_list args;

    fputs("narad: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return CLI_FAILED;
}

int cli_usage_error(const struct cli *cli, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "narad: %s: ", cli->command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; see `narad %s --help`\n", cli->command);
    return CLI_FAILED;
}

int cli_fail_code(const char *doing, int code, const char *text)
{
    return cli_fail("%s: %s: %s", doing, narad_code_name(code), text);
}

static volatile sig_atomic_t interrupted;

static void on_signal(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void cli_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

/* --- options --- */

static void option_help(const struct cli_option *option)
{
    char left[64];

    snprintf(left, sizeof left, "%s%s%s", option->name, option->kind == CLI_FLAG ? "" : " ",
             option->kind == CLI_FLAG ? "" : option->what);
    printf("  %-36s %s\n", left, option->help);
}

static void command_help(const struct cli_command *command, const struct cli_option *common)
{
    printf("Usage: narad %s [options] %s\n\n%s\n", command->name, command->arguments,
           command->summary);
    if (command->details != NULL) {
        printf("\n%s\n", command->details);
    }
    if (command->options != NULL) {
        printf("\nOptions:\n");
        for (const struct cli_option *o = command->options; o->name != NULL; o++) {
            option_help(o);
        }
    }
    printf("\nCommon options:\n");
    for (const struct cli_option *o = common; o->name != NULL; o++) {
        option_help(o);
    }
    printf("\nExit status: 0 done, 1 wrong usage, refused or not done in whole.\n");
}

static bool number_parse(const char *text, uint64_t max, uint64_t *out)
{
    char *end = NULL;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value > max) {
        return false;
    }
    *out = value;
    return true;
}

/* Returns what is allowed when `text` is not, else NULL. */
static const char *option_put(const struct cli_option *option, uint8_t *values, const char *text)
{
    void *value = values + option->value;
    uint64_t number = 0;

    switch (option->kind) {
    case CLI_FLAG: *(bool *)value = true; break;
    case CLI_TEXT: *(const char **)value = text; break;
    case CLI_U32:
        if (!number_parse(text, UINT32_MAX, &number)) {
            return "a whole number from 0 to 4294967295";
        }
        *(uint32_t *)value = (uint32_t)number;
        break;
    case CLI_U64:
        if (!number_parse(text, UINT64_MAX, &number)) {
            return "a whole number from 0 to 18446744073709551615";
        }
        *(uint64_t *)value = number;
        break;
    case CLI_DURATION:
        if (!nd_duration_parse(text, value)) {
            return "a duration such as 500ms, 10s or 1h30m";
        }
        break;
    case CLI_REPEAT: {
        struct cli_texts *texts = value;
        if (texts->count == ND_ARRAY_SIZE(texts->items)) {
            return "given at most 64 times";
        }
        texts->items[texts->count++] = text;
        break;
    }
    }
    if (option->given != CLI_UNMARKED) {
        *(bool *)(void *)(values + option->given) = true;
    }
    return NULL;
}

static const struct cli_option *option_find(const struct cli_option *options, const char *word,
                                            size_t size)
{
    for (const struct cli_option *o = options; o != NULL && o->name != NULL; o++) {
        bool short_form = size == 2 && word[1] == o->letter && o->letter != 0;
        if (short_form || (strlen(o->name) == size && memcmp(o->name, word, size) == 0)) {
            return o;
        }
    }
    return NULL;
}

/* A table of options and the struct of values it fills. */
struct target {
    const struct cli_option *options;
    uint8_t *values;
};

/* One word that begins with '-'; may take the next one too. */
static int option_take(const struct cli *cli, const struct target targets[2], char **argv, int *at)
{
    const char *word = argv[*at];
    const char *equals = strchr(word, '=');
    size_t size = equals != NULL ? (size_t)(equals - word) : strlen(word);
    const struct target *target = &targets[0];
    const struct cli_option *option = option_find(target->options, word, size);

    if (option == NULL) {
        target = &targets[1];
        option = option_find(target->options, word, size);
    }
    if (option == NULL) {
        return cli_usage_error(cli, "unknown option %s", word);
    }
    const char *text = equals != NULL ? equals + 1 : NULL;
    if (option->kind == CLI_FLAG && text != NULL) {
        return cli_usage_error(cli, "%s takes no value", option->name);
    }
    if (option->kind != CLI_FLAG && text == NULL) {
        *at += 1;
        text = argv[*at];
        if (text == NULL) {
            return cli_usage_error(cli, "%s needs a value", option->name);
        }
    }
    const char *allowed = option_put(option, target->values, text);
    if (allowed != NULL) {
        return cli_usage_error(cli, "%s \"%s\": must be %s", option->name, text, allowed);
    }
    return CLI_OK;
}

static int command_line(struct cli *cli, const struct target targets[2], size_t args_max,
                        char **argv)
{
    bool options_over = false;

    for (int at = 0; argv[at] != NULL; at++) {
        const char *word = argv[at];
        if (!options_over && strcmp(word, "--") == 0) {
            options_over = true;
        } else if (!options_over && word[0] == '-' && word[1] != '\0') {
            int result = option_take(cli, targets, argv, &at);
            if (result != CLI_OK) {
                return result;
            }
        } else if (cli->args_count == args_max) {
            return cli_usage_error(cli, "unexpected argument \"%s\"", word);
        } else {
            cli->args[cli->args_count++] = word;
        }
    }
    return CLI_OK;
}

/* --- finding and running --- */

static size_t words_match(const char *name, char **argv)
{
    const char *space = strchr(name, ' ');
    size_t first = space != NULL ? (size_t)(space - name) : strlen(name);

    if (argv[0] == NULL || strlen(argv[0]) != first || memcmp(argv[0], name, first) != 0) {
        return 0;
    }
    if (space == NULL) {
        return 1;
    }
    return argv[1] != NULL && strcmp(argv[1], space + 1) == 0 ? 2 : 0;
}

static const struct cli_command *command_find(char **argv, size_t *words_out)
{
    for (size_t i = 0; i < ND_ARRAY_SIZE(commands); i++) {
        *words_out = words_match(commands[i]->name, argv);
        if (*words_out > 0) {
            return commands[i];
        }
    }
    return NULL;
}

bool nd_cli_knows(const char *command)
{
    for (size_t i = 0; i < ND_ARRAY_SIZE(commands); i++) {
        const char *name = commands[i]->name;
        size_t size = strcspn(name, " ");
        if (strlen(command) == size && memcmp(command, name, size) == 0) {
            return true;
        }
    }
    return strcmp(command, "client") == 0;
}

void nd_cli_usage(FILE *out)
{
    for (size_t i = 0; i < ND_ARRAY_SIZE(commands); i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", commands[i]->name, commands[i]->arguments);
        fprintf(out, "  %-34s %s\n", left, commands[i]->summary);
    }
}

/* What may be asked of every command. */
struct common {
    const char *server;
    uint64_t timeout_ms;
    bool json, help;
};

static const struct cli_option common_options[] = {
    {"--server", 's', CLI_TEXT, offsetof(struct common, server), CLI_UNMARKED,
     "HOST:PORT|unix:PATH", "the node (NARAD_SERVER; default 127.0.0.1:7941)"},
    {"--timeout", 0, CLI_DURATION, offsetof(struct common, timeout_ms), CLI_UNMARKED, "D",
     "of one call (default 40s)"},
    {"--json", 0, CLI_FLAG, offsetof(struct common, json), CLI_UNMARKED, NULL,
     "machine-readable output"},
    {"--help", 'h', CLI_FLAG, offsetof(struct common, help), CLI_UNMARKED, NULL, "this text"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

bool cli_output_flush(void)
{
    return fflush(stdout) == 0 && !ferror(stdout);
}

int cli_node_ask(const struct cli *cli, const char *doing)
{
    Narad__V1__VersionRequest request;
    Narad__V1__VersionResponse *response = NULL;
    struct narad_error error;

    narad__v1__version_request__init(&request);
    int code = narad_version(cli->client, &request, &response, &error);
    narad_response_free(response);
    return code == NARAD_OK ? CLI_OK : cli_fail_code(doing, code, error.text);
}

/* Said here, because gRPC would say only that some name does not resolve. */
static bool names_a_node(const char *server)
{
    if (strncmp(server, "unix:", 5) == 0) {
        return server[5] != '\0';
    }
    const char *colon = strrchr(server, ':');
    if (colon == NULL || colon == server || strchr(server, '/') != NULL) {
        return false;
    }
    size_t digits = strspn(colon + 1, "0123456789");
    long port = strtol(colon + 1, NULL, 10);
    return digits > 0 && colon[1 + digits] == '\0' && port > 0 && port <= UINT16_MAX;
}

static int command_run(struct cli *cli, const struct cli_command *command,
                       const struct common *common)
{
    struct narad_error error;
    struct narad_options options = {
        .server = common->server,
        .timeout_ms = (uint32_t)ND_MIN(common->timeout_ms, UINT32_MAX - 1),
        .connect_timeout_ms = CLI_CONNECT_MS,
    };

    if (cli->args_count < command->args_min) {
        return cli_usage_error(cli, "missing argument: %s", command->arguments);
    }
    if (common->timeout_ms == 0) {
        return cli_usage_error(cli, "--timeout must be above 0");
    }
    const char *set = getenv("NARAD_SERVER"); /* empty: as if not set */
    const char *server =
        common->server == NULL && set != NULL && *set != '\0' ? set : common->server;
    if (server != NULL && !names_a_node(server)) {
        return cli_usage_error(cli, "%s \"%s\": must be HOST:PORT or unix:PATH",
                               common->server != NULL ? "--server" : "NARAD_SERVER", server);
    }
    if (narad_client_new(&cli->client, &options, &error) != NARAD_OK) {
        return cli_fail("--server: %s", error.text);
    }
    int result = command->run(cli);
    narad_client_free(cli->client);
    errno = 0;
    if (!cli_output_flush()) {
        return cli_fail("standard output: %s", errno != 0 ? strerror(errno) : "a write failed");
    }
    return result;
}

static int unknown_command(char **words)
{
    fprintf(stderr, "narad: unknown command \"%s%s%s\"; the commands are:\n", words[0],
            words[1] != NULL ? " " : "", words[1] != NULL ? words[1] : "");
    nd_cli_usage(stderr);
    return CLI_FAILED;
}

/* `narad topics`, `narad topics --help`, `narad client help`. */
static bool asks_for_help(char **words)
{
    const char *last = words[0] == NULL ? NULL : words[1];

    return words[0] == NULL || strcmp(words[0], "help") == 0 || strcmp(words[0], "--help") == 0 ||
           strcmp(words[0], "-h") == 0 || (strcmp(words[0], "topics") == 0 && last == NULL) ||
           (last != NULL && (strcmp(last, "--help") == 0 || strcmp(last, "-h") == 0));
}

int nd_cli_main(int argc, char **argv)
{
    struct common common = {.timeout_ms = 40000};
    struct cli cli = {0};
    size_t words = 0;

    char **rest = argv + ND_MIN(argc, 1);
    if (rest[0] != NULL && strcmp(rest[0], "client") == 0) {
        rest += 1;
    }
    const struct cli_command *command = command_find(rest, &words);
    if (command == NULL && !asks_for_help(rest)) {
        return unknown_command(rest);
    }
    if (command == NULL) {
        printf("Commands (narad COMMAND --help says more):\n");
        nd_cli_usage(stdout);
        return CLI_OK;
    }
    uint8_t *values = nd_xcalloc(1, command->values_size + 1);
    if (command->defaults != NULL) {
        memcpy(values, command->defaults, command->values_size);
    }
    const struct target targets[2] = {{command->options, values},
                                      {common_options, (uint8_t *)(void *)&common}};
    cli.command = command->name;
    cli.values = values;
    int result = command_line(&cli, targets, command->args_max, rest + words);
    cli.json = common.json;
    cli.timeout_ms = common.timeout_ms;
    if (result == CLI_OK && common.help) {
        command_help(command, common_options);
    } else if (result == CLI_OK) {
        result = command_run(&cli, command, &common);
    }
    nd_free(values);
    return result;
}
