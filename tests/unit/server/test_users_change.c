/* A user changes while calls are open, at the moments that a whole node meets too seldom. Broker
 * and metastore are wrapped (CMakeLists.txt): the broker keeps its polls, the metastore has one
 * user. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/narad/v1/admin.pb-c.h"
#include "proto/narad/v1/broker.pb-c.h"
#include "proto/rpc/client.h"
#include "rpc_pair.h"
#include "server/rpc/handlers.h"
#include "server/security/auth.h"
#include "tests/support/nd_test.h"

enum { COST = 4, POLLS_MAX = 2 };

static struct nd_auth *auth;
static struct nd_handlers *handlers;
static struct rpc_pair pair;
static struct nd_topic *topic;
static _Atomic uint64_t version;

static struct nd_mutex lock;
static struct nd_cond changed;
/* guarded by lock */
static struct nd_user *user; /* NULL: gone, with `gone_err` */
static enum nd_err gone_err;
static bool revoke_on_poll; /* the user loses its rights just before the broker gets the poll */
static bool gone_on_list;   /* the user is deleted just before a page of topics is cut */
static struct nd_poll *held[POLLS_MAX];
static uint32_t polls, cancels, early_cancels, results, done;
static uint32_t result_code;
static int status_code;

/* --- in the place of broker and metastore --- */

void __wrap_nd_broker_poll(struct nd_broker *broker, struct nd_poll *poll);
void __wrap_nd_broker_poll_cancel(struct nd_broker *broker, struct nd_poll *poll);
enum nd_err __wrap_nd_metastore_topic(struct nd_metastore *metastore, struct nd_slice name,
                                      struct nd_topic **out);
enum nd_err __wrap_nd_metastore_user(struct nd_metastore *metastore, struct nd_slice name,
                                     struct nd_user **out);
uint64_t __wrap_nd_metastore_users_version(const struct nd_metastore *metastore);
bool __wrap_nd_metastore_caught_up(const struct nd_metastore *metastore);
size_t __wrap_nd_metastore_topics(struct nd_metastore *metastore, struct nd_slice after,
                                  size_t limit, struct nd_topic **out, bool *more_out);

static void user_set(struct nd_user *now, enum nd_err err)
{
    nd_mutex_lock(&lock);
    struct nd_user *before = user;
    user = now;
    gone_err = err;
    nd_mutex_unlock(&lock);
    nd_user_unref(before);
    atomic_fetch_add(&version, 1);
    nd_access_users_changed(handlers);
}

static struct nd_user *without_grants(void)
{
    struct nd_user *now = nd_user_new(user->name, NULL, 0);

    memcpy(now->hash, user->hash, sizeof now->hash);
    return now;
}

void __wrap_nd_broker_poll(struct nd_broker *broker, struct nd_poll *poll)
{
    (void)broker;
    if (revoke_on_poll) {
        user_set(without_grants(), ND_OK);
    }
    nd_mutex_lock(&lock);
    ND_ASSERT(polls < POLLS_MAX);
    held[polls++] = poll;
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
}

void __wrap_nd_broker_poll_cancel(struct nd_broker *broker, struct nd_poll *poll)
{
    (void)broker;
    nd_mutex_lock(&lock);
    early_cancels += held[0] != poll && held[1] != poll;
    cancels++;
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
}

enum nd_err __wrap_nd_metastore_topic(struct nd_metastore *metastore, struct nd_slice name,
                                      struct nd_topic **out)
{
    (void)metastore;
    (void)name;
    *out = nd_topic_ref(topic);
    return ND_OK;
}

enum nd_err __wrap_nd_metastore_user(struct nd_metastore *metastore, struct nd_slice name,
                                     struct nd_user **out)
{
    (void)metastore;
    (void)name;
    nd_mutex_lock(&lock);
    enum nd_err err = user == NULL ? gone_err : ND_OK;
    if (err == ND_OK) {
        *out = nd_user_ref(user);
    }
    nd_mutex_unlock(&lock);
    return err;
}

uint64_t __wrap_nd_metastore_users_version(const struct nd_metastore *metastore)
{
    (void)metastore;
    return atomic_load(&version);
}

bool __wrap_nd_metastore_caught_up(const struct nd_metastore *metastore)
{
    (void)metastore;
    return true;
}

size_t __wrap_nd_metastore_topics(struct nd_metastore *metastore, struct nd_slice after,
                                  size_t limit, struct nd_topic **out, bool *more_out)
{
    (void)metastore;
    (void)after;
    assert_in_range(limit, 1, 1000);
    if (gone_on_list) {
        user_set(NULL, ND_ERR_NOT_FOUND);
    }
    out[0] = nd_topic_ref(topic);
    *more_out = false;
    return 1;
}

/* As the broker ends polls that were cancelled. */
static void cancelled_answer(void)
{
    for (uint32_t i = 0; i < polls; i++) {
        struct nd_poll *poll = held[i];
        if (poll != NULL) {
            struct nd_topic *polled = poll->topic;
            held[i] = NULL;
            poll->done(poll, ND_ERR_CANCELLED, NULL, 0);
            nd_topic_unref(polled);
        }
    }
}

/* --- the client --- */

static void on_message(void *data, struct nd_rpc_stream *stream, struct nd_slice message)
{
    Narad__V1__ConsumeStreamResponse *response =
        narad__v1__consume_stream_response__unpack(NULL, message.size, message.data);

    (void)data;
    (void)stream;
    nd_mutex_lock(&lock);
    for (size_t i = 0; i < response->n_results; i++) {
        result_code = response->results[i]->code;
        results++;
    }
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
    narad__v1__consume_stream_response__free_unpacked(response, NULL);
}

static void on_done(void *data, struct nd_rpc_stream *stream, const struct nd_rpc_status *status)
{
    (void)data;
    (void)stream;
    nd_mutex_lock(&lock);
    status_code = status->code;
    done++;
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
}

static void wait_for(const uint32_t *counter, uint32_t value)
{
    nd_mutex_lock(&lock);
    while (*counter < value) {
        nd_cond_wait(&changed, &lock);
    }
    nd_mutex_unlock(&lock);
}

/* A stream with one or two polls that wait. */
static struct nd_rpc_stream *stream_with_polls(size_t count)
{
    static const struct nd_rpc_stream_events events = {.on_message = on_message,
                                                       .on_done = on_done};
    struct nd_rpc_metadata metadata = {"authorization", "Basic YWxpY2U6c2VjcmV0"};
    struct nd_rpc_call_options options = {
        .wait_for_ready = true, .metadata = &metadata, .metadata_count = 1};
    Narad__V1__ConsumeStreamRequest request = NARAD__V1__CONSUME_STREAM_REQUEST__INIT;
    Narad__V1__Poll first = NARAD__V1__POLL__INIT, second, *list[POLLS_MAX] = {&first, &second};
    char name[] = "orders";

    first.id = 1;
    first.topic = name;
    first.wait_ms = 30000;
    second = first;
    second.id = 2;
    request.n_polls = count;
    request.polls = list;
    nd_mutex_lock(&lock); /* see nd_rpc_stream_open */
    struct nd_rpc_stream *stream = nd_rpc_stream_open_with(
        pair.channel, "/narad.v1.Broker/ConsumeStream", &options, &events, NULL);
    nd_rpc_stream_send(stream, &request.base);
    nd_mutex_unlock(&lock);
    return stream;
}

/* --- set-up --- */

static struct nd_user *user_made(void)
{
    char pattern[] = "*", *patterns[] = {pattern};
    struct nd_grant grant = {ND_ACTION_CONSUME, 1, patterns};
    struct nd_user *made = nd_user_new("alice", &grant, 1);
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();
    struct nd_password password;

    assert_true(nd_password_copy(&password, nd_slice_str("secret")));
    assert_true(nd_password_hash(room, &password, COST, nd_env_posix(), made->hash));
    nd_bcrypt_room_free(room);
    return made;
}

static int set_up(void **state)
{
    static const struct nd_rpc_method *const methods[] = {&nd_rpc_consume_stream,
                                                          &nd_rpc_list_topics};
    struct nd_errmsg msg = {""};

    (void)state;
    nd_mutex_init(&lock);
    nd_cond_init(&changed);
    polls = cancels = early_cancels = results = done = 0;
    revoke_on_poll = gone_on_list = false;
    memset(held, 0, sizeof held);
    atomic_store(&version, 1);
    user = user_made();
    topic = nd_topic_new(3);
    snprintf(topic->name, sizeof topic->name, "orders");
    assert_int_equal(
        nd_auth_new(&auth, &(struct nd_auth_options){.env = nd_env_posix(), .cost = COST}, &msg),
        ND_OK);
    handlers = nd_handlers_new(&(struct nd_handlers_options){.auth = auth, .security = true});
    rpc_pair_start(&pair, methods, ND_ARRAY_SIZE(methods), handlers, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cancelled_answer(); /* what a failed case left */
    rpc_pair_stop(&pair);
    rpc_pair_free(&pair);
    nd_handlers_free(handlers);
    nd_auth_free(auth);
    nd_topic_unref(topic);
    nd_user_unref(user);
    nd_cond_release(&changed);
    nd_mutex_release(&lock);
    return 0;
}

/* --- cases --- */

static void consume_stream__a_poll_is_cancelled_only_once_the_broker_has_it(void **state)
{
    (void)state;
    revoke_on_poll = true;
    struct nd_rpc_stream *stream = stream_with_polls(1);
    wait_for(&polls, 1);
    wait_for(&cancels, 1);
    assert_int_equal(early_cancels, 0);
    assert_int_equal(cancels, 1);
    cancelled_answer();
    wait_for(&results, 1);
    assert_int_equal(result_code, nd_err_grpc_status(ND_ERR_PERMISSION_DENIED));
    nd_rpc_stream_half_close(stream);
    wait_for(&done, 1);
}

/* Deleted by what a node that starts reads of the log: it knows too little to say "deleted". */
static void stream__of_a_user_that_is_gone_before_the_catch_up_ends(void **state)
{
    (void)state;
    (void)stream_with_polls(2);
    wait_for(&polls, 2); /* the handler has done with the first one */
    user_set(NULL, ND_ERR_UNAVAILABLE);
    assert_in_range(cancels, 1, 2);
    wait_for(&cancels, 2);
    cancelled_answer();
    wait_for(&done, 1);
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_UNAVAILABLE));
}

/* --- a page of topics --- */

static void on_page(void *data, struct nd_rpc_stream *stream, struct nd_slice message)
{
    Narad__V1__ListTopicsResponse *response =
        narad__v1__list_topics_response__unpack(NULL, message.size, message.data);

    (void)data;
    (void)stream;
    nd_mutex_lock(&lock);
    results = 1 + (uint32_t)response->n_topics;
    nd_mutex_unlock(&lock);
    narad__v1__list_topics_response__free_unpacked(response, NULL);
}

/* `results` is 0 without an answer, else one more than the topics in it. */
static void topics_list(void)
{
    static const struct nd_rpc_stream_events events = {.on_message = on_page, .on_done = on_done};
    struct nd_rpc_metadata metadata = {"authorization", "Basic YWxpY2U6c2VjcmV0"};
    struct nd_rpc_call_options options = {
        .wait_for_ready = true, .metadata = &metadata, .metadata_count = 1};
    Narad__V1__ListTopicsRequest request = NARAD__V1__LIST_TOPICS_REQUEST__INIT;

    nd_mutex_lock(&lock); /* see nd_rpc_stream_open */
    struct nd_rpc_stream *stream = nd_rpc_stream_open_with(
        pair.channel, "/narad.v1.Admin/ListTopics", &options, &events, NULL);
    nd_rpc_stream_send(stream, &request.base);
    nd_rpc_stream_half_close(stream);
    nd_mutex_unlock(&lock);
    wait_for(&done, 1);
}

static void list_topics__shows_a_user_what_is_there(void **state)
{
    (void)state;
    topics_list();
    assert_int_equal(status_code, 0);
    assert_int_equal(results, 2);
}

/* An empty page would tell somebody who is nobody any more that there are no topics. */
static void list_topics__of_a_user_that_is_gone_meanwhile_is_refused(void **state)
{
    (void)state;
    gone_on_list = true;
    topics_list();
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_UNAUTHENTICATED));
    assert_int_equal(results, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            consume_stream__a_poll_is_cancelled_only_once_the_broker_has_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stream__of_a_user_that_is_gone_before_the_catch_up_ends,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(list_topics__shows_a_user_what_is_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(list_topics__of_a_user_that_is_gone_meanwhile_is_refused,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
