/* TLS on the core's terms. A listener's certificate is fetched by the core at each handshake, so a
 * reload puts new texts in place and the next handshake uses them; connections that stand keep the
 * keys they agreed on.
 *
 *   files ─► read, checked (tls_files.c) ─► listener's texts, version n ─► core, once a version */
#include "proto/rpc/tls.h"

#include <string.h>
#include <time.h>

#include "storage/base/alloc.h"

#include "proto/rpc/server_impl.h"
#include "proto/rpc/tls_files.h"

enum { EXPIRES_SOON_S = 14 * 24 * 3600 };

struct nd_rpc_tls {
    struct nd_list link; /* in server->tls */
    struct nd_rpc_server *server;
    char *address;
    char *cert_file, *key_file, *client_ca_file;
    struct nd_rpc_pem read; /* main thread: what a reload read and has not put in place */
    struct nd_mutex lock;
    struct nd_rpc_pem pem; /* guarded by lock */
    uint64_t version;      /* guarded by lock: of `pem` */
    uint64_t fetched;      /* guarded by lock: the version that the core has */
};

/* --- server --- */

static grpc_ssl_certificate_config_reload_status fetch(void *arg,
                                                       grpc_ssl_server_certificate_config **out)
{
    struct nd_rpc_tls *tls = arg;
    grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;

    nd_mutex_lock(&tls->lock);
    if (tls->fetched != tls->version) {
        grpc_ssl_pem_key_cert_pair pair = {tls->pem.key, tls->pem.cert};
        /* The core wants authorities even when it asks no client for a certificate. */
        const char *authorities = tls->pem.ca != NULL ? tls->pem.ca : tls->pem.cert;
        *out = grpc_ssl_server_certificate_config_create(authorities, &pair, 1);
        tls->fetched = tls->version;
        status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    nd_mutex_unlock(&tls->lock);
    return status;
}

static enum nd_err files_read(struct nd_rpc_tls *tls, struct nd_errmsg *msg)
{
    nd_rpc_pem_release(&tls->read);
    return nd_rpc_pem_read(&tls->read, tls->cert_file, tls->key_file, tls->client_ca_file, msg);
}

static void put_in_place(struct nd_rpc_tls *tls)
{
    nd_mutex_lock(&tls->lock);
    struct nd_rpc_pem old = tls->pem;
    tls->pem = tls->read;
    tls->version += 1;
    nd_mutex_unlock(&tls->lock);
    tls->read = (struct nd_rpc_pem){.cert = NULL};
    nd_rpc_pem_release(&old);
}

enum nd_err nd_rpc_tls_new(struct nd_rpc_tls **out, struct nd_rpc_server *server,
                           const char *address, const struct nd_rpc_tls_files *files,
                           struct nd_errmsg *msg)
{
    if (files->cert_file == NULL || files->cert_file[0] == '\0') {
        nd_errmsg_set(msg, "TLS on %s needs a certificate file and its key file", address);
        return ND_ERR_INVALID_ARGUMENT;
    }
    struct nd_rpc_tls *tls = nd_xcalloc(1, sizeof *tls);
    nd_list_init(&tls->link);
    nd_mutex_init(&tls->lock);
    tls->server = server;
    tls->address = nd_xstrdup(address);
    tls->cert_file = nd_xstrdup(files->cert_file);
    tls->key_file = nd_xstrdup(files->key_file != NULL ? files->key_file : "");
    tls->client_ca_file = nd_xstrdup(files->client_ca_file != NULL ? files->client_ca_file : "");
    enum nd_err err = files_read(tls, msg);
    if (err != ND_OK) {
        nd_rpc_tls_free(tls);
        return err;
    }
    put_in_place(tls);
    *out = tls;
    return ND_OK;
}

void nd_rpc_tls_free(struct nd_rpc_tls *tls)
{
    nd_rpc_pem_release(&tls->read);
    nd_rpc_pem_release(&tls->pem);
    nd_mutex_release(&tls->lock);
    nd_free(tls->address);
    nd_free(tls->cert_file);
    nd_free(tls->key_file);
    nd_free(tls->client_ca_file);
    nd_free(tls);
}

void nd_rpc_tls_free_all(struct nd_rpc_server *server)
{
    for (struct nd_list *link; (link = nd_list_pop(&server->tls)) != NULL;) {
        nd_rpc_tls_free(ND_CONTAINER_OF(link, struct nd_rpc_tls, link));
    }
}

grpc_server_credentials *nd_rpc_tls_server_credentials(struct nd_rpc_tls *tls)
{
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            tls->client_ca_file[0] != '\0'
                ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            fetch, tls));
}

/* What a certificate that clients will refuse, now or soon, looks like in the log. */
static void dates_warn(const struct nd_rpc_pem *pem, const char *listener, const char *cert_file,
                       struct nd_log *log)
{
    int64_t now_s = (int64_t)time(NULL);
    const char *event = NULL;

    if (pem->not_after_s <= now_s) {
        event = "certificate has expired";
    } else if (pem->not_before_s > now_s) {
        event = "certificate is not valid yet";
    } else if (pem->not_after_s - now_s < EXPIRES_SOON_S) {
        event = "certificate expires soon";
    }
    if (event != NULL) {
        nd_log(log, ND_LOG_WARN, "tls", event, "listener=%s file=%s not_after=%s", listener,
               cert_file, pem->not_after);
    }
}

static void tell(const struct nd_rpc_pem *pem, const char *listener,
                 const struct nd_rpc_tls_files *files, struct nd_log *log)
{
    char subject[2 * sizeof pem->subject];

    nd_log(log, ND_LOG_INFO, "tls", "certificate in use",
           "listener=%s file=%s subject=%s not_after=%s client_certificates=%s", listener,
           files->cert_file, nd_log_quote(subject, sizeof subject, pem->subject), pem->not_after,
           pem->ca != NULL ? "required" : "no");
    dates_warn(pem, listener, files->cert_file, log);
    if (pem->key_is_shared) {
        nd_log(log, ND_LOG_WARN, "tls", "every user of this machine may read the key",
               "listener=%s file=%s", listener, files->key_file);
    }
}

static void expiry_set(struct nd_metrics *metrics, const char *listener, int64_t not_after_s)
{
    char labels[64] = "";

    if (metrics == NULL) {
        return;
    }
    nd_metrics_label(labels, sizeof labels, "listener", listener);
    nd_series_set(nd_metrics_gauge(metrics, "tls_cert_not_after_seconds", labels,
                                   "When the certificate of the listener expires, Unix seconds."),
                  (double)not_after_s);
}

/* @thread main, which alone changes `pem` */
static void tell_own(const struct nd_rpc_tls *tls)
{
    const struct nd_rpc_tls_files files = {tls->cert_file, tls->key_file, tls->client_ca_file};

    tell(&tls->pem, "grpc", &files, tls->server->options.log);
}

static void expiry_count(const struct nd_rpc_server *server)
{
    int64_t first_s = INT64_MAX;

    ND_LIST_FOREACH (&server->tls, link) {
        const struct nd_rpc_tls *tls = ND_CONTAINER_OF(link, struct nd_rpc_tls, link);
        first_s = ND_MIN(first_s, tls->pem.not_after_s);
    }
    expiry_set(server->options.metrics, "grpc", first_s);
}

enum nd_err nd_rpc_tls_files_check(const struct nd_rpc_tls_files *files, struct nd_errmsg *msg)
{
    struct nd_rpc_pem pem = {.cert = NULL};
    enum nd_err err =
        nd_rpc_pem_read(&pem, files->cert_file, files->key_file, files->client_ca_file, msg);

    nd_rpc_pem_release(&pem);
    return err;
}

enum nd_err nd_rpc_tls_files_tell(const struct nd_rpc_tls_files *files, const char *listener,
                                  struct nd_log *log, struct nd_metrics *metrics,
                                  struct nd_errmsg *msg)
{
    struct nd_rpc_pem pem = {.cert = NULL};
    enum nd_err err =
        nd_rpc_pem_read(&pem, files->cert_file, files->key_file, files->client_ca_file, msg);

    if (err == ND_OK && pem.cert != NULL) {
        tell(&pem, listener, files, log);
        expiry_set(metrics, listener, pem.not_after_s);
    }
    nd_rpc_pem_release(&pem);
    return err;
}

void nd_rpc_tls_adopt(struct nd_rpc_tls *tls)
{
    nd_list_append(&tls->server->tls, &tls->link);
    tell_own(tls);
    expiry_count(tls->server);
}

enum nd_err nd_rpc_server_reload_tls(struct nd_rpc_server *server, struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;

    ND_LIST_FOREACH (&server->tls, link) {
        err = err == ND_OK ? files_read(ND_CONTAINER_OF(link, struct nd_rpc_tls, link), msg) : err;
    }
    if (err != ND_OK || nd_list_empty(&server->tls)) {
        return err;
    }
    ND_LIST_FOREACH (&server->tls, link) {
        struct nd_rpc_tls *tls = ND_CONTAINER_OF(link, struct nd_rpc_tls, link);
        put_in_place(tls);
        tell_own(tls);
    }
    expiry_count(server);
    return ND_OK;
}

/* --- channel --- */

static bool is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static enum nd_err options_check(const struct nd_rpc_channel_options *options,
                                 struct nd_errmsg *msg)
{
    if (options->tls && strncmp(options->target, "unix:", 5) == 0) {
        nd_errmsg_set(msg, "%s: a Unix socket is plain, TLS must be off for it", options->target);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (!options->tls && (is_given(options->tls_ca_file) || is_given(options->tls_cert_file) ||
                          is_given(options->tls_key_file) || is_given(options->tls_server_name))) {
        nd_errmsg_set(msg, "TLS files or a server name are given, and TLS is off");
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

enum nd_err nd_rpc_channel_credentials(grpc_channel_credentials **out,
                                       const struct nd_rpc_channel_options *options,
                                       struct nd_errmsg *msg)
{
    struct nd_rpc_pem pem = {.cert = NULL};
    enum nd_err err = options_check(options, msg);

    if (err != ND_OK) {
        return err;
    }
    if (!options->tls) {
        *out = grpc_insecure_credentials_create();
        return ND_OK;
    }
    const char *ca_file =
        is_given(options->tls_ca_file) ? options->tls_ca_file : nd_rpc_system_ca_file();
    if (ca_file == NULL) {
        nd_errmsg_set(msg, "this system has no file of certificate authorities (package "
                           "ca-certificates): name one with a CA file or SSL_CERT_FILE");
        return ND_ERR_INVALID_ARGUMENT;
    }
    err = nd_rpc_pem_read(&pem, options->tls_cert_file, options->tls_key_file, ca_file, msg);
    if (err != ND_OK) {
        return err;
    }
    grpc_ssl_pem_key_cert_pair pair = {pem.key, pem.cert};
    *out = grpc_ssl_credentials_create_ex(pem.ca, pem.cert != NULL ? &pair : NULL, NULL, NULL);
    nd_rpc_pem_release(&pem);
    return ND_OK;
}
