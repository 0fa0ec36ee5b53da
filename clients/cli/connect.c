#include "clients/cli/connect.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

#include "clients/cli/cli.h"
#include "clients/cli/contexts.h"
#include "clients/cli/secret.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name); /* empty: as if not set */
    return value != NULL && *value != '\0' ? value : NULL;
}

/* Said here, because gRPC would say only that some name does not resolve. */
bool cli_names_a_node(const char *server)
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

/* Does what is sent there stay on this machine? */
static bool is_local(const char *server)
{
    char host[INET6_ADDRSTRLEN];
    struct in_addr address;

    if (strncmp(server, "unix:", 5) == 0) {
        return true;
    }
    size_t size = (size_t)(strrchr(server, ':') - server);
    if (size >= sizeof host) {
        return false;
    }
    snprintf(host, sizeof host, "%.*s", (int)size, server);
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0) {
        return true;
    }
    return inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

static char *copy(const char *text)
{
    return text != NULL ? nd_xstrdup(text) : NULL;
}

/* Flag, variable, context. */
static char *pick(const char *flag, const char *name, const json_t *context, const char *member)
{
    if (flag != NULL) {
        return nd_xstrdup(flag);
    }
    return copy(variable(name) != NULL ? variable(name) : cli_context_text(context, member));
}

/* --- context and server --- */

static int context_choose(const json_t **out, const json_t *file, const struct cli_flags *flags)
{
    const char *name = flags->ctx != NULL ? flags->ctx : variable("NARAD_CTX");

    *out = NULL;
    if (name != NULL) {
        *out = cli_context_find(file, name);
        return *out != NULL ? CLI_OK
                            : cli_fail("no context \"%s\": `narad ctx ls` lists them", name);
    }
    if (flags->server == NULL && variable("NARAD_SERVER") == NULL) {
        *out = cli_context_find(file, NULL);
    }
    return CLI_OK;
}

static int server_choose(struct cli_target *target, const struct cli_flags *flags,
                         const json_t *context, const char *command)
{
    const char *source = flags->server != NULL              ? "--server"
                         : variable("NARAD_SERVER") != NULL ? "NARAD_SERVER"
                                                            : "the context's server";

    target->server = pick(flags->server, "NARAD_SERVER", context, "server");
    if (target->server != NULL && !cli_names_a_node(target->server)) {
        return cli_fail("%s: %s \"%s\": must be HOST:PORT or unix:PATH; see `narad %s --help`",
                        command, source, target->server, command);
    }
    return CLI_OK;
}

/* --- TLS --- */

static int switch_parse(const char *text, bool *out)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};

    for (size_t i = 0; i < ND_ARRAY_SIZE(words); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return CLI_OK;
        }
    }
    return cli_fail("NARAD_TLS \"%s\": must be 1 or 0", text);
}

static bool any_file_flag(const struct cli_flags *flags)
{
    return flags->ca_file != NULL || flags->cert_file != NULL || flags->key_file != NULL ||
           flags->tls_server_name != NULL;
}

static bool any_file_variable(void)
{
    return variable("NARAD_CA_FILE") != NULL || variable("NARAD_CERT_FILE") != NULL ||
           variable("NARAD_KEY_FILE") != NULL || variable("NARAD_TLS_SERVER_NAME") != NULL;
}

/* A file that is only for TLS asks for it; a Unix socket goes without unless a flag insists. */
static int tls_choose(struct cli_target *target, const struct cli_flags *flags,
                      const json_t *context)
{
    bool by_flag = flags->tls || any_file_flag(flags);
    bool is_socket = target->server != NULL && strncmp(target->server, "unix:", 5) == 0;

    target->tls = by_flag || any_file_variable() || cli_context_tls(context);
    if (!by_flag && variable("NARAD_TLS") != NULL &&
        switch_parse(variable("NARAD_TLS"), &target->tls) != CLI_OK) {
        return CLI_FAILED;
    }
    target->tls = target->tls && (by_flag || !is_socket);
    if (target->tls) {
        target->ca_file = pick(flags->ca_file, "NARAD_CA_FILE", context, "ca_file");
        target->cert_file = pick(flags->cert_file, "NARAD_CERT_FILE", context, "cert_file");
        target->key_file = pick(flags->key_file, "NARAD_KEY_FILE", context, "key_file");
        target->tls_server_name =
            pick(flags->tls_server_name, "NARAD_TLS_SERVER_NAME", context, "tls_server_name");
    }
    return CLI_OK;
}

/* --- user --- */

/* What `ps e` shows of this process does not hold it from here on. */
static char *variable_take(const char *name)
{
    char *value = getenv(name);
    char *taken = copy(variable(name));

    nd_wipe_text(value);
    unsetenv(name);
    return taken;
}

static int password_ask(struct cli_target *target)
{
    char question[128];
    bool no_terminal = false;

    snprintf(question, sizeof question, "Password of %.64s", target->user);
    target->password = cli_secret_ask(question, &no_terminal);
    if (no_terminal) {
        return cli_fail("user %s has no password: give NARAD_PASS, --password-stdin or a terminal",
                        target->user);
    }
    return target->password != NULL ? CLI_OK : CLI_FAILED;
}

static int user_choose(struct cli_target *target, const struct cli_flags *flags,
                       const json_t *context, const char *command)
{
    const char *stored_user = cli_context_text(context, "user");

    target->user = pick(flags->user, "NARAD_USER", context, "user");
    if (flags->password != NULL && flags->password_stdin) {
        return cli_fail("%s: --password and --password-stdin exclude each other", command);
    }
    if (target->user == NULL) {
        bool given = flags->password != NULL || flags->password_stdin;
        return given
                   ? cli_fail("%s: a password is given and no user: --user or NARAD_USER", command)
                   : CLI_OK;
    }
    if (flags->password_stdin) {
        target->password = cli_secret_line("--password-stdin");
        return target->password != NULL ? CLI_OK : CLI_FAILED;
    }
    target->password =
        flags->password != NULL ? nd_xstrdup(flags->password) : variable_take("NARAD_PASS");
    if (target->password == NULL && stored_user != NULL && strcmp(stored_user, target->user) == 0) {
        target->password = copy(cli_context_text(context, "password")); /* for that user only */
    }
    return target->password != NULL ? CLI_OK : password_ask(target);
}

static void warn_in_clear(const struct cli_target *target)
{
    if (target->user != NULL && !target->tls && target->server != NULL &&
        !is_local(target->server)) {
        fprintf(stderr, "narad: warning: the password of %s travels in clear to %s: use --tls\n",
                target->user, target->server);
    }
}

int cli_target_choose(struct cli_target *out, const struct cli_flags *flags, const char *command)
{
    json_t *file = NULL;
    const json_t *context = NULL;
    int result = cli_contexts_load(&file);

    *out = (struct cli_target){.server = NULL};
    if (result == CLI_OK) {
        result = context_choose(&context, file, flags);
    }
    if (result == CLI_OK) {
        result = server_choose(out, flags, context, command);
    }
    if (result == CLI_OK) {
        result = tls_choose(out, flags, context);
    }
    if (result == CLI_OK) {
        result = user_choose(out, flags, context, command);
    }
    json_decref(file);
    if (result == CLI_OK) {
        warn_in_clear(out);
    }
    return result;
}

void cli_target_release(struct cli_target *target)
{
    nd_free(target->server);
    nd_free(target->user);
    cli_secret_free(target->password);
    nd_free(target->ca_file);
    nd_free(target->cert_file);
    nd_free(target->key_file);
    nd_free(target->tls_server_name);
    *target = (struct cli_target){.server = NULL};
}

struct narad_options cli_target_options(const struct cli_target *target)
{
    return (struct narad_options){
        .server = target->server,
        .username = target->user,
        .password = target->password,
        .tls = target->tls,
        .tls_ca_file = target->ca_file,
        .tls_cert_file = target->cert_file,
        .tls_key_file = target->key_file,
        .tls_server_name = target->tls_server_name,
    };
}
