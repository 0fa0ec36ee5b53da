#include "proto/rpc/tls_files.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"

static void secret_free(char *text)
{
    if (text != NULL) {
        OPENSSL_cleanse(text, strlen(text));
        nd_free(text);
    }
}

/* --- reading --- */

/* `what` is for the message: "certificate", "key", "CA". */
static enum nd_err file_text(char **out, const char *what, const char *path, struct nd_errmsg *msg)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        nd_errmsg_set(msg, "TLS %s file %s: %s", what, path, strerror(errno));
        return ND_ERR_IO;
    }
    setvbuf(file, NULL, _IONBF, 0); /* no copy of a key in a buffer of stdio */
    char *text = nd_xmalloc(ND_RPC_TLS_FILE_BYTES_MAX + 1);
    size_t size = fread(text, 1, ND_RPC_TLS_FILE_BYTES_MAX + 1, file);
    bool failed = ferror(file) != 0;
    int reason = errno;
    fclose(file);
    text[ND_MIN(size, (size_t)ND_RPC_TLS_FILE_BYTES_MAX)] = '\0';
    enum nd_err err = ND_ERR_INVALID_ARGUMENT;
    if (failed) {
        nd_errmsg_set(msg, "TLS %s file %s: %s", what, path, strerror(reason));
        err = ND_ERR_IO;
    } else if (size > ND_RPC_TLS_FILE_BYTES_MAX) {
        nd_errmsg_set(msg, "TLS %s file %s: larger than %d bytes", what, path,
                      ND_RPC_TLS_FILE_BYTES_MAX);
    } else if (strlen(text) != size) {
        nd_errmsg_set(msg, "TLS %s file %s: not PEM text", what, path);
    } else {
        *out = text;
        return ND_OK;
    }
    OPENSSL_cleanse(text, ND_MIN(size, (size_t)ND_RPC_TLS_FILE_BYTES_MAX));
    nd_free(text);
    return err;
}

/* --- looking at it --- */

static const char *openssl_reason(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(code);
    return reason != NULL ? reason : "OpenSSL refuses it";
}

static int64_t seconds_of(const ASN1_TIME *time)
{
    struct tm utc = {0};
    return ASN1_TIME_to_tm(time, &utc) == 1 ? (int64_t)timegm(&utc) : 0;
}

static void dates_note(struct nd_rpc_pem *pem, const X509 *cert, bool first)
{
    int64_t not_before_s = seconds_of(X509_get0_notBefore(cert));
    int64_t not_after_s = seconds_of(X509_get0_notAfter(cert));
    pem->not_before_s = first ? not_before_s : ND_MAX(pem->not_before_s, not_before_s);
    pem->not_after_s = first ? not_after_s : ND_MIN(pem->not_after_s, not_after_s);
}

static void subject_note(struct nd_rpc_pem *pem, const X509 *cert)
{
    BIO *text = BIO_new(BIO_s_mem());
    ND_ASSERT(text != NULL);
    X509_NAME_print_ex(text, X509_get_subject_name(cert), 0, XN_FLAG_RFC2253);
    int size = BIO_read(text, pem->subject, sizeof pem->subject - 1);
    pem->subject[ND_MAX(size, 0)] = '\0';
    BIO_free(text);
}

/* How many certificates are in `text`; each goes to `take`, which owns it when it says true. A
 * negative count: the one of that number is damaged or was not taken. */
static int certificates_walk(const char *text, bool (*take)(void *arg, X509 *cert, bool first),
                             void *arg)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    ND_ASSERT(bio != NULL);
    int count = 0;
    ERR_clear_error();
    for (X509 *cert; (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL;) {
        count += 1;
        if (!take(arg, cert, count == 1)) {
            X509_free(cert);
            BIO_free(bio);
            return -count;
        }
    }
    bool whole = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    BIO_free(bio);
    return whole ? count : -(count + 1);
}

static enum nd_err certificates_judge(int count, const char *what, const char *path,
                                      struct nd_errmsg *msg)
{
    if (count > 0) {
        return ND_OK;
    }
    if (count == 0) {
        nd_errmsg_set(msg, "TLS %s file %s: no certificate in it (PEM is expected)", what, path);
    } else {
        nd_errmsg_set(msg, "TLS %s file %s: certificate %d cannot be used: %s", what, path, -count,
                      openssl_reason());
    }
    return ND_ERR_INVALID_ARGUMENT;
}

/* --- certificate and key: put into a context as the core will --- */

struct pair {
    SSL_CTX *context;
    X509 *own;
    struct nd_rpc_pem *pem;
};

static bool chain_take(void *arg, X509 *cert, bool first)
{
    struct pair *pair = arg;
    dates_note(pair->pem, cert, first);
    if (!first) {
        return SSL_CTX_add_extra_chain_cert(pair->context, cert) == 1;
    }
    if (SSL_CTX_use_certificate(pair->context, cert) != 1) {
        return false;
    }
    subject_note(pair->pem, cert);
    pair->own = cert;
    return true;
}

/* Instead of asking at the terminal. */
static int no_password(char *out, int out_size, int writing, void *asked)
{
    (void)out;
    (void)out_size;
    (void)writing;
    *(bool *)asked = true;
    return -1;
}

static enum nd_err key_check(struct pair *pair, const char *cert_file, const char *key_file,
                             struct nd_errmsg *msg)
{
    BIO *bio = BIO_new_mem_buf(pair->pem->key, -1);
    ND_ASSERT(bio != NULL);
    bool asked = false;
    ERR_clear_error();
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_password, &asked);
    enum nd_err err = ND_ERR_INVALID_ARGUMENT;
    if (asked) {
        nd_errmsg_set(msg, "TLS key file %s: the key is encrypted with a password; it must not be",
                      key_file);
    } else if (key == NULL) {
        nd_errmsg_set(msg, "TLS key file %s: no private key in it (PEM is expected)", key_file);
    } else if (X509_check_private_key(pair->own, key) != 1) {
        nd_errmsg_set(msg, "TLS key file %s: not the key of the certificate in %s", key_file,
                      cert_file);
    } else if (SSL_CTX_use_PrivateKey(pair->context, key) != 1) {
        nd_errmsg_set(msg, "TLS key file %s: %s", key_file, openssl_reason());
    } else {
        err = ND_OK;
    }
    EVP_PKEY_free(key);
    BIO_free(bio);
    return err;
}

static enum nd_err pair_read(struct nd_rpc_pem *pem, const char *cert_file, const char *key_file,
                             struct nd_errmsg *msg)
{
    struct pair pair = {.context = SSL_CTX_new(TLS_method()), .pem = pem};
    struct stat status;

    ND_ASSERT(pair.context != NULL);
    enum nd_err err = file_text(&pem->cert, "certificate", cert_file, msg);
    if (err == ND_OK) {
        int count = certificates_walk(pem->cert, chain_take, &pair);
        err = certificates_judge(count, "certificate", cert_file, msg);
    }
    if (err == ND_OK) {
        err = file_text(&pem->key, "key", key_file, msg);
    }
    if (err == ND_OK) {
        err = key_check(&pair, cert_file, key_file, msg);
    }
    pem->key_is_shared = stat(key_file, &status) == 0 && (status.st_mode & S_IROTH) != 0;
    X509_free(pair.own);
    SSL_CTX_free(pair.context);
    return err;
}

static bool ca_take(void *arg, X509 *cert, bool first)
{
    (void)arg;
    (void)first;
    X509_free(cert);
    return true;
}

static bool is_given(const char *path)
{
    return path != NULL && path[0] != '\0';
}

enum nd_err nd_rpc_pem_read(struct nd_rpc_pem *out, const char *cert_file, const char *key_file,
                            const char *ca_file, struct nd_errmsg *msg)
{
    struct nd_rpc_pem pem = {.cert = NULL};
    enum nd_err err = ND_OK;

    if (is_given(cert_file) != is_given(key_file)) {
        nd_errmsg_set(msg, "a TLS certificate and its key go together: the %s file is missing",
                      is_given(cert_file) ? "key" : "certificate");
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (is_given(cert_file)) {
        err = pair_read(&pem, cert_file, key_file, msg);
    }
    if (err == ND_OK && is_given(ca_file)) {
        err = file_text(&pem.ca, "CA", ca_file, msg);
        if (err == ND_OK) {
            err = certificates_judge(certificates_walk(pem.ca, ca_take, NULL), "CA", ca_file, msg);
        }
    }
    if (err != ND_OK) {
        nd_rpc_pem_release(&pem);
        return err;
    }
    time_t not_after = (time_t)pem.not_after_s;
    struct tm utc;
    strftime(pem.not_after, sizeof pem.not_after, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&not_after, &utc));
    *out = pem;
    return ND_OK;
}

void nd_rpc_pem_release(struct nd_rpc_pem *pem)
{
    nd_free(pem->cert);
    secret_free(pem->key);
    nd_free(pem->ca);
    *pem = (struct nd_rpc_pem){.cert = NULL};
}

const char *nd_rpc_system_ca_file(void)
{
    static const char *const usual[] = {
        "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem"};
    const char *chosen = getenv("SSL_CERT_FILE");

    if (is_given(chosen)) {
        return chosen;
    }
    for (size_t i = 0; i < ND_ARRAY_SIZE(usual); i++) {
        if (access(usual[i], R_OK) == 0) {
            return usual[i];
        }
    }
    return NULL;
}
