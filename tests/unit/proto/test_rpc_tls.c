/* TLS of server and channel, with certificates that openssl(1) makes for the run. */
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/buf.h"
#include "storage/base/thread.h"

#include "proto/narad/v1/types.pb-c.h"
#include "proto/rpc/client.h"
#include "proto/rpc/server.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"

enum { PATIENCE_MS = 120000 };

static char *certs; /* the directory */

/* Here and not on the stack of a case, so that tear_down can end what a failed case leaves. */
static struct nd_rpc_server *server;
static struct nd_rpc_channel *channel;
static struct nd_metrics *metrics;
static struct nd_log *server_log;
static char log_path[256], target[64];
static struct nd_rpc_tls_files in_use;
static char cert_path[256], key_path[256], ca_path[256];

/* --- the service: what is sent comes back --- */

static void echo_start(struct nd_rpc_call *call, struct nd_slice request)
{
    nd_rpc_call_reply_bytes(call, request, NULL, NULL);
}

static void echo_message(struct nd_rpc_call *call, struct nd_slice message)
{
    nd_rpc_call_send_bytes(call, message, NULL, NULL);
}

static void echo_end(struct nd_rpc_call *call)
{
    nd_rpc_call_finish(call, 0, NULL);
}

static const struct nd_rpc_method echo = {.path = "/test.Tls/Echo",
                                          .kind = ND_RPC_UNARY,
                                          .message_bytes_max = 1024,
                                          .on_start = echo_start};
static const struct nd_rpc_method flow = {.path = "/test.Tls/Flow",
                                          .kind = ND_RPC_BIDI,
                                          .message_bytes_max = 1024,
                                          .on_message = echo_message,
                                          .on_half_close = echo_end,
                                          .on_cancel = echo_end};

/* --- files --- */

static const char *cert(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", certs, name);
    return path;
}

static void copy(const char *from, const char *to)
{
    char command[600];

    snprintf(command, sizeof command, "cp %s %s", from, to);
    assert_int_equal(system(command), 0);
}

static void spoil(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* What the server reads from here on. */
static void server_uses(const char *name, const char *key)
{
    copy(cert(name), cert_path);
    copy(cert(key), key_path);
}

/* --- ends --- */

static int make_certificates(void **state)
{
    char command[1200];

    (void)state;
    certs = temp_dir_new();
    snprintf(command, sizeof command, "sh %s %s", ND_CERTIFICATES_SH, certs);
    return system(command);
}

static int remove_certificates(void **state)
{
    (void)state;
    temp_dir_remove(certs);
    return 0;
}

static int set_up(void **state)
{
    static const struct nd_rpc_method *const methods[] = {&echo, &flow};
    struct nd_errmsg msg = {.text = ""};

    (void)state;
    snprintf(log_path, sizeof log_path, "%s", cert("log"));
    snprintf(cert_path, sizeof cert_path, "%s", cert("used.pem"));
    snprintf(key_path, sizeof key_path, "%s", cert("used.key"));
    snprintf(ca_path, sizeof ca_path, "%s", cert("used-ca.pem"));
    server_uses("server.pem", "server.key");
    copy(cert("ca.pem"), ca_path);
    in_use = (struct nd_rpc_tls_files){cert_path, key_path, NULL};
    FILE *file = fopen(log_path, "w");
    assert_non_null(file);
    server_log = nd_log_new(dup(fileno(file)), ND_LOG_INFO, ND_LOG_TEXT);
    fclose(file);
    metrics = nd_metrics_new();
    struct nd_rpc_server_options options = {.methods = methods,
                                            .methods_count = ND_ARRAY_SIZE(methods),
                                            .threads = 1,
                                            .message_bytes_max = 1 << 20,
                                            .calls_max = 100,
                                            .log = server_log,
                                            .metrics = metrics};
    assert_int_equal(nd_rpc_server_new(&server, &options, &msg), ND_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nd_rpc_channel_free(channel);
    channel = NULL;
    nd_rpc_server_stop(server, 0);
    nd_rpc_server_free(server);
    nd_metrics_free(metrics);
    nd_log_free(server_log);
    return 0;
}

static void listen_tls(void)
{
    struct nd_errmsg msg = {.text = ""};
    int port = 0;

    if (nd_rpc_server_listen_tls(server, "127.0.0.1:0", &in_use, &port, &msg) != ND_OK ||
        nd_rpc_server_start(server, &msg) != ND_OK) {
        fail_msg("%s", msg.text);
    }
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
}

static void listen_refused(enum nd_err expected, const char *says, const char *file)
{
    struct nd_errmsg msg = {.text = ""};
    int port = 0;

    assert_int_equal(nd_rpc_server_listen_tls(server, "127.0.0.1:0", &in_use, &port, &msg),
                     expected);
    if (strstr(msg.text, says) == NULL || strstr(msg.text, file) == NULL) {
        fail_msg("\"%s\" does not say \"%s\" of %s", msg.text, says, file);
    }
}

static struct nd_rpc_channel_options good_channel(void)
{
    return (struct nd_rpc_channel_options){
        .target = target, .tls = true, .tls_ca_file = cert("ca.pem")};
}

static void channel_open(struct nd_rpc_channel_options options)
{
    struct nd_errmsg msg = {.text = ""};

    nd_rpc_channel_free(channel);
    channel = NULL;
    if (nd_rpc_channel_new(&channel, &options, &msg) != ND_OK) {
        fail_msg("%s", msg.text);
    }
}

static void channel_refused(struct nd_rpc_channel_options options, const char *says,
                            const char *file)
{
    struct nd_errmsg msg = {.text = ""};
    struct nd_rpc_channel *none = NULL;

    assert_int_not_equal(nd_rpc_channel_new(&none, &options, &msg), ND_OK);
    if (strstr(msg.text, says) == NULL || strstr(msg.text, file) == NULL) {
        fail_msg("\"%s\" does not say \"%s\" of \"%s\"", msg.text, says, file);
    }
}

/* --- calls --- */

struct outcome {
    struct nd_mutex lock;
    struct nd_cond changed;
    int code, messages;
    bool done;
    char text[600];
};

static uint64_t patience_end(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec * 1000 + PATIENCE_MS) * 1000000u;
}

static void outcome_init(struct outcome *outcome)
{
    *outcome = (struct outcome){.code = -1};
    nd_mutex_init(&outcome->lock);
    nd_cond_init(&outcome->changed);
}

static void outcome_end(struct outcome *outcome, const struct nd_rpc_status *status)
{
    nd_mutex_lock(&outcome->lock);
    outcome->code = status->code;
    snprintf(outcome->text, sizeof outcome->text, "%s", status->text);
    outcome->done = true;
    nd_cond_broadcast(&outcome->changed);
    nd_mutex_unlock(&outcome->lock);
}

static void on_reply(void *data, const struct nd_rpc_status *status, const void *reply)
{
    (void)reply;
    outcome_end(data, status);
}

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice message)
{
    struct outcome *outcome = data;

    (void)stream;
    (void)message;
    nd_mutex_lock(&outcome->lock);
    outcome->messages += 1;
    nd_cond_broadcast(&outcome->changed);
    nd_mutex_unlock(&outcome->lock);
}

static void on_end(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    (void)stream;
    outcome_end(data, status);
}

static void outcome_wait(struct outcome *outcome, int messages)
{
    uint64_t end = patience_end();
    bool in_time = true;

    nd_mutex_lock(&outcome->lock);
    while (!outcome->done && (messages == 0 || outcome->messages < messages) && in_time) {
        in_time = nd_cond_wait_until(&outcome->changed, &outcome->lock, end);
    }
    nd_mutex_unlock(&outcome->lock);
    assert_true(in_time);
}

static struct outcome call(void)
{
    static struct outcome outcome;
    Narad__V1__Header request = NARAD__V1__HEADER__INIT;

    outcome_init(&outcome);
    nd_rpc_call_unary(channel, echo.path, &request.base, &narad__v1__header__descriptor,
                      PATIENCE_MS, false, on_reply, &outcome);
    outcome_wait(&outcome, 0);
    return outcome;
}

static void call_succeeds(struct nd_rpc_channel_options options)
{
    channel_open(options);
    struct outcome outcome = call();
    if (outcome.code != 0) {
        fail_msg("%d: %s", outcome.code, outcome.text);
    }
}

static void call_fails(struct nd_rpc_channel_options options, const char *says)
{
    channel_open(options);
    struct outcome outcome = call();
    assert_int_equal(outcome.code, 14);
    if (strstr(outcome.text, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", outcome.text, says);
    }
}

/* What a handshake with at most `version` agrees on; "" when none succeeds. */
struct handshake {
    char version[16], subject[128];
};

static struct handshake shake_hands(int version)
{
    struct handshake handshake = {.version = ""};
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    static const unsigned char h2[] = {2, 'h', '2'};
    SSL *ssl = NULL;

    assert_non_null(context);
    SSL_CTX_set_max_proto_version(context, version);
    SSL_CTX_set_min_proto_version(context, 0);
    SSL_CTX_set_alpn_protos(context, h2, sizeof h2);
    BIO *connection = BIO_new_ssl_connect(context);
    BIO_get_ssl(connection, &ssl);
    BIO_set_conn_hostname(connection, target);
    if (BIO_do_handshake(connection) == 1) {
        X509 *peer = SSL_get1_peer_certificate(ssl);
        snprintf(handshake.version, sizeof handshake.version, "%s", SSL_get_version(ssl));
        X509_NAME_oneline(X509_get_subject_name(peer), handshake.subject, sizeof handshake.subject);
        X509_free(peer);
    }
    BIO_free_all(connection);
    SSL_CTX_free(context);
    return handshake;
}

static char *log_text(void)
{
    static char text[16384];
    FILE *file = fopen(log_path, "r");

    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* --- claims --- */

static void tls__carries_calls_to_a_server_it_trusts(void **state)
{
    (void)state;
    listen_tls();

    call_succeeds(good_channel());
    struct nd_rpc_channel_options named = good_channel();
    named.tls_server_name = "broker.test";
    call_succeeds(named);
}

static void tls__speaks_1_2_and_1_3_and_nothing_older(void **state)
{
    (void)state;
    listen_tls();

    assert_string_equal(shake_hands(TLS1_3_VERSION).version, "TLSv1.3");
    assert_string_equal(shake_hands(TLS1_2_VERSION).version, "TLSv1.2");
    assert_string_equal(shake_hands(TLS1_1_VERSION).version, "");
}

static void tls__refuses_a_server_it_cannot_trust(void **state)
{
    struct nd_rpc_channel_options options = good_channel();

    (void)state;
    listen_tls();
    options.tls_ca_file = cert("other-ca.pem");
    call_fails(options, "certificate verify failed");
    options = good_channel();
    options.tls_server_name = "another.test";
    call_fails(options, "another.test");
}

static void tls__refuses_a_server_whose_certificate_expired(void **state)
{
    (void)state;
    server_uses("expired.pem", "expired.key");
    listen_tls();

    call_fails(good_channel(), "certificate verify failed");
    assert_non_null(strstr(log_text(), "certificate has expired"));
}

static void tls__takes_the_authorities_of_the_system_by_default(void **state)
{
    struct nd_rpc_channel_options options = good_channel();

    (void)state;
    options.tls_ca_file = NULL;
    listen_tls();
    setenv("SSL_CERT_FILE", cert("ca.pem"), 1);
    call_succeeds(options);
    setenv("SSL_CERT_FILE", cert("other-ca.pem"), 1);
    call_fails(options, "certificate verify failed");
    setenv("SSL_CERT_FILE", cert("missing.pem"), 1);
    channel_refused(options, "No such file", "missing.pem");
    unsetenv("SSL_CERT_FILE");
}

static void tls__asks_clients_for_a_certificate_of_its_authority(void **state)
{
    struct nd_rpc_channel_options options = good_channel();

    (void)state;
    in_use.client_ca_file = ca_path;
    listen_tls();
    options.tls_cert_file = cert("client.pem");
    options.tls_key_file = cert("client.key");
    call_succeeds(options);

    channel_open(good_channel());
    assert_int_equal(call().code, 14);
    options.tls_cert_file = cert("stranger.pem");
    options.tls_key_file = cert("stranger.key");
    channel_open(options);
    assert_int_equal(call().code, 14);
}

static void tls__plain_and_tls_ends_do_not_connect(void **state)
{
    struct nd_errmsg msg = {.text = ""};
    int port = 0;

    (void)state;
    assert_int_equal(nd_rpc_server_listen(server, "127.0.0.1:0", &port, &msg), ND_OK);
    listen_tls();

    call_fails((struct nd_rpc_channel_options){.target = target}, "Socket closed");
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
    call_succeeds((struct nd_rpc_channel_options){.target = target});
    call_fails(good_channel(), "wrong version");
}

static void reload__is_for_new_connections_and_leaves_the_old(void **state)
{
    static const struct nd_rpc_stream_events events = {.on_message = on_message, .on_done = on_end};
    static struct outcome outcome;
    Narad__V1__Header message = NARAD__V1__HEADER__INIT;
    struct nd_errmsg msg = {.text = ""};

    (void)state;
    listen_tls();
    channel_open(good_channel());
    outcome_init(&outcome);
    struct nd_rpc_stream *stream =
        nd_rpc_stream_open(channel, flow.path, 0, false, false, &events, &outcome);
    nd_rpc_stream_send(stream, &message.base);
    outcome_wait(&outcome, 1);
    assert_non_null(strstr(shake_hands(TLS1_3_VERSION).subject, "CN=server"));

    server_uses("server2.pem", "server2.key");
    assert_non_null(strstr(shake_hands(TLS1_3_VERSION).subject, "CN=server"));
    assert_int_equal(nd_rpc_server_reload_tls(server, &msg), ND_OK);

    assert_non_null(strstr(shake_hands(TLS1_3_VERSION).subject, "CN=server2"));
    assert_non_null(strstr(shake_hands(TLS1_2_VERSION).subject, "CN=server2"));
    nd_rpc_stream_send(stream, &message.base);
    outcome_wait(&outcome, 2);
    assert_false(outcome.done);
    assert_int_equal(outcome.messages, 2);
    nd_rpc_stream_half_close(stream);
    outcome_wait(&outcome, 0);
    assert_int_equal(outcome.code, 0);
    call_succeeds(good_channel());
}

static void reload__of_a_bad_file_keeps_the_old_and_says_why(void **state)
{
    struct nd_errmsg msg = {.text = ""};

    (void)state;
    in_use.client_ca_file = ca_path;
    listen_tls();
    copy(cert("server2.pem"), cert_path); /* its key did not follow */
    assert_int_equal(nd_rpc_server_reload_tls(server, &msg), ND_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(msg.text, "not the key of the certificate in"));
    assert_non_null(strstr(msg.text, key_path));
    copy(cert("server2.key"), key_path);
    spoil(ca_path, "nothing\n");
    assert_int_equal(nd_rpc_server_reload_tls(server, &msg), ND_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(msg.text, ca_path));
    unlink(ca_path);
    assert_int_equal(nd_rpc_server_reload_tls(server, &msg), ND_ERR_IO);

    struct nd_rpc_channel_options options = good_channel();
    options.tls_cert_file = cert("client.pem");
    options.tls_key_file = cert("client.key");
    call_succeeds(options);
    copy(cert("ca.pem"), ca_path);
    assert_int_equal(nd_rpc_server_reload_tls(server, &msg), ND_OK);
    call_succeeds(options);
}

enum { HANDSHAKES = 40 };

static _Atomic uint32_t shaken, refused;

static void shake_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < HANDSHAKES; i++) {
        struct handshake handshake = shake_hands(i % 2 == 0 ? TLS1_3_VERSION : TLS1_2_VERSION);
        *(strstr(handshake.subject, "CN=server") != NULL ? &shaken : &refused) += 1;
    }
}

static void reload__may_cross_handshakes(void **state)
{
    struct nd_errmsg msg = {.text = ""};
    struct nd_thread thread;

    (void)state;
    shaken = refused = 0;
    listen_tls();
    assert_true(nd_thread_start(&thread, "hands", shake_many, NULL));
    for (uint32_t i = 0; shaken + refused < HANDSHAKES; i++) {
        server_uses(i % 2 == 0 ? "server2.pem" : "server.pem",
                    i % 2 == 0 ? "server2.key" : "server.key");
        if (nd_rpc_server_reload_tls(server, &msg) != ND_OK) {
            break; /* the thread is waited for first */
        }
    }
    nd_thread_join(&thread);
    assert_string_equal(msg.text, "");
    assert_int_equal(shaken, HANDSHAKES);
    assert_int_equal(refused, 0);
}

static void reload__without_tls_does_nothing(void **state)
{
    struct nd_errmsg msg = {.text = ""};
    int port = 0;

    (void)state;
    assert_int_equal(nd_rpc_server_listen(server, "127.0.0.1:0", &port, &msg), ND_OK);
    assert_int_equal(nd_rpc_server_start(server, &msg), ND_OK);
    assert_int_equal(nd_rpc_server_reload_tls(server, &msg), ND_OK);
}

static void files__what_is_wrong_with_one_is_told(void **state)
{
    (void)state;
    in_use.cert_file = cert("missing.pem");
    listen_refused(ND_ERR_IO, "No such file", "missing.pem");
    in_use.cert_file = certs;
    listen_refused(ND_ERR_IO, "Is a directory", certs);
    in_use.cert_file = cert("server.key");
    listen_refused(ND_ERR_INVALID_ARGUMENT, "no certificate in it", "server.key");
    spoil(cert("torn.pem"), "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    in_use.cert_file = cert("torn.pem");
    listen_refused(ND_ERR_INVALID_ARGUMENT, "certificate 1 cannot be used", "torn.pem");
    in_use.cert_file = cert_path;
    in_use.key_file = cert("server.pem");
    listen_refused(ND_ERR_INVALID_ARGUMENT, "no private key in it", "server.pem");
    in_use.key_file = cert("locked.key");
    listen_refused(ND_ERR_INVALID_ARGUMENT, "encrypted with a password", "locked.key");
    in_use.key_file = cert("server2.key");
    listen_refused(ND_ERR_INVALID_ARGUMENT, "not the key of the certificate", "server2.key");
    in_use.key_file = "";
    listen_refused(ND_ERR_INVALID_ARGUMENT, "the key file is missing", "");
    in_use.key_file = key_path;
    in_use.client_ca_file = cert("client.key");
    listen_refused(ND_ERR_INVALID_ARGUMENT, "no certificate in it", "client.key");
    in_use = (struct nd_rpc_tls_files){NULL, key_path, NULL};
    listen_refused(ND_ERR_INVALID_ARGUMENT, "needs a certificate file", "127.0.0.1:0");
}

static void files__larger_than_any_certificate_are_refused(void **state)
{
    FILE *file = fopen(cert("large.pem"), "w");

    (void)state;
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (1 << 20) + 1), 0);
    fclose(file);
    in_use.cert_file = cert("large.pem");
    listen_refused(ND_ERR_INVALID_ARGUMENT, "larger than", "large.pem");
    assert_int_equal(truncate(cert("large.pem"), 100), 0);
    listen_refused(ND_ERR_INVALID_ARGUMENT, "not PEM text", "large.pem");
}

static void channel__what_is_wrong_with_its_options_is_told(void **state)
{
    struct nd_rpc_channel_options options = good_channel();

    (void)state;
    snprintf(target, sizeof target, "127.0.0.1:1");
    options.tls = false;
    channel_refused(options, "TLS is off", "");
    options = good_channel();
    options.tls_cert_file = cert("client.pem");
    channel_refused(options, "the key file is missing", "");
    options.tls_key_file = cert("server.key");
    channel_refused(options, "not the key of the certificate", "server.key");
    options = good_channel();
    options.tls_ca_file = cert("missing.pem");
    channel_refused(options, "No such file", "missing.pem");
    options = good_channel();
    options.target = "unix:/nowhere";
    channel_refused(options, "a Unix socket is plain", "unix:/nowhere");
}

static void certificate__is_told_in_log_and_metrics_and_its_key_is_not(void **state)
{
    struct nd_buf text;
    char key[4096];

    (void)state;
    listen_tls();
    nd_buf_init(&text, 1 << 20);
    nd_metrics_text(metrics, &text);
    nd_buf_put_u8(&text, 0);
    time_t in_29_days = time(NULL) + 29 * 24 * 3600;
    const char *line =
        strstr((const char *)text.data, "\nnarad_tls_cert_not_after_seconds{listener=\"grpc\"} ");
    assert_non_null(line);
    assert_true(strtod(strchr(line, '}') + 1, NULL) > (double)in_29_days);
    nd_buf_release(&text);

    assert_non_null(strstr(log_text(), "certificate in use"));
    assert_non_null(strstr(log_text(), "CN=server,O=Narad test"));
    FILE *file = fopen(key_path, "r");
    assert_non_null(file);
    while (fgets(key, sizeof key, file) != NULL) {
        assert_null(strstr(log_text(), key));
    }
    fclose(file);
    assert_int_equal(chmod(key_path, 0644), 0);
    struct nd_errmsg msg = {.text = ""};
    assert_int_equal(nd_rpc_server_reload_tls(server, &msg), ND_OK);
    assert_non_null(strstr(log_text(), "may read the key"));
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(tls__carries_calls_to_a_server_it_trusts),
        CLAIM(tls__speaks_1_2_and_1_3_and_nothing_older),
        CLAIM(tls__refuses_a_server_it_cannot_trust),
        CLAIM(tls__refuses_a_server_whose_certificate_expired),
        CLAIM(tls__takes_the_authorities_of_the_system_by_default),
        CLAIM(tls__asks_clients_for_a_certificate_of_its_authority),
        CLAIM(tls__plain_and_tls_ends_do_not_connect),
        CLAIM(reload__is_for_new_connections_and_leaves_the_old),
        CLAIM(reload__of_a_bad_file_keeps_the_old_and_says_why),
        CLAIM(reload__may_cross_handshakes),
        CLAIM(reload__without_tls_does_nothing),
        CLAIM(files__what_is_wrong_with_one_is_told),
        CLAIM(files__larger_than_any_certificate_are_refused),
        CLAIM(channel__what_is_wrong_with_its_options_is_told),
        CLAIM(certificate__is_told_in_log_and_metrics_and_its_key_is_not),
    };

    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
