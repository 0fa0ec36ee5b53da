#include "server/config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

#include "server/config_check.h"
#include "server/config_value.h"

enum { CONFIG_FILE_SIZE_MAX = 1 << 20 };

struct loader {
    struct nd_launch *launch;
    const struct nd_launch_input *input;
    struct nd_buf *problems;
};

static const struct nd_setting *find_key(const char *key, size_t *index_out)
{
    for (size_t i = 0; i < nd_settings_count; i++) {
        if (strcmp(nd_settings_table[i].key, key) == 0) {
            *index_out = i;
            return &nd_settings_table[i];
        }
    }
    return NULL;
}

/* Is there a key below `section`? */
static bool section_known(const char *section)
{
    size_t length = strlen(section);
    for (size_t i = 0; i < nd_settings_count; i++) {
        const char *key = nd_settings_table[i].key;
        if (strncmp(key, section, length) == 0 && key[length] == '.') {
            return true;
        }
    }
    return false;
}

static void apply(struct loader *l, size_t index, const char *text, const char *source)
{
    const struct nd_setting *setting = &nd_settings_table[index];
    struct nd_errmsg why;
    if (nd_setting_put(setting, &l->launch->settings, text, &why) != ND_OK) {
        nd_problem(l->problems, "%s (%s) %s", setting->key, source, why.text);
        return;
    }
    l->launch->sources[index] = source;
}

/* --- the file --- */

static const char *type_wanted(enum nd_setting_type type)
{
    switch (type) {
    case ND_SETTING_TEXT:
    case ND_SETTING_CHOICE: return "a string";
    case ND_SETTING_BOOL: return "true or false";
    case ND_SETTING_NUMBER: return "a whole number";
    case ND_SETTING_DURATION: return "a string such as \"10s\"";
    case ND_SETTING_LIST: return "an array of strings";
    }
    ND_UNREACHABLE();
}

/* The elements of an array of strings, comma separated; NULL when it is not one. nd_free. */
static char *join_strings(const json_t *array)
{
    struct nd_buf buf;
    nd_buf_init(&buf, CONFIG_FILE_SIZE_MAX);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (text == NULL || strchr(text, ',') != NULL) {
            nd_buf_release(&buf);
            return NULL;
        }
        nd_buf_printf(&buf, "%s%s", i == 0 ? "" : ",", text);
    }
    nd_buf_put_u8(&buf, '\0');
    char *out = nd_xstrdup((const char *)buf.data);
    nd_buf_release(&buf);
    return out;
}

/* The value as text, if its JSON type is the right one; nd_free. */
static char *json_text(const struct nd_setting *setting, const json_t *value)
{
    switch (setting->type) {
    case ND_SETTING_TEXT:
    case ND_SETTING_CHOICE:
    case ND_SETTING_DURATION:
        return json_is_string(value) ? nd_xstrdup(json_string_value(value)) : NULL;
    case ND_SETTING_BOOL:
        return json_is_boolean(value) ? nd_xstrdup(json_is_true(value) ? "true" : "false") : NULL;
    case ND_SETTING_NUMBER:
        return json_is_integer(value)
                   ? nd_xasprintf("%" JSON_INTEGER_FORMAT, json_integer_value(value))
                   : NULL;
    case ND_SETTING_LIST: return json_is_array(value) ? join_strings(value) : NULL;
    }
    ND_UNREACHABLE();
}

static void file_value(struct loader *l, const char *key, const json_t *value)
{
    size_t index;
    const struct nd_setting *setting = find_key(key, &index);
    if (setting == NULL) {
        if (strncmp(key, "storage.", 8) == 0) {
            nd_problem(l->problems, "%s is an internal setting and cannot be configured", key);
        } else {
            nd_problem(l->problems, "unknown setting \"%s\"", key);
        }
        return;
    }
    char *text = json_text(setting, value);
    if (text == NULL) {
        nd_problem(l->problems, "%s (file) must be %s", key, type_wanted(setting->type));
        return;
    }
    apply(l, index, text, "file");
    nd_free(text);
}

static void file_section(struct loader *l, const char *section, const json_t *value)
{
    if (!json_is_object(value)) {
        nd_problem(l->problems, "\"%s\" (file) must be an object", section);
        return;
    }
    void *at = json_object_iter((json_t *)(uintptr_t)value);
    for (; at != NULL; at = json_object_iter_next((json_t *)(uintptr_t)value, at)) {
        char *key = nd_xasprintf("%s.%s", section, json_object_iter_key(at));
        file_value(l, key, json_object_iter_value(at));
        nd_free(key);
    }
}

/* All of `path`; NULL with a problem noted. nd_free. */
static char *read_file(struct loader *l, const char *path, size_t *size_out)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        nd_problem(l->problems, "%s: %s", path, strerror(errno));
        return NULL;
    }
    char *data = nd_xmalloc(CONFIG_FILE_SIZE_MAX + 1);
    *size_out = fread(data, 1, CONFIG_FILE_SIZE_MAX + 1, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed || *size_out > CONFIG_FILE_SIZE_MAX) {
        nd_problem(l->problems, "%s: %s", path, failed ? "cannot be read" : "larger than 1 MiB");
        nd_free(data);
        return NULL;
    }
    return data;
}

static void load_file(struct loader *l)
{
    const char *path = l->launch->config_file;
    size_t size;
    char *data = read_file(l, path, &size);
    if (data == NULL) {
        return;
    }
    json_error_t error;
    /* Without JSON_DISABLE_EOF_CHECK anything after the first value is an error too. */
    json_t *root = json_loadb(data, size, JSON_REJECT_DUPLICATES, &error);
    nd_free(data);
    if (root == NULL) {
        nd_problem(l->problems, "%s: line %d, column %d: %s", path, error.line, error.column,
                   error.text);
        return;
    }
    if (!json_is_object(root)) {
        nd_problem(l->problems, "%s: must hold one JSON object", path);
    }
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (section_known(name)) {
            file_section(l, name, value);
        } else if (strchr(name, '.') != NULL) {
            nd_problem(l->problems, "unknown setting \"%s\"", name);
        } else {
            file_value(l, name, value);
        }
    }
    json_decref(root);
}

/* --- the environment --- */

static void load_environment(struct loader *l)
{
    for (size_t i = 0; i < nd_settings_count; i++) {
        const char *name = nd_settings_table[i].env;
        const char *value = name == NULL ? NULL : l->input->getenv(l->input->getenv_arg, name);
        if (value != NULL) {
            apply(l, i, value, name); /* set but empty counts as set */
        }
    }
}

/* --- flags --- */

struct flag {
    const char *name;
    size_t name_size;
    const char *value; /* NULL: none */
};

/* Flags that are no setting of their own. True: it was one. */
static bool special_flag(struct loader *l, const struct flag *flag, bool *bad)
{
    struct nd_launch *launch = l->launch;
    static const struct {
        const char *name, *key;
    } ports[] = {{"--port", "http.addr"}, {"--cluster-port", "cluster.addr"}};
    for (size_t i = 0; i < ND_ARRAY_SIZE(ports); i++) {
        if (strlen(ports[i].name) != flag->name_size ||
            memcmp(ports[i].name, flag->name, flag->name_size) != 0) {
            continue;
        }
        size_t index = 0;
        (void)find_key(ports[i].key, &index);
        if (flag->value == NULL) {
            *bad = true;
            return true;
        }
        size_t digits = strspn(flag->value, "0123456789");
        if (digits == 0 || digits > 5 || flag->value[digits] != '\0' ||
            strtoul(flag->value, NULL, 10) > 65535) {
            nd_problem(l->problems, "%s must be a port between 0 and 65535 (got \"%.200s\")",
                       ports[i].name, flag->value);
        } else if (launch->sources[index] == NULL ||
                   strcmp(launch->sources[index], "--addr") != 0) {
            char *text = nd_xasprintf(":%s", flag->value);
            apply(l, index, text, ports[i].name);
            nd_free(text);
        }
        return true;
    }
    char **to =
        flag->name_size == 8 && memcmp(flag->name, "--config", 8) == 0 ? &launch->config_file
        : flag->name_size == 12 && memcmp(flag->name, "--ready-file", 12) == 0 ? &launch->ready_file
                                                                               : NULL;
    if (to != NULL) {
        *bad = flag->value == NULL || flag->value[0] == '\0';
        nd_free(*to);
        *to = *bad ? NULL : nd_xstrdup(flag->value);
    }
    return to != NULL;
}

static void setting_flag(struct loader *l, const struct flag *flag, bool *bad)
{
    for (size_t i = 0; i < nd_settings_count; i++) {
        const char *name = nd_settings_table[i].flag;
        if (name != NULL && strlen(name) == flag->name_size &&
            memcmp(name, flag->name, flag->name_size) == 0) {
            if (flag->value == NULL) {
                *bad = true;
            } else {
                apply(l, i, flag->value, name);
            }
            return;
        }
    }
    nd_problem(l->problems, "unknown flag %.*s (--help lists them)", (int)flag->name_size,
               flag->name);
}

/* `--name value`, `--name=value`, and the two that take no value. With `only_config` just --config
 * and --dev are looked at, because the file comes before the other flags. */
static void load_flags(struct loader *l, bool only_config)
{
    const struct nd_launch_input *input = l->input;
    for (int i = 0; i < input->argc; i++) {
        const char *arg = input->argv[i];
        struct flag flag = {arg, strcspn(arg, "="), NULL};
        bool bad = false;
        if (strcmp(arg, "--dev") == 0) {
            l->launch->dev = true;
            continue;
        }
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            l->launch->help = true;
            continue;
        }
        if (strncmp(arg, "--", 2) != 0) {
            if (!only_config) {
                nd_problem(l->problems, "unexpected argument \"%.200s\"", arg);
            }
            continue;
        }
        if (arg[flag.name_size] == '=') {
            flag.value = arg + flag.name_size + 1;
        } else if (i + 1 < input->argc && strncmp(input->argv[i + 1], "--", 2) != 0) {
            flag.value = input->argv[++i];
        }
        if (only_config) {
            if (flag.name_size == 8 && memcmp(flag.name, "--config", 8) == 0) {
                (void)special_flag(l, &flag, &bad);
            }
            continue;
        }
        if (!special_flag(l, &flag, &bad)) {
            setting_flag(l, &flag, &bad);
        }
        if (bad) {
            nd_problem(l->problems, "%.*s needs a value", (int)flag.name_size, flag.name);
        }
    }
}

enum nd_err nd_launch_load(struct nd_launch *out, const struct nd_launch_input *input,
                           struct nd_buf *problems, struct nd_buf *warnings)
{
    memset(out, 0, sizeof *out);
    ND_ASSERT(nd_settings_count <= ND_SETTINGS_MAX);
    nd_settings_init(&out->settings);
    struct loader loader = {out, input, problems};
    load_flags(&loader, true);
    if (out->help) {
        return ND_OK;
    }
    if (out->config_file != NULL) {
        load_file(&loader);
    }
    load_environment(&loader);
    load_flags(&loader, false);
    nd_launch_check(out, input->host_name, problems, warnings);
    for (size_t i = 0; i < nd_settings_count; i++) {
        if (out->sources[i] == NULL) {
            out->sources[i] = "default";
        }
    }
    return problems->size == 0 ? ND_OK : ND_ERR_INVALID_ARGUMENT;
}

void nd_launch_release(struct nd_launch *launch)
{
    nd_settings_release(&launch->settings);
    nd_free(launch->config_file);
    nd_free(launch->ready_file);
    launch->config_file = launch->ready_file = NULL;
}
