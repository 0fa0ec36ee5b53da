/* Writes the seeds of the fuzz targets with the real encoders: make_seeds <dir of the corpora>.
 * Run it when a format changes, or a target is added; what it writes is committed. */
#include <inttypes.h>
#include <sys/stat.h>

#include "cluster/command.h"
#include "cluster/snapshot.h"
#include "proto/narad/cluster/v1/command.pb-c.h"
#include "proto/narad/v1/admin.pb-c.h"
#include "proto/narad/v1/broker.pb-c.h"
#include "server/broker/handle.h"
#include "storage/index.h"
#include "storage/segment.h"
#include "storage/wal_entry.h"
#include "storage/wal_frame.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/cluster/commands.h"

static const char *corpus_dir;

static void seed_write(const char *target, const char *name, struct nd_slice bytes)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", corpus_dir, target);
    (void)mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%s/%s", corpus_dir, target, name);
    FILE *file = fopen(path, "we");
    FUZZ_CHECK(file != NULL && fwrite(bytes.data, 1, bytes.size, file) == bytes.size);
    FUZZ_CHECK(fclose(file) == 0);
}

static void seed_buf(const char *target, const char *name, struct nd_buf *buf)
{
    FUZZ_CHECK(!nd_buf_failed(buf));
    seed_write(target, name, nd_buf_slice(buf));
    nd_buf_reset(buf);
}

static void seed_text(const char *target, const char *name, const char *text)
{
    seed_write(target, name, nd_slice_str(text));
}

/* --- storage --- */

static const struct nd_partition_id partition = {
    .incarnation = 7, .partition = 3, .topic = "orders"};

/* Three records: bare, with a key, with key and headers. */
static struct nd_slice run_make(uint8_t out[512], uint32_t *count)
{
    struct nd_record_header headers[] = {{nd_slice_str("trace-id"), nd_slice_str("4711")},
                                         {nd_slice_str("x"), nd_slice_str("")}};
    size_t size = 0;

    size += nd_record_put(out, nd_slice_str(""), NULL, 0, nd_slice_str("first"));
    size += nd_record_put(out + size, nd_slice_str("key"), NULL, 0, nd_slice_str("second"));
    size +=
        nd_record_put(out + size, nd_slice_str("k"), headers, 2, nd_slice_str("third of the run"));
    nd_run_set_time(out, size, 1767225600000);
    *count = 3;
    return nd_slice_make(out, size);
}

static struct nd_positions positions_make(void)
{
    static struct nd_offset_range ahead[] = {{5, 6}, {9, 9}};
    static struct nd_attempt attempts[] = {{4, 2}, {7, 3}};
    static struct nd_token tokens[] = {{9, 5, 77}};
    static struct nd_cursor cursors[] = {{11, 1, 0, 3}};

    return (struct nd_positions){.id = partition,
                                 .applied_sequence = 4,
                                 .frontier = 3,
                                 .next_offset = 12,
                                 .flushed_offset = 2,
                                 .last_commit_ms = 1767225600000,
                                 .ahead = ahead,
                                 .ahead_count = 2,
                                 .attempts = attempts,
                                 .attempts_count = 2,
                                 .tokens = tokens,
                                 .tokens_count = 1,
                                 .cursors = cursors,
                                 .cursors_count = 1};
}

/* Entry `kind` of a list that has one of each. False at its end. */
static bool unit_make(struct nd_wal_unit *unit, uint32_t kind, struct nd_slice run, uint32_t count)
{
    static const struct nd_offset_range ranges[] = {{0, 1}, {3, 3}};
    static const struct nd_cursor cursor = {11, 1, 0, 3};
    struct nd_positions positions = positions_make();
    struct nd_wal_flushed flushed[] = {{partition, 2}};

    switch (kind) {
    case 0:
        nd_wal_unit_add_commit(
            unit, &(struct nd_wal_commit){&partition, 0, 1767225600000, count, run, 0, 0, 0});
        return true;
    case 1:
        nd_wal_unit_add_accept(
            unit, &(struct nd_wal_accept){&partition, 1767225600000, count, run, 5, 100});
        return true;
    case 2: nd_wal_unit_add_ack(unit, &(struct nd_wal_ack){&partition, ranges, 2}); return true;
    case 3:
        nd_wal_unit_add_dispatched(unit, &(struct nd_wal_dispatched){5, ranges, 2});
        return true;
    case 4: nd_wal_unit_add_cursor(unit, &partition, &cursor); return true;
    case 5: nd_wal_unit_add_position(unit, &positions); return true;
    case 6:
        nd_wal_unit_add_checkpoint(unit, &(struct nd_wal_checkpoint){flushed, 1, 1767225600000});
        return true;
    case 7:
        nd_wal_unit_add_restated(
            unit, &(struct nd_wal_commit){&partition, 0, 1767225600000, count, run, 9, 5, 70});
        return true;
    default: return false;
    }
}

/* Its bytes as the log has them when its first sequence is `sequence`. */
static uint32_t unit_bytes(struct nd_wal_unit *unit, uint64_t sequence, struct nd_buf *out)
{
    struct nd_wal_stamp stamp = {.member = 9, .writer = 5, .needed_from = sequence};
    uint32_t sequences = unit->sequences;

    unit->sequence = sequence;
    nd_wal_unit_stamp(unit, &stamp);
    for (uint32_t i = 0; i < unit->parts_count; i++) {
        const struct nd_wal_part *part = &unit->parts[i];
        nd_buf_put(out, unit->heads.data + part->head_at, part->head_size);
        nd_buf_put_slice(out, part->body);
    }
    nd_wal_unit_release(unit);
    return sequences;
}

static void wal_frame_seed(const char *name, struct nd_slice body, uint32_t sequences,
                           struct nd_buf *out)
{
    struct nd_wal_frame_writer writer;
    struct nd_wal_frame frame = {.epoch = 8,
                                 .at = 3 * ND_WAL_BLOCK,
                                 .first_sequence = 1,
                                 .synced_to = ND_WAL_BLOCK,
                                 .body_size = (uint32_t)body.size,
                                 .sequences = sequences};
    uint8_t *bytes = nd_xmalloc(nd_wal_frame_bytes(body.size));

    nd_wal_frame_begin(&writer, bytes, &frame);
    nd_wal_frame_add(&writer, body);
    nd_wal_frame_end(&writer);
    nd_buf_put(out, bytes, ND_WAL_FRAME_HEADER_SIZE + body.size);
    seed_buf("wal_frame", name, out);
    nd_free(bytes);
}

static void wal_seeds(struct nd_buf *out)
{
    uint8_t records[512];
    uint32_t count, sequences, all_sequences = 0;
    struct nd_slice run = run_make(records, &count);
    struct nd_buf body, all, file;
    struct nd_wal_unit unit;
    char name[32];

    nd_buf_init(&body, SIZE_MAX);
    nd_buf_init(&all, SIZE_MAX);
    nd_buf_init(&file, SIZE_MAX);
    nd_buf_put_u8(&file, 1); /* two files, see fuzz_wal_file.c */
    for (uint32_t kind = 0;; kind++) {
        nd_wal_unit_init(&unit, ND_WAL_RESERVED);
        if (!unit_make(&unit, kind, run, count)) {
            nd_wal_unit_release(&unit);
            break;
        }
        sequences = unit_bytes(&unit, (UINT64_C(1) << 40) + all_sequences, &body);
        all_sequences += sequences;
        nd_buf_put_slice(&all, nd_buf_slice(&body));
        nd_buf_put_u8(&file, 0);
        nd_buf_put_u16(&file, (uint16_t)body.size);
        nd_buf_put_slice(&file, nd_buf_slice(&body));
        snprintf(name, sizeof name, "entry-%" PRIu32, kind);
        wal_frame_seed(name, nd_buf_slice(&body), sequences, out);
        nd_buf_reset(&body);
    }
    wal_frame_seed("all", nd_buf_slice(&all), all_sequences, out);
    wal_frame_seed("empty", nd_slice_make(NULL, 0), 0, out);
    nd_buf_put_u8(&file, 1); /* the end of the first; the second follows it at its last sequence */
    nd_buf_put_u16(&file, 0);
    nd_buf_put_u16(&file, (uint16_t)all_sequences);
    nd_buf_put_u8(&file, 0);
    nd_buf_put_u16(&file, (uint16_t)all.size);
    nd_buf_put_slice(&file, nd_buf_slice(&all));
    seed_buf("wal_file", "two", &file);
    nd_buf_release(&body);
    nd_buf_release(&all);
    nd_buf_release(&file);
}

/* A frame with the run at `base`, into `out`. */
static void frame_make(struct nd_buf *out, uint64_t base, enum nd_codec codec)
{
    uint8_t records[512], frame[ND_FRAME_HEADER_SIZE + 512];
    struct nd_frame_header header = {.codec = codec, .base_offset = base, .first_ms = 1};
    struct nd_slice run = run_make(records, &header.record_count);
    struct nd_compressor *compressor = nd_compressor_new();

    header.raw_size = header.stored_size = (uint32_t)run.size;
    header.last_ms = 2;
    memcpy(frame + ND_FRAME_HEADER_SIZE, run.data, run.size);
    if (codec == ND_CODEC_ZSTD) {
        header.stored_size = (uint32_t)nd_compress(compressor, ND_LEVEL_DEFAULT, run,
                                                   frame + ND_FRAME_HEADER_SIZE, 512);
        FUZZ_CHECK(header.stored_size > 0);
    }
    nd_frame_finish(frame, 77, &header);
    nd_buf_put(out, frame, nd_frame_size(&header));
    nd_compressor_free(compressor);
}

static void piece_put(struct nd_buf *out, uint8_t kind, struct nd_buf *bytes, uint16_t size)
{
    nd_buf_put_u8(out, kind);
    nd_buf_put_u16(out, bytes != NULL ? (uint16_t)bytes->size : size);
    if (bytes != NULL) {
        nd_buf_put_slice(out, nd_buf_slice(bytes));
        nd_buf_reset(bytes);
    }
}

static void index_make(struct nd_buf *out, uint64_t base)
{
    struct nd_index index;
    struct nd_segment_summary summary = {.base_offset = base,
                                         .epoch = 77,
                                         .end_offset = base + 6,
                                         .records = 6,
                                         .size = 8500,
                                         .first_ms = 1,
                                         .last_ms = 2};

    nd_index_init(&index);
    nd_index_add(&index, base, 4096, 100);
    nd_index_add(&index, base + 3, 8192, 100);
    nd_index_put(out, &index, &summary);
    nd_index_release(&index);
}

static void log_seeds(struct nd_buf *out)
{
    uint8_t records[512];
    uint32_t count;
    struct nd_buf piece;

    nd_buf_init(&piece, SIZE_MAX);
    seed_write("record", "run", run_make(records, &count));
    frame_make(out, 10, ND_CODEC_NONE);
    seed_buf("frame", "plain", out);
    frame_make(out, 10, ND_CODEC_ZSTD);
    seed_buf("frame", "zstd", out);
    index_make(out, 6);
    seed_buf("index", "two-anchors", out);
    for (uint16_t flushed = 0; flushed <= 9; flushed += 9) { /* see fuzz_segment.c */
        nd_buf_put_u16(out, flushed);
        nd_buf_put_u16(out, UINT16_MAX);
        frame_make(&piece, 0, ND_CODEC_NONE);
        piece_put(out, 0, &piece, 0);
        piece_put(out, 2, NULL, 0);
        frame_make(&piece, 3, ND_CODEC_ZSTD);
        piece_put(out, 0, &piece, 0);
        index_make(&piece, 0);
        piece_put(out, 4, &piece, 0);
        piece_put(out, 3, NULL, 5);
        frame_make(&piece, 6, ND_CODEC_ZSTD);
        piece_put(out, 0, &piece, 0);
        nd_buf_put(&piece, "torn", 4);
        piece_put(out, 1, &piece, 0);
        seed_buf("segment", flushed == 0 ? "torn" : "flushed", out);
    }
    struct nd_positions positions = positions_make();
    nd_buf_put_u8(out, 0);
    nd_positions_put(out, &positions);
    seed_buf("state", "full", out);
    nd_buf_release(&piece);
}

/* --- metadata --- */

static void body_put(struct nd_buf *out, const struct nd_command *command)
{
    struct nd_buf entry;

    nd_buf_init(&entry, SIZE_MAX);
    nd_command_put(&entry, command);
    uint32_t size = nd_get_u32(entry.data + 4);
    nd_buf_put_u16(out, (uint16_t)size);
    nd_buf_put(out, entry.data + 8, size);
    nd_buf_release(&entry);
}

static void metadata_seeds(struct nd_buf *out)
{
    struct nd_command commands[] = {
        command_register(1, 9, "node-1"),
        command_create(2, "orders", 3),
        command_alter_partitions(3, "orders", 5),
        command_delete(4, "orders"),
        command_create(5, "orders", 2),
        command_user_seed_root(6, "$2b$10$root"),
        command_user_create(7, "ann", "orders-*"),
        command_user_create(8, "bob", NULL),
        command_user_set_grants(9, "ann", "*"),
        command_user_set_password(10, "ann", "$2b$10$second"),
        command_user_delete(11, "bob"),
        command_user_delete(12, "admin"),
        {.proposer = 7, .sequence = 1, .open_from = 1, .kind = ND_COMMAND_NOOP}};
    struct nd_state state;

    nd_state_init(&state);
    nd_snapshot_put(out, &state);
    seed_buf("snapshot", "empty", out);
    for (size_t i = 0; i < ND_ARRAY_SIZE(commands); i++) {
        struct nd_outcome outcome;
        body_put(out, &commands[i]);
        nd_state_apply(&state, &commands[i], i + 1, &outcome);
        nd_outcome_release(&outcome);
        nd_command_release(&commands[i]);
    }
    seed_buf("command", "log", out);
    nd_snapshot_put(out, &state);
    seed_buf("snapshot", "full", out);
    nd_state_release(&state);
}

/* --- messages --- */

static char *lend(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* `choice` in front: which of the types of the target it is. */
static void message_seed(const char *target, const char *name, uint8_t choice,
                         const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = nd_xmalloc(size + 1);

    bytes[0] = choice;
    protobuf_c_message_pack(message, bytes + 1);
    seed_write(target, name, nd_slice_make(bytes, size + 1));
    nd_free(bytes);
}

static void produce_seeds(void)
{
    static uint8_t bytes[] = "some bytes";
    Narad__V1__Header header = NARAD__V1__HEADER__INIT, *headers[] = {&header, &header};
    Narad__V1__Record bare = NARAD__V1__RECORD__INIT, full = bare, *records[] = {&bare, &full};
    Narad__V1__ProduceRequest request = NARAD__V1__PRODUCE_REQUEST__INIT;
    Narad__V1__ProduceItem item = NARAD__V1__PRODUCE_ITEM__INIT, *items[] = {&item, &item};
    Narad__V1__ProduceStreamRequest stream = NARAD__V1__PRODUCE_STREAM_REQUEST__INIT;

    header.name = lend("trace-id");
    header.value = (ProtobufCBinaryData){4, bytes};
    bare.payload = full.payload = (ProtobufCBinaryData){sizeof bytes - 1, bytes};
    full.key = (ProtobufCBinaryData){4, bytes};
    full.headers = headers;
    full.n_headers = 2;
    full.partition_choice_case = NARAD__V1__RECORD__PARTITION_CHOICE_PARTITION;
    full.partition = 300;
    request.topic = item.topic = lend("orders");
    request.records = item.records = records;
    request.n_records = item.n_records = 2;
    item.id = UINT64_MAX;
    stream.items = items;
    stream.n_items = 2;
    message_seed("produce", "request", 0, &request.base);
    message_seed("produce", "stream", 1, &stream.base);
    message_seed("messages", "produce", 5, &request.base);
    message_seed("messages", "produce-stream", 6, &stream.base);
}

static void message_seeds(void)
{
    Narad__V1__Settle settle = NARAD__V1__SETTLE__INIT, *settles[] = {&settle, &settle};
    Narad__V1__AckRequest ack = NARAD__V1__ACK_REQUEST__INIT;
    Narad__V1__SubscribeStart start = NARAD__V1__SUBSCRIBE_START__INIT;
    Narad__V1__SubscribeRequest subscribe = NARAD__V1__SUBSCRIBE_REQUEST__INIT;
    Narad__V1__Poll poll = NARAD__V1__POLL__INIT, *polls[] = {&poll};
    Narad__V1__ConsumeStreamRequest consume = NARAD__V1__CONSUME_STREAM_REQUEST__INIT;
    Narad__V1__CreateTopicRequest create = NARAD__V1__CREATE_TOPIC_REQUEST__INIT;
    uint64_t cancels[] = {1, 300};

    settle.receipt_handle = lend("3:12:99");
    settle.action = NARAD__V1__SETTLE_ACTION__SETTLE_ACTION_NACK;
    ack.topic = start.topic = poll.topic = create.name = lend("orders");
    ack.settles = subscribe.settles = settles;
    ack.n_settles = subscribe.n_settles = 2;
    subscribe.start = &start;
    consume.polls = polls;
    consume.n_polls = 1;
    consume.cancel_ids = cancels;
    consume.n_cancel_ids = 2;
    message_seed("messages", "ack", 0, &ack.base);
    message_seed("messages", "subscribe", 1, &subscribe.base);
    message_seed("messages", "consume-stream", 3, &consume.base);
    message_seed("messages", "create-topic", 7, &create.base);
}

/* --- texts --- */

static void text_seeds(void)
{
    static const char flags[] = "\0--dev\0--data-dir=/d\0NARAD_GRPC_ADDR=:1\0--log-level\0debug";
    static const char file[] = "{\"security\":{\"enabled\":false},\"storage\":{\"data_dir\":\"/d\","
                               "\"codec\":\"none\",\"wal_file_bytes\":67108864},"
                               "\"http\":{\"read_timeout\":\"1m30s\"}}\0NARAD_NODE_ID=n";
    struct nd_handle handle = {.offset = 12, .nonce = INT64_MAX, .partition = 3};
    char text[ND_HANDLE_SIZE_MAX];

    seed_write("handle", "one", nd_slice_make(text, nd_handle_put(text, &handle)));
    seed_text("handle", "zeros", "00:007:1");
    seed_text("basic", "no-padding", "Basic dXNlcjpwYXNz");
    seed_text("basic", "padding", "bAsIc  YTpiOmM=");
    seed_text("duration", "hours", "1h30m");
    seed_text("duration", "fraction", "1.5s500us500us");
    seed_text("duration", "zero", "0");
    seed_text("query", "produce", "key=a%20b+c&partition=%2B1&k%65y");
    seed_text("query", "ack", "receipt_handle=0%3A1%3A2&extend=true");
    seed_text("query", "lenient", "wait=1h1.5s&;a=b&w%61it=%ZZ&max=10");
    seed_text("query", "duration", "-1h30m.5s500us9ns");
    seed_text("query", "number", "-9223372036854775808");
    seed_text("path", "topic", "GET /v1/topics/a%2Fb");
    seed_text("path", "consume", "HEAD /v1/topics/t/consume");
    seed_text("path", "user", "PUT /v1/users/bob/password");
    seed_text("path", "open", "POST /healthz");
    seed_text("path", "dots", "GET /v1/topics/../produce/batch");
    seed_text("json", "topic",
              "{\"Name\":\"a\\u00e9\\ud83d\\ude00\",\"partitions\":-12,\"schema\":{\"x\":[1.5e+3,"
              "null]}}");
    seed_text("json", "batch", "{\"messages\":[{\"payload\":{}},\"x\",[],true,1]} ");
    seed_text("json", "base64", "AP+KAQ==\r\n");
    seed_text("json", "string", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"");
    seed_write("config", "file", nd_slice_make(file, sizeof file));
    seed_write("config", "flags", nd_slice_make(flags, sizeof flags));
}

int main(int argc, char **argv)
{
    struct nd_buf buf;

    if (argc != 2) {
        fprintf(stderr, "usage: make_seeds DIRECTORY\n");
        return 2;
    }
    corpus_dir = argv[1];
    nd_buf_init(&buf, SIZE_MAX);
    wal_seeds(&buf);
    log_seeds(&buf);
    metadata_seeds(&buf);
    produce_seeds();
    message_seeds();
    text_seeds();
    nd_buf_release(&buf);
    return 0;
}
