/* narad users create|list|get|delete|grant|passwd */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "clients/cli/commands.h"
#include "clients/cli/secret.h"

struct user_flags {
    struct cli_texts grants;
    bool password_stdin, none;
};

/* protobuf-c messages hold char *, but packing never writes to it. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* --- grants --- */

/* "produce:orders-*,clicks" taken apart, on memory of its own. */
struct grants {
    Narad__V1__Grant *list[ND_ARRAY_SIZE(((struct cli_texts *)0)->items)];
    size_t count;
};

static Narad__V1__Grant *grant_new(const char *words)
{
    size_t commas = 0;

    for (const char *at = words; *at != '\0'; at++) {
        commas += *at == ',';
    }
    char *memory = nd_xstrdup(words);
    Narad__V1__Grant *grant = nd_xcalloc(1, sizeof *grant);
    narad__v1__grant__init(grant);
    grant->patterns = nd_xcalloc(commas + 1, sizeof *grant->patterns);
    grant->action = memory;
    char *at = strchr(memory, ':');
    while (at != NULL) { /* at a separator */
        *at++ = '\0';
        grant->patterns[grant->n_patterns++] = at;
        at = strchr(at, ',');
    }
    return grant;
}

static void grants_free(struct grants *grants)
{
    for (size_t i = 0; i < grants->count; i++) {
        nd_free(grants->list[i]->action);
        nd_free(grants->list[i]->patterns);
        nd_free(grants->list[i]);
    }
}

static int grants_parse(const struct cli *cli, struct grants *grants)
{
    const struct user_flags *flags = cli->values;

    grants->count = 0;
    for (size_t i = 0; i < flags->grants.count; i++) {
        const char *words = flags->grants.items[i];
        size_t action = strcspn(words, ":");
        if (action == 0 || (words[action] == ':' && words[action + 1] == '\0')) {
            grants_free(grants);
            return cli_usage_error(
                cli, "--grant \"%s\": must be ACTION:PATTERN[,PATTERN…], or admin", words);
        }
        grants->list[grants->count++] = grant_new(words);
    }
    return CLI_OK;
}

#define GRANT_OPTION                                                                               \
    {                                                                                              \
        "--grant", 0, CLI_REPEAT, offsetof(struct user_flags, grants), CLI_UNMARKED, "ACTION:P,P", \
            "may be given many times"                                                              \
    }
#define GRANT_DETAILS                                                                              \
    "A grant is produce, consume or create, a colon, and topic names or beginnings of names "      \
    "with\n"                                                                                       \
    "a * at the end, commas between them: --grant 'produce:orders-*,clicks'. --grant admin "       \
    "gives\n"                                                                                      \
    "everything."

/* --- printing --- */

static json_t *user_json(const Narad__V1__User *user)
{
    json_t *json = json_object();
    json_t *grants = json_array();

    for (size_t i = 0; i < user->n_grants; i++) {
        const Narad__V1__Grant *grant = user->grants[i];
        json_t *patterns = json_array();
        for (size_t p = 0; p < grant->n_patterns; p++) {
            json_array_append_new(patterns, json_string(grant->patterns[p]));
        }
        json_t *object = json_pack("{s:s}", "action", grant->action);
        if (grant->n_patterns > 0) {
            json_object_set(object, "patterns", patterns);
        }
        json_decref(patterns);
        json_array_append_new(grants, object);
    }
    json_object_set_new(json, "username", json_string(user->username));
    if (user->n_grants > 0) {
        json_object_set(json, "grants", grants);
    }
    json_decref(grants);
    if (user->root) {
        json_object_set_new(json, "root", json_true());
    }
    if (user->created_at_ms != 0) {
        json_object_set_new(json, "created_at_ms", json_integer(user->created_at_ms));
    }
    if (user->updated_at_ms != 0) {
        json_object_set_new(json, "updated_at_ms", json_integer(user->updated_at_ms));
    }
    return json;
}

static void user_print(const Narad__V1__User *user)
{
    printf("%-24s", user->username);
    if (user->root) {
        printf(" root");
    }
    for (size_t i = 0; i < user->n_grants; i++) {
        const Narad__V1__Grant *grant = user->grants[i];
        printf(" %s", grant->action);
        for (size_t p = 0; p < grant->n_patterns; p++) {
            printf("%c%s", p == 0 ? ':' : ',', grant->patterns[p]);
        }
    }
    if (!user->root && user->n_grants == 0) {
        printf(" -");
    }
    putchar('\n');
}

static void user_show(const struct cli *cli, const Narad__V1__User *user)
{
    if (cli->json) {
        cli_print_json(user_json(user), false);
    } else {
        user_print(user);
    }
}

/* --- create --- */

static int create_run(struct cli *cli)
{
    const struct user_flags *flags = cli->values;
    Narad__V1__CreateUserRequest request;
    Narad__V1__CreateUserResponse *response = NULL;
    struct narad_error error;
    struct grants grants;

    if (grants_parse(cli, &grants) != CLI_OK) {
        return CLI_FAILED;
    }
    char *password = cli_secret_new(cli->args[0], flags->password_stdin);
    int result = CLI_FAILED;
    if (password != NULL) {
        narad__v1__create_user_request__init(&request);
        request.username = text(cli->args[0]);
        request.password = password;
        request.grants = grants.list;
        request.n_grants = grants.count;
        int code = narad_create_user(cli->client, &request, &response, &error);
        result = code == NARAD_OK ? CLI_OK : cli_fail_code("create user", code, error.text);
    }
    if (result == CLI_OK) {
        user_show(cli, response->user);
    }
    cli_secret_free(password);
    grants_free(&grants);
    narad_response_free(response);
    return result;
}

static const struct cli_option create_options[] = {
    GRANT_OPTION,
    {"--user-password-stdin", 0, CLI_FLAG, offsetof(struct user_flags, password_stdin),
     CLI_UNMARKED, NULL, "the new user's password: a line of standard input"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_users_create = {
    .name = "users create",
    .arguments = "NAME",
    .summary = "Create a user.",
    .details = GRANT_DETAILS
    "\n"
    "The password (1 to 72 bytes) is asked for at the terminal, or is the next line of\n"
    "standard input, after that of --password-stdin; never an argument, which others on\n"
    "this machine could see.",
    .args_min = 1,
    .args_max = 1,
    .options = create_options,
    .values_size = sizeof(struct user_flags),
    .run = create_run};

/* --- list, get, delete --- */

static int list_run(struct cli *cli)
{
    Narad__V1__ListUsersRequest request;
    Narad__V1__ListUsersResponse *response = NULL;
    struct narad_error error;

    narad__v1__list_users_request__init(&request);
    int code = narad_list_users(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("list users", code, error.text);
    }
    if (cli->json) {
        json_t *users = json_array();
        for (size_t i = 0; i < response->n_users; i++) {
            json_array_append_new(users, user_json(response->users[i]));
        }
        cli_print_json(users, false);
    } else {
        printf("%-24s %s\n", "NAME", "GRANTS");
        for (size_t i = 0; i < response->n_users; i++) {
            user_print(response->users[i]);
        }
    }
    narad_response_free(response);
    return CLI_OK;
}

const struct cli_command cmd_users_list = {.name = "users list",
                                           .arguments = "",
                                           .summary = "List the users and what they may do.",
                                           .args_min = 0,
                                           .args_max = 0,
                                           .run = list_run};

static int get_run(struct cli *cli)
{
    Narad__V1__GetUserRequest request;
    Narad__V1__GetUserResponse *response = NULL;
    struct narad_error error;

    narad__v1__get_user_request__init(&request);
    request.username = text(cli->args[0]);
    int code = narad_get_user(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("get user", code, error.text);
    }
    user_show(cli, response->user);
    narad_response_free(response);
    return CLI_OK;
}

const struct cli_command cmd_users_get = {.name = "users get",
                                          .arguments = "NAME",
                                          .summary = "Show a user.",
                                          .args_min = 1,
                                          .args_max = 1,
                                          .run = get_run};

static int delete_run(struct cli *cli)
{
    Narad__V1__DeleteUserRequest request;
    Narad__V1__DeleteUserResponse *response = NULL;
    struct narad_error error;

    narad__v1__delete_user_request__init(&request);
    request.username = text(cli->args[0]);
    int code = narad_delete_user(cli->client, &request, &response, &error);
    if (code != NARAD_OK) {
        return cli_fail_code("delete user", code, error.text);
    }
    narad_response_free(response);
    cli_done(cli, json_pack("{s:s, s:b}", "username", cli->args[0], "deleted", 1), "deleted");
    return CLI_OK;
}

const struct cli_command cmd_users_delete = {
    .name = "users delete",
    .arguments = "NAME",
    .summary = "Delete a user; its topics keep the name as owner.",
    .args_min = 1,
    .args_max = 1,
    .run = delete_run};

/* --- grant --- */

static int grant_run(struct cli *cli)
{
    const struct user_flags *flags = cli->values;
    Narad__V1__SetGrantsRequest request;
    Narad__V1__SetGrantsResponse *response = NULL;
    struct narad_error error;
    struct grants grants;

    if (flags->none == (flags->grants.count > 0)) {
        return cli_usage_error(cli, "give either --grant or --none");
    }
    if (grants_parse(cli, &grants) != CLI_OK) {
        return CLI_FAILED;
    }
    narad__v1__set_grants_request__init(&request);
    request.username = text(cli->args[0]);
    request.grants = grants.list;
    request.n_grants = grants.count;
    int code = narad_set_grants(cli->client, &request, &response, &error);
    grants_free(&grants);
    if (code != NARAD_OK) {
        return cli_fail_code("grant", code, error.text);
    }
    user_show(cli, response->user);
    narad_response_free(response);
    return CLI_OK;
}

static const struct cli_option grant_options[] = {
    GRANT_OPTION,
    {"--none", 0, CLI_FLAG, offsetof(struct user_flags, none), CLI_UNMARKED, NULL,
     "take all grants away"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_users_grant = {
    .name = "users grant",
    .arguments = "NAME",
    .summary = "Say what a user may do, all of it: earlier grants go.",
    .details = GRANT_DETAILS,
    .args_min = 1,
    .args_max = 1,
    .options = grant_options,
    .values_size = sizeof(struct user_flags),
    .run = grant_run};

/* --- passwd --- */

static int passwd_run(struct cli *cli)
{
    const struct user_flags *flags = cli->values;
    const struct cli_target *target = cli->target;
    Narad__V1__SetPasswordRequest request;
    Narad__V1__SetPasswordResponse *response = NULL;
    struct narad_error error;
    const char *name = cli->args_count > 0 ? cli->args[0] : target->user;

    if (name == NULL) {
        return cli_usage_error(cli, "whose? Give a NAME or --user");
    }
    char *password = cli_secret_new(name, flags->password_stdin);
    if (password == NULL) {
        return CLI_FAILED;
    }
    narad__v1__set_password_request__init(&request);
    request.username = text(name);
    request.new_password = password;
    if (target->user != NULL && strcmp(name, target->user) == 0) {
        request.current_password = target->password; /* one's own: the one it calls with */
    }
    int code = narad_set_password(cli->client, &request, &response, &error);
    cli_secret_free(password);
    if (code != NARAD_OK) {
        return cli_fail_code("passwd", code, error.text);
    }
    narad_response_free(response);
    cli_done(cli, json_pack("{s:s, s:b}", "username", name, "changed", 1), "changed");
    return CLI_OK;
}

static const struct cli_option passwd_options[] = {
    {"--user-password-stdin", 0, CLI_FLAG, offsetof(struct user_flags, password_stdin),
     CLI_UNMARKED, NULL, "the new password: a line of standard input"},
    {NULL, 0, CLI_FLAG, 0, CLI_UNMARKED, NULL, NULL},
};

const struct cli_command cmd_users_passwd = {
    .name = "users passwd",
    .arguments = "[NAME]",
    .summary = "Change a password: one's own, or as an admin another's.",
    .details =
        "The new password is asked for at the terminal, or is the next line of standard input, "
        "after\nthat of --password-stdin. One that a context keeps is not changed there.",
    .args_min = 0,
    .args_max = 1,
    .options = passwd_options,
    .values_size = sizeof(struct user_flags),
    .run = passwd_run};
