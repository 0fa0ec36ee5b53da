/* The settings of a node. The input is texts that end with a NUL byte: the first is the file, then
 * come flags and variables ("NARAD_X=value"), in any order. Settings that load are shown, given as
 * variables, and load to the same. */
#include <sys/mman.h>
#include <unistd.h>

#include "server/config.h"
#include "tests/fuzz/fuzz.h"

enum { TEXTS_MAX = 24 };

struct source {
    const char *texts[ND_SETTINGS_MAX]; /* "NAME=value" */
    size_t count;
};

static const char *source_get(void *arg, const char *name)
{
    const struct source *source = arg;
    size_t length = strlen(name);

    for (size_t i = 0; i < source->count; i++) {
        if (strncmp(source->texts[i], name, length) == 0 && source->texts[i][length] == '=') {
            return source->texts[i] + length + 1;
        }
    }
    return NULL;
}

struct load {
    struct nd_launch launch;
    struct nd_buf problems, warnings;
    enum nd_err err;
};

static void load_run(struct load *load, int argc, const char *const *argv,
                     const struct source *source)
{
    struct nd_launch_input input = {argc, argv, source_get, (void *)(uintptr_t)source, "host-1"};

    nd_buf_init(&load->problems, SIZE_MAX);
    nd_buf_init(&load->warnings, SIZE_MAX);
    load->err = nd_launch_load(&load->launch, &input, &load->problems, &load->warnings);
    FUZZ_CHECK(load->err == ND_OK || load->err == ND_ERR_INVALID_ARGUMENT);
    FUZZ_CHECK((load->err == ND_OK) == (load->problems.size == 0));
    FUZZ_CHECK(load->err == ND_OK || memcmp(load->problems.data, "config: ", 8) == 0);
}

static void load_drop(struct load *load)
{
    nd_launch_release(&load->launch);
    nd_buf_release(&load->problems);
    nd_buf_release(&load->warnings);
}

/* Every setting that differs from its default, as a variable; nd_free each. */
static void show_all(const struct nd_settings *settings, struct source *out)
{
    out->count = 0;
    for (size_t i = 0; i < nd_settings_count; i++) {
        const struct nd_setting *setting = &nd_settings_table[i];
        char *text = nd_setting_show(setting, settings);
        if (setting->env != NULL && strcmp(text, setting->standard) != 0) {
            out->texts[out->count++] = nd_xasprintf("%s=%s", setting->env, text);
        }
        nd_free(text);
    }
}

static void round_trip(const struct load *first)
{
    static const char *const dev[] = {"--dev"};
    struct source shown;
    struct load again;

    show_all(&first->launch.settings, &shown);
    load_run(&again, first->launch.dev ? 1 : 0, dev, &shown);
    FUZZ_CHECK(again.err == ND_OK);
    for (size_t i = 0; i < nd_settings_count; i++) {
        char *a = nd_setting_show(&nd_settings_table[i], &first->launch.settings);
        char *b = nd_setting_show(&nd_settings_table[i], &again.launch.settings);
        FUZZ_CHECK(nd_settings_table[i].env == NULL || strcmp(a, b) == 0);
        nd_free(a);
        nd_free(b);
    }
    load_drop(&again);
    for (size_t i = 0; i < shown.count; i++) {
        nd_free((void *)(uintptr_t)shown.texts[i]);
    }
}

/* Is it a text that makes the loader open a file of the machine? */
static bool opens(const char *text)
{
    return strncmp(text, "--config", 8) == 0 || strncmp(text, "NARAD_CONFIG", 12) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *input = fuzz_text(data, size);
    size_t file_size = strlen(input);
    const char *argv[TEXTS_MAX + 2] = {"--config", NULL};
    int argc = 2;
    char path[64];
    struct source source = {.count = 0};
    struct load load;

    int file = memfd_create("config", 0);
    FUZZ_CHECK(file >= 0 && write(file, input, file_size) == (ssize_t)file_size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    argv[1] = path;
    for (size_t at = file_size + 1, n = 0; at < size && n < TEXTS_MAX; n++) {
        const char *text = input + at;
        at += strlen(text) + 1;
        if (strncmp(text, "NARAD_", 6) == 0 && !opens(text)) {
            source.texts[source.count++] = text;
        } else if (!opens(text)) {
            argv[argc++] = text;
        }
    }
    load_run(&load, argc, argv, &source);
    if (load.err == ND_OK && !load.launch.help) {
        round_trip(&load);
    }
    load_drop(&load);
    close(file);
    nd_free(input);
    return 0;
}
