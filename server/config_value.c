#include "server/config_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"

static void *member(struct nd_settings *settings, const struct nd_setting *setting)
{
    return (char *)settings + setting->offset;
}

static bool number_parse(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

/* Spelled as Go's strconv.ParseBool accepts it. */
static bool bool_parse(const char *text, bool *out)
{
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};
    for (size_t i = 0; i < ND_ARRAY_SIZE(yes); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *out = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool choice_has(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *at = choices; length > 0 && (at = strstr(at, text)) != NULL; at++) {
        if ((at == choices || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            return strchr(text, ' ') == NULL;
        }
    }
    return false;
}

static enum nd_err refuse(struct nd_errmsg *why, const char *rule, const char *got)
{
    nd_errmsg_set(why, "must be %s (got \"%.200s\")", rule, got);
    return ND_ERR_INVALID_ARGUMENT;
}

static void range_text(const struct nd_setting *setting, char *out, size_t out_size)
{
    char low[32], high[32];
    if (setting->type == ND_SETTING_DURATION) {
        nd_duration_put(low, sizeof low, setting->min);
        nd_duration_put(high, sizeof high, setting->max);
    } else {
        snprintf(low, sizeof low, "%" PRIu64, setting->min);
        snprintf(high, sizeof high, "%" PRIu64, setting->max);
    }
    if (setting->max == UINT64_MAX) {
        snprintf(out, out_size, "%sat least %s", setting->zero_too ? "0 or " : "", low);
    } else {
        snprintf(out, out_size, "%sbetween %s and %s", setting->zero_too ? "0 or " : "", low, high);
    }
}

static enum nd_err put_number(const struct nd_setting *setting, uint64_t *to, const char *text,
                              struct nd_errmsg *why)
{
    uint64_t value = 0;
    if (setting->type == ND_SETTING_NUMBER && !number_parse(text, &value)) {
        return refuse(why, "a whole number", text);
    }
    if (setting->type == ND_SETTING_DURATION && !nd_duration_parse(text, &value)) {
        return refuse(why, "a duration such as \"10s\", \"500ms\" or \"1h30m\"", text);
    }
    if ((value < setting->min && !(value == 0 && setting->zero_too)) || value > setting->max) {
        char rule[96];
        range_text(setting, rule, sizeof rule);
        return refuse(why, rule, text);
    }
    *to = value;
    return ND_OK;
}

/* Without the empty entries of "a,,b" and without spaces around the others. */
static char *list_clean(const char *text)
{
    char *out = nd_xmalloc(strlen(text) + 1);
    size_t size = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        size_t from = 0, to = length;
        while (from < to && text[from] == ' ') {
            from++;
        }
        while (to > from && text[to - 1] == ' ') {
            to--;
        }
        if (to > from) {
            if (size > 0) {
                out[size++] = ',';
            }
            memcpy(out + size, text + from, to - from);
            size += to - from;
        }
        text += length + (text[length] == ',');
    }
    out[size] = '\0';
    return out;
}

enum nd_err nd_setting_put(const struct nd_setting *setting, struct nd_settings *settings,
                           const char *text, struct nd_errmsg *why)
{
    void *to = member(settings, setting);
    switch (setting->type) {
    case ND_SETTING_BOOL:
        if (!bool_parse(text, to)) {
            return refuse(why, "true or false", text);
        }
        return ND_OK;
    case ND_SETTING_NUMBER:
    case ND_SETTING_DURATION: return put_number(setting, to, text, why);
    case ND_SETTING_CHOICE:
        if (!choice_has(setting->choices, text)) {
            char rule[96];
            snprintf(rule, sizeof rule, "one of: %s", setting->choices);
            return refuse(why, rule, text);
        }
        break;
    case ND_SETTING_TEXT:
    case ND_SETTING_LIST: break;
    }
    char **text_to = to;
    nd_free(*text_to);
    *text_to = setting->type == ND_SETTING_LIST ? list_clean(text) : nd_xstrdup(text);
    return ND_OK;
}

char *nd_setting_show(const struct nd_setting *setting, const struct nd_settings *settings)
{
    const void *from = (const char *)settings + setting->offset;
    char text[64];
    switch (setting->type) {
    case ND_SETTING_BOOL: return nd_xstrdup(*(const bool *)from ? "true" : "false");
    case ND_SETTING_NUMBER: return nd_xasprintf("%" PRIu64, *(const uint64_t *)from);
    case ND_SETTING_DURATION:
        nd_duration_put(text, sizeof text, *(const uint64_t *)from);
        return nd_xstrdup(text);
    case ND_SETTING_TEXT:
    case ND_SETTING_CHOICE:
    case ND_SETTING_LIST: break;
    }
    return nd_xstrdup(*(char *const *)from);
}

void nd_settings_init(struct nd_settings *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < nd_settings_count; i++) {
        const struct nd_setting *setting = &nd_settings_table[i];
        struct nd_errmsg why;
        enum nd_err err = nd_setting_put(setting, out, setting->standard, &why);
        ND_ASSERT(err == ND_OK); /* a default outside its own range is our bug */
    }
}

void nd_settings_release(struct nd_settings *settings)
{
    for (size_t i = 0; i < nd_settings_count; i++) {
        enum nd_setting_type type = nd_settings_table[i].type;
        if (type == ND_SETTING_TEXT || type == ND_SETTING_CHOICE || type == ND_SETTING_LIST) {
            char **text = member(settings, &nd_settings_table[i]);
            nd_free(*text);
            *text = NULL;
        }
    }
}

static const char *use_note(enum nd_setting_use use)
{
    switch (use) {
    case ND_SETTING_USED: return "";
    case ND_SETTING_LATER: return " (checked; not in this build)";
    case ND_SETTING_REFUSED: return " (not in this build: must stay unset)";
    case ND_SETTING_IGNORED: return " (ignored)";
    }
    ND_UNREACHABLE();
}

/* What is allowed, where not everything of the type is. */
static void allowed_put(struct nd_buf *out, const struct nd_setting *setting)
{
    bool counts = setting->type == ND_SETTING_NUMBER || setting->type == ND_SETTING_DURATION;
    char text[96];
    if (setting->type == ND_SETTING_CHOICE) {
        nd_buf_printf(out, "; one of: %s", setting->choices);
    } else if (counts && (setting->min > 0 || setting->max < UINT64_MAX)) {
        range_text(setting, text, sizeof text);
        nd_buf_printf(out, "; %s", text);
    }
}

void nd_settings_help(struct nd_buf *out)
{
    for (size_t i = 0; i < nd_settings_count; i++) {
        const struct nd_setting *setting = &nd_settings_table[i];
        nd_buf_printf(out, "  %s", setting->key);
        if (setting->flag != NULL) {
            nd_buf_printf(out, "  %s", setting->flag);
        }
        if (setting->env != NULL) {
            nd_buf_printf(out, "  %s", setting->env);
        }
        nd_buf_printf(out, "\n      %s%s; default %s", setting->doc, use_note(setting->use),
                      setting->standard[0] == '\0' ? "empty" : setting->standard);
        allowed_put(out, setting);
        nd_buf_put_u8(out, '\n');
    }
}
