#include "tests/hostile/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/crc32c.h"

#include "storage/segment.h"
#include "storage/wal_file.h"

enum { SEGMENT_BYTES = 13 << 10, FLUSH_NOW = 200, FLUSH_NEVER = 1 << 20, SEED = 5 };

void store_node_init(struct node *node, struct sim_env *sim)
{
    node_init(node, sim);
    node->options.segment_bytes = SEGMENT_BYTES;
    node->options.flush_bytes = FLUSH_NEVER;
    node->options.wal_keep_bytes = 0;
    node->options.flush_age_ms = 24 * 3600 * 1000;
    node->options.cache_bytes = 4096;
    node->options.tail_memory_bytes = 1 << 20;
    (void)node_topic(node, "warm", 1);
    (void)node_topic(node, "cold", 1);
}

static void produce(struct store *store, struct node *node, uint32_t topic, uint32_t count)
{
    char payloads[8][NODE_PAYLOAD_MAX];
    const char *list[8];

    ND_ASSERT(count <= 8);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t offset = store->counts[topic] + i;
        snprintf(payloads[i], sizeof payloads[i], "t%u-%u-%08x%08x", topic, offset,
                 offset * 2654435761u + topic, offset * 40503u + 7);
        memcpy(store->messages[topic][offset].payload, payloads[i], sizeof payloads[i]);
        list[i] = payloads[i];
    }
    struct node_produce *request = node_produce_start(node, topic, 0, list, count);
    node_run(node);
    ND_ASSERT(request->done && request->err == ND_OK);
    ND_ASSERT(request->offsets[0] == store->counts[topic]);
    store->counts[topic] += count;
    nd_free(request);
}

/* Take `count` messages, the last of them first: ack every second one, give the others back. */
static void ack(struct store *store, struct node *node, uint32_t topic, uint32_t count)
{
    struct node_delivery deliveries[8];
    uint32_t taken = 0;

    while (taken < count && node_take(node, topic, 0, &deliveries[taken])) {
        taken += 1;
    }
    for (uint32_t i = taken; i-- > 0;) {
        bool acks = i % 2 == 1;
        enum nd_err err =
            node_settle(node, topic, &deliveries[i], acks ? ND_SETTLE_ACK : ND_SETTLE_NACK);
        ND_ASSERT(err == ND_OK);
        store->messages[topic][deliveries[i].offset].acked |= acks;
    }
}

static void start(struct node *node, uint32_t flush_bytes, uint64_t eviction_ms)
{
    struct nd_errmsg msg = {{0}};

    node->options.flush_bytes = flush_bytes;
    node->options.look_ms = eviction_ms > 0 ? 1000 : 0;
    node->options.idle_eviction_ms = eviction_ms;
    enum nd_err err = node_open(node, &msg);
    if (err != ND_OK) {
        fprintf(stderr, "the store cannot be made: %s\n", msg.text);
    }
    ND_ASSERT(err == ND_OK);
}

static void acked_note(struct store *store, uint32_t topic)
{
    for (uint32_t i = 0; i < store->counts[topic]; i++) {
        store->messages[topic][i].acked_before = store->messages[topic][i].acked;
    }
}

/* Segments, sealed ones with an index, of both; "cold" evicted twice, with acks between. */
static void life(struct store *store, struct node *node, struct sim_env *sim)
{
    start(node, FLUSH_NOW, 0);
    for (uint32_t i = 0; i < 3; i++) {
        produce(store, node, STORE_WARM, 4);
        produce(store, node, STORE_COLD, 4);
        node_advance(node, 2000);
    }
    ack(store, node, STORE_WARM, 4);
    ack(store, node, STORE_COLD, 4);
    node_stop(node);
    for (uint32_t i = 0; i < 2; i++) { /* opened, used, evicted */
        start(node, FLUSH_NOW, 5000);
        ack(store, node, STORE_COLD, 3);
        produce(store, node, STORE_WARM, 4);
        node_advance(node, 200000);
        node_stop(node);
        if (i == 0) {
            image_take(&store->older, sim);
            acked_note(store, STORE_COLD);
        }
    }
}

/* Records and acks that only the log has, in its last two files. */
static void tail(struct store *store, struct node *node, struct sim_env *sim)
{
    struct image before;

    start(node, FLUSH_NEVER, 0);
    produce(store, node, STORE_WARM, 3);
    ack(store, node, STORE_WARM, 4);
    node_crash(node);
    start(node, FLUSH_NEVER, 0);
    produce(store, node, STORE_WARM, 2);
    ack(store, node, STORE_WARM, 4);
    image_take(&before, sim);
    acked_note(store, STORE_WARM);
    store->older_count = store->counts[STORE_WARM];
    /* The last file of the log as it was then replaces its older copy of some other file. */
    for (size_t i = 0; i < store->older.count; i++) {
        struct image_file *file = &store->older.files[i];
        if (strstr(file->path, "/wal/") != NULL) {
            nd_free(file->path);
            nd_free(file->bytes);
            *file = store->older.files[--store->older.count];
            i -= 1;
        }
    }
    for (size_t i = 0; i < before.count; i++) {
        if (strstr(before.files[i].path, ".wal") != NULL) {
            store->older.files[store->older.count++] = before.files[i];
        } else {
            nd_free(before.files[i].path);
            nd_free(before.files[i].bytes);
        }
    }
    produce(store, node, STORE_WARM, 2);
    ack(store, node, STORE_WARM, 4);
    uint32_t first = store->counts[STORE_WARM];
    produce(store, node, STORE_WARM, 2);
    store->messages[STORE_WARM][first].in_last_group = true;
    store->messages[STORE_WARM][first + 1].in_last_group = true;
    node_crash(node);
}

static void last_group_find(struct store *store, struct sim_env *sim)
{
    struct nd_wal_reader reader;
    struct nd_wal_header header;
    struct nd_wal_frame frame;
    struct nd_slice body;
    uint64_t at = ND_WAL_BLOCK;

    for (size_t i = 0; i < store->image.count; i++) { /* ascending */
        if (strstr(store->image.files[i].path, ".wal") != NULL) {
            snprintf(store->last_log, sizeof store->last_log, "%s", store->image.files[i].path);
        }
    }
    enum nd_err err = nd_wal_reader_open(&reader, sim_env_get(sim), store->last_log, NULL);
    ND_ASSERT(err == ND_OK);
    err = nd_wal_reader_header(&reader, &header, NULL);
    ND_ASSERT(err == ND_OK);
    while (nd_wal_reader_frame(&reader, at, &frame, &body, NULL) == ND_OK) {
        store->last_group_at = at;
        at += nd_wal_frame_bytes(frame.body_size);
    }
    ND_ASSERT(store->last_group_at > ND_WAL_BLOCK);
    nd_wal_reader_close(&reader);
}

struct collecting {
    struct store *store;
    const char *path;
};

static bool frame_collect(void *arg, const struct nd_segment_frame *frame, const uint8_t *bytes,
                          bool damaged)
{
    struct collecting *c = arg;
    struct store_frame *out = &c->store->frames[c->store->frames_count++];
    (void)bytes;

    ND_ASSERT(!damaged && c->store->frames_count < ND_ARRAY_SIZE(c->store->frames));
    snprintf(out->path, sizeof out->path, "%s", c->path);
    out->topic = strstr(c->path, "/cold/") != NULL ? STORE_COLD : STORE_WARM;
    out->from = frame->at;
    out->to = frame->at + nd_frame_size(&frame->header);
    out->first = frame->header.base_offset;
    out->end = nd_frame_end(&frame->header);
    return true;
}

static void frames_find(struct store *store, struct sim_env *sim)
{
    const struct nd_env *env = sim_env_get(sim);

    for (size_t i = 0; i < store->image.count; i++) {
        const char *path = store->image.files[i].path;
        struct nd_segment_summary summary;
        struct collecting collecting = {store, path};
        int file;
        if (strstr(path, ".log") == NULL) {
            continue;
        }
        enum nd_err err = env->open(env->impl, path, ND_OPEN_READ, &file, NULL);
        ND_ASSERT(err == ND_OK);
        err = nd_segment_header_read(env, file, &summary, NULL);
        ND_ASSERT(err == ND_OK);
        struct nd_segment_scan scan = {.env = env,
                                       .file = file,
                                       .epoch = summary.epoch,
                                       .from = ND_SEGMENT_HEADER_SIZE,
                                       .to = store->image.files[i].size,
                                       .frame = frame_collect,
                                       .arg = &collecting};
        err = nd_segment_scan(&scan, NULL);
        ND_ASSERT(err == ND_OK && !scan.torn);
        env->close(env->impl, file);
    }
}

/* The FORMAT file that speaks for the ids of node.c. */
static void format_add(struct store *store)
{
    struct image_file *file = &store->image.files[store->image.count++];
    char text[256];
    int size = snprintf(text, sizeof text, "narad-data 1\nstore ");

    for (int i = 0; i < 16; i++) {
        size += snprintf(text + size, sizeof text - (size_t)size, "5a");
    }
    size += snprintf(text + size, sizeof text - (size_t)size, "\nstate ready\n");
    uint32_t crc = nd_crc32c(0, text, (size_t)size);
    size += snprintf(text + size, sizeof text - (size_t)size, "crc32c %08" PRIx32 "\n", crc);
    *file = (struct image_file){.path = nd_xstrdup("data/FORMAT"),
                                .bytes = nd_xmalloc((size_t)size),
                                .filled = (uint64_t)size,
                                .size = (uint64_t)size};
    memcpy(file->bytes, text, (size_t)size);
}

void store_make(struct store *store)
{
    struct sim_env *sim = sim_env_new(SEED);
    struct node node;

    memset(store, 0, sizeof *store);
    store_node_init(&node, sim);
    life(store, &node, sim);
    tail(store, &node, sim);
    image_take(&store->image, sim);
    last_group_find(store, sim);
    frames_find(store, sim);
    format_add(store);
    node_release(&node);
    sim_env_free(sim);
}

void store_release(struct store *store)
{
    image_release(&store->image);
    image_release(&store->older);
}
