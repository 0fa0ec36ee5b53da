/* The table of commands, the command line, and help. */
#include "clients/cli/cli.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/duration.h"
#include "storage/base/wipe.h"

#include "clients/cli/commands.h"
#include "clients/cli/secret.h"

static const struct cli_command *const commands[] = {
    &cmd_topics_create, &cmd_topics_list, &cmd_topics_get,   &cmd_topics_alter, &cmd_topics_delete,
    &cmd_produce,       &cmd_consume,     &cmd_ack,          &cmd_sub,          &cmd_replay,
    &cmd_bench,         &cmd_metrics,     &cmd_users_create, &cmd_users_list,   &cmd_users_get,
    &cmd_users_delete,  &cmd_users_grant, &cmd_users_passwd, &cmd_ctx_add,      &cmd_ctx_select,
    &cmd_ctx_ls,        &cmd_ctx_rm,
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
    const char *hint = code == NARAD_UNAUTHENTICATED
                           ? " (no or wrong name and password: --user, NARAD_USER, a context)"
                           : "";

    return cli_fail("%s: %s: %s%s", doing, narad_code_name(code), text, hint);
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
    printf("Usage: narad %s [options]%s%s\n\n%s\n", command->name,
           command->arguments[0] != '\0' ? " " : "", command->arguments, command->summary);
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
    printf(
        "\nD is a duration such as 500ms, 10s or 1h30m. Each connection option is the first of: "
        "the\n"
        "flag, the variable, the context. With --server or NARAD_SERVER the selected context is\n"
        "left out.\n");
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
static const char *option_put(const struct cli_option *option, uint8_t *values, char *text)
{
    void *value = values + option->value;
    uint64_t number = 0;

    switch (option->kind) {
    case CLI_FLAG: *(bool *)value = true; break;
    case CLI_TEXT: *(const char **)value = text; break;
    case CLI_SECRET:
        cli_secret_free(*(char **)value);
        *(char **)value = cli_secret_take(text);
        break;
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
    char *word = argv[*at];
    char *equals = strchr(word, '=');
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
    char *text = equals != NULL ? equals + 1 : NULL;
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

/* `name`: of a command of this group? */
static bool in_group(const char *name, const char *group)
{
    size_t size = strcspn(name, " ");

    return name[size] == ' ' && strlen(group) == size && memcmp(name, group, size) == 0;
}

/* The commands of `group`; NULL: all. */
static void commands_list(FILE *out, const char *group)
{
    for (size_t i = 0; i < ND_ARRAY_SIZE(commands); i++) {
        if (group != NULL && !in_group(commands[i]->name, group)) {
            continue;
        }
        char left[64];
        snprintf(left, sizeof left, "%s %s", commands[i]->name, commands[i]->arguments);
        fprintf(out, "  %-34s %s\n", left, commands[i]->summary);
    }
}

void nd_cli_usage(FILE *out)
{
    commands_list(out, NULL);
}

/* What may be asked of every command. */
struct common {
    struct cli_flags flags;
    uint64_t timeout_ms;
    bool json, help;
};

static const struct cli_option common_options[] = {
    {"--server", 's', CLI_TEXT, offsetof(struct common, flags.server), CLI_UNMARKED,
     "HOST:PORT|unix:PATH", "the node (NARAD_SERVER; default 127.0.0.1:7941)"},
    {"--ctx", 0, CLI_TEXT, offsetof(struct common, flags.ctx), CLI_UNMARKED, "NAME",
     "a context of `narad ctx` (NARAD_CTX; default: the selected one)"},
    {"--user", 'u', CLI_TEXT, offsetof(struct common, flags.user), CLI_UNMARKED, "NAME",
     "who asks (NARAD_USER)"},
    {"--password", 'p', CLI_SECRET, offsetof(struct common, flags.password), CLI_UNMARKED, "TEXT",
     "NARAD_PASS or --password-stdin hide it better"},
    {"--password-stdin", 0, CLI_FLAG, offsetof(struct common, flags.password_stdin), CLI_UNMARKED,
     NULL, "the password is the first line of standard input"},
    {"--tls", 0, CLI_FLAG, offsetof(struct common, flags.tls), CLI_UNMARKED, NULL,
     "encrypt (NARAD_TLS=1); the options below imply it"},
    {"--ca-file", 0, CLI_TEXT, offsetof(struct common, flags.ca_file), CLI_UNMARKED, "FILE",
     "authorities to trust (NARAD_CA_FILE; default: the system's)"},
    {"--cert-file", 0, CLI_TEXT, offsetof(struct common, flags.cert_file), CLI_UNMARKED, "FILE",
     "certificate to show (NARAD_CERT_FILE)"},
    {"--key-file", 0, CLI_TEXT, offsetof(struct common, flags.key_file), CLI_UNMARKED, "FILE",
     "and its key (NARAD_KEY_FILE)"},
    {"--tls-server-name", 0, CLI_TEXT, offsetof(struct common, flags.tls_server_name), CLI_UNMARKED,
     "NAME", "in the node's certificate (NARAD_TLS_SERVER_NAME; default: the host)"},
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

/* The command with a connection for it. */
static int connected_run(struct cli *cli, const struct cli_command *command)
{
    struct narad_error error;
    struct narad_options options = cli_target_options(cli->target);

    options.timeout_ms = (uint32_t)ND_MIN(cli->timeout_ms, UINT32_MAX - 1);
    options.connect_timeout_ms = CLI_CONNECT_MS;
    if (narad_client_new(&cli->client, &options, &error) != NARAD_OK) {
        return cli_fail("%s", error.text);
    }
    int result = command->run(cli);
    narad_client_free(cli->client);
    return result;
}

static int command_run(struct cli *cli, const struct cli_command *command)
{
    struct cli_target target = {.server = NULL};
    int result;

    if (cli->args_count < command->args_min) {
        return cli_usage_error(cli, "missing argument: %s", command->arguments);
    }
    if (cli->timeout_ms == 0) {
        return cli_usage_error(cli, "--timeout must be above 0");
    }
    if (command->offline) {
        result = command->run(cli);
    } else {
        result = cli_target_choose(&target, cli->flags, cli->command);
        cli->target = &target;
        result = result == CLI_OK ? connected_run(cli, command) : result;
        cli_target_release(&target);
    }
    errno = 0;
    if (!cli_output_flush()) {
        return cli_fail("standard output: %s", errno != 0 ? strerror(errno) : "a write failed");
    }
    return result;
}

/* The first of two words? */
static bool is_group(const char *word)
{
    for (size_t i = 0; i < ND_ARRAY_SIZE(commands); i++) {
        if (in_group(commands[i]->name, word)) {
            return true;
        }
    }
    return false;
}

static const char *group_of(char **words)
{
    return words[0] != NULL && is_group(words[0]) ? words[0] : NULL;
}

static int unknown_command(char **words)
{
    fprintf(stderr, "narad: unknown command \"%s%s%s\"; the commands are:\n", words[0],
            words[1] != NULL ? " " : "", words[1] != NULL ? words[1] : "");
    commands_list(stderr, group_of(words));
    return CLI_FAILED;
}

/* `narad topics`, `narad topics --help`, `narad client help`. */
static bool asks_for_help(char **words)
{
    const char *last = words[0] == NULL ? NULL : words[1];

    return words[0] == NULL || strcmp(words[0], "help") == 0 || strcmp(words[0], "--help") == 0 ||
           strcmp(words[0], "-h") == 0 || (last == NULL && is_group(words[0])) ||
           (last != NULL && (strcmp(last, "--help") == 0 || strcmp(last, "-h") == 0));
}

/* For jansson: what a context holds may be a password. */
static void wiping_free(void *memory)
{
    if (memory != NULL) {
        nd_wipe(memory, malloc_usable_size(memory));
    }
    free(memory);
}

int nd_cli_main(int argc, char **argv)
{
    struct common common = {.timeout_ms = 40000};
    struct cli cli = {.flags = &common.flags};
    size_t words = 0;

    json_set_alloc_funcs(malloc, wiping_free);

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
        commands_list(stdout, group_of(rest));
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
        result = command_run(&cli, command);
    }
    cli_secret_free(common.flags.password);
    nd_free(values);
    return result;
}
