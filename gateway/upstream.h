/* The way to the broker: one channel, and for each Authorization value a produce, a poll and an ack
 * stream that all its requests share (architecture 10): what gathers while the last message is
 * being written goes out with the next. At most 256 sets, closed after 30 s without use; beyond
 * them, calls.
 *
 * Completions run on the channel's thread, once for each operation; results are borrowed until they
 * return. @thread any */
#ifndef ND_UPSTREAM_H
#define ND_UPSTREAM_H

#include "storage/base/err.h"
#include "storage/base/log.h"
#include "storage/base/slice.h"

#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/client.h"

struct nd_upstream;

struct nd_upstream_options {
    struct nd_rpc_channel_options channel;
    struct nd_log *log;
    uint32_t sets_max;    /* 0: 256 */
    uint32_t idle_ms;     /* 0: 30,000 */
    uint32_t deadline_ms; /* of the broker's answer, beside what a poll waits; 0: 30,000 */
};

/* How an operation ended: gRPC code, our error, a text of the broker's. UNKNOWN_OUTCOME: the broker
 * may have done it; UNAVAILABLE: it did not. */
struct nd_upstream_status {
    int code;
    enum nd_err err; /* by reason; by code where the broker gave none */
    const char *text;
    uint32_t retry_after_ms;
};

ND_CHECKED enum nd_err nd_upstream_new(struct nd_upstream **out,
                                       const struct nd_upstream_options *options,
                                       struct nd_errmsg *msg);
/* The broker is told, and believes, of whom each item of the shared streams is: over a Unix socket.
 */
bool nd_upstream_tells_clients(const struct nd_upstream *upstream);
/* Every operation ends, and those to come do, too: as below, but it may still be called. */
void nd_upstream_end(struct nd_upstream *upstream);
/* Every operation ends (UNAVAILABLE, or UNKNOWN_OUTCOME) before it returns. */
void nd_upstream_free(struct nd_upstream *upstream);

/* Who asks. Zeros: the gateway itself. */
struct nd_upstream_caller {
    struct nd_slice authorization; /* the header; data NULL: none */
    const char *address;           /* numeric; for the broker's audit lines. NULL: not known */
};

typedef void nd_upstream_done_fn(void *arg, const struct nd_upstream_status *status,
                                 const void *reply);

/* All or none of the records; `reply` is a Narad__V1__ProduceResult. Requests are packed before the
 * return, here and below. */
void nd_upstream_produce(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                         const Narad__V1__ProduceRequest *request, nd_upstream_done_fn *done,
                         void *arg);
/* A poll; `reply` is a Narad__V1__PollResult. Returns its ticket. */
uint64_t nd_upstream_poll(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                          const Narad__V1__Poll *poll, nd_upstream_done_fn *done, void *arg);
/* Its answer is not wanted any more; it comes all the same, soon, maybe with messages: give them
 * back. */
void nd_upstream_poll_cancel(struct nd_upstream *upstream, uint64_t ticket);
/* Every poll that waits: as above. For a stop. */
void nd_upstream_cancel_polls(struct nd_upstream *upstream);
/* `reply` is a Narad__V1__AckItemResult. */
void nd_upstream_ack(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                     const Narad__V1__AckRequest *request, nd_upstream_done_fn *done, void *arg);
/* The first message only; `reply` is a Narad__V1__ReplayResponse, NULL with OK: nothing is there.
 */
void nd_upstream_replay(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                        const Narad__V1__ReplayRequest *request, nd_upstream_done_fn *done,
                        void *arg);
/* Our error for a gRPC code and a reason, which may be "" or NULL. */
enum nd_err nd_upstream_err(int code, const char *reason);

/* A unary method. Zeros are usual. */
struct nd_upstream_method {
    const char *path; /* static */
    const ProtobufCMessageDescriptor *reply_type;
    bool asks;        /* it changes nothing: without an answer there is no doubt */
    bool poll;        /* a cancel of all polls cancels it */
    bool may_be_none; /* OK without a message is an answer */
    uint32_t wait_ms; /* how much longer than others it may take */
};
void nd_upstream_call(struct nd_upstream *upstream, struct nd_upstream_caller caller,
                      const struct nd_upstream_method *method, const ProtobufCMessage *request,
                      nd_upstream_done_fn *done, void *arg);

/* The generated structs take char * for texts that they only read. */
static inline char *nd_message_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

#endif
