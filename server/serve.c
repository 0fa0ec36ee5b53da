#include "server/serve.h"

#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/disk_watch.h"
#include "storage/base/wipe.h"

#include "server/node.h"
#include "server/security/password.h"
#include "server/version.h"

enum {
    NS_PER_MS = 1000000,
    STUCK_MS = 5000, /* beyond the grace of a stop, which ends what is open in an orderly way */
};

/* What the main thread waits for. */
struct serve {
    struct nd_launch launch;
    struct nd_log *log;
    struct nd_disk_watch disk;
    struct nd_inbox inbox;
    struct nd_msg caught_up, stop, reload;
    struct nd_thread signals;
    struct nd_node *node;
    char *admin_password; /* NARAD_ADMIN_PASSWORD, until the node has it; or NULL */
    bool stopping, failed;
    _Atomic bool settled;      /* the start is over, or a signal came before */
    _Atomic bool reload_asked; /* `reload` is in the inbox */
};

/* The log has said it; standard error says it to people, unless they see the log there. */
static void tell_people(const char *text)
{
    struct stat log, people;
    if (fstat(STDOUT_FILENO, &log) != 0 || fstat(STDERR_FILENO, &people) != 0 ||
        log.st_dev != people.st_dev || log.st_ino != people.st_ino) {
        fprintf(stderr, "narad: %s\n", text);
    }
}

/* --- signals: one thread takes them, so that no handler runs anywhere --- */

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1); /* from ourselves: the thread ends */
}

/* A start may take long, and a device that hangs may never let it end. It has confirmed nothing,
 * and what it changes may be cut anywhere, as by a crash: a signal ends it at once. */
static void leave_the_start(struct serve *serve)
{
    if (serve->launch.temporary_data) {
        return; /* someone has to remove it, and nothing is in it */
    }
    /* acq_rel: one of both, the signal or the end of the start, is the first */
    if (!atomic_exchange_explicit(&serve->settled, true, memory_order_acq_rel)) {
        nd_log(serve->log, ND_LOG_INFO, "serve", "stopped", "while=starting");
        _exit(0);
    }
}

/* A node for trying things ends with its terminal, unless it has a certificate to read again. */
static bool is_reload(const struct serve *serve, int number)
{
    const struct nd_settings *settings = &serve->launch.settings;

    return number == SIGHUP && (!serve->launch.dev || settings->grpc_tls_cert_file[0] != '\0' ||
                                settings->http_tls_cert_file[0] != '\0');
}

static void ask_reload(struct serve *serve)
{
    /* acq_rel: the message is pushed again only after its last run began */
    if (!atomic_exchange_explicit(&serve->reload_asked, true, memory_order_acq_rel)) {
        nd_inbox_push(&serve->inbox, &serve->reload);
    }
}

static uint64_t now_ms(const struct serve *serve)
{
    return serve->disk.base->mono_ns(serve->disk.base->impl) / NS_PER_MS;
}

/* A call of the disk that never returns keeps the stop from its end, and nothing can end the call.
 * What was confirmed is on the device; what waits for the call was not, so nothing is lost. */
static void leave_a_stuck_stop(struct serve *serve, uint64_t asked_ms)
{
    uint64_t patience_ms = serve->launch.settings.http_shutdown_grace + STUCK_MS;
    uint64_t since_ns = 0;
    char call[1200], text[1400];

    if (now_ms(serve) - asked_ms < patience_ms ||
        !nd_disk_watch_oldest(&serve->disk, call, sizeof call, &since_ns)) {
        return;
    }
    uint64_t under_way_ms = now_ms(serve) - ND_MIN(now_ms(serve), since_ns / NS_PER_MS);
    if (under_way_ms < patience_ms) {
        return;
    }
    nd_log(serve->log, ND_LOG_ERROR, "serve", "stop given up", "waits_for=\"%s\" under_way_ms=%llu",
           call, (unsigned long long)under_way_ms);
    snprintf(text, sizeof text, "the stop waits for %s: exiting all the same", call);
    tell_people(text);
    _exit(1);
}

/* The next signal; 0: a second of the stop is over; -1: no more of them. */
static int signal_next(const sigset_t *set, bool stopping)
{
    const struct timespec second = {.tv_sec = 1};
    int number = 0;

    if (!stopping) {
        return sigwait(set, &number) == 0 ? number : -1;
    }
    number = sigtimedwait(set, NULL, &second);
    return ND_MAX(number, 0);
}

static void signals_run(void *arg)
{
    struct serve *serve = arg;
    bool asked = false;
    uint64_t asked_ms = 0;
    sigset_t set;
    signal_set(&set);
    for (;;) {
        int number = signal_next(&set, asked);
        if (number < 0 || number == SIGUSR1) {
            return;
        }
        if (number == 0) {
            leave_a_stuck_stop(serve, asked_ms);
            continue;
        }
        if (is_reload(serve, number)) {
            ask_reload(serve);
            continue;
        }
        if (asked) {
            static const char text[] = "narad: second signal, exiting at once\n";
            (void)!write(STDERR_FILENO, text, sizeof text - 1);
            _exit(128 + number);
        }
        asked = true;
        asked_ms = now_ms(serve);
        nd_log(serve->log, ND_LOG_INFO, "serve", "stopping", "signal=%s",
               number == SIGTERM  ? "SIGTERM"
               : number == SIGINT ? "SIGINT"
                                  : "SIGHUP");
        leave_the_start(serve);
        nd_inbox_push(&serve->inbox, &serve->stop);
    }
}

/* Before any thread exists: all of them inherit the mask. */
static void signals_block(void)
{
    sigset_t set;
    signal_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* --- the first user's password: from the environment only, and in memory no longer than needed ---
 */

static void admin_password_forget(struct serve *serve)
{
    nd_free_secret(serve->admin_password);
    serve->admin_password = NULL;
}

/* False: it can be nobody's, and that was told. */
static bool admin_password_take(struct serve *serve)
{
    char *value = getenv("NARAD_ADMIN_PASSWORD");
    struct nd_errmsg msg = {""};
    if (value == NULL || value[0] == '\0' || !serve->launch.settings.security_enabled) {
        return true;
    }
    enum nd_err err = nd_password_check(nd_slice_str(value), &msg);
    if (err == ND_OK) {
        serve->admin_password = nd_xstrdup(value);
    } else {
        fprintf(stderr, "narad: NARAD_ADMIN_PASSWORD: %s\n", msg.text);
    }
    nd_wipe_text(value);
    unsetenv("NARAD_ADMIN_PASSWORD");
    return err == ND_OK;
}

/* --- messages to the main thread --- */

static void on_stop(struct nd_msg *msg, void *owner)
{
    struct serve *serve = owner;
    (void)msg;
    serve->stopping = true;
}

static void on_reload(struct nd_msg *msg, void *owner)
{
    struct serve *serve = owner;
    (void)msg;
    /* acq_rel: see ask_reload; a signal from here on is another reload */
    atomic_exchange_explicit(&serve->reload_asked, false, memory_order_acq_rel);
    if (!serve->stopping && serve->node != NULL) {
        nd_node_reload(serve->node);
    }
}

static void on_caught_up(struct nd_msg *msg, void *owner)
{
    struct serve *serve = owner;
    struct nd_errmsg why = {""};
    (void)msg;
    if (serve->stopping || serve->node == NULL) {
        return;
    }
    enum nd_err err = nd_node_ready(serve->node, &why);
    admin_password_forget(serve);
    if (err != ND_OK) {
        nd_log(serve->log, ND_LOG_ERROR, "serve", "cannot tell that it is ready", "err=%s",
               why.text);
        tell_people(why.text);
        serve->stopping = serve->failed = true;
    }
}

/* --- the data directory of --dev --- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static bool temporary_directory(struct nd_settings *settings)
{
    const char *base = getenv("TMPDIR");
    char *path =
        nd_xasprintf("%s/narad-dev-XXXXXX", base == NULL || base[0] == '\0' ? "/tmp" : base);
    if (mkdtemp(path) == NULL) {
        fprintf(stderr, "narad: no temporary directory %s: %m\n", path);
        nd_free(path);
        return false;
    }
    nd_free(settings->storage_data_dir);
    settings->storage_data_dir = path;
    return true;
}

/* --- the process --- */

void nd_files_limit_raise(struct nd_log *log)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < 1024) {
        nd_log(log, ND_LOG_WARN, "serve", "few open files allowed", "limit=%llu",
               (unsigned long long)limit.rlim_cur);
    }
}

/* After the start, which knows the port. */
static void banner(const struct serve *serve)
{
    const struct nd_settings *settings = &serve->launch.settings;
    char address[300];
    nd_node_address(serve->node, address, sizeof address);
    printf("narad %s, for development: loopback only, no passwords\n"
           "  data %s%s\n",
           nd_version_long(), settings->storage_data_dir,
           serve->launch.temporary_data ? " (temporary: removed at the end)" : "");
    if (settings->grpc_tls_cert_file[0] != '\0') {
        printf("  TLS  clients need NARAD_CA_FILE, the authority of %s\n",
               settings->grpc_tls_cert_file);
    }
    if (strcmp(address, "127.0.0.1:7941") != 0) {
        printf("  at   export NARAD_SERVER=%s\n", address);
    }
    printf("  try  narad topics create demo && echo hello | narad produce demo && narad consume "
           "demo\n");
    nd_node_http_address(serve->node, address, sizeof address);
    if (address[0] != '\0') {
        bool tls = settings->http_tls_cert_file[0] != '\0';
        printf("  or   curl%s -d hello '%s://%s/v1/topics/demo/produce' && "
               "curl%s '%s://%s/v1/topics/demo/consume'\n",
               tls ? " -k" : "", tls ? "https" : "http", address, tls ? " -k" : "",
               tls ? "https" : "http", address);
    }
    fflush(stdout);
}

static const char *process_getenv(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* ND_OK, or told on standard error. */
static enum nd_err load(struct serve *serve, int argc, const char *const *argv)
{
    char host[256] = "";
    struct nd_buf problems, warnings;
    nd_buf_init(&problems, 1 << 20);
    nd_buf_init(&warnings, 1 << 16);
    (void)gethostname(host, sizeof host - 1);
    struct nd_launch_input input = {argc, argv, process_getenv, NULL, host};
    enum nd_err err = nd_launch_load(&serve->launch, &input, &problems, &warnings);
    if (err != ND_OK) {
        fprintf(stderr, "narad: %.*s\n", (int)problems.size, (const char *)problems.data);
    } else if (!serve->launch.help) {
        enum nd_log_level level = ND_LOG_INFO;
        enum nd_log_format format = ND_LOG_JSON;
        ND_ASSERT(nd_log_level_parse(serve->launch.settings.log_level, &level));
        ND_ASSERT(nd_log_format_parse(serve->launch.settings.log_format, &format));
        serve->log = nd_log_new(STDOUT_FILENO, level, format);
        if (warnings.size > 0) {
            nd_log(serve->log, ND_LOG_WARN, "config", "settings without effect", "keys=%.*s",
                   (int)warnings.size, (const char *)warnings.data);
        }
    }
    nd_buf_release(&problems);
    nd_buf_release(&warnings);
    return err;
}

static void help(void)
{
    struct nd_buf text;
    nd_buf_init(&text, 1 << 20);
    nd_buf_put_text(
        &text,
        "Usage: narad serve [--dev] [--config FILE] [--ready-file FILE] [settings]\n\n"
        "  --dev              a node for this machine: loopback only, security off, text\n"
        "                     log, a temporary data directory unless --data-dir is given\n"
        "  --config FILE      settings as JSON (server/narad.example.json has them all)\n"
        "  --ready-file FILE  written when the node is ready: its address, pid and id\n"
        "  NARAD_ADMIN_PASSWORD  password of the first user, \"admin\"; without it one is made up\n"
        "                     and logged once\n"
        "  --port N           http.addr \":N\"     --cluster-port N   cluster.addr \":N\"\n\n"
        "Settings: defaults, then the file, then variables, then flags. key  flag  "
        "variable:\n");
    nd_settings_help(&text);
    fwrite(text.data, 1, text.size, stdout);
    nd_buf_release(&text);
}

static enum nd_err start(struct serve *serve)
{
    struct nd_errmsg msg = {""};
    struct nd_node_options options = {.launch = &serve->launch,
                                      .log = serve->log,
                                      .disk = &serve->disk,
                                      .inbox = &serve->inbox,
                                      .caught_up = &serve->caught_up,
                                      .admin_password = serve->admin_password};
    serve->caught_up.run = on_caught_up;
    serve->stop.run = on_stop;
    serve->reload.run = on_reload;
    if (!nd_thread_start(&serve->signals, "signals", signals_run, serve)) {
        fprintf(stderr,
                "narad: cannot start the thread signals: no more threads, or no memory, for "
                "this process\n");
        return ND_ERR_NO_MEMORY;
    }
    enum nd_err err = nd_node_start(&serve->node, &options, &msg);
    /* acq_rel: see leave_the_start */
    while (!serve->launch.temporary_data &&
           atomic_exchange_explicit(&serve->settled, true, memory_order_acq_rel)) {
        (void)pause(); /* a signal was first: the process is on its way out */
    }
    if (err != ND_OK) {
        nd_log(serve->log, ND_LOG_ERROR, "serve", "cannot start", "err=%s", msg.text);
        tell_people(msg.text);
    }
    return err;
}

int nd_serve_main(int argc, const char *const *argv)
{
    struct serve serve = {.failed = false};
    enum nd_err err = load(&serve, argc, argv);
    if (err != ND_OK || serve.launch.help) {
        if (err == ND_OK) {
            help();
        }
        nd_launch_release(&serve.launch);
        return err == ND_OK ? 0 : 1;
    }
    signals_block();
    nd_files_limit_raise(serve.log);
    nd_inbox_init(&serve.inbox);
    nd_disk_watch_init(&serve.disk, nd_env_posix());
    serve.failed = !admin_password_take(&serve) ||
                   (serve.launch.temporary_data && !temporary_directory(&serve.launch.settings));
    if (!serve.failed) {
        serve.failed = start(&serve) != ND_OK;
        if (serve.launch.dev && !serve.failed) {
            banner(&serve);
        }
        while (!serve.failed && !serve.stopping) {
            nd_inbox_wait(&serve.inbox, UINT64_MAX);
            nd_inbox_run(&serve.inbox, &serve);
        }
        nd_node_stop(serve.node);
        if (serve.launch.temporary_data) {
            (void)nftw(serve.launch.settings.storage_data_dir, remove_entry, 16,
                       FTW_DEPTH | FTW_PHYS);
        }
    }
    admin_password_forget(&serve);
    if (serve.signals.started) {
        (void)pthread_kill(serve.signals.impl, SIGUSR1);
        nd_thread_join(&serve.signals);
    }
    nd_inbox_run(&serve.inbox, &serve); /* a stop that came too late */
    nd_inbox_release(&serve.inbox);
    nd_disk_watch_release(&serve.disk);
    nd_log_free(serve.log);
    nd_launch_release(&serve.launch);
    return serve.failed ? 1 : 0;
}
