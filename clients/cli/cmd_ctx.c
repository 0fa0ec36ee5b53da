/* narad ctx add|select|ls|rm: named nodes with the credentials for them. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "clients/cli/commands.h"
#include "clients/cli/contexts.h"
#include "clients/cli/secret.h"

struct ctx_flags {
    bool replace, select, none;
};

/* --- add --- */

struct addition {
    struct cli *cli;
    char *password;
};

static bool name_valid(const char *name)
{
    size_t size = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return size >= 1 && size <= 64 && name[size] == '\0';
}

static void text_set(json_t *context, const char *member, const char *text)
{
    if (text != NULL) {
        json_object_set_new(context, member, json_string(text));
    }
}

/* From wherever the command runs next. */
static int path_set(json_t *context, const char *member, const char *path)
{
    if (path == NULL || path[0] == '/') {
        text_set(context, member, path);
        return CLI_OK;
    }
    char *here = getcwd(NULL, 0);
    if (here == NULL) {
        return cli_fail("%s: %s", path, strerror(errno));
    }
    char *whole = nd_xasprintf("%s/%s", here, path);
    text_set(context, member, whole);
    nd_free(whole);
    free(here);
    return CLI_OK;
}

static int add(json_t *file, void *arg)
{
    const struct addition *addition = arg;
    const struct cli *cli = addition->cli;
    const struct cli_flags *flags = cli->flags;
    const struct ctx_flags *own = cli->values;
    json_t *contexts = json_object_get(file, "contexts");
    json_t *context = json_object();
    bool files = flags->ca_file != NULL || flags->cert_file != NULL || flags->key_file != NULL ||
                 flags->tls_server_name != NULL;

    text_set(context, "server", flags->server);
    text_set(context, "user", flags->user);
    text_set(context, "password", addition->password);
    text_set(context, "tls_server_name", flags->tls_server_name);
    int result = path_set(context, "ca_file", flags->ca_file);
    result = result == CLI_OK ? path_set(context, "cert_file", flags->cert_file) : result;
    result = result == CLI_OK ? path_set(context, "key_file", flags->key_file) : result;
    if (flags->tls || files) {
        json_object_set_new(context, "tls", json_true());
    }
    if (result == CLI_OK && !own->replace && json_object_get(contexts, cli->args[0]) != NULL) {
        result = cli_fail("context \"%s\" exists: --replace overwrites it", cli->args[0]);
    }
    if (result != CLI_OK) {
        json_decref(context);
        return result;
    }
    if (json_object_set_new(contexts, cli->args[0], context) != 0) {
        return cli_fail("a text of the context is not UTF-8");
    }
    if (own->select) {
        json_object_set_new(file, "selected", json_string(cli->args[0]));
    }
    return CLI_OK;
}

/* A user without a password is fine: it is asked for then. */
static int password_get(struct addition *addition)
{
    const struct cli_flags *flags = addition->cli->flags;
    bool given = flags->password != NULL || flags->password_stdin;

    if (flags->password != NULL && flags->password_stdin) {
        return cli_usage_error(addition->cli, "--password and --password-stdin exclude each other");
    }
    if (given && flags->user == NULL) {
        return cli_usage_error(addition->cli, "a password needs --user");
    }
    if (flags->password_stdin) {
        addition->password = cli_secret_line("--password-stdin");
        return addition->password != NULL ? CLI_OK : CLI_FAILED;
    }
    addition->password = flags->password != NULL ? nd_xstrdup(flags->password) : NULL;
    return CLI_OK;
}

static int add_run(struct cli *cli)
{
    struct addition addition = {.cli = cli};
    const struct cli_flags *flags = cli->flags;

    if (!name_valid(cli->args[0])) {
        return cli_usage_error(cli, "\"%s\": a name is 1 to 64 of A-Z a-z 0-9 . _ -", cli->args[0]);
    }
    if (flags->server == NULL) {
        return cli_usage_error(cli, "--server is required");
    }
    if (!cli_names_a_node(flags->server)) {
        return cli_usage_error(cli, "--server \"%s\": must be HOST:PORT or unix:PATH",
                               flags->server);
    }
    if ((flags->cert_file == NULL) != (flags->key_file == NULL)) {
        return cli_usage_error(cli, "--cert-file and --key-file go together");
    }
    int result = password_get(&addition);
    if (result == CLI_OK) {
        result = cli_contexts_change(add, &addition);
    }
    cli_secret_free(addition.password);
    if (result == CLI_OK) {
        cli_done(cli, json_pack("{s:s, s:b}", "name", cli->args[0], "added", 1), "added");
    }
    return result;
}

static const struct cli_option add_options[] = {
    {"--select", 0, CLI_FLAG, offsetof(struct ctx_flags, select), CLI_UNMARKED, NULL,
     "and use it from now on"},
    {"--replace", 0, CLI_FLAG, offsetof(struct ctx_flags, replace), CLI_UNMARKED, NULL,
     "when there is one of that name"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_ctx_add = {
    .name = "ctx add",
    .arguments = "NAME --server HOST:PORT",
    .summary = "Remember a node, with user and TLS files.",
    .details =
        "Keeps the common options given here (not the variables) in contexts.json, which only you\n"
        "may read, in NARAD_CONFIG_DIR, XDG_CONFIG_HOME/narad or ~/.config/narad. The password is\n"
        "kept as it is; without one it is asked for at each command.",
    .args_min = 1,
    .args_max = 1,
    .options = add_options,
    .values_size = sizeof(struct ctx_flags),
    .offline = true,
    .run = add_run};

/* --- select, rm --- */

static int select_one(json_t *file, void *arg)
{
    const char *name = arg;

    if (name == NULL) {
        json_object_del(file, "selected");
        return CLI_OK;
    }
    if (cli_context_find(file, name) == NULL) {
        return cli_fail("no context \"%s\": `narad ctx ls` lists them", name);
    }
    return json_object_set_new(file, "selected", json_string(name)) == 0 ? CLI_OK : CLI_FAILED;
}

static int select_run(struct cli *cli)
{
    const struct ctx_flags *own = cli->values;
    char *name = cli->args_count > 0 ? (char *)(uintptr_t)cli->args[0] : NULL;

    if (own->none == (name != NULL)) {
        return cli_usage_error(cli, "give either a NAME or --none");
    }
    int result = cli_contexts_change(select_one, name);
    if (result == CLI_OK) {
        cli_done(cli, json_pack("{s:s?}", "selected", name), name != NULL ? "selected" : "none");
    }
    return result;
}

static const struct cli_option select_options[] = {
    {"--none", 0, CLI_FLAG, offsetof(struct ctx_flags, none), CLI_UNMARKED, NULL,
     "use none from now on"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_ctx_select = {
    .name = "ctx select",
    .arguments = "NAME",
    .summary = "Use a context from now on.",
    .details = "It is used by every command that is given no server by --server or NARAD_SERVER,\n"
               "and no other context by --ctx or NARAD_CTX.",
    .args_min = 0,
    .args_max = 1,
    .options = select_options,
    .values_size = sizeof(struct ctx_flags),
    .offline = true,
    .run = select_run};

static int remove_one(json_t *file, void *arg)
{
    const char *name = arg;
    const char *selected = cli_context_text(file, "selected");

    if (json_object_del(json_object_get(file, "contexts"), name) != 0) {
        return cli_fail("no context \"%s\": `narad ctx ls` lists them", name);
    }
    if (selected != NULL && strcmp(selected, name) == 0) {
        json_object_del(file, "selected");
    }
    return CLI_OK;
}

static int remove_run(struct cli *cli)
{
    int result = cli_contexts_change(remove_one, (char *)(uintptr_t)cli->args[0]);

    if (result == CLI_OK) {
        cli_done(cli, json_pack("{s:s, s:b}", "name", cli->args[0], "removed", 1), "removed");
    }
    return result;
}

const struct cli_command cmd_ctx_rm = {.name = "ctx rm",
                                       .arguments = "NAME",
                                       .summary = "Forget a context, its password too.",
                                       .args_min = 1,
                                       .args_max = 1,
                                       .offline = true,
                                       .run = remove_run};

/* --- ls --- */

static json_t *shown(const char *name, const json_t *context)
{
    static const char *const members[] = {"server",    "user",     "ca_file",
                                          "cert_file", "key_file", "tls_server_name"};
    json_t *out = json_object();

    text_set(out, "name", name);
    for (size_t i = 0; i < ND_ARRAY_SIZE(members); i++) {
        text_set(out, members[i], cli_context_text(context, members[i]));
    }
    json_object_set_new(out, "has_password",
                        json_boolean(cli_context_text(context, "password") != NULL));
    json_object_set_new(out, "tls", json_boolean(cli_context_tls(context)));
    return out;
}

static int list_run(struct cli *cli)
{
    json_t *file = NULL, *list = json_array(), *context;
    const char *name;
    int result = cli_contexts_load(&file);

    if (result != CLI_OK) {
        json_decref(list);
        return result;
    }
    const char *selected = cli_context_text(file, "selected");
    if (!cli->json) {
        printf("  %-20s %-32s %-16s %s\n", "NAME", "SERVER", "USER", "TLS");
    }
    json_object_foreach(json_object_get(file, "contexts"), name, context)
    {
        const char *user = cli_context_text(context, "user");
        bool is_selected = selected != NULL && strcmp(selected, name) == 0;
        if (cli->json) {
            json_array_append_new(list, shown(name, context));
        } else {
            printf("%c %-20s %-32s %-16s %s\n", is_selected ? '*' : ' ', name,
                   cli_context_text(context, "server"), user != NULL ? user : "-",
                   cli_context_tls(context) ? "yes" : "no");
        }
    }
    if (cli->json) {
        cli_print_json(json_pack("{s:s?, s:O}", "selected", selected, "contexts", list), false);
    }
    json_decref(list);
    json_decref(file);
    return CLI_OK;
}

const struct cli_command cmd_ctx_ls = {.name = "ctx ls",
                                       .arguments = "",
                                       .summary = "List the contexts, without passwords.",
                                       .args_min = 0,
                                       .args_max = 0,
                                       .offline = true,
                                       .run = list_run};
