#include "gateway/http_tls.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdatomic.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"

struct nd_tls_files {
    _Atomic uint32_t refs;
    gnutls_certificate_credentials_t credentials;
    bool clients_checked;
};

struct nd_tls {
    struct nd_mutex lock;
    struct nd_tls_files *current; /* guarded by lock */
    char *cert_file, *key_file, *client_ca_file;
};

void nd_tls_detach(struct nd_tls_files *files)
{
    if (files != NULL && atomic_fetch_sub_explicit(&files->refs, 1, memory_order_acq_rel) == 1) {
        gnutls_certificate_free_credentials(files->credentials);
        nd_free(files);
    }
}

static enum nd_err failed(const char *what, const char *file, int code, struct nd_errmsg *msg)
{
    nd_errmsg_set(msg, "%s %s: %s", what, file, gnutls_strerror(code));
    return ND_ERR_INVALID_ARGUMENT;
}

static enum nd_err files_load(struct nd_tls_files *files, const struct nd_tls *tls,
                              struct nd_errmsg *msg)
{
    int code = gnutls_certificate_set_x509_key_file(files->credentials, tls->cert_file,
                                                    tls->key_file, GNUTLS_X509_FMT_PEM);
    if (code < 0) {
        return failed("certificate and key", tls->cert_file, code, msg);
    }
    if (!files->clients_checked) {
        return ND_OK;
    }
    code = gnutls_certificate_set_x509_trust_file(files->credentials, tls->client_ca_file,
                                                  GNUTLS_X509_FMT_PEM);
    if (code == 0) {
        nd_errmsg_set(msg, "client authorities %s: no certificate in it", tls->client_ca_file);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return code < 0 ? failed("client authorities", tls->client_ca_file, code, msg) : ND_OK;
}

static enum nd_err files_read(struct nd_tls_files **out, const struct nd_tls *tls,
                              struct nd_errmsg *msg)
{
    struct nd_tls_files *files = nd_xcalloc(1, sizeof *files);

    atomic_init(&files->refs, 1);
    files->clients_checked = tls->client_ca_file[0] != '\0';
    if (gnutls_certificate_allocate_credentials(&files->credentials) < 0) {
        nd_free(files);
        nd_errmsg_set(msg, "out of memory");
        return ND_ERR_NO_MEMORY;
    }
    enum nd_err err = files_load(files, tls, msg);
    if (err != ND_OK) {
        nd_tls_detach(files);
        return err;
    }
    *out = files;
    return ND_OK;
}

enum nd_err nd_tls_new(struct nd_tls **out, const char *cert_file, const char *key_file,
                       const char *client_ca_file, struct nd_errmsg *msg)
{
    struct nd_tls *tls = nd_xcalloc(1, sizeof *tls);

    nd_mutex_init(&tls->lock);
    tls->cert_file = nd_xstrdup(cert_file);
    tls->key_file = nd_xstrdup(key_file);
    tls->client_ca_file = nd_xstrdup(client_ca_file == NULL ? "" : client_ca_file);
    enum nd_err err = files_read(&tls->current, tls, msg);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "http.tls");
        nd_tls_free(tls);
        return err;
    }
    *out = tls;
    return ND_OK;
}

void nd_tls_free(struct nd_tls *tls)
{
    if (tls != NULL) {
        nd_tls_detach(tls->current);
        nd_free(tls->cert_file);
        nd_free(tls->key_file);
        nd_free(tls->client_ca_file);
        nd_mutex_release(&tls->lock);
        nd_free(tls);
    }
}

enum nd_err nd_tls_reload(struct nd_tls *tls, struct nd_errmsg *msg)
{
    struct nd_tls_files *fresh = NULL, *old;
    enum nd_err err = files_read(&fresh, tls, msg);

    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "http.tls");
        return err;
    }
    nd_mutex_lock(&tls->lock);
    old = tls->current;
    tls->current = fresh;
    nd_mutex_unlock(&tls->lock);
    nd_tls_detach(old);
    return ND_OK;
}

/* 0: go on. The certificate that the client showed must be of one of the authorities. */
static int client_check(gnutls_session_t session)
{
    unsigned status = 1;

    return gnutls_certificate_verify_peers2(session, &status) < 0 || status != 0;
}

struct nd_tls_files *nd_tls_attach(struct nd_tls *tls, void *session)
{
    nd_mutex_lock(&tls->lock);
    struct nd_tls_files *files = tls->current;
    atomic_fetch_add_explicit(&files->refs, 1, memory_order_relaxed); /* held by the lock */
    nd_mutex_unlock(&tls->lock);
    if (gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, files->credentials) < 0) {
        nd_tls_detach(files);
        return NULL;
    }
    if (files->clients_checked) {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_function(session, client_check);
    }
    return files;
}

static int unused_callback(gnutls_session_t session, const gnutls_datum_t *authorities,
                           int authorities_count, const gnutls_pk_algorithm_t *algorithms,
                           int algorithms_count, gnutls_pcert_st **certificates,
                           unsigned int *certificates_count, gnutls_privkey_t *key)
{
    (void)session;
    (void)authorities;
    (void)authorities_count;
    (void)algorithms;
    (void)algorithms_count;
    (void)certificates;
    (void)certificates_count;
    (void)key;
    return -1;
}

void *nd_tls_unused_callback(void)
{
    union {
        int (*function)(gnutls_session_t, const gnutls_datum_t *, int,
                        const gnutls_pk_algorithm_t *, int, gnutls_pcert_st **, unsigned int *,
                        gnutls_privkey_t *);
        void *pointer;
    } both = {.function = unused_callback};

    return both.pointer;
}
