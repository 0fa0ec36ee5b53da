/* libnarad's credentials and TLS, against a broker that looks at them. */
#include <narad/client.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/src/internal.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/clients/fake_broker.h"

enum { PATIENCE_MS = 120000 };

static char *certs; /* the directory */
static struct fake_broker broker;
static struct narad_client *client;
static _Atomic int produced_code, settled_code, ended_code;
static _Atomic bool ended;

static const char *cert(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", certs, name);
    return path;
}

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
    (void)state;
    fake_broker_init(&broker);
    produced_code = settled_code = ended_code = -1;
    ended = false;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    narad_client_free(client);
    client = NULL;
    fake_broker_release(&broker);
    return 0;
}

static struct narad_options user(void)
{
    return (struct narad_options){.server = broker.address,
                                  .connect_timeout_ms = PATIENCE_MS,
                                  .username = "ann",
                                  .password = "p\xc3\xa4:ss"};
}

static void client_new(struct narad_options options)
{
    struct narad_error error = {0};

    narad_client_free(client);
    client = NULL;
    if (narad_client_new(&client, &options, &error) != NARAD_OK) {
        fail_msg("%s", error.text);
    }
}

static void client_refused(struct narad_options options, const char *says)
{
    struct narad_error error = {0};

    assert_int_equal(narad_client_new(&client, &options, &error), NARAD_INVALID_ARGUMENT);
    if (strstr(error.text, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error.text, says);
    }
}

static int version(struct narad_error *error)
{
    Narad__V1__VersionRequest request = NARAD__V1__VERSION_REQUEST__INIT;
    Narad__V1__VersionResponse *response = NULL;
    int code = narad_version(client, &request, &response, error);

    narad_response_free(response);
    return code;
}

/* A call that cannot connect says so, and what it may mean. */
static void version_fails(struct narad_options options, const char *says)
{
    struct narad_error error = {0};

    options.connect_timeout_ms = 1;
    client_new(options);
    assert_int_equal(version(&error), NARAD_UNAVAILABLE);
    if (strstr(error.text, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error.text, says);
    }
}

static void on_produced(void *data, int code, const char *text,
                        Narad__V1__Placement *const *placements, size_t placements_count)
{
    (void)data;
    (void)text;
    (void)placements;
    (void)placements_count;
    produced_code = code;
}

static void on_settled(void *data, int code, const char *text)
{
    (void)data;
    (void)text;
    settled_code = code;
}

static void on_message(void *data, struct narad_subscription *subscription,
                       const Narad__V1__Message *message)
{
    (void)data;
    (void)subscription;
    (void)message;
}

static void on_ended(void *data, int code, const char *text)
{
    (void)data;
    (void)text;
    ended_code = code;
    nd_mutex_lock(&broker.lock); /* waited for like what the broker counts */
    ended = true;
    nd_cond_broadcast(&broker.changed);
    nd_mutex_unlock(&broker.lock);
}

/* --- claims --- */

static void user__is_sent_as_basic_credentials(void **state)
{
    (void)state;
    fake_broker_start(&broker);
    client_new(user());
    assert_int_equal(version(NULL), NARAD_OK);
    assert_string_equal(broker.authorization, "Basic YW5uOnDDpDpzcw==");

    struct narad_options options = user();
    options.username = "a";
    options.password = "b";
    client_new(options);
    assert_int_equal(version(NULL), NARAD_OK);
    assert_string_equal(broker.authorization, "Basic YTpi");
    client_new((struct narad_options){.server = broker.address});
    assert_int_equal(version(NULL), NARAD_OK);
    assert_string_equal(broker.authorization, "");
}

static void user__that_cannot_be_is_refused(void **state)
{
    struct narad_options options = user();

    (void)state;
    options.password = NULL;
    client_refused(options, "go together");
    options.password = "";
    client_refused(options, "the password is empty");
    options = user();
    options.username = NULL;
    client_refused(options, "go together");
    options.username = "a:b";
    client_refused(options, "has no colon");
    options = user();
    options.authorization = "Bearer x";
    client_refused(options, "either authorization or");
}

/* Every way of asking is asked once: the answer would be the same. */
static void refusals_are_final(enum nd_err refusal, int code)
{
    Narad__V1__Record record = NARAD__V1__RECORD__INIT;
    Narad__V1__Record *records[] = {&record};
    Narad__V1__ReplayRequest replay = NARAD__V1__REPLAY_REQUEST__INIT;
    struct narad_subscription_options subscribe = {
        .topic = "topic", .partition = -1, .message = on_message, .ended = on_ended};
    struct narad_subscription *subscription = NULL;
    struct narad_options options = user();

    options.resend_unconfirmed = true;
    broker.refuse_all = refusal;
    fake_broker_start(&broker);
    client_new(options);
    assert_int_equal(version(NULL), code);
    assert_int_equal(fake_broker_count(&broker, &broker.asked), 1);
    assert_int_equal(narad_produce_async(client, "topic", records, 1, on_produced, NULL), NARAD_OK);
    assert_int_equal(narad_settle_async(client, "topic", "0:0:1", 0, on_settled, NULL), NARAD_OK);
    assert_true(narad_flush(client, PATIENCE_MS));
    assert_int_equal(produced_code, code);
    assert_int_equal(settled_code, code);
    assert_int_equal(fake_broker_count(&broker, &broker.asked), 3);
    assert_int_equal(narad_replay(client, &replay, NULL, NULL, NULL), code);
    assert_int_equal(narad_subscribe(client, &subscribe, &subscription, NULL), NARAD_OK);
    nd_mutex_lock(&broker.lock);
    while (!ended) {
        nd_cond_wait(&broker.changed, &broker.lock);
    }
    nd_mutex_unlock(&broker.lock);
    assert_int_equal(ended_code, code);
    assert_int_equal(fake_broker_count(&broker, &broker.asked), 5);
}

static void unauthenticated__is_not_tried_again(void **state)
{
    (void)state;
    refusals_are_final(ND_ERR_UNAUTHENTICATED, NARAD_UNAUTHENTICATED);
}

static void permission_denied__is_not_tried_again(void **state)
{
    (void)state;
    refusals_are_final(ND_ERR_PERMISSION_DENIED, NARAD_PERMISSION_DENIED);
}

static void throttled__is_not_tried_again(void **state)
{
    (void)state;
    refusals_are_final(ND_ERR_THROTTLED, NARAD_RESOURCE_EXHAUSTED);
}

static void tls__carries_credentials_to_a_server_it_trusts(void **state)
{
    const struct nd_rpc_tls_files files = {cert("server.pem"), cert("server.key"), cert("ca.pem")};
    struct narad_options options = user();

    (void)state;
    broker.tls = &files;
    fake_broker_start(&broker);
    options.tls = true;
    options.tls_ca_file = cert("ca.pem");
    options.tls_cert_file = cert("client.pem");
    options.tls_key_file = cert("client.key");
    options.tls_server_name = "broker.test";
    client_new(options);
    assert_int_equal(version(NULL), NARAD_OK);
    assert_string_equal(broker.authorization, "Basic YW5uOnDDpDpzcw==");
    options.tls_cert_file = options.tls_key_file = NULL;
    broker.authorization[0] = '\0';
    version_fails(options, "");
    assert_string_equal(broker.authorization, "");
}

static void tls__a_server_that_cannot_be_trusted_is_told(void **state)
{
    const struct nd_rpc_tls_files files = {cert("server.pem"), cert("server.key"), NULL};
    struct narad_options options = user();

    (void)state;
    broker.tls = &files;
    fake_broker_start(&broker);
    version_fails(options, "(it may speak TLS only)");
    options.tls = true;
    options.tls_ca_file = cert("other-ca.pem");
    version_fails(options, "(its certificate is of no authority that is trusted here");
    options.tls_ca_file = cert("ca.pem");
    options.tls_server_name = "elsewhere.test";
    version_fails(options, "elsewhere.test");
    assert_int_equal(fake_broker_count(&broker, &broker.asked), 0); /* nobody got a password */
}

static void tls__files_that_cannot_be_used_are_told(void **state)
{
    struct narad_options options = {.server = "127.0.0.1:1", .tls = true};

    (void)state;
    options.tls_ca_file = cert("nothing.pem");
    client_refused(options, "nothing.pem: No such file");
    options.tls = false;
    client_refused(options, "TLS is off");
    options = (struct narad_options){.server = "unix:/nowhere", .tls = true};
    client_refused(options, "a Unix socket is plain");
}

static void retry_pause__doubles_within_bounds(void **state)
{
    (void)state;
    for (uint32_t tries = 0; tries < 100; tries++) {
        uint32_t full = tries < 6 ? 25u << tries : 1000;
        uint32_t low = UINT32_MAX, high = 0;
        for (int i = 0; i < 2000; i++) {
            uint32_t pause = retry_pause_ms(tries);
            low = ND_MIN(low, pause);
            high = ND_MAX(high, pause);
        }
        assert_in_range(low, full / 2, full);
        assert_in_range(high, full / 2, full);
        assert_true(low < high); /* not all at one moment */
    }
}

static void outage__pauses_stay_within_its_limit(void **state)
{
    struct outage outage = {0};

    (void)state;
    assert_true(outage_goes_on(&outage, PATIENCE_MS));
    assert_in_range(outage_pause_ms(&outage, PATIENCE_MS), 12, 25);
    assert_in_range(outage_pause_ms(&outage, PATIENCE_MS), 25, 50);
    assert_int_equal(outage_pause_ms(&outage, 0), 0);
    outage_over(&outage);
    assert_true(outage_goes_on(&outage, PATIENCE_MS));
    assert_in_range(outage_pause_ms(&outage, PATIENCE_MS), 12, 25);
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(user__is_sent_as_basic_credentials),
        CLAIM(user__that_cannot_be_is_refused),
        CLAIM(unauthenticated__is_not_tried_again),
        CLAIM(permission_denied__is_not_tried_again),
        CLAIM(throttled__is_not_tried_again),
        CLAIM(tls__carries_credentials_to_a_server_it_trusts),
        CLAIM(tls__a_server_that_cannot_be_trusted_is_told),
        CLAIM(tls__files_that_cannot_be_used_are_told),
        CLAIM(retry_pause__doubles_within_bounds),
        CLAIM(outage__pauses_stay_within_its_limit),
    };

    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
