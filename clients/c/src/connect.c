/* From the options to a channel: the address, credentials, TLS; and what is known about a server
 * that cannot be reached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/src/basic.h"
#include "clients/c/src/internal.h"
#include "proto/rpc/answer_size.h"

uint32_t retry_pause_ms(uint32_t tries)
{
    uint32_t pause_ms =
        ND_MIN((uint32_t)RETRY_PAUSE_MS_MIN << ND_MIN(tries, 6u), (uint32_t)RETRY_PAUSE_MS_MAX);
    uint64_t mixed = now_ns() * UINT64_C(0x9e3779b97f4a7c15); /* clients never share a nanosecond */

    return pause_ms / 2 + (uint32_t)(mixed >> 33) % (pause_ms / 2 + 1);
}

const char *server_choose(const struct narad_options *options)
{
    if (options->server != NULL) {
        return options->server;
    }
    const char *server = getenv("NARAD_SERVER");
    return server != NULL && *server != '\0' ? server : "127.0.0.1:7941";
}

/* --- credentials --- */

/* What is wrong with them; NULL: nothing. */
static const char *credentials_problem(const struct narad_options *options)
{
    if ((options->username == NULL) != (options->password == NULL)) {
        return "a username and a password go together";
    }
    if (options->username == NULL) {
        return NULL;
    }
    if (options->authorization != NULL) {
        return "either authorization or a username and a password";
    }
    if (*options->username == '\0' || strchr(options->username, ':') != NULL) {
        return "a username is not empty and has no colon";
    }
    return *options->password == '\0' ? "the password is empty" : NULL;
}

int channel_open(struct narad_client *client, const struct narad_options *options,
                 struct narad_error *error)
{
    const char *problem = credentials_problem(options);
    struct nd_errmsg msg = {""};

    if (problem != NULL) {
        return error_set(error, NARAD_INVALID_ARGUMENT, problem);
    }
    char *basic =
        options->username != NULL ? basic_new(options->username, options->password) : NULL;
    struct nd_rpc_metadata authorization = {"authorization",
                                            basic != NULL ? basic : options->authorization};
    struct nd_rpc_channel_options channel = {
        .target = client->server,
        .message_bytes_max = ND_ANSWER_BYTES_MAX,
        .keepalive_time_ms = 20000,
        .keepalive_timeout_ms = 10000,
        .metadata = &authorization,
        .metadata_count = authorization.value != NULL ? 1 : 0,
        .tls = options->tls,
        .tls_ca_file = options->tls_ca_file,
        .tls_cert_file = options->tls_cert_file,
        .tls_key_file = options->tls_key_file,
        .tls_server_name = options->tls_server_name,
    };

    client->tls = options->tls;
    enum nd_err err = nd_rpc_channel_new(&client->channel, &channel, &msg);
    basic_free(basic);
    return err == ND_OK ? NARAD_OK : error_set(error, NARAD_INVALID_ARGUMENT, msg.text);
}

/* --- what a failed connection may mean --- */

static const char *guess(const struct narad_client *client, const char *text)
{
    if (!client->tls) {
        bool cut = strstr(text, "Socket closed") != NULL || strstr(text, "reset by peer") != NULL;
        return cut ? "it may speak TLS only" : NULL;
    }
    if (strstr(text, "wrong version number") != NULL) {
        return "it may speak no TLS";
    }
    if (strstr(text, "certificate verify failed") != NULL) {
        return "its certificate is of no authority that is trusted here, or out of date";
    }
    if (strstr(text, "Hostname Verification") != NULL) {
        return "its certificate is for other names";
    }
    bool cut = strstr(text, "Socket closed") != NULL || strstr(text, "reset by peer") != NULL ||
               strstr(text, "alert") != NULL || strstr(text, "ALERT") != NULL;
    return cut ? "it may want another client certificate" : NULL;
}

const char *explain(const struct narad_client *client, const struct nd_rpc_status *status,
                    struct explanation *memory)
{
    const char *meaning = NULL;

    if (status->code == NARAD_UNAVAILABLE && strstr(status->text, "failed to connect") != NULL) {
        meaning = guess(client, status->text);
    }
    if (meaning == NULL) {
        return status->text;
    }
    snprintf(memory->text, sizeof memory->text, "%.400s (%s)", status->text, meaning);
    return memory->text;
}
