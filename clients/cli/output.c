/* What commands print: JSON with the members of the REST API, messages as lines, progress. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/base64.h"

#include "clients/cli/cli.h"

void cli_print_json(json_t *json, bool compact)
{
    json_dumpf(json, stdout, JSON_REAL_PRECISION(9) | (compact ? JSON_COMPACT : JSON_INDENT(2)));
    putchar('\n');
    json_decref(json);
}

void cli_done(const struct cli *cli, json_t *json, const char *word)
{
    if (cli->json) {
        cli_print_json(json, true);
    } else {
        fprintf(stderr, "%s\n", word);
        json_decref(json);
    }
}

json_t *cli_topic_json(const Narad__V1__Topic *topic)
{
    json_t *json = json_object();

    json_object_set_new(json, "name", json_string(topic->name));
    json_object_set_new(json, "id", json_string(topic->id));
    json_object_set_new(json, "partitions", json_integer(topic->partitions));
    json_object_set_new(json, "retention_ms", json_integer((json_int_t)topic->retention_ms));
    json_object_set_new(json, "visibility_timeout_ms",
                        json_integer((json_int_t)topic->visibility_timeout_ms));
    json_object_set_new(json, "max_in_flight_per_partition",
                        json_integer(topic->max_in_flight_per_partition));
    json_object_set_new(json, "max_acked_ahead_per_partition",
                        json_integer(topic->max_acked_ahead_per_partition));
    json_object_set_new(json, "created_at", json_integer(topic->created_at));
    if (topic->owner[0] != '\0') {
        json_object_set_new(json, "owner", json_string(topic->owner));
    }
    json_object_set_new(json, "role", json_string(topic->role));
    return json;
}

/* Bytes as a JSON string; with `<name>_encoding` base64 when they are not UTF-8. */
static void bytes_set(json_t *json, const char *name, const char *encoding_name,
                      ProtobufCBinaryData bytes)
{
    json_t *text = json_stringn(bytes.len > 0 ? (const char *)bytes.data : "", bytes.len);

    if (text != NULL) {
        json_object_set_new(json, name, text);
        return;
    }
    char *encoded = nd_xmalloc(ND_BASE64_TEXT_SIZE(bytes.len));
    nd_base64_encode(nd_slice_make(bytes.data, bytes.len), encoded);
    json_object_set_new(json, name, json_string(encoded));
    json_object_set_new(json, encoding_name, json_string("base64"));
    nd_free(encoded);
}

/* One JSON value by rest-api.md 3.4, that is, UTF-8 too? */
static bool is_json(ProtobufCBinaryData bytes)
{
    json_t *value = json_loadb((const char *)bytes.data, bytes.len,
                               JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);

    json_decref(value);
    return value != NULL;
}

/* JSON as it was produced, number spelling included, but for white space between its tokens: what
 * is printed may have to stay on one line. */
static void print_json_text(ProtobufCBinaryData bytes)
{
    bool inside = false, escaped = false;

    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t c = bytes.data[i];
        if (inside || (c != ' ' && c != '\t' && c != '\n' && c != '\r')) {
            putchar(c);
        }
        if (c == '"' && !escaped) {
            inside = !inside;
        }
        escaped = inside && c == '\\' && !escaped;
    }
}

static json_t *headers_json(const Narad__V1__Message *message)
{
    json_t *headers = json_array();

    for (size_t i = 0; i < message->n_headers; i++) {
        json_t *header = json_object();
        json_object_set_new(header, "name", json_string(message->headers[i]->name));
        bytes_set(header, "value", "value_encoding", message->headers[i]->value);
        json_array_append_new(headers, header);
    }
    return headers;
}

static json_t *message_json(const char *topic, const Narad__V1__Message *message, bool raw_payload)
{
    json_t *json = json_object();

    json_object_set_new(json, "topic", json_string(topic));
    json_object_set_new(json, "partition", json_integer(message->partition));
    json_object_set_new(json, "offset", json_integer((json_int_t)message->offset));
    if (message->key.len > 0) {
        bytes_set(json, "key", "key_encoding", message->key);
    }
    if (raw_payload) {
        json_object_set_new(json, "payload", json_null()); /* keeps its place */
    } else {
        bytes_set(json, "payload", "payload_encoding", message->payload);
    }
    json_object_set_new(json, "timestamp", json_integer(message->timestamp_ms / 1000));
    if (message->receipt_handle[0] != '\0') {
        json_object_set_new(json, "receipt_handle", json_string(message->receipt_handle));
        json_object_set_new(json, "delivery_attempt", json_integer(message->delivery_attempt));
    }
    if (message->n_headers > 0) {
        json_object_set_new(json, "headers", headers_json(message));
    }
    return json;
}

void cli_print_message_json(const char *topic, const Narad__V1__Message *message, bool compact)
{
    bool raw_payload = is_json(message->payload);
    json_t *json = message_json(topic, message, raw_payload);
    const char *between = "{";
    const char *name;
    json_t *value;

    json_object_foreach(json, name, value)
    {
        printf(compact ? "%s\"%s\":" : "%s\n  \"%s\": ", between, name);
        if (raw_payload && strcmp(name, "payload") == 0) {
            print_json_text(message->payload);
        } else {
            json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
        }
        between = ",";
    }
    fputs(compact ? "}\n" : "\n}\n", stdout);
    json_decref(json);
}

static bool printable(ProtobufCBinaryData bytes)
{
    json_t *text = json_stringn((const char *)bytes.data, bytes.len);
    bool result = text != NULL;

    json_decref(text);
    for (size_t i = 0; i < bytes.len && result; i++) {
        result = bytes.data[i] >= 0x20 || bytes.data[i] == '\t';
    }
    return result && memchr(bytes.data, 0x7f, bytes.len) == NULL;
}

static void print_bytes(ProtobufCBinaryData bytes)
{
    if (printable(bytes)) {
        fwrite(bytes.data, 1, bytes.len, stdout);
        return;
    }
    fputs("hex:", stdout);
    for (size_t i = 0; i < bytes.len; i++) {
        printf("%02x", bytes.data[i]);
    }
}

void cli_print_message(const Narad__V1__Message *message)
{
    time_t seconds = (time_t)(message->timestamp_ms / 1000);
    struct tm utc;
    char when[32];

    gmtime_r(&seconds, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    printf("[p%u @%" PRIu64 "]", message->partition, message->offset);
    if (message->key.len > 0) {
        fputs(" key=", stdout);
        print_bytes(message->key);
    }
    printf(" %s ", when);
    ProtobufCBinaryData payload = message->payload;
    if (payload.len > 1 && payload.data[payload.len - 1] == '\n') {
        payload.len -= 1; /* `echo text | narad produce`: it is text; --raw shows every byte */
    }
    print_bytes(payload);
    putchar('\n');
}

bool cli_read_file(const char *path, size_t size_max, uint8_t **data, size_t *size)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t capacity = 65536;
    bool ok = file != NULL;

    if (!ok) {
        cli_fail("%s: %s", path, strerror(errno));
        return false;
    }
    *data = nd_xmalloc(capacity);
    *size = 0;
    for (size_t got; ok && (got = fread(*data + *size, 1, capacity - *size, file)) > 0;) {
        *size += got;
        if (*size > size_max) {
            cli_fail("%s: larger than %zu bytes", path, size_max);
            ok = false;
        } else if (*size == capacity) {
            capacity *= 2;
            *data = nd_xrealloc(*data, capacity);
        }
    }
    if (ok && ferror(file)) {
        cli_fail("%s: %s", path, strerror(errno));
        ok = false;
    }
    if (file != stdin) {
        fclose(file);
    }
    if (!ok) {
        nd_free(*data);
    }
    return ok;
}

void cli_progress(struct cli_progress *progress, const char *format, ...)
{
    uint64_t now = cli_now_ns();
    va_list args;

    if (now - progress->last_ns < 100000000u || !isatty(STDERR_FILENO)) {
        return;
    }
    progress->last_ns = now;
    progress->shown = true;
    fputs("\r\033[K", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->shown) {
        fputs("\r\033[K", stderr);
    }
}
