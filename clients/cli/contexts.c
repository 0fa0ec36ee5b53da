#include "clients/cli/contexts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "clients/cli/cli.h"

static const char *const text_members[] = {"server",    "user",     "password",       "ca_file",
                                           "cert_file", "key_file", "tls_server_name"};

/* --- where --- */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

/* NULL: the user has none. */
static char *directory(void)
{
    if (variable("NARAD_CONFIG_DIR") != NULL) {
        return nd_xstrdup(variable("NARAD_CONFIG_DIR"));
    }
    if (variable("XDG_CONFIG_HOME") != NULL) {
        return nd_xasprintf("%s/narad", variable("XDG_CONFIG_HOME"));
    }
    return variable("HOME") != NULL ? nd_xasprintf("%s/.config/narad", variable("HOME")) : NULL;
}

static int directory_make(const char *path)
{
    char *each = nd_xstrdup(path);
    int result = CLI_OK;

    for (char *slash = each + 1; result == CLI_OK; slash++) {
        slash += strcspn(slash, "/");
        char kept = *slash;
        *slash = '\0';
        if (mkdir(each, 0700) != 0 && errno != EEXIST) {
            result = cli_fail("%s: %s", each, strerror(errno));
        }
        *slash = kept;
        if (kept == '\0') {
            break;
        }
    }
    nd_free(each);
    return result;
}

/* --- reading --- */

const char *cli_context_text(const json_t *context, const char *member)
{
    return json_string_value(json_object_get(context, member));
}

bool cli_context_tls(const json_t *context)
{
    return json_is_true(json_object_get(context, "tls"));
}

const json_t *cli_context_find(const json_t *file, const char *name)
{
    const char *wanted = name != NULL ? name : cli_context_text(file, "selected");

    return wanted != NULL ? json_object_get(json_object_get(file, "contexts"), wanted) : NULL;
}

/* NULL: it is what contexts.h says. */
static const char *problem_of(json_t *file)
{
    json_t *contexts = json_object_get(file, "contexts");
    json_t *selected = json_object_get(file, "selected");
    const char *name;
    json_t *context;

    if (!json_is_object(contexts)) {
        return "\"contexts\" is not an object";
    }
    if (selected != NULL && !json_is_string(selected)) {
        return "\"selected\" is not a text";
    }
    json_object_foreach(contexts, name, context)
    {
        if (cli_context_text(context, "server") == NULL) {
            return "a context has no \"server\"";
        }
        for (size_t i = 0; i < ND_ARRAY_SIZE(text_members); i++) {
            const json_t *member = json_object_get(context, text_members[i]);
            if (member != NULL && !json_is_string(member)) {
                return "a member of a context is not a text";
            }
        }
    }
    return NULL;
}

static bool has_password(json_t *file)
{
    const char *name;
    json_t *context;

    json_object_foreach(json_object_get(file, "contexts"), name, context)
    {
        if (cli_context_text(context, "password") != NULL) {
            return true;
        }
    }
    return false;
}

static int file_load(FILE *in, const char *path, json_t **out)
{
    json_error_t error;
    struct stat status;

    setvbuf(in, NULL, _IONBF, 0); /* no copy of a password in a buffer of stdio */
    json_t *file = json_loadf(in, JSON_REJECT_DUPLICATES, &error);
    if (file == NULL) {
        return cli_fail("%s: line %d: not JSON", path,
                        error.line); /* its text may cite a password */
    }
    const char *problem = problem_of(file);
    if (problem != NULL) {
        json_decref(file);
        return cli_fail("%s: %s", path, problem);
    }
    if (fstat(fileno(in), &status) == 0 && (status.st_mode & 077) != 0 && has_password(file)) {
        fprintf(stderr, "narad: warning: %s holds passwords and others may read it: chmod 600 it\n",
                path);
    }
    *out = file;
    return CLI_OK;
}

static int path_load(const char *path, json_t **out)
{
    FILE *in = fopen(path, "re");

    if (in == NULL && errno == ENOENT) {
        *out = json_pack("{s:{}}", "contexts");
        return CLI_OK;
    }
    if (in == NULL) {
        return cli_fail("%s: %s", path, strerror(errno));
    }
    int result = file_load(in, path, out);
    fclose(in);
    return result;
}

int cli_contexts_load(json_t **out)
{
    char *dir = directory();

    if (dir == NULL) {
        *out = json_pack("{s:{}}", "contexts");
        return CLI_OK;
    }
    char *path = nd_xasprintf("%s/contexts.json", dir);
    int result = path_load(path, out);
    nd_free(path);
    nd_free(dir);
    return result;
}

/* --- writing --- */

static bool whole_written(int file, json_t *json)
{
    return json_dumpfd(json, file, JSON_INDENT(2)) == 0 && write(file, "\n", 1) == 1 &&
           fsync(file) == 0;
}

static int path_save(const char *path, json_t *json)
{
    char *temporary = nd_xasprintf("%s.XXXXXX", path);
    int file = mkostemp(temporary, O_CLOEXEC); /* 0600 */
    int result = CLI_OK;

    if (file < 0) {
        result = cli_fail("%s: %s", temporary, strerror(errno));
    } else if (!whole_written(file, json) || rename(temporary, path) != 0) {
        result = cli_fail("%s: %s", path, strerror(errno));
        unlink(temporary);
    }
    if (file >= 0) {
        close(file);
    }
    nd_free(temporary);
    return result;
}

int cli_contexts_change(int (*change)(json_t *file, void *arg), void *arg)
{
    json_t *file = NULL;
    char *dir = directory();

    if (dir == NULL) {
        return cli_fail("no place for contexts: set NARAD_CONFIG_DIR or HOME");
    }
    int result = directory_make(dir);
    int lock = result == CLI_OK ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (result == CLI_OK && (lock < 0 || flock(lock, LOCK_EX) != 0)) {
        result = cli_fail("%s: %s", dir, strerror(errno));
    }
    char *path = nd_xasprintf("%s/contexts.json", dir);
    if (result == CLI_OK) {
        result = path_load(path, &file);
    }
    if (result == CLI_OK) {
        result = change(file, arg);
    }
    if (result == CLI_OK) {
        result = path_save(path, file);
    }
    if (result == CLI_OK) {
        fsync(lock); /* the rename; a context that a power cut takes is added again */
    }
    json_decref(file);
    nd_free(path);
    if (lock >= 0) {
        close(lock);
    }
    nd_free(dir);
    return result;
}
