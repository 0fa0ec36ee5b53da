#include "gateway/json_out.h"

#include <inttypes.h>

#include "gateway/payload.h"

void nd_json_put_text(struct nd_buf *out, const char *text)
{
    struct nd_slice bytes = nd_slice_str(text == NULL ? "" : text);
    if (nd_utf8_valid(bytes)) {
        nd_json_put_string(out, bytes);
        return;
    }
    struct nd_buf mended;
    nd_buf_init(&mended, 3 * bytes.size + 1);
    nd_utf8_put_mended(&mended, bytes);
    nd_json_put_string(out, nd_buf_slice(&mended));
    nd_buf_release(&mended);
}

/* `name` comes with its comma and colon. */
static void put_text(struct nd_buf *out, const char *name, const char *text)
{
    nd_buf_put_text(out, name);
    nd_json_put_text(out, text);
}

static bool given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* --- topics --- */

/* All but the closing brace. */
static void put_topic_open(struct nd_buf *out, const Narad__V1__Topic *topic, bool role)
{
    put_text(out, "{\"name\":", topic->name);
    nd_buf_printf(out,
                  ",\"partitions\":%" PRIu32 ",\"retention_ms\":%" PRIu64
                  ",\"visibility_timeout_ms\":%" PRIu64 ",\"max_in_flight_per_partition\":%" PRIu32
                  ",\"max_acked_ahead_per_partition\":%" PRIu32 ",\"created_at\":%" PRId64,
                  topic->partitions, topic->retention_ms, topic->visibility_timeout_ms,
                  topic->max_in_flight_per_partition, topic->max_acked_ahead_per_partition,
                  topic->created_at);
    if (given(topic->owner)) {
        put_text(out, ",\"owner\":", topic->owner);
    }
    if (role && given(topic->role)) {
        put_text(out, ",\"role\":", topic->role);
    }
    if (given(topic->id)) {
        put_text(out, ",\"id\":", topic->id);
    }
}

void nd_json_put_topic(struct nd_buf *out, const Narad__V1__Topic *topic, bool role)
{
    put_topic_open(out, topic, role);
    nd_buf_put_u8(out, '}');
}

static void put_stats(struct nd_buf *out, const Narad__V1__PartitionStats *stats)
{
    nd_buf_printf(out,
                  "{\"index\":%" PRIu32 ",\"segments\":%" PRIu32 ",\"oldest_offset\":%" PRIu64
                  ",\"next_offset\":%" PRIu64 ",\"high_watermark\":%" PRIu64
                  ",\"size_bytes\":%" PRIu64,
                  stats->index, stats->segments, stats->oldest_offset, stats->next_offset,
                  stats->high_watermark, stats->size_bytes);
    if (stats->oldest_segment_at != 0) {
        nd_buf_printf(out, ",\"oldest_segment_at\":%" PRId64, stats->oldest_segment_at);
    }
    if (given(stats->owner_node)) {
        put_text(out, ",\"owner_node\":", stats->owner_node);
    }
    if (given(stats->status)) {
        put_text(out, ",\"status\":", stats->status);
    }
    nd_buf_put_u8(out, '}');
}

void nd_json_put_topic_details(struct nd_buf *out, const Narad__V1__GetTopicResponse *response)
{
    put_topic_open(out, response->topic, true);
    nd_buf_put_text(out, ",\"partition_stats\":[");
    for (size_t i = 0; i < response->n_partition_stats; i++) {
        nd_buf_put_text(out, i == 0 ? "" : ",");
        put_stats(out, response->partition_stats[i]);
    }
    nd_buf_put_text(out, "]}");
}

void nd_json_put_topics(struct nd_buf *out, const Narad__V1__ListTopicsResponse *response)
{
    put_text(out, "{\"next_page_token\":", response->next_page_token);
    nd_buf_put_text(out, ",\"topics\":[");
    for (size_t i = 0; i < response->n_topics; i++) {
        nd_buf_put_text(out, i == 0 ? "" : ",");
        nd_json_put_topic(out, response->topics[i], true);
    }
    nd_buf_put_text(out, "]}");
}

/* --- messages --- */

static struct nd_slice bytes_of(const ProtobufCBinaryData *data)
{
    return nd_slice_make(data->data, data->len);
}

static void put_base64(struct nd_buf *out, struct nd_slice bytes)
{
    nd_buf_put_u8(out, '"');
    nd_base64_put(out, bytes);
    nd_buf_put_u8(out, '"');
}

static void put_key(struct nd_buf *out, struct nd_slice key)
{
    if (key.size == 0) {
        return;
    }
    nd_buf_put_text(out, ",\"key\":");
    if (nd_utf8_valid(key)) {
        nd_json_put_string(out, key);
    } else {
        put_base64(out, key);
        nd_buf_put_text(out, ",\"key_encoding\":\"base64\"");
    }
}

static void put_payload(struct nd_buf *out, struct nd_slice payload)
{
    nd_buf_put_text(out, ",\"payload\":");
    if (payload.size == 0) {
        nd_buf_put_text(out, "null"); /* a produce refuses it */
        return;
    }
    switch (nd_payload_classify(payload)) {
    case ND_PAYLOAD_JSON: nd_buf_put_slice(out, payload); return;
    case ND_PAYLOAD_TEXT: nd_json_put_string(out, payload); return;
    case ND_PAYLOAD_BYTES:
        put_base64(out, payload);
        nd_buf_put_text(out, ",\"payload_encoding\":\"base64\"");
        return;
    }
}

/* Downwards, also below zero. */
static int64_t seconds_of(int64_t ms)
{
    return ms / 1000 - (ms % 1000 < 0 ? 1 : 0);
}

void nd_json_put_message(struct nd_buf *out, const char *topic, const Narad__V1__Message *message)
{
    put_text(out, "{\"topic\":", topic);
    nd_buf_printf(out, ",\"partition\":%" PRIu32 ",\"offset\":%" PRIu64, message->partition,
                  message->offset);
    put_key(out, bytes_of(&message->key));
    put_payload(out, bytes_of(&message->payload));
    nd_buf_printf(out, ",\"timestamp\":%" PRId64, seconds_of(message->timestamp_ms));
    if (given(message->receipt_handle)) {
        put_text(out, ",\"receipt_handle\":", message->receipt_handle);
    }
    nd_buf_put_u8(out, '}');
}

/* --- users --- */

static void put_grant(struct nd_buf *out, const Narad__V1__Grant *grant)
{
    put_text(out, "{\"action\":", grant->action);
    for (size_t i = 0; i < grant->n_patterns; i++) {
        put_text(out, i == 0 ? ",\"patterns\":[" : ",", grant->patterns[i]);
    }
    nd_buf_put_text(out, grant->n_patterns == 0 ? "}" : "]}");
}

void nd_json_put_user(struct nd_buf *out, const Narad__V1__User *user)
{
    put_text(out, "{\"username\":", user->username);
    for (size_t i = 0; i < user->n_grants; i++) {
        nd_buf_put_text(out, i == 0 ? ",\"grants\":[" : ",");
        put_grant(out, user->grants[i]);
    }
    nd_buf_put_text(out, user->n_grants == 0 ? "" : "]");
    if (user->root) {
        nd_buf_put_text(out, ",\"root\":true");
    }
    if (user->created_at_ms != 0) {
        nd_buf_printf(out, ",\"created_at_ms\":%" PRId64, user->created_at_ms);
    }
    if (user->updated_at_ms != 0) {
        nd_buf_printf(out, ",\"updated_at_ms\":%" PRId64, user->updated_at_ms);
    }
    nd_buf_put_u8(out, '}');
}

void nd_json_put_users(struct nd_buf *out, const Narad__V1__ListUsersResponse *response)
{
    nd_buf_put_u8(out, '[');
    for (size_t i = 0; i < response->n_users; i++) {
        nd_buf_put_text(out, i == 0 ? "" : ",");
        nd_json_put_user(out, response->users[i]);
    }
    nd_buf_put_u8(out, ']');
}
