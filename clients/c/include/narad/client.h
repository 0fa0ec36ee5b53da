/* libnarad: the C client of the Narad message broker.
 *
 * The messages are the generated protobuf-c types of package narad.v1 (<narad/v1/broker.pb-c.h>,
 * <narad/v1/admin.pb-c.h>); this header adds what a program needs around them: a connection that
 * comes back by itself, blocking calls, pipelined produces and acks that are confirmed one by one,
 * subscriptions and replay.
 *
 * Threads: a client may be used from any number of threads. Callbacks run on the client's own
 * thread, one at a time; they must not block, and must not call the blocking functions (which would
 * wait for themselves: they return NARAD_FAILED_PRECONDITION there). The asynchronous functions may
 * be called from callbacks.
 *
 * Everything a function is given is copied before it returns, unless it says otherwise.
 *
 * Linking: pkg-config --cflags --libs narad. An example program:
 * <prefix>/share/doc/narad/example.c. */
#ifndef NARAD_CLIENT_H
#define NARAD_CLIENT_H

#include <narad/v1/admin.pb-c.h>
#include <narad/v1/broker.pb-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NARAD_API __attribute__((visibility("default")))

/* gRPC status codes, as they come from the server and from this library. */
enum narad_code {
    NARAD_OK = 0,
    NARAD_CANCELLED = 1,
    NARAD_UNKNOWN = 2,
    NARAD_INVALID_ARGUMENT = 3,
    NARAD_DEADLINE_EXCEEDED = 4,
    NARAD_NOT_FOUND = 5,
    NARAD_ALREADY_EXISTS = 6,
    NARAD_PERMISSION_DENIED = 7,
    NARAD_RESOURCE_EXHAUSTED = 8,
    NARAD_FAILED_PRECONDITION = 9,
    NARAD_ABORTED = 10,
    NARAD_OUT_OF_RANGE = 11,
    NARAD_UNIMPLEMENTED = 12,
    NARAD_INTERNAL = 13,
    NARAD_UNAVAILABLE = 14, /* for a produce: the outcome is unknown, it may have been stored */
    NARAD_DATA_LOSS = 15,
    NARAD_UNAUTHENTICATED = 16,
};

NARAD_API const char *narad_code_name(int code); /* "NOT_FOUND"; "UNKNOWN" for others */

/* What went wrong, for people. May be NULL wherever it is a parameter. */
struct narad_error {
    int code; /* enum narad_code */
    char text[512];
};

struct narad_client;

/* Zeros are the defaults: begin with `= {0}`. Members are only ever added, at the end and with a
 * new number of the shared library. Texts are copied. */
struct narad_options {
    const char *server;  /* "host:port" or "unix:/path"; NULL: NARAD_SERVER, else 127.0.0.1:7941 */
    uint32_t timeout_ms; /* of a blocking call but narad_replay, and of an ack that
                          * narad_settle_async sends; 0: 40,000 */
    uint32_t
        connect_timeout_ms; /* how long work waits for a lost server before it fails; 0: 10,000.
                             * One that takes a message and is gone within a second is lost too. */
    uint32_t in_flight_max; /* unconfirmed asynchronous produces, and so many settles; 0: 4,096 */
    uint64_t bytes_max;     /* bytes of the produces; 0: 64 MiB */
    /* Produces whose confirmation was lost with the connection are sent again, so that each ends
     * stored at least once; false: they are reported as NARAD_UNAVAILABLE. */
    bool resend_unconfirmed;
    const char *authorization; /* sent as it is in the metadata `authorization`; NULL: none */
    /* Sent as Basic credentials with every call, both or none, and not beside `authorization`.
     * Without TLS, whoever sees the network sees them. NARAD_UNAUTHENTICATED (unknown user, wrong
     * password) and NARAD_PERMISSION_DENIED are answers: nothing is tried again because of them. */
    const char *username, *password;
    /* TLS, 1.2 or 1.3. The server's certificate is checked against the authorities in tls_ca_file
     * (NULL: SSL_CERT_FILE, else the system's), and its names against the host in `server`, or
     * tls_server_name. A certificate and its key are shown to a server that asks for them. All
     * files are PEM, read once, by narad_client_new. Not for a Unix socket, which is plain. */
    bool tls;
    const char *tls_ca_file, *tls_cert_file, *tls_key_file, *tls_server_name;
};

/* Does not connect yet. `options` may be NULL. Returns NARAD_OK or NARAD_INVALID_ARGUMENT; the text
 * names the option or the file. */
NARAD_API int narad_client_new(struct narad_client **out, const struct narad_options *options,
                               struct narad_error *error);
/* Ends everything: what is unconfirmed is reported NARAD_CANCELLED, open subscriptions end. Blocks
 * until the last callback returned. Not from a callback; and no other thread may be in a function
 * of this client, or call one. NULL passes. */
NARAD_API void narad_client_free(struct narad_client *client);
NARAD_API const char *narad_client_server(const struct narad_client *client);

/* --- blocking calls
 * ------------------------------------------------------------------------------- Each sends one
 * request and waits for its answer, reconnecting when needed. On NARAD_OK *response is the
 * caller's, freed with narad_response_free. A call that was never sent for want of a connection
 * fails with NARAD_UNAVAILABLE after connect_timeout_ms. */
#define NARAD_CALLS(X)                                                                             \
    /* function      request and response types         path */                                    \
    X(produce, Produce, "/narad.v1.Broker/Produce")                                                \
    X(consume, Consume, "/narad.v1.Broker/Consume")                                                \
    X(ack, Ack, "/narad.v1.Broker/Ack")                                                            \
    X(create_topic, CreateTopic, "/narad.v1.Admin/CreateTopic")                                    \
    X(get_topic, GetTopic, "/narad.v1.Admin/GetTopic")                                             \
    X(list_topics, ListTopics, "/narad.v1.Admin/ListTopics")                                       \
    X(alter_topic, AlterTopic, "/narad.v1.Admin/AlterTopic")                                       \
    X(delete_topic, DeleteTopic, "/narad.v1.Admin/DeleteTopic")                                    \
    X(metrics, Metrics, "/narad.v1.Admin/Metrics")                                                 \
    X(version, Version, "/narad.v1.Admin/Version")                                                 \
    X(create_user, CreateUser, "/narad.v1.Admin/CreateUser")                                       \
    X(get_user, GetUser, "/narad.v1.Admin/GetUser")                                                \
    X(list_users, ListUsers, "/narad.v1.Admin/ListUsers")                                          \
    X(delete_user, DeleteUser, "/narad.v1.Admin/DeleteUser")                                       \
    X(set_grants, SetGrants, "/narad.v1.Admin/SetGrants")                                          \
    X(set_password, SetPassword, "/narad.v1.Admin/SetPassword")                                    \
    X(check_access, CheckAccess, "/narad.v1.Admin/CheckAccess")

/* int narad_create_topic(client, const Narad__V1__CreateTopicRequest *,
 * Narad__V1__CreateTopicResponse **, error), and so on. */
#define X(name, Type, path)                                                                        \
    NARAD_API int narad_##name(struct narad_client *client,                                        \
                               const Narad__V1__##Type##Request *request,                          \
                               Narad__V1__##Type##Response **response, struct narad_error *error);
NARAD_CALLS(X)
#undef X

/* Any response above; NULL passes. */
NARAD_API void narad_response_free(void *response);

/* --- pipelined produce
 * ---------------------------------------------------------------------------- All asynchronous
 * produces of a client share one stream; while a write is under way the next ones gather, so the
 * busier it is the larger the batches. Each is confirmed on its own. */

/* `code` NARAD_OK: on disk; `placements` (one a record, valid until return) says where. */
typedef void narad_produced_fn(void *data, int code, const char *text,
                               Narad__V1__Placement *const *placements, size_t placements_count);

/* Store 1..1000 records of one topic, all or none. Blocks while in_flight_max or bytes_max is
 * reached, except on the client's thread, where it returns NARAD_RESOURCE_EXHAUSTED instead. Any
 * return but NARAD_OK: not taken, `done` will not run. */
NARAD_API int narad_produce_async(struct narad_client *client, const char *topic,
                                  Narad__V1__Record *const *records, size_t records_count,
                                  narad_produced_fn *done, void *data);
/* Wait until every asynchronous produce and ack so far has its outcome. False after timeout_ms
 * (UINT32_MAX: no limit). Not from a callback. */
NARAD_API bool narad_flush(struct narad_client *client, uint32_t timeout_ms);

/* --- pipelined settles
 * ---------------------------------------------------------------------------- Ack, extend or
 * release a lease got with narad_consume. They gather like produces: one call per topic is under
 * way at a time and the next takes all that came meanwhile. Blocks while in_flight_max are not
 * settled, except on the client's thread, where it returns NARAD_RESOURCE_EXHAUSTED instead. Any
 * return but NARAD_OK: not taken, `done` will not run. `done` may be NULL. A call that fails is not
 * made again: its settles get its code, NARAD_UNAVAILABLE or NARAD_DEADLINE_EXCEEDED when their
 * outcome is unknown. */
typedef void narad_settled_fn(void *data, int code, const char *text);
NARAD_API int narad_settle_async(struct narad_client *client, const char *topic,
                                 const char *receipt_handle, Narad__V1__SettleAction action,
                                 narad_settled_fn *done, void *data);

/* --- subscriptions
 * -------------------------------------------------------------------------------- Messages flow
 * until the subscription is closed; at most max_outstanding are delivered and not settled. When the
 * connection breaks the server releases its leases at once, and the subscription starts again:
 * messages not settled by then come again under new handles. Settles that were under way report
 * NARAD_UNAVAILABLE (the outcome is unknown), later ones of old handles NARAD_FAILED_PRECONDITION.
 * Settles that are not sent when the subscription ends report how it ended, or NARAD_CANCELLED. */
struct narad_subscription;

struct narad_subscription_options {
    const char *topic;
    uint32_t max_outstanding; /* 0: 256 */
    int32_t partition;        /* -1: all */
    /* A message; valid until return. Settle it now or later, from any thread. */
    void (*message)(void *data, struct narad_subscription *subscription,
                    const Narad__V1__Message *message);
    /* The last callback: closed by the program (NARAD_OK), refused (topic missing, bad request), or
     * no connection for connect_timeout_ms. The subscription is freed when it returns, so whoever
     * settles or closes from another thread does so under a lock that it takes too, after a look
     * whether it ran (no callback runs under a lock of the library). */
    void (*ended)(void *data, int code, const char *text);
    void *data;
};

NARAD_API int narad_subscribe(struct narad_client *client,
                              const struct narad_subscription_options *options,
                              struct narad_subscription **out, struct narad_error *error);
/* `done` may be NULL. Settles gather while a write is under way. Until `ended`. */
NARAD_API void narad_subscription_settle(struct narad_subscription *subscription,
                                         const char *receipt_handle, Narad__V1__SettleAction action,
                                         narad_settled_fn *done, void *data);
/* No more messages; settles so far still get their outcome; then `ended`. Once. */
NARAD_API void narad_subscription_close(struct narad_subscription *subscription);

/* --- replay
 * --------------------------------------------------------------------------------------- Blocks;
 * `message` is called on the client's thread for each record, in order; return false to stop early.
 * Returns how the stream ended. */
NARAD_API int narad_replay(struct narad_client *client, const Narad__V1__ReplayRequest *request,
                           bool (*message)(void *data, const Narad__V1__Message *message),
                           void *data, struct narad_error *error);

#ifdef __cplusplus
}
#endif

#endif
