#include "server/gateway_command.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/env.h"

#include "proto/rpc/server.h"
#include "server/config_check.h"
#include "server/gateway_setup.h"
#include "server/serve.h"
#include "server/version.h"

/* The way to the broker. Texts are borrowed from the arguments or the environment. */
struct way {
    const char *broker, *ca_file, *cert_file, *key_file, *tls_server_name;
    bool tls;
};

struct gateway_process {
    struct way way;
    struct nd_launch launch;
    struct nd_log *log;
    struct nd_metrics *metrics;
    struct nd_gateway *gateway;
    int port;
};

/* --- arguments --- */

static const struct {
    const char *flag, *env, *value, *doc;
    size_t offset; /* in struct way, of a text */
} way_flags[] = {
    {"--broker", "NARAD_BROKER", "HOST:PORT", "the broker's gRPC address, or unix:PATH; needed",
     offsetof(struct way, broker)},
    {"--ca-file", "NARAD_CA_FILE", "FILE", "authorities that the broker's certificate must be of",
     offsetof(struct way, ca_file)},
    {"--cert-file", "NARAD_CERT_FILE", "FILE", "certificate to show to the broker",
     offsetof(struct way, cert_file)},
    {"--key-file", "NARAD_KEY_FILE", "FILE", "its private key", offsetof(struct way, key_file)},
    {"--tls-server-name", "NARAD_TLS_SERVER_NAME", "NAME",
     "name in the broker's certificate, when it is not the host",
     offsetof(struct way, tls_server_name)},
};

/* Of http. and gateway., but the broker's to decide. */
static bool is_the_nodes(const char *key)
{
    return strcmp(key, "gateway.enabled") == 0 ||
           strcmp(key, "http.metrics_unauthenticated") == 0 ||
           strcmp(key, "http.max_produce_in_flight_per_identity") == 0;
}

static bool is_ours(const char *key)
{
    if (is_the_nodes(key)) {
        return false;
    }
    return strncmp(key, "http.", 5) == 0 || strncmp(key, "gateway.", 8) == 0 ||
           strncmp(key, "log.", 4) == 0 || strcmp(key, "compat") == 0;
}

/* The settings of a node that may be in the same environment do not matter here. */
static const char *own_getenv(void *arg, const char *name)
{
    (void)arg;
    for (size_t i = 0; i < nd_settings_count; i++) {
        if (nd_settings_table[i].env != NULL && strcmp(nd_settings_table[i].env, name) == 0) {
            return is_ours(nd_settings_table[i].key) ? getenv(name) : NULL;
        }
    }
    return NULL;
}

static const char **text_at(struct way *way, size_t offset)
{
    return (const char **)(void *)((char *)way + offset);
}

/* Takes a flag of the way; *used_out: how many arguments. False: it is another's. */
static bool way_flag(struct way *way, const char *const *argv, int left, int *used_out,
                     struct nd_buf *problems)
{
    size_t size = strcspn(argv[0], "=");
    *used_out = 1;
    if (strcmp(argv[0], "--tls") == 0) {
        way->tls = true;
        return true;
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(way_flags); i++) {
        if (strlen(way_flags[i].flag) != size || memcmp(way_flags[i].flag, argv[0], size) != 0) {
            continue;
        }
        const char *value = argv[0][size] == '=' ? argv[0] + size + 1 : left > 1 ? argv[1] : NULL;
        *used_out = argv[0][size] == '=' || left < 2 ? 1 : 2;
        if (value == NULL || value[0] == '\0') {
            nd_problem(problems, "%s needs a value", way_flags[i].flag);
        } else {
            *text_at(way, way_flags[i].offset) = value;
        }
        return true;
    }
    return false;
}

static void way_environment(struct way *way, struct nd_buf *problems)
{
    const char *tls = getenv("NARAD_TLS");
    tls = tls == NULL || tls[0] == '\0' ? "0" : tls;
    for (size_t i = 0; i < ND_ARRAY_SIZE(way_flags); i++) {
        const char *value = getenv(way_flags[i].env);
        *text_at(way, way_flags[i].offset) = value == NULL ? "" : value;
    }
    way->tls = strcmp(tls, "1") == 0;
    if (!way->tls && strcmp(tls, "0") != 0) {
        nd_problem(problems, "NARAD_TLS must be 1 or 0 (got \"%.200s\")", tls);
    }
}

static void check(struct gateway_process *p, struct nd_buf *problems)
{
    const char *broker = p->way.broker, *colon = strrchr(broker, ':');
    if (broker[0] == '\0') {
        nd_problem(problems, "--broker HOST:PORT (or NARAD_BROKER) is missing");
    } else if (strncmp(broker, "unix:", 5) != 0 &&
               (colon == NULL || colon == broker || colon[1] == '\0')) {
        nd_problem(problems, "--broker must be HOST:PORT or unix:PATH (got \"%.200s\")", broker);
    }
    if (!p->way.tls && (p->way.ca_file[0] != '\0' || p->way.cert_file[0] != '\0' ||
                        p->way.key_file[0] != '\0' || p->way.tls_server_name[0] != '\0')) {
        p->way.tls = true;
    }
    if ((p->way.cert_file[0] == '\0') != (p->way.key_file[0] == '\0')) {
        nd_problem(problems, "--cert-file and --key-file must be given together");
    }
    if (p->launch.dev) {
        nd_problem(problems, "--dev is for narad serve");
    }
    for (size_t i = 0; i < nd_settings_count; i++) {
        const char *source = p->launch.sources[i];
        if (source != NULL && strncmp(source, "--", 2) == 0 && !is_ours(nd_settings_table[i].key)) {
            nd_problem(problems, "%s is for narad serve", source);
        }
    }
}

static void help(void)
{
    struct nd_buf text;
    nd_buf_init(&text, 1 << 20);
    nd_buf_put_text(&text,
                    "Usage: narad gateway --broker HOST:PORT [--addr :7942] [settings]\n\n"
                    "The HTTP gateway alone, in front of a broker elsewhere. Credentials go on to "
                    "the broker as\nthey come; nothing is kept here.\n\n");
    for (size_t i = 0; i < ND_ARRAY_SIZE(way_flags); i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "%s %s", way_flags[i].flag, way_flags[i].value);
        nd_buf_printf(&text, "  %-24s %s  (%s)\n", flag, way_flags[i].doc, way_flags[i].env);
    }
    nd_buf_put_text(&text,
                    "  --tls                    TLS to the broker, also without --ca-file  "
                    "(NARAD_TLS)\n"
                    "  --config FILE            settings as JSON, as narad serve takes them\n"
                    "  --ready-file FILE        written when it listens: its address and pid\n\n"
                    "Settings are those of narad serve (see there) whose keys begin with http., "
                    "gateway. and log.,\nand compat; as flags:\n");
    for (size_t i = 0; i < nd_settings_count; i++) {
        const struct nd_setting *setting = &nd_settings_table[i];
        if (is_ours(setting->key) && setting->use == ND_SETTING_USED) {
            nd_buf_printf(&text, "  %-42s %-12s %s\n", setting->key,
                          setting->flag == NULL ? "" : setting->flag,
                          setting->env == NULL ? "" : setting->env);
        }
    }
    fwrite(text.data, 1, text.size, stdout);
    nd_buf_release(&text);
}

/* Its own flags are taken out, the others are settings. */
static void read_arguments(struct gateway_process *p, int argc, const char *const *argv,
                           struct nd_buf *problems, struct nd_buf *warnings)
{
    const char **rest = nd_xcalloc((size_t)argc + 1, sizeof *rest);
    int count = 0, used = 1;
    way_environment(&p->way, problems);
    for (int i = 0; i < argc; i += used) {
        if (!way_flag(&p->way, argv + i, argc - i, &used, problems)) {
            rest[count++] = argv[i];
        }
    }
    struct nd_launch_input input = {count, rest, own_getenv, NULL, "gateway"};
    enum nd_err err = nd_launch_load(&p->launch, &input, problems, warnings);
    nd_ignore(err, "what it found is among the problems");
    if (!p->launch.help) {
        check(p, problems);
    }
    nd_free(rest);
}

static bool load(struct gateway_process *p, int argc, const char *const *argv)
{
    enum nd_log_level level = ND_LOG_INFO;
    enum nd_log_format format = ND_LOG_JSON;
    struct nd_buf problems, warnings;
    nd_buf_init(&problems, 1 << 20);
    nd_buf_init(&warnings, 1 << 16);
    read_arguments(p, argc, argv, &problems, &warnings);
    bool good = problems.size == 0;
    if (!good) {
        fprintf(stderr, "narad: %.*s\n", (int)problems.size, (const char *)problems.data);
    } else if (!p->launch.help) {
        ND_ASSERT(nd_log_level_parse(p->launch.settings.log_level, &level));
        ND_ASSERT(nd_log_format_parse(p->launch.settings.log_format, &format));
        p->log = nd_log_new(STDOUT_FILENO, level, format);
    }
    nd_buf_release(&problems);
    nd_buf_release(&warnings);
    return good;
}

/* --- the process --- */

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

static enum nd_err write_ready_file(const struct gateway_process *p, struct nd_errmsg *msg)
{
    const char *path = p->launch.ready_file, *addr = p->launch.settings.http_addr;
    const char *colon = strrchr(addr, ':');
    bool any = colon == addr || strncmp(addr, "0.0.0.0:", 8) == 0 || strncmp(addr, "[::]:", 5) == 0;
    if (path == NULL) {
        return ND_OK;
    }
    char *text =
        nd_xasprintf("{\"http_addr\":\"%.*s:%d\",\"pid\":%d}", any ? 9 : (int)(colon - addr),
                     any ? "127.0.0.1" : addr, p->port, (int)getpid());
    enum nd_err err = nd_env_replace_file(nd_env_posix(), path, nd_slice_str(text), msg);
    nd_free(text);
    return err;
}

/* What the gateway has just read, in log and metrics, as a node tells of its own. */
static void tell_tls(const struct gateway_process *p)
{
    const struct nd_settings *s = &p->launch.settings;
    const struct nd_rpc_tls_files files = {s->http_tls_cert_file, s->http_tls_key_file,
                                           s->http_tls_client_ca_file};
    struct nd_errmsg msg = {""};
    nd_ignore(nd_rpc_tls_files_tell(&files, "http", p->log, p->metrics, &msg),
              "the gateway could use them");
}

static enum nd_err start(struct gateway_process *p, struct nd_errmsg *msg)
{
    struct nd_gateway_options options;
    nd_gateway_options_init(&options, &p->launch.settings);
    struct nd_rpc_channel_options *channel = &options.upstream.channel;
    channel->target = p->way.broker;
    channel->tls = p->way.tls;
    channel->tls_ca_file = p->way.ca_file;
    channel->tls_cert_file = p->way.cert_file;
    channel->tls_key_file = p->way.key_file;
    channel->tls_server_name = p->way.tls_server_name[0] == '\0' ? NULL : p->way.tls_server_name;
    options.upstream.log = p->log;
    options.metrics = p->metrics;
    options.own_metrics = true;
    options.log = p->log;
    enum nd_err err = nd_gateway_start(&p->gateway, &options, &p->port, msg);
    if (err != ND_OK) {
        return err;
    }
    tell_tls(p);
    return write_ready_file(p, msg);
}

/* Until SIGTERM or SIGINT. */
static void serve(struct gateway_process *p, const sigset_t *set)
{
    int number = 0;
    while (sigwait(set, &number) != 0 || number == SIGHUP) {
        struct nd_errmsg msg = {""};
        if (number != SIGHUP) {
            continue;
        }
        if (nd_gateway_reload_tls(p->gateway, &msg) == ND_OK) {
            tell_tls(p);
        } else {
            nd_log(p->log, ND_LOG_ERROR, "gateway", "reload failed, the old certificate stays",
                   "err=%s", msg.text);
        }
    }
    nd_log(p->log, ND_LOG_INFO, "gateway", "stopping", "signal=%s",
           number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static int run(struct gateway_process *p)
{
    struct nd_errmsg msg = {""};
    sigset_t set;
    signal_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* the threads to come inherit it */
    signal(SIGPIPE, SIG_IGN);
    nd_files_limit_raise(p->log);
    p->metrics = nd_metrics_new();
    bool good = start(p, &msg) == ND_OK;
    if (good) {
        serve(p, &set);
        pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* a second signal ends the process at once */
    } else {
        nd_log(p->log, ND_LOG_ERROR, "gateway", "cannot start", "err=%s", msg.text);
        fprintf(stderr, "narad: %s\n", msg.text);
    }
    if (p->launch.ready_file != NULL) {
        (void)unlink(p->launch.ready_file);
    }
    nd_gateway_stop(p->gateway);
    nd_metrics_free(p->metrics);
    nd_log(p->log, ND_LOG_INFO, "gateway", "stopped", NULL);
    return good ? 0 : 1;
}

int nd_gateway_main(int argc, const char *const *argv)
{
    struct gateway_process process = {.port = 0};
    bool good = load(&process, argc, argv);
    int status = good ? 0 : 1;
    if (good && process.launch.help) {
        help();
    } else if (good) {
        status = run(&process);
        nd_log_free(process.log);
    }
    nd_launch_release(&process.launch);
    return status;
}
