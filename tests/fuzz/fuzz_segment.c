/* A partition log of one or two segments, opened, read through, opened again and written to. The
 * input says what lies in the files; headers and checksums are sound unless it says otherwise.
 *
 * INPUT: u16 flushed offset | u16 lowest offset that the WAL holds; 0xffff: none | pieces, each
 *   u8 kind | u16 size | bytes */
#include "storage/base/crc32c.h"

#include "storage/plog.h"
#include "storage/segment.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/sim_env.h"

#define DIR "data/topics/orders/0000000000000007/p00003"

enum { EPOCH = 77, BLOCK = 4096, FILE_BYTES_MAX = 128 << 10, FILES_MAX = 3, READS_MAX = 4096 };
enum { PIECE_FRAME, PIECE_RAW, PIECE_PADDING, PIECE_NEXT_FILE, PIECE_INDEX, PIECE_KINDS };

static const uint8_t store_id[16] = {1, 2, 3};

static void file_begin(struct nd_buf *file, uint64_t base)
{
    uint8_t header[ND_SEGMENT_HEADER_SIZE];
    struct nd_segment_summary summary = {.base_offset = base, .epoch = EPOCH};

    memcpy(summary.store_id, store_id, sizeof store_id);
    nd_segment_header_put(header, &summary);
    nd_buf_reset(file);
    nd_buf_put(file, header, sizeof header);
}

static void file_end(const struct nd_env *env, const struct nd_buf *file, uint64_t base,
                     const char *suffix)
{
    char *path = nd_segment_path(DIR, base, suffix);

    FUZZ_CHECK(nd_env_replace_file(env, path, nd_buf_slice(file), NULL) == ND_OK);
    nd_free(path);
}

/* Header and payload of a frame, its size and checksum put right. *end: where its offsets end. */
static void frame_put(struct nd_buf *file, struct nd_slice frame, uint64_t *end)
{
    uint8_t seed[8];

    if (frame.size < ND_FRAME_HEADER_SIZE) {
        return;
    }
    size_t from = file->size;
    nd_buf_put_slice(file, frame);
    uint8_t *p = file->data + from;
    nd_put_u64(seed, EPOCH);
    nd_put_u32(p, ND_FRAME_MAGIC);
    nd_put_u32(p + 28, (uint32_t)(frame.size - ND_FRAME_HEADER_SIZE));
    nd_put_u32(p + 4, nd_crc32c(nd_crc32c(0, seed, sizeof seed), p + 8, frame.size - 8));
    *end = ND_MAX(*end, ND_MIN(nd_get_u64(p + 16), UINT64_MAX / 2) + nd_get_u32(p + 12));
}

static void index_put(const struct nd_env *env, struct nd_slice bytes, uint64_t base)
{
    struct nd_buf index;

    nd_buf_init(&index, SIZE_MAX);
    nd_buf_put_slice(&index, bytes);
    if (bytes.size >= 88) { /* else it is no index at all */
        memcpy(index.data + 16, store_id, sizeof store_id);
        nd_put_u64(index.data + 32, base);
        nd_put_u64(index.data + 40, EPOCH);
        nd_put_u32(index.data + 4, nd_crc32c(0, index.data + 8, index.size - 8));
    }
    file_end(env, &index, base, ND_SEGMENT_INDEX);
    nd_buf_release(&index);
}

static void files_put(const struct nd_env *env, struct nd_reader *in)
{
    static const uint8_t zeros[BLOCK];
    struct nd_buf file;
    uint64_t base = 0, end = 0; /* a file begins behind the frames of the one before */
    uint32_t files = 1;

    nd_buf_init(&file, SIZE_MAX);
    file_begin(&file, base);
    while (nd_reader_left(in) > 0 && file.size < FILE_BYTES_MAX) {
        uint8_t kind = nd_read_u8(in) % PIECE_KINDS;
        uint16_t size = nd_read_u16(in);
        if (kind == PIECE_NEXT_FILE && (files == FILES_MAX || end > UINT64_MAX / 2)) {
            break;
        } else if (kind == PIECE_NEXT_FILE) {
            files += 1;
            file_end(env, &file, base, ND_SEGMENT_LOG);
            base = ND_MAX(base + 1 + size, end);
            file_begin(&file, base);
        } else if (kind == PIECE_PADDING) {
            nd_buf_put(&file, zeros, (BLOCK - file.size % BLOCK) % BLOCK);
        } else if (kind == PIECE_FRAME) {
            frame_put(&file, fuzz_take(in, size), &end);
        } else if (kind == PIECE_INDEX) {
            index_put(env, fuzz_take(in, size), base);
        } else {
            nd_buf_put_slice(&file, fuzz_take(in, size));
        }
    }
    file_end(env, &file, base, ND_SEGMENT_LOG);
    nd_buf_release(&file);
}

/* What an open showed. */
struct seen {
    struct nd_plog_stats stats;
    uint32_t crc; /* of all records */
};

/* Read all there is; a checksum of it. */
static uint32_t read_all(struct nd_plog *plog)
{
    struct nd_plog_stats stats;
    struct nd_frame_data frame;
    uint64_t offset, next;
    uint32_t crc = 0, reads = 0;

    nd_plog_stats(plog, &stats);
    FUZZ_CHECK(stats.start_offset <= stats.end_offset);
    for (offset = stats.start_offset; offset < stats.end_offset && reads < READS_MAX; reads++) {
        enum nd_err err = nd_plog_read(plog, offset, &frame, &next, NULL);
        FUZZ_CHECK(err == ND_OK || err == ND_ERR_NOT_FOUND || err == ND_ERR_CORRUPT);
        if (err != ND_OK) {
            FUZZ_CHECK(next > offset);
            offset = next;
            continue;
        }
        FUZZ_CHECK(frame.base_offset <= offset && offset < frame.base_offset + frame.count);
        FUZZ_CHECK(nd_run_check(frame.records, frame.count) == ND_OK);
        crc = nd_crc32c(nd_crc32c(crc, &frame.base_offset, sizeof frame.base_offset),
                        frame.records.data, frame.records.size);
        offset = frame.base_offset + frame.count;
        nd_block_unref(frame.block);
    }
    FUZZ_CHECK(reads < READS_MAX);
    return crc;
}

/* One record behind the end is taken and read back. */
static void write_one(const struct nd_env *env, struct nd_plog *plog)
{
    static const uint8_t payload[] = "payload";
    struct nd_plog_stats stats;
    struct nd_frame_data frame;
    uint64_t end, next;
    struct nd_block *block = nd_block_new(nd_record_size(0, 0, sizeof payload));

    nd_plog_stats(plog, &stats);
    FUZZ_CHECK(block != NULL);
    size_t size = nd_record_put(block->bytes, nd_slice_str(""), NULL, 0,
                                nd_slice_make(payload, sizeof payload));
    struct nd_tail_run run = {.block = block,
                              .records = {block->bytes, size},
                              .base_offset = stats.end_offset,
                              .count = 1};
    FUZZ_CHECK(nd_plog_write(plog, &run, 1, NULL) == ND_OK);
    int file = nd_plog_pending_file(plog);
    nd_plog_synced(plog, env->sync(env->impl, file, NULL), false);
    FUZZ_CHECK(nd_plog_verify(plog, &end, NULL) == ND_OK && end == stats.end_offset + 1);
    FUZZ_CHECK(nd_plog_read(plog, stats.end_offset, &frame, &next, NULL) == ND_OK);
    FUZZ_CHECK(nd_slice_equal(frame.records, run.records));
    nd_block_unref(frame.block);
    nd_block_unref(block);
}

/* Open it and read it through. False: refused. */
static bool open_once(const struct nd_plog_options *options, uint64_t flushed, uint64_t wal_start,
                      struct nd_plog **out, struct seen *seen)
{
    struct nd_errmsg msg = {""};
    enum nd_err err = nd_plog_open(out, options, DIR, flushed, wal_start, &msg);

    FUZZ_CHECK(err == ND_OK || (err == ND_ERR_CORRUPT && msg.text[0] != '\0'));
    if (err == ND_OK) {
        nd_plog_stats(*out, &seen->stats);
        seen->crc = read_all(*out);
    }
    return err == ND_OK;
}

/* Every open serves the same records. An open may set its last file aside when nothing valid is in
 * it, so what it says of offsets is settled when that is over. */
static void run(struct sim_env *sim, uint64_t flushed, uint64_t wal_start)
{
    const struct nd_env *env = sim_env_get(sim);
    struct nd_plog_options options = {.env = env,
                                      .segment_bytes = 64 << 10,
                                      .frame_bytes = 4 << 10,
                                      .index_stride_bytes = 4 << 10,
                                      .codec = ND_CODEC_ZSTD,
                                      .level = ND_LEVEL_FASTEST};
    struct nd_plog *plog;
    struct seen first, now, before;

    memcpy(options.store_id, store_id, sizeof store_id);
    if (!open_once(&options, flushed, wal_start, &plog, &first)) {
        return;
    }
    now = first;
    for (uint32_t i = 0; i < FILES_MAX + 1; i++) {
        nd_plog_unref(plog);
        before = now;
        FUZZ_CHECK(open_once(&options, flushed, wal_start, &plog, &now));
        FUZZ_CHECK(now.crc == first.crc);
    }
    FUZZ_CHECK(before.stats.start_offset == now.stats.start_offset &&
               before.stats.end_offset == now.stats.end_offset);
    if (now.stats.end_offset < UINT64_MAX - 2) {
        write_one(env, plog);
    }
    nd_plog_unref(plog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_reader in = nd_reader_make(nd_slice_make(data, size));
    struct sim_env *sim = sim_env_new(1);
    uint16_t flushed = nd_read_u16(&in);
    uint16_t wal_start = nd_read_u16(&in);

    FUZZ_CHECK(nd_env_mkdirs(sim_env_get(sim), DIR, NULL) == ND_OK);
    files_put(sim_env_get(sim), &in);
    run(sim, flushed, wal_start == UINT16_MAX ? UINT64_MAX : wal_start);
    sim_env_free(sim);
    return 0;
}
