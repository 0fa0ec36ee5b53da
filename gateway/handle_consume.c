/* Consume: the queue (one message or a batch, with a long poll), and replay of one offset. */
#include <stdatomic.h>
#include <stdio.h>

#include "storage/base/alloc.h"
#include "storage/base/duration.h"

#include "gateway/handlers.h"
#include "gateway/in_flight.h"
#include "gateway/json_out.h"
#include "gateway/query.h"
#include "gateway/record_headers.h"

enum {
    WAIT_MS_MAX = 30000, /* the broker's own cap */
    BATCH_MAX = 100,
    BODY_BYTES = 8 << 20,      /* a batch is cut there */
    BODY_BYTES_MAX = 32 << 20, /* of one message: escapes take six bytes for one */
};

static const struct nd_operation operation = {"consume", false, 503};

/* What was asked for. Numbers are as given: their range is looked at once the topic is known. */
struct wish {
    bool has_partition, has_offset, batch;
    int64_t partition, offset;
    uint64_t wait_ms, clamped_ms; /* clamped_ms: told to the client; 0: not cut */
    uint32_t max;
};

/* --- reading the query --- */

static bool read_int(struct nd_slice query, const char *name, const char *function,
                     struct nd_arena *arena, bool *given_out, int64_t *out, struct nd_errmsg *msg)
{
    struct nd_slice text;
    *given_out = nd_query_lenient(query, name, arena, &text);
    if (*given_out && nd_parse_int(text, function, out, msg) != ND_OK) {
        nd_errmsg_wrap(msg, "invalid %s", name);
        return false;
    }
    return true;
}

static bool read_wait(const struct nd_http_request *request, struct nd_arena *arena,
                      struct wish *wish, struct nd_errmsg *msg)
{
    const struct nd_gateway_options *options = nd_gateway_options(nd_http_gateway(request));
    uint64_t cap = options->consume_wait_ms_max == 0
                       ? WAIT_MS_MAX
                       : ND_MIN(options->consume_wait_ms_max, (uint64_t)WAIT_MS_MAX);
    struct nd_slice text;
    int64_t ns = 0;
    if (!nd_query_lenient(nd_http_query(request), "wait", arena, &text)) {
        return true;
    }
    if (nd_parse_duration(text, &ns, msg) != ND_OK) {
        nd_errmsg_wrap(msg, "invalid wait");
        return false;
    }
    if (ns > 0) {
        uint64_t ms = ((uint64_t)ns + 999999) / 1000000;
        wish->wait_ms = ND_MIN(ms, cap);
        wish->clamped_ms = (uint64_t)ns > cap * 1000000 ? cap : 0;
    }
    return true;
}

static bool read_max(const struct nd_http_request *request, struct nd_arena *arena,
                     struct wish *wish, struct nd_errmsg *msg)
{
    int64_t max = 1;
    if (!read_int(nd_http_query(request), "max", "strconv.Atoi", arena, &wish->batch, &max, msg)) {
        return false;
    }
    if (max < 1 || max > BATCH_MAX) {
        nd_errmsg_set(msg, "invalid max: must be between 1 and %d", BATCH_MAX);
        return false;
    }
    if (wish->batch && nd_http_header(request, "X-Narad-Client").size == 0) {
        nd_errmsg_set(msg, "batch consume requires an X-Narad-Client header");
        return false;
    }
    if (wish->batch && wish->has_offset) {
        nd_errmsg_set(msg, "max is not for replay: leave out max or offset");
        return false;
    }
    wish->max = (uint32_t)max;
    return true;
}

static bool read_wish(const struct nd_http_request *request, struct nd_arena *arena,
                      struct wish *wish, struct nd_errmsg *msg)
{
    struct nd_slice query = nd_http_query(request), text;
    *wish = (struct wish){.max = 1};
    if (!read_int(query, "partition", "strconv.Atoi", arena, &wish->has_partition, &wish->partition,
                  msg) ||
        !read_int(query, "offset", "strconv.ParseInt", arena, &wish->has_offset, &wish->offset,
                  msg)) {
        return false;
    }
    if (wish->has_offset && wish->offset < 0) {
        nd_errmsg_set(msg, "invalid offset: must be >= 0");
        return false;
    }
    if (!read_wait(request, arena, wish, msg) || !read_max(request, arena, wish, msg)) {
        return false;
    }
    if (!wish->has_partition && !wish->has_offset &&
        nd_query_lenient(query, "local_only", arena, &text) &&
        nd_slice_equal(text, nd_slice_str("1"))) {
        wish->wait_ms = wish->clamped_ms = 0;
    }
    return true;
}

/* --- what is wrong only if the topic is there --- */

struct late_refusal {
    struct nd_http_request *request;
    const char *text; /* static */
};

static void topic_known(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct late_refusal late = *(struct late_refusal *)arg;
    (void)reply;
    nd_free(arg);
    if (status->err == ND_OK || status->err == ND_ERR_PERMISSION_DENIED) {
        nd_http_answer_error(late.request, 400, late.text);
    } else {
        nd_answer_failure(late.request, status, &operation);
    }
}

static void ask_for_topic(struct nd_http_request *request, void *arg)
{
    static const struct nd_upstream_method method = {.path = "/narad.v1.Admin/GetTopic",
                                                     .reply_type =
                                                         &narad__v1__get_topic_response__descriptor,
                                                     .asks = true};
    Narad__V1__GetTopicRequest message = NARAD__V1__GET_TOPIC_REQUEST__INIT;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    ND_ASSERT(nd_path_topic(request, topic)); /* looked at before */
    message.name = topic;
    message.partition_choice_case = NARAD__V1__GET_TOPIC_REQUEST__PARTITION_CHOICE_PARTITION;
    nd_upstream_call(nd_upstream_of(request), nd_http_caller(request), &method, &message.base,
                     topic_known, arg);
}

static void refuse_late(struct nd_http_request *request, const char *text)
{
    struct late_refusal *late = nd_xcalloc(1, sizeof *late);
    *late = (struct late_refusal){request, text};
    nd_answer_if_allowed(request, NARAD__V1__ACTION__ACTION_CONSUME, nd_http_path_value(request, 0),
                         ask_for_topic, late);
}

/* --- replay --- */

struct replay {
    struct nd_http_request *request;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    int64_t offset;
};

static void answer_message(struct nd_http_request *request, const char *topic,
                           const Narad__V1__Message *message)
{
    struct nd_buf body;
    nd_buf_init(&body, BODY_BYTES_MAX);
    nd_json_put_message(&body, topic, message);
    nd_record_headers_put(request, message);
    nd_answer_json(request, 200, &body);
}

static void replayed(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct replay *replay = arg;
    const Narad__V1__ReplayResponse *response = reply;
    if (status->err == ND_ERR_CORRUPT) {
        struct nd_errmsg text;
        nd_errmsg_set(&text, "%s: offset %lld is not readable", nd_err_text(ND_ERR_STALE),
                      (long long)replay->offset);
        nd_http_answer_error(replay->request, 410, text.text);
    } else if (status->err != ND_OK) {
        static const struct nd_operation lost = {"consume", false, 502};
        nd_answer_failure(replay->request, status, &lost);
    } else if (response == NULL || response->n_messages == 0) {
        nd_answer_empty(replay->request, 204);
    } else {
        answer_message(replay->request, replay->topic, response->messages[0]);
    }
}

static void begin_replay(struct nd_http_request *request, const struct wish *wish,
                         const char *topic)
{
    Narad__V1__ReplayRequest message = NARAD__V1__REPLAY_REQUEST__INIT;
    struct replay *replay = nd_http_memory(request, sizeof *replay);
    replay->request = request;
    replay->offset = wish->offset;
    snprintf(replay->topic, sizeof replay->topic, "%s", topic);
    message.topic = replay->topic;
    message.partition = (uint32_t)wish->partition;
    message.offset = (uint64_t)wish->offset;
    message.max_messages = 1;
    nd_upstream_replay(nd_upstream_of(request), nd_http_caller(request), &message, replayed,
                       replay);
}

/* --- the queue --- */

/* Shared by the handler, until it has set what a hang-up needs, and the completion. */
struct poll {
    struct nd_http_request *request;
    struct nd_in_flight *in_flight; /* NULL: not counted here */
    _Atomic uint64_t ticket;        /* 0: not known yet */
    _Atomic bool gone;              /* the client hung up */
    _Atomic uint32_t refs;
    struct wish wish;
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
};

static void poll_unref(struct poll *poll)
{
    /* acq_rel: the last one frees what the other wrote */
    if (atomic_fetch_sub_explicit(&poll->refs, 1, memory_order_acq_rel) == 1) {
        nd_free(poll);
    }
}

/* Either the hang-up sees the ticket or the handler sees the hang-up (both sequentially
 * consistent); twice does no harm. */
static void client_gone(void *arg)
{
    struct poll *poll = arg;
    atomic_store(&poll->gone, true);
    uint64_t ticket = atomic_load(&poll->ticket);
    if (ticket != 0) {
        nd_upstream_poll_cancel(nd_upstream_of(poll->request), ticket);
    }
}

static void answer_batch(struct poll *poll, const Narad__V1__PollResult *result)
{
    struct nd_buf body;
    size_t count = 0;
    nd_buf_init(&body, BODY_BYTES + BODY_BYTES_MAX);
    nd_buf_put_text(&body, "{\"messages\":[");
    for (; count < result->n_messages; count++) {
        size_t before = body.size;
        nd_buf_put_text(&body, count == 0 ? "" : ",");
        nd_json_put_message(&body, poll->topic, result->messages[count]);
        if (count > 0 && body.size > BODY_BYTES) {
            body.size = before;
            break;
        }
    }
    nd_buf_put_text(&body, "]}");
    nd_give_back(poll->request, poll->topic, result->messages + count, result->n_messages - count);
    nd_answer_json(poll->request, 200, &body);
}

static void answer_poll(struct poll *poll, const struct nd_upstream_status *status,
                        const Narad__V1__PollResult *result)
{
    struct nd_http_request *request = poll->request;
    if (poll->wish.clamped_ms != 0) {
        char text[32];
        (void)nd_duration_put(text, sizeof text, poll->wish.clamped_ms);
        nd_http_set_header(request, "X-Narad-Wait-Clamped", text);
    }
    if (status->err != ND_OK) {
        if (nd_gateway_draining(nd_http_gateway(request))) {
            nd_answer_empty(request, 204);
        } else {
            nd_answer_failure(request, status, &operation);
        }
    } else if (result->n_messages == 0) {
        nd_answer_empty(request, 204);
    } else if (atomic_load(&poll->gone)) {
        nd_give_back(request, poll->topic, result->messages, result->n_messages);
        nd_answer_empty(request, 204);
    } else if (poll->wish.batch) {
        answer_batch(poll, result);
    } else {
        answer_message(request, poll->topic, result->messages[0]);
    }
}

static void polled(void *arg, const struct nd_upstream_status *status, const void *reply)
{
    struct poll *poll = arg;
    if (poll->wish.wait_ms > 0) {
        nd_http_on_gone(poll->request, NULL, NULL);
    }
    if (poll->in_flight != NULL) {
        nd_in_flight_end(poll->in_flight, nd_http_peer(poll->request), poll->wish.max);
    }
    answer_poll(poll, status, reply);
    poll_unref(poll);
}

/* Without credentials an address is who asks. False: refused. */
static bool count_in(struct nd_http_request *request, struct poll *poll)
{
    struct nd_errmsg msg = {""};
    if (nd_http_authorization(request).size > 0 &&
        nd_gateway_security_on(nd_http_gateway(request))) {
        return true;
    }
    struct nd_in_flight *in_flight = nd_gateway_in_flight(nd_http_gateway(request));
    if (nd_in_flight_begin(in_flight, nd_http_peer(request), poll->wish.max, &msg) != ND_OK) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_CONSUME,
                          nd_http_path_value(request, 0), 429, msg.text);
        return false;
    }
    poll->in_flight = in_flight;
    return true;
}

static void begin_poll(struct nd_http_request *request, const struct wish *wish, const char *topic)
{
    Narad__V1__Poll message = NARAD__V1__POLL__INIT;
    struct poll *poll = nd_xcalloc(1, sizeof *poll);
    poll->request = request;
    poll->wish = *wish;
    snprintf(poll->topic, sizeof poll->topic, "%s", topic);
    if (nd_gateway_draining(nd_http_gateway(request))) {
        poll->wish.wait_ms = 0;
    }
    if (!count_in(request, poll)) {
        nd_free(poll);
        return;
    }
    atomic_store(&poll->refs, 2);
    message.topic = poll->topic;
    message.max_messages = wish->max;
    message.wait_ms = (uint32_t)poll->wish.wait_ms;
    if (wish->has_partition) {
        message.partition_choice_case = NARAD__V1__POLL__PARTITION_CHOICE_PARTITION;
        message.partition = (uint32_t)wish->partition;
    }
    if (poll->wish.wait_ms > 0) {
        nd_http_on_gone(request, client_gone, poll);
    }
    struct nd_gateway *gateway = nd_http_gateway(request);
    struct nd_upstream *upstream = nd_gateway_upstream(gateway);
    uint64_t ticket = nd_upstream_poll(upstream, nd_http_caller(request), &message, polled,
                                       poll); /* from here on it may be answered */
    atomic_store(&poll->ticket, ticket);
    if (atomic_load(&poll->gone) || nd_gateway_draining(gateway)) {
        nd_upstream_poll_cancel(upstream, ticket);
    }
    poll_unref(poll);
}

void nd_handle_consume(struct nd_http_request *request)
{
    char topic[ND_TOPIC_NAME_SIZE_MAX + 1];
    struct nd_errmsg msg = {""};
    struct nd_arena arena;
    struct wish wish;
    nd_arena_init(&arena, 32 * nd_http_query(request).size + 4096);
    bool good = read_wish(request, &arena, &wish, &msg);
    nd_arena_release(&arena);
    if (!good) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_CONSUME,
                          nd_http_path_value(request, 0), 400, msg.text);
    } else if (!nd_path_topic(request, topic)) {
        nd_answer_refusal(request, NARAD__V1__ACTION__ACTION_CONSUME,
                          nd_http_path_value(request, 0), 404, ND_NO_TOPIC);
    } else if (wish.has_offset && !wish.has_partition) {
        refuse_late(request, "partition required for replay-mode consume");
    } else if (wish.has_partition && (wish.partition < 0 || wish.partition > UINT32_MAX)) {
        refuse_late(request, "invalid argument: partition out of range");
    } else if (wish.has_offset) {
        begin_replay(request, &wish, topic);
    } else {
        begin_poll(request, &wish, topic);
    }
}
