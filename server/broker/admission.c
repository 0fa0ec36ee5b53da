#include "server/broker/admission.h"

#include "storage/base/alloc.h"

uint32_t nd_fnv1a32(struct nd_slice bytes)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < bytes.size; i++) {
        hash = (hash ^ bytes.data[i]) * 16777619u;
    }
    return hash;
}

/* "record 3: " in a batch, nothing for a single record. */
static enum nd_err refuse(enum nd_err err, uint32_t index, uint32_t count, struct nd_errmsg *msg)
{
    if (count > 1) {
        nd_errmsg_wrap(msg, "record %u", index);
    }
    return err;
}

static bool header_name_ok(struct nd_slice name)
{
    if (name.size == 0 || name.size > ND_HEADER_NAME_SIZE_MAX) {
        return false;
    }
    for (size_t i = 0; i < name.size; i++) {
        uint8_t c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) {
            return false;
        }
    }
    return true;
}

static enum nd_err headers_check(const struct nd_produce_record *record, struct nd_errmsg *msg)
{
    size_t size = 0;

    if (record->header_count > ND_HEADER_COUNT_MAX) {
        nd_errmsg_set(msg, "%u headers: at most %d are allowed", record->header_count,
                      ND_HEADER_COUNT_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < record->header_count; i++) {
        if (!header_name_ok(record->headers[i].name)) {
            nd_errmsg_set(msg, "header %u: the name must match [a-z0-9-]{1,64}", i);
            return ND_ERR_INVALID_ARGUMENT;
        }
        size += record->headers[i].name.size + record->headers[i].value.size;
        if (size > ND_HEADERS_SIZE_MAX) {
            nd_errmsg_set(msg, "headers: names and values take more than %d bytes",
                          ND_HEADERS_SIZE_MAX);
            return ND_ERR_INVALID_ARGUMENT;
        }
    }
    return ND_OK;
}

static enum nd_err record_check(const struct nd_produce_record *record, uint32_t partitions,
                                struct nd_errmsg *msg)
{
    if (record->payload.size == 0) {
        nd_errmsg_set(msg, "message required: the payload is empty, 1 to %d bytes are allowed",
                      ND_PAYLOAD_SIZE_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (record->payload.size > ND_PAYLOAD_SIZE_MAX) {
        nd_errmsg_set(msg, "the payload has %zu bytes: at most %d are allowed",
                      record->payload.size, ND_PAYLOAD_SIZE_MAX);
        return ND_ERR_TOO_LARGE;
    }
    if (record->key.size > ND_KEY_SIZE_MAX) {
        nd_errmsg_set(msg, "the key has %zu bytes: at most %d are allowed", record->key.size,
                      ND_KEY_SIZE_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (record->partition >= (int64_t)partitions || record->partition < -1) {
        nd_errmsg_set(msg, "partition out of range: %lld, the topic has partitions 0 to %u",
                      (long long)record->partition, partitions - 1);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return headers_check(record, msg);
}

static size_t record_size(const struct nd_produce_record *record)
{
    return nd_record_size(record->key.size,
                          nd_record_headers_size(record->headers, record->header_count),
                          record->payload.size);
}

static uint32_t partition_choose(const struct nd_produce_record *record, uint32_t partitions,
                                 uint32_t keyless)
{
    if (record->partition >= 0) {
        return (uint32_t)record->partition;
    }
    return record->key.size > 0 ? nd_fnv1a32(record->key) % partitions : keyless;
}

/* While it lays records out, the run of each partition; UINT32_MAX: none yet. */
struct layout {
    uint32_t *run_of;   /* by partition */
    uint8_t **write_at; /* by run */
};

static enum nd_err batch_check(const struct nd_topic *topic,
                               const struct nd_produce_record *records, uint32_t count,
                               size_t *bytes_out, struct nd_errmsg *msg)
{
    size_t bytes = 0;

    if (count == 0 || count > ND_BATCH_COUNT_MAX) {
        nd_errmsg_set(msg, "%u records: 1 to %d are allowed", count, ND_BATCH_COUNT_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < count; i++) {
        enum nd_err err = record_check(&records[i], topic->partitions, msg);
        if (err != ND_OK) {
            return refuse(err, i, count, msg);
        }
        bytes += record_size(&records[i]);
    }
    if (bytes > ND_BATCH_SIZE_MAX) {
        nd_errmsg_set(msg, "the records take %zu bytes: at most %d are allowed", bytes,
                      ND_BATCH_SIZE_MAX);
        return ND_ERR_TOO_LARGE;
    }
    *bytes_out = bytes;
    return ND_OK;
}

/* Fill runs (partition, count, sizes in records.size) and placements. */
static void runs_plan(struct nd_admission *out, const struct nd_produce_record *records,
                      uint32_t keyless, uint32_t *run_of)
{
    uint32_t partitions = out->topic->partitions;

    memset(run_of, 0xff, partitions * sizeof *run_of);
    for (uint32_t i = 0; i < out->count; i++) {
        uint32_t partition = partition_choose(&records[i], partitions, keyless);
        if (run_of[partition] == UINT32_MAX) {
            run_of[partition] = out->runs_count;
            out->runs[out->runs_count++] = (struct nd_admission_run){.partition = partition};
        }
        struct nd_admission_run *run = &out->runs[run_of[partition]];
        out->placements[i] = (struct nd_placement){partition, run->count, 0};
        run->count += 1;
        run->records.size += record_size(&records[i]);
    }
}

static void runs_encode(struct nd_admission *out, const struct nd_produce_record *records,
                        uint8_t *at, const struct layout *layout)
{
    for (uint32_t r = 0; r < out->runs_count; r++) {
        out->runs[r].records.data = layout->write_at[r] = at;
        at += out->runs[r].records.size;
    }
    for (uint32_t i = 0; i < out->count; i++) {
        uint8_t **write_at = &layout->write_at[layout->run_of[out->placements[i].partition]];
        *write_at += nd_record_put(*write_at, records[i].key, records[i].headers,
                                   records[i].header_count, records[i].payload);
    }
}

enum nd_err nd_admission_encode(struct nd_admission *out, const struct nd_topic *topic,
                                const struct nd_produce_record *records, uint32_t count,
                                _Atomic uint32_t *spread, struct nd_errmsg *msg)
{
    size_t bytes = 0;
    enum nd_err err = batch_check(topic, records, count, &bytes, msg);
    if (err != ND_OK) {
        return err;
    }
    uint32_t runs_max = ND_MIN(count, topic->partitions);
    size_t runs_size = runs_max * sizeof *out->runs;
    size_t front = runs_size + count * sizeof *out->placements;
    struct nd_block *block = nd_block_new(front + bytes);
    if (block == NULL) {
        nd_errmsg_set(msg, "no memory for %zu bytes of records", bytes);
        return ND_ERR_NO_MEMORY;
    }
    *out = (struct nd_admission){
        .topic = nd_topic_ref(topic),
        .block = block,
        .runs = (struct nd_admission_run *)(void *)block->bytes,
        .placements = (struct nd_placement *)(void *)(block->bytes + runs_size),
        .count = count,
    };
    uint32_t small[64];
    uint8_t *small_at[64];
    struct layout layout = {small, small_at};
    if (topic->partitions > ND_ARRAY_SIZE(small)) {
        layout.run_of = nd_xmalloc(topic->partitions * sizeof *layout.run_of);
        layout.write_at = nd_xmalloc(runs_max * sizeof *layout.write_at);
    }
    uint32_t keyless = atomic_fetch_add_explicit(spread, 1, memory_order_relaxed) %
                       topic->partitions; /* only a spread: no order needed */
    runs_plan(out, records, keyless, layout.run_of);
    runs_encode(out, records, block->bytes + front, &layout);
    if (layout.run_of != small) {
        nd_free(layout.run_of);
        nd_free(layout.write_at);
    }
    return ND_OK;
}

void nd_admission_release(struct nd_admission *admission)
{
    nd_topic_unref(admission->topic);
    nd_block_unref(admission->block);
    *admission = (struct nd_admission){0};
}
