/* The client half of the channel stack: a channel to one target, unary calls and streams, all
 * asynchronous, driven by one worker thread that the channel owns. The CLI, libnarad, the gateway
 * and the peers build on it. Callbacks run on the channel's thread and must not block; calls may be
 * started and sent on from any thread, callbacks included.
 *
 * Every call ends with exactly one on_done, which never runs inside the function that started it;
 * when that one was called on another thread, it may run while that thread is still on its way
 * back. */
#ifndef ND_RPC_CLIENT_H
#define ND_RPC_CLIENT_H

#include <protobuf-c/protobuf-c.h>

#include "storage/base/err.h"
#include "storage/base/slice.h"

struct nd_rpc_channel;
struct nd_rpc_server;
struct nd_rpc_stream;

struct nd_rpc_metadata {
    const char *key; /* lower case */
    const char *value;
};

struct nd_rpc_channel_options {
    const char *target;         /* "host:port" or "unix:/path" */
    uint32_t message_bytes_max; /* receive limit; 0: 20 MiB */
    uint32_t keepalive_time_ms; /* 0: off */
    uint32_t keepalive_timeout_ms;
    /* Sent with every call (e.g. authorization); copied. */
    const struct nd_rpc_metadata *metadata;
    size_t metadata_count;
    /* TLS: the server's certificate is checked against `tls_ca_file` ("" or NULL: the system's
     * authorities) and the host of the target, or `tls_server_name`. Certificate and key: what this
     * end shows when it is asked. */
    bool tls;
    const char *tls_ca_file, *tls_cert_file, *tls_key_file, *tls_server_name;
    /* A started server of this process whose first worker is the channel's thread, too: a second
     * thread in the core's poller slows every call of the process (README.md, Threads). The channel
     * is freed before that server stops. NULL: a thread of its own. */
    struct nd_rpc_server *server;
};

/* How one call differs from the others of its channel; zeros are usual. */
struct nd_rpc_call_options {
    uint32_t deadline_ms; /* from now; 0: none */
    bool wait_for_ready;  /* queue until connected instead of failing at once */
    bool manual_read;     /* streams: see nd_rpc_stream_open */
    /* Besides the channel's; copied. */
    const struct nd_rpc_metadata *metadata;
    size_t metadata_count;
};

struct nd_rpc_status {
    int code;                /* gRPC status code */
    const char *text;        /* borrowed until the callback returns; "" when none */
    const char *reason;      /* the server's "narad-reason", see nd_err_by_name; "" when none */
    uint32_t retry_after_ms; /* the server's "narad-retry-after-ms"; 0: none */
};

/* Does not connect; the first call does. */
ND_CHECKED enum nd_err nd_rpc_channel_new(struct nd_rpc_channel **out,
                                          const struct nd_rpc_channel_options *options,
                                          struct nd_errmsg *msg);
/* Cancels what is open, waits for the callbacks, frees. Not from a callback. */
void nd_rpc_channel_free(struct nd_rpc_channel *channel);

/* A unary call. `on_done(data, status, reply)`: `reply` is the decoded message (of `reply_type`,
 * valid until return) when the status is OK, otherwise NULL. `wait_for_ready`: queue until
 * connected instead of failing at once. `deadline_ms` from now, 0: none. */
void nd_rpc_call_unary(
    struct nd_rpc_channel *channel, const char *path, const ProtobufCMessage *request,
    const ProtobufCMessageDescriptor *reply_type, uint32_t deadline_ms, bool wait_for_ready,
    void (*on_done)(void *data, const struct nd_rpc_status *status, const void *reply), void *data);

/* The same with options. */
void nd_rpc_call_unary_with(
    struct nd_rpc_channel *channel, const char *path, const ProtobufCMessage *request,
    const ProtobufCMessageDescriptor *reply_type, const struct nd_rpc_call_options *options,
    void (*on_done)(void *data, const struct nd_rpc_status *status, const void *reply), void *data);

struct nd_rpc_stream_events {
    void (*on_message)(void *data, struct nd_rpc_stream *stream, struct nd_slice message);
    void (*on_drained)(void *data, struct nd_rpc_stream *stream); /* all queued sends handed over */
    void (*on_done)(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status);
};

/* Server-stream, client-stream or bidi. The stream lives until on_done returns; until then the
 * pointer may be used from any thread. It can end before the caller uses what it got: a caller on
 * another thread than the channel's opens and first uses it under a lock that its on_done takes (no
 * callback runs under a lock of ours), or opens it in nd_rpc_channel_post. `manual_read`: each
 * on_message is followed by no further one until nd_rpc_stream_read_next(). */
ND_CHECKED struct nd_rpc_stream *nd_rpc_stream_open(struct nd_rpc_channel *channel,
                                                    const char *path, uint32_t deadline_ms,
                                                    bool wait_for_ready, bool manual_read,
                                                    const struct nd_rpc_stream_events *events,
                                                    void *data);
/* The same with options. */
ND_CHECKED struct nd_rpc_stream *nd_rpc_stream_open_with(struct nd_rpc_channel *channel,
                                                         const char *path,
                                                         const struct nd_rpc_call_options *options,
                                                         const struct nd_rpc_stream_events *events,
                                                         void *data);
/* Keeps the pointer valid past on_done: for those who use it from another thread than the channel's
 * and cannot know that it just ended. @thread any */
void nd_rpc_stream_ref(struct nd_rpc_stream *stream);
void nd_rpc_stream_unref(struct nd_rpc_stream *stream);
/* Queue a message; returns the bytes queued and not yet handed to the transport; 0 once it ended.
 */
size_t nd_rpc_stream_send(struct nd_rpc_stream *stream, const ProtobufCMessage *message);
/* The same for a message that is packed already; copied. */
size_t nd_rpc_stream_send_bytes(struct nd_rpc_stream *stream, struct nd_slice bytes);
void nd_rpc_stream_read_next(struct nd_rpc_stream *stream);
void nd_rpc_stream_half_close(struct nd_rpc_stream *stream); /* after what is queued */
void nd_rpc_stream_cancel(struct nd_rpc_stream *stream);

/* Run `run(data)` on the channel's thread soon. @thread any */
void nd_rpc_channel_post(struct nd_rpc_channel *channel, void (*run)(void *data), void *data);
/* The same, not before `delay_ms` have passed. Freeing the channel runs what is still waiting at
 * once. */
void nd_rpc_channel_post_after(struct nd_rpc_channel *channel, uint32_t delay_ms,
                               void (*run)(void *data), void *data);

#endif
