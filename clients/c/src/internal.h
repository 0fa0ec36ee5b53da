/* What the source files of libnarad share. Lock order: client->lock only; never held in a callback
 * of the program. */
#ifndef NARAD_INTERNAL_H
#define NARAD_INTERNAL_H

#include "storage/base/alloc.h"
#include "storage/base/list.h"
#include "storage/base/thread.h"

#include "clients/c/include/narad/client.h"
#include "proto/rpc/client.h"

enum {
    BATCH_ITEMS_MAX = 1000,
    BATCH_BYTES_MAX = 1 << 20, /* of one stream message; one item may be larger */
    RETRY_PAUSE_MS_MIN = 25,   /* the first pause; each is twice the last, up to */
    RETRY_PAUSE_MS_MAX = 1000,
    CONNECTED_MS = 1000, /* a stream that took a message and lasted so long was a connection */
};

/* How long a server has been lost: since the last stream that was more than a refusal. One was when
 * something came back on it, or when it took a message and then lasted. */
struct outage {
    uint64_t since_ns; /* 0: none */
    uint64_t taken_ns; /* when the present stream took its first message; 0: it has not */
    uint32_t tries;    /* pauses so far */
};

/* One asynchronous produce. */
struct produce_item {
    struct nd_list link;
    Narad__V1__ProduceItem message; /* points into `memory` */
    void *memory;
    size_t bytes;
    narad_produced_fn *done;
    void *data;
};

struct producer {
    struct nd_rpc_stream *stream;
    struct nd_list pending; /* not sent on the present stream */
    struct nd_list sent;    /* sent, in order, not confirmed */
    uint64_t id_next;
    uint32_t count; /* pending and sent */
    uint64_t bytes;
    bool writing; /* a message is on its way to the transport */
    bool opening; /* a retry is scheduled */
    struct outage outage;
};

struct settle_item {
    struct nd_list link;
    char *handle;
    Narad__V1__SettleAction action;
    narad_settled_fn *done;
    void *data;
};

/* Settles on their way into one request. */
struct settle_batch {
    Narad__V1__Settle settles[BATCH_ITEMS_MAX];
    Narad__V1__Settle *pointers[BATCH_ITEMS_MAX]; /* to the first `count` */
    size_t count;
};

/* Settles of one topic outside subscriptions; gone when none are left. */
struct settler {
    struct nd_list link; /* in client->settlers */
    struct narad_client *client;
    char *topic;
    struct nd_list pending;
    struct nd_list sent;
    bool calling;
};

struct narad_client {
    struct nd_rpc_channel *channel;
    char *server;
    uint32_t timeout_ms, connect_timeout_ms, in_flight_max;
    uint64_t bytes_max;
    bool resend_unconfirmed;
    bool tls;
    struct nd_mutex lock;
    struct nd_cond changed;
    _Atomic uintptr_t thread;     /* of the callbacks, once one ran */
    struct producer producer;     /* guarded by lock */
    struct nd_list settlers;      /* guarded by lock */
    struct nd_list subscriptions; /* guarded by lock */
    uint32_t settles_open;        /* guarded by lock */
    uint32_t calls_open;          /* guarded by lock: timers and calls that still refer to us */
    bool closing;                 /* guarded by lock */
};

int error_set(struct narad_error *error, int code, const char *text);
uint64_t now_ns(void);
/* The present stream took a message; something came back on it; it ended. The last returns whether
 * the server may still come back. All under the client's lock. */
void outage_taken(struct outage *outage);
void outage_over(struct outage *outage);
bool outage_goes_on(struct outage *outage, uint32_t limit_ms);
/* How long to wait before the next stream, within the limit. */
uint32_t outage_pause_ms(struct outage *outage, uint32_t limit_ms);

/* connect.c */
/* Between a half and all of what the try before it doubles to: a crowd that lost its server does
 * not come back at one moment. */
uint32_t retry_pause_ms(uint32_t tries);
const char *server_choose(const struct narad_options *options);
/* NARAD_OK or NARAD_INVALID_ARGUMENT, told in `error`. */
int channel_open(struct narad_client *client, const struct narad_options *options,
                 struct narad_error *error);
/* `text` of a status, with what it may mean when no connection came about. */
struct explanation {
    char text[512];
};
const char *explain(const struct narad_client *client, const struct nd_rpc_status *status,
                    struct explanation *memory);
/* Every callback from the channel begins with it. */
void on_own_thread(struct narad_client *client);
bool is_own_thread(struct narad_client *client);

void producer_init(struct producer *producer);
void producer_close(struct narad_client *client);
void settlers_close(struct narad_client *client);
void subscriptions_close(struct narad_client *client);
/* Report the outcome and free; without the lock. */
void settle_item_end(struct settle_item *item, int code, const char *text);
/* Fill `batch` from `pending`; what it took goes behind `sent`, and lends it its texts. */
void settle_batch_take(struct settle_batch *batch, struct nd_list *pending, struct nd_list *sent);
struct settle_item *settle_item_new(const char *handle, Narad__V1__SettleAction action,
                                    narad_settled_fn *done, void *data);

#endif
