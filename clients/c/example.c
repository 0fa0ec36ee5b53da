/* An example of libnarad: make a topic, produce ten messages without waiting for each, take them
 * from a subscription and ack them.
 *
 *   cc example.c $(pkg-config --cflags --libs narad) -lpthread -o example
 *   ./example 127.0.0.1:7941 */
#include <narad/client.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGES = 10 };

struct progress {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int stored, failed, acked;
    int ended;
};

static void count(struct progress *progress, int *counter)
{
    pthread_mutex_lock(&progress->lock);
    *counter += 1;
    pthread_cond_signal(&progress->changed);
    pthread_mutex_unlock(&progress->lock);
}

/* The message is on disk, or it may not be. */
static void on_produced(void *data, int code, const char *text,
                        Narad__V1__Placement *const *placements, size_t placements_count)
{
    struct progress *progress = data;

    if (code != NARAD_OK) {
        fprintf(stderr, "not confirmed: %s: %s\n", narad_code_name(code), text);
        count(progress, &progress->failed);
        return;
    }
    if (placements_count == 1) {
        printf("stored in partition %u at offset %llu\n", placements[0]->partition,
               (unsigned long long)placements[0]->offset);
    }
    count(progress, &progress->stored);
}

/* The ack is on disk: the message never comes again. */
static void on_settled(void *data, int code, const char *text)
{
    struct progress *progress = data;

    if (code != NARAD_OK) {
        fprintf(stderr, "not settled: %s: %s\n", narad_code_name(code), text);
        return;
    }
    count(progress, &progress->acked);
}

static void on_message(void *data, struct narad_subscription *subscription,
                       const Narad__V1__Message *message)
{
    printf("got %.*s (delivery %u)\n", (int)message->payload.len,
           (const char *)message->payload.data, message->delivery_attempt);
    narad_subscription_settle(subscription, message->receipt_handle,
                              NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_ACK, on_settled, data);
}

static void on_ended(void *data, int code, const char *text)
{
    struct progress *progress = data;

    if (code != NARAD_OK && code != NARAD_CANCELLED) { /* cancelled: main() ended the client */
        fprintf(stderr, "the subscription ended: %s: %s\n", narad_code_name(code), text);
    }
    count(progress, &progress->ended);
}

static int topic_make(struct narad_client *client, const char *name)
{
    Narad__V1__CreateTopicRequest request;
    Narad__V1__CreateTopicResponse *response = NULL;
    struct narad_error error;
    char topic[256];

    narad__v1__create_topic_request__init(&request);
    snprintf(topic, sizeof topic, "%s", name);
    request.name = topic;
    int code = narad_create_topic(client, &request, &response, &error);
    if (code != NARAD_OK && code != NARAD_ALREADY_EXISTS) {
        fprintf(stderr, "create topic: %s: %s\n", narad_code_name(code), error.text);
        return 1;
    }
    narad_response_free(response);
    return 0;
}

static void produce(struct narad_client *client, const char *topic, struct progress *progress)
{
    for (int i = 0; i < MESSAGES; i++) {
        Narad__V1__Record record;
        Narad__V1__Record *records[] = {&record};
        char text[32];
        int size = snprintf(text, sizeof text, "message %d", i);
        narad__v1__record__init(&record);
        record.payload.data = (uint8_t *)text;
        record.payload.len = (size_t)size;
        int code = narad_produce_async(client, topic, records, 1, on_produced, progress);
        if (code != NARAD_OK) {
            fprintf(stderr, "not taken: %s\n", narad_code_name(code));
            count(progress, &progress->failed);
        }
    }
}

/* Until as many acks are confirmed as messages were stored, or the subscription is over. */
static int wait_for_acks(struct progress *progress)
{
    pthread_mutex_lock(&progress->lock);
    while (!progress->ended &&
           (progress->stored + progress->failed < MESSAGES || progress->acked < progress->stored)) {
        pthread_cond_wait(&progress->changed, &progress->lock);
    }
    int failed = progress->ended || progress->failed > 0;
    pthread_mutex_unlock(&progress->lock);
    return failed;
}

int main(int argc, char **argv)
{
    const char *topic = "example";
    struct narad_options options = {.server = argc > 1 ? argv[1] : NULL};
    struct progress progress = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};
    struct narad_client *client = NULL;
    struct narad_subscription *subscription = NULL;
    struct narad_error error;

    if (narad_client_new(&client, &options, &error) != NARAD_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    if (topic_make(client, topic) != 0) {
        narad_client_free(client);
        return 1;
    }
    struct narad_subscription_options subscribe = {.topic = topic,
                                                   .partition = -1,
                                                   .message = on_message,
                                                   .ended = on_ended,
                                                   .data = &progress};
    if (narad_subscribe(client, &subscribe, &subscription, &error) != NARAD_OK) {
        fprintf(stderr, "%s\n", error.text);
        narad_client_free(client);
        return 1;
    }
    produce(client, topic, &progress);
    int failed = wait_for_acks(&progress);
    printf("%d stored, %d acked\n", progress.stored, progress.acked);
    narad_client_free(client); /* ends the subscription too */
    return failed;
}
